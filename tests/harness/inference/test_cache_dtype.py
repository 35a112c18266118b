"""Answers over a cache of 8 bits, in all ways in which prompts are read and answers given: the oracle's bits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fabric.networks.inference.decoder import Decoder, LayerKind
from harness.cli.main import main
from harness.inference.asking import AnswerRequest
from harness.inference.estimate import WITHIN, estimate, estimate_service
from harness.inference.generate import answer
from harness.models.configuration import Configuration
from harness.models.random_model import RandomModel
from tests.harness.inference.saved_models import saved
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine

PLAIN = Decoder(8, 2, 2, 1, 8, 6, 17, 40, 1e-5)
WINDOWED = replace(PLAIN, heads=4, kv_heads=2, different=(LayerKind(window=3), LayerKind()))
MODELS = {name: RandomModel(name, Configuration(d), 1) for name, d in (("plain", PLAIN), ("windowed", WINDOWED))}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return the directory of a small random model."""
    return saved(tmp_path_factory.mktemp("models") / "plain", PLAIN)


def asked(model="plain", **more):
    """Return a request of some steps over a cache of 8 bits."""
    options = {"mesh": (1, 2), "prompts": [[3, 1, 4, 1, 5]], "count": 2, "cache_dtype": "int8"}
    return AnswerRequest(machine=machine(), model=MODELS[model], **(options | more))


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("windowed", {"prefill": "token"}),
        ("plain", {"prefill": "mesh", "dtype": "cb16"}),
        ("windowed", {"chunk": 3, "policy": "round"}),
        ("plain", {"at_a_time": 1, "policy": "concat"}),
        ("plain", {"chunk": 2, "at_a_time": 1, "policy": "round"}),
    ],
)
def test_ways_of_an_answer(model, more):
    """Bits are the oracle's, errors are within their bound, and cycles are those of the estimate."""
    request = asked(model, **more)
    found, wanted = answer(request), estimate(request)
    assert found.bit_exact
    assert found.error_share is None or 0.02 < found.error_share < 1
    assert sum(found.prompt_cycles) == pytest.approx(wanted.prefill, rel=2 * WITHIN["prefill"], abs=60)
    assert found.token_cycles == pytest.approx(wanted.tokens, rel=WITHIN["tokens"])
    assert found.memory == wanted.memory


@pytest.fixture(scope="module")
def alone():
    """Return the tokens of the answer that each way has to give."""
    return answer(asked(prefill="token", policy="round", verify=False)).tokens


def test_regions(alone):
    """Several meshes give the tokens of one."""
    flow = answer(asked(regions=2, policy="round"))
    assert (flow.bit_exact, flow.tokens) == (True, [alone])


def test_a_batch(alone):
    """Several requests in a step give the tokens of one, in the cycles of the estimate."""
    request = asked(prompts=[[3, 1, 4, 1, 5], [2]], batch=2, policy="round")
    served = answer(request)
    assert (served.bit_exact, served.tokens[0]) == (True, alone)
    assert served.step_cycles == pytest.approx(estimate_service(request).steps, rel=WITHIN["tokens"])


def test_a_draft(alone):
    """Steps that are taken back leave nothing in words that two numbers share."""
    guessed = answer(asked(draft=MODELS["plain"], ahead=3, policy="round"))
    assert (guessed.bit_exact, guessed.tokens) == (True, alone)


def test_files_know_the_format(tmp_path):
    """An answer goes on from a file, and a prompt behind one; a file of another format is refused by its name."""
    file = tmp_path / "a.npz"
    whole = answer(asked(prefill="token", count=4))
    answer(asked(prefill="token", count=2, file=file))
    onward = answer(asked(prefill="token", count=4, file=file))
    assert (onward.tokens, onward.token_cycles[:1]) == (whole.tokens, whole.token_cycles[:1])
    assert onward.bit_exact
    assert onward.resumed
    with pytest.raises(ConfigError, match="--cache-dtype: int8 there, f16 now"):
        answer(asked(prefill="token", count=4, file=file, cache_dtype=None))


def test_what_is_refused(directory, capsys):
    """Formats beside that of the program, and another mesh that decodes, by the option's name."""
    with pytest.raises(UnsupportedError, match="one 16-bit format"):
        asked(cache_dtype="cb16")
    with pytest.raises(UnsupportedError, match="another mesh"):
        asked(decode_mesh=(1, 1))
    with pytest.raises(ConfigError, match="unknown format"):
        asked(cache_dtype="int4")
    assert asked(cache_dtype="cb16", dtype="cb16").int8 is False
    words = ["generate", str(directory), "--prompt-ids", "3,1", "--tokens", "1", "--mesh", "2x2"]
    assert main([*words, "--cache-dtype", "cb16"]) == 2
    assert "--cache-dtype cb16" in capsys.readouterr().err


def test_the_command_says_it(directory, capsys):
    """JSON and the table have the format, and an estimate has what the answer has."""
    words = ["generate", str(directory), "--prompt-ids", "3,1", "--tokens", "2", "--mesh", "2x2"]
    assert main([*words, "--cache-dtype", "int8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cache_dtype"], found["dtype"], found["bit_exact"]) == ("int8", "f16", True)
    assert main([*words, "--cache-dtype", "int8", "--estimate", "--json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert wanted["cache_dtype"] == "int8"
    assert wanted["memory_parts"] == found["memory_parts"]
    assert main([*words, "--cache-dtype", "int8"]) == 0
    assert "shift cache of int8, f16" in capsys.readouterr().out
    assert main([*words, "--estimate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cache_dtype"] == "f16"
