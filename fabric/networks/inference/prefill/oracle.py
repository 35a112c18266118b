"""The oracle gives what the reading of a prompt must give, bit by bit: numpy in the order of the PEs.

Arrays have one entry per row of PEs; what a product does on all columns of a row is done at once.  Small parts are
those of the decoder's oracle (`fabric.networks.inference.oracle.Oracle`), which goes on from the state that is reached
here: `read` leaves keys and values in its cache and returns the hidden features of the last token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabric.networks.inference.attention import LOWEST
from fabric.networks.inference.oracle import Norms, Oracle
from fabric.networks.inference.prefill.attention import HIGHEST
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.tiles import embedding_rows
from wse_core.formats import Bits

__all__ = ["PrefillOracle"]


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

    def _sums(self, row: int, features: Bits) -> Bits:
        """Return the sums of features of all tokens of a row, (tokens,), from (chunks, tokens, hidden)."""
        place = self.place
        own = np.zeros((place.width, self.prompt.slots, *features.shape[1:]), np.uint32)
        for chunk, (column, slot) in enumerate(self.homes):
            own[column, slot] = features[chunk]
        parts = self.oracle.in_order(0.0, own.swapaxes(1, 2).reshape(place.width, self.prompt.tokens, -1))
        return np.asarray(self.prefill.squares.total(list(parts), self.oracle.single))

    def _scaled(self, x: Bits) -> Bits:
        """Return chunks of features of mean square one, (height, chunks, tokens, hidden); x alike."""
        decoder, do, found = self.place.decoder, self.do, np.empty_like(x)
        for row in range(self.place.height):
            own = x[row]
            if decoder.centred:
                mean = do("mul", self._sums(row, own), self.number(-1.0 / decoder.hidden))
                mask = np.broadcast_to(self.oracle.mask[:, np.newaxis], own.shape)
                own = do("fma", mask, np.broadcast_to(mean[:, np.newaxis], own.shape), own)
            mean = do("mul", self._sums(row, do("mul", own, own)), self.number(1.0 / decoder.hidden))
            scale = self.oracle.functions.rsqrt(do("add", mean, self.number(decoder.epsilon)))
            found[row] = do("mul", own, scale[:, np.newaxis])
        return found

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
        place, found = self.place, []
        for row in range(place.height):
            total = np.zeros((place.width * tiles.shape[2], self.prompt.tokens), np.uint32)
            for chunk in self.prompt.sequence[row]:
                matrix = tiles[chunk].reshape(-1, tiles.shape[3])
                total = self.oracle.product(matrix, given[row, chunk].T, total)
            found.append(total.reshape(place.width, tiles.shape[2], -1).swapaxes(1, 2))
        return np.array(found)

    def _summed(self, tiles: Bits, vector: Bits) -> Bits:
        """Return the product of features of columns (height, width, tokens, depth), chunks as in `_norm`."""
        place, found = (
            self.place,
            np.zeros((self.place.height,) * 2 + (self.prompt.tokens, self.place.hidden), np.uint32),
        )
        for row in range(place.height):
            for chunk in range(place.height):
                parts = [self.oracle.product(tiles[chunk, c], vector[row, c].T, None).T for c in range(place.width)]
                found[row, chunk] = self._home(np.array(parts), self.homes[chunk][0])
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
                    matrix = tiles[f"gate_up {expert}"]
                    total = np.zeros((place.width * matrix.shape[2], 1), np.uint32)
                    for chunk in self.prompt.sequence[row]:
                        own = given[row, chunk, token][:, np.newaxis]
                        total = oracle.product(matrix[chunk].reshape(-1, matrix.shape[3]), own, total)
                    inner.append(total.reshape(place.width, -1))
                vectors = oracle.shared(np.stack(inner, axis=1), shares)  # (width, experts, ffn)
                for k in sorted(range(len(picked)), key=picked.__getitem__):
                    matrix = tiles[f"down {picked[k]}"]
                    for chunk in range(place.height):
                        parts = [
                            oracle.product(matrix[chunk, c], vectors[c, k][:, np.newaxis])[:, 0]
                            for c in range(place.width)
                        ]
                        total = self._home(np.array(parts), self.homes[chunk][0])
                        found[row, chunk, token] = self.do("add", found[row, chunk, token], total)
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
            block[..., :s, :] = own
        found = np.zeros((place.height, place.width, s, place.query_rows), np.uint16)
        for first in range(0, place.width, place.group):
            if self.prompt.is_idle(first):
                continue
            columns = list(range(first, first + place.group))
            for row in range(place.height):
                found[row, columns] = self._head(
                    layer, row, q[row, columns], blocks[0][:, columns], blocks[1][:, columns]
                )
        return found

    def _head(self, layer: int, row: int, q: Bits, keys: Bits, values: Bits) -> Bits:
        """Return what the columns of a head in a row give: (columns, tokens, query_rows)."""
        place, prompt, do = self.place, self.prompt, self.do
        columns, kv_heads, group, s, part = q.shape
        wide = prompt.width_of_keys
        scores = np.zeros((columns, kv_heads, group, s, wide), np.uint32)
        for chunk, (home, slot) in enumerate(self.key_homes):
            parts = np.zeros((columns, kv_heads, group * s, prompt.keys), np.uint32)
            for c in range(columns):
                for h in range(kv_heads):
                    parts[c, h] = self.oracle.product(keys[chunk, c, h], q[c, h].reshape(-1, part).T, None).T
            at = slice(slot * prompt.keys, (slot + 1) * prompt.keys)
            scores[home, ..., at] = self._home(parts, home).reshape(kv_heads, group, s, prompt.keys)
        limits = np.full((columns, prompt.key_slots, s, prompt.keys), self.number(HIGHEST), np.uint32)
        seen = prompt.allowed[row, :columns]
        limits[np.arange(prompt.keys) >= seen[..., np.newaxis]] = self.number(LOWEST)
        scores, window = self.oracle.capped(place.decoder.score_cap, scores), place.decoder.kind(layer).window
        if window is not None:
            far = prompt.outside(window)[row, :columns]
            limits[np.arange(prompt.keys) < far[..., np.newaxis]] = self.number(LOWEST)
        limits = limits.swapaxes(1, 2).reshape(columns, 1, 1, s, wide)
        scores = do("minimum", scores, np.broadcast_to(limits, scores.shape))
        peaks = self._all(self.oracle.in_order(LOWEST, scores, "maximum"), "maximum")
        shares = self.oracle.functions.exp(do("sub", scores, np.broadcast_to(peaks[..., np.newaxis], scores.shape)))
        totals = self._all(self.oracle.in_order(0.0, shares), "add")
        shares = self.half(shares)
        mixed = np.zeros((columns, kv_heads, group * s, part), np.uint32)
        for chunk in prompt.sequence[row]:
            home, slot = self.key_homes[chunk]
            block = shares[home, ..., slot * prompt.keys : (slot + 1) * prompt.keys]
            for c in range(columns):
                for h in range(kv_heads):
                    total = self.oracle.product(
                        values[chunk, c, h].T, block[h].reshape(-1, prompt.keys).T, mixed[c, h].T
                    )
                    mixed[c, h] = total.T
        inverse = self.oracle.functions.reciprocal(totals)
        mixed = do("mul", mixed.reshape(q.shape), np.broadcast_to(inverse[..., np.newaxis], q.shape))
        return self.half(mixed).transpose(0, 3, 1, 2, 4).reshape(columns, s, place.query_rows)

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
