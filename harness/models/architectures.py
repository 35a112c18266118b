"""These architectures are read, each key of their ``config.json`` being used, ignored or refused.

The meaning of keys is that of the hub's library (transformers 5; version 4 where a key is older).  What it ignores, is
ignored; what it obeys and this decoder does not have, is refused; what means one thing to the library and another to
the maker of the file (a window in a LLaMA, say, which that class never looks at) is refused as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabric.networks.inference.rope import KINDS
from harness.models.keys import NOTHING, ONE, Key, Refuses, ignored, unless, used
from wse_core.errors.values import named, shown

__all__ = [
    "ACTIVATION_NAMES",
    "ARCHITECTURES",
    "COMMON",
    "CONFIG_KEYS",
    "ELSEWHERE",
    "GLMS",
    "HEAD_SIZE",
    "OTHER_NAME",
    "POSITIONS",
    "ROPE_KEYS",
    "SLIDING",
    "THETA",
    "WINDOW",
    "a_factor",
    "an_interval",
    "architectures_key",
    "heads_that_fill",
    "part_of_a_head",
    "rope_key",
    "truth_key",
]

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "MistralForCausalLM": "mistral",
    "Phi3ForCausalLM": "phi3",
    "GraniteForCausalLM": "granite",
    "GemmaForCausalLM": "gemma",
    "SmolLM3ForCausalLM": "smollm3",
    "Olmo2ForCausalLM": "olmo2",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Olmo3ForCausalLM": "olmo3",
    "MixtralForCausalLM": "mixtral",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "OlmoeForCausalLM": "olmoe",
    "GlmForCausalLM": "glm",
    "Glm4ForCausalLM": "glm4",
    "HeliumForCausalLM": "helium",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "SeedOssForCausalLM": "seed_oss",
}
"""These architectures are read, each with the `model_type` that says the same."""

GLMS = ("GlmForCausalLM", "Glm4ForCausalLM")
"""In these architectures a part of each head turns, and gate and up are one matrix."""

MANY = "keys and values that come from a vector they have in common, and an expert that all tokens share"
PICTURES = "pictures beside texts; files of its model of texts alone are read"
SQUARED = "a squared relu in its feed-forward part"
SLOPES = "positions that are a slope of the scores (ALiBi)"
STATES = "layers that keep a state instead of keys and values"

ELSEWHERE = {
    "GptOssForCausalLM": "a score that belongs to no token in each softmax, and experts with biases",
    "DeepseekV2ForCausalLM": MANY,
    "DeepseekV3ForCausalLM": MANY,
    "Qwen2MoeForCausalLM": "an expert that all tokens share",
    "Llama4ForCausalLM": "attention inside of chunks of a text, and an expert that all tokens share",
    "Llama4ForConditionalGeneration": PICTURES,
    "Gemma3ForConditionalGeneration": PICTURES,
    "Mistral3ForConditionalGeneration": PICTURES,
    "Qwen2_5_VLForConditionalGeneration": PICTURES,
    "GraniteMoeForCausalLM": "experts in a layout of their own, with the factors of a Granite",
    "PhimoeForCausalLM": "experts that are chosen in another way, beside LayerNorm",
    "NemotronForCausalLM": SQUARED,
    "ArceeForCausalLM": SQUARED,
    "FalconForCausalLM": f"queries, keys and values in an order of their own, in old sizes {SLOPES}",
    "BloomForCausalLM": SLOPES,
    "MptForCausalLM": SLOPES,
    "Glm4MoeForCausalLM": "an expert that all tokens share, and experts that are chosen in another way",
    "Ernie4_5_MoeForCausalLM": "an expert that all tokens share",
    "ApertusForCausalLM": "an activation with weights of its own",
    "MambaForCausalLM": STATES,
    "Mamba2ForCausalLM": STATES,
    "FalconH1ForCausalLM": STATES,
    "Lfm2ForCausalLM": STATES,
    "Qwen3NextForCausalLM": STATES,
}
"""These architectures are not read: name -> what they have that this decoder does not."""

ACTIVATION_NAMES = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu",
                    "gelu_fast": "gelu", "gelu_python_tanh": "gelu", "gelu": "gelu_erf", "gelu_python": "gelu_erf",
                    "relu": "relu"}  # fmt: skip
"""Activations that are modelled, by the library's names; the first name of each is the one that is written."""

