"""A weight-streaming product is Y = W X, the weights arriving one by one, activations resident.

What moves
    X (input features x tokens) stays in SRAM, features over x, tokens over y (`fabric.kernels.streamed.placement`).
    The rows of W enter along the north edge, each column of PEs getting the weights of its own features, and go down
    the columns; zeros are never sent.  A weight starts a task that adds weight * X[feature] over the PE's tokens to a
    row of partial sums.  The command after the row of an output feature sends the partial sums once round the ring of
    columns: the column after the feature's owner begins, each one adds its own, the owner keeps the total.  The same
    program does the backward product W^T dY with the transposed stream.

Colors and queues
    4: weights and commands, north to south, to every CE, input queue 0.  0 and 1: the ring from column to column by
    parity, 2: its way back from the last column to the first; input queue 2, output queue 2.

Order of additions (bit exact)
    Partial sum of a column: from 0, s = fma(weight, x, s) over its entries in order, products exact, one rounding to
    f32 each.  Total: that of the column after the owner, then s = own + s column by column, the owner last; rounded to
    the format of the activations.

Cycles
    A weight costs its PE ``task.start``, a multiplication of the step by the tokens (1), ``ce.dsr_edit``, the issue of
    the multiply-add and its steps (two tokens per cycle) with ``vec.drain``, and the end of the task (1): 7 more than
    the steps on wse2.  The partial sums take one cycle per token; a stage of the ring adds the 6 cycles of a dependent
    stage, which overlaps with the weights of the next row.  `expected_cycles` follows all columns row by row.

Source: weight streaming white paper, section 7.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Dsd, Dsr, Reg, Var
from fabric.kernels.basic import vector
from fabric.kernels.kit.check import Check, check_sum
from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.session import Session
from fabric.kernels.kit.sizes import fit
from fabric.kernels.kit.verify import compared
from fabric.kernels.streamed.placement import (
    TASKS,
    Placement,
    column_streams,
    placement_params,
    placements,
    random_mask,
    resident,
)
from fabric.layout.layout import Layout
from fabric.layout.part import Painted
from fabric.layout.streams import Stream
from fabric.price import timing
from fabric.program.program import Program
from wse_core import isa, numerics
from wse_core.formats import Arithmetic
from wse_core.params import Machine

__all__ = [
    "COLOR_W",
    "WEIGHT",
    "ProductTasks",
    "expected_cycles",
    "product_layout",
    "reference",
    "route_product",
    "ws_forward",
]

COLOR_W, RING, RETURN = 4, (0, 1), 2
WEIGHT = "weight"
"""The task of a weight has this name; its id is its color or, with `task.by_queue`, that of its queue."""
QUEUE_W, QUEUE_RING = 0, 2
X_BANK = 1
"""The input features lie in this bank, an odd one: no conflicts with the sums if the tokens are even."""


class ProductTasks:
    """A program has these tasks of a product: `ws_forward`'s own, or that of a whole network.

    Parameters
    ----------
    p : Program
    column, columns : int
        Place in the group and its size.
    x, y : Var
        Input and output features, a row of tokens each.
    tokens : int
        Tokens of the PE.
    base : Reg, optional
        Holds the address of the input features; default that of `x`.
    form : {"steps", "pairs", "both"}
        What a data wavelet carries: a weight and the step to its feature, or the weights of the next two features; with
        both a register says which, that commands set (`fabric.networks.streamed.operations.linear.DENSE`).
    longest : int, optional
        The most tokens that `over` is told; default `tokens`.
    keeps : bool, optional
        Weights may be put down as well as used.

    Attributes
    ----------
    put : Reg or None
        Holds where the next weight is put down, or `none_kept`: it is only used.  In form ``both`` only pairs are kept.
    sums : Dsd
        Partial sums of a row of tokens.
    total, again : Dsr
        The same, or those of the tokens that `over` was told, to add to and to read.
    leaving, arriving : Dsr or None
        The ring of columns, one row of f32; None if there is one column.
    column_x, result : Dsr
        Input feature that is next, output row that is next.
    """

    def __init__(
        self,
        p: Program,
        column: int,
        columns: int,
        x: Var,
        y: Var,
        tokens: int,
        base: Reg | None = None,
        form: str = "steps",
        longest: int = 0,
        keeps: bool = False,
    ) -> None:
        self.p, self.x, self.y, self.tokens, self.base = p, x, y, tokens, x if base is None else base
        self.columns, self.form = columns, form
        self.in_pairs = p.reg16("weights come in pairs") if form == "both" else None
        self.none_kept = int(form == "both")  # registers are few: there it is that of pairs
        self.put = (self.in_pairs or p.reg16("place of the next kept weight")) if keeps else None
        self.partial = p.array("sums", max(tokens, longest), "f32", bank=0)
        self.sums = p.mem1d(self.partial, tokens)
        self.total, self.again, self.column_x = p.dsr("src0"), p.dsr("src0"), p.dsr("src1")
        self.result = p.dsr("dest")
        self.leaving: Dsr | None = None
        self.arriving: Dsr | None = None
        if columns > 1:
            first, last = column == 0, column == columns - 1
            self.leaving, self.arriving = p.dsr("dest"), p.dsr("src1")
            self.out = p.output_queue(QUEUE_RING, RETURN if last else RING[column % 2])
            self.into = p.input_queue(QUEUE_RING, RETURN if first else RING[(column - 1) % 2])
        p.input_queue(QUEUE_W, COLOR_W)

    def prepare(self) -> None:
        """Emit the loads of the DSRs."""
        self.over(self.p.mem1d(self.x, self.tokens), self.tokens)

    def over(self, features: Dsd, tokens: int) -> None:
        """Emit the loads of the DSRs for features of so many tokens; `features` reads one."""
        p, sums = self.p, self.p.mem1d(self.partial, tokens)
        p.load(self.total, sums)
        p.load(self.again, sums)
        p.load(self.column_x, features)
        p.load(self.result, p.mem1d(self.y, tokens, save=True, check=False))
        if self.leaving is not None and self.arriving is not None:
            p.load(self.leaving, p.fabout(self.out, tokens, zero=True, dtype="f32"))
            p.load(self.arriving, p.fabin(self.into, tokens, dtype="f32"))

    def tasks(self) -> None:
        """Write the tasks: a weight, and the commands of `TASKS`."""
        p = self.p
        with p.task(WEIGHT, kind="data", color=COLOR_W) as t:
            pairs = p.new_label()
            if self.in_pairs is not None:
                p.br16("ne", self.in_pairs, 0, pairs)  # a branch that is not taken is the cheaper one: fewer per word
            if self.form != "pairs":
                self.use((t.data,), step=t.index)
            if self.in_pairs is not None:
                p.done()
            if self.form != "steps":
                p.place(pairs)
                self.use((t.data, t.index))
        self._sum_tasks()

    def use(self, weights: Sequence[Reg], step: Reg | None = None, onward: bool = True) -> None:
        """Emit sums += features times weights, and the storing of weights that are kept, at the end of a task.

        Parameters
        ----------
        weights : sequence of Reg
        step : Reg, optional
            Holds the step to the feature; a weight with a step of 0 is that of the constant input, which is not kept.
            Without, the weights are those of the present feature and the next ones.
        onward : bool
            More features may follow in the row.
        """
        p, put = self.p, self.put if step is None or self.form == "steps" else None
        if put is not None:
            keep = p.new_label()
            p.br16("ne", put, self.none_kept, keep)  # most weights are not kept
            self._multiply(weights, step, onward)
            p.done()
            p.place(keep)
        self._multiply(weights, step, onward)
        if put is not None:
            end = p.new_label()
            if step is not None:
                p.br16("eq", step, 0, end)
            for k, value in enumerate(weights):
                p.st16(value, put, offset=k)
            p.add16(put, put, len(weights))
            p.place(end)

    def _multiply(self, weights: Sequence[Reg], step: Reg | None, onward: bool) -> None:
        p = self.p
        if step is not None:
            words = p.reg16("words to the feature")
            p.mul16(words, step, self.tokens)
            p.dsr_off(self.column_x, words)
            p.free(words)
        for value in weights:
            p.fmachs(self.total, self.total, self.column_x, value)
            if step is None and onward:
                p.dsr_off(self.column_x, self.tokens)

    def _sum_tasks(self) -> None:
        """Write the commands of `TASKS`."""
        p, total, column_x, base = self.p, self.total, self.column_x, self.base
        if self.leaving is not None and self.arriving is not None:
            with p.task("begin", kind="control", id=TASKS["begin"]):
                p.mov32(self.leaving, total)
                p.dsr_base(column_x, base)
            with p.task("pass", kind="control", id=TASKS["pass"]):
                p.fadds(self.leaving, total, self.arriving)
                p.dsr_base(column_x, base)
        with p.task("land", kind="control", id=TASKS["land"]):
            if self.arriving is not None:
                p.fadds(total, total, self.arriving)
            p.fs2h(self.result, self.again)
            p.mov32(total, 0)
            p.dsr_base(column_x, base)


def product_program(
    column: int, columns: int, n_in: int, n_out: int, tokens: int, dtype: str, machine: Machine
) -> Program:
    """Return the program of a column of a group.

    Parameters
    ----------
    column, columns : int
        Place in the group and its size.
    n_in, n_out : int
        Most input and output features that a column holds.
    tokens : int
        Tokens of the PE.
    dtype : {"f16", "cb16"}
    """
    p = Program(
        f"weight streaming, column {column} of {columns}, {tokens} tokens",
        machine,
        half="cb16" if dtype == "cb16" else "f16",
    )
    x = p.array("x", max(1, n_in) * tokens, dtype, bank=X_BANK)
    y = p.array("y", max(1, n_out) * tokens, dtype)
    product = ProductTasks(p, column, columns, x, y, tokens)
    with p.task("prepare"):
        product.prepare()
    p.start("prepare")
    product.tasks()
    p.assemble()
    return p


def route_product(layout: Painted, place: Placement) -> None:
    """Route weights down the columns and partial sums round the ring of columns."""
    columns, height = place.columns, place.height
    layout.route(COLOR_W, (0, 0, place.width, height), rx="N", tx="SR")
    layout.route(COLOR_W, (0, height - 1, place.width, 1), rx="N", tx="R")
    for x in range(place.width) if columns > 1 else ():
        column = x % columns
        if column < columns - 1:
            layout.route(RING[column % 2], (x, 0, 1, height), rx="R", tx="E")
        if column > 0:
            layout.route(RING[(column - 1) % 2], (x, 0, 1, height), rx="W", tx="R")
        rx, tx = "R" if column == columns - 1 else "E", "R" if column == 0 else "W"
        layout.route(RETURN, (x, 0, 1, height), rx=rx, tx=tx)


def product_layout(inputs: Placement, outputs: Placement, dtype: str, machine: Machine) -> tuple[Layout, list[Stream]]:
    """Return the `Layout` of a product and its input streams, one per column.

    Parameters
    ----------
    inputs, outputs : Placement
        Of X and Y; same mesh, same tokens.
    """
    layout = Layout(inputs.width, inputs.height, machine)
    columns, height = inputs.columns, inputs.height
    n_in, n_out = (int(np.diff(place.feature_starts).max()) for place in (inputs, outputs))

    def build(tokens: int) -> dict[tuple[int, int], Program]:
        sizes = np.diff(Placement(inputs.features, tokens, inputs.width, height, inputs.groups).token_starts)
        return {
            (column, int(size)): product_program(column, columns, n_in, n_out, int(size), dtype, machine)
            for column in range(columns)
            for size in np.unique(sizes)
        }

    programs = fit(
        "kernel ws_forward",
        machine,
        build,
        {"tokens": inputs.tokens},
        {"tokens": (inputs.groups * height, inputs.tokens)},
    )
    for x in range(inputs.width):
        sizes = [inputs.held(x, y)[1] for y in range(height)]
        for size in {part.stop - part.start for part in sizes}:
            rows = [y for y, part in enumerate(sizes) if part.stop - part.start == size]
            layout.place(programs[x % columns, size], x, rows[0], 1, len(rows))
    route_product(layout, inputs)
    return layout, [layout.input_stream(x, 0, "N", COLOR_W) for x in range(inputs.width)]


def reference(
    given: Arithmetic,
    single: Arithmetic,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    values: NDArray[np.uint16],
    x: NDArray[np.uint16],
    inputs: Placement,
    outputs: Placement,
) -> NDArray[np.uint16]:
    """Return Y as bit patterns, in the machine's order of additions.

    Parameters
    ----------
    given, single : Arithmetic
        Of the 16-bit format, and of f32.
    indptr, indices, values
        Weights in CSR form, values as bit patterns.
    x : ndarray of uint16, shape (inputs.features, tokens)
    """
    columns, n_rows = inputs.columns, len(indptr) - 1
    result = np.zeros((n_rows, inputs.tokens), np.uint16)
    owned = np.searchsorted(inputs.feature_starts, indices, side="right") - 1
    for row in range(n_rows):
        entries = slice(indptr[row], indptr[row + 1])
        parts = np.zeros((columns, inputs.tokens), np.uint32)
        for column in np.unique(owned[entries]):
            mine = np.flatnonzero(owned[entries] == column) + indptr[row]  # in the order in which they arrive
            parts[column] = given.product(values[mine][np.newaxis], x[indices[mine]], parts[column][np.newaxis])
        owner = outputs.owner(row)
        total = parts[(owner + 1) % columns]
        for step in range(2, columns + 1):
            total = single.call("add", parts[(owner + step) % columns], total)
        result[row] = numerics.convert(total, "f32", given.fmt, given.bias, given.ftz)
    return result


def _plain(weights: NDArray[Any], mask: NDArray[np.bool_], x: NDArray[Any]) -> NDArray[Any]:
    """Return the product in numpy's order; a weight that is not sent is no zero, which would meet infinities."""
    if np.isfinite(x).all():
        return np.where(mask, weights, 0) @ x
    return np.array([w[kept] @ x[kept] for w, kept in zip(weights, mask, strict=True)])


