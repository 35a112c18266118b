"""Keys of GGUF files are used, ignored or refused, and with the tensors come to a ``config.json``.

A file's own architecture (`general.architecture`) is one of the hub's under another name; its keys become the hub's, so
that one place judges and reads both.  Numbers that a file does not have and programs for it take are theirs, not the
hub's: the scale of a Gemma's scores by its size, the base of its local positions.

Source: the program llama.cpp, which made the format (its converter from the hub's files, and its graphs).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from harness.models.architectures import SLIDING
from harness.models.keys import NOTHING, ONE, Key, KeyVerdict, Refuses, ignored, judged, unless, used
from harness.models.tensors import Tensor
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = [
    "GGUF_ARCHITECTURES",
    "OLDER",
    "WITH_EXPERTS",
    "architecture_of",
    "configuration_table",
    "gguf_stops",
    "hub_architecture_of",
    "judged_gguf",
]

GGUF_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gptneox": "GPTNeoXForCausalLM",
    "phi2": "PhiForCausalLM",
    "stablelm": "StableLmForCausalLM",
}
"""These architectures are read: name -> what the hub calls it."""

OTHERWISE = {"llama": ("expert_count", "MixtralForCausalLM"), "olmo2": ("attention.sliding_window", "Olmo3ForCausalLM")}
"""An architecture is this one to the hub if a file has this key of it that is not zero."""

WITH_EXPERTS = ("llama", "qwen3moe", "olmoe")
"""Layers may have experts in these architectures."""

OLDER = ("gpt2", "gptneox", "phi2", "stablelm")
"""These architectures have LayerNorm."""

STOPS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""An answer is ended by tokens whose keys end so."""

OF_LAYERS = {46: "gemma2", 62: "gemma3"}
"""Layers of the two Gemmas whose scores are divided by sqrt(hidden / heads), as programs for the format know them."""

DRAWING = "how tokens are drawn is said by --temperature, --top-k and --tokens"
ABOUT = "it is about the file"
UNLESS = "other models have it; this decoder does not"

Metadata = Mapping[str, Any]
Tensors = Mapping[str, Tensor]


def architecture_of(metadata: Metadata) -> str:
    """Return the file's own name of its architecture.

    Raises
    ------
    UnsupportedError
        It is not read.
    """
    found = metadata.get("general.architecture")
    if not isinstance(found, str) or found not in GGUF_ARCHITECTURES:
        what = f"architecture {named(found)}" if isinstance(found, str) else "no general.architecture"
        raise UnsupportedError(what, hint=f"read are {', '.join(GGUF_ARCHITECTURES)}")
    return found


def hub_architecture_of(metadata: Metadata) -> str:
    """Return the hub's name of a file's architecture."""
    own = architecture_of(metadata)
    key, name = OTHERWISE.get(own, ("", ""))
    return name if key and metadata.get(f"{own}.{key}") else GGUF_ARCHITECTURES[own]


def _only(values: Collection[Any], why: str) -> Refuses:
    """Return what refuses all other values."""
    return lambda value, _: None if not isinstance(value, list) and value in values else why


def _same_as(other: str, why: str) -> Refuses:
    """Return what refuses a value that differs from that of another key."""
    return lambda value, table: None if value == table.get(other, value) else why


def _one_number(value: Any, table: Metadata) -> str | None:
    same = not isinstance(value, list) or len(set(map(str, value))) == 1
    return None if same else "layers of one model that differ in it are not modelled"


def _no_scaling_of_its_own(value: Any, table: Metadata) -> str | None:
    kinds = ("none", "linear", "yarn", "longrope")
    return None if value in kinds else f"positions of type {shown(value)} are not modelled; {', '.join(kinds)} are"


def _truth(value: Any, table: Metadata) -> str | None:
    return None if isinstance(value, bool) else "it is neither true nor false"


def _whole(value: Any, table: Metadata) -> str | None:
    return None if isinstance(value, list) and value else "it is no list"


