"""`wse validate`: points, selection, comparison, criteria, tables, and what it says about bad files."""

from __future__ import annotations

import json
import sys
import types

import pytest

from harness.cli import main as cli
from harness.kit.console import Progress
from harness.validation import compare
from harness.validation.points import QUICK, load_points, select
from harness.validation.recipe import CannotRun, Measurement, Recipe
from wse_core.errors import ConfigError, DeadlockError
from wse_core.params import machine


def point(name, cycles, kind="toy", recipe="R0", **params):
    """Return a point."""
    return {"id": name, "kind": kind, "recipe": recipe, "params": params, "cycles": cycles, "source": "a paper"}


@pytest.fixture
def toys(monkeypatch):
    """A registry with one recipe that returns the parameter `runs` and notes what it was shown."""
    shown = []

    def toy(machine, blind, progress):
        shown.append(blind)
        runs = blind["params"].get("runs")
        if isinstance(runs, str):
            raise CannotRun(runs)
        if isinstance(runs, list):
            raise DeadlockError("nothing moves")
        return Measurement(runs, "by hand", blind["params"].get("reference"))

    entry = Recipe("R0", ("toy", "formula"), "a toy", toy)
    registry = types.ModuleType("harness.validation.registry")
    registry.RECIPES = {("R0", kind): entry for kind in entry.kinds}
    registry.CannotRun, registry.Measurement = CannotRun, Measurement
    monkeypatch.setitem(sys.modules, "harness.validation.registry", registry)
    return shown


def write(tmp_path, points):
    """Return the path of a file with points."""
    path = tmp_path / "points.json"
    path.write_text(points if isinstance(points, str) else json.dumps(points), encoding="utf-8")
    return str(path)


def run(capsys, *words):
    """Return (exit status, output, messages) of ``wse validate``."""
    status = cli.main(["validate", "--no-progress", *words])
    done = capsys.readouterr()
    return status, done.out, done.err


# --- points -----------------------------------------------------------------------------------------------------------


def test_points_of_the_package():
    points = load_points()
    assert len(points) == 239
    assert all(p["source"] and p["recipe"].startswith("R") for p in points)
    ids = {p["id"] for p in points}
    assert set(QUICK) <= ids


