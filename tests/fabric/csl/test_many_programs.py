"""Layouts of many programs: each is what it would be alone, and most of the work is done once."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from tests.examples import examples

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
param weights: *const [16]f32;
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
PARTS = """fn weights(k: i16) [16]f32 {
  var made = @zeros([16]f32);
  for (@range(i16, 16)) |i| { made[i] = @as(f32, i * k) + 0.5; }
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


def test_what_does_not_depend_on_a_param_is_found_out_once(tmp_path):
    """A program with new params has less than half of its globals and functions worked out anew."""
    counts = []
    for count in (1, 60, 120):
        (earlier,) = compiled(tmp_path, 0, count).checked.earlier.values()
        counts.append(earlier.worked_out)
    first, some, many = counts
    assert first > 30
    assert many - some < 60 * first / 2


MIXED = """param x: i16;
const parts = @import_module("parts.csl", .{ .x = x });
const table = parts.table;
var numbers: [parts.size]u16;
var address: *[parts.size]u16 = &numbers;
var word: u16 = table[1];
var total: parts.wide = 0;
const given = parts.three(2);
var early: u16 = if (@is_same_type(@type_of(given), u32)) 1 else 0;
const handlers = [2]*const fn(u16)void{ &first, &second };
fn first(n: u16) void { word = n; }
fn second(n: u16) void { word = n + table[0]; }
task job() void {
  const f = handlers[word & 1];
  f(3);
  numbers[word] = parts.twice(word);
  parts.count += 1;
  total = parts.three(2) + early;
}
comptime {
  if (x % 3 == 1) { @comptime_print(x); }
  @bind_local_task(job, @get_local_task_id(if (x > 4) 9 else 8));
  @activate(@get_local_task_id(if (x > 4) 9 else 8));
}
"""
MIXED_PARTS = """param x: i16;
const size: u16 = if (x < 6) 4 else 7;
const third = x / 3;
const table = [2]u16{ third, size };
var count: u16 = third;
const wide = if (x < 6) u16 else u32;
fn three(n: u16) wide {
  return if (n > 3) 4 else 3;
}
fn twice(n: u16) u16 {
  @comptime_assert(x != 11);
  var local = @zeros([2]u16);
  local[n & 1] = n;
  return local[0] * 2 + local[1] * size;
}
"""


@examples(25)
@given(st.lists(st.integers(0, 10), min_size=2, max_size=8))
@example([0, 6])
@example([9, 1, 5, 4])
def test_programs_in_any_order_are_what_they_are_alone(tmp_path_factory, places):
    """Params come and go: what is taken from the program before is what working it out would give."""
    directory = tmp_path_factory.mktemp("mixed")
    chosen = "const xs = [{}]i16{{ {} }};"
    layout = """{}
layout {{ @set_rectangle({}, 1); for (xs) |x, i| {{ @set_tile_code(i, 0, "pe.csl", .{{ .x = x }}); }} }}"""

    def made(xs):
        text = layout.format(chosen.format(len(xs), ", ".join(map(str, xs))), len(xs))
        for name, words in (("top.csl", text), ("pe.csl", MIXED), ("parts.csl", MIXED_PARTS)):
            (directory / name).write_text(words)
        return compile_file(directory / "top.csl", Options())

    together = made(places)
    alone = [made([x]) for x in places]
    assert [image(together, k) for k in range(len(places))] == [image(one, 0) for one in alone]
    said = sorted(entry.message for entry in together.checked.report.diagnostics)
    first = dict(zip(places, alone, strict=True))  # equal programs are one
    assert said == sorted(entry.message for one in first.values() for entry in one.checked.report.diagnostics)


def test_a_mistake_of_one_program_is_found_where_it_is(tmp_path):
    """Also in a function that an earlier program has checked, and after it programs without the mistake."""
    text = 'layout { @set_rectangle(12, 1); for (@range(i16, 14, 2, -1)) |x| { @set_tile_code(x - 3, 0, "pe.csl", '
    for name, words in (
        ("top.csl", text + ".{ .x = x }); } }"), ("pe.csl", MIXED), ("parts.csl", MIXED_PARTS)
    ):  # fmt: skip
        (tmp_path / name).write_text(words)
    with pytest.raises(CslError) as caught:
        compile_file(tmp_path / "top.csl", Options())
    (error,) = [entry for entry in caught.value.diagnostics if entry.severity == "error"]
    assert (error.span.source.path.name, error.span.line) == ("parts.csl", 11)
    assert "assertion failed" in error.message


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