def _own_keys(name: str) -> dict[str, Key]:
    """Return the known keys that begin with the name of an architecture, without it."""
    found: dict[str, Key] = {
        "vocab_size": used("rows of the embedding"),
        "context_length": used("most tokens of prompt and answer"),
        "embedding_length": used("features between layers"),
        "block_count": used("layers"),
        "feed_forward_length": used("width of the feed-forward part", _one_number),
        "attention.head_count": used("query heads", _one_number),
        "attention.head_count_kv": used("heads of keys and values", _one_number, missing="as many as query heads"),
        "attention.key_length": used("features of a head"),
        "attention.value_length": used(
            "features of a head", _same_as(f"{name}.attention.key_length", "keys and values of a head differ in it")
        ),
        "attention.layer_norm_rms_epsilon": used("added to the mean square in each norm"),
        "attention.layer_norm_epsilon": ignored("norms are RMSNorms", _only((None, 0), UNLESS)),
        "attention.causal": ignored("keys behind a query are not seen", _only((True,), "all of them are causal here")),
        "rope.dimension_count": used("features of a head that turn with its position"),
        "rope.freq_base": used("base of the angles", missing="10000"),
        "rope.scaling.type": used("type of positions", _no_scaling_of_its_own),
        "rope.scaling.factor": used("by how much pairs turn slower"),
        "rope.scale_linear": used("by how much pairs turn slower, by its old name"),
        "rope.scaling.original_context_length": used("context of the first training"),
        "rope.scaling.attn_factor": used("factor of cosines and sines"),
        "rope.scaling.yarn_beta_fast": used("turns of pairs that turn as before"),
        "rope.scaling.yarn_beta_slow": used("turns of pairs that turn slower by the whole factor"),
        "rope.scaling.yarn_log_multiplier": unless((*NOTHING, 0.1), UNLESS),
        "rope.scaling.yarn_ext_factor": unless(ONE, UNLESS),
        "rope.scaling.yarn_attn_factor": unless(ONE, UNLESS),
        "rope.scaling.finetuned": ignored("it is about training"),
        "tensor_data_layout": ignored(
            "rows of queries and keys lie as the architecture says",
            _only(("Meta AI original pth", "reference"), "another layout of rows"),
        ),
    }
    for key in ("expert_count", "expert_used_count", "expert_shared_count", "leading_dense_block_count",
                "use_parallel_residual", "attention.max_alibi_bias", "attention.clamp_kqv", "attention.q_lora_rank",
                "attention.kv_lora_rank", "attention.shared_kv_layers", "attention.temperature_scale",
                "attention.temperature_length", "attention.output_scale", "nextn_predict_layers", "pooling_type",
                "attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window",
                "rope.dimension_sections", "swin_norm", "expert_feed_forward_length"):  # fmt: skip
        found[key] = unless(NOTHING, UNLESS)
    for key in ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"):
        found[key] = unless((*ONE, 0), UNLESS)
    found |= _keys_of_one(name)
    return {f"{name}.{key}": value for key, value in found.items()}


