"""Marks in a unit that is being written: what was added after one can be taken back as if it had never been written.

A front end sets a mark where a block begins and goes back to it when the block fails, so that the block can be written
again.  Reads and writes everything of `fabric.asm.unit.Unit` that changes before it is assembled.

What grows is cut to its old length; names and the places of labels are copied, because a block can place a label that
was made before it.  A pair of DSRs that the block made is parted again: whoever joined a group was alone at its head,
so that it is its own group once more.

Timing: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabric.asm.unit import Unit

__all__ = ["Mark"]

LISTS = ("instructions", "dsrs", "united", "starts", "blocks", "unblocks")
NAMES = ("variables", "labels", "tasks", "functions")
VALUES = ("fifos", "body", "labels_made")


class Mark:
    """A moment of `unit`; `undo` makes the unit what it was then."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._lengths = {name: len(getattr(unit, name)) for name in LISTS}
        self._names = {name: dict(getattr(unit, name)) for name in NAMES}
        self._values = {name: getattr(unit, name) for name in VALUES}
        self._queues = {kind: dict(queues) for kind, queues in unit.queues.items()}
        self._places = {label: label.at for label in unit.labels.values()}

    def undo(self) -> None:
        """Take back what was added to the unit since the mark."""
        unit = self.unit
        unit.undone += 1
        for ins in reversed(unit.instructions[self._lengths["instructions"] :]):
            if ins.op.name == "dsr_load" and isinstance(ins.imm, tuple):
                ins.imm[1].loads.pop()
        for dsr in reversed(unit.united[self._lengths["united"] :]):
            dsr.group = dsr
        for name, length in self._lengths.items():
            del getattr(unit, name)[length:]
        for name, value in (self._names | self._values).items():
            setattr(unit, name, value)
        unit.queues = self._queues
        for label, at in self._places.items():
            label.at = at
