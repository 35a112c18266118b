"""What the hub's library answers, by hand: its meaning of every key of ``config.json``, and a decoder in float64.

Written from the library's classes (transformers 5), and from nothing of this project: keys are read here a second time.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["BASES", "FIELDS", "library_logits", "stops_of", "tensors_of"]

SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 6,
    "vocab_size": 12,
    "max_position_embeddings": 48,
    "rms_norm_eps": 1e-5,
}
BASES = {
    name: {"architectures": [name], "model_type": kind, **SIZES, **more}
    for name, kind, more in (
        ("LlamaForCausalLM", "llama", {}),
        ("Qwen2ForCausalLM", "qwen2", {}),
        ("Qwen3ForCausalLM", "qwen3", {}),
        ("MistralForCausalLM", "mistral", {"sliding_window": None}),
        ("Phi3ForCausalLM", "phi3", {"sliding_window": None}),
        ("Olmo2ForCausalLM", "olmo2", {}),
        ("Olmo3ForCausalLM", "olmo3", {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}),
        (
            "Gemma2ForCausalLM",
            "gemma2",
            {
                "tie_word_embeddings": False,
                "sliding_window": 5,
                "query_pre_attn_scalar": 9,
                "attn_logit_softcapping": 4.0,
                "final_logit_softcapping": 6.0,
            },
        ),
        (
            "Gemma3ForCausalLM",
            "gemma3_text",
            {
                "tie_word_embeddings": False,
                "sliding_window": 5,
                "query_pre_attn_scalar": 9,
                "sliding_window_pattern": 2,
                "rope_local_base_freq": 30.0,
            },
        ),
        ("MixtralForCausalLM", "mixtral", {"num_local_experts": 4, "sliding_window": None, "intermediate_size": 8}),
        ("Qwen3MoeForCausalLM", "qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}),
        (
            "OlmoeForCausalLM",
            "olmoe",
            {
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "intermediate_size": 8,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
        ),
        ("GlmForCausalLM", "glm", {"partial_rotary_factor": 1.0}),
        ("Glm4ForCausalLM", "glm4", {"partial_rotary_factor": 1.0}),
        ("HeliumForCausalLM", "helium", {"num_attention_heads": 2}),
        ("Ernie4_5ForCausalLM", "ernie4_5", {"tie_word_embeddings": False}),
        ("SeedOssForCausalLM", "seed_oss", {}),
        ("SmolLM3ForCausalLM", "smollm3", {"no_rope_layers": [1, 0], "tie_word_embeddings": False}),
        ("GemmaForCausalLM", "gemma", {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": False}),
        (
            "GraniteForCausalLM",
            "granite",
            {
                "embedding_multiplier": 12.0,
                "attention_multiplier": 0.0625,
                "residual_multiplier": 0.22,
                "logits_scaling": 8.0,
            },
        ),
    )
}
"""A small table of each architecture."""

# Fields of the library's classes; a test compares them with the library itself where it is installed.
OF_ALL = (
    "architectures", "model_type", "transformers_version", "output_hidden_states", "return_dict", "dtype",
    "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type", "_name_or_path",
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache", "pad_token_id",
    "bos_token_id", "eos_token_id", "tie_word_embeddings", "rope_parameters", "attention_dropout",
)  # fmt: skip
OF_GEMMAS = (
    *(name for name in OF_ALL if name != "hidden_act"), "hidden_activation", "head_dim", "attention_bias",
    "query_pre_attn_scalar", "sliding_window", "layer_types", "use_bidirectional_attention",
)  # fmt: skip
FIELDS = {
    "LlamaForCausalLM": (*OF_ALL, "pretraining_tp", "attention_bias", "mlp_bias", "head_dim"),
    "Qwen2ForCausalLM": (*OF_ALL, "use_sliding_window", "sliding_window", "max_window_layers", "layer_types"),
    "Qwen3ForCausalLM": (
        *OF_ALL,
        "attention_bias",
        "head_dim",
        "use_sliding_window",
        "sliding_window",
        "max_window_layers",
        "layer_types",
    ),
    "MistralForCausalLM": (*OF_ALL, "head_dim", "sliding_window"),
    "Phi3ForCausalLM": (*OF_ALL, "resid_pdrop", "embd_pdrop", "original_max_position_embeddings", "sliding_window"),
    "GemmaForCausalLM": (*OF_ALL, "attention_bias", "head_dim", "use_bidirectional_attention"),
    "Olmo2ForCausalLM": (*OF_ALL, "attention_bias"),
    "Olmo3ForCausalLM": (*OF_ALL, "attention_bias", "sliding_window", "layer_types"),
    "MixtralForCausalLM": (
        *OF_ALL,
        "head_dim",
        "sliding_window",
        "num_experts_per_tok",
        "num_local_experts",
        "output_router_logits",
        "router_aux_loss_coef",
        "router_jitter_noise",
    ),
    "Qwen3MoeForCausalLM": (
        *OF_ALL,
        "attention_bias",
        "use_sliding_window",
        "sliding_window",
        "decoder_sparse_step",
        "moe_intermediate_size",
        "num_experts_per_tok",
        "num_experts",
        "norm_topk_prob",
        "output_router_logits",
        "router_aux_loss_coef",
        "mlp_only_layers",
    ),
    "OlmoeForCausalLM": (
        *OF_ALL,
        "attention_bias",
        "clip_qkv",
        "num_experts_per_tok",
        "num_experts",
        "norm_topk_prob",
        "output_router_logits",
        "router_aux_loss_coef",
    ),
    "Gemma2ForCausalLM": (*OF_GEMMAS, "attn_logit_softcapping", "final_logit_softcapping"),
    "Gemma3ForCausalLM": (
        *OF_GEMMAS,
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "sliding_window_pattern",
        "rope_local_base_freq",
    ),
    "SmolLM3ForCausalLM": (
        *OF_ALL,
        "attention_bias",
        "mlp_bias",
        "no_rope_layers",
        "no_rope_layer_interval",
        "use_sliding_window",
        "sliding_window",
        "layer_types",
    ),
    **dict.fromkeys(("GlmForCausalLM", "Glm4ForCausalLM"), (*OF_ALL, "head_dim", "attention_bias")),
    "HeliumForCausalLM": (*OF_ALL, "head_dim", "attention_bias", "mlp_bias"),
    "Ernie4_5ForCausalLM": (*(name for name in OF_ALL if name != "attention_dropout"), "use_bias", "head_dim"),
    "SeedOssForCausalLM": (
        *OF_ALL,
        "pretraining_tp",
        "attention_bias",
        "attention_out_bias",
        "residual_dropout",
        "mlp_bias",
        "head_dim",
    ),
    "GraniteForCausalLM": (
        *OF_ALL,
        "attention_bias",
        "mlp_bias",
        "embedding_multiplier",
        "logits_scaling",
        "residual_multiplier",
        "attention_multiplier",
    ),
}


GLMS, NAMES_OF_GLMS = ("glm", "glm4"), ("GlmForCausalLM", "Glm4ForCausalLM")
LATER_GEMMAS = ("Gemma2ForCausalLM", "Gemma3ForCausalLM")
NORMS = {
    **dict.fromkeys(("Olmo2ForCausalLM", "Olmo3ForCausalLM"), ("post_attention", "post_feedforward")),
    **dict.fromkeys(LATER_GEMMAS, ("input", "post_attention", "pre_feedforward", "post_feedforward")),
    "Glm4ForCausalLM": ("input", "post_self_attn", "post_attention", "post_mlp"),
}
"""Norms of a layer, where they are not those before its two parts."""


ROOMS = {
    "MixtralForCausalLM": [f"block_sparse_moe.experts.{k}" for k in range(4)],
    **{key: [f"mlp.experts.{k}" for k in range(4)] for key in ("Qwen3MoeForCausalLM", "OlmoeForCausalLM")},
}
"""Where experts stand in files."""


def _experts(table, t, part, z):
    """Return what the experts of a layer give."""
    mixtral = _kind(table) == "mixtral"
    room = part + ("block_sparse_moe" if mixtral else "mlp")
    names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    logits = z @ t[f"{room}.gate.weight"].T
    share = np.exp(logits - logits.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    out = np.zeros_like(z)
    for row, own in enumerate(share):
        picked = np.argsort(-own, kind="stable")[: table.get("num_experts_per_tok", 2 if mixtral else 8)]
        whole = own[picked].sum() if mixtral or table.get("norm_topk_prob", False) else 1.0
        for k in picked:
            gate, up, down = (t[f"{room}.experts.{k}.{name}.weight"] for name in names)
            out[row] += own[k] / whole * (_active(table, gate @ z[row]) * (up @ z[row]) @ down.T)
    return out


def _ffn(table, t, part, z, biased):
    """Return what the feed-forward part of a layer gives."""

    def outer(y, name):  # a bias that a file does not have is zero
        return y @ t[f"{part}mlp.{name}_proj.weight"].T + (t.get(f"{part}mlp.{name}_proj.bias", 0.0) if biased else 0.0)

    if _kind(table) in ("phi3", *GLMS):
        gate, up = np.split(z @ t[part + "mlp.gate_up_proj.weight"].T, 2, axis=-1)
    else:
        gate, up = outer(z, "gate"), outer(z, "up")
    return outer(_active(table, gate) * up, "down")


def tensors_of(architecture, seed=1):
    """Return weights for the small table, with the biases that the architecture has by itself."""
    r = np.random.default_rng(seed)
    found = {"model.embed_tokens.weight": r.standard_normal((12, 8)), "model.norm.weight": 1 + 0.1 * r.random(8)}
    for layer in range(2):
        part = f"model.layers.{layer}."
        q, k = {"OlmoeForCausalLM": (8, 4), "HeliumForCausalLM": (8, 8)}.get(architecture, (16, 8))
        for name, rows, columns in (("q", q, 8), ("k", k, 8), ("v", k, 8), ("o", 8, q)):
            found[f"{part}self_attn.{name}_proj.weight"] = r.standard_normal((rows, columns))
            if architecture in ("Qwen2ForCausalLM", "SeedOssForCausalLM", *NAMES_OF_GLMS) and name != "o":
                found[f"{part}self_attn.{name}_proj.bias"] = r.standard_normal(rows)
        for room in ROOMS.get(architecture, ["mlp"]):
            inner = 8 if architecture in ROOMS else 6
            for name, rows, columns in (("gate", inner, 8), ("up", inner, 8), ("down", 8, inner)):
                own = {"gate": "w1", "up": "w3", "down": "w2"}[name] if room[0] == "b" else f"{name}_proj"
                found[f"{part}{room}.{own}.weight"] = r.standard_normal((rows, columns))
        if architecture in ROOMS:
            room = ROOMS[architecture][0].partition(".")[0]
            found[f"{part}{room}.gate.weight"] = r.standard_normal((4, 8))
        heads = ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Gemma3ForCausalLM")
        for name in ("q", "k") if architecture in heads else ():
            found[f"{part}self_attn.{name}_norm.weight"] = 1 + r.random(4)
        projected = ("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM")
        for name, count in (("q", q), ("k", k)) if architecture in projected else ():
            found[f"{part}self_attn.{name}_norm.weight"] = 1 + r.random(count)
        for name in NORMS.get(architecture, ("input", "post_attention")):
            found[f"{part}{name}_layernorm.weight"] = 1 + 0.1 * r.random(8)
    found["lm_head.weight"] = r.standard_normal((12, 8))
    if architecture in ("Phi3ForCausalLM", *NAMES_OF_GLMS):
        for layer in range(2):
            part = f"model.layers.{layer}."
            if architecture == "Phi3ForCausalLM":
                found[f"{part}self_attn.qkv_proj.weight"] = np.concatenate(
                    [found.pop(f"{part}self_attn.{name}_proj.weight") for name in "qkv"]
                )
            found[f"{part}mlp.gate_up_proj.weight"] = np.concatenate(
                [found.pop(f"{part}mlp.{name}_proj.weight") for name in ("gate", "up")]
            )
    return {name: values.astype(np.float32) for name, values in found.items()}


def _positions(table, features, local=False):
    """Return the radians per position of each pair, and the factor of cosines and sines.

    rope_scaling comes before rope_parameters, a base inside before one beside, an old name of the type where there is
    no new one; part of a head turns if the table says so.  A Gemma3 has a table for each kind of layers.
    """
    if _kind(table) in ("gemma3_text", "olmo3"):
        olmo = _kind(table) == "olmo3"
        kinds = table.get("rope_parameters") or {}
        one = dict(kinds.get("sliding_attention" if local else "full_attention") or {})
        if not local and table.get("rope_scaling"):  # joins a table that has a type by its new name already
            one = {"rope_type": "default"} | one | table["rope_scaling"]
        base = table.get("rope_local_base_freq", 10000.0) if local else table.get("rope_theta", 1000000.0)
        if olmo:  # it takes the base out of the file for layers without a window, and finds none there for the others
            base = 500000.0 if local else table.get("rope_theta", 500000.0)
        table = {**table, "model_type": "llama", "rope_parameters": {"rope_theta": base} | one, "rope_scaling": None}
    rope = table.get("rope_scaling") or table.get("rope_parameters") or {}
    bases = {"smollm3": 2e6, "mixtral": 1e6, "helium": 1e5, "ernie4_5": 5e5}
    base = rope.get("rope_theta", table.get("rope_theta", bases.get(_kind(table), 10000.0)))
    part = rope.get("partial_rotary_factor", table.get("partial_rotary_factor"))
    if _kind(table) in ("phi3", *GLMS):
        whole = 0.5 if _kind(table) in GLMS and "partial_rotary_factor" not in {**table, **rope} else 1.0
        features = int(features * (whole if part is None else part))
    else:
        assert part in (None, 1), "with part of a head turned the library fails: it must be refused"
    turns = 1.0 / base ** (np.arange(0, features, 2) / features)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in (None, "default"):
        return turns, 1.0
    if kind == "dynamic":  # the library turns pairs slower in longer texts only
        return turns, 1.0
    if kind == "linear":
        return turns / rope["factor"], 1.0
    if kind == "yarn":
        return _yarn(rope, turns, base, rope.get("original_max_position_embeddings", table["max_position_embeddings"]))
    if kind == "longrope":
        return _longrope(table, rope, turns)
    assert kind == "llama3", kind
    first = rope.get("original_max_position_embeddings", table["max_position_embeddings"])
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    out = []
    for turn in turns:
        wavelength = 2 * math.pi / turn
        smooth = (first / wavelength - low) / (high - low)
        medium = (1 - smooth) * turn / rope["factor"] + smooth * turn
        slow = wavelength > first / low
        out.append(turn if wavelength < first / high else turn / rope["factor"] if slow else medium)
    return np.array(out), 1.0


def _longrope(table, rope, turns):
    """Return the same for positions of type longrope, in a text that the first context holds."""
    above = table.get("original_max_position_embeddings")
    original = rope.get("original_max_position_embeddings", above)
    factor = rope.get("factor") if above is None else table["max_position_embeddings"] / original
    attention = rope.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return turns / np.array(rope["short_factor"]), attention


def _yarn(rope, turns, base, first):
    """Return the same for positions of type yarn."""
    features, factor = 2 * len(turns), rope["factor"]
    attention, one, other = (rope.get(name) for name in ("attention_factor", "mscale", "mscale_all_dim"))

    def grown(share):
        return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0

    if attention is None:
        attention = grown(one) / grown(other) if one and other else grown(1)

    def pair(times):
        return features * math.log(first / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(rope.get("beta_fast") or 32), pair(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, features - 1)
    high += 0.001 if low == high else 0
    ramp = np.clip((np.arange(len(turns)) - low) / (high - low), 0, 1)
    return turns / factor * ramp + turns * (1 - ramp), attention


def _kind(table):
    """Return the model's type; where the table has none, that of its architecture."""
    found = table.get("model_type") or table["architectures"][0].removesuffix("ForCausalLM").lower()
    found = {"qwen3moe": "qwen3_moe", "seedoss": "seed_oss"}.get(found, found)
    return "gemma3_text" if found == "gemma3" else found


