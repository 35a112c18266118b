"""The text log of the vendor's simulator, as far as its public viewer wse-viz reads it.

What is written, one line each, cycles in order (architecture reference, section 11.2):

====================  ================================================================================================
line                  from
====================  ================================================================================================
``dimX=, dimY=``      the smallest rectangle at the origin that holds all events
landing               the landing of a wavelet at a router
wavelet ... landing=  a router's grant; with the port when the wavelet has landed in this very cycle, with ``-`` later.
                      The five places after ``departing=/`` are E, N, W, S, R
Writing, Sending      the CE's injection, and the grant out of the ramp
Backpressure          a wait for room in an output queue, at its first cycle
Not enough wavelets   a wait for an input queue, at its first cycle
Pipe ... stall        a wait for a DSR or thread (pipe 2) or a FIFO (pipe 5), conflicts of an operation (pipe 5)
``[EX OP]``           vector operations and tasks: start, and ``IDLE`` when a task ends
====================  ================================================================================================

`ident` is 24 bits of the PE of origin, 8 bits of color and a running number, the same on the whole path.

Not written, because the model has no such stage or event: ``[IS OP]`` lines and register interlocks.

Sources: arch §11; docs/trace-format.md.
"""

from __future__ import annotations

import math

import numpy as np

from traces.naming import operation_name, task_name, task_number
from traces.paths import identify
from traces.trace import DERIVED
from wse_core.events import KINDS, WAITS, sorted_events

__all__ = ["write_log"]

NAMES = (*KINDS, *DERIVED)
PORTS = "WENSR"
PLACES = (1, 2, 0, 3, 4)  # E, N, W, S, R as numbers of ports
MAIN = 8
LINES = 1 << 14


def write_log(trace, events, stream):
    """Write the log of the events; landings are derived if they are not among them."""
    if not np.any(events["kind"] == len(KINDS)):
        events = sorted_events(np.concatenate([events, _landings(trace, events)]))
    numbers = identify(events)
    width, height = (int(events[name].max(initial=0)) + 1 for name in ("x", "y"))
    stream.write(f"@0 dimX={width}, dimY={height}\n".encode())
    idents, issued = {}, {}  # wavelet -> its ident; origin and color -> wavelets so far
    queue_of, task_of = {}, {}  # output queue of a color; task of a PE
    landings = events[events["kind"] == len(KINDS)]
    landed = set(zip(*(landings[name].tolist() for name in ("cycle", "x", "y", "color", "aux")), strict=True))
    out = []
    for event, number in zip(_rows(events), numbers.tolist(), strict=True):
        cycle, data, x, y, kind, color, aux, flags = event
        name, at = NAMES[kind], f"@{cycle} P{x}.{y}"
        if number >= 0 and number not in idents:
            origin = (y * width + x) << 8 | color
            issued[origin] = issued.get(origin, -1) + 1
            idents[number] = f"{origin << 32 | issued[origin]:016x}"
        if name == "land":
            out.append((cycle - 0.5, f"{at} (hwtile) landing C{color} from link {PORTS[aux]}, "))
        elif name == "depart":
            port = flags >> 1 & 7
            now = port == 4 or (cycle, x, y, color ^ (flags >> 4 & 1), port) in landed
            places = "".join("ENWSR"[k] if aux >> direction & 1 else " " for k, direction in enumerate(PLACES))
            to_ce = " to_ce_from_router" if aux >> 4 & 1 else ""
            out.append(
                (
                    cycle,
                    f"{at} (hwtile) wavelet C{color} ctrl={flags & 1}, idx={data >> 16:04x}, "
                    f"data={data & 0xFFFF:04x} {_decoded(data)}, half=0, ident={idents[number]} "
                    f"landing={PORTS[port] if now else '-'} departing=/{places}/{to_ce}",
                )
            )
            if port == 4:
                out.append(
                    (
                        cycle,
                        f"{at}: (hwtile) Sending wavelet C{color} {data:08x} ident:{idents[number]} "
                        f"on OUT_Q[{queue_of.get((x, y, color), 0)}]",
                    )
                )
        elif name == "inject":
            queue_of[x, y, color] = aux
            out.append((cycle, f"{at}: (hwtile) Writing wavelet C{color} {data:08x} to OUT_Q[{aux}]"))
        elif name == "wait":
            out.append(
                (
                    cycle - data,
                    f"{at.replace(f'@{cycle}', f'@{cycle - data}')}: (hwtile) "
                    f"{_stall(WAITS[aux], color, flags >> 1 & 7)}",
                )
            )
        elif name == "conflict":
            out.append((cycle, f"{at}: (hwtile) Pipe: 5, Msg: stall: read conflict, {data} cycles of this operation"))
        elif name == "op_start":
            thread = f"T{task_of.get((x, y), 0)}" + ("" if aux == MAIN else f".UT{aux}")
            out.append(
                (
                    cycle,
                    f"{at}: (hwtile) [EX OP] ^ 0x{data & 0xFFFF:04x}: {thread} "
                    f"{operation_name(trace.names, data >> 16).upper().replace(' ', '_')} ",
                )
            )
        elif name == "task_start":
            task_of[x, y] = aux
            label = task_name(trace.names, task_number(aux, flags)).upper().replace(" ", "_")
            out.append((cycle, f"{at}: (hwtile) [EX OP] ^ 0x{data:04x}: T{aux} START_{label} "))
        elif name == "task_end":
            out.append((cycle, f"{at}: (hwtile) [EX OP] IDLE"))
    out.sort(key=lambda item: item[0])  # landings come before the grants of their cycle
    for start in range(0, len(out), LINES):
        stream.write("".join(f"{line}\n" for _, line in out[start : start + LINES]).encode())


def _rows(events):
    return zip(
        *(events[name].tolist() for name in ("cycle", "data", "x", "y", "kind", "color", "aux", "flags")), strict=True
    )


def _landings(trace, events):
    """Return the landings within the cycles of the events; none if the file does not say what a hop takes."""
    if not len(events) or "depart" not in trace.filter.kinds or "router.hop" not in trace.meta.machine:
        return events[:0]
    cycles = int(events["cycle"].min()), int(events["cycle"].max()) + 1
    x, y = (int(events[name].min()) for name in ("x", "y"))
    region = (x, y, int(events["x"].max()) + 1 - x, int(events["y"].max()) + 1 - y)
    colors = sorted(set(np.unique(events["color"]).tolist()) - {255})
    return trace.events(cycles=cycles, kinds=("land",), region=region, colors=colors)


def _decoded(data):
    """Return the lower half as the viewer shows it: value of an f16 and its exponent."""
    value = float(np.uint16(data & 0xFFFF).view(np.float16))
    exponent = math.frexp(value)[1] - 1 if value and math.isfinite(value) else -15
    return f"({value:+.3f}({exponent}))"


def _stall(reason, color, queue):
    """Return the text of a wait."""
    return {
        "input": f"Not enough wavelets (0/1) for SRC0 with C{color}, IN_Q[{queue}], SIMD-1",
        "output": f"Backpressure on C{color} for OUT_Q[{queue}]",
        "fifo": "Pipe: 5, Msg: stall: fifo",
        "resource": "Pipe: 2, Msg: stall: dependent DDS0",
    }[reason]
