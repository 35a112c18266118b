"""The grammar for editors colors what the compiler reads: its words, builtins, types and numbers."""

from __future__ import annotations

import json
import re

import pytest

from fabric.csl.comptime.builtins import BUILTINS
from fabric.csl.syntax.parser import GRAMMAR
from fabric.csl.types import PREDEFINED
from harness.editor.answers import WORDS
from tests.conftest import ROOT

EXTENSION = ROOT / "editors" / "vscode"
RULES = json.loads((EXTENSION / "syntaxes" / "csl.tmLanguage.json").read_text(encoding="utf-8"))["patterns"]


def color(text):
    """Return the name of the first rule that takes a whole text."""
    for rule in RULES:
        if "match" in rule and (found := re.match(rule["match"], text)) and found.end() == len(text):
            return rule.get("name", "captures")
    return None


def test_words_are_those_of_the_language():
    text = GRAMMAR.read_text(encoding="utf-8")
    spoken = {word for word in re.findall(r'"([a-z]+)"', text) if word not in ("asm", "volatile")}
    assert spoken - set(WORDS) == set()
    assert {"true", "false"} == set(WORDS) - spoken
    for word in WORDS:
        assert color(word).partition(".")[0] in ("keyword", "constant"), word


@pytest.mark.parametrize("name", sorted(PREDEFINED))
def test_types(name):
    assert color(name) == "support.type.csl" or (name == "color" and color(name) == "keyword.other.csl")


@pytest.mark.parametrize("text", ["0x1f", "12", "1_000", "0b101", "1.5", "2.5e-3", "1e6"])
def test_numbers(text):
    assert color(text) == "constant.numeric.csl"


def test_builtins_and_comments():
    assert {color(name) for name in BUILTINS} == {"support.function.builtin.csl"}
    assert color("// all of it") == "comment.line.double-slash.csl"


def test_the_extension_names_files_that_are_there():
    package = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
    parts = package["contributes"]
    named = [package["main"], parts["languages"][0]["configuration"], parts["grammars"][0]["path"]]
    assert all((EXTENSION / name).is_file() for name in named)
    json.loads((EXTENSION / "language-configuration.json").read_text(encoding="utf-8"))
    assert parts["configuration"]["properties"]["csl.command"]["default"] == ["wse", "csl", "lsp"]
