"""What a task costs its PE: its instructions one after the other, each for what the machine's numbers say it takes.

`TaskCosts` reads the assembled program of a PE, the one that a wafer runs, and adds up what stands between the picker's
choice of a task and its next choice.  Nothing is measured, and nothing is known beforehand about any task: a program
that changes changes its costs.

A task that meets the fabric waits for other PEs.  Its cost is cut there: what comes `TaskCost.before` the operation
that takes or sends, the `length` of that operation, and what comes `TaskCost.after` it; who waits for whom is the
business of `swarm.cluster.columns`.

Timing: docs/machine.md, "CE".
Known differences: a branch is followed if it depends on the data of the wavelet only; where an operand moves over
the rows of an array, bank conflicts are those of an average row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fabric.kernels.basic.vector import expected_cycles
from fabric.kernels.kit import timing
from wse_core import isa
from wse_core.errors import InternalError
from wse_core.image import DSD_FABIN, DSD_FABOUT, DSD_MEM1D, F_PACKED, F_SAVE, ProgramImage
from wse_core.params import Machine
from wse_core.reference.alu import ALU, CONDITION

__all__ = ["TaskCost", "TaskCosts"]

SLOTS = {"divide": "ce.divide", "dsr_edit": "ce.dsr_edit", "tsc": "ce.tsc_read", "config": "ce.config"}
"""Number of the machine that says how long an instruction of a class keeps the thread; others take a cycle."""
LATENCY = {"int": "ce.int_latency", "fp": "ce.fp_latency", "load": "ce.load_latency"}
FABRIC = (DSD_FABIN, DSD_FABOUT)
FIRST_REGISTER = isa.FILE_REG << 4
"""In which a task finds the data of its wavelet."""


@dataclass(frozen=True)
class TaskCost:
    """Cycles of a task.

    Attributes
    ----------
    before : float
        From the picker's choice to the first step of the operation that meets the fabric; to the next choice, if the
        task has none.
    length : int
        Cycles of its steps, if nothing has to be waited for; 0 without one.
    after : float
        From behind its last step to the next choice.
    """

    before: float
    length: int = 0
    after: float = 0.0

    @property
    def alone(self) -> float:
        """Cycles if nothing has to be waited for."""
        return self.before + self.length + self.after


@dataclass(frozen=True)
class _Held:
    """What a DSR holds, and whether it moves over the rows of an array."""

    kind: int
    flags: int
    base: int
    length: int
    stride: int
    moves: bool = False


class TaskCosts:
    """Costs of the tasks of a program.

    Parameters
    ----------
    image : ProgramImage
    machine : Machine
    """

    def __init__(self, image: ProgramImage, machine: Machine) -> None:
        self.image, self.machine = image, machine
        self._code = {at: (op, a, b, c, d, imm) for at, op, a, b, c, d, imm in isa.decode(image.code)}
        at = list(self._code)
        self._next = dict(zip(at, [*at[1:], -1], strict=True))
        self._prepared: dict[int, _Held] = {}
        first = (int(image.active) & -int(image.active)).bit_length() - 1
        self._walk(int(image.entry[first]), self._prepared, 0, None, {})
        self._known: dict[tuple[int | None, ...], TaskCost] = {}

    def command(self, number: int, array: int | None = None, data: int | None = None) -> TaskCost:
        """Return the `TaskCost` of a control task.

        Parameters
        ----------
        number : int
        array : int, optional
            Address of the array over which operands move; default where they point when the program begins.
        data : int, optional
            Of the wavelet, if what the task does depends on it.
        """
        return self._average(int(self.image.control_entry[number]), array, data)

    def data(self, number: int, array: int | None = None, told: int | None = None) -> TaskCost:
        """Return the `TaskCost` of a data task.

        Parameters
        ----------
        number, array : int
            As of `command`.
        told : int, optional
            Control task that ran before and left a register that the task reads.
        """
        return self._average(int(self.image.entry[number]), array, None, told)

    def _average(self, entry: int, array: int | None, data: int | None, told: int | None = None) -> TaskCost:
        """Return the mean cost over rows that begin in different banks."""
        if entry < 0:
            raise InternalError("the program has no such task", where="cluster: task")
        key = entry, array, data, told
        if key not in self._known:
            held = dict(self._prepared)
            if array is not None:
                held = {name: replace(one, base=array) if one.moves else one for name, one in held.items()}
            left: dict[int, int | None] = {}
            if told is not None:
                self._walk(int(self.image.control_entry[told]), dict(held), 0, None, left)
            rows = range(self.machine["mem.banks"])
            found = [self._walk(entry, dict(held), row, array, left | {FIRST_REGISTER: data}) for row in rows]
            self._known[key] = replace(
                found[0],
                before=float(np.mean([one.before for one in found])),
                after=float(np.mean([one.after for one in found])),
            )
        return self._known[key]

    def _walk(
        self, entry: int, held: dict[int, _Held], row: int, array: int | None, values: dict[int, int | None]
    ) -> TaskCost:
        """Return the cost of a task whose operands stand at a row of their arrays.

        `held` and `values` are what DSRs and registers hold, as far as that is known; afterwards what they hold then.
        """
        m, at, now = self.machine, entry, self.machine["task.start"]
        ready: dict[int, float] = {}
        before, length, behind = None, 0, 0.0
        while True:
            op, a, b, c, d, imm = self._code[at]
            vector = isa.is_vector(op, a, b, c)
            now = max([now, *(ready.get(register, 0) for register in _read(op, (a, b, c, d), imm, vector))])
            follow, slots = self._next[at], 1
            if op.name == "done":
                now += 1
                return TaskCost(now) if before is None else TaskCost(before, length, now - behind)
            if vector:
                steps, meets = self._steps(op, (a, b, c), held, row)
                asynchronous = imm is not None and bool(imm & 1)
                first = now + timing.issue(m)
                if meets and not asynchronous and before is None:
                    before, length, behind = first, steps, first + steps
                slots = 1 if asynchronous else timing.operation(m, steps)
                if a >> 4 == isa.FILE_REG and op.types[0] != "-":
                    wait = max(1, m["ce.fp_latency" if op.cost == "fp" else "ce.int_latency"])
                    for k in range(isa.WORDS[op.types[0]]):
                        ready[a + k], values[a + k] = first + steps - 1 + wait, None
            elif op.form in ("br", "jmp"):
                taken = op.form == "jmp" or self._holds(op, (a, b, d), values)
                slots = m["ce.branch_taken" if taken else "ce.branch_not_taken"]
                follow = int(imm or 0) if taken else follow
            elif op.name == "dsr_load":
                slots = self._load(a, int(imm or 0), held)
            else:
                slots = m[SLOTS[op.cost]] if op.cost in SLOTS else 1
                if op.form == "dsr":
                    self._edit(op.name, a, values.get(b) if imm is None else imm, imm is None, held, array)
                elif op.form in ("alu", "ldi", "ld", "tsc", "rand", "in_td"):
                    wait = max(slots, m[LATENCY[op.cost]] if op.cost in LATENCY else slots)
                    value = self._value(op, (b, c), imm, values) if op.types[0] == "i" else None
                    for k in range(max(1, isa.WORDS[op.types[0]])):
                        ready[a + k], values[a + k] = now + wait, None
                    values[a] = value
            now, at = now + slots, follow

    def _holds(self, op: isa.Op, fields: tuple[int, int, int], values: dict[int, int | None]) -> bool:
        """Return whether a branch is taken."""
        a, b, d = fields
        left, right = values.get(a), values.get(b) if b >> 4 == isa.FILE_REG else 0
        if left is None or right is None or op.types[0] != "i":
            raise InternalError(f"a task with {op.name} of what is not known beforehand", where="cluster: task")
        return bool(CONDITION[op.name][isa.CONDITIONS[d]](None, left, right))

    def _value(self, op: isa.Op, fields: tuple[int, int], imm: int | None, values: dict[int, int | None]) -> int | None:
        """Return what a 16-bit integer instruction gives, None if it is not known."""
        if op.form == "ldi":
            return int(imm or 0) & 0xFFFF
        if op.form != "alu" or set(op.types) - {"i", "-"}:
            return None
        known = {}
        for place, field, letter in zip("bc", fields, op.types[1:3], strict=True):
            if letter != "-":
                known[place] = int(imm) & 0xFFFF if place == "c" and imm is not None else values.get(field)
        if any(value is None for value in known.values()):
            return None
        return int(ALU[op.name](None, **({"b": 0, "c": 0, "d": 0} | known)))

    def _load(self, name: int, number: int, held: dict[int, _Held]) -> int:
        """Load a DSR; return the cycles."""
        one = self.image.descriptors[number]
        if int(one["ndim"]) > 1:
            raise InternalError("a descriptor of several dimensions", where="cluster: task")
        flags = int(one["flags"])
        held[name] = _Held(
            int(one["kind"]),
            flags,
            int(one["base"]),
            int(one["extent"][0]),
            int(one["stride"][0]),
            bool(flags & F_SAVE),
        )
        return int(self.machine["ce.dsr_load"])

    def _edit(
        self, name: str, dsr: int, value: int | None, register: bool, held: dict[int, _Held], array: int | None
    ) -> None:
        """Change a field of what a DSR holds, to a value or by one that is not known."""
        one = held[dsr]
        if register and name in ("dsr_base", "dsr_off"):
            held[dsr] = replace(one, moves=True, base=one.base if array is None else array)
        elif value is None:
            raise InternalError(f"a task with {name} of what is not known beforehand", where="cluster: task")
        elif name == "dsr_base":
            held[dsr] = replace(one, base=value & 0xFFFF)
        elif name == "dsr_off":
            held[dsr] = replace(one, base=one.base + value & 0xFFFF)
        elif name == "dsr_len":
            held[dsr] = replace(one, length=value & 0xFFFF)

    def _steps(self, op: isa.Op, fields: tuple[int, int, int], held: dict[int, _Held], row: int) -> tuple[int, bool]:
        """Return the cycles of a vector operation's steps, and whether it meets the fabric."""
        m = self.machine
        a, b, c = fields
        named = [(field, letter) for field, letter in ((b, op.types[1]), (c, op.types[2]), (a, op.types[0]))]
        dsrs = [(held[f], isa.WORDS[x]) for f, x in named if x != "-" and f >> 4 != isa.FILE_REG and f in held]
        n = dsrs[0][0].length
        if any(one.kind in FABRIC for one, _ in dsrs):
            if not any(one.flags & F_PACKED for one, _ in dsrs):
                return n, True
            return n // 2 * timing.steps(m, op.name, 2) + n % 2, True

        def where(one: _Held, words: int) -> tuple[int, int]:
            return one.base + (row * one.length * words if one.moves else 0), words

        read = [where(held[f], isa.WORDS[x]) for f, x in named[:2] if x != "-" and f >> 4 != isa.FILE_REG]
        stride = next((one.stride for one, _ in dsrs if one.kind == DSD_MEM1D), 1)
        if a >> 4 == isa.FILE_REG:
            return n, False  # one after the other; conflicts of two sources do not occur in these programs
        written = where(held[a], isa.WORDS[op.types[0]])
        cycles = expected_cycles(op, n, stride, m, written, read) - m["ce.tsc_read"]
        return cycles - timing.operation(m, 0), False


def _read(op: isa.Op, fields: tuple[int, int, int, int], imm: int | None, vector: bool) -> list[int]:
    """Return the registers that an instruction reads."""
    a, b, c, d = fields
    t = op.types
    chosen: list[tuple[int, str]] = []
    if op.form == "alu":
        chosen = [(b, t[1]), (d, t[3])] + ([] if imm is not None and not vector else [(c, t[2])])
    elif op.form in ("ld", "flt") or (op.form == "dsr" and imm is None):
        chosen = [(b, "i")]
    elif op.form in ("st", "br"):
        chosen = [(a, t[0]), (b, t[1] if op.form == "br" else "i")]
    return [field + k for field, letter in chosen if field >> 4 == isa.FILE_REG for k in range(isa.WORDS[letter])]
