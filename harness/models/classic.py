"""Architectures older than LLaMA's are read here: each key of their ``config.json``, and their tensors.

They have LayerNorm, feed-forward parts without a gate, biases, positions of a table or that turn a part of each head:

=============  ======================================================================================================
GPT-2          positions of a table, beside the embedding; queries, keys and values in one matrix, which is stored
               [inputs, outputs], as all of its products are; gelu; a tied output matrix
GPT-NeoX       (Pythia) a part of each head turns; rows of one matrix have query, key and value of head after head; both
               parts of a layer read the same stream, each by its own norm, or one behind the other
GPT-J          as GPT-NeoX, with one norm of both parts, and with pairs of neighbours that turn
Phi            (1, 1.5 and 2) one norm of both parts; biases everywhere, of the output matrix too
StableLM       gated with silu, LayerNorm; one norm of both parts, or two norms
Starcoder2     no gate, biases everywhere, all of a head turns, perhaps with a window of attention; tied
Cohere         (Command-R, Aya) gated, one norm of both parts, without a bias; pairs of neighbours turn; logits have a
               factor; tied.  The second generation has layers with a window, which turn, and others, which do not
=============  ======================================================================================================

Sources: the classes of the hub's library transformers (modeling_gpt2, _gpt_neox, _gptj, _phi, _stablelm, _starcoder2,
_cohere, _cohere2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.decoder import EMBEDDING, POSITIONS, Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from harness.models.architectures import (
    ACTIVATION_NAMES,
    COMMON,
    GLMS,
    ROPE_KEYS,
    SLIDING,
    a_factor,
    an_interval,
    architectures_key,
    heads_that_fill,
    part_of_a_head,
    rope_key,
    truth_key,
)
from harness.models.keys import NOTHING, Key, ignored, unless, used
from harness.models.lowering import Factors
from harness.models.tensors import Tensor
from wse_core.errors import ConfigError
from wse_core.errors.values import shown

__all__ = [
    "CLASSIC",
    "CLASSIC_KEYS",
    "PARTS",
    "TURNING_WHOLE",
    "classic_decoder",
    "pair_order",
    "plain_names",
    "renamed",
]

CLASSIC = {
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GPTJForCausalLM": "gptj",
    "PhiForCausalLM": "phi",
    "StableLmForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
    "CohereForCausalLM": "cohere",
    "Cohere2ForCausalLM": "cohere2",
}
"""These architectures are read, each with the `model_type` that says the same."""

OTHER_NAMES = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
               "n_positions": "max_position_embeddings"}  # fmt: skip
"""Sizes of a GPT-2 and a GPT-J have these names, which the library takes for the usual ones."""

PARTS = {"GPTNeoXForCausalLM": 0.25, "PhiForCausalLM": 0.5, "StableLmForCausalLM": 0.25}
"""If a file says nothing of it, this part of a head is turned."""


TURNING_WHOLE = {"Starcoder2ForCausalLM": 10_000.0, "CohereForCausalLM": 500_000.0, "Cohere2ForCausalLM": 10_000.0}
"""All of a head turns in these architectures; the angles have this base if a file says nothing of it."""

COHERE = ("CohereForCausalLM", "Cohere2ForCausalLM")
NEIGHBOURS = ("GPTJForCausalLM", *COHERE, *GLMS, "HeliumForCausalLM", "Ernie4_5ForCausalLM")
"""Pairs are neighbours in the files of these architectures."""


# --- keys -------------------------------------------------------------------------------------------------------------


def _activation(value: Any, table: Mapping[str, Any]) -> str | None:
    known = isinstance(value, str) and value in ACTIVATION_NAMES
    return None if known else f"the feed-forward part of the decoder has {', '.join(ACTIVATION_NAMES)}"


def _same_as(other: str) -> Any:
    """Return what refuses a key beside another one that means the same and says something else."""

    def refuses(value: Any, table: Mapping[str, Any]) -> str | None:
        return f"{other} says {shown(table[other])}" if table.get(other, value) != value else None

    return refuses


def _inner(value: Any, table: Mapping[str, Any]) -> str | None:
    whole = value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0)
    return None if whole else "it is no number of features"


def _even(value: Any, table: Mapping[str, Any]) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value > 0 and value % 2 == 0
    return None if whole else "it is no number of pairs of features"


def _positions(value: Any, table: Mapping[str, Any]) -> str | None:
    if isinstance(value, dict) and "longrope" in (value.get("rope_type"), value.get("type")):
        return "positions of type longrope are modelled in a Phi3 only"
    return rope_key(value, table)


def _foreign(names: Iterable[str], why: str) -> dict[str, Key]:
    return dict.fromkeys(names, unless(NOTHING, why))


ELSEWHERE = "other models have it; this one does not"

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "intermediate_size")
ROTARY = {**ROPE_KEYS, "partial_rotary_factor": used("part of a head that turns with its position", part_of_a_head)}

BASE: dict[str, Key] = {name: key for name, key in COMMON.items() if key.does == "ignored"} | {
    "architectures": used("what the model is", architectures_key(CLASSIC)),
    "model_type": used("what the model is"),
    "vocab_size": used("rows of the embedding"),
    "eos_token_id": used("tokens that end an answer, unless generation_config.json has some"),
    "tie_word_embeddings": used("whether the output matrix is the embedding", missing="false"),
    **_foreign(("rms_norm_eps", "head_dim", "num_key_value_heads", "sliding_window", "layer_types",
                "use_sliding_window", "attention_bias", "hidden_activation"), ELSEWHERE),
    **dict.fromkeys(("attn_pdrop", "classifier_dropout"), ignored("it is about training")),
    **dict.fromkeys(("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                     "summary_first_dropout"), ignored("it is about other tasks than to go on with a text")),
}  # fmt: skip

GPT: dict[str, Key] = {
    "n_embd": used("features between layers"),
    "n_layer": used("layers"),
    "n_head": used("query heads"),
    "n_positions": used("most tokens of prompt and answer"),
    **{name: used(f"the same as {other}", _same_as(other)) for other, name in OTHER_NAMES.items()},
    "n_ctx": ignored("n_positions says it; the library does not look at the key either"),
    "n_inner": used("width of the feed-forward part", _inner, missing="4 n_embd"),
    "activation_function": used("the activation", _activation, missing="gelu_new"),
    "layer_norm_epsilon": used("added to the variance in each norm", missing="1e-05"),
    **_foreign(("intermediate_size", "hidden_act", "layer_norm_eps", "rope_theta", "rope_parameters", "rope_scaling",
                "partial_rotary_factor", "rotary_pct"),
               ELSEWHERE),
}  # fmt: skip
"""A GPT-2 and a GPT-J have these keys."""

LATER: dict[str, Key] = {
    **{name: COMMON[name] for name in SIZES},
    "hidden_act": used("the activation", _activation, missing="gelu"),
    "layer_norm_eps": used("added to the variance in each norm", missing="1e-05"),
    "rope_parameters": used("positions", _positions, inside=ROTARY),
    "rope_scaling": used("positions, by their old name", _positions, inside=ROTARY),
}
"""Those with the names that are usual now have these keys."""

TURNING: dict[str, Key] = {
    "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
    "rope_theta": COMMON["rope_theta"],
    "partial_rotary_factor": used("part of a head that turns with its position", part_of_a_head),
    "head_dim": unless((), "the library looks at it in one place and not in another"),
    "qk_layernorm": unless(NOTHING, "norms of queries and keys that subtract the mean are not modelled"),
}
"""A Phi and a StableLM have these keys."""


def _only(*values: Any) -> Key:
    return unless(values, "another layer than the one that is modelled")


ALL_TURNS: dict[str, Key] = {
    "rope_theta": COMMON["rope_theta"],
    "rope_parameters": COMMON["rope_parameters"],
    "rope_scaling": COMMON["rope_scaling"],
    "partial_rotary_factor": COMMON["partial_rotary_factor"],
    "rotary_pct": COMMON["rotary_pct"],
    "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
    "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
}
"""These are the keys of architectures of which all of a head turns."""

COHERES: dict[str, Key] = {
    "hidden_act": used("the activation", _activation, missing="silu"),
    "attention_bias": used("whether the products of attention have a bias", truth_key, missing="false"),
    "logit_scale": used("factor of logits, given to the output matrix", a_factor, missing="0.0625"),
    "head_dim": ignored(
        "hidden_size / num_attention_heads says it",
        heads_that_fill("the library takes hidden_size / num_attention_heads"),
    ),
}

CLASSIC_KEYS: dict[str, dict[str, Key]] = {
    "Starcoder2ForCausalLM": BASE | LATER | ALL_TURNS | {
        "hidden_act": used("the activation", _activation, missing="gelu_pytorch_tanh"),
        "num_key_value_heads": used("heads of keys and values", missing="2, as the library has it"),
        "norm_epsilon": used("added to the variance in each norm", missing="1e-05"),
        "layer_norm_eps": unless(NOTHING, "the library reads norm_epsilon"),
        "use_bias": used("whether all products of a layer have biases", truth_key, missing="true"),
        "sliding_window": used("window of attention", missing="none"),
        "mlp_type": _only(None, "default"),
        "norm_type": _only(None, "layer_norm"),
        **dict.fromkeys(("residual_dropout", "embedding_dropout"), ignored("it is about training")),
    },
    "CohereForCausalLM": BASE | LATER | ALL_TURNS | COHERES | {
        "use_qk_norm": unless(NOTHING, "norms of queries and keys that subtract the mean are not modelled"),
    },
    "Cohere2ForCausalLM": BASE | LATER | ALL_TURNS | COHERES | {
        "sliding_window": used("window of attention", missing="4096, as the library has it"),
        "layer_types": used("which layers have a window, and turn"),
        "sliding_window_pattern": used("each so many layers one has no window, unless layer_types says which",
                                       an_interval, missing="4"),
        "_sliding_window_pattern": ignored("sliding_window_pattern says it"),
        "layer_switch": ignored("sliding_window_pattern says it"),
        "order_of_interleaved_layers": _only(None, "local_attn_first"),
        "position_embedding_type": _only(None, "rope_gptj"),
        "use_qk_norm": unless(NOTHING, "the library does not look at the key"),
        **dict.fromkeys(("use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                         "use_parallel_embedding"), _only(None, True)),
    },
    "GPT2LMHeadModel": BASE | GPT | {
        "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
        "scale_attn_weights": used("whether scores are divided by the root of a head's features", truth_key,
                                   missing="true"),
        "scale_attn_by_inverse_layer_idx": unless(NOTHING, "scores that are divided by the number of the layer"),
        "reorder_and_upcast_attn": ignored("scores are summed in f32 here"),
    },
    "GPTJForCausalLM": BASE | GPT | {
        "rotary_dim": used("features of a head that turn", _even, missing="64"),
        "rotary": ignored("it is about the host's speed"),
        "scale_attn_weights": ignored("the library does not look at the key either"),
    },
    "GPTNeoXForCausalLM": BASE | LATER | {
        "rotary_emb_base": used("base of the angles, unless rope_parameters or rope_scaling has one", missing="10000"),
        "rotary_pct": used("part of a head that turns with its position", part_of_a_head, missing="0.25"),
        "use_parallel_residual": used("whether both parts of a layer read the same stream", truth_key, missing="true"),
        "attention_bias": used("whether the products of attention have a bias", truth_key, missing="true"),
        **_foreign(("rope_theta", "partial_rotary_factor"), "the library reads rotary_emb_base and rotary_pct"),
    },
    "PhiForCausalLM": BASE | LATER | TURNING | {
        "hidden_act": used("the activation", _activation, missing="gelu_new"),
    },
    "StableLmForCausalLM": BASE | LATER | TURNING | {
        "hidden_act": used("the activation", _activation, missing="silu"),
        "num_key_value_heads": used("heads of keys and values", missing="32, as the library has it"),
        "use_qkv_bias": used("whether queries, keys and values have a bias", truth_key, missing="false"),
        "use_parallel_residual": used("whether both parts of a layer read the same stream, by one norm", truth_key,
                                      missing="false"),
        "rope_pct": unless(NOTHING, "the library reads partial_rotary_factor"),
    },
}  # fmt: skip
"""Each architecture has these known keys."""


def plain_names(table: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return a table with the names that are usual now, and with what the library takes for keys that are missing.

    Raises
    ------
    ConfigError
        A size is missing.
    """
    found = dict(table)
    if architecture in ("GPT2LMHeadModel", "GPTJForCausalLM"):
        for old, new in OTHER_NAMES.items():
            if old in found:
                found[new] = found[old]
            elif new not in found:
                raise ConfigError(f"key {old} is missing")
        inner, hidden = table.get("n_inner"), found["hidden_size"]
        found["intermediate_size"] = 4 * hidden if inner is None and isinstance(hidden, int) else inner
        found["hidden_act"] = table.get("activation_function", "gelu_new")
        found["layer_norm_eps"] = table.get("layer_norm_epsilon", 1e-5)
    if architecture == "GPTNeoXForCausalLM":
        found["rope_theta"] = table.get("rotary_emb_base", 10_000.0)
        found["partial_rotary_factor"] = table.get("rotary_pct", PARTS[architecture])
    elif architecture in PARTS:
        found.setdefault("partial_rotary_factor", PARTS[architecture])
    if architecture == "Starcoder2ForCausalLM":
        found["layer_norm_eps"] = table.get("norm_epsilon", 1e-5)
    missing = {"Starcoder2ForCausalLM": "gelu_pytorch_tanh", **dict.fromkeys(COHERE, "silu"),
               "GPTNeoXForCausalLM": "gelu", "PhiForCausalLM": "gelu_new", "StableLmForCausalLM": "silu"}  # fmt: skip
    found.setdefault("hidden_act", missing.get(architecture))
    return found


