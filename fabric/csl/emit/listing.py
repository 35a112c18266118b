"""An assembled program as text: source lines, and under each the instructions that come from it."""

from __future__ import annotations

from pathlib import Path

from fabric.asm import disasm
from fabric.csl.emit.program import Emitted

__all__ = ["listing"]


def listing(emitted: Emitted) -> str:
    """Return the listing of a program: `fabric.asm.disasm.listing` with the source between its lines."""
    sources: dict[str, list[str]] = {}
    lines = []
    before = None
    for line in disasm.listing(emitted.image).splitlines():
        number = line.split(":", 1)[0].strip()
        place = emitted.places.get(int(number) // 2) if number.isdigit() else None
        if place is not None and (place.file, place.line) != before:
            before = place.file, place.line
            lines.append(f"; {place.file}:{place.line}  {_text(sources, place.file, place.line)}")
        lines.append(line)
    return "\n".join(lines)


def _text(sources: dict[str, list[str]], file: str, line: int) -> str:
    if file not in sources:
        path = Path(file)
        sources[file] = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = sources[file]
    return found[line - 1].strip() if line <= len(found) else ""