GEMMA_NAMES = ("gelu_pytorch_tanh", "gelu")
"""Names of the one activation of a Gemma: files say gelu and mean its tanh form."""

WINDOW = 4096
"""A Mistral or Gemma, or a Qwen2 or Qwen3 that uses one, has this window of attention if the file names none."""

HEAD_SIZE = {"Qwen3ForCausalLM": 128, "GemmaForCausalLM": 256, "Gemma2ForCausalLM": 256, "Gemma3ForCausalLM": 256,
             **dict.fromkeys((*GLMS, "HeliumForCausalLM", "Ernie4_5ForCausalLM", "SeedOssForCausalLM"),
                             128)}  # fmt: skip
"""A head has so many features where the library has a number if the file says nothing of them."""

THETA = {"SmolLM3ForCausalLM": 2_000_000.0, "Gemma3ForCausalLM": 1_000_000.0, "Olmo3ForCausalLM": 500_000.0,
         "MixtralForCausalLM": 1_000_000.0, "HeliumForCausalLM": 100_000.0,
         "Ernie4_5ForCausalLM": 500_000.0}  # fmt: skip
"""The angles have this base where the library has another one than 10,000 if the file says nothing of it."""

SLIDING = "sliding_attention"
"""Layers with a window have this name in the library."""

POSITIONS = ("default", "dynamic", *KINDS)
"""These types of positions are modelled."""

HOST = "it is about the host's types and speed"
TRAINING = "it is about training"
OF_THE_LIBRARY = "it is about the library that wrote the file"
TASK = "it is about other tasks than to go on with a text"
DRAWING = (
    "how tokens are drawn is said by --temperature, --top-k and --tokens; the library does not read it here either"
)
TOKENS = "what stands before and between texts is said by the tokenizer"


def _activation(value: Any, table: Mapping[str, Any]) -> str | None:
    known = isinstance(value, str) and value in ACTIVATION_NAMES
    return None if known else f"the feed-forward part of the decoder has {', '.join(ACTIVATION_NAMES)}"


def _activation_of_gemma(value: Any, table: Mapping[str, Any]) -> str | None:
    return None if value in GEMMA_NAMES else "a Gemma has gelu in its tanh form"


def _hidden_activation(value: Any, table: Mapping[str, Any]) -> str | None:
    return None if value == "gelu_pytorch_tanh" else "a Gemma has gelu in its tanh form (gelu_pytorch_tanh)"


def _other_activation(value: Any, table: Mapping[str, Any]) -> str | None:
    return (
        None if value in (None, *GEMMA_NAMES) else "a Gemma has gelu in its tanh form; the library does not look here"
    )


def architectures_key(known: Mapping[str, str]) -> Refuses:
    """Return what refuses several architectures, or one of the known ones of which model_type says another thing."""

    def refuses(value: Any, table: Mapping[str, Any]) -> str | None:
        if isinstance(value, list) and len(value) > 1:
            return "one architecture is read, and it must be clear which"
        kind = table.get("model_type")
        said = known.get(value[0]) if isinstance(value, list) and value and isinstance(value[0], str) else None
        if said is not None and kind is not None and kind != said:
            return f"model_type says {shown(kind)}, which the library would believe"
        return None

    return refuses


def _type_of(table: Mapping[str, Any]) -> Any:
    """Return the type of positions that a table names; "without a name" if it scales and does not say how."""
    for name in ("rope_type", "type"):
        if table.get(name) is not None:
            return table[name]
    return "without a name" if table.get("factor") is not None else "default"


def _position_type(value: Any, table: Mapping[str, Any]) -> str | None:
    kind = _type_of(table)
    if value is not None and value != kind:
        return f"rope_type says {shown(kind)} beside it"
    return (
        None
        if kind in POSITIONS
        else f"positions of type {named(str(kind))} are not modelled; {', '.join(POSITIONS)} are"
    )


def _scaling_only(*kinds: str) -> Refuses:
    """Return what refuses a number that positions of another type do not have."""

    def refuses(value: Any, table: Mapping[str, Any]) -> str | None:
        kind = _type_of(table)
        foreign = kind in POSITIONS and kind not in kinds  # an unknown type is refused by its own key
        return f"positions of type {kind} do not have it" if foreign and value not in ONE else None

    return refuses


