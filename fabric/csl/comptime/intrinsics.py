"""Functions of <math> at compile time: the machine's routines are declared there without a body."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fabric.csl.comptime.numbers import rounded
from fabric.csl.comptime.values import FunctionValue, Value
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.types import FloatType

__all__ = ["known_result"]

FUNCTIONS: dict[str, Callable[..., float]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "fscale": lambda x, k: math.ldexp(x, int(k)),
    "sig": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "cos": math.cos,
    "sin": math.sin,
    "exp": math.exp,
    "log": math.log,
    "pow": math.pow,
    "sqrt": math.sqrt,
}


def known_result(function: FunctionValue, arguments: list[Any], span: Span) -> Value | None:
    """Return the result of a function of <math> for known arguments; None for any other function without a body.

    Raises
    ------
    Fault
        Where the function has no value.
    """
    if function.module.source.name != "<math>":
        return None
    name, _, kind = function.decl.name.rpartition("_")
    if name not in FUNCTIONS:
        return None
    numbers = [argument.data for argument in arguments]
    try:
        result = float(FUNCTIONS[name](*numbers))
    except OverflowError:
        result = math.inf
    except ValueError:
        raise Fault(f"{name} has no value for {', '.join(map(str, numbers))}", span) from None
    target = FloatType(kind)
    return Value(target, rounded(result, target))
