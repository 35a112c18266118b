"""`wse generate` of models with experts: bits of the oracle, tokens of numpy and, where it is, of the library."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.cli.main import main
from harness.models.hub import load_model
from harness.models.plain import PlainDecoder
from harness.models.tensors import write_tensors
from tests.harness.models.hub_twin import BASES, tensors_of
from wse_core.formats import Arithmetic
from wse_core.params import machine

PROMPT = [3, 1, 4, 1, 5]
ARCHITECTURES = ("MixtralForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM")


@pytest.fixture(params=ARCHITECTURES)
def directory(request, tmp_path):
    """Return the directory of a small random model of each architecture."""
    path = tmp_path / request.param
    path.mkdir()
    write_tensors(path / "model.safetensors", tensors_of(request.param))
    (path / "config.json").write_text(json.dumps(BASES[request.param]))
    return path


def answered(capsys, directory, *options):
    """Return (exit status, what a command printed)."""
    options = [word for option in options for word in ((option, directory) if option == "--draft" else (option,))]
    words = ("generate", directory, "--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", 6, *options)
    status = main([str(word) for word in words])
    return status, capsys.readouterr()


@pytest.mark.parametrize(
    "options",
    [
        ("--mesh", "4x3"),
        ("--mesh", "3x2", "--prefill", "token", "--cache", "round", "--preset", "wse3"),
        ("--mesh", "2x2", "--dtype", "cb16", "--cache", "concat"),
        ("--mesh", "3x2", "--regions", "2"),
        ("--mesh", "3x2", "--chunk", "2", "--cache", "round"),
        ("--mesh", "3x2", "--draft", "--draft-mesh", "2x2", "--ahead", "3", "--cache", "concat"),
    ],
)
def test_bits_and_tokens(directory, options, capsys):
    status, output = answered(capsys, directory, *options, "--json")
    found = json.loads(output.out)
    assert status == 0
    assert found["bit_exact"] is True
    model = load_model(directory)
    weights, _ = model.rounded(Arithmetic.of(machine(), "cb16" if "cb16" in options else "f16"))
    assert found["tokens"] == PlainDecoder(model.decoder, weights, np.float64).generate(PROMPT, 6)[0]


def test_requests_share_steps(directory, capsys):
    """Three requests in two lanes: each has the tokens of numpy."""
    status, output = answered(capsys, directory, "--mesh", "3x2", "--batch", "2", "--requests", "3", "--json")
    found = json.loads(output.out)
    model = load_model(directory)
    weights, _ = model.rounded(Arithmetic.of(machine(), "f16"))
    wanted = PlainDecoder(model.decoder, weights, np.float64).generate(PROMPT, 6)[0]
    assert status == 0
    assert found["bit_exact"] is True
    assert [answer["tokens"] for answer in found["requests"]] == [wanted] * 3


@pytest.mark.parametrize("options", [("--mesh", "4x3", "--prefill", "mesh"), ("--mesh", "5x3", "--decode-mesh", "2x2")])
def test_what_is_refused(directory, options, capsys):
    """Ways in which several tokens choose experts at once, in one line that says so."""
    status, output = answered(capsys, directory, *options)
    assert status == 2
    assert "experts" in output.err


def test_a_plan_is_refused(directory, capsys):
    assert main(["plan", str(directory), "--inference", "--mesh", "8x8"]) == 2
    assert "experts" in capsys.readouterr().err


@pytest.mark.slow
def test_tokens_are_the_librarys(directory, capsys):
    """Where transformers and torch are installed: greedy tokens of its own classes from the same files."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = torch.tensor([PROMPT])
    wanted = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0, len(PROMPT) :].tolist()
    status, output = answered(capsys, directory, "--mesh", "4x3", "--json")
    assert status == 0
    assert json.loads(output.out)["tokens"] == wanted
