"""The paper's tables: how many cells the composed model meets, by which program, at which clock; trends, ratios.

And runs of the authors' own programs: what they hold program A to, and what they carry on to.
"""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from harness.figures import NAMES, load, waferllm_tables
from harness.inference import published, recorded
from harness.inference.capacity import DecoderMemory, admit, by_arithmetic, places_of, smallest_mesh
from harness.inference.line import groups_of, line_cycles
from harness.inference.requests import extras, growing, request, transition
from harness.inference.tables import FAR, TABLES, cells, ratios
from harness.kit.files import write_picture
from harness.models.presets import PRESETS
from tests.conftest import ROOT
from tools.docs import waferllm_layers
from traces.style import new_figure
from wse_core.errors import ConfigError, PlanError
from wse_core.params import PARAMETERS, machine

WSE2 = machine("wse2")
RUNS = recorded.recorded()


@pytest.fixture(scope="module")
def tables():
    return {number: cells(WSE2, number) for number in TABLES}


def near(found, program, gigahertz, system="WaferLLM", limit=FAR):
    """Return (cells within the limit, cells) of a program at a clock."""
    mine = [c for c in found if (c.program, c.gigahertz, c.system) == (program, gigahertz, system)]
    return sum(abs(cell.error) <= limit for cell in mine), len(mine)


@pytest.mark.parametrize(
    ("table", "program", "gigahertz", "least", "of"),
    [
        ("4", "A", 0.85, 12, 12),
        ("3", "A", 1.1, 9, 12),
        ("2", "A", 1.1, 7, 8),
        ("4", "B", 0.85, 10, 12),
        ("2", "B", 0.85, 8, 8),
    ],
)
def test_cells_within_fifteen_percent(tables, table, program, gigahertz, least, of):
    found, all_of_them = near(tables[table], program, gigahertz)
    assert all_of_them == of
    assert found >= least


def test_no_clock_makes_the_skeleton_right_in_both_phases(tables):
    """What the two clocks are printed for: decode agrees at one, prefill at the other."""
    assert near(tables["4"], "A", 1.1)[0] <= 2
    assert near(tables["3"], "A", 0.85)[0] == 0
    assert near(tables["4"], "A", 0.85, limit=0.115)[0] == 12
    assert near(tables["3"], "A", 1.1, limit=0.225)[0] == 12


def test_what_runs_here_agrees_with_what_is_composed(tables):
    """The closed form of the resident program, which tests hold against the engine, and program B's sum of parts."""
    cells = {}
    for cell in tables["4"]:
        if cell.system == "WaferLLM" and cell.gigahertz == 0.85:
            cells.setdefault((cell.model, cell.setting), {})[cell.program] = cell.modelled
    assert len(cells) == 12
    for found in cells.values():
        assert found["resident"] == pytest.approx(found["B"], rel=0.07)
    assert near(tables["4"], "resident", 0.85)[0] >= 9


def test_comparators(tables):
    assert near(tables["4"], "T10", 0.85, "T10", 0.06) == (11, 12)
    assert near(tables["3"], "T10, fitted", 0.85, "T10", 0.09) == (12, 12)
    assert near(tables["4"], "Ladder, fitted", 0.85, "Ladder", 0.05) == (12, 12)
    assert near(tables["3"], "Ladder, fitted", 0.85, "Ladder", 0.05) == (12, 12)
    for system in ("T10", "Ladder"):
        assert near(tables["2"], f"{system}, fitted", 0.85, system) == (8, 8)


def test_every_far_cell_says_why(tables):
    for found in tables.values():
        assert found
        for cell in found:
            row = cell.as_dict()
            assert bool(row["reason"]) == (abs(cell.error) > FAR), cell


def test_order_of_the_systems_in_every_cell(tables):
    for number in "234":
        values = {}
        for cell in tables[number]:
            values.setdefault((cell.model, cell.setting), {}).setdefault(cell.system, []).append(cell.modelled)
        for found in values.values():
            assert min(found["WaferLLM"]) > max(found["T10"])
            assert min(found["T10"]) > max(found["Ladder"])


def test_trends(tables):
    """More PEs help prefill and harm decode; the correct program's large models are the declared exception."""
    for model in published.MODELS:
        for program in "AB":
            for clock in (0.85, 1.1):
                rise = ratios(tables["3"], model, program, clock)
                assert rise["published"] > 1
                assert rise["modelled"] > 1
                if program == "A":
                    assert rise["modelled"] == pytest.approx(rise["published"], rel=0.25)
        fall = ratios(tables["4"], model, "A", 0.85)
        assert fall["modelled"] < 1
        assert fall["modelled"] == pytest.approx(fall["published"], rel=0.25)
        large = model in ("CodeLLaMA-34B", "QWen2-72B")
        assert (ratios(tables["4"], model, "B", 0.85)["modelled"] > 1) == large
    for model in published.MODELS:
        row = [c.modelled for c in tables["3"] if c.model == model and c.system == "T10"]
        assert row == sorted(row, reverse=True)


