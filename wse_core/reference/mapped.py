"""Registers have addresses: a load or store of 16 bits beyond the memory of a PE reads or writes one.

Layout of the words: docs/machine.md, "Registers by address"; `wse_core.encoding`, REG_*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wse_core.encoding import (
    N_CLOCK_WORDS,
    N_COLORS,
    N_POSITIONS,
    N_QUEUES,
    REG_CLOCK,
    REG_INPUT,
    REG_NONE,
    REG_ORDER,
    REG_POINT,
    REG_POP,
    REG_POSITION,
    REG_PRIORITY,
    REG_QUEUES,
    REG_RING,
    REG_ROUTES,
    REG_SWAP,
    REG_SWITCHES,
    REG_TEARDOWN,
)
from wse_core.reference.operand import ReferenceFault

if TYPE_CHECKING:
    from wse_core.reference.ce import CE
    from wse_core.reference.router import ColorState

__all__ = ["MappedRegisters"]

CLOCK_RUNS = 7
SIDE = 5  # bits of a set of directions


def to_register(ports: int) -> int:
    """Return a set of directions in the order of registers."""
    return sum((ports >> direction & 1) << place for place, direction in enumerate(REG_ORDER))


def from_register(bits: int) -> int:
    """Return a set of directions in the order of the model."""
    return sum((bits >> place & 1) << direction for place, direction in enumerate(REG_ORDER))


class MappedRegisters:
    """A `MappedRegisters` has the registers of one PE that have addresses."""

    def __init__(self, ce: CE) -> None:
        self.ce = ce
        self.switches: dict[int, list[int]] = {}  # by color the four bits of each position from 1 on
        self.queues = [0] * N_QUEUES
        self.clock, self.begun = CLOCK_RUNS, 0

    def has(self, address: int) -> bool:
        """Whether there is a register at an address."""
        return any(
            first <= address < first + count
            for first, count in (
                (REG_ROUTES, N_COLORS), (REG_SWITCHES, N_COLORS), (REG_QUEUES, N_QUEUES), (REG_CLOCK, 1 + N_CLOCK_WORDS)
            )
        )  # fmt: skip

    def color_at(self, address: int) -> ColorState | None:
        """Return the color whose route or switch register has an address."""
        if address >= REG_QUEUES or address < REG_ROUTES:
            return None
        color = address - (REG_SWITCHES if address >= REG_SWITCHES else REG_ROUTES)
        if color not in self.ce.router.routed:
            what = "a register of a color that the layout gives no route anywhere"
            raise ReferenceFault("program", what, address=address, color=color, value=color)
        return self.ce.router.colors[color]

    def read(self, address: int, t: int) -> int:
        """Return what a register holds in cycle t."""
        state = self.color_at(address)
        if state is not None:
            return self.switch(state) if address >= REG_SWITCHES else self.route(state)
        if address >= REG_QUEUES:
            return self.queues[address - REG_QUEUES]
        return self.clock if address == REG_CLOCK else self.stamp(t) >> 16 * (address - REG_CLOCK - 1) & 0xFFFF

    def write(self, address: int, value: int, t: int) -> None:
        """Change a register in cycle t; routers see it from the next cycle on."""
        state = self.color_at(address)
        if state is not None:
            (self.set_switch if address >= REG_SWITCHES else self.set_route)(state, value, t)
        elif address >= REG_QUEUES:
            self.queues[address - REG_QUEUES] = value
        elif address == REG_CLOCK:
            self.clock = value
        else:
            at = 16 * (address - REG_CLOCK - 1)
            self.begun = t - (self.stamp(t) & ~(0xFFFF << at) | value << at)

    # --- the clock and the queues ---------------------------------------------------------------------------------

    def stamp(self, t: int) -> int:
        """Return the cycle counter."""
        return (t - self.begun) % (1 << self.ce.machine["tsc.bits"])

    def priority(self, queues: Iterable[int]) -> int:
        """Return the priority that the configuration of input queues asks for: 0, 1 or 2."""
        word = 0
        for queue in queues:
            word |= self.queues[queue % N_QUEUES]
        return 2 if word >> REG_PRIORITY + 1 & 1 else word >> REG_PRIORITY & 1

    # --- the router -----------------------------------------------------------------------------------------------

    def positions(self, state: ColorState) -> list[int]:
        """Return positions 1 to 3 as four bits each: a direction, and whether it is an input or an output."""
        if state.color not in self.switches:
            found = []
            for k in range(1, N_POSITIONS):
                own_input = state.tx[k] == state.tx[0]
                ports = to_register(state.rx[k] if own_input else state.tx[k])
                direction = (ports & -ports).bit_length() - 1 if ports else REG_NONE
                valid = state.valid >> k & 1
                found.append(direction | (REG_INPUT if own_input else 0) if valid else REG_NONE)
            self.switches[state.color] = found
        return self.switches[state.color]

    def route(self, state: ColorState) -> int:
        """Return the route register of a color."""
        return (
            to_register(state.tx[0])
            | to_register(state.rx[0]) << SIDE
            | (state.swap >> 1 & 1) << REG_SWAP
            | (state.swap & 1) << REG_SWAP + 1
            | state.pop_mode << REG_POP
            | state.teardown << REG_TEARDOWN
        )

    def set_route(self, state: ColorState, value: int, t: int) -> None:
        """Change the route register of a color."""
        router, known = self.ce.router, self.positions(state)
        if (value ^ self.route(state)) & (3 << REG_SWAP | 1 << REG_POINT):
            what = "a register is asked for what is not modelled: color swap, point to point, or a part of it"
            raise ReferenceFault(
                "program", what, address=REG_ROUTES + state.color, color=state.color, value=value
            )  # fmt: skip
        tx, rx = from_register(value & 31), from_register(value >> SIDE & 31)
        router.set_sets(state, 0, rx, tx, True, t)
        for k in range(1, N_POSITIONS):
            if state.valid >> k & 1:
                sets = (state.rx[k], tx) if known[k - 1] & REG_INPUT else (rx, state.tx[k])
                if sets != (state.rx[k], state.tx[k]):
                    router.set_sets(state, k, *sets, True, t)
        state.pop_mode = value >> REG_POP & 3
        teardown = bool(value >> REG_TEARDOWN & 1)
        if teardown != state.teardown:
            router.emit(router.x, router.y, t, "teardown", state.color, int(teardown))
        state.teardown = teardown

    def switch(self, state: ColorState) -> int:
        """Return the switch register of a color."""
        bits = sum(part << 4 * k for k, part in enumerate(self.positions(state)))
        return bits | state.ring << REG_RING | state.pos << REG_POSITION

    def set_switch(self, state: ColorState, value: int, t: int) -> None:
        """Change the switch register of a color."""
        router = self.ce.router
        parts = [value >> 4 * k & 15 for k in range(N_POSITIONS - 1)]
        for k, part in enumerate(parts, 1):
            if part & 7 >= REG_NONE:
                router.set_sets(state, k, 0, 0, False, t)
                continue
            port = 1 << REG_ORDER[part & 7]
            sets = (port, state.tx[0]) if part & REG_INPUT else (state.rx[0], port)
            router.set_sets(state, k, *sets, True, t)
        self.switches[state.color] = parts
        state.ring = bool(value >> REG_RING & 1)
        router.set_position(state.color, value >> REG_POSITION & 3, t)
