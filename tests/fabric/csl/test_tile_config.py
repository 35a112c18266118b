"""<tile_config>: routes, switches, teardown and priorities that a program changes by itself."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fabric.csl.running import device_of, run_task
from wse_core.events import TraceFilter
from wse_core.image import DIRS

ROW = """
const width: u16 = 4;
layout {
  @set_rectangle(width, 1);
  for (@range(u16, width)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .first = x == 0, .last = x == width - 1, .width = width });
  }
}
"""
# Every PE in turn sends its value to the last one over one color; then the first one ends that phase by a teardown
# command, the routes are turned round, and the last PE sends the sum back to all.
PE = """
param first: bool;
param last: bool;
param width: u16;
const tile = @import_module("<tile_config>");
const place = @import_module("<layout>");
const control = @import_module("<control>");
const C = @get_color(3);
const step = @get_local_task_id(9);
const entered = @get_local_task_id(10);
export var sum: u32;
export var phase: u16;
var mine: u32;
const advance = control.encode_payload(2,
  [2]control.opcode{ control.opcode.SWITCH_ADV, control.opcode.SWITCH_ADV }, [2]bool{ true, true }, true, {});
const finish = control.encode_single_payload(control.opcode.TEARDOWN, true, {}, 0);
const take = @get_dsd(fabin_dsd, .{ .extent = 1, .fabric_color = C, .input_queue = @get_input_queue(2) });
const give = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = C, .output_queue = @get_output_queue(2) });
const order = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = C, .output_queue = @get_output_queue(2), .control = true });

