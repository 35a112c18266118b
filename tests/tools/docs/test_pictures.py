"""The pictures at the head of the README are there for light and dark pages, small, and drawn by commands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

import wse
from tests.conftest import ROOT
from tools.docs import moving, pictures
from traces.state import OPEN, SPAN
from wse_core.events import EVENT_DTYPE

FOLDER = ROOT / "docs" / "figures"
README = (ROOT / "README.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_there_for_light_and_for_dark_pages(name):
    shown = re.findall(
        r'<picture><source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)"><img src="([^"]+)" alt="[^"]+">',
        README,
    )
    assert (f"docs/figures/{name}-dark.png", f"docs/figures/{name}.png") in shown
    for ending, theme in pictures.THEMES.items():
        path = FOLDER / f"{name}{ending}.png"
        assert path.stat().st_size < pictures.MOST_BYTES
        with Image.open(path) as image:
            assert image.width >= 600
            assert "#{:02x}{:02x}{:02x}".format(*image.convert("RGB").getpixel((1, 1))) == theme["paper"]


def test_the_head_of_the_readme_moves():
    path = FOLDER / f"{pictures.MOVING}.svg"
    assert f"(docs/figures/{path.name})" in README.partition("\n## ")[0]
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < pictures.MOST_BYTES
    assert "<script" not in text
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in text


def test_the_readme_has_five_ways_in():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.*) \|$", README, re.MULTILINE)
    assert [name for name, _ in rows] == ["architecture", "ML systems", "CSL", "inference", "planning"]
    assert all(re.search(r"\]\(docs/[\w./]+\)", more) for _, more in rows)


def test_every_hop_of_the_run_is_in_the_picture(tmp_path):
    """All ways together are the links between PEs, and the clock has the cycles of the run."""
    (path,) = pictures.animated(tmp_path)
    assert path.read_text(encoding="utf-8") == (FOLDER / path.name).read_text(encoding="utf-8")
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    lengths = [
        abs(int(re.fullmatch(r"M\d+ \d+[hv](-?\d+)", move.get("path"))[1])) for move in root.iter(f"{SVG}animateMotion")
    ]
    assert sum(lengths) == 2 * 16 * (6 * 11 + 5) * moving.PITCH  # every number over every link, there and back
    assert len([rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "pe"]) == 12 * 6
    assert "201 cycles" in [text.text for text in root.iter(f"{SVG}text")]


def event(cycle, x, out, came, color=3, data=7):
    """Return a grant of a router on row 0, as a row of events."""
    return (cycle, data, x, 0, 1, color, 1 << out, came << 1)


def made(*rows):
    """Return events of these rows."""
    return np.array(list(rows), EVENT_DTYPE)


def test_a_wavelet_that_goes_straight_on_is_one_way():
    events = made(event(5, 3, 0, 4), event(6, 2, 0, 1), event(7, 1, 0, 1))
    assert moving.ways(events) == [moving.Way(5, 3, 0, 0, 3, 3)]


@pytest.mark.parametrize(
    "second",
    [event(7, 2, 0, 1), event(6, 2, 0, 4), event(6, 2, 0, 1, color=4), event(6, 2, 0, 1, data=8), event(6, 2, 1, 1)],
    ids=["a cycle later", "from the ramp", "another color", "other data", "back"],
)
def test_what_is_not_the_same_wavelet_is_a_way_of_its_own(second):
    found = moving.ways(made(event(5, 3, 0, 4), second))
    assert [way.hops for way in found] == [1, 1]


def test_stretches_that_overlap_are_one():
    spans = np.zeros(4, SPAN)
    spans["begin"], spans["end"] = [4, 1, 9, 20], [6, 5, 12, OPEN]
    assert list(moving.merged(spans)) == [(1, 6), (9, 12)]


def test_a_run_without_grants_is_refused(tmp_path):
    program, layout = wse.Program("still"), wse.Layout(1, 1)
    with program.task("main"):
        pass
    layout.place(program, 0, 0)
    board = wse.Fabric(layout)
    with wse.record(tmp_path / "run.h5", trace="full", fabric=board):
        board.launch("main")
        board.run()
    with pytest.raises(SystemExit, match="0 grants of routers"):
        moving.main([str(tmp_path / "run.h5"), str(tmp_path / "run.svg")])


def test_a_sweep_becomes_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pictures, "SWEEP", pictures.SWEEP.replace("width = 64", "width = 4").replace("1024", "4"))
    assert pictures.main([str(tmp_path), "--only", "readme-sums"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"readme-sums.png", "readme-sums-dark.png"}
    assert len(capsys.readouterr().out.splitlines()) == 2
