"""Random programs of one PE: the text in CSL, and beside it the same in C, statement for statement.

Every maker returns both.  Nothing in the C text comes from the compiler: it is what the same draw says in another
language, where gcc decides what it means.  The same seed makes the same program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fabric.csl.random_values import DRAWN, FLOATS, INTEGERS, LENGTH, Function, Globals, Literal, Pair, cut, ends
from tests.fabric.csl.random_values import c_type as typed
from tests.fabric.csl.random_vectors import Vectors

__all__ = ["Program", "make"]

Both = tuple[list[str], list[str]]
"""Lines of CSL and of C."""
COUNTED = ("i16", "u16", "i32", "u32", "i8", "u8", "i64", "u64")
TURNS = 7


@dataclass
class Program:
    """A program: its globals and literals, functions and the body of its task in CSL, and all of it in C."""

    globals: Globals
    literals: list[Literal]
    functions: list[str]
    body: str
    c: str

    def declarations(self, known: bool) -> list[str]:
        """Return what stands before the task; literals are constants if they shall be known."""
        literals = [literal.declared(known) for literal in self.literals]
        return [*self.globals.csl, *literals, *self.functions]


class Maker(Vectors):
    """Makes one program."""

    # ---- statements

    def block(self, depth: int, count: int) -> Both:
        """Return statements in a scope of their own."""
        before = len(self.scope)
        made = [self.statement(depth) for _ in range(self.random.randint(1, count))]
        del self.scope[before:]
        return [f"  {line}" for csl, _ in made for line in csl], [
            f"  {line}" for _, c in made for line in ("COUNT;", *c)
        ]

    def statement(self, depth: int) -> Both:
        makers = [self.assign] * 5 + [self.declare] * 2
        if not self.pure:
            makers += [self.vector, self.vector, self.copied, *([self.point] if depth > 0 else [])]
        if any(not f.pure for f in self.functions) and not self.pure:
            makers += [self.call_alone, *[self.around] * 4]
        if depth > 0:
            makers += [self.choose, self.choose, self.loop, self.loop, self.repeat, self.over, self.pick]
            makers.append(self.labelled)
        if self.loops and self.chance(0.4):
            makers.append(self.jump)
        if self.result is not None and depth < 2:
            makers.append(self.early)
        return self.random.choice(makers)(depth)

    def assign(self, depth: int) -> Both:
        kinds = sorted({kind for _, kind, free in self.scope if free}) if self.pure else DRAWN
        if not kinds:
            return self.declare(depth)
        kind = self.random.choice(kinds)
        target, goal = self.place(kind, 1, True)
        if target == goal and target.startswith(("g_", "s_", "t_")):
            self.writes.append((kind, target))
        csl, c = self.value(kind, self.random.randint(1, 3))
        if kind != "bool" and self.chance(0.4):
            op = self.random.choice("+-*" if kind in FLOATS else "+-*&|^")
            if kind in FLOATS:
                return [f"{target} {op}= {csl};"], [f"{goal} = (float){goal} {op} (float)({c});"]
            return [f"{target} {op}= {csl};"], [f"{goal} = {cut(kind, f'({goal} {op} ({c}))')};"]
        return [f"{target} = {csl};"], [f"{goal} = {c};"]

    def declare(self, depth: int) -> Both:
        kind, name = self.random.choice(DRAWN), self.name("v")
        csl, c = self.value(kind, 2)
        const = self.chance(0.3)
        self.scope.append((name, kind, not const))
        return [f"{'const' if const else 'var'} {name}: {kind} = {csl};"], [f"{typed(kind)} {name} = {c};"]

    def choose(self, depth: int) -> Both:
        csl, c = self.truth(2)
        lines, then = self.block(depth - 1, 3)
        if self.chance(0.5):
            more, other = self.block(depth - 1, 3)
            return [f"if ({csl}) {{", *lines, "} else {", *more, "}"], [f"if ({c}) {{", *then, "} else {", *other, "}"]
        return [f"if ({csl}) {{", *lines, "}"], [f"if ({c}) {{", *then, "}"]

    def _body(self, depth: int) -> tuple[list[str], list[str], str, str]:
        """Return the body of a loop in both, its label in CSL, and the label behind it in C."""
        label, own = self.name("l") if self.chance(0.3) else None, self.name("loop")
        self.loops.append((label, own))
        csl, c = self.block(depth - 1, 3)
        self.loops.pop()
        return csl, [*c, f"  again_{own}:;"], f"{label}: " if label else "", f"leave_{own}:;"

    def _range(self, kind: str) -> tuple[Pair, Pair, Pair]:
        """Return start, end and step of a range of a few turns: anywhere, or near the ends of the type."""
        low, high = ends(kind)
        choice = self.random.randrange(4)
        if choice == 0:
            start, step = self.random.randint(0, 3), self.random.choice((1, 1, 2, 3))
            csl, c = self.number(kind, 1)
            return self.literal(kind, start), (f"({csl} & 7)", f"(({c}) & 7)"), self.literal(kind, step)
        if choice == 1:  # up to the very end, in steps of any size
            step = self.random.choice((1, 2, 3, 5, high // 3, high // 2 + 1, high))
            stop = high - self.random.choice((0, 0, 1, 2))
            start = max(low, stop - step * self.random.randint(0, TURNS) - self.random.randint(0, step - 1 or 1))
        elif choice == 2:  # from the least
            step = self.random.choice((1, 2, 7, high // 4 + 1, high))
            start = low + self.random.choice((0, 0, 1))
            stop = min(high, start + step * self.random.randint(0, TURNS) + self.random.randint(-1, 1))
        else:
            start = self.random.randint(low, high)
            step = self.random.randint(1, high)
            stop = min(high, start + step * self.random.randint(0, TURNS))
        stop = min(max(stop, low), high)
        return self.literal(kind, start), self.literal(kind, stop), self.literal(kind, step)

    def loop(self, depth: int) -> Both:
        """Return a loop over a range."""
        kind, name = self.random.choice(COUNTED), self.name("i")
        before = len(self.scope)
        starts, stops, steps = self._range(kind)
        self.scope.append((name, kind, False))
        index = self.name("k") if self.chance(0.3) else None
        if index:
            self.scope.append((index, "u16", False))
        csl, c, label, behind = self._body(depth)
        del self.scope[before:]
        names = f"{name}, {index}" if index else name
        head = f"{label}for (@range({kind}, {starts[0]}, {stops[0]}, {steps[0]})) |{names}| {{"
        wide = "(uint64_t)" if kind == "u64" else ""
        begin, end, by = (f"(__int128){wide}({text})" for text in (starts[1], stops[1], steps[1]))
        turn = f"for (__int128 at = {begin}, end = {end}, turn = 0; at < end; at += {by}, turn++) {{"
        own = [f"  int64_t {name} = (int64_t)at;", *([f"  int64_t {index} = turn;"] if index else [])]
        return [head, *csl, "}"], [turn, *own, *c, "}", behind]

    def repeat(self, depth: int) -> Both:
        """Return a while loop with a counter that only it changes."""
        kind, name, most = self.random.choice(("i16", "u16", "i32")), self.name("w"), self.random.randint(1, 7)
        before = len(self.scope)
        self.scope.append((name, kind, False))
        test, truth = self.truth(1)
        csl, c, label, behind = self._body(depth)
        del self.scope[before:]
        self.scope.append((name, kind, False))
        head = f"{label}while ({name} < {most} and {test}) : ({name} += 1) {{"
        lines = [f"int64_t {name} = 0;", f"while ({name} < {most} && ({truth})) {{", *c, f"  {name}++;", "}", behind]
        return [f"var {name}: {kind} = 0;", head, *csl, "}"], lines

    def over(self, depth: int) -> Both:
        """Return a loop over an array."""
        kind, name = self.random.choice([*INTEGERS, *FLOATS]), self.name("e")
        before = len(self.scope)
        self.scope.append((name, kind, False))
        csl, c, label, behind = self._body(depth)
        del self.scope[before:]
        turn = f"for (int at = 0; at < {LENGTH}; at++) {{ {typed(kind)} {name} = a_{kind}[at];"
        return [f"{label}for (a_{kind}) |{name}| {{", *csl, "}"], [turn, *c, "}", behind]

    def pick(self, depth: int) -> Both:
        """Return a switch."""
        csl, c = self.number(self.random.choice(("u16", "i16", "u32")), 2)
        lines, other = [f"switch ({csl} & 3) {{"], [f"{{ int64_t which = ({c}) & 3;"]
        heads = (("0", "if (which == 0)"), ("1, 2", "else if (which < 3)"), ("else", "else"))
        for head, test in heads:
            body, act = self.block(depth - 1, 2)
            lines += [f"  {head} => {{", *body, "  },"]
            other += [f"  {test} {{", *act, "  }"]
        return [*lines, "}"], [*other, "}"]

    def labelled(self, depth: int) -> Both:
        """Return a block that may be left early."""
        label = self.name("b")
        csl, c = self.truth(1)
        loops, self.loops = self.loops, []
        before = len(self.scope)
        (first, begin), (second, end) = self.statement(depth - 1), self.statement(depth - 1)
        del self.scope[before:]
        self.loops = loops
        lines = [f"  {line}" for line in (*first, f"if ({csl}) {{ break :{label}; }}", *second)]
        other = [f"  {line}" for line in (*begin, f"if ({c}) goto leave_{label};", *end)]
        return [f"{label}: {{", *lines, "}"], ["{", *other, "}", f"leave_{label}:;"]

    def jump(self, depth: int) -> Both:
        """Return a break or continue under a condition."""
        csl, c = self.truth(1)
        label, own = self.random.choice([(None, self.loops[-1][1]), *(entry for entry in self.loops if entry[0])])
        word, goal = self.random.choice((("break", "leave"), ("continue", "again")))
        return [f"if ({csl}) {{ {word}{f' :{label}' if label else ''}; }}"], [f"if ({c}) goto {goal}_{own};"]

    def early(self, depth: int) -> Both:
        """Return a return under a condition."""
        assert self.result is not None
        (test, truth), (csl, c) = self.truth(1), self.value(self.result, 2)
        return [f"if ({test}) {{ return {csl}; }}"], [f"if ({truth}) return {c};"]

    def call_alone(self, depth: int, function: Function | None = None) -> Both:
        """Return a call of a function that changes globals."""
        function = function or self.random.choice([f for f in self.functions if not f.pure])
        csl, c = self.call(function, 2)
        target, goal = self.place(function.result, 0, True)
        if "[" in goal:  # the place is that of before the call
            return [f"{target} = {csl};"], [f"{{ {typed(function.result)} *p = &{goal}; *p = {c}; }}"]
        return [f"{target} = {csl};"], [f"{goal} = {c};"]

    def around(self, depth: int) -> Both:
        """Return a call of such a function between two looks at what it sets: what was known of that is over."""
        function = self.random.choice([f for f in self.functions if not f.pure])
        written = [entry for entry in function.writes if entry[0] != "bool"]
        if not written:
            return self.call_alone(depth, function)
        (kind, seen), name = self.random.choice(written), self.name("v")
        looked = seen
        # Arguments without choices: the looks and the call are in one block.
        arguments = [self.leaf(entry, 0) for _, entry in function.params]
        csl, in_c = (f"{function.name}({', '.join(argument[k] for argument in arguments)})" for k in (0, 1))
        goal = f"g_{function.result}"
        lines, c = [f"{goal} = {csl};"], [f"{{ {typed(function.result)} w = {in_c}; {goal} = w; }}"]
        op = self.random.choice("+-")
        target = f"a_{kind}[{self.random.randrange(LENGTH)}]"
        sum_ = f"{looked} {op} {name}" if kind in FLOATS else cut(kind, f"({looked} {op} {name})")
        self.scope.append((name, kind, False))
        return (
            [f"const {name}: {kind} = {seen};", *lines, f"{target} = {seen} {op} {name};"],
            [f"{typed(kind)} {name} = {looked};", *c, f"{target} = {sum_};"],
        )

    def copied(self, depth: int) -> Both:
        """Return an assignment of a struct."""
        a, b = self.random.sample(("s_record", "t_record"), 2)
        return [f"{a} = {b};"], [f"{a} = {b};"]

    def point(self, depth: int) -> Both:
        """Return work through a pointer into an array."""
        kind, name = self.random.choice(("i16", "u16", "f32", "u32", "i64")), self.name("p")
        (at, where), (moved, there) = self.index(1), self.index(1)
        csl, c = self.value(kind, 2)
        many = self.chance(0.4)
        goal = f"{name}[{there}]" if many else f"*{name}"
        added = f"{goal} + ({c})" if kind in FLOATS else cut(kind, f"({goal} + ({c}))")
        other = f"{{ {typed(kind)} *{name} = &a_{kind}[{0 if many else where}]; {goal} = {added}; }}"
        if many:
            return [f"{{ var {name}: [*]{kind} = &a_{kind};", f"  {name}[{moved}] += {csl}; }}"], [other]
        return [f"{{ const {name}: *{kind} = &a_{kind}[{at}];", f"  {name}.* += {csl}; }}"], [other]

    # ---- the whole

    def _counted(self) -> Both:
        """Return a statement that changes a global whatever its value is."""
        kind = self.random.choice(("i16", "u16", "i32", "u32", "u64"))
        self.writes.append((kind, f"g_{kind}"))
        by = self.random.randint(1, 9)
        return [f"  g_{kind} += {by};"], [f"  g_{kind} = {cut(kind, f'(g_{kind} + {by})')};"]

    def function(self) -> tuple[str, str]:
        """Return a function in both."""
        made = Function(self.name("f"), [], self.random.choice(DRAWN), self.chance(0.4))
        made.params = [(self.name("q"), self.random.choice(DRAWN)) for _ in range(self.random.randint(0, 4))]
        self.scope = [(name, kind, False) for name, kind in made.params]
        self.result, self.pure, self.loops, self.writes = made.result, made.pure, [], []
        counted = ([], []) if made.pure else self._counted()
        lines, act = (first + rest for first, rest in zip(counted, self.block(2, 4), strict=True))
        csl, c = self.value(made.result, 2)
        self.result, self.pure, self.scope = None, False, []
        made.writes = self.writes
        self.functions.append(made)
        params = ", ".join(f"{name}: {kind}" for name, kind in made.params)
        # A function that is called and changes globals is what ends most of what passes know.
        how = self.random.choice(
            ("", "noinline ", "inline ") if made.pure else ("", "noinline ", "noinline ", "inline ")
        )
        head = f"{how}fn {made.name}({params}) {made.result} {{"
        params = ", ".join(f"{typed(kind)} {name}" for name, kind in made.params)
        in_c = [f"{typed(made.result)} {made.name}({params}) {{ COUNT;", *act, f"  return {c};", "}"]
        return "\n".join([head, *lines, f"  return {csl};", "}"]), "\n".join(in_c)


def make(seed: int) -> Program:
    """Return the program of a seed."""
    maker = Maker(seed)
    functions = [maker.function() for _ in range(maker.random.choice((0, 1, 2, 3, 4, 4)))]
    lines, act = maker.block(3, 7)
    # What nobody reaches takes no memory; all globals are looked at afterwards.
    lines += list(_touched(maker.globals))
    c = "\n".join([*maker.globals.c, *(text for _, text in functions), *act])
    return Program(maker.globals, maker.literals, [text for text, _ in functions], "\n".join(lines), c)


def _touched(made: Globals) -> Iterator[str]:
    for name, count in made.counts.items():
        place = "[0, 0]" if name.startswith("m_") else "[0]" if count > 1 else ""
        yield f"{name}{place} = {name}{place};"
    for which in ("s", "t"):
        yield f"{which}_record = {which}_record;"
