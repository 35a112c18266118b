"""A weight-streaming gradient is dW = (dY X^T) at the places of a mask, activations and their gradients resident.

What moves
    X (input features x tokens) and dY (output features x tokens) stay in SRAM as in
    `fabric.kernels.streamed.forward`.  For each row of the mask a command goes down every column: the column that
    owns the output feature broadcasts that row of dY along its row of PEs in both directions, the others take it.  Then
    the mask's entries arrive as commands that carry a step, each at the column that owns the input feature: the dot
    product over the PE's tokens, added to what comes from the north and sent south.  From the southern edge the sums
    leave the wafer as bare f32 numbers, in the order of the mask.  In layout B the sums of a group go on to the same
    column of the next group, and leave from the last.

Colors and queues
    4: commands and steps, north to south, to every CE, input queue 0.  5: rows of dY; its routes are set by the CEs at
    each row, since every column is a source in turn; input queue 1, output queue 3.  6 and 7: sums from north to south
    by parity of the row; input queue 3, output queue 4.  8 and up, two per column of a group: sums from group to group;
    input queue 4, output queue 4.

Rows times scalars
    Of a row without gaps all gradients of a column can be made at once: 0, then for each token of the PE the column of
    its features times its number in the row of dY, then the whole vector goes south, added to the north's while it
    passes.  The features of a token have to lie side by side for that, so they are copied once per matrix, an even
    number of them per token, in an odd bank: two multiply-adds a cycle, no conflicts.  Networks use it where it pays
    (`fabric.networks.streamed.operations.gradients`).

Order of additions (bit exact)
    Dot product: products in f32 (exact for 16-bit factors), s = s + product over the tokens in order, from 0.  Then
    north to south s = sum + own, then group after group.

    Rows times scalars: the same, since a multiply-add rounds the exact product plus the sum as an addition does.

Cycles
    WSE-2 multiplies vectors by a register or adds products of two vectors in two operations: a dot product of T tokens
    takes a conversion, a multiplication and a sum, 3 T.  As rows times scalars n features take T (n / 2 + 3) + 3 n / 2.

Source: weight streaming white paper, section 7.3.2, figures 20 and 21.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm import control
from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.kernels.streamed.gradient_cycles import QUEUES, expected_cycles
from fabric.kernels.streamed.placement import (
    Placement,
    cut,
    interleave,
    placement_params,
    placements,
    random_mask,
    resident,
)
from fabric.layout.layout import Layout
from fabric.layout.part import Painted
from fabric.layout.streams import Stream
from fabric.program.program import Program
from wse_core import numerics
from wse_core.errors import ConfigError, InternalError
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = [
    "AT_ONCE",
    "DOWN",
    "SKIP",
    "TURNED",
    "GradientTasks",
    "gradient_layout",
    "mask_streams",
    "route_gradient",
    "row_commands",
    "row_kind",
    "ws_gradient",
]

COLOR_W, COLOR_D, DOWN, ACROSS = 4, 5, (6, 7), 8
TASKS = {"send": 3, "from_west": 4, "from_east": 5, "ask": 6}
"""Control task ids: of the commands that begin a row, and of a place of the mask; its data are the step to it."""
SKIP = 0x4000
"""In the data of a command for a whole row this bit is set: without the first feature."""
TURNED = 0x8000
"""In the same data: gradients are made from the turned copy of the features."""
AT_ONCE = 8
"""A turn of the loop over a turned copy does so many tokens: it costs a taken branch, they cost code."""


class GradientTasks:
    """A program has these tasks of a gradient product: `ws_gradient`'s own, or that of a whole network.

    Parameters
    ----------
    p : Program
    column : int
        Place in the group.
    place : Placement
        Of X.
    row : {"only", "top", "bottom", 0, 1}
        Place in the column; the parity of the row in its middle.
    group : int
    x, d : Var
        Input features and gradients of output features, a row of tokens each.
    tokens : int
        Tokens of the PE.
    base : Reg, optional
        Holds the address of the input features; default that of `x`.
    whole : bool, optional
        Let a command that begins a row ask for its gradients too: its data are their number, from the first feature on,
        or with `SKIP` from the second on.
    longest : int, optional
        The most tokens that `over` is told; default `tokens`, and `over` is not called.
    turned, totals : Var, optional
        Arrays for the features token by token, and for a sum of each in f32.  With them a row that is asked for with
        `TURNED` is made as *rows times scalars*: the features of a token times the token's number in the row of dY,
        token after token, and the sums go south in one vector addition.  `turn` makes the copy.
    windows : int, optional
        Numbers of the longest row of dY for which `answer_windows` makes such rows from windows of images; it takes
        `totals` too.
    counted : Var, optional
        The PE's own sums are zero while this is 0.

    Attributes
    ----------
    mine : Dsr
        Row of dY that the PE sends next.
    wide, factor : Dsr
        f32 numbers of a feature, to write and to read.
    taken, other : Dsr
        The present row of dY in f32, to write and to read.
    features : Dsr
        Reads 16-bit numbers and moves behind what it has read: lent for answers from a turned copy.
    parity : int
        Of the row of PEs.
    """

    features: Dsr

    def __init__(
        self,
        p: Program,
        column: int,
        place: Placement,
        row: int | str,
        group: int,
        x: Var,
        d: Var,
        tokens: int,
        base: Reg | None = None,
        whole: bool = False,
        longest: int = 0,
        turned: Var | None = None,
        totals: Var | None = None,
        windows: int = 0,
        counted: Var | None = None,
    ) -> None:
        self.counted = counted
        self.whole, self.turned, self.totals = whole, turned, totals
        self.from_copy, self.answers = p.new_label(), p.new_label()
        self.p, self.x, self.d, self.tokens, self.base = p, x, d, tokens, x if base is None else base
        self.columns = columns = place.columns
        height = place.height
        parity = row if isinstance(row, int) else {"only": 0, "top": 0, "bottom": (height - 1) % 2}[row]
        self.parity = parity
        self.product = p.array("product", max(tokens, longest), "f32", bank=0)
        self.gradient = p.array("gradient", max(tokens, longest), "f32", bank=2)
        self.row_words = p.reg16("words of a row of gradients") if longest else None
        self.factor, self.other, self.own, self.mine = p.dsr("src0"), p.dsr("src1"), p.dsr("src1"), p.dsr("src1")
        self.wide, self.taken, self.on = p.dsr("dest"), p.dsr("dest"), p.dsr("dest")
        self.north = self.west = None
        ends = row in ("only", "bottom")
        p.input_queue(0, COLOR_W)
        self.onward = {"E": "E" if column < columns - 1 else "", "W": "W" if column > 0 else ""}
        if columns > 1:
            self.row_in, self.row_out = p.input_queue(QUEUES[0], COLOR_D), p.output_queue(QUEUES[1], COLOR_D)
            self.spread, self.arriving = p.dsr("dest"), p.dsr("src1")
        if row not in ("only", "top"):
            self.north, self.above = p.dsr("src0"), p.input_queue(3, DOWN[1 - parity])
        if ends and group > 0:
            self.west, self.before = p.dsr("src0"), p.input_queue(4, across(column, group - 1))
        self.out = p.output_queue(4, across(column, group) if ends and group < place.groups - 1 else DOWN[parity])
        if totals is not None:
            self.scalars = p.array("scalars", max(tokens, windows), "half", bank=0)
            self.sums = p.dsr("src0")
            self.into = None if turned is None else p.dsr("src0")
            self.leaving = p.dsr("dest")

    def prepare(self) -> None:
        """Emit the loads of the DSRs."""
        p = self.p
        self.over(p.mem1d(self.x, self.tokens), self.tokens)
        if self.north:
            p.load(self.north, p.fabin(self.above, 1, dtype="f32"))
        if self.west:
            p.load(self.west, p.fabin(self.before, 1, dtype="f32"))
        if self.totals is not None:
            p.load(self.sums, p.mem1d(self.totals, self.totals.count))
            if self.turned is not None and self.into is not None:
                p.load(self.into, p.mem1d(self.turned, self.tokens, check=False))
            p.load(self.leaving, p.fabout(self.out, self.totals.count, dtype="f32"))

    def over(self, features: Dsd, tokens: int) -> None:
        """Emit the loads of the DSRs for features of so many tokens; `features` reads one."""
        p, product, gradient = self.p, self.p.mem1d(self.product, tokens), self.p.mem1d(self.gradient, tokens)
        p.load(self.factor, product)
        p.load(self.wide, product)
        p.load(self.other, gradient)
        p.load(self.taken, gradient)
        p.load(self.own, features)
        p.load(self.mine, p.mem1d(self.d, tokens, check=False))
        p.load(self.on, p.fabout(self.out, 1, dtype="f32"))
        if self.columns > 1:
            p.load(self.spread, p.fabout(self.row_out, tokens, dtype="half"))
            p.load(self.arriving, p.fabin(self.row_in, tokens, dtype="half"))
        if self.row_words is not None:
            p.ldi(self.row_words, tokens)

    def tasks(self) -> None:
        """Write the tasks: the commands of `TASKS`."""
        p, own, base = self.p, self.own, self.base
        row = self.arriving if self.columns > 1 else self.mine
        with p.task("send", kind="control", id=TASKS["send"]) as t:
            p.dsr_base(own, base)
            turned = p.new_label()
            if self.columns > 1:
                # Taking its own row from the fabric too, it knows when the last wavelet has passed its router: only
                # then may the next command change the route.
                self.lead("R")
                p.fmovh(self.spread, self.mine, async_=True)
            if self.turned is not None:
                p.br16("lt", t.data, 0, turned)
            p.fh2s(self.taken, row)
            self.next_row()
            if self.whole:
                self.answer_all(t.data)
            if self.turned is not None:
                p.done()
                p.place(turned)
                p.fmovh(self.scalars, row)
                self.next_row()
                if self.columns > 1:
                    p.jump(self.answers)
                else:
                    self.answer_turned(t.data)
        for name, rx in (("from_west", "W"), ("from_east", "E")) if self.columns > 1 else ():
            with p.task(name, kind="control", id=TASKS[name]) as t:
                p.dsr_base(own, base)
                self.lead(rx)
                if self.turned is not None:
                    p.br16("lt", t.data, 0, self.from_copy)
                p.fh2s(self.taken, row)
                if self.whole:
                    self.answer_all(t.data)
                if self.turned is not None and rx == "W":  # the tasks of a row share what follows
                    p.done()
                    p.place(self.from_copy)
                    p.fmovh(self.scalars, row)
                    p.place(self.answers)
                    self.answer_turned(t.data)
        with p.task("ask", kind="control", id=TASKS["ask"]) as t:
            words = p.reg16("words to the feature")
            p.mul16(words, t.data, self.tokens)
            p.dsr_off(own, words)
            self.answer()

    def lead(self, rx: str) -> None:
        """Emit the route of a row that comes from the west, from the east or from the own PE, to all beyond it."""
        onward = {"W": self.onward["E"], "E": self.onward["W"], "R": self.onward["E"] + self.onward["W"]}[rx]
        self.p.route(COLOR_D, rx=rx, tx="R" + onward)

    def next_row(self) -> None:
        """Emit the way to the row of dY that is sent next."""
        self.p.dsr_off(self.mine, self.tokens if self.row_words is None else self.row_words)

    def turn(self, data: Reg) -> None:
        """Emit the copy of the features token by token: `data` are how many rows, with `SKIP` from the second row on.

        A token has an even number of them, since a multiply-add takes two at a time; what lies behind an odd number is
        not sent.
        """
        assert self.turned is not None
        assert self.into is not None
        p = self.p
        left, words = p.reg16("rows left"), p.reg16("words")
        p.dsr_base(self.own, self.base)
        self.skipped(words, data, self.tokens)
        p.dsr_off(self.own, words)
        p.and16(left, data, SKIP - 1)
        self.evened(words, left)
        p.dsr_base(self.into, self.turned)
        p.dsr_stride(self.into, words)
        with p.loop(left):
            p.fmovh(self.into, self.own)
            p.dsr_off(self.into, 1)
            p.dsr_off(self.own, self.tokens)
        p.free(left, words)

    def skipped(self, words: Reg, data: Reg, each: int) -> None:
        """Emit words = `each` if the data say `SKIP`, else 0."""
        self.p.slr16(words, data, 14)
        self.p.and16(words, words, 1)
        self.p.mul16(words, words, each)

    def evened(self, count: Reg, given: Reg) -> None:
        """Emit count = the given number, or the next one if that is odd."""
        self.p.add16(count, given, 1)
        self.p.and16(count, count, 0xFFFE)

    def answer_turned(self, data: Reg) -> None:
        """Emit the answers to a whole row from the turned copy; `data` as of `answer_all`, with `TURNED`."""
        assert self.turned is not None
        assert self.totals is not None
        p = self.p
        words, asked = p.reg16("words of a token"), p.reg16("asked for")
        p.and16(asked, data, SKIP - 1)
        self.skipped(words, data, 1)
        p.add16(words, words, asked)
        self.evened(words, words)
        p.dsr_base(self.features, self.turned)
        p.dsr_base(self.sums, self.totals)
        p.dsr_len(self.sums, words)
        p.mov32(self.sums, 0)
        p.free(words, asked)
        factors, place = p.reg32("numbers of the row"), p.reg16("place of the numbers")
        turns, rest = divmod(self.tokens, AT_ONCE) if self.tokens > AT_ONCE else (0, self.tokens)
        p.ldi(place, self.scalars)
        if turns:
            with p.loop(turns):
                self.tokens_of(AT_ONCE, place, factors)
                p.add16(place, place, AT_ONCE)
        self.tokens_of(rest, place, factors)
        p.free(factors, place)
        words = p.reg16("words")
        p.and16(words, data, SKIP - 1)
        p.dsr_len(self.sums, words)
        self.skipped(words, data, 2)
        p.dsr_off(self.sums, words)
        p.free(words)
        self.send_all_south(self.totals.count)

    def tokens_of(self, tokens: int, place: Reg, factors: Reg) -> None:
        """Emit sums += features of a token times its number in the row of dY, for some tokens; numbers come in twos."""
        p = self.p
        for token in range(0, tokens, 2):
            if token + 1 == tokens:
                p.ld16(factors.low, place, offset=token)
            else:
                p.ld32(factors, place, offset=token)
            for factor in (factors.low, factors.high)[: tokens - token]:
                p.fmachs(self.sums, self.sums, self.features, factor)

    def answer_windows(self, data: Reg, row: Dsr, planes: Var, number: Callable[[str], Reg]) -> None:
        """Emit the answers to all places of the windows of some channels, as rows times scalars.

        What a number of the row of dY is multiplied by is a window of all these channels, which moves by a number for
        each: the next sample, the next pixel of a line, the next line.

        Parameters
        ----------
        data : Reg
            The first channel of the column in the upper byte, how many in the lower one.
        row : Dsr
            Writes the row of dY to `scalars`, 16 bits wide: a conversion back, which changes no bit.
        planes : Var
            Channels with a border, as `features` reads them: channels, lines and pixels of a window.
        number : callable
            Emits the load of a number: words of a plane (``plane``), places of a window (``taps``), lines and pixels of
            the row of dY (``height``, ``width``), words from a pixel's last sample to the next pixel (``gap``) and from
            a line's end to the next line (``rest``).
        """
        assert self.totals is not None
        p = self.p
        p.dsr_base(row, self.scalars)
        p.fs2h(row, self.other)
        words, each = p.reg16("words"), number("plane")
        p.slr16(words, data, 8)
        p.mul16(words, words, each)
        p.dsr_base(self.features, planes)
        p.dsr_off(self.features, words)
        p.free(each)
        each = number("taps")
        p.and16(words, data, 0xFF)
        p.dsr_len(self.features, words)
        p.mul16(words, words, each)
        p.dsr_base(self.sums, self.totals)
        p.dsr_len(self.sums, words)
        p.mov32(self.sums, 0)
        p.free(words, each)
        factors, place = p.reg32("numbers of the row"), data  # registers are few, and the data are done with
        p.ldi(place, self.scalars)
        lines = number("height")
        with p.loop(lines, counter=lines):
            pixels = number("width")
            with p.loop(pixels, counter=pixels):
                self.windows_of(place, factors)
                self.move(number("gap"))
            p.free(pixels)
            self.move(number("rest"))
        p.free(factors, lines)
        self.send_all_south(self.totals.count)

    def move(self, words: Reg) -> None:
        """Emit the move of the window by so many words, and give the register back."""
        self.p.dsr_off(self.features, words)
        self.p.free(words)

    def windows_of(self, place: Reg, factors: Reg) -> None:
        """Emit sums += the window of each sample of a pixel times its number in the row of dY."""
        p, together = self.p, 1 + (self.tokens % 2 == 0)  # two numbers are loaded from an even place only
        turns, left = divmod(self.tokens, AT_ONCE) if self.tokens > AT_ONCE else (0, self.tokens)

        def some(count: int) -> None:
            for sample in range(0, count, together):
                if together == 2:
                    p.ld32(factors, place, offset=sample)
                else:
                    p.ld16(factors.low, place, offset=sample)
                for factor in (factors.low, factors.high)[:together]:
                    p.fmachs(self.sums, self.sums, self.features, factor)
                    p.dsr_off(self.features, 1)
            p.add16(place, place, count)

        if turns:
            with p.loop(turns):
                some(AT_ONCE)
        if left:
            some(left)

    def answer_all(self, data: Reg) -> None:
        """Emit the answers to a whole row of a dense mask: `data` are how many features are asked for, 0 for none.

        With `SKIP` the first of the PE's rows is left out.  Two answers are given per turn, since a turn costs a taken
        branch; an odd number begins in the middle of a turn.
        """
        p = self.p
        left, odd, second, end = p.reg16("left"), p.reg16("odd"), p.new_label(), p.new_label()
        p.br16("eq", data, 0, end)
        p.slr16(odd, data, 14)
        p.mul16(odd, odd, self.tokens)
        p.dsr_off(self.own, odd)
        p.and16(left, data, SKIP - 1)
        p.and16(odd, left, 1)
        p.add16(left, left, odd)
        p.br16("ne", odd, 0, second)
        turn = p.label()
        for k in range(2):
            if k:
                p.place(second)
            self.answer()
            p.dsr_off(self.own, self.tokens)
        p.sub16(left, left, 2)
        p.br16("ne", left, 0, turn)
        p.place(end)

    def answer(self) -> None:
        """Emit the dot product of the present feature with the row of dY, added to the north's and sent south."""
        p, total = self.p, self.p.reg32("sum")
        p.mov32(total, 0)
        p.fh2s(self.wide, self.own)
        p.fmuls(self.factor, self.factor, self.other)
        p.fadds(total, self.factor, total)
        self.send_south(total)
        p.free(total)

    def send_south(self, total: Reg) -> None:
        """Emit the addition of a register to what comes from the north, and from the west, and send it on."""
        p = self.p
        self.count(total)
        if self.north and self.west:
            p.fadds(total, self.north, total)
        if self.north and not self.west:
            p.fadds(self.on, self.north, total)
        elif self.west:
            p.fadds(self.on, self.west, total)
        else:
            p.mov32(self.on, total)

    def count(self, own: Reg | Dsr) -> None:
        """Emit zeros for what the PE adds to a sum, where that does not count."""
        if self.counted is not None:
            p, counted, behind = self.p, self.p.reg16("counts"), self.p.new_label()
            p.ld16(counted, self.counted)
            p.br16("ne", counted, 0, behind)
            p.mov32(own, 0)
            p.place(behind)
            p.free(counted)

    def send_all_south(self, most: int) -> None:
        """Emit the addition of the sums of a turned copy, `most` at most, to the north's, while those pass."""
        p = self.p
        if self.west:
            raise InternalError("sums of groups go on one by one", where="kernel: gradient")
        self.count(self.sums)
        if self.north:
            p.fadds(self.leaving, self.sums, p.fabin(self.above, most, dtype="f32"))
        else:
            p.mov32(self.leaving, self.sums)


