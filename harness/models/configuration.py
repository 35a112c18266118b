"""``config.json`` of the hub: which keys make a `Decoder`, and which models are refused because they are others.

Every key is judged by the table of its architecture (`harness.models.architectures`) before any is read; then those
that are used are put together here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fabric.networks.inference.decoder import MOST_DIFFERENT, Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from harness.kit.jsonfile import read_json
from harness.models.architectures import (
    ACTIVATION_NAMES,
    ARCHITECTURES,
    CONFIG_KEYS,
    ELSEWHERE,
    GLMS,
    HEAD_SIZE,
    OTHER_NAME,
    SLIDING,
    THETA,
    WINDOW,
)
from harness.models.classic import CLASSIC, CLASSIC_KEYS, PARTS, TURNING_WHOLE, classic_decoder, plain_names
from harness.models.keys import KeyVerdict, judged, refuse_first, warnings_of
from harness.models.lowering import LOWERED, Factors, factors_of
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = [
    "CONFIG",
    "Configuration",
    "configuration_of",
    "judged_configuration",
    "read_configuration",
    "token_ids",
    "write_configuration",
]

CONFIG = "config.json"

KNOWN = ARCHITECTURES | CLASSIC
"""These architectures are read, each with the `model_type` that says the same."""

SIZES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
    "context": "max_position_embeddings",
}
"""A decoder has these sizes, and every file must have these keys for them."""

GEMMAS = ("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM")
"""These architectures have gelu, norms of 1 + w and a factor of the embedding."""

KV_HEADS = {"Qwen2ForCausalLM": 32, "Qwen3ForCausalLM": 32, "MistralForCausalLM": 8, "GemmaForCausalLM": 16,
            "SmolLM3ForCausalLM": 4, "Gemma2ForCausalLM": 4, "Gemma3ForCausalLM": 4,
            "StableLmForCausalLM": 32, "Starcoder2ForCausalLM": 2,
            "MixtralForCausalLM": 8, "Qwen3MoeForCausalLM": 4,
            **dict.fromkeys(GLMS, 2), "HeliumForCausalLM": 20, "Ernie4_5ForCausalLM": 2,
            "SeedOssForCausalLM": 8}  # fmt: skip
"""A model has so many heads of keys and values where a file says nothing of them; otherwise as many as query heads."""

BIASED = ("LlamaForCausalLM", "Qwen3ForCausalLM", "GraniteForCausalLM", "GemmaForCausalLM", "SmolLM3ForCausalLM",
          "Olmo2ForCausalLM", "Olmo3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Qwen3MoeForCausalLM",
          "OlmoeForCausalLM")  # fmt: skip
"""The projections of attention have biases in these architectures if the file says so."""

EPSILON = {**dict.fromkeys(("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM", "MixtralForCausalLM",
                            "Ernie4_5ForCausalLM"), 1e-5),
           **dict.fromkeys(GLMS, 1.5625e-7), "HeliumForCausalLM": 1e-8}  # fmt: skip
"""The mean square has this added to it if a file says nothing of it, and 1e-6 in other architectures."""

FFN_BIASED = ("LlamaForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM", "HeliumForCausalLM",
              "SeedOssForCausalLM")  # fmt: skip
"""The feed-forward part has biases in these architectures if the file says so."""

TIED = (*GEMMAS, "SmolLM3ForCausalLM", "Ernie4_5ForCausalLM")
"""The output matrix is the embedding in these architectures if the file says nothing of it."""


@dataclass(frozen=True)
class Configuration:
    """A `Configuration` is what a ``config.json`` says.

    Attributes
    ----------
    decoder : Decoder
    architecture : str
        A key of `KNOWN`.
    stops : tuple[int, ...]
        Tokens that end an answer.
    warnings : tuple[str, ...]
        What a run should say of keys that were not looked at.
    factors : Factors
        What the weights carry of the model's own factors.
    """

    decoder: Decoder
    architecture: str = "LlamaForCausalLM"
    stops: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    factors: Factors = Factors()

    def __post_init__(self) -> None:
        if not self.decoder.layers:
            raise ConfigError("num_hidden_layers is 0; a model has a layer")


def _architecture(table: Mapping[str, Any]) -> str:
    """Return the architecture that a table names, or refuse it."""
    several = table.get("architectures")
    if isinstance(several, list) and several and isinstance(several[0], str):
        found = several[0]
    else:
        kind = table.get("model_type")
        found = next((name for name, known in KNOWN.items() if known == kind), str(kind or several))
    if found not in KNOWN:
        has = ELSEWHERE.get(found)
        raise UnsupportedError(
            f"architecture {named(found)}", cause=f"it has {has}" if has else None, hint=f"read are {', '.join(KNOWN)}"
        )
    return found


def token_ids(value: Any, key: str, vocabulary: int) -> tuple[int, ...]:
    """Return the token ids that a value is: a number, a list or nothing.

    Raises
    ------
    ConfigError
        One of them is none of the model's tokens.
    """
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise ConfigError(f"{key} is {shown(token)}, no token of the {vocabulary}")
    return tuple(ids)


def _positions_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of positions of a configuration, by its new or its old name."""
    tables = [table.get("rope_scaling") or {}, table.get("rope_parameters") or {}]
    if not all(isinstance(each, dict) for each in tables):
        raise ConfigError("rope_scaling or rope_parameters is no table")
    return tables[0] or tables[1]