def _windows(table: Mapping[str, Any], architecture: str, count: int) -> tuple[LayerKind, ...]:
    """Return the layers of an architecture that may have windows of attention."""
    cohere = architecture == "Cohere2ForCausalLM"
    window = table.get("sliding_window", 4096 if cohere else None)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ConfigError(f"sliding_window is {shown(window)}, no number of tokens")
    if not cohere:
        return (LayerKind(window=window),) * count if window is not None else ()
    kinds = table.get("layer_types")
    if kinds is None:
        every = table.get("sliding_window_pattern", 4)
        kinds = [SLIDING if (layer + 1) % every else "full_attention" for layer in range(count)]
    known = isinstance(kinds, list) and all(kind in ("full_attention", SLIDING) for kind in kinds)
    if not known or len(kinds) != count:
        raise ConfigError(f"layer_types is no list of {count} layers, full_attention or {SLIDING}")
    if window is None and SLIDING in kinds:
        raise ConfigError("sliding_window is null, and layers have a window")
    return tuple(LayerKind(turns=kind == SLIDING, window=window if kind == SLIDING else None) for kind in kinds)


def _later_decoder(
    table: Mapping[str, Any], architecture: str, sizes: Mapping[str, Any], head_size: int, scaling: Scaling | None
) -> tuple[Decoder, Factors]:
    """Return the decoder of a Starcoder2 or a Cohere, and its factors."""
    cohere, layers = architecture in COHERE, sizes["layers"]
    count = layers if isinstance(layers, int) and not isinstance(layers, bool) and 0 < layers < 1 << 16 else 0
    biased = table.get("attention_bias", False) if cohere else table.get("use_bias", True)
    tied = table.get("tie_word_embeddings", True)
    factors = Factors(logits=1.0 / table.get("logit_scale", 0.0625) if cohere else 1.0, tied=tied is True)
    decoder = Decoder(
        **sizes,
        head_size=head_size,
        epsilon=table.get("layer_norm_eps", 1e-5),
        qkv_bias=biased,
        o_bias=biased,
        ffn_bias=not cohere and biased,
        tied=False if factors.unties else tied,
        activation=ACTIVATION_NAMES[table["hidden_act"]],
        norms="shared" if cohere else "before",
        scaling=scaling,
        centred=True,
        norm_bias=not cohere,
        gated=cohere,
        different=() if architecture == "CohereForCausalLM" else _windows(table, architecture, count),
    )
    return decoder.within(decoder.context), factors


