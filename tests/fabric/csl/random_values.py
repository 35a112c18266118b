"""Random expressions and places of a program, with what they mean; see `tests.fabric.csl.random_programs`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["NUMPY", "Again", "Function", "Leave", "Returned", "State", "TooLong", "Values", "wrapped"]

INTEGERS = {
    "i16": (16, True),
    "u16": (16, False),
    "i32": (32, True),
    "u32": (32, False),
    "i8": (8, True),
    "u8": (8, False),
}
FLOATS: dict[str, Any] = {"f32": np.float32, "f16": np.float16}
KINDS = [*INTEGERS, *FLOATS, "bool"]
NUMPY = {
    "i16": "i2", "u16": "u2", "i32": "i4", "u32": "u4", "i8": "i1", "u8": "u1", "f32": "f4", "f16": "f2", "bool": "u2",
}  # fmt: skip
LENGTH = 8
"""Elements of a global array."""
ROWS, COLUMNS = 3, 5
MOST = 4000
"""Statements that a program may do."""

Text = str
Act = Callable[["State"], Any]


class TooLong(Exception):
    """The program does more than the evaluator wants to."""


class Leave(Exception):
    """A `break` of a loop or of a labelled block."""

    def __init__(self, label: str | None) -> None:
        self.label = label


class Again(Leave):
    """A `continue`."""


class Returned(Exception):
    """A `return`, with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class State:
    """Memory: globals by name, locals of the function of the moment, and how much was done."""

    globals: dict[str, Any]
    locals: dict[str, Any] = field(default_factory=dict)
    done: int = 0

    def count(self) -> None:
        """Count a statement."""
        self.done += 1
        if self.done > MOST:
            raise TooLong


