"""Typed errors are made from the record of a fault that stopped an engine."""

from __future__ import annotations

from typing import Any

from fabric.asm import disasm
from wse_core import isa
from wse_core.encoding import N_QUEUES
from wse_core.errors import MachineFault, MemoryLimitError, ProgramFault, QueueFault, RouterFault, SramFault, WseError
from wse_core.image import FabricSpec, ProgramImage

__all__ = ["fault_error"]

_FAULTS = {
    "sram": SramFault,
    "program": ProgramFault,
    "queue": QueueFault,
    "collision": RouterFault,
    "router": RouterFault,
    "memory": MemoryLimitError,
}
_FAULT_TEXT = {
    "sram_range": "access outside the data of the program",
    "sram_align": "32-bit access to an odd address",
    "memory": "the host has no memory for what the machine has to keep",
}
_LOOK_INSIDE = 4096  # PEs up to which an error looks for the instruction that failed


def fault_error(engine: Any, spec: FabricSpec) -> WseError:
    """Return the error that describes the fault at which `engine` stopped."""
    record: dict[str, Any] = dict(engine.fault)
    kind = str(record.get("kind", "program"))
    name = kind.lower().removesuffix("fault").split("_")[0]
    error = _FAULTS.get(name, MachineFault)
    what = str(record.get("detail") or "")
    if kind in _FAULT_TEXT:
        what = _FAULT_TEXT[kind] + (f" ({what})" if what else "")
    if error is MemoryLimitError:
        return error(what or _FAULT_TEXT["memory"], where=f"PE ({record.get('x')}, {record.get('y')})")
    x, y = int(record["x"]), int(record["y"])
    address = record.get("address")
    color = record.get("color")
    if address is None or address < 0:
        address = None
    parts = {
        "x": x,
        "y": y,
        "cycle": record.get("cycle"),
        "address": address,
        "color": color if color is not None and color >= 0 else None,
    }
    cause, hint = None, None
    if error is RouterFault:
        hint = "one color per input, or sends that cannot overlap"
    elif error is SramFault:
        program = _program_at(spec, x, y)
        if program is not None:
            hint = (
                f"data of program {program.name!r} are words {program.code_words} .. {program.footprint - 1}: "
                "check extents, strides and index registers"
            )
    value = record.get("value")
    if "trap" in what and value is not None:
        what = f"trap {value}" if value else "calls of a function in itself nest too deep"
    if error is QueueFault and value is not None:
        what = f"{what} (queue {value % N_QUEUES})"
        hint = "in CSL: @initialize_queue(queue, .{ .color = ... })"
    return error(
        what or f"{kind} fault",
        **parts,
        cause=cause,
        hint=hint,
        detail=None if error is RouterFault else _place_of(engine, spec, x, y),
    )


def _program_at(spec: FabricSpec, x: int, y: int) -> ProgramImage | None:
    k = spec.program_index[y, x]
    return spec.programs[k] if k >= 0 else None


def _place_of(engine: Any, spec: FabricSpec, x: int, y: int) -> str | None:
    """Return the instruction a PE stands at, as text, if that is cheap to find out."""
    program = _program_at(spec, x, y)
    if program is None or spec.program_index.size > _LOOK_INSIDE:
        return None
    pe = engine.snapshot()["pe"].get((x, y), {})
    at = pe.get("pc", -1)
    line = _line_before(program, at)
    return "\n".join(part for part in (line, disasm.around(program, at)) if part)


def _line_before(program: ProgramImage, at: int) -> str:
    """Return the line of CSL of the instruction before a place in a program: what has failed is the last one issued."""
    done = [word for word, *_ in isa.decode(program.code) if word < at]
    line = program.lines.get(done[-1], "") if done else ""
    return f"  in {line}" if line.partition(":")[0].endswith(".csl") else ""
