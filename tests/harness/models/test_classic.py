"""Models that are older than LLaMA: every key, changed alone, gives the library's answer, or is refused, or said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.models.classic import CLASSIC, CLASSIC_KEYS
from harness.models.explain import explained
from harness.models.hub import load_model
from harness.models.plain import PlainDecoder
from harness.models.tensors import write_tensors
from tests.examples import few
from tests.harness.models.classic_twin import CLASSIC_BASES, CLASSIC_FIELDS, classic_logits, classic_tensors
from tests.harness.models.hub_twin import stops_of
from wse_core.errors import ConfigError, UnsupportedError

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]

POOL = (None, True, False, 0, 1, 2, 4, 0.5, 2.5, -1, 1e-320, 1e300, "silu", "x", "default", [], {}, [1], {"a": 1}, [[]])
"""Values that anybody may have put behind any key."""

OWN = {
    "activation_function": ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "selu"),
    "rotary_pct": (1.0, 0.5, 0.25),
    "partial_rotary_factor": (1.0, 0.5, 0.25),
    "rotary_dim": (2, 4, 3, 6),
    "rotary_emb_base": (100, 500000.0),
    "rope_theta": (100, 500000.0),
    "layer_norm_eps": (0.25, 1e-6),
    "layer_norm_epsilon": (0.25, 1e-6),
    "norm_epsilon": (0.25, 1e-6),
    "sliding_window": (3, 30),
    "sliding_window_pattern": (1, 3),
    "layer_types": (["sliding_attention", "full_attention"], ["full_attention"] * 2, ["sliding_attention"]),
    "logit_scale": (0.25, 1),
    "head_dim": (4, 8),
    "n_inner": (12, 48, None),
    "hidden_size": (8, 16),
    "n_positions": (24, 12, 11, 48),
    "rope_parameters": (
        {"rope_theta": 7.0},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "default", "partial_rotary_factor": 1.0},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0]},
        {"partial_rotary_factor": 0.25},
    ),
    "eos_token_id": (11, 12, [3, 5], [12]),
}
OWN["hidden_act"], OWN["rope_scaling"] = OWN["activation_function"], OWN["rope_parameters"]
"""Values that mean something, by key."""

FOREIGN = ("logit_scale", "sliding_window", "colour", "qk_norm", "num_experts", "rms_norm_eps")
"""Keys of other models, and of none."""

CHANGES = [
    ("GPTNeoXForCausalLM", {"use_parallel_residual": False}),
    ("GPTNeoXForCausalLM", {"attention_bias": False}),
    ("GPTNeoXForCausalLM", {"hidden_act": "relu", "rotary_pct": 1.0}),
    ("GPTNeoXForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("StableLmForCausalLM", {"use_parallel_residual": True}),
    ("StableLmForCausalLM", {"use_qkv_bias": True}),
    ("StableLmForCausalLM", {"use_qkv_bias": True, "use_parallel_residual": True, "hidden_act": "gelu"}),
    ("PhiForCausalLM", {"num_key_value_heads": 2, "partial_rotary_factor": 1.0}),
    ("GPT2LMHeadModel", {"scale_attn_weights": False}),
    ("GPT2LMHeadModel", {"activation_function": "gelu"}),
    ("GPTJForCausalLM", {"rotary_dim": 4}),
    ("Starcoder2ForCausalLM", {"use_bias": False, "sliding_window": None}),
    ("Starcoder2ForCausalLM", {"num_key_value_heads": 2, "norm_epsilon": 0.25, "hidden_act": "gelu"}),
    ("CohereForCausalLM", {"attention_bias": True, "logit_scale": 0.5}),
    ("CohereForCausalLM", {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 50.0}),
    ("Cohere2ForCausalLM", {"attention_bias": True, "layer_types": ["full_attention", "sliding_attention"]}),
    ("Cohere2ForCausalLM", {"sliding_window": 30, "sliding_window_pattern": 1}),
]
"""Tables with tensors of their own."""


def loaded(directory, table, weights):
    """Return the model of a table and weights."""
    write_tensors(directory / "model.safetensors", weights)
    (directory / "config.json").write_text(json.dumps(table))
    return load_model(directory)


def tried(directory, architecture, table, weights):
    """Return what comes of a table: "right", "said" or "refused"; anything else fails."""
    try:
        model = loaded(directory, table, weights)
    except (ConfigError, UnsupportedError) as error:
        assert str(error).isprintable()
        assert len(str(error)) < 600
        return "refused"
    if len(IDS) > model.decoder.context:
        return "refused"  # by the request
    if any(key in " ".join(model.configuration.warnings) for key in table):
        return "said"
    plain = PlainDecoder(model.decoder, model.weights(), np.float64).forward(IDS)[-1]
    wanted = classic_logits(architecture, table, weights, IDS)
    assert stops_of(table) == set(model.configuration.stops)
    np.testing.assert_allclose(plain, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    return "right"


@pytest.mark.parametrize("architecture", list(CLASSIC))
def test_every_key_with_every_value(architecture, tmp_path):
    """A key alone, with what means something and with what does not."""
    table, weights = CLASSIC_BASES[architecture], classic_tensors(architecture)
    assert tried(tmp_path, architecture, table, weights) == "right"
    for number, key in enumerate((*CLASSIC_KEYS[architecture], *FOREIGN)):
        for value in (*OWN.get(key, ()), *few(POOL[number % len(POOL) :] + POOL, 1)):
            outcome = tried(tmp_path, architecture, table | {key: value}, weights)
            assert outcome != "said" or key in ("auto_map", *FOREIGN) or value == {"a": 1}, (key, value)
        without = {name: value for name, value in table.items() if name != key}
        assert key not in table or tried(tmp_path, architecture, without, weights) in ("right", "refused")


@pytest.mark.parametrize(("architecture", "change"), CHANGES)
def test_what_a_key_says(architecture, change, tmp_path):
    """It is answered, and not as the table without it."""
    table = CLASSIC_BASES[architecture] | change
    weights = classic_tensors(architecture, table)
    assert tried(tmp_path, architecture, table, weights) == "right"


@pytest.mark.parametrize(
    ("architecture", "change", "what"),
    [
        ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "number of the layer"),
        ("GPT2LMHeadModel", {"activation_function": "selu"}, "activation_function"),
        ("GPT2LMHeadModel", {"n_positions": 23}, r"embed_positions\.weight is \[24, 8\], config.json wants \[23, 8\]"),
        ("GPT2LMHeadModel", {"hidden_size": 16}, "n_embd says 8"),
        ("GPT2LMHeadModel", {"n_head": 3}, "8 features are no multiple of 3 heads"),
        ("GPT2LMHeadModel", {"add_cross_attention": True}, "another model"),
        ("PhiForCausalLM", {"qk_layernorm": True}, "subtract the mean"),
        ("StableLmForCausalLM", {"qk_layernorm": True}, "subtract the mean"),
        ("GPTNeoXForCausalLM", {"rotary_pct": 0.3}, "1 cannot be turned in pairs"),
        ("GPTNeoXForCausalLM", {"use_parallel_residual": "yes"}, "neither true nor false"),
        ("GPTNeoXForCausalLM", {"model_type": "llama"}, "model_type says"),
        ("GPTJForCausalLM", {"rotary_dim": None}, "number of pairs"),
        ("GPTJForCausalLM", {"tie_word_embeddings": True}, "is not the embedding"),
        ("CohereForCausalLM", {"use_qk_norm": True}, "subtract the mean"),
        ("CohereForCausalLM", {"logit_scale": None}, "logit_scale"),
        ("CohereForCausalLM", {"tie_word_embeddings": True}, "is not the embedding"),
        ("Cohere2ForCausalLM", {"sliding_window": None}, "layers have a window"),
        ("Cohere2ForCausalLM", {"layer_types": ["full_attention"]}, "no list of 2 layers"),
        ("Starcoder2ForCausalLM", {"sliding_window": 0.5}, "no number of tokens"),
    ],
)
def test_what_is_refused(architecture, change, what, tmp_path):
    table = CLASSIC_BASES[architecture] | change
    with pytest.raises((ConfigError, UnsupportedError), match=what):
        loaded(tmp_path, table, classic_tensors(architecture))


@pytest.mark.parametrize("architecture", list(CLASSIC))
def test_tensors_that_do_not_fit_are_refused(architecture, tmp_path):
    """One that is missing, and one that is more; the file's mask is none of them."""
    table, weights = CLASSIC_BASES[architecture], classic_tensors(architecture)
    for name in weights:
        if name.endswith(("inv_freq", "masked_bias", "attn.bias")):
            continue
        less = {key: values for key, values in weights.items() if key != name}
        with pytest.raises(ConfigError, match="is missing"):
            loaded(tmp_path, table, less)
    with pytest.raises(ConfigError, match="belongs to no part"):
        loaded(tmp_path, table, weights | {"model.layers.0.mlp.more.weight": np.ones((2, 2), np.float32)})


