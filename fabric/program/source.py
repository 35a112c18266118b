"""A message should name the line of the user's program, outside of the sugar."""

from __future__ import annotations

import os
import sys
from types import FrameType

from fabric.asm.instruction import Place

__all__ = ["here"]

_FABRIC = os.path.dirname(os.path.dirname(__file__))
_INSIDE = (os.path.join(_FABRIC, "program", ""), os.path.join(_FABRIC, "asm", ""), "<string>")


_NAMES: dict[str, str | None] = {}
"""A file has this name in a message; None if its code is between the user's program and the assembler."""


def here() -> Place | None:
    """Return the place of the first caller outside of this package, the assembler and contextlib."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        try:
            name = _NAMES[file]
        except KeyError:
            inside = file.startswith(_INSIDE) or file.endswith("contextlib.py")
            name = _NAMES[file] = None if inside else os.path.basename(file)
        if name:
            return Place(name, frame.f_lineno)
        frame = frame.f_back
    return None
