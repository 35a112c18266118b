"""``config.json`` of the hub: which keys make a `Decoder`, and which models are refused because they are others.

A key that would change results and is not modelled is refused by name; keys about the training, the host's types and
the like are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric.networks.inference.decoder import Decoder
from harness.config.toml import read_text
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["Configuration", "configuration_of", "read_configuration", "write_configuration"]

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "MistralForCausalLM": "mistral"}
"""What is read, and the `model_type` that says the same."""


@dataclass(frozen=True)
class Configuration:
    """What a ``config.json`` says.

    Attributes
    ----------
    decoder : Decoder
    architecture : str
        A key of `ARCHITECTURES`.
    begin : int or None
        Token that stands before every text.
    stops : tuple[int, ...]
        Tokens that end an answer.
    """

    decoder: Decoder
    architecture: str = "LlamaForCausalLM"
    begin: int | None = None
    stops: tuple[int, ...] = ()


def _architecture(table: Mapping[str, Any]) -> str:
    """Return the architecture that a table names, or refuse it."""
    named = table.get("architectures")
    if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str):
        found = named[0]
    else:
        kind = table.get("model_type")
        found = next((name for name, known in ARCHITECTURES.items() if known == kind), str(kind or named))
    if found not in ARCHITECTURES:
        raise UnsupportedError(f"architecture {found}", hint=f"read are {', '.join(ARCHITECTURES)}")
    return found


def _refuse_others(table: Mapping[str, Any], architecture: str) -> None:
    """Refuse what would make other results than the decoder's."""
    activation = table.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedError(f"hidden_act {activation!r}", hint="silu is modelled")
    scaling = table.get("rope_scaling") or {}
    nested = table.get("rope_parameters") or {}
    if not isinstance(scaling, dict) or not isinstance(nested, dict):
        raise ConfigError("rope_scaling or rope_parameters is no table")
    kind = scaling.get("rope_type", scaling.get("type", "default" if not scaling else "without a name"))
    for name in (kind, nested.get("rope_type", "default")):
        if name != "default":
            raise UnsupportedError(f"rope_scaling of type {name}", hint="models with unscaled positions are read")
    if table.get("use_sliding_window") is True:
        raise UnsupportedError("use_sliding_window: attention to a window", hint="full attention is modelled")
    if architecture == "MistralForCausalLM" and table.get("sliding_window") is not None:
        raise UnsupportedError(
            f"sliding_window {table['sliding_window']}: attention to a window", hint="full attention is modelled"
        )
    for key in ("mlp_bias", "quantization_config"):
        if table.get(key):
            raise UnsupportedError(f"{key} {str(table[key])[:40]}", hint="weights in F32, F16 or BF16 without it")


def _tokens(table: Mapping[str, Any], key: str, vocabulary: int) -> tuple[int, ...]:
    """Return the token ids of a key: a number, a list or nothing."""
    value = table.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise ConfigError(f"{key} is {token!r}, no token of the {vocabulary}")
    return tuple(ids)


def configuration_of(table: Mapping[str, Any]) -> Configuration:
    """Return the configuration of a table with the hub's keys.

    Raises
    ------
    UnsupportedError
        A model of another kind, by its name.
    ConfigError
        A key is missing or senseless.
    """
    architecture = _architecture(table)
    _refuse_others(table, architecture)
    sizes = {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "intermediate_size",
        "vocabulary": "vocab_size",
        "context": "max_position_embeddings",
    }
    for key in sizes.values():
        if key not in table:
            raise ConfigError(f"key {key} is missing")
    values: dict[str, Any] = {field: table[key] for field, key in sizes.items()}
    heads = table["num_attention_heads"]
    kv_heads, head_size = table.get("num_key_value_heads"), table.get("head_dim")
    values["kv_heads"] = heads if kv_heads is None else kv_heads
    if head_size is None:
        hidden = values["hidden"]
        whole = isinstance(heads, int) and isinstance(hidden, int) and heads > 0
        if whole and hidden % heads:
            raise ConfigError(f"hidden_size {hidden} is no multiple of {heads} heads, and head_dim is missing")
        head_size = hidden // heads if whole else 1  # the decoder refuses what is no whole number
    values["head_size"] = head_size
    base = (table.get("rope_parameters") or {}).get("rope_theta", table.get("rope_theta", 10_000.0))
    bias = architecture == "Qwen2ForCausalLM" or table.get("attention_bias", False)
    decoder = Decoder(
        **values,
        epsilon=table.get("rms_norm_eps", 1e-6),
        rope_base=base,
        qkv_bias=bias,
        tied=table.get("tie_word_embeddings", False),
    )
    begin = _tokens(table, "bos_token_id", decoder.vocabulary)
    stops = _tokens(table, "eos_token_id", decoder.vocabulary)
    return Configuration(decoder, architecture, begin[0] if begin else None, stops)


def read_configuration(path: Path) -> Configuration:
    """Return what a ``config.json`` says; errors name the file."""
    text = read_text(path, "a directory with config.json and *.safetensors")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid JSON: {' '.join(str(error).split())}", where=path, path=str(path)) from None
    if not isinstance(table, dict):
        raise ConfigError("no table of keys", where=path, path=str(path))
    try:
        return configuration_of(table)
    except UnsupportedError as error:
        raise UnsupportedError(error.what, where=path, hint=error.hint) from None
    except ConfigError as error:
        raise ConfigError(error.what, where=path, hint=error.hint, path=str(path)) from None


def write_configuration(configuration: Configuration) -> str:
    """Return the text of a ``config.json``."""
    decoder = configuration.decoder
    table = {
        "architectures": [configuration.architecture],
        "model_type": ARCHITECTURES[configuration.architecture],
        "hidden_size": decoder.hidden,
        "num_hidden_layers": decoder.layers,
        "num_attention_heads": decoder.heads,
        "num_key_value_heads": decoder.kv_heads,
        "head_dim": decoder.head_size,
        "intermediate_size": decoder.ffn,
        "vocab_size": decoder.vocabulary,
        "max_position_embeddings": decoder.context,
        "rms_norm_eps": decoder.epsilon,
        "rope_theta": decoder.rope_base,
        "hidden_act": "silu",
        "attention_bias": decoder.qkv_bias,
        "tie_word_embeddings": decoder.tied,
        "bos_token_id": configuration.begin,
        "eos_token_id": list(configuration.stops) or None,
    }
    return json.dumps(table, indent=2) + "\n"
