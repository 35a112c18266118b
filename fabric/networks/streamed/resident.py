"""A program, a memory and a layout are made for a wafer on which a network's activations stay.

Memory of a PE
    Per level of features a row of ones (for biases) and the rows of the features that the PE's column owns, each row
    with the PE's tokens; slopes of activations, normalised rows and deviations where a layer needs them; two arrays of
    gradients, used in turns by the layers; labels; exponentials.  A table of addresses, filled by the loader, is what
    pointer commands index, since programs of different columns differ in the length of their code.

Layout
    Features over x, tokens (samples) over y: layout A of the white paper.  Weights and commands enter at the north of
    each column, gradients and losses leave at its south.  In layout B there are several such meshes side by side,
    groups of columns with other tokens each, which take the same words; what leaves at their south is added up below
    (`fabric.networks.streamed.across`).

Source: weight streaming white paper, sections 7.2 and 7.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Reg
from fabric.kernels.streamed.forward import COLOR_W, RING, ProductTasks, route_product
from fabric.kernels.streamed.gradient import DOWN, GradientTasks, route_gradient, row_kind
from fabric.kernels.streamed.placement import Placement, chunks
from fabric.layout.layout import Layout
from fabric.layout.part import LayoutPart
from fabric.layout.rectangles import Rect
from fabric.networks.graph.attention import biases_of, kv_heads_of, slopes_of
from fabric.networks.graph.dropout import drops_of
from fabric.networks.graph.layouts import ColumnLayout
from fabric.networks.graph.lookup import Lookup
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.plan import HOT, IDS, MemoryPlan, PlannedArray
from fabric.networks.graph.rotary import base_of, turned_of
from fabric.networks.graph.strips import on_strips, strips_of
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT
from fabric.networks.streamed.across import join_groups, joining_rows
from fabric.networks.streamed.commands import FORMS, room
from fabric.networks.streamed.operations.attention import head_of, scores_of, shares_of, the_form
from fabric.networks.streamed.operations.biases import TABLE as BIASES
from fabric.networks.streamed.operations.biases import TOTALS
from fabric.networks.streamed.operations.blocks import NORTH, PLACE, SOUTH, route_blocks, rows_of
from fabric.networks.streamed.operations.code import ProgramCode
from fabric.networks.streamed.operations.convolution import WINDOWS
from fabric.networks.streamed.operations.dropout import NUMBERS
from fabric.networks.streamed.operations.gaps import zeros_pay
from fabric.networks.streamed.operations.gradients import copies, lacks_room, rows_pay, sums_of_windows
from fabric.networks.streamed.operations.head_columns import FIRST_KEY, KEYS, HeadPart, keys_of, route_heads
from fabric.networks.streamed.operations.kept import KEPT, KeptTasks, place_order
from fabric.networks.streamed.operations.linear import TURN, dense_tasks, turn_task
from fabric.networks.streamed.operations.rotary import TABLE, tables_of
from fabric.networks.streamed.operations.rows import slope_task
from fabric.networks.streamed.operations.shapes import ConvolutionShape, padded_rows, shapes_of
from fabric.networks.streamed.operations.slopes import SLOPES, slopes_by_column
from fabric.networks.streamed.operations.strips import STRIP
from fabric.networks.streamed.operations.table import STREAMED, ids_of, present
from fabric.networks.streamed.operations.token_mean import SUMS
from fabric.program.program import Program
from wse_core.errors import ConfigError, ProgramError, UnsupportedError
from wse_core.formats import Arithmetic
from wse_core.image import ProgramImage
from wse_core.params import Machine

__all__ = ["Resident", "resident_of"]

ProgramKey: TypeAlias = tuple[bool, bool, int, int | str, tuple[bool, bool, int, int] | None]
"""PEs have the same program in the first column, in the last, by parity, by `row_kind`, by `HeadPart.kind`."""

BANKS = {"by_token": 1, "totals": 0, "kept": 1, HOT: 1}
"""Arrays that are read side by side, two numbers at a time, lie in these banks: one odd, one even, and they never
meet.  With marks of look-ups so do wide rows, which they are added to.
"""
MARGIN = 256
"""Programs of other columns and rows may be larger than one of the middle by so many words, and more."""
SCORES = "scores of"
"""The array of a node of attention that is called so is the one that rows of PEs, and columns of a head, share."""
SEQUENTIAL = ("attention", "rotary", "tokenmean")
"""Operations that take whole sequences have these names."""
MOST_COUNTED = 128
"""The data of a command of attention can tell so many heads, and sequences, apart."""
KEPT_RESIDENTS = 8
"""The cache of residents holds so many, those that were asked for last."""


class Resident:
    """A resident network has its place on a wafer.

    Parameters
    ----------
    network : Network
    machine : Machine
    width, height : int
        PEs of a group of columns.
    samples : int
        Tokens of this wafer: one sample each.
    form : {"steps", "pairs", "both"}, optional
        How weights may come: with the steps between them, dense rows in pairs without, or either (a branch more per
        wavelet); see `fabric.networks.streamed.operations.linear.DENSE`.
    turned : collection of str, optional
        Parameters whose gradients are made from a turned copy of the features where they have no gaps; default: those
        for which that takes fewer cycles (`fabric.networks.streamed.operations.gradients`), as far as the copies fit.
    column_groups : int, optional
        Groups of columns: 1 is layout A, more are layout B.

    Attributes
    ----------
    plan : MemoryPlan
        Arrays of a PE, and where the features of each level lie, inputs first.
    ids : dict[str, int]
        Control task id of each command of the network.
    tokens : int
        Samples of a PE.
    half : Arithmetic
        Of weights and activations.
    turned : frozenset of str
        Parameters, as above.
    arrays : dict[str, int]
        Number of each array in the table of addresses; ``a1`` begins at the row of ones, ``a1.rows`` behind it.

    Raises
    ------
    ConfigError
        Samples that do not divide by the rows of PEs, or a network that does not fit into the SRAM: the message names
        the largest array and its bytes.
    UnsupportedError
        Operations that weight streaming does not do; all are named.
    """

    def __init__(
        self,
        network: Network,
        machine: Machine,
        width: int,
        height: int,
        samples: int,
        form: str = "steps",
        turned: Collection[str] | None = None,
        column_groups: int = 1,
    ) -> None:
        self.column_groups, self.stacked = column_groups, column_groups * height
        if form not in FORMS:
            raise ConfigError(f"weights do not come as {form!r}", where="network", hint=", ".join(FORMS))
        if form == "pairs" and any(node.op in ("convolution", "transposed") for node in network.nodes):
            raise ConfigError("filters go out with steps, not in pairs", where="network", hint='form = "both"')
        self.strips = strips_of(network)
        self._check_rows(samples, height, column_groups)
        self.network, self.machine, self.width, self.height, self.samples = network, machine, width, height, samples
        self.half = Arithmetic.of(machine, network.dtype)
        pairs = any(node.op == "linear" for node in network.nodes)  # filters never go out in pairs
        self.tokens, self.form = samples * self.strips.rows // self.stacked, form if pairs else "steps"
        network = self.inner
        self._check_sequences()
        self._made: dict[ProgramKey, ProgramImage] = {}
        copied: dict[str, int] = {}
        sums: dict[str, int] = {}
        try:
            plan = MemoryPlan(network, width, STREAMED)
        except UnsupportedError as error:
            if column_groups > 1 and error.where == "mesh.head_columns":
                every = f"{column_groups * width} columns in {column_groups} groups (mesh.column_groups)"
                error.cause = f"{every}, and heads lie on the {width} of a group"
            raise
        left = room(ids_of(network, KEPT if network.keep_output else ()))
        if self.form != "steps" and left >= len(TURN):
            copied = copies(plan, machine, self.tokens, turned)
        if left >= len(TURN) * bool(copied) + len(WINDOWS):
            sums = sums_of_windows(plan, machine, self.tokens, turned)
        while not self._plan(copied, sums):  # what is large gives way first
            most = max([*copied.values(), *sums.values()])
            copied, sums = ({name: size for name, size in sizes.items() if size < most} for sizes in (copied, sums))

    @property
    def inner(self) -> Network:
        """The network has this form in a row of PEs, where its images are strips if they lie on several."""
        return self.strips.network

    def _check_rows(self, samples: int, height: int, column_groups: int) -> None:
        """Refuse rows of PEs that do not divide into images, and samples that do not divide into those."""
        rows = self.strips.rows
        if height % rows:
            raise ConfigError(
                f"images on {rows} rows of PEs each do not lie on {height}",
                where="mesh.image_rows",
                hint=f"{-(-height // rows) * rows} rows of PEs",
            )
        groups = height // rows * column_groups
        if samples < 1 or samples % groups:
            into = f"{height} rows of PEs" if rows == 1 else f"{height // rows} times {rows} rows of PEs"
            into += f" of {column_groups} groups of columns" if column_groups > 1 else ""
            raise ConfigError(
                f"{samples} samples of a wafer do not divide into {into}",
                where="mesh",
                hint=f"{max(1, samples // groups) * groups} samples per wafer",
            )

    def _plan(self, copied: Mapping[str, int], sums: Mapping[str, int]) -> bool:
        """Plan the memory of a PE with turned copies of so many features, and so many sums of windows; say if it fits.

        Programs are written for that only where gradients are made as rows times scalars.
        """
        network, sizes = self.inner, {**copied, **sums}
        self.turned, self._made = frozenset(sizes), {}
        more = [*(TURN if copied else ()), *(WINDOWS if sums else ()), *(KEPT if network.keep_output else ())]
        self.plan, self.ids = MemoryPlan(network, self.width, STREAMED), ids_of(network, more)
        padded = padded_rows(network, self.width)
        if padded:
            self.plan.arrays["padded"] = PlannedArray(padded)
        if drops_of(network.nodes):
            self.plan.arrays[NUMBERS] = PlannedArray(1)
        averaged = [node for node in network.nodes if node.op == "tokenmean"]
        if any(rows_of(node.size("sequence"), self.tokens) > 1 for node in averaged):
            most = max(self.plan.layout(network.tensors[node.name]).most for node in averaged)
            self.plan.arrays |= dict.fromkeys(SUMS, PlannedArray(most, "f32", single=True))
        for node in network.nodes:
            biases = biases_of(node) if node.op == "attention" else None
            if biases is not None:
                heads = self.plan.layout(network.tensors[node.name]).most // head_of(network, node)
                most = max(heads * biases.size, self.plan.arrays[TOTALS].rows if TOTALS in self.plan.arrays else 0)
                self.plan.arrays[BIASES] = PlannedArray(most, single=True)
                self.plan.arrays[TOTALS] = PlannedArray(most, "f32", single=True)
        if copied:
            nodes = [node for node in network.nodes if node.op == "attention"]
            shares = max((shares_of(node, self.tokens, network.head_columns) for node in nodes), default=0)
            self.plan.arrays["by_token"] = PlannedArray(max(*copied.values(), -(-shares // self.tokens)))
        if sizes:
            self.plan.arrays["totals"] = PlannedArray(max(sizes.values()), "f32", single=True)
        views = {name: (name, 0) for name in self.plan.arrays}
        views |= {f"{name}.rows": (name, self.tokens) for name, array in self.plan.arrays.items() if array.ones}
        tables = range(self.plan.arrays[IDS].rows if IDS in self.plan.arrays else 0)
        views |= {f"{IDS}.{number}": (IDS, number * self.tokens) for number in tables}
        self._views, self.arrays = list(views.values()), {name: k for k, name in enumerate(views)}
        if self._largest()[1] <= 2 * self.machine["mem.words"]:
            return not sizes or self._fits()
        if not sizes:
            raise self._too_large()  # before weights are drawn and programs written for nothing
        return False

    def asks_rows(self, name: str, density: float) -> bool:
        """Whether gradients of a matrix of such a density are asked for by whole rows, for fewer cycles."""
        if density < 1 and name in self._looked_up:
            return True
        if density == 1 or name not in self.turned:
            return False
        step = next((one for one in self._linear(name) if one.direction == "ask"), None)
        if step is None:  # filters, whose windows are another matter
            return False
        x, delta = (self.plan.layout(one) for one in step.reads)
        half, bias = self.network.dtype, bool(step.node.size("bias"))
        return rows_pay(self.machine, half, self.tokens, step.reads[1].rows, delta.most, x.most, bias, density)

    def sends_whole(self, name: str, density: float) -> bool:
        """Whether rows of a matrix of such a density go out whole, zeros in their gaps, for fewer cycles."""
        if density < 1 and name in self._looked_up:
            return True
        if density == 1 or self.form != "both":
            return density < 1 and self.form == "pairs"
        steps = [one for one in self._linear(name) if one.direction != "ask"]
        products = [(one.writes[0].rows, self.plan.layout(one.reads[0]).most) for one in steps]
        return zeros_pay(self.machine, self.network.dtype, self.tokens, products, density)

    @cached_property
    def _looked_up(self) -> set[str]:
        """The tables that are looked up have these names: their rows go out whole, and are asked for so."""
        nodes = [node for node in self.network.nodes if node.op == Lookup.name]
        return {found.name for node in nodes if (found := self.network.parameter(node)) is not None}

    def _linear(self, name: str) -> Iterator[NetworkStep]:
        """Yield the steps of a matrix that is no filter."""
        return (one for one in self.plan.steps if one.op == "linear" and one.parameter and one.parameter.name == name)

    @property
    def _all_turned(self) -> bool:
        """Whether gradients of dense rows are never made as dots."""
        asks = (step for step in self.plan.steps if step.direction == "ask" and step.op == "linear")
        return all(step.parameter is not None and step.parameter.name in self.turned for step in asks)

    def _fits(self) -> bool:
        """Whether programs fit a PE: one of its middle if that leaves room enough, else all."""
        inner = min(1, self.width - 1), row_kind(min(1, self.height - 1), self.height)
        try:
            room = self.machine["mem.words"] - self.image(*inner).footprint
            for x in range(self.width) if room < MARGIN else ():
                for y in range(self.height):
                    self.image(x, row_kind(y, self.height))
        except ProgramError as error:
            if not lacks_room(error):
                raise
            return False
        return True

    def image(self, column: int, row: int | str) -> ProgramImage:
        """Return the program of a PE, assembled, which those of its kind share.

        Columns in the middle, and rows below the top, differ in nothing but the colors toward their neighbours, by
        parity: one of them is written, and the others are given their colors.
        """
        key = self._key(column, row)
        if key not in self._made:
            model, place = column, row
            turned: list[tuple[int, int]] = []  # pairs of colors, by parity of who sends
            if 1 < column < self.width - 1 and key[-1] is None:
                model = 1
                turned += [] if column % 2 else [RING]
            if row in (1, "bottom"):
                place, parity = 0, 1 if row == 1 else (self.height - 1) % 2
                turned += [DOWN, SOUTH, NORTH] if parity else []
            if (model, place) == (column, row):
                self._made[key] = self.program(column, row).assemble()
            else:
                colors = {old: new for pair in turned for old, new in zip(pair, reversed(pair), strict=True)}
                self._made[key] = self.image(model, place).recoloured(colors, _named(column, row))
        return self._made[key]

    def _key(self, column: int, row: int | str) -> ProgramKey:
        """Return what PEs with the same program agree in."""
        part = self.part(column)
        return column == 0, column == self.width - 1, column % 2, row, None if part is None else part.kind

    def part(self, column: int) -> HeadPart | None:
        """Return the part of the heads of attention that a column has; None if they lie whole in one."""
        columns = self.network.head_columns
        node = next((node for node in self.network.nodes if OPERATIONS[node.op].headwise), None)
        if columns == 1 or node is None:
            return None
        place, halves = column % columns, self.network.halves
        cuts = np.diff(chunks(self.network.tensors[node.name].head // halves, columns))
        return HeadPart(columns, place, int(cuts[place]) * halves)

    def _check_sequences(self) -> None:
        """Refuse sequences whose tokens and those of a PE do not divide, and more of them than a command can count."""
        for node in self.network.nodes:
            if node.op not in SEQUENTIAL:
                continue
            if self.network.head_columns > 1 and "turned" in dict(node.sizes):
                raise UnsupportedError(
                    f"{node.name}: heads of which a part is turned lie whole in a column",
                    feature="rotary",
                    where="mesh.head_columns",
                    hint="1",
                )
            sequence = node.size("sequence")
            if self.samples // self.column_groups % sequence:
                of = "of a wafer" if self.column_groups == 1 else "of a group of columns"
                raise ConfigError(
                    f"{node.name}: {self.samples // self.column_groups} samples {of} are no whole sequences of "
                    f"{sequence} tokens",
                    where="data.batch",
                )
            if self.tokens % sequence and sequence % self.tokens:
                most = self.samples // self.column_groups
                able = [rows for rows in range(1, most + 1) if self._lies(sequence, rows)]
                near = sorted(sorted(able, key=lambda rows: abs(rows - self.height))[:4])
                raise UnsupportedError(
                    f"{node.name}: of sequences of {sequence} tokens and PEs of {self.tokens} tokens neither divides "
                    "the other",
                    feature="attention over rows of PEs",
                    where="mesh.height",
                    hint=f"{', '.join(map(str, near))} rows of PEs",
                )
            if node.op == "attention" and biases_of(node) and (self.tokens % sequence or self.network.head_columns > 1):
                raise UnsupportedError(
                    f"{node.name}: scores with learned biases, of sequences on several rows of PEs or heads on columns",
                    feature="learned biases of scores",
                    where="mesh",
                    hint="fewer rows of PEs, so that whole sequences lie in each, and mesh.head_columns = 1",
                )
            heads = -(-kv_heads_of(node) // self.width) if OPERATIONS[node.op].headwise else 1
            if max(self.tokens // sequence, heads) > MOST_COUNTED:
                raise UnsupportedError(
                    f"{node.name}: {heads} heads of a column, {self.tokens // sequence} sequences of a PE",
                    feature="attention",
                    where="mesh",
                    hint=f"at most {MOST_COUNTED} of each: more PEs",
                )

    def _lies(self, sequence: int, height: int) -> bool:
        """Return whether sequences lie whole in PEs, or on whole rows of them, of a mesh of so many rows."""
        tokens, rest = divmod(self.samples, height * self.column_groups)
        return not rest and (tokens % sequence == 0 or sequence % tokens == 0)

    def _place_sequences(self, layout: LayoutPart) -> None:
        """Route blocks of sequences that lie on several rows of PEs, and tell each row which one of them it is."""
        rows = {
            node.op: rows_of(node.size("sequence"), self.tokens) for node in self.network.nodes if node.op in SEQUENTIAL
        }
        meeting = max(rows.get(op, 1) for op in ("attention", "tokenmean"))
        route_blocks(layout, meeting)
        for y in range(self.height if meeting > 1 else 0):
            layout.set_param(PLACE, y % meeting, (0, y, self.width, 1))
        if rows.get("rotary", 1) > 1 or ("rotary" in rows and self.network.head_columns > 1):
            self._place_tables(layout, rows["rotary"])

    def _place_tables(self, layout: LayoutPart, rows: int) -> None:
        """Give each PE the cosines and sines of the places, and of the pairs, that it has."""
        node, first = the_form(self.network, "rotary"), 0
        features = head_of(self.network, node)
        for x in range(self.width):
            part = self.part(x)
            first = 0 if part is None or part.place == 0 else first
            pairs = slice(first, first + (features if part is None else part.features) // 2)
            if part is None:
                pairs = slice(turned_of(node, features) // 2)
            turning, sequence = turned_of(node, features), node.size("sequence")
            table, first = tables_of(turning, sequence, self.tokens, pairs, base_of(node)), pairs.stop
            for y in range(self.height):
                layout.set_param(TABLE, table[y % rows], (x, y, 1, 1))

    def _place_strips(self, layout: LayoutPart) -> None:
        """Route what rows of PEs of an image hand each other, and tell each which strip it has."""
        rows = self.strips.rows
        for y in range(self.height if rows > 1 else 0):
            layout.set_param(STRIP, y % rows, (0, y, self.width, 1))
        if rows > 1:
            route_blocks(layout, rows)

    def _place_heads(self, layout: LayoutPart) -> None:
        """Route rings of heads that lie on several columns, and tell each column which keys are its own."""
        columns = self.network.head_columns
        route_heads(layout, columns)
        nodes = [node for node in self.network.nodes if node.op == "attention" and slopes_of(node) is not None]
        held = [self.plan.layout(self.inner.tensors[node.name]) for node in nodes[:1]]
        for x, slopes in enumerate(slopes_by_column(nodes[0], held[0], self.half) if nodes else ()):
            layout.set_param(SLOPES, slopes, (x, 0, 1, self.height))
        lengths = [
            node.size("sequence") // rows_of(node.size("sequence"), self.tokens)
            for node in self.network.nodes
            if node.op == "attention"
        ]
        for x in range(self.width if columns > 1 and lengths else 0):
            place = x % columns
            layout.set_param(FIRST_KEY, -place % columns, (x, 0, 1, self.height))
            layout.set_param(KEYS, keys_of(place, columns, lengths[0]), (x, 0, 1, self.height))

    def _largest(self) -> tuple[str, int]:
        """Return (name, bytes) of the largest array, those that attention works in included."""
        sizes, columns = {name: self.words(name) * 2 for name in self.plan.arrays}, self.network.head_columns
        part = self.part(0)
        for node in self.network.nodes:
            if node.op == "attention":
                features = head_of(self.network, node) if part is None else part.features
                sizes[f"{SCORES} {node.name}"] = 4 * scores_of(node, self.tokens, columns, features)
                sizes[f"shares of {node.name}"] = 2 * shares_of(node, self.tokens, columns)
        return max(sizes.items(), key=lambda item: item[1])

    def words(self, name: str) -> int:
        """Return the SRAM words of an array."""
        return self.plan.arrays[name].words(self.tokens)

    def _too_large(self, cause: str | None = None) -> ConfigError:
        name, size = self._largest()
        level = "" if not name[1:].isdigit() else f" of level {name[1:]}"
        less = "fewer samples per wafer"
        if any("height" in dict(node.sizes) for node in self.network.nodes) and self.tokens == 1:
            less = "more rows of PEs for an image (mesh.image_rows)"
        return ConfigError(
            f"the network does not fit into a PE's {2 * self.machine['mem.words']} bytes: array "
            f"{name}{level} alone takes {size} bytes",
            cause=cause,
            where="network",
            hint="more rows of PEs, on which a sequence lies, or columns of a head"
            if name.startswith(SCORES)
            else f"more PEs, or {less}",
        )

    @property
    def one(self) -> int:
        """The number 1 has these bits in the format of the activations."""
        return int(self.half.encode(1.0))

    # --- programs -----------------------------------------------------------------------------------------------------

    def program(self, column: int, row: int | str) -> Program:
        """Return the program of a PE.

        Parameters
        ----------
        column : int
        row : {"only", "top", "bottom", 0, 1}
            Place in the column; the parity of the row in its middle.
        """
        tokens = self.tokens
        p = Program(_named(column, row), self.machine, half=self.network.dtype)
        table = p.param("table", "u16", count=len(self.arrays))
        held = {}
        for name, array in self.plan.arrays.items():
            begins = np.full(tokens, self.one, np.uint16) if array.ones else None
            bank = 1 if array.ones else BANKS.get(name, 0 if name == "expo" and HOT in self.plan.arrays else None)
            held[name] = p.array(name, array.count(tokens), array.format, init=begins, bank=bank)
        base = p.reg16("address of the source")
        longest = max((shape.rows for shape in shapes_of(self.inner)), default=0) * tokens
        rows = held["a0"], held[self.plan.place(1)]
        keeps = self.inner.keep_output
        product = ProductTasks(p, column, self.width, *rows, tokens, base, self.form, longest, keeps)
        dense = self.form != "steps"
        place = self._mesh(self.plan.layouts[0])
        given = held["a0"], held["d0"], tokens, base, dense and not self._all_turned, longest
        asks = (one.rows for one in shapes_of(self.inner) if isinstance(one, ConvolutionShape) and one.asks)
        asked = max(asks) * tokens if "ask_windows" in self.ids else 0
        counted = p.scalar("counted", "u16", 1) if "once" in self.ids else None
        more = held.get("by_token"), held.get("totals"), asked, counted
        gradient = GradientTasks(p, column, place, row, 0, *given, *more)
        there = present(self.inner)
        lowerings = [lowering for name, lowering in STREAMED.items() if name in there]
        own = self.part(column)
        code = ProgramCode(p, self.ids, table, product, gradient, held, tokens, lowerings, self.inner, own)
        gradient.features = code.reads["label"]  # set by a command before the loss needs it again
        constant = p.dsr("src1") if dense else None
        kept = KeptTasks(code, self.plan) if self.network.keep_output else None
        with p.task("prepare"):
            for part in (product, gradient, code):
                part.prepare()
            if constant is not None:
                p.load(constant, p.mem1d(held["a0"], tokens))
        p.start("prepare")
        product.tasks()
        gradient.tasks()
        self._row_tasks(code)
        if constant is not None:
            dense_tasks(product, self.ids, constant)
        if "turn" in self.ids:
            turn_task(code)
        if kept is not None:
            kept.tasks()
        self._pointer_tasks(code, base)
        p.assemble()
        return p

    def _mesh(self, layout: ColumnLayout) -> Placement:
        """Return a level as the kernels of products place it: which columns and rows of PEs there are."""
        return Placement(layout.features, self.tokens * self.height, self.width, self.height)

    def _row_tasks(self, code: ProgramCode) -> None:
        """Write the tasks of what is done to rows."""
        code.pointer_tasks()
        for part in code.alone:
            part.tasks()
        if "slope" in self.ids:
            slope_task(code)
        if "shape" in self.ids:
            code.shapes.task()
        code.epsilon_task()
        if code.strips is not None:
            code.strips.everywhere()
        code.ring_tasks()
        for part in code.joining:
            part.tasks()
        code.shared_task()

    def _pointer_tasks(self, code: ProgramCode, base: Reg) -> None:
        """Write the commands that set the pointers of products and gradients."""
        p, product = code.p, code.product
        with code.command("source") as t:
            p.ld16(base, code.table, index=t.data)
            p.dsr_base(product.column_x, base)
        for name, dsr in (("result", product.result), ("mine", code.gradient.mine)):
            with code.command(name) as t:
                p.dsr_base(dsr, code.place(t.data))

    @cached_property
    def layout(self) -> Layout:
        """The `Layout` has its streams in `inputs`, those of a column in all groups, and in `outputs`."""
        width, height, groups = self.width, self.height, self.column_groups
        layout = Layout(groups * width, height + joining_rows(width, groups), self.machine)
        for group in range(groups):
            self._paint(layout.part((group * width, 0, width, height)))
        self.inputs = [
            tuple(layout.input_stream(x, 0, "N", COLOR_W) for x in range(column, groups * width, width))
            for column in range(width)
        ]
        if groups > 1:
            self.outputs = join_groups(layout, width, groups, height)
            return layout
        south = DOWN[(height - 1) % 2]
        self.outputs = [layout.output_stream(x, height - 1, "S", south) for x in range(width)]
        return layout

    def _paint(self, layout: LayoutPart) -> None:
        """Place and route a group of columns."""
        for x in range(self.width):
            for y in range(self.height):
                layout.place(self._fitting(x, row_kind(y, self.height)), x, y)
        below = self.plan.layouts[0]
        route_product(layout, self._mesh(below))
        rows = (
            step.reads[1] for step in reversed(self.plan.steps) if step.direction == "ask" and step.op != Lookup.name
        )
        last, asked = self.width - 1, next(rows, None)  # sums over columns are the last to use the routes, if none is
        if asked is not None:
            above = self.plan.layout(asked)
            last = int(above.owners(np.array([above.features - 1]))[0])  # the last row of gradients that a pass sends
        route_gradient(layout, self._mesh(below), last)
        for key, image in self._made.items():
            addresses = self.addresses(image)
            for x in range(self.width):
                for y in range(self.height):
                    if key == self._key(x, row_kind(y, self.height)):
                        layout.set_param("table", addresses, (x, y, 1, 1))
        self._place_sequences(layout)
        self._place_heads(layout)
        self._place_strips(layout)
        if self.network.keep_output:
            place_order(layout, self.plan)

    def addresses(self, image: ProgramImage) -> list[int]:
        """Return what the table of addresses holds in a PE with a program, in the order of `arrays`."""
        return [image.symbols[name].address + offset for name, offset in self._views]

    def _fitting(self, column: int, row: int | str) -> ProgramImage:
        try:
            return self.image(column, row)
        except ProgramError as error:
            if self._largest()[1] < 1024:
                raise
            raise self._too_large(error.what) from None

    # --- data ---------------------------------------------------------------------------------------------------------

    def tiles(self, name: str, values: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return what the PEs hold of an array, shape (height, width, words of 16 bits).

        Parameters
        ----------
        name : str
            ``a0`` (with a row of ones before) or ``labels``.
        values : ndarray of uint16, shape (features, samples)
        """
        layout, first = self.plan.layouts[0 if name == "a0" else -1], int(name == "a0")
        by_row = self.by_row(name, values)
        found = layout.tiles(by_row, first).transpose(2, 0, 1, 3)
        behind = self.plan.arrays[name].rows - found.shape[2]  # larger tensors may take the place later
        found = np.pad(found, ((0, 0), (0, 0), (0, behind), (0, 0)))
        return self.side_by_side(found.reshape(self.stacked, self.width, -1))

    def side_by_side(self, tiles: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return tiles of all groups one below the other, shape (rows, width, words), as they lie on the mesh."""
        by_group = tiles.reshape(self.column_groups, self.height, self.width, -1)
        return by_group.transpose(1, 0, 2, 3).reshape(self.height, self.column_groups * self.width, -1)

    @property
    def mesh(self) -> Rect:
        """The PEs that hold the network have these places."""
        return Rect(0, 0, self.column_groups * self.width, self.height)

    def by_row(self, name: str, values: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return what each row of PEs holds of samples or labels, shape (features of a row, rows of PEs of all
        groups, tokens).

        Parameters
        ----------
        name : str
            As of `tiles`; or of numbers of whole samples.
        values : ndarray of uint16, shape (features, samples)
        """
        rows, channels = self.strips.rows, self.strips.channels.get(INPUT)
        if name == "labels":
            striped = on_strips(self.inner.nodes[-1])
            channels = self.strips.channels[self.network.logits.name] if striped else None
        elif name in (NUMBERS, IDS):
            channels = None
        parts = values.reshape(len(values) if channels is None else channels, 1, -1, self.stacked // rows, self.tokens)
        if channels is not None:
            shape = *parts.shape[:1], rows, parts.shape[2] // rows, *parts.shape[3:]
            parts = parts.reshape(shape)
        whole = np.broadcast_to(parts, (parts.shape[0], rows, *parts.shape[2:]))
        return whole.transpose(0, 2, 3, 1, 4).reshape(-1, self.stacked, self.tokens)

    def rows(self, name: str, tiles: NDArray[np.uint16]) -> NDArray[np.uint16]:
        """Return the features of a tensor from what the PEs hold, shape (features, samples); inverse of `tiles`."""
        by_group = tiles.reshape(self.height, self.column_groups, self.width, -1, self.tokens)
        held = by_group.transpose(2, 3, 1, 0, 4).reshape(self.width, -1, self.stacked, self.tokens)
        found, rows = self.plan.layouts[self.plan.level(name)].rows(held, 1), self.strips.rows
        if name not in self.strips.channels:
            return found[:, ::rows].reshape(-1, self.samples)
        parts = found.reshape(self.strips.channels[name], -1, self.stacked // rows, rows, self.tokens)
        return parts.transpose(0, 3, 1, 2, 4).reshape(-1, self.samples)


def _named(column: int, row: int | str) -> str:
    """Return the name of the program of a PE."""
    return f"resident network, column {column}, row {row}"


@lru_cache(maxsize=KEPT_RESIDENTS)
def resident_of(
    network: Network,
    machine: Machine,
    width: int,
    height: int,
    samples: int,
    form: str = "steps",
    column_groups: int = 1,
) -> Resident:
    """Return a `Resident`, the same one for the same arguments: a run is checked, priced and trained on one.

    Programs and layout of it do not change; what wafers hold is in their fabrics.
    """
    return Resident(network, machine, width, height, samples, form, column_groups=column_groups)
