"""Text to tokens and back: characters by a table, everything else by the library `tokenizers`.

A ``tokenizer.json`` whose vocabulary is single characters, with no merges and nothing before or behind, needs no
library: the shipped model answers with what is installed anyway.  All others are left to the library that wrote them
(extra `models`); without it, a model is driven by token ids.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.kit.modules import need
from wse_core.errors import ConfigError

__all__ = ["Characters", "Tokenizer", "Unfolding", "character_file", "load_tokenizer"]

UNFINISHED = "\ufffd"
"""Stands for bytes that are no character yet."""


class Tokenizer(ABC):
    """Text to token ids and back."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Ids that have a text; the model's vocabulary may be larger."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with what the model wants before it.

        Raises
        ------
        ConfigError
            The text has something that no token stands for.
        """

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


class Characters(Tokenizer):
    """One token per character.

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

    def encode(self, text: str) -> list[int]:
        unknown = next((character for character in text if character not in self.ids), None)
        if unknown is not None:
            raise ConfigError(
                f"the model has no token for {unknown!r}", where="prompt", hint=f"its {len(self.ids)} characters"
            )
        return [self.ids[character] for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.texts.get(int(token), UNFINISHED) for token in ids)


class _Library(Tokenizer):
    """What the library `tokenizers` makes of a file."""

    def __init__(self, path: Path) -> None:
        """Load a file."""
        library = need("tokenizers", f"the tokenizer {path}")
        try:
            self.inner: Any = library.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"no tokenizer: {' '.join(str(error).split())[:200]}", where=path, path=str(path)
            ) from None

    @property
    def size(self) -> int:
        return int(self.inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self.inner.encode(text).ids]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.inner.decode([int(token) for token in ids], skip_special_tokens=True))


def _characters(table: Any) -> Characters | None:
    """Return the table of characters that a file is, or None if it is more than that."""
    if not isinstance(table, dict) or not isinstance(table.get("model"), dict):
        return None
    model = table["model"]
    others = ("normalizer", "pre_tokenizer", "post_processor", "truncation", "padding")
    if any(table.get(key) for key in (*others, "added_tokens")) or table.get("decoder") != {"type": "Fuse"}:
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
    """Return the tokenizer of a ``tokenizer.json``.

    Raises
    ------
    ConfigError
        It cannot be read, or needs the library and that is not installed.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("no such file", where=path, hint="--prompt-ids instead of --prompt") from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path) from None
    except (ValueError, RecursionError):
        raise ConfigError("not valid JSON", where=path, path=str(path)) from None
    return _characters(table) or _Library(path)


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
    """The text of tokens that come one by one: what is printed never changes afterwards.

    Bytes of a character may be spread over tokens; text is held back as long as it ends in an unfinished one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.printed = 0

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
