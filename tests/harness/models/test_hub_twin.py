"""Every key of a model's configuration, changed alone: the library's answer, or refused, or said; never silent."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.models.architectures import CONFIG_KEYS, ROPE_KEYS
from harness.models.hub import load_model
from harness.models.lowering import LOWERED
from harness.models.plain import PlainDecoder
from harness.models.tensors import write_tensors
from tests.examples import few
from tests.harness.models.hub_twin import BASES, FIELDS, library_logits, stops_of, tensors_of
from wse_core.errors import ConfigError, UnsupportedError

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]

POOL = (None, True, False, 0, 1, 2, 4, 0.5, 2.5, -1, 1e-320, 1e300, "silu", "x", "default", [], {}, [1], {"a": 1}, [[]])
"""Values that anybody may have put behind any key."""

OWN = {
    "rope_theta": (500000.0, 7),
    "rope_parameters": (
        {"rope_theta": 7.0},
        {"rope_type": "default", "rope_theta": 500000.0},
        {"type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 12, "rope_theta": 100.0},
        {"rope_type": "yarn", "factor": 4.0},
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "rope_theta": 100.0, "beta_fast": 4},
        {"type": "yarn", "factor": 4.0, "attention_factor": 0.5, "truncate": False, "beta_slow": 2, "beta_fast": 3},
        {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.3},
        {"rope_type": "yarn", "factor": 1.0, "mscale": 0.7},
        {"rope_type": "yarn", "factor": None},
        {"rope_type": "dynamic", "factor": 4.0},
        {"type": "longrope", "short_factor": [1.5, 2.5], "long_factor": [3.0, 9.0], "factor": 4.0,
         "original_max_position_embeddings": 16},
        {"type": "longrope", "short_factor": [1.5, 2.5], "long_factor": [3.0, 9.0], "attention_factor": 1.25,
         "original_max_position_embeddings": 11},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"rope_type": "default", "partial_rotary_factor": 1.0},
        {"full_attention": {"rope_type": "default", "rope_theta": 7.0}},
        {"mrope_section": [1, 1], "rope_type": "default"},
    ),
    "hidden_act": ("swish", "silu", "gelu", "gelu_pytorch_tanh"),
    "hidden_activation": ("gelu_pytorch_tanh", "silu"),
    "sliding_window": (5, 12, 48, 4096),
    "layer_types": (["full_attention", "sliding_attention"], ["sliding_attention"] * 2, ["full_attention"] * 2),
    "eos_token_id": (11, 12, [3, 5], [12]),
    "num_key_value_heads": (4, 3),
    "original_max_position_embeddings": (12, 48),
    "embedding_multiplier": (1.0, 3.0, -2.0, None),
    "attention_multiplier": (1.0, 0.5, 0),
    "residual_multiplier": (1.0, 0.5),
    "logits_scaling": (1.0, 3.0, "x"),
    "rms_norm_eps": (0.25, 1e-6),
    "partial_rotary_factor": (0.5, 0.75, 0.1, 1.0),
    "max_position_embeddings": (12, 11, 64),
    "head_dim": (2,),
    "no_rope_layers": ([1, 1], [0, 0], [0, 1, 1], [True, 0], [1], [1, 2]),
    "no_rope_layer_interval": (1, 2, 3),
    "num_local_experts": (4, 3, 5),
    "num_experts": (4, 3, 5),
    "num_experts_per_tok": (1, 2, 3, 4, 5),
    "norm_topk_prob": (True, False),
    "decoder_sparse_step": (1, 2),
    "mlp_only_layers": ([], [0]),
    "moe_intermediate_size": (8, 7),
    "clip_qkv": (0, 8.0),
}  # fmt: skip
OWN["rope_scaling"] = OWN["rope_parameters"]
"""Values that mean something, by key."""

FOREIGN = ("logit_scale", "attn_logit_softcapping", "colour", "qk_norm", "num_experts", "lm_head_multiplier")
"""Keys of other models, and of none."""


@pytest.fixture(params=list(BASES))
def made(request, tmp_path):
    """Return architecture, weights, and a function that writes a table and loads the model."""
    weights = tensors_of(request.param)
    write_tensors(tmp_path / "model.safetensors", weights)

    def load(table):
        (tmp_path / "config.json").write_text(json.dumps(table))
        return load_model(tmp_path)

    return request.param, weights, load


def right(model, weights, table):
    """Whether a model that was loaded answers as the library does."""
    plain = PlainDecoder(model.decoder, model.weights(), np.float64).forward(IDS)[-1]
    wanted = library_logits(table, weights, IDS)
    assert stops_of(table) == set(model.configuration.stops)
    close = 1e-4 if model.configuration.architecture in LOWERED else 1e-9  # factors are given to weights, which are f32
    return np.allclose(plain, wanted, rtol=close, atol=close * np.abs(wanted).max())


def tried(made, change, without=()):
    """Return what came of a changed table: "right", "said" or "refused"; anything else fails."""
    architecture, weights, load = made
    table = {key: value for key, value in (BASES[architecture] | change).items() if key not in without}
    try:
        model = load(table)
    except (ConfigError, UnsupportedError) as error:
        text = str(error)
        assert text.isprintable(), text
        assert len(text) < 600
        return "refused"
    if len(IDS) > model.decoder.context:
        return "refused"  # by the request: the text is longer than what the model is read for
    said = " ".join(model.configuration.warnings)
    if any(key in said for key in change):
        return "said"
    assert right(model, weights, table), f"another answer without a word: {change}"
    return "right"


def test_every_key_with_every_value(made):
    """A key alone, with what means something and with what does not."""
    architecture = made[0]
    assert tried(made, {}) == "right"
    for number, key in enumerate((*CONFIG_KEYS[architecture], *FOREIGN)):
        for value in (*OWN.get(key, ()), *few(POOL[number % len(POOL) :] + POOL, 1)):
            outcome = tried(made, {key: value})
            assert outcome != "said" or key in ("auto_map", *FOREIGN) or value == {"a": 1}, (key, value)
        assert key not in BASES[architecture] or tried(made, {}, without=(key,)) in ("right", "refused")


def test_every_key_inside_of_positions(made):
    for name in ("rope_parameters", "rope_scaling"):
        for key in (*ROPE_KEYS, "colour"):
            for value in few([*POOL[1::3], *POOL], 3):
                outcome = tried(made, {name: {key: value}})
                assert outcome != "said" or key == "colour", (name, key, value)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"rope_scaling": {"rope_theta": 500000.0, "rope_type": "default"}}, "right"),
        ({"rope_parameters": {"rope_theta": 7.0}, "rope_theta": 9.0}, "right"),
        ({"rope_theta": 500000.0}, "right"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "right"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 24}}, "right"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "right"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}}, "right"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 4.0}}, "refused"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 2.5],
                              "long_factor": [3.0, 9.0], "original_max_position_embeddings": 24}}, "right"),
        ({"rope_parameters": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0, 2.5, 3.0],
                              "original_max_position_embeddings": 24}}, "refused"),
        ({"rotary_pct": 0.5}, "refused"),
        ({"hidden_act": "gelu_pytorch_tanh"}, "right"),
        ({"hidden_act": "selu"}, "refused"),
        ({"tie_word_embeddings": True}, "refused"),  # the file has another output matrix
        ({"bos_token_id": 99}, "right"),
        ({"eos_token_id": [3, 5]}, "right"),
        ({"colour": "red"}, "said"),
        ({"auto_map": {"AutoModel": "m.M"}}, "said"),
        ({"mlp_bias": True}, "refused"),  # the files have none
        ({"is_decoder": True}, "refused"),
        ({"attention_dropout": 0.5}, "right"),
    ],
)  # fmt: skip
def test_what_comes_of_a_change(made, change, outcome):
    """What the library answers is answered, and not refused out of caution."""
    by_kinds = made[0] in ("Gemma3ForCausalLM", "Olmo3ForCausalLM")
    if by_kinds and ("rope_parameters" in change or "type" in change.get("rope_scaling", {})):
        outcome = "refused"  # it has a table for each kind of layers in it, and the type by its new name
    assert tried(made, change) == outcome


@pytest.mark.parametrize(
    ("architecture", "change", "outcome"),
    [
        ("MistralForCausalLM", {"sliding_window": 5}, "right"),
        ("MistralForCausalLM", {"sliding_window": 12}, "right"),
        ("Qwen2ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}, "right"),
        ("Qwen2ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2}, "right"),
        ("Qwen2ForCausalLM", {"sliding_window": 5}, "right"),
        ("Qwen2ForCausalLM", {"attention_bias": False}, "right"),
        ("Qwen3ForCausalLM", {"attention_bias": False}, "right"),
        ("Qwen3ForCausalLM", {"head_dim": None}, "refused"),
        ("Qwen3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}, "right"),
        ("Qwen3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2}, "right"),
        ("LlamaForCausalLM", {"sliding_window": 5}, "refused"),
        ("LlamaForCausalLM", {"hidden_act": "swish"}, "right"),
        ("LlamaForCausalLM", {"hidden_act": "gelu"}, "right"),  # which the library takes by the error function
        ("LlamaForCausalLM", {"hidden_act": "gelu_new"}, "right"),
        ("LlamaForCausalLM", {"hidden_act": "relu"}, "right"),
        ("LlamaForCausalLM", {"hidden_act": "quick_gelu"}, "refused"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [0, 1]}, "right"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": None}, "right"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": None, "no_rope_layer_interval": 2}, "right"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1]}, "refused"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 2]}, "refused"),
        ("SmolLM3ForCausalLM", {"no_rope_layers": None, "no_rope_layer_interval": 0}, "refused"),
        ("SmolLM3ForCausalLM", {"rope_theta": 7.0}, "right"),
        ("SmolLM3ForCausalLM", {"sliding_window": 5}, "right"),
        ("SmolLM3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True}, "right"),
        ("SmolLM3ForCausalLM", {"sliding_window": 12, "use_sliding_window": True}, "right"),
        ("SmolLM3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "no_rope_layers": [1, 1]}, "right"),
        ("SmolLM3ForCausalLM", {"use_sliding_window": True}, "right"),
        ("SmolLM3ForCausalLM", {"layer_types": ["full_attention", "sliding_attention"]}, "refused"),
        ("Olmo2ForCausalLM", {"sliding_window": 5}, "refused"),
        ("Olmo3ForCausalLM", {"layer_types": None}, "right"),
        ("Olmo3ForCausalLM", {"sliding_window": 12}, "right"),
        ("Olmo3ForCausalLM", {"sliding_window": None}, "refused"),
        ("Olmo3ForCausalLM", {"layer_types": ["full_attention"] * 2}, "right"),
        ("Olmo3ForCausalLM", {"layer_types": ["sliding_attention"] * 2}, "right"),
        ("Olmo3ForCausalLM", {"rope_theta": 7.0}, "refused"),
        ("Olmo3ForCausalLM", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "right"),
        (
            "Olmo3ForCausalLM",
            {"rope_theta": 7.0, "rope_parameters": {"sliding_attention": {"rope_theta": 9.0}}},
            "right",
        ),
        (
            "Olmo3ForCausalLM",
            {
                "rope_parameters": {
                    "full_attention": {"rope_theta": 9.0, "rope_type": "linear", "factor": 2.0},
                    "sliding_attention": {"rope_theta": 5.0},
                }
            },
            "right",
        ),
        ("Olmo3ForCausalLM", {"attention_bias": True}, "refused"),  # the files have none
        ("Olmo3ForCausalLM", {"model_type": "olmo2"}, "refused"),
        ("Olmo2ForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}, "right"),
        ("Olmo2ForCausalLM", {"rms_norm_eps": 0.25}, "right"),
        ("Olmo2ForCausalLM", {"clip_qkv": 8.0}, "refused"),  # which the library does not look at
        ("LlamaForCausalLM", {"partial_rotary_factor": 0.5}, "refused"),
        ("LlamaForCausalLM", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "refused"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.5}, "right"),
        ("Phi3ForCausalLM", {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 7.0}}, "right"),
        ("Phi3ForCausalLM", {"rope_parameters": {"partial_rotary_factor": 0.5}, "partial_rotary_factor": 1.0}, "right"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": 0.25}, "refused"),  # one feature of four
        ("Phi3ForCausalLM", {"partial_rotary_factor": 1.5}, "refused"),
        ("Phi3ForCausalLM", {"partial_rotary_factor": None}, "refused"),
        (
            "Phi3ForCausalLM",
            {
                "partial_rotary_factor": 0.5,
                "rope_scaling": {
                    "type": "longrope",
                    "short_factor": [1.5],
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                    "attention_factor": 1.25,
                },
            },
            "right",
        ),
        (
            "Phi3ForCausalLM",
            {
                "partial_rotary_factor": 0.5,
                "rope_scaling": {
                    "type": "longrope",
                    "factor": 4.0,
                    "short_factor": [1.5, 2.5],
                    "original_max_position_embeddings": 16,
                },
            },
            "refused",
        ),
        ("Phi3ForCausalLM", {"sliding_window": 5}, "right"),
        ("MistralForCausalLM", {"sliding_window": 1}, "right"),
        ("MistralForCausalLM", {"sliding_window": 0}, "refused"),
        (
            "Qwen3ForCausalLM",
            {"sliding_window": 5, "use_sliding_window": True, "layer_types": ["sliding_attention"]},
            "refused",
        ),
        (
            "Qwen3ForCausalLM",
            {"sliding_window": 5, "use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"]},
            "right",
        ),
        ("Qwen3ForCausalLM", {"layer_types": ["chunked_attention", "full_attention"]}, "refused"),
        *[
            ("Gemma2ForCausalLM", change, "right")
            for change in (
                {"sliding_window": 3},
                {"sliding_window": 12},
                {"layer_types": ["full_attention", "sliding_attention"]},
                {"attn_logit_softcapping": None},
                {"final_logit_softcapping": None},
                {"attn_logit_softcapping": 0.5},
                {"final_logit_softcapping": 1.5},
                {"query_pre_attn_scalar": 4},
                {"query_pre_attn_scalar": 144.0},
                {"hidden_act": "gelu"},
                {"rope_theta": 7.0},
                {"rope_scaling": {"type": "linear", "factor": 4.0}},
            )
        ],
        *[
            ("Gemma2ForCausalLM", change, "refused")
            for change in (
                {"sliding_window": None},
                {"attn_logit_softcapping": 0},
                {"hidden_activation": "gelu"},
                {"query_pre_attn_scalar": 0},
                {"use_bidirectional_attention": True},
                {"hidden_act": "silu"},
            )
        ],
        *[
            ("Gemma3ForCausalLM", change, "right")
            for change in (
                {"sliding_window": 3},
                {"sliding_window_pattern": 1},
                {"sliding_window_pattern": 6},
                {"layer_types": ["full_attention", "sliding_attention"]},
                {"layer_types": ["full_attention"] * 2},
                {"rope_local_base_freq": 7.0},
                {"rope_theta": 7.0},
                {"query_pre_attn_scalar": 4},
                {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
                {"final_logit_softcapping": 2.0},
                {
                    "rope_parameters": {
                        "full_attention": {"rope_theta": 7.0, "rope_type": "linear", "factor": 2.0},
                        "sliding_attention": {"rope_theta": 9.0},
                    }
                },
                {"rope_parameters": {"full_attention": {"rope_theta": 7.0}}},
            )
        ],
        *[
            ("Gemma3ForCausalLM", change, "refused")
            for change in (
                {"attn_logit_softcapping": 2.0},
                {"rope_parameters": {"rope_theta": 7.0}},
                {"sliding_window_pattern": 0},
                {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
                {"rope_parameters": {"full_attention": {"rope_theta": 7.0}}, "rope_scaling": {"type": "default"}},
                {"rope_scaling": {"type": "linear", "factor": 2.0}},
            )
        ],
        ("Gemma3ForCausalLM", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "right"),
        ("GemmaForCausalLM", {"hidden_act": "gelu"}, "right"),
        ("GemmaForCausalLM", {"hidden_act": "silu"}, "refused"),
        ("GemmaForCausalLM", {"hidden_activation": "gelu_pytorch_tanh"}, "right"),
        ("GemmaForCausalLM", {"hidden_activation": "silu"}, "refused"),
        ("GemmaForCausalLM", {"use_bidirectional_attention": True}, "refused"),
        ("GemmaForCausalLM", {"sliding_window": 5}, "refused"),
    ],
)
def test_windows_and_activations(tmp_path, architecture, change, outcome):
    """Keys that only some architectures have, and what means another thing in them."""
    weights = tensors_of(architecture)
    write_tensors(tmp_path / "model.safetensors", weights)

    def load(table):
        (tmp_path / "config.json").write_text(json.dumps(table))
        return load_model(tmp_path)

    assert tried((architecture, weights, load), change) == outcome


BIASED = {
    "attention_bias": (["self_attn.o_proj", *(f"self_attn.{name}_proj" for name in "qkv")], {"LlamaForCausalLM",
        "Qwen3ForCausalLM", "GraniteForCausalLM", "GemmaForCausalLM", "SmolLM3ForCausalLM", "Olmo2ForCausalLM",
        "Olmo3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM"}),
    "mlp_bias": ([f"mlp.{name}_proj" for name in ("gate", "up", "down")], {"LlamaForCausalLM", "GraniteForCausalLM",
        "SmolLM3ForCausalLM", "HeliumForCausalLM", "SeedOssForCausalLM"}),
    "use_bias": ([f"{part}_proj" for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate",
        "mlp.up", "mlp.down")], {"Ernie4_5ForCausalLM"}),
    "attention_out_bias": (["self_attn.o_proj"], {"SeedOssForCausalLM"}),
}  # fmt: skip
"""Products that a key gives a bias, and the architectures in which it does."""


@pytest.mark.parametrize("key", list(BIASED))
def test_biases_that_a_key_says(made, key):
    """With the key, biases of the file are the library's; without it they are no part of the model."""
    architecture, weights, load = made
    products, architectures = BIASED[key]
    r = np.random.default_rng(7)
    for name in [name for name in weights if name.removesuffix(".weight").endswith(tuple(products))]:
        weights[f"{name.removesuffix('weight')}bias"] = r.standard_normal(len(weights[name])).astype(np.float32)
    directory = load.__closure__[0].cell_contents
    write_tensors(directory / "model.safetensors", weights)
    assert tried(made, {key: True}) == ("right" if architecture in architectures else "refused")
    if architecture in architectures:
        assert tried(made, {key: False}) == "refused"
        plain = library_logits(BASES[architecture] | {key: False}, weights, IDS)
        assert not np.allclose(plain, library_logits(BASES[architecture] | {key: True}, weights, IDS), rtol=1e-2)


