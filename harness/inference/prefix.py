"""The beginning of a prompt that another answer has read: its keys and values are taken from that answer's file.

Texts that begin alike, a message of the system say, or a conversation and what is said next, need not be read again:
`wse generate --cache-file` leaves what the PEs have behind a prompt and its answer, and a prompt that begins with these
tokens goes on from there, token by token.  Every bit is that of an answer whose prompt was read in the same way up to
there: where the file's prompt was read token by token, that of any prompt that is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.inference.chunks import blocks_of
from wse_core.errors import ConfigError
from wse_core.formats import Bits

if TYPE_CHECKING:
    from harness.inference.asking import AnswerRequest

__all__ = ["Prefix"]


@dataclass(frozen=True)
class Prefix:
    """A `Prefix` is what an answer takes over of another one: tokens that were read already.

    Attributes
    ----------
    path : Path
    tokens : sequence of int
        Those whose keys and values are there: of the prompt, and of the answer all but the last.
    read : (bool, int, int)
        Of the prompt that was read first: whether by a program of its own, in how many pieces (0: all tokens at once),
        and how many tokens it has.
    cycles : int
        What reading all tokens took.
    asked : mapping
        What the answer depended on, by the names of options (`harness.inference.resuming`).
    lasting : mapping
        As `fabric.networks.inference.resident.ResidentDecoder.lasting`.
    """

    path: Path
    tokens: Sequence[int]
    read: tuple[bool, int, int]
    cycles: int
    asked: Mapping[str, Any]
    lasting: Mapping[str, Bits]

    @property
    def count(self) -> int:
        """So many tokens need not be read."""
        return len(self.tokens)

    def blocks(self, height: int, policy: str) -> list[int] | None:
        """Return how many tokens each of so many rows has of those that were read together; None: one by one."""
        at_once, pieces, length = self.read
        if pieces:
            return blocks_of(length - 1, height, policy)
        return blocks_of(length, height, "shift") if at_once else None

    @cached_property
    def digest(self) -> str:
        """All that is taken over has this digest."""
        found = hashlib.blake2b(repr((list(self.tokens), self.read, self.cycles)).encode(), digest_size=16)
        for name in sorted(self.lasting):
            found.update(name.encode())
            found.update(np.ascontiguousarray(self.lasting[name]).data)
        return found.hexdigest()

    def check_prompt(self, request: AnswerRequest) -> None:
        """Refuse prompts of which one does not begin with all tokens and go on, or whose windows are others.

        Raises
        ------
        ConfigError
            Says how many tokens are the same.
        """
        for number, prompt in enumerate(request.prompts, 1):
            same = next(
                (k for k, both in enumerate(zip(prompt, self.tokens, strict=False)) if both[0] != both[1]),
                min(len(prompt), self.count),
            )
            if same < self.count or len(prompt) == self.count:
                which = f"the prompt of request {number}" if len(request.prompts) > 1 else "the prompt"
                what = f"{which} has {len(prompt)} tokens, and {same} of the {self.count} in {self.path} are its first"
                hint = "a prompt that begins with all of them and goes on, or --prefix left out"
                raise ConfigError(what, where="--prefix", hint=hint)
        there = request.model.configuration.decoder.within(int(self.asked["tokens of the cache"]))
        if there != request.decoder:
            what = f"{self.path} is of a text that a window of attention holds, and this one is longer"
            raise ConfigError(what, where="--prefix", hint="a prefix of as many --tokens")