def truth_key(value: Any, table: Mapping[str, Any]) -> str | None:
    """Return why a value is refused that is no truth, or None."""
    return None if isinstance(value, bool) else "it is neither true nor false"


def part_of_a_head(value: Any, table: Mapping[str, Any]) -> str | None:
    """Return why a value cannot be the part of a head that turns; None if it can."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 0 < value <= 1 else "it is no part of a head"


PARTIAL = unless(ONE, "part of a head that turns with its position is not modelled: all of it turns")

ROPE_KEYS: dict[str, Key] = {
    "rope_theta": used("base of the angles"),
    "rope_type": used("type of positions", _position_type),
    "type": used("type of positions, by its old name", _position_type),
    "factor": used("by how much pairs turn slower", _scaling_only("dynamic", *KINDS)),
    "low_freq_factor": used("which pairs turn slower by the whole factor", _scaling_only("llama3")),
    "high_freq_factor": used("which pairs turn as before", _scaling_only("llama3")),
    "original_max_position_embeddings": used(
        "context of the first training", _scaling_only("llama3", "yarn", "longrope")
    ),
    "partial_rotary_factor": PARTIAL,
    "rotary_pct": PARTIAL,
    "mrope_section": unless(NOTHING, "positions in pictures and films are not modelled"),
    "attention_factor": used("factor of cosines and sines", _scaling_only("yarn", "longrope")),
    "beta_fast": used("turns of pairs that turn as before", _scaling_only("yarn")),
    "beta_slow": used("turns of pairs that turn slower by the whole factor", _scaling_only("yarn")),
    "mscale": used("how the factor of cosines and sines grows, with mscale_all_dim", _scaling_only("yarn")),
    "mscale_all_dim": used("how the factor of cosines and sines grows, with mscale", _scaling_only("yarn")),
    "truncate": used("whether mixed pairs begin and end at whole numbers", truth_key),
    "short_factor": used("by how much each pair turns slower", _scaling_only("longrope")),
    "long_factor": ignored(
        "it holds for texts longer than the context of the first training, which are refused", _scaling_only("longrope")
    ),
}
"""These keys are known of ``rope_parameters``, and of ``rope_scaling``, its older name."""


def rope_key(value: Any, table: Mapping[str, Any]) -> str | None:
    """Return why a table of positions is refused, or None."""
    if not value:
        return None
    if not isinstance(value, dict):
        return None  # the reader says that it is no table
    if any(isinstance(inner, dict) for inner in value.values()):
        return "a table per kind of layer is not modelled: all layers have the same positions"
    other = table.get("rope_parameters"), table.get("rope_scaling")
    if all(isinstance(each, dict) and each for each in other) and other[0] != other[1]:
        return "rope_parameters and rope_scaling say different things"
    kind = _type_of(value)
    if kind not in POSITIONS and not {"rope_type", "type"} & set(value):
        return f"positions of type {kind} are not modelled; {', '.join(POSITIONS)} are"
    return None


def _no_window(value: Any, table: Mapping[str, Any]) -> str | None:
    return None if not value else "there is no window of attention in it; the library does not look at the key either"


def _kinds_of_layers(value: Any, table: Mapping[str, Any]) -> str | None:
    known = value is None or (isinstance(value, list) and set(map(str, value)) <= {"full_attention", SLIDING})
    return None if known else f"layers of other kinds than full_attention and {SLIDING} are not modelled"


def a_factor(value: Any, table: Mapping[str, Any]) -> str | None:
    """Return why a value can be no factor of weights; None if it can."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 1e-30 <= value <= 1e30 else "it is no positive number of ordinary size"


def _a_cap(value: Any, table: Mapping[str, Any]) -> str | None:
    return None if value is None else a_factor(value, table)


def _no_table_of_kinds(value: Any, table: Mapping[str, Any]) -> str | None:
    if not isinstance(value, dict) or not value:
        return None
    if table.get("rope_parameters"):
        return "rope_parameters has tables of positions too"
    if any(isinstance(inner, dict) for inner in value.values()):
        return "tables of positions by kinds of layers stand in rope_parameters"
    if value.get("rope_type") is None and _type_of(value) != "default":
        return "the type of positions is rope_type here; the library does not look at another name"
    return _position_type(None, value)


