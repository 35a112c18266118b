"""Random programs of one PE: the text in CSL, and beside it what it means, as plain Python.

Every maker returns a piece of text together with a function of a `State` that does the same: an expression gives its
value, a statement changes the state.  Numbers are Python integers or numpy floats, and wrap where CSL does.  The same
seed makes the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fabric.csl.random_values import (
    BINARY,
    FLOATS,
    INTEGERS,
    KINDS,
    LENGTH,
    Act,
    Again,
    Function,
    Leave,
    Returned,
    State,
    Text,
    wrapped,
)
from tests.fabric.csl.random_vectors import Vectors

__all__ = ["Program", "make"]


@dataclass
class Program:
    """A program: declarations, the body of its task, its globals with their types, and what it leaves in them."""

    declarations: list[str]
    body: str
    kinds: dict[str, str]
    run: Callable[[], dict[str, Any]]


class Maker(Vectors):
    """Makes one program."""

    # ---- statements

    def block(self, depth: int, count: int) -> tuple[list[str], Act]:
        """Return statements in a scope of their own."""
        before = len(self.scope)
        made = [self.statement(depth) for _ in range(self.random.randint(1, count))]
        del self.scope[before:]
        lines = [f"  {line}" for entry, _ in made for line in entry]

        def act(s: State) -> None:
            for _, step in made:
                s.count()
                step(s)

        return lines, act

    def statement(self, depth: int) -> tuple[list[str], Act]:
        makers = [self.assign] * 5 + [self.declare] * 2
        if not self.pure:
            makers += [self.vector, self.vector, self.copied]
        if any(not f.pure for f in self.functions) and not self.pure:
            makers.append(self.call_alone)
        if depth > 0:
            makers += [
                self.choose,
                self.choose,
                self.loop,
                self.repeat,
                self.over,
                self.pick,
                self.labelled,
                self.point,
            ]
        if self.loops and self.chance(0.4):
            makers.append(self.jump)
        if self.result is not None and depth < 2:
            makers.append(self.early)
        return self.random.choice(makers)(depth)

    def assign(self, depth: int) -> tuple[list[str], Act]:
        kinds = sorted({kind for _, kind, free in self.scope if free}) if self.pure else KINDS
        if not kinds:
            return self.declare(depth)
        kind = self.random.choice(kinds)
        target, read, put = self.place(kind, 1, True)
        text, act = self.value(kind, self.random.randint(1, 3))
        op = ""
        if kind != "bool" and self.chance(0.4):
            op = self.random.choice("+-*" if kind in FLOATS else "+-*&|^")
            convert = FLOATS.get(kind) or (lambda value: wrapped(value, kind))
            return [f"{target} {op}= {text};"], lambda s: put(s, convert(BINARY[op](read(s), act(s))))
        return [f"{target} = {text};"], lambda s: put(s, act(s))

    def declare(self, depth: int) -> tuple[list[str], Act]:
        kind, name = self.random.choice(KINDS), self.name("v")
        text, act = self.value(kind, 2)
        const = self.chance(0.3)
        self.scope.append((name, kind, not const))

        def put(s: State) -> None:
            s.locals[name] = act(s)

        return [f"{'const' if const else 'var'} {name}: {kind} = {text};"], put

    def choose(self, depth: int) -> tuple[list[str], Act]:
        text, test = self.truth(2)
        lines, then = self.block(depth - 1, 3)
        if self.chance(0.5):
            other_lines, other = self.block(depth - 1, 3)
            return [
                f"if ({text}) {{",
                *lines,
                "} else {",
                *other_lines,
                "}",
            ], lambda s: then(s) if test(s) else other(s)
        return [f"if ({text}) {{", *lines, "}"], lambda s: then(s) if test(s) else None

    def _body(self, depth: int, name: str | None) -> tuple[list[str], Act, str]:
        """Return the body of a loop, and its label."""
        label = self.name("l") if self.chance(0.3) else None
        self.loops.append(label)
        lines, act = self.block(depth - 1, 3)
        self.loops.pop()
        return lines, _turn(act, label), f"{label}: " if label else ""

    def loop(self, depth: int) -> tuple[list[str], Act]:
        """Return a loop over a range."""
        kind, name = self.random.choice(("i16", "u16", "i32", "u32")), self.name("i")
        start, step = self.random.randint(0, 3), self.random.choice((1, 1, 2, 3))
        before = len(self.scope)
        if self.chance(0.5):
            stop = self.random.randint(0, 9)
            shown: Text = str(stop)
            end: Act = lambda s: stop  # noqa: E731
        else:
            inner, count = self.number(kind, 1)
            shown, end = f"({inner} & 7)", lambda s: count(s) & 7
        self.scope.append((name, kind, False))
        index = self.name("k") if self.chance(0.3) else None
        if index:
            self.scope.append((index, "u16", False))
        lines, turn, label = self._body(depth, name)
        del self.scope[before:]
        head = f"{label}for (@range({kind}, {start}, {shown}, {step})) |{name}{f', {index}' if index else ''}| {{"

        def act(s: State) -> None:
            for k, at in enumerate(range(start, end(s), step)):
                s.locals[name] = at
                if index:
                    s.locals[index] = k
                if turn(s):
                    break

        return [head, *lines, "}"], act

    def repeat(self, depth: int) -> tuple[list[str], Act]:
        """Return a while loop with a counter that only it changes."""
        kind, name, most = self.random.choice(("i16", "u16", "i32")), self.name("w"), self.random.randint(1, 7)
        before = len(self.scope)
        self.scope.append((name, kind, False))
        text, test = self.truth(1)
        lines, turn, label = self._body(depth, name)
        del self.scope[before:]
        self.scope.append((name, kind, False))

        def act(s: State) -> None:
            s.locals[name] = 0
            while s.locals[name] < most and test(s):
                if turn(s):
                    break
                s.locals[name] += 1

        head = f"{label}while ({name} < {most} and {text}) : ({name} += 1) {{"
        return [f"var {name}: {kind} = 0;", head, *lines, "}"], act

    def over(self, depth: int) -> tuple[list[str], Act]:
        """Return a loop over an array."""
        kind, name = self.random.choice([*INTEGERS, *FLOATS]), self.name("e")
        before = len(self.scope)
        self.scope.append((name, kind, False))
        lines, turn, label = self._body(depth, name)
        del self.scope[before:]

        def act(s: State) -> None:
            for k in range(LENGTH):
                s.locals[name] = s.globals[f"a_{kind}"][k]
                if turn(s):
                    break

        return [f"{label}for (a_{kind}) |{name}| {{", *lines, "}"], act

    def pick(self, depth: int) -> tuple[list[str], Act]:
        """Return a switch."""
        text, subject = self.number(self.random.choice(("u16", "i16", "u32")), 2)
        cases = [self.block(depth - 1, 2) for _ in range(3)]
        lines = [f"switch ({text} & 3) {{"]
        for head, (body, _) in zip(("0", "1, 2", "else"), cases, strict=True):
            lines += [f"  {head} => {{", *body, "  },"]

        def act(s: State) -> None:
            cases[(0, 1, 1, 2)[subject(s) & 3]][1](s)

        return [*lines, "}"], act

    def labelled(self, depth: int) -> tuple[list[str], Act]:
        """Return a block that may be left early."""
        label = self.name("b")
        text, test = self.truth(1)
        loops, self.loops = self.loops, []
        before = len(self.scope)
        first = self.statement(depth - 1)
        second = self.statement(depth - 1)
        del self.scope[before:]
        self.loops = loops

        def act(s: State) -> None:
            first[1](s)
            if not test(s):
                second[1](s)

        inner = [f"  {line}" for line in (*first[0], f"if ({text}) {{ break :{label}; }}", *second[0])]
        return [f"{label}: {{", *inner, "}"], act

    def jump(self, depth: int) -> tuple[list[str], Act]:
        """Return a break or continue under a condition."""
        text, test = self.truth(1)
        label = self.random.choice([None, *(entry for entry in self.loops if entry)])
        word, kind = self.random.choice((("break", Leave), ("continue", Again)))

        def act(s: State) -> None:
            if test(s):
                raise kind(label)

        return [f"if ({text}) {{ {word}{f' :{label}' if label else ''}; }}"], act

    def early(self, depth: int) -> tuple[list[str], Act]:
        """Return a return under a condition."""
        assert self.result is not None
        (text, test), (value, act) = self.truth(1), self.value(self.result, 2)

        def leave(s: State) -> None:
            if test(s):
                raise Returned(act(s))

        return [f"if ({text}) {{ return {value}; }}"], leave

    def call_alone(self, depth: int) -> tuple[list[str], Act]:
        """Return a call of a function that changes globals."""
        function = self.random.choice([f for f in self.functions if not f.pure])
        text, act = self.call(function, 2)
        target, _, put = self.place(function.result, 0, True)
        return [f"{target} = {text};"], lambda s: put(s, act(s))

    def copied(self, depth: int) -> tuple[list[str], Act]:
        """Return an assignment of a struct."""
        a, b = self.random.sample(("s_record", "t_record"), 2)

        def act(s: State) -> None:
            s.globals[a] = dict(s.globals[b])

        return [f"{a} = {b};"], act

    def point(self, depth: int) -> tuple[list[str], Act]:
        """Return work through a pointer into an array."""
        kind = self.random.choice(("i16", "u16", "f32", "u32"))
        name, (text, at) = self.name("p"), self.index(1)
        moved, there = self.index(1)
        value, act = self.value(kind, 2)
        many = self.chance(0.4)
        convert = FLOATS.get(kind) or (lambda number: wrapped(number, kind))

        def run(s: State) -> None:
            array = s.globals[f"a_{kind}"]
            place = at(s)
            if many:
                place = there(s)
            array[place] = convert(array[place] + act(s))

        if many:
            pointer = f"var {name}: [*]{kind} = &a_{kind};"
            return [f"{{ {pointer}", f"  {name}[{moved}] += {value}; }}"], run
        return [f"{{ const {name}: *{kind} = &a_{kind}[{text}];", f"  {name}.* += {value}; }}"], run

    # ---- the whole

    def function(self) -> None:
        """Add a function."""
        made = Function(self.name("f"), [], self.random.choice(KINDS), self.chance(0.5))
        made.params = [(self.name("q"), self.random.choice(KINDS)) for _ in range(self.random.randint(0, 4))]
        self.scope = [(name, kind, False) for name, kind in made.params]
        self.result, self.pure, self.loops = made.result, made.pure, []
        lines, act = self.block(2, 4)
        value, last = self.value(made.result, 2)
        self.result, self.pure, self.scope = None, False, []

        def run(s: State, arguments: list[Any]) -> Any:
            s.count()
            outer, s.locals = s.locals, {name: v for (name, _), v in zip(made.params, arguments, strict=True)}
            try:
                act(s)
                return last(s)
            except Returned as found:
                return found.value
            finally:
                s.locals = outer

        made.act = run
        params = ", ".join(f"{name}: {kind}" for name, kind in made.params)
        how = self.random.choice(("", "", "noinline ", "inline "))
        head = f"{how}fn {made.name}({params}) {made.result} {{"
        self.declarations.append("\n".join([head, *lines, f"  return {value};", "}"]))
        self.functions.append(made)


def _turn(act: Act, label: str | None) -> Callable[[State], bool]:
    """Return a function that does one turn of a loop and tells whether the loop is left."""

    def turn(s: State) -> bool:
        try:
            act(s)
        except Again as found:
            if found.label not in (None, label):
                raise
        except Leave as found:
            if found.label not in (None, label):
                raise
            return True
        return False

    return turn


def make(seed: int) -> Program:
    """Return the program of a seed."""
    maker = Maker(seed)
    for _ in range(maker.random.randint(0, 4)):
        maker.function()
    lines, act = maker.block(3, 7)

    def run() -> dict[str, Any]:
        state = State(_copied(maker.globals))
        with np.errstate(all="ignore"):
            act(state)
        return state.globals

    # What nobody reaches takes no memory; all globals are looked at afterwards.
    for name, value in maker.globals.items():
        place = {list: "[0]", dict: ""}.get(type(value), "")
        place = "[0, 0]" if name.startswith("m_") else place
        lines.append(f"{name}{place} = {name}{place};")
    return Program(maker.declarations, "\n".join(lines), maker.kinds, run)


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, (list, dict)) else value for name, value in values.items()}
