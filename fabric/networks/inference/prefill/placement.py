"""Where a prompt lies on a mesh: tokens over rows, features over columns, weights and cache as decoding has them.

Tokens.  Row r has a block of neighbouring tokens, those that it would hold if the cache had taken them one by one and
kept balance: a + 1 in the first b rows and a in the others, for a R + b tokens in R rows.  So keys and values never
leave the row in which they are made.  Blocks of a tokens have an empty place where others have one token more.

Hidden features.  Decoding cuts a vector into one chunk per row.  The same chunks lie over the columns here: chunk r of
every token is at the *home* of r, a column that follows from r's rank on the ring of rows, so that homes move on by the
same distance from step to step of a product.  Blocks of keys have homes among the columns of a head in the same way.

Source: WaferLLM, section 4.1 (tokens over y, features over x); one copy of the weights for both phases is of this
project.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.matmul.local import Shape
from fabric.networks.inference.placement import DecoderPlacement
from wse_core.errors import ConfigError

__all__ = ["EAST", "HERE", "WEST", "PromptPlacement", "TokenShape"]

WEST, EAST, HERE = 0, 1, 2
"""The home of a step's chunk lies in one of these directions, seen from a PE; `HERE` plus the slot of the chunk."""


class TokenShape(Shape):
    """Tiles of a product with one column of the result per token: the right matrix is stored token by token."""

    @property
    def inner_k(self) -> bool:
        """Always: a token's features lie side by side."""
        return True

    def groups(self) -> tuple[int, int, int]:
        """Return (scalars per group, number of full groups, scalars in the last one); up to four at a time."""
        count = -(-self.depth // 4)
        size = -(-self.depth // count)
        return size, self.depth // size, self.depth % size


@dataclass(frozen=True)
class PromptPlacement:
    """A `PromptPlacement` says how a prompt lies on the mesh of a decoder that reads it at once.

    Attributes
    ----------
    place : DecoderPlacement
    length : int
        Tokens of the prompt.
    """

    place: DecoderPlacement
    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ConfigError("an empty prompt", where="prefill", hint="at least one token")
        if self.length > self.place.tokens:
            raise ConfigError(
                f"a prompt of {self.length} tokens; the cache has room for {self.place.tokens}", where="prefill"
            )

    @cached_property
    def ring(self) -> Ring:
        """The ring on which weights, keys and values go round."""
        return Ring(self.place.height)

    # --- tokens -------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """A row has so many places for tokens."""
        return -(-self.length // self.place.height)

    @property
    def keys(self) -> int:
        """A block has so many keys, an even number."""
        return self.tokens + self.tokens % 2

    @cached_property
    def counts(self) -> list[int]:
        """Each row has so many tokens."""
        a, b = divmod(self.length, self.place.height)
        return [a + (row < b) for row in range(self.place.height)]

    @cached_property
    def firsts(self) -> list[int]:
        """The first token of each row has this number."""
        return [sum(self.counts[:row]) for row in range(self.place.height)]

    @property
    def last(self) -> tuple[int, int]:
        """The last token lies in this row, at this place of it."""
        row = max(r for r, count in enumerate(self.counts) if count)
        return row, self.counts[row] - 1

    # --- chunks -------------------------------------------------------------------------------------------------------

    @cached_property
    def sequence(self) -> NDArray[np.int64]:
        """Each row has the tile of this chunk in each step, shape (height, steps)."""
        rank, order, n = np.array(self.ring.rank), np.array(self.ring.order), self.place.height
        return order[(rank[:, np.newaxis] + np.arange(n)) % n]

    def homes(self, columns: int) -> list[tuple[int, int]]:
        """Return (column, slot) of each chunk among so many columns."""
        rows, rank = self.place.height, self.ring.rank
        column = [rank[chunk] * columns // rows for chunk in range(rows)]
        return [(c, rank[chunk] - -(-c * rows // columns)) for chunk, c in enumerate(column)]

    @property
    def slots(self) -> int:
        """A column has room for so many chunks of hidden features."""
        return -(-self.place.height // self.place.width)

    @property
    def key_slots(self) -> int:
        """A column of a head has room for so many blocks of keys."""
        return -(-self.place.height // self.place.group)

    @property
    def width_of_keys(self) -> int:
        """A PE has so many scores of a query and a head."""
        return self.key_slots * self.keys

    def goes(self, columns: int) -> NDArray[np.uint16]:
        """Return where each PE finds the home of each step, in lines of so many columns; the last step first.

        Shape (height, width, steps): `WEST`, `EAST`, or `HERE` plus a slot.
        """
        homes = np.array(self.homes(columns))[self.sequence[:, ::-1]]  # (height, steps, 2)
        column, slot = homes[:, np.newaxis, :, 0], homes[:, np.newaxis, :, 1]
        x = (np.arange(self.place.width) % columns)[np.newaxis, :, np.newaxis]
        return np.where(column < x, WEST, np.where(column > x, EAST, HERE + slot)).astype(np.uint16)

    def is_idle(self, column: int) -> bool:
        """Whether a column has no head."""
        return column >= self.place.group * -(-self.place.decoder.kv_heads // self.place.kv_heads)

    @cached_property
    def allowed(self) -> NDArray[np.uint16]:
        """A query may see so many keys of the block in each slot, shape (height, width, key_slots, tokens)."""
        return self._up_to(0)

    def outside(self, window: int) -> NDArray[np.uint16]:
        """Return how many keys of each block, the first ones, lie before the window of a query; shape as `allowed`."""
        return self._up_to(window)

    def _up_to(self, back: int) -> NDArray[np.uint16]:
        """Return how many keys of each block are not behind the token that lies so many before a query."""
        place, rows = self.place, self.place.height
        found = np.zeros((rows, place.width, self.key_slots, self.tokens), np.uint16)
        for chunk, (column, slot) in enumerate(self.homes(place.group)):
            for row in range(rows):
                position = self.firsts[row] + np.arange(self.tokens)
                seen = np.clip(position + 1 - back - self.firsts[chunk], 0, self.counts[chunk])
                found[row, column :: place.group, slot] = seen
        return found

    # --- products -----------------------------------------------------------------------------------------------------

    @cached_property
    def shapes(self) -> dict[str, TokenShape]:
        """A step of each product, by name, is a local product of this shape."""
        place, s = self.place, self.tokens
        by_expert = ("gate_up", "down") if place.decoder.experts else ()  # of one token at a time
        sizes = {
            name: (shape.rows, shape.depth, 1 if name in by_expert else s)
            for name, shape in place.shapes.items()
            if name != "head"
        }
        sizes["scores"] = (self.keys, place.part, place.decoder.group * s)
        sizes["mix"] = (place.part, self.keys, place.decoder.group * s)
        return {
            name: TokenShape(rows, depth, columns, place.dtype, "f32") for name, (rows, depth, columns) in sizes.items()
        }

    @cached_property
    def tile_elements(self) -> dict[str, int]:
        """So many numbers of 16 bits go round the ring in a step of each product."""
        place = self.place
        found = {name: place.tile_words(shape) for name, shape in place.shapes.items() if name != "head"}
        found["scores"] = found["mix"] = place.kv_rows * self.keys
        return found

    @property
    def inner_vectors(self) -> int:
        """A PE has so many vectors inside of feed-forward parts: one of each token, or of each expert that a token
        chose.
        """
        return self.tokens * max(1, self.place.decoder.chosen)

    @property
    def block(self) -> int:
        """A PE has so many scores of a block of keys, all heads."""
        return self.place.heads * self.tokens * self.keys

    @property
    def piece(self) -> int:
        """A chunk of hidden features has so many numbers, of all tokens of a row."""
        return self.tokens * self.place.hidden