def _tables_of_kinds(value: Any, table: Mapping[str, Any]) -> str | None:
    if not isinstance(value, dict) or not value:
        return None
    if not set(value) <= {"full_attention", SLIDING} or not all(isinstance(each, dict) for each in value.values()):
        return f"it has other tables than those of full_attention and {SLIDING}"
    kind = _type_of(value.get(SLIDING, {}))
    return (
        None if kind == "default" else f"positions of type {named(str(kind))} in layers with a window are not modelled"
    )


def _base_of_all(value: Any, table: Mapping[str, Any]) -> str | None:
    kinds = table.get("rope_parameters")
    own = kinds.get(SLIDING) if isinstance(kinds, dict) else None
    if value == THETA["Olmo3ForCausalLM"] or (isinstance(own, dict) and "rope_theta" in own):
        return None
    return "the library gives it to layers without a window only; rope_parameters has bases for both kinds"


def _full_layers(value: Any, table: Mapping[str, Any]) -> str | None:
    kinds = value if isinstance(value, list) else [value]
    return None if set(map(str, kinds)) <= {"full_attention", "None"} else "all layers have full attention"


def _ones(value: Any, table: Mapping[str, Any]) -> str | None:
    if value is None:
        return None
    right = isinstance(value, list) and all(isinstance(each, int) and each in (0, 1) for each in value)
    return None if right else "it is no list of 0 and 1"


def an_interval(value: Any, table: Mapping[str, Any]) -> str | None:
    """Return why a value cannot be an interval between layers; None if it can."""
    return None if isinstance(value, int) and not isinstance(value, bool) and value > 0 else "it is no number of layers"


def _windows_that_are_used(value: Any, table: Mapping[str, Any]) -> str | None:
    if table.get("use_sliding_window"):
        return None
    kinds = value if isinstance(value, list) else [value]
    full = set(map(str, kinds)) <= {"full_attention", "None"}
    return None if full else "layers have a window, and use_sliding_window does not say that there is one"


def _a_number(value: Any, table: Mapping[str, Any]) -> str | None:
    return None if value is not None else "the library takes it as it stands, and null is no number of features"


def heads_that_fill(why: str) -> Refuses:
    """Return what refuses heads that do not have hidden_size features together."""

    def refuses(value: Any, table: Mapping[str, Any]) -> str | None:
        heads = table.get("num_attention_heads")
        whole = isinstance(value, int) and isinstance(heads, int) and value * heads == table.get("hidden_size")
        return None if whole else why

    return refuses


OTHER_NAME = {"num_experts": "num_local_experts", "num_local_experts": "num_experts"}
"""The library has another name for the experts of a layer; its version 5 writes a Qwen3-MoE with that of a Mixtral."""


def _other_name(key: str) -> Key:
    """Return what is done with the other name of the number of experts, whose own key is given."""

    def refuses(value: Any, table: Mapping[str, Any]) -> str | None:
        if value in NOTHING or value == table.get(key, value):
            return None
        return f"{key} says {shown(table[key])}"

    return used(f"experts of a layer, as {key}", refuses)


def _of_the_library(architecture: str) -> str:
    return f"{HEAD_SIZE[architecture]}, as the library has it"


ATTENTION_BIAS = used(
    "whether queries, keys, values and the output projection have a bias; the last one is zero in files without it",
    missing="false",
)
MLP_BIAS = used("whether the products of the feed-forward part have a bias", missing="false")

PARTIAL_ROPE = ROPE_KEYS | {
    "partial_rotary_factor": used("part of a head that turns with its position", part_of_a_head)
}
"""These keys of ``rope_parameters`` are known where a part of a head may turn."""
CODE_BESIDE = "code beside a model reads it; the library does not"

