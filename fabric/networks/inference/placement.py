"""Where a decoder's numbers lie on a mesh when it generates: which features, weights and tokens each PE has.

A vector between layers is cut over y: row r has its chunk, and every column has the same.  A product that reads it is
summed along y and leaves its result cut over x, the same on all rows; the next product reads that, is summed along x
and leaves its result cut over y again.  So no vector is ever transposed, whatever the mesh.

Heads.  With as many columns as heads of keys and values, each of those heads has a *group* of neighbouring columns and
its query heads lie on the same ones; columns that are left over have no head.  With fewer columns a column has several
heads whole.  A column always has whole rotary pairs (i, i + head_size / 2), first the first halves, then the second
ones, so that turning a vector by its position moves nothing.  Values are cut like keys.

All tiles of a kind have the size of the largest; what is over is zero.  The tokens in the cache are cut over y.

Source: He et al., WaferLLM (OSDI 2025), sections 4.2 and 4.3; heads and pairs on columns are derived here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.matmul.local import Shape
from fabric.networks.inference.decoder import HEAD_NORMS, NORMS, Decoder
from wse_core.errors import ConfigError
from wse_core.formats import Half

__all__ = ["NOTHING", "DecoderPlacement", "shares"]

NOTHING = -1
"""In a list of features this stands at a place that has none."""

MOST_LANES = 500
"""Tokens of a step: their numbers are exact in both 16-bit formats, and those that are twice as large."""


def even(count: int, parts: int) -> int:
    """Return the size of the largest of `parts` equal parts that hold `count` things, an even number."""
    return 2 * -(-count // (2 * parts))


@dataclass(frozen=True)
class DecoderPlacement:
    """A `DecoderPlacement` says how a decoder lies on a mesh: which features, weights and tokens are where.

    Attributes
    ----------
    decoder : Decoder
    width, height : int
        PEs along x and y.
    tokens_per_row : int
        Tokens of the cache that a row of PEs has room for.
    dtype : {"f16", "cb16"}
        Format of weights, keys, values and of what products read.
    first : int
        The layer of the model with which those of `decoder` begin, where a region of the wafer has only some of them.
    last : bool
        Whether the last norm and the output matrix are here too.
    requests : int
        Caches side by side: answers that are decoded in turns.
    batch : int
        Tokens that a step takes together, each of a request with a cache and a position of its own, which the host may
        let begin anew before any step; 0: a step takes one token of the only request.
    ahead : int
        Tokens of each of these requests that a step takes, one behind the other.
    int8 : bool
        Whether the cache has keys and values of 8 bits (`fabric.networks.inference.int8`), else of `dtype`.
    """

    decoder: Decoder
    width: int
    height: int
    tokens_per_row: int
    dtype: Half = "f16"
    first: int = 0
    last: bool = True
    requests: int = 1
    batch: int = 0
    ahead: int = 1
    int8: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "height", "tokens_per_row", "requests", "ahead"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is at least 1", where="placement")
        if self.batch < 0:
            raise ConfigError(f"batch is {self.batch}; it is at least 0", where="placement")
        if self.batch and self.requests > 1:
            raise ConfigError("requests come in turns or together in a batch, not both", where="placement")
        if self.ahead > 1 and not self.batch:
            raise ConfigError("several tokens of a request in a step are for a batch", where="placement")
        if self.lanes > MOST_LANES:
            raise ConfigError(f"a step takes {self.lanes} tokens", where="placement", hint=f"at most {MOST_LANES}")

    # --- requests -----------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """A step takes so many tokens."""
        return max(1, self.batch) * self.ahead

    @property
    def told(self) -> int:
        """The host sends so many numbers with the embeddings of a step, one for each token and an even number."""
        return even(self.batch * self.ahead, 1)

    @property
    def caches(self) -> int:
        """A layer has so many caches in each PE."""
        return self.requests * max(1, self.batch)

    # --- sizes of what a PE has ---------------------------------------------------------------------------------------

    @property
    def hidden(self) -> int:
        """A row has so many features of a vector between layers, an even number."""
        return even(self.decoder.hidden, self.height)

    @property
    def ffn(self) -> int:
        """A column has so many of the features inside the feed-forward part."""
        return -(-self.decoder.ffn // self.width)

    @property
    def vocabulary(self) -> int:
        """A column has so many rows of the output matrix, an even number."""
        return even(self.decoder.vocabulary, self.width)

    @property
    def group(self) -> int:
        """A head of keys and values is shared by so many columns."""
        return max(1, self.width // self.decoder.kv_heads)

    @property
    def kv_heads(self) -> int:
        """A column has a part of so many heads of keys and values."""
        return -(-self.decoder.kv_heads // self.width)

    @property
    def heads(self) -> int:
        """A column has a part of so many query heads."""
        return self.kv_heads * self.decoder.group

    @property
    def turned_heads(self) -> int:
        """A column has a part of so many heads that turn with their position: of queries and of keys."""
        return self.heads + self.kv_heads

    @property
    def pairs(self) -> int:
        """A column has so many rotary pairs of a head."""
        return -(-self.decoder.head_size // (2 * self.group))

    @property
    def part(self) -> int:
        """A column has so many features of a head: two of each pair."""
        return 2 * self.pairs

    @property
    def capacity(self) -> int:
        """The cache of a PE has so many places for tokens, a multiple of 4."""
        return 4 * -(-self.tokens_per_row // 4)

    @property
    def tokens(self) -> int:
        """The cache has room for so many tokens, on all rows together."""
        return self.tokens_per_row * self.height

    @property
    def query_rows(self) -> int:
        """A column has so many query features."""
        return self.heads * self.part

    @property
    def kv_rows(self) -> int:
        """A column has so many features of keys, and of values as many."""
        return self.kv_heads * self.part

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The local products of a step have these shapes, in order, by what they make: rows of the result x depth of
        the sum.
        """
        depth = self.hidden
        sizes = {
            "qkv": (self.query_rows + 2 * self.kv_rows, depth),
            "o": (depth, self.query_rows),
            **({"router": (self.decoder.experts, depth)} if self.decoder.experts else {}),
            "gate_up": (len(self.decoder.inward) * self.ffn, depth),
            "down": (depth, self.ffn),
            "head": (self.vocabulary, depth),
        }
        return {name: Shape(rows, deep, self.lanes, self.dtype, "f32", True) for name, (rows, deep) in sizes.items()}

    @staticmethod
    def tile_words(shape: Shape) -> int:
        """Return the words of a tile of weights; the next begins in the same bank modulo 4."""
        return 4 * -(-shape.rows * shape.depth // 4)

    @property
    def norm_vectors(self) -> int:
        """So many vectors of norms are here: `mask_vectors`, those of all layers, those of the last norm."""
        return self.last_norm_at + self.last * len(self.decoder.norm_parts)

    @property
    def last_norm_at(self) -> int:
        """So many vectors of norms lie before those of the last norm."""
        return self.mask_vectors + self.layer_norms * len(self.decoder.norm_parts) * self.decoder.layers

    @property
    def mask_vectors(self) -> int:
        """So many vectors have 1 where there is a feature and 0 elsewhere, for norms that subtract the mean."""
        return int(self.decoder.centred)

    @property
    def layer_norms(self) -> int:
        """A layer has so many norms, those of heads not counted."""
        return len(NORMS[self.decoder.norms])

    @property
    def head_norms(self) -> int:
        """A column has so many weights of a layer's norms of queries and keys: of a query and a key head, or of all."""
        if not self.decoder.layers:
            return 0
        whole = self.query_rows + self.kv_rows
        return whole if self.decoder.projection_norms else len(HEAD_NORMS) * self.part * self.decoder.head_norms

    @property
    def squares(self) -> int:
        """A PE has so many sums of squares of a token's queries and keys, if these are normalised."""
        if not self.decoder.layers:
            return 0
        return 2 if self.decoder.projection_norms else self.turned_heads * self.decoder.head_norms

    @property
    def bias_words(self) -> dict[str, int]:
        """A layer's biases take so many words in a PE, by symbol: those of features of columns, and those of features
        of rows.
        """
        decoder, shapes = self.decoder, self.shapes
        found = {
            "biases": decoder.qkv_bias * shapes["qkv"].rows + decoder.ffn_bias * shapes["gate_up"].rows,
            "row_biases": (decoder.o_bias + decoder.ffn_bias) * self.hidden,
        }
        if not decoder.layers:
            found = dict.fromkeys(found, 0)
        last = {"biases": self.head_bias_words}
        return {symbol: words for symbol, words in found.items() if words or last.get(symbol)}

    @property
    def head_bias_words(self) -> int:
        """Words of the output matrix' biases in a PE; they lie behind those of features of columns."""
        return self.shapes["head"].rows if self.last and self.decoder.head_bias else 0

    def bias_of(self, product: str) -> str:
        """Return the symbol of the biases of one of `shapes`; empty if it has none."""
        fields = {"qkv": "qkv_bias", "o": "o_bias", "gate_up": "ffn_bias", "down": "ffn_bias", "head": "head_bias"}
        if product not in fields or not getattr(self.decoder, fields[product]):
            return ""
        return "row_biases" if product in ("o", "down") else "biases"

    @property
    def marks(self) -> list[int]:
        """A program reads these marks of its layers by how many are left, this one included; the first is of none."""
        decoder = self.decoder
        return [0, *[decoder.mark(decoder.kind(layer)) for layer in reversed(range(decoder.layers))]]

    @property
    def weight_words(self) -> int:
        """All matrices take so many words in a PE."""
        return self.head_at + self.last * self.tile_words(self.shapes["head"])

    @property
    def head_at(self) -> int:
        """The output matrix begins with this word of all matrices."""
        return self.decoder.layers * self.layer_words

    @property
    def layer_words(self) -> int:
        """The matrices of a layer take so many words in a PE."""
        sizes = {name: self.tile_words(shape) for name, shape in self.shapes.items()}
        return sum(words * self.copies(name) for name, words in sizes.items() if name != "head")

    def copies(self, name: str) -> int:
        """Return how many matrices of one of `shapes` a layer has: one for each expert."""
        return max(1, self.decoder.experts) if name in ("gate_up", "down") else 1

    @property
    def inner_vectors(self) -> int:
        """A PE has so many vectors inside of feed-forward parts in a step: of each token, or of each chosen expert."""
        return self.lanes * max(1, self.decoder.chosen)

    @property
    def kept_part(self) -> int:
        """The features that a column has of a head take so many words of the cache, keys or values of a token."""
        return self.pairs if self.int8 else self.part

    @property
    def kept_rows(self) -> int:
        """The keys of a token take so many words of the cache, and its values as many."""
        return self.kv_heads * self.kept_part

    @property
    def entry_words(self) -> int:
        """A token takes so many words of the cache: keys, values and, of numbers of 8 bits, an exponent of both."""
        return 2 * self.kept_rows + self.kv_heads * self.int8

    @property
    def cache_words(self) -> int:
        """Keys and values of one answer take so many words of a PE in a layer."""
        return self.entry_words * self.capacity

    def words(self) -> dict[str, int]:
        """Return the words of 16 bits that a PE holds, by what they are; code and temporaries apart."""
        layers, decoder = self.decoder.layers, self.decoder
        sizes = {name: self.tile_words(shape) for name, shape in self.shapes.items()}
        found = {name: layers * words * self.copies(name) for name, words in sizes.items() if name != "head"}
        if self.last:
            found["output matrix"] = self.tile_words(self.shapes["head"])
        found["norms"] = 2 * self.norm_vectors * self.hidden
        if self.bias_words:
            found["biases"] = layers * sum(self.bias_words.values()) + self.head_bias_words
        if self.head_norms:
            found["norms of heads" if decoder.head_norms else "norms of projections"] = 2 * layers * self.head_norms
        found["cache"] = layers * self.caches * self.cache_words
        return found

    # --- which features lie where -------------------------------------------------------------------------------------

    def _heads_of(self, column: int) -> list[int]:
        """Return the heads of keys and values of a column, `NOTHING` where it has none."""
        count = self.decoder.kv_heads
        if self.group > 1 or self.kv_heads == 1:
            head = column // self.group
            return [head if head < count else NOTHING]
        heads = range(column * self.kv_heads, (column + 1) * self.kv_heads)
        return [head if head < count else NOTHING for head in heads]

    def pairs_of(self, column: int) -> list[int]:
        """Return the rotary pairs that a column has of each of its heads, `NOTHING` where it has none."""
        first = (column % self.group) * self.pairs
        return [i if i < self.decoder.head_size // 2 else NOTHING for i in range(first, first + self.pairs)]

    def _of_head(self, column: int) -> list[int]:
        """Return the features that a column has of each of its heads, first halves first, `NOTHING` where it has none.

        They are numbered inside the head.
        """
        half, pairs = self.decoder.head_size // 2, self.pairs_of(column)
        return [offset + i if i != NOTHING else NOTHING for offset in (0, half) for i in pairs]

    def _features(self, column: int, each: int) -> list[int]:
        """Return the features of a column, of `each` heads for every head of keys and values."""
        size, inside, found = self.decoder.head_size, self._of_head(column), []
        for kv_head in self._heads_of(column):
            for head in range(kv_head * each, kv_head * each + each):
                found += [head * size + i if kv_head != NOTHING and i != NOTHING else NOTHING for i in inside]
        return found

    @cached_property
    def of_head(self) -> NDArray[np.int64]:
        """Each column has these features of a head, numbered inside the head, shape (width, part)."""
        return np.array([self._of_head(c) for c in range(self.width)], np.int64)

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The queries of each column have these features, shape (width, query_rows)."""
        return np.array([self._features(c, self.decoder.group) for c in range(self.width)], np.int64)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Features of the keys of each column, shape (width, kv_rows); values lie alike."""
        return np.array([self._features(c, 1) for c in range(self.width)], np.int64)

    @staticmethod
    def _chunks(count: int, parts: int, size: int) -> NDArray[np.int64]:
        """Return contiguous chunks of `count` features, shape (parts, size)."""
        found = np.arange(parts * size).reshape(parts, size)
        return np.where(found < count, found, NOTHING)

    @cached_property
    def hidden_rows(self) -> NDArray[np.int64]:
        """Each row has these hidden features, shape (height, hidden)."""
        return self._chunks(self.decoder.hidden, self.height, self.hidden)

    @cached_property
    def ffn_columns(self) -> NDArray[np.int64]:
        """Each column has these features inside the feed-forward part, shape (width, ffn)."""
        return self._chunks(self.decoder.ffn, self.width, self.ffn)

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Each column has the logits of these tokens, shape (width, vocabulary)."""
        return self._chunks(self.decoder.vocabulary, self.width, self.vocabulary)


def shares(place: DecoderPlacement, regions: int) -> list[DecoderPlacement]:
    """Return the placement of each of so many regions: its layers, as evenly as it goes.

    Raises
    ------
    ConfigError
        More regions than layers, or none.
    """
    layers = place.decoder.layers
    if not 1 <= regions <= layers:
        raise ConfigError(
            f"{regions} regions for {layers} layers", where="--regions", hint=f"1 to {layers}: each has a layer"
        )
    each, more = divmod(layers, regions)
    found, first = [], 0
    for k in range(regions):
        count = each + (k < more)
        own = place.decoder.part(first, count)
        found.append(replace(place, decoder=own, first=first, last=k == regions - 1))
        first += count
    return found
