"""Samples that are numbers of tokens: wafers look them up, with the bits that ones among zeros give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.networks.graph.lookup import looks_up
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset
from harness.train.text import TokenRows
from harness.train.trainer import Trainer
from wse_core.errors import ConfigError


@st.composite
def trainings(draw):
    """Draw tables of a configuration, and a data set of numbers of tokens."""
    tokens, sequence, tables = draw(st.integers(2, 11)), draw(st.sampled_from((1, 2, 4))), draw(st.integers(0, 2))
    wafers, height, width = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    per_pe, features, cb16 = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.booleans())
    groups, parts = draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 2))
    batch = wafers * height * groups * per_pe * sequence * parts
    place = draw(st.sampled_from([(sequence, 0, 1), (sequence + 2, 2, 1), (1, 0, 0)]))
    tied, twice = draw(st.booleans()), draw(st.booleans())
    nodes = [{"name": "embed", "op": "linear", "outputs": features, "bias": draw(st.booleans())}]
    if twice:
        nodes += [{"name": "other", "op": "linear", "inputs": ["input"], "outputs": features, "bias": True}]
        nodes += [{"name": "both", "op": "add", "inputs": ["embed", "other"]}]
    nodes += [{"name": "next", "op": draw(st.sampled_from(("relu", "rms", "gelu")))}] * draw(st.integers(0, 1))
    nodes.append({"name": "head", "op": "linear", "outputs": tokens, "bias": draw(st.booleans())})
    network = {"inputs": tokens + tables * place[0], "nodes": nodes, "places": place * tables}
    if draw(st.booleans()):
        network |= {"token_scale": 3.0, "place_scales": (0.3, 1.0)[:tables]}
    train = {"iterations": 2, "dtype": "cb16" if cb16 else "f16", "optimizer": {"name": "adam", "lr": 0.05}}
    train |= {"accumulate": parts, "label_smoothing": draw(st.sampled_from((0.0, 0.0, 0.2)))}
    found = {"network": network, "train": train, "wafers": wafers, "csconfig": {"use_cbfloat16": cb16}}
    found["mesh"] = {"width": width * groups, "height": height, "column_groups": groups}
    found["data"] = {"source": "digits", "batch": batch, "sequence": sequence, "labels": "token"}
    if draw(st.booleans()) and not twice:
        network["padding"] = draw(st.integers(0, tokens - 1))
    if tied and not twice:
        network["tied"] = "head"
    elif "padding" not in network and draw(st.booleans()):
        found["sparsity"] = {"density": 0.5}
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids = rng.integers(0, tokens, 2 * batch)
    labels = np.where(rng.random(2 * batch) < 0.2, -1, rng.integers(0, tokens, 2 * batch))
    labels[0] = 0
    scales = network.get("token_scale", 1.0), network.get("place_scales", ())
    rows = TokenRows(ids, tokens, sequence, network["places"], *scales)
    return found, Dataset(rows, labels, rows, labels)


def trained(tables, data, dense=False, backend=None):
    """Train to the end; return (trainer, losses, cycles, what a test says)."""
    config = TrainConfig.of(**tables)
    given = data
    if dense:  # batches that are handed over are ones among zeros
        service = DataService.of(config, data)
        parts = [service.batch(k) for k in range(2)]
        given = [tuple(np.concatenate(part) for part in zip(*shards, strict=True)) for shards in parts]
        given = [(x, np.where(y < 0, -100, y)) for x, y in given]
    trainer = Trainer(config, backend, given)
    steps = [trainer.step() for _ in range(2)]
    test = trainer.test(data.x_test[:5], data.y_test[:5])
    return trainer, [(step.loss, step.accuracy, step.skipped) for step in steps], [step.cycles for step in steps], test


def bits(trainer):
    return {name: values.tobytes() for name, values in trainer.tensors().items()}


@settings(max_examples=12)
@given(trainings())
def test_numbers_and_ones_among_zeros_give_the_same_bits(drawn):
    smoothed = bool(drawn[0]["train"]["label_smoothing"])
    (one, losses, _, test), (other, expected, _, said) = trained(*drawn), trained(*drawn, dense=True)
    assert [looks_up(one.network), looks_up(other.network), one.network.numbered] == [True, False, not smoothed]
    assert (losses, test, bits(one)) == (expected, said, bits(other))
    oracle, losses, _, test = trained(*drawn, backend="numpy")
    assert (losses, test, bits(oracle)) == (expected, said, bits(one))


SCALED = {
    "network": {
        "inputs": 9,
        "nodes": [{"name": "a", "op": "linear", "outputs": 5}, {"name": "b", "op": "linear", "outputs": 6}],
        "places": (3, 0, 1),
        "token_scale": 2.0,
    },
    "data": {"source": "digits", "batch": 24, "sequence": 3, "labels": "token"},
    "mesh": {"width": 3, "height": 2},
    "train": {"iterations": 2},
}


def few_tokens():
    """Return a data set of numbers of tokens that fits `SCALED`."""
    rng = np.random.default_rng(0)
    rows = TokenRows(rng.integers(0, 6, 48), 6, 3, (3, 0, 1), 2.0, (1.0,))
    labels = rng.integers(-1, 6, 48)
    return Dataset(rows, labels, rows, labels)


def test_both_engines_take_the_same_cycles():
    """What goes to a wafer are two bytes for a token and two for its place."""
    found = [trained(SCALED, few_tokens(), backend=engine) for engine in (None, "reference")]
    assert found[0][1:] == found[1][1:]
    assert bits(found[0][0]) == bits(found[1][0])
    system = found[0][0].compile()
    assert system.resident.words("ids") == 3 * system.resident.tokens  # and ones for the bias
    assert system.resident.words("labels") == system.resident.tokens


def test_samples_that_are_no_numbers_of_tokens_are_refused():
    trainer = Trainer(TrainConfig.of(**SCALED), data=few_tokens())
    with pytest.raises(ConfigError, match="no numbers of tokens"):
        trainer.test(np.ones((6, 9), np.float32), np.zeros(6, np.int64))
