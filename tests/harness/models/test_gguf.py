"""Models in one GGUF file are those of the hub's files that they were made of: sizes, bits, tokens; and refusals.

Files are written by the package `gguf`, with its names of tensors; what the format changes in tensors (rows of queries
and keys pair by pair, norms of 1 + w) is done here as its converter does it.
"""

from __future__ import annotations

import json
import re
import struct

import numpy as np
import pytest

from harness.cli.main import main
from harness.models.configuration import configuration_of
from harness.models.gguf_file import KINDS, read_gguf
from harness.models.gguf_keys import GGUF_ARCHITECTURES, OLDER
from harness.models.hub import find_decoder, find_model, load_model
from harness.models.pieces import CUTS
from harness.models.tensors import BLOCKS, write_tensors
from tests.harness.models.classic_twin import CLASSIC_BASES, classic_tensors
from tests.harness.models.hub_twin import BASES, tensors_of
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.formats import Arithmetic
from wse_core.params import machine

gguf = pytest.importorskip("gguf")

PROMPT = [3, 1, 4, 1, 5]
NAMES = {hub: own for own, hub in GGUF_ARCHITECTURES.items()} | {
    "MixtralForCausalLM": "llama", "Olmo3ForCausalLM": "olmo2"
}  # fmt: skip
PAIRED = ("LlamaForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM", "MixtralForCausalLM")
GEMMAS = ("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM")
MASKS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "inv_freq")
"""Tensors of old files of the hub that nobody needs, and that the converter drops."""
HEADS = ("lm_head.weight", "embed_out.weight")
TOKENS = [f"t{number}" for number in range(12)]
OWN = {
    "SmolLM3ForCausalLM": {"no_rope_layers": [1, 1]},
    "Gemma2ForCausalLM": {"query_pre_attn_scalar": 4},
    "Gemma3ForCausalLM": {"query_pre_attn_scalar": 4},
    "Qwen3MoeForCausalLM": {"norm_topk_prob": True, "intermediate_size": 8},
    "OlmoeForCausalLM": {"norm_topk_prob": False},
}
"""What a file of the format cannot say otherwise."""


def table_of(architecture, **keys):
    """Return the ``config.json`` of a small model that the format can hold."""
    return (BASES | CLASSIC_BASES)[architecture] | OWN.get(architecture, {}) | keys


def permuted(values, heads):
    """Return rows of queries or keys as the format's converter turns them: pairs side by side."""
    return values.reshape(heads, 2, len(values) // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)


def said_of_older(writer, table, name):
    """Write the keys of a ``config.json`` of a model that is older than LLaMA."""
    hidden, heads = table.get("n_embd", table.get("hidden_size")), table.get("n_head", table.get("num_attention_heads"))
    writer.add_context_length(table.get("n_positions", table.get("max_position_embeddings")))
    writer.add_embedding_length(hidden)
    writer.add_block_count(2)
    writer.add_feed_forward_length(table.get("n_inner", table.get("intermediate_size")))
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-5)
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(table["eos_token_id"])
    if name == "gptneox":
        writer.add_rope_dimension_count(int(table["rotary_pct"] * hidden / heads))
        writer.add_parallel_residual(table.get("use_parallel_residual", True))
    elif name != "gpt2":
        writer.add_rope_dimension_count(int(table.get("partial_rotary_factor", 0.5) * hidden / heads))
        writer.add_head_count_kv(table["num_key_value_heads"])
    if name == "stablelm":
        writer.add_parallel_residual(table.get("use_parallel_residual", False))


def said(writer, table, name):
    """Write the keys of a ``config.json``."""
    if name in OLDER:
        said_of_older(writer, table, name)
        return
    head = table["head_dim"]
    writer.add_context_length(table["max_position_embeddings"])
    writer.add_embedding_length(table["hidden_size"])
    writer.add_block_count(table["num_hidden_layers"])
    writer.add_feed_forward_length(table["intermediate_size"])
    writer.add_head_count(table["num_attention_heads"])
    writer.add_head_count_kv(table["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(table["rms_norm_eps"])
    bases = {"SmolLM3": 2e6, "Gemma3": 1e6, "Mixtral": 1e6, "Olmo3": 5e5}
    base = bases.get(table["architectures"][0].removesuffix("ForCausalLM"), 1e4)
    writer.add_rope_freq_base(table.get("rope_theta", base))
    experts = table.get("num_local_experts", table.get("num_experts"))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(table.get("num_experts_per_tok", 2))
    if "moe_intermediate_size" in table:
        writer.add_expert_feed_forward_length(table["moe_intermediate_size"])
    if "layer_types" in table:
        kinds = [kind == "sliding_attention" for kind in table["layer_types"]]
        writer.add_array(f"{name}.attention.sliding_window_pattern", kinds)
    writer.add_rope_dimension_count(int(head * table.get("partial_rotary_factor", 1)))
    writer.add_vocab_size(table["vocab_size"])
    for key, write in (
        ("embedding_multiplier", writer.add_embedding_scale),
        ("attention_multiplier", writer.add_attention_scale),
        ("residual_multiplier", writer.add_residual_scale),
        ("logits_scaling", writer.add_logit_scale),
        ("sliding_window", writer.add_sliding_window),
        ("sliding_window_pattern", writer.add_sliding_window_pattern),
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
    ):
        if table.get(key) is not None:
            write(table[key])
    if "rope_local_base_freq" in table:
        writer.add_float32(f"{name}.rope.freq_base_swa", table["rope_local_base_freq"])


EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:block_sparse_moe|mlp)\.experts\.(\d+)\.(\w+)\.weight")
PRODUCTS = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}


