"""Keys of config.json: what they make, what is missing, and which other models are refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.rope import Scaling
from harness.models.architectures import ELSEWHERE
from harness.models.configuration import KNOWN, Configuration, configuration_of, read_configuration, write_configuration
from harness.models.lowering import Factors
from harness.models.presets import PRESETS, find_preset
from wse_core.errors import ConfigError, UnsupportedError

TABLE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
    "rope_scaling": None,
}


def test_defaults():
    found = configuration_of(TABLE)
    assert found == Configuration(Decoder(24, 2, 4, 4, 6, 40, 50, 64))
    assert not found.decoder.qkv_bias
    assert not found.decoder.tied


def test_every_key():
    more = {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000,
        "attention_bias": True,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "hidden_act": "silu",
    }
    found = configuration_of(TABLE | more)
    assert found == Configuration(
        Decoder(24, 2, 4, 2, 8, 40, 50, 64, 1e-5, 500000, True, True, o_bias=True), "LlamaForCausalLM", (2, 3)
    )


def test_a_nested_base_the_biases_of_qwen2_and_the_norms_of_qwen3():
    assert configuration_of(TABLE | {"rope_parameters": {"rope_theta": 7.0}}).decoder.rope_base == 7.0
    qwen = {key: value for key, value in TABLE.items() if key != "architectures"} | {
        "model_type": "qwen2",
        "num_key_value_heads": 4,
    }
    assert configuration_of(qwen).decoder.qkv_bias
    qwen3 = TABLE | {"architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 4}
    found = configuration_of(qwen3).decoder
    assert (found.head_norms, found.qkv_bias, found.head_size) == (True, False, 128)
    found = configuration_of(qwen3 | {"attention_bias": True, "head_dim": 6}).decoder
    assert (found.head_norms, found.qkv_bias, found.head_size) == (True, True, 6)
    mistral = TABLE | {"architectures": ["MistralForCausalLM"], "sliding_window": None, "num_key_value_heads": 4}
    assert configuration_of(mistral).architecture == "MistralForCausalLM"


FULL, NEAR = LayerKind(), LayerKind(window=32)


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, ()),
        ({"architectures": ["MistralForCausalLM"]}, (LayerKind(window=4096),) * 2),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 32}, (NEAR, NEAR)),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 9000}, ()),
        ({"model_type": "qwen2", "sliding_window": 32}, ()),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True}, ()),
        (
            {"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 1},
            (FULL, NEAR),
        ),
        (
            {"model_type": "qwen3", "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 1},
            (FULL, NEAR),
        ),
        ({"model_type": "qwen3", "sliding_window": 32}, ()),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, (LayerKind(window=4096),) * 2),
        ({"model_type": "gemma2", "sliding_window": 32}, (NEAR, FULL)),
        ({"model_type": "gemma3_text", "sliding_window": 32}, (LayerKind(window=32, local=True),) * 2),
    ],
)
def test_layers_with_a_window(change, layers):
    """Who has one, by name or by default; a window that holds the context is none."""
    table = TABLE | {"max_position_embeddings": 9000, "num_key_value_heads": 2, "architectures": None} | change
    found = configuration_of(table).decoder
    assert (found.context, found.different) == (9000, layers)


def test_scaled_positions():
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    found = configuration_of(TABLE | {"rope_theta": 5e5, "rope_scaling": llama3}).decoder
    assert (found.rope_base, found.scaling) == (5e5, Scaling("llama3", 8.0, 1.0, 4.0, 64))
    own = llama3 | {"original_max_position_embeddings": 16, "rope_theta": 7.0}
    found = configuration_of(TABLE | {"rope_parameters": own}).decoder
    assert (found.rope_base, found.scaling) == (7.0, Scaling("llama3", 8.0, 1.0, 4.0, 16))
    for name in ("rope_type", "type"):
        found = configuration_of(TABLE | {"rope_scaling": {name: "linear", "factor": 2}}).decoder
        assert found.scaling == Scaling("linear", 2)


def test_dynamic_positions_are_plain_within_the_context():
    """In longer texts, which are refused, pairs would turn slower; that is said."""
    plain = configuration_of(TABLE)
    for name in ("rope_scaling", "rope_parameters"):
        found = configuration_of(TABLE | {name: {"rope_type": "dynamic", "factor": 4.0}})
        assert found.decoder == plain.decoder
        assert f"texts of up to {plain.decoder.context} tokens" in " ".join(found.warnings)
        for wrong, what in (({}, "without a factor"), ({"factor": -2.0}, r"factor is -2\.0")):
            with pytest.raises(ConfigError, match=what):
                configuration_of(TABLE | {name: {"type": "dynamic"} | wrong})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"architectures": ["OPTForCausalLM"]}, "architecture OPTForCausalLM"),
        ({"architectures": None, "model_type": "gemma4"}, "architecture gemma4"),
        ({"architectures": None}, "architecture None"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu'"),
        ({"rope_scaling": {"rope_type": "su", "factor": 8}}, "type su"),
        ({"rope_scaling": {"factor": 2.0}}, "type without a name"),
        ({"rope_parameters": {"rope_type": "default", "type": "linear"}}, "rope_type says 'default'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 7.0}}}, "a table per kind of layer"),
        ({"rope_parameters": {"rope_theta": 7.0}, "rope_scaling": {"rope_theta": 8.0}}, "say different things"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2, "low_freq_factor": 2}}, "linear do not have it"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"rotary_pct": 0.25}, "rotary_pct 0.25"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor 0.5"),
        ({"architectures": ["LlamaForCausalLM", "X"]}, "it must be clear which"),
        ({"model_type": "mistral"}, "model_type says 'mistral'"),
        ({"sliding_window": 32}, "there is no window of attention in it"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"model_type": "mistral", "architectures": None, "attention_bias": True}, "no biases"),
        ({"mlp_bias": True, "model_type": "qwen2", "architectures": None}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_other_models_are_refused_by_name(tmp_path, change, what):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TABLE | change))
    with pytest.raises(UnsupportedError, match=what) as caught:
        read_configuration(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_attention_heads": 5}, "no multiple of 5 heads"),
        ({"num_attention_heads": "4"}, "heads is '4'"),
        ({"num_key_value_heads": 3}, "do not share 3"),
        ({"head_dim": 7}, "in pairs"),
        ({"hidden_size": 0}, "hidden is 0"),
        ({"vocab_size": None}, "vocabulary is None"),
        ({"eos_token_id": 50}, "eos_token_id is 50"),
        ({"eos_token_id": [True]}, "eos_token_id is True"),
        ({"rope_parameters": {"rope_type": "linear"}}, "without a factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, "factor is 0.5"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "without low_freq_factor"),
        ({"model_type": "mistral", "architectures": None, "sliding_window": 0}, "sliding_window is 0"),
        ({"rope_scaling": 3}, "no table"),
        ({"rms_norm_eps": "small"}, "epsilon"),
        ({"tie_word_embeddings": "yes"}, "tied"),
    ],
)
def test_senseless_values(tmp_path, change, what):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TABLE | change))
    with pytest.raises(ConfigError, match=what) as caught:
        read_configuration(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", [key for key in TABLE if key.endswith(("size", "layers", "heads", "embeddings"))])
def test_a_missing_key_is_named(key):
    with pytest.raises(ConfigError, match=f"key {key} is missing"):
        configuration_of({name: value for name, value in TABLE.items() if name != key})


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '"x"'])
def test_files_that_are_none(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"not valid JSON|no table"):
        read_configuration(path)


def test_what_is_written_is_read(tmp_path):
    for decoder in (
        each
        for each in PRESETS.values()
        if not each.centred and each.rotary is None and each.norms != "both" and not each.experts
    ):
        own = "Qwen3ForCausalLM" if decoder.head_norms else "LlamaForCausalLM"
        own = "SmolLM3ForCausalLM" if not all(kind.turns for kind in decoder.kinds) else own
        own = "MistralForCausalLM" if decoder.window else own
        own = "Olmo2ForCausalLM" if decoder.projection_norms else own
        for kept in (Configuration(decoder, own), Configuration(decoder, "Qwen2ForCausalLM", (2, 7))):
            if (kept.architecture == "Qwen2ForCausalLM") is not decoder.qkv_bias:
                continue
            pairs = tuple(1.0 + k / 8 for k in range(decoder.head_size // 2))
            for scaling in (None, Scaling("linear", 2.5), Scaling("llama3", 8.0, 1.0, 4.0, 4096),
                            Scaling("yarn", 4.0, 1, 32, 4096, 1.25, False),
                            Scaling("longrope", 1.0, original=1 << 20, amplitude=1.19, pairs=pairs)):  # fmt: skip
                own = replace(kept, decoder=replace(kept.decoder, scaling=scaling))
                path = tmp_path / "config.json"
                path.write_text(write_configuration(own))
                assert read_configuration(path) == own


def test_a_gemma():
    """What is missing is the library's; the embedding has its factor, so that the output matrix is one of its own."""
    gemma = TABLE | {"architectures": ["GemmaForCausalLM"], "num_attention_heads": 16}
    found = configuration_of(gemma)
    assert found.decoder == Decoder(24, 2, 16, 16, 256, 40, 50, 64, activation="gelu")
    assert found.factors == Factors(embedding=24**0.5, tied=True, norms=1.0)
    assert configuration_of(gemma | {"tie_word_embeddings": False}).factors.tied is False
    assert configuration_of(gemma | {"hidden_size": 1}).decoder.tied  # a factor of one changes nothing
    with pytest.raises(ConfigError, match="hidden is 'x', not a whole number"):
        configuration_of(gemma | {"hidden_size": "x"})


