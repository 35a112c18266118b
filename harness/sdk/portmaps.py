"""Port maps say which element of a tensor lies where on the wafer: the form in which host scripts before SDK 1.0 gave
their transfers to ``cerebras.sdk.runtime.runtime_utils``.

``{ A[j=0:7][i=0:3] -> [PE[i//2, j//4] -> index[i%2, j%4]] }`` names the tensor's axes with their first and last
number, the PE of an element, and its place among the elements there: these are in the order of their index, the first
number of which is the slowest.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.sdk.utils import input_array_to_u32
from wse_core.errors import ConfigError

__all__ = ["convert_input_tensor", "format_output_tensor", "output_array_from_u32", "prepare_output_tensor"]

AXES, INSIDE = r"((?:\[[^\]]*\]\s*)+)", r"\[(.*)\]\s*"
FORM = re.compile(rf"\{{\s*(\w+)\s*{AXES}->\s*\[\s*PE\s*{INSIDE}->\s*index\s*{INSIDE}\]\s*\}}+", re.DOTALL)
AXIS = re.compile(r"\s*(?:(\w+)\s*=)?\s*([-+*/%()\d\s]+)(?::([-+*/%()\d\s]+))?")
HINT = "{ A[j=0:7][i=0:3] -> [PE[i//2, j//4] -> index[i%2, j%4]] }"
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg,
}  # fmt: skip
Prepared = tuple[int, int, int, int, int, NDArray[Any]]
"""It is a rectangle (x, y, width, height), the number of elements of each PE, and the array that a transfer takes."""


@dataclass(frozen=True)
class PortMap:
    """A `PortMap` is a parsed one.

    Attributes
    ----------
    name : str
        That of the tensor.
    shape : tuple of int
        Sizes of the tensor's axes.
    area : tuple of int
        The rectangle (x, y, width, height).
    count : int
        Elements of each PE.
    places : array
        Per element of the tensor, in its order, the place in the array of a transfer: rows, columns, elements.
    """

    name: str
    shape: tuple[int, ...]
    area: tuple[int, int, int, int]
    count: int
    places: NDArray[np.intp]


def parsed(text: str) -> PortMap:
    """Return a port map.

    Raises
    ------
    ConfigError
        It has another form, or the PEs of its rectangle do not all have equally many elements.
    """
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no port map", hint=HINT)
    axes = [AXIS.fullmatch(entry) for entry in re.split(r"\]\s*\[|,", found[2].strip()[1:-1])]
    if any(axis is None for axis in axes):
        raise ConfigError(f"the axes {found[2].strip()} of a port map have another form", hint="[j=0:7][i=0:3]")
    ranges = [(axis[1], _bound(axis[2]), _bound(axis[3] or axis[2])) for axis in axes if axis is not None]
    shape = tuple(last - first + 1 for _, first, last in ranges)
    if min(shape) < 1:
        raise ConfigError(f"an axis of the port map {text!r} has no element")
    grids = np.meshgrid(*(np.arange(first, last + 1) for _, first, last in ranges), indexing="ij")
    names = {name: grid.ravel() for (name, _, _), grid in zip(ranges, grids, strict=True)}
    where, index = (_numbers(part, names, grids[0].size) for part in (found[3], found[4]))
    if len(where) != 2:
        raise ConfigError(f"a PE has two coordinates, not {len(where)}: PE[{found[3]}]", hint=HINT)
    (x, y), order = where, np.lexsort((*reversed(index), *where))  # by row, column, then index
    px, py, w, h = int(x.min()), int(y.min()), int(np.ptp(x)) + 1, int(np.ptp(y)) + 1
    each = np.bincount((y - py) * w + x - px, minlength=w * h)
    if each.min() != each.max():
        raise ConfigError(
            f"the PEs of the port map {text!r} have {each.min()} to {each.max()} elements, not equally many"
        )
    places = np.empty(order.size, np.intp)
    places[order] = np.arange(order.size)
    return PortMap(found[1], shape, (px, py, w, h), int(each[0]), places)


def _bound(text: str) -> int:
    """Return the first or last number of an axis, which may be an expression of numbers."""
    (found,) = _numbers(text, {}, 1)
    return int(found[0])


def _numbers(text: str, names: dict[str, NDArray[Any]], size: int) -> list[NDArray[Any]]:
    """Return what expressions of the axes give for every element."""
    try:
        plain = re.sub(r"\bmod\b", "%", text).strip()
        tree = ast.parse(f"({plain},)", mode="eval").body
    except SyntaxError:
        raise ConfigError(f"'{text}' of a port map is no expression", hint=HINT) from None
    assert isinstance(tree, ast.Tuple)
    return [np.broadcast_to(np.asarray(_number(entry, names, text)), size) for entry in tree.elts]


def _number(node: ast.AST, names: dict[str, NDArray[Any]], text: str) -> Any:
    """Return what an expression of the axes gives."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_number(node.left, names, text), _number(node.right, names, text))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_number(node.operand, names, text))
    raise ConfigError(f"'{ast.unparse(node)}' in '{text}' of a port map is not known here", hint=HINT)


def convert_input_tensor(port_map: str, tensor: NDArray[Any]) -> Prepared:
    """Return rectangle, elements of each PE and words of a tensor that is sent or copied in row-major order."""
    made = parsed(port_map)
    if tensor.size != len(made.places):
        raise ConfigError(f"the tensor has {tensor.size} elements, its port map {len(made.places)}")
    words = input_array_to_u32(tensor)
    data = np.empty_like(words)
    data[made.places] = words
    return (*made.area, made.count, data)


def prepare_output_tensor(port_map: str, dtype: Any) -> Prepared:
    """Return rectangle, elements of each PE and an array of words for a tensor that is received or copied."""
    made = parsed(port_map)
    return (*made.area, made.count, np.zeros(len(made.places), np.uint32))


def format_output_tensor(port_map: str, dtype: Any, data: NDArray[Any]) -> NDArray[Any]:
    """Return the tensor whose words came."""
    made = parsed(port_map)
    return output_array_from_u32(data.reshape(-1)[made.places], dtype).reshape(made.shape)


def output_array_from_u32(words: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Return words as numbers of a type, those of 16 bits from their lower halves."""
    kind = np.dtype(dtype)
    plain = np.ascontiguousarray(words).view(np.uint32)
    return plain.astype(np.uint16).view(kind) if kind.itemsize == 2 else plain.view(kind)
