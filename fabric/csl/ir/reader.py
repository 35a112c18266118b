"""The text that `fabric.csl.ir.printer` writes is read back, so that a function can be written down as it is seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fabric.csl.diagnostics import Source, Span
from fabric.csl.ir.code import BasicBlock, Instr, IrFunction, StaticMemory, Sym, Vreg
from fabric.csl.ir.machine import AutoDsr, Ending, ExplicitDsr, Fifo, Template, Vector
from fabric.csl.ir.printer import LATER
from wse_core import isa
from wse_core.errors import ConfigError

__all__ = ["read"]

NAME = r"[^\s,()\[\]=+]+"
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<register>[vd]\d+(?:\.{NAME})?(?:=r-?\d+)?(?![\w:\#])) | (?P<block>b\d+\b) |
    (?P<memory>@[^\s,()\[\]=+]*?(?=[-+]\d|[\s,()\[\]=]|$)) | (?P<function>&{NAME}) |
    (?P<auto>[a-z]\w*\#\d+(?:\.\d+)?) | (?P<explicit>[a-z]\w*:\d+) |
    (?P<number>[-+]?\d+) | (?P<string>"(?:[^"\\]|\\.)*") | (?P<word>\w+) | (?P<mark>[()\[\],=:])
    )""",
    re.VERBOSE,
)
REGISTER = re.compile(rf"([vd])(\d+)(?:\.({NAME}))?(?:=r(-?\d+))?")
BLOCK = re.compile(r"  b(\d+):(?: depth (\d+))?$")
WORDS = {"None": None, "True": True, "False": False}
END = ("", "")
HEADS = ("fn ", "task ")

Kind = TypeVar("Kind")

Value = object
"""A `Value` is what a piece of text stands for: a number, a word, or something of the intermediate form."""


def read(text: str, name: str = "text") -> IrFunction:
    """Return the function that a text of `fabric.csl.ir.printer.listing` describes.

    Parameters
    ----------
    text : str
    name : str
        Of the text, for messages.

    Raises
    ------
    ConfigError
        If the text is none; says line and column.
    """
    return _Reader(text, name).function


