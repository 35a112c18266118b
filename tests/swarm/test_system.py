"""Memory service, tree and wafers on one clock: against the system stepped cycle by cycle, and what waits for what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from memx.parameter import Parameter
from memx.pattern import Pattern
from swarm.ports import WaferPort
from swarm.system import System
from tests.examples import examples
from tests.swarm.stepped import Stepped
from wse_core.errors import ConfigError
from wse_core.params import machine


class Case:
    """A random network with its weights, and shards of random samples."""

    def __init__(self, features, width=2, height=1, tokens=1, wafers=1, density=1.0, norm=False, seed=0, groups=1):
        rng = np.random.default_rng(seed)
        self.network = Network.dense(features, "relu", norm=norm)
        self.groups, samples = groups, height * tokens * groups
        self.place = (width, height, wafers, wafers * samples)
        self.matrices, self.norms = [], {}
        for k, layer in enumerate(self.network.layers):
            mask = rng.random(layer.shape) < density
            weights = rng.standard_normal(layer.shape)
            self.matrices.append(Parameter(f"layer{k}", weights, "f16", pattern=Pattern.of_mask(mask)))
            if layer.norm:
                self.norms[k] = Parameter(f"norm{k}", np.ones((2, layer.outputs)), "f16")
        one_hot = np.eye(features[-1], dtype=np.float16)
        self.shards = [
            (
                rng.standard_normal((features[0], samples)).astype(np.float16).view(np.uint16),
                np.ascontiguousarray(one_hot[rng.integers(0, features[-1], samples)].T).view(np.uint16),
            )
            for _ in range(wafers)
        ]

    @property
    def gaps(self):
        """Whether a matrix is sparse."""
        return any(matrix.pattern.density < 1 for matrix in self.matrices)

    def system(self, numbers=(), **options):
        """Return the `System` on a machine with some numbers changed."""
        options["column_groups"] = self.groups
        return System(self.network, self.matrices, self.norms, machine("wse2", dict(numbers)), *self.place, **options)

    def stepped(self, numbers=(), **options):
        """Return its slow twin."""
        options["column_groups"] = self.groups
        return Stepped(self.network, self.matrices, self.norms, machine("wse2", dict(numbers)), *self.place, **options)


NETWORKS = {
    "features": st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple),
    "width": st.integers(1, 4),
    "height": st.integers(1, 2),
    "tokens": st.integers(1, 3),
    "wafers": st.sampled_from([1, 2, 3, 5]),
    "density": st.sampled_from([0.3, 0.7, 1.0]),
    "norm": st.booleans(),
    "groups": st.sampled_from([1, 1, 2, 3]),
    "seed": st.integers(0, 99),
    "form": st.sampled_from(["steps", "pairs", "both"]),
}
NUMBERS = st.fixed_dictionaries(
    {
        "link.planes": st.sampled_from([1, 2, 12]),
        "link.chunk": st.sampled_from([1, 7, 1024]),
        "link.rate": st.sampled_from([10**9, 10**10, 10**11]),
        "node.rate": st.sampled_from([10**9, 10**11]),
        "node.latency": st.sampled_from([0, 50, 300]),
        "node.ways": st.sampled_from([2, 4]),
        "update.rate": st.sampled_from([10**7, 10**9, 75 * 10**9]),
        "update.latency": st.sampled_from([0, 100, 1500]),
    }
)


AT_REST = {  # found at random: an engine at rest that runs again is a cycle later than the load of one sample
    "link.planes": 1,
    "link.chunk": 1024,
    "link.rate": 10**11,
    "node.rate": 10**9,
    "node.latency": 0,
    "node.ways": 2,
    "update.rate": 10**9,
    "update.latency": 0,
}
ONE = {"features": (1, 1), "width": 1, "height": 1, "tokens": 1, "wafers": 1, "density": 0.3, "norm": False, "seed": 0}
ONE |= {"form": "steps", "groups": 1}


FILLED = ONE | {"features": (7, 6), "tokens": 3, "seed": 20, "form": "pairs"}
"""Rows go out whole, with zeros where no weight is; those wait for nothing."""


@examples(10)
@example(numbers=AT_REST | {"update.rate": 10**7}, **FILLED)
@example(numbers=AT_REST, **ONE)
@given(numbers=NUMBERS, **NETWORKS)
def test_boundaries_are_those_of_words_held_back_one_by_one(numbers, **values):
    """Iterations of random networks take what they take when every word is held back until its update is there."""
    form = values.pop("form")
    case = Case(**values)
    fast, slow = case.system(numbers, form=form), case.stepped(numbers, form=form)
    for _ in range(3):
        assert fast.train(case.shards).total_cycles == slow.train(case.shards)
    fast.close()


@examples(6)
@given(numbers=NUMBERS, passes=st.lists(st.booleans(), min_size=3, max_size=5), whole=st.booleans(), **NETWORKS)
def test_gradients_that_are_kept_or_wait_for_their_norm_take_the_cycles_of_the_stepped_system(
    numbers, passes, whole, **values
):
    """Some passes update nothing; updates of the others begin one by one, or when the last gradient has come."""
    form = values.pop("form")
    case = Case(**values)
    fast, slow = case.system(numbers, form=form), case.stepped(numbers, form=form)
    for update in [*passes, True]:
        assert fast.train(case.shards, 1.0, update, whole).total_cycles == slow.train(case.shards, update, whole)
    fast.close()


def test_gradients_of_several_passes_are_added_in_their_order():
    """In f32, pass after pass; the weights stay until the last one, and then the sums begin anew."""
    case, single = Case((12, 8, 4), 2, 2, 2, wafers=2), []
    other = Case((12, 8, 4), 2, 2, 2, wafers=2, seed=1)
    for shards in (case.shards, other.shards):
        single.append(case.system().train(shards).gradients)
    system = case.system()
    first, second = system.train(case.shards, update=False), system.train(other.shards)
    assert np.array_equal(first.gradients.view(np.uint32), single[0].view(np.uint32))
    assert np.array_equal(second.gradients.view(np.uint32), (single[0] + single[1]).view(np.uint32))
    assert np.array_equal(system.train(case.shards).gradients.view(np.uint32), single[0].view(np.uint32))


SMALL = {
    "features": st.lists(st.integers(1, 3), min_size=2, max_size=3).map(tuple),
    "width": st.integers(1, 3),
    "tokens": st.just(1),
    "wafers": st.sampled_from([1, 2, 3]),
}
QUICK = {
    "node.latency": st.sampled_from([0, 5, 12]),
    "link.turn": st.sampled_from([0, 10]),
    "update.rate": st.sampled_from([10**8, 10**9]),
    "update.latency": st.sampled_from([0, 100]),
}


@examples(8)
@given(numbers=st.fixed_dictionaries(QUICK), buffer=st.sampled_from([4, 8, 32, 100, 400]), **NETWORKS | SMALL)
def test_wafers_wait_for_room_as_they_do_cycle_by_cycle(numbers, buffer, **values):
    """Buffers of a few words, both ways: everybody waits for everybody else, in any order of waiting."""
    form = values.pop("form")
    case, numbers = Case(**values), numbers | {"link.buffer": buffer}
    fast, slow = case.system(numbers, form=form), case.stepped(numbers, form=form)
    for _ in range(2):
        assert fast.train(case.shards).total_cycles == slow.train(case.shards)
    fast.close()


@examples(4)
@given(
    buffer=st.sampled_from([100, 400, 1000, 2000]), groups=st.sampled_from([1, 2]), density=st.sampled_from([0.5, 1])
)
def test_a_wafer_alone_waits_for_room_as_it_does_cycle_by_cycle(buffer, groups, density):
    """Buffers of dozens of words a column, which it works on in one piece: of a wide network, both ways."""
    case = Case((12, 9, 5), 4, tokens=2, density=density, groups=groups)
    numbers = {"link.buffer": buffer, "link.turn": 10, "update.latency": 0}
    fast, slow = case.system(numbers), case.stepped(numbers)
    for _ in range(2):
        assert fast.train(case.shards).total_cycles == slow.train(case.shards)
    fast.close()


def test_a_wafer_is_run_in_pieces_of_what_its_buffer_holds(monkeypatch):
    """Room is heard of 17 cycles later; buffers of an eighth of the words need pieces of many more, and no cycle."""
    case, numbers = Case((40, 40, 5), 4, tokens=8), {"link.turn": 20, "update.latency": 0}
    plenty, pieces, advance = case.system(numbers).train(case.shards), [], WaferPort.advance
    small = case.system(numbers | {"link.buffer": plenty.words * 4 // 8})
    monkeypatch.setattr(WaferPort, "advance", lambda port, end: pieces.append(end) or advance(port, end))
    assert small.train(case.shards).total_cycles == plenty.total_cycles
    assert len(pieces) < plenty.total_cycles / 17 / 8


@pytest.mark.parametrize("buffer", [20, 2**24])
def test_how_wafers_are_run_side_by_side_does_not_matter(buffer):
    """One at a time, three at a time, and through any buffer: the same values; with one buffer, the same times."""
    case, numbers = Case((4, 3, 2), 2, 1, 2, wafers=5), {"node.latency": 20, "update.latency": 0}
    runs = [case.system(numbers | {"link.buffer": buffer}, workers=workers) for workers in (1, 3)]
    plenty = case.system(numbers)
    for _ in range(2):
        one, other = (run.train(case.shards) for run in runs)
        assert (one.total_cycles, one.boundary) == (other.total_cycles, other.boundary)
        free = plenty.train(case.shards)
        for found in (one, other):
            assert np.array_equal(found.gradients.view(np.uint32), free.gradients.view(np.uint32))
            assert found.total_cycles >= free.total_cycles
            assert found.loss == free.loss
    assert (one.total_cycles > free.total_cycles) == (buffer < 100)


SLOW = {
    "link": {"link.rate": 10**8},
    "node": {"node.rate": 10**8},
    "update": {"update.rate": 5 * 10**6},
    "round trip": {"update.latency": 50_000},
    "flash": {"dram.bytes": 1000, "flash.rate": 10**8},
    "buffer": {"link.buffer": 8, "link.turn": 200},
}


@pytest.mark.parametrize("name", SLOW)
def test_what_is_slow_is_the_bottleneck_and_takes_what_arithmetic_says(name):
    """Links, nodes, updates, flash, latency and room: each in turn too slow for the wafers, which wait for it."""
    case = Case((12, 8, 4), 2, 2, 2, wafers=2)
    numbers = {"link.planes": 1, "node.latency": 0, "update.latency": 0, "update.rate": 10**12}
    as_it_is, slow = case.system(numbers), case.system(numbers | SLOW[name])
    for _ in range(3):
        free, found = as_it_is.train(case.shards), slow.train(case.shards)
    assert as_it_is.bottleneck == "wafers"
    assert free.boundary < 0.02 * free.total_cycles
    assert slow.bottleneck == name
    assert found.cycles == free.cycles == slow.unhindered("train").cycles
    weights = sum(matrix.pattern.count for matrix in case.matrices)
    least = {  # cycles between two iterations that nothing can hide, at 0.85 GHz
        "link": found.words * 32 / 10**8 * 0.85e9,
        "node": found.words * 32 / 10**8 * 0.85e9,
        "update": weights / (5 * 10**6) * 0.85e9,
        "round trip": 0.85 * 50_000,
        "flash": weights * 16 / 10**8 * 0.85e9,  # written: weight, two moments, what is streamed
        "buffer": found.words / 2 * 170,  # two words at a time
    }[name]
    assert found.total_cycles > 0.95 * least > 1.5 * free.total_cycles
    most = {"round trip": found.cycles, "flash": 1.5 * least, "buffer": 0.5 * least}.get(name, 0.2 * least)
    assert found.total_cycles < least + most + found.cycles
    again = {key: type(value)(value // 2) for key, value in SLOW[name].items() if key.endswith("rate")}
    if again:  # half the rate, twice the time
        slower = case.system(numbers | SLOW[name] | again)
        for _ in range(3):
            found2 = slower.train(case.shards)
        assert 1.7 < found2.total_cycles / found.total_cycles < 2.1


def test_weights_leave_while_gradients_still_come():
    """An iteration's first words are at the wafers before those have ended the one before."""
    case = Case((16, 16, 4), 2, 1, 4, wafers=2)
    system = case.system({"update.latency": 1000, "node.latency": 100})
    system.train(case.shards)
    before = system.clock
    found = system.train(case.shards)
    weights = system.coordinator.script("train").sources[system.coordinator.script("train").sequence] >= 0
    assert system.down.sent[: system.down.known][weights].min() < before - 1000
    assert found.boundary == 0


