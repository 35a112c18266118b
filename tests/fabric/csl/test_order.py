"""Operands, arguments, fields and both sides of an assignment are evaluated in the order of the text."""

from __future__ import annotations

import pytest

from tests.fabric.csl.running import run_task

DECLARATIONS = """
var c: i16 = 0;
var a = @zeros([8]i16);
var w = @zeros([8]i64);
var r = @zeros([8]i16);
const P = struct { a: i16, b: i16 };
const Bits = packed struct { low: u4, high: u12 };
var p: P = P{ .a = 0, .b = 0 };
var ps = @constants([4]P, P{ .a = 0, .b = 0 });
var bits = Bits{ .low = 0, .high = 0 };
noinline fn next() i16 { c += 1; return c; }
inline fn near() i16 { c += 1; return c; }
fn two(x: i16, y: i16) i16 { return x * 10 + y; }
fn fields(x: P, y: i16) i16 { return x.a * 100 + x.b * 10 + y; }
fn change() i16 { p.a = 7; return 1; }
fn point() *Bits { c += 1; return &bits; }
"""

CASES = {
    "place before value": ("a[next()] = next();", "a", [0, 2, 0, 0, 0, 0, 0, 0]),
    "the same, in place": ("a[near()] = near();", "a", [0, 2, 0, 0, 0, 0, 0, 0]),
    "an index that the value changes": ("a[c] = next();", "a", [1, 0, 0, 0, 0, 0, 0, 0]),
    "a value that the place changes": ("a[next()] = c;", "a", [0, 1, 0, 0, 0, 0, 0, 0]),
    "old before new": ("c = 5; c += next();", "c", [11]),
    "old before new, in an array": ("c = 1; a[1] = 10; a[next() - 1] += next();", "a", [0, 13, 0, 0, 0, 0, 0, 0]),
    "64 bits": ("w[next()] = @as(i64, next()); r[0] = @as(i16, w[1]);", "r", [2, 0, 0, 0, 0, 0, 0, 0]),
    "fields as they are written": ("p = P{ .b = next(), .a = next() };", "p", [2, 1]),
    "fields without a type": ("var q: P = .{ .b = next(), .a = next() }; p = q;", "p", [2, 1]),
    "an element that is a struct": ("ps[next()] = P{ .b = next(), .a = next() }; p = ps[1];", "p", [3, 2]),
    "arguments": ("r[0] = two(next(), next());", "r", [12, 0, 0, 0, 0, 0, 0, 0]),
    "a struct among arguments": ("r[0] = fields(P{ .b = next(), .a = next() }, next());", "r", [213] + [0] * 7),
    "a struct that a later argument changes": ("p.a = 2; r[0] = fields(p, change());", "r", [201] + [0] * 7),
    "operands": ("c = 5; r[0] = c + next(); r[1] = next() + c;", "r", [11, 14, 0, 0, 0, 0, 0, 0]),
    "a sum as a subscript": ("for (@range(i16, 1)) |i| { a[next() + i + c] = 9; }", "a", [0, 0, 9, 0, 0, 0, 0, 0]),
    "a local that a block changes": ("var x: i16 = 1; r[0] = x + (b: { x = 5; break :b x; });", "r", [6] + [0] * 7),
    "a shift by 64 bits": ("r[0] = next() << @as(u64, next());", "r", [4, 0, 0, 0, 0, 0, 0, 0]),
    "part of a word, once": ("point().*.low += 3; r[0] = c; r[1] = @as(i16, bits.low);", "r", [1, 3] + [0] * 6),
}


@pytest.mark.parametrize(("body", "name", "wanted"), CASES.values(), ids=CASES)
def test_in_the_order_of_the_text(tmp_path, body, name, wanted):
    assert run_task(tmp_path, body, DECLARATIONS, results={name: "i2"})[name].tolist() == wanted
