"""Runs of the authors' own programs: what they hold program A to, and what they carry on to."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.figures import load
from harness.inference import recorded
from harness.inference.line import groups_of, line_cycles
from harness.inference.tables import cells
from harness.models.presets import PRESETS
from tests.conftest import ROOT
from tools.docs import waferllm_layers
from wse_core.errors import ConfigError
from wse_core.params import machine

WSE2 = machine("wse2")
RUNS = recorded.recorded()


@pytest.fixture(scope="module")
def as_run():
    return {
        (number, cell.model, cell.setting, cell.gigahertz, cell.program): cell
        for number in "234"
        for cell in cells(WSE2, number)
        if cell.program in ("A", "as run")
    }


def test_program_a_takes_as_long_as_what_was_run():
    """Both to 2 %, and what a PE of a side adds to Prefill to 3 %."""
    assert {run.phase for run in RUNS} == {"decode", "prefill"}
    tiles: dict[tuple[int, int, int], list[recorded.RecordedRun]] = {}
    for run in RUNS:
        ours = waferllm_layers.composed(run.phase, run.tile, run.side, run.groups)
        assert ours == pytest.approx(run.cycles, rel=0.02 if run.phase == "decode" else 0.014), run
        if run.phase == "prefill":
            tiles.setdefault(run.tile, []).append(run)
    for tile, mine in tiles.items():
        if len(mine) > 1:
            *_, before, last = sorted(mine, key=lambda run: run.side)
            ours = [waferllm_layers.composed("prefill", tile, run.side) for run in (before, last)]
            assert ours[1] - ours[0] == pytest.approx(last.cycles - before.cycles, rel=0.03), tile


def test_what_is_held_out_is_carried_on_to():
    """Decode of small meshes says too much by 3 % for a large one, which is why that was run."""
    found = recorded.held_out()
    assert {run.phase for run, _ in found} == {"decode", "prefill"}
    for run, carried in found:
        assert carried == pytest.approx(run.cycles, rel=0.001 if run.phase == "prefill" else 0.04), run


def test_a_cell_was_run_in_full():
    there = recorded.as_run("decode", PRESETS["LLaMA3-8B"], 420, 4096)
    assert there is not None
    assert there.full
    assert waferllm_layers.composed("decode", (10, 10, 35), 420) == pytest.approx(there.cycles, rel=0.01)


def test_program_a_and_the_runs_agree_in_every_cell(as_run):
    runs = {key[:-1]: cell for key, cell in as_run.items() if key[-1] == "as run"}
    assert {key[0] for key in runs} >= {"3", "4"}
    for key, cell in runs.items():
        ours = as_run[*key, "A"].modelled
        assert ours == pytest.approx(cell.modelled, rel=0.015 if key[0] == "4" else 0.025), key
        if key[0] == "4" and key[3] == 0.85:
            assert abs(cell.error) < 0.15, key


def test_every_published_cell_has_its_runs(as_run):
    """Prompts and steps of four models on three meshes each, requests of two models with four lengths; two clocks."""
    runs = {key: cell for key, cell in as_run.items() if key[-1] == "as run"}
    for clock in (0.85, 1.1):
        assert Counter(key[0] for key in runs if key[3] == clock) == {"2": 8, "3": 12, "4": 12}


def test_the_page_says_how_far_the_runs_are_from_what_is_published(as_run):
    errors = {
        (number, clock): sorted(round(100 * abs(c.error)) for k, c in as_run.items() if (k[0], k[3]) == (number, clock)
                                and k[-1] == "as run")
        for number in "34" for clock in (0.85, 1.1)
    }  # fmt: skip
    (steps, prompts), (fast, slow) = (
        [f"{errors[number, clock][0]} to {errors[number, clock][-1]} %" for number in "43"] for clock in (0.85, 1.1)
    )
    page = " ".join((ROOT / "docs" / "inference.md").read_text(encoding="utf-8").split())
    assert f"runs' steps are {steps} slower than what is published, their prompts {prompts}" in page
    assert f"at 1.1 GHz steps are {fast} faster and prompts {slow} slower" in page


def test_a_mesh_that_was_run_is_not_carried_on():
    run = next(run for run in RUNS if run.phase == "prefill")
    there = recorded.layer("prefill", run.tile, run.side)
    assert (there.cycles, there.sides, there.full) == (run.cycles, (run.side,), True)
    beyond = recorded.as_run("prefill", PRESETS["LLaMA3-8B"], 480, 4096)
    assert beyond is not None
    assert not beyond.full
    assert max(beyond.sides) < 480


def test_tiles_that_were_not_run_have_no_cells():
    for phase in ("decode", "prefill"):
        assert recorded.layer(phase, (99, 9, 9), 480) is None


def test_another_machine_has_no_runs():
    other = WSE2.replace({"router.hop": 2})
    assert not recorded.has_runs(other)
    assert not any(cell.program == "as run" for cell in cells(other, "3"))


def test_a_table_says_that_its_runs_are_recorded():
    notes = load("waferllm-table-3").function(WSE2, None, None).notes
    assert notes["as run"].startswith("recorded, not calculated: MeshInfra/WaferLLM")


def test_the_record_is_what_the_tool_writes():
    runs = {(run.phase, run.tile, run.side, run.groups): run.cycles for run in RUNS}
    assert len(runs) == len(RUNS)
    assert set(waferllm_layers.plan()) == set(runs)
    path = ROOT / "harness" / "inference" / recorded.FILE
    assert waferllm_layers.written(runs) == path.read_text(encoding="utf-8")


def test_what_the_record_lacks_is_run_and_joins_it(monkeypatch, tmp_path):
    """Only what is missing on meshes that are not too large; with it the record is again what it is."""
    lacking = {(run.phase, run.tile, run.side, run.groups): run.cycles for run in (RUNS[0], RUNS[-1])}
    ran = []
    monkeypatch.setattr(recorded, "recorded", lambda: RUNS[1:-1])
    monkeypatch.setattr(waferllm_layers, "RECORD", tmp_path / recorded.FILE)
    monkeypatch.setattr(waferllm_layers, "cycles", lambda tree, *key: ran.append(key) or lacking[key])
    waferllm_layers.record(tmp_path, min(key[2] for key in lacking) - 1)
    assert (ran, list(tmp_path.iterdir())) == ([], [])
    waferllm_layers.record(tmp_path, 64)
    assert sorted(ran) == sorted(lacking)
    path = ROOT / "harness" / "inference" / recorded.FILE
    assert (tmp_path / recorded.FILE).read_bytes() == path.read_bytes()


def test_the_page_has_the_tables_of_the_record():
    page = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    assert waferllm_layers.renewed(page) == page
    with pytest.raises(ConfigError, match="begin waferllm layers"):
        waferllm_layers.renewed("no table")


@pytest.mark.parametrize(
    ("side", "groups"),
    [(240, 15), (256, 16), (300, 15), (360, 18), (420, 20), (480, 20), (540, 20), (660, 22), (720, 24)],
)
def test_groups_are_those_of_the_authors_files(side, groups):
    assert groups_of(side) == groups


def test_a_sum_over_a_line_grows_with_all_that_it_has():
    """A wavelet more passes six times: to each root from two sides, and from the last one to both."""
    assert line_cycles(WSE2, 420, 20) - line_cycles(WSE2, 420, 19) == 6
    assert line_cycles(WSE2, 420, 5, called=True) > line_cycles(WSE2, 420, 5)
    assert line_cycles(WSE2, 420, 5, described=True) > line_cycles(WSE2, 420, 5)
    assert line_cycles(WSE2, 420, 5, groups=2) > line_cycles(WSE2, 420, 5)
    for side in range(4, 40):
        assert line_cycles(WSE2, side, 3) < line_cycles(WSE2, 8 * side, 3)
