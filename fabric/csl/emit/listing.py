"""An assembled program is shown as text: source lines, and under each the instructions that come from it, with their
cycles.

Cycles of a scalar instruction are those until what it makes can be used, or until the next one issues where it makes
nothing; of a branch those if it is not taken and if it is.  A vector operation says how many elements it does in a
cycle at best; how many there are stands with the descriptors that its DSRs were loaded with.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fabric.asm import disasm
from fabric.asm.instruction import SourcePlace
from fabric.csl.emit.program import Emitted
from fabric.price import costs
from wse_core import isa
from wse_core.isa import Op
from wse_core.params import Machine
from wse_core.params import machine as default_machine

__all__ = ["instructions", "listing"]


def instructions(emitted: Emitted, machine: Machine | None = None) -> Iterator[tuple[SourcePlace | None, str]]:
    """Yield the lines of `fabric.asm.disasm.listing`, instructions with their cycles and with where they come from."""
    numbers = machine or default_machine()
    times = {at: _cycles(op, a, numbers) for at, op, a, *_ in isa.decode(emitted.image.code)}
    for line in disasm.listing(emitted.image).splitlines():
        number = line.split(":", 1)[0].strip()
        if number.isdigit():
            yield emitted.places.get(int(number) // 2), f"{line}  ; {times[int(number) // 2]}"
        else:
            yield None, line


def listing(emitted: Emitted, machine: Machine | None = None) -> str:
    """Return the listing of a program: `fabric.asm.disasm.listing` with the source between its lines."""
    sources: dict[str, list[str]] = {}
    lines = []
    before = None
    for place, line in instructions(emitted, machine):
        if place is not None and (place.file, place.line) != before:
            before = place.file, place.line
            lines.append(f"; {place.file}:{place.line}  {_text(sources, place.file, place.line)}")
        lines.append(line)
    return "\n".join(lines)


def _cycles(op: Op, first: int, machine: Machine) -> str:
    """Return what an instruction takes; `first` is its first operand."""
    lanes = machine.lanes(op)
    if lanes and first >> 4 != isa.FILE_REG:
        return f"{lanes} elements a cycle" if lanes > 1 else "1 element a cycle"
    count = max(costs.result(machine, op), costs.follow(machine, op))
    if op.form == "br":
        return f"{count} or {costs.follow(machine, op, taken=True)} cycles"
    return f"{count} cycle{'s' * (count != 1)}"


def _text(sources: dict[str, list[str]], file: str, line: int) -> str:
    if file not in sources:
        path = Path(file)
        sources[file] = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = sources[file]
    return found[line - 1].strip() if line <= len(found) else ""
