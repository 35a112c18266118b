"""`wse generate --explain`, what a run says of keys that nobody looked at, and the doors for values."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli.main import main
from harness.models.configuration import Configuration
from harness.models.hub import load_model, save_model
from harness.models.plain import PlainDecoder
from harness.models.tokens import character_file
from tests.fabric.networks.inference.small_models import random_weights, rounded

DECODER = Decoder(24, 2, 4, 2, 8, 20, 17, 32, 1e-5)


@pytest.fixture
def model(tmp_path):
    """Return the directory of a small random model, with letters as tokens."""
    weights = {name: values.astype(np.float32) for name, values in random_weights(DECODER).items()}
    save_model(tmp_path / "m", Configuration(DECODER), weights, character_file("abcdefghijklmnopq"))
    return tmp_path / "m"


def change(model, file, **keys):
    """Set keys of a JSON file of a model; the file need not be there."""
    path = model / file
    table = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(table | keys))


def explained(capsys, model):
    """Return (exit status, {(file, key): row})."""
    status = main(["generate", str(model), "--explain", "--json"])
    result = json.loads(capsys.readouterr().out)
    rows = {(row["file"], row["key"]): row for row in result["keys"]}
    assert len(rows) == len(result["keys"]) == sum(result["counts"].values())
    return status, rows


def test_every_key_has_a_row(model, capsys):
    """Each key of each file once, nested ones with a dot, with its value and a reason; nothing is run."""
    change(model, "config.json", rope_parameters={"rope_type": "linear", "factor": 2.0}, torch_dtype="float16")
    change(model, "generation_config.json", eos_token_id=[3, 4], do_sample=True)
    change(model, "tokenizer_config.json", chat_template="{{ x }}", model_max_length=9)
    (model / "notes.txt").write_text("x")
    (model / "vocab.json").write_text("{}")
    status, rows = explained(capsys, model)
    assert status == 0
    for file in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        keys = set(json.loads((model / file).read_text())) - {"rope_parameters"}
        assert {(file, key) for key in keys} <= set(rows)
    assert all(row["why"] for row in rows.values())
    linear = rows["config.json", "rope_parameters.factor"]
    assert (linear["value"], linear["does"]) == (2.0, "used")
    assert rows["config.json", "torch_dtype"]["does"] == "ignored"
    assert rows["generation_config.json", "eos_token_id"]["does"] == "used"
    assert rows["generation_config.json", "do_sample"]["said"]
    assert rows["model.safetensors", ""]["does"] == "used"
    assert "not opened" in rows["notes.txt", ""]["why"]
    assert "tokenizer.json" in rows["vocab.json", ""]["why"]
    assert len(json.dumps(rows["tokenizer.json", "model"]["value"])) < 100  # not the whole vocabulary
    assert main(["generate", str(model), "--explain"]) == 0
    text = capsys.readouterr().out
    assert "rope_parameters.factor     2.0" in text
    assert text.splitlines()[-1].endswith("0 refused, 0 unknown")
    assert text.isascii()


@pytest.mark.parametrize(
    ("file", "keys", "key", "does"),
    [
        ("config.json", {"colour": "red"}, "colour", "unknown"),
        ("config.json", {"rope_scaling": {"colour": 1}}, "rope_scaling.colour", "unknown"),
        ("config.json", {"partial_rotary_factor": 0.5}, "partial_rotary_factor", "refused"),
        ("config.json", {"rope_scaling": {"rope_type": "mrope", "factor": 2.0}}, "rope_scaling.rope_type", "refused"),
        ("config.json", {"hidden_size": 25}, "", "refused"),  # right alone, and no tensor is so wide
        ("config.json", {"architectures": ["X"], "model_type": "x"}, "", "refused"),
        ("generation_config.json", {"colour": 1}, "colour", "unknown"),
        ("generation_config.json", {"eos_token_id": 99}, "", "refused"),
        ("tokenizer_config.json", {"colour": 1}, "colour", "unknown"),
        ("tokenizer_config.json", {"bos_token": "<s>"}, "bos_token", "refused"),
        ("model.safetensors.index.json", {"weight_map": {"a": "b.safetensors"}}, "", "refused"),
    ],
)
def test_what_is_refused_or_unknown_ends_with_two(model, capsys, file, keys, key, does):
    change(model, file, **keys)
    status, rows = explained(capsys, model)
    assert status == 2
    bad = {place: row for place, row in rows.items() if row["does"] in ("refused", "unknown")}
    assert len(bad) == 1
    ((where, found),) = bad
    assert (found, bad[where, found]["does"]) == (key, does)
    assert where == file or not key


def test_a_file_that_cannot_be_read_is_a_row(model, capsys):
    (model / "generation_config.json").write_text("{")
    status, rows = explained(capsys, model)
    assert status == 2
    assert "not valid JSON" in rows["generation_config.json", ""]["why"]
    (model / "config.json").unlink()
    status, rows = explained(capsys, model)
    assert status == 2
    assert "no such file" in rows["config.json", ""]["why"]


@pytest.mark.parametrize(
    "words",
    [["--mesh", "4x4"], ["--tokens", "2"], ["--out", "a.h5"], ["--set", "machine.router.hop=2"], ["--seed", "1"],
     ["--random-layers", "1"], ["--estimate"], ["--trace", "events"]],
)  # fmt: skip
def test_options_about_a_run_are_refused(model, capsys, words):
    assert main(["generate", str(model), "--explain", *words]) == 2
    assert f"{words[0]}: says something about a run" in capsys.readouterr().err


def test_a_run_says_what_was_not_looked_at(model, capsys):
    """A line on standard error per file and kind, and the answer; a tokenizer that cannot be had costs the text."""
    words = ["generate", str(model), "--prompt-ids", "3,0", "--tokens", "2", "--mesh", "2x2", "--verify", "off"]
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    tokens = json.loads(out)["tokens"]
    assert err == ""
    change(model, "config.json", colour="red", shape="round")
    change(model, "generation_config.json", temperature=0.7)
    change(model, "tokenizer_config.json", colour="red")
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["tokens"] == tokens
    lines = err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("wse: warning: config.json: colour, shape: unknown here")
    change(model, "tokenizer_config.json", bos_token="<s>")
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["text"] is None
    assert "the answer has no text" in err
    assert main(["generate", str(model), "--prompt", "a"]) == 2


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 32},
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ],
)  # fmt: skip
def test_scaled_positions_are_the_wafers(model, capsys, scaling):
    """The PEs turn by scaled angles in prompt and answer: the bits of the oracle, near plain numpy, not unscaled."""
    words = ["generate", str(model), "--prompt-ids", "3,0,1,7,7,2,5,9,11,4", "--mesh", "3x2", "--tokens", "6", "--json"]
    assert main(words) == 0
    before = json.loads(capsys.readouterr().out)
    change(model, "config.json", rope_scaling=scaling)
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bit_exact"] is True
    assert 0 < result["error_share"] < 1
    loaded = load_model(model)
    weights = rounded(random_weights(DECODER), "f16")
    tokens, logits = PlainDecoder(loaded.decoder, weights, np.float64).generate([3, 0, 1, 7, 7, 2, 5, 9, 11, 4], 6)
    assert result["tokens"] == tokens
    assert result["cycles"] == before["cycles"]
    unscaled = PlainDecoder(DECODER, weights, np.float64).generate([3, 0, 1, 7, 7, 2, 5, 9, 11, 4], 6)[1]
    assert np.abs(unscaled[0] - logits[0]).max() > 10 * result["max_abs_error"]


def test_end_tokens_of_generation_end_an_answer(model, capsys):
    words = ["generate", str(model), "--prompt-ids", "3,0", "--mesh", "2x2", "--verify", "off", "--json"]
    assert main([*words, "--tokens", "5"]) == 0
    tokens = json.loads(capsys.readouterr().out)["tokens"]
    assert len(tokens) == 5
    change(model, "generation_config.json", eos_token_id=[16, tokens[1]])
    assert main([*words, "--tokens", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == tokens[: tokens.index(tokens[1]) + 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt-ids", "1", "--seed", "-1"], "--seed: -1 is too small; the least is 0"),
        (["--prompt-ids", "1", "--seed", str(2**63)], "--seed: 9223372036854775808 is too large"),
        (["--prompt-ids", "1", "--temperature", "1e-310"], "1e-310 is no temperature. Try: 0, or 1.89e-270 and more"),
        (["--prompt-ids", "1", "--temperature", "nan"], "nan is no temperature"),
        (["--prompt-ids", "1", "--temperature", "inf"], "inf is no temperature"),
        (["--prompt", os.fsdecode(b"a\xff")], "--prompt: character 2 is no text in UTF-8: '\\udcff'"),
        (["--prompt-ids", "1", "--requests", "1000000000000"], "1000000000000 requests"),
        (["--prompt-ids", "9" * 500], "is none of the 17"),
        (["--prompt-ids", "x" * 5000], "is no list of tokens"),
        (["--prompt-ids", "1", "--mesh", "x" * 5000], "is no mesh"),
        (["--prompt-ids", "1", "--mesh", "9" * 5000 + "x1"], "is no mesh"),
    ],
)
def test_values_are_refused_at_the_door(model, capsys, words, message):
    """One short line, status 2."""
    assert main(["generate", str(model), *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert len(err) < 400
    assert "internal error" not in err


@pytest.mark.parametrize("temperature", ["1.9e-270", "1e-200", "1e300"])
def test_temperatures_at_the_ends_draw(model, capsys, temperature):
    words = ["generate", str(model), "--prompt-ids", "3", "--tokens", "3", "--mesh", "2x2", "--verify", "off", "--json"]
    assert main([*words, "--temperature", temperature]) == 0
    drawn = json.loads(capsys.readouterr().out)["tokens"]
    assert main(words) == 0
    likeliest = json.loads(capsys.readouterr().out)["tokens"]
    assert len(drawn) == 3
    assert (drawn == likeliest) or float(temperature) > 1
