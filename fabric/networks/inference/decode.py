"""The decoder as one resident program: a token enters at the west edge, the next one leaves there.

A step
    The embedding row of the token enters row by row at column 0 and is given to each row by an all-reduce in which all
    others hold zeros.  Then, layer by layer: norm; queries, keys and values (summed along y); norms of heads, where a
    decoder has them; rotary positions; the cache takes the new entry; attention; output projection (along x) into the
    residual stream; norm; gate and up (along y); the gated part; down (along x) into the residual stream.  Behind the
    last layer: norm, logits (along y), the largest of them (along x); its token and its value leave PE (0, 0).

    There are nine all-reduces per layer: six along y (two of them of one value, for the norms, one a maximum), two
    along x, one inside the columns of a head; norms of heads take another one there, and norms that subtract the mean
    another one each along y, of one value.

Learned positions
    The host adds the row of a token's position to that of its embedding, where it looks that up: the sum enters.

The program loops: a PE that is through waits for the next token, and counts tokens itself.

Behind a prompt
    Where a program has read a prompt (`fabric.networks.inference.prefill`), keys and values are in place, and the
    hidden features of the last token lie with their homes in its row.  Two all-reduces move them: along y all rows get
    them, along x row r gets its chunk, to which the home has the only numbers that are not zero.  Then the step goes on
    behind the last layer.

One of several regions
    A model may lie on several meshes beside each other (`fabric.networks.inference.pipeline`), each with some of its
    layers.  All but the first take the residual stream of a token where the first takes an embedding, and all but the
    last hand theirs on where the last one answers; column 0 does both, and notes when it begins and when it is through.

Some of the layers at a time
    A mesh may have the layers of a model some at a time (`fabric.networks.inference.groups`).  Then the residual stream
    of a token enters at the west edge, f32, and leaves there; the last norm and the output matrix, or a part of its
    rows, make a program without layers, which the residual stream enters and a token leaves.

Several answers
    With several requests, tokens of all come in turns, and each request has a cache of its own.  All are at the same
    position: what counts tokens is moved on once per round.

Cycles: `fabric.networks.inference.decode_cycles`.
Source: WaferLLM, section 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.asm.operands import Var
from fabric.kernels.collectives.pieces.ktree import KTree
from fabric.kernels.collectives.pieces.line_reduce import Role
from fabric.kernels.collectives.pieces.lines import compose
from fabric.kernels.kit.session import Stamps
from fabric.kernels.matvec.line_sum import LineSum
from fabric.layout.layout import Layout
from fabric.layout.streams import Side
from fabric.networks.inference.argmax import ArgMax
from fabric.networks.inference.attention import Attention
from fabric.networks.inference.axes import COLOR_HAND, COLOR_HEAD, COLOR_IN, COLOR_OUT, QUEUE_HEAD, QUEUE_IN, axes
from fabric.networks.inference.cache import BLOCKS, CacheCode, route_shift
from fabric.networks.inference.elementwise import LOCAL, Rotary, emit_capped, emit_gated, emit_norm, emit_residual
from fabric.networks.inference.experts import ExpertChoice
from fabric.networks.inference.int8_attention import Int8Attention
from fabric.networks.inference.log import ClockLog
from fabric.networks.inference.move.code import COLOR_PASS, receive_cache
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.window import AttentionWindow
from fabric.networks.inference.writer import DecoderWriter
from fabric.program.program import Program
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["LASTING", "PARTS", "Decode"]

WRITTEN = 128
"""The cache of written programs holds so many, those that were asked for last."""

Summed = Callable[[str, Var], Callable[[], None]]
"""Gives, for an all-reduce of `Decode.sums` and a variable, what writes it."""

TASK = 30
"""The task has this number, another one than that of the program that reads prompts, so that a run file can tell them.
"""

PARTS = (
    "enter",
    "begin",
    "norm 1",
    "qkv",
    "rotary",
    "cache",
    "scores",
    "peaks",
    "shares",
    "mix",
    "divide",
    "o",
    "norm 2",
    "gate_up",
    "swiglu",
    "down",
    "norm 3",
    "head",
    "argmax",
)
"""A step has these parts in order; a timed program notes when each is done, those of layers in the last layer.

