"""A front end hands these to `fabric.asm.unit`: symbolic instructions, places in a source, and references to tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from wse_core import isa

__all__ = ["HERE", "LETTER_NAME", "MOVES", "Ask", "At", "Body", "Instruction", "SourcePlace", "TaskRef"]

LETTER_NAME = {"h": "16-bit float", "i": "16-bit integer", "s": "f32", "l": "32-bit integer"}
"""Each letter of the op table's types is this in words."""
MOVES = frozenset({"mov16", "mov32"})
"""These operations are copies of bits: any element type of the right size will do."""


class SourcePlace(NamedTuple):
    """A `SourcePlace` is where something stands in the source of a front end; messages show it."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.column is None else f"{self.file}:{self.line}:{self.column}"


class Ask:
    """As the default of a parameter `at` it asks the front end (`Unit.here`) for the place."""

    def __repr__(self) -> str:
        return "HERE"


HERE = Ask()
At = SourcePlace | Ask | None
"""What is passed as a place; None = there is none."""


@dataclass(slots=True, eq=False)
class Instruction:
    """An `Instruction` is symbolic: its operands have yet to become numbers.

    Attributes
    ----------
    op : Op
        Row of the op table (`wse_core.isa.OPS`).
    a, b, c, d : int, Dsr or TaskRef
        Operand fields: encoded ones, or what becomes one when the unit is assembled.
    imm
        What the extension word is made of: an int, an `Address`, an `Async`, a `Label` or its name, or for ``dsr_load``
        the pair (`Dsd`, `Dsr`).  None = no extension word.
    at : SourcePlace or None
    body : str
        Name of the task or function that it belongs to.
    """

    op: isa.Op
    a: Any = 0
    b: Any = 0
    c: Any = 0
    d: Any = 0
    imm: Any = None
    at: SourcePlace | None = None
    body: str = ""


@dataclass(slots=True)
class Body:
    """The task or function that is being written; `kind` is ``local``, ``data``, ``control`` or ``function``."""

    name: str
    kind: str


@dataclass(slots=True)
class TaskRef:
    """A `TaskRef` is a task as an instruction or descriptor names it (`Task`, name or id), and what for: the word of
    messages.
    """

    task: Any
    use: str
