"""`wse generate --layers-at-a-time`: the answer of a mesh that has all layers, and what loading them takes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder, LayerKind
from harness.cli.main import main
from harness.inference import reloads
from harness.inference.asking import AnswerRequest, Sampling
from harness.inference.estimate import estimate
from harness.inference.generate import answer
from harness.inference.resuming import read_prefix
from harness.kit.console import Progress
from harness.models import presets
from harness.models.configuration import Configuration
from harness.models.hub import find_model
from harness.models.random_model import RandomModel
from tests.examples import few
from tests.fabric.networks.inference.small_models import CLASSIC, random_weights
from tests.harness.inference.saved_models import HOST, LETTERS, saved
from traces.reader import RunFile
from wse_core.errors import ConfigError
from wse_core.params import machine

DECODER = Decoder(24, 3, 4, 2, 8, 20, 17, 32, 1e-5)
LOCAL = Decoder(6, 4, 2, 1, 2, 5, 5, 64, 1e-5, score_cap=2.0, local_base=9.0, tied=True,
                different=(LayerKind(), LayerKind(window=3, local=True)) * 2)  # fmt: skip
EXPERTS = Decoder(22, 2, 4, 2, 4, 9, 17, 64, 1e-5, experts=5, chosen=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model."""
    return saved(tmp_path_factory.mktemp("models") / "letters", DECODER, LETTERS)


