"""Structs, arrays, blocks and pointers to functions as values of running code; fields that share a word."""

from __future__ import annotations

import pytest

from tests.fabric.csl.running import run_task
from tests.fabric.csl.test_features import words

Y = "var y: [8]i16;\nvar x: i16 = 7;\n"


def left(directory, body, declarations=""):
    """Return the first numbers of `y` after a task."""
    return run_task(directory, body, Y, declarations, results={"y": "i2"})["y"].tolist()


PAIR = """
const Pair = struct { a: i16, b: f32 };
fn twice(s: Pair) Pair { return Pair{ .a = s.a * 2, .b = s.b * 2.0 }; }
noinline fn more(s: Pair) Pair { var t = s; t.a += 1; return t; }
fn either(s: Pair, t: Pair) Pair { if (s.a > t.a) { return s; } return t; }
var kept: Pair;
var pairs: [3]Pair;
"""


def test_structs_go_into_functions_and_come_back(tmp_path):
    body = """
  var p = Pair{ .a = 1, .b = 2.5 };
  p.a += x;
  const q = twice(twice(more(p)));
  y[0] = q.a;
  y[1] = @as(i16, q.b);
  kept = either(q, p);
  y[2] = kept.a;
  kept = if (x > 3) p else q;
  y[3] = kept.a;
  pairs[x - 5] = more(kept);
  y[4] = pairs[2].a;
  y[5] = twice(pairs[2]).a;
"""
    assert left(tmp_path, body, PAIR) == [36, 10, 36, 8, 9, 18, 0, 0]


def test_a_struct_of_its_own_fields_is_read_before_it_is_written(tmp_path):
    body = """
  s = S{ .a = 1, .b = 2 };
  s = S{ .a = s.b, .b = s.a };
  y[0] = s.a;
  y[1] = s.b;
  v = [2]i16{ 5, 6 };
  v = [2]i16{ v[1], v[0] };
  y[2] = v[0];
  y[3] = v[1];
"""
    declarations = "const S = struct { a: i16, b: i16 }; var s: S; var v: [2]i16;"
    assert left(tmp_path, body, declarations)[:4] == [2, 1, 6, 5]


def test_arrays_come_back_from_functions(tmp_path):
    body = """
  var q = make(x);
  y[0] = q[1];
  q = make(1);
  y[1] = q[0];
  y[2] = make(x)[2];
  for (filled(x)) |v, k| { y[3 + k] = v; }
"""
    text = """
fn make(a: i16) [3]i16 { return [3]i16{ a, a + 1, a + 2 }; }
fn filled(a: i16) [2]i16 { var r: [2]i16; for (r) |_, k| { r[k] = a + 10 * @as(i16, k); } return r; }
"""
    assert left(tmp_path, body, text) == [8, 1, 9, 7, 17, 0, 0, 0]


def test_a_block_gives_what_leaves_it(tmp_path):
    body = """
  y[0] = blk: { if (x > 3) { break :blk 10; } break :blk x; };
  const wide: u32 = blk: { if (x > 30) { break :blk 1; } break :blk 100000; };
  y[1] = @as(i16, wide >> 16);
  const sum: i16 = out: {
    var t: i16 = 0;
    for (@range(i16, 9)) |i| { t += i; if (i == 4) { break :out t + x; } }
    break :out -1;
  };
  y[2] = sum;
  const known = blk: { var n: i16 = 3; n += 4; break :blk n; };
  y[3] = known;
  y[4] = outer: { const inner = blk: { if (x == 7) { break :outer 3; } break :blk x; }; break :outer inner + 1; };
  y[5] = pick(2);
"""
    text = "fn pick(n: i16) i16 { return b: { if (n == 2) { break :b 20; } break :b 30; }; }"
    assert left(tmp_path, body, text)[:6] == [10, 1, 17, 7, 3, 20]


def test_functions_are_called_through_pointers(tmp_path):
    body = """
  var f: *const fn(i16) i16 = &add;
  y[0] = f(3);
  if (x > 5) { f = &take; }
  y[1] = f(3);
  y[2] = f.*(4);
  for (@range(u16, 2)) |i| { y[3 + i] = table[i](10); }
  y[5] = apply(f, 1);
  act.do();
  y[6] = x;
"""
    text = """
fn add(a: i16) i16 { return a + x; }
fn take(a: i16) i16 { return a - x; }
fn reset() void { x = 0; }
const table = [2]*const fn(i16) i16{ take, add };
fn apply(f: *const fn(i16) i16, v: i16) i16 { return f(v) + f(v + 1); }
const Act = struct { n: i16, do: *const fn() void };
var act = Act{ .n = 1, .do = reset };
"""
    assert left(tmp_path, body, text)[:7] == [10, -4, -3, 3, 17, -11, 0]