class _Reader:
    """A `_Reader` makes a function of its text: first all of its registers and blocks, which are met before they are
    made.
    """

    def __init__(self, text: str, name: str) -> None:
        self.source = Source(name, text)
        self.span = Span(self.source, 0, len(text))
        self.named: dict[str, Value] = {}
        self.frame: list[StaticMemory] = []
        self.function = IrFunction("", "", self.span)
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        lines = []
        offset = 0
        for line in text.splitlines(keepends=True):
            if line.strip():
                self.span = Span(self.source, offset + len(line) - len(line.lstrip()), offset + len(line.rstrip()))
                lines.append((self.span, line.rstrip(), self._tokens(line.rstrip())))
            offset += len(line)
        self._registers({token for *_, tokens in lines for kind, token in tokens if kind == "register"})
        for _, line, _ in lines:
            if found := BLOCK.match(line):
                self.named[f"b{found[1]}"] = BasicBlock(int(found[1]), int(found[2] or 0))
        for self.span, line, self.tokens in lines:
            self.at = 0
            self._line(line)
        if not self.function.blocks or not self.function.kind:
            raise self.wrong("there is no function")
        self.function.frame = self.frame

    def wrong(self, what: str) -> ConfigError:
        """Return the error of the line of the moment."""
        return ConfigError(f"{what}: {self.span.text!r}", where=str(self.span), hint="see fabric/csl/ir/printer.py")

    def _tokens(self, line: str) -> list[tuple[str, str]]:
        found = []
        # A name of a function is all up to the parenthesis: it may look like anything.
        place = line.find("(") if line.startswith(HEADS) else 0
        while place < len(line):
            match = TOKEN.match(line, place)
            if match is None or match.lastgroup is None:
                raise self.wrong(f"'{line[place:]}' is not understood")
            found.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()
        return found

    def _registers(self, texts: set[str]) -> None:
        found = {int(match[2]): match for match in map(REGISTER.fullmatch, texts) if match is not None}
        for number in sorted(found):
            letter, _, name, fixed = found[number].groups()
            made = Vreg(2 if letter == "d" else 1, name or "", None if fixed is None else int(fixed))
            self.named[f"{letter}{number}"] = made

    # ---- lines

    def _line(self, line: str) -> None:
        if found := BLOCK.match(line):
            self.function.blocks.append(self._known(f"b{found[1]}", BasicBlock))
            return
        if line.startswith("    "):
            self._operation()
        elif line.startswith(HEADS):
            self._head()
        else:
            self._declaration()
        if self.at != len(self.tokens):
            raise self.wrong(f"'{(*self.tokens, END)[self.at][1]}' is too much")

    def _head(self) -> None:
        function = self.function
        function.kind, _, function.name = self.span.text.partition("(")[0].partition(" ")
        function.span = self.span
        params, _ = self._arguments()
        function.params = [self._of(Vreg, param) for param in params]
        facts = {}
        while self._peek()[1] != ":":
            key = self._next()[1]
            self._expect("=")
            facts[key] = self.value()
        self._next()
        self._facts(function, facts)

    def _facts(self, function: IrFunction, facts: dict[str, Value]) -> None:
        function.result = self._of(int, facts.pop("result", 0))
        function.places = list(self._numbers(facts.pop("places", ())))
        function.clobbers = set(self._numbers(facts.pop("clobbers", ())))
        function.circle = bool(facts.pop("circle", False))
        if facts:
            raise self.wrong(f"'{next(iter(facts))}' is no fact of a function")

    def _declaration(self) -> None:
        kind, name = self._next()
        if self._peek()[0] == "number":  # a word of a memory that is an address
            offset = int(self._next()[1])
            self._expect("=")
            self._known(name, StaticMemory).relocations[offset] = self._of(Sym, self.value())
            return
        self._expect("=")
        if kind == "explicit":
            held = self.value()
            self.function.named[self._explicit(name)] = None if held is None else self._of(Template, held)
            return
        word = self._next()[1]
        values, more = self._arguments()
        makers: dict[str, Callable[[str, list[Value], dict[str, Value]], Value]] = {
            "memory": self._memory, "function": self._callee, "storage": self._storage,
        }  # fmt: skip
        if word not in makers:
            raise self.wrong(f"'{word}' declares nothing")
        try:
            self.named[name] = makers[word](name[1:], values, more)
        except (TypeError, ValueError) as error:
            raise self.wrong(str(error)) from None

    def _memory(self, name: str, values: list[Value], more: dict[str, Value]) -> StaticMemory:
        dtype, count = values
        init = more.pop("init", None)
        frame = more.pop("frame", False)
        made = StaticMemory(name, self._of(int, count), self._of(str, dtype), **more)  # type: ignore[arg-type]
        if init is not None:
            made.init = np.array(self._numbers(init), np.uint16)
        if frame:
            self.frame.append(made)
        return made

    def _callee(self, name: str, values: list[Value], more: dict[str, Value]) -> IrFunction:
        (kind,) = values
        made = IrFunction(name, self._of(str, kind), self.span)
        self._facts(made, more)
        return made

    def _storage(self, _: str, values: list[Value], more: dict[str, Value]) -> Fifo:
        return Fifo(*values, **more)  # type: ignore[arg-type]

    def _operation(self) -> None:
        dst = None
        if len(self.tokens) > 1 and self.tokens[1][1] == "=":
            dst = self._of(Vreg, self.value())
            self._expect("=")
        op = self._next()[1]
        args: list[Value] = []
        while self._peek() != END and self._peek()[1] != "[":
            args.append(self.value())
            if self._peek()[1] != ",":
                break
            self._next()
        data: Value = None
        if self._peek()[1] == "[":
            self._next()
            parts = [self.value()]
            several = False
            while self._peek()[1] == ",":
                several = True
                self._next()
                if self._peek()[1] != "]":
                    parts.append(self.value())
            self._expect("]")
            data = tuple(parts) if several else parts[0]
        if not self.function.blocks:
            raise self.wrong("an operation stands outside of a block")
        self.function.blocks[-1].code.append(Instr(op, dst, tuple(args), data, self.span))

    # ---- values

    def value(self) -> Value:
        """Return the value that comes next."""
        kind, text = self._next()
        match kind:
            case "register":
                return self._known(re.split(r"[.=]", text)[0], Vreg)
            case "block":
                return self._known(text, BasicBlock)
            case "memory":
                memory, offset = self._known(text, StaticMemory), 0
                if self._peek()[0] == "number":
                    offset = int(self._next()[1])
                return Sym(memory, offset) if self._is_address else memory
            case "function":
                return self._known(text, IrFunction)
            case "auto":
                return self._auto(text)
            case "explicit":
                return self._explicit(text)
            case "number":
                return int(text)
            case "string":
                return json.loads(text)
            case "word":
                if self._peek()[1] == "(":
                    return self._record(text)
                return WORDS.get(text, text)
        if text == "(":
            self.at -= 1
            return tuple(self._arguments()[0])
        raise self.wrong(f"'{text}' is no value")

    _is_address = True
    """Whether the name of a memory means its address."""

    def _record(self, name: str) -> Value:
        values, more = self._arguments()
        try:
            if name == LATER:
                return Ending(*values, **more)  # type: ignore[arg-type]
            if name in isa.BY_NAME:
                return Vector(name, tuple(values), **more)  # type: ignore[arg-type]
            return Template(name, *values, **more)  # type: ignore[arg-type]
        except TypeError as error:
            raise self.wrong(str(error)) from None

    def _arguments(self) -> tuple[list[Value], dict[str, Value]]:
        """Return what stands in parentheses."""
        self._expect("(")
        values: list[Value] = []
        more: dict[str, Value] = {}
        while self._peek()[1] != ")":
            if self._peek()[0] == "word" and self.tokens[self.at + 1 : self.at + 2] == [("mark", "=")]:
                key = self._next()[1]
                self._next()
                self._is_address = key != "memory"
                more[key] = self.value()
                self._is_address = True
            else:
                values.append(self.value())
            if self._peek()[1] != ",":
                break
            self._next()
        self._expect(")")
        return values, more

    def _auto(self, text: str) -> Value:
        known = self.named.get(text)
        if known is None:
            file, _, rest = text.partition("#")
            if file == "fifo":
                raise self.wrong(f"{text} is not declared")
            made = AutoDsr(file)
            made.thread = int(rest.partition(".")[2] or -1)
            known = self.named[text] = made
        return known

    @staticmethod
    def _explicit(text: str) -> ExplicitDsr:
        file, _, number = text.partition(":")
        return ExplicitDsr(file, int(number))

    def _known(self, name: str, kind: type[Kind]) -> Kind:
        found = self.named.get(name)
        if not isinstance(found, kind):
            raise self.wrong(f"{name} is not known")
        return found

    def _of(self, kind: type[Kind], value: Value) -> Kind:
        if not isinstance(value, kind):
            raise self.wrong(f"{value!r} is no {kind.__name__}")
        return value

    def _numbers(self, value: Value) -> tuple[int, ...]:
        return tuple(self._of(int, entry) for entry in self._of(tuple, value))

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self.at += 1
        return token

    def _expect(self, mark: str) -> None:
        if self._next()[1] != mark:
            raise self.wrong(f"'{mark}' is missing")
