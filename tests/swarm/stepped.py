"""The system stepped cycle by cycle: every wafer a cycle, then every part one number after the other, in plain Python.

Nothing runs ahead here, so there is nothing to be conservative about: a word is held back until its update is there and
every wafer has room for it, and is handed to the wafers in its own cycle.  Only where no buffer can fill, and so all
words of an iteration are known at its begin, the wafers do more than a cycle at a time.  It is the slow twin of
`swarm.passage`, `swarm.down`, `swarm.up` and `swarm.service`, and shares with them only the wafers, the script and the
modelled numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from memx.coordinator import Coordinator


class Free(defaultdict):
    """When each of some things is free again."""

    def __init__(self):
        super().__init__(float)

    def serve(self, key, ready, gap):
        """Return when something is done that is ready, and takes its time."""
        self[key] = max(self[key], ready) + gap
        return self[key]


def tree(systems, ways):
    """Return nested tuples: groups of full nodes, and what is left at the end."""
    level = list(range(systems))
    while len(level) > 1:
        level = [tuple(level[k : k + ways]) for k in range(0, len(level), ways)]
        level = [part[0] if len(part) == 1 else part for part in level]
    return level[0]


def depths(node, below=0):
    """Return {system: levels above it}."""
    if isinstance(node, int):
        return {node: below}
    return {system: depth for child in node for system, depth in depths(child, below + 1).items()}


class Stepped:
    """A system; parameters as of `swarm.system.System`."""

    def __init__(self, network, matrices, norms, machine, width, height, wafers, batch, form="steps", column_groups=1):
        self.m, self.batch = machine, batch
        self.resident = Resident(network, machine, width, height, batch // wafers, form, column_groups=column_groups)
        self.coordinator = Coordinator(self.resident, matrices, norms)
        self.wafers = [Wafer(self.resident) for _ in range(wafers)]
        self.hertz = machine["clock.ghz"] * 1e9
        self.shape = tree(wafers, machine["node.ways"])
        found = depths(self.shape)
        self.away = [found[k] * machine["node.latency"] * 1e-9 * self.hertz for k in range(wafers)]
        self.turn = max(1, machine["link.turn"] * 1e-9 * self.hertz)
        self.window = machine["link.buffer"] // 4
        self.free, self.ended = Free(), [0] * wafers
        self.entries, self.begun, self.new = [], [], {}  # of all passes; new: (parameter, place) -> time
        self.settled = 0.0
        for wafer in self.wafers:
            for groups in wafer.resident.inputs:
                for stream in groups:
                    wafer.fabric.entered(stream)
        self.origin = [wafer.fabric.cycle for wafer in self.wafers]

    def gap(self, rate):
        """Return the cycles of a 32-bit word at a rate in bytes per second."""
        return self.hertz * 4 / rate

    def release(self, script):
        """Return when the value of each word is up to date, counted through the columns."""
        names = []
        for k, p in enumerate(self.coordinator.streamed):  # of rows that go out whole, what stands in a gap has no time
            whole = len(p.values) > p.pattern.count
            names += [(k, place) for place in (range(len(p.values)) if whole else p.pattern.flat)]
        found = []
        for carried in zip(script.sources, script.seconds, strict=True):  # a word waits for both of its values
            times = [0.0]
            for source in carried:
                if source >= 0:
                    made = source > len(names)  # of sums of the same pass
                    times.append(self.new.get(names[source], 0.0) if source < len(names) else self.settled * (not made))
            found.append(max(times))
        return found

    def train(self, shards, update=True, whole=False):
        """Run an iteration; return the cycles from the end of the last one."""
        self.update, self.whole = update, whole
        self.script = script = self.coordinator.script("train")
        streams = self.coordinator.streams("train", 1.0)
        self.payload = np.concatenate([words for words, _ in streams])
        self.control = np.concatenate([flags for _, flags in streams])
        self.released = self.release(script)
        per_cycle = self.m["link.planes"] * self.m["link.rate"] / 8 / self.hertz
        load = math.ceil(2 * shards[0][0].size / per_cycle)
        for wafer, (inputs, labels) in zip(self.wafers, shards, strict=True):
            wafer.load(inputs, labels)
        count, n, back = len(self.wafers), script.n_words, len(script.back)
        before, self.ready = max(self.ended), [ended + load for ended in self.ended]
        self.end = list(self.ended)
        self.base, self.back_base = len(self.entries), len(self.begun)
        self.link_free, self.last = [float(ready) for ready in self.ready], [[0] * script.columns for _ in range(count)]
        self.entered, self.left = [{} for _ in range(count)], [{} for _ in range(count)]
        self.place, self.back = np.argsort(script.sequence), np.argsort(script.back)
        self.got = np.concatenate([[0], np.cumsum([len(part) for part in script.places])])
        self.done_in = [[0] * script.columns * self.resident.column_groups for _ in range(count)]
        self.halfway = [{} for _ in range(count)]  # words that have entered some groups of columns: their times
        self.done_out = [[0] * script.columns for _ in range(count)]
        self.sent = self.known = self.allowed = 0
        self.trips, self.came_at = list(script.trips), []
        self.fresh, self.rests = [True] * count, [False] * count  # each run of an engine at rest takes it a cycle on
        self.newest = self.came = 0.0
        self.out = [0.0] * count
        self.limited = self.window < self.back_base + back
        self.new_of = {}
        self.places = np.concatenate(script.places)[script.back]
        for wafer in self.wafers if self.limited else ():
            for stream in wafer.resident.outputs:
                wafer.fabric.accept(stream, np.empty(0, np.int64))
        self.now = min(self.ready)
        for wafer, origin in zip(self.wafers, self.origin, strict=True):  # nothing happens before samples are there
            wafer.fabric.engine.run(origin + self.now)
        while True:
            while self.sent < n and self.send():
                pass
            while self.known < back and all(self.known in left for left in self.left):
                self.receive()
            while self.limited and self.allowed < back and self.allow():
                pass
            cycles = 1 if self.limited or self.trips or self.base + n > self.window else 100_000
            rest = [self.step(k, wafer, cycles) for k, wafer in enumerate(self.wafers)]
            self.now += cycles
            if self.sent == n and self.known == back and all(rest):
                break
        for wafer in self.wafers if self.limited else ():
            for stream in wafer.resident.outputs:
                wafer.fabric.accept(stream, None)
        self.ended = self.end
        self.keep()
        return max(self.ended) - before

    def send(self):
        """Send the next word if it is known when; return whether it is."""
        need = self.base + self.sent - self.window
        if need >= len(self.entries):
            return False
        word, m = int(self.script.sequence[self.sent]), self.m
        while self.trips and self.trips[0].first == self.sent:
            trip = self.trips[0]
            if self.known < trip.needed:
                return False
            work = len(trip.places) * self.hertz / m["update.rate"] + m["answer.latency"] * 1e-9 * self.hertz
            self.newest = max(self.newest, self.came_at[trip.needed - 1] + work)
            self.trips.pop(0)
        self.newest = max(self.newest, self.released[word], self.entries[need] if need >= 0 else 0.0)
        out = self.free.serve("store", self.newest, self.gap(m["stream.rate"]))
        slow = min(m["link.rate"], m["node.rate"]) if len(self.wafers) > 1 else m["link.rate"]
        top = self.free.serve(("plane", self.sent // m["link.chunk"] % m["link.planes"]), out, self.gap(slow / 8))
        column = int(np.searchsorted(self.script.starts, word, "right")) - 1
        for k, wafer in enumerate(self.wafers):
            arrived = top + self.away[k]
            if arrived > self.ended[k]:
                gap = self.gap(m["link.planes"] * m["link.rate"] / 8)
                self.link_free[k] = max(self.link_free[k], arrived) + gap
                arrived = self.link_free[k] - gap
            cycle = max(math.ceil(max(arrived, self.ready[k]) - 1e-6), self.last[k][column])
            assert cycle >= self.now
            self.last[k][column] = cycle
            one = slice(word, word + 1)
            for stream in wafer.resident.inputs[column]:
                wafer.fabric.send(stream, self.payload[one], self.control[one], at=cycle + self.origin[k])
            self.fresh[k] = True
        self.sent += 1
        return True

    def receive(self):
        """Add the next number of all wafers, and update its weight."""
        m, plane = self.m, self.known // self.m["link.chunk"] % self.m["link.planes"]
        node_gap, latency = self.gap(min(m["link.rate"], m["node.rate"]) / 8), m["node.latency"] * 1e-9 * self.hertz

        def rise(node):
            if isinstance(node, int):
                self.out[node] = max(self.out[node], self.left[node][self.known])
                return self.free.serve(("out", node, plane), self.out[node], self.gap(m["link.rate"] / 8))
            return self.free.serve(("node", node, plane), max(rise(child) for child in node), node_gap) + latency

        self.came = begun = max(self.came, rise(self.shape))
        self.came_at.append(self.came)
        gap, late = self.hertz / m["update.rate"], m["update.latency"] * 1e-9 * self.hertz
        if not self.whole:
            new = begun
            if self.places[self.known] < self.script.offsets[-1]:
                done = self.free.serve("units", begun, gap)
                begun, new = done - gap, done + late
            self.new_of[int(self.places[self.known])] = new
        self.begun.append(max([begun, *self.begun[-1:]]))
        self.known += 1
        if self.whole and self.known == len(self.places):  # only now the norm is known
            for place in self.places:
                weight = place < self.script.offsets[-1]
                self.new_of[int(place)] = self.free.serve("units", self.came, gap) + late if weight else self.came

    def allow(self):
        """Let the next number leave if it is known when; return whether it is."""
        need = self.back_base + self.allowed - self.window
        if need >= len(self.begun):
            return False
        column = int(np.searchsorted(self.got, self.script.back[self.allowed], "right")) - 1
        for k, wafer in enumerate(self.wafers):
            at = max(0, math.ceil(self.begun[need] + self.turn + self.away[k] - 1e-6)) if need >= 0 else 0
            wafer.fabric.accept(wafer.resident.outputs[column], [at + self.origin[k]])
            self.fresh[k] = True
        self.allowed += 1
        return True

    def step(self, k, wafer, cycles):
        """Let a wafer do some cycles; return whether it rests."""
        if self.rests[k] and not self.fresh[k]:
            return True
        engine, origin = wafer.fabric.engine, self.origin[k]
        status = engine.run(origin + self.now + cycles)
        self.end[k] = max(self.end[k], engine.last_active + 1 - origin)
        groups = self.resident.column_groups
        for stream in range(self.script.columns * groups):
            for time in engine.entered(stream):
                word = int(self.place[self.script.starts[stream // groups] + self.done_in[k][stream]])
                times = self.halfway[k].setdefault(word, [])
                times.append(int(time) - origin)
                if len(times) == groups:
                    self.entered[k][word] = max(times)
                self.done_in[k][stream] += 1
        for column in range(self.script.columns):
            for time in engine.pop_output(column)[0]:
                number = self.back[self.got[column] + self.done_out[k][column]]
                self.left[k][int(number)] = int(time) - origin
                self.done_out[k][column] += 1
        next_one = len(self.entries) - self.base
        while next_one < self.script.n_words and all(next_one in entered for entered in self.entered):
            there = (e[next_one] + self.turn + a for e, a in zip(self.entered, self.away, strict=True))
            self.entries.append(max([*there, *self.entries[-1:]]))
            next_one += 1
        self.rests[k], self.fresh[k] = status == "complete", False
        return self.rests[k]

    def keep(self):
        """Keep when each weight is new."""
        if not self.update:
            return
        self.settled = max(self.settled, *self.new_of.values())
        offset = 0
        for k, parameter in enumerate(self.coordinator.parameters):
            weights = {int(place) for place in parameter.pattern.flat}
            for j, place in enumerate(parameter.gradient_pattern.flat):
                if int(place) in weights:
                    self.new[k, int(place)] = self.new_of[offset + j]
            offset += parameter.gradient_pattern.count
