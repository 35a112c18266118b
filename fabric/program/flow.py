"""Control flow: labels, branches, loops, conditions."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from fabric.asm.operands import Label, Reg, is_number
from wse_core import isa

__all__ = ["Flow"]

INVERSE = {
    "eq": "ne",
    "ne": "eq",
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "ltu": "geu",
    "geu": "ltu",
    "leu": "gtu",
    "gtu": "leu",
}
"""The condition that holds when another does not (of integers: NaN has no opposite)."""
SWAPPED = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}
"""Conditions that the machine lacks: the same with operands exchanged."""
KINDS = {"16": ("br16", "i"), "32": ("br32", "l"), "h": ("brh", "h"), "s": ("brs", "s")}
"""Instruction and element type of each kind of comparison."""


class Flow:
    """Part of `fabric.program.program.Program`: control flow."""

    def new_label(self, name=None):
        """Return a label to be put somewhere later by `place`."""
        self._n_labels += 1
        name = f".{self._n_labels}" if name is None else name
        if name in self._labels:
            raise self._error(f"label {name!r} exists already")
        label = self._labels[name] = Label(name)
        return label

    def place(self, label):
        """Put a label here."""
        self._changing()
        if self._body is None:
            raise self._error(f"label {label.name!r} outside a task or function")
        if label.at is not None:
            raise self._error(f"label {label.name!r} is placed twice")
        label.at = len(self._ins)
        return label

    def label(self, name=None):
        """Put a new label here and return it."""
        return self.place(self.new_label(name))

    def jump(self, target):
        """Jump to a label (object or name, which may be placed later)."""
        self._emit("jmp", imm=target)

    jmp = jump

    def branch(self, cond, a, b, target, kind=None):
        """Jump to `target` if ``a cond b``.

        Parameters
        ----------
        cond : str
            ``eq ne lt le gt ge`` (signed, or floating point), ``ltu leu gtu geu`` (unsigned).
        a : Reg
        b : Reg or number
            A number other than 0 goes through a free register.
        target : Label or str
        kind : {"16", "32", "h", "s"}, optional
            Integers of 16 or 32 bits, 16-bit floats, f32; default: from the sizes of the registers, and float if `b`
            is a Python float.
        """
        op, letter = self._kind(kind, a, b)
        if cond not in INVERSE:
            raise self._error(f"{op}: unknown condition {cond!r}", hint=" ".join(INVERSE))
        if letter in "hs" and cond.endswith("u"):
            raise self._error(f"{op}: no unsigned comparison of floats", hint="eq ne lt le gt ge")
        held = []
        if isinstance(b, (Reg,)) and cond in SWAPPED:
            a, b, cond = b, a, SWAPPED[cond]
        x = self._reg_field(a, letter, op) if isinstance(a, Reg) else self._held(a, letter, isa.BY_NAME[op], held)
        if isinstance(b, Reg):
            y = self._reg_field(b, letter, op)
        elif cond not in SWAPPED and is_number(b) and b == 0:
            y = 0
        else:
            y = self._held(b, letter, isa.BY_NAME[op], held)
        if cond in SWAPPED:
            x, y, cond = y, x, SWAPPED[cond]
        self._emit(op, a=x, b=y, d=isa.CONDITIONS.index(cond), imm=target)
        self._release(held)

    def br16(self, cond, a, b, target):
        """`branch` on 16-bit integers."""
        self.branch(cond, a, b, target, "16")

    def br32(self, cond, a, b, target):
        """`branch` on 32-bit integers."""
        self.branch(cond, a, b, target, "32")

    def brh(self, cond, a, b, target):
        """`branch` on 16-bit floats; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "h")

    def brs(self, cond, a, b, target):
        """`branch` on f32; quiet, false with NaN except ne."""
        self.branch(cond, a, b, target, "s")

    def _kind(self, kind, a, b):
        if kind is None:
            sizes = {x.size for x in (a, b) if isinstance(x, Reg)} - {0}
            wide = 2 in sizes
            floating = any(isinstance(x, (float, np.floating)) for x in (a, b))
            kind = ("s" if wide else "h") if floating else ("32" if wide else "16")
        if kind not in KINDS:
            raise self._error(f"unknown kind of comparison {kind!r}", hint=", ".join(KINDS))
        return KINDS[kind]

    def _branch_unless(self, cond, a, b, target, kind):
        """Jump to `target` unless ``a cond b``: exact also for NaN."""
        letter = self._kind(kind, a, b)[1]
        if cond not in INVERSE:
            raise self._error(f"unknown condition {cond!r}", hint=" ".join(INVERSE))
        if letter in "il" or cond in ("eq", "ne"):
            self.branch(INVERSE[cond], a, b, target, kind)
            return
        body = self.new_label()
        self.branch(cond, a, b, body, kind)
        self.jump(target)
        self.place(body)

    @contextmanager
    def loop(self, count, index=False, counter=None):
        """Repeat the body `count` times.

        Parameters
        ----------
        count : int or Reg
            A register is copied, and may be 0.
        index : bool
            Count up in a second register as well (one instruction more per turn).
        counter : Reg, optional
            16-bit register to count down in; default: a free one.

        Yields
        ------
        Reg
            With `index` the register that holds 0, 1, 2 ..., else the one that holds `count` .. 1.
        """
        down = counter or self._register("loop", 1)
        up = self._register("index", 1) if index else None
        end = None
        if isinstance(count, Reg):
            end = self.new_label()
            self.mov16(down, count)
            self.branch("eq", down, 0, end, "16")
        else:
            if not isinstance(count, (int, np.integer)) or not 0 <= count <= 0xFFFF:
                raise self._error(f"loop: {count!r} is not a number of turns in 0 .. {0xFFFF}")
            if count == 0:
                end = self.new_label()
                self.jump(end)
            self.ldi(down, int(count))
        if up is not None:
            self.ldi(up, 0)
        start = self.label()
        yield up if index else down
        if up is not None:
            self.add16(up, up, 1)
        self.sub16(down, down, 1)
        self.branch("ne", down, 0, start, "16")
        if end is not None:
            self.place(end)
        for reg in (up, None if counter is not None else down):
            if reg is not None:
                self._body.regs.remove(reg)

    @contextmanager
    def while_(self, cond, a, b, kind=None):
        """Repeat the body while ``a cond b`` holds; arguments as `branch`."""
        end = self.new_label()
        start = self.label()
        self._branch_unless(cond, a, b, end, kind)
        yield
        self.jump(start)
        self.place(end)

    @contextmanager
    def if_(self, cond, a, b, kind=None):
        """Execute the body if ``a cond b`` holds; arguments as `branch`.  `else_` may follow."""
        end = self.new_label()
        self._branch_unless(cond, a, b, end, kind)
        yield
        self.place(end)
        self._last_if = end

    @contextmanager
    def else_(self):
        """Execute the body if the condition of the `if_` right before did not hold."""
        skip = self._last_if
        if skip is None or skip.at != len(self._ins):
            raise self._error("else_ without an if_ right before it")
        end = self.new_label()
        self.jump(end)
        skip.at = len(self._ins)
        yield
        self.place(end)
