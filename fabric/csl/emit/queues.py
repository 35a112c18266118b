"""Each color of a program goes through a queue, which is chosen here.

The descriptors of WSE-2 name color and queue both.  A color takes the queue that the program names if that is free,
else the next free one; where none is left, it becomes the second color of a queue, if it can of the one that was
named.  A color that is sent through several named queues has them all, so that its operations run on their
microthreads.
"""

from __future__ import annotations

from collections.abc import Iterable

from fabric.asm.operands import Queue
from fabric.asm.unit import Unit
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import Template
from wse_core.encoding import N_QUEUES
from wse_core.events import NO_COLOR

__all__ = ["bind_named_queues", "bind_queues", "colors_of_tasks"]


def bind_queues(
    unit: Unit, initial: dict[int, int], used: Iterable[tuple[Template, Span]], data_tasks: Iterable[tuple[int, Span]]
) -> dict[tuple[str, int | None, int | None], Queue]:
    """Bind the queues of a program.

    Parameters
    ----------
    unit : Unit
    initial : dict
        Colors that comptime blocks bind input queues to.
    used : iterable of (Template, Span)
        Every fabric descriptor.
    data_tasks : iterable of (color, Span)

    Returns
    -------
    dict
        Per (kind, color, queue) of a descriptor the queue that it goes through.
    """
    found: dict[tuple[str, int | None, int | None], Queue] = {}
    wanted: dict[str, dict[int, tuple[int | None, Span | None]]] = {"input": {}, "output": {}}
    for number, bound_color in initial.items():
        wanted["input"].setdefault(bound_color, (number, None))
    for template, span in used:
        kind = "input" if template.kind == "fabin" else "output"
        color = template.color
        if color is None and kind == "input" and template.queue is not None:
            color = initial.get(template.queue)
        if color is None and kind == "input" and template.queue is not None:
            # A queue that this PE does not initialize: the code is there, but the program may not come to it.
            found[kind, None, template.queue] = Queue(kind, template.queue, NO_COLOR)
            continue
        if color is None:
            raise Fault("the color of this descriptor is not known", span, ".fabric_color = ..., or @initialize_queue")
        before = wanted[kind].get(color)
        if before is None or (before[0] is None and template.queue is not None):
            wanted[kind][color] = (template.queue, span)
        found[kind, template.color, template.queue] = Queue(kind, 0, color)
    for color, span in data_tasks:
        wanted["input"].setdefault(color, (None, span))
    # The number of a queue is that of a microthread, so the other kind's numbers are left to it.
    asked = {queue for colors in wanted.values() for queue, _ in colors.values() if queue is not None}
    bound = {kind: _bind(unit, kind, colors, asked) for kind, colors in wanted.items()}
    return {
        key: queue if queue.color == NO_COLOR else _of_its_own(unit, key, wanted["output"], bound[key[0]][queue.color])
        for key, queue in found.items()
    }


def bind_named_queues(
    unit: Unit,
    initial: dict[tuple[str, int], int],
    used: Iterable[tuple[Template, Span]],
    others: dict[tuple[str, int], tuple[tuple[int, ...], Span]],
) -> dict[tuple[str, int | None, int | None], Queue]:
    """Bind the queues of a program whose descriptors name queues alone, as on WSE-3.

    A descriptor of a queue that has no color is no mistake as long as no operation uses it; one that does is a fault of
    the machine.

    Parameters
    ----------
    unit : Unit
    initial : dict
        Per kind and number of a queue the color that a comptime block binds it to.
    used : iterable of (Template, Span)
        Every fabric descriptor.
    others : dict
        Per kind and number of a queue that gets other colors while the program runs all its colors, and where it gets
        one.

    Returns
    -------
    dict
        As `bind_queues`.
    """
    for (kind, number), color in initial.items():
        unit.queue(kind, number, color, shared=kind == "output")
    bound = dict(initial)
    found: dict[tuple[str, int | None, int | None], Queue] = {}
    rings = _rings(unit, initial, others)
    for template, span in used:
        kind = "input" if template.kind == "fabin" else "output"
        if template.queue is None:
            raise Fault("the queue of this descriptor is not known", span, f".{kind}_queue = ...")
        if (kind, template.queue) not in bound:
            found[kind, template.color, template.queue] = Queue(kind, template.queue, NO_COLOR)
            continue
        if (kind, template.queue, template.color) in rings:
            found[kind, template.color, template.queue] = rings[kind, template.queue, template.color]
            continue
        color = bound[kind, template.queue]
        if template.color not in (None, color):
            what = f"this descriptor says color {template.color}, but {kind} queue {template.queue} has color {color}"
            raise Fault(what, span, "leave .fabric_color out")
        found[kind, template.color, template.queue] = unit.queue(kind, template.queue, color, shared=kind == "output")
    return found