fn gather() void {
  if (first) {
    tile.color_config.reset_routes(C, .{ .rx = RAMP, .tx = EAST });
  } else if (last) {
    tile.color_config.reset_routes(C, .{ .rx = WEST, .tx = RAMP });
  } else {
    tile.color_config.reset_routes(tile.color_config.get_color_config_addr(C), .{ .rx = WEST, .tx = EAST });
  }
  tile.switch_config.clear_current_position(C);
  tile.switch_config.set_invalid_for_all_switch_positions(C);
  if (!last) {
    tile.switch_config.set_rx_switch_pos1(C, RAMP);
  }
  tile.teardown.exit(C);
  if (last) {
    for (@range(u16, width - 1)) |_| { @mov32(&mine, take); sum += mine; }
  } else {
    @mov32(give, sum);
    @mov32(order, advance);
    if (first) { @mov32(order, finish); }
  }
}
fn spread() void {
  if (last) {
    tile.color_config.reset_routes(C, .{ .rx = RAMP, .tx = WEST });
  } else if (first) {
    tile.color_config.reset_routes(C, .{ .rx = EAST, .tx = RAMP });
  } else {
    tile.color_config.reset_routes(C, .{ .rx = EAST, .tx = [2]direction{ WEST, RAMP } });
  }
  tile.switch_config.clear_current_position(C);
  tile.switch_config.set_invalid_for_all_switch_positions(C);
  tile.teardown.exit(C);
  if (last) { @mov32(give, sum); } else { @mov32(&sum, take); }
}
task next() void {
  phase += 1;
  if (phase == 1) { sum = @as(u32, place.get_x_coord()) + 5; gather(); } else { spread(); }
}
fn torn() void { @activate(step); }
comptime {
  @bind_local_task(next, step);
  @activate(step);
  @set_teardown_handler(torn, C);
  @initialize_queue(@get_input_queue(2), .{ .color = C });
  @set_local_color_config(C, .{
    .routes = .{ .rx = .{ WEST }, .tx = .{ EAST } },
    .switches = .{ .pos1 = .{ .rx = RAMP }, .ring_mode = true, .pop_mode = .{ .pop_on_advance = true } },
    .teardown = true });
}
"""


def test_a_color_is_turned_round_between_two_phases(tmp_path):
    device = device_of(tmp_path, {"layout.csl": ROW, "pe.csl": PE}, "layout.csl")
    device.settle()
    found = [device.symbol(x, 0, "sum").view(np.uint32)[0] for x in range(4)]
    assert found == [5 + 6 + 7 + 8] * 4
    assert [device.symbol(x, 0, "phase")[0] for x in range(4)] == [2] * 4


TWO = """
const tile = @import_module("<tile_config>");
const control = @import_module("<control>");
const A = @get_color(3);
const B = @get_color(4);
export var seen: [4]u16;
export var set: u32;
export var later: u32;
const finish = control.encode_single_payload(control.opcode.TEARDOWN, true, {}, 0);
const order = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = A, .output_queue = @get_output_queue(2), .control = true });
task start() void { @mov32(order, finish); }
fn on_a() void {
  seen[0] += 1;
  QUESTION
  tile.teardown.exit(A);
  if (seen[0] < 3) { @activate(@get_local_task_id(9)); }
}
fn on_b() void { seen[1] += 1; }
comptime {
  @bind_local_task(start, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @set_teardown_handler(on_a, A);
  HANDLER
  @set_local_color_config(A, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
  @set_local_color_config(B, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } }, .teardown = true });
}
layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }
"""


BY_REGISTERS = """
fn bytes(word: u16) u16 { var found = word * 2; return found; }
const routes: u16 = 0x7f20 + @get_int(C);
const switches: u16 = 0x7f40 + @get_int(C);
export var before: [2]u16;
fn set(sets: u16, pos1: u16) void {
  var now: u16 = @bitcast(*u16, bytes(switches)).*;
  if (phase == 1) { before[1] = now; }
  now = now & 0x9fff;
  @bitcast(*u16, bytes(switches)).* = (now & 0xfff8) | pos1;
  now = @bitcast(*u16, bytes(routes)).*;
  if (phase == 1) { before[0] = now; }
  @bitcast(*u16, bytes(routes)).* = (now & 0xfc00) | sets;
}
"""


def test_the_same_by_words_of_memory(tmp_path):
    """Routes and switches through the addresses of their registers, as a public program changes them."""
    start, end = PE.index("fn gather()"), PE.index("task next()")
    gather, spread = PE[start:end].split("fn spread()")
    bits = {"RAMP": "0x200 | ", "WEST": "0x20 | ", "EAST": "0x40 | "}
    outputs = {"RAMP": "0x10", "WEST": "0x1", "EAST": "0x2"}
    parts = []
    for text, pos1 in ((gather, "if (last) 5 else 4"), ("fn spread()" + spread, "5")):
        text = text.replace("tile.color_config.get_color_config_addr(C)", "C").replace(
            "[2]direction{ WEST, RAMP }", "BOTH"
        )
        for rx, word in bits.items():
            for tx, out in {**outputs, "BOTH": "0x11"}.items():
                old = f"tile.color_config.reset_routes(C, .{{ .rx = {rx}, .tx = {tx} }});"
                text = text.replace(old, f"set({word}{out}, {pos1});")
        lines = [line for line in text.splitlines() if "clear_current" not in line and "set_invalid" not in line]
        parts.append(
            "\n".join(lines).replace("  if (!last) {\n    tile.switch_config.set_rx_switch_pos1(C, RAMP);\n  }\n", "")
        )
    source = PE[:start] + BY_REGISTERS + "\n".join(parts) + "\n" + PE[end:]
    assert source.count("tile.") == 2  # the ends of the teardowns
    device = device_of(tmp_path, {"layout.csl": ROW, "pe.csl": source}, "layout.csl")
    device.settle()
    assert [int(device.symbol(x, 0, "sum")[0]) for x in range(4)] == [5 + 6 + 7 + 8] * 4
    assert device.symbol(1, 0, "before").tolist() == [0x20 | 0x2 | 0x6000, 0x155C]  # in teardown, pop on advance; ring


CHOSEN = """
const C: color = @get_color(4);
const routes: u16 = 0x7f20 + @get_int(C);
const switches: u16 = 0x7f40 + @get_int(C);
const time = @import_module("<time>");
fn bytes(word: u16) u16 { var found = word * 2; return found; }
export var which: u16 = WHICH;
export var taken: [3]u16;
var begin: [3]u16;
var end: [3]u16;
var far: u16 = 0;
fn choose() void {
  var now: u16 = @bitcast(*u16, bytes(switches)).*;
  now = now & 0x9fff;
  now = now & 0xfff8;
  if (which == 1) { now = now | 0x5; } else { now = now | 0x4; }
  @bitcast(*u16, bytes(switches)).* = now;
  now = @bitcast(*u16, bytes(routes)).*;
  now = now & 0xfc00;
  if (which == 0) { now = now | 0x200 | 0x2; }
  else if (which == 1) { now = now | 0x20 | 0x10; }
  else if (which == 2) { now = now | 0x20 | 0x2; }
  else { now = now | (far + 0x40) | 0x11; }
  @bitcast(*u16, bytes(routes)).* = now;
}
task start() void {
  time.get_timestamp(&begin);
  choose();
  time.get_timestamp(&end);
  inline for (@range(u16, 3)) |k| { taken[k] = end[k] - begin[k]; }
}
comptime {
  @bind_local_task(start, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @set_local_color_config(C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } },
                                .switches = .{ .pos1 = .{ .rx = RAMP }, .current_switch_pos = 1 } });
}
layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }
"""
SETS = {0: ({"R"}, {"E"}), 1: ({"W"}, {"R"}), 2: ({"W"}, {"E"}), 3: ({"E"}, {"W", "R"})}


@pytest.mark.parametrize("which", SETS)
def test_a_word_for_a_register_is_one_store(tmp_path, which):
    """Whatever is known of it: three words of known bits are chosen among, a fourth comes from afar."""
    device = device_of(tmp_path, {"layout.csl": CHOSEN.replace("WHICH", str(which))}, "layout.csl")
    heard = []
    device.engine.trace(lambda events, clock: heard.extend(events), TraceFilter(("route",)))
    device.settle()
    device.engine.trace(None)
    inputs, outputs = SETS[which]
    last = [event for event in heard if event["aux"] == 0][-1]  # of position 0
    wanted = sum(1 << DIRS.index(letter) for letter in inputs) | sum(1 << DIRS.index(x) for x in outputs) << 5
    assert (int(last["color"]), int(last["data"])) == (4, wanted)
    assert device.engine.snapshot()["router"][0, 0][4]["pos"] == 0
    cycles = int(device.symbol(0, 0, "taken")[0])
    assert cycles < 60


def test_a_color_that_begins_in_teardown_does_not_call_its_handler(tmp_path):
    text = TWO.replace("HANDLER", "@set_teardown_handler(on_b, B);").replace("QUESTION", "")
    device = device_of(tmp_path, {"layout.csl": text}, "layout.csl")
    device.settle()
    assert device.symbol(0, 0, "seen").tolist() == [3, 0, 0, 0]


def test_what_is_pending_is_told_once(tmp_path):
    question = "set = tile.teardown.get_pending(); later = tile.teardown.get_pending(); seen[2] += 1;"
    question += " if (tile.teardown.is_pending(set, A)) { seen[3] += 1; }"
    text = TWO.replace("HANDLER", "").replace("QUESTION", question)
    device = device_of(tmp_path, {"layout.csl": text}, "layout.csl")
    device.settle()
    assert device.symbol(0, 0, "seen").tolist() == [3, 0, 3, 3]
    assert device.symbol(0, 0, "set").view(np.uint32)[0] == 1 << 3
    assert device.symbol(0, 0, "later").view(np.uint32)[0] == 0


@pytest.mark.parametrize("first", ["high", "low"])
def test_priorities_that_a_program_begins_with(tmp_path, first):
    text = """
