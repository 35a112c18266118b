"""Loops and choices in their rarer forms, and what becomes of results."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.running import run_task
from tests.fabric.csl.test_features import VECTORS, words


def test_a_range_whose_step_is_known_at_run_time_goes_either_way(tmp_path):
    body = """
  for (@range(i16, t, 0, s)) |i| { y[0] += i; }
  s = 3;
  for (@range(i16, 0, t, s)) |i| { y[1] += i; }
  for (@range(i16, 0, t, s)) |i| { s = 100; t = 3; y[2] += i; }
"""
    assert words(tmp_path, body, "var s: i16 = -2; var t: i16 = 10;", count=3) == [30, 18, 18]


def test_a_branch_of_a_switch_may_be_a_loop_a_choice_or_a_block(tmp_path):
    body = """
  y[0] = switch (x) { 7 => blk: { if (x > 9) { break :blk 1; } break :blk x + 1; }, else => 0 };
  y[1] = switch (x) { 7 => switch (y[0]) { 8 => 5, else => 1 }, else => 0 };
  switch (x) { 6 => if (x > 3) { y[2] = 1; }, 7 => for (@range(i16, 3)) |i| { y[3] += i; }, else => {} }
  const known = switch (3) { 3 => here: { break :here 9; }, else => 1 };
  y[4] = known;
"""
    assert words(tmp_path, body, "var x: i16 = 7;", count=5) == [8, 5, 0, 3, 9]


def test_a_branch_of_a_switch_may_be_an_if_that_no_semicolon_ends(tmp_path):
    """Its value is that of the branch; without an else, or where it leaves the function, it is a statement."""
    text = """
    fn value(k: u16, c: bool) i16 {
      return switch (k) {
        0 => if (c) 1 else 2,
        1 => if (c) 3 else if (k > 5) 4 else blk: { break :blk 5; },
        else => if (c) blk: { break :blk 6; } else 7,
      };
    }
    fn act(k: u16) i16 {
      switch (k) {
        0 => if (y[1] > 0) tick(1),
        1 => if (y[1] > 9) tick(10) else tick(20),
        2 => if (y[1] > 9) { tick(100); } else tick(200),
        else => if (y[1] > 9) return 8 else y[1] += 1
      }
      return 9;
    }
    fn tick(n: i16) void { y[0] += n; }
    """
    body = """
      inline for (@range(u16, 3)) |k| { y[2 * k + 1] = value(k, true); y[2 * k + 2] = value(k, false); }
      y[7] = act(0) + act(1) + act(2) + act(3);
    """
    assert words(tmp_path, body, text, count=8) == [221, 2, 2, 3, 5, 6, 7, 36]
    with pytest.raises(CslError, match="the value of this expression is not used"):
        words(tmp_path, "switch (y[0]) { 0 => if (y[0] > 0) 1 else 2, else => {} }", count=1)


def test_a_choice_of_calls_without_results_may_be_returned(tmp_path):
    text = """
    var m: i16 = 3;
    fn add(n: i16) void { y[0] += n; }
    fn a(k: i16) void { return if (k > 1) add(1) else if (k > 0) add(10) else {}; }
    fn b(k: i16) void { return switch (k) { 0 => add(100), 1 => if (m > 2) add(200) else add(400), else => {} }; }
    """
    assert words(tmp_path, "a(2); a(1); a(0); b(0); b(1); b(2);", text, count=1) == [311]


def test_a_branch_of_a_value_may_leave_the_function_or_the_loop(tmp_path):
    text = """
    var k: i16 = 5;
    fn both(n: i16) i16 { const v = switch (n) { 0 => 1, 1, 2, => 2, else => { k += 1; return -1; } }; return v * 10; }
    fn literal(n: i16) f32 {
      const v: f32 = switch (n) { 0 => 1, 1 => blk: { break :blk 2.5; }, else => return -0.5 };
      return v * 2.0;
    }
    fn chosen(n: i16) i16 { const v = if (n > 2) n * 2 else { return 7; }; return v; }
    fn nested(n: i16) i16 { return switch (n) { 1 => switch (k) { 6 => 5, else => return 6 }, else => 3 }; }
    """
    body = """
      inline for (@range(u16, 3)) |n| { y[n] = both(n * 2); }
      inline for (@range(u16, 3)) |n| { y[3 + n] = @as(i16, literal(n) * 4.0); }
      y[6] = chosen(1); y[7] = chosen(3);
      y[8] = nested(1); k = 9; y[9] = nested(1); y[10] = nested(2);
      for (@range(i16, 9)) |i| { const v = switch (i) { 1 => continue, 4 => break, else => i }; y[11] += v; }
    """
    assert words(tmp_path, body, text, count=12) == [10, 20, -1, 8, 20, -2, 7, 6, 5, 6, 3, 5]


def test_a_branch_that_leaves_needs_no_braces_and_may_be_known(tmp_path):
    """Each function gives the same at compile time."""
    text = """
    fn early(n: i16) i16 { const v: i16 = if (n > 1) n else return -1; return v * 2; }
    fn sum(n: i16) i16 {
      var all: i16 = 0;
      for (@range(i16, n)) |i| {
        const even = if (i % 2 == 0) i else continue;
        const low = if (even > 5) break else even;
        all += if (low == 2) 10 + low else low;
      }
      return all;
    }
    fn case(n: i16) i16 {
      const v = switch (n) { 1 => 70, else => if (n > 9) return 9 else if (n > 5) { return n; } else n };
      return v + 1;
    }
    const known = [6]i16{ early(0), early(4), sum(9), case(10), case(6), case(3) };
    """
    body = "y[0] = early(k); y[1] = early(k + 4); y[2] = sum(k + 9); y[3] = case(k + 10); y[4] = case(k + 6); "
    body += "y[5] = case(k + 3); for (known) |v, i| { y[6 + i] = v; }"
    assert words(tmp_path, body, text, "var k: i16 = 0;", count=12) == 2 * [-1, 8, 16, 9, 6, 4]


def test_a_loop_may_do_several_things_between_its_turns(tmp_path):
    body = "var i: i16 = 0; while (i < 5) : ({ i += 1; y[1] += 2; }) { if (i == 2) { continue; } y[0] += i; }"
    assert words(tmp_path, body, count=2) == [8, 10]


def test_results_that_nobody_needs_and_those_of_operations(tmp_path):
    body = """
  count();
  const done = @fadds(y_dsd, a_dsd, 1.0);
  while (!@fmuls(y_dsd, y_dsd, 2.0)) { }
  if (done) { y[0] = n; }
