"""Layouts: what they build, a naive twin of their checks, and every refusal with its place."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.layout.layout import Layout
from fabric.layout.rectangles import Rect, runs
from fabric.program.program import Program
from wse_core import image as im
from wse_core.errors import LayoutError, ProgramError, RouteError, UnsupportedError
from wse_core.params import machine


def program(name="p", inputs=(), outputs=(), write=None, on=None):
    """Return a program that binds queues to colors and does nothing else, unless `write(p)` does."""
    p = Program(name, on)
    for q, color in enumerate(inputs):
        p.input_queue(q, color)
    for q, color in enumerate(outputs):
        p.output_queue(q, color)
    with p.task("main"):
        (write or Program.nop)(p)
    return p


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


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"color": 24}, r"PE \(1, 1\): color 24 does not exist on wse2. Try: colors 0 .. 23"),
        ({"color": -1}, "color -1 does not exist"),
        ({"rx": "Q"}, r"PE \(1, 1\), color 3: 'Q' in rx is not a direction. Try: W, E, N, S or R"),
        ({"tx": "EX"}, "'X' in tx is not a direction"),
        ({"rx": ""}, "rx is empty"),
        ({"tx": ""}, "tx is empty"),
        ({"switches": [{"tx": ""}]}, "switch position 1: tx=''; on wse2 a position changes one of rx or tx"),
        ({"switches": [{"rx": "E", "tx": "W"}]}, "switch position 1: rx='E', tx='W'; on wse2 a position changes one"),
        ({"switches": [{"tx": "EW"}]}, "to a single direction"),
        ({"switches": [{"ring": True}]}, "changes neither rx nor tx"),
        ({"switches": [{"tx": "E"}] * 4}, "4 switch positions besides position 0; a router has 3"),
        ({"pos": 1}, "the start position 1 is not one of the 1 positions"),
        ({"pop": "pop"}, "pop mode 'pop' is unknown.*no_pop, always_pop"),
        ({"swap": "z"}, "swap 'z' is unknown"),
        ({"inject": "medium"}, "inject 'medium' is unknown"),
        ({"filter": {"kind": "bloom"}}, "unknown kind of filter 'bloom'"),
        ({"filter": {"kind": "range"}}, "range filter without max_idx"),
        ({"filter": {"kind": "range", "max_idx": 1, "min": 2}}, "range filter: unknown key 'min'"),
        ({"filter": {"kind": "range", "max_idx": 70000}}, "max_idx must be in 0 .. 65535"),
        ({"filter": {"kind": "range", "max_idx": [1, 2]}}, r"one per PE \(shape \(1, 1\)\)"),
    ],
)
def test_routes_that_no_router_has(arguments, message):
    layout = Layout(3, 3)
    with pytest.raises(RouteError, match=message):
        layout.route(**{"color": 3, "rect": (1, 1), "rx": "W", "tx": "E", **arguments})


def test_a_color_in_teardown_may_be_configured_at_run_time():
    layout = Layout(2, 1)
    layout.route(3, (0, 0), rx="W", tx="E")
    layout.route(3, (1, 0), rx="", tx="", teardown=True)
    table = layout.build().routes[3]
    assert table["teardown"].tolist() == [[0, 1]]
    assert table["tx"][..., 0].tolist() == [[2, 0]]


def test_a_route_instruction_makes_a_color_configurable_at_run_time():
    def build(write):
        layout = Layout(2, 1)
        layout.place(program(write=write), 1, 0)
        layout.route(3, (0, 0), rx="W", tx="E")
        return layout.build()

    assert build(lambda p: p.route(3, "W", "R")).routes[3]["tx"][..., 0].tolist() == [[2, 0]]
    with pytest.raises(RouteError, match=r"leads to PE \(1, 0\), which has no route for it"):
        build(lambda p: p.route(4, "W", "R"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rx": "WN"}, "more than one direction, wse3 allows one"),
        ({"switches": [{"rx": "E"}], "color": 10}, "this color has no switch on wse3"),
        ({"inject": "low"}, "wse3 has no CE injection"),
    ],
)
def test_what_wse3_routers_do_not_have(arguments, message):
    layout = Layout(3, 3, machine("wse3"))
    with pytest.raises(RouteError, match=message):
        layout.route(**{"color": 3, "rect": (1, 1), "rx": "W", "tx": "E", **arguments})
    layout.route(3, (1, 1), rx="W", tx="E", switches=[{"rx": "N", "tx": "S"}])


def build(width, height, *routes, programs=(), streams=()):
    layout = Layout(width, height)
    for where, p in programs:
        layout.place(p, *where)
    for color, rect, rx, tx, more in routes:
        layout.route(color, rect, rx, tx, **more)
    for kind, *rest in streams:
        getattr(layout, f"{kind}_stream")(*rest)
    layout.build()


@pytest.mark.parametrize(
    ("do", "error", "message"),
    [
        (
            lambda: build(3, 1, (3, None, "W", "E", {})),
            RouteError,
            r"PE \(2, 0\), color 3: tx E leaves the 3 x 1 PEs of the layout. Try: layout.output_stream\(2, 0, 'E', 3\)",
        ),
        (
            lambda: build(3, 1, (3, (0, 0), "W", "E", {})),
            RouteError,
            r"PE \(0, 0\), color 3: tx E leads to PE \(1, 0\), which has no route for it: a wavelet would be stuck in "
            r"its router for ever. Try: rx with W \(west\) in the route of PE \(1, 0\)",
        ),
        (
            lambda: build(1, 2, (3, (0, 1), "S", "N", {}), (3, (0, 0), "EW", "S", {})),
            RouteError,
            r"PE \(0, 1\), color 3: tx N leads to PE \(0, 0\), which takes it from WE only.*rx with S \(south\)",
        ),
        (
            lambda: build(2, 1, (3, (1, 0), "W", "R", {})),
            RouteError,
            r"PE \(1, 0\), color 3: tx has R, the ramp to the CE, but no program runs there.*input_queue",
        ),
        (
            lambda: build(2, 1, (3, (1, 0), "W", "R", {}), programs=[((1, 0), program("q", inputs=[4]))]),
            RouteError,
            "but program 'q' there binds no input queue to the color",
        ),
        (
            lambda: build(2, 1, (3, (1, 0), "R", "W", {})),
            RouteError,
            r"PE \(1, 0\), color 3: rx has R, the ramp from the CE, but no program runs there",
        ),
        (
            lambda: build(1, 1, (8, (0, 0), "W", "W", {"inject": "low"}), streams=[("output", 0, 0, "W", 8)]),
            RouteError,
            r"CE injection .* output queue color // 4, but no program runs there.*output_queue\(2, 8\)",
        ),
        (
            lambda: build(
                1,
                1,
                (8, (0, 0), "R", "W", {"inject": "low"}),
                programs=[((0, 0), program("q", outputs=[8]))],
                streams=[("output", 0, 0, "W", 8)],
            ),
            RouteError,
            "program 'q' there does not bind output queue 2 to it",
        ),
        (
            lambda: build(1, 1, (0, (0, 0), "W", "W", {"swap": "x"})),
            UnsupportedError,
            r"PE \(0, 0\), color 0: swap is enabled on one color of the pair 0, 1 only",
        ),
        (
            lambda: build(1, 1, (0, (0, 0), "W", "R", {"filter": {"kind": "sparse_counter"}})),
            UnsupportedError,
            "sparse_counter are not modelled",
        ),
        (
            lambda: build(
                1,
                1,
                *[(c, (0, 0), "W", "R", {"filter": {"kind": "range", "max_idx": 1}}) for c in range(7)],
                programs=[((0, 0), program(inputs=range(7)))],
            ),
            RouteError,
            r"PE \(0, 0\): 7 colors have a filter here, a PE has 6 filters",
        ),
        (
            lambda: build(2, 1, streams=[("input", 0, 0, "W", 3)]),
            RouteError,
            r"PE \(0, 0\), color 3: input stream on side W: the PE has no route for the color with W in rx",
        ),
        (
            lambda: build(2, 1, (3, (0, 0), "E", "W", {}), streams=[("output", 0, 0, "N", 3)]),
            RouteError,
            "leaves the 2 x 1",
        ),
        (lambda: build(2, 1, streams=[("output", 0, 0, "N", 3)]), RouteError, "no route for the color with N in tx"),
        (
            lambda: build(2, 1, streams=[("input", 0, 0, "E", 3)]),
            LayoutError,
            r"PE \(0, 0\), color 3: input stream: side E of this PE faces PE \(1, 0\), not the outside",
        ),
        (lambda: build(2, 1, streams=[("input", 0, 0, "R", 3)]), LayoutError, "side 'R' is not W, E, N or S"),
        (lambda: build(2, 1, streams=[("input", 2, 0, "E", 3)]), LayoutError, "outside the 2 x 1 PEs"),
        (lambda: build(2, 1, streams=[("input", 0, 0, "W", 24)]), RouteError, "color 24 does not exist"),
        (lambda: build(2, 1, streams=[("input", 0, 0, "W", 3)] * 2), LayoutError, "two input streams of one color"),
        (
            lambda: build(2, 1, programs=[((0, 0, 2, 1), program("a")), ((1, 0), program("b"))]),
            LayoutError,
            r"PE \(1, 0\): programs 'a' and 'b' overlap",
        ),
        (
            lambda: build(2, 1, programs=[((1, 0, 2, 1), program("a"))]),
            LayoutError,
            r"place \(1, 0, 2, 1, 1, 1\) reaches outside the 2 x 1 PEs",
        ),
        (
            lambda: build(2, 1, programs=[((0, 0), program(on=machine("wse3")))]),
            LayoutError,
            "is written for machine\\('wse3'\\), the layout is one of machine\\('wse2'\\)",
        ),
        (lambda: Layout(758, 1), LayoutError, "width 758 exceeds the 757 PEs of wse2.*'fabric.width': 758"),
        (lambda: Layout(1, 0), LayoutError, "height 0 is not a number of PEs"),
        (lambda: Layout(2, 2).rect((0, 0, 0, 1)), LayoutError, "is empty"),
        (lambda: Layout(2, 2).rect("ab"), LayoutError, "is not \\(x, y\\)"),
    ],
)
def test_layouts_that_no_machine_could_load(do, error, message):
    with pytest.raises(error, match=message):
        do()


def test_a_fabric_may_be_larger_than_the_wafer_when_asked():
    assert Layout(2000, 1, machine("wse2", {"fabric.width": 2000})).width == 2000


def test_injection_takes_the_queue_of_its_color():
    layout = Layout(3, 1)
    layout.place(program(outputs=[0, 1, 8]), 1, 0)
    layout.route(8, None, rx="W", tx="E")
    layout.route(8, (1, 0), rx="W", tx="E", inject="high")
    layout.output_stream(2, 0, "E", 8)
    assert layout.build().routes[8]["inject"].tolist() == [[0, 2, 0]]


def test_swap_crosses_the_checks_of_a_pair():
    layout = Layout(3, 1)
    layout.place(program(inputs=[0, 1]), 2, 0)
    for color in (0, 1):
        layout.route(color, (0, 0, 2, 1), rx="W", tx="E", swap="x")
    layout.route(0, (2, 0), rx="W", tx="R")
    with pytest.raises(RouteError, match=r"color 1: tx E leads to PE \(2, 0\), which has no route for it"):
        layout.build()
    layout.route(1, (2, 0), rx="W", tx="R")
    routes = layout.build().routes
    assert [routes[color]["swap"].tolist() for color in (0, 1)] == [[[1, 1, 0]]] * 2


@pytest.mark.parametrize(
    ("name", "value", "rect", "error", "message"),
    [
        ("m", 1, None, LayoutError, "no program in the rectangle has the symbol 'm'. Try: symbols: n, v"),
        ("n", [1, 2], None, LayoutError, "2 values for the 1 elements of 'n'"),
        ("v", np.zeros((1, 2, 3)), None, LayoutError, r"values of shape \(1, 2, 3\) for 'v' with 2 elements"),
        ("v", np.zeros((1, 2)), None, LayoutError, r"values of shape \(1, 2\) for 'v' with 2 elements"),
        ("n", -1, None, ProgramError, "set_param 'n': -1 is outside 0 .. 65535 of u16"),
        ("n", 1, (2, 0), LayoutError, r"set_param\('n'\) \(2, 0, 1, 1, 1, 1\) reaches outside"),
    ],
)
def test_parameters_that_do_not_fit(name, value, rect, error, message):
    layout = Layout(2, 1)
    p = Program("p")
    p.param("n", "u16")
    p.param("v", "f32", count=2)
    with p.task("main"):
        p.nop()
    layout.place(p, 0, 0, 2, 1)

    def do():
        layout.set_param(name, value, rect)
        layout.build()

    with pytest.raises(error, match=message):
        do()


def test_a_built_layout_is_finished():
    layout = Layout(1, 1)
    spec = layout.build()
    with pytest.raises(LayoutError, match="the layout is built"):
        layout.route(1, (0, 0), "W", "E")
    with pytest.raises(ValueError, match="read-only"):
        spec.program_index[0, 0] = 0


def test_rectangles():
    assert Rect(1, 2, 5, 4, 2, 3).shape == (2, 3)
    assert Layout(4, 4).rect(None) == (0, 0, 4, 4, 1, 1)
