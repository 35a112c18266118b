"""The state of a PE between two instructions is followed, and what scalar instructions make of it.

A value that is not known is None, or absent.  Nothing is guessed: what depends on such a value is not known either.

Source: the meaning of instructions, `wse_core.reference.alu`; docs/machine.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fabric.price.content import Content, joined
from wse_core import isa
from wse_core.errors import ProgramError
from wse_core.image import ProgramImage
from wse_core.params import Machine
from wse_core.reference.alu import ALU, CONDITION
from wse_core.reference.numerics import FMT_CB16, FMT_F16, Num

Given = Mapping[str | int, object]
"""What is known holds for variables by name, and for single words by address."""

__all__ = ["Fifos", "Given", "KnownArithmetic", "State", "begin", "is_register", "joined_states"]

LOW16, LOW32 = 0xFFFF, 0xFFFFFFFF
MASKS = {letter: LOW32 if words == 2 else LOW16 for letter, words in isa.WORDS.items()}


def is_register(field_: int) -> bool:
    """Whether an operand field names a register."""
    return field_ >> 4 == isa.FILE_REG


@dataclass
class Fifos:
    """Fill of each FIFO by number; those of `unknown` hold what nobody knows, and nothing waits for them."""

    counts: dict[int, int] = field(default_factory=dict)
    ended: dict[tuple[int, bool], set[int]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)

    def copy(self) -> Fifos:
        """Return the same, to be changed."""
        return Fifos(dict(self.counts), {key: set(sizes) for key, sizes in self.ended.items()}, set(self.unknown))


@dataclass
class State:
    """A `State` is what is known of a PE.

    Attributes
    ----------
    registers : list of (int or None)
        16-bit values by number.
    memory : dict[int, int]
        Known words of SRAM by address.
    promised : frozenset of int
        Addresses for whose content the caller vouches: only an instruction that surely writes there changes it.
    held : dict[int, Content or None]
        What DSRs hold by operand field; None: a descriptor, not known of what kind; absent: nothing.
    fifos : Fifos
    """

    registers: list[int | None]
    memory: dict[int, int]
    promised: frozenset[int] = frozenset()
    held: dict[int, Content | None] = field(default_factory=dict)
    fifos: Fifos = field(default_factory=Fifos)

    def copy(self) -> State:
        """Return the same, to be changed."""
        return State(list(self.registers), dict(self.memory), self.promised, dict(self.held), self.fifos.copy())

    def read(self, field_: int, words: int) -> int | None:
        """Return the value of a register or pair."""
        first = field_ & 15
        return self.registers[first] if words == 1 else _together(self.registers[first : first + words])

    def load(self, address: int, words: int) -> int | None:
        """Return the value at a word address."""
        return _together([self.memory.get(address + k) for k in range(words)])

    def write(self, field_: int, words: int, value: int | None) -> None:
        """Set a register or pair."""
        for k in range(words):
            self.registers[(field_ & 15) + k] = None if value is None else value >> 16 * k & LOW16

    def store(self, address: int | None, words: int, value: int | None) -> None:
        """Set words of memory; None: it is not known where."""
        if address is None:
            self.memory = {at: word for at, word in self.memory.items() if at in self.promised}
            return
        for k in range(words):
            if value is None:
                self.memory.pop(address + k, None)
            else:
                self.memory[address + k] = value >> 16 * k & LOW16


def _together(parts: list[int | None]) -> int | None:
    """Return words, the lowest first, as one number."""
    value = 0
    for k, part in enumerate(parts):
        if part is None:
            return None
        value |= part << 16 * k
    return value


def begin(image: ProgramImage, given: Given | None = None, initial: bool = False) -> State:
    """Return the state of a PE before its program runs.

    Parameters
    ----------
    image : ProgramImage
    given : mapping of (str or int) to array_like, optional
        Contents that are known: of a variable by name, whole numbers or bit patterns, of as many elements as one likes;
        of a word by its address.
    initial : bool
        Whether all other variables are taken to hold what the program begins with.
    """
    memory: dict[int, int] = {}
    if initial:
        memory = dict.fromkeys(range(image.code_words, image.footprint), 0)
        for address, words in image.data:
            memory.update(enumerate(map(int, words), address))
    promised = set()
    for name, values in (given or {}).items():
        if isinstance(name, int):
            memory[name] = int(np.asarray(values)) & LOW16
            promised.add(name)
            continue
        symbol = image.symbols.get(name)
        if symbol is None:
            raise ProgramError(
                f"there is no variable {name!r}", program=image.name, hint=", ".join(image.symbols) or "there is none"
            )
        size = symbol.words // max(1, symbol.count)
        for k, value in enumerate(np.atleast_1d(np.asarray(values)).tolist()):
            for half in range(size):
                address = symbol.address + k * size + half
                memory[address] = int(value) >> 16 * half & LOW16
                promised.add(address)
    return State([0] * isa.N_REGS, memory, frozenset(promised))


def joined_states(one: State, other: State) -> State:
    """Return what is known of a PE that is in one state or the other."""
    held: dict[int, Content | None] = {}
    for name in one.held.keys() | other.held.keys():
        a, b = one.held.get(name, ...), other.held.get(name, ...)
        if a is ... or b is ...:  # a program that uses an empty DSR faults: it holds what it may hold
            held[name] = b if a is ... else a  # type: ignore[assignment]
        else:
            held[name] = None if a is None or b is None else joined(a, b)
    fifos = Fifos(dict(one.fifos.counts), {}, one.fifos.unknown | other.fifos.unknown)
    for number in one.fifos.counts.keys() | other.fifos.counts.keys():
        if one.fifos.counts.get(number, 0) != other.fifos.counts.get(number, 0):
            fifos.unknown.add(number)
    registers = [a if a == b else None for a, b in zip(one.registers, other.registers, strict=True)]
    memory = {at: word for at, word in one.memory.items() if other.memory.get(at) == word}
    return State(registers, memory, one.promised, held, fifos)


class KnownArithmetic:
    """A `KnownArithmetic` computes scalar instructions whose operands are known.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    """

    def __init__(self, image: ProgramImage, machine: Machine) -> None:
        half, separate = FMT_CB16 if image.half == "cb16" else FMT_F16, machine["num.fmac"] == "separate"
        self.num = Num(half, machine["num.cb16_bias"], machine["num.ftz"], separate)

    def value(self, op: isa.Op, fields: tuple[int, int, int], imm: int | None, state: State) -> int | None:
        """Return what an ``alu`` or ``ldi`` instruction with operands b, c, d gives, None if that is not known."""
        if op.form == "ldi":
            return int(imm or 0) & LOW32
        b, c, d = fields
        types = op.types
        values = (
            0 if types[1] == "-" else state.read(b, isa.WORDS[types[1]]),
            0 if types[2] == "-" else state.read(c, isa.WORDS[types[2]]) if imm is None else int(imm),
            0 if types[3] == "-" else state.read(d, isa.WORDS[types[3]]),
        )
        if None in values:
            return None
        b, c, d = (found & MASKS[letter] for found, letter in zip(values, types[1:], strict=True))  # type: ignore[operator]
        return int(ALU[op.name](self.num, b=b, c=c, d=d))

    def taken(self, op: isa.Op, fields: tuple[int, int, int], state: State) -> bool | None:
        """Return whether a branch with operands a, b and condition d is taken, None if that is not known."""
        a, b, d = fields
        left = state.read(a, isa.WORDS[op.types[0]])
        right = state.read(b, isa.WORDS[op.types[1]]) if is_register(b) else 0
        if left is None or right is None:
            return None
        return bool(CONDITION[op.name][isa.CONDITIONS[d]](self.num, left, right))
