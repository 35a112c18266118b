"""Passes over the intermediate form, none of which changes what a program computes.

`flow` cleans up jumps, `single` carries constants and copies through a function, `local` numbers the values of a block
(folding, common subexpressions, cheaper operations, addresses), `loops` moves out of loops what does not change in
them, `dead` drops what nobody reads, `legal` gives every operand a form that the machine has.
"""

from __future__ import annotations

from fabric.csl.ir import Function
from fabric.csl.ir.verify import verify
from fabric.csl.optimise import dead, flow, legal, local, loops, single

__all__ = ["optimise"]

ROUNDS = 4


def optimise(function: Function) -> None:
    """Run all passes until they find nothing more, at most a few times."""
    verify(function, "lowering")
    flow.clean(function)
    for _ in range(ROUNDS):
        changed = single.propagate(function)
        changed |= local.number(function)
        changed |= dead.remove(function)
        flow.clean(function)
        if not changed:
            break
    if loops.hoist(function):
        local.number(function)
        dead.remove(function)
        flow.clean(function)
    dead.merge_copies(function)
    legal.legalise(function)
    verify(function, "optimising")