def _keys_of_one(name: str) -> dict[str, Key]:
    """Return the keys that are known in one architecture only, or otherwise than in others."""
    window, found = used("window of attention"), dict[str, Key]()
    if name == "granite":
        found |= {
            "attention.scale": used("factor of the scores, given to the queries"),
            "embedding_scale": used("factor of the embedding, given to its rows"),
            "residual_scale": used("factor of what a part adds, given to its last product"),
            "logit_scale": used("what logits are divided by, as the output matrix is"),
        }
    elif name in WITH_EXPERTS:
        found |= {
            "expert_count": used("experts of a layer"),
            "expert_used_count": used("experts that a token is given to"),
        }
        if name == "qwen3moe":
            found["feed_forward_length"] = ignored("all layers have experts")
            found["expert_feed_forward_length"] = used("width of an expert")
    elif name == "phi3":
        found["attention.sliding_window"] = window
    elif name == "olmo2":
        found["attention.sliding_window"] = used("window of attention, with which it is an OLMo 3")
        found["attention.sliding_window_pattern"] = used("which layers have a window", missing="3 of 4")
    elif name in OLDER:
        found |= {
            "attention.layer_norm_epsilon": used("added to the variance in each norm"),
            "attention.layer_norm_rms_epsilon": unless(NOTHING, UNLESS),
        }
        if name in ("gptneox", "stablelm"):
            found["use_parallel_residual"] = used("whether both parts of a layer read the same stream", _truth)
        if name == "gpt2":
            found["rope.freq_base"] = found["rope.dimension_count"] = ignored("its positions are those of a table")
    elif name in ("gemma2", "gemma3"):
        found |= {
            "attention.sliding_window": window,
            "final_logit_softcapping": used("cap of logits"),
            "rope.freq_base_swa": used("base of the angles of layers with a window"),
        }
        if name == "gemma2":
            found["attn_logit_softcapping"] = used("cap of scores", missing="50")
        else:
            found["attention.sliding_window_pattern"] = used("which layers have a window", missing="5 of 6")
    return found


GENERAL: dict[str, Key] = {
    "general.architecture": used("what the model is"),
    "general.type": ignored("weights of a whole model", _only(("model",), "it is no whole model")),
    "general.quantization_version": ignored("quantized types are those of this version", _only((2,), "another one")),
    "general.alignment": used("where values of tensors begin"),
    "split.count": ignored("the file is whole", _only((0, 1), "one of several files; tools of the format join them")),
    **dict.fromkeys(("split.no", "split.tensors.count"), ignored("the file is whole")),
    "tokenizer.ggml.model": used("kind of the tokenizer"),
    "tokenizer.ggml.pre": used("where a text is cut first"),
    "tokenizer.ggml.tokens": used("texts of tokens", _whole),
    "tokenizer.ggml.scores": used("which pieces are joined first"),
    "tokenizer.ggml.token_type": used("which tokens are special, bytes, or cut out of a text first"),
    "tokenizer.ggml.merges": used("which pieces are joined, in this order"),
    "tokenizer.ggml.add_bos_token": used("whether the first token stands before a text"),
    "tokenizer.ggml.add_eos_token": used("whether the last token stands behind a text"),
    "tokenizer.ggml.add_sep_token": unless(NOTHING, "nothing stands between texts"),
    "tokenizer.ggml.add_space_prefix": used("whether a space is put before a text"),
    "tokenizer.ggml.remove_extra_whitespaces": unless(NOTHING, "white space of a text stays"),
    "tokenizer.ggml.precompiled_charsmap": unless(NOTHING, "characters of a text are not changed by a table"),
    "tokenizer.ggml.bos_token_id": used("token before a text"),
    **dict.fromkeys((f"tokenizer.ggml.{end}" for end in STOPS), used("token that ends an answer")),
    "tokenizer.ggml.unknown_token_id": used("token of what has none"),
    "tokenizer.chat_template": used("the chat template of --chat"),
    "tokenizer.chat_templates": ignored("tokenizer.chat_template is taken"),
    "tokenizer.huggingface.json": ignored("tokens and merges of the file say the same"),
}
"""All architectures have these known keys."""

for _end in ("seperator", "separator", "padding", "mask", "prefix", "suffix", "middle", "fim_pre", "fim_suf", "fim_mid",
             "fim_pad", "fim_rep", "fim_sep", "cls"):  # fmt: skip
    GENERAL[f"tokenizer.ggml.{_end}_token_id"] = ignored("it is about other tasks than to go on with a text")
for _end in ("name", "author", "version", "organization", "finetune", "basename", "description", "quantized_by",
             "size_label", "license", "url", "doi", "uuid", "repo_url", "tags", "languages", "datasets", "file_type",
             "parameter_count"):  # fmt: skip
    GENERAL[f"general.{_end}"] = ignored(ABOUT)