def test_ratios_at_420(tables):
    for model, t10, ladder in zip(published.MODELS, (6.46, 5.97, 5.21, 4.98), (185, 185, 239, 260), strict=True):
        mine = {
            cell.program: cell.modelled
            for cell in tables["4"]
            if cell.model == model and cell.setting == "420 x 420" and cell.gigahertz == 0.85
        }
        assert mine["A"] / mine["T10"] == pytest.approx(t10, rel=0.12)
        assert mine["A"] / mine["Ladder, fitted"] == pytest.approx(ladder, rel=0.15)


def test_capacities():
    plain = by_arithmetic(WSE2, PRESETS["LLaMA3-8B"], 360, 6, 0)
    assert (plain.concat, plain.shift) == (382, 137_520)
    assert plain.shift // plain.concat == 360
    for model, (side, _, layers, reserved, concat, shift) in published.CAPACITY.items():
        found = by_arithmetic(WSE2, PRESETS[model], side, layers, reserved)
        assert (found.concat, found.shift_bytes) == (concat, shift)
        memory = DecoderMemory(WSE2, PRESETS[model], side, side)
        tokens = memory.tokens(3)
        assert tokens % side == 0
        assert memory.needed(3, tokens) <= memory.total < memory.needed(3, tokens + 4 * side)
        assert memory.tokens(round(layers)) < shift


