"""The router of one PE is advanced here one cycle at a time.

What      queues per color and input port, switch positions, filters, teardown, CE injection, color swap;
          `Router.decide` grants, `Router.apply` moves.
Ports     inputs and outputs W, E, N, S (to the neighbours' routers or to the host's streams) and R (the ramp: as an
          input the queue that the CE fills, as an output the CE's input queues); the host where it takes what a
          position without outputs would drop.
Contract  `Router.decide` reads the state at the start of the cycle and changes nothing; when all routers have decided,
          `Router.apply` carries out what was granted. No order of routers can be seen in the result.
Timing    docs/machine.md, "Time" and "Router"; the comments here give the numbers of its steps.
Known     buffer depths, arbitration and atomic multicast are assumptions (wse_core/numbers.py, "router").
differences
Sources   docs/machine.md; arch §7 and §8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wse_core.encoding import DIR_HOST
from wse_core.image import (
    CMD_ADV,
    CMD_NOP,
    CMD_RST,
    CMD_TEARDOWN,
    DIR_E,
    DIR_N,
    DIR_R,
    DIR_S,
    DIR_W,
    DIRS,
    FILTER_COUNTER,
    FILTER_NONE,
    FILTER_RANGE,
)
from wse_core.isa import ROUTE_MODES
from wse_core.reference.queue import NEVER, Emit, OutputStream, Wavelet, WaveletQueue, no_trace

if TYPE_CHECKING:
    from wse_core.reference.ce import CE

__all__ = ["ColorState", "FilterState", "RouteRequest", "Router", "command", "pop"]

PORTS = (DIR_W, DIR_E, DIR_N, DIR_S, DIR_R)

# --- commands of a control wavelet ---------------------------------------------------------------------------------

# Command k has two bits of command and one of do-not-deliver: 22, 23 and 24 for k = 0, then on upwards, and from bit 0
# on after bit 29 (arch §7).
_COMMAND_BITS = ((22, 23, 24), (25, 26, 27), (28, 29, 0), (1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12), (13, 14, 15))


def command(payload: int, k: int = 0) -> tuple[int, bool]:
    """Return (command, whether it forbids delivery to the CE) in place `k` of a control wavelet."""
    low, high, stop = _COMMAND_BITS[k]
    return (payload >> low & 1) | (payload >> high & 1) << 1, bool(payload >> stop & 1)


def pop(payload: int) -> int:
    """Return a control payload without command 0: command k + 1 moves to place k, place 7 becomes an undelivered NOP.

    Examples
    --------
    >>> hex(pop(0x09DF9249))
    '0x91f9249'
    """
    result = 0
    for bit in (16, 17, 18, 19, 20, 21, 30, 31):
        result |= payload & 1 << bit
    for k in range(7):
        for to, come_from in zip(_COMMAND_BITS[k], _COMMAND_BITS[k + 1], strict=True):
            result |= (payload >> come_from & 1) << to
    return result | 1 << _COMMAND_BITS[7][2]


# --- configuration -------------------------------------------------------------------------------------------------


class FilterState:
    """A filter on delivery to the CE; `row` is a record of `FILTER_DTYPE`."""

    def __init__(self, row: np.void) -> None:
        self.kind = int(row["kind"])
        self.count_data, self.count_control = bool(row["count_data"]), bool(row["count_control"])
        self.filter_control = bool(row["filter_control"])
        self.counter, self.max, self.limit = int(row["counter"]), int(row["max"]), int(row["limit"])
        self.min_idx, self.max_idx = int(row["min_idx"]), int(row["max_idx"])

    def counts(self, wavelet: Wavelet) -> bool:
        """Whether the counter goes on by one when this wavelet moves."""
        return self.kind == FILTER_COUNTER and (self.count_control if wavelet.control else self.count_data)

    def passes(self, wavelet: Wavelet) -> bool:
        """Whether this wavelet may be delivered."""
        if self.kind == FILTER_NONE:
            return True
        if self.kind == FILTER_RANGE:
            return wavelet.control or self.min_idx <= wavelet.index <= self.max_idx
        if self.filter_control:
            return wavelet.control and self.counter == self.max
        return wavelet.control or not self.counts(wavelet) or self.counter <= self.max

    def count(self) -> None:
        """Go on by one, and back to 0 beyond the limit."""
        self.counter += 1
        if self.counter > self.limit:
            self.counter = 0


class ColorState:
    """Configuration and queues of one color at one router; `row` is a record of `ROUTE_DTYPE`."""

    def __init__(self, row: np.void | np.ndarray, color: int, depth: int) -> None:
        self.color = color
        self.valid, self.pos, self.ring = int(row["valid"]), int(row["pos"]), bool(row["ring"])
        # A position that is not valid has no inputs and no outputs.
        self.rx = [int(v) if self.valid >> k & 1 else 0 for k, v in enumerate(row["rx"])]
        self.tx = [int(v) if self.valid >> k & 1 else 0 for k, v in enumerate(row["tx"])]
        self.pop_mode, self.filter = int(row["pop"]), int(row["filter"])
        self.swap, self.inject = int(row["swap"]), int(row["inject"])
        self.teardown = bool(row["teardown"])
        self.queues = {
            port: WaveletQueue(depth, color) for port in (DIR_W, DIR_E, DIR_N, DIR_S)
        }  # R: where the CE sends
        self.last_grant = [NEVER] * 5
        self.moved = [0] * 5

    def takes_from(self, port: int) -> bool:
        """Whether the current position has `port` among its inputs; a color with CE injection always takes R."""
        return bool(self.rx[self.pos] >> port & 1) or (port == DIR_R and self.inject != 0)

    def outputs(self) -> list[int]:
        """Return the directions in tx of the current position."""
        return [d for d in PORTS if self.tx[self.pos] >> d & 1]

    def holds(self, ports: Iterable[int]) -> bool:
        """Whether one of the queues of `ports` holds any wavelet."""
        queues = self.queues
        return any(queues[port].wavelets for port in ports if port in queues)

    def next_position(self) -> int:
        """Return the next valid switch position; after the last one 0 in ring mode, else the present one."""
        for position in range(self.pos + 1, 4):
            if self.valid >> position & 1:
                return position
        return 0 if self.ring else self.pos

    def pops(self, payload: int) -> bool:
        """Whether the pop mode removes command 0 of this control payload here."""
        first, _ = command(payload)
        return (
            self.pop_mode == 1
            or (self.pop_mode == 2 and first == CMD_ADV and self.next_position() != self.pos)
            or (self.pop_mode == 3 and first in (CMD_ADV, CMD_NOP))
        )


class RouteRequest(NamedTuple):
    """A `RouteRequest` is a wavelet at the head of a queue that wants to leave."""

    color: int
    port: int
    effective: int  # color as which it leaves
    wavelet: Wavelet
    outputs: tuple[int, ...]  # directions
    counting: FilterState | None  # filter whose counter moves with it


class Router:
    """A router moves the wavelets of PE (x, y): it has the queues, routes and switch positions.

    Parameters
    ----------
    x, y : int
    machine : Mapping
        Numbers of `wse_core.params`.
    routes : dict[int, record]
        Per color a record of `ROUTE_DTYPE`.
    filters : sequence of record
        Records of `FILTER_DTYPE`.

    Attributes
    ----------
    targets : dict[(int, int), object]
        What a direction of a color leads to, anything with `has_room` and `push`; missing = a link that does not exist.
    ce : CE or None
    """

    def __init__(
        self,
        x: int,
        y: int,
        machine: Mapping[str, Any],
        routes: Mapping[int, np.void | np.ndarray],
        filters: Iterable[np.void],
    ) -> None:
        self.x, self.y, self.machine = x, y, machine
        self.routed = set(routes)  # colors to which the layout gives a route somewhere
        self.colors = {color: ColorState(row, color, machine["router.depth"]) for color, row in sorted(routes.items())}
        self.filters = [FilterState(row) for row in filters]
        self.targets: dict[tuple[int, int], WaveletQueue | OutputStream] = {}
        self.ce: CE | None = None
        self.in_queues: list[list[Wavelet]] | None = None  # known when the machine has wired the router
        self.emit: Emit = no_trace  # emit(x, y, cycle, kind, color, aux, data, flags), see wse_core/events.py

    def is_empty(self) -> bool:
        """Whether no queue holds a wavelet, so that nothing can land or leave."""
        if self.in_queues is None:
            self.in_queues = [queue.wavelets for state in self.colors.values() for queue in state.queues.values()]
        return not any(self.in_queues)

    # --- step 1 ----------------------------------------------------------------------------------------------------

    def landing_fault(self, t: int) -> tuple[int, str] | None:
        """Return (color, text) if two inputs of one color receive in cycle t, else None."""
        for color, state in self.colors.items():
            if state.swap or state.rx[state.pos].bit_count() < 2 or not state.holds(PORTS):
                continue
            inputs = [port for port in PORTS if state.rx[state.pos] >> port & 1]
            landed = []
            for port in inputs:
                if port == DIR_R and state.inject:
                    continue
                if port in state.queues and any(wavelet.ready == t for wavelet in state.queues[port].wavelets):
                    landed.append(port)
            if len(landed) >= 2:
                names = " and ".join(DIRS[port] for port in landed)
                return color, f"two inputs of color {color} in one cycle: {names}"
        return None

    # --- steps 2 and 3 ---------------------------------------------------------------------------------------------

    def effective(self, color: int, port: int) -> int:
        """Return the color as which a wavelet of `color` in `port` leaves: the other of the pair with color swap."""
        partner = self.colors.get(color ^ 1)
        if partner is None:
            return color
        axes = {DIR_W: 1, DIR_E: 1, DIR_N: 2, DIR_S: 2, DIR_R: 3}[port]
        both = self.colors[color].swap & partner.swap
        return color ^ 1 if both & axes == axes else color

    def held_by_injection(self, color: int, port: int) -> bool:
        """Whether CE injection holds back the queue (color, port)."""
        state = self.colors[color]
        inject = self.colors[self.effective(color, port)].inject
        if inject == 1 and port == DIR_R:
            return state.holds((DIR_W, DIR_E, DIR_N, DIR_S))
        if inject == 2 and port != DIR_R:
            return state.holds((DIR_R,))
        return False

    def request(self, color: int, port: int, t: int) -> RouteRequest | None:
        """Return the `RouteRequest` of a queue in cycle t, or None."""
        queue = self.colors[color].queues.get(port)
        wavelet = None if queue is None else queue.head(t)
        if wavelet is None:
            return None
        effective = self.effective(color, port)
        route = self.colors[effective]
        if route.teardown or not route.takes_from(port) or self.held_by_injection(color, port):
            return None
        if wavelet.own:
            return RouteRequest(color, port, effective, wavelet, (), None)
        outputs, counting = route.outputs(), None
        if not outputs and (effective, DIR_HOST) in self.targets:
            outputs = [DIR_HOST]
        if DIR_R in outputs and wavelet.control and command(wavelet.payload)[1]:
            outputs.remove(DIR_R)
        if DIR_R in outputs and route.filter:
            rule = self.filters[route.filter - 1]
            if rule.counts(wavelet):
                counting = rule
            if not rule.passes(wavelet):
                outputs.remove(DIR_R)
        return RouteRequest(color, port, effective, wavelet, tuple(outputs), counting)

    # --- step 4 ----------------------------------------------------------------------------------------------------

    def has_room(self, color: int, direction: int, t: int) -> bool:
        """Whether the queue that `direction` of a color leads to can take a wavelet in cycle t."""
        target = self.targets.get((color, direction))
        return target is not None and target.has_room(t)

    def decide(self, t: int) -> list[RouteRequest]:
        """Return the requests that are granted in cycle t."""
        held = [
            (color, port)
            for color, state in self.colors.items()
            for port, queue in state.queues.items()
            if queue.wavelets
        ]
        found = [self.request(color, port, t) for color, port in held]
        requests = [request for request in found if request is not None]
        if not requests:
            return []
        requests.sort(key=lambda r: (self.colors[r.color].last_grant[r.port], r.color, r.port))
        granted: list[RouteRequest] = []
        taken: set[int] = set()
        served: set[int] = set()
        for request in requests:
            if request.effective in served or taken & set(request.outputs):
                continue  # the host is no link: it takes one wavelet of each color
            if all(self.has_room(request.effective, direction, t) for direction in request.outputs):
                granted.append(request)
                taken |= set(request.outputs) - {DIR_HOST}
                served.add(request.effective)
        return granted

    # --- step 5 ----------------------------------------------------------------------------------------------------

    def apply(self, granted: Iterable[RouteRequest], t: int) -> bool:
        """Move the granted wavelets; return whether there was any."""
        for request in granted:
            state, route = self.colors[request.color], self.colors[request.effective]
            state.queues[request.port].take(t)
            state.last_grant[request.port] = t
            state.moved[request.port] += 1
            if request.counting is not None:
                request.counting.count()
            payload, control = request.wavelet.payload, request.wavelet.control
            sent = pop(payload) if control and not request.wavelet.own and route.pops(payload) else payload
            self.emit(
                self.x,
                self.y,
                t,
                "depart",
                request.effective,
                sum(1 << d for d in request.outputs),
                sent,
                control | request.port << 1 | (request.effective != request.color) << 4,
            )
            for direction in request.outputs:
                latency = self.machine["ramp.in"] if direction == DIR_R else self.machine["router.hop"]
                self.targets[request.effective, direction].push(sent, control, t + latency)
            if control:
                self.obey(route, command(payload)[0], t)
        return bool(granted)

    def obey(self, route: ColorState, first: int, t: int) -> None:
        """Carry out command 0 of a control wavelet on the color as which it left, from cycle t + 1 on."""
        if first == CMD_ADV:
            route.pos = route.next_position()
        elif first == CMD_RST:
            route.pos = 0
        if first in (CMD_ADV, CMD_RST):
            self.emit(self.x, self.y, t, "switch", route.color, route.pos)
        elif first == CMD_TEARDOWN:
            route.teardown = True
            self.emit(self.x, self.y, t, "teardown", route.color, 1)
            if self.ce is not None:
                self.ce.teardowns.append(t + self.machine["ramp.in"])

    # --- configuration from the CE; a color without routes or a filter that does not exist has nothing to configure ---

    def set_position(self, color: int, position: int, t: int) -> None:
        """Set the switch position of a color."""
        if color in self.colors:
            self.colors[color].pos = position
            self.emit(self.x, self.y, t, "switch", color, position, 1)

    def set_route(self, color: int, position: int, rx: int, tx: int, mode: int, t: int) -> None:
        """Change the inputs and outputs of one switch position; all modes but `off` make it a valid one."""
        if color not in self.colors:
            return
        state = self.colors[color]
        name = ROUTE_MODES[mode] if mode < len(ROUTE_MODES) else "set"
        if name == "switch":
            if tx & 1:
                state.pop_mode = rx & 3
            if tx & 2:
                state.ring = bool(rx >> 2 & 1)
            self.emit(self.x, self.y, t, "route", color, 0, state.rx[0] | state.tx[0] << 5)
            return
        old_rx, old_tx = state.rx[position], state.tx[position]
        if name == "rx":
            tx = state.tx[0]
        elif name == "tx":
            rx = state.rx[0]
        elif name == "off":
            rx = tx = 0
        elif name == "add":
            rx, tx = old_rx | rx, old_tx | tx
        elif name == "remove":
            rx, tx = old_rx & ~rx, old_tx & ~tx
        elif name == "toggle":
            rx, tx = old_rx ^ rx, old_tx ^ tx
        self.set_sets(state, position, rx, tx, name != "off", t)

    def set_sets(self, state: ColorState, position: int, rx: int, tx: int, valid: bool, t: int) -> None:
        """Give one switch position of a color its inputs and outputs."""
        self.emit(self.x, self.y, t, "route", state.color, position, rx | tx << 5)
        state.rx[position], state.tx[position] = rx, tx
        state.valid &= ~(1 << position)
        if valid:
            state.valid |= 1 << position

    def exit_teardown(self, color: int, t: int) -> None:
        """End teardown of a color."""
        if color in self.colors:
            self.colors[color].teardown = False
            self.emit(self.x, self.y, t, "teardown", color, 0)

    def in_teardown(self, color: int) -> bool:
        """Whether a color is in teardown, as the routers left it in this cycle."""
        state = self.colors.get(color)
        return state is not None and state.teardown

    def set_filter(self, number: int, field: int, value: int) -> None:
        """Set the counter (field 0), its maximum (1) or its limit (2) of a filter."""
        if number < len(self.filters):
            setattr(self.filters[number], ("counter", "max", "limit")[field], value)

    # --- views -----------------------------------------------------------------------------------------------------

    def future(self, t: int) -> bool:
        """Whether a wavelet here becomes ready after cycle t."""
        return any(
            wavelet.ready > t
            for state in self.colors.values()
            for queue in state.queues.values()
            for wavelet in queue.wavelets
        )

    def snapshot(self) -> dict[int, dict[str, Any]]:
        """Return the state as plain data (docs/internals.md)."""
        result: dict[int, dict[str, Any]] = {
            color: {
                "pos": state.pos,
                "teardown": state.teardown,
                "queues": {port: queue.contents() for port, queue in sorted(state.queues.items()) if queue.wavelets},
                "moved": list(state.moved),
            }
            for color, state in self.colors.items()
        }
        if any(rule.kind != FILTER_NONE for rule in self.filters):
            result[-1] = {"filters": [rule.counter for rule in self.filters]}
        return result

    def waiters(self, t: int) -> list[dict[str, Any]]:
        """Return why the wavelets here do not move, one dict per queue (docs/internals.md)."""
        found = []
        for color, state in self.colors.items():
            for port, queue in sorted(state.queues.items()):
                if not queue.wavelets:
                    continue
                effective = self.effective(color, port)
                route = self.colors[effective]
                blocked: list[int] = []
                if route.teardown:
                    reason = "teardown"
                elif not route.takes_from(port):
                    reason = "rx"
                elif self.held_by_injection(color, port):
                    reason = "inject"
                else:
                    reason = "room"
                    request = self.request(color, port, t)
                    blocked = [d for d in (request.outputs if request else ()) if not self.has_room(effective, d, t)]
                found.append(
                    {
                        "kind": "router",
                        "x": self.x,
                        "y": self.y,
                        "color": color,
                        "port": port,
                        "wavelets": len(queue.wavelets),
                        "reason": reason,
                        "blocked": blocked,
                    }
                )
        return found
