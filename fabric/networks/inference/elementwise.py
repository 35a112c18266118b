"""These operations of a decoder's step are done element by element: norm, rotary positions, gated part, residual
stream.

All of it is f32, with one rounding to 16 bits where a product reads the result.  The residual stream stays f32.
Nothing moves but the one value of the sum of squares, and of each head where heads are normalised.

Angles.  A PE turns its own: the cosines and sines of a position are those of a multiple of `FINE` positions turned by
the rest, each a chain of turns by a constant angle, so that a position t costs t / FINE + FINE roundings and not t.

Rounding
    norm: squares summed in order of features, then over rows; (x * rsqrt(mean + eps)) * weight, two roundings.
    LayerNorm: the sum first, in the same order; x - mean with one rounding, of which the squares are; a bias behind
        the weight, another rounding.  Two all-reduces: squares of what is not centred yet would lose a small variance.
    norms behind a part of a layer: the same, and no rounding to 16 bits.
    norms of projections: squares summed in order of features inside a column, queries and keys apart, then over all
        columns; (x * rsqrt(mean + eps)) * weight, two roundings.
    norms of heads: squares summed in order of features inside a column, then over the columns of the head; (x *
        rsqrt(mean + eps)) * weight, two roundings.
    rotary: four products, then a difference and a sum; queries are multiplied by 1 / sqrt(head_size) behind it.
    caps: cap - 2 cap / (1 + exp(min(2 x / cap, 86))), five operations and two functions (`emit_capped`).
    gated part: gate * (1 / (1 + exp(min(e, 86)))), then times up; e is -gate for silu, and for gelu, in the tanh form,
        -2 sqrt(2 / pi) (1 + 0.044715 gate^2) gate, four operations (`emit_exponent`).  relu is max(gate, 0), and gelu
        with the error function a function of its own; without a gate nothing is multiplied behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fabric.asm.operands import Address, Dsd, Reg, Var
from fabric.networks.inference.writer import DecoderWriter, Idioms
from fabric.program.functions import Emit
from fabric.program.functions.mathematics import GELU_CUBIC, GELU_SCALE

__all__ = [
    "ANGLE_BANK",
    "FINE",
    "LARGEST_EXPONENT",
    "LOCAL",
    "PLAIN",
    "TURNED_BANK",
    "Angle",
    "Rotary",
    "emit_capped",
    "emit_exponent",
    "emit_gated",
    "emit_norm",
    "emit_plain",
    "emit_residual",
]

LOCAL = "_local"
"""This ends the names of the angles of layers whose positions are local."""
FINE = 64
"""Coarse angles are turned once in so many positions."""
ANGLE_BANK, TURNED_BANK = 2, 4
"""Banks in which cosines and products begin; queries begin in bank 0, so heads of an even number of pairs never meet
them in one bank."""
LARGEST_EXPONENT = 86.0
"""The exponent of 1 + exp(-z) is at most this, so that its reciprocal is in range."""


def _emit_sums(w: DecoderWriter, numbers: Var, sum_one: Callable[[], None]) -> None:
    """Write one = the sums of the numbers of each token, over all rows; `sum_one` emits the all-reduce."""
    p, value = w.p, w.p.reg32("sum")
    if w.place.lanes == 1:
        p.ldi32(value, 0.0)
        p.fadds(value, value, numbers)
        p.st32(value, w.one)
    else:
        at = p.reg16("sums")
        p.load(w.second, p.mem1d(numbers, w.place.hidden, save=True))
        p.ldi(at, w.one)
        with w.times(w.place.lanes):
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, at)
            p.add16(at, at, 2)
        p.free(at)
    p.free(value)
    sum_one()


def _emit_centred(w: DecoderWriter, sum_one: Callable[[], None]) -> None:
    """Write scratch = x without the mean of each token; where there is no feature it stays zero."""
    p, n = w.p, w.place.hidden
    _emit_sums(w, w.x, sum_one)
    p.fmuls(w.one, w.one, -1.0 / w.place.decoder.hidden)
    value, at = p.reg32("mean"), p.reg16("means")
    p.ldi(at, w.one)
    p.load(w.first, p.mem1d(w.x, n, save=True))
    p.load(w.second, p.mem1d(w.norms, n))
    p.load(w.written, p.mem1d(w.scratch, n, save=True))
    with w.times(w.place.lanes):
        p.ld32(value, at)
        p.fmacs(w.written, w.first, w.second, value)
        p.add16(at, at, 2)
    p.free(value, at)


def _emit_weighted(w: DecoderWriter, result: Var) -> None:
    """Write result = scratch with the weights of the next norm, and its biases if it has some."""
    p, n = w.p, w.place.hidden
    with w.taking("norms", 2 * n * len(w.place.decoder.norm_parts)) as address:
        p.load(w.second, w.for_lanes(w.x, n))
        p.dsr_base(w.second, address)
        p.fmuls(result, w.scratch, w.second)
        if w.place.decoder.norm_bias:
            p.add16(address, address, 2 * n)
            p.dsr_base(w.second, address)
            p.fadds(result, result, w.second)


def emit_norm(w: DecoderWriter, sum_one: Callable[[], None], behind: bool = False, inner: bool = False) -> None:
    """Write given = norm(x) with the next norm's weights, or back = norm(back) behind a part of a layer.

    `sum_one` emits the all-reduce of ``one`` along y.  With `inner` the norm behind the next one gives inner_given of
    the same x.
    """
    p, n, decoder = w.p, w.place.hidden, w.place.decoder
    source = w.scratch if decoder.centred else w.back if behind else w.x
    squares = w.back if decoder.centred else w.scratch
    if decoder.centred:
        _emit_centred(w, sum_one)
    p.fmuls(squares, source, source)
    _emit_sums(w, squares, sum_one)
    value = p.reg32("sum of squares")
    if w.place.lanes == 1:
        p.ld32(value, w.one)
        p.fmuls(value, value, 1.0 / decoder.hidden)
        p.fadds(value, value, decoder.epsilon)
        p.st32(value, w.one)
        with w.functions.first(1):
            w.functions.rsqrt(w.one, w.one)
        p.ld32(value, w.one)
        p.fmuls(w.scratch, source, value)
    else:
        at = p.reg16("sums of squares")
        p.fmuls(w.one, w.one, 1.0 / decoder.hidden)
        p.fadds(w.one, w.one, decoder.epsilon)
        w.in_pieces(w.one, w.place.lanes, lambda one: w.functions.rsqrt(one, one))
        p.load(w.second, p.mem1d(source, n, save=True))
        p.load(w.written, p.mem1d(w.scratch, n, save=True))
        p.ldi(at, w.one)
        with w.times(w.place.lanes):
            p.ld32(value, at)
            p.fmuls(w.written, w.second, value)
            p.add16(at, at, 2)
        p.free(at)
    p.free(value)
    if inner:
        _emit_weighted(w, w.back)
        p.fs2h(w.of_lanes(w.given, n), w.back)
        _emit_weighted(w, w.scratch)
        p.fs2h(w.inner_given, w.scratch)
        return
    _emit_weighted(w, w.back if behind else w.scratch)
    if not behind:
        p.fs2h(w.of_lanes(w.given, n), w.scratch)


def emit_residual(w: DecoderWriter) -> None:
    """Write x = x + back."""
    w.p.fadds(w.x, w.x, w.back)


def emit_exponent(w: Idioms, inner: Var, gate: Dsd) -> None:
    """Write inner = e of which the activation of a gate is gate / (1 + exp(e)), at most `LARGEST_EXPONENT`."""
    p = w.p
    if w.place.decoder.activation == "silu":
        p.fnegs(inner, gate)
    else:
        p.fmuls(inner, gate, gate)
        p.fmuls(inner, inner, -GELU_SCALE * GELU_CUBIC)
        p.fadds(inner, inner, -GELU_SCALE)
        p.fmuls(inner, inner, gate)
    p.fmins(inner, inner, LARGEST_EXPONENT)


def emit_capped(functions: Emit, cap: float, at: Reg | Var | Address) -> None:
    """Write that as many numbers as functions take become cap * tanh(x / cap).

    tanh(u) is 1 - 2 / (1 + exp(2 u)).
    """
    with functions.call():
        functions.mul(at, at, 2.0 / cap)
        functions.minimum(at, at, LARGEST_EXPONENT)
    functions.exp(at, at)
    functions.add(at, at, 1.0)
    functions.reciprocal(at, at)
    functions.mul(at, at, -2.0 * cap)
    functions.add(at, at, cap)


def emit_gated(w: DecoderWriter, shares: Var | None = None) -> None:
    """Write inner_half = act(gate) * up, or act(up) without a gate; of experts each with its share."""
    p, n, decoder = w.p, w.place.ffn, w.place.decoder
    gate = w.of_inner()
    if decoder.activation in PLAIN:
        emit_plain(w, w.inner, gate, w.place.inner_vectors * n)
    else:
        _emit_smooth(w, gate)
    if decoder.gated:
        p.fmuls(w.inner, w.inner, w.of_inner(n))
    if shares is not None:
        value, at = p.reg32("share"), p.reg16("shares")
        p.load(w.second, p.mem1d(w.inner, n, save=True))
        p.load(w.written, p.mem1d(w.inner, n, save=True))
        p.ldi(at, shares)
        with w.times(w.place.inner_vectors):
            p.ld32(value, at)
            p.fmuls(w.written, w.second, value)
            p.add16(at, at, 2)
        p.free(value, at)
    p.fs2h(w.inner_half, w.inner)


PLAIN = ("relu", "gelu_erf")
"""These activations are not gate / (1 + exp(e))."""


def emit_plain(w: Idioms, inner: Var, gate: Dsd, count: int) -> None:
    """Write inner = the activation of so many numbers, one of `PLAIN`."""
    if w.place.decoder.activation == "relu":
        w.p.fmaxs(inner, gate, 0.0)
        return
    w.p.mov32(inner, gate)
    w.in_pieces(inner, count, lambda at: w.functions.gelu_erf(at, at))


def _emit_smooth(w: DecoderWriter, gate: Dsd) -> None:
    """Write inner = gate / (1 + exp(e))."""
    p, n, count = w.p, w.place.ffn, w.place.inner_vectors
    emit_exponent(w, w.inner, gate)
    if count == 1:
        with w.functions.first(n):
            w.functions.exp(w.inner, w.inner)
            p.fadds(w.inner, w.inner, 1.0)
            w.functions.reciprocal(w.inner, w.inner)
    else:

        def inverse(at: Reg | Var | Address) -> None:
            w.functions.exp(at, at)
            w.functions.add(at, at, 1.0)
            w.functions.reciprocal(at, at)

        w.in_pieces(w.inner, count * n, inverse)
    p.fmuls(w.inner, w.inner, gate)


class Angle:
    """An `Angle` writes the angles of a position, and the way to the next, into a program.

    Parameters
    ----------
    w : Idioms
    heads : int
        Heads whose products there is room for.
    apart : bool
        Whether angles that are multiplied lie in different banks.
    beside : Angle, optional
        Those of the decoder; then these are local, and products lie where those have them.
    lanes : int
        Positions side by side.
    """

    def __init__(
        self, w: Idioms, heads: int = 1, apart: bool = False, beside: Angle | None = None, lanes: int = 1
    ) -> None:
        p, n, end = w.p, w.place.pairs, LOCAL if beside else ""
        self.w, self.pairs, self.lanes = w, n, lanes
        # Cosines, then sines, of all pairs: of one position, of `FINE`, of the rest, of the multiple, of both.
        other = 4 if n % 2 else 2  # so that neither cosines nor sines meet
        banks = {"step": 0, "leap": other, "fine": other, "coarse": 0}
        self.step, self.leap, self.fine, self.coarse = (
            p.array(name + end, 2 * n * (1 if name in ("step", "leap") else lanes), "f32",
                    bank=banks[name] if apart else None)
            for name in ("step", "leap", "fine", "coarse")
        )  # fmt: skip
        self.angle = p.array("angle" + end, 2 * lanes * n, "f32", bank=ANGLE_BANK)
        self.passed = p.param("passed" + end, "u16", count=lanes)  # positions since the last leap
        self.products: Var = (
            beside.products if beside else p.array("products", 2 * lanes * heads * n, "f32", bank=TURNED_BANK)
        )
        if w.place.batch:
            self.origin = p.array("origin" + end, 2 * n, "f32")  # the coarse angles of the first position
        if w.place.ahead > 1:
            self.fine_of, self.coarse_of = (p.array(name + end, 2 * n, "f32") for name in ("fine_of", "coarse_of"))

    def _turn(self, result: Var, a: Var, b: Var, lanes: int = 1) -> None:
        """Write result = a turned by b, of so many positions; `result` may be a, and b one for all."""
        p, n = self.w.p, self.pairs

        def parts(var: Var) -> tuple[Dsd, Dsd]:
            if lanes == 1:
                return p.mem1d(var, n), p.mem1d(var, n, offset=n)
            stride = 0 if var in (self.step, self.leap) else 2 * n
            cos, sin = (p.mem4d(var, (lanes, n), (stride, 1), offset=k * n) for k in range(2))
            return cos, sin

        (a_cos, a_sin), (b_cos, b_sin), (cos, sin) = parts(a), parts(b), parts(result)
        left, right = p.mem1d(self.products, lanes * n), p.mem1d(self.products, lanes * n, offset=lanes * n)
        p.fmuls(left, a_cos, b_sin)
        p.fmuls(right, a_sin, b_sin)
        p.fmuls(cos, a_cos, b_cos)
        p.fmuls(sin, a_sin, b_cos)
        p.fsubs(cos, cos, right)
        p.fadds(sin, sin, left)

    def position(self) -> None:
        """Write what a step begins with: the angles of its position."""
        self._turn(self.angle, self.coarse, self.fine, self.lanes)

    def advance(self) -> None:
        """Write what a step ends with: the next position."""
        if self.lanes > 1:
            self._advance_lanes()
            return
        p, n = self.w.p, self.pairs
        count = p.reg16("passed")
        self._turn(self.fine, self.fine, self.step)
        p.ld16(count, self.passed)
        p.add16(count, count, 1)
        with p.if_("eq", count, FINE, "16"):
            p.ldi(count, 0)
            p.mov32(p.mem1d(self.fine, n), 1.0)
            p.mov32(p.mem1d(self.fine, n, offset=n), 0.0)
            self._turn(self.coarse, self.coarse, self.leap)
        p.st16(count, self.passed)
        p.free(count)

    def _advance_lanes(self) -> None:
        """Write `advance` of several positions."""
        w, p = self.w, self.w.p
        count = p.reg16("passed")
        self._turn(self.fine, self.fine, self.step, self.lanes)
        with w.lanes() as lane:
            p.ld16(count, self.passed, index=lane)
            p.add16(count, count, 1)
            with p.if_("eq", count, FINE, "16"):
                # Few steps have a leap: all angles are turned, where those of this step are not needed any more.
                self._turn(self.angle, self.coarse, self.leap, self.lanes)
                self._set(lane, self.angle)
                p.ldi(count, 0)
            p.st16(count, self.passed, index=lane)
        p.free(count)

    def follow(self, lane: Reg, before: Reg) -> None:
        """Write that a token has the position behind that of another one of its request, whose number is one less."""
        p, n = self.w.p, self.pairs
        count = p.reg16("passed")
        p.sub16(before, before, 1)
        self._copy(before, to=False)
        self._turn(self.fine_of, self.fine_of, self.step)
        p.ld16(count, self.passed, index=before)
        p.add16(count, count, 1)
        with p.if_("eq", count, FINE, "16"):
            p.ldi(count, 0)
            p.mov32(p.mem1d(self.fine_of, n), 1.0)
            p.mov32(p.mem1d(self.fine_of, n, offset=n), 0.0)
            self._turn(self.coarse_of, self.coarse_of, self.leap)
        p.st16(count, self.passed, index=lane)
        p.add16(before, before, 1)
        p.free(count)
        self._copy(lane, to=True)

    def repeat(self, lane: Reg, before: Reg) -> None:
        """Write that a token has the position of another one, whose number is one less."""
        p = self.w.p
        count = p.reg16("passed")
        p.sub16(before, before, 1)
        self._copy(before, to=False)
        p.ld16(count, self.passed, index=before)
        p.st16(count, self.passed, index=lane)
        p.add16(before, before, 1)
        p.free(count)
        self._copy(lane, to=True)

    def _copy(self, lane: Reg, to: bool) -> None:
        """Write that the angles of a token become those that are reckoned with, or the reverse."""
        w, p, n = self.w, self.w.p, self.pairs
        words, address = p.reg16("words"), p.reg16("address")
        p.mul16(words, lane, 4 * n)
        for all_of, one in ((self.fine, self.fine_of), (self.coarse, self.coarse_of)):
            p.ldi(address, all_of)
            p.add16(address, address, words)
            register = w.register("dest", "angles of a token") if to else w.register("src1", "coarse angles")
            p.load(register, p.mem1d(all_of, 2 * n))
            p.dsr_base(register, address)
            p.mov32(*((register, one) if to else (one, register)))
        p.free(words, address)

    def begin_anew(self, lane: Reg | None) -> None:
        """Write that a token has the first position."""
        p = self.w.p
        count = p.reg16("passed")
        self._set(lane, self.origin)
        p.ldi(count, 0)
        p.st16(count, self.passed, index=lane)
        p.free(count)

    def _set(self, lane: Reg | None, coarse: Var) -> None:
        """Write that a token's fine angles are zero, and its coarse ones as given, those of the token or for all."""
        w, p, n = self.w, self.w.p, self.pairs
        one, other = w.register("dest", "angles of a token"), w.register("src1", "coarse angles")
        words, address = p.reg16("words"), p.reg16("address")
        p.ldi(words, 0)
        if lane is not None:
            p.mul16(words, lane, 4 * n)
        p.ldi(address, self.fine)
        p.add16(address, address, words)
        p.load(one, p.mem1d(self.fine, n))
        for value, further in ((1.0, 2 * n), (0.0, 0)):
            p.dsr_base(one, address)
            p.mov32(one, value)
            p.add16(address, address, further)
        p.load(other, p.mem1d(coarse, 2 * n))
        if coarse is self.angle:
            p.ldi(address, coarse)
            p.add16(address, address, words)
            p.dsr_base(other, address)
        p.ldi(address, self.coarse)
        p.add16(address, address, words)
        p.load(one, p.mem1d(self.coarse, 2 * n))
        p.dsr_base(one, address)
        p.mov32(one, other)
        p.free(words, address)


