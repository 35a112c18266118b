"""Layouts: what they build, and a naive twin of their checks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.layout.layout import Layout
from fabric.layout.rectangles import runs
from fabric.program.program import Program
from tests.fabric.small_program import program
from wse_core import image as im
from wse_core.errors import LayoutError, RouteError, UnsupportedError
from wse_core.params import machine

# --- what is built ----------------------------------------------------------------------------------------------------


def test_routes_become_records():
    layout = Layout(3, 2)
    layout.place(program(inputs=[7], outputs=[7]), 0, 0, 3, 2)
    layout.route(
        7,
        (1, 0, 2, 2, 1, 1),
        rx="R",
        tx="WR",
        switches=[{"rx": "E"}, {"tx": "R"}],
        ring=True,
        pop="pop_on_advance",
        pos=2,
    )
    layout.route(7, (0, 0, 1, 2), rx="E", tx="R")
    layout.route(7, (2, 0, 1, 2), rx="R", tx="W")
    table = layout.build().routes[7]
    assert table.dtype == im.ROUTE_DTYPE
    row = table[1, 1]
    assert row["rx"].tolist() == [16, 2, 16, 0]
    assert row["tx"].tolist() == [17, 17, 16, 0]
    assert (row["valid"], row["pos"], row["ring"], row["pop"], row["teardown"]) == (7, 2, 1, 2, 0)
    assert table["tx"][0, :, 0].tolist() == [16, 17, 1]


def test_later_calls_paint_over_earlier_ones_and_steps_pick_columns():
    layout = Layout(6, 1)
    layout.route(1, None, rx="W", tx="W", teardown=True)
    layout.route(1, (0, 0, 6, 1, 2, 1), rx="E", tx="E", teardown=True)
    assert layout.build().routes[1]["rx"][0, :, 0].tolist() == [2, 1, 2, 1, 2, 1]
    assert layout.picture(1) == "E>E W>W E>E W>W E>E W>W"
    assert layout.picture(2) == "color 2 has no route"


def test_colors_with_a_queue_and_no_route_get_an_empty_table():
    layout = Layout(2, 1)
    layout.place(program(inputs=[3], outputs=[4]), 0, 0)
    spec = layout.build()
    assert sorted(spec.routes) == [3, 4]
    assert not spec.routes[3]["valid"].any()


def test_placement_and_images():
    layout = Layout(4, 3)
    a, b = program("a"), program("b")
    layout.place(a, 0, 0, 2, 3)
    layout.place(b.assemble(), 3, 1)
    layout.place(a, 3, 0)
    spec = layout.build()
    assert [image.name for image in spec.programs] == ["a", "b"]
    assert spec.program_index.tolist() == [[0, 0, -1, 0], [0, 0, -1, 1], [0, 0, -1, -1]]
    assert spec.program_index.dtype == np.int16
    assert layout.build() is spec


def test_filters_are_numbered_per_pe_in_the_order_of_colors():
    layout = Layout(3, 1)
    layout.place(program(inputs=[2, 5]), 0, 0, 3, 1)
    layout.route(5, None, rx="W", tx="R", filter={"kind": "range", "min_idx": 3, "max_idx": [[4, 5, 6]]})
    layout.route(
        2,
        (1, 0, 2, 1),
        rx="E",
        tx="R",
        filter={"kind": "counter", "init_counter": 1, "max_counter": 2, "limit1": 7, "count_control": True},
    )
    spec = layout.build()
    assert spec.routes[2]["filter"].tolist() == [[0, 1, 1]]
    assert spec.routes[5]["filter"].tolist() == [[1, 2, 2]]
    assert spec.filters.shape == (1, 3, 2)
    assert spec.filters["kind"].tolist() == [[[2, 0], [1, 2], [1, 2]]]
    assert spec.filters["max_idx"].tolist() == [[[4, 0], [0, 5], [0, 6]]]
    counter = spec.filters[0, 1, 0]
    assert [int(counter[k]) for k in ("counter", "max", "limit", "count_data", "count_control", "filter_control")] == [
        1,
        2,
        7,
        1,
        1,
        0,
    ]


def test_streams():
    layout = Layout(2, 2)
    layout.route(4, (0, 1, 2, 1), rx="W", tx="E")
    layout.route(5, (0, 0), rx="N", tx="W")
    streams = [layout.input_stream(0, 1, "W", 4), layout.input_stream(0, 0, "N", 5)]
    outs = [layout.output_stream(1, 1, "E", 4), layout.output_stream(0, 0, "W", 5)]
    spec = layout.build()
    assert spec.inputs == ((0, 1, im.DIR_W, 4), (0, 0, im.DIR_N, 5))
    assert spec.outputs == ((1, 1, im.DIR_E, 4), (0, 0, im.DIR_W, 5))
    assert [s.index for s in streams + outs] == [0, 1, 0, 1]


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_runs_cover_a_mask_exactly_once(h, w, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=h * w, max_size=h * w))).reshape(h, w)
    seen = np.zeros((h, w), int)
    for (row, stop), first, last in runs(mask):
        seen[row:stop, first:last] += 1
    assert np.array_equal(seen, mask.astype(int))


def test_one_column_that_differs_does_not_cut_the_others():
    mask = np.zeros((40, 9), bool)
    mask[:, 1::2] = True
    mask[::2, 0] = True
    assert len(list(runs(mask))) == len(list(runs(mask.T))) == 4 + 20


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_programs_placed_by_a_map_are_those_placed_one_by_one(h, w, data):
    which = np.array(data.draw(st.lists(st.integers(-1, 2), min_size=h * w, max_size=h * w))).reshape(h, w)
    programs = [Program(name) for name in "abc"]
    for p in programs:
        with p.task("main"):
            p.nop()
    by_map, one_by_one = Layout(w + 1, h + 2), Layout(w + 1, h + 2)
    by_map.place_each(programs, which, 1, 2)
    for k in range(3):
        for y, x in np.argwhere(which == k):
            one_by_one.place(programs[k], 1 + int(x), 2 + int(y))
    got, wanted = by_map.build(), one_by_one.build()
    assert [p.name for p in got.programs] == [p.name for p in wanted.programs]
    assert np.array_equal(got.program_index, wanted.program_index)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ([[0, 2]], "number 2 of 2 programs"),
        ([[0, -2]], "from -1 on"),
        ([0, 1], "two-dimensional"),
        ([[0.0]], "from -1 on"),
        ([[-1, 0]], r"PE \(1, 0\): programs 'old' and 'a' overlap"),
        ([[0, -1, -1]], "reaches outside"),
    ],
)
def test_maps_of_programs_that_are_refused_change_nothing(which, message):
    layout = Layout(2, 1)
    layout.place(Program("old"), 1, 0)
    before = layout._repr_html_()
    with pytest.raises(LayoutError, match=message):
        layout.place_each([Program("a"), Program("b")], np.array(which))
    assert layout._repr_html_() == before


def test_a_part_is_painted_as_if_it_were_a_layout():
    """Each of two parts side by side has what a layout of its size has."""
    whole, alone = Layout(6, 3), Layout(3, 2)
    p = Program("both")
    p.input_queue(0, 3)
    address = p.param("n", "u16")
    with p.task("main"):
        p.nop()
    for layout in (whole.part((0, 1, 3, 2)), whole.part((3, 1, 3, 2)), alone):
        assert (layout.width, layout.height, layout.machine) == (3, 2, machine("wse2"))
        layout.place(p, 0, 0, 3, 2)
        layout.route(3, (0, 0, 2, 2), rx="W", tx="E")
        layout.route_each(3, [(2, 0), (2, 1)], rx="W", tx="R")
        layout.set_param("n", 7, (1, 1))
        layout.set_param("n", 5, (2, 0))
    for layout in (whole, alone):
        layout.input_stream(0, layout.height - 1, "W", 3)
        layout.input_stream(0, layout.height - 2, "W", 3)
    found, wanted = whole.build().routes[3], alone.build().routes[3]
    for name in ("rx", "tx"):
        assert np.array_equal(found[name][1:, :3], wanted[name])
        assert np.array_equal(found[name][1:, 3:], wanted[name])
        assert not found[name][0].any()
    places = {(x, y): words.ravel().tolist() for _, words, x, y in whole.param_writes()}
    assert places == {(1, 2): [7], (4, 2): [7], (2, 1): [5], (5, 1): [5]}, address


def test_parameters_reach_the_words_of_their_pes():
    layout = Layout(4, 2)
    a, b = Program("a"), Program("b")
    a.param("n", "u16")
    b.array("pad", 5, "u16")
    b.param("n", "u16")
    b.param("v", "f32", count=2)
    for p in (a, b):
        with p.task("main"):
            p.nop()
    layout.place(a, 0, 0, 2, 2)
    layout.place(b, 2, 0, 1, 2)
    layout.set_param("n", np.arange(8).reshape(2, 4))
    layout.set_param("v", [1, 2], (2, 0))
    layout.set_param("v", 3, (2, 1))
    layout.set_param("n", 99, (0, 0, 4, 2, 2, 2))
    got = {}
    for address, words, x, y in layout.param_writes():
        for dy, dx in np.ndindex(words.shape[:2]):
            got[x + dx, y + dy, address] = words[dy, dx].tolist()
    na, nb, vb = (p.assemble().symbols[s].address for p, s in ((a, "n"), (b, "n"), (b, "v")))
    assert na != nb
    assert got == {
        (0, 0, na): [99],
        (1, 0, na): [1],
        (0, 1, na): [4],
        (1, 1, na): [5],
        (2, 0, nb): [99],
        (2, 1, nb): [6],
        (2, 0, vb): [0, 0x3F80, 0, 0x4000],
        (2, 1, vb): [0, 0x4040, 0, 0x4040],
    }


@pytest.mark.parametrize("shape", [(2, 3, 2), (1, 3, 2), (2, 1, 2), (1, 1, 2)])
def test_broadcast_parameters_are_those_of_whole_arrays(shape):
    """An array with one entry for many PEs is encoded once, programs with a symbol at one place share a write."""
    a, b = Program("a"), Program("b")
    for p in (a, b):
        p.param("v", "f32", count=2)
        with p.task("main"):
            p.nop()
    small = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = []
    for values in (np.broadcast_to(small, (2, 3, 2)), np.array(np.broadcast_to(small, (2, 3, 2)))):
        layout = Layout(3, 2)
        layout.place(a, 0, 0, 1, 2)
        layout.place(b, 1, 0, 2, 2)
        layout.set_param("v", values)
        (address, words, x, y), *more = layout.param_writes()
        assert not more
        got.append((address, words.tolist(), x, y))
    assert got[0] == got[1]
    assert got[0][1] == np.ascontiguousarray(values).view("<u2").tolist()


def test_a_whole_wafer_of_equal_code_builds_in_well_under_a_second():
    """Nothing is done PE by PE in Python: calls are counted, which do not depend on the host as seconds do."""
    m = machine()
    p = program(inputs=[1, 2], outputs=[2, 3])
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    layout = Layout(757, 996, m)
    layout.place(p, 0, 0, 757, 996)
    layout.route(1, (0, 0, 756, 996), rx="W", tx="ER")
    layout.route(1, (756, 0, 1, 996), rx="W", tx="R")
    layout.route(2, (0, 0, 757, 996, 2, 1), rx="R", tx="R", switches=[{"rx": "W"}])
    layout.route(3, (0, 1, 757, 995), rx="RS", tx="N")
    layout.route(3, (0, 0, 757, 1), rx="S", tx="N")
    layout.set_param("unused", 0) if "unused" in p.assemble().symbols else None
    for x in range(757):
        layout.output_stream(x, 0, "N", 3)
    spec = layout.build()
    sys.setprofile(None)
    assert calls < 757 * 100, calls  # some per stream; neither per PE nor per pair of streams
    assert spec.routes[1].shape == (996, 757)


# --- a naive twin of the checks ---------------------------------------------------------------------------------------

directions = st.sets(st.sampled_from("WENSR"), min_size=1, max_size=3).map("".join)
painted = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, 1),
        st.integers(1, 3),
        st.integers(1, 2),
        directions,
        directions,
        st.one_of(st.none(), st.tuples(st.sampled_from(["rx", "tx"]), st.sampled_from("WENSR"))),
        st.sampled_from(["", "", "", "x", "y", "xy"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def naive(width, height, cells, has_in, has_out, outputs):
    """Return the places, as (kind, x, y, color), where a layout breaks a rule of links or ramps, PE by PE."""
    bad = set()

    def rx_of(color, x, y, port):
        cell = cells.get((color, x, y))
        swap, partner = (cell["swap"] if cell else ""), cells.get((color ^ 1, x, y))
        need = {"x"} if port in "WE" else {"y"} if port in "NS" else {"x", "y"}
        if cell and need <= set(swap):
            return partner["rx"] if partner else set()
        return cell["rx"] if cell else set()

    for (color, x, y), cell in cells.items():
        mate = cells.get((color ^ 1, x, y))
        if set(cell["swap"]) != set(mate["swap"] if mate else ""):
            bad.add(("swap", x, y, color))
        if "R" in cell["tx"] and not has_in[color]:
            bad.add(("in", x, y, color))
        out = has_out[color ^ 1] if set(cell["swap"]) == {"x", "y"} else has_out[color]
        if "R" in cell["rx"] and not out:
            bad.add(("out", x, y, color))
        for letter in cell["tx"] - {"R"}:
            d = im.DIRS.index(letter)
            nx, ny = x + im.STEP[d][0], y + im.STEP[d][1]
            if not (0 <= nx < width and 0 <= ny < height):
                if (x, y, letter, color) not in outputs:
                    bad.add(("edge", x, y, color))
                continue
            there = cells.get((color, nx, ny))
            if not (there and there["teardown"]) and im.DIRS[d ^ 1] not in rx_of(color, nx, ny, im.DIRS[d ^ 1]):
                bad.add(("link", x, y, color))
    return bad


KINDS = {"tx has R": "in", "rx has R": "out", "leaves the": "edge", "leads to PE": "link"}


@given(painted, st.lists(st.booleans(), min_size=4, max_size=4), st.booleans())
def test_vectorised_checks_agree_with_a_naive_twin(calls, queues, attach):
    width, height = 3, 2
    layout, cells = Layout(width, height), {}
    has_in, has_out = queues[:2], queues[2:]
    layout.place(program(inputs=np.flatnonzero(has_in), outputs=np.flatnonzero(has_out)), 0, 0, 3, 2)
    for color, x, y, w, h, rx, tx, switch, swap, teardown in calls:
        w, h = min(w, width - x), min(h, height - y)
        switches = [] if switch is None else [{switch[0]: switch[1]}]
        layout.route(color, (x, y, w, h), rx, tx, switches, swap=swap, teardown=teardown)
        extra = {key: set(letter) for change in switches for key, letter in change.items()}
        for px in range(x, x + w):
            for py in range(y, y + h):
                cells[color, px, py] = {
                    "rx": set(rx) | extra.get("rx", set()),
                    "tx": set(tx) | extra.get("tx", set()),
                    "swap": swap,
                    "teardown": teardown,
                }
    outputs = set()
    if attach:
        for (color, x, y), cell in cells.items():
            for letter in cell["tx"] - {"R"}:
                d = im.DIRS.index(letter)
                if not (0 <= x + im.STEP[d][0] < width and 0 <= y + im.STEP[d][1] < height):
                    layout.output_stream(x, y, letter, color)
                    outputs.add((x, y, letter, color))
    bad = naive(width, height, cells, has_in, has_out, outputs)
    if not bad:
        layout.build()
        return
    with pytest.raises((RouteError, UnsupportedError)) as info:
        layout.build()
    if isinstance(info.value, UnsupportedError):
        assert any(kind == "swap" for kind, *_ in bad)
        return
    kind = next(kind for text, kind in KINDS.items() if text in str(info.value))
    assert (kind, info.value.x, info.value.y, info.value.color) in bad
