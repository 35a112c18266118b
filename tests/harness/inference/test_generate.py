"""`wse generate`: tokens of the wafer are those of numpy; what cannot be answered is said in one line."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli.main import main
from harness.inference.asking import AnswerRequest
from harness.inference.generate import answer
from harness.kit.console import Progress
from harness.models import presets
from harness.models.hub import find_model
from harness.models.plain import PlainDecoder
from tests.fabric.networks.inference.small_models import random_weights, rounded
from tests.harness.inference.saved_models import HOST, LETTERS, saved
from traces.reader import RunFile
from traces.trace import Trace
from wse_core.params import machine

DECODER = Decoder(24, 2, 4, 2, 8, 20, 17, 32, 1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model, with letters as tokens."""
    directory = tmp_path_factory.mktemp("models") / "letters"
    return saved(directory, DECODER, LETTERS)


def generated(capsys, *words):
    """Return (exit status, JSON)."""
    status = main(["generate", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_prompt_that_is_read_at_once_says_how_far_it_is(model, monkeypatch):
    """Of the cycles that are reckoned for it, within the run's."""
    monkeypatch.setattr("fabric.host.running.PIECE_SECONDS", 1e-3)
    seen = []

    class Seen(Progress):
        def phase(self, text):
            seen.append(text)

        def update(self, done, total=None, **facts):
            seen.append((done, total))

    request = AnswerRequest(
        machine=machine(), model=find_model(str(model)), prompts=[[3, 0, 1]], count=1, mesh=(4, 3), verify=False
    )
    found = answer(request, progress=Seen())
    assert "prompt, at once" in seen
    shares = seen[seen.index("prompt, at once") + 1 : seen.index("prompt and answer")]
    assert shares
    assert shares == sorted(shares)
    assert all(done <= total == pytest.approx(found.prompt_cycles[0], rel=0.03) for done, total in shares)


def test_tokens_are_those_of_numpy(model, capsys, tmp_path):
    """Text in, text out; cycles of every step; logits near plain numpy and equal to the oracle's."""
    file = tmp_path / "logits.npz"
    status, result = generated(
        capsys,
        model,
        "--prompt",
        "dab",
        "--mesh",
        "4x3",
        "--tokens",
        6,
        "--logits",
        file,
        "--set",
        "machine.clock.ghz=1",
    )
    assert status == 0
    assert result["bit_exact"] is True
    assert result["prompt"] == [3, 0, 1]
    weights = rounded(random_weights(DECODER), "f16")
    tokens, logits = PlainDecoder(DECODER, weights, np.float64).generate([3, 0, 1], 6)
    assert result["tokens"] == tokens
    assert result["text"] == "".join(LETTERS[token] for token in tokens)
    cycles = result["cycles"]
    assert result["prompt_read_by"] == "prefill, at once"
    assert len(cycles["tokens"]) == 5
    assert 0 < cycles["transition"] < cycles["first_token"] < min(cycles["tokens"])
    assert min(cycles["tokens"]) > 1000
    assert result["expected_cycles"] == pytest.approx(cycles["tokens"][-1], rel=0.05)
    assert 2 * sum(result["layer_cycles"].values()) == pytest.approx(cycles["tokens"][-1], rel=0.3)
    assert min(cycles["tokens"]) < cycles["prefill"] < 3 * min(cycles["tokens"])
    assert result["program_load"]["cycles"] == 4 * result["program_load"]["words"] / 2
    with np.load(file) as found:
        assert np.abs(found["logits"] - logits).max() == pytest.approx(result["max_abs_error"], rel=0.5)
        assert found["logits"].shape == (6, 17)
    assert result["max_abs_error"] < 0.02
    assert 0 < result["error_share"] < 1
    assert result["max_abs_error"] < result["error_bound"] < 0.05 * np.ptp(logits)
    assert result["logits_read"] is None
    assert sum(result["memory_parts"].values()) == result["memory_per_pe"] < 49152
    mean = np.mean(cycles["tokens"])
    assert result["tokens_per_second"]["1.0 GHz"] == pytest.approx(1e9 / mean)


def test_a_prompt_read_token_by_token(model, capsys):
    """The decoding program reads it too: the same tokens, no transition, more cycles; an unknown way is refused."""
    words = [model, "--prompt-ids", "3,0,1,7,7,2", "--tokens", 4, "--mesh", "4x3"]
    (status, one), (other, two) = (generated(capsys, *words, "--prefill", way) for way in ("token", "mesh"))
    assert status == other == 0
    assert one["tokens"] == two["tokens"]
    assert one["prompt_read_by"] == "decode, token by token"
    assert one["cycles"]["transition"] == one["cycles"]["first_token"] == 0
    assert one["program_load"] is None
    assert one["cycles"]["prefill"] > 6 * min(one["cycles"]["tokens"]) * 0.9
    assert one["cycles"]["prefill"] > sum(two["cycles"][part] for part in ("prefill", "transition", "first_token"))


def test_a_prompt_that_does_not_fit_is_read_token_by_token(tmp_path, capsys):
    """Where the program of prompts needs too much memory, the decoding one reads; asked for, it is refused."""
    decoder = Decoder(8, 1, 8, 1, 8, 8, 9, 256, 1e-5)
    saved(tmp_path / "heads", decoder)
    words = [
        tmp_path / "heads",
        "--prompt-ids",
        ",".join(["1"] * 40),
        "--tokens",
        1,
        "--mesh",
        "1x1",
        "--verify",
        "off",
    ]
    status, result = generated(capsys, *words)
    assert status == 0
    assert result["prompt_read_by"] == "decode, token by token"
    assert main(["generate", *map(str, words), "--prefill", "mesh"]) != 0
    err = capsys.readouterr().err
    assert "reading 40 tokens at once does not fit into 1 x 1 PEs" in err
    assert "for scores (" in err


def test_meshes_caches_and_formats_agree(model, capsys):
    """The same tokens on other meshes, with other caches and with the other 16-bit format."""
    found = set()
    for words in (["--mesh", "1x2"], ["--mesh", "5x2", "--cache", "concat"], ["--mesh", "2x4", "--dtype", "cb16"]):
        status, result = generated(capsys, model, "--prompt-ids", "3,0,1", "--tokens", 4, *words)
        assert status == 0
        found.add(tuple(result["tokens"]))
    assert len(found) == 1


def test_drawing_repeats_with_its_seed(model, capsys):
    """Temperature draws; the same seed draws the same, and top-k 1 is the likeliest."""
    words = [model, "--prompt-ids", "3", "--tokens", 8, "--mesh", "3x2", "--verify", "off"]
    hot = [generated(capsys, *words, "--temperature", 3, "--seed", seed)[1]["tokens"] for seed in (1, 1, 2)]
    assert hot[0] == hot[1] != hot[2]
    greedy = generated(capsys, *words)[1]
    drawn = generated(capsys, *words, "--temperature", 3, "--top-k", 1)[1]
    assert drawn["tokens"] == greedy["tokens"]
    assert drawn["logits_read"] == {"bytes_per_token": 4 * 17, "cycles_per_token": 6}  # even shares of three columns
    assert greedy["logits_read"] is None
    assert greedy["bit_exact"] is None
    assert len(greedy["step_seconds"]) == 8
    assert 0 < sum(greedy["step_seconds"]) < greedy["host_seconds"]


def test_text_streams_and_a_table_follows(model, capsys):
    """Without --json the text comes first, then what it took."""
    assert main(["generate", str(model), "--prompt", "da", "--tokens", "3", "--mesh", "2x2"]) == 0
    out = capsys.readouterr().out
    first, rest = out.split("\n", 1)
    assert len(first) == 3
    assert "cycles per token" in rest
    assert "bits as numpy's    yes" in rest
    assert re.search(r"host seconds +[0-9.]+, [0-9.]+ a step$", rest, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", ""], "an empty prompt"),
        (["--prompt", "z"], "no token for 'z'"),
        (["--prompt-ids", "3,x"], "no list of tokens"),
        (["--prompt-ids", "17"], "token 17 is none of the 17"),
        (["--prompt", "a", "--mesh", "4by4"], "'4by4' is no mesh"),
        (["--prompt", "a", "--tokens", "0"], "0 tokens to generate"),
        (["--prompt", "a", "--tokens", "40"], "context of the model holds 32. Try: at most 31 tokens of answer."),
        (["--prompt", "abc", "--tokens", "30"], "Try: at most 2 tokens of prompt or 29 tokens of answer."),
        (["--prompt", "a", "--temperature", "-1"], "no temperature"),
        (["--prompt", "a", "--logits", "nowhere/at/all.npz"], "directory does not exist"),
        (["--prompt", "a", "--mesh", "800x1"], "800"),
    ],
)
def test_what_cannot_be_answered(model, capsys, words, message):
    """One line, exit status 2."""
    assert main(["generate", str(model), *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_tokens_without_a_text_are_not_answered(capsys, tmp_path):
    """A vocabulary padded beyond the tokenizer's: only tokens that have a text come, likeliest or drawn."""
    directory = tmp_path / "padded"
    saved(directory, DECODER, LETTERS[:5])
    likeliest = PlainDecoder(DECODER, rounded(random_weights(DECODER), "f16")).generate([3, 0, 1], 6)[0]
    assert max(likeliest) >= 5
    words = [directory, "--prompt", "dab", "--mesh", "3x2", "--tokens", 6]
    for more in ([], ["--temperature", 5]):
        status, result = generated(capsys, *words, *more)
        assert status == 0
        assert result["bit_exact"] is True
        assert max(result["tokens"]) < 5


def test_progress_is_shown_when_it_is_asked_for(model, capsys):
    """With --progress the steps are counted on standard error; standard output stays one JSON object."""
    words = ["generate", str(model), "--prompt-ids", "3,0", "--tokens", "2", "--mesh", "2x2", "--progress", "--json"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["tokens"]) == 2
    assert "weights and programs of 2 x 2 PEs" in err
    assert main([*words[:-1], "--no-progress"]) == 0
    assert capsys.readouterr().err == ""


def test_a_preset_has_no_weights_here(capsys):
    """A published model is answered with the command that knows its sizes."""
    assert main(["generate", "LLaMA3-8B", "--prompt", "a"]) == 2
    assert "wse plan LLaMA3-8B --inference" in capsys.readouterr().err


def test_what_does_not_fit_names_tensor_and_mesh(tmp_path, capsys):
    """The message has the tensor, the PE, its bytes and the smallest mesh; on that mesh it runs."""
    decoder = Decoder(64, 2, 4, 2, 16, 150, 40, 64, 1e-5)
    directory = tmp_path / "wide"
    saved(directory, decoder)
    words = ["generate", str(directory), "--prompt-ids", "1,2", "--tokens", "3", "--verify", "off"]
    assert main([*words, "--mesh", "1x1"]) != 0
    err = capsys.readouterr().err
    assert "PE (0, 0) needs" in err
    assert "the most of them for gate_up (" in err
    mesh = err.split("with 4 tokens is ")[1].split(".")[0].replace(" ", "")
    assert main([*words, "--mesh", mesh]) == 0


def test_layers_of_a_published_model_with_random_weights(capsys, monkeypatch):
    """True sizes need no weights: the same seed gives the same bits, and what cannot be is said in a line."""
    small = Decoder(24, 3, 4, 2, 8, 20, 32000, 32, 1e-5)
    monkeypatch.setitem(presets.PRESETS, "Small-1B", small)
    words = ["small-1b", "--random-layers", 2, "--prompt-ids", "3,500", "--tokens", 3, "--mesh", "3x2"]
    status, first = generated(capsys, *words)
    assert status == 0
    assert first["bit_exact"] is True
    assert first["model"] == "Small-1B"
    assert generated(capsys, *words)[1]["tokens"] == first["tokens"]
    assert generated(capsys, *words, "--seed", 1)[1]["tokens"] != first["tokens"]
    assert main(["generate", "small-1b", "--random-layers", "4", "--prompt-ids", "1"]) == 2
    assert "1 to 3" in capsys.readouterr().err
    assert main(["generate", "small-1b", "--random-layers", "1", "--prompt", "a"]) == 2
    assert "has no tokenizer" in capsys.readouterr().err


def test_a_run_file_has_the_answer_and_the_counters(model, capsys, tmp_path):
    """Recorded in full, the tokens and cycles are those of a run that is not recorded, and events are there."""
    file = tmp_path / "run.h5"
    words = [model, "--prompt-ids", "3,0", "--tokens", 2, "--mesh", "2x2"]
    _, plain = generated(capsys, *words)
    _, result = generated(capsys, *words, "--out", file, "--trace", "events")
    assert {**result, **HOST} == {**plain, **HOST}
    with RunFile(file) as run:
        assert run.result("tokens").tolist() == plain["tokens"]
        assert run.result("step_cycles").sum() == plain["cycles"]["prefill"] + sum(plain["cycles"]["tokens"])
        assert run.result("transition_cycles") == plain["cycles"]["transition"] > 0
        assert run.counter("macs").values.sum() > 0
        assert run.has_events


def test_a_run_file_has_both_programs_on_one_clock(model, capsys, tmp_path):
    """Events of prompt and answer follow one another, phases have their names and cycles, windows add up."""
    file = tmp_path / "run.h5"
    words = [model, "--prompt-ids", "3,0,1", "--tokens", 3, "--mesh", "2x2"]
    options = ["--trace", "events", "--trace-kinds", "task_start,task_end", "--trace-window", 500]
    _, result = generated(capsys, *words, "--out", file, *options)
    cycles = result["cycles"]
    with Trace.open(file) as trace, RunFile(file) as run:
        phases = {m.label: m for m in run.marks() if m.begin < m.end}
        lengths = [m.end - m.begin for m in phases.values()]
        assert list(phases) == ["prefill", "transition", "first token", "token 2", "token 3"]
        assert lengths == [cycles["prefill"], cycles["transition"], cycles["first_token"], *cycles["tokens"]]
        assert any("words loaded" in m.label for m in run.marks())
        behind = phases["transition"].begin
        assert behind == 500 * -(-phases["prefill"].end // 500)  # with the next window
        starts = trace.events(kinds=["task_start"])["cycle"]
        assert np.count_nonzero(starts < phases["prefill"].end) == np.count_nonzero(starts >= behind) == 4  # PEs
        assert set(trace.names["tasks"].values()) == {"prompt", "token"}
        windows = run.counter("macs").values
        assert 500 * (len(windows) - 2) < phases["token 3"].end <= 500 * len(windows)  # the way to the next position
    plain = generated(capsys, *words, "--out", tmp_path / "plain.h5")[1]
    assert plain["cycles"] == cycles
    with RunFile(tmp_path / "plain.h5") as whole:
        assert np.array_equal(windows.sum(axis=0), whole.counter("macs").values[0])
    assert main(["view", str(file)]) == 0
    page = capsys.readouterr().out
    assert all(f"  {label}" in page for label in phases)
    assert main(["view", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["phases"]
    assert [(p["label"], p["end"] - p["begin"]) for p in told] == list(zip(phases, lengths, strict=True))


def test_decoding_goes_on_on_another_mesh(model, capsys, tmp_path):
    """The prompt on one mesh, the answer on another: the same tokens; keys and values move, and that is counted."""
    file = tmp_path / "run.h5"
    words = [model, "--prompt", "dabqe", "--mesh", "4x3", "--tokens", 4]
    _, one = generated(capsys, *words)
    status, two = generated(capsys, *words, "--decode-mesh", "3x5", "--out", file)
    assert status == 0
    assert two["bit_exact"] is True
    assert two["tokens"] == one["tokens"]
    assert (two["mesh"], two["decode_mesh"], one["decode_mesh"]) == ("4x3", "3x5", "4x3")
    assert two["prompt_read_by"] == "prefill, at once"
    assert two["program_load"] is None  # both programs are there from the beginning
    assert two["moved_bytes"] == 4 * DECODER.layers * 2 * DECODER.kv_features * 2
    cycles = two["cycles"]
    assert len(cycles["tokens"]) == 3
    assert 0 < cycles["transition"] < cycles["prefill"]
    assert cycles["first_token"] == pytest.approx(cycles["tokens"][0], rel=0.1)  # a step like the others
    assert two["expected_cycles"] == pytest.approx(cycles["tokens"][-1], rel=0.05)
    with RunFile(file) as run:
        labels = [m.label for m in run.marks()]
        assert labels == ["prefill", "transition", "token 1", "token 2", "token 3", "token 4"]
        assert run.result("transition_cycles") == cycles["transition"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--decode-mesh", "4by4"], "--decode-mesh: '4by4' is no mesh"),
        (["--decode-mesh", "2x2", "--regions", "2"], "not with --decode-mesh"),
        (["--decode-mesh", "2x2", "--prefill", "token"], "nothing is read on the first mesh"),
        (["--decode-mesh", "756x2"], "take 764 x 8 PEs side by side; the wafer has 757"),
        (["--decode-mesh", "2x2", "--prompt-ids", "1"], "a prompt of one token"),
    ],
)
def test_what_another_mesh_refuses(model, capsys, words, message):
    """One line, exit status not 0."""
    prompt = [] if "--prompt-ids" in words else ["--prompt", "dab"]
    assert main(["generate", str(model), *prompt, *words]) != 0
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
