"""`wse generate` of models with experts: bits of the oracle, tokens of numpy and, where it is, of the library."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.cli.main import main
from harness.inference.estimate import BY_EXPERTS
from harness.models.hub import load_model
from harness.models.plain import PlainDecoder
from harness.models.tensors import write_tensors
from tests.examples import few, mixed
from tests.harness.models.hub_twin import BASES, tensors_of
from wse_core.formats import Arithmetic
from wse_core.params import machine

PROMPT = [3, 1, 4, 1, 5]
ARCHITECTURES = ("MixtralForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM")
WAYS = [
    ("--mesh", "3x2"),
    ("--mesh", "3x2", "--prefill", "mesh"),
    ("--mesh", "4x3", "--decode-mesh", "2x2"),
    ("--mesh", "3x2", "--prefill", "token", "--cache", "round", "--preset", "wse3"),
    ("--mesh", "2x2", "--dtype", "cb16", "--cache", "concat"),
    ("--mesh", "3x2", "--regions", "2"),
    ("--mesh", "3x2", "--chunk", "2", "--cache", "round"),
    ("--mesh", "3x2", "--draft", "--draft-mesh", "2x2", "--ahead", "3", "--cache", "concat"),
]


@pytest.fixture(params=few(ARCHITECTURES, 1))
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


@pytest.mark.parametrize(("directory", "options"), mixed(ARCHITECTURES, WAYS), indirect=["directory"])
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


def test_a_prompt_is_read_at_once_if_that_is_faster(directory, capsys):
    """The way that takes fewer cycles, by the prices of both; the estimate is of the same way, and near the run."""
    found = {}
    for way in ("auto", "mesh", "token"):
        words = "--mesh", "3x2", "--tokens", 1, "--prefill", way, "--verify", "off", "--json"
        status, output = answered(capsys, directory, *words)
        assert status == 0
        found[way] = json.loads(output.out)
    at_once = found["mesh"]["cycles"]["prefill"] < found["token"]["cycles"]["prefill"]
    assert found["auto"]["cycles"] == found["mesh" if at_once else "token"]["cycles"]
    _, output = answered(capsys, directory, "--mesh", "3x2", "--prefill", "mesh", "--estimate", "--json")
    estimated = json.loads(output.out)
    assert estimated["within"]["prefill"] == BY_EXPERTS
    cycles = found["mesh"]["cycles"]["prefill"]
    assert estimated["estimated_cycles"]["prefill"] == pytest.approx(cycles, rel=BY_EXPERTS)


def test_a_plan_counts_all_experts_and_prices_the_chosen(capsys):
    """Memory of all experts of a layer, cycles by program B and the resident decoder, rates and a batch."""
    words = ["plan", "OLMoE-1B-7B", "--inference", "--mesh", "224x224", "--prompt-length", "64", "--batch", "2"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    columns, rows = -(-1024 // 224), 2 * -(-2048 // 224 // 2)
    assert facts["memory_per_pe"]["parts"]["gate_up"] == 64 * 2 * 4 * -(-2 * columns * rows // 4)
    assert facts["programs"]["B"]["decode"]["layer"] == pytest.approx(facts["resident"]["layer"], rel=0.1)
    assert facts["one_user"]["user_tokens_per_s"]["0.85 GHz"] > 0
    assert facts["batch"]["times_alone"] > 1
    assert main(words) == 0


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
