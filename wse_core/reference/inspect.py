"""A CE that stands still is looked into: its state for comparison, and who waits for what.

Both functions return plain data in the form of docs/internals.md and change nothing.
"""

from __future__ import annotations

from typing import Any

from wse_core.encoding import MAIN
from wse_core.image import DSD_FABIN, ENDLESS, N_TASK_IDS
from wse_core.reference.ce import CE, IN_ORDER_OF_BOOKING
from wse_core.reference.operand import sram_read

__all__ = ["snapshot", "waiters"]


def snapshot(ce: CE) -> dict[str, Any]:
    """Return the state as plain data (docs/internals.md)."""
    fifos = {}
    for number, fifo in sorted(ce.fifos.items()):
        places = [(fifo.head + j) % fifo.length for j in range(fifo.count)]
        if places:
            fifos[number] = [sram_read(ce, fifo.base + place * fifo.words, fifo.words) for place in places]
    threads = {
        thread: (operation.k, ENDLESS if operation.n is None else operation.n)
        for thread, operation in ce.operations.items()
        if operation is not None
    }
    return {
        "regs": list(ce.regs),
        "main": ce.main,
        "pc": ce.pc,
        "threads": threads,
        "activated": ce.activated,
        "blocked": ce.blocked,
        "held": ce.held,
        "inq": {number: queue.contents() for number, queue in ce.in_queues.items() if queue.wavelets},
        "fifo": fifos,
        "dsr": {name: (dsr.base, dsr.extent[0], dsr.stride[0], dsr.index) for name, dsr in sorted(ce.dsrs.items())},
        "prng": (ce.active_prng, list(ce.prng)),
        "counters": dict(ce.counters),
    }


def waiters(ce: CE, t: int) -> list[dict[str, Any]]:
    """Return who waits here, as a list of dicts (docs/internals.md)."""
    found, here = [], {"x": ce.x, "y": ce.y}
    taken = set()
    for thread in IN_ORDER_OF_BOOKING:
        operation, reason = ce.operations[thread], ce.waits_for(thread, t)
        if operation is not None:
            taken |= {operand.dsr.queue for operand in operation.of_kind(DSD_FABIN)}
        if reason in ("free", "pipe", None):
            continue
        entry: dict[str, Any] = {
            "kind": "thread",
            **here,
            "thread": "main" if thread == MAIN else f"ut{thread}",
            "op": None,
            "reason": reason,
            "color": None,
            "queue": None,
            "done": 0,
            "length": 0,
        }
        if operation is None:
            entry["op"] = ce.code[ce.pc].op.name
        else:
            number, color = ce.queue_waited_for(thread, t)
            entry |= {
                "op": operation.op.name,
                "done": operation.k,
                "length": operation.n,
                "queue": number,
                "color": color,
            }
        found.append(entry)
    for bound, queue in ce.in_queues.items():
        if queue.wavelets and bound not in taken:
            found.append(
                {"kind": "queue", **here, "queue": bound, "color": queue.color, "wavelets": len(queue.wavelets)}
            )
    for task in range(N_TASK_IDS):
        if ce.activated >> task & 1 and ce.image.entry[task] >= 0:
            found.append({"kind": "task", **here, "task": task})
    return found