def converted(weights, architecture):
    """Return weights as the format's converter makes them, by the hub's names or by those of the format."""
    found, together = {}, {}
    for name, values in weights.items():
        expert = EXPERT.fullmatch(name)
        if expert:
            together.setdefault(f"blk.{expert[1]}.ffn_{PRODUCTS[expert[3]]}_exps.weight", []).append(values)
            continue
        if architecture == "GPT2LMHeadModel" and values.ndim == 2 and ".h." in name:
            values = values.T
        if architecture == "GPTNeoXForCausalLM" and "query_key_value" in name:
            heads = values.reshape(2, 3, 4, *values.shape[1:])  # head after head has query, key and value
            values = heads.swapaxes(0, 1).reshape(values.shape)
        found[name] = values
    return found | {name: np.stack(each) for name, each in together.items()}


def write_model(path, table, weights, kind="F16", more=(), extra=()):
    """Write a model as a GGUF file; `more` adds keys by the writer, `extra` tensors."""
    architecture = table["architectures"][0]
    name = NAMES[architecture]
    writer = gguf.GGUFWriter(path, name)
    said(writer, table, name)
    for write in more:
        write(writer)
    names = gguf.get_tensor_name_map(next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name), 2)
    paired = architecture in PAIRED
    for hub, values in [*converted(weights, architecture).items(), *extra]:
        values = np.asarray(values, np.float32)
        counts = {"q_proj": table["num_attention_heads"], "k_proj": table["num_key_value_heads"]} if paired else {}
        count = counts.get(hub.split(".")[-2] if "." in hub else "")
        values = values if count is None else permuted(values, count)
        own = names.get_name(hub, (".weight", ".bias")) or hub
        if hub.endswith("norm.weight") and architecture in GEMMAS:
            values = values + np.float32(1)
        if values.ndim == 1:
            writer.add_tensor(own, values)
        else:
            raw = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(own, gguf.quants.quantize(values, raw), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_hub(directory, table, weights, dtype=np.float16):
    """Write a model in the hub's layout."""
    directory.mkdir()
    write_tensors(directory / "model.safetensors", {name: values.astype(dtype) for name, values in weights.items()})
    (directory / "config.json").write_text(json.dumps(table))
    return directory


def halves(architecture, seed=5):
    """Return weights that f16 has."""
    made = classic_tensors if architecture in CLASSIC_BASES else tensors_of
    found = made(architecture, seed=seed)
    return {name: values.astype(np.float16) for name, values in found.items() if not name.endswith(MASKS)}


def same(one, other, dtype="f16"):
    """Whether two models are the same to the last bit of what PEs hold."""
    assert one.decoder == other.decoder
    first, second = (model.rounded(Arithmetic.of(machine(), dtype)) for model in (one, other))
    assert first[1] == second[1]
    assert list(first[0]) == list(second[0])
    return all(np.array_equal(first[0][name].view(np.uint32), second[0][name].view(np.uint32)) for name in first[0])


@pytest.mark.parametrize("kind", ["F16", "F32", "BF16"])
@pytest.mark.parametrize("architecture", list(NAMES))
@pytest.mark.parametrize("tied", [False, True])
def test_the_same_model_by_both_formats(tmp_path, architecture, kind, tied):
    tied = tied or architecture in GEMMAS[:2]  # the format has no other ones of these
    tied = tied and architecture != "PhiForCausalLM"  # whose output matrix has a bias
    weights = halves(architecture)
    if kind == "BF16":
        weights = {name: (values.astype(np.float32).view(np.uint32) >> 16 << 16).view(np.float32)
                   for name, values in weights.items()}  # fmt: skip
    if tied:
        weights = {name: values for name, values in weights.items() if name not in HEADS}
    table = table_of(architecture, tie_word_embeddings=tied)
    hub = load_model(write_hub(tmp_path / "hub", table, weights, np.float32))
    own = find_model(str(write_model(tmp_path / "m.gguf", table, weights, kind)))
    assert own.name == "m.gguf"
    assert own.configuration.warnings == ()
    assert same(own, hub)
    assert find_decoder(str(tmp_path / "m.gguf"))[1] == hub.decoder


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "Phi3ForCausalLM", "MixtralForCausalLM",
     "GPT2LMHeadModel", "GPTNeoXForCausalLM"],
)  # fmt: skip
def test_the_same_tokens_on_pes(tmp_path, capsys, architecture):
    weights, table = halves(architecture), table_of(architecture, tie_word_embeddings=True)
    weights = {name: values for name, values in weights.items() if name not in HEADS}
    write_hub(tmp_path / "hub", table, weights)
    write_model(tmp_path / "m.gguf", table, weights)
    words = ["--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "4", "--mesh", "2x2", "--json"]
    found = []
    for name in ("hub", "m.gguf"):
        assert main(["generate", str(tmp_path / name), *words, "--logits", str(tmp_path / "l.npz")]) == 0
        found.append((json.loads(capsys.readouterr().out), np.load(tmp_path / "l.npz")["logits"]))
    assert found[0][0]["tokens"] == found[1][0]["tokens"]
    assert found[0][0]["cycles"] == found[1][0]["cycles"]
    assert found[1][0]["bit_exact"]
    assert np.array_equal(found[0][1].view(np.uint32), found[1][1].view(np.uint32))


def test_experts_of_old_files_and_blocks(tmp_path):
    """Tensors of single experts are those of all together; blocks of a tensor of three axes are the package's."""
    weights, table = halves("MixtralForCausalLM"), table_of("MixtralForCausalLM")
    whole = load_model(write_model(tmp_path / "m.gguf", table, weights))
    single = {}
    for name, values in weights.items():
        expert = EXPERT.fullmatch(name)
        single[f"blk.{expert[1]}.ffn_{PRODUCTS[expert[3]]}.{expert[2]}.weight" if expert else name] = values
    assert same(load_model(write_model(tmp_path / "old.gguf", table, single)), whole)
    with pytest.raises(ConfigError, match="not the matrices of 3 experts"):
        load_model(write_model(tmp_path / "few.gguf", table | {"num_local_experts": 3}, weights))


def test_experts_in_blocks(tmp_path, wide):
    """Values of a quantized tensor of three axes are the package's, matrix by matrix."""
    table, dense = wide
    table = table | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "rope_theta": 1e4,
                     "num_local_experts": 2, "num_experts_per_tok": 1}  # fmt: skip
    r, type_, weights = np.random.default_rng(4), gguf.GGMLQuantizationType["Q8_0"], {}
    for name, values in dense.items():
        part, _, product = name.removesuffix(".weight").rpartition(".mlp.")
        if not part:
            weights[name] = values
            continue
        for expert in range(2):
            own = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[product]
            values = (values * (1 + expert)).astype(np.float16)
            weights[f"{part}.block_sparse_moe.experts.{expert}.{own}.weight"] = values
        weights[f"{part}.block_sparse_moe.gate.weight"] = r.standard_normal((2, 32)).astype(np.float16)
    own = load_model(write_model(tmp_path / "m.gguf", table, weights, "Q8_0"))
    for name in (name for name in weights if EXPERT.fullmatch(name)):
        layer, expert, product = EXPERT.fullmatch(name).groups()
        tensor = own.tensors[f"model.layers.{layer}.mlp.experts.{expert}.{PRODUCTS[product]}_proj.weight"]
        values = gguf.quants.quantize(weights[name].astype(np.float32), type_)
        assert np.array_equal(tensor.f32(), gguf.quants.dequantize(values, type_))


