"""The layer-pipelined mode treats each key of a training file as a table says.

`SUPPORT` has a row for every key; `tests/harness/train/test_pipeline_support.py` walks over all keys there are, and
docs/pipelined.md has the table.  What is refused is refused by `harness.train.pipeline_config`, except that weights
from a file are looked at when they are read.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.train.nodes import SIDES

__all__ = ["SUPPORT", "Support", "markdown"]

DOES, REFUSES, WITHOUT = "does", "refuses", "has no use for"


class Support(NamedTuple):
    """A `Support` says what happens with a key, and why."""

    what: str
    why: str = ""


_GAPS = Support(REFUSES, "tiles are dense: no weight is missing")
_CHAINS = Support(REFUSES, "it places chains of layers")
_SERVICE = Support(WITHOUT, "weights never leave the wafer: there is no memory service")
_SCALED = "a PE updates with its own gradients at once, so no update can be left out for an overflow elsewhere"

SUPPORT: dict[str, Support] = {
    "network.inputs": Support(DOES),
    "network.layers.outputs": Support(DOES),
    "network.layers.activation": Support(DOES),
    "network.layers.bias": Support(DOES),
    "network.layers.norm": Support(DOES),
    "network.layers.density": _GAPS,
    **{f"network.{key}": _CHAINS for key in ("preset", "vocab_size", "hidden_size", "num_hidden_layers")},
    **{f"network.{key}": _CHAINS for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size")},
    **{f"network.{key}": _CHAINS for key in ("embedding_size", "hidden_sizes", "depths")},
    **{f"network.nodes.{key}": _CHAINS for key in ("name", "op", "inputs", "outputs", "bias", "density", "deviation")},
    **{f"network.nodes.{key}": _CHAINS for key in ("heads", "causal", "kernel", "kernel_width", "stride", "padding")},
    **{
        f"network.nodes.{key}": _CHAINS
        for key in (
            "groups",
            "momentum",
            "epsilon",
            "output_padding",
            "output_padding_width",
            *SIDES,
            "kv_heads",
            "base",
            "turned",
            "scaled",
            "window",
            "slopes",
            "biases",
            "method",
            "sides",
            "rows",
            "columns",
            "factor",
            "ratio",
            "together",
            "shared",
            "shares",
            "image",
            "fixed",
            "fixed_outputs",
            "each",
        )
    },
    "network.image": Support(DOES, "the product of its sizes are the inputs"),
    **{f"network.{key}": _CHAINS for key in ("places", "fixed_places", "token_scale", "place_scales", "patches")},
    **{f"network.{key}": _CHAINS for key in ("padding", "masked", "hidden", "ending", "absent", "tied")},
    "network.dropout": Support(DOES, "of a file: it is left out"),
    "network.epsilon": Support(REFUSES, "its normalisations add 1e-5"),
    "network.weights": Support(DOES, "masks with gaps in the file are refused"),
    "seed": Support(DOES),
    "wafers": Support(REFUSES, "all layers lie on one; 1 is what there is"),
    "data.source": Support(DOES),
    "data.batch": Support(DOES, "samples of an update"),
    "network.file": Support(DOES),
    "data.scale": Support(DOES),
    "data.labels": Support(REFUSES, "every sample has a class"),
    "data.sequence": Support(REFUSES, "no layer sees more than a sample"),
    "data.held_out": Support(DOES),
    "data.seed": Support(DOES),
    "mesh.width": Support(DOES, "PEs that the layers share"),
    "mesh.height": Support(DOES, "PEs that the layers share"),
    "mesh.head_columns": _CHAINS,
    "mesh.image_rows": _CHAINS,
    "mesh.column_groups": Support(REFUSES, "each layer has a rectangle of its own"),
    "train.iterations": Support(DOES),
    "train.epochs": Support(DOES),
    "train.evaluate": Support(DOES, "when the pipeline is empty"),
    "train.patience": Support(DOES, "when the pipeline is empty"),
    "train.accumulate": Support(DOES, "as minibatches: so many of an update"),
    "train.gradient_norms": Support(REFUSES, "gradients never leave the wafer"),
    "train.gradient_histograms": Support(REFUSES, "gradients never leave the wafer"),
    "train.loss": Support(REFUSES, "its last rectangle takes softmax"),
    "train.label_smoothing": Support(DOES),
    "train.recompute": Support(REFUSES, "chains of layers keep what they need of a few samples"),
    "train.clip": Support(REFUSES, "no PE knows the norm of all gradients"),
    "train.dtype": Support(DOES, "f16 and cb16; PEs do not calculate in bf16"),
    "train.mixed_precision": Support(DOES),
    "train.optimizer.name": Support(DOES),
    "train.optimizer.lr": Support(DOES),
    "train.optimizer.weight_decay": Support(DOES),
    "train.optimizer.momentum": Support(DOES),
    "train.optimizer.beta1": Support(DOES),
    "train.optimizer.beta2": Support(DOES),
    "train.optimizer.eps": Support(DOES),
    "train.optimizer.decays": Support(REFUSES, "the PEs of a layer have one rule"),
    "train.schedule.kind": Support(DOES),
    "train.schedule.warmup": Support(DOES),
    "train.schedule.floor": Support(DOES),
    "train.schedule.every": Support(DOES),
    "train.schedule.factor": Support(DOES),
    "train.schedule.rise": Support(DOES),
    "train.loss_scale.initial": Support(DOES, "for the whole run"),
    "train.loss_scale.dynamic": Support(REFUSES, _SCALED),
    "train.loss_scale.growth_interval": Support(WITHOUT, "the scale stays"),
    "sparsity.density": _GAPS,
    "sparsity.masks": _GAPS,
    "sparsity.schedule": _GAPS,
    "sparsity.seed": Support(WITHOUT, "there are no masks"),
    **{
        f"sparsity.{key}": Support(REFUSES, "belongs to a schedule of masks") for key in ("rounds", "fraction", "every")
    },
    **{
        f"sparsity.{key}": Support(REFUSES, "belongs to a schedule of masks")
        for key in ("until", "densities", "switch")
    },
    "checkpoint.directory": Support(DOES),
    "checkpoint.interval": Support(DOES, "when the pipeline is empty"),
    "checkpoint.keep": Support(DOES),
    "checkpoint.best": Support(DOES),
    "memx.files": _SERVICE,
    "memx.dense_rows": _SERVICE,
    "memx.keep_output": _SERVICE,
    "swarm": Support(WITHOUT, "there is one wafer and no tree"),
    "csconfig.use_cbfloat16": Support(DOES),
    "mode": Support(DOES),
    "pipeline.updates": Support(DOES),
    "pipeline.minibatch": Support(DOES),
    "pipeline.run": Support(DOES),
    "machine": Support(DOES),
}
"""By the dotted name of the key; keys of ``[swarm]`` and ``[machine]`` are those of `wse_core.numbers`."""


def markdown() -> str:
    """Return the table of docs/pipelined.md: keys with one fate and one reason share a row."""
    rows: dict[Support, list[str]] = {}
    for key, found in SUPPORT.items():
        rows.setdefault(found, []).append(f"`{key}`")
    lines = ["| keys | the pipelined mode | why, how |", "|---|---|---|"]
    lines += [f"| {', '.join(keys)} | {found.what} | {found.why} |" for found, keys in rows.items()]
    return "\n".join(lines) + "\n"
