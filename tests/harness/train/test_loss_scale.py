"""Dynamic loss scaling: it doubles after good iterations, halves after bad ones, and goes on from its state."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.train.config import parse_train
from harness.train.loss_scale import LossScale, largest_scale
from wse_core import numerics
from wse_core.errors import CheckpointError, TrainingError
from wse_core.params import machine

TEXT = """
[network]
inputs = 64
layers = [{outputs = 10}]
[csconfig]
use_cbfloat16 = true
[train]
iterations = 5
"""


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_the_rule(finite, interval):
    """A model of the rule in logarithms: +1 after `interval` good iterations in a row, -1 after a bad one."""
    scale, power, good = LossScale(2.0**10, interval, True, 2.0**15), 10, 0
    for is_good in finite:
        if not is_good and power == -14:
            with pytest.raises(TrainingError):
                scale.update(False)
            return
        assert scale.update(is_good) is not is_good
        good = good + 1 if is_good else 0
        power -= not is_good
        if good >= interval and power < 15:
            power, good = power + 1, 0
        assert scale.value == 2.0**power


@given(st.lists(st.booleans(), max_size=20), st.lists(st.booleans(), max_size=20))
def test_a_state_goes_on(before, after):
    first, second = LossScale(1.0, 3, most=2.0**31), LossScale(2.0, 3, most=2.0**31)
    for finite in [True] * 100 + before:
        first.update(finite)
    second.restore(json.loads(json.dumps(first.state())))
    for finite in after:
        assert first.update(finite) == second.update(finite)
        assert first == second


def test_a_static_scale_stays_and_an_overflow_ends_training():
    scale = LossScale(8.0, 1, dynamic=False)
    assert not scale.update(True)
    assert scale.value == 8.0
    with pytest.raises(TrainingError, match="iteration 7: gradients are not finite with a loss scale of 8"):
        scale.update(False, 7)


@pytest.mark.parametrize(
    ("dtype", "initial", "dynamic", "most"),
    [("f16", 2.0**15, True, 2.0**15), ("cb16", 1.0, True, 2.0**20), ("bf16", 1.0, False, 1.0)],
)
def test_defaults_follow_the_format(dtype, initial, dynamic, most):
    text = TEXT.replace("use_cbfloat16 = true", f"use_cbfloat16 = {str(dtype == 'cb16').lower()}")
    scale = LossScale.of(parse_train(f'{text}dtype = "{dtype}"\n'))
    assert (scale.value, scale.dynamic, scale.most) == (initial, dynamic, most)


@pytest.mark.parametrize(("bias", "most"), [(42, 20), (62, 0), (31, 31), (30, 31), (41, 21)])
def test_no_scale_of_cb16_exceeds_what_its_bias_leaves(bias, most):
    changed = machine("wse2", {"num.cb16_bias": bias})
    assert largest_scale("cb16", changed) == 2.0**most
    encoded = numerics.encode(2.0**most, "cb16", bias)
    assert numerics.decode(encoded, "cb16", bias) == 2.0**most, "the scale itself is a number of the format"
    scale = LossScale(1.0, 1, most=largest_scale("cb16", changed))
    for _ in range(70):
        scale.update(True)
    assert scale.value == 2.0**most


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"value": 3.0, "good": 0},
        {"value": "x", "good": 0},
        {"value": 0.0, "good": 0},
        {"value": float("inf"), "good": 0},
        {"value": 2.0, "good": -1},
        {"value": 2.0},
    ],
)
def test_damaged_states(state):
    scale = LossScale()
    with pytest.raises(CheckpointError):
        scale.restore(state)
    assert scale == LossScale()