def test_biases_and_turned_rows(tmp_path):
    """Biases of queries and keys lie as their rows; without turning back the model is another one."""
    weights, r = halves("LlamaForCausalLM"), np.random.default_rng(2)
    for layer in range(2):
        part = f"model.layers.{layer}"
        for name, rows in (("q", 16), ("k", 8), ("v", 8), ("o", 8)):
            weights[f"{part}.self_attn.{name}_proj.bias"] = r.standard_normal(rows).astype(np.float16)
        for name, rows in (("gate", 6), ("up", 6), ("down", 8)):
            weights[f"{part}.mlp.{name}_proj.bias"] = r.standard_normal(rows).astype(np.float16)
    table = table_of("LlamaForCausalLM", attention_bias=True, mlp_bias=True)
    hub = load_model(write_hub(tmp_path / "hub", table, weights))
    own = load_model(write_model(tmp_path / "m.gguf", table, weights))
    assert own.decoder.o_bias
    assert own.decoder.ffn_bias
    assert same(own, hub)
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(own.tensors[name].f32(), own.tensors[name].data.astype(np.float32))


def scaled(writer, name="llama", **keys):
    for key, value in keys.items():
        full = f"{name}.rope.scaling.{key}"
        writer.add_string(full, value) if isinstance(value, str) else writer.add_float32(full, value) if isinstance(
            value, float
        ) else writer.add_uint32(full, value)


@pytest.mark.parametrize(
    ("keys", "rope"),
    [
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"type": "none", "factor": 4.0}, None),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 12},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12},
        ),
        (
            {
                "type": "yarn",
                "factor": 4.0,
                "original_context_length": 12,
                "yarn_beta_fast": 4.0,
                "yarn_beta_slow": 2.0,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 12,
                "beta_fast": 4,
                "beta_slow": 2,
            },
        ),
    ],
)
def test_scaled_positions(tmp_path, keys, rope):
    weights, table = halves("LlamaForCausalLM"), table_of("LlamaForCausalLM")
    path = write_model(tmp_path / "m.gguf", table, weights, more=[lambda writer: scaled(writer, **keys)])
    wanted = configuration_of(table if rope is None else table | {"rope_scaling": rope}).decoder
    assert np.array_equal(load_model(path).decoder.turns(), wanted.turns())
    assert np.array_equal(load_model(path).decoder.amplitudes(), wanted.amplitudes())


