"""`wse generate --batch`: requests that share steps, each answered as if it were alone, and what they wait."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.decoder import Decoder
from harness.cli.main import main
from harness.inference.asking import AnswerRequest, Sampling
from harness.inference.generate import answer
from harness.inference.serving import Lanes, schedule
from harness.models.configuration import Configuration
from harness.models.hub import find_model, save_model
from harness.models.plain import PlainDecoder
from tests.fabric.networks.inference.small_models import random_weights, rounded
from tests.harness.inference.saved_models import LETTERS, saved
from traces.reader import RunFile
from wse_core.errors import UnsupportedError
from wse_core.params import machine

DECODER = Decoder(24, 2, 4, 2, 8, 20, 17, 32, 1e-5)
LINES = [
    {"prompt": "dab", "tokens": 3},
    {"prompt_ids": [5]},
    {"prompt": "cc", "tokens": 1},
    {"prompt": "hab", "tokens": 2, "temperature": 2.0, "top_k": 5, "seed": 3},
    {"prompt": "q"},
]


def plain(prompt, count):
    """Return what plain numpy answers."""
    return PlainDecoder(DECODER, rounded(random_weights(DECODER), "f16"), np.float64).generate(prompt, count)[0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model."""
    directory = tmp_path_factory.mktemp("models") / "letters"
    return saved(directory, DECODER, LETTERS)


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """Return a file of requests."""
    file = tmp_path_factory.mktemp("requests") / "requests.jsonl"
    file.write_text("\n\n".join(map(json.dumps, LINES)) + "\n")
    return file


def generated(capsys, *words):
    """Return (exit status, JSON)."""
    status = main(["generate", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_requests_of_a_file_share_steps(model, requests, capsys, tmp_path):
    """Answers are plain numpy's, whoever shares a step; who is done makes room; the estimate has the same steps."""
    words, file = [model, "--requests", requests, "--batch", 2, "--mesh", "4x3", "--tokens", 4], tmp_path / "run.h5"
    status, result = generated(capsys, *words, "--out", file)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["max_abs_error"] < result["error_bound"]
    prompts = [[3, 0, 1], [5], [2, 2], [7, 0, 1], [16]]
    assert [each["prompt"] for each in result["requests"]] == prompts
    counts = [3, 4, 1, 2, 4]
    assert [len(tokens) for tokens in result["answers"]] == counts
    for k in (0, 1, 2, 4):  # of one that draws no likeliest token is known
        assert result["answers"][k] == plain(prompts[k], counts[k])
    assert result["text"] == "".join(LETTERS[token] for token in result["tokens"])
    lengths = [len(prompt) + count - 1 for prompt, count in zip(prompts, counts, strict=True)]
    steps = schedule(lengths, 2)
    cycles = result["cycles"]
    assert len(cycles["steps"]) == len(steps) == 10  # 19 tokens in two lanes
    assert result["lanes_taken"] == 19 / 20
    assert [each["first_step"] for each in result["requests"]] == [0, 0, 4, 5, 6]
    assert [each["lane"] for each in result["requests"]] == [0, 1, 1, 0, 1]
    assert result["expected_cycles"] == pytest.approx(sum(cycles["steps"]), rel=0.01)
    assert cycles["all"] >= sum(cycles["steps"])
    for each, length in zip(result["requests"], lengths, strict=True):
        assert each["steps"] == length
        assert 0 < each["cycles"]["first_token"] <= each["cycles"]["all"] <= cycles["all"]
    with RunFile(file) as run:
        assert {m.track for m in run.marks()} == {"lane 1", "lane 2"}
        assert run.result("step_cycles").tolist() == cycles["steps"]
    status, facts = generated(capsys, *words, "--estimate")
    assert status == 0
    assert facts["estimated_cycles"]["steps"] == pytest.approx(cycles["steps"], rel=0.01)
    assert facts["memory_per_pe"] == result["memory_per_pe"] < 49152
    assert max(facts["estimated_cycles"]["steps"]) > facts["estimated_cycles"]["alone"]


def test_a_request_is_answered_as_if_it_were_alone(model):
    """Tokens and logits are those of a run of one request that draws with the same seed, bit by bit."""
    prompts, samplings = [[3, 0, 1], [5], [2, 2, 2, 2]], [Sampling(1.5, 0, seed) for seed in (7, 8, 9)]
    asked = {"machine": machine(), "model": find_model(str(model)), "mesh": (4, 3), "count": 3}
    found = answer(AnswerRequest(prompts=prompts, samplings=samplings, batch=2, **asked))
    for prompt, sampling, served in zip(prompts, samplings, found.requests, strict=True):
        alone = answer(AnswerRequest(prompts=[prompt], sampling=sampling, prefill="token", **asked))
        assert served.tokens == alone.tokens
        assert np.array_equal(served.logits, alone.logits)
    assert found.bit_exact is True
    assert len(found.step_cycles) == len(schedule([5, 3, 6], 2)) == 9


def test_an_answer_that_ends_makes_room(tmp_path):
    """A request that meets the end of its answer leaves its lane at once, and the next one begins there."""
    directory = tmp_path / "ending"
    weights = {name: values.astype(np.float32) for name, values in random_weights(DECODER).items()}
    end = plain([3, 0, 1], 1)[0]
    save_model(directory, Configuration(DECODER, stops=(end,)), weights)
    asked = {"machine": machine(), "model": find_model(str(directory)), "mesh": (3, 2), "count": 5}
    found = answer(AnswerRequest(prompts=[[3, 0, 1], [4], [4]], batch=1, **asked))
    assert found.requests[0].tokens == [end]
    assert found.requests[1].first_step == 3
    assert found.requests[1].tokens == found.requests[2].tokens
    assert found.bit_exact is True


def test_several_answers_to_one_prompt(model, capsys):
    """Request k draws with seed + k; people see every answer and what the steps took."""
    words = ["generate", str(model), "--prompt", "d", "--mesh", "2x2", "--tokens", "3", "--batch", "2"]
    words += ["--requests", "3", "--temperature", "3", "--verify", "off"]
    assert main(words) == 0
    out = capsys.readouterr().out.splitlines()
    assert [len(line) for line in out[:3]] == [3, 3, 3]
    assert len(set(out[:3])) > 1
    assert any(line.split()[:2] == ["cycles", "per"] for line in out)
    assert main([*words, "--estimate"]) == 0
    assert "times that" in capsys.readouterr().out


def test_requests_of_a_file_in_regions(model, requests, capsys):
    """The same file without a batch: requests take turns, and get the same tokens."""
    words = [model, "--requests", requests, "--mesh", "3x2", "--tokens", 4, "--regions", 2]
    status, result = generated(capsys, *words)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["answers"][0] == plain([3, 0, 1], 3)
    assert result["answers"][4] == plain([16], 4)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), batch=st.integers(1, 5))
