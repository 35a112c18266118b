"""Samples that are numbers of tokens: wafers look them up, with the bits that ones among zeros give."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.networks.graph.lookup import LookupTable, looks_up
from harness.train.config import TrainConfig
from harness.train.data import DataService, Dataset
from harness.train.text import TokenRows
from harness.train.trainer import Trainer
from memx.lookup import chosen_numbers
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


@settings(max_examples=6)
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
    tables = SCALED | {"mesh": {"width": 2, "height": 1}, "data": SCALED["data"] | {"batch": 3}}
    runs = [Trainer(TrainConfig.of(**tables), engine, few_tokens()) for engine in (None, "reference")]
    one, other = (run.step() for run in runs)
    assert (one.loss, one.cycles, one.traffic) == (other.loss, other.cycles, other.traffic)
    assert bits(runs[0]) == bits(runs[1])
    resident = runs[0].compile().resident
    assert one.traffic["samples"] == 2 * 2 * 3
    assert resident.words("ids") == 3 * resident.tokens  # with those of the bias
    assert resident.words("labels") == resident.tokens


def test_samples_that_are_no_numbers_of_tokens_are_refused():
    trainer = Trainer(TrainConfig.of(**SCALED), data=few_tokens())
    with pytest.raises(ConfigError, match="no numbers of tokens"):
        trainer.test(np.ones((6, 9), np.float32), np.zeros(6, np.int64))


@pytest.mark.parametrize("words", [{}, {"memx": {"dram.bytes": 500}}, {"sparsity": {"density": 0.5}}])
def test_a_run_that_goes_on_has_the_same_bits_and_cycles(words):
    """Few of 30 tokens are in a batch; moments of the others decay all the same."""
    network = SCALED["network"] | {"inputs": 33, "places": (3, 0, 1)}
    tables = SCALED | {"network": network, "train": {"iterations": 4, "optimizer": {"name": "adam", "lr": 0.1}}} | words
    rng = np.random.default_rng(1)
    rows = TokenRows(rng.integers(0, 30, 96), 30, 3, (3, 0, 1), 2.0, (1.0,))
    labels = rng.integers(0, 6, 96)
    config, data = TrainConfig.of(**tables), Dataset(rows, labels, rows, labels)
    run, again = Trainer(config, data=data), Trainer(config, data=data)
    before = [run.step() for _ in range(2)]
    tensors, state = run.state()
    again.restore({name: values.copy() for name, values in tensors.items()}, json.loads(json.dumps(state)))
    script = run.compile().coordinator.script("train")
    assert len(script.back) == before[-1].gradient_words < sum(one.dense.size for one in run.parameters)
    old, first = run.matrices[0].dense.copy(), run.iteration
    told = [[one.step() for _ in range(2)] for one in (run, again)]
    assert [(step.loss, step.cycles) for step in told[0]] == [(step.loss, step.cycles) for step in told[1]]
    assert bits(run) == bits(again)
    seen = [np.unique(rows.array[run.data.indices(k)]).astype(int) for k in range(first + 2)]
    waits = np.setdiff1d(np.concatenate(seen[:first]), np.concatenate(seen[first:]))
    assert len(waits)
    assert (old != run.matrices[0].dense)[:, waits].any()


@given(st.lists(st.integers(0, 500), max_size=300), st.integers(1, 400))
def test_rows_that_go_out_are_asked_for_and_hardly_more(ids, end):
    table = LookupTable(3, 3 + end, 0)
    (found,) = chosen_numbers([table], np.array([ids], np.uint16))
    used = {number for number in ids if 3 <= number < 3 + end}
    assert used <= set(found.tolist()) <= set(range(3, 3 + end))
    assert (np.diff(found) > 0).all()
    assert len(found) <= max(1, len(used) * 9 / 8 + 1)