def test_scaled_positions_of_a_tensor(tmp_path):
    """Factors of pairs (LLaMA 3.1, and Phi3 up to the first context) divide the turns of the pairs."""
    weights, table = halves("LlamaForCausalLM"), table_of("LlamaForCausalLM")
    path = write_model(tmp_path / "m.gguf", table, weights, extra=[("rope_freqs.weight", np.array([1.0, 8.0]))])
    found = load_model(path).decoder
    assert found.context == 48
    plain = configuration_of(table).decoder
    assert np.allclose(found.turns(), plain.turns() / [1, 8], rtol=1e-12)
    assert np.array_equal(found.amplitudes(), plain.amplitudes())

    weights, table = halves("Phi3ForCausalLM"), table_of("Phi3ForCausalLM")
    extra = [(f"rope_factors_{name}.weight", np.array(pairs)) for name, pairs in
             (("long", [9.0, 9.0]), ("short", [1.5, 2.5]))]  # fmt: skip
    more = [lambda writer: scaled(writer, "phi3", original_context_length=16, attn_factor=1.25)]
    found = load_model(write_model(tmp_path / "p.gguf", table, weights, more=more, extra=extra))
    rope = {"rope_type": "longrope", "short_factor": [1.5, 2.5], "long_factor": [9.0, 9.0], "attention_factor": 1.25}
    wanted = configuration_of(table | {"rope_scaling": rope, "original_max_position_embeddings": 16})
    assert found.decoder == wanted.decoder
    assert found.configuration.warnings == wanted.warnings != ()


def test_layers_with_a_window_by_a_list(tmp_path):
    architecture = "Gemma3ForCausalLM"
    table, kinds = table_of(architecture), ["full_attention", "sliding_attention"]
    del table["sliding_window_pattern"]
    weights = halves(architecture)
    hub = load_model(write_hub(tmp_path / "hub", table | {"layer_types": kinds}, weights))
    more = [lambda w: w.add_array("gemma3.attention.sliding_window_pattern", [False, True])]
    own = load_model(write_model(tmp_path / "m.gguf", table, weights, more=more))
    assert own.decoder.kind(1).window == 5
    assert same(own, hub)


def test_a_part_of_each_head(tmp_path):
    table = table_of("Phi3ForCausalLM", partial_rotary_factor=0.5)
    weights = halves("Phi3ForCausalLM")
    hub = load_model(write_hub(tmp_path / "hub", table, weights))
    assert same(load_model(write_model(tmp_path / "m.gguf", table, weights)), hub)


