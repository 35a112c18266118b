"""All ways between memory service and wafers give the times of words that are ready, pass after pass, by a machine's
numbers.

Of the wafers the ways know ports only: `swarm.ports.WaferPort`, behind which a wafer is simulated, or
`swarm.replay.ReplayPort`, which knows how long its wafer takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from fabric.networks.streamed.script import RoundTrip, Script
from memx.coordinator import Coordinator
from memx.tiers import Tiers
from swarm.down import Down
from swarm.passage import side_by_side, travel
from swarm.service import Service
from swarm.timing import WORD, Links, Updates
from swarm.tree import levels
from swarm.up import Up
from wse_core.params import Machine

__all__ = ["Ways"]


class Ways:
    """The ways of a system take words to its wafers and gradients back, on one clock.

    Parameters
    ----------
    machine : Machine
    coordinator : Coordinator
    bytes_per_parameter : int
        In the memory service; see `memx.optimizer.Optimizer.bytes_per_parameter`.
    wafers : int

    Attributes
    ----------
    ports : list
        One per wafer, put here by who has made them.
    clock : int
        Cycles so far: the end of the last pass on the slowest wafer.
    """

    def __init__(self, machine: Machine, coordinator: Coordinator, bytes_per_parameter: int, wafers: int) -> None:
        self.machine, self.links, self.hertz = machine, Links.of(machine), machine["clock.ghz"] * 1e9
        self._others = coordinator, bytes_per_parameter, wafers
        tiers = Tiers.of(machine)
        away = np.array(levels(wafers, self.links.ways)) * self.links.latency * self.hertz
        self.service = Service(coordinator, tiers, bytes_per_parameter)
        self.down = Down(self.links, tiers, away, self.hertz)
        self.up = Up(self.links, Updates.of(machine), tiers, away, self.hertz)
        self.ports: list[Any] = []
        self.clock = 0

    def on(self, machine: Machine) -> Ways:
        """Return new ways between the same ends on another machine, without ports."""
        return Ways(machine, *self._others)

    @property
    def bytes_per_cycle(self) -> float:
        """The links of a system carry so many bytes per cycle, each way."""
        return self.links.bytes_per_second / self.hertz

    @property
    def gap(self) -> float:
        """A word takes so many cycles on the links of a system."""
        return WORD / self.bytes_per_cycle

    def load(self, samples: int) -> int:
        """Return the cycles in which so many 16-bit numbers of samples come in over the links of a system."""
        return int(np.ceil(2 * samples / self.bytes_per_cycle))

    def run(
        self,
        script: Script,
        samples: int,
        update: bool,
        whole: bool,
        pool: Executor | None = None,
        advance: Callable[..., list[bool]] = side_by_side,
        answer: Callable[[RoundTrip], None] | None = None,
    ) -> None:
        """Let a pass travel.

        Parameters
        ----------
        script : Script
        samples : int
            Numbers of the samples of a system.
        update, whole : bool
            See `swarm.system.System.train`.
        pool : Executor, optional
            In which wafers run.
        advance : callable, optional
            See `swarm.passage.travel`.
        answer : callable, optional
            Likewise.
        """
        load = self.load(samples)
        for port in self.ports:
            port.begin(port.ended + load)
        waiting = [trip.first for trip in script.trips]
        self.down.begin(self.service.released(script), self.service.read(script, update), waiting)
        self.service.begin(script, self.up, update, whole)
        travel(self.ports, self.down, self.up, pool, advance, script.trips, answer)
        self.clock = max(port.ended for port in self.ports)
        self.up.end(min(port.ended for port in self.ports))

    def state(self) -> dict[str, Any]:
        """Return what the next pass depends on but the ports."""
        return {"down": self.down.state(), "up": self.up.state(), "service": self.service.state()}

    def restore(self, state: dict[str, Any], ended: Sequence[int]) -> None:
        """Go on from what `state` returned, and when each wafer ended its last pass."""
        self.clock = state["clock"]
        for port, end in zip(self.ports, ended, strict=False):  # none without a clock
            port.set_clock(self.clock, end)
        self.down.restore(state["down"])
        self.up.restore(state["up"])
        self.service.restore(state["service"])
