"""The reference machine is a whole fabric in plain Python: the compiled engine is compared with it cycle by cycle.

What      `ReferenceMachine` builds routers and compute elements from a `FabricSpec`, wires them, runs cycles and gives
          the host its access: SRAM, task activation, streams, counters.
Ports     the engine interface of docs/internals.md.
Contract  one object per PE, router and queue; every router, then every CE, in each cycle; nothing is skipped because it
          looks idle. `shuffle` evaluates the PEs of a phase in a random order, and the state must not depend on it.
Timing    docs/machine.md; some ten thousand PE cycles per second.
Known     as the page says; this model adds none of its own.
differences
Sources   docs/machine.md, docs/internals.md.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wse_core import isa
from wse_core.described import check_fabric
from wse_core.encoding import COUNTERS, DIR_HOST, N_HALVES, WORK_COLUMNS
from wse_core.errors import SramFault
from wse_core.events import EVENT_DTYPE, KINDS, NO_COLOR, TraceFilter
from wse_core.image import DIR_R, N_TASK_IDS, ROUTE_DTYPE, STEP, FabricSpec
from wse_core.reference import inspect
from wse_core.reference.ce import CE
from wse_core.reference.queue import InputStream, OutputStream, no_trace
from wse_core.reference.router import Router
from wse_core.work import found_in

__all__ = ["ReferenceMachine"]

CONSTANT = ("spec", "machine", "places", "shuffle", "sink", "filter")
REPORT = 10_000  # events that are reported together


class ReferenceMachine:
    """The reference machine does what docs/machine.md says, slowly and in plain Python.

    Parameters
    ----------
    spec : FabricSpec
    shuffle : random.Random, optional
        Evaluate the PEs of each phase in an order drawn from it; default row by row.

    Attributes
    ----------
    cycle : int
        Cycles run so far.
    last_active : int
        Last cycle in which a router moved a wavelet or a CE issued, started or ended something; -1 before the first.
    fault : dict or None
        Keys kind, x, y, cycle, address, color, detail, and for a trap value.
    """

    def __init__(self, spec: FabricSpec, shuffle: random.Random | None = None) -> None:
        check_fabric(spec)
        self.spec, self.machine, self.shuffle = spec, spec.machine, shuffle
        self.cycle, self.last_active = 0, -1
        self.fault: dict[str, Any] | None = None
        self.places = [(x, y) for y in range(spec.height) for x in range(spec.width)]
        self.routers = {place: self._make_router(*place) for place in self.places}
        self.ces: dict[tuple[int, int], CE] = {}
        for x, y in self.places:
            program = int(spec.program_index[y, x])
            if program >= 0:
                self.ces[x, y] = CE(x, y, spec.machine, spec.programs[program], self.routers[x, y])
        self.outputs = {link: OutputStream() for link in map(_link, spec.outputs)}
        for place in self.places:
            self._wire(*place)
        self.inputs = [self._input(*_link(link)) for link in spec.inputs]
        self.events: list[tuple[int, ...]] = []
        self.sink: Callable[[np.ndarray, int], object] | None = None
        self.filter = TraceFilter()

    # --- construction ----------------------------------------------------------------------------------------------

    def _make_router(self, x: int, y: int) -> Router:
        routes = {color: table[y, x] for color, table in self.spec.routes.items()}
        for program in self.spec.programs:  # a color that is sent without a route anywhere waits at the ramp
            for color in program.outq_color:
                if color >= 0 and color not in routes:
                    routes[color] = np.zeros((), ROUTE_DTYPE)
        filters = [] if self.spec.filters is None else self.spec.filters[y, x]
        router = Router(x, y, self.machine, routes, filters)
        router.routed = set(self.spec.routes)
        return router

    def _input(self, x: int, y: int, direction: int, color: int) -> InputStream:
        """Return the host's stream into a side of a router, or, with direction R, down the ramp into a CE."""
        if direction != DIR_R:
            queue = self.routers[x, y].colors[color].queues[direction]
            return InputStream(queue, self.machine["router.hop"], x, y, direction)
        own = self.ces[x, y].queue_of_color(color)
        assert own is not None, "the layout checks that a queue takes the color"
        return InputStream(own, self.machine["ramp.in"], x, y, direction)

    def _wire(self, x: int, y: int) -> None:
        """Tell a router what each direction of each color leads to."""
        router, ce = self.routers[x, y], self.ces.get((x, y))
        for color in router.colors:
            for direction, (dx, dy) in enumerate(STEP):
                neighbour = self.routers.get((x + dx, y + dy))
                if neighbour is not None:
                    router.targets[color, direction] = neighbour.colors[color].queues[direction ^ 1]
                elif (x, y, direction, color) in self.outputs:
                    router.targets[color, direction] = self.outputs[x, y, direction, color]
            own = None if ce is None else ce.queue_of_color(color)
            if own is not None:
                router.targets[color, DIR_R] = own
            if (x, y, DIR_R, color) in self.outputs:
                router.targets[color, DIR_HOST] = self.outputs[x, y, DIR_R, color]
        if ce is not None:
            router.ce = ce
            for queue in ce.out_queues.values():
                router.colors[queue.color].queues[DIR_R] = queue

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self, limit: int) -> Literal["limit", "complete", "stuck", "fault"]:
        """Run to cycle `limit` at most.

        Returns
        -------
        str
            ``limit``; ``complete`` or ``stuck`` if nothing can ever change; ``fault``.
        """
        while self.fault is None and self.cycle < limit:
            moved = self.step()
            if self.fault is None and not moved and not self.future(self.cycle - 1):
                return "stuck" if self.unfinished() else "complete"
        return "limit" if self.fault is None else "fault"

    def step(self) -> bool:
        """Run one cycle; return whether anything moved, issued, started or ended."""
        t = self.cycle
        router_faults, active = {}, False

        granted = {}
        for place in self._order():
            router = self.routers[place]
            if router.is_empty():
                continue
            landing = router.landing_fault(t)
            if landing is not None:
                router_faults[place] = landing
            granted[place] = router.decide(t)
        for place in self._order():
            if granted.get(place):
                active = self.routers[place].apply(granted[place], t) or active
        pushed = False
        for stream in self.inputs:
            pushed = stream.phase(t) or pushed

        for place in self._order():
            ce = self.ces.get(place)
            if ce is not None:
                active = ce.phase(t) or active

        at_fault = self.places if router_faults or any(ce.fault for ce in self.ces.values()) else ()
        for x, y in at_fault:  # row by row, so the first fault found is the one that counts
            if self.fault is None and (x, y) in router_faults:
                color, text = router_faults[x, y]
                self.fault = {
                    "kind": "collision",
                    "x": x,
                    "y": y,
                    "cycle": t,
                    "address": None,
                    "color": color,
                    "detail": text,
                }
            if self.fault is None and (x, y) in self.ces:
                self.fault = self.ces[x, y].fault
        if active:
            self.last_active = t
        self.cycle = t + 1
        if len(self.events) > REPORT:
            self._report()
        return active or pushed

    def _order(self) -> list[tuple[int, int]]:
        if self.shuffle is None:
            return self.places
        order = list(self.places)
        self.shuffle.shuffle(order)
        return order

    def future(self, t: int) -> bool:
        """Whether anything becomes ready or due after cycle t."""
        parts = (self.routers.values(), self.ces.values(), self.inputs, self.outputs.values())
        return any(part.future(t) for group in parts for part in group)

    def unfinished(self) -> bool:
        """Whether work is left in a machine in which nothing can change."""
        return (
            any(
                queue.wavelets
                for router in self.routers.values()
                for state in router.colors.values()
                for queue in state.queues.values()
            )
            or any(stream.waiting for stream in self.inputs)
            or any(ce.unfinished(self.cycle) for ce in self.ces.values())
        )

    def lost(self) -> list[tuple[int, int, int]]:
        """Return the tasks, (x, y, id), that were activated again before they had begun."""
        found = [(ce.x, ce.y, task) for ce in self.ces.values() for task in range(N_TASK_IDS) if ce.lost >> task & 1]
        return sorted(found)

    def waiters(self) -> list[dict[str, Any]]:
        """Return why the machine is stuck: a list of dicts (docs/internals.md)."""
        found = []
        for place in self.places:
            if place in self.ces:
                found += inspect.waiters(self.ces[place], self.cycle)
            found += self.routers[place].waiters(self.cycle)
        found += [
            {"kind": "stream", "index": index, "left": len(stream.waiting)}
            for index, stream in enumerate(self.inputs)
            if stream.waiting
        ]
        return found

    # --- memory ----------------------------------------------------------------------------------------------------

    def _data(self, x: int, y: int, address: int, count: int) -> list[int]:
        """Return the memory of a PE after checking that the words lie in its data."""
        ce = self.ces.get((x, y))
        if ce is None:
            raise SramFault("the PE has no program and no data", x=x, y=y, cycle=self.cycle, address=address)
        if count and not (ce.image.code_words <= address and address + count <= ce.image.footprint):
            raise SramFault("host access outside the data of the program", x=x, y=y, cycle=self.cycle, address=address)
        return ce.memory

    def read_words(self, x: int, y: int, address: int, count: int) -> NDArray[np.uint16]:
        """Return `count` words of one PE as uint16; SramFault outside its data."""
        memory = self._data(x, y, address, count)
        return np.array(memory[address : address + count], np.uint16)

    def write_words(self, x: int, y: int, address: int, words: ArrayLike) -> None:
        """Write words to one PE; SramFault outside its data."""
        values = np.asarray(words).tolist()
        memory = self._data(x, y, address, len(values))
        for offset, word in enumerate(values):
            memory[address + offset] = int(word) & 0xFFFF

    def read_rect(self, address: int, count: int, x: int, y: int, w: int, h: int) -> NDArray[np.uint16]:
        """Return words of a rectangle of PEs, shape (h, w, count)."""
        result = np.zeros((h, w, count), np.uint16)
        for row in range(h):
            for column in range(w):
                result[row, column] = self.read_words(x + column, y + row, address, count)
        return result

    def write_rect(self, address: int, words: ArrayLike, x: int, y: int) -> None:
        """Write words, shape (h, w, count), to a rectangle of PEs with its corner at (x, y)."""
        for row, line in enumerate(np.asarray(words)):
            for column, own in enumerate(line):
                self.write_words(x + column, y + row, address, own)

    # --- tasks and streams -----------------------------------------------------------------------------------------

    def activate(self, task_id: int, x: int, y: int, w: int, h: int) -> None:
        """Set the activated bit of a task in every PE of a rectangle that has a program."""
        for row in range(y, y + h):
            for column in range(x, x + w):
                if (column, row) in self.ces:
                    self.ces[column, row].now = self.cycle
                    self.ces[column, row].set_activated(int(task_id))

    def push_input(
        self, index: int, payload: ArrayLike, control: ArrayLike | None = None, cycles: ArrayLike | None = None
    ) -> None:
        """Append wavelets to input stream `index`.

        `control` is a truth per wavelet or for all, default data; `cycles` the first cycle in which each may enter,
        none earlier than the one before it, default as soon as there is room.
        """
        payload = np.atleast_1d(np.asarray(payload))
        control = np.broadcast_to(False if control is None else control, payload.shape)
        first_cycles = np.broadcast_to(0 if cycles is None else cycles, payload.shape)
        stream = self.inputs[index]
        if not stream.logged:
            stream.entered = []
        stream.logged = stream.logged or cycles is not None
        waiting = stream.waiting
        for bits, flag, first in zip(payload, control, first_cycles, strict=True):
            waiting.append((int(bits) & 0xFFFFFFFF, bool(flag), max(int(first), waiting[-1][2] if waiting else 0)))

    def entered(self, index: int) -> NDArray[np.int64]:
        """Return the cycles in which words of input stream `index` entered since the last call."""
        stream = self.inputs[index]
        cycles, stream.entered, stream.logged = stream.entered, [], True
        return np.array(cycles, np.int64)

    def limit_output(self, index: int, cycles: ArrayLike | None) -> None:
        """Let the host take one wavelet per entry of `cycles`, none before that cycle; None: all that comes."""
        stream = self.outputs[_link(self.spec.outputs[index])]
        if cycles is None:
            stream.places = None
            return
        stream.places = stream.places or []
        for first in np.atleast_1d(cycles):
            stream.places.append(max(int(first), stream.places[-1] if stream.places else 0))

    def pop_output(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.bool_]]:
        """Return (cycles, payloads, controls) of what came to output stream `index` since the last call."""
        stream = self.outputs[_link(self.spec.outputs[index])]
        arrived, stream.arrived = stream.arrived, []
        return (
            np.array([wavelet.ready for wavelet in arrived], np.int64),
            np.array([wavelet.payload for wavelet in arrived], np.uint32),
            np.array([wavelet.control for wavelet in arrived], bool),
        )

    # --- keeping a state ---------------------------------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """Return the whole state, for `restore_state` of this very machine."""
        state = {name: value for name, value in vars(self).items() if name not in CONSTANT}
        return copy.deepcopy(state, {id(value): value for value in self._shared()})

    def restore_state(self, saved: dict[str, Any]) -> None:
        """Go back to a state that `save_state` of this machine returned."""
        vars(self).update(copy.deepcopy(saved, {id(value): value for value in self._shared()}))

    def _shared(self) -> list[object]:
        """Return what states have in common: what never changes, and who listens."""
        code = [ce.code for ce in self.ces.values()]
        return [self, self.spec, self.machine, self.spec.machine, *self.spec.programs, self.shuffle, self.sink, *code]

    # --- events ----------------------------------------------------------------------------------------------------

    def trace(self, sink: Callable[[np.ndarray, int], object] | None, filter: TraceFilter | None = None) -> None:
        """Report events to ``sink(events, clock)`` from now on, or no longer if `sink` is None.

        Parameters
        ----------
        sink : callable or None
            Gets an array of `wse_core.events.EVENT_DTYPE` now and then, in no order, and the cycle before which none
            will follow.
        filter : TraceFilter, optional
            Which events; default all.
        """
        for ce in self.ces.values():
            ce.end_wait(self.cycle)
        self._report()
        self.sink, self.filter = sink, filter or TraceFilter()
        for group in (self.routers.values(), self.ces.values(), self.inputs):
            for reporter in group:
                reporter.emit = no_trace if sink is None else self._emit

    def _report(self) -> None:
        if self.sink is not None:
            events, self.events = np.array(self.events, EVENT_DTYPE), []
            self.sink(self.filter.chosen(events), self.cycle)

    def _emit(
        self,
        x: int,
        y: int,
        cycle: int,
        kind: str,
        color: int | None = None,
        aux: int = 0,
        data: int = 0,
        flags: int = 0,
    ) -> None:
        number = NO_COLOR if color is None else color
        self.events.append((cycle, data & 0xFFFFFFFF, x, y, KINDS.index(kind), number, aux, flags))

    # --- views -----------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, NDArray[np.uint64]]:
        """Return name -> uint64 array (height, width)."""
        result = {name: np.zeros((self.spec.height, self.spec.width), np.uint64) for name in COUNTERS}
        for (x, y), ce in self.ces.items():
            for name in COUNTERS:
                result[name][y, x] = ce.counters[name]
        return result

    def work(self) -> NDArray[np.uint64]:
        """Return instructions and elements done so far (`wse_core.work`)."""
        found = np.zeros((len(isa.OPS), N_HALVES, WORK_COLUMNS), np.uint64)
        for ce in self.ces.values():
            for (code, column), count in ce.work.items():
                found[code, ce.num.half, column] += np.uint64(count)
        return found

    def link_counts(self) -> dict[int, NDArray[np.uint64]]:
        """Return color -> uint64 array (height, width, 5): wavelets moved out of each input port's queue."""
        result = {}
        for color in self.spec.routes:
            result[color] = np.zeros((self.spec.height, self.spec.width, 5), np.uint64)
            for (x, y), router in self.routers.items():
                result[color][y, x] = router.colors[color].moved
        return result

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain data (docs/internals.md)."""
        return {
            "cycle": self.cycle,
            "pe": {place: inspect.snapshot(ce) for place, ce in self.ces.items()},
            "router": {place: router.snapshot() for place, router in self.routers.items()},
            "work": found_in(self.work()),
        }


def _link(link: Iterable[int]) -> tuple[int, int, int, int]:
    x, y, direction, color = link
    return x, y, direction, color
