"""Schedules as an event simulation, and a real network trained under each."""

from __future__ import annotations

import importlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plan.checkpoints import Store, media
from harness.plan.hardware import A100
from harness.plan.models import find_model
from harness.plan.schedules import COMPUTE, KINDS, Schedule, order, owner, simulate
from harness.plan.strategies import Degrees
from harness.plan.tensors import TensorAdam, TensorTrainer, plain_gradients, random_layers
from wse_core.errors import ConfigError, UnsupportedError

durations = st.sampled_from([0.0, 0.3, 1.0, 7.0])
schedules = st.builds(
    lambda kind, layers, count, devices, **rest: Schedule(kind, layers, count, min(devices, layers), **rest),
    st.sampled_from(KINDS),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    partitioned=st.booleans(),
    restore=durations,
    reduce=durations,
    transfer=durations,
    gradient_buffers=st.integers(1, 3),
)


def batch(samples, width, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(samples, width)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize(
    ("shape", "bubble"),
    [
        (("standard", 16, 4, 4), 0.75),
        (("modular", 16, 4, 4), 0.1875),
        (("standard", 160, 5, 5), 0.8),
        (("modular", 160, 5, 5), 0.025),
        (("modular", 16, 2, 4), 1.125),
        (("layered", 16, 4, 4), 2.4375),
        (("modular", 4, 4, 4), 0.75),
        (("standard", 4, 4, 4), 0.75),
        (("layered", 16, 4, 1), 0),
    ],
)
def test_bubbles(shape, bubble):
    assert simulate(Schedule(*shape)).bubble == pytest.approx(bubble)


def test_restores_and_reductions():
    counts = {kind: simulate(Schedule(kind, 4, 4, partitioned=True)) for kind in ("standard", "layered")}
    assert [(t.count("restore"), t.count("reduce")) for t in counts.values()] == [(28, 16), (7, 4)]


@pytest.mark.parametrize(("kind", "window"), [("standard", 3), ("layered", 12)])
def test_window_of_the_reduction(kind, window):
    """In steps of a backward pass: how much is left to compute when the first reduction can begin."""
    timeline = simulate(Schedule(kind, 4, 4, recompute=0, gradient=1, reduce=0.001))
    first = min(span.start for span in timeline.of("reduce", device=0))
    left = (s for s in timeline.of("forward", "recompute", "gradient", device=0) if s.start >= first)
    assert sum(span.end - span.start for span in left) == window


def test_only_the_last_reduction_shows_when_it_fits():
    assert simulate(Schedule("layered", 4, 4, reduce=12.0)).exposed == 12
    assert simulate(Schedule("standard", 4, 4, reduce=12.0)).exposed == 39
    assert simulate(Schedule("standard", 16, 4, 4, reduce=6.0)).exposed == 15
    assert simulate(Schedule("modular", 16, 4, 4, reduce=6.0)).exposed == 6


def test_layers_and_order():
    modular, standard = Schedule("modular", 16, 4, 4), Schedule("standard", 16, 4, 4)
    assert [n for n in range(16) if owner(modular, n) == 0] == [0, 4, 8, 12]
    assert [n for n in range(16) if owner(standard, n) == 0] == [0, 1, 2, 3]

    def micros(schedule, device, name, layer):
        return [micro for step, at, micro in order(schedule, device) if (step, at) == (name, layer)]

    for device in range(4):
        assert micros(modular, device, "forward", device) == [0, 1, 2, 3]
        assert micros(modular, device, "backward", device) == [3, 2, 1, 0]
        for name in ("forward", "backward"):
            assert micros(standard, device, name, 4 * device) == [0, 1, 2, 3]


def test_transfers_are_hidden_by_one_more_micro_batch():
    ratio = 0.0378
    for count, hidden in ((5, False), (6, True)):
        quiet, busy = (simulate(Schedule("modular", 160, count, 5, transfer=t)).bubble for t in (0.0, ratio))
        assert (busy - quiet < 1e-3) is hidden
    sends = [simulate(Schedule(kind, 16, 4, 4)).count("send") for kind in ("standard", "modular")]
    assert sends == [2 * 3 * 4, 2 * 15 * 4]


def test_buffers_stay_within_the_mixed_scheme():
    for kind in ("standard", "layered"):
        timeline = simulate(Schedule(kind, 6, 3, partitioned=True, restore=1.0, reduce=1.0))
        assert (timeline.peak("parameters"), timeline.peak("gradients")) == (2, 1)
    assert simulate(Schedule("layered", 6, 3)).peak("checkpoint") == 18
    assert simulate(Schedule("standard", 6, 3)).peak("checkpoint") == 6
    assert all(simulate(Schedule(kind, 6, 3, 2)).peak("activations") == 1 for kind in KINDS)


def test_one_gradient_buffer_hides_a_reduction_behind_one_recomputation_only():
    def bubble(**rest):
        timeline = simulate(Schedule("layered", 4, 4, partitioned=True, **rest))
        return timeline.bubble * timeline.busy

    assert bubble(reduce=1.0) == 0
    assert bubble(reduce=6.0) == 3 * 5
    assert bubble(reduce=6.0, gradient_buffers=2) == 0


@given(schedules)
def test_dependencies_hold(schedule):
    timeline = simulate(schedule)
    end = {(s.kind, s.layer, s.micro): s.end for s in timeline.of(*COMPUTE)}
    begin = {(s.kind, s.layer, s.micro): s.start for s in timeline.of(*COMPUTE)}
    last = schedule.layers - 1
    assert len(end) == 3 * schedule.layers * schedule.count
    for layer in range(schedule.layers):
        for micro in range(schedule.count):
            if layer:
                hop = schedule.transfer * (owner(schedule, layer) != owner(schedule, layer - 1))
                assert begin["forward", layer, micro] >= end["forward", layer - 1, micro] + hop - 1e-9
                assert begin["gradient", layer - 1, micro] >= end["gradient", layer, micro] + hop - 1e-9
            assert begin["recompute", last, micro] >= end["forward", last, micro]
            assert begin["gradient", layer, micro] >= end["recompute", layer, micro]
    for device in range(schedule.devices):
        for lane in (COMPUTE, ("restore", "reduce")):
            spans = timeline.of(*lane, device=device)
            assert all(a.end <= b.start + 1e-9 for a, b in pairwise(spans))
    if schedule.partitioned:
        assert timeline.peak("parameters") <= 2
        assert timeline.peak("gradients") <= schedule.gradient_buffers
    assert timeline.bubble >= -1e-9


@given(schedules, st.integers(1, 3), st.integers(1, 5), st.integers(0, 99))
def test_every_schedule_trains_like_plain_training(schedule, ranks, width, seed):
    inputs, targets = batch(2 * ranks * schedule.count, width, seed)
    parameters = random_layers(schedule.layers, width, seed)
    want = plain_gradients(parameters, inputs, targets)
    optimizer = TensorAdam(epsilon=1e-2)
    trainer = TensorTrainer(parameters, ranks, schedule.partitioned, optimizer)
    trainer.train(schedule, inputs, targets)
    scale = np.abs(want).max()
    assert np.abs(np.stack(trainer.gradients) - want).max() <= 1e-5 * scale
    plain = np.stack([parameters, np.zeros_like(parameters), np.zeros_like(parameters)])
    optimizer.update(plain, want, 1)
    np.testing.assert_allclose(trainer.parameters, plain[0], rtol=1e-5, atol=1e-5)
    again = TensorTrainer(parameters, ranks, schedule.partitioned, optimizer)
    again.train(schedule, inputs, targets)
    assert np.array_equal(trainer.parameters, again.parameters)


def test_plain_gradients_are_finite_differences():
    inputs, targets = batch(6, 3)
    parameters = random_layers(2, 3).astype(np.float64)

    def loss(values):
        x = inputs.astype(np.float64)
        for flat in values:
            x = x + np.tanh(x @ flat[:9].reshape(3, 3) + flat[9:])
        return 0.5 * ((x - targets) ** 2).sum() / len(inputs)

    found = plain_gradients(parameters.astype(np.float32), inputs, targets)
    for place in ((0, 0), (0, 10), (1, 5)):
        step = np.zeros_like(parameters)
        step[place] = 1e-5
        slope = (loss(parameters + step) - loss(parameters - step)) / 2e-5
        assert found[place] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_four_schedules_agree_over_several_batches():
    parameters, results = random_layers(6, 5), []
    for kind, devices in (("standard", 1), ("layered", 1), ("standard", 3), ("modular", 3)):
        for partitioned in (False, True):
            trainer = TensorTrainer(parameters, 2, partitioned, TensorAdam(epsilon=1e-2))
            for seed in range(3):
                trainer.train(Schedule(kind, 6, 3, devices, partitioned, restore=0.7, reduce=2.3), *batch(12, 5, seed))
            results.append(trainer.parameters)
    assert all(np.allclose(result, results[0], rtol=1e-5, atol=1e-5) for result in results)
    assert not np.allclose(results[0], parameters, atol=1e-3)


@pytest.mark.parametrize("partitioned", [False, True])
def test_elastic_equals_fixed(partitioned):
    schedule = Schedule("modular", 4, 2, 2, partitioned)
    batches = [batch(24, 4, seed) for seed in range(4)]
    fixed, elastic = (TensorTrainer(random_layers(4, 4), 2, partitioned, TensorAdam(epsilon=1e-2)) for _ in range(2))
    for data, degree in zip(batches, (2, 4, 4, 3), strict=True):
        fixed.train(schedule, *data)
        elastic.resize(degree)
        elastic.train(schedule, *data)
    np.testing.assert_allclose(elastic.parameters, fixed.parameters, rtol=1e-5, atol=1e-6)
    before = [elastic.whole(layer) for layer in range(4)]
    elastic.resize(5)
    assert all(np.array_equal(elastic.whole(layer), old) for layer, old in enumerate(before))


class Crash(Exception):
    """The power went."""


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("lost_after", [1, 2, 4])
def test_a_crash_loses_at_most_a_batch(tmp_path, partitioned, lost_after):
    schedule = Schedule("modular", 4, 2, 2, partitioned, reduce=0.5)
    batches = [batch(8, 4, seed) for seed in range(4)]
    whole = TensorTrainer(random_layers(4, 4), 2, partitioned)
    for data in batches:
        whole.train(schedule, *data)
    store, updates = Store(tmp_path, 4), []

    def hook(trainer, layer):
        store.save(trainer, layer)
        updates.append(layer)
        if len(updates) == 2 * 4 + lost_after:
            raise Crash

    broken = TensorTrainer(random_layers(4, 4), 2, partitioned, on_update=hook)
    with pytest.raises(Crash):
        for data in batches:
            broken.train(schedule, *data)
    fresh = TensorTrainer(random_layers(4, 4, seed=9), 2, partitioned, on_update=store.save)
    version = store.restore(fresh)
    assert version == (3 if lost_after == 4 else 2)
    for data in batches[version:]:
        fresh.train(schedule, *data)
    assert all(np.array_equal(fresh.whole(layer), whole.whole(layer)) for layer in range(4))
    assert store.found() == {4: {0, 1, 2, 3}}


def test_a_checkpoint_must_be_there_and_fit(tmp_path):
    store = Store(tmp_path, 2)
    trainer = TensorTrainer(random_layers(2, 3))
    with pytest.raises(ConfigError, match="no complete checkpoint"):
        store.restore(trainer)
    for layer in range(2):
        store.save(trainer, layer)
    with pytest.raises(ConfigError, match="another network"):
        store.restore(TensorTrainer(random_layers(2, 4)))


def test_medium_by_intensity():
    model = find_model("X160")
    best = media(model, Degrees("improved", 1, 5, 483, 5, 16), A100)
    assert best == {"cpu": "layer", "nvme": "layer", "ethernet": "layer", "network": "layer", "disk": "batch"}
    assert media(model, Degrees("baseline", 1, 172, 14, 160, 16), A100)["nvme"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"kind": "modlar"}, "did you mean modular"),
        ({"devices": 7}, "7 devices exceed the 4 layers"),
        ({"count": 0}, "whole number from 1"),
        ({"restore": -1.0}, "no duration"),
    ],
)
def test_impossible_schedules(words, says):
    with pytest.raises(ConfigError, match=says):
        Schedule(**({"kind": "modular", "layers": 4, "count": 2} | words))


def test_batches_that_do_not_divide():
    trainer = TensorTrainer(random_layers(2, 3), 2)
    with pytest.raises(ConfigError, match="7 samples do not divide over 2 ranks with 3"):
        trainer.train(Schedule("layered", 2, 3), *batch(7, 3))
    with pytest.raises(ConfigError, match="another network"):
        trainer.train(Schedule("layered", 3, 3), *batch(6, 3))
    with pytest.raises(ConfigError, match="at least one"):
        trainer.resize(0)


def test_without_simpy_one_clear_message(monkeypatch):
    real = importlib.import_module

    def refuse(name, *rest):
        if name == "simpy":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UnsupportedError, match=r"SimPy, which is not installed.*wse-sim\[plan\]"):
        simulate(Schedule("layered", 2, 2))
