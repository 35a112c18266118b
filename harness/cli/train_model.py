"""Transformers that were trained here become models that ``wse generate`` answers with, in the layout of the hub.

Only the preset ``llama`` is such a decoder; its samples are one token each, of as many as there are classes.  What a
text was trained with goes along as the tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fabric.networks.graph.rotary import BASE
from fabric.networks.inference.decoder import Decoder
from harness.models.configuration import Configuration
from harness.models.hub import save_model
from harness.models.tokens import character_file
from harness.train.text import characters, is_text, text_of
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["check_speaks", "save_language_model"]

SPEAKS = ("llama",)
"""These presets are decoders that there are files of."""
PARTS = {
    "input_layernorm": "rms1.norm",
    "post_attention_layernorm": "rms2.norm",
    **{f"self_attn.{name}_proj": name for name in "qkvo"},
    **{f"mlp.{name}_proj": name for name in ("gate", "up", "down")},
}
"""A tensor of a layer has this name there, and that of a block here."""


def check_speaks(config: TrainConfig, directory: str | Path) -> Decoder:
    """Return the decoder that a configuration trains, before anything is trained for it.

    Parameters
    ----------
    config : TrainConfig
    directory : path-like
        Where the model is to be written.

    Raises
    ------
    UnsupportedError
        Another network than the preset ``llama``, or samples that are no tokens.
    ConfigError
        The directory is there already, or heads have an odd number of features.
    """
    network = config.network
    if network.preset not in SPEAKS:
        raise UnsupportedError(
            f"only the preset {SPEAKS[0]} is a model that answers",
            where="network.preset",
            feature="language models",
            hint=f'preset = "{SPEAKS[0]}"',
        )
    if network.inputs != config.classes:
        what = f"samples have {network.inputs} features and {config.classes} classes: they are no tokens"
        raise UnsupportedError(what, where="network.inputs", feature="language models")
    if Path(directory).exists():
        raise ConfigError("is there already", where=directory, hint="another directory")
    hidden, heads = network.hidden_size or 0, network.num_attention_heads or 0
    shared, between = network.num_key_value_heads or heads, network.intermediate_size or 4 * hidden
    sizes = hidden, network.num_hidden_layers or 0, heads, shared, hidden // heads, between
    return Decoder(*sizes, config.classes, config.data.sequence, epsilon=network.epsilon, rope_base=BASE)


def save_language_model(directory: str | Path, config: TrainConfig, tensors: Mapping[str, np.ndarray]) -> None:
    """Write trained weights as a model's directory, whole or not at all.

    Parameters
    ----------
    directory : path-like
    config : TrainConfig
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`.
    """
    decoder = check_speaks(config, directory)
    found = {
        "model.embed_tokens.weight": np.ascontiguousarray(tensors["embed.weight"].T),
        "model.norm.weight": tensors["rms.norm.weight"],
        "lm_head.weight": tensors["head.weight"],
    }
    for number in range(decoder.layers):
        for theirs, ours in PARTS.items():
            found[f"model.layers.{number}.{theirs}.weight"] = tensors[f"block{number + 1}.{ours}.weight"]
    source = config.data.source
    text = character_file(characters(text_of(source, Path(config.source).parent))) if is_text(source) else None
    save_model(directory, Configuration(decoder), found, text)