def _windows(table):
    """Return the window of attention of each layer, or None."""
    layers = table["num_hidden_layers"]
    if _kind(table) in ("phi3", "mixtral"):
        return [table.get("sliding_window")] * layers
    if _kind(table) == "mistral":
        return [table.get("sliding_window", 4096)] * layers
    if _kind(table) in ("qwen2", "qwen3") and table.get("use_sliding_window", False):
        kinds = table.get("layer_types")
        first = table.get("max_window_layers", 28)
        if kinds is None:
            kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
        return [table.get("sliding_window", 4096) if kind == "sliding_attention" else None for kind in kinds]
    if _kind(table) == "smollm3" and table.get("use_sliding_window", False):
        kinds = table.get("layer_types")
        if kinds is None:
            kinds = ["full_attention" if turns else "sliding_attention" for turns in _turning(table)]
        return [table.get("sliding_window") if kind == "sliding_attention" else None for kind in kinds]
    if _kind(table) in ("gemma2", "gemma3_text", "olmo3"):
        kinds = table.get("layer_types")
        if kinds is None:
            every = {"gemma2": 2, "olmo3": 4}.get(_kind(table)) or table.get("sliding_window_pattern", 6)
            kinds = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
        return [table.get("sliding_window", 4096) if kind == "sliding_attention" else None for kind in kinds]
    return [None] * layers


