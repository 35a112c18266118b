"""Transformers that were trained here become models that ``wse generate`` answers with, in the layout of the hub.

Only the preset ``llama`` is such a decoder; its samples are one token each, of as many as there are classes.  The
characters of the text go along as the tokenizer, and a card says what was trained, on what, how well and by what.
"""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.graph.rotary import BASE
from fabric.networks.inference.decoder import Decoder
from harness.models.configuration import Configuration
from harness.models.hub import CONFIG, TOKENIZER, WEIGHTS, save_model, tensor_shapes
from harness.models.tokens import character_file
from harness.train.text import TEXTS, characters, is_text, text_of
from wse_core import __version__
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["check_speaks", "model_card", "save_language_model"]

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


def save_language_model(
    directory: str | Path,
    config: TrainConfig,
    tensors: Mapping[str, np.ndarray],
    result: Mapping[str, Any] | None = None,
) -> None:
    """Write trained weights as a model's directory, whole or not at all; those of a training in f16 are f16.

    Parameters
    ----------
    directory : path-like
    config : TrainConfig
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`.
    result : mapping, optional
        What ``wse train --json`` says of the training, for the card.
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
    if config.train.dtype == "f16":  # as wafers are sent them; the optimizer's own are in --save-weights
        found = {key: value.astype(np.float16) for key, value in found.items()}
    source = config.data.source
    text = text_of(source, Path(config.source).parent) if is_text(source) else None
    tokenizer = None if text is None else character_file(characters(text))
    card = model_card(Path(directory).name, config, decoder, text, result or {})
    save_model(directory, Configuration(decoder), found, tokenizer, card)


def model_card(name: str, config: TrainConfig, decoder: Decoder, text: str | None, result: Mapping[str, Any]) -> str:
    """Return the card of a trained model, as Markdown.

    Parameters
    ----------
    name : str
        Of the model.
    config : TrainConfig
    decoder : Decoder
    text : str or None
        What it was trained on; None: numbers of tokens, of which only their source is known.
    result : mapping
        What ``wse train --json`` says of the training; what is not in it is not in the card.
    """
    weights = sum(math.prod(shape) for shape in tensor_shapes(decoder).values())
    shared = f" on {decoder.kv_heads} key heads" if decoder.kv_heads < decoder.heads else ""
    rows = {
        "layers": f"{decoder.layers} of {decoder.hidden} features, {decoder.heads} query heads{shared}, "
        f"{decoder.ffn} features between",
        "parameters": f"{weights:,}",
        "context": f"{decoder.context:,} tokens",
        "vocabulary": f"{decoder.vocabulary:,} {'tokens' if text is None else 'characters'}",
        "text": _of_text(config.data.source, text),
        "tokens": f"{result['train_samples']:,} to learn from, {result['test_samples']:,} held out"
        if "train_samples" in result
        else "",
        "training": f"{result['done']:,} iteration{'s' * (result['done'] != 1)} of {config.data.batch:,} tokens, "
        f"seed {config.seed}"
        if "done" in result
        else "",
        "arithmetic": f"{config.train.dtype}, {_place(config, result)}",
        "loss": " and ".join(
            f"{result[key]:.3f} nats {what}"
            for key, what in (("loss", "in the last iteration"), ("test_loss", "of what was held out"))
            if result.get(key) is not None
        ),
        "made with": f"wse-sim {__version__}, Python {platform.python_version()}, numpy {np.__version__}",
    }
    table = "".join(f"| {key} | {value} |\n" for key, value in rows.items() if value)
    given = [f"- `{word}`\n" for word in config.assignments]
    return (
        f"# {name}\n\nA decoder of type llama that `wse train` made; `{CONFIG}`, `{WEIGHTS}`"
        f"{f' and `{TOKENIZER}`' if text is not None else ''} are as on the hub.\n\n"
        f"| | |\n|---|---|\n{table}\n## Licence\n\n{_licence(config.data.source)}\n\n"
        f"## Configuration\n\n```toml\n{config.text.strip()}\n```\n"
        + "".join(["\nSet besides:\n\n"] * bool(given) + given)
    )


def _of_text(source: str, text: str | None) -> str:
    """Return what a model was trained on: name, length, digest."""
    name = f"`{source}`" + (", Python's help topics (`pydoc_data.topics`)" if source in TEXTS else "")
    if text is None:
        return name
    return f"{name}, {len(text):,} characters, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}"


def _place(config: TrainConfig, result: Mapping[str, Any]) -> str:
    """Return where a model was trained."""
    if result.get("mode") == "reference":
        return "by numpy on the host"
    return f"on {config.wafers} modelled wafer{'s' * (config.wafers > 1)} of {config.mesh}"


def _licence(source: str) -> str:
    """Return what is to be said of the rights in what a model has learned."""
    if source in TEXTS:
        return (
            "The text is part of Python's documentation, which is under the Python Software Foundation License "
            "version 2; the weights are given under the licence of this package."
        )
    return "That of the text it was trained on, and what its owner makes of it; nothing is claimed here."
