"""Words whose addresses are numbers: registers of router and timer, known, chosen and computed; and memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fabric.csl.running import device_of, run_task
from wse_core.errors import MachineFault

HEAD = """
const tile = @import_module("<tile_config>");
const A = @get_color(3);
const B = @get_color(4);
fn color_at(c: color) u16 { return @as(u16, tile.target.addresses.COLOR_CONFIG) + @get_int(c) * tile.target.word_size; }
fn switch_at(c: color) u16 { return tile.addresses.SWITCH_CONFIG + @get_int(c) * tile.word_size; }
"""

# Each PE finds by its place and a number of the host which color goes on to the east and which comes from the west.
CHAIN = (
    HEAD
    + """
param width: u16;
const place = @import_module("<layout>");
const a_at: u16 = color_at(A);
const b_at: u16 = color_at(B);
export var mine: [2]f32;
export var swapped: u16;
export var which: u16;
var into: fabin_dsd;
var out: fabout_dsd;
const into_a = @get_dsd(fabin_dsd, .{ .extent = 2, .fabric_color = A, .input_queue = @get_input_queue(2) });
const into_b = @get_dsd(fabin_dsd, .{ .extent = 2, .fabric_color = B, .input_queue = @get_input_queue(3) });
const out_a = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = A, .output_queue = @get_output_queue(2) });
const out_b = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = B, .output_queue = @get_output_queue(3) });
const memory = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> mine[i] });
fn open(even: bool) void {
  const comes = if (even) b_at else a_at;
  const goes = if (even) a_at else b_at;
  @bitcast(*u16, comes).* = (@bitcast(*u16, comes).* & 0xfc00) | 0x20 | 0x10;
  @bitcast(*u16, goes).* &= 0xfc00;
  @bitcast(*u16, goes).* |= 0x200 | 0x2;
  which = @bitcast(*u16, if (even) a_at else b_at).*;
}
task main() void {
  const x = place.get_x_coord();
  const even = ((x ^ swapped) & 1) == 0;
  open(even);
  into = if (even) into_b else into_a;
  out = if (even) out_a else out_b;
  if (x == 0) {
    @fmovs(out, memory);
  } else if (x == width - 1) {
    @fadds(memory, memory, into);
  } else {
    @fadds(out, memory, into);
  }
}
comptime { @bind_local_task(main, @get_local_task_id(9)); }
"""
)
LAYOUT = """
const width: u16 = WIDTH;
layout {
  @set_rectangle(width, 1);
  for (@range(u16, width)) |x| { @set_tile_code(x, 0, "pe.csl", .{ .width = width }); }
}
"""


@pytest.mark.parametrize("width", [2, 3, 5])
@pytest.mark.parametrize("swapped", [0, 1])
def test_routes_are_found_while_a_program_runs(tmp_path, width, swapped):
    """No color is configured beforehand; nothing is said about routes that are not there."""
    source = CHAIN.replace("@get_local_task_id(9)); }", "@get_local_task_id(9)); @activate(@get_local_task_id(9)); }")
    source = source.replace("export var swapped: u16;", f"export var swapped: u16 = {swapped};")
    source = source.replace("export var mine: [2]f32;", "export var mine = [2]f32{ 1.5, 2.0 };")
    files = {"layout.csl": LAYOUT.replace("WIDTH", str(width)), "pe.csl": source}
    device = device_of(tmp_path, files, "layout.csl")
    device.settle()
    found = device.symbol(width - 1, 0, "mine").view(np.float32)
    assert found.tolist() == [1.5 * width, 2.0 * width]
    assert {int(device.symbol(x, 0, "which")[0]) for x in range(width)} == {0x202}


CASES = {
    # statements, before, result of y
    "pop mode": (
        "tile.switch_config.set_pop_mode(A, tile.switch_config.pop_mode.POP_ON_ADVANCE);"
        " y[0] = @bitcast(*u16, color_at(A)).*; y[1] = @bitcast(*u16, @as(u16, 0xfe46)).*;",
        [0x2240 ^ 0x52, 0x2240 ^ 0x52],
    ),
    "a position that is closed and opened again": (
        "var at = switch_at(A); var now = @bitcast(*u16, at).*; y[0] = now;"
        " @bitcast(*u16, at).* = (now & 0xfff8) | 5; y[1] = @bitcast(*u16, at).*;"
        " @bitcast(*u16, at).* = (now & 0xfff8) | 1; y[2] = @bitcast(*u16, at).*;",
        [0x55C, 0x55D, 0x559],
    ),
    "memory": (
        "y[0] = 1; const at = @bitcast(u16, &y); @bitcast(*u16, at + 2).* = y[0] + 4; y[2] = y[1];"
        " @bitcast(*u16, at).* = 9; y[3] = y[0] + @bitcast(*u16, at + 4).*;",
        [9, 5, 5, 14],
    ),
    "the timer": (
        "@bitcast(*u16, @as(u16, tile.addresses.PERF_COUNTER_CONTROL)).* = 7;"
        " const t = @as(u16, tile.addresses.TIMESTAMP_COUNTER); time.get_timestamp(&clock);"
        " y[0] = (@bitcast(*u16, t).* - clock[0]) / 16; y[1] = @bitcast(*u16, t + 2).* - clock[1];"
        " y[2] = @bitcast(*u16, @as(u16, tile.addresses.PERF_COUNTER_CONTROL)).*;",
        [0, 0, 7],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("optimise", [True, False])
def test_words_at_computed_addresses(tmp_path, case, optimise):
    statements, wanted = CASES[case]
    before = (
        HEAD
        + """
const time = @import_module("<time>");
var clock: [3]u16;
export var y: [4]u16;
comptime { @set_local_color_config(A, .{
  .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST, RAMP } }, .switches = .{ .pos1 = .{ .rx = RAMP } } }); }
"""
    )
    found = run_task(tmp_path, statements, before, results={"y": "u2"}, optimise=optimise)["y"].tolist()
    assert found[: len(wanted)] == wanted


@pytest.mark.parametrize(
    "statements",
    [
        "@bitcast(*u16, color_at(A)).* ^= 0x800;",  # a color cannot become a swapped one
        "@bitcast(*u16, color_at(@get_color(9))).* = 0x202;",  # nobody here has this color
        "@bitcast(*u16, @as(u16, 0xfff0) + n).* = 1;",  # no register
    ],
)
def test_what_is_no_register_is_a_fault(tmp_path, statements):
    before = (
        HEAD
        + """
var n: u16;
comptime { @set_local_color_config(A, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }); }
"""
    )
    with pytest.raises(MachineFault):
        run_task(tmp_path, statements, before, results={})