"""
    text = "var n: f32 = 0.0; fn count() f32 { n += 1.0; return n; }"
    assert words(tmp_path, body, VECTORS, text, count=6, kind="f4") == [1.0, 6.0, 8.0, 10.0, 12.0, 14.0]


UNROLLED = {
    "break under a known condition": (
        "for (@range(i16, 3)) |i| { inline for (.{ 1, 2, 3 }) |v| { if (v == 2) break; y[0] += v; } y[1] += 1; }",
        [3, 3, 0],
    ),
    "break while running": (
        "for (@range(i16, 3)) |i| { inline for (.{ 1, 2, 3 }) |v| { if (i == v) break; y[0] += v; } y[1] += 1; }",
        [6 + 0 + 1, 3, 0],
    ),
    "continue while running": (
        "for (@range(i16, 3)) |i| { inline for (.{ 1, 2, 3 }) |v| { if (i == v) continue; y[0] += v; } y[1] += 1; }",
        [6 + 5 + 4, 3, 0],
    ),
    "labels from a loop inside": (
        """outer: inline for (.{ 0, 1, 2 }) |v| {
             var k: i16 = 0;
             while (k < 4) : (k += 1) { if (k == v) continue :outer; if (v == two) break :outer; y[v] += 1; }
           }""",
        [0, 1, 0],
    ),
    "an inline while": (
        """comptime var i: i16 = 0;
           inline while (i < 10) : (i += 1) { if (i == 3) { break; } if (i == two - 1) { continue; } y[i] = 1; }""",
        [1, 0, 1],
    ),
    "return": ("y[0] = place(f32); y[1] = place(i32); y[2] = place(u32);", [1, 2, -1]),
}


@pytest.mark.parametrize(("body", "expected"), UNROLLED.values(), ids=UNROLLED)
def test_an_unrolled_loop_is_left_like_any_other(tmp_path, body, expected):
    """Its `break` and `continue` mean it, not the loop around it."""
    decl = """var two: i16 = 2;
fn place(comptime T: type) i16 { inline for (.{ i16, f32, i32 }) |t, i| { if (t == T) return @as(i16, i); } return -1; }
"""
    for level in (0, 1):
        found = run_task(tmp_path, body, decl, "var y = @zeros([3]i16);", results={"y": "i2"}, optimise=level)
        assert found["y"].tolist() == expected


KNOWN_END = {
    "after if": "if (T == f32) return 1; if (T == i16) { return 2; } @comptime_assert(false); return 3;",
    "after switch": "switch (T) { f32 => { return 1; }, i16 => return 2, else => void } const n: T = none; return n;",
    "after a loop": "inline for (.{ f32, i16 }) |t, i| { if (t == T) { return i + 1; } } @comptime_assert(false);",
}


@pytest.mark.parametrize("body", KNOWN_END.values(), ids=KNOWN_END)
def test_what_follows_a_known_return_is_not_analysed(tmp_path, body):
    decl = f"fn which(comptime T: type) i16 {{ {body} }}\nvar y = @zeros([2]i16);"
    found = run_task(tmp_path, "y[0] = which(f32); y[1] = which(i16);", decl, results={"y": "i2"})
    assert found["y"].tolist() == [1, 2]


def test_a_generic_function_ends_its_own_recursion(tmp_path):
    decl = "fn fib(comptime n: i16) i16 { if (n < 2) return n; return fib(n - 1) + fib(n - 2); }\nvar y: i16;"
    assert run_task(tmp_path, "y = fib(9);", decl, results={"y": "i2"})["y"].tolist() == [34]


def test_parameters_and_captures_that_are_not_used_may_share_a_name(tmp_path):
    decl = "fn f(_: i16, a: i16, _: f32) i16 { return a; }\nvar y: i16 = 0;"
    body = "for (@zeros([3]i16)) |_, _| { y += f(1, 2, 3.0); }"
    assert run_task(tmp_path, body, decl, results={"y": "i2"})["y"].tolist() == [6]
