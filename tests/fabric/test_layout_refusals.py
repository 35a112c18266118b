"""Layouts that are refused: every error with its place."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.layout.layout import Layout
from fabric.layout.rectangles import Rect
from fabric.program.program import Program
from tests.fabric.small_program import program
from wse_core.errors import LayoutError, ProgramError, RouteError, UnsupportedError
from wse_core.params import machine


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
        (lambda: build(2, 1, streams=[("input", 0, 0, "Q", 3)]), LayoutError, "side 'Q' is not W, E, N, S or R"),
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
        (lambda: Layout(4, 4).part((0, 0, 4, 4, 2, 1)), LayoutError, "part \\(0, 0, 4, 4, 2, 1\\) has steps"),
        (lambda: Layout(4, 4).part((2, 0, 3, 4)), LayoutError, "reaches outside the 4 x 4 PEs"),
        (lambda: Layout(4, 4).part((2, 0, 2, 4)).route(1, (1, 0, 2, 1)), LayoutError, "outside the 2 x 4 PEs"),
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
