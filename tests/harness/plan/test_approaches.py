"""Cost models of stored and streamed weights."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plan import approaches
from harness.plan.hardware import CS2
from harness.plan.models import PRESETS, TensorSize, TransformerSizes
from harness.plan.schedules import Schedule
from harness.plan.units import GB, WEEK
from wse_core.errors import ConfigError

GPT3 = PRESETS["gpt-3"]
DEGREES = {"data": 64, "tensor": 16, "pipeline": 8}
models = st.builds(
    TransformerSizes, st.just("random"), st.sampled_from([8, 16, 96]), st.sampled_from([64, 640]), st.integers(1, 4096)
)
degree = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(
    ("approach", "used", "want"),
    [
        ("data", ["data"], (5.898e10, 1.750e11, 1.750e11)),
        ("pipeline", ["pipeline"], (4.530e9, 2.188e10, 3.932e10)),
        ("data+tensor+pipeline", ["data", "tensor", "pipeline"], (2.831e8, 1.367e9, 3.210e9)),
    ],
)
def test_gpt3_in_elements(approach, used, want):
    parts = approaches.stored(GPT3, approach, 1562.5, **{name: DEGREES[name] for name in used})
    assert (parts.activations, parts.parameters, parts.traffic) == pytest.approx(want, rel=5e-4)


def test_fully_sharded_keeps_a_share_and_a_layer():
    assert approaches.stored(GPT3, "fsdp", 1562.5, data=64).parameters == pytest.approx(4.557e9, rel=5e-4)


@given(models, degree, degree, st.sampled_from([64.0, 128.0]), st.booleans())
def test_hybrids_collapse_to_their_parts(model, one, other, batch, square):
    def of(approach, **degrees):
        # A pipeline of one stage that takes its whole share at once is no pipeline.
        shard = batch / degrees.get("data", 1) if degrees.get("pipeline", 1) == 1 else 1
        return approaches.stored(model, approach, batch, square=square, shard=shard, **degrees)

    assert of("data+tensor", data=one) == of("data+pipeline", data=one) == of("data", data=one)
    assert of("data+tensor", tensor=one) == of("tensor", tensor=one)
    assert of("data+pipeline", pipeline=one) == of("pipeline", pipeline=one)
    three = "data+tensor+pipeline"
    for first, second in (("data", "tensor"), ("data", "pipeline")):
        degrees = {first: one, second: other}
        assert of(three, **degrees) == of(f"{first}+{second}", **degrees)
    assert of(three).traffic == 0


@given(models, st.sampled_from([64.0, 128.0]))
def test_memory_and_traffic_are_monotone(model, batch):
    for approach, name in (("data", "data"), ("tensor", "tensor"), ("fsdp", "data")):
        parts = [approaches.stored(model, approach, batch, **{name: n}) for n in (2, 4, 8, 16)]
        assert all(a.memory > b.memory for a, b in pairwise(parts))
        assert all(a.traffic >= b.traffic for a, b in pairwise(parts))
    parts = [approaches.stored(model, "pipeline", batch, pipeline=n) for n in (2, 4, 8)]
    assert all(a.activations < b.activations for a, b in pairwise(parts))
    assert len({part.traffic for part in parts}) == 1


def test_stages_buffer_what_is_on_its_way():
    assert approaches.buffered_shards(8) == [15, 13, 11, 9, 7, 5, 3, 1]


def test_one_forward_one_backward_needs_that_many_buffers():
    """Simulated independently of the formula: a shard enters every two steps and comes back after the round trip."""
    stages, shards = 8, 40
    alive = [[] for _ in range(stages)]
    for shard in range(shards):
        for stage in range(stages):
            arrive = shard + stage
            leave = shard + 2 * (stages - 1) - stage  # one step per stage forward and backward
            alive[stage].append((arrive, leave))
    most = [max(sum(a <= now <= b for a, b in spans) for now in range(3 * shards)) for spans in alive]
    assert most == approaches.buffered_shards(stages)


def test_service_and_optimizers():
    assert approaches.service_bytes(GPT3) == 20 * GPT3.parameters
    assert approaches.service_bytes(GPT3, momenta=0) == 12 * GPT3.parameters
    with pytest.raises(ConfigError, match="3 momenta"):
        approaches.service_bytes(GPT3, momenta=3)


def test_rates():
    assert approaches.operations(GPT3) == 3.15e23
    assert approaches.target_rate(GPT3, 2 * WEEK) == approaches.target_rate(GPT3) / 2
    assert 8 * approaches.link_rate(GPT3) == pytest.approx(868e9, rel=1e-3)


@pytest.mark.parametrize(
    ("degrees", "says"),
    [
        ({"data": 2000}, "1562.5, the sequences in the batch"),
        ({"tensor": 13000}, "12288, the features"),
        ({"pipeline": 97}, "96, the layers"),
        ({"data": 0}, "between 1 and"),
        ({"data": 64, "shard": 50}, "more than the 24.4"),
    ],
)
def test_impossible_degrees_name_their_bound(degrees, says):
    with pytest.raises(ConfigError, match=says):
        approaches.stored(GPT3, "data+tensor+pipeline", 1562.5, **degrees)
    with pytest.raises(ConfigError, match="has no pipeline degree"):
        approaches.stored(GPT3, "data", 1562.5, pipeline=2)
    with pytest.raises(ConfigError, match="did you mean"):
        approaches.stored(GPT3, "dat", 1562.5)


@pytest.mark.parametrize(
    "model",
    [
        TransformerSizes("genome small", 12, 768, 10240, total=123e6),
        TransformerSizes("genome large", 64, 5120, 10240, total=25e9),
        TransformerSizes(
            "segmentation",
            1,
            64,
            1,
            tensors=[TensorSize(name=f"block {i}", elements=64 * 25_000_000 >> 2 * i) for i in range(5)],
        ),
    ],
)
def test_long_sequences_and_large_images_fit_a_wafer(model):
    found = approaches.streaming(model, CS2, 1)
    assert 0 < found["bytes"] <= 40 * GB
    assert found["parameters resident"] == 0


def test_what_does_not_fit_is_named():
    model = TransformerSizes("wide", 10, 100_000, 100_000)
    with pytest.raises(ConfigError, match=r"activations of layer 3 does not fit.*at most|one sample"):
        approaches.streaming(model, CS2, 1)
    with pytest.raises(ConfigError, match="at most 8 samples"):
        approaches.streaming(GPT3, CS2, 9)


def test_streamed_weights_take_no_memory():
    deep = dataclasses.replace(GPT3, layers=10 * GPT3.layers, total=10 * GPT3.total)
    assert approaches.streaming(deep, CS2, 0.1)["parameters resident"] == 0
    assert approaches.streaming(deep, CS2, 0.1)["bytes"] == pytest.approx(
        10 * approaches.streaming(GPT3, CS2, 0.1)["bytes"]
    )


@given(st.integers(1, 1561))
def test_more_systems_are_never_slower(systems):
    fewer, more = (approaches.streaming_run(GPT3, CS2, n) for n in (systems, systems + 1))
    assert more["seconds"] <= fewer["seconds"]
    assert more["bytes"] <= CS2.memory


def test_fewest_systems_for_a_time():
    found = approaches.streaming_run(GPT3, CS2, seconds=6 * WEEK)
    assert found["seconds"] <= 6 * WEEK < approaches.streaming_run(GPT3, CS2, found["systems"] - 1)["seconds"]
    with pytest.raises(ConfigError, match="1 and 1562, the sequences"):
        approaches.streaming_run(GPT3, CS2, 5000)
    with pytest.raises(ConfigError, match="too few"):
        approaches.streaming_run(GPT3, CS2, seconds=3600)


def test_schedule_errors_are_the_same_kind():
    with pytest.raises(ConfigError, match="exceed the 4 layers"):
        Schedule("modular", 4, 4, 5)
