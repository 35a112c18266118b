"""The oracle gives what the reading of a prompt must give, bit by bit: numpy in the order of the PEs.

Arrays have one entry per row of PEs.  A product adds one term after the other, so that what goes round a column, tile
by tile, is one product over the tiles in the order in which they come; and where each column has a part of its own that
is summed along the row, a column's tiles are one matrix.  Small parts are those of the decoder's oracle
(`fabric.networks.inference.oracle.Oracle`), which goes on from the state that is reached here: `read` leaves keys and
values in its cache and returns the hidden features of the last token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from fabric.networks.inference.attention import LOWEST
from fabric.networks.inference.oracle import Norms, Oracle
from fabric.networks.inference.prefill.attention import HIGHEST
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.tiles import embedding_rows
from wse_core.formats import Bits

__all__ = ["PrefillOracle"]


def _by_home(homes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Give each column that is a home, and the chunks that have theirs there."""
    for home in sorted({column for column, _ in homes}):
        yield home, [chunk for chunk, (column, _) in enumerate(homes) if column == home]


class PrefillOracle:
    """A `PrefillOracle` does in numpy what a mesh does that reads a prompt, bit for bit.

    Parameters
    ----------
    prefill : Prefill
        Placement and tree; none of its programs are used.
    oracle : Oracle
        Of the decoder that goes on; its cache is empty.
    """

    def __init__(self, prefill: Prefill, oracle: Oracle) -> None:
        self.prefill, self.oracle = prefill, oracle
        self.prompt, self.place = prefill.prompt, prefill.place
        self.do, self.half, self.number = oracle.do, oracle.rounded, oracle.number
        place = self.place
        self.homes, self.key_homes = self.prompt.homes(place.width), self.prompt.homes(place.group)
        tokens = self.prompt.tokens
        self.positions = np.array(self.prompt.firsts)[:, np.newaxis] + np.arange(tokens)
        self.angles = {  # by whether they are local: (height, width, tokens, 2 pairs)
            local: np.array([[source.at(int(t)) for t in row] for row in self.positions]).swapaxes(1, 2)
            for local, source in ((False, oracle.angles), (True, oracle.local))
        }

    # --- sums over PEs ------------------------------------------------------------------------------------------------

    def _home(self, parts: Bits, home: int) -> Bits:
        """Return the sum of the parts of the columns of a line, the first axis, at its home."""
        total = parts[home]
        for side in (parts[:home], parts[:home:-1]):
            chain = None
            for part in side:
                chain = part if chain is None else self.do("add", part, chain)
            total = total if chain is None else self.do("add", total, chain)
        return total

    def _all(self, parts: Bits, name: str) -> Bits:
        """Return what an all-reduce inside a head makes of the parts of its columns: from the west to the last one."""
        total = parts[0]
        for part in parts[1:]:
            total = self.do(name, part, total)
        return total

    # --- parts of a layer ---------------------------------------------------------------------------------------------

    def _sums(self, features: Bits) -> Bits:
        """Return the sums of features of all tokens, (height, tokens), from (height, chunks, tokens, hidden)."""
        place, tokens = self.place, self.prompt.tokens
        own = np.zeros((place.width, self.prompt.slots, place.height, *features.shape[2:]), np.uint32)
        for chunk, (column, slot) in enumerate(self.homes):
            own[column, slot] = features[:, chunk]
        terms = own.transpose(0, 2, 3, 1, 4).reshape(place.width, place.height * tokens, -1)
        parts = self.oracle.in_order(0.0, terms)
        return np.asarray(self.prefill.squares.total(list(parts), self.oracle.single)).reshape(place.height, tokens)

    def _scaled(self, x: Bits) -> Bits:
        """Return chunks of features of mean square one, (height, chunks, tokens, hidden); x alike."""
        decoder, do = self.place.decoder, self.do
        if decoder.centred:
            mean = do("mul", self._sums(x), self.number(-1.0 / decoder.hidden))
            mask = np.broadcast_to(self.oracle.mask[:, np.newaxis], x.shape)
            x = do("fma", mask, np.broadcast_to(mean[:, np.newaxis, :, np.newaxis], x.shape), x)
        mean = do("mul", self._sums(do("mul", x, x)), self.number(1.0 / decoder.hidden))
        scale = self.oracle.functions.rsqrt(do("add", mean, self.number(decoder.epsilon)))
        return do("mul", x, scale[:, np.newaxis, :, np.newaxis])

    def _norm(self, x: Bits, norm: Sequence[Bits]) -> Bits:
        """Return chunks of normalised features, shaped as x, with the weights and biases of a norm."""
        return self.oracle.weighted(self._scaled(x), [each[:, np.newaxis] for each in norm])

    def _given(self, x: Bits, norms: Norms) -> Bits:
        """Return what a part of a layer reads, of 16 bits."""
        return self.half(self._norm(x, next(norms)) if self.place.decoder.norms_before else x)

    def _added(self, x: Bits, name: str, layer: int, back: Bits, norms: Norms) -> Bits:
        """Return the residual stream with what a product gives at the homes of its features."""
        if not self.place.decoder.norms_behind:
            return self._biased(name, layer, self.do("add", x, back))
        return self.do("add", x, self._norm(self._biased(name, layer, back), next(norms)))

    def _spread(self, tiles: Bits, given: Bits) -> Bits:
        """Return the product of chunks of hidden features with a matrix, (height, width, tokens, rows)."""
        return np.array([self._met(row, tiles, given[row]) for row in range(self.place.height)])

    def _met(self, row: int, tiles: Bits, given: Bits) -> Bits:
        """Return the product of a row's chunks (chunks, tokens, hidden) with tiles, (width, tokens, rows)."""
        place, order = self.place, self.prompt.sequence[row]
        matrix = tiles[order].transpose(1, 2, 0, 3).reshape(place.width * tiles.shape[2], -1)
        vectors = given[order].swapaxes(1, 2).reshape(matrix.shape[1], -1)
        return self.oracle.product(matrix, vectors).reshape(place.width, tiles.shape[2], -1).swapaxes(1, 2)

    def _summed(self, tiles: Bits, vector: Bits) -> Bits:
        """Return the product of features of columns (height, width, tokens, depth), chunks as in `_norm`."""
        place, tokens = self.place, vector.shape[2]
        vectors = vector.transpose(1, 3, 0, 2).reshape(place.width, vector.shape[3], -1)  # of a column: all tokens
        found = np.zeros((place.height, place.height, tokens, place.hidden), np.uint32)
        for home, chunks in _by_home(self.homes):
            matrices = tiles[chunks].swapaxes(0, 1).reshape(place.width, -1, tiles.shape[3])
            parts = np.array([self.oracle.product(*both) for both in zip(matrices, vectors, strict=True)])
            total = self._home(parts, home).reshape(len(chunks), -1, place.height, tokens)
            found[:, chunks] = total.transpose(2, 0, 3, 1)
        return found

    def _by_experts(self, tiles: dict[str, Bits], x: Bits, given: Bits, norms: Norms) -> Bits:
        """Return the residual stream, (height, chunks, tokens, hidden), with what the experts of each token give.

        They come in their order, and each is added where the features are at home.
        """
        place, oracle = self.place, self.oracle
        logits = self._spread(tiles["router"], given)[:, 0]
        behind = place.decoder.norms_behind
        found = np.zeros_like(x) if behind else x.copy()
        for row, count in enumerate(self.prompt.counts):
            for token in range(count):
                picked, shares = oracle.routed(logits[row, token])
                inner = []
                for expert in picked:
                    inner.append(self._met(row, tiles[f"gate_up {expert}"], given[row, :, token : token + 1])[:, 0])
                vectors = oracle.shared(np.stack(inner, axis=1), shares)  # (width, experts, ffn)
                for k in sorted(range(len(picked)), key=picked.__getitem__):
                    matrix = tiles[f"down {picked[k]}"].swapaxes(0, 1).reshape(place.width, -1, vectors.shape[2])
                    both = zip(matrix, vectors[:, k, :, np.newaxis], strict=True)
                    parts = np.array([oracle.product(*each) for each in both]).reshape(place.width, place.height, -1)
                    for home, chunks in _by_home(self.homes):
                        total = self._home(parts[:, chunks], home)
                        found[row, chunks, token] = self.do("add", found[row, chunks, token], total)
        return self.do("add", x, self._norm(found, next(norms))) if behind else found

    def _biased(self, name: str, layer: int, result: Bits) -> Bits:
        """Return a result with the biases of its product, (height, places, tokens, rows)."""
        return self.oracle.biased(name, layer, result.swapaxes(1, 2)).swapaxes(1, 2)

    def _normalised(self, layer: int, qkv: Bits) -> Bits:
        """Return queries, keys and values with the heads of the first two normalised; (height, width, s, rows)."""
        place, group = self.place, self.place.group
        if self.oracle.head_norms is None:
            return qkv
        rows = place.turned_heads * place.part
        if place.decoder.projection_norms:
            z = qkv[..., :rows].swapaxes(1, 2)  # (height, tokens, width, rows)
            squares, line = self.oracle.squares_of(z), self.prefill.projections
            assert line is not None
            parts = [[part.T.ravel() for part in row.swapaxes(0, 1)] for row in squares]  # queries, then keys
            totals = np.array([np.asarray(line.total(row, self.oracle.single)) for row in parts])
            totals = totals.reshape(place.height, 2, 1, -1).swapaxes(1, 3)  # (height, tokens, 1, 2)
            found = self.oracle.by_projections(layer, z, totals).swapaxes(1, 2)
            return np.concatenate([found, qkv[..., rows:]], axis=-1)
        z = qkv[..., :rows].reshape(*qkv.shape[:3], place.turned_heads, place.part)
        squares = self.oracle.in_order(0.0, self.do("mul", z, z))
        for first in range(0, place.width, group):
            if not self.prompt.is_idle(first):
                own = squares[:, first : first + group]
                own[:] = self._all(own.swapaxes(0, 1), "add")[:, np.newaxis]
        found = self.oracle.by_heads(layer, z.swapaxes(1, 2), squares.swapaxes(1, 2)).swapaxes(1, 2)
        return np.concatenate([found, qkv[..., rows:]], axis=-1)

    def _turned(self, layer: int, qkv: Bits) -> Bits:
        """Return queries, keys and values behind the rotary positions; (height, width, s, rows)."""
        place, n, do = self.place, self.place.pairs, self.do
        count = place.turned_heads
        angles = self.angles[place.decoder.kind(layer).local]
        cos, sin = angles[..., np.newaxis, :n], angles[..., np.newaxis, n:]
        z = qkv[..., : count * place.part].reshape(*qkv.shape[:3], count, 2, n)
        a, b = z[..., 0, :], z[..., 1, :]
        first = do("sub", do("mul", a, cos), do("mul", b, sin))
        second = do("add", do("mul", b, cos), do("mul", a, sin))
        found = np.stack([first, second], axis=-2).reshape(*qkv.shape[:3], -1)
        return np.concatenate([found, qkv[..., found.shape[-1] :]], axis=-1)

    def _remember(self, layer: int, keys: Bits, values: Bits) -> None:
        """Put keys and values (height, width, kv_heads, tokens, part) into the first slots of the cache."""
        s = self.prompt.tokens
        self.oracle.keys[layer, ..., :s] = keys.swapaxes(3, 4)
        self.oracle.values[layer, ..., :s, :] = values

    def _attention(self, layer: int, qkv: Bits) -> Bits:
        """Return what the heads of each column give, (height, width, tokens, query_rows), rounded to 16 bits."""
        place, s, keys = self.place, self.prompt.tokens, self.prompt.keys
        size, group = (place.height, place.width, place.kv_heads), place.decoder.group
        q = qkv[..., : place.query_rows].reshape(place.height, place.width, s, place.kv_heads, group, place.part)
        q = q.transpose(0, 1, 3, 4, 2, 5)  # (height, width, kv_heads, group, tokens, part)
        rest = qkv[..., place.query_rows :].reshape(place.height, place.width, s, 2, place.kv_heads, place.part)
        k, v = (rest[..., part, :, :].swapaxes(2, 3) for part in range(2))
        self._remember(layer, k, v)
        blocks = [np.zeros((*size, keys, place.part), np.uint16) for _ in range(2)]
        for block, own in zip(blocks, (k, v), strict=True):
            block[..., :s, :] = self.oracle.read_back(own)
        firsts = [first for first in range(0, place.width, place.group) if not self.prompt.is_idle(first)]
        heads = np.array(firsts)[:, np.newaxis] + np.arange(place.group)  # columns of each head
        scores = np.array(
            [[self._scores(q[row, own], blocks[0][:, own]) for own in heads] for row in range(place.height)]
        )
        shares, totals = self._shares(layer, scores)
        mixed = np.array(
            [[self._mixed(row, *own) for own in zip(shares[row], blocks[1].swapaxes(0, 1)[heads], strict=True)]
             for row in range(place.height)]
        )  # fmt: skip
        mixed = mixed.reshape(place.height, -1, *q.shape[2:])
        inverse = self.oracle.functions.reciprocal(totals.reshape(mixed.shape[:-1]))
        mixed = self.do("mul", mixed, np.broadcast_to(inverse[..., np.newaxis], mixed.shape))
        found = np.zeros((place.height, place.width, s, place.query_rows), np.uint16)
        found[:, heads.ravel()] = (
            self.half(mixed).transpose(0, 1, 4, 2, 3, 5).reshape(place.height, -1, *found.shape[2:])
        )
        return found

    def _scores(self, q: Bits, keys: Bits) -> Bits:
        """Return the scores of the columns of a head in a row, (columns, kv_heads, group, tokens, width of keys)."""
        prompt, height = self.prompt, self.place.height
        columns, kv_heads, group, s, part = q.shape
        parts = np.zeros((columns, kv_heads, group * s, height, prompt.keys), np.uint32)
        for c, h in product(range(columns), range(kv_heads)):
            found = self.oracle.product(keys[:, c, h].reshape(-1, part), q[c, h].reshape(-1, part).T)
            parts[c, h] = found.T.reshape(group * s, height, prompt.keys)
        scores = np.zeros((columns, kv_heads, group, s, prompt.width_of_keys), np.uint32)
        for home, chunks in _by_home(self.key_homes):
            total = self._home(parts[..., chunks, :], home).reshape(kv_heads, group, s, -1)
            slots = np.array([self.key_homes[chunk][1] for chunk in chunks])[:, np.newaxis]
            scores[home][..., (slots * prompt.keys + np.arange(prompt.keys)).ravel()] = total
        return scores

    def _shares(self, layer: int, scores: Bits) -> tuple[Bits, Bits]:
        """Return powers of the scores of all rows and heads, of 16 bits, and their sums over the keys."""
        place, prompt, do = self.place, self.prompt, self.do
        height, _, columns, _, _, s, wide = scores.shape
        limits = np.full((height, columns, prompt.key_slots, s, prompt.keys), self.number(HIGHEST), np.uint32)
        limits[np.arange(prompt.keys) >= prompt.allowed[:, :columns, ..., np.newaxis]] = self.number(LOWEST)
        scores, window = self.oracle.capped(place.decoder.score_cap, scores), place.decoder.kind(layer).window
        if window is not None:
            far = prompt.outside(window)[:, :columns]
            limits[np.arange(prompt.keys) < far[..., np.newaxis]] = self.number(LOWEST)
        limits = limits.swapaxes(2, 3).reshape(height, 1, columns, 1, 1, s, wide)
        scores = do("minimum", scores, np.broadcast_to(limits, scores.shape))
        peaks = self._all(np.moveaxis(self.oracle.in_order(LOWEST, scores, "maximum"), 2, 0), "maximum")
        peaks = peaks[:, :, np.newaxis, ..., np.newaxis]
        shares = self.oracle.functions.exp(do("sub", scores, np.broadcast_to(peaks, scores.shape)))
        totals = self._all(np.moveaxis(self.oracle.in_order(0.0, shares), 2, 0), "add")
        return self.half(shares), np.broadcast_to(totals[:, :, np.newaxis], shares.shape[:-1])

    def _mixed(self, row: int, shares: Bits, values: Bits) -> Bits:
        """Return the values (columns, chunks, kv_heads, keys, part) of a head by a row's shares, in f32."""
        prompt = self.prompt
        columns, kv_heads, group, s, _ = shares.shape
        order = prompt.sequence[row]
        at = np.array(self.key_homes)[order]
        blocks = shares.reshape(columns, kv_heads, group * s, -1, prompt.keys)[at[:, 0], :, :, at[:, 1]]
        mixed = np.zeros((columns, kv_heads, group * s, values.shape[-1]), np.uint32)
        for c, h in product(range(columns), range(kv_heads)):
            own = values[c, order, h].reshape(-1, values.shape[-1])
            mixed[c, h] = self.oracle.product(own.T, blocks[:, h].swapaxes(1, 2).reshape(-1, group * s)).T
        return mixed

    # --- the prompt ---------------------------------------------------------------------------------------------------

    def _entered(self, tokens: Sequence[int]) -> Bits:
        """Return the residual stream that the prompt begins with, chunks as in `_norm`."""
        place, prompt = self.place, self.prompt
        found = np.zeros((place.height, place.height, prompt.tokens, place.hidden), np.uint16)
        for row, (first, count) in enumerate(zip(prompt.firsts, prompt.counts, strict=True)):
            for k in range(count):
                at = first + k
                found[row, :, k] = embedding_rows(place, self.prefill.machine, self.oracle.weights, tokens[at], at)
        return self.oracle.wide(found)

    def read(self, tokens: Sequence[int]) -> Bits:
        """Read the prompt; return the hidden features of the last token as decoding gets them, (height, hidden)."""
        oracle = self.oracle
        x = self._entered(tokens)
        for layer, tiles in enumerate(oracle.tiles[:-1]):
            norms = oracle.norms_of(layer)
            given = self._given(x, norms)
            inner = oracle.inner_given(given, x, norms, self._given)
            qkv = self._spread(tiles["qkv"], given)
            qkv = self._normalised(layer, self._biased("qkv", layer, qkv))
            if self.place.decoder.kind(layer).turns:
                qkv = self._turned(layer, qkv)
            back = self._summed(tiles["o"], self._attention(layer, oracle.kept(qkv)))
            x = self._added(x, "o", layer, back, norms)
            given = self._given(x, norms) if inner is None else inner
            if self.place.decoder.experts:
                x = self._by_experts(tiles, x, given, norms)
                continue
            gate_up = self._biased("gate_up", layer, self._spread(tiles["gate_up"], given))
            x = self._added(x, "down", layer, self._summed(tiles["down"], oracle.gated(gate_up)), norms)
        oracle.rows.begin(self.prompt.counts)
        row, token = self.prompt.last
        return self._moved(row, x[row, :, token])

    def _moved(self, row: int, last: Bits) -> Bits:
        """Return hidden features that lie with their homes in a row, cut over rows: two all-reduces make that."""
        place, slots = self.place, self.prompt.slots
        parts = np.zeros((place.height, place.width, slots, place.hidden), np.uint32)
        for chunk, (column, slot) in enumerate(self.homes):
            parts[row, column, slot] = last[chunk]
        everywhere = self.oracle.total("last", parts.reshape(place.height, place.width, -1))
        everywhere = everywhere.reshape(place.width, slots, place.hidden)
        own = np.zeros((place.width, place.height, place.hidden), np.uint32)
        for chunk, (column, slot) in enumerate(self.homes):
            own[column, chunk] = everywhere[column, slot]
        return self.oracle.total("back", own)
