"""A layer has three products on one PE, as instructions: forward, gradients of the inputs, gradients of the weights.

All three are sums of vectors times scalars, ``C[:, i] += A[:, j] * b[i, j]`` with 16-bit factors and f32 sums
(`fmachs`: products exact, one rounding per addition).  What differs is which of the three operands moves with which
loop.  `accumulate` writes the two loops; the longer one is inside, since a turn of the outer loop costs the moving of
two descriptors.  An element of C sees its terms in the same order either way, and its bits depend on nothing else.

The scalars are loaded in groups before the operations that use them, which hides the latency of the loads.

Cycles: an operation of S steps takes S + 2 from issue to issue and its scalar 1; 1 per group, 7 per turn of a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from fabric.asm.operands import Dsr, Reg, Var
from fabric.program.program import Program

__all__ = ["GROUP", "VectorArray", "accumulate"]

GROUP = 6
"""So many scalars are loaded ahead: what the registers of a task have room for."""


@dataclass(frozen=True)
class VectorArray:
    """Vectors of one length lie in an array, one after the other.

    Attributes
    ----------
    var : Var
    step : int
        Elements from a vector to the next one.
    stride : int
        Elements from an element of a vector to the next one.
    """

    var: Var
    step: int
    stride: int = 1


def accumulate(
    p: Program,
    dsrs: tuple[Dsr, Dsr],
    length: int,
    sums: VectorArray,
    factors: VectorArray,
    counts: tuple[int, int],
    scalars: Reg,
    strides: tuple[int, int],
) -> None:
    """Write ``sums[i] += factors[j] * scalar[i, j]`` into the task of a program that is being written.

    Parameters
    ----------
    p : Program
    dsrs : tuple of Dsr
        Of file src0 for the sums, of src1 for the factors; loaded here.
    length : int
        Elements of a vector.
    sums, factors : VectorArray
        f32 and 16-bit.
    counts : tuple of int
        Numbers of sums (i) and of factors (j).
    scalars : Reg
        Word address of scalar[0, 0]; changed.
    strides : tuple of int
        Words from a scalar to that of the next sum, and of the next factor.
    """
    # Only vectors that lie one behind the other advance by themselves (save_address), so only those may move inside.
    sums_inside = factors.stride != 1 or counts[0] > counts[1]
    inner, outer = counts if sums_inside else counts[::-1]
    near, far = strides if sums_inside else strides[::-1]
    total, factor = dsrs
    p.load(total, p.mem1d(sums.var, length, save=sums_inside))
    p.load(factor, p.mem1d(factors.var, length, stride=factors.stride, save=not sums_inside))
    groups = -(-inner // GROUP)
    size = -(-inner // groups)
    full, rest = divmod(inner, size)
    held = [p.reg16("scalar") for _ in range(size)]

    def group(count: int) -> None:
        for k in range(count):
            p.ld16(held[k], scalars, offset=k * near)
        p.add16(scalars, scalars, count * near)
        for k in range(count):
            p.fmachs(total, total, factor, held[k])

    def turn() -> None:
        if full > 1:
            with p.loop(full):
                group(size)
        else:
            group(size)
        if rest:
            group(rest)

    if outer == 1:
        turn()
    else:
        with p.loop(outer):
            turn()
            p.add16(scalars, scalars, (far - inner * near) & 0xFFFF)
            inside, outside, moved = (total, factor, factors) if sums_inside else (factor, total, sums)
            p.dsr_base(inside, sums.var if sums_inside else factors.var)
            p.dsr_off(outside, moved.step * moved.var.words_per_element)
    p.free(*held)
