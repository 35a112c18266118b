"""A message should name the line of the user's program, outside of the sugar."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from fabric.asm.instruction import SourcePlace

__all__ = ["here"]

_FABRIC = os.path.dirname(os.path.dirname(__file__))
_INSIDE = (os.path.join(_FABRIC, "program", ""), os.path.join(_FABRIC, "asm", ""), "<string>")


_NAMES: dict[str, str | None] = {}
"""A file has this name in a message; None if its code is between the user's program and the assembler."""
_PLACES: dict[tuple[int, int], tuple[CodeType, SourcePlace]] = {}
"""A place is known by the identity of its code, which is kept for that, and the instruction there: the line of an
instruction is looked for in a table from its beginning on, and what writes programs comes by the same places again.
"""
MOST_PLACES = 1 << 16


def here() -> SourcePlace | None:
    """Return the place of the first caller outside of this package, the assembler and contextlib.

    The assembler asks, for a method of this package: the first two callers are never outside, and making objects of
    their frames would take time.
    """
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        try:
            name = _NAMES[file]
        except KeyError:
            inside = file.startswith(_INSIDE) or file.endswith("contextlib.py")
            name = _NAMES[file] = None if inside else os.path.basename(file)
        if name:
            at = id(code), frame.f_lasti
            found = _PLACES.get(at)
            if found is None:
                if len(_PLACES) >= MOST_PLACES:
                    _PLACES.clear()
                found = _PLACES[at] = code, SourcePlace(name, frame.f_lineno)
            return found[1]
        frame = frame.f_back
    return None
