"""What a notebook draws of layouts and results."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from fabric import Fabric, Layout, Program
from wse_core.counters import USE_TEXT
from wse_core.errors import RouteError


def ports(name="relay <1>", color=3):
    """Return a program that sends and receives on a color."""
    p = Program(name)
    p.input_queue(0, color)
    p.output_queue(0, color)
    return p


def row(width, height):
    """Return a layout that broadcasts along its rows."""
    layout = Layout(width, height)
    layout.place(ports("first"), 0, 0, 1, height)
    layout.place(ports(), 1, 0, width - 1, height)
    layout.route(3, (0, 0, 1, height), rx="R", tx="E")
    if width > 2:
        layout.route(3, (1, 0, width - 2, height), rx="W", tx="ER", switches=[{"tx": "R"}])
    layout.route(3, (width - 1, 0, 1, height), rx="W", tx="R")
    return layout


def drawn(layout):
    """Return the picture as a tree, which it only becomes if it is well-formed."""
    return ElementTree.fromstring(layout._repr_html_())


def texts(figure):
    """Return the labels of a figure."""
    return [text.text for text in figure.iter("text")]


def strokes(figure):
    """Return how often each thing is drawn: ramps to the CE, ramps from it, heads of arrows."""
    path = "".join(path.get("d") for path in figure.iter("path"))
    return path.count("a6 6") // 2, path.count("h6v6"), len(re.findall(r"M[^MZ]*Z", path)) - path.count("h6v6")


def test_a_small_layout_is_drawn_pe_by_pe():
    tree = drawn(row(2, 2))
    programs, color = tree.iter("figure")
    assert programs.find("figcaption").text == "programs"
    assert color.find("figcaption").text == "color 3"
    assert len(list(programs.iter("rect"))) == 4
    assert texts(programs) == ["0", "1", "0", "1", "0", "1", "0", "1"]  # columns, rows, numbers of the programs
    assert strokes(color) == (2, 2, 2)
    titles = [title.text for title in color.iter("title")]
    assert titles == ["R > E", "W > R"]
    assert "relay <1> (2 PEs)" in "".join(tree.itertext())


@pytest.mark.parametrize("pes", [(40, 1), (757, 996)])
def test_a_large_layout_is_drawn_by_its_kinds_of_rows_and_columns(pes):
    width, height = pes
    layout = row(width, height)
    programs, color = drawn(layout).iter("figure")
    labels = ["0", f"1-{width - 2}", f"{width - 1}"] + (["0"] if height == 1 else [f"0-{height - 1}"])
    assert texts(color) == labels
    assert len(list(programs.iter("rect"))) == 3
    assert [title.text for title in color.iter("title")] == ["R > E", "position 0: W > ER; position 1: W > R", "W > R"]
    assert len(layout._repr_html_()) < 6000


def test_a_picture_leaves_out_the_middle_of_what_has_no_kinds():
    layout = Layout(64, 1)
    even, odd = ports("even"), ports("odd")
    layout.place(even, (0, 0, 64, 1, 2, 1))
    layout.place(odd, (1, 0, 63, 1, 2, 1))
    (programs,) = drawn(layout).iter("figure")
    labels = texts(programs)[:20]
    assert labels == [*map(str, range(10)), "…", *map(str, range(55, 64))]
    assert len(list(programs.iter("rect"))) == 19


def test_streams_stand_outside_and_part_rows_that_are_alike():
    layout = Layout(40, 30)
    layout.route(5, (0, 7, 40, 1), rx="E", tx="W")
    layout.input_stream(39, 7, "E", 5)
    layout.output_stream(0, 7, "W", 5)
    programs, color = drawn(layout).iter("figure")
    assert texts(color) == ["0", "1-38", "39", "0-6", "7", "8-29"]
    (marks,) = [path for path in color.iter("path") if path.get("class") == "stream"]
    assert marks.get("d").count("M") == 2
    assert not list(programs.iter("rect"))


def test_a_result_shows_headline_and_shares():
    p = Program("work")
    a = p.array("a", 8, "f32")
    with p.task("main"):
        p.fadds(a, a, 1.0)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    fabric = Fabric(layout)
    fabric.launch("main")
    result = fabric.run()
    tree = ElementTree.fromstring(result._repr_html_())
    text = "".join(tree.itertext())
    assert f"{result.cycles:,} cycles on 1 PEs" in text
    rows = {r[0].text: (r[1].text, r[2].text) for r in tree.iter("tr")}
    assert list(rows) == [USE_TEXT.get(name, name) for name in result.counters]  # the words of reports and pictures
    assert "stall_pipe" not in rows
    assert rows[USE_TEXT["busy"]] == (str(result.counters["busy"]), f"{result.utilisation:.1%}")
    assert rows["steps"][1] is None
    shares = [float(share.rstrip("%")) for _, share in rows.values() if share]
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_a_route_that_is_refused_paints_nothing():
    layout = row(4, 1)
    before = layout._repr_html_()
    for wrong in ({"kind": "range", "min_idx": 0}, {"kind": "range", "min_idx": 0, "max_idx": 3, "typo": 1}):
        with pytest.raises(RouteError):
            layout.route(3, (3, 0), rx="W", tx="R", filter=wrong)
        assert layout._repr_html_() == before
    assert layout.build().filters is None
