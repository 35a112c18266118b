"""The tasks of a resident program have pointers, rows of f32 numbers, and the ring that joins sums in common.

What moves
    Nothing but the sums that the ring of columns joins, and one f32 number south per sum over tokens.  A command names
    no place: pointers, set by commands, move to the next row of tokens with each use.

Queues and colors
    Those of the two products (`fabric.kernels.streamed.forward`, `fabric.kernels.streamed.gradient`).

Rounding
    A row is widened to f32, worked on in f32 (`fabric.program.functions` for exp, log and roots) and rounded once where
    it is stored.

Cycles
    A command costs the start of a task, a DSR load per operand that is no pointer, and the steps of its operations.

Source: requirements WS-38 to WS-46; the white paper leaves element-wise layers to the wafer (section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from fabric.asm.operands import Dsd, Dsr, Label, Reg, Task, Var
from fabric.kernels.streamed.forward import ProductTasks
from fabric.kernels.streamed.gradient import GradientTasks
from fabric.networks.graph.network import Network
from fabric.networks.graph.strips import image_rows_of
from fabric.networks.streamed.operations.lowering import Lowering
from fabric.networks.streamed.operations.shapes import ProgramShapes
from fabric.networks.streamed.operations.strips import StripTasks
from fabric.program import functions
from fabric.program.program import Program
from wse_core.formats import Arithmetic

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.blocks import BlockTasks
    from fabric.networks.streamed.operations.channel_norm import PlaneNormTasks
    from fabric.networks.streamed.operations.head_columns import HeadPart
    from fabric.networks.streamed.operations.pooling import PoolTasks
    from fabric.networks.streamed.operations.resample import ResampleTasks

__all__ = ["EPSILON", "JOINS", "ProgramCode"]

POINTERS = ("row", "aux", "delta", "label", "wide")
"""Tasks have these pointers on rows: name of the command that sets each."""
EPSILON = {"epsilon": "data = number of what the next normalisations add below their roots"}
"""This command is there where a network adds several numbers below its roots."""
JOINS = {
    "join_max": "the last column: sums: maximum with what arrives round the ring, then to all columns along the rows",
    "join_add": "the last column: sums: plus what arrives round the ring, then the same",
    "pass_max": "the maximum of the own sums with those that arrive goes on round the ring",
    "take": "sums: what arrives along the rows",
}
"""Commands that join the sums of all columns; there are none in a single column.  Sums begin their way and are added to
by the commands of products, ``begin`` and ``pass``."""


class ProgramCode:
    """This is what the tasks of all operations of a program share.

    Parameters
    ----------
    p : Program
    ids : dict[str, int]
        Control task id of each command.
    table : Var
        Addresses of the arrays.
    product : ProductTasks
        Its sums and its ring of columns are used.
    gradient : GradientTasks
        Its way south is used.
    held : dict[str, Var]
        The arrays.
    tokens : int
        Elements of a row.
    lowerings : sequence of Lowering
        Operations that the program has, besides products.
    network : Network
    part : HeadPart, optional
        That of the heads of attention which the PE's column has, if a head lies on several.

    Attributes
    ----------
    one, two, short, peak : Var
        A row of tokens each, for whoever needs it: f32, f32, 16 bits, f32.  ``peak`` is kept through the loss.
    reads, writes : dict[str, Dsr]
        Pointers, by the names of their commands.
    functions : Emit
        Of rows of tokens; `Emit.first` tells them of longer ones, up to those of a loss per pixel.
    shapes : ProgramShapes
        Those of operations on images; programs without have none.
    strips : StripTasks or None
        Those of images on several rows of PEs.
    pool : PoolTasks
        Those of pooling, likewise.
    planes : PlaneNormTasks
        Those of normalisations over channels, likewise.
    resampling : ResampleTasks
        Those of images that get other sides, likewise.
    blocks : BlockTasks or None
        What works on blocks of sequences on several rows of PEs, once an operation has asked for it.
    """

    shapes: ProgramShapes
    pool: PoolTasks
    planes: PlaneNormTasks
    resampling: ResampleTasks
    blocks: BlockTasks | None = None

    def __init__(
        self,
        p: Program,
        ids: Mapping[str, int],
        table: Var,
        product: ProductTasks,
        gradient: GradientTasks,
        held: Mapping[str, Var],
        tokens: int,
        lowerings: Sequence[Lowering],
        network: Network,
        part: HeadPart | None = None,
    ) -> None:
        rows = image_rows_of(network)
        self.part = part
        self.p, self.ids, self.table, self.product, self.gradient = p, ids, table, product, gradient
        self.held, self.tokens, self.network = held, tokens, network
        self.reads = {name: p.dsr("src1") for name in POINTERS}
        self.writes = {name: p.dsr("dest") for name in POINTERS if name != "label"}
        if product.arriving:
            self.joined, self.spread = p.dsr("src0"), p.dsr("dest")
        planes = network.label_pixels > 1 or "plane_norm" in ids  # sums of rows and sums of planes are joined
        self.everywhere = p.dsr("src1") if product.arriving and planes else None
        self.strips = StripTasks(self, rows) if rows > 1 else None
        if "shape" in ids:
            self.shapes = ProgramShapes(self)
        self.one, self.two = p.array("one", tokens, "f32", bank=0), p.array("two", tokens, "f32", bank=2)
        self.short, self.peak = p.array("short", tokens, "half"), p.array("peak", tokens, "f32", bank=4)
        makers = {lowering.tasks_of: lowering.joins for lowering in lowerings if lowering.tasks_of is not None}
        parts = [(joins, make(self)) for make, joins in makers.items()]  # some share their tasks
        self.alone = [part for joins, part in parts if not joins]
        self.joining = [part for joins, part in parts if joins]
        self.functions = functions.Emit(p, tokens * network.label_pixels)
        self.functions.count = tokens

    @cached_property
    def half(self) -> Arithmetic:
        """Constants in memory are numbers of this format of 16 bits."""
        return Arithmetic.of(self.p.machine, self.network.dtype)

    @cached_property
    def gamma(self) -> Reg:
        """The factor of the feature, or channel, that comes next has this register."""
        return self.p.reg16("gamma")

    @cached_property
    def plane(self) -> Dsr:
        """This descriptor has the plane that an operation changes."""
        return self.p.dsr("src0")

    def prepare(self) -> None:
        """Emit the loads of the pointers."""
        self.over(self.tokens)

    def over(self, words: int) -> None:
        """Emit the loads of the pointers, and of what joins sums, for rows of so many numbers."""
        p = self.p
        for pointers in (self.reads, self.writes):
            for name, dsr in pointers.items():
                var = self.held["expo" if name == "wide" else "a0"]
                p.load(dsr, p.mem1d(var, words, save=True, check=False))
        if self.product.arriving:
            p.load(self.joined, p.mem1d(self.product.partial, words))
            p.load(self.spread, p.fabout(self.gradient.row_out, words, dtype="f32"))
        if self.everywhere is not None:
            p.load(self.everywhere, p.fabin(self.gradient.row_in, words, dtype="f32"))

    @contextmanager
    def command(self, name: str) -> Iterator[Task]:
        """Begin the task of a command; one that shares its id is gone to by the task of all of them."""
        shared = self.sharing.get(name)
        with self.p.task(name, kind="local") if shared else self.p.task(name, "control", self.ids[name]) as task:
            if shared:
                self.p.place(shared)
            yield task

    @cached_property
    def sharing(self) -> dict[str, Label]:
        """Commands that share an id begin at these labels, in the order of their data."""
        numbers = list(self.ids.values())
        return {name: self.p.new_label() for name, number in self.ids.items() if numbers.count(number) > 1}

    def shared_task(self) -> None:
        """Write the task of the commands that share an id, if some do: their data say which it is."""
        names = list(self.sharing)
        if not names:
            return
        with self.p.task("shared", kind="control", id=self.ids[names[0]]) as t:
            for number, name in enumerate(names[:-1]):
                other = self.p.new_label()
                self.p.br16("ne", t.data, number, other)
                self.p.jump(self.sharing[name])
                self.p.place(other)
            self.p.jump(self.sharing[names[-1]])

    def place(self, number: Reg) -> Reg:
        """Emit the look-up of an array's address; return the register with it."""
        address = self.p.reg16("address")
        self.p.ld16(address, self.table, index=number)
        return address

    def pointer_tasks(self) -> None:
        """Write the commands that set pointers."""
        for name in POINTERS:
            with self.command(name) as t:
                place = self.place(t.data)
                self.p.dsr_base(self.reads[name], place)
                if name in self.writes:
                    self.p.dsr_base(self.writes[name], place)

    def ring_tasks(self) -> None:
        """Write what joins the sums of all columns: once round the ring to the last one, and from there to all.

        The last column sends what it has when it has all of it, for the others cannot take anything as long as they
        send.  It takes its own from the fabric too: then it knows that the last of it has passed its router, before
        another command turns that.
        """
        p, product, total, arriving = self.p, self.product, self.product.total, self.product.arriving
        if arriving is None or product.leaving is None:
            return
        everywhere = self.everywhere or p.fabin(self.gradient.row_in, self.tokens, dtype="f32")
        with self.command("pass_max"):
            p.fmaxs(product.leaving, total, arriving)
        for name, join in (("join_add", p.fadds), ("join_max", p.fmaxs)):
            with self.command(name):
                join(total, total, arriving)
                self.gradient.lead("R")
                p.mov32(self.spread, self.joined, async_=True)
                p.mov32(total, everywhere)
        with self.command("take"):
            self.gradient.lead("E")
            p.mov32(total, everywhere)

    @cached_property
    def epsilon(self) -> Var | None:
        """What is added below roots lies here, if networks add several numbers."""
        return self.p.scalar("epsilon", "f32") if "epsilon" in self.ids else None

    def epsilon_task(self) -> None:
        """Write the command that says what is added below the next roots."""
        if self.epsilon is None:
            return
        p, every = self.p, self.p.array("epsilons", len(self.network.epsilons), "f32", init=self.network.epsilons)
        with self.command("epsilon") as t:
            place, number = p.reg16("place"), p.reg32("number")
            p.sll16(place, t.data, 1)
            p.ld32(number, every, index=place)
            p.st32(number, self.epsilon)

    def add_epsilon(self, rows: Var | Dsr) -> None:
        """Emit numbers plus what is added below roots."""
        if self.epsilon is None:
            self.p.fadds(rows, rows, self.network.epsilons[0])
            return
        number = self.p.reg32("epsilon")
        self.p.ld32(number, self.epsilon)
        self.p.fadds(rows, rows, number)
        self.p.free(number)

    def over_strips(self, *sums: Var | Dsd) -> None:
        """Emit sums of all strips of an image in the place of those of the PE's own, as a shape says."""
        if self.strips is not None:
            self.strips.add_up(*sums)

    def send_sum(self, vector: Var | Dsd) -> None:
        """Emit the sum of a vector over the tokens, sent south."""
        total = self.p.reg32("sum")
        self.p.mov32(total, 0)
        self.p.fadds(total, vector, total)
        self.gradient.send_south(total)
        self.p.free(total)
