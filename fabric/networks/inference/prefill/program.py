"""A prompt read by one program: all its tokens go through all layers together.

The two phases of an inference run the same weights, in the same places.  A tile of weights in decoding stands for a
chunk of hidden features, over y, and the features of a column, over x; here a PE of row y holds tokens of its own:

===============  ==================  =================================================================================
product          left matrix         in each of H steps, another tile of the column's weights being there
===============  ==================  =================================================================================
qkv, gate_up     hidden features     the home of the tile's chunk spreads it along the row; each PE adds to its columns'
                                     features: C += A[chunk] W[chunk]
scores           queries             the columns of a head sum their parts toward the home of the block of keys
mix              shares              the home of the block spreads its shares over the columns of the head
o, down          mixed values, inner the row sums its parts of the tile's chunk toward the chunk's home
===============  ==================  =================================================================================

So products that read hidden features leave features of columns, and the others the reverse, as in decoding; nothing is
transposed, nothing is aligned, and any mesh will do.  What goes round is always the right matrix, on the folded ring of
MeshGEMM; sums toward a home that moves are those of its transposed product, and the way from a home is their mirror.

A layer: norm, qkv, biases, norms of heads, positions, the cache; scores, softmax, mix; o into the residual stream;
norm, gate and up, the gated part, down into the residual stream.  Two all-reduces of a row (norms) and two of a head's
columns (softmax), three with norms of heads.  In the end the hidden features of the last token stand in ``last``, for
the program that decodes.

Cycles: `fabric.networks.inference.prefill.cycles`.
Source: WaferLLM, sections 4.1, 5 and 5.4; the same weights for both phases are of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Reg, Var
from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.kit.session import Stamps
from fabric.kernels.matvec.line_sum import LineSum, Queues
from fabric.layout.layout import Layout
from fabric.networks.inference.angles import Angles as Positions
from fabric.networks.inference.axes import Axis
from fabric.networks.inference.elementwise import LOCAL
from fabric.networks.inference.move.code import MovingRow, Sender
from fabric.networks.inference.prefill.attention import PromptAttention
from fabric.networks.inference.prefill.channels import COLOR_EAST, Channels, Ends, route_channels
from fabric.networks.inference.prefill.elementwise import AngleTasks, emit_biases, emit_gated, emit_norm
from fabric.networks.inference.prefill.experts import PromptExperts
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.ring import COLOR_RING, FIRST_COLORS, TileRing, on_ring
from fabric.networks.inference.prefill.writer import PromptWriter
from fabric.program.program import Program
from wse_core.image import ProgramImage
from wse_core.params import Machine

__all__ = ["PARTS", "Prefill"]

COLORS_SUM, QUEUES_SUM = (5, 6, 7, 8, 9), Queues((5, 0), 7, 5)
"""The tree that sums squares along x has these colors and queues."""

PARTS = (
    "enter",
    "begin",
    "norm 1",
    "qkv",
    "rotary",
    "scores",
    "softmax",
    "mix",
    "divide",
    "o",
    "norm 2",
    "gate_up",
    "swiglu",
    "down",
)
"""The program has these parts in order; a timed program notes when each is done, those of layers in the last layer.

