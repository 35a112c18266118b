"""Models whose tensors are lowered, or that have norms of heads, answer on PEs as the hub's library does by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from harness.cli.main import main
from harness.models.hub import load_model, save_model
from harness.models.lowering import FUSED, pairs_first
from harness.models.tensors import Tensor, read_tensors, write_tensors
from tests.examples import mixed
from tests.harness.models.hub_twin import BASES, library_logits, tensors_of
from wse_core.errors import ConfigError, UnsupportedError

ARCHITECTURES = ("Phi3ForCausalLM", "GraniteForCausalLM", "GemmaForCausalLM")
PROMPT = [3, 1, 4]


def answered(table, weights, count):
    """Return the tokens that the twin of the library answers."""
    ids = list(PROMPT)
    for _ in range(count):
        ids.append(int(np.argmax(library_logits(table, weights, ids))))
    return ids[len(PROMPT) :]


NEWER = ("Qwen3", "SmolLM3", "Olmo2", "Olmo3", "Gemma2", "Gemma3")


@pytest.mark.parametrize(
    ("architecture", "tied"), mixed([*ARCHITECTURES, *(f"{name}ForCausalLM" for name in NEWER)], [False, True])
)
def test_tokens_on_pes_are_the_librarys(tmp_path, capsys, architecture, tied):
    weights = tensors_of(architecture, seed=5)
    if tied:
        del weights["lm_head.weight"]
    table = BASES[architecture] | {"tie_word_embeddings": tied}
    write_tensors(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(json.dumps(table))
    words = ["--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "4", "--mesh", "2x2", "--json"]
    assert main(["generate", str(tmp_path), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"]
    assert found["tokens"] == answered(table, weights, 4)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", list(BASES))
def test_what_the_library_saves_answers_as_the_library(tmp_path, capsys, architecture):
    """A model of the library's own making, with its names of tensors and its keys: the same tokens, one by one."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    torch.manual_seed(4)
    table = {key: value for key, value in BASES[architecture].items() if key not in ("architectures", "model_type")}
    table |= {"hidden_size": 16, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    config = transformers.AutoConfig.for_model(BASES[architecture]["model_type"], **table)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor += (0.3 if "norm" in name else 1.0) * torch.randn(tensor.shape)  # so that no two logits are near
    model.save_pretrained(tmp_path)
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(4):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    words = ["--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "4", "--mesh", "3x2", "--json"]
    assert main(["generate", str(tmp_path), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"]
    assert found["tokens"] == ids[len(PROMPT) :]


def test_parts_of_one_matrix_are_no_copies(tmp_path):
    weights = tensors_of("Phi3ForCausalLM")
    write_tensors(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(json.dumps(BASES["Phi3ForCausalLM"]))
    model = load_model(tmp_path)
    for fused, parts in FUSED.items():
        whole = weights[f"model.layers.1.{fused}.weight"]
        found = [model.tensors[f"model.layers.1.{part}.weight"] for part in parts]
        assert np.array_equal(np.concatenate([part.f32() for part in found]), whole)
        assert all(not part.data.flags.owndata for part in found)


@pytest.mark.parametrize("ways", [[], ["--prefill", "token"], ["--cache", "concat"], ["--decode-mesh", "3x2"]])
def test_texts_beyond_a_window(tmp_path, capsys, ways):
    """A prompt and an answer longer than a window: the library's tokens, and other ones than without the window."""
    weights = tensors_of("MistralForCausalLM", seed=5)
    write_tensors(tmp_path / "model.safetensors", weights)
    table = BASES["MistralForCausalLM"] | {"sliding_window": 2}
    (tmp_path / "config.json").write_text(json.dumps(table))
    words = ["--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "8", "--mesh", "2x2", "--json", *ways]
    assert main(["generate", str(tmp_path), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"]
    assert found["tokens"] == answered(table, weights, 8)
    assert found["tokens"] != answered(BASES["MistralForCausalLM"], weights, 8)


def test_a_part_of_each_head_turns(tmp_path, capsys):
    """Tokens on PEs are the library's by hand, and other ones than if all of a head turned."""
    weights = tensors_of("Phi3ForCausalLM", seed=5)
    write_tensors(tmp_path / "model.safetensors", weights)
    whole = BASES["Phi3ForCausalLM"] | {"rope_theta": 3.0}
    table = whole | {"partial_rotary_factor": 0.5}
    (tmp_path / "config.json").write_text(json.dumps(table))
    words = ["--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", "6", "--mesh", "2x2", "--json"]
    assert main(["generate", str(tmp_path), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"]
    assert found["tokens"] == answered(table, weights, 6)
    assert found["tokens"] != answered(whole, weights, 6)
    order = pairs_first(replace(load_model(tmp_path).decoder, head_size=10, rotary=6))
    assert order.tolist() == [0, 1, 2, 6, 7, 3, 4, 5, 8, 9]


@pytest.mark.parametrize("rows", [31, 33, 0])
def test_a_matrix_with_other_rows_is_refused_by_its_own_name(tmp_path, rows):
    weights = tensors_of("Phi3ForCausalLM")
    weights["model.layers.0.self_attn.qkv_proj.weight"] = np.zeros((rows, 8), np.float32)
    write_tensors(tmp_path / "model.safetensors", weights)
    (tmp_path / "config.json").write_text(json.dumps(BASES["Phi3ForCausalLM"]))
    with pytest.raises(ConfigError, match=r"qkv_proj.weight is \[\d+, 8\]; its products have 16 \+ 8 \+ 8 rows"):
        load_model(tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_written_is_the_same_model_as_a_llama(tmp_path, architecture):
    place = tmp_path / "from"
    place.mkdir()
    write_tensors(place / "model.safetensors", tensors_of(architecture))
    (place / "config.json").write_text(json.dumps(BASES[architecture]))
    model = load_model(place)
    save_model(tmp_path / "to", model.configuration, model.tensors)
    again = load_model(tmp_path / "to")
    assert json.loads((tmp_path / "to" / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert again.decoder == model.decoder
    for name, values in model.weights().items():
        assert np.array_equal(values, again.weights()[name]), name


def test_a_factor_is_one_rounding(tmp_path):
    values = np.array([1.0, 3.0, 0.1], np.float16)
    scaled = Tensor("a", "F16", values, 0.1)
    assert np.array_equal(scaled.f32(), values.astype(np.float32) * np.float32(0.1))
    write_tensors(tmp_path / "t.safetensors", {"a": scaled})
    assert np.array_equal(read_tensors(tmp_path / "t.safetensors")["a"].f32(), scaled.f32())


EXPERTS = {"MixtralForCausalLM": "num_experts", "Qwen3MoeForCausalLM": "num_local_experts",
           "OlmoeForCausalLM": "num_local_experts"}  # fmt: skip
"""Architectures with experts, and the library's other name for how many there are."""


@pytest.mark.parametrize("architecture", EXPERTS)
def test_experts_in_one_tensor_and_by_another_name(tmp_path, architecture):
    """Files as version 5 of the library has them in memory, or writes them, are the same model."""
    write_tensors(tmp_path / "model.safetensors", tensors_of(architecture))
    table = dict(BASES[architecture])
    (tmp_path / "config.json").write_text(json.dumps(table))
    model = load_model(tmp_path)
    weights, count = model.weights(), model.decoder.experts
    together = {name: values for name, values in weights.items() if ".experts." not in name}
    for layer in range(model.decoder.layers):
        room = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            np.stack([weights[f"{room}.{k}.{name}_proj.weight"] for k in range(count)])
            for name in ("gate", "up", "down")
        )
        together |= {f"{room}.gate_up_proj": np.concatenate([gate, up], axis=1), f"{room}.down_proj": down}
    write_tensors(tmp_path / "model.safetensors", together)
    own = "num_experts" if EXPERTS[architecture] == "num_local_experts" else "num_local_experts"
    table[EXPERTS[architecture]] = table.pop(own)
    (tmp_path / "config.json").write_text(json.dumps(table))
    again = load_model(tmp_path)
    assert again.decoder == model.decoder
    assert all(np.array_equal(again.weights()[name], values) for name, values in weights.items())
    (tmp_path / "config.json").write_text(json.dumps(table | {own: count + 1}))
    with pytest.raises(UnsupportedError, match=f"{EXPERTS[architecture]} {count}: {own} says {count + 1}"):
        load_model(tmp_path)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    write_tensors(tmp_path / "model.safetensors", together | {name: together[name][:, 1:]})
    (tmp_path / "config.json").write_text(json.dumps(table))
    with pytest.raises(ConfigError, match=r"experts.gate_up_proj is \[4, 15, 8\], not 4 matrices of 8 \+ 8 rows"):
        load_model(tmp_path)
