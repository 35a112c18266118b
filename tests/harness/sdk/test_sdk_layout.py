"""Layouts that a host script makes: regions, ports, connections around other regions, streams, numbers of colors."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.csl.artefact import read_bundle
from fabric.csl.diagnostics import CslError
from harness.sdk.geometry import IntRectangle, IntVector
from harness.sdk.regions import Color, Edge, Route, RoutingPosition, get_edge_routing
from harness.sdk.runtime import SdkRuntime, SdkTarget, get_platform
from harness.sdk.sdk_layout import FP16TYPE, SdkLayout
from harness.sdk.ways import Net, WireWay, numbered, way
from wse_core.errors import ConfigError, LayoutError, UnsupportedError

RAMP_IN = RoutingPosition().set_input([Route.RAMP])
RAMP_OUT = RoutingPosition().set_output([Route.RAMP])
RELAY = """param size: u16;
param add: i16;
param rx: color;
param tx: color;
const in_q = @get_input_queue(0);
const out_q = @get_output_queue(0);
export var sum: [1]f32;
const input = @get_dsd(fabin_dsd, .{ .extent = size, .fabric_color = rx, .input_queue = in_q });
const output = @get_dsd(fabout_dsd, .{ .extent = size, .fabric_color = tx, .output_queue = out_q });
const main_id = @get_local_task_id(8);
task main() void {
  @fadds(output, input, @as(f32, add), .{ .async = true });
  sum[0] = @as(f32, add);
}
comptime {
  @bind_local_task(main, main_id);
  @activate(main_id);
  @initialize_queue(in_q, .{ .color = rx });
  if (@is_arch("wse3")) @initialize_queue(out_q, .{ .color = tx });
}
"""
HOLD = """export var a: [6]u16;
export var size: [2]u16;
comptime { }
task t() void { size[0] = @get_rectangle().width; size[1] = @get_rectangle().height; a[0] += 1; }
comptime { @bind_local_task(t, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }
"""
ARCHS = ("WSE2", "WSE3")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a directory with the sources."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relay.csl").write_text(RELAY)
    (tmp_path / "hold.csl").write_text(HOLD)


def layout_for(arch="WSE3"):
    return SdkLayout(get_platform(None, None, SdkTarget[arch]))


def relay(layout, name, add, size, place):
    """Add a region of one PE that adds a number to each word which passes it from west to east."""
    region = layout.create_code_region("relay.csl", name, 1, 1)
    rx, tx = Color("rx"), Color("tx")
    region.set_param_all("size", size)
    region.set_param_all("add", add)
    region.set_param_all(rx)
    region.set_param_all(tx)
    region.place(*place)
    return (
        region,
        region.create_input_port(rx, Edge.LEFT, [RAMP_OUT], size),
        region.create_output_port(tx, Edge.RIGHT, [RAMP_IN], size),
    )


def run(layout):
    runtime = SdkRuntime(layout.compile("out"), memcpy_required=False)
    runtime.load()
    runtime.run()
    return runtime


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [1, 7, 1025])
def test_words_pass_regions_and_come_back(arch, size):
    layout = layout_for(arch)
    _, first_in, first_out = relay(layout, "one", 5, size, (1, 1))
    _, second_in, second_out = relay(layout, "two", 70, size, (5, 3))
    layout.connect(first_out, second_in)
    into, out = layout.create_input_stream(first_in), layout.create_output_stream(second_out)
    runtime = run(layout)
    words = np.arange(size, dtype=np.float32) * 3
    found = np.zeros(size, np.float32)
    runtime.receive(out, found, size, nonblock=True)  # before anything is sent
    runtime.send(into, words, nonblock=True)
    runtime.stop()
    assert np.array_equal(found, words + 75)
    assert runtime.read_symbol(5, 3, "sum", dtype="float32") == [70]
    with pytest.raises(ConfigError, match="there is no stream 'other'"):
        runtime.send("other", words)


def test_what_comes_later_is_there_when_it_was_waited_for(tmp_path):
    """A command that receives without blocking is done when its words, and those of the ones before it, have come."""
    layout = layout_for()
    _, rx, tx = relay(layout, "one", 5, 6, (1, 1))
    into, out = layout.create_input_stream(rx), layout.create_output_stream(tx)
    runtime = run(layout)
    first, second, third = (np.zeros(2, np.float32) for _ in range(3))
    tasks = [runtime.receive(out, goal, 2, nonblock=True) for goal in (first, second, third)]
    assert not runtime.is_task_done(tasks[0])
    assert runtime.send(into, np.arange(3, dtype=np.float32), nonblock=True).done
    assert [runtime.is_task_done(task) for task in tasks] == [True, False, False]
    assert first.tolist() == [5, 6]
    runtime.send(into, np.arange(3, 6, dtype=np.float32), nonblock=True)
    runtime.task_wait(tasks[2])
    assert [*second, *third] == [7, 8, 9, 10]
    assert all(task.done for task in tasks)
    runtime.task_wait(tasks[2])
    runtime.stop()


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=2, max_size=4, unique=True), st.integers(1, 6)
)
def test_chains_of_regions_anywhere(places, size):
    """Wherever regions lie, words pass all of them; or there is no way, and that is said."""
    layout = layout_for()
    stages = [relay(layout, f"r{k}", k + 1, size, place) for k, place in enumerate(places)]
    for (_, _, tx), (_, rx, _) in pairwise(stages):
        layout.connect(tx, rx)
    into, out = layout.create_input_stream(stages[0][1]), layout.create_output_stream(stages[-1][2])
    try:
        runtime = run(layout)
    except LayoutError as error:
        assert "there is no way" in str(error)
        return
    words, found = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    runtime.send(into, words)
    runtime.receive(out, found, size)
    runtime.stop()
    assert np.array_equal(found, words + sum(range(1, len(places) + 1)))


def test_a_way_goes_around_a_region_that_uses_the_color(tmp_path):
    layout = layout_for()
    _, _, tx = relay(layout, "a", 1, 4, (0, 1))
    _, rx, _ = relay(layout, "b", 1, 4, (4, 1))
    wall, _, _ = relay(layout, "wall", 1, 4, (2, 1))
    wall.paint_all(tx.color, [RoutingPosition().set_input([Route.RAMP]).set_output([Route.NORTH])])
    layout.connect(tx, rx)
    artifacts = layout.compile("out")
    table = read_bundle("out").routes[tx.color.get_value()]
    ends_and_wall = {(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)}
    around = {(x, y) for y, x in np.argwhere(table["valid"]).tolist()} - ends_and_wall
    assert around in ({(x, y) for x in (1, 2, 3)} for y in (0, 2))  # above the wall or below it
    assert table[1, 2]["rx"][0] == 16  # the wall has its own route still, from the ramp
    colors = json.loads((tmp_path / "out" / "colors.json").read_text())
    assert artifacts.colors == colors
    assert tx.color.get_value() == rx.color.get_value()


def test_tiles_of_a_symbol_and_the_size_of_a_region():
    layout = layout_for()
    one = layout.create_code_region("hold.csl", "one", 2, 3)
    two = layout.create_code_region("hold.csl", "two", 1, 1)
    layout.hstack([layout.vstack([one]), two], IntVector(1, 1))
    matrix = np.arange(36, dtype=np.int16).reshape(9, 4)  # tiles of 3 x 2
    one.set_symbol_all("a", matrix, 4, 9)
    runtime = run(layout)
    runtime.stop()
    for y in range(3):
        for x in range(2):
            tile = matrix[3 * y : 3 * y + 3, 2 * x : 2 * x + 2].ravel().copy()
            tile[0] += 1
            assert runtime.read_symbol(1 + x, 1 + y, "a", dtype="int16").tolist() == tile.tolist()
            assert runtime.read_symbol(1 + x, 1 + y, "size", dtype="uint16").tolist() == [2, 3]
    assert runtime.read_symbol(3, 1, "size", dtype="uint16").tolist() == [1, 1]
    with pytest.raises(ConfigError, match="do not make equal tiles"):
        one.set_symbol_all("a", matrix, 3, 12)
    with pytest.raises(UnsupportedError, match="float64"):
        one.set_symbol_all("a", matrix.astype(float), 4, 9)


@pytest.mark.parametrize("order", [(True, False), (True, True), (False, True)])
def test_what_is_received_comes_in_the_order_of_the_calls(tmp_path, order):
    """Also if an earlier one need not come yet; words of a file too."""
    layout = layout_for()
    _, first, last = relay(layout, "one", 0, 9, (1, 1))
    into, out = layout.create_input_stream(first), layout.create_output_stream(last)
    runtime = run(layout)
    words, found = np.arange(9, dtype=np.float32) + 0.5, np.zeros(3, np.float32)
    runtime.send(into, words, nonblock=True)
    runtime.receive(out, found, 3, nonblock=order[0])
    runtime.receive_tofile(out, tmp_path / "words", 6, nonblock=order[1])
    assert (tmp_path / "words").exists() == (not order[1])
    runtime.stop()
    assert found.tolist() == words[:3].tolist()
    assert np.fromfile(tmp_path / "words", np.float32).tolist() == words[3:].tolist()


def test_streams_have_numbers_too(tmp_path, capsys):
    layout = layout_for()
    _, first, last = relay(layout, "one", 0, 3, (1, 1))
    into, out = layout.create_input_stream(first), layout.create_output_stream(last)
    runtime = run(layout)
    numbers = [runtime.get_port_id(into), runtime.get_port_id(out)]
    assert sorted(numbers) == [0, 1]
    found = np.zeros(3, np.float32)
    runtime.send(numbers[0], np.arange(3, dtype=np.float32), nonblock=True)
    runtime.receive(numbers[1], found, 3)
    assert found.tolist() == [0, 1, 2]
    runtime.report_port_infos()
    assert f"port {numbers[0]}: {into}, color " in capsys.readouterr().out
    for wrong in (2, -1, "nothing"):
        with pytest.raises(ConfigError, match="there is no stream"):
            runtime.get_port_id(wrong)


def test_an_array_that_is_not_contiguous_would_keep_nothing_and_is_refused():
    layout = layout_for()
    _, first, last = relay(layout, "one", 0, 2, (1, 1))
    layout.create_input_stream(first)
    out = layout.create_output_stream(last)
    runtime = run(layout)
    for wrong in (np.zeros((4, 2), np.float32)[:, 0], np.zeros(4, np.float64), np.zeros(1, np.float32)):
        with pytest.raises(ConfigError, match="must be contiguous|has 1 elements, 2 are needed"):
            runtime.receive(out, wrong, 2)


def test_a_platform_says_the_architecture(capsys):
    for target, arch in ((SdkTarget.WSE2, "wse2"), (get_platform(target=SdkTarget.WSE3), "wse3")):
        layout = SdkLayout(target)
        assert layout.arch == arch
        layout.create_code_region("hold.csl", "r", 1, 1)
        made = layout.compile(f"out_{arch}", msg_level="INFO", colour="red")
        assert capsys.readouterr().err == "SdkLayout.compile: warning: the option colour means nothing here\n"
        assert SdkRuntime(made, target).bundle.arch == arch
    with pytest.raises(ConfigError, match="was compiled for wse3, and the platform is one of wse2"):
        SdkRuntime(made, SdkTarget.WSE2)
    for wrong in ("wse3", Path("fabric.json"), None):
        with pytest.raises(ConfigError, match="is no platform"):
            SdkLayout(wrong)


def test_the_sixteen_bit_float_is_used_or_refused():
    layout = layout_for()
    layout.create_code_region("hold.csl", "r", 1, 1)
    layout.compile("out", f16_type=FP16TYPE.CB16)
    assert read_bundle("out").programs[0].half == "cb16"
    for wrong, words in ((FP16TYPE.BF16, "bf16 is known at compile time only"), ("f8", "f8 is no 16-bit float")):
        with pytest.raises(ConfigError, match=words):
            layout.compile("out", f16_type=wrong)


def test_sources_are_read_where_they_lie_and_nothing_is_written_there(tmp_path):
    """Their imports are found beside them, from another working directory too, and mistakes name the user's file."""
    place = tmp_path / "source"
    place.mkdir()
    (place / "part.csl").write_text("const first = 6;\n")
    (place / "pe.csl").write_text('const part = @import_module("part.csl");\nexport var a = [1]u16{ part.first };\n')
    place.chmod(0o500)
    layout = layout_for()
    layout.create_code_region("source/pe.csl", "pe", 1, 1)
    runtime = run(layout)
    assert runtime.read_symbol(0, 0, "a", dtype="uint16").tolist() == [6]
    assert sorted(path.name for path in place.iterdir()) == ["part.csl", "pe.csl"]
    place.chmod(0o700)
    (place / "pe.csl").write_text("export var a: [1]u16 = none;\n")
    with pytest.raises(CslError) as caught:
        layout.compile("out")
    assert caught.value.diagnostics[0].span.source.name == "source/pe.csl"


def test_a_symbol_lies_elsewhere_on_each_pe_and_the_host_alone_looks_at_it(tmp_path):
    (tmp_path / "pe.csl").write_text("param n: u16;\nexport var pad: [n]u16;\nexport var a: [3]f32;\ncomptime { }\n")
    layout = layout_for()
    region = layout.create_code_region("pe.csl", "r", 4, 3)
    sizes = {(x, y): 1 + (3 * x + 5 * y) % 7 for x, y in region.all_places()}
    for (x, y), n in sizes.items():
        region.set_param(IntVector(x, y), "n", n)
    region.place(2, 1)
    matrix = np.arange(36, dtype=np.float32).reshape(3, 12) + 0.25
    region.set_symbol_all("a", matrix, 12, 3)
    runtime = run(layout)
    for (x, y), n in sizes.items():
        assert runtime.read_symbol(2 + x, 1 + y, "a", dtype="float32").tolist() == matrix[y, 3 * x : 3 * x + 3].tolist()
        assert len(runtime.read_symbol(2 + x, 1 + y, "pad", dtype="uint16")) == n


def test_later_paint_replaces_earlier_and_edges_come_last():
    layout = layout_for()
    region = layout.create_code_region("hold.csl", "r", 3, 1)
    color = Color("c", 4)
    east, end = (RoutingPosition().set_input([Route.WEST]).set_output([side]) for side in (Route.EAST, Route.RAMP))
    begin = RoutingPosition().set_input([Route.RAMP]).set_output([Route.EAST])
    region.paint_all(color, [end])
    region.paint_all(color, [east], [get_edge_routing(Edge.RIGHT, [end])])
    region.paint_range(IntRectangle(IntVector(0, 0), IntVector(1, 1)), color, [begin])
    layout.compile("out")
    table = read_bundle("out").routes[4]
    assert table["rx"][0, :3, 0].tolist() == [16, 1, 1]  # ramp, then from the west
    assert table["tx"][0, :3, 0].tolist() == [2, 2, 16]  # to the east, and down the ramp


WRONG = {
    "regions overlap": (lambda lay: [relay(lay, "a", 1, 4, (0, 0)), relay(lay, "b", 1, 4, (0, 0))], "overlap at"),
    "other sizes": (
        lambda lay: lay.connect(relay(lay, "a", 1, 4, (0, 0))[2], relay(lay, "b", 1, 5, (4, 0))[1]),
        "has 4 words, and",
    ),
    "two outputs": (
        lambda lay: lay.connect(relay(lay, "a", 1, 4, (0, 0))[2], relay(lay, "b", 1, 4, (4, 0))[2]),
        "no output port and input port",
    ),
    "a stream of the other kind": (
        lambda lay: lay.create_input_stream(relay(lay, "a", 1, 4, (0, 0))[2]),
        "is no input port",
    ),
    "no region": (lambda lay: None, "has no region"),
    "one name twice": (
        lambda lay: [relay(lay, "a", 1, 4, (0, 0)), relay(lay, "a", 1, 4, (3, 0))],
        "there is a region 'a' already",
    ),
    "no such color": (lambda lay: Color("c", 24), "there are 0 to 23"),
    "a rectangle outside": (
        lambda lay: lay.create_code_region("hold.csl", "a", 2, 2).set_param(IntVector(2, 0), "x", 1),
        "is not inside of the region",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused(case):
    make, words = WRONG[case]
    with pytest.raises((ConfigError, LayoutError), match=words):
        layout = layout_for()
        make(layout)
        layout.compile("out")


def test_fixed_numbers_that_clash_are_refused():
    layout = layout_for()
    region = layout.create_code_region("hold.csl", "r", 1, 1)
    for name in ("a", "b"):
        region.paint_all(Color(name, 3), [RoutingPosition().set_input([Route.RAMP]).set_output([Route.EAST])])
    with pytest.raises(LayoutError, match="meet on a PE and both have the number 3"):
        layout.compile("out")


def test_a_seventeenth_color_with_a_switch_is_one_too_many():
    turns = [RoutingPosition().set_input([side]).set_output([Route.RAMP]) for side in (Route.WEST, Route.NORTH)]
    for count, fits in ((16, True), (17, False)):
        layout = layout_for()
        region = layout.create_code_region("hold.csl", "r", 1, 1)
        for k in range(count):
            region.paint_all(Color(f"c{k}"), turns)
        if fits:
            assert len(set(layout.compile("out").colors.values())) == 16
        else:
            with pytest.raises(LayoutError, match="no color is left"):
                layout.compile("out")


@given(st.data())
def test_numbers_are_those_of_a_coloured_map(data):
    places = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)
    nets = [Net([f"n{k}"], found) for k, found in enumerate(data.draw(st.lists(places, min_size=1, max_size=10)))]
    numbers = numbered(nets, range(24), range(24))
    for a in nets:
        for b in nets:
            assert a is b or not a.places & b.places or numbers[a] != numbers[b]
        busy = {numbers[other] for other in nets if other is not a and other.places & a.places}
        assert numbers[a] <= len(busy)


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=18), st.randoms())
def test_a_way_is_the_shortest_one(taken, random):
    start, goal = (random.randrange(6), random.randrange(6)), (random.randrange(6), random.randrange(6))
    found = way(start, [goal], (6, 6), taken, ())
    reach, front = {start: 0} if start not in taken else {}, [start] if start not in taken else []
    while front:
        x, y = front.pop(0)
        for there in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if there not in reach and there not in taken and 0 <= there[0] < 6 and 0 <= there[1] < 6:
                reach[there] = reach[x, y] + 1
                front.append(there)
    assert (found is None) == (goal not in reach)
    if found is not None:
        assert len(found) == reach[goal] + 1
        assert not set(found) & taken
        steps = list(WireWay(found, "W", "E").steps())
        assert [cell for cell, _, _ in steps] == list(found)
        for (cell, _, leaves), (after, comes, _) in pairwise(steps):
            delta = (after[0] - cell[0], after[1] - cell[1])
            assert {"E": (1, 0), "W": (-1, 0), "S": (0, 1), "N": (0, -1)}[leaves] == delta
            assert comes == {"E": "W", "W": "E", "S": "N", "N": "S"}[leaves]


def test_a_region_has_one_color_of_a_name():
    region = SdkLayout(SdkTarget.WSE3).create_code_region("hold.csl", "h", 1, 1)
    other = SdkLayout(SdkTarget.WSE3).create_code_region("hold.csl", "g", 1, 1)
    assert region.color("rx") is region.color("rx")
    assert region.color("rx") is not other.color("rx")
    fixed = region.color("tx", 3)
    assert region.color("tx") is fixed
    assert region.color("tx", 3) is fixed
    with pytest.raises(ConfigError, match="has the value 3, not 4"):
        region.color("tx", 4)
