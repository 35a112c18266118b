"""`wse generate --draft`: tokens that a smaller model guesses are those without it, and cost what steps cost."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.cli import generate_speculation
from harness.cli.main import main
from harness.inference.asking import AnswerRequest, Sampling
from harness.inference.estimate import estimate_speculation
from harness.inference.generate import answer
from harness.inference.resuming import read_prefix
from harness.models.configuration import Configuration
from harness.models.hub import find_model, save_model
from tests.examples import few
from tests.fabric.networks.inference.small_models import random_weights
from tests.harness.inference.saved_models import LETTERS, saved
from traces.reader import RunFile
from wse_core.errors import PlanError
from wse_core.params import machine

DECODER = Decoder(24, 2, 4, 2, 8, 20, 17, 40, 1e-5)
SMALL = Decoder(8, 1, 2, 1, 4, 6, 17, 40, 1e-5)
WITHIN = 0.01


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return directories: a model, the same, one that is nearly the same, a smaller one, one of other tokens."""
    room, weights = tmp_path_factory.mktemp("models"), random_weights(DECODER)
    rng = np.random.default_rng(1)
    near = {name: values + 0.08 * rng.standard_normal(values.shape) for name, values in weights.items()}
    other = Decoder(8, 1, 2, 1, 4, 6, 16, 40, 1e-5)
    return {
        "model": saved(room / "model", DECODER, LETTERS, weights),
        "near": saved(room / "near", DECODER, LETTERS, near),
        "small": saved(room / "small", SMALL, LETTERS, random_weights(SMALL, 3)),
        "short": saved(room / "short", Decoder(8, 1, 2, 1, 4, 6, 17, 9, 1e-5), LETTERS, random_weights(SMALL, 3)),
        "other": saved(room / "other", other),
    }


def asked(models, name="model", **options):
    """Return a request."""
    given = {"machine": machine(), "model": find_model(str(models[name])), "prompts": [[3, 0, 1, 7, 5]], "count": 9,
             "mesh": (3, 2), "policy": "round"}  # fmt: skip
    return AnswerRequest(**given | options)


@pytest.mark.parametrize(
    ("draft", "ahead", "policy", "sampling"),
    few(
        [
            ("model", 3, "round", Sampling()),
            ("near", 3, "concat", Sampling(0.7, 6, 5)),
            ("small", 3, "round", Sampling(2.0, 0, 7)),
            ("near", 4, "round", Sampling()),
            ("small", 2, "concat", Sampling()),
        ],
        4,
    ),
)
def test_tokens_are_those_without_a_draft(models, draft, ahead, policy, sampling):
    """Whoever guesses, and however tokens are drawn: the same tokens and logits, bit by bit; steps at their price."""
    options = {"policy": policy, "sampling": sampling}
    found = answer(asked(models, draft=find_model(str(models[draft])), ahead=ahead, draft_mesh=(2, 2), **options))
    alone = answer(asked(models, prefill="token", **options))
    assert found.tokens == alone.tokens
    assert np.array_equal(found.logits, alone.logits)
    assert found.bit_exact is True
    assert found.max_abs_error < found.error_bound
    assert sum(found.checks) == pytest.approx(found.expected["model"], rel=WITHIN)
    assert sum(found.guesses) == pytest.approx(found.expected["draft"], rel=WITHIN)
    assert found.alone == pytest.approx(alone.token_cycles[-1], rel=WITHIN)
    # Each check gives one token, and one more for each guess that is right.
    assert len(found.checks) + found.accepted == len(found.tokens)
    assert len(found.guesses) == found.guessed
    if draft == "model" and sampling == Sampling():  # on another mesh sums have another order, and hardly another end
        assert found.acceptance > 0.5
        assert len(found.checks) < len(found.tokens)
    if (draft, policy) == ("near", "round"):
        assert 0 < found.acceptance < 1


@pytest.mark.parametrize(
    ("policy", "prefill", "more"),
    [
        ("round", "token", {"verify": True}),
        ("concat", "token", {"cache_dtype": "int8", "dtype": "cb16"}),
        ("round", "mesh", {"sample": 1}),
    ],
)
def test_a_prompt_begins_with_what_was_read(models, tmp_path, policy, prefill, more):
    """The larger model goes on behind another answer, the draft reads all: tokens, bits and cycles without a file."""
    options = {"policy": policy} | more
    first = answer(asked(models, count=3, prefill=prefill, file=tmp_path / "a.npz", **options))
    prefix = read_prefix(tmp_path / "a.npz")
    guessed = {"draft": find_model(str(models["small"])), "ahead": 3, "draft_mesh": (1, 1), "count": 3}
    plain = asked(models, **(options | guessed | {"prompts": [[*prefix.tokens, 2, 6]]}))
    request = replace(plain, prefix=prefix)
    found = answer(request)
    assert found.bit_exact is True
    assert (found.reused, found.reused_cycles) == (7, prefix.cycles)
    alone = answer(replace(request, draft=None, draft_mesh=None, verify=False, sample=None))
    assert found.tokens == alone.tokens
    assert np.array_equal(found.logits, alone.logits)
    assert sum(found.checks) == pytest.approx(found.expected["model"], rel=WITHIN)
    if prefill == "token":
        whole = answer(plain)
        assert (found.tokens, found.checks, found.guesses) == (whole.tokens, whole.checks, whole.guesses)
        assert np.array_equal(found.logits, whole.logits)
        assert found.prompt_cycles["draft"] == whole.prompt_cycles["draft"]
        assert found.prompt_cycles["model"] < whole.prompt_cycles["model"] / 2
    said = generate_speculation.result_of(request, found)
    assert said["reused"]["tokens"] == 7
    assert "7 of the prompt's tokens" in dict(generate_speculation.rows(said, request.machine))["reused"]
    assert sum(first.token_cycles) < prefix.cycles