def gradient_program(
    column: int,
    inputs: Placement,
    n_in: int,
    n_out: int,
    row: int | str,
    group: int,
    tokens: int,
    dtype: str,
    machine: Machine,
) -> Program:
    """Return the program of a PE; parameters as of `GradientTasks`, `n_in` and `n_out` features at most."""
    p = Program(
        f"weight gradient, column {column}, row {row}, group {group}, {tokens} tokens",
        machine,
        half="cb16" if dtype == "cb16" else "f16",
    )
    x = p.array("x", max(1, n_in) * tokens, dtype)
    d = p.array("d", max(1, n_out) * tokens, dtype)
    gradient = GradientTasks(p, column, inputs, row, group, x, d, tokens)
    p.unblocked(p.input_queue(0, COLOR_W))
    with p.task("prepare"):
        gradient.prepare()
    p.start("prepare")
    gradient.tasks()
    p.assemble()
    return p


def row_kind(y: int, height: int) -> int | str:
    """Return the place of row `y` in a column, as `GradientTasks` takes it."""
    return "only" if height == 1 else "top" if y == 0 else "bottom" if y == height - 1 else y % 2


def across(column: int, group: int) -> int:
    """Return the color on which a column's sums go from a group to the next one."""
    return ACROSS + 2 * column + group % 2


