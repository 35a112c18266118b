"""Norm, rotary positions and the gated part of a decoder's step, and the way back into the residual stream.

All of it is f32, with one rounding to 16 bits where a product reads the result.  The residual stream stays f32.
Nothing moves but the one value of the sum of squares, and of each head where heads are normalised.

Angles.  A PE turns its own: the cosines and sines of a position are those of a multiple of `FINE` positions turned by
the rest, each a chain of turns by a constant angle, so that a position t costs t / FINE + FINE roundings and not t.

Rounding
    norm: squares summed in order of features, then over rows; (x * rsqrt(mean + eps)) * weight, two roundings.
    norms behind a part of a layer: the same, and no rounding to 16 bits.
    norms of projections: squares summed in order of features inside a column, queries and keys apart, then over all
        columns; (x * rsqrt(mean + eps)) * weight, two roundings.
    norms of heads: squares summed in order of features inside a column, then over the columns of the head; (x *
        rsqrt(mean + eps)) * weight, two roundings.
    rotary: four products, then a difference and a sum; queries are multiplied by 1 / sqrt(head_size) behind it.
    caps: cap - 2 cap / (1 + exp(min(2 x / cap, 86))), five operations and two functions (`emit_capped`).
    gated part: gate * (1 / (1 + exp(min(e, 86)))), then times up; e is -gate for silu, and for gelu, in the tanh form,
        -2 sqrt(2 / pi) (1 + 0.044715 gate^2) gate, four operations (`emit_exponent`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fabric.asm.operands import Dsd, Reg, Var
from fabric.networks.inference.writer import Idioms, Writer
from fabric.program.functions import Emit
from fabric.program.functions.mathematics import GELU_CUBIC, GELU_SCALE

__all__ = [
    "ANGLE_BANK",
    "FINE",
    "LARGEST_EXPONENT",
    "LOCAL",
    "TURNED_BANK",
    "Angle",
    "Rotary",
    "emit_capped",
    "emit_exponent",
    "emit_gated",
    "emit_norm",
    "emit_residual",
]

LOCAL = "_local"
"""Ends the names of the angles of layers whose positions are local."""
FINE = 64
"""Positions between two turns of the coarse angles."""
ANGLE_BANK, TURNED_BANK = 2, 4
"""Banks in which cosines and products begin; queries begin in bank 0, so heads of an even number of pairs never meet
them in one bank."""
LARGEST_EXPONENT = 86.0
"""Of 1 + exp(-z), so that its reciprocal is in range."""


def emit_norm(w: Writer, sum_one: object, behind: bool = False) -> None:
    """Write given = norm(x) with the next norm's weights, or back = norm(back) behind a part of a layer.

    `sum_one` emits the all-reduce of ``one`` along y.
    """
    p, n, decoder = w.p, w.place.hidden, w.place.decoder
    value, source = p.reg32("sum of squares"), w.back if behind else w.x
    p.fmuls(w.scratch, source, source)
    p.ldi32(value, 0.0)
    p.fadds(value, value, w.scratch)
    p.st32(value, w.one)
    sum_one()  # type: ignore[operator]
    p.ld32(value, w.one)
    p.fmuls(value, value, 1.0 / decoder.hidden)
    p.fadds(value, value, decoder.epsilon)
    p.st32(value, w.one)
    with w.functions.first(1):
        w.functions.rsqrt(w.one, w.one)
    p.ld32(value, w.one)
    p.fmuls(w.scratch, source, value)
    p.free(value)
    with w.taking("norms", 2 * n) as address:
        p.load(w.second, p.mem1d(w.x, n))
        p.dsr_base(w.second, address)
        p.fmuls(w.back if behind else w.scratch, w.scratch, w.second)
    if not behind:
        p.fs2h(w.given, w.scratch)


def emit_residual(w: Writer) -> None:
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


def emit_capped(functions: Emit, cap: float, at: Reg | Var) -> None:
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


def emit_gated(w: Writer) -> None:
    """Write inner_half = act(gate) * up."""
    p, n = w.p, w.place.ffn
    gate, up = p.mem1d(w.gate_up, n), p.mem1d(w.gate_up, n, offset=n)
    emit_exponent(w, w.inner, gate)
    with w.functions.first(n):
        w.functions.exp(w.inner, w.inner)
        p.fadds(w.inner, w.inner, 1.0)
        w.functions.reciprocal(w.inner, w.inner)
    p.fmuls(w.inner, w.inner, gate)
    p.fmuls(w.inner, w.inner, up)
    p.fs2h(w.inner_half, w.inner)


class Angle:
    """The angles of a position, and the way to the next.

    Parameters
    ----------
    w : Idioms
    heads : int
        Heads whose products there is room for.
    apart : bool
        Whether angles that are multiplied lie in different banks.
    beside : Angle, optional
        Those of the decoder; then these are local, and products lie where those have them.
    """

    def __init__(self, w: Idioms, heads: int = 1, apart: bool = False, beside: Angle | None = None) -> None:
        p, n, end = w.p, w.place.pairs, LOCAL if beside else ""
        self.w, self.pairs = w, n
        # Cosines, then sines, of all pairs: of one position, of `FINE`, of the rest, of the multiple, of both.
        other = 4 if n % 2 else 2  # so that neither cosines nor sines meet
        banks = {"step": 0, "leap": other, "fine": other, "coarse": 0}
        self.step, self.leap, self.fine, self.coarse = (
            p.array(name + end, 2 * n, "f32", bank=banks[name] if apart else None)
            for name in ("step", "leap", "fine", "coarse")
        )
        self.angle = p.array("angle" + end, 2 * n, "f32", bank=ANGLE_BANK)
        self.passed = p.param("passed" + end, "u16")  # positions since the last leap
        self.products: Var = beside.products if beside else p.array("products", 2 * heads * n, "f32", bank=TURNED_BANK)

    def _turn(self, result: Var, a: Var, b: Var) -> None:
        """Write result = a turned by b; `result` may be a."""
        p, n = self.w.p, self.pairs

        def parts(var: Var) -> tuple[Dsd, Dsd]:
            return p.mem1d(var, n), p.mem1d(var, n, offset=n)

        (a_cos, a_sin), (b_cos, b_sin), (cos, sin) = parts(a), parts(b), parts(result)
        left, right = p.mem1d(self.products, n), p.mem1d(self.products, n, offset=n)
        p.fmuls(left, a_cos, b_sin)
        p.fmuls(right, a_sin, b_sin)
        p.fmuls(cos, a_cos, b_cos)
        p.fmuls(sin, a_sin, b_cos)
        p.fsubs(cos, cos, right)
        p.fadds(sin, sin, left)

    def position(self) -> None:
        """Write what a step begins with: the angles of its position."""
        self._turn(self.angle, self.coarse, self.fine)

    def advance(self) -> None:
        """Write what a step ends with: the next position."""
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


class Rotary(Angle):
    """The angles of a PE and the turning of its queries and keys.

    Parameters
    ----------
    w : Writer
    """

    def __init__(self, w: Writer) -> None:
        super().__init__(w, w.place.turned_heads)
        self.writer = w
        self.local = Angle(w, beside=self) if w.place.decoder.is_local else None

    def position(self) -> None:
        """Write what a step begins with: the angles of its position, of all kinds of layers."""
        super().position()
        if self.local is not None:
            self.local.position()

    def advance(self) -> None:
        """Write what a step ends with: the next position."""
        super().advance()
        if self.local is not None:
            self.local.advance()

    def normalise(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised head by head, with the weights of the next layer.

        `total` emits the sum of ``squares`` over the columns of each head.
        """
        w, p, place, part = self.writer, self.w.p, self.w.place, self.w.place.part
        heads = place.turned_heads
        value, at = p.reg32("sum of squares"), p.reg16("squares")
        numbers = p.mem1d(w.qkv, heads * part)
        p.fmuls(self.products, numbers, numbers)
        p.load(w.second, p.mem1d(self.products, part, save=True))
        p.ldi(at, w.squares)
        with w.times(heads):
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, at)
            p.add16(at, at, 2)
        total()
        p.fmuls(w.squares, w.squares, 1.0 / place.decoder.head_size)
        p.fadds(w.squares, w.squares, place.decoder.epsilon)
        with w.functions.first(heads):
            w.functions.rsqrt(w.squares, w.squares)
        p.load(w.first, p.mem1d(w.qkv, part, save=True))
        p.ldi(at, w.squares)
        with w.times(heads):
            p.ld32(value, at)
            p.fmuls(w.first, w.first, value)
            p.add16(at, at, 2)
        p.free(value, at)
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * place.head_norms) as address:
            for count, first in ((place.heads, 0), (place.kv_heads, place.query_rows)):
                p.load(w.second, p.mem4d(w.head_norms, (count, part), (0, 1)))
                p.dsr_base(w.second, address)
                own = p.mem1d(w.qkv, count * part, offset=first)
                p.fmuls(own, own, w.second)
                p.add16(address, address, 2 * part)

    def normalise_all(self, total: Callable[[], None]) -> None:
        """Write that queries and keys of qkv are normalised, each together, with the weights of the next layer.

        `total` emits the all-reduce of ``squares`` along x.
        """
        w, p, place = self.writer, self.w.p, self.w.place
        value, rows = p.reg32("sum of squares"), place.query_rows + place.kv_rows
        both = p.mem1d(w.qkv, rows)
        parts = (0, place.query_rows), (place.query_rows, place.kv_rows)
        p.fmuls(p.mem1d(self.products, rows), both, both)
        for k, (first, count) in enumerate(parts):
            p.load(w.second, p.mem1d(self.products, count, offset=first))
            p.ldi32(value, 0.0)
            p.fadds(value, value, w.second)
            p.st32(value, w.squares[k])
        total()
        for k, count in enumerate(place.decoder.query_key_norms.values()):
            p.ld32(value, w.squares[k])
            p.fmuls(value, value, 1.0 / count)
            p.fadds(value, value, place.decoder.epsilon)
            p.st32(value, w.squares[k])
        with w.functions.first(2):
            w.functions.rsqrt(w.squares, w.squares)
        for k, (first, count) in enumerate(parts):
            own = p.mem1d(w.qkv, count, offset=first)
            p.ld32(value, w.squares[k])
            p.fmuls(own, own, value)
        p.free(value)
        assert w.head_norms is not None
        with w.taking("head_norms", 2 * rows) as address:
            p.load(w.second, p.mem1d(w.head_norms, rows))
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
        heads = w.place.turned_heads
        a = p.mem4d(w.qkv, (heads, n), (2 * n, 1))
        b = p.mem4d(w.qkv, (heads, n), (2 * n, 1), offset=n)
        cos, sin = p.mem4d(angle, (heads, n), (0, 1)), p.mem4d(angle, (heads, n), (0, 1), offset=n)
        left, right = p.mem1d(self.products, heads * n), p.mem1d(self.products, heads * n, offset=heads * n)
        p.fmuls(left, a, sin)
        p.fmuls(right, b, sin)
        p.fmuls(a, a, cos)
        p.fmuls(b, b, cos)
        p.fsubs(a, a, right)
        p.fadds(b, b, left)

    def keep(self) -> None:
        """Write qkv_half = queries of qkv scaled, keys and values as they are."""
        w, p = self.writer, self.w.p
        queries = p.mem1d(w.qkv, w.place.query_rows)
        p.fmuls(queries, queries, 1.0 / math.sqrt(w.place.decoder.head_size))
        p.fs2h(w.qkv_half, w.qkv)