def _turning(table):
    """Return of each layer whether its queries and keys turn by their positions."""
    count = table["num_hidden_layers"]
    if _kind(table) != "smollm3":
        return [1] * count
    found = table.get("no_rope_layers")
    return [(k + 1) % table.get("no_rope_layer_interval", 4) for k in range(count)] if found is None else found


def _active(table, gate):
    """Return the activation of a gate."""
    gemma = _kind(table).startswith("gemma")
    key = "hidden_act" if _kind(table) in ("gemma", "llama") or not gemma else "hidden_activation"
    name = table.get(key, "gelu" if gemma else "silu")
    assert not gemma or name in ("gelu", "gelu_pytorch_tanh")
    if name == "relu":
        return np.maximum(gate, 0)
    if name in ("gelu", "gelu_python") and not gemma:
        return 0.5 * gate * (1 + np.vectorize(math.erf)(gate / math.sqrt(2)))
    if gemma or name in ("gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_python_tanh"):
        return 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    assert name in ("silu", "swish")
    return gate / (1 + np.exp(-gate))


def _rotated(z, turns, attention, neighbours=False):
    """Return heads, (heads, tokens, features), turned by their positions."""
    angle = np.outer(np.arange(z.shape[1]), turns)
    cos, sin = attention * np.cos(angle), attention * np.sin(angle)
    if neighbours:
        out = z.copy()
        for pair in range(len(turns)):
            a, b = z[..., 2 * pair], z[..., 2 * pair + 1]
            out[..., 2 * pair] = a * cos[:, pair] - b * sin[:, pair]
            out[..., 2 * pair + 1] = b * cos[:, pair] + a * sin[:, pair]
        return out
    half = len(turns)  # what turns comes first, its two halves side by side
    a, b, rest = z[..., :half], z[..., half : 2 * half], z[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _mixed(q, k, v, scale, cap, window):
    """Return what each head gives, (heads, tokens, features) in and out."""
    out, group = [], len(q) // len(k)
    ago = np.arange(q.shape[1])[:, None] - np.arange(q.shape[1])
    hidden = (ago < 0) | (False if window is None else ago >= window)
    for head, queries in enumerate(q):
        scores = queries @ k[head // group].T * scale
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        scores[hidden] = -np.inf
        share = np.exp(scores - scores.max(1, keepdims=True))
        out.append(share / share.sum(1, keepdims=True) @ v[head // group])
    return out


def _biases(table):
    """Return whether queries, keys and values, the output of attention, and the feed-forward part have biases."""
    biases = _kind(table) == "qwen2"
    kinds = ("llama", "qwen3", "granite", "gemma", "smollm3", "olmo2", "olmo3", "gemma2", "gemma3_text", "qwen3_moe",
             "olmoe")  # fmt: skip
    all_biases = _kind(table) in kinds and table.get("attention_bias", False)
    biases = biases or all_biases
    if _kind(table) in (*GLMS, "seed_oss", "helium"):  # of queries, keys and values only
        biases = table.get("attention_bias", _kind(table) != "helium")
        all_biases = _kind(table) == "seed_oss" and table.get("attention_out_bias", False)
    if _kind(table) == "ernie4_5":
        biases = all_biases = table.get("use_bias", False)
    with_bias = ("llama", "granite", "smollm3", "helium", "seed_oss")
    mlp_bias = table.get("mlp_bias", False) if _kind(table) in with_bias else _kind(table) == "ernie4_5" and biases
    return biases, all_biases, mlp_bias


def library_logits(table, tensors, ids):
    """Return the logits behind the last of some tokens, float64."""
    t = {name: values.astype(np.float64) for name, values in tensors.items()}
    missing = {"glm": 2, "glm4": 2, "helium": 20, "ernie4_5": 2, "seed_oss": 8}
    heads, kv = table["num_attention_heads"], table.get("num_key_value_heads", missing.get(_kind(table)))
    kv = heads if kv is None else kv
    sizes = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256, **dict.fromkeys(missing, 128)}
    features = table.get("head_dim", sizes.get(_kind(table))) or table["hidden_size"] // heads
    windows, n = _windows(table), len(ids)
    biases, all_biases, mlp_bias = _biases(table)
    granite = table if _kind(table) == "granite" else {"attention_multiplier": 1 / np.sqrt(features)}
    gemma, later = _kind(table).startswith("gemma"), _kind(table) in ("gemma2", "gemma3_text")
    if later:
        granite["attention_multiplier"] = table.get("query_pre_attn_scalar", 256) ** -0.5
    cap = table.get("attn_logit_softcapping", 50.0) if _kind(table) == "gemma2" else None
    x = granite.get("embedding_multiplier", 1.0) * t["model.embed_tokens.weight"][list(ids)]
    x = x * table["hidden_size"] ** 0.5 if gemma else x
    residual, rows = granite.get("residual_multiplier", 1.0), [0, heads * features, kv * features, kv * features]

    experts = _kind(table) in ("mixtral", "qwen3_moe", "olmoe")
    projected_norms = _kind(table) in ("olmo2", "olmo3", "olmoe")
    behind = _kind(table) in ("olmo2", "olmo3")  # norms stand behind the parts of a layer, not before
    glm4, neighbours = _kind(table) == "glm4", _kind(table) in (*GLMS, "helium", "ernie4_5")
    epsilon = {"mixtral": 1e-5, "glm": 0.00000015625, "glm4": 0.00000015625, "helium": 1e-8, "ernie4_5": 1e-5}

    def norm(y, name):
        return (
            (gemma + t[f"{name}.weight"])
            * y
            / np.sqrt(
                (y * y).mean(-1, keepdims=True)
                + table.get("rms_norm_eps", 1e-5 if projected_norms else epsilon.get(_kind(table), 1e-6))
            )
        )

    def outer(y, name, biased):  # a bias that a file does not have is zero
        return y @ t[f"{name}.weight"].T + (t.get(f"{name}.bias", 0.0) if biased else 0.0)

    def rotated(z, layer):
        local = _kind(table) in ("gemma3_text", "olmo3") and windows[layer] is not None
        return _rotated(z, *_positions(table, features, local), neighbours) if _turning(table)[layer] else z

    for layer, window in enumerate(windows):
        part = f"model.layers.{layer}."
        y = x if behind else norm(x, part + "input_layernorm")

        def projected(name, many, y=y, part=part):
            if _kind(table) == "phi3":
                at = np.cumsum(rows)["qkv".index(name) :][:2]
                out = y @ t[f"{part}self_attn.qkv_proj.weight"][slice(*at)].T
            else:
                out = y @ t[f"{part}self_attn.{name}_proj.weight"].T
            if biases:
                out = out + t[f"{part}self_attn.{name}_proj.bias"]
            if projected_norms and name != "v":  # along all features, before they are heads
                out = norm(out, f"{part}self_attn.{name}_norm")
            out = out.reshape(n, many, features).swapaxes(0, 1)
            if (
                _kind(table) in ("qwen3", "qwen3_moe", "gemma3_text") and name != "v"
            ):  # along the features of a head, before it turns
                out = norm(out, f"{part}self_attn.{name}_norm")
            return out

        q, k = rotated(projected("q", heads), layer), rotated(projected("k", kv), layer)
        scale = granite.get("attention_multiplier", 1.0)
        out = _mixed(q, k, projected("v", kv), scale, cap, window)
        more = outer(np.concatenate(out, 1), part + "self_attn.o_proj", all_biases)
        own = "post_self_attn" if glm4 else "post_attention"
        x = x + residual * (norm(more, f"{part}{own}_layernorm") if behind or later or glm4 else more)
        z = x if behind else norm(x, part + f"{'pre_feedforward' if later else 'post_attention'}_layernorm")
        more = _experts(table, t, part, z) if experts else _ffn(table, t, part, z, mlp_bias)
        own = "post_mlp" if glm4 else "post_feedforward"
        x = x + residual * (norm(more, f"{part}{own}_layernorm") if behind or later or glm4 else more)
    tied = gemma or _kind(table) in ("smollm3", "ernie4_5")
    head = "model.embed_tokens" if table.get("tie_word_embeddings", tied) else "lm_head"
    logits = norm(x, "model.norm")[-1] @ t[f"{head}.weight"].T / granite.get("logits_scaling", 1.0)
    most = table.get("final_logit_softcapping", 30.0 if _kind(table) == "gemma2" else None) if later else None
    return logits if most is None else most * np.tanh(logits / most)


def stops_of(table, generation=None):
    """Return the end tokens: those of generation_config.json, where the file names some."""
    value = (generation or {}).get("eos_token_id")
    value = table.get("eos_token_id") if value is None else value
    return set() if value is None else set(value) if isinstance(value, list) else {value}
