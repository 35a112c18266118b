"""Products of 16 bits that no shifts make: calls of a routine, since the machine multiplies numbers of 11 bits.

They are operations like any other until here, so that they are folded, shared and moved out of loops before.  That the
vendor's compiler calls something is seen in SUMMA, whose tiles of 46 take 141 cycles per multiply-add where those of 32
take 95 (`harness.validation`).
"""

from __future__ import annotations

from collections.abc import Callable

from fabric.csl.ir import Instr, IrFunction, Vreg

__all__ = ["ROUTINE", "expand"]

ROUTINE = "product_u16"
RESULT, TO_COME = 2, -1
"""A result is in the first register, and an argument in the second until the routine has its registers."""


def expand(
    functions: list[IrFunction], routine: Callable[[], IrFunction], changed: Callable[[IrFunction], None]
) -> list[IrFunction]:
    """Return the functions, callees first, with calls in place of products.

    Parameters
    ----------
    functions : list of IrFunction
        Optimised.
    routine : callable
        Returns the routine, optimised; its own products stay.
    changed : callable
        Is told of each function with products.
    """
    found = [function for function in functions if any(instr.op == "mul16" for instr in function.instructions())]
    if not found:
        return functions
    made = routine()
    for function in found:
        changed(function)
        for block in function.blocks:
            out: list[Instr] = []
            for instr in block.code:
                if instr.op == "mul16":
                    _call(instr, made, out)
                else:
                    out.append(instr)
            block.code = out
    return [made, *functions]


def _call(instr: Instr, made: IrFunction, out: list[Instr]) -> None:
    given = []
    for value in instr.args:
        place = Vreg(1, "factor", TO_COME)
        out.append(Instr("copy" if isinstance(value, Vreg) else "const", place, (value,), None, instr.span))
        given.append(place)
    arrived = Vreg(1, "product", RESULT)
    out.append(Instr("call", arrived, tuple(given), made, instr.span))
    out.append(Instr("copy", instr.dst, (arrived,), None, instr.span))