@pytest.mark.parametrize(
    ("architecture", "missing"), [("GlmForCausalLM", True), ("SeedOssForCausalLM", True), ("HeliumForCausalLM", False)]
)
def test_biases_of_queries_keys_and_values_alone(architecture, missing, tmp_path):
    """What attention_bias says of these is of these products only, and has a value if it says nothing."""
    weights, r = tensors_of(architecture), np.random.default_rng(3)
    for layer in range(2):
        for name in "qkv":
            stem = f"model.layers.{layer}.self_attn.{name}_proj"
            weights[f"{stem}.bias"] = r.standard_normal(len(weights[f"{stem}.weight"])).astype(np.float32)
    write_tensors(tmp_path / "model.safetensors", weights)

    def load(table):
        (tmp_path / "config.json").write_text(json.dumps(table))
        return load_model(tmp_path)

    assert tried((architecture, weights, load), {"attention_bias": True}) == "right"
    assert tried((architecture, weights, load), {}) == ("right" if missing else "refused")
    assert tried((architecture, weights, load), {"attention_bias": False}) == "refused"  # the files have some
    plain = library_logits(BASES[architecture] | {"attention_bias": False}, weights, IDS)
    assert not np.allclose(plain, library_logits(BASES[architecture] | {"attention_bias": True}, weights, IDS))


