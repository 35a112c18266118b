"""`wse generate --regions`: the same answer on several regions, with bubbles that requests fill."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli.main import main
from harness.inference.asking import AnswerRequest
from harness.inference.generate import answer
from harness.models.hub import find_model
from harness.models.plain import PlainDecoder
from tests.fabric.networks.inference.small_models import random_weights, rounded
from tests.harness.inference.saved_models import LETTERS, saved
from traces.reader import RunFile
from wse_core.params import machine

DECODER = Decoder(24, 4, 4, 2, 8, 20, 17, 32, 1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model."""
    directory = tmp_path_factory.mktemp("models") / "letters"
    return saved(directory, DECODER, LETTERS)


def generated(capsys, *words):
    """Return (exit status, JSON)."""
    status = main(["generate", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_an_answer_leaves_bubbles_and_requests_fill_them(model, capsys, tmp_path):
    """Tokens are plain numpy's; regions' work and bubbles add up to all cycles; two requests wait less than one."""
    words = [model, "--prompt", "dab", "--mesh", "4x3", "--tokens", 4, "--regions", 2]
    file = tmp_path / "run.h5"
    status, one = generated(capsys, *words, "--out", file)
    assert status == 0
    assert one["bit_exact"] is True
    tokens, logits = PlainDecoder(DECODER, rounded(random_weights(DECODER), "f16"), np.float64).generate([3, 0, 1], 4)
    assert one["tokens"] == tokens
    assert one["max_abs_error"] < one["error_bound"] < 0.05 * np.ptp(logits)
    assert 0 < one["error_share"] < 1
    assert one["text"] == "".join(LETTERS[token] for token in tokens)
    cycles = one["cycles"]
    assert len(cycles["tokens"]) == 3
    assert cycles["tokens"][-1] == pytest.approx(one["expected"]["token"], rel=0.05)
    assert [region["layers"] for region in one["regions"]] == [[0, 1], [2, 3]]
    for region in one["regions"]:
        for phase, whole in (("prompt", cycles["prefill"]), ("answer", cycles["all_answers"])):
            assert region["cycles"][phase] + region["bubbles"][phase] == whole
            assert region["cycles"][phase] > 0 < region["bubbles"][phase]
        assert sum(region["memory_parts"].values()) == region["memory_per_pe"] < 49152
    assert 0.4 < one["bubbles"]["answer"] < 0.6  # one of two regions works at a time
    assert one["bubbles"]["prompt"] < one["bubbles"]["answer"] - 0.1  # tokens of a prompt follow one another
    with RunFile(file) as run:
        names = {m.track for m in run.marks()}
        assert names == {"region 1", "region 2", "request 1"}
        assert run.result("region_cycles").tolist() == [list(region["cycles"].values()) for region in one["regions"]]
    status, two = generated(capsys, *words, "--requests", 2)
    assert status == 0
    assert two["bit_exact"] is True
    assert two["answers"] == [tokens, tokens]
    assert two["bubbles"]["answer"] < one["bubbles"]["answer"] - 0.2
    assert two["tokens_per_second"]["0.85 GHz"] > 1.5 * one["tokens_per_second"]["0.85 GHz"]
    assert main(["generate", *map(str, words), "--requests", "2", "--estimate", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    prefill = facts["estimated_cycles"].pop("prefill")
    assert prefill == pytest.approx(two["cycles"]["prefill"], rel=0.05)
    assert facts["estimated_cycles"] == {key: two["expected"][key] for key in ("token", "round", "busy")}
    assert main(["generate", *map(str, words), "--estimate", "--json"]) == 0
    prefill = json.loads(capsys.readouterr().out)["estimated_cycles"]["prefill"]
    assert prefill == pytest.approx(cycles["prefill"], rel=0.05)
    asked = {"tokens", "text", "cycles", "bit_exact", "max_abs_error", "memory_per_pe", "host_seconds"}
    assert asked <= one.keys()
    assert {"prefill", "transition", "tokens"} <= cycles.keys()


def test_prompts_of_different_lengths(model):
    """Each request goes at its own pace: prompts of other lengths, one that ends its answer first."""
    prompts = [[3, 0, 1, 7], [5], [2, 2]]
    model = find_model(str(model))
    flow = answer(AnswerRequest(machine=machine(), model=model, prompts=prompts, count=3, mesh=(3, 2), regions=2))
    assert flow.bit_exact is True
    for prompt, tokens in zip(prompts, flow.tokens, strict=True):
        weights = rounded(random_weights(DECODER), "f16")
        assert tokens == PlainDecoder(DECODER, weights, np.float64).generate(prompt, 3)[0]


def test_draws_of_requests_differ_and_text_follows(model, capsys):
    """AnswerRequest k draws with seed + k; people see every answer, and what each region did."""
    words = ["generate", str(model), "--prompt", "d", "--mesh", "2x2", "--tokens", "3", "--regions", "4"]
    words += ["--requests", "2", "--temperature", "3", "--verify", "off"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out[0]) == len(out[1]) == 3
    assert out[0] != out[1]
    assert any(line.split()[:2] == ["region", "4"] for line in out)
    assert main([*words, "--estimate"]) == 0
    assert "nothing was run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--regions", "5"], "5 regions for 4 layers"),
        (["--regions", "0"], "0 regions"),
        (["--regions", "2", "--requests", "0"], "0 requests"),
        (["--regions", "2", "--prefill", "mesh"], "token by token"),
        (["--regions", "4", "--mesh", "200x1"], "3 lie side by side"),
    ],
)
def test_what_is_refused(model, capsys, words, message):
    """One line, nothing run."""
    assert main(["generate", str(model), "--prompt", "a", *words]) != 0
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_model_too_large_for_its_mesh_runs_on_several(tmp_path, capsys):
    """The refusal says how many regions would do, and they do."""
    decoder = Decoder(64, 4, 4, 2, 16, 150, 40, 64, 1e-5)
    directory = tmp_path / "wide"
    saved(directory, decoder)
    words = ["generate", str(directory), "--prompt-ids", "1,2", "--tokens", "2", "--mesh", "2x3"]
    assert main(words) != 0
    err = capsys.readouterr().err
    regions = err.split("or --regions ")[1].split()[0]
    assert int(regions) > 1
    status, result = generated(capsys, *words[1:], "--regions", regions)
    assert status == 0
    assert result["bit_exact"] is True