def test_a_gradient_that_is_not_finite_sends_the_old_weights_again_after_the_last_one():
    case = Case((16, 16, 4), 2, 1, 4)
    system = case.system({"update.latency": 1000})
    system.train(case.shards)
    ended = system.clock
    system.train(case.shards, 2.0**100)
    came = system.service.settled
    assert came > ended
    system.train(case.shards)
    carries = system.coordinator.script("train").sources[system.coordinator.script("train").sequence] >= 0
    assert system.down.sent[carries].min() >= came


def test_words_are_the_same_for_any_number_of_wafers_and_go_over_every_plane_in_turn():
    found = {}
    for wafers in (1, 2, 5):
        case = Case((40, 30, 8), 2, 1, 1, wafers=wafers)
        system = case.system({"link.planes": 3})
        done = system.train(case.shards)
        found[wafers] = done.words, done.gradient_words
        if wafers > 1:
            down, up = zip(*(system.tree.bytes_of(plane) for plane in range(3)), strict=True)
            assert (sum(down), sum(up)) == (4 * done.words, 4 * done.gradient_words)
            assert min(down) > 0.2 * sum(down)
    assert len(set(found.values())) == 1


def test_more_parameters_than_the_service_has_room_for_are_refused():
    with pytest.raises(ConfigError, match="memory service has"):
        Case((9, 9)).system({"capacity.most": 1000})