def route_gradient(layout: Painted, place: Placement, sender: int | None = None) -> None:
    """Route commands and steps down the columns, rows of dY along the rows, sums down and from group to group.

    `sender` is the column whose row of dY the routes let pass at first: one that sent the last row leaves them so, and
    then a first pass takes the same cycles as every other one.  Default: every column takes from the east.
    """
    columns, groups, height = place.columns, place.groups, place.height
    layout.route(COLOR_W, (0, 0, place.width, height), rx="N", tx="SR")
    layout.route(COLOR_W, (0, height - 1, place.width, 1), rx="N", tx="R")
    for x in range(place.width) if columns > 1 else ():  # a place to begin from; commands set the routes
        column = x % columns
        if sender is None:
            layout.route(COLOR_D, (x, 0, 1, height), rx="E" if column < columns - 1 else "W", tx="R")
            continue
        east, west = "E" * (column < columns - 1), "W" * (column > 0)
        rx = "R" if column == sender else "W" if sender < column else "E"
        on = {"R": east + west, "W": east, "E": west}[rx]
        layout.route(COLOR_D, (x, 0, 1, height), rx=rx, tx="R" + on)
    for y in range(height - 1):
        layout.route(DOWN[y % 2], (0, y, place.width, 1), rx="R", tx="S")
        layout.route(DOWN[y % 2], (0, y + 1, place.width, 1), rx="N", tx="R")
    last, leaving = height - 1, DOWN[(height - 1) % 2]
    for x in range(place.width):
        group, column = divmod(x, columns)
        if group == groups - 1:
            layout.route(leaving, (x, last), rx="R", tx="S")
            continue
        color = across(column, group)
        layout.route(color, (x, last), rx="R", tx="E")
        layout.route(color, (x + 1, last, columns, 1), rx="W", tx="E")
        layout.route(color, (x + columns, last), rx="W", tx="R")


