"""Text becomes tokens and back: characters by a table, everything else by the library `tokenizers`.

A ``tokenizer.json`` whose vocabulary is single characters, with no merges and nothing before or behind, needs no
library: the shipped model answers with what is installed anyway.  All others are left to the library that wrote them
(extra `models`); without it, a model is driven by token ids.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.kit.jsonfile import read_json
from harness.kit.modules import need
from harness.models.keys import refuse_first, warnings_of
from harness.models.piece_file import table_of_pieces
from harness.models.text_files import (
    PIECES,
    TOKENIZER_CONFIG,
    judged_tokenizer,
    judged_tokenizer_config,
    optional_table,
)
from wse_core.errors import ConfigError
from wse_core.errors.values import named, shown

__all__ = ["Characters", "Tokenizer", "Unfolding", "answer_text", "character_file", "load_tokenizer", "tokenizer_of"]

UNFINISHED = "\ufffd"
"""Stands for bytes that are no character yet."""


class Tokenizer(ABC):
    """A `Tokenizer` turns text into token ids and back.

    Attributes
    ----------
    warnings : tuple[str, ...]
        What a run should say of keys of its files that were not looked at.
    """

    warnings: tuple[str, ...] = ()

    @property
    @abstractmethod
    def size(self) -> int:
        """One more than the largest id that has a text; the model's vocabulary may be larger."""

    @abstractmethod
    def encode(self, text: str, bare: bool = False) -> list[int]:
        """Return the ids of a text, with what the model wants before it, unless it is `bare`.

        Raises
        ------
        ConfigError
            The text has something that no token stands for.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def unended(self, special: Mapping[str, str], stops: Sequence[int]) -> list[str]:
        """Return what a run should say if the token that ends a message does not end an answer."""
        end = special.get("eos_token")
        if not end or self.token(end) in (None, *stops):
            return []
        return [f"eos_token {shown(end)} of {TOKENIZER_CONFIG} ends no answer: the model's files name other tokens"]

    def token(self, text: str) -> int | None:
        """Return the id of the token with this text, or None."""
        return None


class Characters(Tokenizer):
    """`Characters` have one token each.

    Parameters
    ----------
    ids : dict
        Of each character.
    """

    def __init__(self, ids: dict[str, int]) -> None:
        self.ids = ids
        self.texts = {token: character for character, token in ids.items()}

    @property
    def size(self) -> int:
        return max(self.texts) + 1

    def encode(self, text: str, bare: bool = False) -> list[int]:
        unknown = next((character for character in text if character not in self.ids), None)
        if unknown is not None:
            raise ConfigError(
                f"the model has no token for {unknown!r}", where="prompt", hint=f"its {len(self.ids)} characters"
            )
        return [self.ids[character] for character in text]

    def token(self, text: str) -> int | None:
        return self.ids.get(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts.get(int(token), UNFINISHED) for token in ids)


class _Library(Tokenizer):
    """A `_Library` is what the library `tokenizers` makes of a file, with what ``tokenizer_config.json`` says beside
    it.
    """

    def __init__(self, path: Path, table: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Make a tokenizer of the table of its file."""
        self.path = path
        library = need("tokenizers", f"the tokenizer {path}")
        self.inner: Any = self._asked(library.Tokenizer.from_str, json.dumps(table))
        self.inner.no_truncation()
        self.inner.no_padding()
        self.inner.encode_special_tokens = config.get("split_special_tokens") is True
        for token in table.get("added_tokens") or ():
            own = self.inner.token_to_id(token["content"])
            if own != token["id"]:
                what = (
                    f"added token {shown(token['content'])} has number {token['id']} there; the library gives it {own}"
                )
                raise ConfigError(what, where=path, path=str(path))

    def _asked(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return what the library says, or the error of a tokenizer that it cannot work with."""
        try:
            return function(*given)
        except BaseException as error:  # it raises nothing narrower, and a panic in it is not even an Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            what = f"no tokenizer: {named(' '.join(str(error).split()))}"
            raise ConfigError(what, where=self.path, path=str(self.path)) from None

    @property
    def size(self) -> int:
        return 1 + max(self.inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, bare: bool = False) -> list[int]:
        return [int(token) for token in self._asked(self._cut, text, not bare).ids]

    def _cut(self, text: str, whole: bool) -> Any:
        """Return what the library says of a text, with special tokens before and behind it if it is whole."""
        return self.inner.encode(text, add_special_tokens=whole)

    def token(self, text: str) -> int | None:
        found = self._asked(self.inner.token_to_id, text)
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._asked(self.inner.decode, [int(token) for token in ids], True))


def _characters(table: Mapping[str, Any]) -> Characters | None:
    """Return the table of characters that a file is, or None if it is more than that."""
    model = table.get("model")
    if not isinstance(model, dict):
        return None
    others = ("normalizer", "pre_tokenizer", "post_processor", "added_tokens")
    if any(table.get(key) for key in others) or table.get("decoder") != {"type": "Fuse"}:
        return None
    ids = model.get("vocab")
    single = (
        model.get("type") == "BPE"
        and model.get("merges") == []
        and not any(model.get(key) for key in ("byte_fallback", "unk_token", "continuing_subword_prefix"))
        and isinstance(ids, dict)
        and all(len(text) == 1 and isinstance(token, int) and token >= 0 for text, token in ids.items())
    )
    return Characters(ids) if single and ids else None


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``, as the ``tokenizer_config.json`` beside it says.

    Where there is no such file and a ``tokenizer.model`` is, it is that of its pieces.

    Raises
    ------
    ConfigError
        A file cannot be read, or needs the library and that is not installed.
    UnsupportedError
        It asks for something that would give other tokens.
    """
    pieces = path.with_name(PIECES)
    if not path.exists() and pieces.exists():
        return _of_pieces(pieces)
    table = read_json(path, "--prompt-ids instead of --prompt")
    beside = path.with_name(TOKENIZER_CONFIG)
    config = optional_table(beside) or {}
    verdicts, own = judged_tokenizer(table), judged_tokenizer_config(config, table) if config else []
    refuse_first(verdicts, path)
    refuse_first(own, beside)
    found = _characters(table) or _Library(path, table, config)
    found.warnings = tuple(warnings_of([*verdicts, *own]))
    return found


def _of_pieces(path: Path) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.model``."""
    beside = path.with_name(TOKENIZER_CONFIG)
    config = optional_table(beside) or {}
    table = table_of_pieces(path, config)
    own = judged_tokenizer_config(config, table, alone=True) if config else []
    refuse_first(own, beside)
    found = _Library(path, table, config)
    warnings, begins = warnings_of(own), found.encode("")
    if "add_bos_token" not in config and begins:  # one version of the library puts it there, another does not
        first = shown(found.inner.id_to_token(begins[0]))
        warnings.append(f"{TOKENIZER_CONFIG}: no add_bos_token: {first} stands before a text")
    found.warnings = tuple(warnings)
    return found


def tokenizer_of(path: Path, table: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of the table of a ``tokenizer.json`` that was made of another file.

    Raises
    ------
    ConfigError
        The library is missing, or cannot work with it.
    """
    return _Library(path, table, {})


def character_file(alphabet: str) -> str:
    """Return a ``tokenizer.json`` of single characters, which the library reads as well."""
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {character: token for token, character in enumerate(alphabet)},
        "merges": [],
    }
    table: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": model,
    }
    return json.dumps(table, indent=1) + "\n"


class Unfolding:
    """An `Unfolding` is the text of tokens that come one by one behind others: what is printed never changes
    afterwards.

    Bytes of a character may be spread over tokens; text is held back as long as it ends in an unfinished one.  The text
    of an answer is what it adds to that of its prompt: alone, many tokenizers would take the space before its first
    word for the one that they put before every text.

    Parameters
    ----------
    tokenizer : Tokenizer
    before : sequence of int
        Tokens of the prompt.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.ids = list(before)
        self.printed = len(tokenizer.decode(self.ids).rstrip(UNFINISHED))

    def push(self, token: int) -> str:
        """Return the text that this token finishes."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if text.endswith(UNFINISHED):
            return ""
        return self._until(text)

    def rest(self) -> str:
        """Return what was held back."""
        return self._until(self.tokenizer.decode(self.ids))

    def _until(self, text: str) -> str:
        new, self.printed = text[self.printed :], max(self.printed, len(text))
        return new


def answer_text(tokenizer: Tokenizer, prompt: Sequence[int], answer: Sequence[int]) -> str:
    """Return the text of an answer behind its prompt, the space of its first word included."""
    unfolding = Unfolding(tokenizer, prompt)
    unfolding.ids += answer
    return unfolding.rest()
