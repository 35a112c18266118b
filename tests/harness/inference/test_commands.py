"""``wse plan --inference`` and the figures of the tables, as a user calls them."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

import pytest

from fabric.networks.inference.prefill.fit import prompt_words
from fabric.networks.inference.prefill.placement import PromptPlacement
from harness.cli import main as cli
from harness.inference.capacity import DecoderMemory
from harness.inference.running import placed
from harness.models.presets import PRESETS as DECODERS
from wse_core.params import machine


def run(capsys, *words):
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_plan_prints_both_programs_at_both_clocks(capsys):
    words = ("plan", "LLaMA3-8B", "--inference", "--mesh", "360x360", "--prompt-length", "512", "--tokens", "4")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    for text in ("program A", "program B", "at 0.85 GHz", "at 1.1 GHz", "regions", "beside the layers"):
        assert text in out
    code, out, _ = run(capsys, *words, "--json")
    facts = json.loads(out)
    regions = facts["regions"]
    assert regions["needed"] == -(-32 // regions["layers_each"])
    assert sum(facts["memory_per_pe"]["parts"].values()) <= 49152
    assert sum(facts["memory_per_pe"]["parts"].values()) * (1 + 1 / regions["layers_each"]) > 49152 - 8192
    assert facts["resident"]["layer"] == pytest.approx(facts["programs"]["B"]["decode"]["layer"], rel=0.1)
    assert facts["memory_per_pe"]["bytes"] == 49152
    b = facts["programs"]["B"]
    parts = [sum(b["decode"][kind].values()) for kind in ("sums", "products", "local")]
    assert sum(parts) == pytest.approx(b["decode"]["layer"], rel=1e-3)
    assert b["request_cycles"] == pytest.approx(
        b["prefill"]["cycles"] + b["transition_cycles"] + b["decode_cycles"], rel=1e-6
    )
    rates = b["rates"]
    assert rates["1.1 GHz"]["decode_tokens_per_s"] / rates["0.85 GHz"]["decode_tokens_per_s"] == pytest.approx(
        1.1 / 0.85
    )


def test_a_plan_with_tokens_that_are_there(capsys):
    """The rest of a prompt is read in steps of decode; no other number changes."""
    words = ("plan", "LLaMA3-8B", "--inference", "--mesh", "360x360", "--prompt-length", "512", "--tokens", "4")
    _, out, _ = run(capsys, *words, "--reused", "510")
    assert "with 510 of 512 tokens in (100%) there" in out
    facts = json.loads(run(capsys, *words, "--reused", "510", "--json")[1])
    found = facts.pop("reused")
    assert facts == json.loads(run(capsys, *words, "--json")[1])
    for name, program in facts["programs"].items():
        each = found["programs"][name]
        assert each["read_cycles_without"] == program["prefill"]["cycles"] + program["transition_cycles"]
        assert each["read_cycles"] == pytest.approx(2 * program["decode"]["cycles"], rel=0.02)
        seconds = each["rates"]["1.1 GHz"]["time_to_first_token_s"]
        assert seconds == pytest.approx(each["read_cycles"] / 1.1e9)


def test_a_plan_with_a_cache_of_8_bits(capsys):
    """More tokens have room, the decoder that runs here takes longer, and programs A and B are as they were."""
    words = ("plan", "LLaMA3-8B", "--inference", "--mesh", "360x360", "--prompt-length", "512", "--tokens", "4")
    wide = json.loads(run(capsys, *words, "--json")[1])
    _, out, _ = run(capsys, *words, "--batch", "2", "--cache-dtype", "int8")
    assert "tokens of int8" in out
    facts = json.loads(run(capsys, *words, "--batch", "2", "--cache-dtype", "int8", "--json")[1])
    assert (facts["cache_dtype"], wide["cache_dtype"]) == ("int8", "f16")
    assert 1.1 < facts["cache_tokens"] / wide["cache_tokens"] < 1.6
    assert 1.02 < facts["resident"]["layer"] / wide["resident"]["layer"] < 1.2
    assert facts["batch"]["layer"] > facts["resident"]["layer"]
    assert facts["programs"] == wide["programs"]


def test_a_plan_says_what_does_not_fit(capsys):
    """Memory while a prompt is read, and both meshes side by side: what is short of what, and what would do."""
    words = ("plan", "LLaMA3-8B", "--inference", "--mesh", "360x360", "--tokens", "4")
    code, out, _ = run(capsys, *words, "--prefill-mesh", "660x660", "--prompt-length", "2048")
    assert code == 0
    assert "they fit" not in out
    assert "1,320 + 720 columns are 1,283 more than the wafer's 757" in out
    least = DECODERS["LLaMA3-8B"].parameters / 2 / 2 / (2 * 660)  # half of them cross 2 x 660 links, two in a wavelet
    (line,) = (line for line in out.splitlines() if "re-placement" in line)
    assert f"from 660 x 660 to 360 x 360 over the wafer in {least:,.0f} cycles at least" in line
    assert "re-placement" not in run(capsys, *words, "--prompt-length", "64")[1]
    code, out, _ = run(capsys, *words, "--prompt-length", "4096", "--json")
    found = json.loads(out)["prefill_memory"]
    assert not found["fit"]
    assert found["layer_bytes"] - found["bytes"] == found["short_of"] > 0
    side, decoder = found["smallest_square"], DECODERS["LLaMA3-8B"]
    fits = [DecoderMemory(machine(), decoder, k, k, reads=True).layers_that_fit(4096) for k in (side - 1, side)]
    assert fits[0] == 0 < fits[1]
    layer = PromptPlacement(placed(replace(decoder, vocabulary=1), 360, 360, 1, 4096), 4096)
    assert found["layer_bytes"] == pytest.approx(2 * sum(prompt_words(layer).values()), abs=64)


def test_a_layer_is_priced_where_the_output_matrix_has_no_room(capsys):
    """The output matrix has a region of its own in a plan: a mesh that carries a layer without it has a price."""
    code, out, _ = run(capsys, "plan", "LLaMA3-8B", "--inference", "--mesh", "128x128", "--json")
    assert code == 0
    assert json.loads(out)["resident"]["layer"] > 10_000


def test_a_mesh_that_is_no_square_is_planned_for_one_program(capsys):
    code, out, _ = run(capsys, "plan", "llama3-8b", "--inference", "--mesh", "300x240", "--json")
    assert code == 0
    programs = json.loads(out)["programs"]
    assert "square" in programs["A"]["impossible"]
    assert programs["B"]["request_cycles"] > 0


def test_a_directory_is_planned_by_its_sizes(capsys, tmp_path):
    table = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 96,
        "max_position_embeddings": 32,
    }
    (tmp_path / "config.json").write_text(json.dumps(table))
    code, out, _ = run(capsys, "plan", str(tmp_path), "--inference", "--mesh", "4x4", "--json")
    assert code == 0
    facts = json.loads(out)
    assert (facts["prompt_length"], facts["tokens"]) == (16, 16)
    assert facts["regions"]["needed"] == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("LLaMA3-8B", "--cache-dtype", "int8"), "says something about inference"),
        (("--inference", "--mesh", "4x4"), "--inference needs a model"),
        (("LLaMA3-8B", "--wafers", "2"), "--wafers: says something about inference"),
        (("LLaMA3.1-70B", "--inference"), "there are 1"),
        (("LLaMA3-8B", "--inference", "--preset", "wse9"), "unknown machine preset 'wse9'"),
        (("--schedule", "layered", "--preset", "wse3"), "--preset: starts no machine here"),
        (("LLaMA3-8B", "--inference", "--mesh", "360x360", "--prompt-length", "9", "--reused", "9"), "at most 8"),
        (("LLaMA3-8B", "--reused", "4"), "--reused: says something about inference"),
        (("LLaMA3-8B", "--mesh", "4x4"), "--mesh: says something about inference"),
        (("LLaMA3-8B", "--inference", "--mesh", "4"), "'4' is no mesh"),
        (("LLaMA3-8B", "--inference", "--mesh", "axb"), "--mesh"),
        (("LLaMA3-8B", "--inference", "--mesh", "0x4"), "--mesh"),
        (("LLaMA3-8B", "--inference", "--mesh", "90x90"), "one layer takes"),
        (("LLaMA3-8B", "--inference", "--mesh", "360x360", "--tokens", "0"), "--tokens"),
        (("LLaMA3-8B", "--inference", "--mesh", "360x360", "--tokens", "9000"), "context holds 8,192"),
        (("nothing", "--inference", "--mesh", "4x4"), "unknown model 'nothing'"),
    ],
)
def test_what_is_refused_in_one_line(capsys, words, what):
    code, out, err = run(capsys, "plan", *words)
    assert code == 2
    assert out == ""
    assert what in err
    assert len(err.splitlines()) == 1


def test_names_are_completed_for_what_is_asked():
    from harness.cli.cmd_plan import _models

    assert "LLaMA3-8B" in _models(Namespace(inference=True))
    assert "gpt-3" in _models(Namespace(inference=False))
    assert "LLaMA3-8B" not in _models(Namespace())