def classic_decoder(
    table: Mapping[str, Any], architecture: str, sizes: Mapping[str, Any], rotary: int | None, scaling: Scaling | None
) -> tuple[Decoder, Factors]:
    """Return the decoder of a table with usual names, and the factors that its weights are to carry.

    Parameters
    ----------
    table : mapping
        As of `plain_names`.
    architecture : str
        One of `CLASSIC`.
    sizes : mapping
        Fields of the decoder that are read as those of all architectures, and ``rope_base``.
    rotary : int or None
        Features of a head that turn.
    scaling : Scaling or None

    Raises
    ------
    ConfigError
        Sizes that do not fit together.
    """
    hidden, heads = sizes["hidden"], sizes["heads"]
    whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in (hidden, heads))
    if whole and hidden % heads:
        raise ConfigError(f"{shown(hidden)} features are no multiple of {shown(heads)} heads")
    if architecture in TURNING_WHOLE:
        return _later_decoder(table, architecture, sizes, hidden // heads if whole else 1, scaling)
    gpt2, neox, stable = (architecture == name for name in ("GPT2LMHeadModel", "GPTNeoXForCausalLM",
                                                            "StableLmForCausalLM"))  # fmt: skip
    phi, gptj = architecture == "PhiForCausalLM", architecture == "GPTJForCausalLM"
    parallel = table.get("use_parallel_residual", not stable)
    biased = table.get("attention_bias", True) if neox else gpt2 or phi
    layers = sizes["layers"] if isinstance(sizes["layers"], int) and 0 < sizes["layers"] < 1 << 16 else 0
    decoder = Decoder(
        **sizes,
        head_size=hidden // heads if whole else 1,
        epsilon=table.get("layer_norm_eps", 1e-5),
        qkv_bias=table.get("use_qkv_bias", False) if stable else biased,
        o_bias=biased and not stable,
        ffn_bias=not stable,
        head_bias=phi or gptj,
        tied=table.get("tie_word_embeddings", gpt2),
        activation=ACTIVATION_NAMES[table["hidden_act"]],
        norms="before" if gpt2 or not parallel else "beside" if neox else "shared",
        rotary=rotary,
        scaling=scaling,
        centred=True,
        norm_bias=True,
        gated=stable,
        learned=gpt2,
        different=(LayerKind(turns=False),) * layers if gpt2 else (),
    )
    unscaled = gpt2 and table.get("scale_attn_weights", True) is False
    return decoder, Factors(attention=1.0 if unscaled else None)


# --- tensors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """`Names` has what the tensors of an architecture are called.

    Attributes
    ----------
    layers : str
        Regular expression of what stands before the parts of a layer; its group is the layer's number.
    parts : dict of str to str
        Parts of a layer, by the file's names: the decoder's.
    others : dict of str to str
        Names of whole tensors that stand beside the layers, by their beginnings.
    """

    layers: str
    parts: dict[str, str]
    others: dict[str, str]


ATTENTION = {f"self_attn.{name}_proj": f"self_attn.{name}_proj" for name in "qkvo"}
GATED = {f"mlp.{k}_proj": f"mlp.{k}_proj" for k in ("gate", "up", "down")}
NORMS = {name: name for name in ("input_layernorm", "post_attention_layernorm")}
WORDS = EMBEDDING.removesuffix(".weight")

NAMES = {
    "GPT2LMHeadModel": Names(
        r"(?:transformer\.)?h\.(\d+)\.",
        {"ln_1": "input_layernorm", "ln_2": "post_attention_layernorm", "attn.c_attn": "qkv",
         "attn.c_proj": "self_attn.o_proj", "mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
        {"transformer.wte": WORDS, "wte": WORDS, "transformer.wpe": POSITIONS.removesuffix(".weight"),
         "wpe": POSITIONS.removesuffix(".weight"), "transformer.ln_f": "model.norm", "ln_f": "model.norm"},
    ),
    "GPTJForCausalLM": Names(
        r"transformer\.h\.(\d+)\.",
        {"ln_1": "input_layernorm", "mlp.fc_in": "mlp.up_proj", "mlp.fc_out": "mlp.down_proj",
         "attn.out_proj": "self_attn.o_proj", **{f"attn.{k}_proj": f"self_attn.{k}_proj" for k in "qkv"}},
        {"transformer.wte": WORDS, "transformer.ln_f": "model.norm"},
    ),
    "GPTNeoXForCausalLM": Names(
        r"gpt_neox\.layers\.(\d+)\.",
        {**NORMS, "attention.query_key_value": "qkv", "attention.dense": "self_attn.o_proj",
         "mlp.dense_h_to_4h": "mlp.up_proj", "mlp.dense_4h_to_h": "mlp.down_proj"},
        {"gpt_neox.embed_in": WORDS, "gpt_neox.final_layer_norm": "model.norm", "embed_out": "lm_head"},
    ),
    "PhiForCausalLM": Names(
        r"model\.layers\.(\d+)\.",
        {**NORMS, **ATTENTION, "self_attn.dense": "self_attn.o_proj", "mlp.fc1": "mlp.up_proj",
         "mlp.fc2": "mlp.down_proj"},
        {"model.final_layernorm": "model.norm"},
    ),
    "StableLmForCausalLM": Names(
        r"model\.layers\.(\d+)\.",
        {**NORMS, **ATTENTION, **GATED},
        {},
    ),
    "Starcoder2ForCausalLM": Names(
        r"model\.layers\.(\d+)\.",
        {**NORMS, **ATTENTION, "mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"},
        {},
    ),
    **dict.fromkeys(COHERE, Names(r"model\.layers\.(\d+)\.", {**NORMS, **ATTENTION, **GATED}, {})),
}  # fmt: skip

MASKS = re.compile(r".*\.(?:attn|attention)\.(?:bias|masked_bias|rotary_emb\.inv_freq|embed_positions)")
"""Names of tensors that old files carry and nobody needs: causal masks, and angles of positions."""


def renamed(found: Mapping[str, Tensor], decoder: Decoder, architecture: str) -> dict[str, Tensor]:
    """Return the tensors of files under the decoder's names, and [outputs, inputs]; others stay as they are.

    Raises
    ------
    ConfigError
        A matrix of queries, keys and values is of another shape than these together, or two tensors have one name.
    """
    names, made = NAMES[architecture], {}
    layers = re.compile(names.layers + r"(.+)\.(weight|bias)")

    def add(name: str, tensor: Tensor) -> None:
        if name in made:
            raise ConfigError(f"tensor {name} is in the files twice, under two names")
        made[name] = replace(tensor, name=name)

    for name, tensor in found.items():
        if MASKS.fullmatch(name):
            continue
        match = layers.fullmatch(name)
        if match is None or match[2] not in names.parts:
            stem, _, kind = name.rpartition(".")
            add(f"{names.others[stem]}.{kind}" if stem in names.others else name, tensor)
            continue
        part, prefix, kind = names.parts[match[2]], f"model.layers.{match[1]}.", match[3]
        if architecture == "GPT2LMHeadModel" and len(tensor.shape) == 2:
            tensor = replace(tensor, data=tensor.data.T)
        if part == "qkv":
            for product, own in _apart(tensor, name, decoder, architecture).items():
                add(f"{prefix}self_attn.{product}.{kind}", own)
        else:
            add(f"{prefix}{part}.{kind}", tensor)
    return made


def _apart(tensor: Tensor, name: str, decoder: Decoder, architecture: str) -> dict[str, Tensor]:
    """Return queries, keys and values of a tensor that has all of them: one behind the other, or head after head."""
    rows = 3 * decoder.query_features
    if not tensor.shape or tensor.shape[0] != rows:
        raise ConfigError(f"tensor {name} is {list(tensor.shape)}; queries, keys and values have {rows} rows together")
    inputs = tensor.data.shape[1:]
    if architecture == "GPT2LMHeadModel":
        data = tensor.data.reshape(3, decoder.query_features, *inputs)
    else:
        data = tensor.data.reshape(decoder.heads, 3, decoder.head_size, *inputs).swapaxes(0, 1)
    parts = [each.reshape(decoder.query_features, *inputs) for each in data]
    return {f"{k}_proj": replace(tensor, data=part) for k, part in zip("qkv", parts, strict=True)}


def pair_order(decoder: Decoder, architecture: str) -> NDArray[np.int64] | None:
    """Return which feature of what turns in a file each one here is, if pairs are neighbours there; else None."""
    if architecture not in NEIGHBOURS:
        return None
    return np.arange(2 * decoder.turned_pairs).reshape(-1, 2).T.ravel()