COMMON: dict[str, Key] = {
    "architectures": used("what the model is", architectures_key(ARCHITECTURES)),
    "model_type": used("what the model is"),
    "hidden_size": used("features between layers"),
    "num_hidden_layers": used("layers"),
    "num_attention_heads": used("query heads"),
    "intermediate_size": used("width of the feed-forward part"),
    "vocab_size": used("rows of the embedding"),
    "max_position_embeddings": used("most tokens of prompt and answer"),
    "head_dim": used("features of a head", missing="hidden_size / num_attention_heads"),
    "rms_norm_eps": used("added to the mean square in each norm", missing="1e-06"),
    "rope_theta": used("base of the angles, unless rope_parameters or rope_scaling has one", missing="10000, unless "
                       "rope_parameters or rope_scaling has one"),
    "rope_parameters": used("positions", rope_key, inside=ROPE_KEYS),
    "rope_scaling": used("positions, by their old name", rope_key, inside=ROPE_KEYS),
    "hidden_act": used("the activation", _activation, missing="silu"),
    "tie_word_embeddings": used("whether the output matrix is the embedding", missing="false"),
    "eos_token_id": used("tokens that end an answer, unless generation_config.json has some"),
    "mlp_bias": unless(NOTHING, "its feed-forward part has no biases; the library does not look at the key either"),
    "partial_rotary_factor": PARTIAL,
    "rotary_pct": PARTIAL,
    "rope_interleaved": unless(NOTHING, "pairs of neighbours are not modelled: features lie half a head apart"),
    "use_mrope": unless(NOTHING, "positions in pictures and films are not modelled"),
    "original_max_position_embeddings": unless(NOTHING, "it is read inside of rope_parameters or rope_scaling"),
    "quantization_config": unless(NOTHING, "weights are read in F32, F16 and BF16"),
    "compression_config": unless(NOTHING, "weights are read in F32, F16 and BF16"),
    "lm_head_bias": unless(NOTHING, "the output matrix has no bias; the library does not look at the key either"),
    "auto_map": ignored("code beside a model is not run", neutral=NOTHING),
    "bos_token_id": ignored(TOKENS),
    "pad_token_id": ignored(TOKENS),
    "pretraining_tp": ignored("it cuts products without changing what they mean"),
    "chunk_size_feed_forward": ignored("it cuts products without changing what they mean"),
}  # fmt: skip

COMMON |= dict.fromkeys(
    ("torch_dtype", "dtype", "use_bfloat16", "use_cache", "torchscript", "attn_implementation", "_attn_implementation",
     "_attn_implementation_autoset", "_attn_implementation_internal", "use_flash_attention_2", "_flash_attn_2_enabled",
     "tf_legacy_loss", "cache_implementation"), ignored(HOST)
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "initializer_range", "gradient_checkpointing",
     "output_attentions", "output_hidden_states", "return_dict"), ignored(TRAINING)
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "tokenizer_class", "unsloth_version",
     "unsloth_fixed", "is_llama_config"), ignored(OF_THE_LIBRARY)
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "prefix",
     "sep_token_id", "decoder_start_token_id", "tie_encoder_decoder", "max_sequence_length"), ignored(TASK)
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("is_encoder_decoder", "is_decoder", "add_cross_attention", "cross_attention_hidden_size", "pruned_heads",
     "per_layer_config"), unless(NOTHING, "it makes another model, which is not modelled")
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("num_local_experts", "num_experts", "num_experts_per_tok", "use_qk_norm", "qk_norm", "qk_layernorm",
     "no_rope_layers", "no_rope_layer_interval", "attention_chunk_size", "alibi", "use_parallel_residual",
     "attn_logit_softcapping", "final_logit_softcapping", "logit_softcapping", "clip_qkv"),
    unless(NOTHING, "other models have it; this decoder does not"),
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("logit_scale", "logits_scaling", "embedding_multiplier", "residual_multiplier", "attention_multiplier",
     "lm_head_multiplier"), unless(ONE, "other models have it; this decoder does not")
)  # fmt: skip
COMMON |= dict.fromkeys(
    ("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
     "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
     "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
     "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
     "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"), ignored(DRAWING)
)  # fmt: skip

WINDOWED: dict[str, Key] = {
    "use_sliding_window": used("whether layers have a window of attention", missing="false"),
    "sliding_window": used("window of attention, if use_sliding_window is true", missing="4096, as the library has it"),
    "max_window_layers": used("from which layer on there is a window, if use_sliding_window is true"),
    "layer_types": used("which layers have a window, if use_sliding_window is true", _kinds_of_layers),
}
"""Architectures in which some layers may have a window have these keys."""

