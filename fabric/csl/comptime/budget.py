"""What one run of the compiler may take before it says that something seems not to end.

Counts, not seconds: the same program is refused or accepted on every host.  Each limit stands in `Options` under the
name of an option of ``cslc``, which raises it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabric.csl.diagnostics import Fault, Span
from fabric.csl.syntax.nodes import SyntaxNode, walk
from fabric.csl.types import ArrayType, StructType, Type

__all__ = ["CALL", "INLINED", "MEMORY", "MOST_IMPORTS", "Budget", "check_parts", "check_size", "check_text"]

CALL, INLINED = 10, 50
"""A call at compile time counts for `CALL` steps, a turn of an inlined loop for `INLINED`."""
NODES_PER_STEP = 3
"""One step is counted for a turn of a loop, and one more per so many nodes of its condition, step and body."""
MEMORY = 49_152
"""A PE has so many bytes of memory."""
MOST_ELEMENTS = 1 << 22
"""An array that a layout makes has at most so many elements, and a string so many characters."""
MOST_PARTS = 1 << 16
"""A struct or tuple has at most so many fields, those of structs inside of it included."""
MOST_NESTED = 300
"""At most so many globals are evaluated inside each other, each because the one before needs it."""
MOST_IMPORTS = 40
"""Imports are nested at most so deep."""


class Budget:
    """A `Budget` counts what one compilation has spent of its limits.

    Parameters
    ----------
    steps : int
        Steps at compile time: ``--max-comptime-steps``.
    turns : int
        Turns of one loop: ``--max-inlined-iterations``.
    instances : int
        Instances of functions in one program: ``--max-instances``.
    """

    def __init__(self, steps: int, turns: int, instances: int) -> None:
        self._steps, self._turns, self._instances = steps, turns, instances
        self._spent = 0
        self._weights: dict[int, tuple[SyntaxNode, int]] = {}

    def begin(self) -> None:
        """Begin with another program, which may spend as much."""
        self._spent = 0

    def spend(self, steps: int, span: Span) -> None:
        """Count steps of evaluation against the limit.

        Raises
        ------
        Fault
            If all are spent.
        """
        self._spent += steps
        if self._spent > self._steps:
            what = f"evaluation at compile time took more than {self._steps:,} steps"
            raise Fault(what, span, "does this end? --max-comptime-steps raises the limit")

    def weight(self, loop: SyntaxNode) -> int:
        """Return the steps that a turn of a loop counts for, so that a long body does not take long unnoticed."""
        found = self._weights.get(id(loop))
        if found is None:
            found = self._weights[id(loop)] = loop, 1 + len(walk(loop)) // NODES_PER_STEP
        return found[1]

    def turn(self, number: int, span: Span, steps: int) -> None:
        """Count a turn of a loop, which is its `number`-th."""
        if number > self._turns:
            what = f"a loop at compile time took more than {self._turns:,} iterations"
            raise Fault(what, span, "does the loop end? --max-inlined-iterations raises the limit")
        self.spend(steps, span)

    def instance(self, number: int, name: str, span: Span) -> None:
        """Count an instance of a function."""
        if number > self._instances:
            what = f"a program has more than {self._instances:,} instances of functions, here of '{name}'"
            raise Fault(what, span, "does the recursion end? --max-instances raises the limit")


def check_size(kind: Type, on_pe: bool, span: Span) -> None:
    """Refuse an array or struct that does not fit, before it is made."""
    if not isinstance(kind, (ArrayType, StructType)):
        return
    if on_pe and kind.words is not None and 2 * kind.words > MEMORY:
        raise Fault(f"a {kind} takes {2 * kind.words:,} bytes, a PE has {MEMORY:,}", span, "a smaller array")
    if isinstance(kind, ArrayType) and kind.count > MOST_ELEMENTS:
        raise Fault(f"a {kind} has more than {MOST_ELEMENTS:,} elements", span, "a smaller array")


def check_parts(parts: int, span: Span) -> None:
    """Refuse a struct of structs with too many fields in all, each of which may be looked at whenever it is."""
    if parts > MOST_PARTS:
        raise Fault(f"a struct of {parts:,} parts, those inside of others counted; at most {MOST_PARTS:,}", span)


def check_text(texts: Iterable[str], span: Span) -> str:
    """Return strings one after the other, unless they are too long."""
    found = list(texts)
    if sum(map(len, found)) > MOST_ELEMENTS:
        raise Fault(f"a string of more than {MOST_ELEMENTS:,} characters", span, "does a loop add to it for ever?")
    return "".join(found)