BEGINNINGS = {
    **dict.fromkeys(("general.base_model.", "general.dataset.", "general.source.", "general.license.",
                     "quantize.imatrix.", "mradermacher.", "general.quantize"), ignored(ABOUT)),
    "general.sampling.": ignored(DRAWING, neutral=(*NOTHING, 1)),
    "tokenizer.chat_template.": ignored("tokenizer.chat_template is taken"),
}  # fmt: skip
"""Keys that begin so are known."""


def judged_gguf(file: str, metadata: Metadata) -> list[KeyVerdict]:
    """Return what is done with every key of a file.

    Raises
    ------
    UnsupportedError
        Its architecture is not read.
    """
    name = architecture_of(metadata)
    keys = GENERAL | _own_keys(name)
    for key in metadata:
        begins = next((begin for begin in BEGINNINGS if key.startswith(begin)), None)
        if begins is not None and key not in keys:
            keys[key] = BEGINNINGS[begins]
    return judged(file, metadata, keys, f"a GGUF file of {name}")


def gguf_stops(metadata: Metadata) -> list[Any]:
    """Return the tokens that end an answer."""
    found = (metadata.get(f"tokenizer.ggml.{end}") for end in STOPS)
    return list(dict.fromkeys(token for token in found if token is not None))


def _values(tensors: Tensors, name: str) -> list[float] | None:
    """Return the values of a small tensor, or None if it is missing."""
    tensor = tensors.get(name)
    if tensor is None:
        return None
    if len(tensor.shape) != 1 or tensor.shape[0] > 1 << 16:
        raise ConfigError(f"tensor {name} is {list(tensor.shape)}, no list of factors")
    return [float(value) for value in tensor.f32()]


def _one(value: Any) -> Any:
    """Return the one number that a list of layers has, or the number."""
    return value[0] if isinstance(value, list) and value else value


def _rope(key: Callable[..., Any], tensors: Tensors, context: Any) -> dict[str, Any] | None:
    """Return how the angles of positions are scaled, in the words of the hub; None: they are not."""
    pairs = _values(tensors, "rope_freqs.weight")
    short = _values(tensors, "rope_factors_short.weight")
    if pairs is not None or short is not None:
        original = key("rope.scaling.original_context_length", context) if short is not None else context
        amplitude = key("rope.scaling.attn_factor", 1.0) if short is not None else 1.0
        return {
            "rope_type": "longrope",
            "short_factor": pairs if short is None else short,
            "long_factor": pairs if short is None else short,
            "original_max_position_embeddings": original,
            "attention_factor": amplitude,
        }
    factor = key("rope.scaling.factor", key("rope.scale_linear"))
    kind = key("rope.scaling.type", "linear" if factor is not None else "none")
    if kind == "none" or factor in (None, 0, 1):
        return None
    if kind == "longrope":
        raise ConfigError("positions of type longrope, and no tensor rope_factors_short.weight")
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    fields = {
        "original_max_position_embeddings": key("rope.scaling.original_context_length"),
        "beta_fast": key("rope.scaling.yarn_beta_fast"),
        "beta_slow": key("rope.scaling.yarn_beta_slow"),
    }
    if key("rope.scaling.attn_factor", 1) != 1:
        raise UnsupportedError(
            f"rope.scaling.attn_factor {key('rope.scaling.attn_factor')} with positions of type yarn"
        )
    return {"rope_type": "yarn", "factor": factor} | {
        name: value for name, value in fields.items() if value is not None
    }


