"""Passes over the intermediate form, none of which changes what a program computes.

`frames` puts small arrays and structs into registers, `flow` cleans up jumps, `single` carries constants and copies
through a function, `local` numbers the values of a block (folding, common subexpressions, cheaper operations,
addresses), `induction` lets indices count in multiples, `hoist` moves out of loops what does not change in them and
keeps in registers what they add to, `dead` drops what nobody reads, `legal` gives every operand a form that the machine
has, `constants` puts those that several operations need into a register once, `placing` chooses the order of blocks,
`ahead` lets loads begin before the vector operation that they follow.  Descriptors are loaded for each operation anew
(`fabric.csl.rules`).
"""

from __future__ import annotations

from fabric.csl.ir import IrFunction
from fabric.csl.ir.verify import verify
from fabric.csl.optimise import (
    ahead,
    constants,
    dead,
    flow,
    frames,
    hoist,
    induction,
    legal,
    local,
    placing,
    single,
)  # fmt: skip

__all__ = ["optimise", "prepare"]

ROUNDS = 4


def optimise(function: IrFunction) -> None:
    """Run all passes until they find nothing more, at most a few times."""
    verify(function, "lowering")
    frames.promote(function)
    flow.clean(function)
    _simplify(function)
    dead.merge_copies(function)
    if induction.scale(function):
        _simplify(function)
    if hoist.hoist(function) | hoist.keep(function):
        _simplify(function)
    flow.clean(function)
    dead.merge_copies(function)
    placing.order(function)
    legal.legalise(function)
    constants.share(function)
    ahead.load_ahead(function)
    verify(function, "optimising")


def prepare(function: IrFunction) -> None:
    """Give a function that is not optimised the form that the allocator needs."""
    verify(function, "lowering")
    legal.legalise(function)
    verify(function, "preparing")


def _simplify(function: IrFunction) -> None:
    for _ in range(ROUNDS):
        changed = single.propagate(function)
        changed |= local.number(function)
        changed |= dead.remove(function)
        flow.clean(function)
        if not changed:
            break
