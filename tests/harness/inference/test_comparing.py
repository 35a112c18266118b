"""Answers are compared with numpy in the order of the PEs in all steps, or in some that a seed draws."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fabric.networks.inference.batch import BatchResident
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.edge import Edge
from fabric.networks.inference.resident import ResidentDecoder
from harness.cli.main import main
from harness.inference import comparing
from harness.inference.asking import AnswerRequest
from harness.inference.comparing import EACH, is_drawn
from harness.inference.generate import answer
from harness.models.hub import find_model
from tests.harness.inference.saved_models import saved
from wse_core.errors import UnsupportedError
from wse_core.params import machine

DECODER = Decoder(8, 2, 2, 1, 4, 6, 17, 40, 1e-5)
STEPS = 10


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model."""
    directory = tmp_path_factory.mktemp("models") / "small"
    return saved(directory, DECODER)


def asked(model, **more):
    """Return a request of ten steps."""
    options = {"mesh": (2, 2), "prefill": "token", "sample": 3, "prompts": [[3, 1]], "count": STEPS - 1}
    return AnswerRequest(machine=machine(), model=find_model(str(model)), **(options | more))


def test_a_seed_draws_one_of_four_steps():
    """The first one always; other seeds draw other steps, the same seed the same."""
    drawn = {seed: [k for k in range(1 + 5 * EACH) if is_drawn(k, seed)] for seed in range(6)}
    for steps in drawn.values():
        assert steps[0] == 0
        assert [(step - 1) // EACH for step in steps[1:]] == list(range(5))
    assert len(set(map(tuple, drawn.values()))) == 6
    assert drawn[4] == [k for k in range(1 + 5 * EACH) if is_drawn(k, 4)]


MESH, TOKEN, CHUNK = (
    {"prefill": "mesh", "prompts": [[3, 1, 4]]},
    {"prefill": "token"},
    {"prefill": "auto", "chunk": 2, "prompts": [[3, 1, 4, 1]]},
)


@pytest.mark.parametrize(
    ("policy", "way"), [("shift", MESH), ("shift", TOKEN), ("shift", CHUNK), ("round", CHUNK), ("concat", TOKEN)]
)
def test_the_sample_of_a_right_answer_is_right(model, policy, way):
    """Any cache, any way of the prompt: so many steps are compared as are said, and the rest is the same."""
    found = answer(asked(model, policy=policy, **way))
    full = answer(asked(model, policy=policy, sample=None, **way))
    assert found.bit_exact is full.bit_exact is True
    assert found.tokens == full.tokens
    first = way["prefill"] != "token"
    assert found.steps_compared == sum(is_drawn(k - first, 3) for k in range(first, found.steps))
    assert full.steps_compared == full.steps
    assert found.max_abs_error < 1.001 * full.max_abs_error


@pytest.mark.parametrize("step", range(EACH + 1))
def test_a_wrong_logit_is_found_where_it_is_compared(model, monkeypatch, step):
    """A bit of the logits of one step: the sample has it or not, as it says."""
    count, right = 0, Edge.logits

    def wrong(edge):
        nonlocal count
        found = right(edge)
        found[5] ^= np.uint32(count == step)
        count += 1
        return found

    monkeypatch.setattr(Edge, "logits", wrong)
    assert answer(asked(model)).bit_exact is not is_drawn(step, 3)


def test_a_wrong_key_is_found(model, monkeypatch):
    """A bit of what a step that is compared leaves in the cache, though no logit shows it."""
    first = 1 + next(k for k in range(EACH) if is_drawn(1 + k, 3))
    right = comparing.Compared.compare

    def wrong(self, token, step, resident):
        if self.answer.steps == first:
            cache = resident.cache().copy()
            cache[0, 0, 0] ^= 1
            resident.fabric.write("cache", cache)
        right(self, token, step, resident)

    monkeypatch.setattr(comparing.Compared, "compare", wrong)
    assert answer(asked(model)).bit_exact is False


def test_large_models_are_compared_by_sample_if_nothing_is_said(model, capsys, monkeypatch):
    """An explicit choice wins; what was compared is said."""
    words = ["generate", str(model), "--prompt-ids", "3,1", "--tokens", "4", "--mesh", "2x2", "--prefill", "token"]

    def said(*more):
        assert main([*words, "--json", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        return found["verify"], found["steps_compared"], found["steps"], found["bit_exact"]

    assert said() == ("full", 5, 5, True)
    assert said("--verify", "sample") == ("sample", 2, 5, True)
    monkeypatch.setattr(comparing, "SAMPLED_FROM", 100)
    assert said() == ("sample", 2, 5, True)
    assert said("--verify", "full") == ("full", 5, 5, True)
    assert said("--verify", "off") == ("off", 0, 0, None)
    assert main(words) == 0
    assert "yes, 2 of 5 steps" in capsys.readouterr().out


WAYS = {
    "batch": {"batch": 2, "prompts": [[3, 1], [4, 1, 5], [2]], "count": 4},
    "draft": {"draft": "model", "ahead": 3, "policy": "round", "prompts": [[3, 1, 4]]},
    "another mesh": {"decode_mesh": (3, 1), "prompts": [[3, 1, 4]], "count": 6},
}


def of_way(model, way, **more):
    """Return a request that several requests, a draft or another mesh answer."""
    options = dict(WAYS[way]) | more
    if "draft" in options:
        options["draft"] = find_model(str(model))
    return asked(model, **({"prefill": "auto"} | options))


@pytest.mark.parametrize("way", WAYS)
def test_the_sample_of_other_ways(model, way):
    """Some steps are compared, from the cache that the PEs have: tokens and logits are those of a full comparison."""
    found, full = answer(of_way(model, way)), answer(of_way(model, way, sample=None))
    assert found.bit_exact is full.bit_exact is True
    assert found.tokens == full.tokens
    assert 0 < found.steps_compared < found.steps
    assert full.steps_compared == full.steps
    assert found.max_abs_error < 1.001 * full.max_abs_error


@pytest.mark.parametrize("way", WAYS)
def test_a_wrong_key_is_found_in_other_ways(model, monkeypatch, way):
    """A bit of the first key is another one in each cache that is read behind the first."""
    where = ResidentDecoder if way == "another mesh" else BatchResident
    right, reads = where.cache, 0

    def wrong(self, *lane):
        nonlocal reads
        found = right(self, *lane).copy()
        found[..., 0] ^= np.uint16(reads > 0)
        reads += 1
        return found

    assert answer(of_way(model, way)).bit_exact
    monkeypatch.setattr(where, "cache", wrong)
    assert answer(of_way(model, way)).bit_exact is False


def test_what_a_sample_of_a_batch_says(model, capsys):
    """JSON and the table say of how many steps, of all requests."""
    words = ["generate", str(model), "--prompt-ids", "3,1", "--tokens", "3", "--mesh", "2x2", "--requests", "2"]
    assert main([*words, "--batch", "2", "--verify", "sample", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verify"], found["steps"], found["bit_exact"]) == ("sample", 8, True)
    assert main([*words, "--batch", "2", "--verify", "sample"]) == 0
    assert f"yes, {found['steps_compared']} of 8 steps, each request" in capsys.readouterr().out


def test_regions_have_no_sample(model):
    with pytest.raises(UnsupportedError, match="--verify sample"):
        asked(model, prefill="auto", regions=1)
