"""These rules of the compiler are what cycles depend on and nobody has published, with what speaks for them.

Published programs are rebuilt in CSL and compiled by them (`harness.validation`).  Those that have no number:

*Descriptors.* Each operation loads all its DSRs, also those that hold the same already: operations one after the other
on the same sums take as long as others do (tiled stencils in the author's source, radii 2 to 6).  One whose base is
computed while the program runs is loaded and its base set: an operation on three of them in a loop takes 20 to 21
cycles besides its elements on the machine (SUMMA; sparse products in the vendor's simulator), and in SUMMA one of the
three does not change in that loop.  The base of a variable that moves on is set by an instruction of its own even where
unrolled loops make it a number: with tiles of 8 that SUMMA takes 3,035 cycles per step on the machine, and 2,000 if the
columns of C stayed in DSRs.

*Indices.*  A product of an index with a constant is made of shifts in each turn of a loop, and not carried on by
additions from turn to turn: the public trace of a matrix product has shifts and IMUL11 in its inner loop.  Only an
index that has no other use than one shift counts in multiples.  A computed index has the address of its array added,
and 32-bit integers are pairs (`ce.pair`, `ce.branch32`): with both, loops of four sparse formats without their
multiply-adds take what the simulator says within 2 % for tiles of 32 (`tests.harness.validation`).

*Variables that hold descriptors* are stored whole when they get another descriptor, and only the number that changes
when they get their own with another base: with that, sparse products by columns and by rows take 41 and 40 cycles per
element beside the multiply-add, and 50 per line; the simulator says 39, 37 and 53.

A subscript that is a sum is added up from what changes least, so that parts leave inner loops: tiles of 8, 14, 16
and 32 are within 5 % with it and up to 8 % slower without.

*Products* of 16 bits that no shifts make are calls of a routine, since the machine multiplies numbers of 11 bits: tiles
of 46 take 141 cycles per multiply-add where those of 32 take 95.

*Counters* are taken to be seldom zero, so that what happens then stands behind everything else: tasks of tiled stencils
that count take about six cycles each, and would take eleven with a jump.

*Comparisons* with a constant take two instructions, the constant and the branch; they stand for the comparison and the
jump of such traces, so the constant is not kept in a register.
"""

from __future__ import annotations

from wse_core.params import Machine
from wse_core.params import machine as preset

__all__ = [
    "COMPILED", "KEPT", "MAPPED", "MAP_SETUP", "MULTIPLY_ADD", "NAMED_BASE", "PRIORITIES_UNSAID", "PRODUCT", "ROUTINES",
    "UNROLLED", "VALUES", "compiled", "powers", "unrolls",
]  # fmt: skip

_BOTH = {"task.priority_rule": "round_robin", "ce.dsr_load": 3, "ce.dsr_row": 1, "ce.dsr_dimension": 0}
COMPILED = {
    "wse2": {**_BOTH, "task.overlap": 3, "ce.branch_end": 1},
    "wse3": {**_BOTH, "task.overlap": 2, "ce.branch_end": 3, "ce.fabric_load": 4},
}
"""The machine that runs compiled layouts has these numbers, by preset, unless others are asked for.

*Order of tasks* of equal priority is not published.  A public program (game-of-life) forwards values of one generation
in task 12 and takes those of the next in tasks 0 to 7: with the lowest id always first, values that arrive early
overwrite what is not yet forwarded, and it stands still; in turn it runs as its authors saw it.

*Descriptors.* Each word that an operation's set-up writes into a DSR takes three cycles: loading one that is known, of
whatever kind, and setting a base.  The trace of a systolic product has 13 to 15 scalar cycles for three known ones and
a number; SUMMA 20.5 for three whose bases are computed; unrolled ELLPACK 13.5 with two bases.  Tiled stencils in their
author's source, whose operations have descriptors of two dimensions, are within 5 % with it and up to 64 % too slow
with the 6 + 3 per dimension that our own kernels take.

Loads of known descriptors of one dimension that follow one another overlap (`ce.dsr_row`): what the three cycles are is
the wait of the operation for the last of them.  The one-cell stencil of the same author gives its cycles in each state
of its history, by which descriptors went into named DSRs: four operations with one load each take 12 cycles more than
without, one with two loads 5, four with two loads besides a third 4 in all; with three cycles for each they would be
12, 6 and 24.  The tiled one of radius 1, which loads eight by hand in a row, takes 13 cycles too many on WSE-2 without
it, from tiles of 3 x 3 to 14 x 1 and 10 x 10, and none with it.  Descriptors of more dimensions take as long as ever:
they fill two registers, and radii above 1 have no cycles to spare.

*Tasks* that only count end by one comparison that costs as much as a branch not taken, and one that is picked behind
another starts at once: else those stencils, eight tasks of which count, come out up to 50 % too slow.  On WSE-3 it
starts a cycle later, and loads of the fabric's descriptors are dearer (`ce.fabric_load`): tiles of radius 1 that wait
for eight tasks miss nine cycles without the one, larger radii, which load eight of the fabric's descriptors, some 40
without both."""

