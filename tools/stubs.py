"""The stub ``fabric/program/program.pyi`` is what editors and type checkers see of `Program`.

Its methods are made when it is imported, so no checker finds them in the source.

    python -m tools.stubs            # print
    python -m tools.stubs --write    # write fabric/program/program.pyi

A test keeps the file in step with the op table and the parts.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

from fabric.program.methods import REFUSED, operand_names
from fabric.program.program import Program
from traces.provenance import ROOT
from wse_core import isa

__all__ = ["FILE", "main", "text"]

FILE = ROOT / "fabric" / "program" / "program.pyi"
WIDTH = 120

HEAD = '''"""The face of `Program` for editors and type checkers.

Written by `python -m tools.stubs --write`; do not edit.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, TypedDict, Unpack

from numpy.typing import ArrayLike

from fabric.asm.operands import Address, Async, Dsd, Dsr, Label, Queue, Reg, Task, Var
from fabric.asm.unit import Unit
from fabric.program.blocks import Blocks
from fabric.program.dsrs import Dsrs
from fabric.program.flow import Flow, Kind
from fabric.program.memory import ProgramMemory
from fabric.program.operations import Operations
from fabric.program.ports import Ports
from fabric.program.registers import ByNumber, Registers
from fabric.program.scalar import Scalars
from fabric.program.tasks import ProgramTasks
from wse_core.formats import Half
from wse_core.image import ProgramImage
from wse_core.params import Machine

_Dst = Var | Dsd | Dsr | Reg
_Src = Var | Dsd | Dsr | Reg | Address | float
_Async = Async | bool | None
_Task = Task | str | int

class _Attributes(TypedDict, total=False):
    """Attributes of an asynchronous operation, as `Program.async_` has them, and `again` of a synchronous one."""

    priority: str
    ut: int | None
    activate: _Task | None
    unblock: _Task | None
    again: Reg | None

class Program:
    """A PE program; see `fabric.program.program`."""

    unit: Unit
    registers: Registers
    memory: ProgramMemory
    ports: Ports
    dsrs: Dsrs
    operations: Operations
    scalars: Scalars
    blocks: Blocks
    tasks: ProgramTasks
    flow: Flow
'''


def text() -> str:
    """Return the text of ``program.pyi``."""
    operations = {op.name: op for op in isa.OPS if op.form == "alu"}
    parts = [HEAD]
    for name, member in _members():
        if isinstance(member, property):
            parts.append(f"    @property\n{_function(name, member.fget)}")
        elif name in operations:
            parts.append(_operation(operations[name]))
        elif name in REFUSED:
            parts.append(_lines(name, ["self", "*args: Any", "**kwargs: Any"], "None", inspect.getdoc(member) or ""))
        else:
            parts.append(_function(name, member))
    return "".join(part if part.endswith(": ...\n") else f"{part}\n" for part in parts).rstrip("\n") + "\n"


def _members() -> Iterator[tuple[str, Any]]:
    """Yield what the class offers: its own things in order, then the operations in the order of the table."""
    for name, member in vars(Program).items():
        if name in ("__init__", "__repr__") or not name.startswith("_"):
            yield name, member
    for name in (*(op.name for op in isa.OPS if op.form == "alu"), *REFUSED):
        yield name, getattr(Program, name)


def _function(name: str, function: Any) -> str:
    """Return a method as its signature says; a generator behind `contextmanager` gives a context manager."""
    signature = inspect.signature(function)
    returned = str(signature.return_annotation)
    if inspect.isgeneratorfunction(inspect.unwrap(function)):
        returned = re.sub(r"^Iterator\[", "AbstractContextManager[", returned)
    doc = inspect.getdoc(function) or ""
    if name.startswith("__"):
        doc = ""
    parameters = signature.parameters.values()
    return _lines(name, [str(p) if p.annotation is p.empty else _parameter(p) for p in parameters], returned, doc)


def _parameter(p: inspect.Parameter) -> str:
    star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
    kind = str(p.annotation).replace("'", '"')
    return f"{star}{p.name}: {kind}" + ("" if p.default is p.empty else f" = {_default(p.default)}")


def _default(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _operation(op: isa.Op) -> str:
    """Return a method of the op table: operands by their places, attributes of asynchronous ones by name."""
    operands = [f"{name}: {'_Dst' if name == 'dst' else '_Src'}" for name in operand_names(op)]
    keywords = ["/", "*", "async_: _Async = None", "**attributes: Unpack[_Attributes]"]
    return _lines(op.name, ["self", *operands, *keywords], "None", inspect.getdoc(getattr(Program, op.name)) or "")


def _lines(name: str, parameters: list[str], returned: str, doc: str) -> str:
    """Return a method with the first sentence of its docstring, broken as the formatter breaks it."""
    inside = ", ".join(parameters)
    head = f"    def {name}({inside}) -> {returned}:"
    if len(head) > WIDTH or (not doc and len(head) + 4 > WIDTH):
        whole = f"        {inside}\n"
        each = "".join(f"        {p},\n" for p in parameters)
        head = f"    def {name}(\n{whole if len(whole) <= WIDTH + 1 else each}    ) -> {returned}:"
    if not doc:
        return f"{head} ...\n"
    return f'{head}\n        """{doc.splitlines()[0]}"""\n'


def main(argv: list[str] | None = None) -> int:
    """Print or write the file."""
    parser = argparse.ArgumentParser(prog="python -m tools.stubs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    if parser.parse_args(argv).write:
        FILE.write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
