"""The shipped model on the mesh, as the README shows it: words that PE programs computed, every bit checked."""

from __future__ import annotations

import json
import re

import pytest

from harness.cli import main as cli
from tests.examples import some
from tools.models.training import texts


@pytest.mark.slow
def test_the_readme_prints_words(capsys):
    count = some(50, 32)
    words = ("generate", "pydoc", "--prompt", "An exception object ", "--tokens", str(count), "--mesh", "8x8", "--json")
    assert cli.main(list(words)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bit_exact"]
    assert len(facts["tokens"]) == len(facts["text"]) == count
    assert facts["max_abs_error"] < 0.1
    known = set(re.findall(r"[A-Za-z]+", "".join(texts())))
    said = re.findall(r"[A-Za-z]+", facts["text"][:-6])
    assert len(said) >= 4
    assert sum(word in known for word in said) >= 0.75 * len(said), facts["text"]
