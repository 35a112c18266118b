"""The cycles of reading a prompt are found part by part, from its program and the modelled numbers.

Work on a PE is the program's own, followed from mark to mark (`fabric.networks.inference.course`), a turn of each loop
over the steps of a product standing for all; what moves along rows is `fabric.networks.inference.prefill.rows`.  A tile
comes when the PE before it on the ring has sent it.

Of more than `STEPS` rows, and so steps of a product, homes move on as they do in fewer steps on as much narrower a
mesh: a product takes as much longer with each step more, which two such meshes say.  Layers are followed until one
moves all times of a row by one number.

Measured against the engine, part by part: tests/fabric/networks/inference/test_prefill_cycles.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives.pieces.ring import Ring
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.matvec.line_sum import LineSum
from fabric.networks.inference.course import MOST_WORDS, Course, MarkedProgram
from fabric.networks.inference.decoder import period_of
from fabric.networks.inference.elementwise import FINE
from fabric.networks.inference.prefill.channels import FROM_WEST, TO_EAST
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.prefill.program import PARTS, Prefill, PromptColumn
from fabric.networks.inference.prefill.rows import LATE, Channel, RowWays, Times
from fabric.price import timing
from fabric.price.state import State, begin

__all__ = ["PromptCycles"]

STEPS = 48
"""Most steps of a product that are followed; times of more are drawn on from this number and half of it."""
EXPERTS = 8
"""Most experts that are followed, liked and disliked ones; the others take as long."""
STEADY = 1e-3
"""Part of a layer by which its PEs may differ in how long it takes: those that follow take as long."""
LAYER = PARTS[PARTS.index("norm 1") : PARTS.index("down")]


class RingTurn(NamedTuple):
    """A `RingTurn` is a step of a product: until its tile is there, until the next one is on its way, until and behind
    the channel.
    """

    tile: int
    begun: int
    work: int
    behind: int


class RingProduct(NamedTuple):
    """A `RingProduct` is a product whose right matrix goes round.

    Attributes
    ----------
    name : str
    turn, last : RingTurn
        A step, and the last one.
    channel : Channel
    spreads : bool
        Whether its channel spreads; else it sums.
    """

    name: str
    turn: RingTurn
    last: RingTurn
    channel: Channel
    spreads: bool


class ExpertProduct(NamedTuple):
    """An `ExpertProduct` stands for the products of all experts, whose matrices go round one after the other.

    Attributes
    ----------
    name : str
    turn, last : RingTurn
        A step and the last one: until its tile is there, until the next one is on its way, until the first token that
        chose the expert or, if there is none, until it ends; and behind the last token.
    entry, end : RingTurn
        A token that others follow, and the last one of an expert: of `RingTurn` work and behind.
    none : int
        Cycles of a step without tokens instead of `RingTurn.work` and `RingTurn.behind`.
    again : int
        Cycles from the end of an expert's last step to the first step of the next one.
    channel : Channel
    spreads : bool
    """

    name: str
    turn: RingTurn
    last: RingTurn
    entry: RingTurn
    end: RingTurn
    none: int
    again: int
    channel: Channel
    spreads: bool


def cut_of(program: MarkedProgram, name: str) -> str:
    """Return the mark of the cut of a name; empty if there is none."""
    return next((mark for mark in program.marks if mark.partition(" ")[2] == name), "")


Item = tuple[str, int, "RingProduct | ExpertProduct | None"]
"""An `Item` is an event of a stretch of the program, the cycles from the one before to it, and what goes round there.
"""


class PromptCycles:
    """A `PromptCycles` predicts the cycles of reading a prompt, part by part, without running it.

    Parameters
    ----------
    prefill : Prefill
    """

    def __init__(self, prefill: Prefill) -> None:
        self.prefill, self.prompt, self.place, self.m = prefill, prefill.prompt, prefill.place, prefill.machine
        self._programs: dict[int, MarkedProgram] = {}
        self._sorting: dict[int, int] = {}

    # --- programs -----------------------------------------------------------------------------------------------------

    @cached_property
    def priced(self) -> Prefill:
        """The program that is priced has few layers, one of each kind or two, on PEs with room for it."""
        place, decoder = self.place, self.place.decoder
        few = decoder.of_kinds(decoder.kinds) if decoder.marked else decoder.part(0, min(2, decoder.layers))
        short = replace(place, decoder=few)
        machine = self.m.replace({"mem.words": MOST_WORDS})
        return Prefill(machine, PromptPlacement(short, self.prompt.length), self.prefill.timed)

    def program(self, column: int) -> MarkedProgram:
        """Return the program of a column."""
        if column not in self._programs:
            colors = self.prompt.ring.colors(0) if self.place.height > 1 else None
            image = self.priced.program(self._columns[column], colors)
            self._programs[column] = MarkedProgram(image, self.m)
        return self._programs[column]

    @cached_property
    def _columns(self) -> list[PromptColumn]:
        return self.priced.columns()

    @property
    def given(self) -> dict[str, object]:
        """What the work of a PE depends on: half of a row of keys is hidden, taken for all; no angle leaps."""
        prompt = self.prompt
        seen = [prompt.keys - prompt.keys // 2] * (prompt.key_slots * prompt.tokens)
        goes = [0] * self.place.height
        found = {"passed": 0, "allowed": seen, "last_token": 1, "columns_behind": 1, "goes": goes, "goes_in_head": goes}
        local = {"passed_local": 0} if self.place.decoder.is_local else {}
        outside = [prompt.keys // 4] * (prompt.key_slots * prompt.tokens)
        return found | local | {"marks": self.priced.place.marks, "outside": outside}

    def sorting(self, tokens: int) -> int:
        """Return the cycles in which a PE sorts so many tokens by their experts."""
        if tokens not in self._sorting:
            program, chosen, experts = self.program(0), self.place.decoder.chosen, self.place.decoder.experts
            cut = cut_of(program, "sort")
            picked = np.tile(np.arange(chosen), self.prompt.tokens) % experts
            given = {"picked": picked, "tokens_there": tokens}
            self._sorting[tokens] = sum(program.follow(cut, cut.replace(" ", " behind ", 1), given).cycles)
        return self._sorting[tokens]

    def chosen(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many tokens of each row, of so many, choose each expert, (rows, experts), by lot."""
        decoder, rng = self.place.decoder, np.random.default_rng(0)
        found = np.zeros((len(counts), decoder.experts), np.int64)
        for row, count in enumerate(counts.tolist()):
            for _ in range(count):
                found[row, rng.permutation(decoder.experts)[: decoder.chosen]] += 1
        return found

    def _ways(self, mark: str, columns: int) -> RowWays:
        """Return what the PEs of a line of so many columns do in a channel, the home being anywhere."""

        def gaps(place: int, where: int) -> tuple[int, ...] | None:
            if (where == 0 and place == 0) or (where == 1 and place == columns - 1):
                return None
            program = self.program(place)
            first = cut_of(program, mark)
            state = begin(program.image)
            state.registers[:] = [where] * len(state.registers)  # one of them says where the home is
            return program.follow(first, first.replace(" ", " behind ", 1), None, state).gaps

        return RowWays.of(columns, gaps)

    def _ring(self, mark: str, state: State) -> tuple[RingProduct, State]:
        """Return the product that begins at a mark, and what is known behind it."""
        program = self.program(0)
        name, register = mark.split()[1], int(mark.split()[-1])
        cut = cut_of(program, f"spread {name}") or cut_of(program, f"sum {name}")

        def turn(left: int) -> RingTurn:
            state.registers[register] = left
            before = program.follow(mark, cut, None, state)
            behind = program.follow(cut.replace(" ", " behind ", 1), mark, None, before.state)
            events = len(before.events)
            tile, begun = before.cycles[:2] if events > 1 else (0, 0)
            return RingTurn(tile, begun, before.cycles[-1] + before.pending, sum(behind.cycles))

        columns = self.place.group if name in ("scores", "mix") else self.place.width
        spreads = "spread" in cut
        numbers = self.prompt.block if name in ("scores", "mix") else self.prompt.piece
        wavelets = wavelets_of(numbers, self.place.dtype if spreads else "f32")
        channel = Channel(self.m, self._ways(cut.partition(" ")[2], columns), wavelets)
        found = RingProduct(name, turn(max(2, self.place.height)), turn(1), channel, spreads)
        state.registers[register] = 0
        return found, state

    def _experts(self, mark: str, state: State) -> tuple[ExpertProduct, State]:
        """Return the products of experts that begin at a mark, and what is known behind them."""
        program, name = self.program(0), mark.split()[1]
        steps = next(each for each in program.marks if each.startswith(f"steps {name} "))
        register, entry, through = int(steps.split()[-1]), f"entry {name}", f"through {name}"
        cut = cut_of(program, f"spread {name}") or cut_of(program, f"sum {name}")
        behind, first, last = cut.replace(" ", " behind ", 1), program.address("expert_begins"), "expert_ends"

        def entries(count: int) -> None:
            """Let the first expert have so many tokens."""
            state.store(program.address("current_expert"), 1, 0)
            state.store(first, 1, 0)
            state.store(program.address(last), 1, count)

        state = program.follow(mark, steps, None, state).state

        def turn(left: int) -> tuple[RingTurn, RingTurn, RingTurn, int]:
            """Return a step, a token of it and the last token, and a step without tokens."""
            nonlocal state
            found = []
            for count in (2, 0):
                entries(count)
                state.registers[register] = left
                found.append(program.follow(steps, [entry, through], None, state))
            before, none = found
            tile, begun = before.cycles[:2] if len(before.events) > 2 else (0, 0)
            work = sum(before.cycles) - tile - begun
            tokens, now = [], before.state
            for _ in range(2):
                course = program.follow(entry, cut, None, now)
                more = program.follow(behind, [entry, through], None, course.state)
                tokens.append(RingTurn(0, 0, sum(course.cycles) + course.pending, sum(more.cycles)))
                now = more.state
            end = program.follow(through, steps, None, now)
            skipped = sum(none.cycles) - tile - begun + sum(end.cycles)
            return RingTurn(tile, begun, work, sum(end.cycles)), tokens[0], tokens[1], skipped

        most = max(2, self.place.height)
        (step, one, other, none), (final, *_) = turn(most), turn(1)
        columns, hidden = self.place.width, self.place.hidden
        spreads = "spread" in cut
        wavelets = wavelets_of(hidden, self.place.dtype if spreads else "f32")
        channel = Channel(self.m, self._ways(cut.partition(" ")[2], columns), wavelets)
        entries(0)
        state.registers[register] = 0
        again = program.follow(steps, steps, None, state)
        state.store(program.address("current_expert"), 1, self.place.decoder.experts - 1)
        found = ExpertProduct(name, step, final, one, other, none, sum(again.cycles), channel, spreads)
        return found, program.follow(steps, f"behind experts {name}", None, state).state

    def _script(self, first: str, last: str, state: State | None) -> tuple[list[Item], State]:
        """Return the events from one mark to another, with the products between, and what is known in the end."""
        program = self.program(0)
        found: list[Item] = []
        loops = [mark for mark in program.marks if mark.startswith("steps ")]
        experts = [mark for mark in program.marks if mark.startswith("experts ")]
        while True:
            course = program.follow(first, [last, *experts, *loops], self.given, state)
            events = zip(course.events, course.cycles, strict=True)
            found += [(event, cycles, None) for event, cycles in events]
            state, first = course.state, course.events[-1]
            product: RingProduct | ExpertProduct
            if first in experts:
                product, state = self._experts(first, state)
            elif first in loops:
                product, state = self._ring(first, state)
            else:
                return found, state
            found[-1] = (first, found[-1][1], product)
            if first in experts:
                first = f"behind {first}"

    @cached_property
    def stretches(self) -> tuple[Course, list[list[Item]], int, list[Item]]:
        """The program has four stretches: before the layers, a layer of each kind, the cycles to another one, behind
        them.
        """
        program = self.program(0)
        opened = program.follow("prompt", "layer", self.given)
        state, layers, again = opened.state, [], 0
        for number in range(len(self.place.decoder.kinds)):
            layer, state = self._script("layer", "layer done", state)
            layers.append(layer)
            if number == 0 and self.place.decoder.layers > 1:
                # The loop's counter is not at its end yet: the next turn follows.  The way out is a branch that falls.
                again = program.follow("layer done", "layer", None, state.copy()).cycles[-1]
            if number < len(self.place.decoder.kinds) - 1:
                state = program.follow("layer done", "layer", None, state).state
        behind = program.follow("hand over", "read", self.given, state)
        events = zip(behind.events, behind.cycles, strict=True)
        return opened, layers, again, [(event, cycles, None) for event, cycles in events]

    # --- the whole ----------------------------------------------------------------------------------------------------

    def entered(self) -> Times:
        """Return when each column has its embeddings, from the cycle in which the first begins to enter."""
        m, width = self.m, self.place.width
        w = wavelets_of(self.prompt.slots * self.prompt.piece, self.place.dtype)
        program = self.program(min(1, width - 1) if width > 2 else 0)
        cut = cut_of(program, "enter")
        gaps = program.follow(cut, cut.replace(" ", " behind ", 1), {"columns_behind": 2}).gaps
        whole = timing.train(m, w, FROM_WEST, TO_EAST)
        begun = max(timing.ramps(m), m["task.start"] + self.stretches[0].cycles[0] + gaps[0])
        if width == 1:
            return np.array([begun + whole + gaps[-1]], np.float64)
        _, on, again, tail = gaps  # to the own piece, to the first and to the next one that is passed on, behind all
        period, way, column = whole + again, timing.way(m, 1), np.arange(width)
        first = begun + whole + on + column * (max(whole + on, period) + way)  # when a column begins to pass pieces on
        found = first + (width - 2 - column) * period + whole + tail
        found[-1] = first[-2] + way + whole + tail
        return found.astype(np.float64)

    def leaps(self) -> tuple[NDArray[np.int64], int]:
        """Return how often the angles of each row leap, and the cycles of a leap."""
        s = self.prompt.tokens
        leaps = np.array([(first % FINE + s) // FINE for first in self.prompt.firsts]) - s // FINE
        if not leaps.any():
            return leaps, 0
        program = self.program(0)
        given = (self.given | {"passed": passed} for passed in (0, FINE - 1))
        never, once = (program.follow("done enter", "done begin", each).cycles[-1] for each in given)
        return leaps, (once - never) // ((FINE - 1 + s) // FINE - s // FINE)

    @cached_property
    def _run(self) -> tuple[dict[str, float], Times]:
        """Each of `PARTS` is done at these times, those of layers in the last layer, and each PE is through at the last
        ones.
        """
        height = self.place.height
        run = PromptRun(self, min(height, STEPS))
        found, at = run.run()
        if height > STEPS:
            less, _ = PromptRun(self, STEPS // 2).run()
            steps = (height - STEPS) / (STEPS - STEPS // 2)
            more = {part: steps * (time - less[part]) for part, time in found.items()}
            found, at = {part: time + more[part] for part, time in found.items()}, at + more[PARTS[-1]]
        return found, at[run.nearest][:, np.arange(self.place.width) * run.width // self.place.width]

    def parts(self) -> dict[str, float]:
        """Return the cycles of each of `PARTS`: from when the slowest PE is through with the part before."""
        ends, _ = self._run
        cuts = [0.0, *[ends[part] for part in PARTS]]
        return {part: b - a for part, (a, b) in zip(PARTS, pairwise(cuts), strict=True)}

    def prompt_cycles(self) -> float:
        """Return the cycles of a prompt, from its first embedding to the end of the last PE."""
        return self._run[0][PARTS[-1]]

    def ends(self) -> Times:
        """Return when each PE has read the prompt, (height, width)."""
        return self._run[1]


class PromptRun:
    """A `PromptRun` follows a prompt through a mesh, or through a smaller one with as large tiles.

    Parameters
    ----------
    form : PromptCycles
    height : int
        Rows, and steps of a product; as much narrower are long lines.

    Attributes
    ----------
    width, group : int
    nearest : ndarray of int
        Which of its rows each row of the whole mesh is most like.
    """

    def __init__(self, form: PromptCycles, height: int) -> None:
        self.form, self.m, self.height = form, form.m, height
        self.prompt, place = form.prompt, form.place
        self.place = place

        def shorter(columns: int) -> int:
            return columns if height == place.height or columns <= STEPS // 4 else -(-columns * height // place.height)

        self.group = max(min(3, place.group), shorter(place.group))
        self.width = self.group if place.group == place.width else max(shorter(place.width), self.group)
        busy = sum(not self.prompt.is_idle(x) for x in range(0, place.width - place.group + 1, place.group))
        self.lines = max(1, min(busy, self.width // self.group))
        self.ring = Ring(height)
        order, rank = np.array(self.ring.order), np.array(self.ring.rank)
        chunks = order[(rank[:, np.newaxis] + np.arange(height)) % height]
        self.ranks = rank[chunks]  # of the chunk that each row has in each step
        whole = np.array(self.prompt.ring.rank) * height // place.height
        self.nearest = abs(whole[:, np.newaxis] - rank).argmin(axis=1)

    @staticmethod
    def _works(at: Times, owed: Times, cycles: int) -> None:
        """Let PEs work, in turns with two transfers: each slot of work leaves one to either."""
        paid = np.minimum(owed, 2 * cycles)
        owed -= paid
        at += cycles + paid

    def _lines(self, at: Times, columns: int) -> Times:
        """Return the times of all lines of so many columns that take part: (rows, lines, columns)."""
        count = 1 if columns == self.width else self.lines
        return np.array(at[:, : count * columns]).reshape(len(at), count, columns)

    def _on_ring(self, at: Times, product: RingProduct | ExpertProduct, chosen: NDArray[np.int64] | None) -> None:
        """Move the times over a product, of an expert if `chosen` says how many tokens of each row chose it."""
        m, height = self.m, self.height
        columns = self.group if product.name in ("scores", "mix") else self.width
        channel = product.channel.over(columns)
        wavelets = wavelets_of(self.prompt.tile_elements[product.name], self.place.dtype) if height > 1 else 0
        homes = self.ranks * columns // height
        now = self._lines(at, columns)
        owed, arrival = np.zeros_like(now), np.full_like(now, -np.inf)
        senders = np.array(self.ring.receives) if height > 1 else np.zeros(1, int)
        ways = timing.way(m, abs(np.arange(height) - senders))[:, np.newaxis, np.newaxis]
        move = channel.spread if product.spreads else channel.sum
        for number in range(height):
            turn = product.last if number == height - 1 else product.turn
            now += turn.tile
            if number:
                now = np.maximum(now + owed, arrival)
            now += turn.begun
            begun = now.copy()
            owed[:] = 0 if number == height - 1 else 2 * wavelets
            home = homes[:, number, np.newaxis, np.newaxis]
            if chosen is None:
                self._works(now, owed, turn.work)
                move(now, owed, home)
                self._works(now, owed, turn.behind)
            else:
                assert isinstance(product, ExpertProduct)
                self._tokens(now, owed, home, turn, product, move, chosen)
            if number < height - 1:
                busy = np.minimum(3 * wavelets, now + owed - begun)
                arrival = (begun + busy)[senders] + ways
        at[:, : now.shape[1] * columns] = now.reshape(len(at), -1)

    def _tokens(
        self, now: Times, owed: Times, home: NDArray[np.int64], turn: RingTurn, product: ExpertProduct,
        move: Callable[[Times, Times, NDArray[np.int64]], None], chosen: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Move the times over the tokens of a step of an expert, so many of each row."""

        def of(rows: NDArray[np.bool_], act: Callable[[Times, Times], None]) -> None:
            if rows.any():
                own, due = now[rows], owed[rows]
                act(own, due)
                now[rows], owed[rows] = own, due

        def works(cycles: int) -> Callable[[Times, Times], None]:
            return lambda own, due: self._works(own, due, cycles)

        some = chosen > 0
        of(~some, works(product.none))
        of(some, works(turn.work))
        for k in range(int(chosen.max(initial=0))):
            rows = chosen > k
            of(rows, works(product.entry.work))
            of(rows, lambda own, due, rows=rows: move(own, due, home[rows]))  # type: ignore[misc]
            of(chosen > k + 1, works(product.entry.behind))
            of(chosen == k + 1, works(product.end.behind))
        of(some, works(turn.behind))

    def _by_experts(self, at: Times, product: ExpertProduct) -> None:
        """Move the times over the products of all experts: as far as some of them move them, drawn by lot."""
        rows = np.arange(self.height) * self.place.height // self.height
        chosen = self.form.chosen(np.array(self.prompt.counts)[rows])
        order, count = np.argsort(chosen.sum(axis=0), kind="stable"), chosen.shape[1]
        few = min(EXPERTS, count)
        before = at.copy()
        for expert in np.sort(order[(2 * np.arange(few) + 1) * count // (2 * few)]).tolist():
            self._on_ring(at, product, chosen[:, expert])
            at += product.again
        at += (at - before).mean() * (count / few - 1)

    def _all(self, at: Times, mark: str, count: int) -> None:
        """Move the times over an all-reduce inside a head: to its last column and back."""
        m, columns = self.m, self.group
        if columns == 1:
            return
        w = wavelets_of(count, "f32")
        gaps = []
        for place in (0, min(1, columns - 1), self.place.group - 1):
            program = self.form.program(place)
            cut = cut_of(program, mark)
            gaps.append(program.follow(cut, cut.replace(" ", " behind ", 1), None).gaps)
        first = np.full(columns, float(gaps[1][0]))
        first[0], first[-1] = gaps[0][0], gaps[2][0]
        now = self._lines(at, columns)
        x, way = np.arange(columns), timing.way(m, 1)
        rest = timing.receiver(m, w, FROM_WEST, TO_EAST)(0, LATE)
        whole, sent = timing.train(m, w, FROM_WEST, TO_EAST), timing.sending(m, w, FROM_WEST, TO_EAST)
        ready = now + first
        goes = np.maximum.accumulate(ready - x * way, -1) + x * way
        come = np.concatenate([np.full_like(goes[..., :1], LATE), goes[..., :-1] + way], -1)
        end = np.maximum(np.maximum(ready, come) + rest, come + whole)
        end[..., 0] = ready[..., 0] + sent
        back = gaps[2][1] if columns > 1 else 0
        begins = end[..., -1:] + back  # the last column sends the result
        stage = way + whole + (gaps[1][2] if columns > 2 else 0)
        came = begins + way + whole + (columns - 2 - x) * stage
        done = came + np.where(x > 0, (gaps[1][2] + sent + gaps[1][3]) if columns > 2 else 0, gaps[0][2])
        done[..., -1] = begins[..., 0] + sent + gaps[2][2]
        at[:, : done.shape[1] * columns] = done.reshape(len(at), -1)

    def _along_rows(self, at: Times, line: LineSum) -> None:
        """Move the times over the all-reduce of norms, which is that of the whole mesh."""
        width = self.place.width
        if width > 1:
            stands = np.arange(self.width) * width // self.width
            whole = np.rint(at[:, np.arange(width) * self.width // width]).astype(np.int64)
            at[:] = line.ends(whole)[:, stands]

    def _move(self, at: Times, items: list[Item], found: dict[str, float]) -> None:
        """Move the times over events."""
        busy = self.width if self.group == self.width else self.lines * self.group
        inside = False
        for event, cycles, product in items:
            at[:, : busy if inside else None] += cycles
            if product is not None:
                inside = product.name in ("scores", "mix")
                if isinstance(product, ExpertProduct):
                    self._by_experts(at, product)
                else:
                    self._on_ring(at, product, None)
            elif event == "sort":
                rows = np.arange(self.height) * self.place.height // self.height
                sorting = [self.form.sorting(self.prompt.counts[row]) for row in rows.tolist()]
                at += np.array(sorting)[:, np.newaxis]
            elif event == "squares":
                self._along_rows(at, self.form.prefill.squares)
            elif event == "projections" and self.form.prefill.projections is not None:
                self._along_rows(at, self.form.prefill.projections)
            elif event.startswith("all "):
                heads = self.place.turned_heads if event == "all squares" else self.place.heads
                self._all(at, event, heads * self.prompt.tokens)
            elif event.startswith("done "):
                inside = event in ("done rotary", "done scores", "done softmax", "done mix")
                found[event.removeprefix("done ")] = float(at.max())

    def run(self) -> tuple[dict[str, float], Times]:
        """Return when each of `PARTS` is done, those of layers in the last layer, and when each PE is through."""
        opened, layers, again, behind = self.form.stretches
        decoder = self.place.decoder
        found: dict[str, float] = {}
        columns = np.arange(self.width) * self.place.width // self.width
        at = np.tile(self.form.entered()[columns], (self.height, 1))
        leaps, leap = self.form.leaps()
        for event, cycles in zip(opened.events[1:], opened.cycles[1:], strict=True):
            at += cycles
            if event == "done begin":
                rows = np.arange(self.height) * self.place.height // self.height
                at += leap * leaps[rows][:, np.newaxis]
            if event.startswith("done "):
                found[event.removeprefix("done ")] = float(at.max())
        which = [decoder.kinds.index(kind) for kind in decoder.different] or [0]
        count, period, number = decoder.layers, period_of(which), 0
        while number < count:
            if number % period == 0:
                before = at.copy()
            self._move(at, layers[which[number % period]], found)
            number += 1
            at += again if number < count else 0
            moved, turns = at - before, (count - number) // period
            steady = number > period and number % period == 0 and turns * period > 1
            if steady and np.ptp(moved, axis=1).max() <= STEADY * moved.max():
                number += turns * period
                shift = moved.mean(axis=1, keepdims=True) * turns - (again if number == count else 0)
                at += shift
                found |= {part: found[part] + float(shift.max()) for part in LAYER}
        self._move(at, behind, found)
        return found, at
