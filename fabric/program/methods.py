"""`Program` has one method per operation of the op table, and one refusal per operation that is not modelled.

The methods are made, but carry real signatures and docstrings: `help`, editors (`fabric/program/program.pyi`, made by
`tools/stubs.py`) and the tests see them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from fabric.asm.instruction import LETTER_NAME
from wse_core import isa
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from fabric.program.operations import Operations

__all__ = ["ATTRIBUTES", "OperationMethods", "meaning", "operand_names"]

ATTRIBUTES = {
    "priority": ("str", "medium"),
    "ut": ("int | None", None),
    "activate": ("Task | str | int | None", None),
    "unblock": ("Task | str | int | None", None),
    "again": ("Reg | None", None),
}
"""An asynchronous operation has these attributes (`Program.async_`), a synchronous one the last: type and default."""

REFUSED = ("addc16", "fnormh", "fnorms", "map")
"""The model does not have these operations of the element."""


class OperationMethods:
    """The methods are those that the op table names; each hands its operands to `Operations.operation`."""

    operations: Operations


def operand_names(op: isa.Op) -> list[str]:
    """Return the names of the operands of an ``alu`` operation, the destination first."""
    return ["dst", "a", "b", "scalar"][: sum(letter != "-" for letter in op.types)]


def meaning(op: isa.Op) -> str:
    """Return what an ``alu`` operation does in the names of its operands; the op table says a, b, c, d."""
    names = dict(zip("abcd", operand_names(op), strict=False))
    return re.sub(r"\b[abcd]\b", lambda found: names[found[0]], op.doc)


def _lanes_text(op: isa.Op) -> str:
    number = PARAMETERS.get(f"lanes.{op.name}")
    if number is None:
        return "scalar only"
    return f"{' / '.join(map(str, number.values.values()))} elements per cycle ({' / '.join(number.values)})"


def _operation_method(op: isa.Op) -> Callable[..., None]:
    names = operand_names(op)
    kinds = ", ".join(f"{n}: {LETTER_NAME[t]}" for n, t in zip(names, op.types.replace("-", ""), strict=True))
    types = ["Var | Dsd | Dsr | Reg", *["Var | Dsd | Dsr | Reg | Address | float"] * (len(names) - 1)]

    def method(self: OperationMethods, *args: Any, async_: Any = None, **attributes: Any) -> None:
        self.operations.operation(op, args, async_, attributes)

    method.__name__ = op.name
    method.__qualname__ = f"Program.{op.name}"
    method.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter("self", Parameter.POSITIONAL_ONLY),
            *(
                Parameter(name, Parameter.POSITIONAL_ONLY, annotation=kind)
                for name, kind in zip(names, types, strict=True)
            ),
            Parameter("async_", Parameter.KEYWORD_ONLY, default=None, annotation="Async | bool | None"),
            *(
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in ATTRIBUTES.items()
            ),
        ],
        return_annotation="None",
    )
    method.__doc__ = (
        f"{op.name}({', '.join(names)}): {meaning(op)}\n\n        {kinds}.\n        Vector form: {_lanes_text(op)}. "
        f"Cost class {op.cost}. Source: {op.source}.\n        Asynchronous: async_=Program.async_(...), or "
        "async_=True with its attributes beside it.\n        Again and again: again=register, a count that the "
        "operation takes 1 from each time; 0 stands for 65,536.\n        "
    )
    return method


def _refusal(feature: str) -> Callable[..., None]:
    def method(self: OperationMethods, *args: Any, **kwargs: Any) -> None:
        raise self.operations.unit.unsupported(feature)

    method.__name__ = feature
    method.__qualname__ = f"Program.{feature}"
    method.__doc__ = f"Not modelled: {isa.UNSUPPORTED[feature]}."
    return method


for _op in isa.OPS:
    if _op.form == "alu":
        setattr(OperationMethods, _op.name, _operation_method(_op))
for _feature in REFUSED:
    setattr(OperationMethods, _feature, _refusal(_feature))