def gradient_layout(
    inputs: Placement, outputs: Placement, dtype: str, machine: Machine
) -> tuple[Layout, list[Stream], list[Stream]]:
    """Return the `Layout` of a gradient product, its input streams and its output streams, one per column.

    Parameters
    ----------
    inputs, outputs : Placement
        Of X and dY; same mesh, same tokens.
    """
    columns, groups, height = inputs.columns, inputs.groups, inputs.height
    if groups > 1 and across(columns - 1, 1) >= machine["router.colors"]:
        most = (machine["router.colors"] - ACROSS) // 2
        raise ConfigError(
            f"adding up groups of {columns} columns takes more than all colors",
            where="kernel ws_gradient: groups",
            hint=f"at most {most} columns a group",
        )
    layout = Layout(inputs.width, height, machine)
    n_in, n_out = (int(np.diff(place.feature_starts).max()) for place in (inputs, outputs))
    made = {}
    for x in range(inputs.width):
        group, column = divmod(x, columns)
        for y in range(height):
            row = row_kind(y, height)
            part = inputs.held(x, y)[1]
            key = column, row, group if row in ("only", "bottom") else 0, part.stop - part.start
            if key not in made:
                made[key] = fit(
                    "kernel ws_gradient",
                    machine,
                    lambda tokens, key=key: gradient_program(
                        key[0], inputs, n_in, n_out, key[1], key[2], tokens, dtype, machine
                    ),
                    {"tokens": key[3]},
                    {"tokens": (1, key[3])},
                )
            layout.place(made[key], x, y)
    route_gradient(layout, inputs)
    leaving = DOWN[(height - 1) % 2]
    ends = range(inputs.width - columns, inputs.width)
    return (
        layout,
        [layout.input_stream(x, 0, "N", COLOR_W) for x in range(inputs.width)],
        [layout.output_stream(x, height - 1, "S", leaving) for x in ends],
    )


