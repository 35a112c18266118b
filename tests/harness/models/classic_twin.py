"""What the hub's library answers for models that are older than LLaMA, by hand: keys, tensors, a decoder in float64.

Written from the library's classes (transformers 5), and from nothing of this project.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["CLASSIC_BASES", "CLASSIC_FIELDS", "classic_logits", "classic_tensors"]

GPT = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 24, "n_inner": 12, "vocab_size": 12}
LATER = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "vocab_size": 12,
}
CLASSIC_BASES = {
    "GPT2LMHeadModel": {**GPT, "model_type": "gpt2", "eos_token_id": 3, "tie_word_embeddings": False},
    "GPTJForCausalLM": {**GPT, "model_type": "gptj", "rotary_dim": 2, "eos_token_id": 3},
    "GPTNeoXForCausalLM": {**LATER, "model_type": "gpt_neox", "rotary_pct": 0.5, "eos_token_id": 3},
    "PhiForCausalLM": {**LATER, "model_type": "phi", "num_key_value_heads": 1, "eos_token_id": 3},
    "StableLmForCausalLM": {
        **LATER,
        "model_type": "stablelm",
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.5,
        "eos_token_id": 3,
    },
    "Starcoder2ForCausalLM": {
        **LATER,
        "model_type": "starcoder2",
        "num_key_value_heads": 1,
        "sliding_window": 5,
        "tie_word_embeddings": False,
        "eos_token_id": 3,
    },
    "CohereForCausalLM": {
        **LATER,
        "model_type": "cohere",
        "num_key_value_heads": 1,
        "tie_word_embeddings": False,
        "eos_token_id": 3,
    },
    "Cohere2ForCausalLM": {
        **LATER,
        "model_type": "cohere2",
        "num_key_value_heads": 1,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": False,
        "eos_token_id": 3,
    },
}
CLASSIC_BASES = {name: {"architectures": [name], **table} for name, table in CLASSIC_BASES.items()}
"""A small table of each architecture."""

# Fields of the library's classes; a test compares them with the library itself where it is installed.
OF_ALL = (
    "architectures", "model_type", "transformers_version", "output_hidden_states", "return_dict", "dtype",
    "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type", "_name_or_path",
    "vocab_size", "initializer_range", "use_cache", "pad_token_id", "bos_token_id", "eos_token_id",
    "tie_word_embeddings",
)  # fmt: skip
OF_GPT = (
    *OF_ALL, "n_positions", "n_embd", "n_layer", "n_head", "n_inner", "activation_function", "resid_pdrop",
    "embd_pdrop", "attn_pdrop", "layer_norm_epsilon",
)  # fmt: skip
OF_LATER = (
    *OF_ALL, "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "attention_dropout", "max_position_embeddings", "layer_norm_eps", "rope_parameters",
)  # fmt: skip
CLASSIC_FIELDS = {
    "GPT2LMHeadModel": (
        *OF_GPT, "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
        "summary_first_dropout", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
        "add_cross_attention",
    ),
    "GPTJForCausalLM": (*OF_GPT, "rotary_dim"),
    "GPTNeoXForCausalLM": (
        *OF_LATER, "hidden_dropout", "classifier_dropout", "use_parallel_residual", "attention_bias", "is_decoder",
    ),
    "PhiForCausalLM": (*OF_LATER, "num_key_value_heads", "resid_pdrop", "embd_pdrop", "qk_layernorm"),
    "Starcoder2ForCausalLM": (
        *(name for name in OF_LATER if name != "layer_norm_eps"), "num_key_value_heads", "norm_epsilon", "use_bias",
        "sliding_window", "residual_dropout", "embedding_dropout",
    ),
    "CohereForCausalLM": (*OF_LATER, "num_key_value_heads", "logit_scale", "attention_bias", "use_qk_norm"),
    "Cohere2ForCausalLM": (
        *OF_LATER, "num_key_value_heads", "logit_scale", "attention_bias", "sliding_window", "layer_types",
    ),
    "StableLmForCausalLM": (
        *OF_LATER, "num_key_value_heads", "use_qkv_bias", "qk_layernorm", "use_parallel_residual", "hidden_dropout",
    ),
}  # fmt: skip

D, F, V = 8, 12, 12


def classic_tensors(architecture, table=None, seed=1):
    """Return weights for the small table, changed or not, by the file's names."""
    table, r = table or CLASSIC_BASES[architecture], np.random.default_rng(seed)
    kv = D // 2 * table.get("num_key_value_heads", 2)
    neox_bias = table.get("attention_bias", True)
    stable_bias = table.get("use_qkv_bias", False)
    found = {}

    def linear(name, rows, columns, bias=True):
        found[f"{name}.weight"] = r.standard_normal((rows, columns))
        if bias:
            found[f"{name}.bias"] = r.standard_normal(columns if ".h." in name and ".c_" in name else rows)

    def norm(name):
        found[f"{name}.weight"], found[f"{name}.bias"] = 1 + 0.1 * r.random(D), r.standard_normal(D)
        if architecture.startswith("Cohere"):
            del found[f"{name}.bias"]

    for layer in range(2):
        if architecture == "GPT2LMHeadModel":
            at = f"transformer.h.{layer}."
            norm(f"{at}ln_1")
            norm(f"{at}ln_2")
            for name, rows, columns in (("attn.c_attn", D, 3 * D), ("attn.c_proj", D, D), ("mlp.c_fc", D, F),
                                        ("mlp.c_proj", F, D)):  # fmt: skip
                linear(at + name, rows, columns)
            found[f"{at}attn.bias"] = np.tril(np.ones((1, 1, 24, 24)))  # the mask that old files carry
        elif architecture == "GPTJForCausalLM":
            at = f"transformer.h.{layer}."
            norm(f"{at}ln_1")
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                linear(f"{at}attn.{name}", D, D, bias=False)
            linear(f"{at}mlp.fc_in", F, D)
            linear(f"{at}mlp.fc_out", D, F)
        elif architecture == "GPTNeoXForCausalLM":
            at = f"gpt_neox.layers.{layer}."
            norm(f"{at}input_layernorm")
            norm(f"{at}post_attention_layernorm")
            linear(f"{at}attention.query_key_value", 3 * D, D, neox_bias)
            linear(f"{at}attention.dense", D, D, neox_bias)
            linear(f"{at}mlp.dense_h_to_4h", F, D)
            linear(f"{at}mlp.dense_4h_to_h", D, F)
            found[f"{at}attention.rotary_emb.inv_freq"] = np.ones(1)
            found[f"{at}attention.masked_bias"] = np.array(-1e9)
        elif architecture == "PhiForCausalLM":
            at = f"model.layers.{layer}."
            norm(f"{at}input_layernorm")
            for name, rows in (("q_proj", D), ("k_proj", kv), ("v_proj", kv), ("dense", D)):
                linear(f"{at}self_attn.{name}", rows, D)
            linear(f"{at}mlp.fc1", F, D)
            linear(f"{at}mlp.fc2", D, F)
        elif architecture.startswith(("Starcoder2", "Cohere")):
            _later_layer(f"model.layers.{layer}.", architecture, table, kv, linear, norm)
        else:
            at = f"model.layers.{layer}."
            norm(f"{at}input_layernorm")
            if not table.get("use_parallel_residual", False):
                norm(f"{at}post_attention_layernorm")
            for name, rows in (("q_proj", D), ("k_proj", kv), ("v_proj", kv)):
                linear(f"{at}self_attn.{name}", rows, D, stable_bias)
            linear(f"{at}self_attn.o_proj", D, D, bias=False)
            for name, rows, columns in (("gate_proj", F, D), ("up_proj", F, D), ("down_proj", D, F)):
                linear(f"{at}mlp.{name}", rows, columns, bias=False)
    words, last, head = {
        "GPT2LMHeadModel": ("transformer.wte", "transformer.ln_f", "lm_head"),
        "GPTJForCausalLM": ("transformer.wte", "transformer.ln_f", "lm_head"),
        "GPTNeoXForCausalLM": ("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
        "PhiForCausalLM": ("model.embed_tokens", "model.final_layernorm", "lm_head"),
        "StableLmForCausalLM": ("model.embed_tokens", "model.norm", "lm_head"),
    }.get(architecture, ("model.embed_tokens", "model.norm", "lm_head"))
    linear(words, V, D, bias=False)
    if architecture == "GPT2LMHeadModel":
        linear("transformer.wpe", 24, D, bias=False)
    norm(last)
    linear(head, V, D, bias=architecture in ("GPTJForCausalLM", "PhiForCausalLM"))
    return {name: np.asarray(values, np.float32) for name, values in found.items()}


def _later_layer(at, architecture, table, kv, linear, norm):
    """Make the weights of a layer of a Starcoder2 or a Cohere."""
    cohere = architecture.startswith("Cohere")
    biased = table.get("attention_bias", False) if cohere else table.get("use_bias", True)
    norm(f"{at}input_layernorm")
    if not cohere:
        norm(f"{at}post_attention_layernorm")
    for name, rows in (("q_proj", D), ("k_proj", kv), ("v_proj", kv), ("o_proj", D)):
        linear(f"{at}self_attn.{name}", rows, D, biased)
    products = (("gate_proj", F), ("up_proj", F), ("down_proj", D)) if cohere else (("c_fc", F), ("c_proj", D))
    for name, rows in products:
        linear(f"{at}mlp.{name}", rows, F + D - rows, biased and not cohere)


def _active(name, x):
    if name in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh"):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if name in ("gelu", "gelu_python"):
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if name == "relu":
        return np.maximum(x, 0)
    assert name in ("silu", "swish"), name
    return x / (1 + np.exp(-x))


def _turned(z, table, part, base):
    """Return heads, (heads, tokens, features), of which the first part turns, by halves."""
    rope = table.get("rope_scaling") or table.get("rope_parameters") or {}
    features = int(z.shape[-1] * rope.get("partial_rotary_factor", part))
    turns = 1.0 / rope.get("rope_theta", base) ** (np.arange(0, features, 2) / features)
    kind = rope.get("rope_type", rope.get("type", "default"))
    assert kind in (None, "default", "linear", "dynamic"), kind  # dynamic: slower in longer texts only
    angle = np.outer(np.arange(z.shape[1]), turns / rope["factor"] if kind == "linear" else turns)
    half = features // 2
    a, b, rest = z[..., :half], z[..., half:features], z[..., features:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _turned_pairs(z, features, base=10000.0, slower=1.0):
    """Return heads of which pairs of neighbours turn."""
    angle = np.outer(np.arange(z.shape[1]), 1.0 / base ** (np.arange(0, features, 2) / features) / slower)
    out, cos, sin = z.copy(), np.cos(angle), np.sin(angle)
    a, b = z[..., 0:features:2], z[..., 1:features:2]
    out[..., 0:features:2], out[..., 1:features:2] = a * cos - b * sin, b * cos + a * sin
    return out


def _mixed(q, k, v, scale, window=None):
    """Return what attention gives, (tokens, features of all heads), of heads (heads, tokens, features)."""
    n, out = q.shape[1], []
    for head, queries in enumerate(q):
        own = head // (len(q) // len(k))
        scores = queries @ k[own].T * scale
        scores[np.triu(np.ones((n, n), bool), 1)] = -np.inf
        if window is not None:
            scores[np.tril(np.ones((n, n), bool), -window)] = -np.inf
        share = np.exp(scores - scores.max(1, keepdims=True))
        out.append(share / share.sum(1, keepdims=True) @ v[own])
    return np.concatenate(out, 1)


def classic_logits(kind, table, tensors, ids):
    """Return the logits of an architecture behind the last of some tokens, float64."""
    t = {name: values.astype(np.float64) for name, values in tensors.items()}
    n = len(ids)
    hidden = table.get("n_embd", table.get("hidden_size"))
    heads = table.get("n_head", table.get("num_attention_heads"))
    layers = table.get("n_layer", table.get("num_hidden_layers"))
    size = hidden // heads
    epsilon = table.get("layer_norm_epsilon" if kind.startswith(("GPT2", "GPTJ")) else "layer_norm_eps", 1e-5)
    if kind == "Starcoder2ForCausalLM":
        epsilon = table.get("norm_epsilon", 1e-5)

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0.0)

    def conv(x, name):
        return x @ t[f"{name}.weight"] + t[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return y * t[f"{name}.weight"] + t.get(f"{name}.bias", 0.0)

    def by_heads(x):
        return x.reshape(n, -1, size).swapaxes(0, 1)

    if kind == "GPT2LMHeadModel":
        x = t["transformer.wte.weight"][ids] + t["transformer.wpe.weight"][:n]
        scale = size**-0.5 if table.get("scale_attn_weights", True) else 1.0
        for layer in range(layers):
            at = f"transformer.h.{layer}."
            q, k, v = (by_heads(z) for z in np.split(conv(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, axis=-1))
            x = x + conv(_mixed(q, k, v, scale), at + "attn.c_proj")
            z = _active(table.get("activation_function", "gelu_new"), conv(norm(x, at + "ln_2"), at + "mlp.c_fc"))
            x = x + conv(z, at + "mlp.c_proj")
        head = "transformer.wte" if table.get("tie_word_embeddings", True) else "lm_head"
        return norm(x, "transformer.ln_f")[-1] @ t[f"{head}.weight"].T
    if kind == "GPTJForCausalLM":
        return _gptj(table, t, ids, linear, norm, by_heads)
    if kind == "GPTNeoXForCausalLM":
        x = t["gpt_neox.embed_in.weight"][ids]
        part, base = table.get("rotary_pct", 0.25), table.get("rotary_emb_base", 10000.0)
        for layer in range(layers):
            at = f"gpt_neox.layers.{layer}."
            z = linear(norm(x, at + "input_layernorm"), at + "attention.query_key_value").reshape(n, heads, 3 * size)
            q, k, v = (each.swapaxes(0, 1) for each in np.split(z, 3, axis=-1))
            q, k = (_turned(z, table, part, base) for z in (q, k))
            more = linear(_mixed(q, k, v, size**-0.5), at + "attention.dense")
            reads = x if table.get("use_parallel_residual", True) else x + more
            z = linear(norm(reads, at + "post_attention_layernorm"), at + "mlp.dense_h_to_4h")
            x = x + more + linear(_active(table.get("hidden_act", "gelu"), z), at + "mlp.dense_4h_to_h")
        head = "gpt_neox.embed_in" if table.get("tie_word_embeddings", False) else "embed_out"
        return norm(x, "gpt_neox.final_layer_norm")[-1] @ t[f"{head}.weight"].T
    if kind.startswith("Cohere"):
        return _cohere(kind, table, t, ids, linear, norm, by_heads)
    if kind == "Starcoder2ForCausalLM":
        return _starcoder(table, t, ids, linear, norm, by_heads)
    phi = kind == "PhiForCausalLM"
    x, base = t["model.embed_tokens.weight"][ids], table.get("rope_theta", 10000.0)
    part = table.get("partial_rotary_factor", 0.5 if phi else 0.25)
    act = table.get("hidden_act", "gelu_new" if phi else "silu")
    for layer in range(layers):
        at = f"model.layers.{layer}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (by_heads(linear(y, f"{at}self_attn.{name}_proj")) for name in "qkv")
        q, k = (_turned(z, table, part, base) for z in (q, k))
        more = linear(_mixed(q, k, v, size**-0.5), at + f"self_attn.{'dense' if phi else 'o_proj'}")
        if phi:
            x = x + more + linear(_active(act, linear(y, at + "mlp.fc1")), at + "mlp.fc2")
            continue
        if not table.get("use_parallel_residual", False):
            y = norm(x + more, at + "post_attention_layernorm")
        z = _active(act, linear(y, at + "mlp.gate_proj")) * linear(y, at + "mlp.up_proj")
        x = x + more + linear(z, at + "mlp.down_proj")
    y = norm(x, "model.final_layernorm" if phi else "model.norm")[-1]
    head = "model.embed_tokens" if table.get("tie_word_embeddings", False) else "lm_head"
    return y @ t[f"{head}.weight"].T + t.get("lm_head.bias", 0.0)


def _cohere(kind, table, t, ids, linear, norm, by_heads):
    """Return the logits of both generations of a Cohere."""
    rope = table.get("rope_scaling") or table.get("rope_parameters") or {}
    base = rope.get("rope_theta", table.get("rope_theta", 500000.0 if kind == "CohereForCausalLM" else 10000.0))
    linearly = rope.get("rope_type", rope.get("type", "default")) == "linear"
    x, layers = t["model.embed_tokens.weight"][ids], table["num_hidden_layers"]
    every = table.get("sliding_window_pattern", 4)
    kinds = table.get("layer_types") or [(layer + 1) % every > 0 for layer in range(layers)]
    for layer, own in enumerate(kinds):
        at, slides = f"model.layers.{layer}.", own in (True, "sliding_attention")
        y = norm(x, at + "input_layernorm")
        q, k, v = (by_heads(linear(y, f"{at}self_attn.{name}_proj")) for name in "qkv")
        if slides or kind == "CohereForCausalLM":
            q, k = (_turned_pairs(z, z.shape[-1], base, rope["factor"] if linearly else 1.0) for z in (q, k))
        window = table.get("sliding_window", 4096) if slides and kind == "Cohere2ForCausalLM" else None
        mixed = linear(_mixed(q, k, v, q.shape[-1] ** -0.5, window), at + "self_attn.o_proj")
        gate = _active(table.get("hidden_act", "silu"), linear(y, at + "mlp.gate_proj"))
        x = x + mixed + linear(gate * linear(y, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = "model.embed_tokens" if table.get("tie_word_embeddings", True) else "lm_head"
    return norm(x, "model.norm")[-1] @ t[f"{head}.weight"].T * table.get("logit_scale", 0.0625)


def _starcoder(table, t, ids, linear, norm, by_heads):
    """Return the logits of a Starcoder2."""
    x, act = t["model.embed_tokens.weight"][ids], table.get("hidden_act", "gelu_pytorch_tanh")
    for layer in range(table["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (by_heads(linear(y, f"{at}self_attn.{name}_proj")) for name in "qkv")
        q, k = (_turned(z, table, 1.0, table.get("rope_theta", 10000.0)) for z in (q, k))
        mixed = _mixed(q, k, v, q.shape[-1] ** -0.5, table.get("sliding_window"))
        x = x + linear(mixed, at + "self_attn.o_proj")
        z = _active(act, linear(norm(x, at + "post_attention_layernorm"), at + "mlp.c_fc"))
        x = x + linear(z, at + "mlp.c_proj")
    head = "model.embed_tokens" if table.get("tie_word_embeddings", True) else "lm_head"
    return norm(x, "model.norm")[-1] @ t[f"{head}.weight"].T


def _gptj(table, t, ids, linear, norm, by_heads):
    """Return the logits of a GPT-J."""
    x = t["transformer.wte.weight"][ids]
    for layer in range(table["n_layer"]):
        at = f"transformer.h.{layer}."
        y = norm(x, at + "ln_1")
        q, k, v = (by_heads(linear(y, f"{at}attn.{name}_proj")) for name in "qkv")
        q, k = (_turned_pairs(z, table.get("rotary_dim", 64)) for z in (q, k))
        z = _active(table.get("activation_function", "gelu_new"), linear(y, at + "mlp.fc_in"))
        x = x + linear(_mixed(q, k, v, q.shape[-1] ** -0.5), at + "attn.out_proj") + linear(z, at + "mlp.fc_out")
    head = "transformer.wte.weight" if table.get("tie_word_embeddings", False) else "lm_head.weight"
    return norm(x, "transformer.ln_f")[-1] @ t[head].T + t["lm_head.bias"]