def _kind_of(table: Mapping[str, Any]) -> Any:
    """Return the type of positions of a configuration."""
    rope = _positions_of(table)
    return rope.get("rope_type") or rope.get("type") or "default"


def _rope(table: Mapping[str, Any], base: float = 10_000.0) -> tuple[Any, Scaling | None]:
    """Return the base of the angles, and how they are scaled."""
    rope = _positions_of(table)
    base = rope.get("rope_theta", table.get("rope_theta", base))
    kind = _kind_of(table)
    if kind == "default":
        return base, None
    if kind == "longrope":
        return base, _longrope(rope, table)
    if "factor" not in rope:
        raise ConfigError(f"positions of type {kind} without a factor")
    if kind == "linear":
        return base, Scaling(kind, rope["factor"])
    if kind == "dynamic":  # pairs turn slower in texts beyond the context only
        Scaling("linear", rope["factor"])  # refuses what is no factor
        return base, None
    original = rope.get("original_max_position_embeddings", table["max_position_embeddings"])
    if kind == "yarn":
        low, high = rope.get("beta_slow") or 1, rope.get("beta_fast") or 32
        return base, Scaling(kind, rope["factor"], low, high, original, _amplitude(rope), rope.get("truncate", True))
    low, high = (rope.get(f"{name}_freq_factor") for name in ("low", "high"))
    if low is None or high is None:
        raise ConfigError(f"positions of type {kind} without low_freq_factor or high_freq_factor")
    return base, Scaling(kind, rope["factor"], low, high, original)


def _short_texts(table: Mapping[str, Any], context: Any) -> list[str]:
    """Return what is said of positions that are plain in texts of the context, and in no longer ones."""
    if _kind_of(table) != "dynamic":
        return []
    return [f"texts of up to {context} tokens: in longer ones pairs turn slower, by their length"]


def _longrope(rope: Mapping[str, Any], table: Mapping[str, Any]) -> Scaling:
    """Return the scaling of texts that are no longer than the context of the first training."""
    longest = table["max_position_embeddings"]
    original = rope.get("original_max_position_embeddings", table.get("original_max_position_embeddings"))
    pairs = rope.get("short_factor")
    if not isinstance(pairs, list) or not pairs:
        raise ConfigError("positions of type longrope without a list short_factor")
    whole = [isinstance(n, int) and not isinstance(n, bool) and n > 1 for n in (original, longest)]
    if not all(whole):
        raise ConfigError("positions of type longrope without original_max_position_embeddings")
    factor = rope.get("factor") if table.get("original_max_position_embeddings") is None else longest / original
    given = rope.get("attention_factor")
    if given is None:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor):
            raise ConfigError(f"positions of type longrope with the factor {shown(factor)}")
        given = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Scaling("longrope", 1.0, original=original, amplitude=given, pairs=tuple(pairs))


def _logit_cap(table: Mapping[str, Any], architecture: str) -> Any:
    """Return the cap of logits, or None."""
    missing = {"Gemma2ForCausalLM": 30.0, "Gemma3ForCausalLM": None}
    return table.get("final_logit_softcapping", missing[architecture]) if architecture in missing else None


def _rotary(table: Mapping[str, Any], head_size: int, missing: float = 1.0) -> int:
    """Return how many features of a head turn; `missing`: the part of them if the table says nothing."""
    rope = table.get("rope_scaling") or table.get("rope_parameters") or {}
    part = rope.get("partial_rotary_factor", table.get("partial_rotary_factor", missing))
    features = int(head_size * part)
    if features % 2 or features < 2:
        raise ConfigError(f"partial_rotary_factor {part} of {head_size} features: {features} cannot be turned in pairs")
    return features


