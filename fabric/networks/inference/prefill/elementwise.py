"""A prompt's program does for each token of a row what a decoding step does: norms, biases, positions and the gated
part.

Every token's numbers go through what `fabric.networks.inference.elementwise` does with those of one, in the same order
inside a PE.  Nothing moves but one value per token, the sum of its squares, and one per token and head where heads are
normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fabric.asm.operands import Address, Dsd, Reg, Var
from fabric.networks.inference.elementwise import (
    ANGLE_BANK,
    LOCAL,
    PLAIN,
    TURNED_BANK,
    Angle,
    emit_exponent,
    emit_plain,
)
from fabric.networks.inference.int8 import TOP, emit_codes, opener
from fabric.networks.inference.prefill.writer import PromptWriter

__all__ = ["AngleTasks", "emit_biases", "emit_gated", "emit_norm"]


def _emit_sums(w: PromptWriter, numbers: Var, total: Callable[[], None]) -> None:
    """Write sums = those of the hidden features of each token, over all columns; `total` emits the all-reduce."""
    p, prompt, hidden = w.p, w.prompt, w.place.hidden
    value = p.reg32("value")
    p.load(w.second, p.mem4d(numbers, (prompt.slots, hidden), (prompt.piece, 1)))
    with w.rows(prompt.tokens, sums=(w.sums, 2)) as at:
        p.ldi32(value, 0.0)
        p.fadds(value, value, w.second)
        p.dsr_off(w.second, 2 * hidden)
        p.st32(value, at["sums"])
    p.free(value)
    total()


def _emit_centred(w: PromptWriter, total: Callable[[], None]) -> None:
    """Write scratch = x without the mean of each token; where there is no feature it stays zero."""
    p, prompt, hidden = w.p, w.prompt, w.place.hidden
    _emit_sums(w, w.x, total)
    p.fmuls(w.sums, w.sums, -1.0 / w.place.decoder.hidden)
    value = p.reg32("mean")
    p.load(w.first, p.mem4d(w.x, (prompt.slots, hidden), (prompt.piece, 1)))
    p.load(w.second, p.mem4d(w.norms, (prompt.slots, hidden), (hidden, 1)))
    p.load(w.written, p.mem4d(w.scratch, (prompt.slots, hidden), (prompt.piece, 1)))
    with w.rows(prompt.tokens, sums=(w.sums, 2)) as at:
        p.ld32(value, at["sums"])
        p.fmacs(w.written, w.first, w.second, value)
        p.dsr_off(w.first, 2 * hidden)
        p.dsr_off(w.written, 2 * hidden)
    p.free(value)


def _emit_weighted(w: PromptWriter, result: Var) -> None:
    """Write result = scratch with the weights of the next norm, and its biases if it has some."""
    p, slots, hidden = w.p, w.prompt.slots, w.place.hidden
    with w.taking("norms", 2 * slots * hidden * len(w.place.decoder.norm_parts)) as address:
        p.load(w.second, p.mem4d(w.norms, (slots, w.prompt.tokens, hidden), (hidden, 0, 1)))
        p.dsr_base(w.second, address)
        p.fmuls(result, w.scratch, w.second)
        if w.place.decoder.norm_bias:
            p.add16(address, address, 2 * slots * hidden)
            p.dsr_base(w.second, address)
            p.fadds(result, result, w.second)


def emit_norm(w: PromptWriter, total: Callable[[], None], behind: bool = False, inner: bool = False) -> None:
    """Write given = norm(x) with the next norm's weights, or back = norm(back) behind a part of a layer.

    `total` emits the all-reduce of ``sums`` along x.  With `inner` the norm behind the next one gives inner_given of
    the same x.
    """
    p, prompt, hidden, decoder = w.p, w.prompt, w.place.hidden, w.place.decoder
    slots, s, piece = prompt.slots, prompt.tokens, prompt.piece
    source = w.scratch if decoder.centred else w.back if behind else w.x
    squares = w.back if decoder.centred else w.scratch
    if decoder.centred:
        _emit_centred(w, total)
    p.fmuls(squares, source, source)
    _emit_sums(w, squares, total)
    value = p.reg32("value")
    of_token = p.mem4d(w.scratch, (slots, hidden), (piece, 1))
    p.fmuls(w.sums, w.sums, 1.0 / decoder.hidden)
    p.fadds(w.sums, w.sums, decoder.epsilon)
    w.in_pieces(w.sums, s, lambda at: w.functions.rsqrt(at, at))
    p.load(w.second, p.mem4d(source, (slots, hidden), (piece, 1)))
    p.load(w.written, of_token)
    with w.rows(s, sums=(w.sums, 2)) as at:
        p.ld32(value, at["sums"])
        p.fmuls(w.written, w.second, value)
        p.dsr_off(w.second, 2 * hidden)
        p.dsr_off(w.written, 2 * hidden)
    p.free(value)
    if inner:
        _emit_weighted(w, w.back)
        p.fs2h(w.given, w.back)
        _emit_weighted(w, w.scratch)
        p.fs2h(w.inner_given, w.scratch)
        return
    _emit_weighted(w, w.back if behind else w.scratch)
    if not behind:
        p.fs2h(w.given, w.scratch)


def emit_biases(w: PromptWriter, name: str, result: Var) -> None:
    """Write result = result + the next biases of a product, if it has some.

    Those of features of rows lie with the homes of these.
    """
    p, s, rows, slots = w.p, w.prompt.tokens, w.prompt.shapes[name].rows, w.prompt.slots
    symbol = w.place.bias_of(name)
    if not symbol:
        return
    at_home = symbol == "row_biases"
    with w.taking(symbol, rows * (slots if at_home else 1)) as address:
        bias, biased = w.register("src0", "biases"), w.register("dest", "biased")
        p.load(biased, result)
        whole = ((slots, s, rows), (rows, 0, 1)) if at_home else ((s, rows), (0, 1))
        p.load(bias, p.mem4d(w.biases[symbol], *whole))
        p.dsr_base(bias, address)
        p.faddhs(biased, bias, result)


def emit_gated(w: PromptWriter, shares: Var | None = None) -> None:
    """Write inner_half = act(gate) * up, or act(up) without a gate; of experts each with its share."""
    p, count, n, decoder = w.p, w.prompt.inner_vectors, w.place.ffn, w.place.decoder
    each = w.prompt.shapes["gate_up"].rows
    gate = p.mem4d(w.gate_up, (count, n), (each, 1))
    if decoder.activation in PLAIN:
        emit_plain(w, w.inner, gate, count * n)
    else:
        _emit_smooth(w, gate)
    if decoder.gated:
        p.fmuls(w.inner, w.inner, p.mem4d(w.gate_up, (count, n), (each, 1), offset=n))
    if shares is not None:
        by_vector = p.mem4d(w.inner, (count, n), (n, 1))
        p.fmuls(by_vector, by_vector, p.mem4d(shares, (count, n), (1, 0)))
    p.fs2h(w.inner_half, w.inner)


def _emit_smooth(w: PromptWriter, gate: Dsd) -> None:
    """Write inner = gate / (1 + exp(e))."""
    emit_exponent(w, w.inner, gate)

    def inverse(at: Reg | Var | Address) -> None:
        w.functions.exp(at, at)
        w.functions.add(at, at, 1.0)
        w.functions.reciprocal(at, at)

    w.in_pieces(w.inner, w.prompt.inner_vectors * w.place.ffn, inverse)
    w.p.fmuls(w.inner, w.inner, gate)


class AngleTasks:
    """An `AngleTasks` writes the angles of a row's tokens, and the turning of its queries and keys, into a program.

    Parameters
    ----------
    w : PromptWriter
    """

    def __init__(self, w: PromptWriter) -> None:
        p, s, n = w.p, w.prompt.tokens, w.place.pairs
        self.w = w
        one = Angle(w, apart=True)
        self.kinds = [(one, p.array("angles", 2 * s * n, "f32", bank=ANGLE_BANK))]
        if w.place.decoder.is_local:
            local = Angle(w, apart=True, beside=one)
            self.kinds.append((local, p.array(f"angles{LOCAL}", 2 * s * n, "f32", bank=ANGLE_BANK)))
        self.products = p.array("turned", 2 * s * w.place.turned_heads * n, "f32", bank=TURNED_BANK)

    def prepare(self) -> None:
        """Write that the angles of all tokens are reckoned, one position after the other."""
        w, p, n = self.w, self.w.p, self.w.place.pairs
        for one, found in self.kinds:
            with w.rows(w.prompt.tokens, angles=(found, 4 * n)) as at:
                one.position()
                p.load(w.written, p.mem1d(found, 2 * n))
                p.dsr_base(w.written, at["angles"])
                p.mov32(w.written, one.angle)
                one.advance()

    def normalise(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised head by head, with the weights of the next layer.

        `total` emits the sum of ``squares`` over the columns of each head.
        """
        w, p, place, s, part = self.w, self.w.p, self.w.place, self.w.prompt.tokens, self.w.place.part
        heads, rows = place.turned_heads, w.prompt.shapes["qkv"].rows
        value = p.reg32("sum of squares")
        numbers = p.mem4d(w.qkv, (s, heads * part), (rows, 1))
        p.fmuls(self.products, numbers, numbers)
        p.load(w.second, p.mem1d(self.products, part, save=True))
        with w.rows(s * heads, squares=(w.squares, 2)) as at:
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, at["squares"])
        p.free(value)
        total()
        p.fmuls(w.squares, w.squares, 1.0 / place.decoder.head_size)
        p.fadds(w.squares, w.squares, place.decoder.epsilon)
        w.in_pieces(w.squares, s * heads, lambda at: w.functions.rsqrt(at, at))
        by_head = p.mem4d(w.qkv, (s, heads, part), (rows, part, 1))
        p.fmuls(by_head, by_head, p.mem4d(w.squares, (s, heads, part), (heads, 1, 0)))
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * place.head_norms) as address:
            for count, first in ((place.heads, 0), (place.kv_heads, place.query_rows)):
                p.load(w.second, p.mem4d(w.head_norms, (s, count, part), (0, 0, 1)))
                p.dsr_base(w.second, address)
                own = p.mem4d(w.qkv, (s, count, part), (rows, part, 1), offset=first)
                p.fmuls(own, own, w.second)
                p.add16(address, address, 2 * part)

    def normalise_all(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised, each together, with the weights of the next layer.

        `total` emits the all-reduce of ``squares`` along x: of the queries of all tokens, then of their keys.
        """
        w, p, place, s = self.w, self.w.p, self.w.place, self.w.prompt.tokens
        rows, both = w.prompt.shapes["qkv"].rows, place.query_rows + place.kv_rows
        parts = (0, place.query_rows), (place.query_rows, place.kv_rows)
        value, numbers = p.reg32("sum of squares"), p.mem4d(w.qkv, (s, both), (rows, 1))
        p.fmuls(p.mem1d(self.products, s * both), numbers, numbers)
        for k, (first, count) in enumerate(parts):
            p.load(w.second, p.mem1d(self.products, count, offset=first))
            with w.rows(s, squares=(w.squares[k * s], 2)) as at:
                p.ldi32(value, 0.0)
                p.fadds(value, value, w.second)
                p.dsr_off(w.second, 2 * both)
                p.st32(value, at["squares"])
        p.free(value)
        total()
        for k, count in enumerate(place.decoder.query_key_norms.values()):
            own = p.mem1d(w.squares, s, offset=k * s)
            p.fmuls(own, own, 1.0 / count)
            p.fadds(own, own, place.decoder.epsilon)
        w.in_pieces(w.squares, 2 * s, lambda at: w.functions.rsqrt(at, at))
        for k, (first, count) in enumerate(parts):
            own = p.mem4d(w.qkv, (s, count), (rows, 1), offset=first)
            p.fmuls(own, own, p.mem4d(w.squares, (s, count), (1, 0), offset=k * s))
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * both) as address:
            p.load(w.second, p.mem4d(w.head_norms, (s, both), (0, 1)))
            p.dsr_base(w.second, address)
            p.fmuls(numbers, numbers, w.second)

    def turn(self) -> None:
        """Write that queries and keys of qkv are turned, by the angles of the layer."""
        for local in self.w.positions:
            with self.w.where("local", local):
                self._turn_heads(self.kinds[local][1])

    def _turn_heads(self, angles: Var) -> None:
        """Write that queries and keys of qkv are turned by angles of all tokens."""
        w, p, place = self.w, self.w.p, self.w.place
        s, n = w.prompt.tokens, place.pairs
        heads, rows = place.turned_heads, w.prompt.shapes["qkv"].rows
        a, b = (p.mem4d(w.qkv, (s, heads, n), (rows, 2 * n, 1), offset=k * n) for k in range(2))
        cos, sin = (p.mem4d(angles, (s, heads, n), (2 * n, 0, 1), offset=k * n) for k in range(2))
        half = s * heads * n
        left, right = p.mem1d(self.products, half), p.mem1d(self.products, half, offset=half)
        p.fmuls(left, a, sin)
        p.fmuls(right, b, sin)
        p.fmuls(a, a, cos)
        p.fmuls(b, b, cos)
        p.fsubs(a, a, right)
        p.fadds(b, b, left)

    def keep(self) -> None:
        """Write queries, key_tile, value_tile = queries of qkv scaled, its keys and values as they are."""
        w, p, place = self.w, self.w.p, self.w.place
        s, part, keys, rows = w.prompt.tokens, place.part, w.prompt.keys, w.prompt.shapes["qkv"].rows
        queries = p.mem4d(w.qkv, (s, place.query_rows), (rows, 1))
        p.fmuls(queries, queries, 1.0 / math.sqrt(place.decoder.head_size))
        p.fs2h(w.queries, p.mem4d(w.qkv, (place.heads, s, part), (part, rows, 1)))
        if place.int8:
            self._keep_bytes()
            return
        own_keys = p.mem4d(w.qkv, (place.kv_rows, s), (1, rows), offset=place.query_rows)
        p.fs2h(p.mem4d(w.key_tile, (place.kv_rows, s), (keys, 1)), own_keys)
        first = place.query_rows + place.kv_rows
        own_values = p.mem4d(w.qkv, (place.kv_heads, s, part), (part, rows, 1), offset=first)
        p.fs2h(p.mem4d(w.value_tile, (place.kv_heads, s, part), (keys * part, part, 1)), own_values)

    def _keep_bytes(self) -> None:
        """Write codes and exponents of 8 bits, which the cache takes; key_tile, value_tile = what they stand for."""
        w, p, place = self.w, self.w.p, self.w.place
        s, part, keys, n, heads = w.prompt.tokens, place.part, w.prompt.keys, 2 * place.kv_rows, place.kv_heads
        emit_codes(w, w.qkv, s, w.codes, n, 0, w.exponents, lambda: (w.written_half, w.second_half))
        mask, middle = opener(place.dtype, p.machine["num.cb16_bias"])
        p.sub16(w.exponents, w.exponents, TOP)
        tiles = (
            (w.key_tile, (heads, part, s), (part * keys, keys, 1), (part, 1, n), (1, 0, 2 * heads), 0),
            (w.value_tile, (heads, s, part), (keys * part, part, 1), (part, n, 1), (1, 2 * heads, 0), 1),
        )
        for tile, sizes, strides, of_codes, of_powers, k in tiles:
            given = p.mem4d(w.codes, sizes, of_codes, offset=k * place.kv_rows)
            p.or16(p.mem4d(tile, sizes, strides, dtype="u16"), given, mask)
            opened = p.mem4d(tile, sizes, strides)
            p.fsubh(opened, opened, middle)
            p.fscaleh(opened, opened, p.mem4d(w.exponents, sizes, of_powers, offset=k * heads))
        p.add16(w.exponents, w.exponents, TOP)

    def _remember_bytes(self) -> None:
        """Write that keys and values of 8 bits come into the first slots of the layer's cache, two in a word."""
        w, p, place = self.w, self.w.p, self.w.place
        s, half, slots, heads, n = w.prompt.tokens, place.kept_part, place.capacity, place.kv_heads, 2 * place.kv_rows
        both = (heads, half, s), (half * slots, slots, 1), (place.part, 1, n)
        sections = (
            (w.codes, *both, 0, half),
            (w.codes, (heads, s, half), (slots * half, half, 1), (place.part, n, 1), place.kv_rows, half),
            (w.exponents, (heads, s), (slots, 1), (1, 2 * heads), 0, heads),
        )
        with w.taking("cache", place.cache_words) as address:
            for given, sizes, strides, of_given, first, more in sections:
                high = p.mem4d(given, sizes, of_given, offset=first + more)
                p.sll16(high, high, 8)
                p.or16(high, high, p.mem4d(given, sizes, of_given, offset=first))
                p.load(w.written_half, p.mem4d(w.cache, sizes, strides))
                p.dsr_base(w.written_half, address)
                p.mov16(w.written_half, high)
                p.add16(address, address, place.kept_rows * slots)

    def remember(self) -> None:
        """Write that keys and values come into the first slots of the layer's cache."""
        if self.w.place.int8:
            self._remember_bytes()
            return
        w, p, place = self.w, self.w.p, self.w.place
        s, part, keys = w.prompt.tokens, place.part, w.prompt.keys
        with w.taking("cache", place.cache_words) as address:
            p.load(w.written_half, p.mem4d(w.cache, (place.kv_rows, s), (place.capacity, 1)))
            p.dsr_base(w.written_half, address)
            p.mov16(w.written_half, p.mem4d(w.key_tile, (place.kv_rows, s), (keys, 1)))
            p.add16(address, address, place.kv_rows * place.capacity)
            p.load(w.written_half, p.mem4d(w.cache, (place.kv_heads, s * part), (place.capacity * part, 1)))
            p.dsr_base(w.written_half, address)
            p.mov16(w.written_half, p.mem4d(w.value_tile, (place.kv_heads, s * part), (keys * part, 1)))