def test_functions_are_chosen_compared_and_called_through_their_addresses(tmp_path):
    """Each way to call one through a constant pointer too, which holds no number then."""
    text = """
    fn same(x: i16) i16 { return x; }
    fn next(x: i16) i16 { return x + 1; }
    fn pick(n: i16) *const fn(i16) i16 { if (n > 3) return &next; return &same; }
    var c: bool = true; var n: i16 = 4; var p: *const fn(i16) i16 = same;
    """
    body = """
      const known: *const fn(i16) i16 = &same;
      y[0] = known.*(5) + (known.*)(6);
      p = if (c) &next else &same; y[1] = p(5);
      const chosen = switch (n) { 4 => &same, else => &next }; y[2] = chosen.*(8);
      y[3] = (if (n > 4) next else same)(1);
      if (pick(n) == &next and &same != pick(n) and p == next) { y[4] = pick(0)(3); }
    """
    assert words(tmp_path, body, text, count=5) == [11, 6, 8, 1, 3]


def test_pointers_of_different_types_are_compared_by_where_they_lead(tmp_path):
    text = """
    var a: [4]f32; var b: [4]f32;
    var p: [*]f32 = &a;
    const q: *[4]f32 = &b;
    comptime { @comptime_assert(q == &b and &a[0] != &a[1]); }
    """
    body = """
      if (p == &a and &b != p) { y[0] = 1; }
      p = q;
      if (p == &a or p != q) { y[1] = 1; }
      var r: *const f32 = &a[1];
      if (r == &a[1] and r != &a[2]) { y[2] = 1; }
    """
    assert words(tmp_path, body, text, count=3) == [1, 0, 1]


def test_a_choice_between_literals_is_a_literal_in_an_expression(tmp_path):
    """It has the type that the whole expression is to have."""
    text = "var c: bool = true; var n: i16 = 4;"
    body = """
      y[0] = 3 - (if (c) 4 else 5) * 2;
      var f: f32 = 2.0 * (if (n > 4) 0.5 else -0.25); y[1] = @as(i16, f * 4.0);
      if ((if (c) 4 else 5) == 4) { y[2] = 1; }
      y[3] = (if (c) 1 else 2) * (if (n > 9) 3 else 4);
      y[4] = -(switch (n) { 4 => 6, else => 7 });
      var wide: u32 = (if (c) 70000 else 5) + 1; y[5] = @as(i16, wide - 70000);
    """
    assert words(tmp_path, body, text, count=6) == [-5, -2, 1, 4, -6, 1]


def test_a_function_may_call_itself_through_a_pointer(tmp_path):
    text = "fn f(a: i16) i16 { if (a == 0) { return 1; } return g(a - 1) + 2; }\nvar g: *const fn(i16) i16 = &f;"
    assert left(tmp_path, "y[0] = f(3);", text)[0] == 7
    both = (
        "fn f(a: i16) i16 { if (a == 0) { return 1; } return h(a) + 1; }\nfn h(a: i16) i16 { return g(a - 1) + 10; }\n"
        "var g: *const fn(i16) i16 = &f;"
    )
    assert left(tmp_path, "y[0] = f(3);", both)[0] == 34


PACKED = """
const Two = packed struct { lo: u8, hi: u8 };
const Flags = packed struct { on: bool, level: u8, sign: i8 };
const Wide = packed struct { a: u16, b: i16 };
var two: Two;
var twos = [2]Two{ Two{ .lo = 1, .hi = 2 }, Two{ .lo = 3, .hi = 4 } };
var flags: Flags;
var wide: Wide;
var bits: u32 = 0x00050003;
"""