def _own_table(
    metadata: Metadata, key: Callable[..., Any], table: dict[str, Any], scaling: dict[str, Any] | None
) -> dict[str, Any]:
    """Return what only one architecture has."""
    found: dict[str, Any] = {}
    own = architecture_of(metadata)
    head, window = table["head_dim"], key("attention.sliding_window", 0)
    if hub_architecture_of(metadata) == "Olmo3ForCausalLM":
        found["sliding_window"] = window
        pattern = metadata.get(f"{own}.attention.sliding_window_pattern", 4)
        every = range(1, table["num_hidden_layers"] + 1) if isinstance(table["num_hidden_layers"], int) else ()
        if not isinstance(pattern, list) and (isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1):
            raise ConfigError(f"{own}.attention.sliding_window_pattern is {shown(pattern)}, no number of layers")
        each = pattern if isinstance(pattern, list) else [number % pattern for number in every]
        found["layer_types"] = [SLIDING if one else "full_attention" for one in each]
        # A file has one base; positions of layers with a window are not scaled.
        full = {"rope_type": "default", "rope_theta": table["rope_theta"], **(scaling or {})}
        local = {"rope_type": "default", "rope_theta": table["rope_theta"]}
        found["rope_parameters"] = {"full_attention": full, SLIDING: local}
    if key("expert_count"):
        mixtral = own == "llama"
        found["num_local_experts" if mixtral else "num_experts"] = key("expert_count")
        found["num_experts_per_tok"] = key("expert_used_count")
        if own == "qwen3moe":  # as llama.cpp has it: shares add up to one
            found |= {"moe_intermediate_size": key("expert_feed_forward_length"), "norm_topk_prob": True}
        if own == "olmoe":
            found["norm_topk_prob"] = False
        return found
    if own == "granite":
        names = {"attention_multiplier": "attention.scale", "embedding_multiplier": "embedding_scale",
                 "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale"}  # fmt: skip
        found = {name: key(end) for name, end in names.items() if key(end)}
        found.setdefault("attention_multiplier", head**-0.5)
    elif own == "phi3":
        found["sliding_window"] = window or None
        if scaling is not None and scaling["rope_type"] == "longrope":
            found["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
    elif own in ("gemma2", "gemma3"):
        by_heads = OF_LAYERS.get(table["num_hidden_layers"]) == own
        found["query_pre_attn_scalar"] = table["hidden_size"] // table["num_attention_heads"] if by_heads else head
        found["final_logit_softcapping"] = key("final_logit_softcapping", 30.0 if own == "gemma2" else None)
        if window:
            found["sliding_window"] = window
    if own == "gemma2":
        found["attn_logit_softcapping"] = key("attn_logit_softcapping", 50.0)
    if own == "gemma3":
        found["rope_local_base_freq"] = key("rope.freq_base_swa", 10_000.0)
        pattern = metadata.get(f"{own}.attention.sliding_window_pattern", 6)
        if isinstance(pattern, list):
            found["layer_types"] = [SLIDING if each else "full_attention" for each in pattern]
        else:
            found["sliding_window_pattern"] = pattern
    return found


def configuration_table(metadata: Metadata, tensors: Tensors) -> dict[str, Any]:
    """Return the ``config.json`` that a file's keys and tensors come to.

    Raises
    ------
    ConfigError
        A key or a tensor is missing, or they do not fit together.
    UnsupportedError
        What they say is not modelled.
    """
    own = architecture_of(metadata)

    def key(name: str, missing: Any = None) -> Any:
        value = _one(metadata.get(f"{own}.{name}"))
        return missing if value is None else value

    def needed(name: str) -> Any:
        value = key(name)
        if value is None:
            raise ConfigError(f"key {own}.{name} is missing")
        return value

    def has(*ends: str) -> bool:
        return any(name.endswith(ends) for name in tensors)

    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ConfigError("no tensor token_embd.weight of two axes")
    hidden, heads, layers = needed("embedding_length"), needed("attention.head_count"), needed("block_count")
    whole = all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in (hidden, heads))
    if not whole:
        raise ConfigError(f"{shown(heads)} heads of {shown(hidden)} features")
    head = key("attention.key_length", hidden // heads)
    turned = key("rope.dimension_count", head)
    if own in OLDER:
        return _older_table(metadata, tensors, key, needed)
    table: dict[str, Any] = {
        "architectures": [hub_architecture_of(metadata)],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key("attention.head_count_kv", heads),
        "head_dim": head,
        "intermediate_size": needed("expert_feed_forward_length" if own == "qwen3moe" else "feed_forward_length"),
        "vocab_size": embedding.shape[0],
        "max_position_embeddings": needed("context_length"),
        "rms_norm_eps": needed("attention.layer_norm_rms_epsilon"),
        "rope_theta": key("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in tensors,
        "eos_token_id": gguf_stops(metadata) or None,
    }
    if key("vocab_size", embedding.shape[0]) != embedding.shape[0]:
        raise ConfigError(
            f"vocab_size is {shown(key('vocab_size'))}, tensor token_embd.weight {embedding.shape[0]} rows"
        )
    if own == "phi3" and isinstance(head, int) and isinstance(turned, int) and head > 0:
        table["partial_rotary_factor"] = turned / head
    elif turned != head:
        raise UnsupportedError(f"{shown(turned)} of {shown(head)} features of a head turn with its position")
    scaling = _rope(key, tensors, table["max_position_embeddings"])
    if own not in ("qwen2", "phi3") and hub_architecture_of(metadata) != "MixtralForCausalLM":
        table["attention_bias"] = has("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias")
    if own in ("llama", "granite", "smollm3") and not key("expert_count"):
        table["mlp_bias"] = has("ffn_gate.bias", "ffn_up.bias", "ffn_down.bias")
    table |= _own_table(metadata, key, table, scaling)
    if scaling is not None and "rope_parameters" not in table:
        table["rope_scaling"] = scaling
    return table


def _older_table(
    metadata: Metadata, tensors: Tensors, key: Callable[..., Any], needed: Callable[[str], Any]
) -> dict[str, Any]:
    """Return the ``config.json`` of a file of one of `OLDER`; activations, of which it says nothing, are the hub's."""
    own, embedding = architecture_of(metadata), tensors["token_embd.weight"]
    hidden, heads = needed("embedding_length"), needed("attention.head_count")
    head = max(1, hidden // heads)
    grouped = own in ("phi2", "stablelm")
    if key("attention.key_length", head) != head or (not grouped and key("attention.head_count_kv", heads) != heads):
        raise UnsupportedError(f"heads of other sizes than those of a {GGUF_ARCHITECTURES[own]}")
    table = {
        "architectures": [GGUF_ARCHITECTURES[own]],
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        "eos_token_id": gguf_stops(metadata) or None,
    }
    sizes = {
        "n_embd": hidden,
        "n_layer": needed("block_count"),
        "n_head": heads,
        "n_positions": needed("context_length"),
        "n_inner": needed("feed_forward_length"),
    }
    epsilon = needed("attention.layer_norm_epsilon")
    if own == "gpt2":
        return table | sizes | {"layer_norm_epsilon": epsilon}
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "intermediate_size")
    table |= dict(zip(names, sizes.values(), strict=True)) | {"layer_norm_eps": epsilon}
    base, turned = key("rope.freq_base", 10_000.0), key("rope.dimension_count", head)
    if isinstance(turned, bool) or not isinstance(turned, int):
        raise ConfigError(f"{own}.rope.dimension_count is {shown(turned)}, no number of features")
    part = turned / head
    scaling = _rope(key, tensors, table["max_position_embeddings"])
    if scaling is not None:
        table["rope_scaling"] = scaling
    if own == "gptneox":
        parallel = needed("use_parallel_residual")
        return table | {"rotary_emb_base": base, "rotary_pct": part, "use_parallel_residual": parallel}
    table |= {"rope_theta": base, "partial_rotary_factor": part}
    table["num_key_value_heads"] = key("attention.head_count_kv", heads)
    if own == "stablelm":
        biased = any(name.endswith("attn_q.bias") for name in tensors)
        parallel = not any(name.endswith("ffn_norm.weight") for name in tensors)
        table |= {"use_qkv_bias": biased, "use_parallel_residual": parallel}
    return table
