"""Look-ups: tokens and labels are numbers in the PEs, and a row of a table goes to those that have its number.

What moves
    Nothing but the stream.  A command says a number; every PE makes a row of marks of it, where its tokens have that
    number.  The weights of the number's row follow, to each column those of its own features: each one times the marks
    is added to the feature's row.  On the way back the marks take the place of a row of gradients that other products
    are sent, so that no row is broadcast: every column answers for its own features.

Order of additions (bit exact)
    From 0, s = fma(weight, mark, s) over the rows as they come: the bias's, then table after table.  All terms but one
    of a table are zeros, which change nothing.  Gradients as those of other products, mark times gradient.

Cycles
    Numbers are compared in operations on words of 16 bits, four a cycle but for a shift: a row of marks takes
    1.75 T + 48 for fewer than 2^15 numbers, 2.5 T + 75 for more, most of the rest loads of descriptors.  A weight takes
    T / 2 + 6: it is a command, so that the task of all other weights has no branch more.

Source: weight streaming white paper, sections 4 and 7.1 (a service hands each wafer its samples); that embeddings are
looked up, and how, is ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric.asm.operands import Reg, Var
from fabric.networks.graph.lookup import Lookup, no_number, tables_of
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import HOT, IDS
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter

__all__ = ["LOOKUP", "hot_row"]

COMMANDS = {
    "table": "the numbers that are compared from here on are those of a row",
    "word": "data = a number: marks where tokens have it; the weights of its row go to the first feature from here on",
    "look": "data = a weight: wide row plus weight times marks; on to the next feature",
    "no_words": "all wide rows: zero",
    "words_end": "sums are those of products again",
    "row16": "row: the wide row, rounded",
    "ask_word": "data = how many features the column has: the gradients of the number's row, south; or TURNED",
}


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the rows of all tables, then the rounding of the sums."""
    y = step.writes[0]
    w.tell("no_words", source=HOT)
    for table in _tables(w, step):
        w.look_up(step, table)
    w.tell(row=f"{w.plan.array(y)}.rows", wide="expo")
    w.each(y, "row16")
    w.tell("words_end")


def ask(w: StepWriter, step: NetworkStep) -> None:
    """Write the requests for the gradients of all rows."""
    w.tell(source=w.plan.array(step.reads[1]))
    w.copy_gradients(step)
    for table in _tables(w, step):
        w.ask_looked_up(step, table)
    w.tell("words_end")


def _tables(w: StepWriter, step: NetworkStep) -> Iterator[int]:
    """Say which numbers are compared, those of each table in turn, the bias's first; yield the number of the table."""
    count = step.node.size("tables")
    for number in [*[count] * step.node.size("bias"), *range(count)]:
        w.tell(aux=f"{IDS}.{number}")
        w.tell("table")
        yield number


def hot_row(code: ProgramCode, into: Var, ids: Var, number: Reg, mark: Reg | int) -> None:
    """Emit a row of marks where numbers are the given one, of zeros elsewhere.

    `code.two`, and `code.short` if it is not where the row goes, are used.
    """
    p = code.p
    x, y = (p.mem1d(row, code.tokens, dtype="u16") for row in (code.short, code.two))
    p.xor16(x, p.mem1d(ids, code.tokens, dtype="u16"), number)
    if no_number(code.network) < 0x8000:  # the difference less one is negative only if there is none
        p.sub16(x, x, 1)
        p.sar16(x, x, 15)
    else:
        p.sub16(y, 0, x)
        p.or16(x, x, y)
        p.slr16(x, x, 15)
        p.sub16(x, x, 1)
    p.and16(p.mem1d(into, code.tokens, dtype="u16"), x, mark)


class LookupTasks:
    """A `LookupTasks` has the tasks of look-ups, and what they hold between commands.

    Parameters
    ----------
    code : ProgramCode
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p = code, code.p
        self.ids = p.array("ids of the table", code.tokens, "half")
        self.wide = code.product.again  # lent until the last row is rounded

    def tasks(self) -> None:
        """Write the tasks: a number, a weight of its row, sums, and the gradients of a row."""
        code, p, tokens = self.code, self.code.p, self.code.tokens
        wide = code.held["expo"]
        with code.command("table"):
            p.fmovh(self.ids, code.reads["aux"])
        with code.command("word") as t:
            hot_row(code, code.held[HOT], self.ids, t.data, self._mark(t.data))
            p.dsr_base(self.wide, wide)
        with code.command("look") as t:
            p.fmachs(self.wide, self.wide, code.product.column_x, t.data)
            p.dsr_off(self.wide, 2 * tokens)
        with code.command("no_words"):
            p.load(self.wide, p.mem1d(wide, tokens))
            p.mov32(p.mem1d(wide), 0)
        with code.command("words_end"):
            p.load(self.wide, code.product.sums)
        with code.command("row16"):
            p.fs2h(code.writes["row"], code.reads["wide"])
        self._answers()

    def _mark(self, number: Reg) -> Reg | int:
        """Return what stands for a one in the table that has a number, or emit it: a comparison for every table."""
        p, one = self.code.p, int(self.code.half.encode(1.0))
        node = next(node for node in self.code.network.nodes if node.op == Lookup.name)
        tables = tables_of(node)
        if not any(table.mark for table in tables):
            return one
        found, place = p.reg16("mark"), p.reg16("number with a sign")
        p.ldi(found, tables[0].mark or one)
        p.xor16(place, number, 0x8000)
        for first, mark in [*((table.first, table.mark) for table in tables[1:]), (node.size("inputs"), 0)]:
            before = p.new_label()
            p.br16("lt", place, first - 0x8000, before)
            p.ldi(found, mark or one)
            p.place(before)
        p.free(place)
        return found

    def _answers(self) -> None:
        """Write the gradients of a row: what other products do when a row of gradients is there."""
        code, p, gradient = self.code, self.code.p, self.code.gradient
        hot, turned = p.mem1d(code.held[HOT], code.tokens), p.new_label()
        with code.command("ask_word") as t:
            p.dsr_base(gradient.own, gradient.base)
            if gradient.turned is not None:
                p.br16("lt", t.data, 0, turned)
            p.fh2s(gradient.taken, hot)
            gradient.answer_all(t.data)
            if gradient.turned is not None:
                p.done()
                p.place(turned)
                p.fmovh(gradient.scalars, hot)
                if gradient.columns > 1:
                    p.jump(gradient.answers)
                else:
                    gradient.answer_turned(t.data)


LOOKUP = Lowering(
    COMMANDS,
    {"forward": forward, "ask": ask},
    {"forward": ("forward, {place}", "forward"), "ask": ("gradients, {place}", "gradient")},
    tasks_of=LookupTasks,
)
"""A look-up has this form in weight streaming."""