def test_an_answer_ends_where_it_ends(models, tmp_path):
    """A token that ends the answer ends it, also amid guesses; one token needs no guess; one of prompt is enough."""
    tokens = answer(asked(models, prefill="token", verify=False)).tokens
    end = tokens[3]
    directory = saved(tmp_path / "ending", DECODER, LETTERS, random_weights(DECODER), stops=(end,))
    own = find_model(str(directory))
    found = answer(asked(models, model=own, draft=find_model(str(models["model"])), ahead=4))
    assert found.tokens == tokens[: tokens.index(end) + 1]
    assert found.bit_exact is True
    one = answer(asked(models, draft=find_model(str(models["small"])), ahead=4, count=1))
    assert (one.tokens, one.guesses, len(one.checks)) == (tokens[:1], [], 1)
    short = asked(models, draft=find_model(str(models["small"])), ahead=2, prompts=[[3]], count=4, draft_mesh=(2, 2))
    assert answer(short).tokens == answer(asked(models, prompts=[[3]], count=4, prefill="token")).tokens


def test_what_the_command_says(models, capsys, tmp_path):
    """Acceptance, cycles of both models and the token without a draft; a run file; what a round must give."""
    file = tmp_path / "run.h5"
    words = ["generate", models["model"], "--draft", models["near"], "--ahead", 3, "--draft-mesh", "3x2", "--prompt",
             "dabc", "--mesh", "4x3", "--tokens", 5, "--cache", "round"]  # fmt: skip
    words = [str(word) for word in words]
    assert main([*words, "--json", "--out", str(file)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bit_exact"] is True
    assert result["text"] == "".join(LETTERS[token] for token in result["tokens"])
    assert result["acceptance"] == result["accepted"] / result["guessed"]
    cycles = result["cycles"]
    assert cycles["answer"] == sum(cycles["checks"]) + sum(cycles["guesses"]) == 5 * result["cycles_per_token"]
    assert cycles["prefill"] == max(cycles["prompts"].values())
    with RunFile(file) as run:
        assert {m.track for m in run.marks()} == {"model", "draft"}
        assert run.result("accepted").tolist() == [result["accepted"], result["guessed"]]
    assert main(words) == 0
    assert "accepted" in capsys.readouterr().out
    assert main([*words, "--estimate", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    expected = facts["estimated_cycles"]
    assert expected["check"] == pytest.approx(cycles["checks"][0], rel=0.03)  # behind another text
    assert expected["round"] == pytest.approx(expected["check"] + 2 * expected["guess"], rel=0.03)
    assert expected["alone"] == pytest.approx(cycles["alone"], rel=0.01)
    assert facts["memory_per_pe"] == result["memory_per_pe"]
    assert main([*words, "--estimate"]) == 0
    assert "worth it" in capsys.readouterr().out


def test_a_small_draft_of_a_deep_model_pays(tmp_path):
    """By prices, on 32 x 32 PEs: a round of three guesses and a check takes less than their four tokens alone."""
    deep, shallow = Decoder(64, 16, 4, 4, 16, 64, 64, 64, 1e-5), Decoder(32, 1, 2, 2, 16, 32, 64, 64, 1e-5)
    found = []
    for name, decoder in (("deep", deep), ("shallow", shallow)):
        weights = {key: values.astype(np.float32) for key, values in random_weights(decoder).items()}
        save_model(tmp_path / name, Configuration(decoder), weights)
        found.append(find_model(str(tmp_path / name)))
    request = AnswerRequest(machine=machine(), model=found[0], prompts=[[1, 2]], count=30, mesh=(32, 32),
                            policy="round", draft=found[1], ahead=4)  # fmt: skip
    prices = estimate_speculation(request)
    assert prices.round < 4 * prices.alone
    assert prices.guess < prices.alone < prices.check < prices.round


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ahead", "1"], "guess nothing"),
        (["--draft", "other"], "16 tokens, the model has 17"),
        (["--draft", "short", "--tokens", "12"], "its context holds 9 of 12 tokens"),
        (["--cache", "shift"], "cache whose entries move"),
        (["--batch", "2"], "a draft guesses one answer"),
        (["--regions", "2"], "a draft guesses one answer"),
        (["--decode-mesh", "2x2"], "a draft guesses one answer"),
        (["--chunk", "2"], "a draft guesses one answer"),
        (["--prefill", "token"], "prompts are read in pieces"),
        (["--draft-mesh", "2x990"], "rows and 990 of the draft below"),
        (["--requests", "2"], "prompts without regions"),
    ],
)
def test_what_is_refused(models, capsys, words, message):
    """One line, nothing run."""
    words = [str(models.get(word, word)) for word in words]
    if "--draft" not in words:
        words += ["--draft", str(models["small"])]
    if "--cache" not in words:
        words += ["--cache", "round"]
    assert main(["generate", str(models["model"]), "--prompt", "a", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_draft_that_does_not_fit_is_named(models):
    """Memory of each model is asked for by itself."""
    request = asked(models, draft=find_model(str(models["near"])), ahead=40, mesh=(24, 24), draft_mesh=(1, 1))
    with pytest.raises(PlanError, match=r"the draft of 40 tokens at a time does not fit .* or --ahead \d+ on this one"):
        answer(request)
