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

__all__ = ["TEXTS", "TokenPlanes", "TokenRows", "characters", "is_text", "read_text", "text_of"]

TEXTS = ("pydoc",)
"""These texts have a name and need no file: ``pydoc`` is the help topics of Python."""


class TokenRows(RowsOnDemand):
    """Samples that are tokens of sequences are made when they are asked for.

    Parameters
    ----------
    tokens : array_like or Samples, shape (tokens,) of int, or (tokens, features)
        The number of each token, which becomes a one among zeros, or its features.
    vocabulary : int
        Tokens that there are; 0: features are given.
    sequence : int
        Tokens of a sequence.
    places : tuple of int
        As `harness.train.tables.NetworkConfig` has them: a one among zeros for each table.
    scale : float
        What stands for the number of a token instead of a one.
    place_scales : tuple of float
        What stands for its places instead of ones.

    Examples
    --------
    >>> rows = TokenRows(np.array([1, 0]), vocabulary=2, sequence=2, places=(2, 0, 1))
    >>> rows[np.array([0, 1])].tolist()
    [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        tokens: Any,
        vocabulary: int,
        sequence: int,
        places: tuple[int, ...] = (),
        scale: float = 1.0,
        place_scales: tuple[float, ...] = (),
    ) -> None:
        if vocabulary:
            tokens = np.asarray(tokens[:]).reshape(-1, 1)
        super().__init__(tokens)
        self.hot = scale
        self.vocabulary, self.sequence, self.own = vocabulary, sequence, vocabulary or tokens.shape[1]
        scales = place_scales or (1.0,) * (len(places) // 3)
        self.tables = tuple(zip(places[::3], places[1::3], places[2::3], scales, strict=True))
        self.shape = len(tokens), self.own + sum(places[::3])

    @property
    def rows(self) -> tuple[int, ...]:
        """Each table has so many features: the tokens', then those of places."""
        return self.own, *(count for count, *_ in self.tables)

    @property
    def marks(self) -> tuple[float, ...]:
        """This stands for a one in each table."""
        return self.hot, *(hot for *_, hot in self.tables)

    def numbers(self, which: slice | np.ndarray) -> np.ndarray:
        """Return the features that are no zeros, in each table one: ndarray of uint16, shape (samples, tables)."""
        tokens, end = np.arange(len(self))[which], self.own
        found = [self.array[tokens, 0].astype(np.int64)]
        for count, first, step, _ in self.tables:
            found.append(end + first + step * (tokens % self.sequence))
            end += count
        return np.stack(found, axis=1).astype(np.uint16)

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        tokens = np.arange(len(self))[which]
        found = np.zeros((len(tokens), self.shape[1]), np.float32)
        rows, end = np.arange(len(tokens)), self.own
        if self.vocabulary:
            found[rows, self.array[tokens, 0].astype(np.int64)] = self.hot
        else:
            found[:, :end] = self.array[which]
        for count, first, step, hot in self.tables:
            found[rows, end + first + step * (tokens % self.sequence)] = hot
            end += count
        return found


class TokenPlanes(RowsOnDemand):
    """Sequences of tokens that are images of a row are made when they are asked for: a channel for each number.

    Parameters
    ----------
    tokens : array_like or Samples, shape (sequences, tokens) of int
    vocabulary : int

    Examples
    --------
    >>> TokenPlanes(np.array([[1, 0, 1]]), vocabulary=2)[:].reshape(2, 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    def __init__(self, tokens: Any, vocabulary: int) -> None:
        super().__init__(np.asarray(tokens[:]))
        self.vocabulary = vocabulary
        self.shape = len(self.array), vocabulary * self.array.shape[1]

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        ids = self.array[which].astype(np.int64)
        planes = ids[:, None, :] == np.arange(self.vocabulary)[:, None]
        return planes.reshape(len(ids), -1).astype(np.float32)


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
        places = () if features == len(known) else (sequence, 0, 1)
        found[f"x_{name}"] = TokenRows(ids[part], len(known), sequence, places)
        found[f"y_{name}"] = ids[1:][part]
    return found
