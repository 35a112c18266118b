"""Queues of WSE-3 may get another color while a program runs, and have a task that runs when one is empty.

A descriptor of WSE-3 names a queue, and the queue's register the color.  Here every color that a queue may get has a
ring of its own behind that queue, a word in memory says which color is the queue's at the moment, and an operation on
the queue is written once per color (`fabric.csl.lower.dsd.Chosen`).  So words that were sent before a queue got another
color go where they were meant to go, in whatever order; on the machine the program must not change a queue that still
holds some.  What comes for a color that no queue has at the moment waits in the router on the machine; here as much of
it as a queue holds waits in its ring.

A flush is an operation of no elements that ends when its output queue is empty; it activates task 29, whose handler the
program names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fabric.csl import tree
from fabric.csl.check.program import CheckedProgram as Checked
from fabric.csl.comptime.values import Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.lower.dsd import Descriptor
from wse_core.encoding import N_QUEUES

__all__ = ["FLUSH", "Rebinding", "named"]

FLUSH = "<tile_config/queue_flush>"
ENCODE = {
    "encode_input_queue": ("<tile_config/input_queue_config>", "input_queue"),
    "encode_output_queue": ("<tile_config/output_queue_config>", "output_queue"),
}
PORT = {"fabin": "input_queue", "fabout": "output_queue"}


def named(call: tree.Call, *names: str) -> list[Any]:
    """Return what a call of a library function is given for its parameters, in their order."""
    rest = list(call.arguments)
    found = [call.function.known[name] if name in call.function.known else rest.pop(0) for name in names]
    return [value.value if isinstance(value, tree.Const) else value for value in found]


class Rebinding:
    """A `Rebinding` knows what one program does to the colors of its queues.

    Parameters
    ----------
    checked : Checked
        The program.
    ids : callable
        Returns the colors that the program names anywhere.

    Attributes
    ----------
    colors : dict
        Per (``input_queue`` or ``output_queue``, number) of a queue that gets other colors all that it may have.
    spans : dict
        Per queue where it first gets one.
    """

    def __init__(self, checked: Checked, ids: Callable[[str], tuple[int, ...]]) -> None:
        self.unit = checked.unit
        self.colors: dict[tuple[str, int], tuple[int, ...]] = {}
        self.spans: dict[tuple[str, int], Span] = {}
        given: dict[tuple[str, int], list[int]] = {}
        for call, port in self._calls(checked):
            queue, color = named(call, "number", "c")
            number = self.number(queue, call.span)
            some = [color.data] if isinstance(color, Value) else list(ids("color"))
            given.setdefault((port, number), []).extend(some)
            self.spans.setdefault((port, number), call.span)
        for key, some in given.items():
            first = self.unit.queues.get(key)
            if first is None or "color" not in first[0]:
                what = f"{key[0]} {key[1]} gets another color, but has none to begin with"
                raise Fault(what, self.spans[key], "@initialize_queue(queue, .{ .color = ... })")
            begun = int(first[0]["color"].data)
            self.colors[key] = tuple(dict.fromkeys([begun, *some]))
            task = self.unit.tasks.get(("task", key[1])) if key[0] == "input_queue" else None
            if task is not None and task[0] == "data":
                what = f"input queue {key[1]} gets another color and has a data task, which is not modelled"
                raise Fault(what, task[2], "take its wavelets by operations")

    @staticmethod
    def _calls(checked: Checked) -> Iterator[tuple[tree.Call, str]]:
        sources = {source for source, _ in ENCODE.values()}
        if not any(function.span.source.name in sources for function in checked.functions):
            return
        for function in checked.functions:
            for node in tree.nodes(function.body):
                if isinstance(node, tree.Call):
                    source, port = ENCODE.get(node.function.name.rpartition(".")[2], ("", ""))
                    if node.function.span.source.name == source:
                        yield node, port

    @staticmethod
    def number(queue: Any, span: Span) -> int:
        """Return the number of a queue that is known."""
        if not isinstance(queue, Value) or not isinstance(queue.data, int):
            raise Fault("the queue must be known when the program is compiled", span)
        return queue.data

    def of(self, dsd: Any) -> tuple[str, int] | None:
        """Return the queue of a descriptor if it gets other colors and the descriptor does not say which it has."""
        if not isinstance(dsd, Descriptor) or dsd.fixed.bound or dsd.fixed.queue is None:
            return None
        key = PORT.get(dsd.fixed.kind, ""), dsd.fixed.queue
        return key if key in self.colors else None

    def options(self, dsd: Descriptor, key: tuple[str, int]) -> tuple[Descriptor, ...]:
        """Return the descriptor with each of the colors that its queue may have."""
        return tuple(dsd.with_(fixed=replace(dsd.fixed, color=color, bound=True)) for color in self.colors[key])

    def flusher(self, queue: int) -> int:
        """Return the microthread of the flush of a queue: one that no queue of the program has, if there is one."""
        taken = {number for _, number in self.unit.queues}
        free = [k for k in range(N_QUEUES - 1, -1, -1) if k not in taken] or [queue]
        flushed = [number for _, number in sorted(self.unit.empty)]
        return free[(flushed.index(queue) if queue in flushed else 0) % len(free)]
