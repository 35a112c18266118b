"""Random expressions and places of a program, in CSL and in C; see `tests.fabric.csl.random_programs`.

In C each integer is an ``int64_t`` that holds the value (of ``u64`` its bits), cut to its width after every operation
by the macros S and U; a float is one of C.  Literals are names of the program, so that the same text has them known
(``const``) or unknown (``var``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["NUMPY", "Function", "Pair", "Values", "c_type", "cut", "value_in_c"]

INTEGERS = {
    "i16": (16, True),
    "u16": (16, False),
    "i32": (32, True),
    "u32": (32, False),
    "i8": (8, True),
    "u8": (8, False),
    "i64": (64, True),
    "u64": (64, False),
}
FLOATS: dict[str, Any] = {"f32": np.float32, "f16": np.float16}
KINDS = [*INTEGERS, *FLOATS, "bool"]
DRAWN = ["i16", "u16", "i16", "u16", "i32", "u32", "i32", "u32", "f32", "f32", "f16", "i8", "u8", "bool", "i64", "u64"]
"""Kinds as often as they are drawn."""
NUMPY = {
    "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4", "i8": "i1", "u8": "u1", "i64": "i8", "u64": "u8",
    "f32": "f4", "f16": "f2", "bool": "u2",
}  # fmt: skip
LENGTH = 8
"""Elements of a global array."""
ROWS, COLUMNS = 3, 5
RECORD = {"a": "i16", "b": "u32", "c": "f32", "d": "u16"}

Pair = tuple[str, str]
"""The same in CSL and in C."""


def c_type(kind: str) -> str:
    """Return the type of a value in C."""
    return {"f32": "float", "f16": "_Float16"}.get(kind, "int64_t")


def cut(kind: str, text: str) -> str:
    """Return a whole number of C as one of an integer type."""
    bits, signed = INTEGERS[kind]
    return f"{'S' if signed else 'U'}({bits}, {text})"


def value_in_c(value: Any, kind: str) -> str:
    """Return a literal of C."""
    if kind in FLOATS:
        return f"(({c_type(kind)}){float(value).hex()})"
    return f"((int64_t){int(value) & (1 << 64) - 1}ULL)"


def ends(kind: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    bits, signed = INTEGERS[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


@dataclass
class Function:
    """A function of the program that others may call."""

    name: str
    params: list[tuple[str, str]]
    result: str
    pure: bool
    writes: list[tuple[str, str]] = field(default_factory=list)
    """Globals that it sets: type and name."""


@dataclass
class Literal:
    """A number of the program."""

    name: str
    kind: str
    value: Any

    def declared(self, known: bool) -> str:
        """Return its declaration in CSL."""
        text = Values.shown(self.value, self.kind)
        return f"{'const' if known else 'var'} {self.name}: {self.kind} = {text};"


@dataclass
class Globals:
    """Variables of the program: declarations in CSL and C, types by name, and whether they are arrays."""

    csl: list[str] = field(default_factory=list)
    c: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Values:
    """Makes globals and expressions of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.globals = Globals()
        self.literals: list[Literal] = []
        self.functions: list[Function] = []
        self.scope: list[tuple[str, str, bool]] = []
        """Locals in sight: name, type, whether it may be set."""
        self.names = 0
        self.loops: list[tuple[str | None, str]] = []
        """Loops around: label if any, and the name of its labels in C."""
        self.result: str | None = None
        self.writes: list[tuple[str, str]] = []
        self.pure = False
        self._globals()

    # ---- pieces

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}_{self.names}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def drawn(self, kind: str) -> Any:
        """Return a value of a type, often one near its ends."""
        if kind == "bool":
            return self.chance(0.5)
        if kind in FLOATS:
            most = float(np.finfo(FLOATS[kind]).max)
            least = float(np.finfo(FLOATS[kind]).smallest_subnormal)
            some = (0.0, 1.0, -2.5, 0.125, self.random.randint(-40, 40) / 4)
            return FLOATS[kind](self.random.choice((*some, *some, *some, most, -most, least)))
        low, high = ends(kind)
        near = self.random.choice((low, high, (low + high) // 2)) + self.random.randint(-2, 2)
        some = (min(high, max(low, near)), 0, 1, 2, 7, self.random.randint(low, high), self.random.randint(0, 20))
        return self.random.choice(some)

    def literal(self, kind: str, value: Any = None) -> Pair:
        """Return a number that the program knows, or does not."""
        made = Literal(self.name("c"), kind, self.drawn(kind) if value is None else value)
        self.literals.append(made)
        return made.name, value_in_c(made.value, kind)

    @staticmethod
    def shown(value: Any, kind: str) -> str:
        if kind == "bool":
            return "true" if value else "false"
        return f"{float(value)!r}" if kind in FLOATS else str(value)

    def _globals(self) -> None:
        made = self.globals
        for kind in KINDS:
            name, value = f"g_{kind}", self.drawn(kind)
            made.csl.append(f"var {name}: {kind} = {self.shown(value, kind)};")
            made.c.append(f"{c_type(kind)} {name} = {value_in_c(value, kind)};")
            made.kinds[name], made.counts[name] = kind, 1
            if kind == "bool":
                continue
            values = [self.drawn(kind) for _ in range(LENGTH)]
            text = ", ".join(self.shown(value, kind) for value in values)
            made.csl.append(f"var a_{kind} = [{LENGTH}]{kind}{{ {text} }};")
            text = ", ".join(value_in_c(value, kind) for value in values)
            made.c.append(f"{c_type(kind)} a_{kind}[{LENGTH}] = {{ {text} }};")
            made.kinds[f"a_{kind}"], made.counts[f"a_{kind}"] = kind, LENGTH
        for kind in ("i16", "f32"):
            name = f"m_{kind}"
            made.csl.append(f"var {name} = @zeros([{ROWS}, {COLUMNS}]{kind});")
            made.c.append(f"{c_type(kind)} {name}[{ROWS * COLUMNS}] = {{ 0 }};")
            made.kinds[name], made.counts[name] = kind, ROWS * COLUMNS
        parts = ", ".join(f"{name}: {kind}" for name, kind in RECORD.items())
        made.csl.append(f"const Record = struct {{ {parts} }};")
        made.c.append("struct { " + " ".join(f"{c_type(kind)} {name};" for name, kind in RECORD.items()))
        drawn = {which: {name: self.drawn(kind) for name, kind in RECORD.items()} for which in ("s", "t")}
        for which, values in drawn.items():
            text = ", ".join(f".{name} = {self.shown(v, RECORD[name])}" for name, v in values.items())
            made.csl.append(f"var {which}_record = Record{{ {text} }};")
        rows = [
            f"{which}_record = {{ {', '.join(value_in_c(v, RECORD[name]) for name, v in values.items())} }}"
            for which, values in drawn.items()
        ]
        made.c[-1] += " } " + ", ".join(rows) + ";"

    # ---- places

    def index(self, depth: int, size: int = LENGTH) -> Pair:
        """Return an index of an array."""
        csl, c = self.number(self.random.choice(("u16", "i16")), depth)
        if size == LENGTH and self.chance(0.7):
            return f"(@as(u16, {csl}) & {size - 1})", f"(({c}) & {size - 1})"
        at = self.random.randrange(size)
        return str(at), str(at)

    def place(self, kind: str, depth: int, write: bool) -> Pair:
        """Return something that holds a number of a type."""
        own = [name for name, other, free in self.scope if other == kind and (free or not write)]
        choice = self.random.random()
        if own and (choice < 0.55 or (write and self.pure)):
            name = self.random.choice(own)
            return name, name
        if kind in RECORD.values() and choice < 0.65:
            which = self.random.choice(("s_record", "t_record"))
            part = self.random.choice([k for k, v in RECORD.items() if v == kind])
            return f"{which}.{part}", f"{which}.{part}"
        if kind in ("i16", "f32") and choice < 0.75:
            (i, row), (j, column) = self.index(0, ROWS), self.index(0, COLUMNS)
            return f"m_{kind}[{i}, {j}]", f"m_{kind}[({row}) * {COLUMNS} + {column}]"
        if kind == "bool" or choice < 0.85:
            return f"g_{kind}", f"g_{kind}"
        csl, c = self.index(max(0, depth - 1))
        return f"a_{kind}[{csl}]", f"a_{kind}[{c}]"

    # ---- expressions

    def value(self, kind: str, depth: int) -> Pair:
        """Return an expression of a type."""
        if kind == "bool":
            return self.truth(depth)
        return self.float(kind, depth) if kind in FLOATS else self.number(kind, depth)

    def leaf(self, kind: str, depth: int) -> Pair:
        return self.literal(kind) if self.chance(0.3) else self.place(kind, depth, False)

    def called(self, kind: str, depth: int) -> Pair | None:
        """Return a call of a function without side effects."""
        found = [f for f in self.functions if f.result == kind and f.pure]
        return self.call(self.random.choice(found), depth) if found else None

    def call(self, function: Function, depth: int) -> Pair:
        arguments = [self.value(kind, max(0, depth - 2)) for _, kind in function.params]
        csl, c = (", ".join(argument[k] for argument in arguments) for k in (0, 1))
        return f"{function.name}({csl})", f"{function.name}({c})"

    def choice(self, kind: str, depth: int) -> Pair:
        (t, test), (a, then), (b, other) = self.truth(depth), self.value(kind, depth), self.value(kind, depth)
        return f"(if ({t}) {a} else {b})", f"(({test}) ? ({then}) : ({other}))"

    def number(self, kind: str, depth: int) -> Pair:
        """Return an expression of an integer type."""
        if depth <= 0 or self.chance(0.2):
            return self.leaf(kind, depth)
        choice = self.random.randrange(11)
        if choice == 0:
            made = self.called(kind, depth)
            if made is not None:
                return made
        if choice <= 1:
            csl, c = self.number(self.random.choice(list(INTEGERS)), depth - 1)
            return f"@as({kind}, {csl})", cut(kind, c)
        if choice == 2:
            return self.choice(kind, depth - 1)
        csl, c = self.number(kind, depth - 1)
        if choice == 3:
            op = self.random.choice("-~")
            return f"({op}{csl})", cut(kind, f"{op}({c})")
        if choice == 4:
            return self._shifted(kind, (csl, c), depth)
        if choice == 5:
            return self._divided(kind, (csl, c), depth)
        if choice == 6:
            by, times = self.literal(kind, self._factor(kind))
            return f"({csl} * {by})", cut(kind, f"({c}) * ({times})")
        other, right = self.number(kind, depth - 1)
        op = self.random.choice("+-*&|^+-")
        return f"({csl} {op} {other})", cut(kind, f"(({c}) {op} ({right}))")

    def _factor(self, kind: str) -> int:
        """Return a factor that shifts and sums make, or one that they do not."""
        low, high = ends(kind)
        by = self.random.choice((0, 1, 2, 3, 5, 6, 12, 24, 31, 33, 68, -1, -4, low, high, low + 1, high - 1, high // 2))
        return min(high, max(low, by))

    def _shifted(self, kind: str, value: Pair, depth: int) -> Pair:
        bits = INTEGERS[kind][0]
        op, (csl, c) = self.random.choice(("<<", ">>")), value
        if self.chance(0.6):
            by, many = self.literal("u16", self.random.choice((0, 1, bits - 1, bits // 2, self.random.randrange(bits))))
        else:
            inner, count = self.number("u16", depth - 2)
            by, many = f"({inner} & {bits - 1})", f"(({count}) & {bits - 1})"
        if op == "<<" or kind == "u64":
            return f"({csl} {op} {by})", cut(kind, f"(int64_t)((uint64_t)({c}) {op} {many})")
        return f"({csl} {op} {by})", f"(({c}) >> {many})"

    def _divided(self, kind: str, value: Pair, depth: int) -> Pair:
        high, (csl, c) = ends(kind)[1], value
        by, other = self.literal(kind, min(high, self.random.choice((1, 2, 3, 7, 10, 64, 100, high, high - 1))))
        if self.chance(0.2):
            inner, count = self.number(kind, depth - 2)
            by, other = f"(({inner} & 63) | 1)", f"((({count}) & 63) | 1)"
        op = self.random.choice("/%")
        if kind == "u64":
            return f"({csl} {op} {by})", f"(int64_t)((uint64_t)({c}) {op} (uint64_t)({other}))"
        return f"({csl} {op} {by})", cut(kind, f"(({c}) {op} ({other}))")

    def float(self, kind: str, depth: int) -> Pair:
        """Return an expression of a float type."""
        if depth <= 0 or self.chance(0.25):
            return self.leaf(kind, depth)
        choice = self.random.randrange(8)
        if choice == 0:
            made = self.called(kind, depth)
            if made is not None:
                return made
        if choice <= 1:
            # To 16 bits only what a float of 32 holds, from which it is rounded once.
            whole = self.random.choice(("i16", "u16", "i8", "u8") if kind == "f16" else ("i16", "u16", "i32", "u32"))
            csl, c = self.number(whole, depth - 1)
            return f"@as({kind}, {csl})", f"(({c_type(kind)})(float)({c}))"
        if choice == 2:
            return self.choice(kind, depth - 1)
        if choice == 3:
            csl, c = self.float("f16" if kind == "f32" else "f32", depth - 1)
            return f"@as({kind}, {csl})", f"(({c_type(kind)})({c}))"
        (a, left), (b, right) = self.float(kind, depth - 1), self.float(kind, depth - 1)
        if choice == 4:
            return f"(-{a})", f"(-({left}))"
        op = self.random.choice("+-*")
        return f"({a} {op} {b})", f"(({c_type(kind)})((float)({left}) {op} (float)({right})))"

    def truth(self, depth: int) -> Pair:
        """Return a condition."""
        if depth <= 0 or self.chance(0.1):
            return self.place("bool", 0, False)
        if self.chance(0.35):
            op = self.random.choice(("and", "or", "!"))
            a, left = self.truth(depth - 1)
            if op == "!":
                return f"(!{a})", f"(!({left}))"
            b, right = self.truth(depth - 1)
            return f"({a} {op} {b})", f"(({left}) {'&&' if op == 'and' else '||'} ({right}))"
        kind = self.random.choice([*INTEGERS, *FLOATS])
        (a, left), (b, right) = self.value(kind, depth - 1), self.value(kind, depth - 1)
        op = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        cast = "(uint64_t)" if kind == "u64" else ""
        return f"({a} {op} {b})", f"({cast}({left}) {op} {cast}({right}))"
