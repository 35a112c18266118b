"""Directories of models: round trip, shards, tied tables, and what is missing, misshapen or too much."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import LayerKind
from harness.models.configuration import Configuration
from harness.models.hub import find_model, load_model, save_model, tensor_shapes
from harness.models.tensors import read_tensors, write_tensors
from tests.harness.models.small_decoders import TINY, random_weights
from wse_core.errors import ConfigError, UnsupportedError


def saved(directory, decoder=TINY, **change):
    """Write a model, with some of its tensors changed or, if None, taken away."""
    weights = random_weights(decoder)
    save_model(directory, Configuration(decoder), weights)
    if change:
        changed = {**weights, **change}
        kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
        write_tensors(directory / "model.safetensors", kept)
    return weights


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tied": True},
        {"qkv_bias": True},
        {"qkv_bias": True, "o_bias": True, "ffn_bias": True},
        {"different": (LayerKind(turns=False), LayerKind())},
    ],
)
def test_round_trip(tmp_path, change):
    decoder = replace(TINY, **change)
    weights = saved(tmp_path / "m", decoder)
    model = load_model(tmp_path / "m")
    # LLaMA files with attention_bias keep their biases; the decoder says so in config.json.
    assert model.decoder == decoder
    assert model.name == "m"
    found = model.weights()
    assert list(found) == list(tensor_shapes(decoder))
    for name, weight in weights.items():
        np.testing.assert_array_equal(found[name], weight)
    assert sum(weight.size for weight in found.values()) == decoder.parameters
    assert ("lm_head.weight" in found) is not decoder.tied


def split(directory):
    """Cut the weight file of a model into two with an index."""
    found = read_tensors(directory / "model.safetensors")
    names, index = sorted(found), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_tensors(directory / file, {name: found[name] for name in part})
        index |= dict.fromkeys(part, file)
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_shards(tmp_path):
    weights = saved(tmp_path)
    split(tmp_path)
    for name, weight in load_model(tmp_path).weights().items():
        np.testing.assert_array_equal(weight, weights[name])
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match="00002-of-00002.safetensors: no such file"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    write_tensors(tmp_path / "other.safetensors", weights)
    with pytest.raises(ConfigError, match="2 weight files and no model.safetensors.index.json"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not valid JSON"),
        ("{}", "no table weight_map"),
        ('{"weight_map": 3}', "no table weight_map"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "outside of the directory"),
        ('{"weight_map": {"a": "/a"}}', "outside of the directory"),
    ],
)
def test_an_index_that_is_none(tmp_path, text, what):
    saved(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigError, match=what):
        load_model(tmp_path)


def test_a_tensor_in_two_files(tmp_path):
    weights = saved(tmp_path)
    write_tensors(tmp_path / "more.safetensors", {"model.norm.weight": weights["model.norm.weight"]})
    index = dict.fromkeys(weights, "model.safetensors") | {"model.norm.weight": "more.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(ConfigError, match=r"tensor model\.norm\.weight is in two files"):
        load_model(tmp_path)


Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({Q: None}, f"tensor {Q} is missing"),
        ({Q: None, "model.norm.weight": None}, f"tensor {Q} and 1 more is missing"),
        ({Q: np.zeros((6, 16), np.float32)}, r"\[6, 16\], config.json wants \[16, 6\]"),
        ({"model.layers.0.self_attn.o_proj.bias": np.ones(6, np.float32)}, "no such bias"),
        ({"model.layers.0.self_attn.q_norm.weight": np.ones(4, np.float32)}, "norms of queries and keys"),
        ({"model.layers.0.mlp.extra.weight": np.zeros(6, np.float32)}, "belongs to no part"),
        ({"model.layers.2.input_layernorm.weight": np.zeros(6, np.float32)}, "belongs to no part"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, change, what):
    saved(tmp_path, **change)
    with pytest.raises((ConfigError, UnsupportedError), match=what) as caught:
        load_model(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_tables_that_nobody_needs_are_left(tmp_path):
    """Angles, a copy of a tied embedding, and a bias of zeros change nothing; a head that differs is refused."""
    decoder, head = replace(TINY, tied=True), random_weights(TINY)["model.embed_tokens.weight"]
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2, np.float32),
        "model.layers.0.self_attn.o_proj.bias": np.array([0.0, -0.0, 0.0, 0.0, 0.0, 0.0], np.float32),
        "lm_head.weight": head,
    }
    saved(tmp_path / "m", decoder, **extra)
    assert not set(extra) & set(load_model(tmp_path / "m").tensors)
    saved(tmp_path / "other", decoder, **{"lm_head.weight": np.nextafter(head, np.float32(9))})
    with pytest.raises(ConfigError, match="lm_head.weight is not the embedding, although tie_word_embeddings"):
        load_model(tmp_path / "other")


def test_two_sets_of_weights_are_refused(tmp_path):
    """A new single file beside old shards: nobody can know which is meant, and the library takes another than ours."""
    weights = saved(tmp_path)
    split(tmp_path)
    write_tensors(tmp_path / "model.safetensors", weights)
    with pytest.raises(ConfigError, match="two sets of weights") as caught:
        load_model(tmp_path)
    assert "model.safetensors stands beside model.safetensors.index.json" in str(caught.value)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert load_model(tmp_path).decoder == TINY
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="weights of an adapter"):
        load_model(tmp_path)


def generation(directory, table):
    """Return the model of a directory beside a ``generation_config.json``."""
    (directory / "generation_config.json").write_text(json.dumps(table))
    return load_model(directory).configuration


def test_end_tokens_of_generation(tmp_path):
    """Those of generation_config.json win; how the library would draw is said, and what is wrong names the file."""
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": 3}))
    assert load_model(tmp_path).configuration.stops == (3,)
    assert generation(tmp_path, {"eos_token_id": [4, 5]}).stops == (4, 5)
    assert generation(tmp_path, {"eos_token_id": 4}).stops == (4,)
    assert generation(tmp_path, {"eos_token_id": None}).stops == (3,)
    assert generation(tmp_path, {"do_sample": False, "temperature": 1.0, "top_p": 1}).warnings == ()
    (said,) = generation(tmp_path, {"do_sample": True, "repetition_penalty": 1.1, "max_length": 9}).warnings
    assert said.startswith("generation_config.json: do_sample, repetition_penalty: not obeyed here")
    (said,) = generation(tmp_path, {"colour": 1}).warnings
    assert said.startswith("generation_config.json: colour: unknown here")
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id is 99"):
        generation(tmp_path, {"eos_token_id": [4, 99]})


def test_what_is_no_model(tmp_path):
    with pytest.raises(ConfigError, match="no directory of a model"):
        load_model(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"config\.json: no such file"):
        load_model(tmp_path)
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        load_model(tmp_path)


def test_more_layers_than_tensors(tmp_path):
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 2000000000'))
    with pytest.raises(ConfigError, match="2,000,000,000 layers, the files have"):
        load_model(tmp_path)


def test_names(tmp_path):
    saved(tmp_path / "m")
    assert find_model(str(tmp_path / "m")).decoder == TINY
    with pytest.raises(ConfigError, match="wse plan LLaMA3-8B --inference"):
        find_model("llama3-8b")
    with pytest.raises(ConfigError, match="did you mean LLaMA3-8B"):
        find_model("LLaMA3-8")
    assert find_model(f"{tmp_path}/m/").decoder == TINY
    assert find_model("pydoc/").name == "pydoc"
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    for name, says in {
        f"{tmp_path}/m/model.safetensors": "is a file. Try: the directory with config.json",
        f"{tmp_path}/m.gguf": "a version of 4 bytes at byte 4 of 4",
        f"{tmp_path}/none/": "no directory",
        "none.gguf": "no directory none.gguf. Try: the directory",
        "owner/name": "nothing is fetched from the hub. Try: hf download owner/name --local-dir",
    }.items():
        with pytest.raises(ConfigError) as caught:
            find_model(name)
        assert says in str(caught.value)


def test_only_whole_models_are_written(tmp_path):
    weights = random_weights(TINY)
    weights.pop(Q)
    with pytest.raises(ConfigError, match=f"tensor {Q} is missing"):
        save_model(tmp_path / "m", Configuration(TINY), weights)
    assert not (tmp_path / "m").exists()
