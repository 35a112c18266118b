"""``wse plan --inference --preset wse3 --wafers N``: meshes, wafers, what one user gets, and public rates."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.decoder import Decoder
from harness.cli import main as cli
from harness.inference import fleet as module
from harness.inference.capacity import DecoderMemory, places_of
from harness.inference.fleet import fastest_mesh, fleet, user_rates
from harness.inference.published import SERVED
from harness.inference.requests import PROGRAMS, extras
from harness.models.presets import PRESETS
from tests.conftest import ROOT
from wse_core.errors import PlanError
from wse_core.params import machine

WSE3 = machine("wse3")


def planned(capsys, *words):
    assert cli.main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@given(
    hidden=st.integers(1, 12).map(lambda k: 64 * k),
    layers=st.integers(1, 60),
    wafers=st.integers(1, 40),
    preset=st.sampled_from(["wse2", "wse3"]),
)
def test_a_mesh_that_is_chosen_fits_and_none_that_fits_is_faster(hidden, layers, wafers, preset):
    m = machine(preset, {"fabric.width": 40, "fabric.height": 60})
    decoder = Decoder(hidden, layers, hidden // 32, hidden // 32, 32, 3 * hidden, 1000, 4096)
    try:
        mesh = fastest_mesh(m, decoder, 256, wafers)
    except PlanError as error:
        fewest = error.needed
        assert fewest == 0 or fewest > wafers
        if fewest:
            assert fastest_mesh(m, decoder, 256, fewest)
            with pytest.raises(PlanError):
                fastest_mesh(m, decoder, 256, fewest - 1)
        return
    regions = DecoderMemory(m, decoder, *mesh).regions(256)
    assert 0 < regions <= wafers * places_of(m, *mesh)
    own = PROGRAMS["B"].decode(m, decoder, *mesh, 256).cycles
    for other in module._cuts(m):
        memory = DecoderMemory(m, decoder, *other)
        if memory.layers_that_fit(256) and memory.regions(256) <= wafers * places_of(m, *other):
            assert own <= PROGRAMS["B"].decode(m, decoder, *other, 256).cycles


def test_a_token_waits_for_the_links_and_the_node_between_wafers():
    decoder = PRESETS["LLaMA3.1-70B"]
    seven = fleet(WSE3, decoder, (381, 381), 4224, 7)
    assert (seven.needed, seven.fits) == (7, True)
    assert not fleet(WSE3, decoder, (381, 381), 4224, 6).fits
    # 16 KiB out and in over 12 links of 100 Gbit/s, and a microsecond in the node; six ways on and one back.
    assert seven.crossing_s == pytest.approx(2 * 8192 * 16 / 1.2e12 + 1e-6)
    assert seven.crossings_s == pytest.approx(7 * seven.crossing_s)
    assert fleet(WSE3, PRESETS["LLaMA3.1-8B"], (254, 254), 4224, 5).crossings_s == 0
    slow = machine("wse3", {"node.latency": 5000})
    assert fleet(slow, decoder, (381, 381), 4224, 7).crossing_s == pytest.approx(seven.crossing_s + 4e-6)


def test_one_user_waits_for_all_of_a_step():
    decoder, mesh = PRESETS["LLaMA3.1-70B"], (381, 381)
    facts = user_rates(WSE3, "LLaMA3.1-70B", decoder, mesh, 4224, 7)
    layers = PROGRAMS["B"].decode(WSE3, decoder, *mesh, 4224).cycles
    beside = extras(WSE3, decoder, *mesh, 40).cycles
    seconds = (layers + beside) / 0.85e9 + facts["crossings_per_token_s"]
    assert facts["user_tokens_per_s"]["0.85 GHz"] == pytest.approx(1 / seconds)
    assert facts["public"]["error"]["0.85 GHz"] == pytest.approx(1 / seconds / 450 - 1)
    assert "public" not in user_rates(WSE3, "another", decoder, mesh, 4224, 7)


def test_the_preset_is_that_of_the_plan(capsys):
    words = ("LLaMA3-8B", "--inference", "--mesh", "250x250", "--prompt-length", "64", "--tokens", "4")
    two, three = planned(capsys, *words), planned(capsys, *words, "--preset", "wse3")
    assert (two["preset"], three["preset"]) == ("wse2", "wse3")
    assert two["regions"]["beside_each_other_on_the_wafer"] == 9
    assert three["regions"]["beside_each_other_on_the_wafer"] == 12
    assert two["programs"]["B"]["decode_cycles"] != three["programs"]["B"]["decode_cycles"]
    more = planned(capsys, *words, "--preset", "wse3", "--set", "machine.clock.ghz=1.0")
    assert list(more["one_user"]["user_tokens_per_s"]) == ["1 GHz", "1.1 GHz"]


def test_the_page_has_the_public_rates_and_what_the_commands_say(capsys):
    page = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `wse plan (\S+) --inference --preset wse3 --wafers (\d+)` \| (.*) \|$", page, re.MULTILINE)
    assert {model for model, _, _ in rows} == set(SERVED)
    for model, wafers, cells in rows:
        found = planned(capsys, model, "--inference", "--preset", "wse3", "--wafers", wafers)
        user = found["one_user"]
        low, high = user["user_tokens_per_s"].values()
        wide, tall = found["mesh"]
        wanted = (
            f"{wide} x {tall}", f"{user['needed']}", f"{low:,.0f}", f"{high:,.0f}", f"{SERVED[model]:,.0f}",
            f"{user['public']['error']['0.85 GHz']:+.0%}",
        )  # fmt: skip
        assert tuple(cell.strip() for cell in cells.split("|")) == wanted