def _rings(
    unit: Unit, initial: dict[tuple[str, int], int], others: dict[tuple[str, int], tuple[tuple[int, ...], Span]]
) -> dict[tuple[str, int, int | None], Queue]:
    """Return per kind, queue and color the ring of each color that a queue may get: its two own, then free ones."""
    found: dict[tuple[str, int, int | None], Queue] = {}
    for (kind, number), (colors, span) in others.items():
        depths = unit.machine[f"queue.{kind.removesuffix('put')}_depth"]
        for color in colors:
            taken = unit.queues[kind]
            free = [k for k in (number, *range(len(depths))) if k not in taken and k + N_QUEUES not in taken]
            own = [k for k in (number, number + N_QUEUES) if k not in taken or taken[k].color == color]
            places = [*(k % N_QUEUES for k in own), *(k for k in free if depths[k] and (kind, k) not in initial)]
            if not places:
                what = f"{kind} queue {number} may get {len(colors)} colors, for which there are not enough places"
                raise Fault(what, span, "name colors that are known when the program is compiled")
            found[kind, number, color] = unit.queue(kind, places[0], color, shared=True)
    return found


def colors_of_tasks(initial: dict[tuple[str, int], int], data_tasks: Iterable[tuple[int, Span]]) -> dict[int, int]:
    """Return the color of each data task whose id is the number of its input queue."""
    found = {}
    for number, span in data_tasks:
        if ("input", number) not in initial:
            hint = f"@initialize_queue(@get_input_queue({number}), .{{ .color = ... }})"
            raise Fault(f"a data task is bound to input queue {number}, which has no color", span, hint)
        found[number] = initial["input", number]
    return found


def _of_its_own(
    unit: Unit,
    key: tuple[str, int | None, int | None],
    outputs: dict[int, tuple[int | None, Span | None]],
    first: Queue,
) -> Queue:
    """Return the queue of a descriptor: a color that leaves through several named ones keeps them all."""
    kind, color, queue = key
    if kind == "input" or queue is None or color is None or outputs[color][0] == queue:
        return first
    taken = unit.queues[kind]
    if all(number in taken and taken[number].color != color for number in (queue, queue + N_QUEUES)):
        return first
    return unit.queue(kind, queue, color, shared=True)


def _bind(
    unit: Unit, kind: str, colors: dict[int, tuple[int | None, Span | None]], asked: set[int]
) -> dict[int, Queue]:
    depths = unit.machine["queue.in_depth" if kind == "input" else "queue.out_depth"]
    free = [number for number, depth in enumerate(depths) if depth]
    bound: dict[int, Queue] = {}
    for color, (queue, _) in colors.items():
        if queue is not None and queue in free:
            free.remove(queue)
            bound[color] = unit.queue(kind, queue, color)
    # Those that nobody asks for first, then what is left.
    single = [number for number, depth in enumerate(depths) if depth]
    for color, (queue, span) in colors.items():
        if color in bound:
            continue
        left = [number for number in reversed(free) if number not in asked] or free
        if left:
            chosen = left[0]
            free.remove(chosen)
            asked.add(chosen)
            bound[color] = unit.queue(kind, chosen, color)
            continue
        if not single:
            count = sum(bool(depth) for depth in depths)
            fault = f"the program uses {len(colors)} colors as {kind}s, a PE has {count} {kind} queues"
            raise Fault(fault, span, "a queue has at most two colors on this machine")
        chosen = queue if queue in single else single[0]
        single.remove(chosen)
        bound[color] = unit.queue(kind, chosen, color, shared=True)
    return bound
