"""Functions become instructions: two DSRs per file that are moved along the vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fabric.asm.operands import Address, Dsr, Reg, Var, is_number
from fabric.program.functions.mathematics import Functions
from fabric.program.program import Program

__all__ = ["Emit"]


@dataclass(frozen=True)
class Half:
    """A `Half` has the lower or the upper halves of the elements of a variable."""

    var: Var
    offset: int


@dataclass(frozen=True)
class Temporary:
    """A `Temporary` is a vector of a program that belongs to the functions."""

    var: Var

    @property
    def low(self) -> Half:
        return Half(self.var, 0)

    @property
    def high(self) -> Half:
        return Half(self.var, 1)


class Emit(Functions):
    """An `Emit` writes functions as instructions of the task that is being written.

    Parameters
    ----------
    p : Program
    count : int
        Elements of all vectors.

    Notes
    -----
    A vector is a variable of f32 (its first `count` elements), the address of an element (``var[3]``), a register with
    a word address (even), or a DSR of the program with `count` elements: src1 as a source, dest or src0 as a
    destination.  A source DSR and a destination DSR are used by one operation each, so they can save their address.

    Six variables ``fn0`` to ``fn5`` and two DSRs of each file belong to the functions; one Emit for a program will do.
    """

    def __init__(self, p: Program, count: int) -> None:
        self.p, self.count = p, count
        self.length: Reg | None = None
        self.at: dict[tuple[str, str], Address | Reg] = {}  # where each DSR points
        # Two sources in one bank take turns.  Sources that meet lie in different banks; added ones half of all
        # banks apart, except q + v, once in gelu, since q and w are multiplied.
        banks = {"u": 2, "v": 0, "w": 4, "t": 6, "q": 2, "x": 4}
        for k, (name, bank) in enumerate(banks.items()):
            setattr(self, name, Temporary(p.array(f"fn{k}", count, "f32", bank=bank)))
        self.dsrs = {
            (file, width): p.dsr(file, name=f"functions {width}")
            for width in ("f32", "u16")
            for file in ("dest", "src0", "src1")
        }

    @contextmanager
    def first(self, count: int, length: Reg | None = None) -> Iterator[None]:
        """Inside the block vectors have `count` elements, no more than at first, or as many as a register says.

        A register may hold 1 to `count`.
        """
        before = self.count, self.length
        self.count, self.length = count, length
        yield
        self.count, self.length = before

    @contextmanager
    def call(self) -> Iterator[None]:
        """A function; DSRs hold nothing when it begins."""
        self.at.clear()
        yield

    def operand(self, file: str | None, width: str, value: Any) -> Any:
        """Return the operand for a vector, its DSR moved there; numbers and DSRs of the program stay."""
        if file is None or is_number(value) or isinstance(value, Dsr):
            return value
        key, p = (file, width), self.p
        place: Address | Reg
        dsr = self.dsrs[key]
        if isinstance(value, Half):
            var, place = value.var, Address(value.var, value.offset)
        elif isinstance(value, Reg):
            var, place = self.u.var, value
        else:
            found = Address(value.var) if isinstance(value, Temporary) else value
            found = Address(found) if isinstance(found, Var) else found
            if not isinstance(found, Address) or found.var.dtype != "f32":
                raise p.unit.error(
                    f"{value!r} is no f32 vector", hint="a variable of f32, a register with its address, or a DSR"
                )
            var, place = found.var, found
            if place.offset // 2 + self.count > var.count:
                raise p.unit.error(f"fewer than {self.count} elements", symbol=var.name)
        if key not in self.at:
            stride, offset = (2 if width == "u16" else 1), 0
            if isinstance(place, Address):
                offset = place.offset if width == "u16" else place.offset // 2
            p.load(dsr, p.mem1d(var, self.count, stride=stride, offset=offset, dtype=width))
            if isinstance(place, Reg):
                p.dsr_base(dsr, place)
            if self.length is not None:
                p.dsr_len(dsr, self.length)
        elif self.at[key] != place:
            p.dsr_base(dsr, place)
        self.at[key] = place
        return dsr

    def emit(self, name: str, width: str, dest: Any, *sources: Any) -> None:
        """Emit an operation; of two vectors the first goes through src0, one alone through src1."""
        vectors = [k for k, source in enumerate(sources) if not is_number(source)]
        if isinstance(dest, Dsr) and len(vectors) == 2:  # src0 has a partner already: go through a temporary
            through = sources[vectors[0]]
            self.emit(name, width, through, *sources)
            name, sources, vectors = "mov32", (through,), [0]
        files = {k: "src0" if len(vectors) == 2 and k == vectors[0] else "src1" for k in vectors}
        found = [self.operand(files.get(k), width, source) for k, source in enumerate(sources)]
        getattr(self.p, name)(self.operand("dest", width, dest), *found)

    def half(self, name: str, dest: Any, *sources: Any) -> None:
        """Emit a 16-bit operation on halves."""
        self.emit(name, "u16", dest, *sources)

    def mul(self, *operands: Any) -> None:
        self.emit("fmuls", "f32", *operands)

    def add(self, *operands: Any) -> None:
        self.emit("fadds", "f32", *operands)

    def sub(self, *operands: Any) -> None:
        self.emit("fsubs", "f32", *operands)

    def fma(self, *operands: Any) -> None:
        self.emit("fmacs", "f32", *operands)

    def maximum(self, *operands: Any) -> None:
        self.emit("fmaxs", "f32", *operands)

    def minimum(self, *operands: Any) -> None:
        self.emit("fmins", "f32", *operands)

    def move(self, *operands: Any) -> None:
        self.emit("mov32", "f32", *operands)