Norms of queries and keys belong to ``rotary``, norms behind the parts of a layer to ``o`` and ``down``.
"""


WRITTEN = 128
"""The cache of written programs holds so many, those that were asked for last."""


@dataclass(frozen=True)
class PromptColumn:
    """A `PromptColumn` is what a program depends on along x."""

    tree: tuple[Any, bool]
    parity: int
    ends: Ends
    head: Ends
    idle: bool


class Prefill:
    """A `Prefill` has programs, routes and data that read a prompt.

    Those of the same arguments are equal, and have the same programs.

    Parameters
    ----------
    machine : Machine
    prompt : PromptPlacement
    timed : bool
        Whether every PE notes when each of `PARTS` is done; costs some cycles each.

    Attributes
    ----------
    inputs : list of Stream
        One per row: the embeddings of its tokens.
    """

    def __init__(self, machine: Machine, prompt: PromptPlacement, timed: bool = False) -> None:
        self._arguments = machine, prompt, timed
        self.machine, self.prompt, self.place, self.timed = machine, prompt, prompt.place, timed
        place = prompt.place
        line = Line.rows(place.width, place.height)
        self.x = Axis(machine, line, COLORS_SUM, QUEUES_SUM, 1, prompt.tokens)
        self.squares: LineSum = self.x.sum(prompt.tokens)
        self.projections: LineSum | None = self.x.sum(2 * prompt.tokens) if place.decoder.projection_norms else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prefill) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    # --- programs -----------------------------------------------------------------------------------------------------

    def program(
        self, column: PromptColumn, colors: tuple[int, int] | None, onward: MovingRow | None = None
    ) -> ProgramImage:
        """Return the program of a PE; `colors`: sent and received on the ring of its column.

        With `onward`, keys and values go to another mesh in the end.  Rows of PEs differ in nothing but these colors,
        so that a column's program is written once and gets those of each row: a quarter of the time.
        """
        if colors is None:
            return _written(self, column, None, onward).assemble()
        return on_ring(_written(self, column, FIRST_COLORS, onward), colors)

    def write(self, column: PromptColumn, colors: tuple[int, int] | None, onward: MovingRow | None) -> Program:
        """Return a program of a PE that nobody has yet."""
        place, prompt = self.place, self.prompt
        p = Program(f"prompt {column} {colors}", self.machine, half="cb16" if place.dtype == "cb16" else "f16")
        w = PromptWriter(p, prompt)
        ring, channels = TileRing(w, colors), Channels(w, column.parity, column.ends)
        attention, angles = PromptAttention(w, ring, channels, column.head), AngleTasks(w)
        goes = p.param("goes", "u16", count=place.height)
        behind, answering = p.param("columns_behind", "u16"), p.param("last_token", "u16")
        stamps = Stamps(p, len(PARTS) + 1)
        parts = _Parts(self, w, ring, channels, column, goes)
        experts = PromptExperts(w, ring, channels, column.ends, goes) if place.decoder.experts else None
        walks = w.second_half, w.written_half
        sender = None if onward is None else Sender(p, place, column.parity, column.ends, onward, w.cache, walks)

        def done(part: str) -> None:
            w.mark(f"done {part}")
            if self.timed or part == PARTS[-1]:
                stamps.store(1 + PARTS.index(part))

        with p.task("prompt"):
            stamps.store(0)
            with w.cut("enter"):
                channels.enter(w.given, behind)
            p.fh2s(w.x, w.given)
            done("enter")
            if place.decoder.turning:
                angles.prepare()
            attention.prepare()
            w.rewind()
            if column.idle:
                p.mov16(w.mixed_half, 0)
            done("begin")
            with w.layers():
                parts.given(inner=place.decoder.norms == "beside")
                done("norm 1")
                parts.spread("qkv", w.qkv, w.given)
                emit_biases(w, "qkv", w.qkv)
                done("qkv")
                if place.decoder.head_norms:
                    angles.normalise(parts.squares)
                elif place.decoder.projection_norms:
                    angles.normalise_all(parts.projections)
                if place.decoder.turning:
                    with w.where("turns"):
                        angles.turn()
                angles.keep()
                angles.remember()
                done("rotary")
                if not column.idle:
                    attention.scores()
                    done("scores")
                    attention.softmax()
                    done("softmax")
                    attention.mix()
                    done("mix")
                    attention.divide()
                    done("divide")
                parts.summed("o", w.mixed_half)
                done("o")
                if not place.decoder.parallel:
                    parts.given()
                done("norm 2")
                parts.feed_forward(experts, done)
                w.mark("layer done")
            w.mark("hand over")
            parts.hand_over(answering)
            done("down")
            w.mark("read")
            if sender is not None:
                sender.emit()
        p.assemble()
        return p

    # --- layout -------------------------------------------------------------------------------------------------------

    def columns(self) -> list[PromptColumn]:
        """Return the role of each column."""
        place, prompt, width = self.place, self.prompt, self.place.width
        found = []
        for x, tree in enumerate(self.squares.roles()):
            idle, at = prompt.is_idle(x), x % place.group
            head = Ends(False, False) if idle else Ends(at > 0, at < place.group - 1)
            found.append(PromptColumn(tree, x % 2, Ends(x > 0, x < width - 1), head, idle))
        return found

    def layout(self) -> Layout:
        """Return the `Layout`, with the streams in `inputs`; built."""
        layout = Layout(self.place.width, self.place.height, self.machine)
        self.paint(layout)
        layout.build()
        return layout

    def paint(self, layout: Layout, onward: Sequence[MovingRow] = ()) -> None:
        """Put the mesh into the north-western corner of a layout; `onward`: of each row, as of `program`."""
        height, width, ring = self.place.height, self.place.width, self.prompt.ring
        rows = [
            (ring.colors(k) if height > 1 else None, onward[k] if onward else None) for k in range(height)
        ]  # fmt: skip
        lines: list[tuple[Line, Sequence[Hashable]]] = [
            (self.x.line, self.columns()),
            (Line.columns(width, height), rows),
        ]
        compose(layout, lines, lambda roles: self.program(roles[0], *roles[1]))
        self.squares.routes(layout)
        ring.paint(layout, COLOR_RING, "S", "N", lambda k: (0, k, width, 1))
        route_channels(layout, self.prompt)
        self.inputs = [layout.input_stream(0, row, "W", COLOR_EAST[1]) for row in range(height)]
        for name, values in self.parameters().items():
            layout.set_param(name, values, (0, 0, width, height))

    # --- data ---------------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, NDArray[Any]]:
        """Return what differs between PEs but does not change: symbol -> values of shape (h, w, n)."""
        prompt, place = self.prompt, self.place
        width, height = place.width, place.height
        row, token = prompt.last
        last = np.zeros((height, width, 1), np.uint16)
        last[row] = 1 + token
        found: dict[str, NDArray[Any]] = {
            "goes": prompt.goes(width),
            "goes_in_head": prompt.goes(place.group),
            "allowed": prompt.allowed.reshape(height, width, -1),
            "columns_behind": np.broadcast_to((width - 1 - np.arange(width))[:, np.newaxis], (height, width, 1)),
            "last_token": last,
        }
        for local in (False, True) if place.decoder.is_local else (False,):
            positions, end = Positions(place, self.machine, local), LOCAL if local else ""
            states = [positions.state(first) for first in prompt.firsts]
            passed = np.array([positions.passed(first) for first in prompt.firsts], np.uint16)
            found[f"passed{end}"] = np.broadcast_to(passed[:, np.newaxis, np.newaxis], (height, width, 1))
            for name in ("step", "leap", "fine", "coarse"):
                found[name + end] = np.stack([state[name] for state in states]).view(np.float32)
        if place.decoder.experts:
            numbers = np.arange(place.decoder.experts, dtype=np.float32)
            found["expert_numbers"] = np.broadcast_to(numbers, (height, width, len(numbers)))
            there = np.array(prompt.counts, np.uint16)[:, np.newaxis, np.newaxis]
            found["tokens_there"] = np.broadcast_to(there, (height, width, 1))
        if place.decoder.window is not None:
            found["outside"] = prompt.outside(place.decoder.window).reshape(height, width, -1)
        if place.decoder.marked:
            found["marks"] = np.broadcast_to(np.array(place.marks, np.uint16), (height, width, len(place.marks)))
        return found

    def tables(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return what the host writes before the prompt, of what `Decode.tables` made: bits of shape (h, w, n).

        Norms, and biases of hidden features, come a second time: here they lie with the homes of their features.
        """
        found = {name: bits for name, bits in tables.items() if name != "norms"}
        found["norms_of_columns"] = self._at_homes(tables["norms"], self.place.last_norm_at)
        if "row_biases" in tables:
            found["biases_of_columns"] = self._at_homes(tables["row_biases"])
        found["norms"] = tables["norms"]
        return found

    def _at_homes(self, bits: NDArray[Any], count: int | None = None) -> NDArray[Any]:
        """Return the first vectors of hidden features of a table as they lie with the homes of its chunks."""
        place, prompt = self.place, self.prompt
        vectors = bits[:, 0].reshape(place.height, -1, place.hidden)[:, :count]
        over_x = np.zeros((place.width, vectors.shape[1], prompt.slots, place.hidden), bits.dtype)
        for chunk, (column, slot) in enumerate(prompt.homes(place.width)):
            over_x[column, :, slot] = vectors[chunk]
        flat = over_x.reshape(1, place.width, -1)
        return np.broadcast_to(flat, (place.height, *flat.shape[1:]))