def mask_streams(
    indptr: NDArray[np.int64], indices: NDArray[np.int64], inputs: Placement, outputs: Placement
) -> list[tuple[NDArray[np.uint32], NDArray[np.bool_]]]:
    """Return the wavelets of each column of a group, [(payload, is control)]: per row a command, then the steps."""
    n_rows, found = len(indptr) - 1, []
    rows, sender = np.repeat(np.arange(n_rows), np.diff(indptr)), outputs.owners(np.arange(n_rows))
    owner = inputs.owners(indices)
    for column, (entries, steps) in enumerate(cut(rows, owner, indices - inputs.feature_starts[owner], inputs.columns)):
        words, heads = interleave(rows[entries], np.ones(n_rows, np.int64), before=True)
        payload = np.zeros(len(words) + n_rows, np.uint32)
        payload[words] = np.uint32(control.single("nop", TASKS["ask"])) | steps
        payload[heads] = row_commands(sender, column)
        found.append((payload, np.ones(len(payload), bool)))
    return found


def row_commands(sender: NDArray[np.int64], column: int) -> NDArray[np.uint32]:
    """Return the payloads of the commands that begin rows in a column, given the column that sends each row of dY."""
    commands = {name: np.uint32(control.single("nop", task)) for name, task in TASKS.items()}
    return np.where(
        sender == column, commands["send"], np.where(sender < column, commands["from_west"], commands["from_east"])
    )


