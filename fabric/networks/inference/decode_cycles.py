"""The cycles of a step of the resident decoder are found part by part, from its program and the modelled numbers.

Work on a PE is the program's own, followed from one all-reduce to the next (`fabric.networks.inference.course`) for
each kind of row; all-reduces are those of the trees (`LineSum.ends`), each begun by every PE when it is ready
(`Front`).  All layers do the same, and behind an all-reduce PEs are as far apart as behind the same one of the layer
before: once a layer has moved all times by one number, those that follow do too.

Measured against the engine part by part and step by step: tests/fabric/networks/inference/test_decode_cycles.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.ktree import KTree
from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.axes import QUEUE_HEAD, QUEUE_IN, QUEUE_SHIFT
from fabric.networks.inference.cache import BLOCKS, NOWHERE, OWN
from fabric.networks.inference.course import MOST_WORDS, Course, MarkedProgram
from fabric.networks.inference.decode import PARTS, ColumnRole, Decode, RowRole
from fabric.networks.inference.decoder import period_of
from fabric.networks.inference.front import Front
from fabric.networks.inference.placement import DecoderPlacement
from fabric.price import timing

__all__ = ["StepCycles", "TokenWay"]

Cycles = NDArray[np.int64]
Before = int | Sequence[int]
"""`Before` says how many tokens went before that of a step, or before those of its lanes."""
LAYER = PARTS[PARTS.index("norm 1") : PARTS.index("norm 3")]
TOGETHER = 64
"""So many steps are reckoned together: as many as fit into a cache."""


BEHIND, FIRST, AGAIN, SAME = range(4)
"""The token of a lane comes in one of these ways."""


def up(n: Cycles) -> Cycles:
    """Return n rounded up to a multiple of 4."""
    return 4 * -(-n // 4)


class PricedPlacement(DecoderPlacement):
    """A `PricedPlacement` has one layer of each kind whose matrices take the room of one: where they lie changes no
    cycle.
    """

    @staticmethod
    def of(place: DecoderPlacement) -> PricedPlacement:
        """Return that of another placement."""
        numbers = {one.name: getattr(place, one.name) for one in fields(DecoderPlacement)}
        return PricedPlacement(**numbers | {"decoder": place.decoder.of_kinds(place.decoder.kinds)})

    def copies(self, name: str) -> int:
        """Return 1: experts lie in one place."""
        return 1

    @property
    def weight_words(self) -> int:
        """Words of a layer's matrices, and where the output matrix begins; a column of each has room."""
        return max(self.layer_words + 4, *(shape.rows for shape in self.shapes.values()))

    @property
    def head_at(self) -> int:
        """The output matrix begins with this word, as if there were one layer."""
        return self.layer_words


class RowKind(NamedTuple):
    """A `RowKind` is what the work of a step depends on in a row: equal for all PEs of it, and for most rows.

    Attributes
    ----------
    row : int
        One of this kind.
    phase, held : tuple of int
        Tokens that the cache of each lane has, modulo its rows, and those of this row.
    way : tuple of int
        Of a batch, how the token of each lane comes: `BEHIND` another one, as the `FIRST` of its request, `AGAIN` as
        in the lane before it, or the `SAME` as in the last step.
    share : int
        Tokens that the row takes of a prompt, of a cache that takes blocks; then `phase` has how many tokens before
        that of each lane do not lie in rows above.
    """

    row: int
    phase: tuple[int, ...]
    held: tuple[int, ...]
    way: tuple[int, ...]
    share: int = 0


@dataclass(frozen=True, eq=False)
class _Known:
    """A `_Known` holds programs of a priced decoder, and what was followed of them."""

    programs: dict[tuple[int, int], MarkedProgram] = field(default_factory=dict)
    wholes: dict[tuple[MarkedProgram, int], Course] = field(default_factory=dict)
    attentions: dict[tuple[MarkedProgram, object, int], Course] = field(default_factory=dict)
    courses: dict[tuple[RowKind, bool, int], Course] = field(default_factory=dict)