def test_two_names_of_one_tensor_are_refused(tmp_path):
    weights = classic_tensors("GPT2LMHeadModel")
    weights["wte.weight"] = weights["transformer.wte.weight"]
    with pytest.raises(ConfigError, match="twice"):
        loaded(tmp_path, CLASSIC_BASES["GPT2LMHeadModel"], weights)


def test_names_without_a_beginning_are_the_same(tmp_path):
    """The first files of a GPT-2 have names without ``transformer.``."""
    table, weights = CLASSIC_BASES["GPT2LMHeadModel"], classic_tensors("GPT2LMHeadModel")
    plain = {name.removeprefix("transformer."): values for name, values in weights.items()}
    found = loaded(tmp_path, table, plain).weights()
    for name, values in loaded(tmp_path, table, weights).weights().items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("architecture", list(CLASSIC))
def test_every_key_is_explained(architecture, tmp_path):
    loaded(tmp_path, CLASSIC_BASES[architecture], classic_tensors(architecture))
    rows = explained(tmp_path)
    assert {row.does for row in rows} <= {"used", "ignored"}
    assert {row.key for row in rows if row.file == "config.json"} >= set(CLASSIC_BASES[architecture])


@pytest.mark.parametrize("architecture", list(CLASSIC_FIELDS))
def test_fields_of_the_library_are_known(architecture):
    assert set(CLASSIC_FIELDS[architecture]) <= set(CLASSIC_KEYS[architecture])


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "change"), [*[(name, {}) for name in CLASSIC], *CHANGES])
def test_the_library_answers_as_its_twin(architecture, change, tmp_path):
    """Where transformers and torch are installed: its fields, and logits of its own classes from the same files."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    config = transformers.AutoConfig.for_model(CLASSIC[architecture])
    fields = {key for key in config.to_dict() if not key.startswith("_")}
    assert fields <= set(CLASSIC_KEYS[architecture]), fields - set(CLASSIC_KEYS[architecture])
    table = CLASSIC_BASES[architecture] | change
    weights = classic_tensors(architecture, table)
    loaded(tmp_path, table, weights)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        found = model(torch.tensor([IDS])).logits[0, -1].numpy()
    wanted = classic_logits(architecture, table, weights, IDS)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
