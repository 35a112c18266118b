"""Texts become samples: each character in its place of a sequence, and the character behind it as its class.

A sample is two ones among zeros: the character among those that the text has, and its place in the sequence, if a
network wants it. So the product that embeds it adds a learned row of the character and one of the place. A text is cut
into sequences that do not overlap; the last ones are for tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harness.train.sources import RowsOnDemand
from wse_core.errors import ConfigError

__all__ = ["TEXTS", "TextRows", "characters", "is_text", "read_text", "text_of"]

TEXTS = ("pydoc",)
"""Texts with a name: the help topics of Python."""


class TextRows(RowsOnDemand):
    """Samples of a text are made when they are asked for.

    Parameters
    ----------
    ids : ndarray of int, shape (tokens,)
        Number of each character among those that the text has.
    vocabulary, sequence : int
        Characters that there are, and tokens of a sequence; 0: no places.

    Examples
    --------
    >>> rows = TextRows(np.array([1, 0]), vocabulary=2, sequence=2)
    >>> rows[np.array([0, 1])].tolist()
    [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    def __init__(self, ids: np.ndarray, vocabulary: int, sequence: int) -> None:
        super().__init__(np.asarray(ids).reshape(-1, 1))
        self.vocabulary, self.sequence = vocabulary, sequence
        self.shape = len(ids), vocabulary + sequence

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        places = np.arange(len(self))[which]
        found = np.zeros((len(places), self.shape[1]), np.float32)
        rows = np.arange(len(places))
        found[rows, self.array[places, 0]] = 1
        if self.sequence:
            found[rows, self.vocabulary + places % self.sequence] = 1
        return found


def is_text(source: str) -> bool:
    """Return whether a source of data is a text."""
    return source in TEXTS or source.endswith(".txt")


def text_of(source: str, folder: Path) -> str:
    """Return a text by its name, or that of a file.

    Raises
    ------
    ConfigError
        No such file, or no text in UTF-8.
    """
    if source == "pydoc":
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics))
    path = folder / source
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", where=path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"byte {error.start} is no text in UTF-8", where=path) from None


def characters(text: str) -> str:
    """Return the characters of a text, each once, in order."""
    return "".join(sorted(set(text)))


def read_text(source: str, folder: Path, sequence: int, held_out: float, features: int = 0) -> dict[str, Any]:
    """Return samples and classes of a text by the names of `harness.train.sources.ARRAYS`.

    Samples have no places if that gives them so many `features`.

    Raises
    ------
    ConfigError
        The text is missing, or too short for a sequence to train and one to test.
    """
    text = text_of(source, folder)
    known = characters(text)
    number = {character: place for place, character in enumerate(known)}
    ids = np.array([number[character] for character in text], np.int64)
    count = (len(ids) - 1) // sequence
    seen = count - max(1, round(held_out * count))
    if seen < 1:
        what = f"{source} has {len(ids)} characters, which are no two sequences of {sequence}"
        raise ConfigError(what, where="data.sequence", value=sequence)
    found: dict[str, Any] = {}
    for name, first, end in (("train", 0, seen), ("test", seen, count)):
        part = slice(first * sequence, end * sequence)
        found[f"x_{name}"] = TextRows(ids[part], len(known), 0 if features == len(known) else sequence)
        found[f"y_{name}"] = ids[1:][part]
    return found