def generated(capsys, *words):
    """Return (exit status, JSON)."""
    status = main(["generate", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def asked(decoder, **more):
    """Return a request of a model of random weights."""
    model = RandomModel("random", Configuration(decoder), 1)
    options = {"machine": machine(), "mesh": (3, 2), "prefill": "token", "prompts": [[3, 1, 4]], "count": 3}
    return AnswerRequest(model=model, **(options | more))


def test_an_answer_and_what_loading_took(model, capsys, tmp_path):
    """Tokens, logits and errors are those of a mesh with all layers; the estimate knows words, cycles and memory."""
    words = [model, "--prompt", "dab", "--mesh", "4x3", "--tokens", 3]
    asked, logits = ["--layers-at-a-time", 2], [tmp_path / "a.npz", tmp_path / "b.npz"]
    status, found = generated(capsys, *words, *asked, "--logits", logits[0])
    assert status == 0
    _, whole = generated(capsys, *words, "--prefill", "token", "--logits", logits[1])
    for name in ("tokens", "text", "max_abs_error", "error_bound", "rounding", "steps", "steps_compared", "prompt"):
        assert found[name] == whole[name], name
    assert found["bit_exact"] is True
    assert found["steps_compared"] == 5
    with np.load(logits[0]) as mine, np.load(logits[1]) as other:
        assert mine["logits"].tobytes() == other["logits"].tobytes()
    loads = found["reload"]
    assert whole["reload"] is None
    assert (loads["layers_at_a_time"], loads["groups"], loads["parts_of_output_matrix"]) == (2, 2, 1)
    assert len(loads["token_cycles"]) == len(found["cycles"]["tokens"]) == 2
    total = sum(loads["words"].values())
    assert set(loads["words"]) == {"program", "weights", "cache in", "cache out"}
    every = sum([loads["prefill_cycles"], *loads["token_cycles"]])
    assert 2 * total * 0.85e9 / loads["bytes_per_second"] == pytest.approx(every, abs=3)
    assert loads["seconds"] == pytest.approx(2 * total / 150e9)
    for clock, rate in found["tokens_per_second"].items():
        seconds = np.mean(found["cycles"]["tokens"]) / float(clock.split()[0]) / 1e9
        assert rate == pytest.approx(1 / (seconds + loads["seconds_per_token"]))
    _, facts = generated(capsys, *words, *asked, "--estimate")
    assert facts["reload"] == loads
    assert facts["memory_parts"] == found["memory_parts"]
    assert facts["estimated_cycles"]["prefill"] == pytest.approx(found["cycles"]["prefill"], rel=0.01)
    assert facts["estimated_cycles"]["tokens"] == pytest.approx(found["cycles"]["tokens"], rel=0.01)
    assert found["expected_cycles"] == facts["estimated_cycles"]["tokens"][-1]
    slow = ["--set", "machine.stream.rate=1000000000"]
    _, other = generated(capsys, *words, *asked, *slow)
    assert other["cycles"] == found["cycles"]
    assert other["reload"]["seconds"] == pytest.approx(150 * loads["seconds"])
    assert other["tokens_per_second"]["0.85 GHz"] < found["tokens_per_second"]["0.85 GHz"]


WAYS = (
    (EXPERTS, {"at_a_time": 1, "dtype": "cb16"}),
    (LOCAL, {"at_a_time": 3, "prompts": [[3, 1, 4, 1, 2]], "sample": 2, "count": 5}),
    (CLASSIC[0], {"at_a_time": 1, "policy": "concat", "machine": machine("wse3")}),
    (DECODER, {"at_a_time": 0, "sampling": Sampling(2.0, 4, 5), "policy": "round"}),
    (CLASSIC[2], {"at_a_time": 1, "answers": 2, "mesh": (1, 3)}),
    (DECODER, {"at_a_time": 2, "chunk": 2, "policy": "round", "prompts": [[3, 1, 4, 1, 5]], "prefill": "auto"}),
    (
        LOCAL,
        {"at_a_time": 2, "chunk": 3, "policy": "concat", "prompts": [[3, 1, 4, 1]], "sample": 3, "prefill": "auto"},
    ),
    (DECODER, {"at_a_time": 2, "verify": False, "prompts": [[3]], "count": 1}),
)


@pytest.mark.parametrize(("decoder", "way"), WAYS)
def test_ways_of_an_answer(decoder, way):
    """Models, caches, formats, machines, drawn tokens, samples: as with all layers, and within the estimate."""
    prompts = [[token % decoder.vocabulary for token in prompt] for prompt in way.get("prompts", [[3, 1, 4]])]
    request = asked(decoder, **(way | {"prompts": prompts}))
    found, whole = answer(request), answer(replace(request, at_a_time=None))
    assert found.tokens == whole.tokens
    assert [each.tobytes() for each in found.logits] == [each.tobytes() for each in whole.logits]
    assert found.bit_exact is whole.bit_exact
    if request.chunk is None or request.sample is None:  # a sample has pieces here, which are no steps there
        assert (found.steps, found.steps_compared) == (whole.steps, whole.steps_compared)
    assert found.pieces == (0 if request.chunk is None else -(-len(request.prompt) // request.chunk))
    if whole.max_abs_error is not None and request.sample is None:
        assert found.max_abs_error <= whole.max_abs_error + 1e-12
    facts = estimate(request)
    assert facts.reload.passes == found.reload.passes
    assert facts.reload.words == found.reload.words
    assert facts.prefill == pytest.approx(sum(found.prompt_cycles), rel=0.01)
    assert facts.tokens == pytest.approx(found.token_cycles, rel=0.01)
    assert found.counters["macs"][0].sum() > 0


def test_no_more_than_a_group_is_asked_for_at_a_time(model, monkeypatch):
    """Tensors are read group by group, and a table of tokens by rows."""
    seen = []
    model = find_model(str(model))
    for name, tensor in model.tensors.items():
        monkeypatch.setitem(model.tensors, name, Watched(tensor, name, seen))
    request = AnswerRequest(machine=machine(), model=model, prompts=[[3, 1]], count=1, mesh=(2, 2), at_a_time=1,
                            verify=False)  # fmt: skip
    answer(request)
    layers = [int(name.split(".")[2]) for name, _ in seen if ".layers." in name]
    assert layers == sorted(layers)
    assert [rows for name, rows in seen if "embed" in name] == [1, 1]
    assert {name for name, _ in seen} == set(model.tensors)


class Watched:
    """A tensor that notes when rows of it are read."""

    def __init__(self, tensor, name, seen):
        self.tensor, self.name, self.seen = tensor, name, seen
        self.shape = tensor.shape

    def rows(self, first, last):
        self.seen.append((self.name, last - first))
        return self.tensor.rows(first, last)


def test_a_wrong_bit_is_found(monkeypatch):
    """In what a group hands on, in a cache, in a logit: the status says so."""
    request = asked(DECODER, at_a_time=1)
    for attribute, change in (
        ("take", lambda found: replace(found, states=[x ^ np.uint32(1) for x in found.states])),
        ("answer", lambda found: (replace(found[0], logits=found[0].logits ^ np.uint32(1)), found[1])),
        ("leave", lambda found: found | {"cache": found["cache"] ^ np.uint16(1)}),
    ):
        with monkeypatch.context() as patch:
            kept = getattr(reloads.ReloadedMesh, attribute)
            patch.setattr(
                reloads.ReloadedMesh,
                attribute,
                lambda self, *words, kept=kept, change=change: change(kept(self, *words)),
            )
            found = answer(request)
            # What the host writes back wrong is the cache that both go on with: tokens show it, not a comparison.
            assert found.bit_exact is (attribute == "leave")
            assert attribute != "leave" or found.logits[-1].tobytes() != answer(asked(DECODER)).logits[-1].tobytes()


def test_a_model_too_large_for_its_mesh(tmp_path, capsys):
    """The refusal names the option, and with it the model answers; weights are random, of all layers and tokens."""
    decoder = Decoder(64, 4, 4, 2, 16, 150, 1700, 64, 1e-5)
    directory = saved(tmp_path / "wide", decoder)
    words = ["generate", str(directory), "--prompt-ids", "1,2", "--tokens", "2", "--mesh", "2x3"]
    assert main(words) != 0
    assert "or --layers-at-a-time on this one" in capsys.readouterr().err
    status, result = generated(capsys, *words[1:], "--layers-at-a-time")
    assert status == 0
    assert result["bit_exact"] is True
    assert result["reload"]["groups"] > 1
    assert result["reload"]["parts_of_output_matrix"] > 1
    assert main([*words, "--layers-at-a-time", "--verify", "off"]) == 0
    out = capsys.readouterr().out
    for said in ("groups of", "output matrix in", "words:", "cycles at 150 GB/s", "loading included"):
        assert said in out
    assert main([*words, "--layers-at-a-time", "--estimate"]) == 0
    out = capsys.readouterr().out
    for said in ("groups of", "words:", "loading included", "nothing was run"):
        assert said in out


def test_a_whole_published_model_with_random_weights(capsys, monkeypatch):
    """All layers and all tokens, of the same weights as with all layers in the mesh."""
    monkeypatch.setitem(presets.PRESETS, "Small-1B", replace(DECODER, vocabulary=600))
    words = ["small-1b", "--random-layers", "all", "--prompt-ids", "3,599", "--tokens", 2, "--mesh", "3x2"]
    status, whole = generated(capsys, *words, "--prefill", "token")
    assert status == 0
    assert generated(capsys, *words, "--layers-at-a-time", 1)[1]["tokens"] == whole["tokens"]
    assert main(["generate", "small-1b", "--random-layers", "some", "--prompt-ids", "1"]) == 2
    assert "--random-layers: a number of layers, or all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--regions", "2"], "--regions"),
        (["--decode-mesh", "2x2"], "--decode-mesh"),
        (["--batch", "2"], "--batch"),
        (["--chunk", "2", "--cache", "shift"], "--cache shift"),
        (["--draft", "MODEL"], "--draft"),
        (["--requests", "2"], "--requests"),
        (["--prefill", "mesh"], "--prefill mesh"),
        (["--layers-at-a-time", "4"], "4 of 3 layers at a time"),
        (["--layers-at-a-time", "-1"], "-1 of 3 layers at a time"),
    ],
)
def test_what_is_refused(model, capsys, tmp_path, monkeypatch, words, message):
    """One line with the name of the option, nothing run and nothing left."""
    monkeypatch.chdir(tmp_path)
    words = [{"MODEL": str(model)}.get(word, word) for word in words]
    assert main(["generate", str(model), "--prompt", "ab", "--mesh", "2x2", "--layers-at-a-time", "1", *words]) != 0
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_file_has_all_programs_on_one_clock(model, capsys, tmp_path):
    """Groups, parts and what was loaded have their marks; events and counters are those of all programs."""
    file = tmp_path / "run.h5"
    words = [model, "--prompt-ids", "3,0", "--tokens", 2, "--mesh", "2x2", "--layers-at-a-time", 2]
    _, plain = generated(capsys, *words)
    _, result = generated(capsys, *words, "--out", file, "--trace", "events")
    assert {**result, **HOST} == {**plain, **HOST}
    with RunFile(file) as run:
        phases = [mark for mark in run.marks() if mark.begin < mark.end]
        labels = ["layers 1 to 2, token 1", "layers 1 to 2, token 2", "layers 3 to 3, token 1",
                  "layers 3 to 3, token 2", "logits 0 to 16, token 2"]  # fmt: skip
        assert [mark.label for mark in phases][:5] == labels
        assert all(one.end <= other.begin for one, other in pairwise(phases))
        cycles = sum(mark.end - mark.begin for mark in phases)
        assert cycles == result["cycles"]["prefill"] + sum(result["cycles"]["tokens"]) == run.result("cycles")
        loaded = [mark for mark in run.marks() if "loaded" in mark.label]
        assert len(loaded) == 6
        words = sum(int(mark.label.split(" words")[0].split()[-1]) for mark in loaded)
        out = result["reload"]["words"]["cache out"]
        assert words + out == run.result("reload_words").sum() == sum(result["reload"]["words"].values())
        assert run.result("tokens").tolist() == plain["tokens"]
        assert run.counter("macs").values.sum() > 0
        assert run.has_events


