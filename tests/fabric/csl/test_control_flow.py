"""Loops and choices in their rarer forms, and what becomes of results."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
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


def test_results_that_nobody_needs_and_those_of_operations(tmp_path):
    body = """
  count();
  const done = @fadds(y_dsd, a_dsd, 1.0);
  while (!@fmuls(y_dsd, y_dsd, 2.0)) { }
  if (done) { y[0] = n; }
"""
    text = "var n: f32 = 0.0; fn count() f32 { n += 1.0; return n; }"
    assert words(tmp_path, body, VECTORS, text, count=6, kind="f4") == [1.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    fifo = "var store: [4]f32; const f = @allocate_fifo(store);"
    with pytest.raises(CslError, match="whether a FIFO ended an operation early cannot be read"):
        words(tmp_path, "if (@fmovs(f, a_dsd)) { y[0] = 1.0; }", VECTORS, fifo, count=6, kind="f4")
