"""The bulk forms have these types; vector.pyx documents them."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

def backend() -> str: ...
def backends() -> list[str]: ...
def set_backend(name: str = "best") -> str: ...
def run(
    operation: str,
    a: NDArray[np.unsignedinteger],
    b: NDArray[np.unsignedinteger],
    k: int = 0,
    *,
    out: NDArray[np.unsignedinteger] | None = None,
    fmt: Literal["f16", "cb16"] = "f16",
    bias: int = ...,
    ftz: bool = False,
    repeat: int = 1,
) -> NDArray[np.unsignedinteger]: ...
def product(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike,
    fmt: Literal["f16", "cb16", "f32"] = "f16",
    bias: int = ...,
    ftz: bool = False,
    fused: bool = True,
) -> NDArray[np.uint16] | NDArray[np.uint32]: ...
