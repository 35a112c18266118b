"""`wse generate --estimate`: what is said beforehand is what a run then takes; nothing is run for it."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from fabric.host.fabric import Fabric
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.fit import tokens_per_row
from fabric.networks.inference.move.cycles import MoveCycles
from fabric.networks.inference.move.two_meshes import TwoMeshes
from fabric.networks.inference.placement import DecoderPlacement
from harness.cli.main import main
from harness.inference.estimate import MOVED, WITHIN
from harness.models.presets import PRESETS
from tests.examples import some
from tests.harness.inference.saved_models import saved
from wse_core.params import machine

DECODER = Decoder(40, 2, 4, 2, 8, 48, 23, 40, 1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the directory of a small random model."""
    directory = tmp_path_factory.mktemp("models") / "small"
    return saved(directory, DECODER)


def said(capsys, *words):
    """Return the JSON of a command."""
    assert main(["generate", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("mesh", "more"),
    [
        ("4x3", ("--cache", "concat")),
        ("4x4", ("--prefill", "token", "--cache", "concat", "--set", "machine.vec.start=4")),
        ("3x3", ("--decode-mesh", "4x5")),
        ("5x4", ("--preset", "wse3")),
        ("7x3", ("--cache", "round", "--dtype", "cb16", "--set", "machine.ce.dsr_load=5")),
        ("3x5", ("--cache", "concat", "--set", "machine.vec.drain=3")),
        ("6x2", ()),
    ][: some(7, 4)],
)
def test_an_estimate_is_what_the_run_takes(model, capsys, mesh, more):
    """Each part is within the bound that is printed, over every option."""
    words = (model, "--prompt-ids", "1,2,3,4,5,6,7,8,9", "--tokens", 5, "--mesh", mesh, *more)
    measured = said(capsys, *words, "--verify", "off")
    estimated = said(capsys, *words, "--estimate")
    cycles, expected, within = measured["cycles"], estimated["estimated_cycles"], estimated["within"]
    assert estimated["prompt_read_by"] == measured["prompt_read_by"]
    assert estimated["memory_parts"] == measured["memory_parts"]
    assert len(expected["tokens"]) == len(cycles["tokens"]) == 4
    elsewhere = "--decode-mesh" in more
    assert (estimated["decode_mesh"] != estimated["mesh"]) == elsewhere
    assert within == WITHIN | ({"transition": MOVED} if elsewhere else {})
    for name in cycles:
        off = 8 if name == "transition" else 0
        if name == "transition" and elsewhere:  # begins with the end of the prompt: what that is off is in it too
            off += within[name] * cycles[name] + 0.01 * cycles["prefill"]
        assert expected[name] == pytest.approx(cycles[name], rel=within[name], abs=off), name


def test_nothing_is_run(model, capsys, monkeypatch):
    monkeypatch.setattr(Fabric, "run", None)
    assert main(["generate", str(model), "--prompt-ids", "1,2", "--mesh", "3x3", "--estimate"]) == 0
    text = capsys.readouterr().out
    assert "transition" in text
    assert "steps within 1%" in text


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--out", "x.h5"), "an estimate runs nothing"),
        (("--logits", "x.npz"), "an estimate runs nothing"),
        (("--tokens", "99"), "the context of the model holds 40"),
    ],
)
def test_what_is_refused(model, capsys, more, what):
    assert main(["generate", str(model), "--prompt-ids", "1,2", "--mesh", "3x3", "--estimate", *more]) != 0
    assert what in capsys.readouterr().err


def test_published_models_are_estimated_by_their_sizes(capsys):
    """No weights are needed, all layers and tokens count, and a wafer's meshes are no slower than small ones."""
    words = ("generate", "LLaMA3-8B", "--prompt-ids", "1,2,3", "--estimate", "--json", "--tokens", "4")
    assert main([*words, "--mesh", "757x996"]) == 0
    found = json.loads(capsys.readouterr().out)
    decoder = PRESETS["LLaMA3-8B"]
    placed = DecoderPlacement(decoder, 757, 996, tokens_per_row(7, 996, "shift"), "f16")
    steps = StepCycles(Decode(machine(), placed)).steps(range(3, 4))
    assert found["estimated_cycles"]["tokens"][0] == steps[0]
    assert main(["generate", "LLaMA3-8B", "--prompt-ids", "1,2,3", "--mesh", "757x996"]) == 2
    assert "its weights are not here" in capsys.readouterr().err


def test_the_way_to_another_mesh_is_reckoned_faster_than_the_prompt():
    """Its work is that of runs of entries, of which a mesh of that size has 300 million, minutes one by one."""
    decoder = replace(PRESETS["LLaMA3-8B"], layers=2, vocabulary=512)
    before, behind = DecoderPlacement(decoder, 380, 720, 3, "f16"), DecoderPlacement(decoder, 360, 360, 6, "f16")
    form = MoveCycles(TwoMeshes(machine(), before, behind, 2000, "shift"))
    begin = time.process_time()
    ends = form.prompt.ends()
    prompt, ways = time.process_time() - begin, []
    while len(ways) < 5 and min(ways, default=prompt) >= prompt:  # what else runs on the host takes some of the time
        begin = time.process_time()
        assert form.moved(ends) > ends.max()
        ways.append(time.process_time() - begin)
    assert min(ways) < prompt