def test_a_base_without_a_number_of_kv_heads_has_the_librarys(made):
    """Missing, it is 32 for a Qwen2 and 8 for a Mistral; null is as many as query heads."""
    architecture, _, load = made
    table = {key: value for key, value in BASES[architecture].items() if key != "num_key_value_heads"}
    if architecture in ("GlmForCausalLM", "Glm4ForCausalLM", "Ernie4_5ForCausalLM"):
        assert load(table).decoder.kv_heads == 2
        return
    with pytest.raises(ConfigError, match=r"k_proj\.weight is|do not share (8|16|20|32)|its products have"):
        load(table)


@pytest.mark.parametrize("architecture", list(FIELDS))
def test_fields_of_the_library_are_known(architecture):
    assert set(FIELDS[architecture]) <= set(CONFIG_KEYS[architecture])


VARIANTS = [
    ("GlmForCausalLM", {"partial_rotary_factor": 0.5}),
    ("Glm4ForCausalLM", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "partial_rotary_factor": 0.5}}),
    ("HeliumForCausalLM", {"rms_norm_eps": 0.25, "rope_theta": 7.0}),
    ("Ernie4_5ForCausalLM", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0}}),
    ("SeedOssForCausalLM", {"hidden_act": "gelu"}),
    ("Phi3ForCausalLM", {"partial_rotary_factor": 0.5}),
    ("MistralForCausalLM", {"sliding_window": 5}),
    ("Qwen3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}),
    ("SmolLM3ForCausalLM", {"sliding_window": 5, "use_sliding_window": True}),
    ("SmolLM3ForCausalLM", {"no_rope_layers": None, "no_rope_layer_interval": 2}),
    ("Gemma2ForCausalLM", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    ("Gemma2ForCausalLM", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("Gemma3ForCausalLM", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ("Gemma3ForCausalLM", {"rope_parameters": {"full_attention": {"rope_theta": 7.0, "rope_type": "default"},
                                               "sliding_attention": {"rope_theta": 9.0, "rope_type": "default"}}}),
    ("Gemma3ForCausalLM", {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}),
]  # fmt: skip
"""What some tables may say, for the library itself."""


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "change"), [*[(name, {}) for name in BASES], *VARIANTS])
def test_the_library_answers_as_its_twin(architecture, change, tmp_path):
    """Where transformers and torch are installed: logits of its own classes, from the same files."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    weights = tensors_of(architecture)
    write_tensors(tmp_path / "model.safetensors", weights)
    table = BASES[architecture] | change | {"pad_token_id": None}  # a Phi3 has one outside of so small a vocabulary
    (tmp_path / "config.json").write_text(json.dumps(table))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        found = model(torch.tensor([IDS])).logits[0, -1].numpy()
    wanted = library_logits(table, weights, IDS)
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", list(BASES))
def test_the_library_itself(architecture, tmp_path):
    """Where transformers is installed: its fields are those above, and its reading of a file is ours."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(BASES[architecture]["model_type"])
    fields = {key for key in config.to_dict() if not key.startswith("_") and key != "base_model_tp_plan"}
    assert fields <= set(CONFIG_KEYS[architecture]), fields - set(CONFIG_KEYS[architecture])
    write_tensors(tmp_path / "model.safetensors", tensors_of(architecture))
    changes = [{name: value} for name in ("rope_parameters", "rope_scaling") for value in OWN[name]]
    if architecture == "Phi3ForCausalLM":  # whose class checks positions itself, against a head size that it divides
        changes = []
    for change in [{}, {"rope_theta": 7.0}, {"sliding_window": 12}, {"use_sliding_window": True}, *changes]:
        (tmp_path / "config.json").write_text(json.dumps(BASES[architecture] | change))
        try:
            own = load_model(tmp_path)
        except (ConfigError, UnsupportedError):
            continue
        theirs = transformers.AutoConfig.from_pretrained(tmp_path)
        rope, decoder = theirs.rope_parameters, own.decoder
        rope = rope.get("full_attention", rope)
        assert rope["rope_theta"] == decoder.rope_base
        kind = "default" if rope["rope_type"] == "dynamic" else rope["rope_type"]  # plain in texts of the context
        assert kind == ("default" if decoder.scaling is None else decoder.scaling.kind)
        longrope = rope["rope_type"] == "longrope"  # which has factors of pairs, and other ones in longer texts
        if decoder.scaling is not None and not longrope:
            assert rope["factor"] == decoder.scaling.factor
        if rope["rope_type"] in ("llama3", "yarn"):
            assert rope["original_max_position_embeddings"] == decoder.scaling.original
        windowed = theirs.model_type in ("mistral", "phi3", "mixtral") or "sliding_attention" in (
            getattr(theirs, "layer_types", None) or ()
        )
        window = theirs.sliding_window if windowed else None
        assert decoder.window == (None if window is None or window >= 48 else window)
        assert decoder.context == min(48, decoder.scaling.original if longrope else 48)
        assert (theirs.num_key_value_heads, theirs.head_dim) == (decoder.kv_heads, decoder.head_size)