def wrapped(value: int, kind: str) -> int:
    """Return a whole number as one of an integer type."""
    bits, signed = INTEGERS[kind]
    value = int(value) & (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


@dataclass
class Function:
    """A function of the program that others may call."""

    name: str
    params: list[tuple[str, str]]
    result: str
    pure: bool
    act: Callable[..., Any] = lambda *_: None


class Values:
    """Makes globals and expressions of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.globals: dict[str, Any] = {}
        self.kinds: dict[str, str] = {}
        self.declarations: list[str] = []
        self.functions: list[Function] = []
        self.scope: list[tuple[str, str, bool]] = []
        """Locals in sight: name, type, whether it may be set."""
        self.names = 0
        self.loops: list[str | None] = []
        self.result: str | None = None
        self.pure = False
        self._globals()

    # ---- pieces

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}_{self.names}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def literal(self, kind: str) -> Any:
        if kind == "bool":
            return self.chance(0.5)
        if kind in FLOATS:
            return FLOATS[kind](self.random.choice((0.0, 1.0, -2.5, 0.125, self.random.randint(-40, 40) / 4)))
        bits, signed = INTEGERS[kind]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return self.random.choice((low, high, 0, 1, 2, 7, self.random.randint(low, high), self.random.randint(0, 20)))

    @staticmethod
    def shown(value: Any, kind: str) -> str:
        if kind == "bool":
            return "true" if value else "false"
        return f"{float(value)!r}" if kind in FLOATS else str(value)

    def _globals(self) -> None:
        for kind in KINDS:
            name = f"g_{kind}"
            value = self.literal(kind)
            self.declarations.append(f"var {name}: {kind} = {self.shown(value, kind)};")
            self.globals[name], self.kinds[name] = value, kind
            if kind == "bool":
                continue
            values = [self.literal(kind) for _ in range(LENGTH)]
            text = ", ".join(self.shown(value, kind) for value in values)
            self.declarations.append(f"var a_{kind} = [{LENGTH}]{kind}{{ {text} }};")
            self.globals[f"a_{kind}"], self.kinds[f"a_{kind}"] = values, kind
        for kind in ("i16", "f32"):
            self.declarations.append(f"var m_{kind} = @zeros([{ROWS}, {COLUMNS}]{kind});")
            zero = FLOATS[kind](0) if kind in FLOATS else 0
            self.globals[f"m_{kind}"], self.kinds[f"m_{kind}"] = [zero] * (ROWS * COLUMNS), kind
        self.fields = {"a": "i16", "b": "u32", "c": "f32", "d": "u16"}
        parts = ", ".join(f"{name}: {kind}" for name, kind in self.fields.items())
        self.declarations.append(f"const Record = struct {{ {parts} }};")
        for which in ("s", "t"):
            values = {name: self.literal(kind) for name, kind in self.fields.items()}
            text = ", ".join(f".{name} = {self.shown(v, self.fields[name])}" for name, v in values.items())
            self.declarations.append(f"var {which}_record = Record{{ {text} }};")
            self.globals[f"{which}_record"] = values

    # ---- places

    def index(self, depth: int, size: int = LENGTH) -> tuple[Text, Act]:
        """Return an index of an array."""
        text, act = self.number(self.random.choice(("u16", "i16")), depth)
        if size == LENGTH and self.chance(0.7):
            return f"(@as(u16, {text}) & {size - 1})", lambda s: act(s) & size - 1
        at = self.random.randrange(size)
        return str(at), lambda s: at

    def place(self, kind: str, depth: int, write: bool) -> tuple[Text, Act, Callable[[State, Any], None]]:
        """Return something that holds a number of a type: text, reading, setting."""
        own = [name for name, other, free in self.scope if other == kind and (free or not write)]
        choice = self.random.random()
        if own and (choice < 0.55 or (write and self.pure)):
            name = self.random.choice(own)

            def put(s: State, value: Any) -> None:
                s.locals[name] = value

            return name, lambda s: s.locals[name], put
        if kind in self.fields.values() and choice < 0.65:
            which = self.random.choice(("s_record", "t_record"))
            part = self.random.choice([k for k, v in self.fields.items() if v == kind])

            def put_field(s: State, value: Any) -> None:
                s.globals[which][part] = value

            return f"{which}.{part}", lambda s: s.globals[which][part], put_field
        if kind in ("i16", "f32") and choice < 0.75:
            (i, row), (j, column) = self.index(0, ROWS), self.index(0, COLUMNS)
            where = f"m_{kind}"

            def put_cell(s: State, value: Any) -> None:
                s.globals[where][row(s) * COLUMNS + column(s)] = value

            return f"{where}[{i}, {j}]", lambda s: s.globals[where][row(s) * COLUMNS + column(s)], put_cell
        if kind == "bool" or choice < 0.85:
            name = f"g_{kind}"

            def put_global(s: State, value: Any) -> None:
                s.globals[name] = value

            return name, lambda s: s.globals[name], put_global
        text, at = self.index(max(0, depth - 1))
        array = f"a_{kind}"

        def put_element(s: State, value: Any) -> None:
            s.globals[array][at(s)] = value

        return f"{array}[{text}]", lambda s: s.globals[array][at(s)], put_element

    # ---- expressions

    def value(self, kind: str, depth: int) -> tuple[Text, Act]:
        """Return an expression of a type."""
        if kind == "bool":
            return self.truth(depth)
        return self.float(kind, depth) if kind in FLOATS else self.number(kind, depth)

    def leaf(self, kind: str, depth: int) -> tuple[Text, Act]:
        if self.chance(0.25):
            value = self.literal(kind)
            return f"@as({kind}, {self.shown(value, kind)})", lambda s: value
        text, act, _ = self.place(kind, depth, False)
        return text, act

    def called(self, kind: str, depth: int) -> tuple[Text, Act] | None:
        """Return a call of a function without side effects."""
        found = [f for f in self.functions if f.result == kind and f.pure]
        return self.call(self.random.choice(found), depth) if found else None

    def call(self, function: Function, depth: int) -> tuple[Text, Act]:
        arguments = [self.value(kind, max(0, depth - 2)) for _, kind in function.params]
        text = ", ".join(argument for argument, _ in arguments)

        def act(s: State) -> Any:
            return function.act(s, [argument(s) for _, argument in arguments])

        return f"{function.name}({text})", act

    def choice(self, kind: str, depth: int) -> tuple[Text, Act]:
        (c, test), (a, then), (b, other) = self.truth(depth), self.value(kind, depth), self.value(kind, depth)
        return f"(if ({c}) {a} else {b})", lambda s: then(s) if test(s) else other(s)

    def number(self, kind: str, depth: int) -> tuple[Text, Act]:
        """Return an expression of an integer type."""
        if depth <= 0 or self.chance(0.2):
            return self.leaf(kind, depth)
        choice = self.random.randrange(10)
        if choice == 0:
            made = self.called(kind, depth)
            if made is not None:
                return made
        if choice <= 1:
            text, act = self.number(self.random.choice(list(INTEGERS)), depth - 1)
            return f"@as({kind}, {text})", lambda s: wrapped(act(s), kind)
        if choice == 2:
            return self.choice(kind, depth - 1)
        text, act = self.number(kind, depth - 1)
        if choice == 3:
            op = self.random.choice("-~")
            return f"({op}{text})", lambda s: wrapped(-act(s) if op == "-" else ~act(s), kind)
        if choice == 4:
            bits = INTEGERS[kind][0]
            op = self.random.choice(("<<", ">>"))
            if self.chance(0.5):
                by = self.random.randrange(bits)
                many: Act = lambda s: by  # noqa: E731
                shown = str(by)
            else:
                inner, count = self.number("u16", depth - 2)
                shown, many = f"({inner} & {min(bits, 16) - 1})", lambda s: count(s) & min(bits, 16) - 1
            return f"({text} {op} {shown})", lambda s: wrapped(
                act(s) << many(s) if op == "<<" else act(s) >> many(s), kind
            )
        if choice == 5:
            by = self.random.choice((1, 2, 3, 7, 10, 64, 100))
            op = self.random.choice("/%")

            def divided(s: State) -> int:
                value = act(s)
                quotient = abs(value) // by * (1 if value >= 0 else -1)
                return quotient if op == "/" else value - quotient * by

            return f"({text} {op} {by})", divided
        if choice == 6:
            by = self.random.choice((0, 1, 2, 3, 5, 6, 12, 24, 31, 33, 68))
            return f"({text} * {by})", lambda s: wrapped(act(s) * by, kind)
        other, right = self.number(kind, depth - 1)
        op = self.random.choice("+-*&|^+-")
        return f"({text} {op} {other})", lambda s: wrapped(BINARY[op](act(s), right(s)), kind)

    def float(self, kind: str, depth: int) -> tuple[Text, Act]:
        """Return an expression of a float type."""
        make = FLOATS[kind]
        if depth <= 0 or self.chance(0.25):
            return self.leaf(kind, depth)
        choice = self.random.randrange(8)
        if choice == 0:
            made = self.called(kind, depth)
            if made is not None:
                return made
        if choice <= 1:
            text, act = self.number("i16", depth - 1)
            return f"@as({kind}, {text})", lambda s: make(act(s))
        if choice == 2:
            return self.choice(kind, depth - 1)
        if choice == 3:
            other = "f16" if kind == "f32" else "f32"
            text, act = self.float(other, depth - 1)
            return f"@as({kind}, {text})", lambda s: make(act(s))
        (a, left), (b, right) = self.float(kind, depth - 1), self.float(kind, depth - 1)
        if choice == 4:
            return f"(-{a})", lambda s: -left(s)
        op = self.random.choice("+-*")
        return f"({a} {op} {b})", lambda s: make(BINARY[op](left(s), right(s)))

    def truth(self, depth: int) -> tuple[Text, Act]:
        """Return a condition."""
        if depth <= 0 or self.chance(0.1):
            text, act, _ = self.place("bool", 0, False)
            return text, act
        if self.chance(0.35):
            op = self.random.choice(("and", "or", "!"))
            a, left = self.truth(depth - 1)
            if op == "!":
                return f"(!{a})", lambda s: not left(s)
            b, right = self.truth(depth - 1)
            if op == "and":
                return f"({a} and {b})", lambda s: left(s) and right(s)
            return f"({a} or {b})", lambda s: left(s) or right(s)
        kind = self.random.choice([*INTEGERS, *FLOATS])
        (a, left), (b, right) = self.value(kind, depth - 1), self.value(kind, depth - 1)
        op = self.random.choice(list(COMPARE))
        return f"({a} {op} {b})", lambda s: bool(COMPARE[op](left(s), right(s)))


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
