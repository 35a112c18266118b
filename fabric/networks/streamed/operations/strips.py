"""A strip of each image lies in a row of PEs: neighbours hand each other the rows of pixels that windows reach over.

What moves
    Before a convolution works, each PE has a copy of its planes with a border of zeros.  Where the image goes on, north
    or south of the strip, the rows of pixels in that border come from the neighbour's copy: both send at the same time,
    in the background, and take what the other sent, plane by plane.  So no pixel crosses more than one link.  Where
    strips are gathered each row of PEs sends its strip on in both directions and hands on what comes from one side to
    the other.  Nothing else moves from row to row.

Colors and queues
    Those of `fabric.networks.streamed.operations.blocks`: 12 and 13 south, 14 and 15 north, by parity of the row that
    sends.  A network has sequences or strips.

Sums
    Gradients of filters, and sums of a batch, are those of what a row of PEs has, and go south as ever: rows with
    strips of one image add up as rows with images of their own do.  Of what lies whole in all rows of an image the
    first one counts; the others add zeros.

Cycles
    A plane's edges of n numbers take n / 2 to come, while those to the neighbours go.  A strip of n numbers takes n / 2
    to come in and as many to go on.

Source: the exchange is that of stencils (kernel ``stencil``); the layout is the white paper's, section 8.2, figure 26.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fabric.asm.operands import Dsd, Reg, Var
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.strips import Edges, counts_once
from fabric.networks.streamed.operations.blocks import NORTH, QUEUES_NORTH, QUEUES_SOUTH, SOUTH
from fabric.networks.streamed.operations.lowering import Lowering, StepWriter
from fabric.networks.streamed.operations.shapes import SHAPE, EdgeShape, shape_number, shapes_of

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = ["GATHER", "MEETINGS", "STRIP", "StripTasks", "strip_commands"]

STRIP = "strip of the image"
"""A parameter of a PE has this name: the number of its strip, from the north."""
EDGES = {"edges": "halo, with the rows of pixels of the border that the neighbours north and south have"}
ONCE = {"once": "data = 1: of what goes south the first row of an image counts, the others add zeros; 0: all count"}
MEETINGS = ("gather", "group_norm", "group_back", "pool_mean")
"""In these commands rows of PEs of an image wait for each other; edges are sent in the background."""
COMMANDS = {
    "gather": "the next plane of aux rows: all strips, the next plane of rows among them",
    "own_strip": "delta rows of the next plane: the own strip of the next plane of rows",
}


def strip_commands(network: Network) -> list[str]:
    """Return the commands that a network on strips has besides those of its operations."""
    edged = any(isinstance(shape, EdgeShape) for shape in shapes_of(network))
    return [*(EDGES if edged else ()), *(ONCE if counts_once(network) else ())]


def forward(w: StepWriter, step: NetworkStep) -> None:
    """Write the gathering of all strips, plane by plane."""
    x, y = step.reads[0], step.writes[0]
    w.tell(shape=shape_number(w.plan.network, step.node, "forward"))
    w.tell(row=f"{w.plan.array(x)}.rows", aux=f"{w.plan.array(y)}.rows")
    w.each(x, "gather", unit=step.node.size("height") * step.node.size("width"))
    w.tell(shape=0)


def back(w: StepWriter, step: NetworkStep) -> None:
    """Write what takes the own strip of gradients of whole images."""
    dy, dx = step.reads[0], step.writes[0]
    w.tell(shape=shape_number(w.plan.network, step.node, "back"))
    w.tell(row=w.plan.array(dy), delta=w.plan.array(dx))
    w.each(dx, "own_strip", unit=step.node.size("height") * step.node.size("width"))
    w.tell(shape=0)


class StripTasks:
    """A program has this to work on strips of images.

    Descriptors of rows that convolutions do not use are lent: whoever ends a shape loads them again.

    Parameters
    ----------
    code : ProgramCode
    rows : int
        Of PEs, of an image.

    Attributes
    ----------
    strip : Var
        Number of the PE's strip.
    leaving : dict of str to Dsr
        To the neighbour south, and north.
    coming : dict of str to Dsr
        From the neighbour north, and south.
    first, last : Dsr
        Rows of pixels that the neighbour north, and south, has to have, in the present padded plane.
    edge : Dsr
        Rows of pixels of the border: first those that come from the neighbour north, then those from the south.
    """

    def __init__(self, code: ProgramCode, rows: int) -> None:
        self.code, self.rows, p, many = code, rows, code.p, code.product.columns > 1
        self.strip = p.param(STRIP, "u16")
        parity = code.gradient.parity
        self._into = {"N": p.input_queue(QUEUES_SOUTH[0], SOUTH[1 - parity])}
        self._into["S"] = p.input_queue(QUEUES_NORTH[0], NORTH[1 - parity])
        self._out = {"S": p.output_queue(QUEUES_SOUTH[1], SOUTH[parity])}
        self._out["N"] = p.output_queue(QUEUES_NORTH[1], NORTH[parity])
        self.leaving = {"S": code.product.result, "N": code.gradient.spread if many else p.dsr("dest")}
        self.coming = {"N": code.product.column_x, "S": code.gradient.own}
        self.first, self.last, self.edge = code.reads["delta"], code.reads["aux"], code.writes["delta"]
        shapes = (shape for shape in shapes_of(code.network) if isinstance(shape, EdgeShape))
        self.alike = all(shape.edges == Edges(shape.edges.above, shape.edges.above) for shape in shapes)

    # --- shapes -------------------------------------------------------------------------------------------------------

    def load_edges(self, shape: EdgeShape) -> None:
        """Emit the loads of what `edges` exchanges."""
        code, p, height, edges = self.code, self.code.p, shape.copy.given[0], shape.edges
        code.shapes.set(apart=shape.apart * code.tokens)
        if not self.alike:
            code.shapes.set(above=edges.above, below=edges.below)
        south, north = edges.of(1)[0], edges.of(-1)[1]  # what the neighbours of the first strip would have to have
        self._load_fabric(*(count * shape.line * code.tokens for count in (edges.above, edges.below)))
        p.load(self.last, shape.copy.lines(code, height - south, south))
        p.load(self.first, shape.copy.lines(code, 0, north))
        p.load(self.edge, shape.copy.lines(code, -edges.above, edges.above))
        if edges.slope:
            self._slope(shape)

    def _slope(self, shape: EdgeShape) -> None:
        """Emit how much more, or less, than the first strip the own one takes from beside it and lies further down."""
        code, p, edges, tokens = self.code, self.code.p, shape.edges, self.code.tokens
        more, reg = p.reg16("rows of pixels more"), p.reg16("number")
        p.ld16(more, self.strip)
        p.mul16(more, more, edges.slope)
        for least, sign, dsr in (
            (edges.of(1)[0], 1, self.last),
            (edges.of(-1)[1], -1, self.first),
            (edges.above, 1, self.edge),
        ):
            self._longer(reg, more, least, sign)
            p.dsr_len(dsr, reg)
        for least, sign, dsr in (
            (edges.of(1)[0], 1, self.leaving["S"]),
            (edges.of(-1)[1], -1, self.leaving["N"]),
            (edges.above, 1, self.coming["N"]),
            (edges.below, -1, self.coming["S"]),
        ):
            self._longer(reg, more, least, sign)
            p.mul16(reg, reg, shape.line * tokens)
            p.dsr_len(dsr, reg)
        for name, least, sign in (("above", edges.above, 1), ("below", edges.below, -1)):
            self._longer(reg, more, least, sign)
            p.st16(reg, code.shapes.numbers[name])
        p.mul16(more, more, shape.copy.around[1] * tokens)
        for dsr in (code.writes["aux"], self.first):
            p.dsr_off(dsr, more)
        p.add16(more, more, shape.apart * tokens)
        p.st16(more, code.shapes.numbers["apart"])
        p.free(more, reg)

    def _longer(self, into: Reg, more: Reg, least: int, sign: int) -> None:
        """Emit into = least plus, or minus, a number."""
        if sign > 0:
            self.code.p.add16(into, more, least)
        else:
            self.code.p.ldi(into, least)
            self.code.p.sub16(into, into, more)

    def load_strip(self, numbers: int) -> None:
        """Emit the loads of what `gather` moves, of strips of so many numbers."""
        code, p = self.code, self.code.p
        self._load_fabric(numbers, numbers)
        for dsr in (code.reads["row"], code.reads["aux"], code.writes["aux"], code.writes["delta"]):
            p.load(dsr, p.mem1d(code.held["a0"], numbers, check=False))

    def _load_fabric(self, above: int, below: int) -> None:
        """Emit the loads of what brings so many numbers from the north and from the south, and sends as many on."""
        p = self.code.p
        for count, out, into in ((above, "S", "N"), (below, "N", "S")):
            p.load(self.leaving[out], p.fabout(self._out[out], count, dtype="half"))
            p.load(self.coming[into], p.fabin(self._into[into], count, dtype="half"))

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _edges(self) -> None:
        """Write the copy of a plane within its border, and the exchange of its edges with both neighbours.

        What is sent leaves in the background, so that neighbours that send to each other both take.  Moving the
        descriptors on waits until it has left.
        """
        code, p = self.code, self.code.p
        with code.command("edges"):
            p.fmovh(code.writes["aux"], code.reads["row"])
            with self._unless_at(self.rows - 1):
                p.fmovh(self.leaving["S"], self.last, async_=True)
            with self._unless_at(0):
                p.fmovh(self.leaving["N"], self.first, async_=True)
                p.fmovh(self.edge, self.coming["N"])
            plane, down = code.shapes.number("plane"), code.shapes.number("apart")
            p.dsr_off(self.edge, down)
            self._lengthen("below")
            with self._unless_at(self.rows - 1):
                p.fmovh(self.edge, self.coming["S"])
            p.sub16(down, plane, down)
            p.dsr_off(self.edge, down)
            self._lengthen("above")
            for dsr in (code.writes["aux"], self.last, self.first):
                p.dsr_off(dsr, plane)
            p.free(plane, down)

    def _lengthen(self, side: str) -> None:
        """Emit how many rows of pixels come from a side next, if that differs in some shape."""
        if not self.alike:
            count = self.code.shapes.number(side)
            self.code.p.dsr_len(self.edge, count)
            self.code.p.free(count)

    @contextmanager
    def _unless_at(self, strip: int) -> Iterator[None]:
        """Emit what PEs do whose strip is not the one of this number."""
        p, here, behind = self.code.p, self.code.p.reg16("strip"), self.code.p.new_label()
        p.ld16(here, self.strip)
        p.br16("eq", here, strip, behind)
        p.free(here)
        yield
        p.place(behind)

    def add_up(self, *sums: Var | Dsd) -> None:
        """Emit sums of all strips of an image in the place of those of the own one, if the shape says so.

        Each row of PEs adds its own to those of the rows north of it, and the last one sends the totals back.
        """
        p, tokens, none = self.code.p, self.code.tokens, self.code.p.new_label()
        shared = self.code.shapes.number("shared")
        p.br16("eq", shared, 0, none)
        p.free(shared)

        def each(move: Callable[[Var | Dsd], None]) -> None:
            for one in sums:
                move(one)

        with self._unless_at(0):
            each(lambda own: p.fadds(own, own, p.fabin(self._into["N"], tokens, dtype="f32")))
        with self._unless_at(self.rows - 1):
            each(lambda own: p.mov32(p.fabout(self._out["S"], tokens, dtype="f32"), own))
            each(lambda own: p.mov32(own, p.fabin(self._into["S"], tokens, dtype="f32")))
        with self._unless_at(0):
            each(lambda own: p.mov32(p.fabout(self._out["N"], tokens, dtype="f32"), own))
        p.place(none)

    def tasks(self) -> None:
        """Write the tasks of gathering."""
        self._gather()
        self._own_strip()

    def everywhere(self) -> None:
        """Write the tasks that belong to no operation: edges of copies, and which sums count.

        They are written behind the loads of their descriptors, which say that some of them send.
        """
        if "edges" in self.code.ids:
            self._edges()
        if self.code.gradient.counted is not None:
            self._once(self.code.gradient.counted)

    def _once(self, counted: Var) -> None:
        """Write which rows of PEs count in sums that go south."""
        p, stored = self.code.p, self.code.p.new_label()
        with self.code.command("once") as t:
            value = p.reg16("counts")
            p.ldi(value, 1)
            p.br16("eq", t.data, 0, stored)
            with self._unless_at(0):
                p.ldi(value, 0)
            p.place(stored)
            p.st16(value, counted)
            p.free(value)

    def _gather(self) -> None:
        """Write the task that takes all strips of a plane: those from the north, the own one, those from the south."""
        code, p = self.code, self.code.p
        row, into, again = code.reads["row"], code.writes["aux"], code.reads["aux"]
        with code.command("gather"):
            here, strip, words = p.reg16("own strip"), p.reg16("strip"), code.shapes.number("plane")
            p.ld16(here, self.strip)
            p.ldi(strip, 0)
            begin, mine, from_south, behind = p.label(), p.new_label(), p.new_label(), p.new_label()
            p.br16("eq", strip, here, mine)
            p.br16("gt", strip, here, from_south)
            p.fmovh(into, self.coming["N"])
            p.br16("eq", here, self.rows - 1, behind)
            p.fmovh(self.leaving["S"], again)
            p.jump(behind)
            p.place(from_south)
            p.fmovh(into, self.coming["S"])
            p.br16("eq", here, 0, behind)
            p.fmovh(self.leaving["N"], again)
            p.jump(behind)
            p.place(mine)
            p.fmovh(into, row)
            last = p.new_label()
            p.br16("eq", here, self.rows - 1, last)
            p.fmovh(self.leaving["S"], again)
            p.place(last)
            p.br16("eq", here, 0, behind)
            p.fmovh(self.leaving["N"], again)
            p.place(behind)
            p.dsr_off(into, words)
            p.dsr_off(again, words)
            p.add16(strip, strip, 1)
            p.br16("ne", strip, self.rows, begin)
            p.dsr_off(row, words)
            p.free(here, strip, words)

    def _own_strip(self) -> None:
        """Write the task that takes the own strip of a plane."""
        code, p, row, into = self.code, self.code.p, self.code.reads["row"], self.code.writes["delta"]
        with code.command("own_strip"):
            before, words = p.reg16("words before the strip"), code.shapes.number("plane")
            p.ld16(before, self.strip)
            p.mul16(before, before, words)
            p.dsr_off(row, before)
            p.fmovh(into, row)
            p.dsr_off(into, words)
            p.mul16(words, words, self.rows)
            p.sub16(words, words, before)
            p.dsr_off(row, words)
            p.free(before, words)


def _tasks(code: ProgramCode) -> StripTasks:
    assert code.strips is not None
    return code.strips


GATHER = Lowering(
    SHAPE | COMMANDS,
    {"forward": forward, "back": back},
    {"forward": ("forward, {place}", "gather"), "back": ("backward, {place}", "own strip")},
    tasks_of=_tasks,
)
"""The gathering of strips has this form in weight streaming."""