PARTLY = {"Phi3ForCausalLM": 1.0, **dict.fromkeys(GLMS, 0.5)}
"""A part of each head may turn in these architectures; this part, if a file says nothing of it."""


def _amplitude(rope: Mapping[str, Any]) -> Any:
    """Return the factor of cosines and sines of a table of yarn."""
    factor, given = rope["factor"], rope.get("attention_factor")
    if given is not None:
        return given
    parts = [rope.get("mscale"), rope.get("mscale_all_dim")]
    for value in (factor, *filter(None, parts)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"positions of type yarn with {shown(value)}, no number")
    if factor <= 1:
        return 1.0
    over, under = (float(value or 0) for value in (parts if all(parts) else (1, 0)))
    return (0.1 * over * math.log(factor) + 1) / (0.1 * under * math.log(factor) + 1)


WITH_CHOICE = ("Qwen2ForCausalLM", "Qwen3ForCausalLM", "SmolLM3ForCausalLM")
"""Architectures of which a file says whether there is a window of attention."""

EVERY = {"Gemma2ForCausalLM": 2, "Gemma3ForCausalLM": 6, "Olmo3ForCausalLM": 4}
"""Each so many layers one has no window, if a file says nothing of it."""

NO_WINDOWS = ("LlamaForCausalLM", "GraniteForCausalLM", "GemmaForCausalLM", "Olmo2ForCausalLM", "Qwen3MoeForCausalLM",
              "OlmoeForCausalLM", *GLMS, "HeliumForCausalLM", "Ernie4_5ForCausalLM",
              "SeedOssForCausalLM")  # fmt: skip
"""These architectures have no window of attention."""


ALIKE = ("MistralForCausalLM", "Phi3ForCausalLM", "MixtralForCausalLM")
"""In these architectures all layers have the window, if there is one."""

WITHOUT = ("Phi3ForCausalLM", "MixtralForCausalLM", WITH_CHOICE[-1])
"""These architectures have no window if a file says nothing of it."""


def _windows(table: Mapping[str, Any], architecture: str, turns: Sequence[bool]) -> list[int | None]:
    """Return the window of attention of each layer, or None; `turns`: of each, whether it turns by positions."""
    count = len(turns)
    none: list[int | None] = [None] * count
    if architecture in NO_WINDOWS:
        return none
    if architecture in WITH_CHOICE:
        wanted = table.get("use_sliding_window", False)
        if not isinstance(wanted, bool):
            raise ConfigError(f"use_sliding_window is {shown(wanted)}, neither true nor false")
        if not wanted:
            return none
    window = table.get("sliding_window", None if architecture in WITHOUT else WINDOW)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ConfigError(f"sliding_window is {shown(window)}, no number of tokens")
    kinds = table.get("layer_types") if architecture not in ALIKE else None
    if kinds is not None and len(kinds) != count:
        raise ConfigError(f"layer_types has {len(kinds)} kinds for {count} layers")
    if kinds is not None:
        sliding = [kind == SLIDING for kind in kinds]
    elif architecture in WITH_CHOICE[:2]:
        first = table.get("max_window_layers", 28)
        if isinstance(first, bool) or not isinstance(first, int):
            raise ConfigError(f"max_window_layers is {shown(first)}, no number of layers")
        sliding = [layer >= first for layer in range(count)]
    elif architecture == "SmolLM3ForCausalLM":
        sliding = [not each for each in turns]
    elif architecture in EVERY:
        every = table.get("sliding_window_pattern", 6) if architecture == "Gemma3ForCausalLM" else EVERY[architecture]
        sliding = [(layer + 1) % every != 0 for layer in range(count)]
    else:
        sliding = [True] * count
    if window is None and any(sliding) and architecture in EVERY:
        raise ConfigError("sliding_window is null, and layers have a window")
    return [window if each else None for each in sliding]


def _layers(table: Mapping[str, Any], architecture: str) -> tuple[LayerKind, ...]:
    """Return all layers of a model whose layers differ, or are not as most are."""
    count = table["num_hidden_layers"]
    if architecture in NO_WINDOWS or isinstance(count, bool) or not isinstance(count, int) or count < 1:
        return ()  # the decoder refuses what is no number of layers
    if count > MOST_DIFFERENT:
        raise ConfigError(f"{count:,} layers that may differ; at most {MOST_DIFFERENT:,} are read")
    turns = [1] * count
    if architecture == "SmolLM3ForCausalLM":
        every = table.get("no_rope_layer_interval", 4)
        turns = table.get("no_rope_layers") or [(layer + 1) % every for layer in range(count)]
        if len(turns) < count:
            raise ConfigError(f"no_rope_layers has {len(turns)} numbers for {count} layers")
    turning = [bool(each) for each in turns[:count]]
    windows = _windows(table, architecture, turning)
    local = architecture in BY_KINDS
    return tuple(
        LayerKind(turns=each, window=window, local=local and window is not None)
        for each, window in zip(turning, windows, strict=True)
    )


