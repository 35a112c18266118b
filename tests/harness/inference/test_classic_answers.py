"""`wse generate` of models older than LLaMA, and of later ones whose files are laid out in another way.

Bits are the oracle's, tokens those of numpy and, where it is installed, of the library.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.cli.main import main
from harness.models.classic import CLASSIC
from harness.models.hub import load_model
from harness.models.plain import PlainDecoder
from harness.models.tensors import write_tensors
from tests.examples import few, mixed
from tests.harness.models.classic_twin import CLASSIC_BASES, classic_tensors
from tests.harness.models.hub_twin import BASES, tensors_of
from wse_core.formats import Arithmetic
from wse_core.params import machine

LATER = ("GlmForCausalLM", "Glm4ForCausalLM", "HeliumForCausalLM", "Ernie4_5ForCausalLM", "SeedOssForCausalLM")
FAMILIES = [*CLASSIC, *LATER]
PROMPT = [3, 1, 4, 1, 5]
WAYS = [
    ("--mesh", "3x2"),
    ("--mesh", "3x2", "--prefill", "token", "--cache", "round", "--preset", "wse3"),
    ("--mesh", "2x2", "--dtype", "cb16", "--cache", "concat"),
    ("--mesh", "2x2", "--chunk", "3", "--cache", "round"),
    ("--mesh", "2x2", "--batch", "2", "--requests", "2"),
    ("--mesh", "3x2", "--regions", "2"),
    ("--mesh", "4x3", "--decode-mesh", "2x2"),
]


@pytest.fixture(params=FAMILIES)
def directory(request, tmp_path):
    """Return the directory of a small random model of each architecture; its answers go on beyond its end token."""
    path = tmp_path / request.param
    path.mkdir()
    seed = 4 if request.param == "Cohere2ForCausalLM" else 1  # logits that lie apart, in both formats
    tensors = tensors_of if request.param in LATER else classic_tensors
    write_tensors(path / "model.safetensors", tensors(request.param, seed=seed))
    table = (CLASSIC_BASES | BASES)[request.param] | {"eos_token_id": None, "pad_token_id": None}
    (path / "config.json").write_text(json.dumps(table))
    return path


def generated(capsys, directory, *options):
    """Return the answer of a command, as JSON."""
    words = ("generate", directory, "--prompt-ids", ",".join(map(str, PROMPT)), "--tokens", 6, "--json", *options)
    assert main([str(word) for word in words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bit_exact"] is True
    return found


@pytest.mark.parametrize(("directory", "options"), mixed(FAMILIES, WAYS), indirect=["directory"])
def test_bits_and_tokens(directory, options, capsys):
    """Every way of an answer: the oracle's bits, the tokens of numpy by the weights that PEs hold."""
    found = generated(capsys, directory, *options)
    model = load_model(directory)
    weights, _ = model.rounded(Arithmetic.of(machine(), "cb16" if "cb16" in options else "f16"))
    tokens, _ = PlainDecoder(model.decoder, weights, np.float64).generate(PROMPT, 6)
    assert found["tokens"] == tokens


@pytest.mark.parametrize("directory", few(FAMILIES, 3), indirect=True)
def test_a_draft_of_itself(directory, capsys):
    """A model that drafts for itself: every token is as without it."""
    plain = generated(capsys, directory, "--mesh", "2x2")
    found = generated(capsys, directory, "--mesh", "2x2", "--draft", directory, "--cache", "round")
    assert found["tokens"] == plain["tokens"]


def test_a_text_beyond_the_context_is_refused(directory, capsys):
    context = str(load_model(directory).decoder.context)
    assert main(["generate", str(directory), "--prompt-ids", "1", "--tokens", context, "--mesh", "2x2"]) == 2
    assert context in capsys.readouterr().err


@pytest.mark.slow
def test_tokens_are_the_librarys(directory, capsys):
    """Where transformers and torch are installed: greedy tokens of its own classes from the same files."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    ids = torch.tensor([PROMPT])
    wanted = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0, len(PROMPT) :].tolist()
    for options in (("--mesh", "3x2"), ("--mesh", "3x2", "--prefill", "token")):
        assert generated(capsys, directory, *options)["tokens"] == wanted