def test_a_sample_may_have_no_step_that_answers(capsys, monkeypatch, tmp_path):
    """Then there is no logit to compare with plain numpy, and nothing is said of one."""
    monkeypatch.setitem(presets.PRESETS, "Small-1B", DECODER)
    words = ["small-1b", "--random-layers", "all", "--prompt-ids", "3,4,5", "--tokens", 1, "--mesh", "2x2",
             "--layers-at-a-time", 1, "--verify", "sample", "--seed", 3, "--out", tmp_path / "run.h5"]  # fmt: skip
    status, found = generated(capsys, *words)
    assert status == 0
    assert (found["bit_exact"], found["max_abs_error"]) == (True, None)
    assert 1 <= found["steps_compared"] < found["steps"] == 3
    assert main(["generate", *map(str, words)]) == 0
    assert "largest error" not in capsys.readouterr().out


class Ending(Progress):
    """Interrupts behind a number of steps."""

    def __init__(self, after):
        self.left = after

    def update(self, done, total=None, **_):
        assert 0 < done <= total
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


KEPT = (
    (DECODER, {"at_a_time": 2, "count": 5, "sampling": Sampling(2.0, 4, 5)}),
    (LOCAL, {"at_a_time": 3, "count": 5, "chunk": 2, "policy": "round", "prompts": [[3, 1, 4]], "prefill": "auto"}),
    (DECODER, {"at_a_time": 1, "count": 4, "sample": 2, "policy": "concat"}),
)


