"""Instructions as a walk needs them, what it notes of the fabric, and what it cannot know."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from fabric.price import costs
from fabric.price.content import contents_of
from fabric.price.state import is_register
from fabric.price.steps import modulus_of
from wse_core import isa
from wse_core.image import ProgramImage
from wse_core.isa import Op
from wse_core.params import Machine

__all__ = ["Choice", "Code", "Coded", "Meeting", "NotKnown", "fetches"]


class NotKnown(Exception):
    """A `NotKnown` is raised where cycles depend on something that is not known before the run.

    Attributes
    ----------
    what : str
    at : int
        Code word of the instruction.
    """

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what, self.at = what, at


class Choice(NotKnown):
    """A branch depends on what is not known; the walk can go on when `Walker.choice` says how."""


@dataclass(slots=True, eq=False)
class Coded:
    """A `Coded` is an instruction with what a walk needs of it; programs share those that are equal.

    Attributes
    ----------
    size : int
        Words of code: the next instruction comes behind them.
    reads : tuple of int
        Registers that it reads at its issue.
    dsrs : frozenset of int
        Operand fields that are DSRs, that of a multiplier in memory too.
    operands : tuple of (int, int)
        Field, and words of an element, of each operand of a vector operation that is no register: b, c, a.
    attributes : dict or None
        Of an asynchronous operation.
    slots, follow : int
        Cycles for which it keeps the pipeline, and to the next one of its thread, if nothing about it is special.
    plans : dict
        What a vector operation does with operands of some shapes, found once (`fabric.price.walk`).
    """

    op: Op
    a: int
    b: int
    c: int
    d: int
    imm: int | None
    size: int
    vector: bool
    reads: tuple[int, ...]
    dsrs: frozenset[int]
    operands: tuple[tuple[int, int], ...]
    attributes: dict[str, Any] | None
    slots: int
    follow: int
    plans: dict[tuple[object, ...], Any] = field(default_factory=dict)

    @property
    def asynchronous(self) -> bool:
        """Whether it is a vector operation of a microthread."""
        return self.attributes is not None


class Code(dict[int, Coded]):
    """A `Code` has the instructions of an image by their code words, with their costs on a machine.

    Attributes
    ----------
    contents : list of Content
        What each descriptor of the image leaves in the DSR that it is loaded into.
    modulus : int
        Operands that are moved by so many words take the same steps.
    """

    def __init__(self, image: ProgramImage, machine: Machine) -> None:
        super().__init__()
        self.contents = contents_of(image.descriptors)
        self.modulus = modulus_of(machine)
        known = _known_on(machine)
        if len(known) > MOST_KNOWN:
            known.clear()
        for at, op, a, b, c, d, imm in isa.decode(image.code):
            key = op.code, a, b, c, d, imm
            found = known.get(key)
            if found is None:
                found = known[key] = _coded(machine, op, a, b, c, d, imm)
            self[at] = found


MOST_KNOWN = 1 << 16


@lru_cache(maxsize=16)
def _known_on(machine: Machine) -> dict[tuple[int, int, int, int, int, int | None], Coded]:
    """Return the instructions that were met on a machine, by op code and operands: programs of PEs are much alike."""
    return {}


def _coded(machine: Machine, op: Op, a: int, b: int, c: int, d: int, imm: int | None) -> Coded:
    """Return an instruction with what a walk needs of it."""
    vector = isa.is_vector(op, a, b, c)
    named = zip((b, c, a), (*op.types[1:3], op.types[0]), strict=True)
    held = [(f, isa.WORDS[letter]) for f, letter in named if vector and letter != "-" and not is_register(f)]
    return Coded(
        op,
        a,
        b,
        c,
        d,
        imm,
        1 if imm is None else 2,
        vector,
        tuple(_reads(op, (a, b, c, d), imm, vector)),
        frozenset([a] if op.form == "dsr" else [f for f, _ in held] + [d] * (vector and fetches(op, d))),
        tuple(held),
        isa.async_fields(imm) if vector and imm is not None and imm & 1 else None,
        costs.slots(machine, op),
        costs.follow(machine, op),
    )


def fetches(op: Op, d: int) -> bool:
    """Return whether an operation takes its multiplier from memory, where a DSR points."""
    return op.is_mac and not is_register(d)


def _reads(op: Op, fields: tuple[int, int, int, int], imm: int | None, vector: bool) -> list[int]:
    """Return the numbers of the registers that an instruction reads at its issue."""
    a, b, c, d = fields
    t = op.types
    chosen: list[tuple[int, str]] = []
    if op.form in ("alu", "dfilt"):
        chosen = [(b, t[1]), (d, t[3])] + ([] if imm is not None and not vector else [(c, t[2])])
        counter = isa.again_register(imm) if vector else None
        if counter is not None:
            chosen.append((isa.FILE_REG << 4 | counter, "i"))
    elif op.form in ("ld", "flt") or (op.form == "dsr" and (imm is None or op.name == "dsr_load")):
        chosen = [(b, "i")]
    elif op.form in ("st", "br"):
        chosen = [(a, t[0]), (b, t[1] if op.form == "br" else "i")]
    return [(field & 15) + k for field, letter in chosen if is_register(field) for k in range(isa.WORDS[letter])]


class Meeting(NamedTuple):
    """A `Meeting` is a synchronous operation with operands on the fabric.

    Attributes
    ----------
    at : int
        Its code word.
    first : float
        Its first step, in cycles from the beginning of the walk.
    length : float
        Cycles of its steps, if nothing has to be waited for.
    takes, sends : tuple of int
        Its input queues, and its output queues.
    wavelets : int
        Of each.
    advances : bool
        Whether the last wavelet that it sends moves switches on.
    """

    at: int
    first: float
    length: float
    takes: tuple[int, ...]
    sends: tuple[int, ...]
    wavelets: int
    advances: bool = False

    @property
    def end(self) -> float:
        """This cycle comes behind the last step."""
        return self.first + self.length