def test_packed_fields_share_a_word(tmp_path):
    body = """
  two.lo = 3;
  two.hi = 4;
  two.lo += 254;
  y[0] = @bitcast(i16, two);
  y[1] = @as(i16, twos[x - 6].hi);
  twos[0] = Two{ .lo = @as(u8, x), .hi = 9 };
  y[2] = @bitcast(i16, twos[0]);
  flags.sign = -3;
  flags.on = x == 7;
  flags.level = 200;
  y[3] = @as(i16, flags.sign) + @as(i16, flags.level) + @as(i16, flags.on);
  wide = @bitcast(Wide, bits);
  y[4] = wide.b;
  wide.a = 9;
  bits = @bitcast(u32, wide);
  y[5] = @as(i16, bits);
  two = @bitcast(Two, x);
  y[6] = @as(i16, two.lo);
"""
    assert left(tmp_path, body, PACKED)[:7] == [0x0401, 4, 0x0907, 198, 5, 9, 7]
    found = run_task(tmp_path, "two.lo = 1;", PACKED, "var y: [2]i16;", results={"two": "u2"})
    assert found["two"].tolist() == [1]


def test_pointers_count_bytes_as_numbers(tmp_path):
    body = """
  const p = @bitcast([*]i16, @bitcast(u16, &a) + 4);
  y[0] = p[0];
  const q = @bitcast(u16, &a[x - 4]) - @bitcast(u16, &a[0]);
  y[1] = @as(i16, q);
"""
    assert left(tmp_path, body, "var a = [4]i16{ 1, 2, 3, 4 };")[:2] == [3, 6]


VECTORS = """
var a: [8]i16;
var b: [8]i16;
const da = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] });
const db = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> b[2 * i] });
const grid = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> b[4 * i + j] });
const parts = [2]mem1d_dsd{ @set_dsd_length(da, 2), @increment_dsd_offset(@set_dsd_length(da, 3), 4, i16) };
fn part(at: i16) mem1d_dsd { var d = @set_dsd_length(da, 2); d = @increment_dsd_offset(d, at, i16); return d; }
fn side(which: i16) mem1d_dsd { if (which > 3) { return da; } return db; }
"""


def vectors(directory, body):
    """Return both arrays after a task."""
    found = run_task(directory, body, Y, VECTORS, results={"a": "i2", "b": "i2"})
    return found["a"].tolist(), found["b"].tolist()


def test_descriptors_are_chosen_while_the_program_runs(tmp_path):
    body = """
  const chosen = if (x > 3) db else da;
  @mov16(chosen, 1);
  @add16(if (x > 30) db else da, da, 2);
  for (@range(i16, 2)) |i| { @add16(parts[i], parts[i], 10 * (i + 1)); }
  @mov16(switch (x) { 1 => parts[0], 7 => part(6), else => db }, 50);
"""
    assert vectors(tmp_path, body) == ([12, 12, 2, 2, 22, 22, 50, 50], [1, 0, 1, 0, 1, 0, 1, 0])


def test_descriptors_that_differ_in_kind_are_chosen_per_operation(tmp_path):
    assert vectors(tmp_path, "const d = side(x); @mov16(d, 3); @mov16(side(1), 4);") == ([3] * 8, [4, 0] * 4)
    text = "const d = if (x == 7) out else back; @mov16(d, da); @mov16(db, from);"
    body = VECTORS + "const unused = grid;"
    colors = """
const queue = @get_output_queue(3);
const out = @get_dsd(fabout_dsd, .{ .extent = 4, .fabric_color = @get_color(4), .output_queue = @get_output_queue(2) });
const back = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(5), .output_queue = queue });
const from = @get_dsd(fabin_dsd, .{ .extent = 4, .fabric_color = @get_color(4), .input_queue = @get_input_queue(2) });
comptime {
  @set_local_color_config(@get_color(4), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
  @set_local_color_config(@get_color(5), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
}
"""
    found = run_task(tmp_path, "@mov16(da, x);" + text, Y, body, colors, results={"b": "i2"})
    assert found["b"].tolist() == [7, 0, 7, 0, 7, 0, 7, 0]


def test_converted_numbers_go_through_pointers(tmp_path):
    assert left(tmp_path, "@fs2xp16(&y[0], f); @fh2xp16(&y[x - 6], h);", "var f: f32 = 4.5; var h: f16 = 3.0;")[:2] == [
        4,
        3,
    ]


def test_a_variable_may_be_named_like_a_type(tmp_path):
    text = "param color: color; const i16s = [2]i16{ 3, 4 }; fn f(f16: i16) i16 { const q: i16 = f16 + 1; return q; }"
    text += "\nconst other: color = @get_color(5);"
    body = "y[0] = f(i16s[1]); y[1] = @as(i16, @get_int(color)); y[2] = @as(i16, @get_int(other));"
    text = text.replace("param color: color;", "param color: color = @get_color(3);")
    assert left(tmp_path, body, text)[:3] == [5, 3, 5]