def test_regions_of_a_published_model():
    """LLaMA3-8B on 360 x 360 PEs: its weights fill three regions, with the published cache six, too many here."""
    decoder, pes = PRESETS["LLaMA3-8B"], 360 * 360
    assert -(-decoder.bytes() // (pes * 2 * WSE2["mem.words"])) == 3
    _, _, layers, *_ = published.CAPACITY["LLaMA3-8B"]
    assert decoder.layers / 6 == pytest.approx(layers, abs=1e-3)
    assert WSE2["fabric.width"] * WSE2["fabric.height"] < 6 * pes < 850_000  # which all cores would have carried
    memory = DecoderMemory(WSE2, decoder, 360, 360)
    fit = memory.layers_that_fit(4224)
    assert memory.needed(fit, 4224) <= memory.total < memory.needed(fit + 1, 4224)
    assert memory.regions(4224) == -(-decoder.layers // fit) == 4  # with code and vectors, for 4,224 tokens


def test_kernels_and_energy(tables):
    at = [c for c in tables["6"] + tables["7"] if c.gigahertz == 0.85 and c.unit == "s"]
    assert len(at) == 4
    assert all(abs(cell.error) <= 0.155 for cell in at)
    energies = [c for n in "678" for c in tables[n] if c.system == "energy"]
    assert [(c.table, c.gigahertz) for c in energies] == [("6", None)] * 2 + [("7", None)] * 2 + [("8", None)] * 4
    assert all(abs(c.error) <= 0.25 for c in energies if c.table == "7")
    assert all(c.modelled > 1.9 * c.published and c.as_dict()["reason"] for c in energies if c.table != "7")


def test_power_is_that_behind_the_published_ratios(tables):
    """Published energy ratios come to one power of the wafer in products, and another one in whole inference."""
    powers = {n: [c for c in tables[n] if c.system == "power"] for n in "678"}
    for n, times in (("6", 27.0), ("7", 27.0), ("8", 22.5)):
        assert all(c.published == pytest.approx(times * published.A100_WATTS, rel=0.005) for c in powers[n])
        assert all(c.modelled < published.SYSTEM_WATTS for c in powers[n])
    for slow, fast in zip(powers["7"][::2], powers["7"][1::2], strict=True):
        assert (slow.gigahertz, fast.gigahertz) == (0.85, 1.1)
        assert fast.modelled == pytest.approx(slow.modelled * 1.1 / 0.85)


def test_fits_are_called_so_in_every_row(tables):
    for cell in (c for n in "234" for c in tables[n] if c.system in ("T10", "Ladder")):
        derived = cell.system == "T10" and cell.table == "4"
        assert cell.program == (cell.system if derived else f"{cell.system}, fitted")
    for name, number in PARAMETERS.items():
        assert name.split(".")[0] not in ("t10", "ladder") or "a fit" in number.source


def test_published_cells_solved_for_their_parts():
    """Both input lengths of table 2 give one time of a step, which is why its cache is taken as of fixed length."""
    for columns in ((0, 2), (1, 3)):
        rates = [published.REQUESTS["LLaMA3-8B", "WaferLLM"][k] for k in columns]
        counts = [published.REQUEST_COLUMNS[k].tokens for k in columns]
        times = [count / rate for count, rate in zip(counts, rates, strict=True)]
        step = (times[1] - times[0]) / (counts[1] - counts[0])
        assert step == pytest.approx(362.8e-6, rel=1e-3)


def test_a_request_adds_up():
    decoder = PRESETS["LLaMA3-8B"]
    found = request(WSE2, "B", decoder, (660, 660), (360, 360), 2048, 3)
    assert found.cycles == found.prefill + found.transition + found.steps
    assert found.rate(0.85) == pytest.approx(3 * 0.85e9 / found.cycles)
    assert found.transition == transition(WSE2, decoder, 660) == decoder.bytes() / 2 / 4 / 1320


def test_steps_grow_with_the_cache():
    decoder = PRESETS["LLaMA3-8B"]
    one = growing(WSE2, "B", decoder, (360, 360), 350, 11)  # 350 to 360 tokens: one on each row
    more = growing(WSE2, "B", decoder, (360, 360), 350, 12)
    assert more - one > one / 11  # the twelfth step has two tokens on a row
    assert growing(WSE2, "B", decoder, (360, 360), 361, 1) == more - one


def test_what_does_not_fit():
    decoder = PRESETS["LLaMA3-8B"]
    side = smallest_mesh(WSE2, decoder, 128)
    admit(WSE2, decoder, side, side, 128)
    with pytest.raises(PlanError, match=f"of PE .* gate_up.*--mesh {side}x{side} carries a layer") as caught:
        admit(WSE2, decoder, side - 1, side - 1, 128)
    assert caught.value.limit == "memory"
    assert caught.value.needed > caught.value.available
    with pytest.raises(PlanError, match="of them cache"):
        admit(WSE2, decoder, 360, 360, 4_000_000)
    with pytest.raises(PlanError, match="the wafer has 757"):
        admit(WSE2, decoder, 758, 10, 1)
    assert places_of(WSE2, 360, 360) == 4
    assert places_of(WSE2, 252, 498) == 6


def test_the_output_matrix_is_small_beside_the_layers():
    beside = extras(WSE2, PRESETS["LLaMA3-8B"], 360, 360, 4)
    step = 32 * 10_000
    assert 0.01 < beside.cycles / step < 0.05


def test_the_page_counts_what_the_tables_give(tables):
    page = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
    for number in "234":
        row = next(line for line in page.splitlines() if line.startswith(f"| {number}, "))
        for cell, (program, clock) in zip(
            row.split(" | ")[1:], (("A", 0.85), ("A", 1.1), ("B", 0.85), ("B", 1.1)), strict=True
        ):
            found, of = near(tables[number], program, clock)
            assert cell.rstrip(" |") == f"{found} of {of}"


def test_the_pages_say_the_energies_that_the_tables_give(tables):
    times = [cell.modelled / cell.published for cell in tables["8"] if cell.unit == "ratio"]
    page = " ".join((ROOT / "docs" / "inference.md").read_text(encoding="utf-8").split())
    assert f"of inference {min(times):.1f} to {max(times):.1f} times" in page
    watts = [c.modelled for c in tables["8"] if (c.unit, c.model, c.program) == ("W", "LLaMA3-8B", "A")]
    row = f"program A | 9.0 kW (22.5 A100s, from table 8) | {watts[0] / 1000:.1f} and {watts[1] / 1000:.1f} kW |"
    assert row in (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", ["2", "6", "7", "8"])
def test_a_picture_keeps_units_apart(tables, number):
    """Seconds and ratios have axes of their own; every cell is there once as a value and once as an error."""
    found = tables[number]
    canvas = new_figure(9, 4)
    waferllm_tables._draw(canvas, found)
    *units, errors = (axes.get_xlabel() for axes in canvas.axes)
    assert units == list(dict.fromkeys(cell.unit for cell in found))
    assert errors == "error, % (shaded: within 15%)"
    for axes, label in zip(canvas.axes, [*units, errors], strict=True):
        drawn = [line for line in axes.lines if line.get_marker() in set("osD^vP") and len(line.get_xdata())]
        assert len(drawn) == sum(label in (cell.unit, errors) for cell in found)


def test_the_legend_of_a_picture_lies_within_it(tables):
    """Table 5 has the longest names of programs; its legend was cut on both sides."""
    canvas = new_figure(9, 4)
    waferllm_tables._draw(canvas, tables["5"])
    canvas.draw_without_rendering()
    box = canvas.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= canvas.bbox.x1


def test_a_table_is_picture_csv_and_page(wse, tables, tmp_path):
    done = wse("figure", "waferllm-table-4", "--out", tmp_path, "--json")
    assert done.returncode == 0
    files = json.loads(done.stdout)["files"]
    assert [name.rpartition(".")[2] for name in files] == ["png", "csv", "md"]
    with open(files[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    runs = sum(cell.program == "as run" for cell in tables["4"])
    assert len(rows) == 12 * 6 + 24 + runs
    assert {row["gigahertz"] for row in rows} == {"0.85", "1.1"}
    page = (tmp_path / "waferllm-table-4.md").read_text(encoding="utf-8")
    assert page.count("\n|") == len(rows) + 2
    assert "largest mesh over smallest: published 0.94, A 0.98, B 1.09" in page
    assert (tmp_path / "waferllm-table-4.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("waferllm-table") and name[-1] != "4"])
def test_every_table_is_drawn(name, tmp_path):
    result = load(name).function(WSE2, None, None)
    write_picture(tmp_path / "t.png", result.draw)
    assert {"published", "modelled", "error", "program", "gigahertz"} <= set(result.rows[0])
    assert result.notes


@pytest.fixture(scope="module")
def as_run(tables):
    return {
        (number, cell.model, cell.setting, cell.gigahertz, cell.program): cell
        for number in "234"
        for cell in tables[number]
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
