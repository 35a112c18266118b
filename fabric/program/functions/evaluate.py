"""Functions are evaluated on arrays of bit patterns, with the roundings of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import is_number
from fabric.program.functions.mathematics import Functions
from wse_core import numerics
from wse_core.params import Machine

__all__ = ["EvaluatedFunctions"]


class FloatVector(np.ndarray):
    """A `FloatVector` has bit patterns of f32 with views of their halves."""

    @property
    def low(self) -> NDArray[np.uint16]:
        return self.view(np.ndarray).view(np.uint16)[0::2]

    @property
    def high(self) -> NDArray[np.uint16]:
        return self.view(np.ndarray).view(np.uint16)[1::2]


HALVES = {"add16": np.add, "sub16": np.subtract, "and16": np.bitwise_and, "slr16": np.right_shift, "mov16": np.positive}


class EvaluatedFunctions(Functions):
    """The same functions of arrays of bit patterns (uint32): each returns an array of their shape, `gelu` two.

    Parameters
    ----------
    machine : Machine
        For its treatment of subnormal numbers and of multiply-adds.
    """

    def __init__(self, machine: Machine) -> None:
        self.ftz, self.fused = bool(machine["num.ftz"]), machine["num.fmac"] == "fused"

    def over(self, function: Callable[..., None], source: Any, results: int = 1) -> Any:
        """Return what a function writes, on fresh arrays."""
        source = np.array(source, "<u4", ndmin=1)
        flat = source.ravel().view(FloatVector)
        self.u, self.v, self.w, self.t, self.q, self.x, *found = (np.zeros_like(flat) for _ in range(6 + results))
        function(*found, flat)
        found = [np.asarray(bits).view(np.uint32).reshape(source.shape) for bits in found]
        return found[0] if results == 1 else tuple(found)

    def exp(self, source: Any) -> NDArray[np.uint32]:  # type: ignore[override]
        return self.over(super().exp, source)

    def log(self, source: Any) -> NDArray[np.uint32]:  # type: ignore[override]
        return self.over(super().log, source)

    def reciprocal(self, source: Any) -> NDArray[np.uint32]:  # type: ignore[override]
        return self.over(super().reciprocal, source)

    def rsqrt(self, source: Any) -> NDArray[np.uint32]:  # type: ignore[override]
        return self.over(super().rsqrt, source)

    def gelu(self, source: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:  # type: ignore[override]
        return self.over(super().gelu, source, 2)

    def gelu_erf(self, source: Any) -> NDArray[np.uint32]:  # type: ignore[override]
        return self.over(super().gelu_erf, source)

    @contextmanager
    def call(self) -> Iterator[None]:
        yield

    def calculate(self, name: str, dest: Any, *operands: Any) -> None:
        """Set dest; numbers are rounded to f32 as the program's constants are."""
        bits = [np.float32(x).view(np.uint32) if is_number(x) else np.asarray(x) for x in operands]
        whole = (x if x.shape == dest.shape else np.full(dest.shape, x) for x in bits)
        more = {} if name != "fma" else {"fused": self.fused}
        dest[...] = getattr(numerics, name)(*whole, "f32", ftz=self.ftz, **more)

    def half(self, name: str, dest: Any, *sources: Any) -> None:
        dest[...] = HALVES[name](*(np.uint16(x) if is_number(x) else x for x in sources))

    def mul(self, dest: Any, a: Any, b: Any) -> None:
        self.calculate("mul", dest, a, b)

    def add(self, dest: Any, a: Any, b: Any) -> None:
        self.calculate("add", dest, a, b)

    def sub(self, dest: Any, a: Any, b: Any) -> None:
        self.calculate("sub", dest, a, b)

    def fma(self, dest: Any, a: Any, b: Any, c: Any) -> None:
        self.calculate("fma", dest, b, c, a)

    def maximum(self, dest: Any, a: Any, b: Any) -> None:
        self.calculate("maximum", dest, a, b)

    def minimum(self, dest: Any, a: Any, b: Any) -> None:
        self.calculate("minimum", dest, a, b)

    def move(self, dest: Any, a: Any) -> None:
        dest[...] = np.float32(a).view(np.uint32) if is_number(a) else a