def facts(found):
    """Return all that can be seen of an answer, but for what it took the host."""
    counters = {name: (values.tolist(), unit) for name, (values, unit) in found.counters.items()}
    others = {
        name: value for name, value in vars(found).items() if name not in ("host_seconds", "step_seconds", "resumed")
    }
    others["max_abs_error"] = found.max_abs_error and pytest.approx(found.max_abs_error, rel=1e-6)
    return others | {"counters": counters, "logits": [each.tobytes() for each in found.logits]}


@pytest.mark.parametrize(("decoder", "way"), few(KEPT, 2))
def test_it_goes_on_from_a_file(tmp_path, decoder, way):
    """Interrupted in any pass but the first: tokens, logits, cycles, counters and words are those of a whole."""
    prompts = [[token % decoder.vocabulary for token in prompt] for prompt in way.get("prompts", [[3, 1, 4]])]
    request = asked(decoder, **(way | {"prompts": prompts}))
    whole, kept = answer(request), replace(request, file=tmp_path / "a.npz")
    parts = whole.reload.groups + whole.reload.parts
    with pytest.raises(KeyboardInterrupt):  # the prompt, and a part of the next pass
        answer(kept, progress=Ending(len(whole.prompt_cycles) * whole.reload.groups + whole.reload.parts + 1))
    with pytest.raises(KeyboardInterrupt):
        answer(kept, progress=Ending(parts + 1))
    heard = []
    found = answer(kept, lambda number, token: heard.append((number, token)))
    assert found.resumed == len(request.prompt) + 1
    assert heard == list(enumerate(whole.tokens, 1))
    assert facts(found) == facts(whole)
    again = answer(kept)  # nothing is left to do
    assert facts(again) == facts(whole)


@pytest.mark.parametrize(
    ("decoder", "way"),
    [
        (DECODER, {"at_a_time": 2, "cache_dtype": "int8"}),
        (LOCAL, {"at_a_time": 3, "policy": "round", "chunk": 2, "prefill": "auto"}),
    ],
)
def test_a_prompt_goes_on_behind_what_was_read(tmp_path, decoder, way):
    """Tokens, logits and cycles are those of a prompt that is read token by token, and what is loaded is reckoned."""
    first = asked(decoder, count=2, **way, file=tmp_path / "a.npz")
    read = answer(first)
    prefix = read_prefix(first.file)
    plain = replace(first, file=None, chunk=None, prefill="token", count=3, prompts=[[*prefix.tokens, 2, 0]])
    request = replace(plain, prefix=prefix, file=tmp_path / "b.npz")
    found, whole, form = answer(request), answer(plain), estimate(request)
    assert (found.reused, found.reused_cycles) == (4, sum(read.prompt_cycles) + sum(read.token_cycles))
    assert found.tokens == whole.tokens
    assert [each.tobytes() for each in found.logits] == [each.tobytes() for each in whole.logits]
    assert found.bit_exact is True
    assert (found.steps, found.steps_compared) == (4, 4)
    assert len(found.prompt_cycles) == 2
    assert sum(found.prompt_cycles) < sum(whole.prompt_cycles)
    assert found.token_cycles == whole.token_cycles
    assert form.prefill == pytest.approx(sum(found.prompt_cycles), rel=0.02)
    assert form.tokens == pytest.approx(found.token_cycles, rel=0.01)
    again = replace(request, prompts=[[*request.prompt, *found.tokens, 1]], prefix=read_prefix(request.file), file=None)
    assert answer(again).bit_exact is True  # a conversation goes on
    unkept = replace(request, file=None)
    assert vars(answer(unkept).reload) == vars(form.reload)