GEMMAS: dict[str, Key] = {
    "attention_bias": ATTENTION_BIAS,
    "hidden_act": ignored("the activation is gelu in its tanh form", _other_activation),
    "hidden_activation": used("the activation, gelu in its tanh form", _hidden_activation, missing="gelu_pytorch_tanh"),
    "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
    "use_bidirectional_attention": unless(NOTHING, "keys behind a query are not seen"),
    "query_pre_attn_scalar": used("scores are divided by its root, which queries carry", a_factor, missing="256"),
    "sliding_window": used("window of attention", missing=f"{WINDOW}, as the library has it"),
    "use_sliding_window": ignored("layer_types says which layers have a window"),
}
"""The second and third generation of Gemma have these keys."""

EXPERTS: dict[str, Key] = {
    "num_experts_per_tok": used("experts that a token is given to", missing="8, as the library has it"),
    "norm_topk_prob": used("whether the shares of the chosen experts add up to one", truth_key, missing="false"),
    "sliding_window": ignored("without use_sliding_window it says nothing"),
    "use_sliding_window": unless(NOTHING, "a window of attention in a model with experts other than Mixtral"),
    "layer_types": ignored("all layers have full attention", _full_layers),
    "attention_bias": ATTENTION_BIAS,
    **dict.fromkeys(("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"), ignored(TRAINING)),
}
"""Models with experts have these keys."""

PLAIN: dict[str, Key] = {
    "sliding_window": ignored("without a window it says nothing", _no_window),
    "use_sliding_window": ignored("without a window it says nothing", _no_window),
    "layer_types": ignored("all layers have full attention", _full_layers),
}
"""Architectures without a window have these keys."""


def _bias_of_inputs(missing: str) -> Key:
    return used("whether queries, keys and values have a bias", truth_key, missing=missing)


def _base_of(base: str) -> Key:
    other = "unless rope_parameters or rope_scaling has one"
    return used(f"base of the angles, {other}", missing=f"{base}, {other}")


def _glm(architecture: str) -> dict[str, Key]:
    return COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", _a_number, missing="2, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing=_of_the_library(architecture)),
        "attention_bias": _bias_of_inputs("true"),
        "rms_norm_eps": used("added to the mean square in each norm", missing="1.5625e-07"),
        "partial_rotary_factor": used("part of a head that turns with its position", part_of_a_head, missing="0.5"),
        "rope_parameters": used("positions", rope_key, inside=PARTIAL_ROPE),
        "rope_scaling": used("positions, by their old name", rope_key, inside=PARTIAL_ROPE),
    }  # fmt: skip