BY_KINDS = {"Gemma3ForCausalLM": 10_000.0, "Olmo3ForCausalLM": THETA["Olmo3ForCausalLM"]}
"""These architectures have positions by kinds of layers; those with a window have this base if a file says nothing of
it.
"""


def _by_kinds(table: Mapping[str, Any], base: float) -> tuple[dict[str, Any], Any]:
    """Return the table with the positions of layers without a window only, and the base of the others.

    `base`: of those, if the table has none.
    """
    kinds = table.get("rope_parameters") or {}
    if not isinstance(kinds, dict):
        raise ConfigError("rope_scaling or rope_parameters is no table")
    local = kinds.get(SLIDING, {}).get("rope_theta", table.get("rope_local_base_freq", base))
    return {**table, "rope_parameters": kinds.get("full_attention", {})}, local


def judged_configuration(table: Mapping[str, Any]) -> list[KeyVerdict]:
    """Return what is done with every key of a ``config.json``.

    Raises
    ------
    UnsupportedError
        An architecture that is not known.
    """
    architecture = _architecture(table)
    return judged(CONFIG, table, (CONFIG_KEYS | CLASSIC_KEYS)[architecture], architecture)


WITH_EXPERTS = {"MixtralForCausalLM": ("num_local_experts", 8, 2), "Qwen3MoeForCausalLM": ("num_experts", 128, 8),
                "OlmoeForCausalLM": ("num_experts", 64, 8)}  # fmt: skip
"""These architectures have experts: the key of how many, and what a file that says nothing means; of the chosen ones
too.
"""