def test_the_boundary_of_the_digits_is_the_round_trip_less_layer_1():
    """64 - 32 - 10 features on two wafers: what layer 1's shorter pass does not hide, to one row."""
    case = Case((64, 32, 10), 4, 4, 8, wafers=2)
    system = case.system()
    found = [system.train(case.shards) for _ in range(3)]
    script, free = system.coordinator.script("train"), system.unhindered("train")
    sent = np.searchsorted(script.starts, script.sequence, "right") - 1
    begins = [np.array(before)[sent] + script.starts[sent] for _, before in script.phases]
    stretch = sum((script.sequence >= begin).astype(int) for begin in begins) - 1
    forward = free.entered[stretch == 0].max()
    round_trip = 0.85 * (1000 + 10_000 + 1000)
    row = forward / 32
    assert abs(found[-1].boundary - max(0, round_trip - forward)) < row
    assert [done.total_cycles for done in found[1:]] == [40_534, 40_534]
    assert found[-1].cycles == free.cycles == 39_559


def test_words_that_pass_others_on_another_plane_are_marked_whole():
    """After tests the first plane is behind, since every pass begins on it; marks begin before they end."""
    marks, case = [], Case((64, 32, 10), 4, 4, 8, wafers=2)
    system = case.system(form="pairs", mark=lambda begin, label, track, end: marks.append((label, begin, end)))
    system.train(case.shards)
    for _ in range(6):
        system.test(*(np.concatenate(parts, axis=1) for parts in zip(*case.shards, strict=True)))
    system.train(case.shards)
    assert system.down.sent[0] > system.down.sent[-1]
    assert all(begin <= end for _, begin, end in marks)
    (_, begin, end) = [mark for mark in marks if mark[0] == "weights and commands"][-1]
    assert begin <= system.down.sent.min() < system.down.sent.max() <= end


def test_flash_is_read_of_weights_that_exist_however_rows_are_sent():
    """Zeros that fill gaps lie nowhere; a weight that exists is read with its index."""
    case = Case((9, 8, 4), 2, 1, 1, density=0.7, seed=3)
    flash = {"dram.bytes": 300, "flash.rate": 10**8}
    read, words = {}, {}
    for form in ("pairs", "steps"):
        system = case.system(flash, form=form)
        script = system.coordinator.script("train")
        read[form], words[form] = system.service.read(script, update=True), script.n_words
        system.train(case.shards)
        written = sum(12 * matrix.dense.size + 4 * matrix.pattern.count for matrix in case.matrices)
        assert system.up._written.sum() == pytest.approx(written)  # state of all, copies of those that exist
        system.close()
    assert read["pairs"].sum() == read["steps"].sum() > 0
    assert words["pairs"] < words["steps"]