const tile = @import_module("<tile_config>");
export var y: [2]u16;
var n: u16 = 1;
task other() void { y[1] = n; n += 1; }
comptime {
  @bind_local_task(other, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  tile.main_thread_priority.update_main_thread_priority(tile.main_thread_priority.level.HIGH);
  SETTING
}
"""
    ident = 9 if first == "low" else 8
    setting = f"tile.task_priority.set_task_priority(@get_local_task_id({ident}));"
    setting += " tile.task_priority.set_task_priority(@get_local_task_id(11));"
    setting += " tile.task_priority.clear_task_priority(@get_local_task_id(11));"
    found = run_task(tmp_path, "y[0] = n; n += 1;", text.replace("SETTING", setting), results={"y": "u2"})["y"]
    assert found.tolist() == ([2, 1] if first == "low" else [1, 2])


def test_directions_join_and_leave_a_route(tmp_path):
    """A PE opens its way to the neighbour, sends, and closes it again: only what is sent between arrives."""
    layout = """
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .sends = true });
  @set_tile_code(1, 0, "pe.csl", .{ .sends = false });
}
"""
    pe = """
param sends: bool;
const tile = @import_module("<tile_config>");
const io = tile.color_config.fabric_io;
const C = @get_color(3);
export var got: [4]u32;
export var n: u16;
const give = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = C, .output_queue = @get_output_queue(2) });
fn wait() void { for (@range(u16, 40)) |i| { n = i; } }
task start() void {
  @mov32(give, @as(u32, 1));
  wait();
  tile.color_config.set_io_direction(C, io.TX_EAST);
  @mov32(give, @as(u32, 2));
  wait();
  tile.color_config.toggle_io_direction(C, io.TX_EAST);
  @mov32(give, @as(u32, 3));
  wait();
  tile.color_config.toggle_io_direction(C, io.TX_EAST);
  @mov32(give, @as(u32, 4));
  wait();
  tile.color_config.clear_io_direction(C, io.TX_EAST);
  @mov32(give, @as(u32, 5));
}
task take(v: u32) void { got[n] = v; n += 1; }
comptime {
  if (sends) {
    @bind_local_task(start, @get_local_task_id(9));
    @activate(@get_local_task_id(9));
    @set_local_color_config(C, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ SOUTH } } });
  } else {
    @bind_data_task(take, @get_data_task_id(C));
    @set_local_color_config(C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  }
}
"""
    device = device_of(tmp_path, {"layout.csl": layout, "pe.csl": pe}, "layout.csl")
    device.settle()
    assert device.symbol(1, 0, "got").view(np.uint32).tolist() == [2, 4, 0, 0]


BY_RUNNING_COLOR = """
const tile = @import_module("<tile_config>");
const C: color = @get_color(4);
export var seen: [8]u16;
export var which: u16 = 4;
var at: u16 = 0;
fn word(address: u16) u16 { return @bitcast(*u16, address).*; }
fn chosen() color { return @bitcast(color, which); }
task go() void {
  const routes: u16 = tile.addresses.COLOR_CONFIG + which * tile.word_size;
  const switches: u16 = tile.target.addresses.SWITCH_CONFIG + which * tile.target.word_size;
  seen[0] = word(routes);
  DO
  seen[1] = word(routes);
  seen[2] = word(switches);
}
comptime {
  @bind_local_task(go, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @set_local_color_config(C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
}
layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }
"""


@pytest.mark.parametrize(
    ("what", "route", "switch"),
    [
        ("tile.switch_config.set_pop_mode(COLOR, tile.switch_config.pop_mode.POP_ON_ADVANCE);", 0x2030, 0x555),
        ("tile.switch_config.set_pop_mode(COLOR, tile.switch_config.pop_mode.ALWAYS_POP);", 0x1030, 0x555),
        ("tile.switch_config.set_rx_switch_pos1(COLOR, RAMP);", 0x30, 0x55C),
        ("tile.switch_config.set_tx_switch_pos2(COLOR, NORTH);", 0x30, 0x535),
        ("tile.switch_config.set_current_switch_position(COLOR, 2);", 0x30, 0x4555),
        ("tile.color_config.reset_routes(COLOR, .{ .rx = EAST, .tx = .{ WEST, RAMP } });", 0x51, 0x555),
        ("tile.color_config.set_io_direction(COLOR, tile.color_config.fabric_io.TX_NORTH);", 0x38, 0x555),
        ("tile.color_config.clear_io_direction(COLOR, tile.color_config.fabric_io.RX_WEST);", 0x10, 0x555),
        ("tile.color_config.toggle_io_direction(ADDRESS, tile.color_config.fabric_io.RX_RAMP);", 0x230, 0x555),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_color_that_is_chosen_while_running_has_the_same_functions(tmp_path, what, route, switch, known):
    color = "C" if known else "chosen()"
    address = f"tile.color_config.get_color_config_addr({color})"
    text = BY_RUNNING_COLOR.replace("DO", what.replace("COLOR", color).replace("ADDRESS", address))
    device = device_of(tmp_path, {"layout.csl": text}, "layout.csl")
    device.settle()
    assert [hex(word) for word in device.symbol(0, 0, "seen")[:3]] == [hex(0x30), hex(route), hex(switch)]


def test_a_store_through_a_pointer_is_not_forgotten(tmp_path):
    """What a register holds is not what was stored there, and what memory holds is."""
    do = """
  const p: *u16 = @bitcast(*u16, routes + at);
  p.* = 0x4000 | word(routes);
  seen[3] = p.*;
  p.* = 0x30;
  p.* = 0x210;
  const q: *u16 = @bitcast(*u16, @bitcast(u16, &seen[4]) + at);
  q.* = 0x1234;
  seen[5] = seen[4];
  seen[4] = 7;
  seen[6] = q.*;
"""
    device = device_of(tmp_path, {"layout.csl": BY_RUNNING_COLOR.replace("DO", do)}, "layout.csl")
    device.settle()
    assert device.symbol(0, 0, "seen").tolist() == [0x30, 0x210, 0x555, 0x4030, 7, 0x1234, 7, 0]


CLOCK = """
const tile = @import_module("<tile_config>");
const time = @import_module("<time>");
export var seen: [8]u16;
var stamp: [3]u16;
var wait = @zeros([64]f32);
fn count() u16 { return @bitcast(*u16, tile.addresses.TIMESTAMP_COUNTER).*; }
task go() void {
  for (@range(u16, tile.target.tsc_size_words)) |k| {
    @bitcast(*u16, tile.addresses.TIMESTAMP_COUNTER + tile.word_size * k).* = 0;
  }
  seen[0] = count();
  @fmuls(@get_dsd(mem1d_dsd, .{ .base_address = &wait, .extent = 64 }),
         @get_dsd(mem1d_dsd, .{ .base_address = &wait, .extent = 64 }), 2.0);
  seen[1] = count();
  time.get_timestamp(&stamp);
  seen[2] = stamp[0];
  @bitcast(*u16, tile.addresses.PERF_COUNTER_CONTROL).* = 3;
  seen[3] = @bitcast(*u16, tile.addresses.PERF_COUNTER_CONTROL).*;
}
comptime { @bind_local_task(go, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }
layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }
"""


def test_the_clock_is_read_and_set_by_address(tmp_path):
    device = device_of(tmp_path, {"layout.csl": CLOCK}, "layout.csl")
    device.settle()
    first, second, stamp, control = device.symbol(0, 0, "seen")[:4].tolist()
    assert 0 < first < 60
    assert 64 < second - first < 90
    assert 0 < stamp - second < 20
    assert control == 3
