"""Tokenizers: characters without a library, the library on the same file, and text that comes token by token."""

from __future__ import annotations

import json

import pytest

from harness.kit import modules
from harness.models.tokens import Characters, Unfolding, character_file, load_tokenizer
from wse_core.errors import ConfigError

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
TEXT = 'The "for" statement\n***\n\tx'.replace("\t", "  ")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(character_file(ALPHABET), encoding="utf-8")
    return path


def test_characters_need_no_library(path, monkeypatch):
    monkeypatch.setattr(modules.importlib, "import_module", None)
    tokenizer = load_tokenizer(path)
    assert isinstance(tokenizer, Characters)
    assert tokenizer.size == len(ALPHABET) == 96
    ids = tokenizer.encode(TEXT)
    assert [ALPHABET[token] for token in ids] == list(TEXT)
    assert tokenizer.decode(ids) == TEXT
    with pytest.raises(ConfigError, match="no token for 'é'"):
        tokenizer.encode("café")


def test_the_library_agrees(path):
    library = pytest.importorskip("tokenizers")
    theirs, ours = library.Tokenizer.from_file(str(path)), load_tokenizer(path)
    assert theirs.encode(TEXT).ids == ours.encode(TEXT)
    assert theirs.decode(ours.encode(TEXT)) == TEXT


def bytes_file(path):
    """Write a tokenizer whose tokens are bytes, which needs the library."""
    library = pytest.importorskip("tokenizers")
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    inner = library.Tokenizer(library.models.BPE({c: n for n, c in enumerate(sorted(alphabet))}, []))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.save(str(path))
    return load_tokenizer(path)


def test_bytes_of_a_character_are_held_back(path):
    tokenizer = bytes_file(path)
    assert tokenizer.size == 256
    text = "naïve 5 €!"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    unfolding = Unfolding(tokenizer)
    pieces = [unfolding.push(token) for token in ids]
    assert "".join(pieces) == text
    assert "" in pieces
    assert unfolding.rest() == ""
    cut = Unfolding(tokenizer)
    assert "".join(cut.push(token) for token in ids[:3]) == "na"
    assert cut.rest() == "\ufffd"


def test_without_the_library_one_line_says_what_to_install(path, monkeypatch):
    table = json.loads(path.read_text())
    table["normalizer"] = {"type": "NFC"}
    path.write_text(json.dumps(table))

    def missing(name):
        raise ModuleNotFoundError(name="tokenizers")

    monkeypatch.setattr(modules.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'wse-sim\[models\]'"):
        load_tokenizer(path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_file_that_is_not_json(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError, match="not valid JSON"):
        load_tokenizer(path)


@pytest.mark.parametrize(("text", "what"), [("3", "no table of keys"), ("{}", "no tokenizer")])
def test_a_file_that_is_no_tokenizer(path, text, what):
    pytest.importorskip("tokenizers")
    path.write_text(text)
    with pytest.raises(ConfigError, match=what):
        load_tokenizer(path)


def test_no_file(tmp_path):
    with pytest.raises(ConfigError, match="--prompt-ids"):
        load_tokenizer(tmp_path / "tokenizer.json")
