"""Rows as tables, and what a figure shows of them."""

from __future__ import annotations

import csv
import math

import pytest
from matplotlib.figure import Figure

from harness.sweep import picture, table
from harness.sweep.description import SweepAxis
from wse_core.errors import ConfigError

FOUND = [
    ({"n": 4, "op": "a"}, {"cycles": 10, "error_of": "nan", "parts": [1, 2]}),
    ({"n": 8, "op": "a"}, {"cycles": 18, "error_of": 0.5, "extra": "x"}),
    ({"n": 4, "op": "b"}, {"error": "too large, by far"}),
    ({"n": 8, "op": "b"}, {"cycles": 20, "error_of": 1}),
]
AXES = (SweepAxis("n", (4, 8)), SweepAxis("op", ("a", "b")))


def test_rows_have_all_columns_axes_first_errors_last():
    rows = table.rows_of(FOUND)
    assert {tuple(row) for row in rows} == {("n", "op", "cycles", "error_of", "parts", "extra", "error")}
    assert rows[0]["parts"] == "[1, 2]"
    assert rows[2]["cycles"] is None


def test_both_tables_hold_the_same(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = table.rows_of(FOUND)
    table.write_tables(tmp_path, rows)
    with open(tmp_path / "table.csv", newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    read = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert [row["cycles"] for row in found] == ["10", "18", "", "20"]
    assert read["cycles"] == [10, 18, None, 20]
    assert math.isnan(read["error_of"][0])
    assert read["error_of"][1:] == [0.5, None, 1.0]
    assert read["error"][2] == found[2]["error"] == "too large, by far"


def test_csv_needs_no_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    table.write_tables(tmp_path, table.rows_of(FOUND))
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_a_column_of_mixed_kinds_is_text():
    assert table.columns_of([{"a": 1}, {"a": "x"}, {"a": None}])["a"] == ["1", "x", None]


def test_the_figure_has_a_line_per_choice_of_the_other_axes():
    rows, figure = table.rows_of(FOUND), Figure()
    picture.draw(figure, rows, AXES, picture.axis_of_x(AXES), "cycles", "log-x")
    (at,) = figure.axes
    assert (at.get_xlabel(), at.get_ylabel(), at.get_xscale(), at.get_yscale()) == ("n", "cycles", "log", "linear")
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in at.lines}
    assert drawn == {"op a": ([4, 8], [10, 18]), "op b": ([8], [20])}


def test_words_are_places_on_the_axis():
    rows, figure = table.rows_of(FOUND), Figure()
    picture.draw(figure, rows, AXES, "op", "cycles", "linear")
    (at,) = figure.axes
    assert [text.get_text() for text in at.get_xticklabels()] == ["a", "b"]
    assert {line.get_label() for line in at.lines} == {"n 4", "n 8"}


def test_a_sweep_of_one_point_is_drawn():
    figure = Figure()
    picture.draw(figure, table.rows_of([({}, {"cycles": 3})]), (), "", "cycles", "linear")
    assert list(figure.axes[0].lines[0].get_ydata()) == [3]


def test_what_is_drawn_if_nobody_says():
    rows = table.rows_of(FOUND)
    assert picture.axis_of_x((SweepAxis("op", ("a", "b")), SweepAxis("n", (1, 2)))) == "n"
    assert picture.axis_of_x((SweepAxis("op", ("a", "b")),)) == "op"
    assert picture.drawn_column(rows) == "cycles"
    assert picture.drawn_column(rows, "error_of") == "error_of"
    with pytest.raises(ConfigError, match="'cycle' is no column of the table.*did you mean cycles"):
        picture.drawn_column(rows, "cycle")
    with pytest.raises(ConfigError, match="'extra' has no numbers"):
        picture.drawn_column(rows, "extra")


@pytest.mark.parametrize(("values", "ticks"), [([1, 16, 64, 256], 4), (list(range(1, 40)), None)])
def test_values_of_an_axis_have_ticks_and_a_figure_has_a_title(values, ticks):
    """1, 16, 64, 256 are these numbers and not powers of ten."""
    from traces.style import new_figure

    figure = new_figure(5, 3)
    rows = [{"n": value, "cycles": value * 3, "error": None} for value in values]
    picture.draw(figure, rows, [SweepAxis("n", tuple(values))], "n", "cycles", "log-x")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") or axes.get_title() == "cycles over n"
    if ticks:
        assert [text.get_text() for text in axes.get_xticklabels()] == [str(value) for value in values]
    assert any(line.get_visible() for line in axes.get_xgridlines())