Norms of queries and keys belong to ``rotary``, norms behind the parts of a layer to ``o`` and ``down``.
"""


LASTING = ("cache", "phase", "held", "order", "passed", "fine", "coarse", "now", "newest", "numbers")
"""A PE keeps these from one step to the next: entries, their slots, how many tokens there are, the next angles.  Angles
of layers that turn otherwise have `LOCAL` behind their names; all else is written anew.
"""


@dataclass(frozen=True)
class ColumnRole:
    """A `ColumnRole` is what a program depends on along x."""

    tree: tuple[Any, bool]
    first: bool


@dataclass(frozen=True)
class RowRole:
    """A `RowRole` is what a program depends on along y."""

    tree: tuple[Any, bool]
    parity: int
    first: bool
    last: bool


class Decode:
    """A `Decode` has programs, routes and data of a decoder that generates.

    Those of the same arguments are equal, and have the same programs.

    Parameters
    ----------
    machine : Machine
    place : DecoderPlacement
    policy : {"shift", "concat", "round"}
        Of the cache.
    timed : bool
        Whether every PE notes when each of `PARTS` is done; costs some cycles each.
    answers : int, optional
        Only the first so many tokens may be answered: vocabularies are often padded beyond what has a text.
    prompt : PromptPlacement, optional
        What was read by another program before this one begins.
    arrived : (PromptPlacement, PromptPlacement), optional
        A prompt that another mesh, to the west, has read: there and here.  Its keys and values come before the first
        step.
    code : int
        Words kept for the code of this program and of another one of the same PEs; 0: there is none.
    begun : int
        Tokens that the cache has when the program begins, which another program has read as this one would have.
    blocks : sequence of int, optional
        With the policy shift: the first tokens lie in blocks of so many in each row, which a program reads that takes
        several in a step; behind them entries move.
    at_a_time : bool
        Whether the mesh has only some of the layers, or of the rows of the output matrix, at a time.
    region : int, optional
        Which of several regions this is, from 0 on, `place` saying which layers it has; None: there is only one.

    Attributes
    ----------
    column : int
        Of the layout: where the mesh begins.
    answers : int
        So many tokens, from the first on, may be answered.
    may_answer : ndarray of bool, shape (width, vocabulary of a column)
        Of the logits of each column, those that take part in the arg max.
    x, y : Axis
        The all-reduces of both axes.
    inputs : list of Stream
        One per row: the chunk of an embedding row, two numbers of 16 bits per wavelet; with some of the layers at a
        time the chunk of a residual stream, a number of f32 per wavelet.
    output : Stream
        Two wavelets per token, f32: the next token, its logit.
    outputs : list of Stream
        With some of the layers at a time, one per row: the chunk of the residual stream behind them.
    """

    def __init__(
        self,
        machine: Machine,
        place: DecoderPlacement,
        policy: str = "shift",
        timed: bool = False,
        answers: int | None = None,
        prompt: PromptPlacement | None = None,
        region: int | None = None,
        arrived: tuple[PromptPlacement, PromptPlacement] | None = None,
        code: int = 0,
        begun: int = 0,
        blocks: Sequence[int] | None = None,
        at_a_time: bool = False,
    ) -> None:
        if place.ahead > 1 and policy == "shift" and blocks is None:
            raise UnsupportedError(
                "several tokens of a request in a step, in a cache whose entries move",
                where="cache shift",
                cause="a step may be taken back, and entries that have moved do not come back",
                hint="a cache of the kind round or concat",
            )
        tokens = None if blocks is None else tuple(blocks)
        more = region, arrived, code, begun, tokens, at_a_time
        self._arguments = machine, place, policy, timed, answers, prompt, *more
        self.at_a_time = at_a_time
        self.prompt, self.region, self.arrived, self.code, self.begun = prompt, region, arrived, code, begun
        self.blocks, self.moving = blocks, policy == "shift" and place.ahead == 1
        self.column = arrived[0].place.width if arrived else (region or 0) * place.width
        self.answers = place.decoder.vocabulary if answers is None else answers
        self.may_answer = (place.ids >= 0) & (place.ids < self.answers)
        self.machine, self.place, self.policy, self.timed = machine, place, policy, timed
        self.x, self.y = axes(machine, place, self.column)
        lanes, shapes = place.lanes, place.shapes
        heads, hidden = lanes * place.heads, lanes * place.hidden
        self.sums: dict[str, LineSum] = {
            "norm": self.y.sum(lanes),
            "qkv": self.y.sum(lanes * shapes["qkv"].rows),
            "peaks": self.y.sum(heads, "max"),
            "mixed": self.y.sum(heads * place.part + heads),
            "back": self.x.sum(hidden),
            "gate_up": self.y.sum(place.inner_vectors * shapes["gate_up"].rows),
            "head": self.y.sum(lanes * shapes["head"].rows),
            "largest": self.x.sum(lanes, "max"),
            "smallest": self.x.sum(lanes, "min"),
        }
        if place.decoder.experts:
            self.sums["router"] = self.y.sum(lanes * shapes["router"].rows)
        if place.batch:
            self.sums["enter"] = self.x.sum(hidden + place.told)
        if place.decoder.projection_norms:
            self.sums["projections"] = self.x.sum(2 * lanes)
        if prompt is not None:
            self.sums["last"] = self.y.sum(prompt.slots * hidden)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decode) and self._arguments == other._arguments

    def __hash__(self) -> int:
        return hash(self._arguments)

    @property
    def cache_policy(self) -> str:
        """The program treats its cache by this policy, one of `POLICIES` or `BLOCKS`."""
        return BLOCKS if self.policy == "shift" and not self.moving else self.policy

    # --- programs -----------------------------------------------------------------------------------------------------

    def program(self, column: ColumnRole, row: RowRole) -> Program:
        """Return the program of a PE, which is written once."""
        return _written(self, column, row)

    def write(self, column: ColumnRole, row: RowRole) -> Program:
        """Return a program of a PE that nobody has yet."""
        place = self.place
        p = Program(f"decoder {column} {row}", self.machine, half="cb16" if place.dtype == "cb16" else "f16")
        w = DecoderWriter(p, place, self.prompt.slots if self.prompt else 0, self.code)
        stamps = Stamps(p, len(PARTS) + 1) if self.timed else None
        if not place.decoder.layers:
            self._write_head(w, column, row, stamps)
            p.assemble()
            return p
        rotary, search = Rotary(w), ArgMax(w) if place.last else None
        entry = p.dsr("dest", name="coming entry") if self.arrived else None
        cache = CacheCode(w, self.cache_policy, row.parity, row.first, row.last, entry)
        attends = Int8Attention if place.int8 else Attention
        attention = attends(w, cache, self.level(column), self.x.queues.levels[0])
        window = None if place.decoder.window is None else AttentionWindow(w, cache)
        log = ClockLog(p) if self.region is not None and column.first else None
        summed, done = self._emitters(w, column, row, stamps)

        with p.task("token", id=TASK):
            turn = p.reg16("layers left")
            behind = p.new_label("behind the layers")
            if self.prompt is not None:
                self._resume(w, summed)
                p.jump(behind)
            if self.arrived is not None and entry is not None:
                old = self.arrived[0].place
                is_root = column.tree[1] or not self.sums["back"].floods
                receive_cache(w, self.sums["back"], is_root, old.width * 2 * old.kv_rows, entry)
                p.store_tsc(p.array("moved", 3, "u16"))
            if log is not None:
                log.begin()
            if place.ahead > 1:
                self._places(cache, window)
            start = p.label("next token")
            self._enter(w, column, log)
            w.mark("entered")
            if stamps is not None:
                stamps.store(0)
            summed("enter" if place.batch else "back", w.entered)()
            self._entered(w)
            done("enter")
            with self._once(w, 0):
                if place.batch:
                    w.mark("told")
                    if place.decoder.turning:
                        self._begin_anew(w, rotary)
                cache.begin()
                if window is not None:
                    window.begin()
                rotary.position()
            done("begin")
            with p.loop(place.decoder.layers, counter=turn):
                w.mark("layer")
                w.enter_layer(turn)
                self._layer(w, rotary, cache, attention, summed, done)
            p.place(behind)
            if search is not None:
                self._answer(w, search, column.first and row.first, summed, done)
            elif column.first:
                color = COLOR_OUT if self.at_a_time else COLOR_HAND[(self.region or 0) % 2]
                p.mov32(p.fabout(p.output_queue(QUEUE_HEAD, color), place.lanes * place.hidden), w.x)
            with self._once(w, place.requests - 1):
                if place.ahead == 1:
                    rotary.advance()
            self._next_request(w)
            if log is not None:
                log.note()
            p.jump(start)
        p.assemble()
        return p

    def _emitters(
        self, w: DecoderWriter, column: ColumnRole, row: RowRole, stamps: Stamps | None
    ) -> tuple[Summed, Callable[[str], None]]:
        """Return what gives the writer of an all-reduce, and what notes that a part of the step is done."""

        def summed(name: str, var: Var) -> Callable[[], None]:
            line = self.sums[name]
            role = column.tree if line.line is self.x.line else row.tree

            def write() -> None:
                with w.cut(name):
                    line.emit(w.p, role, var)

            return write

        def done(part: str) -> None:
            w.mark(f"done {part}")
            if stamps is not None:
                stamps.store(1 + PARTS.index(part))

        return summed, done

    def _write_head(self, w: DecoderWriter, column: ColumnRole, row: RowRole, stamps: Stamps | None) -> None:
        """Write the program that has no layers: a residual stream enters, the next token leaves."""
        search = ArgMax(w)
        summed, done = self._emitters(w, column, row, stamps)
        with w.p.task("token", id=TASK):
            start = w.p.label("next token")
            self._enter(w, column, None)
            w.mark("entered")
            if stamps is not None:
                stamps.store(0)
            summed("back", w.entered)()
            self._entered(w)
            done("enter")
            w.p.label("behind the layers")
            self._answer(w, search, column.first and row.first, summed, done)
            w.p.jump(start)

    @staticmethod
    def _places(cache: CacheCode, window: AttentionWindow | None) -> None:
        """Write where each token has its cache, where several share one."""
        cache.places()
        if window is not None:
            window.places()

    @staticmethod
    def _entered(w: DecoderWriter) -> None:
        """Write that what has entered becomes the residual stream, and what goes before each token of a batch."""
        p, place = w.p, w.place
        p.mov32(w.x, w.of_lanes(w.entered, place.hidden))
        if place.batch:
            p.fs2xp16(w.goes_on, p.mem1d(w.entered, place.told, offset=place.lanes * place.hidden))
        w.rewind()

    def _answer(
        self, w: DecoderWriter, search: ArgMax, sends: bool, summed: Summed, done: Callable[[str], None]
    ) -> None:
        """Write what a step ends with: the last norm, logits, the largest of them, which one PE sends."""
        self._norm(w, "norm 3", summed, done)
        self._logits(w, summed)
        done("head")
        search.emit(summed("largest", search.top), summed("smallest", search.top))
        done("argmax")
        if sends:
            out = w.p.output_queue(QUEUE_HEAD, COLOR_OUT)
            w.p.mov32(w.p.fabout(out, 2 * w.place.lanes), search.answer)

    @staticmethod
    def _resume(w: DecoderWriter, summed: Summed) -> None:
        """Write x = the hidden features of the last token of a prompt, and when a PE has them."""
        p, hidden = w.p, w.place.hidden
        mine, moved = p.param("mine", "u16"), p.array("moved", 3, "u16")  # 1 + slot of the row's chunk; 0: elsewhere
        summed("last", w.last)()
        p.mov32(w.back, 0)
        slot = p.reg16("slot")
        p.ld16(slot, mine)
        with p.if_("ne", slot, 0, "16"):
            p.sub16(slot, slot, 1)
            p.mul16(slot, slot, 2 * hidden)
            p.load(w.second, p.mem1d(w.last, hidden))
            p.dsr_off(w.second, slot)
            p.mov32(w.back, w.second)
        p.free(slot)
        summed("back", w.back)()
        p.mov32(w.x, w.back)
        w.forward()
        w.mark("moved")
        p.store_tsc(moved)

    @staticmethod
    def _norm(w: DecoderWriter, part: str, summed: Summed, done: Callable[[str], None]) -> None:
        """Write a norm; the first of two beside each other writes the second too."""
        emit_norm(w, summed("norm", w.one), inner=part == "norm 1" and w.place.decoder.norms == "beside")
        done(part)

    def _logits(self, w: DecoderWriter, summed: Summed) -> None:
        """Write the logits, with a cap where they have one."""
        cap = self.place.decoder.logit_cap
        self._product(w, "head", w.logits, w.given, summed("head", w.logits))
        if cap is not None:
            count = self.place.lanes * self.place.vocabulary
            w.in_pieces(w.logits, count, partial(emit_capped, w.functions, cap))

    @staticmethod
    def _added(w: DecoderWriter, summed: Summed) -> None:
        """Write that what a part of a layer gives joins the residual stream, normalised where norms stand behind."""
        if w.place.decoder.norms_behind:
            emit_norm(w, summed("norm", w.one), behind=True)
        emit_residual(w)

    def _given(self, w: DecoderWriter, part: str, summed: Summed, done: Callable[[str], None]) -> None:
        """Write what a part of a layer reads: the residual stream, normalised where norms stand before.

        Where both parts read the same stream, what the second reads is there already.
        """
        if part == "norm 2" and w.place.decoder.parallel:
            done(part)
        elif w.place.decoder.norms_before:
            self._norm(w, part, summed, done)
        else:
            w.p.fs2h(w.of_lanes(w.given, w.place.hidden), w.x)
            done(part)

    def _layer(
        self,
        w: DecoderWriter,
        rotary: Rotary,
        cache: CacheCode,
        attention: Attention,
        summed: Summed,
        done: Callable[[str], None],
    ) -> None:
        """Write a layer; `summed` gives the emitter of an all-reduce of a variable, `done` notes the end of a part."""

        def squares() -> None:
            with w.cut("squares"):
                attention.sum_in_head(w.squares)

        place = self.place
        self._given(w, "norm 1", summed, done)
        self._product(w, "qkv", w.qkv, w.given, summed("qkv", w.qkv))
        done("qkv")
        if place.decoder.head_norms:
            rotary.normalise(squares)
        elif place.decoder.projection_norms:
            rotary.normalise_all(summed("projections", w.squares))
        if place.decoder.turning:
            with w.where("turns"):
                rotary.turn()
        rotary.keep()
        done("rotary")
        cache.update()
        done("cache")
        attention.scores()
        with w.cut("heads"):
            attention.sum_scores()
        if place.decoder.score_cap is not None:
            attention.cap(place.decoder.score_cap)
        if place.decoder.window is not None:
            with w.where("window"):
                attention.limit()
        done("scores")
        attention.peaks()
        summed("peaks", w.peaks)()
        done("peaks")
        attention.shares()
        done("shares")
        attention.mix()
        summed("mixed", w.mixed)()
        done("mix")
        attention.divide()
        done("divide")
        self._product(w, "o", w.back, w.mixed_half, summed("back", w.back))
        self._added(w, summed)
        done("o")
        self._given(w, "norm 2", summed, done)
        if place.decoder.experts:
            self._experts(w, ExpertChoice(w, self.place.lanes), summed, done)
        else:
            given = w.inner_given if place.decoder.norms == "beside" else w.given
            self._product(w, "gate_up", w.gate_up, given, summed("gate_up", w.gate_up))
            done("gate_up")
            emit_gated(w)
            done("swiglu")
            self._product(w, "down", w.back, w.inner_half, summed("back", w.back))
        self._added(w, summed)
        with w.taking("cache", self.place.caches * self.place.cache_words):
            pass
        done("down")

    @staticmethod
    def _experts(w: DecoderWriter, routing: ExpertChoice, summed: Summed, done: Callable[[str], None]) -> None:
        """Write the feed-forward part of a layer with experts: those that are chosen, and no others."""
        place = w.place

        def routed() -> None:
            w.product("router", routing.routes, w.given)
            summed("router", routing.routes)()

        routing.emit(routed)
        w.expert_products("gate_up", w.gate_up, w.given, routing.picked)
        summed("gate_up", w.gate_up)()
        done("gate_up")
        emit_gated(w, routing.shares)
        done("swiglu")
        before = place.tile_words(place.shapes["gate_up"])
        w.expert_products("down", w.back, w.inner_half, routing.picked, before)
        summed("back", w.back)()
        with w.taking("weights", place.decoder.experts * (before + place.tile_words(place.shapes["down"]))):
            pass

    @staticmethod
    def _begin_anew(w: DecoderWriter, rotary: Rotary) -> None:
        """Write that requests that begin with this step have the first position."""
        p = w.p
        with w.lanes() as lane:
            goes_on = p.reg16("goes on")
            p.ld16(goes_on, w.goes_on, index=lane)
            if w.place.ahead > 1 and lane is not None:
                again, end = p.new_label(), p.new_label()
                with p.if_("eq", goes_on, 0, "16"):
                    rotary.begin_anew(lane)
                    p.jump(end)
                p.branch("gtu", goes_on, w.place.lanes, again, "16")
                rotary.follow(lane, goes_on)
                p.jump(end)
                p.place(again)
                p.sub16(goes_on, goes_on, w.place.lanes)
                rotary.repeat(lane, goes_on)
                p.place(end)
            else:
                with p.if_("eq", goes_on, 0, "16"):
                    rotary.begin_anew(lane)
            p.free(goes_on)

    @contextmanager
    def _once(self, w: DecoderWriter, request: int) -> Iterator[None]:
        """Write the block for one request of a round only."""
        if self.place.requests == 1:
            yield
            return
        turn = w.p.reg16("request")
        w.p.ld16(turn, w.request)
        with w.p.if_("eq", turn, request, "16"):
            w.p.free(turn)
            yield

    def _next_request(self, w: DecoderWriter) -> None:
        """Write that it is the next request's turn."""
        count, p = self.place.requests, w.p
        if count == 1:
            return
        turn = p.reg16("request")
        p.ld16(turn, w.request)
        p.add16(turn, turn, 1)
        with p.if_("eq", turn, count, "16"):
            p.ldi(turn, 0)
        p.st16(turn, w.request)
        p.free(turn)

    def _enter(self, w: DecoderWriter, column: ColumnRole, log: ClockLog | None) -> None:
        """Write that what a token begins with enters ``entered``: at column 0 from outside, elsewhere zeros."""
        p = w.p
        if column.first and (self.region or self.at_a_time):
            color = COLOR_HAND[(self.region - 1) % 2] if self.region else COLOR_IN
            count = w.place.lanes * w.place.hidden + w.place.told
            p.mov32(w.entered, p.fabin(p.input_queue(QUEUE_IN, color), count))
        elif column.first:
            color = COLOR_PASS if self.arrived else COLOR_IN
            count = w.place.lanes * w.place.hidden + w.place.told
            p.mov16(w.given, p.fabin(p.input_queue(QUEUE_IN, color), count))
            p.fh2s(w.entered, w.given)
        else:
            p.mov32(w.entered, 0)
        if log is not None:
            log.note()

    def _product(self, w: DecoderWriter, name: str, result: Var, vector: Var, total: Callable[[], None]) -> None:
        """Write a product and the sum of its parts, and behind it the biases, if it has some."""
        p = w.p
        w.product(name, result, vector)
        total()
        symbol = w.place.bias_of(name)
        if symbol:
            rows = w.place.shapes[name].rows
            with w.taking(symbol, rows) as address:
                bias = w.register("src0", "biases")
                p.load(bias, w.for_lanes(w.biases[symbol], rows))
                p.dsr_base(bias, address)
                biased = w.register("dest", "biased")
                p.load(biased, w.of_lanes(result, rows))
                p.faddhs(biased, bias, w.of_lanes(result, rows))

    def level(self, column: ColumnRole) -> Role | None:
        """Return a column's part in the lowest level of the tree along x; None: it is the only one of its head."""
        found: Role | None = column.tree[0][0] if self.place.group > 1 else None
        return found

    def roles(self) -> tuple[list[ColumnRole], list[RowRole]]:
        """Return what the program of each column, and of each row, depends on."""
        last, parity = self.place.height - 1, 2 if self.moving else 1
        columns = [ColumnRole(tree, k == 0) for k, tree in enumerate(self.sums["back"].roles())]
        rows = [RowRole(tree, k % parity, k == 0, k == last) for k, tree in enumerate(self.sums["qkv"].roles())]
        return columns, rows

    # --- layout -------------------------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """Return the `Layout`, with the streams in `inputs` and `output`; built."""
        layout = Layout(self.place.width, self.place.height, self.machine)
        self.paint(layout)
        layout.build()
        return layout

    def paint(self, layout: Layout) -> None:
        """Put the mesh into a layout: programs, routes, parameters, and streams where the wafer's edge is."""
        place, height, first = self.place, self.place.height, self.column
        columns, rows = self.roles()
        compose(layout, [(self.x.line, columns), (self.y.line, rows)], lambda roles: self.program(*roles))
        self.sums["back"].routes(layout)
        self.sums["qkv"].routes(layout)
        if place.group > 1 and place.decoder.layers:
            self._route_heads(layout)
        if self.moving and place.decoder.layers:
            route_shift(layout, place, first)
        if not self.region:
            color = COLOR_PASS if first else COLOR_IN
            if first:
                layout.route(color, (0, 0, first, height), rx="W", tx="E")
            layout.route(color, (first, 0, 1, height), rx="W", tx="R")
            self.inputs = [layout.input_stream(0, row, "W", color) for row in range(height)]
        if place.last:
            side: Side = "N" if first else "W"
            layout.route(COLOR_OUT, (first, 0), rx="R", tx=side)
            self.output = layout.output_stream(first, 0, side, COLOR_OUT)
        elif self.at_a_time:
            layout.route(COLOR_OUT, (0, 0, 1, height), rx="R", tx="W")
            self.outputs = [layout.output_stream(0, row, "W", COLOR_OUT) for row in range(height)]
        for name, values, rect in self.parameters():
            layout.set_param(name, values, rect)

    def groups(self) -> list[list[int]]:
        """Return the columns of each lowest group of the tree along x."""
        piece = self.sums["back"].piece
        assert isinstance(piece, KTree)
        return piece.levels[0] if self.place.group > 1 else [[c] for c in range(self.place.width)]

    def _route_heads(self, layout: Layout) -> None:
        """Paint the floods from the middle of each group of columns."""
        for group in self.groups():
            root = group[len(group) // 2]
            for column in group if len(group) > 1 else ():
                west = "W" * (column > group[0] and column <= root)
                east = "E" * (column < group[-1] and column >= root)
                rx = "R" if column == root else "E" if column < root else "W"
                tx = west + east + "R" * (column != root)
                layout.route(COLOR_HEAD, (self.column + column, 0, 1, self.place.height), rx=rx, tx=tx)

    # --- data ---------------------------------------------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, NDArray[Any], tuple[int, int, int, int]]]:
        """Return (symbol, values of shape (h, w, n), rectangle) of what differs between PEs but does not change."""
        found = self._of_layers() if self.place.decoder.layers else []
        if self.place.last:
            ids = np.maximum(self.place.ids, 0).astype(np.float32)
            known = self.may_answer.sum(axis=1).astype(np.uint16)
            found += [("ids", self._per_column(ids)), ("known", self._per_column(known))]
        whole = self.column, 0, self.place.width, self.place.height
        return [(name, values, whole) for name, values in found]

    def _per_column(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what each column has, a number or several, for all PEs."""
        values = values if values.ndim > 1 else values[:, np.newaxis]
        return np.broadcast_to(values, (self.place.height, self.place.width, values.shape[-1]))

    def _of_layers(self) -> list[tuple[str, NDArray[Any]]]:
        """Return `parameters` of what layers do."""
        from fabric.networks.inference.angles import Angles

        place, width, height, per_column = self.place, self.place.width, self.place.height, self._per_column
        rows = np.arange(height, dtype=np.uint16)
        found = [("row", np.broadcast_to(rows[:, np.newaxis, np.newaxis], (height, width, 1)))]
        if place.decoder.experts:
            found.append(("expert_numbers", per_column(np.tile(np.arange(place.decoder.experts, dtype=np.float32),
                                                               (width, 1)))))  # fmt: skip
        if self.cache_policy == BLOCKS:
            counts = np.array(self.blocks, np.uint16)
            for name, values in (("first_of_row", np.cumsum(counts) - counts), ("tokens_of_row", counts)):
                shaped = values.astype(np.uint16)[:, np.newaxis, np.newaxis]
                found.append((name, np.broadcast_to(shaped, (height, width, 1))))
        prompt = self.arrived[1] if self.arrived else self.prompt
        # A step ends with the way to the next.
        position = prompt.length - (not self.arrived) if prompt else self.begun
        for local in (False, True) if place.decoder.is_local else (False,):
            angles, end = Angles(place, self.machine, local), LOCAL if local else ""
            state = angles.state(position)
            if place.batch:
                state |= {"origin": state["coarse"], "fine": np.tile(state["fine"], (1, place.lanes))}
                state["coarse"] = np.tile(state["coarse"], (1, place.lanes))
            found += [(name + end, per_column(bits.view(np.float32))) for name, bits in state.items()]
            found.append((f"passed{end}", np.full((height, width, place.lanes), angles.passed(position), np.uint16)))
        if place.decoder.window is not None and not place.batch:
            found += self._numbers(prompt)
        if place.decoder.marked:
            found.append(
                ("marks", np.broadcast_to(np.array(place.marks, np.uint16), (height, width, len(place.marks))))
            )
        if self.prompt is not None:
            mine = np.zeros((height, width, 1), np.uint16)
            for row, (column, slot) in enumerate(self.prompt.homes(width)):
                mine[row, column] = 1 + slot
            found.append(("mine", mine))
        if prompt is not None or self.begun:
            length = prompt.length if prompt else self.begun
            counts = np.array(prompt.counts if prompt else self._counts(), np.uint16)[:, np.newaxis, np.newaxis]
            found += [
                ("held", np.broadcast_to(counts, (height, width, 1))),
                ("phase", np.full((height, width, 1), length % height, np.uint16)),
                ("order", np.broadcast_to(np.arange(place.capacity, dtype=np.uint16), (height, width, place.capacity))),
            ]
        return found

    def _counts(self) -> list[int]:
        """Return the tokens of each row when the program begins."""
        height = self.place.height
        if self.policy == "concat":
            return [0] * (height - 1) + [self.begun]
        a, b = divmod(self.begun, height)
        return [a + (row < b) for row in range(height)]

    def _numbers(self, prompt: PromptPlacement | None) -> list[tuple[str, NDArray[Any]]]:
        """Return the numbers of tokens with which a window begins: in slots, of each row's newest, of the next one."""
        place, size = self.place, (self.place.height, self.place.width)
        moved = self._counts() if self.begun and self.moving else [0] * place.height
        counts = np.array(prompt.counts if prompt else moved, np.float32)
        firsts = np.array(prompt.firsts if prompt else np.cumsum(moved) - moved, np.float32)
        slots = firsts[:, np.newaxis, np.newaxis] + np.arange(place.capacity, dtype=np.float32)
        if self.begun and self.policy == "round":
            row = np.arange(place.height, dtype=np.float32)[:, np.newaxis, np.newaxis]
            slots = row + np.arange(0, place.height * place.capacity, place.height, dtype=np.float32)
        newest = (firsts + counts - 1)[:, np.newaxis, np.newaxis]
        return [
            ("numbers", np.broadcast_to(slots, (*size, place.capacity))),
            ("newest", np.broadcast_to(newest, (*size, 1))),
            ("now", np.full((*size, 1), prompt.length if prompt else self.begun, np.float32)),
        ]

    def tables(self, weights: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Return what the host writes before the first token: symbol -> bit patterns of shape (h, w, n)."""
        from fabric.networks.inference.tiles import place_weights

        return place_weights(self.place, self.machine, weights)


@lru_cache(maxsize=WRITTEN)
def _written(decode: Decode, column: ColumnRole, row: RowRole) -> Program:
    return decode.write(column, row)
