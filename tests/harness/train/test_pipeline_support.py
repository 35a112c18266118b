"""Every key of a training file in the layer-pipelined mode: it does something, is refused by name, or has no effect."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path

import numpy as np
import pytest

from harness.train import pipeline_support, tables
from harness.train.config import TrainConfig
from harness.train.nodes import SIDES
from harness.train.pipeline_support import DOES, REFUSES, SUPPORT, WITHOUT
from harness.train.pipelined import PipelinedTrainer
from memx.optimizer import Optimizer
from wse_core.errors import UnsupportedError, WseError

pytestmark = pytest.mark.usefixtures("short_search")

PLAIN = {
    "network": {"inputs": 64, "layers": [{"outputs": 8, "activation": "relu"}, {"outputs": 10}]},
    "data": {"batch": 8},
    "mesh": {"width": 12, "height": 5},
    "train": {"iterations": 2, "optimizer": {"name": "adam", "lr": 0.01}},
    "mode": "pipelined",
}
MORE = (*SIDES, "output_padding_width")
"""Keys of windows whose sides are not alike."""
WRONG = {
    "network.layers.density": {"network.layers": [{"outputs": 8, "density": 0.5}, {"outputs": 10}]},
    **{
        f"network.{key}": {
            "network.layers": [],
            "network.preset": "llama",
            "network.hidden_size": 4,
            "network.num_hidden_layers": 1,
            "network.num_attention_heads": 2,
            "network.num_key_value_heads": 1,
            "network.intermediate_size": 8,
            "network.vocab_size": 10,
        }
        for key in (
            "preset",
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
        )
    },
    **{
        f"network.{key}": {
            "network.layers": [],
            "network.preset": "resnet",
            "network.image": [1, 8, 8],
            "network.embedding_size": 2,
            "network.hidden_sizes": [2],
            "network.depths": [1],
            "network.vocab_size": 10,
        }
        for key in ("embedding_size", "hidden_sizes", "depths")
    },
    **{
        f"network.nodes.{key}": {
            "network.layers": [],
            "network.nodes": [
                {"name": "a", "op": "linear", "outputs": 8, "bias": False, "density": 1.0, "deviation": 0.1}
                | {"fixed_outputs": [0], "image": [8, 1, 1]},
                {"name": "k", "op": "linear", "inputs": ["a"], "outputs": 4},
                {"name": "h", "op": "linear", "inputs": ["a"], "outputs": 4, "shares": "k"},
                {"name": "b", "op": "attention", "inputs": ["a", "k", "h"], "heads": 2}
                | {"kv_heads": 1, "causal": False, "scaled": 9, "window": 1, "slopes": [0.5, 0.25], "biases": []},
                {"name": "r", "op": "rotary", "heads": 2, "base": 100, "turned": 2},
                {"name": "m", "op": "multiple", "factor": 0.5},
                {"name": "s", "op": "scale", "shared": 1, "fixed": True},
                {"name": "d", "op": "dropout", "ratio": 0.5, "together": 2},
                {"name": "c", "op": "linear", "outputs": 10},
            ],
        }
        for key in (
            *("name", "op", "inputs", "outputs", "bias", "density", "deviation", "heads", "kv_heads", "causal"),
            *(
                "base",
                "turned",
                "scaled",
                "window",
                "slopes",
                "biases",
                "factor",
                "ratio",
                "together",
                "shared",
                "shares",
                "image",
                "fixed",
                "fixed_outputs",
            ),
        )
    },
    **{
        f"network.nodes.{key}": {
            "network.image": [1, 8, 8],
            "network.layers": [],
            "network.nodes": [
                {"name": "a", "op": "convolution", "outputs": 2, "kernel": 3, "kernel_width": 2, "stride": 2}
                | {"padding": 1, "groups": 1},
                {"name": "n", "op": "batchnorm", "momentum": 0.2, "epsilon": 0.01},
                {"name": "s", "op": "scale", "each": True},
                {"name": "r", "op": "resample", "method": "linear", "sides": [4, 4]},
                {"name": "p", "op": "resample", "method": "pick", "rows": [0, 1, 2, 3], "columns": [0, 1, -1, 3]},
                {"name": "t", "op": "transposed", "outputs": 2, "kernel": 3, "stride": 2, "output_padding": 1},
                {"name": "b", "op": "linear", "outputs": 10},
            ],
        }
        for key in (
            *("kernel", "kernel_width", "stride", "padding", "groups", "momentum", "epsilon", "output_padding"),
            *("method", "sides", "rows", "columns", "each"),
            *MORE,
        )
    },
    **{
        f"network.{key}": {
            "network.inputs": 66,
            "network.places": [2, 0, 0],
            "network.fixed_places": [0],
            "network.token_scale": 2.0,
            "network.place_scales": [2.0],
            "network.padding": 0,
            "network.hidden": [0],
            "network.ending": [0],
            "network.absent": [0],
            "network.tied": "b",
            "network.layers": [],
            "network.nodes": [
                {"name": "a", "op": "linear", "outputs": 8},
                {"name": "b", "op": "linear", "outputs": 10},
            ],
        }
        for key in (
            *("places", "fixed_places", "token_scale", "place_scales", "padding", "hidden", "ending", "absent"),
            "tied",
        )
    },
    "network.patches": {
        "network.patches": [1, 8, 8, 8, 8, 0, 0, 0],
        "data.labels": "first",
        "network.layers": [],
        "network.nodes": [{"name": "b", "op": "linear", "outputs": 10}],
    },
    "network.masked": {"network.masked": [0, 0]},
    "network.epsilon": {"network.epsilon": 1e-6},
    "mesh.head_columns": {
        "mesh.head_columns": 2,
        "network.layers": [],
        "network.nodes": [
            {"name": "a", "op": "linear", "outputs": 8},
            {"name": "b", "op": "attention", "inputs": ["a", "a", "a"], "heads": 2},
            {"name": "c", "op": "linear", "outputs": 10},
        ],
    },
    "mesh.column_groups": {"mesh.column_groups": 2},
    "mesh.image_rows": {
        "mesh.image_rows": 2,
        "network.layers": [],
        "network.image": [1, 8, 8],
        "network.nodes": [
            {"name": "a", "op": "convolution", "outputs": 2, "kernel": 3, "padding": 1},
            {"name": "b", "op": "linear", "outputs": 10},
        ],
    },
    "train.recompute": {
        "train.recompute": True,
        "network.layers": [],
        "network.nodes": [
            {"name": "a", "op": "linear", "outputs": 8},
            {"name": "b", "op": "linear", "outputs": 8},
            {"name": "c", "op": "add", "inputs": ["b", "a"]},
            {"name": "d", "op": "linear", "outputs": 8},
            {"name": "e", "op": "add", "inputs": ["d", "c"]},
            {"name": "f", "op": "linear", "outputs": 10},
        ],
    },
    "data.sequence": {"data.sequence": 2},
    "data.labels": {
        "data.labels": "token",
        "network.layers": [],
        "network.nodes": [{"name": "a", "op": "linear", "outputs": 8}, {"name": "c", "op": "linear", "outputs": 10}],
    },
    "wafers": {"wafers": 2},
    "train.loss": {"train.loss": "mse"},
    "train.gradient_norms": {"train.gradient_norms": True},
    "train.gradient_histograms": {"train.gradient_histograms": True},
    "train.clip": {"train.clip": 1.0},
    "train.loss_scale.dynamic": {"train.loss_scale": {"dynamic": True}},
    "train.optimizer.decays": {"train.optimizer": {"name": "adamw", "decays": "weights"}},
    "sparsity.density": {"sparsity.density": 0.5},
    "sparsity.masks": {"sparsity.masks": "none.npz"},
    "sparsity.schedule": {"sparsity.schedule": "sparse-ift"},
    "sparsity.rounds": {"sparsity": {"schedule": "pruning", "rounds": 1, "fraction": 0.5}},
    "sparsity.fraction": {"sparsity": {"schedule": "pruning", "rounds": 1, "fraction": 0.5}},
    "sparsity.every": {"sparsity": {"schedule": "rigl", "every": 1}},
    "sparsity.until": {"sparsity": {"schedule": "set", "until": 0.5}},
    "sparsity.densities": {"sparsity": {"schedule": "pruning", "densities": [0.5]}},
    "sparsity.switch": {"sparsity": {"schedule": "dense-finetune", "switch": 0.5}},
}
"""What provokes each refusal."""
OTHER = {
    "train.loss_scale.growth_interval": {"train.loss_scale": {"growth_interval": 1}},
    "sparsity.seed": {"sparsity.seed": 5},
    "memx.files": {"memx.files": "elsewhere"},
    "memx.dense_rows": {"memx.dense_rows": "steps"},
    "memx.keep_output": {"memx.keep_output": True},
    "swarm": {"swarm": {"link.planes": 4}},
}
"""Values of keys that shall change nothing."""


def keys(table, before=""):
    """Yield the dotted names of all keys of a table and of those in it."""
    hints = typing.get_type_hints(table)
    for item in dataclasses.fields(table):
        kind, name = hints[item.name], before + item.name
        kind = next((part for part in typing.get_args(kind) if dataclasses.is_dataclass(part)), kind)
        if dataclasses.is_dataclass(kind) and not issubclass(kind, Optimizer):
            yield from keys(kind, f"{name}.")
        else:
            yield name


def config(changes=None):
    """Return the plain configuration with some keys set."""
    values = {name: dict(value) if isinstance(value, dict) else value for name, value in PLAIN.items()}
    for key, value in (changes or {}).items():
        *path, last = key.split(".")
        table = values
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return TrainConfig.of(**values)


def results(given):
    """Return losses and weights after training in the oracle."""
    trainer = PipelinedTrainer(given, "numpy")
    losses = [trainer.step().loss for _ in range(trainer.iterations)]
    return losses, [parameter.dense.copy() for parameter in trainer.parameters]


def test_every_key_has_its_row():
    assert set(keys(tables.TrainFile)) == set(SUPPORT)
    assert {key for key, found in SUPPORT.items() if found.what == REFUSES} == set(WRONG)
    assert {key for key, found in SUPPORT.items() if found.what == WITHOUT} == set(OTHER)
    assert all(found.what == DOES or found.why for found in SUPPORT.values())
    assert pipeline_support.markdown() in Path("docs/pipelined.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", WRONG)
def test_what_is_refused_is_named(key):
    with pytest.raises(UnsupportedError) as caught:
        PipelinedTrainer(config(WRONG[key]))
    where = str(caught.value.where)
    if "network.preset" in WRONG[key] or "network.nodes" in WRONG[key]:
        assert where == ("network.preset" if "network.preset" in WRONG[key] else "network.nodes")
        return
    assert where.replace("[0]", "") in (key, "sparsity.schedule" if key.startswith("sparsity.") else key)


@pytest.fixture(scope="module")
def plain():
    """Losses and weights of the plain configuration."""
    return results(config())


@pytest.mark.parametrize("key", OTHER)
def test_what_has_no_use_changes_nothing(plain, key):
    changed = results(config(OTHER[key]))
    assert plain[0] == changed[0]
    assert all(np.array_equal(a, b) for a, b in zip(plain[1], changed[1], strict=True))


def test_parts_of_a_batch_are_minibatches():
    """`train.accumulate` and `pipeline.minibatch` are two words for one thing; two that differ are refused."""
    parts = results(config({"train.accumulate": 4, "pipeline": {"updates": "drained"}}))
    small = results(config({"pipeline": {"updates": "drained", "minibatch": 2}}))
    assert parts[0] == small[0]
    assert all(np.array_equal(a, b) for a, b in zip(parts[1], small[1], strict=True))
    for changes in ({"train.accumulate": 3}, {"train.accumulate": 4, "pipeline.minibatch": 4}):
        with pytest.raises(WseError, match=r"train\.accumulate"):
            PipelinedTrainer(config(changes))


def test_gaps_of_a_file_are_refused(tmp_path):
    """Masks in the file of first weights: tiles would train what shall not be there."""
    mask = np.ones((8, 64), bool)
    mask[0, 0] = False
    np.savez(tmp_path / "first.npz", **{"layer1.mask": mask, "layer2.mask": np.ones((10, 8), bool)})
    with pytest.raises(UnsupportedError, match=r"network\.weights"):
        PipelinedTrainer(config({"network.weights": str(tmp_path / "first.npz")}))