@lru_cache(maxsize=8)
def _known_of(priced: Decode) -> _Known:
    """Return what is known of a priced decoder; decoders that differ in the number of their layers only share it."""
    return _Known()


class StepCycles:
    """A `StepCycles` predicts the cycles of a decoder's steps, part by part, without running them.

    Parameters
    ----------
    decode : Decode
    """

    def __init__(self, decode: Decode) -> None:
        self.decode, self.place, self.m = decode, decode.place, decode.machine
        self._heads: dict[str, _Heads | None] = {}

    # --- programs -----------------------------------------------------------------------------------------------------

    @cached_property
    def priced(self) -> Decode:
        """The decoder with one layer of each kind, since all of a kind do the same, on PEs with room for it."""
        decode, of = self.decode, PricedPlacement.of
        prompt = decode.prompt and replace(decode.prompt, place=of(decode.prompt.place))
        arrived = decode.arrived and tuple(replace(each, place=of(each.place)) for each in decode.arrived)
        return Decode(
            self.m.replace({"mem.words": MOST_WORDS}),
            of(self.place),
            decode.policy,
            decode.timed,
            None,
            prompt,
            decode.region,
            arrived,  # type: ignore[arg-type]
            blocks=decode.blocks,
            at_a_time=decode.at_a_time,
        )

    @cached_property
    def _known(self) -> _Known:
        return _known_of(self.priced)

    @cached_property
    def roles(self) -> tuple[list[ColumnRole], list[RowRole]]:
        return self.priced.roles()

    def program(self, column: int, row: int) -> MarkedProgram:
        """Return the program of a PE."""
        if (column, row) not in self._known.programs:
            columns, rows = self.roles
            image = self.priced.program(columns[column], rows[row]).assemble()
            self._known.programs[column, row] = MarkedProgram(image, self.m)
        return self._known.programs[column, row]

    def course(self, kind: RowKind, at_edge: bool = False, request: int = 0) -> Course:
        """Return the `Course` of a step in a row of a kind, in column 0 or in another one."""
        key = kind, at_edge or self.place.width == 1, request
        if key not in self._known.courses:
            self._known.courses[key] = self._course(*key)
        return self._known.courses[key]

    def _course(self, kind: RowKind, at_edge: bool, request: int) -> Course:
        """Return the `Course` of a step, of which only parts are followed if there is one of such a program already.

        What rows have to say to a step is how it begins, what the cache does, and attention, by the tokens they hold.
        """
        program, place = self.program(0 if at_edge else 1, kind.row), self.place
        if not place.decoder.layers:
            return program.follow("next token", "next token", {"known": place.vocabulary})
        slots = [[*range(held), *[0] * (place.capacity - held)] for held in kind.held]
        lanes, grows, same = np.arange(place.lanes), np.array(self.grows(kind)), np.array(kind.way) == SAME
        whose, home = lanes // place.ahead, lanes - lanes % place.ahead
        given = {
            "row": kind.row,
            # Of the tokens of the last step, behind which those of this one come, or which they are.
            "phase": np.where(same, (np.array(kind.phase) + 1) % place.height, np.array(kind.phase)[home]),
            "held": np.where(same, np.array(kind.held) + grows, np.array(kind.held)[home]),
            "slot": kind.held,
            "comes": np.where(grows, OWN, NOWHERE),
            "caches_at": whose * place.cache_words,
            "first": whose * 2 * place.capacity,
            "order": np.concatenate(slots),
            "passed": [0] * place.lanes,
            "passed_local": [0] * place.lanes,
            "request": 0,
            "known": self.place.vocabulary,
            "log_at": program.address("log"),
            "marks": self.priced.place.marks,
        } | self._blocks(kind, home)
        opened = self._followed(program, "done begin", given, kind)
        state = opened.state
        if request:  # the first request has opened the position
            state.store(program.address("request"), 1, request)
        whole = self._known.wholes.get((program, request))
        if whole is None:
            if request:
                whole = program.follow("next token", "next token", given, state)
            else:
                whole = self._followed(program, "next token", given, kind)
            self._known.wholes[program, request] = whole
        size = state.load(program.address("held"), place.lanes)
        if not request:
            whole = whole.spliced(opened, "")
        for turn, kind_of_layer in enumerate(self.place.decoder.kinds):
            mark = self.place.decoder.mark(kind_of_layer)
            if self.place.decoder.marked:
                state.store(program.address("kind"), 1, mark)
            if (program, size, mark) not in self._known.attentions:
                self._known.attentions[program, size, mark] = program.follow("done cache", "done mix", None, state)
            whole = whole.spliced(program.follow("done rotary", "done cache", None, state), "done rotary", turn)
            whole = whole.spliced(self._known.attentions[program, size, mark], "done cache", turn)
        return whole

    def _blocks(self, kind: RowKind, home: Cycles) -> dict[str, object]:
        """Return what is given beside, or otherwise, of a cache that takes blocks."""
        if self.decode.cache_policy != BLOCKS:
            return {}
        behind = np.array(kind.phase)
        first = -int(behind[0]) if kind.way[0] == FIRST else self.place.lanes
        return {"phase": behind[home] + first, "first_of_row": first, "tokens_of_row": kind.share}

    def _followed(self, program: MarkedProgram, last: str, given: Mapping[str, object], kind: RowKind) -> Course:
        """Return the `Course` from the beginning of a step to a mark."""
        if not self.place.batch:
            return program.follow("next token", last, given)
        told = program.follow("next token", "told", given)
        lanes, ahead = self.place.lanes, self.place.ahead
        for lane, way in enumerate(kind.way):  # what the host says
            before = lane if lane % ahead else lane + ahead
            said = {BEHIND: before, FIRST: 0, AGAIN: lanes + lane, SAME: lanes + lane + 1}[way]
            told.state.store(program.address("goes_on") + lane, 1, said)
        return told.joined(program.follow("told", last, None, told.state))

    def grows(self, kind: RowKind) -> list[bool]:
        """Return whether a row gets one token more, of each lane."""
        if self.decode.cache_policy == BLOCKS:
            return [0 <= phase < kind.share for phase in kind.phase]
        if self.decode.policy == "concat":
            return [kind.row == self.place.height - 1] * len(kind.phase)
        return [kind.row == phase for phase in kind.phase]

    def kinds(self, before: Cycles) -> tuple[list[RowKind], NDArray[np.int64]]:
        """Return the kinds of rows of steps that take tokens with so many before, and which each row of each step is.

        `before` has the shape (steps, lanes), the second (steps, height).  Of rows that do the same one stands for all:
        those that are neither first nor last, hold as many tokens, and lie above, below or at the row that gets one
        more.
        """
        decode, rows = self.decode, self.place.height
        row, told, lanes = np.arange(rows)[:, np.newaxis], before[:, np.newaxis], self.place.lanes
        count = np.where(told < 0, -1 - told, told)
        a, phase = np.divmod(count, rows)
        prompt = decode.arrived[1] if decode.arrived else decode.prompt
        if decode.policy == "concat":
            counts = np.array(prompt.counts if prompt else [0] * rows)[:, np.newaxis]
            held = counts + (row == rows - 1) * (count - counts.sum())
            side = np.zeros_like(held)
        else:
            held, side = a + (row < phase), np.sign(row - phase)
        share = np.zeros((rows, 1), np.int64)
        if decode.cache_policy == BLOCKS:
            share = np.array(decode.blocks)[:, np.newaxis]
            side = np.clip(count - np.cumsum(share)[:, np.newaxis] + share, -lanes, share)
            held = np.maximum(side, 0)
        edge = (row == 0) * 2 + (row == rows - 1)
        ahead = self.place.ahead
        inside = np.arange(lanes) % ahead > 0  # lanes behind the first of their request
        first = (count == 0) & ~inside & bool(self.place.batch)
        way = np.where(inside & (count == np.roll(count, 1, axis=-1)), AGAIN, np.where(first, FIRST, BEHIND))
        way = np.where(told < 0, SAME, way)
        each = np.broadcast_arrays(held, side, phase == rows - 1, way)
        of_row = [np.broadcast_to(value, (*held.shape[:2], 1)) for value in (edge, share)]
        codes = np.concatenate([*of_row, *each], axis=-1)
        unique, which = np.unique(codes.reshape(-1, codes.shape[-1]), axis=0, return_inverse=True)
        found = []
        for at, own, *of_lanes in unique.tolist():
            one = 0 if at > 1 else rows - 1 if at else 1
            tokens, sides, wraps, ways = np.array(of_lanes).reshape(4, lanes).tolist()
            if decode.cache_policy == BLOCKS:
                found.append(RowKind(one, tuple(sides), tuple(tokens), tuple(ways), own))
                continue
            phases = [
                rows - 1 if wrap else max(0, min(one - beside, rows - 2))
                for beside, wrap in zip(sides, wraps, strict=True)
            ]
            found.append(RowKind(one, tuple(phases), tuple(tokens), tuple(ways)))
        return found, which.reshape(held.shape[:2])

    def heads(self, event: str) -> _Heads | None:
        """Return the sum inside the columns of a head that is an event; None if each head has one column."""
        piece = self.decode.sums["back"].piece
        if event not in self._heads:
            single = self.place.group == 1 or not isinstance(piece, KTree)
            self._heads[event] = None if single else _Heads(self, piece, event)  # type: ignore[arg-type]
        return self._heads[event]

    def summed_in_head(self, column: int, event: str) -> Course:
        """Return the `Course` of a column's part in that sum."""
        program = self.program(column, 0)
        mark = next(name for name in program.marks if name.endswith(f" behind {event}"))
        return program.follow(mark.replace("behind ", ""), mark, {"size": 4})

    # --- a step -------------------------------------------------------------------------------------------------------

    def steps(self, before: Sequence[Before], parts: dict[str, Cycles] | None = None) -> Cycles:
        """Return the cycles of the steps that take tokens with so many before, from hand-over to hand-over.

        Parameters
        ----------
        before : sequence of int or of sequence of int
            Of each step; of a batch a number for each lane, 0 where a request begins.  Where a request has several
            lanes, one that has the number of the one before it repeats that, and one that takes its own token of the
            last step again has a number below zero, -1 less the tokens before it.
        parts : dict, optional
            Takes when each of `PARTS` is done, those of layers in the last layer.
        """
        found = [np.zeros(0, np.int64)]
        for first in range(0, len(before), TOGETHER):
            way = TokenWay(self, np.array(before[first : first + TOGETHER]))
            way.through(self.arrival)
            found.append(way.answered() if self.place.last else way.handed())
            if parts is not None:
                parts.update(way.parts)
        return np.concatenate(found)

    def step(self, before: Before) -> int:
        """Return the cycles of one step."""
        return int(self.steps([before])[0])

    def parts(self, before: Before) -> dict[str, int]:
        """Return the cycles of each of `PARTS` of the step that takes token number `before`; of the last layer."""
        times: dict[str, Cycles] = {}
        self.steps([before], times)
        order = [name for name in PARTS if name in times]
        cuts = [0, *[int(times[name][0]) for name in order]]
        return {name: b - a for name, (a, b) in zip(order, pairwise(cuts), strict=True)}

    def layer(self, before: Before) -> dict[str, int]:
        """Return the cycles of the parts of one layer, the last, of the step that takes token number `before`."""
        found = self.parts(before)
        names = PARTS[PARTS.index("norm 1") : PARTS.index("norm 3")]
        # The first part of the last layer begins with the end of the layer before; its second norm takes as long.
        first, layers = found["norm 2"], self.place.decoder.layers
        if self.place.decoder.parallel:  # there is none: what goes before the first part are layers like this one
            rest = sum(found[name] for name in names if name != "norm 1")
            first = (found["norm 1"] - (layers - 1) * rest) // layers
        return {name: first if name == "norm 1" else found[name] for name in names}

    def answer(self, before: int) -> int:
        """Return the cycles from the end of `transition`, behind a prompt of so many tokens, until a token has left."""
        times: dict[str, Cycles] = {}
        course = self.program(min(1, self.place.width - 1), 0).follow("moved", "behind the layers", {})
        return int(self.steps([before], times)[0] - times["down"][0]) + course.cycles[-1]

    def entering(self, kind: RowKind, request: int = 0) -> int:
        """Return the cycles from when column 0 can use the first wavelet until it has what enters."""
        course = self.course(kind, True, request)
        met = course.met("entered")[0]
        return timing.train(self.m, met.wavelets, QUEUE_IN, QUEUE_IN) + course.cycles[0] - met.first - met.steps

    @property
    def taking(self) -> int:
        """An embedding takes so many cycles from when it begins to enter until column 0 has it."""
        nothing = (0,) * self.place.lanes
        return self.arrival + self.entering(RowKind(0, nothing, nothing, (BEHIND,) * self.place.lanes))

    @property
    def arrival(self) -> int:
        """An embedding takes so many cycles from when it begins to enter until column 0 can use its first wavelet."""
        passing = (
            self.decode.column * self.m["router.hop"] if self.decode.arrived else 0
        )  # the mesh that read the prompt
        return timing.ramps(self.m) + passing

    def transition(self) -> int:
        """Return the cycles in which the hidden features of a prompt's last token come to where a step has them."""
        program = self.program(min(1, self.place.width - 1), 0)
        course = program.follow("token", "moved", {"mine": 1})
        front = Front(self.place.width, self.place.height)
        for event, cycles in zip(course.events, course.cycles, strict=True):
            front.work(cycles)
            if event == "last":
                front.along_y(self.decode.sums["last"])
            elif event == "back":
                front.along_x(self.decode.sums["back"])
        return int(front.last[0]) + self.m["task.start"]


