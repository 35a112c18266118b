"""The shipped model: as its example configures it, a card that is true, words on the mesh, every bit checked."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main as cli
from harness.cli.train_model import check_speaks
from harness.models.hub import CARD, EXAMPLES, find_model
from harness.models.plain import PlainDecoder
from harness.train.config import load_train
from harness.train.text import text_of
from tests.examples import some
from wse_core.formats import Arithmetic
from wse_core.params import machine

TEXT = text_of("pydoc", Path())
WORDS = set(re.findall(r"[A-Za-z]+", TEXT))


@pytest.fixture(scope="module")
def shipped():
    return find_model("pydoc")


def check_words(text, least):
    """Most of what a text says are words of Python's help; whether they make sense is nobody's promise."""
    said = re.findall(r"[A-Za-z]+", text)
    assert len(said) >= least
    assert sum(word in WORDS for word in said) >= 0.75 * len(said), text


@pytest.mark.slow
def test_the_readme_prints_words(capsys):
    count = some(50, 32)
    words = ("generate", "pydoc", "--prompt", "An exception object ", "--tokens", str(count), "--mesh", "8x8", "--json")
    assert cli.main(list(words)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["bit_exact"]
    assert len(facts["tokens"]) == len(facts["text"]) == count
    assert facts["max_abs_error"] < 0.1
    check_words(facts["text"][:-6], 4)


def test_it_is_small_exact_in_f16_and_as_its_example_configures_it(shipped, tmp_path):
    assert shipped.decoder == check_speaks(load_train("pydoc"), tmp_path / "m")
    assert sum(path.stat().st_size for path in (EXAMPLES / "pydoc").iterdir()) < 500_000
    assert {tensor.dtype for tensor in shipped.tensors.values()} == {"F16"}
    weights, losses = shipped.rounded(Arithmetic.of(machine("wse2"), "f16"))
    assert losses == []
    for name, weight in shipped.weights().items():
        np.testing.assert_array_equal(weights[name], weight)


def test_its_card_is_true(shipped):
    """The text is that of the Python which trained it: on another one its digest is another."""
    card = (EXAMPLES / "pydoc" / CARD).read_text(encoding="utf-8")
    config = load_train("pydoc")
    assert f"```toml\n{config.text.strip()}\n```\n" in card
    assert f"| training | {config.train.iterations:,} iterations of {config.data.batch:,} tokens, seed 1 |" in card
    assert "Python Software Foundation License" in card
    page = " ".join(Path("docs/inference.md").read_text(encoding="utf-8").split())
    decoder, weights = shipped.decoder, sum(weight.size for weight in shipped.weights().values())
    assert f"| parameters | {weights:,} |" in card
    assert f"{decoder.vocabulary} characters, {decoder.layers} layers of {decoder.hidden} features, " in page
    assert f"a context of {decoder.context}, {weights:,} parameters in f16" in page
    if f"Python {platform.python_version()}," in card:
        assert hashlib.sha256(TEXT.encode()).hexdigest() in card


def test_it_has_learned(shipped):
    """Texts differ from one Python to the next, so the bounds are wide; a uniform guess costs 4.6 nats."""
    model, length = PlainDecoder(shipped.decoder, shipped.weights()), shipped.decoder.context
    tokenizer = shipped.tokenizer()
    ids = tokenizer.encode("".join(one for one in TEXT if one in tokenizer.ids))
    seen = round(len(ids) * (1 - load_train("pydoc").data.held_out))
    for starts, most in ((range(0, seen, seen // 12), 1.2), (range(seen, len(ids) - length, length * 20), 1.9)):
        losses = []
        for start in starts:
            model.reset()
            logits = model.forward(ids[start : start + length - 1]).astype(np.float64)
            told = logits[np.arange(length - 1), ids[start + 1 : start + length]]
            losses.append((np.log(np.exp(logits).sum(axis=1)) - told).mean())
        assert len(losses) > 10
        assert np.mean(losses) < most


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
@pytest.mark.parametrize("prompt", ['The "for" statement', "The value of the ex", "Return the name of a"])
def test_it_says_words(shipped, prompt, dtype):
    tokenizer = shipped.tokenizer()
    weights, _ = shipped.rounded(Arithmetic.of(machine("wse2"), dtype))
    tokens, _ = PlainDecoder(shipped.decoder, weights).generate(tokenizer.encode(prompt), 80)
    check_words((prompt + tokenizer.decode(tokens))[:-8], 8)