PRIORITIES_UNSAID = {"wse2": ("medium_low", "low"), "wse3": ("medium", "medium")}
"""The main thread and an asynchronous operation have these priorities where the program says neither.

For WSE-2 the page on DSDs says that an operation is low, which is below the main thread.  For WSE-3 nothing is
published.  A public tiled stencil of radius 1 begins to compute there while its edges still come in, and its author's
script publishes only what passes its check; with threads that wait until the main thread has nothing to do, edges come
too late from tiles of 10 x 10 on.  So they take turns.  Small tiles that wait for their edges are within 4 % with that
(7 % too fast without); those of 4 x 4 to 6 x 6, which do not wait, take 14 to 20 % too many cycles, as if moves cost
the main thread nothing there."""

UNROLLED = 300
"""A loop is unrolled if all its turns weigh at most this, in the units of `fabric.csl.lower.size`.

That is LLVM's bound at -O3; whether its units are these is not known.  What public programs show leaves 272 to 306
(`tests.fabric.csl.test_unrolling` has all of them): a row of 8 elements in ELLPACK is unrolled on the machine, one of 9
is not (SPMM-ELLPACK-01, -03); SUMMA's loop over 16 columns is, those over 14, whose index takes a product, and over 32
are not; of a systolic product of 5 x 5 both loops are."""

PRODUCT = 15
"""A product that is no shift is given this weight: ELLPACK's 8 and 9 per row leave 14.3 to 18.5."""


NAMED_BASE = 3
"""Cycles of `@set_dsr_base_addr`, whose DSR the program names; idle instructions stand for what nobody has seen.

ELLPACK with 8 elements per row, unrolled and without its multiply-add, takes 13.5 cycles per element: 2 for a load, 5
for a product, and two bases."""

MULTIPLY_ADD = {"wse2": 1, "wse3": 0}
"""A synchronous multiply-add takes so many cycles beside one for itself and one per element, by preset; not one in a
`@map`.

In public traces of the vendor's simulator its first element is executed two cycles after the issue, and 10 elements
take 12 cycles more than without it.  SUMMA's unrolled loops take 20.5 cycles beside the elements on the machine (20
with it, 19 without); 9 to 25 multiply-adds of tiled stencils are on WSE-2 as many cycles too few without it, on WSE-3
they are none.  In a `@map` a turn of one operation takes n + 1 cycles."""

KEPT = frozenset((7, 12, 13, 14, 15))
"""Registers that hold no values: r7 is the stack pointer (the vendor's page on registers), and four others.

What the four hold is not public: addresses of arrays, which are added from a pool of words, would be one thing.  Loops
by rows and by columns of sparse products take 49 to 54 cycles per line in the simulator and on the machine, as long as
with counters that lie in memory.  With four registers less their 28 points are 0.6 % off in the mean, and their loops
alone within 3 % (`tests.harness.validation`); with two or six less, whole points are 2 % or loops alone up to 9 % off;
with all, points are 3.7 % off, the worst 9 %."""
VALUES = 16 - len(KEPT)
"""So many registers are left for values."""

MAPPED = 39
"""A `@map` is given this weight: the cycles that each of a public matrix-vector product takes beside its turns
(MATVEC).
"""

MAP_SETUP = 25
"""A `@map` takes so many cycles before its turns beside what is loaded for them.

Published are 39 beside turns of n + 1 cycles, of which descriptors and stamps take 14 here."""

ROUTINES = {"runtime.product_u16": {8, 9, 10, 11}}
"""These registers are saved by routines of the run-time library besides those that they use.

Binaries of the vendor's compiler show a product of 16 bits that is straight code and saves two pairs of registers more;
SUMMA's tiles of 46 take 42 to 43 cycles more per multiply-add than tiles whose index is a shift."""


def compiled(machine: Machine) -> Machine:
    """Return a machine with the numbers of `COMPILED` that are still those of its preset."""
    default = preset(machine.preset)
    own = COMPILED[machine.preset]
    return machine.replace({name: value for name, value in own.items() if machine[name] == default[name]})


def unrolls(turns: int, turn: int) -> bool:
    """Return whether a loop is unrolled.

    Parameters
    ----------
    turns : int
        Known number of turns.
    turn : int
        What one weighs without counting and jump, of which nothing is left in written-out turns: so LLVM counts too.
    """
    return turns * turn <= UNROLLED


def powers(constant: int) -> tuple[int, int, int] | None:
    """Return ``(high, low, sign)`` with `constant` = 2^high + sign 2^low, sign 0 for a power of two; None if none."""
    if constant < 1:
        return None
    high = constant.bit_length() - 1
    rest = constant - (1 << high)
    if rest == 0:
        return high, 0, 0
    if rest & rest - 1 == 0:
        return high, rest.bit_length() - 1, 1
    rest = (1 << high + 1) - constant
    if rest & rest - 1 == 0:
        return high + 1, rest.bit_length() - 1, -1
    return None