def weight_cycles(tokens: int, machine: Machine, feature: int = 0) -> int:
    """Return the cycles that a weight costs its PE; `feature` counts in its tile, and says in which bank it begins."""
    m, sums = machine, (0, 2)
    x = X_BANK + feature * tokens, 1
    product = vector.expected_cycles(isa.BY_NAME["fmachs"], tokens, 1, m, sums, [sums, x]) - m["ce.tsc_read"]
    return m["task.start"] + 1 + m["ce.dsr_edit"] + product + 1


def expected_cycles(
    indptr: NDArray[np.int64], indices: NDArray[np.int64], inputs: Placement, outputs: Placement, machine: Machine
) -> float:
    """Return the cycles from the first weight to the last result.

    Of the PEs of a column those with most tokens, and the southernmost of those with fewer, are followed: fewer tokens
    may conflict where more do not, and weights come there later.
    """
    parts = np.diff(inputs.token_starts).reshape(inputs.groups, inputs.height)
    south = {int(size): int(np.nonzero((parts == size).any(axis=0))[0].max()) for size in np.unique(parts)}
    ends = [_followed(indptr, indices, inputs, outputs, machine, size, y + 1) for size, y in south.items()]
    return max(ends)


def _followed(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int64],
    inputs: Placement,
    outputs: Placement,
    m: Machine,
    tokens: int,
    hops: int,
) -> float:
    """Return when a row of PEs with so many tokens each, so far from the stream, is done: every column row by row."""
    columns, n_rows = inputs.columns, len(indptr) - 1
    owned = np.searchsorted(inputs.feature_starts, indices, side="right") - 1
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    features = indices - inputs.feature_starts[owned]
    each = np.array([weight_cycles(tokens, m, k) for k in range(int(features.max(initial=0)) + 1)], np.int64)
    counts, work = np.zeros((2, n_rows, columns), np.int64)
    np.add.at(counts, (rows, owned), 1)
    np.add.at(work, (rows, owned), each[features])
    words = (counts + 1).cumsum(axis=0)  # of the stream up to the command of each row
    queues = QUEUE_RING, QUEUE_RING
    paced = timing.train(m, tokens, *queues)  # of a row's words on a link
    received = timing.receiver(m, tokens, *queues)
    lead, tail = m["task.start"] + timing.issue(m), m["vec.drain"] + m["ce.dsr_edit"] + 1
    landing = sum(timing.elementwise(m, op, tokens) for op in ("fs2h", "mov32")) + m["ce.int_latency"]  # of the zero
    back = columns - 1  # links of the way back from the last column to the first
    queued = m["queue.in_depth"][QUEUE_RING] + m["ramp.in_buffer"] + m["queue.out_depth"][QUEUE_RING]
    rooms = [queued + m["router.depth"] * (1 + (back if c == columns - 1 else 1)) for c in range(columns)]
    taken: list[list[float]] = [[] for _ in range(columns)]  # when the column behind each began to take each row
    buffered = m["queue.out_depth"][QUEUE_RING] + m["router.depth"]
    entered: list[list[float]] = [[] for _ in range(columns)]  # when each row's first word left the column's ramp
    came = m["ramp.in"] + m["router.hop"] * hops  # the first word
    free = [float(max(came, m["task.start"] + timing.load(m, 4 + 2 * (columns > 1)) + 1))] * columns
    for row in range(n_rows):
        owner = outputs.owner(row)
        order = [(owner + step) % columns for step in range(1, columns + 1)]
        begin = [
            max(free[c] + int(work[row, c]), came + timing.train(m, int(words[row, c]), QUEUE_W, None) - 1)
            for c in range(columns)
        ]
        if columns == 1:
            free[0] = begin[0] + m["task.start"] + landing + m["ce.dsr_edit"] + 1
            continue
        first, last = {}, {}
        for k, c in enumerate(order):
            ready = begin[c] + lead
            if k == 0:
                first[c], last[c] = ready, ready + tokens
            else:
                arrival = entered[order[k - 1]][0] + m["router.hop"] * (back if c == 0 else 1) + m["ramp.in"]
                first[c] = max(ready, arrival)
                last[c] = received(ready, arrival)
            if c == owner:
                break
            up = first[c] + m["ramp.execute"] + m["ramp.out"]
            if entered[c]:  # the row before is on the link until its last word has left
                up = max(up, entered[c][0] + paced)
            entered[c] = [up, *entered[c][: buffered // tokens]]
            for rows_ago, left in enumerate(entered[c]):
                held = (rows_ago + 1) * tokens - buffered
                if 0 < held <= tokens:
                    last[c] = max(last[c], left + timing.train(m, held, *queues) + 1)
        for c, behind in zip(order[-2::-1], order[:0:-1], strict=True):  # who is early waits until there is room
            taken[c] = [first[behind], *taken[c][: rooms[c] // tokens]]
            for rows_ago, late in enumerate(taken[c]):
                held = (rows_ago + 1) * tokens - rooms[c]
                if 0 < held <= tokens:
                    last[c] = max(last[c], late + held)
        free = [last[c] + tail + (landing if c == owner else 0) for c in range(columns)]
    return max(free)


def expected_hops(indptr: NDArray[np.int64], indices: NDArray[np.int64], inputs: Placement, outputs: Placement) -> int:
    """Return the grants: weights and commands down the columns, partial sums round the ring."""
    columns, n_rows = inputs.columns, len(indptr) - 1
    down = (len(indices) + n_rows * columns) * inputs.groups * inputs.height
    ring = 0
    for row in range(n_rows) if columns > 1 else ():
        last_owns = outputs.owner(row) == columns - 1
        ring += 2 * (columns - 1) if last_owns else 2 * (columns - 2) + columns
    return down + ring * inputs.tokens


@kernel(
    "ws_forward",
    "weight-streaming product: sparse weights arrive one by one, activations stay",
    "weight streaming white paper, section 7.3.1",
    [
        *placement_params(features=64),
        KernelParam("density", 0.5, float, "share of weights that are not zero", low=0, high=1),
        KernelParam("transposed", False, bool, "stream the transposed weights, as the backward pass does"),
        KernelParam("dtype", "f16", str, "format of weights and activations; sums are f32", ("f16", "cb16")),
        *data_params(),
    ],
)
def ws_forward(
    machine: Machine,
    inputs: int,
    outputs: int,
    tokens: int,
    width: int,
    height: int,
    groups: int,
    density: float,
    transposed: bool,
    dtype: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `ws_forward`; see the head of this module."""
    places = placements("kernel ws_forward", inputs, outputs, tokens, width, height, groups)
    given, single = Arithmetic.of(machine, dtype), Arithmetic.of(machine, "f32")
    rng = np.random.default_rng(seed)
    x = given.random(rng, (inputs, tokens), data, terms=inputs)
    stored = given.random(
        rng, (inputs, outputs) if transposed else (outputs, inputs), "ones" if data == "ones" else "normal"
    )
    mask = random_mask(stored.shape, density, rng)
    weights, mask = (stored.T, mask.T) if transposed else (stored, mask)
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    indices, values = np.nonzero(mask)[1], weights[mask]
    layout, streams = product_layout(*places, dtype, machine)
    sent = column_streams(indptr, indices, values, *places)
    in_cycles = cache(lambda: expected_cycles(indptr, indices, *places, machine))
    session = Session(
        layout,
        resident("x", places[0], x),
        task=None,
        streams=[(stream, *sent[k % places[0].columns]) for k, stream in enumerate(streams)],
        expected=in_cycles,
    )
    y = np.zeros((outputs, tokens), np.uint16)
    for px in range(width):
        for py in range(height):
            features, part = places[1].held(px, py)
            n, size = features.stop - features.start, part.stop - part.start
            y[features, part] = session.read("y", px, py)[0, 0, : n * size].reshape(n, size)

    def compare() -> Check:
        expected = reference(given, single, indptr, indices, values, x, *places)
        w_values, x_values = given.operand(weights), given.operand(x)
        with np.errstate(invalid="ignore", over="ignore"):
            plain = _plain(w_values, mask, x_values)
            magnitude = _plain(np.abs(w_values), mask, np.abs(x_values))
        # Roundings to f32 count 2^-13 of one to a 16-bit format or less, the last one counts whole.
        return check_sum(given, y, expected, plain, magnitude, 1 - -(inputs + width) // 2**13, 1)

    check = compared(compare)
    return report(
        session,
        check,
        session.run.cycles,
        expected_cycles=in_cycles(),
        expected_hops=expected_hops(indptr, indices, *places),
        expected_macs=len(indices) * tokens,
        lanes=machine.lanes("fmachs"),
        nonzeros=len(indices),
        weights_sent=len(indices) * groups,
        commands=outputs * width,
        additions=outputs * tokens * (places[0].columns - 1),
        cycles_per_weight=weight_cycles(int(np.diff(places[0].token_starts).max()), machine),
        arrays={"y": y},
    )