@pytest.fixture
def wide(tmp_path):
    """Return table and weights of a model whose rows are whole blocks of 32 values."""
    table = table_of("LlamaForCausalLM", hidden_size=32, intermediate_size=64, head_dim=8)
    r = np.random.default_rng(7)
    weights = {}
    for name, shape in {
        "model.embed_tokens.weight": (12, 32),
        "lm_head.weight": (12, 32),
        "model.norm.weight": (32,),
        **{
            f"model.layers.{layer}.{part}.weight": shape
            for layer in range(2)
            for part, shape in {
                "input_layernorm": (32,),
                "post_attention_layernorm": (32,),
                "self_attn.q_proj": (32, 32),
                "self_attn.k_proj": (16, 32),
                "self_attn.v_proj": (16, 32),
                "self_attn.o_proj": (32, 32),
                "mlp.gate_proj": (64, 32),
                "mlp.up_proj": (64, 32),
                "mlp.down_proj": (32, 64),
            }.items()
        },
    }.items():
        weights[name] = (r.standard_normal(shape) / 4 + (len(shape) == 1)).astype(np.float16)
    return table, weights


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantized_weights_are_those_of_the_package(tmp_path, capsys, wide, kind):
    """A file of blocks is the model of their values, rounded once; the run says what that lost."""
    table, weights = wide
    path = write_model(tmp_path / "m.gguf", table, weights, kind)
    type_ = gguf.GGMLQuantizationType[kind]

    def through(name, values):
        if values.ndim == 1:
            return values.astype(np.float32)
        values = values.astype(np.float32)
        count = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        values = values if count is None else permuted(values, count)
        values = gguf.quants.dequantize(gguf.quants.quantize(values, type_), type_)
        if count is not None:  # back, by the inverse of the converter's turn
            values = values.reshape(count, len(values) // count // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        return values

    hub = load_model(write_hub(tmp_path / "hub", table, {n: through(n, v) for n, v in weights.items()}, np.float32))
    own = load_model(path)
    assert same(own, hub)
    losses = own.rounded(Arithmetic.of(machine(), "f16"))[1]
    assert losses
    words = ["--prompt-ids", "3,1,4", "--tokens", "2", "--mesh", "2x2"]
    assert main(["generate", str(path), *words]) == 0
    out = capsys.readouterr().out
    changed, whole = sum(loss.inexact for loss in losses), sum(weight.size for weight in weights.values())
    assert f"{changed:,} of {whole:,} values are no numbers of f16" in " ".join(out.split())
    assert main(["generate", str(path), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"]
    assert found["rounding"]["inexact"] == changed
    assert found["rounding"]["values"] == whole
    assert found["rounding"]["relative"] == max(loss.relative for loss in losses)
    assert "1 ignored" not in out


def q4_k_block(scale, least, scales, mins, quants):
    """Return a block of Q4_K by the format's description: 8 groups of 32 values with 6-bit scales and minima."""
    packed = bytearray(12)
    for group in range(8):
        if group < 4:
            packed[group] |= scales[group] & 63
            packed[group + 4] |= mins[group] & 63
        else:
            packed[group + 4] |= (scales[group] & 15) | ((mins[group] & 15) << 4)
            packed[group - 4] |= (scales[group] >> 4) << 6
            packed[group] |= (mins[group] >> 4) << 6
    low = np.zeros((4, 32), np.uint8)
    for pair in range(4):
        low[pair] = quants[2 * pair] | (quants[2 * pair + 1] << 4)
    return np.float16(scale).tobytes() + np.float16(least).tobytes() + bytes(packed) + low.tobytes()


def test_q4_k_by_its_description(tmp_path):
    r = np.random.default_rng(3)
    rows, blocks = [], []
    for _ in range(6):
        scale, least = np.float16(r.random() / 8), np.float16(r.random() / 8)
        scales, mins, quants = r.integers(0, 64, 8), r.integers(0, 64, 8), r.integers(0, 16, (8, 32)).astype(np.uint8)
        blocks.append(np.frombuffer(q4_k_block(scale, least, scales, mins, quants), np.uint8))
        rows.append([np.float32(scale) * s * q.astype(np.float32) - np.float32(least) * m
                     for s, m, q in zip(scales, mins, quants, strict=True)])  # fmt: skip
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("x", np.array(blocks), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensor = read_gguf(tmp_path / "m.gguf").tensors["x"]
    assert (tensor.dtype, tensor.shape, tensor.is_changed) == ("Q4_K", (6, 256), True)
    assert np.allclose(tensor.f32(), np.array(rows).reshape(6, 256), rtol=1e-6, atol=1e-6)


def test_sizes_of_blocks_are_the_packages():
    """Every quantized type of the table is the package's, and all those that it can make values of are in it."""
    sizes = {kind.name: size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    for name, block in BLOCKS.items():
        assert sizes[name] == block
        data = np.zeros((2, 3 * block[1]), np.uint8)
        assert gguf.quants.dequantize(data, gguf.GGMLQuantizationType[name]).shape == (2, 3 * block[0])
    assert {number: kind for number, kind in KINDS.items() if kind in BLOCKS} == {
        int(gguf.GGMLQuantizationType[name]): name for name in BLOCKS
    }


def test_both_readers_see_the_same(tmp_path, wide):
    table, weights = wide
    more = [
        lambda w: w.add_token_list(TOKENS),
        lambda w: w.add_token_scores([0.5] * 12),
        lambda w: w.add_array("x.list", [1, 2, 3]),
        lambda w: w.add_bool("x.truth", True),
        lambda w: w.add_int64("x.long", -5),
        lambda w: w.add_float64("x.double", 0.1),
        lambda w: w.add_custom_alignment(64),
    ]
    path = write_model(tmp_path / "m.gguf", table, weights, "Q8_0", more)
    own, theirs = read_gguf(path), gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert own.metadata.keys() == fields.keys()
    for key, value in fields.items():
        assert own.metadata[key] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)
    assert own.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5  # not 9.999999747378752e-06
    assert list(own.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = own.tensors[tensor.name]
        assert mine.dtype == tensor.tensor_type.name
        assert mine.data.tobytes() == tensor.data.tobytes()


# Keys


def explained(capsys, path):
    status = main(["generate", str(path), "--explain", "--json"])
    rows = json.loads(capsys.readouterr().out)["keys"]
    return status, {row["key"]: row for row in rows}


def test_every_key_has_a_row(tmp_path, capsys, wide):
    table, weights = wide
    more = [
        lambda w: w.add_name("A model"),
        lambda w: w.add_base_model_count(1),
        lambda w: w.add_file_type(7),
        lambda w: w.add_chat_template("{{ x }}"),
        lambda w: w.add_float32("general.sampling.temp", 0.7),
        lambda w: w.add_token_list(TOKENS),
    ]
    path = write_model(tmp_path / "m.gguf", table, weights, "Q8_0", more)
    status, rows = explained(capsys, path)
    assert status == 0
    assert set(read_gguf(path).metadata) <= set(rows)
    assert rows["llama.context_length"]["does"] == "used"
    assert rows["general.name"]["does"] == rows["general.base_model.count"]["does"] == "ignored"
    assert rows["general.sampling.temp"]["said"]
    assert rows["tokenizer.chat_template"]["why"] == "the chat template of --chat"
    assert (rows["tensors of type Q8_0"]["value"], rows["tensors of type F32"]["value"]) == (16, 5)
    assert main(["generate", str(path), "--explain"]) == 0
    assert "0 refused, 0 unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("write", "key", "does"),
    [
        (lambda w: w.add_uint32("llama.colour", 1), "llama.colour", "unknown"),
        (lambda w: w.add_uint32("llama.expert_shared_count", 1), "llama.expert_shared_count", "refused"),
        (lambda w: w.add_string("llama.rope.scaling.type", "dynamic"), "llama.rope.scaling.type", "refused"),
        (lambda w: w.add_bool("llama.attention.causal", False), "llama.attention.causal", "refused"),
        (lambda w: w.add_sliding_window(3), "llama.attention.sliding_window", "refused"),
        (lambda w: w.add_uint32("general.quantization_version", 1), "general.quantization_version", "refused"),
        (lambda w: w.add_uint16("split.count", 2), "split.count", "refused"),
        (lambda w: w.add_string("general.type", "adapter"), "general.type", "refused"),
    ],
)
def test_keys_that_are_refused_or_unknown(tmp_path, capsys, wide, write, key, does):
    table, weights = wide
    path = write_model(tmp_path / "m.gguf", table, weights, more=[lambda w: w.kv_data[0].pop(key, None), write])
    status, rows = explained(capsys, path)
    assert status == 2
    assert {name: row["does"] for name, row in rows.items() if row["does"] in ("refused", "unknown")} == {key: does}
    code = main(["generate", str(path), "--prompt-ids", "1", "--tokens", "1", "--mesh", "2x2", "--verify", "off"])
    assert code == (2 if does == "refused" else 0)
    err = capsys.readouterr().err
    assert key in err
    assert len(err.splitlines()) == 1


def test_what_does_not_fit_together(tmp_path, wide):
    table, weights = wide
    for more, weight, what in (
        ([lambda w: w.kv_data[0].pop("llama.block_count")], weights, "key llama.block_count is missing"),
        ([lambda w: w.add_rope_dimension_count(4)], weights, "4 of 8 features of a head turn"),
        ([lambda w: w.add_vocab_size(13)], weights, "vocab_size is 13"),
        ([], {n: w for n, w in weights.items() if "embed" not in n}, "no tensor token_embd"),
        (
            [],
            {n: w for n, w in weights.items() if "layers.1.mlp.up" not in n},
            "layers.1.mlp.up_proj.weight is missing",
        ),
        (
            [],
            weights | {"blk.0.ffn_gate_inp.weight": weights["lm_head.weight"]},
            "model.layers.0.mlp.gate.weight belongs to",
        ),
        ([], weights | {"lm_head.weight": weights["lm_head.weight"][:5]}, "tensor lm_head.weight is [5, 32]"),
    ):

        def popped(w, more=more):
            for key in ("llama.rope.dimension_count", "llama.vocab_size"):
                if more:
                    w.kv_data[0].pop(key, None)

        path = write_model(tmp_path / "m.gguf", table, weight, more=[popped, *more])
        with pytest.raises((ConfigError, UnsupportedError)) as caught:
            load_model(path)
        assert what in str(caught.value)
        assert str(caught.value).startswith(str(path))


def test_other_architectures_are_refused_by_name(tmp_path, capsys):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for words in (["--prompt-ids", "1"], ["--explain"]):
        assert main(["generate", str(tmp_path / "m.gguf"), *words]) == 2
        captured = capsys.readouterr()
        assert "architecture mamba" in captured.err + captured.out


# Damaged files


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of a small file."""
    table = table_of("LlamaForCausalLM")
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    more = [lambda w: w.add_token_list(TOKENS), lambda w: w.add_token_scores([0.0] * 12)]
    return write_model(path, table, halves("LlamaForCausalLM"), more=more).read_bytes()


def outcome(path, raw):
    """Return the message on a file, or None if it is read."""
    path.write_bytes(raw)
    try:
        load_model(path)
    except (ConfigError, UnsupportedError) as error:
        text = str(error)
        assert len(text) < 600
        assert len(text.splitlines()) == 1
        return text
    return None


def test_cut_files_are_one_message(tmp_path, whole):
    """Cut off at any byte; the last bytes are padding."""
    path = tmp_path / "m.gguf"
    tight = max(0, *(len(whole) - count for count in range(33) if outcome(path, whole[: len(whole) - count]) is None))
    places = {*range(200), *range(200, tight, max(1, tight // 300)), tight - 1}
    for place in sorted(places):
        assert outcome(path, whole[:place]) is not None, place
    assert outcome(path, b"") is not None
    assert "no GGUF file" in outcome(path, b"\0" * 64)


def test_damaged_files_are_one_message_or_another_model(tmp_path, whole):
    """Any byte of the head changed, and every count set to the largest number: no crash, no endless run."""
    path, r = tmp_path / "m.gguf", np.random.default_rng(1)
    end = whole.index(b"blk.1.ffn_down.weight")
    for place in r.integers(0, end, 400):
        for value in (0, 255, int(r.integers(256))):
            outcome(path, whole[:place] + bytes([value]) + whole[place + 1 :])
    for place in range(8, end, 7):
        outcome(path, whole[:place] + struct.pack("<Q", 2**64 - 1) + whole[place + 8 :])
        outcome(path, whole[:place] + struct.pack("<Q", 2**40) + whole[place + 8 :])


def test_hostile_files(tmp_path, whole):
    path = tmp_path / "m.gguf"
    head = b"GGUF" + struct.pack("<I", 3)
    text = struct.pack("<Q", 1) + b"a"
    for raw, what in (
        (head + struct.pack("<QQ", 2**62, 0), "tensors in"),
        (head + struct.pack("<QQ", 0, 2**62), "keys in"),
        (head + struct.pack("<QQ", 0, 1) + text + struct.pack("<IIQ", 9, 0, 2**60) + b"x" * 40, "of 1,152,921,504,6"),
        (head + struct.pack("<QQ", 0, 1) + text + struct.pack("<IIQ", 9, 8, 2**60) + b"x" * 40, "texts in"),
        (head + struct.pack("<QQ", 0, 1) + text + struct.pack("<IIQ", 9, 9, 1) + b"x" * 40, "of the unknown type 9"),
        (head + struct.pack("<QQ", 0, 1) + text + struct.pack("<I", 77) + b"x" * 40, "unknown type 77"),
        (head + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2**50) + b"x" * 40, "at most 65,536"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(64), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(64), "big-endian"),
        (head + struct.pack("<QQ", 1, 0) + text + struct.pack("<I", 99) + bytes(64), "99 axes"),
        (head + struct.pack("<QQ", 1, 0) + text + struct.pack("<IQIQ", 1, 4, 99, 0) + bytes(64), "of type 99"),
        (head + struct.pack("<QQ", 1, 0) + text + struct.pack("<IQQIQ", 2, 2**62, 2**62, 0, 0) + bytes(64), "bytes"),
        (head + struct.pack("<QQ", 1, 0) + text + struct.pack("<IQIQ", 1, 4, 0, 2**63) + bytes(64), "bytes"),
        (head + struct.pack("<QQ", 1, 0) + text + struct.pack("<IQIQ", 1, 33, 8, 0) + bytes(64), "blocks of 32"),
        (head + struct.pack("<QQ", 2, 0) + (text + struct.pack("<IQIQ", 1, 4, 0, 0)) * 2 + bytes(64), "stands twice"),
        (head + struct.pack("<QQ", 2, 0) + text + struct.pack("<IQIQ", 1, 8, 0, 0) + struct.pack("<Q", 1) + b"b"
         + struct.pack("<IQIQ", 1, 8, 0, 0) + bytes(128), "overlap"),
    ):  # fmt: skip
        assert what in outcome(path, raw)
    assert "no file" in outcome(path / "x", b"") if False else True
    with pytest.raises(ConfigError, match="no directory"):
        find_model(str(tmp_path / "none.gguf"))


# Texts


LETTERS = "abcdefghijklmnopqrstuvwxyz.,!?0123456789"


def test_byte_level_tokens(tmp_path):
    """Tokens of bytes with merges give the tokens of the hub's file, special ones included, for every cut."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("1", "2"), ("12", "3"), ("Ċ", "Ċ"), ("'", "s")]
    tokens = [*alphabet, *("".join(pair) for pair in merges), "<s>", "<e>", "<own>"]
    types = [1] * (len(tokens) - 3) + [3, 3, 4]
    text = "hello  world's 12345\n\n hell€ X,y! don't<own><e>a"
    for cut in CUTS:

        def more(w, cut=cut):
            w.add_tokenizer_model("gpt2")
            w.add_tokenizer_pre(cut)
            w.add_token_list(tokens)
            w.add_token_types(types)
            w.add_token_merges([" ".join(pair) for pair in merges])
            w.add_bos_token_id(len(tokens) - 3)
            w.add_eos_token_id(len(tokens) - 2)
            w.add_add_bos_token(True)

        table = table_of("LlamaForCausalLM", vocab_size=len(tokens))
        weights = halves("LlamaForCausalLM")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            weights[name] = np.resize(weights[name], (len(tokens), 8))
        model = load_model(write_model(tmp_path / "m.gguf", table, weights, more=[more]))
        assert model.configuration.stops == (len(tokens) - 2,)
        found = model.tokenizer()
        ids = found.encode(text)
        assert ids[0] == len(tokens) - 3
        assert found.encode(text, bare=True) == ids[1:]
        assert ids[-3:] == [len(tokens) - 1, len(tokens) - 2, alphabet.index("a")]
        assert found.inner.decode(ids[1:], False) == text
        assert found.decode(ids) == text.replace("<e>", "")  # special tokens are no text; others are
        assert tokens.index("hell") in ids
        assert (tokens.index("123") in ids) == (cut not in ("smollm", "starcoder", "refact", "command-r", "codeshell",
                                                            "exaone", "qwen2", "deepseek-r1-qwen", "megrez",
                                                            "tekken"))  # fmt: skip
    with pytest.raises(UnsupportedError, match="in the way klingon"):
        path = write_model(
            tmp_path / "m.gguf",
            table,
            weights,
            more=[more, lambda w: (w.kv_data[0].pop("tokenizer.ggml.pre"), w.add_tokenizer_pre("klingon"))],
        )
        load_model(path).tokenizer()


def pieces():
    """Return texts, scores and types of a small vocabulary of pieces."""
    tokens, scores, types = ["<unk>", "<s>", "</s>"], [0.0] * 3, [2, 3, 3]
    for byte in range(256):
        tokens.append(f"<0x{byte:02X}>")
        scores.append(0.0)
        types.append(6)
    words = ["▁h", "el", "lo", "▁hel", "▁hello", "▁w", "or", "ld", "▁wor", "▁world", "▁▁", "ab", "bc"]
    for number, word in enumerate(words):
        tokens.append(word)
        scores.append(-float(number))
        types.append(1)
    for number, letter in enumerate(["▁", *LETTERS]):
        tokens.append(letter)
        scores.append(-100.0 - number)
        types.append(1)
    return tokens, scores, types


def test_tokens_of_pieces(tmp_path):
    """Pieces are joined best score first, bytes stand for what has no piece, and a space comes before a text."""
    pytest.importorskip("tokenizers")
    tokens, scores, types = pieces()
    table = table_of("LlamaForCausalLM", vocab_size=len(tokens))
    weights = halves("LlamaForCausalLM")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (len(tokens), 8))

    def model(**keys):
        def more(w):
            w.add_tokenizer_model("llama")
            w.add_token_list(tokens)
            w.add_token_scores(scores)
            w.add_token_types(types)
            w.add_bos_token_id(1)
            w.add_eos_token_id(2)
            for key, value in keys.items():
                getattr(w, f"add_{key}")(value)

        return load_model(write_model(tmp_path / "m.gguf", table, weights, more=[more]))

    found = model().tokenizer()
    text = "hello world €."
    ids = found.encode(text)
    said = [tokens[token] for token in ids]
    assert said == ["<s>", "▁hello", "▁world", "▁", "<0xE2>", "<0x82>", "<0xAC>", "."]
    assert found.decode(ids) == text
    assert [tokens[token] for token in found.encode("  a</s>b", bare=True)] == ["▁▁", "▁", "a", "</s>", "▁", "b"]
    assert found.encode("abc", bare=True) == ids_of(tokens, "▁", "ab", "c")  # not a and bc, whose score is worse
    assert model(add_bos_token=False).tokenizer().encode("a") == ids_of(tokens, "▁", "a")
    assert model(add_space_prefix=False, add_bos_token=False).tokenizer().encode("a") == ids_of(tokens, "a")
    assert model(add_eos_token=True).tokenizer().encode("a") == ids_of(tokens, "<s>", "▁", "a", "</s>")


def test_pieces_of_a_gemma_are_joined_by_their_place(tmp_path):
    """Their scores say something else, and no space is put before a text."""
    pytest.importorskip("tokenizers")
    tokens, scores, types = pieces()
    scores[tokens.index("bc")] = 0.0
    table = table_of("GemmaForCausalLM", vocab_size=len(tokens), tie_word_embeddings=True)
    weights = halves("GemmaForCausalLM")
    del weights["lm_head.weight"]
    weights["model.embed_tokens.weight"] = np.resize(weights["model.embed_tokens.weight"], (len(tokens), 8))

    def more(w):
        w.add_tokenizer_model("llama")
        w.add_token_list(tokens)
        w.add_token_scores(scores)
        w.add_token_types(types)
        w.add_bos_token_id(1)

    found = load_model(write_model(tmp_path / "m.gguf", table, weights, more=[more])).tokenizer()
    assert found.encode("abc") == ids_of(tokens, "<s>", "ab", "c")


def ids_of(tokens, *texts):
    return [tokens.index(text) for text in texts]


def test_a_chat_by_a_file(tmp_path, capsys):
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    tokens, scores, types = pieces()
    table = table_of("LlamaForCausalLM", vocab_size=len(tokens))
    weights = halves("LlamaForCausalLM")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (len(tokens), 8))

    def more(w):
        w.add_tokenizer_model("llama")
        w.add_token_list(tokens)
        w.add_token_scores(scores)
        w.add_token_types(types)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_chat_template("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")

    write_model(tmp_path / "m.gguf", table, weights, more=[more])
    words = ["--chat", "--prompt", "hello", "--tokens", "1", "--mesh", "2x2", "--json"]
    assert main(["generate", str(tmp_path / "m.gguf"), *words]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["prompt"] == ids_of(tokens, "<s>", "▁hello", "</s>")
    assert (found["chat_template"], err) == ("tokenizer.chat_template", "")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_texts_as_the_hubs_library_reads_the_file(tmp_path, kind):
    """Where transformers is installed: its own tokens of the same file."""
    library, _ = pytest.importorskip("transformers"), pytest.importorskip("torch")
    tokenizers = pytest.importorskip("tokenizers")
    if kind == "llama":
        tokens, scores, types = pieces()
        merges = None
    else:
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w"), ("1", "2"), ("12", "3"), ("Ċ", "Ċ"), ("'", "s")]
        tokens = [*alphabet, *("".join(pair) for pair in merges), "<s>", "</s>"]
        types, scores = [1] * (len(tokens) - 2) + [3, 3], None

    def more(w):
        w.add_tokenizer_model(kind)
        w.add_tokenizer_pre("llama-bpe" if kind == "gpt2" else "default")
        w.add_token_list(tokens)
        w.add_token_types(types)
        if merges is not None:
            w.add_token_merges([" ".join(pair) for pair in merges])
        if scores is not None:
            w.add_token_scores(scores)
        w.add_bos_token_id(tokens.index("<s>"))
        w.add_eos_token_id(tokens.index("</s>"))
        w.add_add_bos_token(True)

    table = table_of("LlamaForCausalLM", vocab_size=len(tokens))
    weights = halves("LlamaForCausalLM")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (len(tokens), 8))
    ours = load_model(write_model(tmp_path / "m.gguf", table, weights, more=[more])).tokenizer()
    theirs = library.AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    for text in ("hello world", "hell 123 a's\n\nb €", "a  b", "x.y!"):
        assert theirs(text)["input_ids"] == ours.encode(text)
