"""Layouts of many programs: each is what it would be alone, and most of the work is done once."""

from __future__ import annotations

import pytest

from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options

LAYOUT = """param first: i16;
param count: i16;
layout { @set_rectangle(count, 1);
  for (@range(i16, count)) |i| {
    const x = first + i;
    @set_tile_code(i, 0, "pe.csl", .{ .x = x, .last = x % 4 == 3, .side = if (x % 2 == 0) EAST else WEST,
      .length = x % 5 + 1 });
  }
  @export_name("out", [*]f32, true);
  @export_name("go", fn(i16)void);
}
"""
PE = """param x: i16;
param last: bool;
param side: direction;
param length: u16;
const parts = @import_module("parts.csl");
const weights = parts.weights(x % 3);
var a: [16]f32;
var out: [16]f32;
var out_ptr: [*]f32 = &out;
var turns: i16 = 0;
const left = @import_module("line.csl", .{ .data = &a, .n = length, .color = @get_color(3), .weights = &weights,
  .done = next });
const right = @import_module("line.csl", .{ .data = &out, .n = 4, .color = @get_color(4), .weights = &weights,
  .done = next });
const whole = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{16} -> out[i] });
task next() void {
  turns += 1;
  if (turns == 2) { finish(); } else { right.start(turns); }
}
fn finish() void {
  var sum: f32 = 0.0;
  @fadds(&sum, sum, whole);
  out[0] = sum * @as(f32, turns);
  if (last) { out[1] = 2.0; }
  if (side == EAST) { parts.shift(&out); }
}
fn go(n: i16) void {
  turns = n * 3;
  left.start(n);
  left.start(n + 1);
}
comptime {
  @bind_local_task(next, @get_local_task_id(9));
  @set_local_color_config(@get_color(3), parts.route(side, last));
  @set_local_color_config(@get_color(4), parts.route(if (side == EAST) WEST else EAST, last));
  @export_symbol(out_ptr, "out");
  @export_symbol(go);
}
"""
LINE = """param data: *[16]f32;
param n: u16;
param color: color;
param weights: *const [4]f32;
param done: task () void;
var starts: u16 = 0;
fn start(offset: i16) void {
  const from = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> data[i] });
  const factors = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> weights[i] });
  @fmuls(from, from, factors);
  const to = @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = color, .output_queue = @get_output_queue(2) });
  starts += 1;
  for (@range(i16, 3)) |i| { data[offset + i] += 1.0; }
  @fmovs(to, from, .{ .async = true, .activate = done });
}
"""
PARTS = """fn weights(k: i16) [4]f32 {
  var made = @zeros([4]f32);
  for (@range(i16, 4)) |i| { made[i] = @as(f32, i * k) + 0.5; }
  return made;
}
fn route(side: direction, last: bool) comptime_struct {
  return .{ .routes = .{ .rx = .{ RAMP }, .tx = if (last) .{ side, NORTH } else .{ side } } };
}
fn shift(p: *[16]f32) void { for (@range(i16, 15)) |i| { p.*[i] = p.*[i + 1]; } }
"""
FILES = {"top.csl": LAYOUT, "pe.csl": PE, "line.csl": LINE, "parts.csl": PARTS}


def compiled(directory, first, count):
    """Return the programs of some PEs in a row."""
    for name, text in FILES.items():
        (directory / name).write_text(text)
    return compile_file(directory / "top.csl", Options(params={"first": first, "count": count}))


def image(made, place):
    """Return everything that the image of the program at a place says."""
    program = made.programs[made.checked.program_of[made.checked.layout.grid[0, place]]]
    fields = vars(program.emitted.image)
    shown = {name: value for name, value in fields.items() if name not in ("code", "descriptors", "data")}
    arrays = [fields[name].tobytes() for name in ("code", "descriptors")]
    data = [(address, words.tobytes()) for address, words in fields["data"]]
    return repr(shown), arrays, data, str(program.emitted.places)


@pytest.mark.parametrize("first", [0, 7])
def test_each_program_is_what_it_is_alone(tmp_path, first):
    together = compiled(tmp_path, first, 12)
    assert len(together.programs) == 12
    alone = [image(compiled(tmp_path, first + place, 1), 0) for place in range(12)]
    assert [image(together, place) for place in range(12)] == alone
    assert len({str(entry) for entry in alone}) == 12


def test_the_passes_run_once_for_functions_that_differ_in_numbers_only(tmp_path):
    """A program with new params costs the passes at most a tenth of what the first one costs."""
    runs = []
    for count in (1, 60, 120):
        made = compiled(tmp_path, 0, count)
        functions = sum(len(program.lowering.made.functions) for program in made.programs)
        runs.append((made.recall.optimised, made.recall.allocated, functions))
    first, some, many = runs
    assert many[2] >= 120 * 3
    for passes in (0, 1):
        assert many[passes] - some[passes] <= 60 * first[passes] / 10
        assert some[passes] < 59 * first[passes] / 5