def test_every_point_has_a_recipe_or_is_counted_as_missing():
    from harness.validation.registry import RECIPES

    missing = {(p["recipe"], p["kind"]) for p in load_points()} - set(RECIPES)
    assert not missing


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list"),
        ("[1]", "point 1"),
        ('[{"id": "a"}]', "'kind' is missing"),
        ('[{"id": 3, "kind": "k", "recipe": "R1", "params": {}}]', "id: expected a str"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": []}]', "params: expected a dict"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": {}, "cylces": 3}]', "unknown key 'cylces'"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": {}, "cycles": "many"}]', "positive number"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": {}, "cycles": true}]', "positive number"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": {}, "cycles": NaN}]', "positive number"),
        ('[{"id": "a", "kind": "k", "recipe": "R1", "params": {}, "cycles": -3}]', "positive number"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_files_get_one_line(tmp_path, capsys, text, said):
    status, out, err = run(capsys, "--points", write(tmp_path, text))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert "points.json" in err


def test_other_bad_input(tmp_path, capsys, toys):
    twice = write(tmp_path, [point("a", 3, runs=3)] * 2)
    assert "two points have the id 'a'" in run(capsys, "--points", twice)[2]
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in run(capsys, "--points", str(tmp_path / "binary"))[2]
    status, _, err = run(capsys, "--points", str(tmp_path / "absent.json"))
    assert status != 0
    assert "absent.json: No such file" in err
    path = write(tmp_path, [point("a", 3, runs=3)])
    assert "did you mean toy? Known are toy" in run(capsys, "--points", path, "--kind", "tyo")[2]
    assert "known are R0" in run(capsys, "--points", path, "--recipe", "R7")[2]
    assert "no point is left" in run(capsys, "--points", path, "--quick")[2]
    assert "router.hop" in run(capsys, "--points", path, "--set", "router.hops=3")[2]


# --- comparison -------------------------------------------------------------------------------------------------------


def test_table_summary_and_status(tmp_path, capsys, toys):
    points = [
        point("good", 100, runs=101, min=90, max=100, values=[1]),
        point("fair", 100, runs=96),
        point("cannot", 100, runs="too large"),
        point("other", 100, recipe="R99"),
        point("none", None, runs=7),
    ]
    path = write(tmp_path, points)
    status, out, _ = run(capsys, "--points", path)
    assert status == 0
    assert "+1.0%  R0, by hand, outside the published range; a paper" in out
    assert "R0: too large" in out
    assert "R99: no recipe R99 for points of kind toy" in out
    assert "measured, but the source gives no cycle count" in out
    assert "2 compared, 3 not; mean absolute error 2.50 % (limit 3 %)" in out
    assert toys[0] == {"id": "good", "kind": "toy", "recipe": "R0", "params": {"runs": 101}}  # nothing published
    status, out, _ = run(capsys, "--points", path, "--json")
    result = json.loads(out)
    assert status == 0
    assert [row["measured"] for row in result["rows"]] == [101, 96, None, None, 7]
    assert result["summary"]["worst"] == {"id": "fair", "error": pytest.approx(-0.04)}


@pytest.mark.parametrize(
    ("runs", "passed"),
    [
        ((103, 97), True),
        ((104, 97), False),
        ((100, 111), False),
        ((100, 100, 100, 110), True),
        ((100, 100, 100, 111), False),
    ],
)
def test_criteria(tmp_path, capsys, toys, runs, passed):
    path = write(tmp_path, [point(f"p{k}", 100, runs=value) for k, value in enumerate(runs)])
    status, out, _ = run(capsys, "--points", path)
    assert status == (0 if passed else 1)
    assert out.rstrip().endswith("passed" if passed else "FAILED")
    assert run(capsys, "--points", path, "--no-limits")[0] == 0


def test_formulas_are_listed_but_not_judged(tmp_path, capsys, toys):
    path = write(tmp_path, [point("f", None, kind="formula", runs=150, reference=100), point("p", 100, runs=100)])
    status, out, _ = run(capsys, "--points", path)
    assert status == 0
    assert "+50.0%" in out
    assert "mean absolute error 0.00 %" in out


def test_a_time_is_compared_at_the_clock_that_is_assumed(tmp_path, capsys, toys):
    timed = point("timed", None, runs=500, dtype="f32") | {
        "published_value": 2,
        "published_unit": "us",
        "assumed": {"clock_ghz": 0.5, "pe_grid": "4x4"},
    }
    status, out, _ = run(capsys, "--points", write(tmp_path, [timed]), "--no-limits")
    assert status == 0
    assert "500        1,000   -50.0%  R0, by hand; assumed: 0.5 GHz, pe_grid = 4x4; a paper" in out
    assert toys[0]["params"] == {"runs": 500, "dtype": "f32", "pe_grid": "4x4"}  # no clock: a program has none
    for changed, said in (
        ({"assumed": {"dtype": "f16"}}, "dtype stands among the parameters too"),
        ({"assumed": {"clock_ghz": 0}}, "clock_ghz: expected a positive number"),
        ({"assumed": [1]}, "expected a table"),
        ({"published_unit": "tokens/s"}, "no time was published"),
        ({"published_value": None}, "no time was published"),
    ):
        status, _, err = run(capsys, "--points", write(tmp_path, [timed | changed]))
        assert status == 2
        assert said in err


@pytest.mark.parametrize(("other", "error", "verdict"), [(202, 50, "FAILED"), (106, 4.7, "passed")])
def test_another_generation_has_limits_of_its_own(tmp_path, capsys, toys, other, error, verdict):
    path = write(tmp_path, [point("a", 100, runs=101) | {"cycles_wse3": other}])
    status, out, _ = run(capsys, "--points", path)
    assert status == (verdict == "FAILED") * 1
    assert f"(limit 5 %), worst -{error:.1f} % (a on WSE-3; limit 12 %): {verdict}" in out
    assert out.rstrip().endswith(
        "all: 1 compared, 0 not; mean absolute error 1.00 % (limit 3 %), worst +1.0 % (a; "
        f"limit 10 %), 0 over the limit: {verdict}"
    )
    page = tmp_path / "page.md"
    page.write_text("<!-- begin validation -->\n<!-- end validation -->\n")
    run(capsys, "--points", path, "--write", str(page))
    assert f"| all on WSE-3 | 1 of 1 | {error:.1f} % | a on WSE-3: -{error:.1f} % |" in page.read_text()


def test_where_nothing_is_judged_it_says_so(tmp_path, capsys, toys):
    path = write(tmp_path, [point("f", None, kind="formula", runs=150, reference=100)])
    status, out, _ = run(capsys, "--points", path)
    assert (status, out.splitlines()[-1]) == (0, "nothing compared that is judged: passed")
    path = write(tmp_path, [point("f", 3, runs="too large")])
    status, out, _ = run(capsys, "--points", path)
    assert (status, out.splitlines()[-1]) == (1, "nothing compared: FAILED")


def test_published_times_of_products_on_a_mesh():
    """WaferLLM's tables 6 and 7, with what they leave open said; the long ones come out as published."""
    rows = {row.id: row for row in compare.validate(select(load_points(), recipes=["R11"]), machine(), Progress())}
    assert sorted(rows) == [f"WLLM-GEM{kind}-{size}K" for kind in "MV" for size in (16, 32)]
    for row in rows.values():
        assert row.assumed.startswith("0.85 GHz, pe_grid = 720x720, sums = 16-bit, ")
        assert row.low is row.high is None
        assert not row.counts
    assert abs(rows["WLLM-GEMV-32K"].error) < 0.01
    assert abs(rows["WLLM-GEMM-32K"].error) < 0.05
    assert "PEs with the same tiles" in rows["WLLM-GEMM-16K"].method


def test_a_failing_program_is_not_a_skipped_point(tmp_path, capsys, toys):
    status, _, err = run(capsys, "--points", write(tmp_path, [point("stuck", 3, runs=[])]))
    assert status == 1
    assert "point stuck: nothing moves" in err


def test_write_fills_the_block(tmp_path, capsys, toys):
    page = tmp_path / "page.md"
    path = write(tmp_path, [point("a", 100, runs=101), point("b", 100, runs="too | large")])
    page.write_text("no block\n")
    assert "begin validation" in run(capsys, "--points", path, "--write", str(page))[2]
    page.write_text("before\n<!-- begin validation -->\nold\n<!-- end validation -->\nafter\n")
    assert run(capsys, "--points", path, "--write", str(page))[0] == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- begin validation -->\n1 of 2 points compared")
    assert text.endswith("<!-- end validation -->\nafter\n")
    assert "| a | 101 |  |  | 100 | +1.0 % | by hand | a paper |" in text  # of no platform: a model
    assert "| too \\| large | b |" in text


def test_select():
    points = [point("a", 1), point("b", 1, kind="formula"), point("c", 1, recipe="R2")]
    assert [p["id"] for p in select(points, kinds=["toy"])] == ["a", "c"]
    assert [p["id"] for p in select(points, recipes=["R2"], ids=("a", "c"))] == ["c"]
    with pytest.raises(ConfigError):
        select(points, kinds=["x"])


@pytest.fixture(scope="module")
def quick():
    """What the points of a quick run give."""
    return compare.validate(select(load_points(), ids=QUICK), machine(), Progress())


def test_the_documentation_is_in_step(root, quick):
    """docs/accuracy.md has the figures that the model gives now, close to the published ones, in a quick run."""
    text = (root / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = [row for row in quick if row.error is not None]
    assert len(rows) >= 8
    for row in rows:
        assert row.generation == "WSE-3" or abs(row.error) < 0.1, row.id
        line = next((line for line in text.splitlines() if line.startswith(f"| {row.id} | ")), f"| {row.id} | absent")
        assert line.startswith(f"| {row.id} | {row.measured:.0f} | "), "wse validate --write docs/accuracy.md"


def test_quick_run(monkeypatch, capsys, quick):
    def validated(points, *_):
        assert {one["id"] for one in points} == set(QUICK)
        return quick

    monkeypatch.setattr(compare, "validate", validated)
    status, out, err = run(capsys, "--quick", "--no-limits")
    assert (status, err) == (0, "")
    assert "FMULS-1028-A" in out
    assert "passed" in out or "FAILED" in out
