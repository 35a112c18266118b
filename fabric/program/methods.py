"""One method of `Program` per operation of the op table, and one refusal per operation that is not modelled.

The methods are made, but carry real signatures and docstrings: `help`, editors (`fabric/program/program.pyi`, made by
`fabric.program.stubs`) and the tests see them.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from fabric.asm.instruction import LETTER_NAME
from wse_core import isa
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from fabric.program.operations import Operations

__all__ = ["OperationMethods", "operand_names"]

REFUSED = ("addc16", "fnormh", "fnorms", "map")
"""Operations of the element that the model has not."""


class OperationMethods:
    """The methods that the op table names; each hands its operands to `Operations.operation`."""

    operations: Operations


def operand_names(op: isa.Op) -> list[str]:
    """Return the names of the operands of an ``alu`` operation, the destination first."""
    return ["dst", "a", "b", "scalar"][: sum(letter != "-" for letter in op.types)]


def _lanes_text(op: isa.Op) -> str:
    number = PARAMETERS.get(f"lanes.{op.name}")
    if number is None:
        return "scalar only"
    return f"{' / '.join(map(str, number.values.values()))} elements per cycle ({' / '.join(number.values)})"


def _operation_method(op: isa.Op) -> Callable[..., None]:
    names = operand_names(op)
    kinds = ", ".join(f"{n}: {LETTER_NAME[t]}" for n, t in zip(names, op.types.replace("-", ""), strict=True))

    def method(self: OperationMethods, *args: Any, async_: Any = None, **attributes: Any) -> None:
        self.operations.operation(op, args, async_, attributes)

    method.__name__ = op.name
    method.__qualname__ = f"Program.{op.name}"
    method.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            *(Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("self", *names)),
            Parameter("async_", Parameter.KEYWORD_ONLY, default=None),
            Parameter("attributes", Parameter.VAR_KEYWORD),
        ]
    )
    method.__doc__ = (
        f"{op.name}({', '.join(names)}): {op.doc}\n\n        In the table's words a is the destination, b, c and d are "
        f"the sources in order.\n        {kinds}.\n        Vector form: {_lanes_text(op)}. Cost class {op.cost}. "
        f"Source: {op.source}.\n        Keywords: async_=True or Program.async_(...), or its attributes beside "
        "async_=True.\n        "
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
