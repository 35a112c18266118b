"""Random syntax trees from seeds: every form that the grammar has, nested.

They come from seeds because trees are large: to draw and to shrink them choice by choice takes a hundred times as long.
"""

from __future__ import annotations

import random
import string

from fabric.csl.diagnostics import Source, Span
from fabric.csl.syntax import nodes as n

__all__ = ["Trees"]

NOWHERE = Span(Source("nowhere", ""), 0, 0)
NAMES = ("a", "b1", "_x", "N", "i16", "true", "NORTH", "in", "send", "layoutx", "_")
FIELDS = (*NAMES, "color", "filter", "async", "if", "const", "task")
OPERATORS = ("or", "and", "==", "<", ">=", "!=", "&", "|", "^", "<<", ">>", "+", "-", "*", "/", "%")
BYTES = string.ascii_letters + "\n\t\\\"'\0\x7f\xff /"


class Trees:
    """Makes trees; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, make, least=0, most=3):
        """Return a short list of what a function makes."""
        return [make() for _ in range(self.random.randint(least, most))]

    def maybe(self, make):
        """Return None or what a function makes."""
        return make() if self.random.random() < 0.5 else None

    def name(self):
        """Return an identifier."""
        return self.random.choice(NAMES)

    def pairs(self, make):
        """Return (name, value) pairs without a name twice."""
        names = self.random.sample(FIELDS, self.random.randint(0, 3))
        return [(name, make()) for name in names]

    def leaf(self):
        """Return an expression without parts."""
        choice = self.random.randrange(5)
        if choice == 0:
            return n.Int(self.random.choice((0, 7, 255, 1 << 70)), span=NOWHERE)
        if choice == 1:
            return n.Float(self.random.choice((0.0, 0.5, 1e300, 2.5e-7, self.random.random())), span=NOWHERE)
        if choice == 2:
            return n.String("".join(self.some(lambda: self.random.choice(BYTES))), span=NOWHERE)
        return n.Name(self.name(), span=NOWHERE)

    def type(self, depth):
        """Return a type."""
        choice = self.random.randrange(6) if depth > 0 else 5
        if choice < 2:
            return n.PointerType(self.type(depth - 1), self.flag(), choice == 0, span=NOWHERE)
        if choice == 2:
            return n.ArrayType(self.some(lambda: self.expr(depth - 1), 1, 2), self.type(depth - 1), span=NOWHERE)
        if choice == 3:
            kind = self.random.choice(("fn", "task"))
            return n.FnType(kind, self.some(lambda: self.type(depth - 1), 0, 2), self.type(depth - 1), span=NOWHERE)
        return n.Name(self.name(), span=NOWHERE)

    def flag(self):
        """Return true or false."""
        return self.random.random() < 0.5

    def expr(self, depth):
        """Return an expression."""
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf()
        down = depth - 1
        inner = lambda: self.expr(down)  # noqa: E731
        forms = (
            lambda: n.Unary(self.random.choice("-!~&"), inner(), span=NOWHERE),
            lambda: n.Binary(self.random.choice(OPERATORS), inner(), inner(), span=NOWHERE),
            lambda: n.Binary(self.random.choice(OPERATORS), inner(), inner(), span=NOWHERE),
            lambda: n.Comptime(inner(), span=NOWHERE),
            lambda: n.IfExpr(inner(), inner(), self.maybe(inner), span=NOWHERE),
            lambda: n.FieldAccess(inner(), self.random.choice(FIELDS), span=NOWHERE),
            lambda: n.Deref(inner(), span=NOWHERE),
            lambda: n.Index(inner(), self.some(inner, 1), span=NOWHERE),
            lambda: n.Call(inner(), self.some(inner), span=NOWHERE),
            lambda: n.Builtin(f"@{self.name()}", self.some(inner), span=NOWHERE),
            lambda: n.StructLiteral(self.pairs(inner), span=NOWHERE),
            lambda: n.TupleLiteral(self.some(inner, 1), span=NOWHERE),
            lambda: n.Init(self.type(down), n.TupleLiteral(self.some(inner, 1), span=NOWHERE), span=NOWHERE),
            lambda: n.Init(self.type(down), n.StructLiteral(self.pairs(inner), span=NOWHERE), span=NOWHERE),
            lambda: self.type(depth),
            lambda: self.access(down),
            lambda: n.Switch(inner(), self.some(lambda: self.case(down, False)), span=NOWHERE),
            lambda: n.StructType(
                self.random.choice(("struct", "union")),
                self.random.choice((None, "extern", "packed")),
                self.pairs(lambda: self.type(down)),
                span=NOWHERE,
            ),
            lambda: n.EnumType(
                self.maybe(lambda: self.type(down)), self.pairs(lambda: self.maybe(inner)), span=NOWHERE
            ),
        )
        made = self.random.choice(forms)()
        # An `if` without `else` inside of one with an `else` would take it.
        if isinstance(made, n.IfExpr) and made.otherwise is not None and isinstance(made.then, (n.IfExpr, n.Comptime)):
            made.then = self.leaf()
        return made

    def access(self, depth):
        """Return an access expression."""
        count = self.random.randint(1, 3)
        base = n.Name(self.name(), span=NOWHERE)
        for _ in range(self.random.randint(0, 2)):
            base = (
                n.FieldAccess(base, self.random.choice(FIELDS), span=NOWHERE)
                if self.flag()
                else n.Deref(base, span=NOWHERE)
            )
        names = [f"i{k}" for k in range(count)]
        extents = self.some(lambda: self.expr(depth), count, count)
        return n.Access(names, extents, base, self.some(lambda: self.expr(depth), 1), span=NOWHERE)

    def plain(self, depth):
        """Return an expression with which a statement may begin."""
        while True:
            made = self.expr(depth)
            if not isinstance(made, (n.IfExpr, n.Switch, n.Access, n.Comptime)):
                return made

    def case(self, depth, blocks=True):
        """Return a branch of a switch."""
        values = self.maybe(lambda: self.some(lambda: self.expr(depth), 1))
        body = self.block(depth - 1) if blocks and self.flag() else self.simple(depth, jumps=blocks)
        return n.Case(values, body, span=NOWHERE)

    def simple(self, depth, jumps=True):
        """Return a statement that ends with a semicolon."""
        choice = self.random.randrange(6) if jumps else 0
        if choice == 1:
            return n.Return(self.maybe(lambda: self.expr(depth)), span=NOWHERE)
        if choice == 2:
            return n.Break(self.maybe(self.name), self.maybe(lambda: self.expr(depth)), span=NOWHERE)
        if choice == 3:
            return n.Continue(self.maybe(self.name), span=NOWHERE)
        if choice == 0:
            return n.ExprStatement(self.plain(depth), span=NOWHERE)
        op = self.random.choice(("=", "+=", "-=", "<<=", "|="))
        return n.Assign(self.plain(depth), op, self.expr(depth), span=NOWHERE)

    def block(self, depth):
        """Return a block."""
        return n.Block(self.some(lambda: self.statement(depth)), span=NOWHERE)

    def var(self, depth, **more):
        """Return a declaration of a const or var."""
        kind = self.random.choice(("const", "var"))
        value = self.expr(depth) if kind == "const" else self.maybe(lambda: self.expr(depth))
        of_type = self.maybe(lambda: self.type(2))
        return n.VarDecl(kind, self.name(), of_type, value, attributes=self.attributes(), **more, span=NOWHERE)

    def attributes(self):
        """Return attributes of a declaration."""
        names = self.random.sample(("align", "linksection", "linkname"), self.random.choice((0, 0, 0, 1, 2)))
        return tuple(n.Attribute(name, self.leaf(), span=NOWHERE) for name in names)

    def statement(self, depth):
        """Return a statement."""
        if depth <= 0 or self.random.random() < 0.3:
            return self.simple(2) if self.flag() else self.var(2, comptime=self.flag())
        down = depth - 1
        condition = self.expr(2)
        choice = self.random.randrange(7)
        if choice == 0:
            return self.block(down)
        if choice == 1:
            otherwise = self.maybe(lambda: self.block(down) if self.flag() else self.simple(2))
            return n.If(condition, self.block(down), otherwise, span=NOWHERE)
        if choice == 2:
            return n.If(condition, self.simple(2), None, span=NOWHERE)
        if choice == 3:
            return n.Labelled(self.name(), self.loop(down) if self.flag() else self.block(down), span=NOWHERE)
        if choice == 4:
            return n.Switch(condition, self.some(lambda: self.case(down)), span=NOWHERE)
        if choice == 5:
            return n.ComptimeBlock(self.block(down), span=NOWHERE)
        return self.loop(down)

    def loop(self, depth):
        """Return a loop."""
        if self.flag():
            item, index = self.random.sample(NAMES, 2)
            return n.For(self.expr(2), item, self.maybe(lambda: index), self.block(depth), self.flag(), span=NOWHERE)
        step = self.maybe(lambda: n.Assign(self.plain(2), "+=", self.expr(2), span=NOWHERE))
        return n.While(self.expr(2), step, self.block(depth), self.flag(), span=NOWHERE)

    def item(self):
        """Return a declaration of a file."""
        choice = self.random.randrange(7)
        if choice == 0:
            return self.var(3, storage=self.random.choice((None, "export", "extern")))
        if choice == 1:
            of_type, value = self.maybe(lambda: self.type(2)), self.maybe(lambda: self.expr(3))
            return n.ParamDecl(self.name(), of_type, value, self.attributes(), span=NOWHERE)
        if choice == 2:
            return n.ColorDecl(self.name(), self.maybe(lambda: self.expr(2)), span=NOWHERE)
        if choice == 3:
            return n.ComptimeBlock(self.block(3), span=NOWHERE)
        if choice == 4:
            return n.LayoutBlock(self.block(3), span=NOWHERE)
        names = self.random.sample(NAMES, len(NAMES))
        params = self.some(lambda: n.FunctionParameter(names.pop(), self.type(2), self.flag(), span=NOWHERE))
        if choice == 5:
            body, attributes = self.block(3), self.attributes()
            return n.FnDecl("task", self.name(), params, self.type(2), body, attributes=attributes, span=NOWHERE)
        body = self.maybe(lambda: self.block(3))
        return n.FnDecl(
            "fn",
            self.name(),
            params,
            self.type(2),
            body,
            "extern" if body is None else self.random.choice((None, "export", "extern")),
            self.random.choice((None, "inline", "noinline")),
            self.attributes(),
            span=NOWHERE,
        )

    def file(self):
        """Return a file."""
        return n.File(self.some(self.item), span=NOWHERE)
