"""The cost classes of `wse_core.isa` become numbers of the machine here, in one table.

An instruction that issues in cycle t keeps the pipeline for `slots` cycles, the next one of its thread can issue in
t + `follow`, and what it makes can be used in t + `result`.

Timing: docs/machine.md, "Issue".
Source: the numbers' own, `wse_core.params`.
"""

from __future__ import annotations

from wse_core.isa import SLOTS, Op
from wse_core.params import Machine

__all__ = ["follow", "result", "slots"]

FOLLOW = {"call": "ce.call", "ret": "ce.ret", "dsr_load": "ce.dsr_load"}
"""Number that says when the next instruction can issue, if that is not said by `SLOTS`; branches have two."""
LATENCY = {"int": "ce.int_latency", "fp": "ce.fp_latency", "load": "ce.load_latency"}
"""A result can be used after the cycles that this number says, if `SLOTS` does not say it."""


def slots(machine: Machine, op: Op) -> int:
    """Return the cycles for which a scalar instruction keeps the pipeline."""
    return machine[SLOTS[op.cost]] if op.cost in SLOTS else 1


def follow(
    machine: Machine,
    op: Op,
    taken: bool = False,
    dimensions: int = 1,
    ends: bool = False,
    fabric: bool = False,
    in_row: bool = False,
) -> int:
    """Return the cycles from the issue of a scalar instruction to that of the next one of its thread.

    Parameters
    ----------
    machine : Machine
    op : Op
    taken : bool
        Whether a branch is taken; a jump always is.
    dimensions : int
        Of the descriptor that is loaded.
    ends : bool
        Whether what the branch leads to ends the task.
    fabric : bool
        Whether the descriptor that is loaded is one of the fabric.
    in_row : bool
        Whether a known descriptor of one dimension in memory is loaded, and another one behind it.
    """
    if op.cost in ("branch", "branch32"):
        least = machine["ce.branch_taken" if taken or op.form == "jmp" else "ce.branch_not_taken"]
        if op.form == "br" and taken and ends:
            least = machine["ce.branch_end"] or least
        return slots(machine, op) - 1 + least
    if in_row and machine["ce.dsr_row"]:
        return machine["ce.dsr_row"]
    if op.cost in FOLLOW:
        further = (dimensions - 1) * machine["ce.dsr_dimension"] + fabric * machine["ce.fabric_load"]
        return machine[FOLLOW[op.cost]] + further
    return slots(machine, op)


def result(machine: Machine, op: Op, taken: int | None = None) -> int:
    """Return the cycles from the issue of an instruction until its result can be used.

    With `taken`, the cycles of the last step of a vector operation, it is counted from that step.
    """
    least = slots(machine, op) if taken is None else taken
    if taken is not None:
        return max(least, machine["ce.fp_latency" if op.cost == "fp" else "ce.int_latency"])
    return max(least, machine[LATENCY[op.cost]]) if op.cost in LATENCY else least