def test_norms_of_heads_are_written_as_a_qwen3(tmp_path):
    """No decoder is written as a model without its norms, whatever it was read from, nor as one with norms."""
    path, tiny = tmp_path / "config.json", Decoder(8, 2, 4, 2, 6, 40, 50, 64, head_norms=True)
    for decoder in (tiny, replace(tiny, qkv_bias=True, o_bias=True), replace(tiny, head_norms=False)):
        for architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
            path.write_text(write_configuration(Configuration(decoder, architecture)))
            found = read_configuration(path)
            assert found.decoder == decoder
            assert found.architecture == ("Qwen3ForCausalLM" if decoder.head_norms else "LlamaForCausalLM")


@pytest.mark.parametrize(
    "change",
    [
        {"norms": "behind"},
        {"centred": True},
        {"learned": True},
        {"gated": False},
        {"norms": "shared"},
        {"head_bias": True},
        {"rotary": 4},
        {"score_cap": 2.0},
        {"different": (FULL, NEAR)},
        {"norms": "both"},
        {"projection_norms": True},
        {"head_norms": True, "ffn_bias": True},
        {"head_norms": True, "different": (LayerKind(), LayerKind(turns=False))},
        {"norms": "behind", "projection_norms": True, "ffn_bias": True},
    ],
)
def test_what_no_architecture_is_is_not_written(change):
    decoder = replace(Decoder(8, 2, 4, 2, 6, 40, 50, 64), **change)
    with pytest.raises(UnsupportedError, match=r"no known architecture|cannot be written"):
        write_configuration(Configuration(decoder))


