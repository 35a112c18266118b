"""The oracle gives what a generating decoder must give, bit by bit: numpy in the order of the PEs, slow and plain.

Every array has one entry per PE, row or column, in the order of the placement.  Sums inside a PE go through
`Arithmetic.product` (ascending, from zero, one rounding each) or are added one after the other; sums over PEs are those
of the trees (`LineSum.total`); functions are `EvaluatedFunctions`; each rounding to 16 bits is one `_half`.  Tokens lie
where `rows.Rows` puts them by the rule itself, while the program uses its closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike

from fabric.networks.inference.angles import Angles
from fabric.networks.inference.argmax import BEYOND, RAISE
from fabric.networks.inference.attention import LOWEST
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.elementwise import LARGEST_EXPONENT
from fabric.networks.inference.rows import Rows
from fabric.networks.inference.tiles import embedding_rows, place_weights
from fabric.networks.inference.window import STEEP
from fabric.program.functions import EvaluatedFunctions
from fabric.program.functions.mathematics import GELU_CUBIC, GELU_SCALE
from wse_core import numerics
from wse_core.formats import Arithmetic, Bits, Format

__all__ = ["Norms", "Oracle"]

ALONG_Y, ALONG_X = (0, 2, 1, 3), (1, 2, 0, 3)
"""A product along an axis finds the axes of tiles, (height, width, depth, rows), in this order in memory."""

Norms = Iterator[list[Bits]]
"""`Norms` are the weights, and biases if there are some, of the norms of a layer that are left."""


class Oracle:
    """An `Oracle` does in numpy what a decoder on a mesh does, token after token, bit for bit.

    Parameters
    ----------
    decode : Decode
        Placement, trees and policy; none of its programs are used.
    weights : mapping
        Tensors by the hub's names.
    tables : mapping, optional
        What `Decode.tables` made of the weights, if it is there already.

    Attributes
    ----------
    rows : Rows
        Which row holds which token in which slot.
    keys, values : ndarray
        Bits of the caches, shapes (layers, height, width, kv_heads, part, capacity) and (..., kv_heads, capacity,
        part).
    """

    def __init__(
        self, decode: Decode, weights: Mapping[str, ArrayLike], tables: Mapping[str, Bits] | None = None
    ) -> None:
        self.decode, self.place, self.weights = decode, decode.place, weights
        place, machine = self.place, decode.machine
        self.half, self.single = Arithmetic.of(machine, place.dtype), Arithmetic.of(machine, "f32")
        self.functions, self.angles = EvaluatedFunctions(machine), Angles(place, machine)
        self.local = Angles(place, machine, local=True) if place.decoder.is_local else self.angles
        tables = place_weights(place, machine, weights) if tables is None else tables
        vectors = tables["norms"][:, 0].reshape(place.height, -1, place.hidden)
        self.mask = vectors[:, 0]  # of norms that subtract the mean: 1 where there is a feature
        self.norms = vectors[:, place.mask_vectors :]
        self.biases = self._biases(tables)
        self.head_norms: Bits | None = None  # (width, layers, queries and keys, part), or all rows
        if "head_norms" in tables:
            self.head_norms = tables["head_norms"][0].reshape(place.width, place.decoder.layers, -1)
            if place.decoder.head_norms:
                self.head_norms = self.head_norms.reshape(place.width, place.decoder.layers, -1, place.part)
        self.tiles = self._tiles(tables["weights"])
        self._clear()

    def _clear(self) -> None:
        """Remove all tokens from the cache."""
        place = self.place
        self.rows = Rows(place.height, place.tokens_per_row, self.decode.policy, self.decode.blocks)
        self._before: list[list[int]] = [[] for _ in range(place.height)]  # tokens in slots before the step
        size = place.decoder.layers, place.height, place.width, place.kv_heads
        self.keys = np.zeros((*size, place.part, place.capacity), np.uint16)  # of 8 bits: codes, as of `coded`
        self.values = np.zeros((*size, place.capacity, place.part), np.uint16)

    def anew(self) -> Oracle:
        """Return the oracle of another text by the same decoder."""
        found = copy(self)
        found._clear()
        return found

    def take_over(self, cache: Bits, count: int) -> None:
        """Go on behind `count` tokens with the keys and values that PEs have, bits (height, width, words).

        Slots of rows are reckoned by the rule.
        """
        prompt = self.decode.arrived[1] if self.decode.arrived else self.decode.prompt
        if prompt is not None and not self.rows.count:
            self.rows.begin(prompt.counts)
        while self.rows.count < count:
            self.rows.append()
        self.keys[:], self.values[:] = self._cut(cache)

    def has(self, cache: Bits) -> bool:
        """Whether PEs have these keys and values, bits (height, width, words)."""
        keys, values = self._cut(cache)
        return np.array_equal(keys, self.keys) and np.array_equal(values, self.values)

    def holds(self, cache: Bits) -> bool:
        """Whether PEs have these keys and values of the tokens that are there, whatever lies in other slots."""
        keys, values = self._cut(cache)
        same = True
        for r, row in enumerate(self.rows.rows):
            n = len(row.slots)
            same &= np.array_equal(keys[:, r, ..., :n], self.keys[:, r, ..., :n])
            same &= np.array_equal(values[:, r, ..., :n, :], self.values[:, r, ..., :n, :])
        return bool(same)

    def _cut(self, cache: Bits) -> tuple[Bits, Bits]:
        """Return keys and values in the shapes of this class, from the words that PEs have."""
        place = self.place
        words = np.moveaxis(cache.reshape(*cache.shape[:2], place.decoder.layers, -1), 2, 0)
        half = place.kept_rows * place.capacity
        keys, values = words[..., :half], words[..., half : 2 * half]
        if not place.int8:
            return keys.reshape(self.keys.shape), values.reshape(self.values.shape)
        exponents = words[..., 2 * half :].reshape(*self.keys.shape[:4], 1, place.capacity)
        keys = keys.reshape(*self.keys.shape[:4], -1, place.capacity)
        values = values.reshape(*self.values.shape[:5], -1)
        keys = np.concatenate([keys & 255, keys >> 8], axis=-2) | exponents << 8
        values = np.concatenate([values & 255, values >> 8], axis=-1) | (exponents & 0xFF00).swapaxes(-1, -2)
        return keys.astype(np.uint16), values.astype(np.uint16)

    def _biases(self, tables: Mapping[str, Bits]) -> dict[str, Bits]:
        """Return the biases of each product that has some: (places, layers, rows)."""
        place, decoder = self.place, self.place.decoder
        found: dict[str, Bits] = {}
        for symbol, flags in (
            ("biases", (("qkv", decoder.qkv_bias), ("gate_up", decoder.ffn_bias))),
            ("row_biases", (("o", decoder.o_bias), ("down", decoder.ffn_bias))),
        ):
            if symbol not in tables:
                continue
            values = tables[symbol][0] if symbol == "biases" else tables[symbol][:, 0]
            if symbol == "biases" and place.head_bias_words:
                found["head"] = values[:, np.newaxis, -place.head_bias_words :]
                values = values[:, : -place.head_bias_words]
            if not decoder.layers:
                continue
            values, at = values.reshape(len(values), decoder.layers, -1), 0
            for name in [name for name, there in flags if there]:
                rows = place.shapes[name].rows
                found[name] = values[..., at : at + rows]
                at += rows
        return found

    def biased(self, name: str, layer: int, result: Bits) -> Bits:
        """Return a result with the biases of its product, (..., places, rows)."""
        if name not in self.biases:
            return result
        return self.half.call("add_mixed", np.broadcast_to(self.biases[name][:, layer], result.shape), result)

    def _tiles(self, words: Bits) -> list[dict[str, Bits]]:
        """Return the matrices of each layer, and of the head behind the last: (height, width, rows, depth).

        In memory they lie as their products take them: it is these that all weights of a model go through.
        """
        place, at = self.place, 0
        found: list[dict[str, Bits]] = []
        names = [n for n in place.shapes if n != "head"]
        for layer in range(place.decoder.layers + place.last):
            entry = {}
            for name in self._order(names) if layer < place.decoder.layers else ["head"]:
                shape = place.shapes[name.partition(" ")[0]]
                flat = words[:, :, at : at + shape.rows * shape.depth]
                tiles = flat.reshape(*words.shape[:2], shape.depth, shape.rows)
                along = ALONG_X if name.partition(" ")[0] in ("o", "down") else ALONG_Y
                laid = np.ascontiguousarray(tiles.transpose(along)).transpose(np.argsort(along))
                entry[name] = laid.swapaxes(2, 3)
                at += place.tile_words(shape)
            found.append(entry)
        return found

    def _order(self, names: list[str]) -> list[str]:
        """Return the matrices of a layer in their order; those of expert k end in " k"."""
        experts = self.place.decoder.experts
        if not experts:
            return names
        return [*names[:-2], *(f"{name} {k}" for k in range(experts) for name in names[-2:])]

    # --- small parts --------------------------------------------------------------------------------------------------

    def number(self, value: float) -> Bits:
        return self.single.encode(value)

    def do(self, name: str, *operands: ArrayLike) -> Bits:
        return self.single.call(name, *operands)

    def rounded(self, bits: Bits) -> Bits:
        return self._converted(bits, "f32", self.half.fmt)

    def wide(self, bits: Bits) -> Bits:
        return self._converted(bits, self.half.fmt, "f32")

    def _converted(self, bits: Bits, given: Format, wanted: Format) -> Bits:
        flat = np.ascontiguousarray(bits).ravel()
        found: Bits = np.asarray(numerics.convert(flat, given, wanted, self.half.bias, self.half.ftz))
        return found.reshape(bits.shape)

    def in_order(self, start: float, terms: Bits, name: str = "add") -> Bits:
        """Return the terms of the last axis put together one after the other."""
        total = np.full(terms.shape[:-1], self.number(start), np.uint32)
        for k in range(terms.shape[-1]):
            total = self.do(name, total, terms[..., k])
        return total

    def total(self, name: str, parts: Bits) -> Bits:
        """Return what an all-reduce makes of the parts of the places, the first axis."""
        return np.asarray(self.decode.sums[name].total(list(parts), self.single))

    def product(self, matrix: Bits, vector: Bits, total: Bits | None = None) -> Bits:
        """Return f32 bits of total + a product of 16-bit numbers, matrix (rows, depth) by (depth, columns)."""
        if total is None:
            total = np.zeros((matrix.shape[0], vector.shape[1]), np.uint32)
        matrices = [np.ascontiguousarray(bits) for bits in (matrix, vector, total)]
        return np.asarray(self.half.product(*matrices))

    def _along_y(self, name: str, tiles: Bits, vector: Bits) -> Bits:
        """Return the product of tiles with a vector cut over rows (height, depth): bits (width, rows)."""
        height, width, rows, depth = tiles.shape
        parts = [
            self.product(vector[r][np.newaxis], tiles[r].transpose(2, 0, 1).reshape(depth, -1)).reshape(width, rows)
            for r in range(height)
        ]
        return self.total(name, np.array(parts))

    def _along_x(self, tiles: Bits, vector: Bits) -> Bits:
        """Return the product of tiles with a vector cut over columns (width, depth): bits (height, rows)."""
        height, width, rows, depth = tiles.shape
        parts = [
            self.product(vector[c][np.newaxis], tiles[:, c].transpose(2, 0, 1).reshape(depth, -1)).reshape(height, rows)
            for c in range(width)
        ]
        return self.total("back", np.array(parts))

    # --- a step -------------------------------------------------------------------------------------------------------

    def norm(self, x: Bits, norm: Sequence[Bits]) -> Bits:
        """Return a normalised vector (height, hidden), with the weights and biases of a norm."""
        decoder = self.place.decoder
        if decoder.centred:
            total = self.total("norm", self.in_order(0.0, x)[:, np.newaxis])
            mean = self.do("mul", total, self.number(-1.0 / decoder.hidden))
            x = self.do("fma", self.mask, np.broadcast_to(mean, x.shape), x)
        squares = self.total("norm", self.in_order(0.0, self.do("mul", x, x))[:, np.newaxis])
        mean = self.do("mul", squares, self.number(1.0 / decoder.hidden))
        scale = self.functions.rsqrt(self.do("add", mean, self.number(decoder.epsilon)))
        return self.weighted(self.do("mul", x, scale), norm)

    def weighted(self, x: Bits, norm: Sequence[Bits]) -> Bits:
        """Return features of mean square one with the weights of a norm, and its biases if it has some."""
        weight, *bias = norm
        found = self.do("mul", x, weight)
        return self.do("add", found, np.broadcast_to(bias[0], found.shape)) if bias else found

    def normalised(self, layer: int, qkv: Bits) -> Bits:
        """Return queries, keys and values of all columns, (width, rows), with the heads of the first two normalised."""
        place = self.place
        if self.head_norms is None:
            return qkv
        rows = place.query_rows + place.kv_rows
        if place.decoder.projection_norms:
            z = qkv[:, :rows]
            total = self.total("projections", self.squares_of(z))
            return np.concatenate([self.by_projections(layer, z, total), qkv[:, rows:]], axis=1)
        z = qkv[:, : place.turned_heads * place.part].reshape(place.width, place.turned_heads, place.part)
        squares = self.in_order(0.0, self.do("mul", z, z))
        squares = self._over_heads(squares[np.newaxis])[0]
        return np.concatenate([self.by_heads(layer, z, squares), qkv[:, place.query_rows + place.kv_rows :]], axis=1)

    def squares_of(self, z: Bits) -> Bits:
        """Return the sums of the squares of queries, and of keys, of each column: (..., 2)."""
        squares, rows = self.do("mul", z, z), self.place.query_rows
        return np.stack([self.in_order(0.0, squares[..., :rows]), self.in_order(0.0, squares[..., rows:])], axis=-1)

    def by_projections(self, layer: int, z: Bits, squares: Bits) -> Bits:
        """Return queries and keys, (..., width, rows), normalised by the sums of their squares, (..., 2)."""
        place, decoder = self.place, self.place.decoder
        assert self.head_norms is not None
        shares = self.single.encode(1.0 / np.array(list(decoder.query_key_norms.values())))
        mean = self.do("mul", squares, np.broadcast_to(shares, squares.shape))
        scale = self.functions.rsqrt(self.do("add", mean, self.number(decoder.epsilon)))
        scale = np.repeat(scale, [place.query_rows, place.kv_rows], axis=-1)
        return self.do("mul", self.do("mul", z, np.broadcast_to(scale, z.shape)), self.head_norms[:, layer])

    def by_heads(self, layer: int, z: Bits, squares: Bits) -> Bits:
        """Return heads normalised by the sums of their squares, side by side.

        Parameters
        ----------
        layer : int
        z : ndarray
            Queries, then keys, (..., width, turned_heads, part).
        squares : ndarray
            Of each head, (..., width, turned_heads).
        """
        place = self.place
        assert self.head_norms is not None
        mean = self.do("mul", squares, self.number(1.0 / place.decoder.head_size))
        scale = self.functions.rsqrt(self.do("add", mean, self.number(place.decoder.epsilon)))
        weight = np.repeat(self.head_norms[:, layer], [place.heads, place.kv_heads], axis=1)
        return self.do("mul", self.do("mul", z, scale[..., np.newaxis]), weight).reshape(*z.shape[:-2], -1)

    def turned(self, layer: int, qkv: Bits, position: int) -> Bits:
        """Return queries, keys and values of all columns behind the rotary positions."""
        place, n = self.place, self.place.pairs
        count = place.turned_heads
        angle = self.angles_of(layer).at(position)[:, np.newaxis]
        cos, sin = angle[..., :n], angle[..., n:]
        z = qkv[:, : count * place.part].reshape(place.width, count, 2, n)
        a, b = z[:, :, 0], z[:, :, 1]
        first = self.do("sub", self.do("mul", a, cos), self.do("mul", b, sin))
        second = self.do("add", self.do("mul", b, cos), self.do("mul", a, sin))
        found = np.concatenate([first, second], axis=2).reshape(place.width, -1)
        return np.concatenate([found, qkv[:, found.shape[1] :]], axis=1)

    def angles_of(self, layer: int) -> Angles:
        """Return the angles by which a layer turns."""
        return self.local if self.place.decoder.kind(layer).local else self.angles

    def capped(self, cap: float | None, x: Bits) -> Bits:
        """Return cap * tanh(x / cap); x itself without a cap."""
        if cap is None or not x.size:
            return x
        power = self.functions.exp(
            self.do("minimum", self.do("mul", x, self.number(2.0 / cap)), self.number(LARGEST_EXPONENT))
        )
        inverse = self.functions.reciprocal(self.do("add", power, self.number(1.0)))
        return self.do("add", self.do("mul", inverse, self.number(-2.0 * cap)), self.number(cap))

    def kept(self, qkv: Bits) -> Bits:
        """Return queries, scaled, as products read them, keys and values as the cache has them; (..., rows)."""
        rows, scale = self.place.query_rows, self.number(1.0 / math.sqrt(self.place.decoder.head_size))
        queries, rest = self.rounded(self.do("mul", qkv[..., :rows], scale)), qkv[..., rows:]
        return np.concatenate([queries, self.coded(rest) if self.place.int8 else self.rounded(rest)], axis=-1)

    def coded(self, numbers: Bits) -> Bits:
        """Return keys and values of f32, (..., rows), as numbers of 8 bits: 256 E + n + 128, a part having one E.

        An exact division by a power of two, one rounding to the nearest whole number, and a limit of 127.
        """
        parts = self.single.decode(numbers).reshape(*numbers.shape[:-1], -1, self.place.part)
        peak = np.abs(parts).max(axis=-1, keepdims=True)
        beyond = ~np.isfinite(peak)
        exponents = np.clip(np.frexp(np.where(beyond, 1.0, peak))[1] - 1, -127, 127) + 127
        exponents = np.where(beyond, 255, np.where(peak == 0, 0, exponents))
        with np.errstate(invalid="ignore"):
            whole = np.rint(np.ldexp(parts, 127 + 6 - exponents))
            whole = np.where(np.isnan(whole), -128, np.clip(whole, -128, 127))
        return (256 * exponents + whole + 128).astype(np.uint16).reshape(numbers.shape)

    def read_back(self, kept: Bits) -> Bits:
        """Return keys or values of the cache as products read them: those of 8 bits rounded once to 16."""
        if not self.place.int8:
            return kept
        codes = kept.astype(np.int64)
        values, half = np.ldexp(codes % 256 - 128.0, codes // 256 - 127 - 6), self.half
        return np.asarray(numerics.encode(values, half.fmt, half.bias, half.ftz), np.uint16)

    @property
    def features(self) -> list[int]:
        """The scores of a column are summed over its features of a head in this order."""
        part = self.place.part
        return (
            [k for pair in zip(range(part // 2), range(part // 2, part), strict=True) for k in pair]
            if (self.place.int8)
            else list(range(part))
        )

    def remember(self, layer: int, qkv: Bits) -> None:
        """Put the newest token's keys and values where the cache has its token now; move those that moved."""
        place, keys, values = self.place, self.keys[layer], self.values[layer]
        own_keys = qkv[:, place.query_rows : place.query_rows + place.kv_rows].reshape(place.width, place.kv_heads, -1)
        own_values = qkv[:, place.query_rows + place.kv_rows :].reshape(place.width, place.kv_heads, -1)
        old_keys, old_values = keys.copy(), values.copy()
        was = self._before
        for r, row in enumerate(self.rows.rows):
            for slot, token in enumerate(row.slots):
                if slot < len(was[r]) and was[r][slot] == token:
                    continue
                if token == self.rows.count - 1:
                    keys[r, ..., slot], values[r, :, :, slot] = own_keys, own_values
                else:
                    source = was[r + 1].index(token)
                    keys[r, ..., slot] = old_keys[r + 1, ..., source]
                    values[r, :, :, slot] = old_values[r + 1, :, :, source]

    def attention(self, layer: int, qkv: Bits) -> Bits:
        """Return what the heads of each column give, (width, query_rows), rounded to 16 bits."""
        place = self.place
        queries = qkv[:, : place.query_rows].reshape(place.width, place.kv_heads, -1, place.part)
        alike = self._alike()
        scores = [self._scores(layer, rows, count, queries) for rows, count in alike]
        peaks = np.zeros((place.height, place.width, place.heads), np.uint32)
        for (rows, _), row in zip(alike, scores, strict=True):
            peaks[rows] = self.in_order(LOWEST, row, "maximum")
        peak = self.total("peaks", peaks)[..., np.newaxis]
        parts = np.zeros((place.height, place.width, place.query_rows + place.heads), np.uint32)
        for (rows, count), row in zip(alike, scores, strict=True):
            terms = self.functions.exp(self.do("sub", row, peak)) if count else row
            mixed = self._mixed(layer, rows, terms)
            parts[rows] = np.concatenate([mixed, self.in_order(0.0, terms)], axis=-1)
        total = self.total("mixed", parts)
        values = total[:, : place.query_rows].reshape(place.width, place.heads, place.part)
        inverse = self.functions.reciprocal(total[:, place.query_rows :])[..., np.newaxis]
        return self.rounded(self.do("mul", values, inverse).reshape(place.width, -1))

    def _alike(self) -> list[tuple[list[int], int]]:
        """Return rows of PEs that have equally many slots, and the slots: whole groups of four."""
        counts = [4 * -(-len(row.slots) // 4) for row in self.rows.rows]
        return [([r for r, n in enumerate(counts) if n == count], count) for count in sorted(set(counts))]

    def _scores(self, layer: int, rows: list[int], count: int, queries: Bits) -> Bits:
        """Return the scores of rows of PEs, (rows, width, heads, slots), summed over the columns of each head."""
        place = self.place
        # (rows, width, kv_heads, 1, part, slots)
        keys = self.read_back(self.keys[layer, rows][..., np.newaxis, :, :count])
        found = np.zeros((len(rows), *queries.shape[:3], count), np.uint32)
        for feature in self.features if count else ():
            found = self._grown(found, keys[..., feature, :], queries[..., feature, np.newaxis])
        found = self._over_heads(found.reshape(len(rows), place.width, place.heads, count))
        decoder, slots = place.decoder, [self.rows.rows[r].slots for r in rows]
        found, window = self.capped(decoder.score_cap, found), decoder.kind(layer).window
        if window is not None:  # of what lies behind the last token nothing is asked
            first = self.single.encode(self.rows.count - 1 - window + 0.5)
            numbers = self.single.encode(np.array([[*s, *[0] * (count - len(s))] for s in slots], np.float64))
            limits = self.do("mul", self.do("sub", numbers, np.broadcast_to(first, numbers.shape)), self.number(STEEP))
            found = self.do("minimum", found, np.broadcast_to(limits[:, np.newaxis, np.newaxis], found.shape))
        for row, own in zip(found, slots, strict=True):
            row[..., len(own) :] = self.number(LOWEST)
        return found

    def _mixed(self, layer: int, rows: list[int], terms: Bits) -> Bits:
        """Return the values of rows of PEs by the shares of their slots, (rows, width, query_rows)."""
        place, count = self.place, terms.shape[-1]
        shares = self.rounded(terms).reshape(len(rows), place.width, place.kv_heads, place.decoder.group, count)
        # (rows, width, kv_heads, 1, slots, part)
        values = self.read_back(self.values[layer, rows][..., np.newaxis, :count, :])
        found = np.zeros((*shares.shape[:-1], place.part), np.uint32)
        for slot in range(count):
            found = self._grown(found, values[..., slot, :], shares[..., slot, np.newaxis])
        return found.reshape(len(rows), place.width, -1)

    def _grown(self, total: Bits, a: Bits, b: Bits) -> Bits:
        """Return total + a b in f32, of 16-bit numbers, one product for each element: a step of `product`."""
        return np.asarray(self.half.call("fma_mixed", *np.broadcast_arrays(a, b, total)))

    def _over_heads(self, parts: Bits) -> Bits:
        """Return parts of columns, the second axis, each as the sum over the columns of its head."""
        found = parts.copy()
        groups = self.decode.groups()
        for size in {len(group) for group in groups}:
            columns = np.array([group for group in groups if len(group) == size])
            total = self._group_sum(np.moveaxis(parts[:, columns], 2, 0))  # (rows, groups, ...)
            found[:, columns] = total[:, :, np.newaxis]
        return found

    def _group_sum(self, parts: Bits) -> Bits:
        """Return the sum over the columns of a head: both ends of the group toward its middle, the east end first."""
        middle = len(parts) // 2
        total = parts[middle]
        for side in (range(len(parts) - 1, middle, -1), range(middle)):
            chain = None
            for k in side:
                chain = parts[k] if chain is None else self.do("add", parts[k], chain)
            total = total if chain is None else self.do("add", total, chain)
        return total

    def exponent(self, gate: Bits) -> Bits:
        """Return e of which the activation of a gate is gate / (1 + exp(e))."""
        found = gate ^ np.uint32(1 << 31)
        if self.place.decoder.activation == "gelu":
            square = self.do("mul", self.do("mul", gate, gate), self.number(-GELU_SCALE * GELU_CUBIC))
            found = self.do("mul", self.do("add", square, self.number(-GELU_SCALE)), gate)
        return self.do("minimum", found, self.number(LARGEST_EXPONENT))

    def gated(self, gate_up: Bits) -> Bits:
        """Return act(gate) * up, or act(up) without a gate, (..., ffn), rounded to 16 bits."""
        gate, up = gate_up[..., : self.place.ffn], gate_up[..., self.place.ffn :]
        active = self.active(gate)
        return self.rounded(self.do("mul", active, up) if self.place.decoder.gated else active)

    def _by_experts(self, tiles: dict[str, Bits], given: Bits) -> Bits:
        """Return what the chosen experts give, each with its share."""
        place = self.place
        picked, shares = self.routed(self._along_y("router", tiles["router"], given)[0])  # the same in all columns
        whole = np.concatenate([tiles[f"gate_up {k}"] for k in picked], axis=2)
        gate_up = self._along_y("gate_up", whole, given).reshape(place.width, len(picked), -1)
        inner = self.shared(gate_up, shares)
        down = np.concatenate([tiles[f"down {k}"] for k in picked], axis=3)
        return self._along_x(down, inner.reshape(place.width, -1))

    def routed(self, logits: Bits) -> tuple[list[int], Bits]:
        """Return the experts that a token with such logits of the router is given to, and their shares."""
        values, decoder = self.single.decode(logits), self.place.decoder
        picked = sorted(range(len(values)), key=lambda k: (-values[k], k))[: decoder.chosen]
        peak = np.broadcast_to(logits[picked[0]], logits.shape)
        powers = self.functions.exp(self.do("sub", logits, peak))
        chosen = powers[picked]
        inverse = self.functions.reciprocal(self.in_order(0.0, chosen if decoder.renormalised else powers))
        return picked, self.do("mul", chosen, np.broadcast_to(inverse, chosen.shape))

    def shared(self, gate_up: Bits, shares: Bits) -> Bits:
        """Return what is inside of experts, (..., experts, ffn), each with its share, rounded to 16 bits."""
        active = self.active(gate_up[..., : self.place.ffn])
        if self.place.decoder.gated:
            active = self.do("mul", active, gate_up[..., self.place.ffn :])
        return self.rounded(self.do("mul", active, np.broadcast_to(shares[..., np.newaxis], active.shape)))

    def active(self, gate: Bits) -> Bits:
        """Return the activation of numbers."""
        kind = self.place.decoder.activation
        if kind == "relu":
            return self.do("maximum", gate, self.number(0.0))
        if kind == "gelu_erf":
            return np.asarray(self.functions.gelu_erf(gate))
        power = self.functions.exp(self.exponent(gate))
        inverse = self.functions.reciprocal(self.do("add", power, self.number(1.0)))
        return self.do("mul", inverse, gate)

    def embedding(self, token: int) -> Bits:
        """Return the residual stream that a token begins with, (height, hidden)."""
        rows = embedding_rows(self.place, self.decode.machine, self.weights, token, self.rows.count)
        return self.handed(self.wide(rows))

    def step(self, token: int) -> tuple[int, Bits]:
        """Take a token; return (the next one, bits of the logits of all tokens).

        Raises
        ------
        ConfigError
            The cache is full.
        """
        return self.answer(self.through(self.embedding(token)))

    def handed(self, x: Bits) -> Bits:
        """Return the residual stream that a region begins with when another one hands it `x`, (height, hidden)."""
        parts = np.zeros((self.place.width, *x.shape), np.uint32)
        parts[0] = x
        return self.total("back", parts)

    def through(self, x: Bits) -> Bits:
        """Take a token's residual stream through all layers that are here.

        Raises
        ------
        ConfigError
            The cache is full.
        """
        position = self.rows.count
        self._before = [list(row.slots) for row in self.rows.rows]
        self.rows.append()
        decoder = self.place.decoder
        for layer, tiles in enumerate(self.tiles[: decoder.layers]):
            norms = self.norms_of(layer)
            given = self.given(x, norms)
            inner = self.inner_given(given, x, norms, self.given)
            qkv = self._along_y("qkv", tiles["qkv"], given)
            qkv = self.normalised(layer, self.biased("qkv", layer, qkv))
            if decoder.kind(layer).turns:
                qkv = self.turned(layer, qkv, position)
            qkv = self.kept(qkv)
            self.remember(layer, qkv)
            back = self._along_x(tiles["o"], self.attention(layer, qkv))
            x = self.added(x, self.biased("o", layer, back), norms)
            given = self.given(x, norms) if inner is None else inner
            if decoder.experts:
                back = self._by_experts(tiles, given)
            else:
                gate_up = self._along_y("gate_up", tiles["gate_up"], given)
                back = self._along_x(tiles["down"], self.gated(self.biased("gate_up", layer, gate_up)))
            x = self.added(x, self.biased("down", layer, back), norms)
        return x

    def norms_of(self, layer: int) -> Norms:
        """Return the weights and biases of each of a layer's norms, one after the other, (height, hidden) each."""
        parts, count = len(self.place.decoder.norm_parts), self.place.layer_norms
        firsts = range(layer * count * parts, (layer + 1) * count * parts, parts)
        return iter([[self.norms[:, first + k] for k in range(parts)] for first in firsts])

    def given(self, x: Bits, norms: Norms) -> Bits:
        """Return what a part of a layer reads, of 16 bits."""
        return self.rounded(self.norm(x, next(norms)) if self.place.decoder.norms_before else x)

    def inner_given(self, given: Bits, x: Bits, norms: Norms, normalised: Callable[[Bits, Norms], Bits]) -> Bits | None:
        """Return what the feed-forward part reads if that is there when the layer begins, None otherwise.

        `given`: what attention reads of `x`; `normalised` gives it with the next norm.
        """
        place = self.place.decoder.norms
        return given if place == "shared" else normalised(x, norms) if place == "beside" else None

    def added(self, x: Bits, back: Bits, norms: Norms) -> Bits:
        """Return the residual stream with what a part of a layer gives."""
        return self.do("add", x, self.norm(back, next(norms)) if self.place.decoder.norms_behind else back)

    def answer(self, x: Bits) -> tuple[int, Bits]:
        """Return the next token and bits of the logits of all, from the residual stream behind the last layer."""
        parts = len(self.place.decoder.norm_parts)
        given = self.rounded(self.norm(x, [self.norms[:, k - parts] for k in range(parts)]))
        logits = self.biased("head", 0, self._along_y("head", self.tiles[-1]["head"], given))
        logits = self.capped(self.place.decoder.logit_cap, logits)
        return self.search(logits), logits[self.place.ids >= 0]

    def search(self, logits: Bits) -> int:
        """Return the token that the wafer finds; a number beyond all where no token may be answered."""
        known = self.decode.may_answer
        if not known.any():
            return int(2 * BEYOND)
        values = self.single.decode(logits)
        top = values[known].max()
        far = np.minimum((top - values) * RAISE * RAISE, BEYOND) + self.place.ids
        return int(far[known].min())