def test_a_prefix_that_does_not_go_on_is_refused(tmp_path):
    """A file of a prompt in pieces alone, or of other layers at a time."""
    pieces = asked(DECODER, at_a_time=2, count=1, chunk=2, policy="round", prefill="auto", file=tmp_path / "b.npz")
    answer(pieces)
    behind = replace(pieces, file=None, chunk=None, prompts=[[*pieces.prompt, 1]], prefix=read_prefix(pieces.file))
    with pytest.raises(ConfigError, match="--prefix: .*a prompt in pieces, and nothing of what goes on"):
        answer(behind)
    with pytest.raises(ConfigError, match="--prefix.*another --layers-at-a-time: 2 there, 1 now"):
        answer(replace(behind, at_a_time=1))


def test_an_answer_grows(tmp_path):
    """With more tokens it goes on behind the last one, in wider rows; a file of other layers at a time is refused."""
    request = asked(DECODER, at_a_time=2, count=2, mesh=(2, 1), file=tmp_path / "a.npz")
    answer(request)
    longer = replace(request, count=6)
    found, whole = answer(longer), answer(replace(longer, file=None))
    assert found.resumed == 4
    assert found.tokens == whole.tokens
    assert [each.tobytes() for each in found.logits] == [each.tobytes() for each in whole.logits]
    assert found.bit_exact is True
    for more in ({"at_a_time": 1}, {"at_a_time": None}):
        with pytest.raises(ConfigError, match="--layers-at-a-time"):
            answer(replace(longer, **more))
    pieces = replace(request, count=1, chunk=2, policy="round", prefill="auto", file=tmp_path / "b.npz")
    answer(pieces)
    with pytest.raises(ConfigError, match="--tokens: the file has what 2 layers at a time keep of fewer tokens"):
        answer(replace(pieces, count=2))
    with pytest.raises(ConfigError, match="--prefix.*--layers-at-a-time"):
        prefix = read_prefix(request.file)
        answer(asked(DECODER, mesh=(2, 1), prefix=prefix, prompts=[[*prefix.tokens, 1]]))


def test_what_is_interrupted_leaves_nothing(model, capsys, tmp_path, monkeypatch):
    """Neither a run file nor logits, and nothing that is half-written."""
    monkeypatch.setattr("harness.cli.cmd_generate.make_progress", lambda *_: Ending(4))
    words = ["generate", str(model), "--prompt", "ab", "--mesh", "2x2", "--layers-at-a-time", "1"]
    words += ["--out", str(tmp_path / "run.h5"), "--logits", str(tmp_path / "l.npz")]
    main(words)
    assert not list(tmp_path.iterdir())


def test_text_comes_as_it_is_found(model):
    """Each token is heard of when it is there."""
    heard = []
    request = AnswerRequest(machine=machine(), model=find_model(str(model)), prompts=[[3]], count=3, mesh=(2, 2),
                            at_a_time=1, verify=False)  # fmt: skip
    found = answer(request, lambda number, token: heard.append((number, token)))
    assert heard == list(enumerate(found.tokens, 1))


def test_weights_that_no_format_has_are_named(tmp_path, capsys):
    """With their place in the whole tensor, though it is read by rows."""
    weights = random_weights(DECODER)
    weights["lm_head.weight"][11, 3] = 1e6
    directory = saved(tmp_path / "large", DECODER, weights=weights)
    assert main(["generate", str(directory), "--prompt-ids", "1", "--mesh", "2x2", "--layers-at-a-time"]) != 0
    err = capsys.readouterr().err
    assert "lm_head.weight" in err
    assert "[11, 3]" in err