def _experts(table: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return what a decoder has of experts."""
    if architecture not in WITH_EXPERTS:
        return {}
    key, experts, chosen = WITH_EXPERTS[architecture]
    experts = table.get(OTHER_NAME[key]) or experts
    found = {"experts": table.get(key, experts), "chosen": table.get("num_experts_per_tok", chosen)}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{shown(value)} {name}", hint="at least 1")
    mixtral = architecture == "MixtralForCausalLM"
    return found | {"renormalised": mixtral or table.get("norm_topk_prob", False)}


OF_INPUTS = {**dict.fromkeys((*GLMS, "SeedOssForCausalLM"), True), "HeliumForCausalLM": False}
"""Queries, keys and values alone have the biases of which attention_bias says, and this if a file says nothing."""


def _biases(table: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return which products of a decoder have biases."""
    ffn = architecture in FFN_BIASED and table.get("mlp_bias", False)
    if architecture == "Ernie4_5ForCausalLM":
        return dict.fromkeys(("qkv_bias", "o_bias", "ffn_bias"), table.get("use_bias", False))
    if architecture in OF_INPUTS:
        own = table.get("attention_bias", OF_INPUTS[architecture])
        outer = architecture == "SeedOssForCausalLM" and table.get("attention_out_bias", False)
        return {"qkv_bias": own, "o_bias": outer, "ffn_bias": ffn}
    biased = architecture in BIASED and table.get("attention_bias", False)
    return {"qkv_bias": architecture == "Qwen2ForCausalLM" or biased, "o_bias": biased, "ffn_bias": ffn}


def _sizes(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a decoder; ConfigError if one is missing."""
    for key in SIZES.values():
        if key not in table:
            raise ConfigError(f"key {key} is missing")
    return {field: table[key] for field, key in SIZES.items()}


def _classic(given: Mapping[str, Any], architecture: str, warnings: tuple[str, ...]) -> Configuration:
    """Return the configuration of one of `CLASSIC`."""
    table = plain_names(given, architecture)
    values = _sizes(table)
    heads, kv_heads = values["heads"], table.get("num_key_value_heads", KV_HEADS.get(architecture))
    values["kv_heads"] = heads if kv_heads is None else kv_heads
    scaling = rotary = None
    if architecture in PARTS:
        values["rope_base"], scaling = _rope(table)
        sizes = values["hidden"], heads
        whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in sizes)
        rotary = _rotary(table, sizes[0] // sizes[1]) if whole else None
    elif architecture in TURNING_WHOLE:
        values["rope_base"], scaling = _rope(table, TURNING_WHOLE[architecture])
    elif architecture == "GPTJForCausalLM":
        rotary = table.get("rotary_dim", 64)
    decoder, factors = classic_decoder(table, architecture, values, rotary, scaling)
    stops = token_ids(table.get("eos_token_id"), "eos_token_id", decoder.vocabulary)
    turns = architecture in PARTS or architecture in TURNING_WHOLE
    said = _short_texts(table, values["context"]) if turns else []
    return Configuration(decoder, architecture, stops, (*warnings, *said), factors)


def configuration_of(table: Mapping[str, Any]) -> Configuration:
    """Return the configuration of a table with the hub's keys.

    Raises
    ------
    UnsupportedError
        A model of another kind, by its name.
    ConfigError
        A key is missing or senseless.
    """
    architecture, verdicts = _architecture(table), judged_configuration(table)
    refuse_first(verdicts)
    if architecture in CLASSIC:
        return _classic(table, architecture, tuple(warnings_of(verdicts)))
    values = _sizes(table) | _experts(table, architecture)
    if architecture == "Qwen3MoeForCausalLM":
        values["ffn"] = table.get("moe_intermediate_size", 768)
    heads, hidden = values["heads"], values["hidden"]
    head_size = table.get("head_dim", HEAD_SIZE.get(architecture))
    kv_heads = table.get("num_key_value_heads", KV_HEADS.get(architecture))
    values["kv_heads"] = heads if kv_heads is None else kv_heads
    if head_size is None:
        whole = isinstance(heads, int) and isinstance(hidden, int) and heads > 0
        if whole and hidden % heads:
            raise ConfigError(f"hidden_size {hidden} is no multiple of {heads} heads, and head_dim is missing")
        head_size = hidden // heads if whole else 1  # the decoder refuses what is no whole number
    layers, rope = _layers(table, architecture), table
    if architecture in BY_KINDS:
        rope, base = _by_kinds(table, BY_KINDS[architecture])
        values["local_base"] = base if any(layer.local for layer in layers) else None
    values["rope_base"], values["scaling"] = _rope(rope, THETA.get(architecture, 10_000.0))
    warnings, scaling = list(warnings_of(verdicts)), values["scaling"]
    if scaling is not None and scaling.kind == "longrope" and values["context"] > scaling.original:
        values["context"] = scaling.original
        warnings.append(f"texts of up to {scaling.original} tokens: in longer ones positions turn by long_factor")
    warnings += _short_texts(rope, values["context"])
    if architecture in PARTLY and isinstance(head_size, int):
        values["rotary"] = _rotary(table, head_size, PARTLY[architecture])
    gemma = architecture in GEMMAS
    later = gemma and architecture != "GemmaForCausalLM"
    factors, tied = Factors(), table.get("tie_word_embeddings", architecture in TIED)
    if architecture == "GraniteForCausalLM":
        factors = factors_of(table)
    elif gemma and isinstance(hidden, int) and hidden > 0:  # the decoder refuses what is no whole number
        score = table.get("query_pre_attn_scalar", 256) ** -0.5 if later else None
        factors = Factors(embedding=math.sqrt(hidden), attention=score, tied=tied is True, norms=1.0)
    olmo = architecture in ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
    decoder = Decoder(
        **values,
        head_size=head_size,
        **_biases(table, architecture),
        epsilon=table.get("rms_norm_eps", EPSILON.get(architecture, 1e-6)),
        norms="behind" if olmo else "both" if later or architecture == "Glm4ForCausalLM" else "before",
        score_cap=table.get("attn_logit_softcapping", 50.0) if architecture == "Gemma2ForCausalLM" else None,
        logit_cap=_logit_cap(table, architecture),
        projection_norms=olmo or architecture == "OlmoeForCausalLM",
        different=layers,
        tied=False if factors.unties else tied,
        head_norms=architecture in ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Gemma3ForCausalLM"),
        activation="gelu" if gemma else ACTIVATION_NAMES[table.get("hidden_act", "silu")],
    )
    decoder = decoder.within(decoder.context)
    stops = token_ids(table.get("eos_token_id"), "eos_token_id", decoder.vocabulary)
    return Configuration(decoder, architecture, stops, tuple(warnings), factors)


def read_configuration(path: Path) -> Configuration:
    """Return what a ``config.json`` says; errors name the file."""
    table = read_json(path, "a directory with config.json and *.safetensors")
    try:
        return configuration_of(table)
    except UnsupportedError as error:
        raise UnsupportedError(error.what, where=path, cause=error.cause, hint=error.hint) from None
    except ConfigError as error:
        raise ConfigError(error.what, where=path, hint=error.hint, path=str(path)) from None


def _written_as(decoder: Decoder, architecture: str) -> str:
    """Return the architecture as which a decoder is written."""
    olmo2 = decoder.norms == "behind" and decoder.projection_norms
    own = {
        "Olmo2ForCausalLM": olmo2,
        "Qwen3ForCausalLM": decoder.head_norms,
        "SmolLM3ForCausalLM": not all(kind.turns for kind in decoder.kinds),
    }
    names = [name for name, so in own.items() if so]
    caps = decoder.score_cap, decoder.logit_cap, decoder.local_base
    if any(each is not None for each in caps):
        raise UnsupportedError(
            "caps of scores and logits, and local positions, cannot be written", hint="its own files"
        )
    if decoder.centred or decoder.parallel or decoder.learned or decoder.head_bias or not decoder.gated:
        raise UnsupportedError("a decoder with parts of older models cannot be written", hint="its own files")
    if decoder.experts:
        raise UnsupportedError("a decoder with experts cannot be written", hint="its own files")
    if decoder.rotary is not None:
        raise UnsupportedError("a decoder of which a part of each head turns cannot be written", hint="its own files")
    foreign = not olmo2 and (decoder.norms != "before" or decoder.projection_norms)
    if len(names) > 1 or foreign or (decoder.ffn_bias and names and names[0] not in FFN_BIASED):
        raise UnsupportedError(
            "a decoder with these norms, layers and biases together is no known architecture, and cannot be written",
            hint=f"one of {', '.join(ARCHITECTURES)}",
        )
    name = names[0] if names else "LlamaForCausalLM" if architecture in (*LOWERED, *own) else architecture
    windowed = (*WITH_CHOICE, *["MistralForCausalLM"] * ("window" not in decoder.marked))
    if decoder.window is not None and name not in windowed:
        raise UnsupportedError(f"a window of attention in a {name} cannot be written", hint="its own files")
    return name


def write_configuration(configuration: Configuration) -> str:
    """Return the text of a ``config.json``; what `harness.models.lowering` makes a LLaMA of is written as one.

    A decoder with norms of heads is a Qwen3, one with layers that turn nothing a SmolLM3, and one with norms behind the
    parts of a layer an Olmo2, whatever it was read from.

    Raises
    ------
    UnsupportedError
        A decoder that none of the architectures is.
    """
    decoder = configuration.decoder
    configuration = replace(configuration, architecture=_written_as(decoder, configuration.architecture))
    table: dict[str, Any] = {
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
        "hidden_act": next(name for name, kind in ACTIVATION_NAMES.items() if kind == decoder.activation),
        "attention_bias": decoder.qkv_bias,
        "tie_word_embeddings": decoder.tied,
        "eos_token_id": list(configuration.stops) or None,
    }
    if decoder.ffn_bias:
        table["mlp_bias"] = True
    if configuration.architecture == "SmolLM3ForCausalLM":
        table["no_rope_layers"] = [int(layer.turns) for layer in decoder.different]
    if configuration.architecture == "MistralForCausalLM":
        table["sliding_window"] = decoder.window
    elif decoder.window is not None:
        kinds = {True: SLIDING, False: "full_attention"}
        table |= {
            "use_sliding_window": True,
            "sliding_window": decoder.window,
            "layer_types": [kinds[layer.window is not None] for layer in decoder.different],
        }
    if decoder.scaling is not None:
        table["rope_scaling"] = _written(decoder.scaling)
    return json.dumps(table, indent=2) + "\n"


def _written(scaling: Scaling) -> dict[str, Any]:
    """Return the table of a scaling, as `_rope` reads it."""
    table = {"rope_type": scaling.kind, "factor": scaling.factor, "original_max_position_embeddings": scaling.original}
    if scaling.kind == "yarn":
        more = {"beta_slow": scaling.low, "beta_fast": scaling.high}
        return table | more | {"attention_factor": scaling.amplitude, "truncate": scaling.whole}
    if scaling.kind == "llama3":
        return table | {"low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
    if scaling.kind == "longrope":
        return table | {"short_factor": list(scaling.pairs), "attention_factor": scaling.amplitude}
    return {"rope_type": scaling.kind, "factor": scaling.factor}
