"""Random operations on vectors, in CSL and in C; see `tests.fabric.csl.random_programs`."""

from __future__ import annotations

from tests.fabric.csl.random_values import FLOATS, LENGTH, Values, c_type, cut

__all__ = ["Vectors"]

Walk = tuple[str, str, int]
"""A descriptor in CSL, the place of its first element in C, its stride."""


class Vectors(Values):
    """Makes operations on vectors."""

    def walk(self, kind: str, count: int, write: bool = False) -> Walk:
        """Return a descriptor of `count` elements of an array; those that are written are all different."""
        room = LENGTH - 1
        strides = [s for s in (1, 1, 2, -1, *(() if write and count > 1 else (0,))) if abs(s) * (count - 1) <= room]
        stride = self.random.choice(strides)
        low, high = (0, room - stride * (count - 1)) if stride >= 0 else (-stride * (count - 1), room)
        offset = self.random.randint(low, high)
        array = f"a_{kind}"
        form = self.random.randrange(4)
        if form == 0:
            access = f"|i|{{{count}}} -> {array}[{offset} + i * {stride}]"
            return f"@get_dsd(mem1d_dsd, .{{ .tensor_access = {access} }})", str(offset), stride
        fields = f".base_address = &{array}, .extent = {count}, .stride = {stride}"
        if form == 1:
            return f"@get_dsd(mem1d_dsd, .{{ {fields}, .offset = {offset} }})", str(offset), stride
        made = f"@get_dsd(mem1d_dsd, .{{ {fields} }})"
        if form == 2:
            return f"@increment_dsd_offset({made}, {offset}, {kind})", str(offset), stride
        csl, c = self.number("u16", 1)
        mask = self.random.choice([m for m in (0, 1, 3) if m <= high - low])
        shown = f"@as(i16, {csl} & {mask}) + {low}"
        return f"@increment_dsd_offset({made}, {shown}, {kind})", f"((({c}) & {mask}) + {low})", stride

    def vector(self, depth: int) -> tuple[list[str], list[str]]:
        """Return an operation on vectors; its destination is no array that it reads."""
        kinds = self.random.choice((("i16", "u16"), ("u16", "i16"), ("f32",), ("f16",)))
        kind = kinds[0]
        count = self.random.randint(1, 6)
        if kind in FLOATS:
            return self._float_vector(kind, count)
        (dest, goes, far), (left, comes, step) = self.walk(kind, count, True), self.walk(kinds[1], count)
        op = self.random.choice(list(WHOLE))
        scalar, number = self.number(kind, 2)
        both = self.chance(0.5) and op != "@mov16"
        other, others, stride = self.walk(kinds[1], count)
        source = f"a_{kinds[1]}"
        right = f"{source}[z + {stride} * k]" if both else "w"
        lines = [
            f"{{ int64_t x = {goes}, y = {comes}, z = {others}, w = {number}, t[{count}];",
            f"  for (int k = 0; k < {count}; k++) t[k] = {WHOLE[op].replace('A', f'{source}[y + {step} * k]')};"
            .replace("B", right),
            f"  for (int k = 0; k < {count}; k++) a_{kind}[x + {far} * k] = {cut(kind, 't[k]')}; }}",
        ]  # fmt: skip
        second = other if both else scalar
        return [f"{op}({dest}, {left});" if op == "@mov16" else f"{op}({dest}, {left}, {second});"], lines

    def _float_vector(self, kind: str, count: int) -> tuple[list[str], list[str]]:
        """Return an operation of an array onto itself."""
        letter = "s" if kind == "f32" else "h"
        op = self.random.choice(list(FLOAT))
        dest, goes, far = self.walk(kind, count, True)
        scalar, number = self.float(kind, 2)
        # A fused operation rounds once; a float of 113 bits holds products and sums of 16 bits as they are.
        fused = "fmaf(A, B, A)" if kind == "f32" else "((__float128)A * B + A)"
        act = {**FLOAT, "mac": fused}[op].replace("A", "(*p)").replace("B", "b")
        lines = [
            f"{{ int64_t x = {goes}; {c_type(kind)} b = {number};",
            f"  for (int k = 0; k < {count}; k++) {{ {c_type(kind)} *p = &a_{kind}[x + {far} * k]; *p = {act}; }} }}",
        ]
        if op == "mac":
            return [f"@fmac{letter}({dest}, {dest}, {dest}, {scalar});"], lines
        one = op in ("mov", "neg", "abs")
        return [f"@f{op}{letter}({dest}, {dest if op != 'mov' else scalar}{'' if one else f', {scalar}'});"], lines


WHOLE = {"@add16": "A + B", "@sub16": "A - B", "@and16": "A & B", "@or16": "A | B", "@xor16": "A ^ B", "@mov16": "A"}
FLOAT = {
    "add": "(float)A + (float)B",
    "sub": "(float)A - (float)B",
    "mul": "(float)A * (float)B",
    "mov": "B",
    "neg": "-A",
    "abs": "fabsf(A)",
    "max": "B > A ? B : A",
    "mac": "",
}
