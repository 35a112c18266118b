"""Phases, masks and learning rates."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.train.config import parse_train
from harness.train.sparsity import MaskPhase, initial_masks, learning_rate, moved, phase_at, phases
from harness.train.tables import ScheduleConfig, SparsityConfig
from wse_core.errors import ConfigError

TEXT = """
[network]
inputs = 20
layers = [{outputs = 16}, {outputs = 12}, {outputs = 4}]
[data]
source = "x.npz"
[train]
iterations = 50
[sparsity]
"""

PUBLISHED = (0.20, 0.36, 0.50, 0.60, 0.70, 0.799, 0.838, 0.865, 0.891)
"""Sparsities of iterative pruning in the white paper, section 6.2.2."""


def test_iterative_pruning_follows_the_published_sparsities():
    found = phases(SparsityConfig(schedule="pruning", densities=tuple(1 - s for s in PUBLISHED)), 200)
    assert [round(1 - phase.density, 3) for phase in found] == [0, *PUBLISHED]
    assert [phase.begin for phase in found] == list(range(0, 200, 20))
    by_fraction = phases(SparsityConfig(schedule="pruning", rounds=2, fraction=0.2), 9)
    assert [phase.density for phase in by_fraction] == pytest.approx([1, 0.8, 0.64])


def test_the_other_schedules():
    assert phases(SparsityConfig(density=0.25), 10) == (MaskPhase(0, 10, 0.25),)
    found = phases(SparsityConfig(density=0.25, schedule="dense-finetune", switch=0.7), 10)
    assert found == (MaskPhase(0, 7, 0.25), MaskPhase(7, 10, 1.0))
    assert [phase_at(found, k) for k in (0, 6, 7, 9)] == [found[0], found[0], found[1], found[1]]
    with pytest.raises(ConfigError, match="1 iteration for 2 phases"):
        phases(SparsityConfig(density=0.25, schedule="dense-finetune"), 1)


@given(
    st.sampled_from(["constant", "cosine", "step", "linear", "inverse-root"]),
    st.integers(0, 5),
    st.integers(6, 40),
    st.integers(0, 100),
)
def test_learning_rates(kind, warmup, length, begin):
    schedule = ScheduleConfig(kind, warmup, 0.1, 7, 0.5)
    found = [learning_rate(schedule, 0.4, MaskPhase(begin, begin + length, 1), begin + k) for k in range(length)]
    assert found[:warmup] == pytest.approx([0.4 * (k + 1) / warmup for k in range(warmup)])
    assert found[warmup] == pytest.approx(0.4)
    falling = found[warmup:]
    assert all(a >= b for a, b in pairwise(falling))
    for k, value in enumerate(falling):
        expected = {
            "constant": 0.4,
            "linear": 0.04 + 0.36 * (1 - k / (length - warmup)),
            "inverse-root": 0.4 / math.sqrt(1 + k / max(1, warmup)),
            "step": 0.4 * 0.5 ** (k // 7),
            "cosine": 0.04 + 0.36 * (1 + math.cos(math.pi * k / (length - warmup))) / 2,
        }[kind]
        assert value == pytest.approx(expected)


def test_one_cycle_rises_and_falls():
    schedule = ScheduleConfig("one-cycle", floor=0.01, rise=0.25)
    found = [learning_rate(schedule, 0.5, MaskPhase(10, 50, 1), 10 + k) for k in range(41)]
    assert found[0] == pytest.approx(0.5 / 25)
    assert found[5] == pytest.approx(0.5 * (1 + 1 / 25) / 2)
    assert found[10] == 0.5 == max(found)
    assert found[25] == pytest.approx(0.5 * 1.01 / 2)
    assert found[40] == pytest.approx(0.005)
    assert sorted(found[:11]) == found[:11]
    assert sorted(found[10:], reverse=True) == found[10:]
    assert learning_rate(ScheduleConfig("one-cycle", rise=0.0), 1.0, MaskPhase(0, 10, 1), 0) == 1.0


def test_every_phase_rewinds_the_learning_rate():
    found = phases(SparsityConfig(schedule="pruning", rounds=3, fraction=0.2), 40)
    rates = [learning_rate(ScheduleConfig("cosine"), 1.0, phase_at(found, k), k) for k in range(40)]
    assert rates[:10] == rates[10:20] == rates[20:30] == rates[30:]
    assert rates[0] == 1.0


@given(st.floats(0.01, 1), st.integers(0, 20))
def test_masks_have_exactly_the_density(density, seed):
    config = parse_train(f"{TEXT}density = {density}\nseed = {seed}\n")
    first, second = initial_masks(config), initial_masks(config)
    for mask, again, shape in zip(first, second, ((16, 20), (12, 16), (4, 12)), strict=True):
        assert mask.shape == shape
        assert mask.sum() == max(1, round(density * mask.size))
        assert np.array_equal(mask, again)


@given(st.floats(0.1, 1))
def test_wide_layers_have_as_many_weights(density):
    config = parse_train(f'{TEXT}density = {density}\nschedule = "sparse-ift"\n')
    assert config.widths[1:3] == tuple(round(width / math.sqrt(density)) for width in (16, 12))
    assert [int(mask.sum()) for mask in initial_masks(config)] == [320, 192, 48]


@given(st.integers(0, 100), st.floats(0.05, 1))
def test_pruning_keeps_the_largest(seed, density):
    rng = np.random.default_rng(seed)
    weights, mask = rng.standard_normal((7, 9)).astype(np.float32), rng.random((7, 9)) < 0.8
    found = moved(weights, mask, density)
    keep = max(1, round(density * 63))
    if density == 1:
        assert found.all()
        return
    assert found.sum() == min(keep, mask.sum())
    assert not (found & ~mask).any()
    gone = mask & ~found
    if gone.any():
        assert np.abs(weights[found]).min() >= np.abs(weights[gone]).max()
    assert moved(weights, ~mask, 1.0).all()