def reference(
    given: Arithmetic,
    single: Arithmetic,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    x: NDArray[np.uint16],
    d: NDArray[np.uint16],
    inputs: Placement,
) -> NDArray[np.uint32]:
    """Return the gradients at the mask's places as f32 bit patterns, in the machine's order of additions."""
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    wide = [np.asarray(numerics.convert(values, given.fmt, "f32", given.bias, given.ftz)) for values in (x, d)]
    result = total_of_group = np.zeros(len(indices), np.uint32)
    parts = inputs.token_starts
    for part in range(len(parts) - 1):
        total = np.zeros(len(indices), np.uint32)
        for token in range(parts[part], parts[part + 1]):
            product = single.call("mul", wide[0][indices, token], wide[1][rows, token])
            total = single.call("add", product, total)
        total_of_group = total if part % inputs.height == 0 else single.call("add", total_of_group, total)
        if part % inputs.height == inputs.height - 1:
            result = total_of_group if part < inputs.height else single.call("add", result, total_of_group)
    return result


def expected_hops(indptr: NDArray[np.int64], indices: NDArray[np.int64], inputs: Placement, outputs: Placement) -> int:
    """Return the grants: commands and steps down the columns, rows of dY along the rows, sums down and across."""
    columns, groups, height, n_rows = inputs.columns, inputs.groups, inputs.height, len(indptr) - 1
    down = (len(indices) + n_rows * columns) * groups * height
    sizes = np.diff(inputs.token_starts)
    along = int((-(-sizes // 2)).sum()) * columns * n_rows if columns > 1 else 0
    sums = len(indices) * (groups * 2 * (height - 1) + 1)
    return down + along + sums + len(indices) * (groups - 1) * (columns + 1)


@kernel(
    "ws_gradient",
    "weight-streaming gradient: dot products at the places of a mask, sums leave at the south",
    "weight streaming white paper, section 7.3.2",
    [
        *placement_params(features=32),
        KernelParam("density", 0.5, float, "share of places that the mask asks for", low=0, high=1),
        KernelParam("dtype", "f16", str, "format of activations and their gradients; sums are f32", ("f16", "cb16")),
        *data_params(),
    ],
)
def ws_gradient(
    machine: Machine,
    inputs: int,
    outputs: int,
    tokens: int,
    width: int,
    height: int,
    groups: int,
    density: float,
    dtype: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `ws_gradient`; see the head of this module."""
    places = placements("kernel ws_gradient", inputs, outputs, tokens, width, height, groups)
    given, single = Arithmetic.of(machine, dtype), Arithmetic.of(machine, "f32")
    rng = np.random.default_rng(seed)
    x = given.random(rng, (inputs, tokens), data, terms=tokens)
    d = given.random(rng, (outputs, tokens), "ones" if data == "ones" else "normal")
    mask = random_mask((outputs, inputs), density, rng)
    indptr, indices = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]), np.nonzero(mask)[1]
    rows = np.nonzero(mask)[0]
    layout, into, out = gradient_layout(*places, dtype, machine)
    tiles = [
        tile
        for name, place, values in (("x", places[0], x), ("d", places[1], d))
        for tile in resident(name, place, values)
    ]
    sent = mask_streams(indptr, indices, *places)
    in_cycles = cache(lambda: expected_cycles(indptr, indices, *places, machine))
    session = Session(
        layout,
        tiles,
        task=None,
        streams=[(stream, *sent[k % places[0].columns]) for k, stream in enumerate(into)],
        expected=in_cycles,
    )
    owner = np.searchsorted(places[0].feature_starts, indices, side="right") - 1
    got, last = np.zeros(len(indices), np.uint32), 0
    for column, stream in enumerate(out):
        came = session.fabric.receive(stream)
        got[owner == column] = came.payload
        last = max(last, int(came.cycles.max(initial=0)))

    def compare() -> Check:
        expected = reference(given, single, indptr, indices, x, d, places[0])
        x_values, d_values = given.operand(x), given.operand(d)
        with np.errstate(invalid="ignore", over="ignore"):
            plain = (x_values[indices] * d_values[rows]).sum(axis=1)
            magnitude = np.abs(x_values[indices] * d_values[rows]).sum(axis=1)
        return check_sum(single, got, expected, plain, magnitude, tokens + 1, 2 * tokens)

    check = compared(compare)
    return report(
        session,
        check,
        session.run.cycles,
        expected_cycles=in_cycles(),
        expected_hops=expected_hops(indptr, indices, *places),
        expected_macs=0,
        multiplications=len(indices) * tokens,
        asked=len(indices),
        additions=len(indices) * (height * groups - 1),
        bytes_back=4 * len(indices),
        arrays={"gradients": got},
    )