class TokenWay:
    """A `TokenWay` follows some tokens through a decoder, each by itself, part by part.

    Parameters
    ----------
    form : StepCycles
    before : ndarray of int
        Tokens that went before each.
    request : int
        Of a round of several requests, whose token it is.

    Attributes
    ----------
    front : Front
    parts : dict
        When each part is done.
    """

    def __init__(self, form: StepCycles, before: Cycles, request: int = 0) -> None:
        self.form, self.m, self.sums, self.request = form, form.m, form.decode.sums, request
        self.kinds, self.which = form.kinds(before.reshape(len(before), -1))
        courses = [form.course(kind, request=request) for kind in self.kinds]
        self.events = courses[0].events
        self.cycles = np.array([course.cycles for course in courses])
        self.layers = [k for k, event in enumerate(self.events) if event == "layer"]
        self.behind = self.events.index("behind the layers")
        met = [self._shifted(course) for course in courses]
        # First step of what arrives, of what leaves, -1 where there is none, and wavelets that arrive.
        self.shifted = np.array(met, np.int64).T
        held = np.array([kind.held for kind in self.kinds]) + np.array([form.grows(kind) for kind in self.kinds])
        self.slots = up(held).sum(axis=-1)  # that a product walks over, of all lanes
        self.front = Front(form.place.width, form.place.height, len(before))
        self.parts: dict[str, Cycles] = {}

    def at_edge(self) -> tuple[Cycles, Cycles]:
        """Return, for column 0 of each row, the cycles from here to the next token, and to its first step of sending.

        Each has the shape (steps, height); here is behind the last layer or, in the last region, behind the arg max.
        """
        event = "done argmax" if self.form.place.last else "behind the layers"
        courses = [self.form.course(kind, True, self.request) for kind in self.kinds]
        sends = [next((met.first for met in course.met("next token")), 0) for course in courses]
        return np.array([course.behind(event) for course in courses])[self.which], np.array(sends)[self.which]

    @staticmethod
    def _shifted(course: Course) -> tuple[int, int, int]:
        """Return when, behind the part before, a row waits for entries of the cache and when it sends some.

        And how many wavelets it waits for.
        """
        arrives, leaves, wavelets = -1, -1, 0
        for met in course.met("done cache") if "layer" in course.events else ():
            if met.takes:
                arrives, wavelets = met.first, met.wavelets
            else:
                leaves = met.first
        return arrives, leaves, wavelets

    def through(self, arrival: int) -> Cycles:
        """Move the front behind the last layer; return when column 0 has what enters, (steps, height).

        `arrival`: cycles until it can use the first wavelet.
        """
        form, front = self.form, self.front
        entered = arrival + form.entering(self.kinds[0], self.request)
        begun = front.rows + entered
        front.work(self.cycles[0, 0])  # of columns that nothing enters
        front.columns[:, 0] = entered - self.cycles[0, 0]
        if not self.layers:
            self._move(1, self.behind + 1)
            return begun
        self._move(1, self.layers[0] + 1)
        decoder, more = form.place.decoder, self.m["ce.branch_taken"] - self.m["ce.branch_not_taken"]
        which = [decoder.kinds.index(kind) for kind in decoder.different] or [0]
        count, period, layer = decoder.layers, period_of(which), 0
        while layer < count:
            if layer % period == 0:
                columns, rows = front.columns, front.rows
            self._layer(which[layer % period], more if layer < count - 1 else 0)
            layer += 1
            moved = front.columns - columns, front.rows - rows
            turns = (count - layer) // period
            if layer % period == 0 and turns * period > 1 and all((each == each[:, :1]).all() for each in moved):
                # All that a turn does is to move all times by one number, so the others do too.
                columns, rows = moved[0][:, :1] * turns, moved[1][:, :1] * turns
                front.columns, front.rows = front.columns + columns, front.rows + rows
                shift = (columns + rows)[:, 0]
                layer += turns * period
                if layer == count:  # the last branch falls
                    front.rows, shift = front.rows - more, shift - more
                self.parts |= {part: time + shift for part, time in self.parts.items() if part in LAYER}
        return begun

    def _layer(self, kind: int, more: int) -> None:
        """Move the front over a layer of a kind; `more`: cycles of the branch to another one."""
        last = kind == len(self.layers) - 1
        self._move(self.layers[kind] + 1, (self.behind if last else self.layers[kind + 1]) + 1)
        self.front.work(more - (0 if last else self.m["ce.branch_taken"] - self.m["ce.branch_not_taken"]))

    def answered(self) -> Cycles:
        """Move the front from behind the last layer to the next token; return when that has left."""
        m, front = self.m, self.front
        self._move(self.behind + 1, self.events.index("done argmax") + 1)
        course = self.form.course(self.kinds[self.which[0, 0]], True, self.request)
        met = course.met("next token")[0]
        leaving = met.first + met.steps + m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
        return np.asarray(front.columns[:, 0] + front.rows[:, 0] + leaving)

    def handed(self) -> Cycles:
        """Return when the residual stream behind the layers that are here has left, of groups of layers."""
        m, front = self.m, self.front
        courses = [self.form.course(kind, True, self.request) for kind in self.kinds]
        met = [course.met("next token")[0] for course in courses]
        sends = np.array([each.first + each.steps for each in met])[self.which]
        leaving = m["ramp.execute"] + m["ramp.out"] + m["router.hop"]
        return np.asarray((front.columns[:, :1] + front.rows + sends).max(axis=1) + leaving)

    def _move(self, first: int, last: int) -> None:
        """Move the front over events, from the one behind another."""
        front = self.front
        for number in range(first, last):
            event = self.events[number]
            begun = front.rows
            front.work(self.cycles[:, number][self.which])
            if event in self.sums:
                line = self.sums[event]
                (front.along_x if line.line is self.form.decode.x.line else front.along_y)(line)
            elif event == "heads":
                self._sum_heads(event, (self.form.place.heads * self.slots)[self.which])
            elif event == "squares":
                count = self.form.place.lanes * self.form.place.turned_heads
                self._sum_heads(event, np.full_like(self.which, count))
            elif event.startswith("done "):
                if event == "done cache":
                    self._shift(begun)
                self.parts[event.removeprefix("done ")] = front.last

    def _shift(self, begun: Cycles) -> None:
        """Let rows wait for entries of the cache that the row below sends; rows began this part at `begun`."""
        arrives, leaves, wavelets = self.shifted[:, self.which]
        m = self.m
        sent = np.roll(begun + leaves, -1, axis=1) + timing.way(m, 1)
        for count in np.unique(wavelets[wavelets > 0]).tolist():
            received = timing.receiver(m, count, QUEUE_SHIFT, QUEUE_SHIFT)(begun + arrives, sent)
            # A row that hands on an entry meanwhile takes every other slot for what is left of it.
            waited = np.maximum(0, sent - begun - arrives)
            received = received + np.where(leaves >= 0, np.maximum(0, count - waited), 0)
            self.front.work(np.where(wavelets == count, received - begun - arrives - count, 0))

    def _sum_heads(self, event: str, sizes: NDArray[np.int64]) -> None:
        """Move the front over the sum of so many numbers of each row inside the columns of each head."""
        heads = self.form.heads(event)
        if heads is None:
            return
        front = self.front
        each = np.unique(sizes)
        times = np.array([heads.ends(front.columns, size) for size in each.tolist()])
        ends = times.max(axis=2)  # of the slowest column, (sizes, steps)
        step = np.arange(len(sizes))
        most = np.searchsorted(each, sizes.max(axis=1))  # more numbers never take less
        front.columns = times[most, step]
        front.work(ends[np.searchsorted(each, sizes), step[:, np.newaxis]] - ends[most, step][:, np.newaxis])


