"""Random operations on vectors, with what they mean; see `tests.fabric.csl.random_programs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fabric.csl.random_values import FLOATS, LENGTH, Act, State, Text, Values, wrapped

__all__ = ["Vectors"]


class Vectors(Values):
    """Makes operations on vectors."""

    def walk(self, kind: str, count: int) -> tuple[Text, Act]:
        """Return a descriptor of `count` elements of an array and the places that it visits."""
        room = LENGTH - 1
        stride = self.random.choice([s for s in (1, 1, 2, -1, 0) if abs(s) * (count - 1) <= room])
        low, high = (0, room - stride * (count - 1)) if stride >= 0 else (-stride * (count - 1), room)
        offset = self.random.randint(low, high)
        array = f"a_{kind}"
        known = lambda s: [offset + stride * k for k in range(count)]  # noqa: E731
        form = self.random.randrange(4)
        if form == 0:
            access = f"|i|{{{count}}} -> {array}[{offset} + i * {stride}]"
            return f"@get_dsd(mem1d_dsd, .{{ .tensor_access = {access} }})", known
        fields = f".base_address = &{array}, .extent = {count}, .stride = {stride}"
        if form == 1:
            return f"@get_dsd(mem1d_dsd, .{{ {fields}, .offset = {offset} }})", known
        made = f"@get_dsd(mem1d_dsd, .{{ {fields} }})"
        if form == 2:
            return f"@increment_dsd_offset({made}, {offset}, {kind})", known
        text, by = self.number("u16", 1)
        mask = self.random.choice([m for m in (0, 1, 3) if m <= high - low])
        shown = f"@as(i16, {text} & {mask}) + {low}"
        return (
            f"@increment_dsd_offset({made}, {shown}, {kind})",
            lambda s: [(by(s) & mask) + low + stride * k for k in range(count)],
        )

    def vector(self, depth: int) -> tuple[list[str], Act]:
        """Return an operation on vectors; its destination is no array that it reads."""
        kinds = self.random.choice((("i16", "u16"), ("u16", "i16"), ("f32",), ("f16",)))
        kind = kinds[0]
        count = self.random.randint(1, 6)
        if kind in FLOATS:
            return self._float_vector(kind, count)
        (dest, goes), (left, comes) = self._target(kind, count), self.walk(kinds[1], count)
        op, act = self.random.choice(list(WHOLE.items()))
        scalar, number = self.number(kind, 2)
        both = self.chance(0.5) and op not in ("@mov16",)
        other, others = self.walk(kinds[1], count)

        def run(s: State) -> None:
            target, source = s.globals[f"a_{kind}"], s.globals[f"a_{kinds[1]}"]
            right = [source[k] for k in others(s)] if both else [number(s)] * count
            pairs = list(zip(goes(s), [source[k] for k in comes(s)], right, strict=True))
            for place, a, b in pairs:
                target[place] = wrapped(act(a, b), kind)

        second = other if both else scalar
        return [f"{op}({dest}, {left});" if op == "@mov16" else f"{op}({dest}, {left}, {second});"], run

    def _target(self, kind: str, count: int) -> tuple[Text, Act]:
        """Return a destination whose elements are all different."""
        while True:
            made = self.walk(kind, count)
            if " .stride = 0" not in made[0] and "* 0]" not in made[0]:
                return made
            if count == 1:
                return made

    def _float_vector(self, kind: str, count: int) -> tuple[list[str], Act]:
        """Return an operation of a matrix row or an array onto another array."""
        letter, make = ("s", np.float32) if kind == "f32" else ("h", np.float16)
        op = self.random.choice(("add", "sub", "mul", "mov", "neg", "abs", "max", "mac"))
        dest, goes = self._target(kind, count)
        scalar, number = self.float(kind, 2)
        array = f"a_{kind}"

        def run(s: State) -> None:
            values, b = s.globals[array], number(s)
            for place in goes(s):
                a = values[place]
                values[place] = make(FLOAT[op](a, b, make))

        if op == "mac":  # fused: the product is not rounded
            return [f"@fmac{letter}({dest}, {dest}, {dest}, {scalar});"], run
        one = op in ("mov", "neg", "abs")
        return [f"@f{op}{letter}({dest}, {dest if op != 'mov' else scalar}{'' if one else f', {scalar}'});"], run


WHOLE: dict[str, Callable[[int, int], int]] = {
    "@add16": lambda a, b: a + b,
    "@sub16": lambda a, b: a - b,
    "@and16": lambda a, b: a & b,
    "@or16": lambda a, b: a | b,
    "@xor16": lambda a, b: a ^ b,
    "@mov16": lambda a, b: a,
}
FLOAT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda a, b, make: a + b,
    "sub": lambda a, b, make: a - b,
    "mul": lambda a, b, make: a * b,
    "mov": lambda a, b, make: b,
    "neg": lambda a, b, make: -a,
    "abs": lambda a, b, make: abs(a),
    "max": lambda a, b, make: max(a, b),
    "mac": lambda a, b, make: np.float64(a) + np.float64(a) * np.float64(b),
}
