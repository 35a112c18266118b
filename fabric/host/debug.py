"""Debugging from Python: stop where something happens, look, change, go back, play edge traffic again.

```python
debugger = Debugger(fabric)
debugger.until_task("compute", x=3, y=0)        # the cycle in which the picker chooses it
before = debugger.snapshot()
debugger.until_change("sum", x=3, y=0)          # the cycle after which a variable has another value
debugger.fabric.write("sum", 0.0, 3, 0)         # poke
debugger.restore(before)                        # bitwise
```

Conditions on events go by pieces: a piece runs with events recorded; if the event is in it, the engine returns to the
beginning of the piece and runs to the event's cycle.  Conditions on memory go cycle by cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.host.copies import control_id, task_id
from wse_core.errors import ConfigError, LayoutError
from wse_core.events import KINDS, TraceFilter, joined, sorted_events

if TYPE_CHECKING:
    from fabric.asm.operands import Var
    from fabric.host.fabric import Fabric

__all__ = ["Debugger", "replay"]

OWNER = "of"
"""This key of a snapshot says which engine it is of."""
PIECE = 256
MOST_PIECE = 1 << 16


class Debugger:
    """A `Debugger` runs a fabric to where something happens.

    Parameters
    ----------
    fabric : Fabric

    Attributes
    ----------
    event : numpy.void or None
        The event at which the last run stopped.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.engine = fabric, fabric.engine
        self.event: np.void | None = None

    @property
    def cycle(self) -> int:
        """The machine has done so many cycles so far."""
        return int(self.engine.cycle)

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state of the fabric, for `restore` of the same one."""
        return self.engine.save_state() | {OWNER: self.engine}

    def restore(self, saved: dict[str, Any]) -> None:
        """Go back to a snapshot of this fabric, bit for bit; what runs report from now on counts from there.

        Raises
        ------
        ConfigError
            The snapshot is of another fabric, even if it has the same layout.
        """
        owner: Any = saved.get(OWNER)
        if owner is not self.engine:
            raise ConfigError("this snapshot is of another fabric", where="debugger", hint="one taken of this fabric")
        owner.restore_state({name: value for name, value in saved.items() if name != OWNER})
        self.fabric.forget_totals()

    def step(self, cycles: int = 1) -> str:
        """Run some cycles; return the engine's status."""
        return self.fabric.step(cycles)

    def until_task(self, task: str | int, x: int | None = None, y: int | None = None, max_cycles: int = 10**6) -> bool:
        """Run up to the cycle in which the picker chooses a task of one PE or any.

        Parameters
        ----------
        task : str or int
            Name of a task of any kind, or id of a local or data task.
        x, y : int, optional
            PE; None for any.
        max_cycles : int

        Returns
        -------
        bool
            Whether it happened within `max_cycles`; the engine stands after that cycle.
        """
        programs = self.fabric.spec.programs
        if isinstance(task, int):
            wanted: set[tuple[int | None, int]] = {(task, 0)}
        else:
            wanted = {(find(program, task), k) for program in programs for k, find in enumerate((task_id, control_id))}
            wanted -= {(None, 0), (None, 1)}
        if not wanted:
            raise LayoutError(f"no program has a task {task!r}")

        def chosen(event: np.void) -> bool:
            return (int(event["aux"]), int(event["flags"])) in wanted

        return self.until_event(chosen, ("task_start",), x, y, None, max_cycles)

    def until_color(
        self, color: int, x: int | None = None, y: int | None = None, kind: str = "depart", max_cycles: int = 10**6
    ) -> bool:
        """Run up to the cycle in which a wavelet of a color moves: `inject`, `depart`, `enter` or `take`."""
        return self.until_event(lambda event: True, (kind,), x, y, (color,), max_cycles)

    def until_event(
        self,
        wanted: Callable[[np.void], bool],
        kinds: Sequence[str],
        x: int | None = None,
        y: int | None = None,
        colors: Sequence[int] | None = None,
        max_cycles: int = 10**6,
    ) -> bool:
        """Run up to the cycle of the first event for which ``wanted(event)`` is true.

        Parameters
        ----------
        wanted : callable
            Of a record of `wse_core.events.EVENT_DTYPE`.
        kinds : sequence of str
            Of `wse_core.events.KINDS`.
        x, y : int, optional
            PE; None for any.
        colors : sequence of int, optional
        max_cycles : int

        Returns
        -------
        bool
            Whether it happened; if not, the engine has run `max_cycles` or to its end.
        """
        if (x is None) != (y is None):
            raise ConfigError("one of x and y", where="debugger", hint="both, or neither for any PE")
        region = None if x is None or y is None else (x, y, 1, 1)
        wanted_kinds = TraceFilter(tuple(kinds), None if colors is None else tuple(colors), region)
        stop, piece, status = self.cycle + max_cycles, PIECE, "limit"
        while status == "limit" and self.cycle < stop:
            saved = self.engine.save_state()
            found: list[np.ndarray] = []
            self.engine.trace(lambda events, clock, found=found: found.append(events), wanted_kinds)
            status = self.engine.run(min(stop, self.cycle + piece))
            self.engine.trace(None)
            for event in sorted_events(joined(found)):
                if wanted(event):
                    self.event = event
                    self.engine.restore_state(saved)
                    self.engine.run(int(event["cycle"]) + 1)
                    return True
            piece = min(2 * piece, MOST_PIECE)
        self.event = None
        return False

    def until_change(self, symbol: str | Var | int, x: int, y: int, max_cycles: int = 10**5) -> bool:
        """Run to the end of the cycle in which memory of a PE gets another value; return whether it did.

        Parameters
        ----------
        symbol : str, Var or int
            A variable, or the address of a 16-bit word.
        x, y : int
        max_cycles : int
        """

        def bits() -> bytes:
            if isinstance(symbol, int):
                return self.engine.read_words(x, y, symbol, 1).tobytes()
            return self.fabric.read(symbol, x, y).tobytes()

        before = bits()
        for _ in range(max_cycles):
            status = self.engine.run(self.cycle + 1)
            if bits() != before:
                return True
            if status != "limit":
                return False
        return False

    def until_fault(self, max_cycles: int = 10**6) -> dict[str, Any] | None:
        """Run up to a fault; return its description, or None if there was none within `max_cycles`."""
        self.engine.run(self.cycle + max_cycles)
        return self.engine.fault


def replay(fabric: Fabric, events: np.ndarray) -> int:
    """Give a fabric the wavelets that entered another one from outside, in their order.

    Parameters
    ----------
    fabric : Fabric
        Of the same layout; its input streams get the wavelets.
    events : numpy.ndarray of EVENT_DTYPE
        Events of kind `enter`; others are ignored.

    Returns
    -------
    int
        Wavelets given.
    """
    entering = events[events["kind"] == KINDS.index("enter")]
    given = 0
    for number, (x, y, port, color) in enumerate(fabric.spec.inputs):
        mine = entering[
            (entering["x"] == x) & (entering["y"] == y) & (entering["aux"] == port) & (entering["color"] == color)
        ]
        fabric.engine.push_input(number, np.ascontiguousarray(mine["data"]), (mine["flags"] & 1).astype(bool))
        given += len(mine)
    if given != len(entering):
        raise ConfigError(
            f"{len(entering) - given} of {len(entering)} wavelets entered where this fabric has no input stream",
            where="replay",
            hint="a fabric of the same layout",
        )
    return given
