"""The memory service is on the clock: when each value is up to date, and what has to be read for it.

A gradient that came updates its weight, and the weight may leave again for the next iteration while other gradients
still come.  Three things need all gradients first, and then every word of the next iteration waits for the last one:

- Masks change: which weights exist depends on all of them.
- A gradient is not finite: nothing is updated.  The service knows that only when it comes; what it had sent of the next
  iteration by then is void and is sent again.  The void words are not simulated: the wafers drop them.
- The loss scale, one word, may depend on whether all gradients are finite.

Where gradients are clipped nothing is updated before the last one has come, since all of them make the norm; updates
then run at their rate.  Where gradients of several passes are added up, weights change with those of the last pass.

If parameters with their optimizer state do not fit DRAM, the first layers stay there and the others lie in tiers behind
it (`memx.tiers.Tiers.homes`): their weights are read for each use, and their state for each update, which is written.

Source: weight streaming white paper, sections 6.3 and 7.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.streamed.script import Script
from memx.coordinator import Coordinator
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.tiers import Tiers
from swarm.up import Up

__all__ = ["WEIGHT_BYTES", "Service"]

Times = NDArray[np.float64]
VALUE_BYTES, WEIGHT_BYTES = 2, 4
"""Of a weight as it is streamed: its value, and value and index."""


class Service:
    """A `Service` has the parameters and their times.

    Parameters
    ----------
    coordinator : Coordinator
    tiers : Tiers
    bytes_per_parameter : int
        Weight, gradient, optimizer state, index and 16-bit copy.

    Attributes
    ----------
    settled : float
        When everything that came was used up.
    lies : ndarray of bool
        Per tier behind DRAM and parameter: whether it lies there.
    """

    def __init__(self, coordinator: Coordinator, tiers: Tiers, bytes_per_parameter: int) -> None:
        self.coordinator, self.settled = coordinator, 0.0
        self.parameters: Sequence[Parameter] = coordinator.parameters
        sizes = [float(p.dense.size * bytes_per_parameter) for p in coordinator.matrices]
        tiers.check(sum(p.dense.size for p in self.parameters), bytes_per_parameter)
        # Normalisations, two rows each, stay in DRAM.
        homes = [*tiers.homes(sizes), *[0] * (len(self.parameters) - len(sizes))]
        self.lies = np.array([[home == k + 1 for home in homes] for k in range(len(tiers.behind))], bool)
        self.state_bytes = bytes_per_parameter - 8  # without gradient, index and copy
        self._patterns: list[Pattern | None] = [None for _ in self.parameters]
        self._new = [np.empty(0) for _ in self.parameters]
        self._in_parts = False  # gradients of a pass before are kept
        self._before: float | None = None  # when rows that no sample asks for are new

    # --- words that leave ---------------------------------------------------------------------------------------------

    def released(self, script: Script) -> Times:
        """Return when the value of each word is up to date, in the order of sending."""
        times = [
            parameter.spread(new if pattern is parameter.pattern else np.full(parameter.pattern.count, self.settled))
            for parameter, pattern, new in zip(self.parameters, self._patterns, self._new, strict=True)
        ]
        times = [self.coordinator.of_chosen(k, of_one) for k, of_one in enumerate(times)]
        made = np.zeros(self.coordinator.made)
        when = np.concatenate([*times, [self.settled], made, [0.0]])  # the last one is of words without a value, -1
        first, second = script.sources[script.sequence], script.seconds[script.sequence]
        return np.maximum(when[first], when[second])  # a word with two values waits for both

    def read(self, script: Script, update: bool) -> Times | None:
        """Return the bytes that have to be read of each tier behind DRAM for each word, in the order of sending.

        With `update` the state of a weight is read with the word that asks for its gradient.  None: of no word.
        """
        if not self.lies.any():
            return None
        return np.stack([self._read(script, update, there) for there in self.lies])

    def _read(self, script: Script, update: bool, lies: NDArray[np.bool_]) -> Times:
        """Return the bytes for each word of parameters that lie in a tier."""
        made = self.coordinator.made
        each = [VALUE_BYTES * (2 - (p.pattern.density == 1)) for p in self.parameters]  # a dense matrix has no index
        own = [
            parameter.spread(np.full(parameter.pattern.count, float(size * there)))
            for parameter, size, there in zip(self.parameters, each, lies, strict=True)
        ]
        own = [self.coordinator.of_chosen(k, of_one) for k, of_one in enumerate(own)]
        carried = np.concatenate([*own, np.zeros(2 + made)])  # the last one is of words without a value, -1
        first, second = carried[script.sources], carried[script.seconds]
        found = first + second
        asked = (script.asking >= 0) & update
        np.add.at(found, script.asking[asked], self._state(script, lies)[asked])
        return found[script.sequence]

    def _state(self, script: Script, lies: NDArray[np.bool_], copy: int = 0) -> Times:
        """Return the bytes in a tier behind each number that comes back, counted through columns.

        They are the optimizer's state of all weights, and `copy` bytes of each one that exists.
        """
        each = [
            there * (self.state_bytes * p.dense.size + copy * p.pattern.count) / max(1, asked)
            for p, asked, there in zip(self.parameters, np.diff(script.offsets), lies, strict=True)
        ]
        owner = np.searchsorted(script.offsets, np.concatenate(script.places), "right") - 1
        return np.array([*each, 0.0])[owner]

    # --- gradients that come ------------------------------------------------------------------------------------------

    def begin(self, script: Script, up: Up, update: bool, whole: bool) -> None:
        """Say what the numbers are that will come; parameters as of `swarm.system.System.train`.

        Adding a gradient to one that is kept takes an update unit as long as an update; sums are kept in DRAM.  Rows of
        tables that no sample of the only pass asks for are updated before all others: they are not used in it either.
        """
        unasked = self.coordinator.unasked
        self._before = None
        if update and not whole and not self._in_parts and unasked:
            self._before = float(up.units.through([self.settled], unasked)[0])
        self._in_parts = not update
        places = np.concatenate(script.places)
        updated = places < script.offsets[-1]
        written = None
        if update and self.lies.any():
            written = np.stack([self._state(script, there, WEIGHT_BYTES)[script.back] for there in self.lies])
        up.begin(updated[script.back], written, whole)

    def took(self, script: Script, up: Up, finite: bool) -> None:
        """Keep when weights are new; `finite`: the gradients were, so that there is something new."""
        if not len(up.came):
            return
        self.settled = float(np.max(up.new if finite else up.came))
        if self._before is None and finite:  # what has no gradient is updated behind all that have one
            more = self.coordinator.unasked * up.units.gap
            self.settled, up.units.free = self.settled + more, up.units.free + more
        other = self.settled if self._before is None else self._before
        if not finite:
            self._patterns = [None for _ in self.parameters]
            return
        new, places = np.empty(len(script.back)), np.concatenate(script.places)[script.back]
        new[places] = up.new
        for k, (parameter, first, last) in enumerate(
            zip(self.parameters, script.offsets[:-1], script.offsets[1:], strict=True)
        ):
            pattern, asked = parameter.pattern, parameter.gradient_pattern
            own = self.coordinator.of_all(k, new[first:last], other)
            if asked is not pattern:
                at = np.clip(np.searchsorted(asked.flat, pattern.flat), 0, max(0, asked.count - 1))
                known = asked.flat[at] == pattern.flat if asked.count else np.zeros(pattern.count, bool)
                own = np.where(known, own[at] if asked.count else 0.0, self.settled)
            self._patterns[k], self._new[k] = pattern, own

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what the next pass depends on: times of values whose parameter kept its pattern."""
        kept = {
            parameter.name: new
            for parameter, pattern, new in zip(self.parameters, self._patterns, self._new, strict=True)
            if pattern is parameter.pattern
        }
        return {"settled": self.settled, "new": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned; the parameters have their patterns already."""
        self.settled = float(state["settled"])
        for k, parameter in enumerate(self.parameters):
            kept = state["new"].get(parameter.name)
            self._patterns[k] = None if kept is None else parameter.pattern
            if kept is not None:
                self._new[k] = kept