CONFIG_KEYS: dict[str, dict[str, Key]] = {
    **{architecture: _glm(architecture) for architecture in GLMS},
    "HeliumForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", _a_number, missing="20, as the library has it"),
        "head_dim": used("features of a head", heads_that_fill("its output projection has hidden_size inputs"),
                         missing=_of_the_library("HeliumForCausalLM")),
        "attention_bias": _bias_of_inputs("false"),
        "mlp_bias": MLP_BIAS,
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-08"),
        "rope_theta": _base_of("100000"),
    },
    "Ernie4_5ForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="2, as the library has it"),
        "head_dim": used("features of a head", missing=_of_the_library("Ernie4_5ForCausalLM")),
        "use_bias": used("whether all products of a layer have biases", truth_key, missing="false"),
        "attention_bias": unless(NOTHING, "use_bias says it; the library does not look at the key"),
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-05"),
        "rope_theta": _base_of("500000"),
        "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
    },
    "SeedOssForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="8, as the library has it"),
        "head_dim": used("features of a head", missing=_of_the_library("SeedOssForCausalLM")),
        "attention_bias": _bias_of_inputs("true"),
        "attention_out_bias": used("whether the output projection has a bias", truth_key, missing="false"),
        "mlp_bias": MLP_BIAS,
        "residual_dropout": ignored(TRAINING),
    },
    "MixtralForCausalLM": COMMON | EXPERTS | {
        "num_key_value_heads": used("heads of keys and values", missing="8, as the library has it"),
        "num_local_experts": used("experts of a layer", missing="8, as the library has it"),
        "num_experts": _other_name("num_local_experts"),
        "num_experts_per_tok": used("experts that a token is given to", missing="2, as the library has it"),
        "norm_topk_prob": unless((None, True, False), "shares of a Mixtral always add up to one"),
        "rope_theta": used("base of the angles, unless rope_parameters or rope_scaling has one", missing="1000000, "
                           "unless rope_parameters or rope_scaling has one"),
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-05"),
        "attention_bias": unless(NOTHING, "a Mixtral has no biases; the library drops them"),
        "sliding_window": used("window of attention", missing="none"),
        "use_sliding_window": ignored("sliding_window alone says whether a Mixtral has a window"),
        "layer_types": ignored("all layers of a Mixtral have the same attention"),
    },
    "Qwen3MoeForCausalLM": COMMON | EXPERTS | {
        "num_key_value_heads": used("heads of keys and values", missing="4, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing="hidden_size / num_attention_heads"),
        "intermediate_size": ignored("all layers have experts, whose width moe_intermediate_size says"),
        "moe_intermediate_size": used("width of an expert", missing="768, as the library has it"),
        "num_experts": used("experts of a layer", missing="128, as the library has it"),
        "num_local_experts": _other_name("num_experts"),
        "decoder_sparse_step": unless((1,), "layers without experts beside such with them"),
        "mlp_only_layers": unless((None, []), "layers without experts beside such with them"),
        "max_window_layers": ignored("without a window it says nothing"),
    },
    "OlmoeForCausalLM": COMMON | EXPERTS | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "head_dim": used("features of a head", heads_that_fill("norms of its projections have hidden_size features"),
                         missing="hidden_size / num_attention_heads"),
        "num_experts": used("experts of a layer", missing="64, as the library has it"),
        "num_local_experts": _other_name("num_experts"),
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-05"),
        "clip_qkv": unless((None,), "queries, keys and values with a limit"),
    },
    "LlamaForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "attention_bias": ATTENTION_BIAS,
        "mlp_bias": MLP_BIAS,
    },
    "Qwen2ForCausalLM": COMMON | WINDOWED | {
        "num_key_value_heads": used("heads of keys and values", missing="32, as the library has it"),
        "attention_bias": ignored("queries, keys and values of a Qwen2 have a bias whatever it says"),
    },
    "Qwen3ForCausalLM": COMMON | WINDOWED | {
        "num_key_value_heads": used("heads of keys and values", missing="32, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing=_of_the_library("Qwen3ForCausalLM")),
        "attention_bias": ATTENTION_BIAS,
    },
    "MistralForCausalLM": COMMON | {
        "num_key_value_heads": used("heads of keys and values", missing="8, as the library has it"),
        "attention_bias": unless(NOTHING, "a Mistral has no biases; the library drops them"),
        "sliding_window": used("window of attention", missing=f"{WINDOW}, as the library has it"),
        "use_sliding_window": ignored("sliding_window alone says whether a Mistral has a window"),
        "layer_types": ignored("all layers of a Mistral have the same attention"),
    },
    "Phi3ForCausalLM": COMMON | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "attention_bias": unless(NOTHING, "a Phi3 has no biases; the library drops them"),
        "sliding_window": used("window of attention", missing="none"),
        "use_sliding_window": ignored("sliding_window alone says whether a Phi3 has a window"),
        "layer_types": ignored("all layers of a Phi3 have the same attention"),
        "original_max_position_embeddings": used("context of the first training, for positions of type longrope"),
        "attention_multiplier": ignored("a Phi3 has no such factor; the library drops it"),
        "partial_rotary_factor": used("part of a head that turns with its position", part_of_a_head, missing="1"),
        "rope_parameters": used("positions", rope_key, inside=PARTIAL_ROPE),
        "rope_scaling": used("positions, by their old name", rope_key, inside=PARTIAL_ROPE),
        "full_attn_mod": ignored(CODE_BESIDE),
        "interpolate_factor": ignored(CODE_BESIDE),
    },
    "GraniteForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "attention_bias": ATTENTION_BIAS,
        "mlp_bias": MLP_BIAS,
        "embedding_multiplier": used("factor of the embedding, given to its rows", missing="1"),
        "attention_multiplier": used("factor of the scores, given to the queries", missing="1"),
        "residual_multiplier": used("factor of what a part adds, given to its last product", missing="1"),
        "logits_scaling": used("what logits are divided by, as the output matrix is", missing="1"),
    },
    "GemmaForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="16, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing=_of_the_library("GemmaForCausalLM")),
        "attention_bias": ATTENTION_BIAS,
        "hidden_act": used("the activation, gelu in its tanh form", _activation_of_gemma, missing="gelu_pytorch_tanh"),
        "hidden_activation": ignored("the activation is gelu in its tanh form", _other_activation),
        "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
        "use_bidirectional_attention": unless(NOTHING, "keys behind a query are not seen"),
    },
    "Gemma2ForCausalLM": COMMON | GEMMAS | {
        "num_key_value_heads": used("heads of keys and values", missing="4, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing=_of_the_library("Gemma2ForCausalLM")),
        "layer_types": used("which layers have a window", _kinds_of_layers, missing="each second one, the first too"),
        "attn_logit_softcapping": used("cap of scores", _a_cap, missing="50"),
        "final_logit_softcapping": used("cap of logits", _a_cap, missing="30"),
    },
    "Gemma3ForCausalLM": COMMON | GEMMAS | {
        "num_key_value_heads": used("heads of keys and values", missing="4, as the library has it"),
        "head_dim": used("features of a head", _a_number, missing=_of_the_library("Gemma3ForCausalLM")),
        "layer_types": used("which layers have a window", _kinds_of_layers),
        "sliding_window_pattern": used("each so many layers one has no window, unless layer_types says which",
                                       an_interval, missing="6"),
        "_sliding_window_pattern": ignored("sliding_window_pattern says it"),
        "rope_theta": used("base of the angles of layers without a window, unless rope_parameters has one",
                           missing="1000000, unless rope_parameters has one"),
        "rope_local_base_freq": used("base of the angles of layers with a window, unless rope_parameters has one",
                                     a_factor, missing="10000, unless rope_parameters has one"),
        "rope_parameters": used("positions by kinds of layers", _tables_of_kinds, inside={
            kind: used("positions of layers of this kind", inside=ROPE_KEYS) for kind in ("full_attention", SLIDING)
        }),
        "rope_scaling": used("positions of layers without a window", _no_table_of_kinds, inside=ROPE_KEYS),
        "attn_logit_softcapping": unless(NOTHING, "scores of a Gemma3 have no cap; the library drops it"),
        "final_logit_softcapping": used("cap of logits", _a_cap, missing="none"),
    },
    "Olmo2ForCausalLM": COMMON | PLAIN | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "attention_bias": ATTENTION_BIAS,
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-05"),
    },
    "Olmo3ForCausalLM": COMMON | {
        "num_key_value_heads": used("heads of keys and values", missing="as many as query heads"),
        "attention_bias": ATTENTION_BIAS,
        "rms_norm_eps": used("added to the mean square in each norm", missing="1e-05"),
        "sliding_window": used("window of attention", missing=f"{WINDOW}, as the library has it"),
        "use_sliding_window": ignored("layer_types says which layers have a window"),
        "layer_types": used("which layers have a window", _kinds_of_layers, missing="three of four, the first too"),
        "rope_theta": used("base of the angles of layers without a window, unless rope_parameters has one",
                           _base_of_all, missing="500000, unless rope_parameters has one"),
        "rope_parameters": used("positions by kinds of layers", _tables_of_kinds, inside={
            kind: used("positions of layers of this kind", inside=ROPE_KEYS) for kind in ("full_attention", SLIDING)
        }),
        "rope_scaling": used("positions of layers without a window", _no_table_of_kinds, inside=ROPE_KEYS),
    },
    "SmolLM3ForCausalLM": COMMON | {
        "num_key_value_heads": used("heads of keys and values", missing="4, as the library has it"),
        "attention_bias": ATTENTION_BIAS,
        "mlp_bias": MLP_BIAS,
        "rope_theta": used("base of the angles, unless rope_parameters or rope_scaling has one", missing="2000000, "
                           "unless rope_parameters or rope_scaling has one"),
        "tie_word_embeddings": used("whether the output matrix is the embedding", missing="true"),
        "no_rope_layers": used("layers that turn by positions have 1, others 0", _ones),
        "no_rope_layer_interval": used("each so many layers one does not turn by positions, unless no_rope_layers says "
                                       "which", an_interval, missing="4"),
        "use_sliding_window": used("whether layers without positions have a window of attention", missing="false"),
        "sliding_window": used("window of attention, if use_sliding_window is true"),
        "layer_types": used("which layers have a window, if use_sliding_window is true", _windows_that_are_used),
    },
}  # fmt: skip
"""Each architecture has these known keys."""