def test_an_element_or_field_is_taken_of_a_value_where_it_is_made(tmp_path):
    """Also blocks and choices that are asked to be known when the program is compiled."""
    declarations = """
const Pair = struct { a: i16, b: f32 };
const third = [3]i16{ 5, 6, 7 }[2];
const part = Pair{ .a = 3, .b = 2.5 }.a;
const squares = comptime blk: {
  var t = @zeros([4]i16);
  var i: i16 = 0;
  while (i < 4) : (i += 1) { t[@as(u16, i)] = i * i; }
  break :blk t;
};
const chosen = comptime switch (third) { 7 => 42, else => 0 };
"""
    body = """
  y[0] = third;
  y[1] = part;
  y[2] = squares[3];
  y[3] = chosen;
  y[4] = [3]i16{ x, x + 1, x + 2 }[2];
  y[5] = Pair{ .a = x, .b = 1.5 }.a + @as(i16, Pair{ .a = x, .b = 1.5 }.b);
  const here = comptime blk: { break :blk 9; };
  y[6] = here;
"""
    assert left(tmp_path, body, declarations)[:7] == [7, 3, 9, 42, 9, 8, 9]


NESTED = """const I = struct { z: i16 };
const P = struct { x: i16, q: I, v: [2]i16 };
var s: P;
fn second(p: P) i16 { return p.q.z + p.v[1]; }
fn made(a: i16) P { return .{ .x = 1, .q = .{ .z = a }, .v = .{ 1, a + 1 } }; }
"""
WHOLE = ".{ .x = 1, .q = .{ .z = x }, .v = .{ 1, x + 1 } }"


@pytest.mark.parametrize(
    "body",
    [
        f"var p = [2]P{{ {WHOLE}, .{{ .x = 2, .q = .{{ .z = 3 }}, .v = .{{ 4, 5 }} }} }}; y[0] = second(p[x - 7]);",
        f"const p: P = {WHOLE}; y[0] = p.q.z + p.v[1];",
        f"y[0] = second(P{WHOLE[1:]});",
        f"y[0] = second({WHOLE});",
        f"s = {WHOLE}; y[0] = second(s);",
        "y[0] = second(made(x));",
        "s.q = .{ .z = x }; s.v = .{ 0, x + 1 }; y[0] = second(s);",
    ],
)
def test_anonymous_structs_inside_of_others_may_have_parts_that_run(tmp_path, body):
    assert left(tmp_path, body, NESTED)[0] == 15


ARRAYS = """var k: i16 = 7;
var a = [3]i16{ 1, 2, 3 };
fn sum(v: [3]i16) i16 { var s: i16 = 0; for (v) |e| { s += e; } return s; }
fn turned(v: [3]i16) [3]i16 { return [3]i16{ v[1], v[2], v[0] }; }
fn change() i16 { a[0] = 50; return 4; }
fn late(v: [3]i16) i16 { a[0] = 9; return v[0]; }
fn both(v: [3]i16, n: i16) i16 { return v[0] * 10 + n; }
fn pick(v: [3]i16, at: u16) i16 { return v[at]; }
fn ends(p: *const [3]i16) i16 { return p.*[0] + p.*[2]; }
fn apart(v: [3]i16) i16 { return ends(&v); }
fn any(v: anytype) i16 { var s: i16 = 0; for (v) |e| { s += e; } return s; }
fn most(v: [4]u8) u8 { var m: u8 = 0; for (v) |e| { if (e > m) m = e; } return m; }
var bytes = [4]u8{ 3, 200, 7, 1 };
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("sum(a)", 6),
        ("sum([3]i16{ k, k, 1 })", 15),
        ("pick(turned(turned(a)), 0)", 3),
        ("late(a)", 1),
        ("both(a, change())", 14),
        ("both(turned(a), change())", 24),
        ("pick(a, @as(u16, k) - 5)", 3),
        ("apart(a)", 4),
        ("any(a) + any([2]i16{ 4, k })", 17),
        ("@as(i16, most(bytes))", 200),
    ],
)
@pytest.mark.parametrize("how", ["", "noinline ", "inline "])
def test_arrays_go_into_functions_as_they_are(tmp_path, call, expected, how):
    """They are copied: what the function or another argument does to the variable is not seen."""
    declarations = ARRAYS.replace("fn ", how + "fn ")
    for level in (0, 1):
        found = run_task(tmp_path, f"y[0] = {call};", Y, declarations, results={"y": "i2"}, optimise=level)
        assert found["y"][0] == expected
