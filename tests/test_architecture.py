"""The picture of the architecture against the source: packages, edges and modules are those that exist."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.test_imports import PACKAGES, imports_of, module_name, sources
from tools.docs import architecture


def test_packages_are_those_that_exist():
    assert set(architecture.PACKAGES) == set(architecture.EDGES) == set(architecture.PLACES) == set(PACKAGES)


def test_every_edge_of_the_source_is_drawn():
    found = {
        (module_name(path).partition(".")[0], imported.partition(".")[0])
        for path in sources()
        for imported, _ in imports_of(path)
    }
    found = {(a, b) for a, b in found if a != b and {a, b} <= set(PACKAGES)}
    assert found == {(name, other) for name, below in architecture.EDGES.items() for other in below}


def test_stations_name_modules_that_exist():
    for _, _, module in (*architecture.WAVELET, *architecture.WEIGHT):
        assert (ROOT / module).is_file(), module


def test_the_page_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", page, re.MULTILINE))
    for package in PACKAGES:
        rooms = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        named = {word.rpartition("/")[2] for word in re.findall(r"`([\w/]+)`", rows[package])}
        assert rooms - {"errors"} == named, package  # errors are no part of the machine


def test_the_picture_is_small_and_has_words_beside_it():
    path = ROOT / architecture.PICTURE
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size <= architecture.MOST_BYTES
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"!\[([^\]]+)\]\(figures/architecture\.png\)", page)
    assert all(name in words for name in PACKAGES)


def test_it_can_be_drawn(tmp_path):
    path = tmp_path / "a.png"
    assert architecture.main([str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
