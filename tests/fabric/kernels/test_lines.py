"""Lines of places: directions, and programs on PEs that take part in several lines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.collectives.pieces.lines import Line, compose
from fabric.kernels.collectives.pieces.sums import lines_of
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.program.program import Program
from wse_core.params import machine


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 3), st.integers(0, 3))
def test_a_snake_visits_every_pe_once_by_single_steps(width, height, x, y):
    line = Line.snake(width, height, x, y)
    places = [rect[:2] for rect in line.rects]
    assert sorted(places) == sorted((x + i, y + j) for i in range(width) for j in range(height))
    step = {"W": (-1, 0), "E": (1, 0), "N": (0, -1), "S": (0, 1)}
    for k in range(len(line) - 1):
        dx, dy = step[line.directions(k, "A")]
        assert places[k + 1] == (places[k][0] + dx, places[k][1] + dy)
        dx, dy = step[line.directions(k + 1, "T")]
        assert places[k] == (places[k + 1][0] + dx, places[k + 1][1] + dy)


def test_ends_have_no_way_on():
    line = Line.rows(3, 5)
    assert line.copies == 5
    assert line.directions(1, "TAR") == "WER"
    with pytest.raises(KeyError):
        line.directions(0, "T")
    with pytest.raises(KeyError):
        line.directions(2, "A")


def test_compose_builds_one_program_per_combination():
    rows, column = Line.rows(4, 3), Line.columns(1, 3)
    built = []

    def build(roles):
        built.append(roles)
        p = Program(str(roles))
        with p.task("main"):
            p.nop()
        return p

    layout = Layout(5, 3)
    compose(layout, [(rows, ["first", "odd", "even", "odd"]), (column, ["first", "rest", "rest"])], build)
    spec = layout.build()
    names = [[spec.programs[k].name if k >= 0 else None for k in row] for row in spec.program_index]
    assert sorted(map(str, built)) == sorted({name for row in names for name in row if name})
    for y, row in enumerate(names):
        assert row == [
            str(("first", "rest" if y else "first")),
            str(("odd", None)),
            str(("even", None)),
            str(("odd", None)),
            None,
        ]


def test_programs_that_alternate_are_placed_by_one_call(monkeypatch):
    """The cost is that of the rectangle, not of the number of pieces into which the programs cut it."""
    calls = []
    monkeypatch.setattr(Layout, "place", lambda self, program, *where: calls.append("place"))
    each = Layout.place_each
    monkeypatch.setattr(Layout, "place_each", lambda self, *args: calls.append("place_each") or each(self, *args))
    layout = Layout(60, 40)
    kinds = [(Line.rows(60, 40), [k % 3 for k in range(60)]), (Line.columns(60, 40), [k % 2 for k in range(40)])]
    compose(layout, kinds, lambda roles: Program(str(roles)))
    assert calls == ["place_each"]
    x, y = np.meshgrid(np.arange(60) % 3, np.arange(40) % 2)
    names = [program.name for program in layout._programs]
    assert np.array_equal(
        np.array(names)[layout._index],
        [[f"({i}, {j})" for i, j in zip(*row, strict=True)] for row in zip(x, y, strict=True)],
    )


def test_only_the_lines_of_a_form_are_made(monkeypatch):
    """A snake through a wafer has 750,000 places."""
    wanted = {"row": [7], "column": [5], "xy": [7, 5], "snake": [35]}
    assert {form: [len(line) for line in lines_of(form, 7, 5)] for form in wanted} == wanted
    monkeypatch.setattr(Line, "snake", None)
    assert [len(line) for line in lines_of("xy", 7, 5)] == [7, 5]
    result = KERNELS["allreduce"].run(machine(), form="xy", algorithm="tree", width=7, height=5, n=3)
    assert result["verified"]