class Rotary(Angle):
    """A `Rotary` writes the angles of a PE and the turning of its queries and keys into a program.

    Parameters
    ----------
    w : DecoderWriter
    """

    def __init__(self, w: DecoderWriter) -> None:
        lanes = w.place.lanes
        super().__init__(w, w.place.turned_heads, lanes=lanes)
        self.writer = w
        self.local = Angle(w, beside=self, lanes=lanes) if w.place.decoder.is_local else None

    def position(self) -> None:
        """Write what a step begins with: the angles of its position, of all kinds of layers that turn."""
        if self.w.place.decoder.turning:
            super().position()
        if self.local is not None:
            self.local.position()

    def advance(self) -> None:
        """Write what a step ends with: the next position."""
        if self.w.place.decoder.turning:
            super().advance()
        if self.local is not None:
            self.local.advance()

    def begin_anew(self, lane: Reg | None) -> None:
        """Write that a token has the first position, in all kinds of layers."""
        super().begin_anew(lane)
        if self.local is not None:
            self.local.begin_anew(lane)

    def follow(self, lane: Reg, before: Reg) -> None:
        """Write that a token has the position behind another one, in all kinds of layers."""
        super().follow(lane, before)
        if self.local is not None:
            self.local.follow(lane, before)

    def repeat(self, lane: Reg, before: Reg) -> None:
        """Write that a token has the position of another one, in all kinds of layers."""
        super().repeat(lane, before)
        if self.local is not None:
            self.local.repeat(lane, before)

    def normalise(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised head by head, with the weights of the next layer.

        `total` emits the sum of ``squares`` over the columns of each head.
        """
        w, p, place, part = self.writer, self.w.p, self.w.place, self.w.place.part
        heads, rows = place.turned_heads, place.shapes["qkv"].rows
        value, at = p.reg32("sum of squares"), p.reg16("squares")
        numbers = w.of_lanes(w.qkv, heads * part, rows)
        p.fmuls(p.mem1d(self.products, place.lanes * heads * part), numbers, numbers)
        p.load(w.second, p.mem1d(self.products, part, save=True))
        p.ldi(at, w.squares)
        with w.times(place.lanes * heads):
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, at)
            p.add16(at, at, 2)
        total()
        p.fmuls(w.squares, w.squares, 1.0 / place.decoder.head_size)
        p.fadds(w.squares, w.squares, place.decoder.epsilon)
        w.in_pieces(w.squares, place.lanes * heads, lambda squares: w.functions.rsqrt(squares, squares))
        p.load(w.first, p.mem1d(w.qkv, part, save=True))
        p.ldi(at, w.squares)
        with w.times(place.lanes):
            with w.times(heads):
                p.ld32(value, at)
                p.fmuls(w.first, w.first, value)
                p.add16(at, at, 2)
            if place.lanes > 1:
                p.dsr_off(w.first, 2 * (rows - heads * part))
        p.free(value, at)
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * place.head_norms) as address:
            for count, first in ((place.heads, 0), (place.kv_heads, place.query_rows)):
                p.load(w.second, p.mem4d(w.head_norms, (place.lanes * count, part), (0, 1)))
                p.dsr_base(w.second, address)
                own = w.of_lanes(w.qkv, count * part, rows, offset=first)
                p.fmuls(own, own, w.second)
                p.add16(address, address, 2 * part)

    def normalise_all(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised, each together, with the weights of the next layer.

        `total` emits the all-reduce of ``squares`` along x.
        """
        w, p, place = self.writer, self.w.p, self.w.place
        value, rows, lanes = p.reg32("sum of squares"), place.query_rows + place.kv_rows, place.lanes
        each = place.shapes["qkv"].rows
        both = w.of_lanes(w.qkv, rows, each)
        parts = (0, place.query_rows), (place.query_rows, place.kv_rows)
        p.fmuls(p.mem1d(self.products, lanes * rows), both, both)
        # Sums of queries, then of keys, of the tokens one after the other.
        at = p.reg16("squares")
        p.ldi(at, w.squares)
        for first, count in parts:
            p.load(w.second, p.mem1d(self.products, count, offset=first))
            with w.times(lanes):
                p.ldi32(value, 0.0)
                p.fadds(value, value, w.second)
                p.st32(value, at)
                p.add16(at, at, 2)
                if lanes > 1:
                    p.dsr_off(w.second, 2 * rows)
        total()
        for k, count in enumerate(place.decoder.query_key_norms.values()):
            share = p.mem1d(w.squares, lanes, offset=k * lanes)
            p.fmuls(share, share, 1.0 / count)
            p.fadds(share, share, place.decoder.epsilon)
        w.in_pieces(w.squares, 2 * lanes, lambda squares: w.functions.rsqrt(squares, squares))
        p.ldi(at, w.squares)
        for first, count in parts:
            p.load(w.first, p.mem1d(w.qkv, count, offset=first))
            with w.times(lanes):
                p.ld32(value, at)
                p.fmuls(w.first, w.first, value)
                p.add16(at, at, 2)
                if lanes > 1:
                    p.dsr_off(w.first, 2 * each)
        p.free(value, at)
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * rows) as address:
            p.load(w.second, w.for_lanes(w.head_norms, rows))
            p.dsr_base(w.second, address)
            p.fmuls(both, both, w.second)

    def turn(self) -> None:
        """Write that queries and keys of qkv are turned, by the angles of the layer."""
        for local in self.writer.positions:
            angles = self.local if local else self
            assert angles is not None
            with self.writer.where("local", local):
                self._turn_heads(angles.angle)

    def _turn_heads(self, angle: Var) -> None:
        """Write that queries and keys of qkv are turned by angles."""
        w, p, n = self.writer, self.w.p, self.pairs
        heads, lanes = w.place.turned_heads, w.place.lanes

        def parts(var: Var, token: int, head: int) -> tuple[Dsd, Dsd]:
            sizes, strides = ((lanes,), (token,)) if lanes > 1 else ((), ())
            first, second = (p.mem4d(var, (*sizes, heads, n), (*strides, head, 1), offset=k * n) for k in range(2))
            return first, second

        (a, b), (cos, sin) = parts(w.qkv, w.place.shapes["qkv"].rows, 2 * n), parts(angle, 2 * n, 0)
        count = lanes * heads * n
        left, right = p.mem1d(self.products, count), p.mem1d(self.products, count, offset=count)
        p.fmuls(left, a, sin)
        p.fmuls(right, b, sin)
        p.fmuls(a, a, cos)
        p.fmuls(b, b, cos)
        p.fsubs(a, a, right)
        p.fadds(b, b, left)

    def keep(self) -> None:
        """Write qkv_half = queries of qkv scaled, keys and values as they are."""
        w, p = self.writer, self.w.p
        queries = w.of_lanes(w.qkv, w.place.query_rows, w.place.shapes["qkv"].rows)
        p.fmuls(queries, queries, 1.0 / math.sqrt(w.place.decoder.head_size))
        p.fs2h(w.qkv_half, w.qkv)