def test_no_lane_is_free_while_somebody_waits(lengths, batch):
    """Every request has its tokens one after the other; the last steps alone have lanes that nobody takes."""
    steps, lanes, left = schedule(lengths, batch), Lanes(batch, len(lengths)), list(lengths)
    for step in steps:
        lanes.fill()
        taken = [holder for holder in lanes.holders if holder is not None]
        assert len(taken) == min(batch, sum(n > 0 for n in left))
        for lane, holder in enumerate(lanes.holders):
            assert step[lane] == (0 if holder is None else lengths[holder] - left[holder])
        for lane, holder in enumerate(list(lanes.holders)):
            if holder is not None:
                left[holder] -= 1
                if not left[holder]:
                    lanes.leave(lane)
    assert not any(left)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "0"], "a batch of 0"),
        (["--batch", "2", "--regions", "2"], "one mesh that has all layers"),
        (["--batch", "2", "--decode-mesh", "2x2"], "one mesh that has all layers"),
        (["--batch", "2", "--prefill", "mesh"], "read by the decoding program"),
        (["--batch", "400", "--mesh", "2x2"], "of a batch of 400 does not fit"),
        (["--batch", "2000", "--mesh", "2x2"], "at most 500"),
        (["--batch", "2", "--requests", "0"], "0 requests"),
        (["--requests", "nothing.jsonl"], "a file of requests has prompts of its own"),
    ],
)
def test_what_is_refused(model, capsys, words, message):
    """One line, nothing run."""
    assert main(["generate", str(model), "--prompt", "a", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_options_that_are_not_modelled_together_are_unsupported(model):
    """Regions and prefill at once are no mistake of the user but not modelled."""
    asked = {"machine": machine(), "model": find_model(str(model)), "mesh": (2, 2), "count": 1, "prompts": [[1]]}
    for options in ({"regions": 2}, {"decode_mesh": (2, 2)}, {"prefill": "mesh"}):
        with pytest.raises(UnsupportedError, match="Try: leave"):
            AnswerRequest(batch=2, **asked, **options)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "2: no JSON"),
        ("[1]", "is no object"),
        ('{"prompt": "a", "token": 3}', "unknown key 'token'"),
        ('{"prompt": "a", "prompt_ids": [1]}', "one of prompt and prompt_ids"),
        ('{"tokens": 3}', "one of prompt and prompt_ids"),
        ('{"prompt": 3}', "2: prompt"),
        ('{"prompt_ids": [99]}', "token 99 is none of the 17"),
        ('{"prompt": "a", "seed": -1}', "2: seed"),
        ('{"prompt": "a", "temperature": "hot"}', "2: temperature"),
        ('{"prompt": ""}', "an empty prompt"),
        ('{"prompt": "a", "tokens": 99}', "the context of the model holds 32"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_line(model, tmp_path, capsys, line, message):
    """File, line and key stand in one line; nothing is run."""
    file = tmp_path / "requests.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n')
    assert main(["generate", str(model), "--requests", str(file), "--batch", "2"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_files_that_are_none(model, tmp_path, capsys):
    """No prompt at all, no file, an empty one, one that is no text."""
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    cases = {(): "there is no prompt", ("--requests", tmp_path / "no"): "neither a number nor a file",
             ("--requests", empty): "it has no request", ("--requests", binary): "no text in UTF-8"}  # fmt: skip
    for words, message in cases.items():
        assert main(["generate", str(model), *map(str, words)]) == 2
        assert message in capsys.readouterr().err


def test_a_plan_knows_a_batch(capsys):
    """Cycles, memory and regions of a batch beside those of one request; a refusal names the largest that fits."""
    words = ["plan", "pydoc", "--inference", "--mesh", "16x16", "--prompt-length", "16", "--tokens", "4"]
    assert main([*words, "--batch", "8", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = facts["batch"]
    assert 1 < found["times_alone"] < 8
    assert found["bytes"] == sum(found["parts"].values()) <= 49152
    assert found["parts"]["cache"] > facts["memory_per_pe"]["parts"]["cache"]
    assert found["tokens_per_s"]["0.85 GHz"] == pytest.approx(8 * 0.85e9 / (4 * found["layer"] + found["beside"]))
    assert main([*words, "--batch", "8"]) == 0
    assert "a batch of 8 would take" in capsys.readouterr().out
    assert main([*words, "--batch", "400"]) == 2
    err = capsys.readouterr().err
    most = int(err.split("--batch ")[1].split()[0])
    assert main([*words, "--batch", str(most), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"]["layers_each"] >= 1
    assert main([*words, "--batch", str(most + 1)]) == 2


def test_a_prompt_in_pieces(model, capsys, tmp_path):
    """Tokens are plain numpy's, and those of a prompt read token by token; the estimate has the same pieces."""
    words = [model, "--prompt", "dabbcdcaqf", "--mesh", "4x3", "--tokens", 3, "--cache", "round"]
    file = tmp_path / "run.h5"
    status, result = generated(capsys, *words, "--chunk", 4, "--out", file)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["max_abs_error"] < result["error_bound"]
    assert result["prompt_read_by"] == "decode, in 3 pieces"
    assert result["tokens"] == plain([LETTERS.index(letter) for letter in "dabbcdcaqf"], 3)
    assert result["program_load"]["words"] > 0
    assert result["expected_cycles"] == pytest.approx(result["cycles"]["tokens"][-1], rel=0.01)
    with RunFile(file) as run:
        assert {f"piece {k} of the prompt" for k in (1, 2, 3)} <= {m.label for m in run.marks()}
    status, alone = generated(capsys, *words, "--prefill", "token")
    assert status == 0
    assert alone["tokens"] == result["tokens"]
    assert alone["cycles"]["tokens"] == result["cycles"]["tokens"]
    status, facts = generated(capsys, *words, "--chunk", 4, "--estimate")
    assert status == 0
    assert facts["prompt_read_by"] == result["prompt_read_by"]
    expected = facts["estimated_cycles"]
    assert expected["prefill"] == pytest.approx(result["cycles"]["prefill"], rel=0.01)
    assert expected["first_token"] == pytest.approx(result["cycles"]["first_token"], rel=0.01)
    assert facts["memory_per_pe"] == result["memory_per_pe"]
    assert main(["generate", *map(str, words), "--chunk", "4"]) == 0
    assert "in 3 pieces" in capsys.readouterr().out
    assert main(["generate", *map(str, words), "--chunk", "4", "--estimate"]) == 0
    assert "first token" in capsys.readouterr().out


@pytest.mark.parametrize("cache", ["shift", "concat"])
def test_pieces_in_other_caches(model, capsys, cache):
    """The same tokens; in a cache that shifts, rows have their blocks at once, and move entries behind the prompt."""
    words = [model, "--prompt", "dabbcdcaqf", "--mesh", "4x3", "--tokens", 5, "--cache", cache, "--chunk", 4]
    status, result = generated(capsys, *words)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["tokens"] == plain([LETTERS.index(letter) for letter in "dabbcdcaqf"], 5)
    status, facts = generated(capsys, *words, "--estimate")
    assert facts["estimated_cycles"]["prefill"] == pytest.approx(result["cycles"]["prefill"], rel=0.01)
    assert facts["estimated_cycles"]["tokens"] == pytest.approx(result["cycles"]["tokens"], rel=0.01)


@pytest.mark.parametrize("prompt", ["a", "ab"])
def test_prompts_shorter_than_a_piece(model, capsys, prompt):
    """A prompt of one token has nothing to read; one of two has one token in its only piece."""
    words = [model, "--prompt", prompt, "--mesh", "3x2", "--tokens", 2, "--cache", "round", "--chunk", 4]
    status, result = generated(capsys, *words)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["tokens"] == plain([LETTERS.index(letter) for letter in prompt], 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--chunk", "1"], "pieces of 1 tokens"),
        (["--chunk", "4", "--cache", "round", "--batch", "2"], "one mesh that then answers it alone"),
        (["--chunk", "4", "--cache", "round", "--regions", "2"], "one mesh that then answers it alone"),
        (["--chunk", "4", "--cache", "round", "--decode-mesh", "2x2"], "one mesh that then answers it alone"),
        (["--chunk", "4", "--cache", "round", "--prefill", "token"], "pieces are another way"),
    ],
)
def test_pieces_that_are_refused(model, capsys, words, message):
    """One line, nothing run."""
    assert main(["generate", str(model), "--prompt", "abc", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