class _Heads:
    """A `_Heads` is a sum inside the columns of each head, of scores or of squares: who waits for whom, along x.

    Parameters
    ----------
    form : StepCycles
    piece : KTree
        Along x; its lowest groups are the columns of the heads.
    event : str
    """

    def __init__(self, form: StepCycles, piece: KTree, event: str) -> None:
        self.m, self.queue, self.turns = form.m, piece.queues[0], piece.turns[0]
        roles, found = [form.priced.level(column) for column in form.roles[0]], {}
        for column, role in enumerate(roles):
            if role not in found:
                found[role] = form.summed_in_head(column, event).gaps
        self.gaps = [found[role] for role in roles]  # of a root, one for each side, one for the flood, one behind
        groups = piece.levels[0]
        self.root = np.repeat([group[len(group) // 2] for group in groups], [len(group) for group in groups])

    def ends(self, starts: Cycles, count: int) -> Cycles:
        """Return when each column goes on if each begins when `starts` says, (steps, width); `count`: numbers."""
        m, w, queue = self.m, wavelets_of(count, "f32"), self.queue
        if not count:
            return starts + np.array([sum(each) for each in self.gaps])
        received = timing.receiver(m, w, queue, queue)
        begins = starts + [each[0] for each in self.gaps]
        ready, passed = begins, np.zeros_like(starts)
        behind = timing.train(m, w, queue, queue) + timing.command(m)
        room = m["queue.in_depth"][queue] + m["ramp.in_buffer"]
        for turn, sides in enumerate(self.turns):
            ways = sides.members * timing.ramps(m) + sides.hops * m["router.hop"]
            arrival = (begins[:, sides.places] + ways).max(axis=-1)
            roots = sides.roots
            arrival = np.maximum(arrival, passed[:, roots])
            taken = np.maximum(ready[:, roots], arrival)
            full = taken + w - room + m["ramp.in"] + 1 + timing.command(m)
            passed[:, roots] = np.maximum(arrival + behind, full if w > room else 0)
            ready = ready.copy()
            ready[:, roots] = received(ready[:, roots], arrival) + [self.gaps[root][1 + turn] for root in roots]
        sent = ready[:, self.root]  # the first step of the flood
        places = np.arange(len(self.root))
        own = begins + w + [each[min(1, len(each) - 1)] for each in self.gaps]
        flood = timing.receiver(m, w, QUEUE_HEAD, QUEUE_HEAD)
        found: Cycles = flood(own, sent + timing.way(m, abs(places - self.root)))
        roots = np.unique(self.root)
        found[:, roots] = ready[:, roots] + timing.sending(m, w, QUEUE_HEAD, QUEUE_HEAD)
        alone = np.bincount(self.root, minlength=len(places))[self.root] == 1
        found[:, alone] = starts[:, alone]  # a group of one only looks how many there are
        return found + np.array([each[-1] for each in self.gaps])
