"""The pictures of the documentation are there, small, and drawn by one command."""

from __future__ import annotations

import re

import pytest
from PIL import Image

from tests.conftest import ROOT
from tools.docs import gallery

FOLDER = ROOT / "docs" / "figures"


@pytest.mark.parametrize("name", gallery.RUNS)
def test_the_pictures_of_the_documentation(name):
    kinds = {"busy", "links", "stalls", "windows", "timeline", "utilisation"}
    found = {path.stem.partition("-")[2]: path for path in FOLDER.glob(f"{name}-*.png")}
    assert set(found) == kinds
    for path in [*found.values(), FOLDER / f"{name}-animation.gif"]:
        assert path.stat().st_size < gallery.MOST_BYTES[path.suffix]
        with Image.open(path) as image:
            assert min(image.size) > 50
            assert max(image.size) >= 600  # type of 8 points can be read


def test_the_pages_show_every_picture():
    def shown(page):
        return set(re.findall(r"\(figures/([^)]+)\)", page.read_text(encoding="utf-8")))

    pictures = {path.name for path in FOLDER.iterdir()}
    light = {name for name in pictures if not name.endswith("-dark.png")}
    assert {name.replace("-dark", "") for name in pictures} == light
    assert set.union(*(shown(page) for page in (ROOT / "docs").glob("*.md"))) == light
    ours = {name for name in pictures if name.startswith(tuple(f"{run}-" for run in gallery.RUNS))}
    assert shown(ROOT / "docs" / "traces.md") == ours


def test_the_gallery_has_a_command_under_each_picture():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    under = re.findall(r"^!\[[^\]]+\]\(figures/([^)]+)\)\n\n(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(under) == text.count("](figures/")
    assert len({name for name, _ in under}) == len(under) > 20
    for name, words in under:
        assert re.search(r"`(wse [a-z]+|python -m tools\.docs\.[a-z]+)\b[^`]*`$", words), name


def test_the_command_draws_them(tmp_path, capsys):
    assert gallery.main([str(tmp_path), "--run", "chain"]) == 0
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in FOLDER.glob("chain-*")}
    assert len(capsys.readouterr().out.splitlines()) == len(drawn)
    with Image.open(tmp_path / "chain-animation.gif") as image:
        assert image.n_frames == 30
