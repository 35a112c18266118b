"""`wse figure`: the command, its files, and the points of the figures."""

from __future__ import annotations

import csv
import io
import json
import re

import matplotlib.figure
import pytest

from harness import figures
from harness.cli import main as cli
from harness.figures import Result, Spec
from harness.kit import files
from harness.kit.console import PlainProgress
from wse_core.errors import ConfigError, DeadlockError
from wse_core.params import machine


@pytest.fixture
def toy(monkeypatch):
    """A figure that notes what it was asked for."""
    asked = []

    def function(machine, max_cycle_level, progress):
        asked.append((machine["router.hop"], max_cycle_level))
        if max_cycle_level == 13:
            raise DeadlockError("nothing moves")
        progress.phase("points")
        progress.update(2, 2)
        rows = [{"side": 1, "cycles": 5, "error": None}, {"side": 2, "cycles": 7, "error": 0.125}]
        return Result(rows, {"ratio": 1.4}, lambda figure: figure.subplots().plot([1, 2], [5, 7]))

    monkeypatch.setitem(figures.FIGURES, "toy", Spec("toy", "two points", "a paper", function))
    monkeypatch.setitem(figures.NAMES, "toy", "gemv_scaling")
    return asked


def run(capsys, *words):
    """Return (exit status, output, messages) of ``wse figure``."""
    status = cli.main(["figure", "--no-progress", *words])
    done = capsys.readouterr()
    return status, done.out, done.err


def test_files_and_output(toy, tmp_path, capsys):
    out = tmp_path / "deep" / "er"
    status, text, _ = run(capsys, "toy", "--out", str(out), "--max-cycle-level", "4", "--set", "router.hop=2")
    assert status == 0
    assert toy == [(2, 4)]
    assert sorted(path.name for path in out.iterdir()) == ["toy.csv", "toy.md", "toy.png"]
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    with open(out / "toy.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["side", "cycles", "error"], ["1", "5", ""], ["2", "7", "0.125"]]
    assert (
        (out / "toy.md")
        .read_text(encoding="utf-8")
        .endswith("| side | cycles | error |\n|---|---|---|\n| 1 | 5 |  |\n| 2 | 7 | 0.125 |\n")
    )
    assert "two points" in text
    assert "a paper" in text
    assert "ratio  1.4" in text
    assert "toy.png" in text


def test_json(toy, tmp_path, capsys):
    status, text, _ = run(capsys, "toy", "--out", str(tmp_path), "--json")
    found = json.loads(text)
    assert status == 0
    assert toy == [(1, None)]
    assert found["rows"][1] == {"side": 2, "cycles": 7, "error": 0.125}
    assert found["notes"] == {"ratio": 1.4}
    assert [name.rsplit("/", 1)[1] for name in found["files"]] == ["toy.png", "toy.csv", "toy.md"]


def test_nothing_is_left_of_a_failure(toy, tmp_path, capsys):
    (tmp_path / "toy.csv").write_text("older", encoding="utf-8")
    status, _, message = run(capsys, "toy", "--out", str(tmp_path), "--max-cycle-level", "13")
    assert status == 1
    assert "nothing moves" in message
    assert [path.name for path in tmp_path.iterdir()] == ["toy.csv"]
    assert (tmp_path / "toy.csv").read_text(encoding="utf-8") == "older"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["gemv-scalling"], "there is no figure 'gemv-scalling'.*did you mean gemv-scaling"),
        (["x"], "known are gemm-scaling"),
        (["toy", "--max-cycle-level", "0"], "--max-cycle-level.*too small"),
        ([], "NAME"),
        (["toy", "--preset", "wse9"], "wse9"),
    ],
)
def test_bad_input(toy, words, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, message = run(capsys, *words)
    assert (status, out) == (2, "")
    assert re.search(text, message)
    assert not list(tmp_path.iterdir())


def test_a_file_is_in_the_way(toy, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    status, _, message = run(capsys, "toy", "--out", str(tmp_path / "file"))
    assert status == 2
    assert "not a directory" in message


def test_every_figure_can_be_loaded():
    for name in figures.NAMES:
        spec = figures.load(name)
        assert spec.name == name
        assert spec.summary
        assert spec.source


# --- gemv-scaling -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gemv():
    """The figure for one small matrix: two meshes simulated, two by the closed form."""
    from harness.figures.gemv_scaling import gemv_scaling

    text = io.StringIO()
    result = gemv_scaling(machine(), 8, PlainProgress(text, False), matrices=(256,), sides=(2, 4, 8, 64, 240, 2000))
    return result, text.getvalue()


def test_points_of_gemv_scaling(gemv):
    rows = gemv[0].rows
    assert {row["side"] for row in rows} == {2, 4, 8, 64, 240}
    assert {row["algorithm"] for row in rows} == {"pipeline", "ring", "ktree"}
    for row in rows:
        assert row["method"] == ("cycle-level" if row["side"] <= 8 else "closed form")
        assert row["simulated"] == ("mesh" if row["side"] <= 8 else "one row")
        assert row["compute_cycles"] + row["communication_cycles"] == row["cycles"]
        assert row["error"] == row["closed_form_cycles"] / row["simulated_cycles"] - 1
        assert abs(row["error"]) < (0.1 if row["algorithm"] == "ring" else 0.03)
    assert "==>" in gemv[1]


def test_shape_of_gemv_scaling(gemv):
    """Compute falls with the mesh; the chain's communication grows in proportion, that of the tree much less."""
    found = {(row["algorithm"], row["side"]): row for row in gemv[0].rows}
    assert found["ktree", 4]["compute_cycles"] > found["ktree", 64]["compute_cycles"]
    chain, tree = ([found[name, side]["communication_cycles"] for side in (64, 240)] for name in ("pipeline", "ktree"))
    assert chain[1] / chain[0] > 2.5
    assert tree[1] / tree[0] < 2.5
    assert gemv[0].notes["256: at this many PEs a side"] == 240
    assert gemv[0].notes["256: most pipeline / K-tree"] > 3


def test_picture_of_gemv_scaling(gemv, tmp_path):
    figure = matplotlib.figure.Figure()
    gemv[0].draw(figure)
    assert len(figure.axes) == 2
    files.write_picture(tmp_path / "x.png", gemv[0].draw)
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_matrices_that_fit_nowhere():
    from harness.figures.gemv_scaling import gemv_scaling

    with pytest.raises(ConfigError, match="room"):
        gemv_scaling(machine(), 4, None, matrices=(10_000,), sides=(2,))
