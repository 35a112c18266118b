"""Heat maps: the numbers that are drawn, the picture, the table beside it."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from traces import writer
from traces.heatmap import plane, write_heatmap
from traces.style import integer_axes, new_figure, short
from wse_core.counters import LINKS
from wse_core.errors import TraceError
from wse_core.image import DIRS

PE = np.arange(2 * 3 * 4).reshape(2, 3, 4)
LINK = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


def test_plane_of_a_counter_per_pe():
    assert np.array_equal(plane(PE), PE[0] + PE[1])
    assert np.array_equal(plane(PE, window=1), PE[1])


def test_links_are_numbered_as_in_the_machine():
    assert "".join(LINKS) == DIRS


def test_plane_of_a_counter_per_link():
    assert np.array_equal(plane(LINK), LINK.sum(axis=(0, 3)))
    assert np.array_equal(plane(LINK, window=0, link="S"), LINK[0, :, :, 3])


@pytest.mark.parametrize(
    ("values", "choice", "message"),
    [
        (PE, {"window": 2}, "no window 2"),
        (PE, {"window": -1}, "no window -1"),
        (PE, {"link": "W"}, "no links"),
        (LINK, {"link": "Q"}, "no link 'Q'"),
        (PE[0], {}, "not a counter"),
    ],
)
def test_planes_that_are_not_there(values, choice, message):
    with pytest.raises(TraceError, match=message):
        plane(values, **choice)


def test_picture_and_table(tmp_path):
    from matplotlib.image import imread

    values = np.array([[1, 2, 3], [4, 5, 1000]], np.uint64)
    png, table = write_heatmap(tmp_path / "busy.png", values, "Busy cycles", "cycles")
    assert sorted(tmp_path.iterdir()) == [table, png]
    assert table.read_text().splitlines() == ["# Busy cycles [cycles]", "y\\x,0,1,2", "0,1,2,3", "1,4,5,1000"]
    assert np.array_equal(np.loadtxt(table, delimiter=",", skiprows=2)[:, 1:], values)
    picture = imread(png)
    assert picture.ndim == 3
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50


def colours(path):
    """Return the colours that a picture has much of, white and black apart."""
    from matplotlib.image import imread

    found, counts = np.unique(imread(path)[..., :3].reshape(-1, 3), axis=0, return_counts=True)
    return [tuple(c) for c, n in zip(found.tolist(), counts, strict=True) if n > 2000 and 0.1 < sum(c) < 2.9]


def test_scales_begin_at_zero(tmp_path):
    """116 cycles beside 117 are nearly the same colour, not the two ends of the scale."""
    one, other = (
        colours(write_heatmap(tmp_path / "a.png", [values], "t", "u")[0]) for values in ([116, 117], [1, 117])
    )
    assert max(abs(np.subtract(a, b)).max() for a in one for b in one) < 0.1
    assert max(abs(np.subtract(a, b)).max() for a in other for b in other) > 0.5


def test_numbers_have_all_their_digits():
    assert [short(v) for v in (0.0, 117, 326583.0, 0.123456, 1234.5, 3e12)] == [
        "0", "117", "326,583", "0.1235", "1,234", "3e+12",
    ]  # fmt: skip


def test_axes_of_pes_and_cycles_have_no_halves():
    for limits in ((-0.5, 0.5), (-0.5, 3.5), (0, 400_000)):
        axes = new_figure(4, 3).add_subplot()
        axes.set(xlim=limits)
        integer_axes(axes)
        ticks = axes.get_xticks()
        assert np.array_equal(ticks, np.round(ticks))
        labels = axes.xaxis.get_major_formatter().format_ticks(ticks)
        assert labels[-1] == f"{ticks[-1]:,.0f}"


def test_row_zero_is_at_the_top(tmp_path):
    from matplotlib.image import imread

    values = np.zeros((2, 1))
    values[0] = 1
    picture = imread(write_heatmap(tmp_path / "a.png", values, "", "")[0])
    column = picture[:, int(picture.shape[1] * 0.45), :3]
    yellow = np.flatnonzero((column[:, 0] > 0.9) & (column[:, 2] < 0.3))
    purple = np.flatnonzero((column[:, 0] < 0.4) & (column[:, 1] < 0.1) & (column[:, 2] > 0.2))
    assert yellow.size > 0
    assert purple.size > 0
    assert yellow.max() < purple.min()


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    first = write_heatmap(tmp_path / "a.png", PE[0], "t", "u")[0].read_bytes()
    assert write_heatmap(tmp_path / "b.png", PE[0], "t", "u")[0].read_bytes() == first


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (300, 200)])
def test_extreme_shapes(tmp_path, shape):
    png, table = write_heatmap(tmp_path / "a.png", np.ones(shape), "t", "u")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert len(table.read_text().splitlines()) == shape[0] + 2


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3), (0, 4)])
def test_shapes_that_are_no_rectangle(tmp_path, shape):
    with pytest.raises(TraceError, match="height x width"):
        write_heatmap(tmp_path / "a.png", np.ones(shape), "t", "u")
    assert list(tmp_path.iterdir()) == []


def test_not_a_number_is_drawn_and_written(tmp_path):
    png, table = write_heatmap(tmp_path / "a.png", np.array([[np.nan, 1.0], [np.inf, 2.0]]), "t", "u")
    assert png.exists()
    assert table.read_text().splitlines()[2:] == ["0,nan,1.0", "1,inf,2.0"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer.os, "fsync", fail)
    with pytest.raises(TraceError, match="No space left on device"):
        write_heatmap(tmp_path / "a.png", PE[0], "t", "u")
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_the_interactive_part_of_matplotlib_is_loaded(tmp_path, child_env):
    import subprocess
    import sys

    code = (
        "import sys, numpy as np; from traces.heatmap import write_heatmap; "
        "write_heatmap('a.png', np.ones((2, 2)), 't', 'u'); sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=child_env, check=False)
    assert done.returncode == 0
    assert (tmp_path / "a.png").exists()