class _Parts:
    """A `_Parts` writes the parts of a layer that are the same for all matrices of a kind."""

    def __init__(
        self, prefill: Prefill, w: PromptWriter, ring: TileRing, channels: Channels, column: PromptColumn, goes: Var
    ) -> None:
        self.prefill, self.w, self.ring, self.channels = prefill, w, ring, channels
        self.column, self.goes = column, goes

    def _norm(self, behind: bool, inner: bool = False) -> None:
        """Write a norm, or two beside each other."""
        w, line = self.w, self.prefill.squares

        def total() -> None:
            with w.cut("squares"):
                line.emit(w.p, self.column.tree, w.sums)

        emit_norm(w, total, behind, inner)

    def given(self, inner: bool = False) -> None:
        """Write what a part of a layer reads: the residual stream, normalised where norms stand before.

        `inner`: what the feed-forward part reads too.
        """
        w = self.w
        if w.place.decoder.norms_before:
            self._norm(False, inner)
        else:
            w.p.fs2h(w.given, w.x)

    def projections(self) -> None:
        """Write the sums of the squares of queries and keys over all columns."""
        w, line = self.w, self.prefill.projections
        assert line is not None
        with w.cut("projections"):
            line.emit(w.p, self.column.tree, w.squares)

    def squares(self) -> None:
        """Write the sum of the squares of heads over the columns of each head."""
        w = self.w
        with w.cut("all squares"):
            self.channels.all_reduce(self.column.head, w.squares, w.p.fadds)

    def spread(self, name: str, result: Var, given: Var) -> None:
        """Write result = given W: chunks of hidden features come from their homes."""
        w, p, prompt = self.w, self.w.p, self.w.prompt
        p.mov32(result, 0)
        elements = prompt.tile_elements[name]
        with w.taking("weights", elements) as address, self.ring.steps(name, address, elements) as (tile, left):
            goes, base = p.reg16("goes"), p.reg16("piece")
            p.ld16(goes, self.goes, index=left)
            with w.cut(f"spread {name}"):
                self.channels.spread(self.column.ends, goes, w.piece, base, partial(self._find, given))
            w.product(prompt.shapes[name], result, tile, base)
            p.free(base)

    def _find(self, given: Var, slot: Reg, base: Reg) -> None:
        """Write that `base` becomes the address of a chunk of given features."""
        p = self.w.p
        p.mul16(slot, slot, self.w.prompt.piece)
        p.ldi(base, given)
        p.add16(base, base, slot)

    def summed(self, name: str, vector: Var) -> None:
        """Write x = x + vector W, with its biases: parts are summed toward the homes of the features.

        Where norms stand behind the parts of a layer, ``back`` is what is added, normalised.
        """
        w, p, prompt = self.w, self.w.p, self.w.prompt
        elements = prompt.tile_elements[name]
        with w.taking("weights", elements) as address, self.ring.steps(name, address, elements) as (tile, left):
            p.mov32(p.mem1d(w.partial, prompt.piece), 0)
            base = p.reg16("vector")
            p.ldi(base, vector)
            w.product(prompt.shapes[name], w.partial, tile, base)
            p.free(base)
            goes = p.reg16("goes")
            p.ld16(goes, self.goes, index=left)
            with w.cut(f"sum {name}"):
                add = self._keep if w.place.decoder.norms_behind else self._add
                self.channels.sum_home(self.column.ends, goes, w.partial, prompt.piece, add)
        if not w.place.decoder.norms_behind:
            emit_biases(w, name, w.x)
            return
        emit_biases(w, name, w.back)
        self._norm(True)
        p.fadds(w.x, w.x, w.back)

    def feed_forward(self, experts: PromptExperts | None, done: Callable[[str], None]) -> None:
        """Write the feed-forward part of a layer; `done` notes the end of a part."""
        w = self.w
        if experts is not None:
            self._by_experts(experts, done)
            return
        self.spread("gate_up", w.gate_up, w.inner_given if w.place.decoder.norms == "beside" else w.given)
        emit_biases(w, "gate_up", w.gate_up)
        done("gate_up")
        emit_gated(w)
        done("swiglu")
        self.summed("down", w.inner_half)

    def _by_experts(self, experts: PromptExperts, done: Callable[[str], None]) -> None:
        """Write the feed-forward part of a layer with experts."""
        w = self.w
        experts.choice.emit(lambda: self.spread("router", experts.choice.routes, w.given))
        with w.cut("sort"):
            experts.sort()
        experts.inward()
        done("gate_up")
        emit_gated(w, experts.choice.shares)
        done("swiglu")
        experts.outward()
        if w.place.decoder.norms_behind:
            self._norm(True)
            w.p.fadds(w.x, w.x, w.back)

    def _keep(self, slot: Reg) -> None:
        """Write that partial sums come into ``back``."""
        w, p, piece = self.w, self.w.p, self.w.prompt.piece
        p.mul16(slot, slot, 2 * piece)
        p.load(w.written, p.mem1d(w.back, piece))
        p.dsr_off(w.written, slot)
        p.mov32(w.written, p.mem1d(w.partial, piece))

    def _add(self, slot: Reg) -> None:
        """Write that partial sums are added to the residual stream."""
        w, p, piece = self.w, self.w.p, self.w.prompt.piece
        p.mul16(slot, slot, 2 * piece)
        p.load(w.first, p.mem1d(w.x, piece))
        p.dsr_off(w.first, slot)
        p.fadds(w.first, w.first, p.mem1d(w.partial, piece))

    def hand_over(self, last_token: Var) -> None:
        """Write last = the hidden features of the last token, where it lies, else zeros."""
        w, p, prompt, hidden = self.w, self.w.p, self.w.prompt, self.w.place.hidden
        p.mov32(w.last, 0)
        token = p.reg16("token")
        p.ld16(token, last_token)
        with p.if_("ne", token, 0, "16"):
            p.sub16(token, token, 1)
            p.mul16(token, token, 2 * hidden)
            p.load(w.second, p.mem4d(w.x, (prompt.slots, hidden), (prompt.piece, 1)))
            p.dsr_off(w.second, token)
            p.mov32(w.last, w.second)
        p.free(token)


@lru_cache(maxsize=WRITTEN)
def _written(
    prefill: Prefill, column: PromptColumn, colors: tuple[int, int] | None, onward: MovingRow | None
) -> Program:
    return prefill.write(column, colors, onward)