def test_presets_have_their_published_sizes():
    published = {
        "LLaMA3-8B": (218_103_808, 8_030_261_248, 4_096),
        "LLaMA2-13B": (317_194_240, 13_015_864_320, 20_480),
        "CodeLLaMA-34B": (692_060_160, 33_743_970_304, 4_096),
        "QWen2-72B": (877_658_112, 72_706_203_648, 4_096),
        "Qwen3-0.6B": (15_728_640, 596_049_920, 4_096),
        "Qwen3-8B": (192_937_984, 8_190_735_360, 4_096),
        "Gemma-2B": (110_100_480, 2_506_172_416, 1_024),
        "OLMo2-1B": (67_108_864, 1_484_916_736, 8_192),
        "OLMo2-7B": (202_375_168, 7_298_617_344, 16_384),
        "Phi3-mini-4k": (113_246_208, 3_821_079_552, 12_288),
        "Phi4-mini": (100_663_296, 3_836_021_760, 4_096),
        "Mistral-7B-v0.1": (218_103_808, 7_241_732_096, 4_096),
        "Gemma2-2B": (77_856_768, 2_614_341_888, 4_096),
        "Gemma2-9B": (198_180_864, 9_241_705_984, 8_192),
        "Gemma3-1B": (26_836_992, 999_885_952, 1_024),
        "SmolLM3-3B": (78_118_912, 3_075_098_624, 2_048),
        "GPT2": (7_077_888, 124_439_808, 1_536 * 2),
        "GPT2-XL": (30_720_000, 1_557_611_200, 6_400),
        "Pythia-1B": (50_331_648, 1_011_781_632, 8_192),
        "Pythia-6.9B": (201_326_592, 6_857_302_016, 16_384),
        "Phi2": (78_643_200, 2_779_683_840, 10_240),
        "Mixtral-8x7B": (41_943_040 + 2 * 176_160_768 + 32_768, 46_702_792_704, 4_096),
        "Qwen3-30B-A3B": (18_874_368 + 8 * 4_718_592 + 262_144, 30_532_122_624, 2_048),
        "OLMoE-1B-7B": (16_777_216 + 8 * 6_291_456 + 131_072, 6_919_161_856, 8_192),
        "LLaMA3.1-8B": (218_103_808, 8_030_261_248, 4_096),
        "LLaMA3.1-70B": (855_638_016, 70_553_706_496, 4_096),
        "LLaMA3.1-405B": (3_187_671_040, 405_853_388_800, 4_096),
    }
    for name, (products, parameters, token) in published.items():
        decoder = PRESETS[name]
        assert (decoder.product_parameters, decoder.parameters, decoder.token_bytes()) == (products, parameters, token)
    assert find_preset("llama3-8b") == ("LLaMA3-8B", PRESETS["LLaMA3-8B"])
    with pytest.raises(ConfigError, match="did you mean LLaMA3-8B"):
        find_preset("LLaMA3-9B")


@pytest.mark.parametrize("architecture", ELSEWHERE)
def test_others_are_refused_with_what_they_have(architecture, tmp_path):
    """One line names the architecture and what the decoder does not have; none of them is read."""
    assert architecture not in KNOWN
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architectures": [architecture]}))
    with pytest.raises(UnsupportedError) as caught:
        read_configuration(path)
    assert f"architecture {architecture}" in str(caught.value)
    assert ELSEWHERE[architecture] in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow
def test_others_are_names_of_the_library():
    transformers = pytest.importorskip("transformers")
    assert all(hasattr(transformers, name) for name in (*ELSEWHERE, *KNOWN))
