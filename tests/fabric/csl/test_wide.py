"""Integers of 64 bits, and of widths that do not fill their words, against integers of Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fabric.csl.running import run_task

ALL = (1 << 64) - 1


def signed(value, bits=64):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def quotient(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def left(directory, types, values, results, declarations=""):
    """Return what expressions over variables give, as unsigned numbers; `types` and `values` are those of p, q."""
    body = "".join(
        f"const r{k} = {text}; y[{2 * k}] = @as(u32, r{k}); y[{2 * k + 1}] = @as(u32, r{k} >> 32);\n"
        for k, text in enumerate(results)
    )
    names = "".join(f"var {n}: {t} = {v};\n" for n, t, v in zip(("p", "q", "c"), (*types, "u16"), values, strict=True))
    found = run_task(directory, body, f"var y: [{2 * len(results)}]u32;", names, declarations, results={"y": "<u8"})
    return found["y"].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_unsigned(tmp_path, seed):
    draw = random.Random(seed)
    p, q, c = draw.getrandbits(64), draw.getrandbits(draw.choice((8, 33, 64))) | 1, draw.randrange(64)
    texts = [
        "p + q", "p - q", "p * q", "p / q", "p % q", "p & q", "p | q", "p ^ q", "~p", "-p", "p << c", "p >> c",
        "p << 7", "p >> 7", "p << 32", "p >> 45", "p / 4096", "p % 4096", "p + 1", "p - 4294967296", "p * 1000",
        "@as(u64, p < q) + @as(u64, p <= q) * 2 + @as(u64, p == q) * 4 + @as(u64, p != p)",
    ]  # fmt: skip
    wanted = [
        p + q, p - q, p * q, p // q, p % q, p & q, p | q, p ^ q, ~p, -p, p << c, p >> c, p << 7, p >> 7, p << 32,
        p >> 45, p // 4096, p % 4096, p + 1, p - (1 << 32), p * 1000, (p < q) + 2 * (p <= q) + 4 * (p == q),
    ]  # fmt: skip
    assert left(tmp_path, ("u64", "u64"), (p, q, c), texts) == [value & ALL for value in wanted]


@pytest.mark.parametrize("seed", range(2))
def test_signed(tmp_path, seed):
    draw = random.Random(seed + 9)
    p, q, c = signed(draw.getrandbits(64)), -draw.getrandbits(40) - 1, draw.randrange(64)
    texts = [
        "p / q", "p % q", "p >> c", "p >> 3", "p >> 50", "p * q", "-p", "p / -3",
        "@as(i64, p < q) + @as(i64, p > q) * 2 + @as(i64, p >= 0) * 4",
    ]  # fmt: skip
    rest = p - quotient(p, q) * q
    wanted = [quotient(p, q), rest, p >> c, p >> 3, p >> 50, p * q, -p, quotient(p, -3)]
    wanted.append((p < q) + 2 * (p > q) + 4 * (p >= 0))
    assert left(tmp_path, ("i64", "i64"), (p, q, c), texts) == [value & ALL for value in wanted]


def test_conversions(tmp_path):
    values = (0x1234_5678_9ABC_DEF1, 1, 0x8000_0080_0000_0001, (1 << 64) - 1, 0xFFFF_FF80_0000_0000, 3)
    body = "".join(f"v = {value}; f[{k}] = @as(f32, v);\n" for k, value in enumerate(values))
    body += "s = @as(i64, g); f[6] = @as(f32, s); f[7] = @as(f32, @as(i64, 0) - @as(i64, v));\n"
    body += "y[0] = @as(u16, s); s = n; y[1] = @as(u16, s >> 40); v = w; y[2] = @as(u16, v >> 16);\n"
    body += "y[3] = @as(u16, @as(bool, v << 40)); y[4] = @as(u16, @as(bool, v)); v = @as(u64, h); y[5] = @as(u16, v);\n"
    body += "y[6] = @as(u16, @as(u64, y[4] == 1));\n"
    text = "var v: u64; var s: i64; var g: f32 = -3.5e15; var n: i16 = -2; var w: u32 = 0xabcd1234; var h: f16 = 7.5;"
    found = run_task(tmp_path, body, text, "var f: [8]f32; var y: [7]u16;", results={"f": "f4", "y": "u2"})
    wanted = [*map(np.float32, values), np.float32(-3.5e15), np.float32(-3)]
    wanted[2] = np.float32(0x8000_0100_0000_0000)  # numpy rounds an integer twice
    assert found["f"].tolist() == wanted
    assert found["y"].tolist() == [int(np.float32(-3.5e15)) & 0xFFFF, 0xFFFF, 0xABCD, 1, 1, 7, 1]


PLACES = """
const Item = struct { tag: i16, count: u64 };
var items: [3]Item;
var table = [3]u64{ 1, 5000000000, 3 };
var one: i16 = 1;
fn step(seed: u64) u64 { return seed * 2806196910506780709 + 1; }
fn pick(early: bool, v: u64) u64 { if (early) { return v; } return v + 1; }
noinline fn grow(p: *u64, by: u16) void { p.* = p.* * 3 + by; }
"""


def test_places_loops_and_functions(tmp_path):
    results = [
        "step(step(p))", "pick(one == 1, q) + pick(one == 2, q)", "table[one] + table[2]", "items[1].count",
        "if (one > 0) q else p", "blk: { if (one == 1) { break :blk q * 2; } break :blk p; }", "sum", "kept",
    ]  # fmt: skip
    declarations = PLACES + "var sum: u64 = 0; var kept: u64 = 9;"
    body = """
  var t: u64 = p;
  for (@range(u64, 4)) |i| { t += i * 3000000000; }
  for (table) |v, k| { t ^= v << k; }
  items[one] = Item{ .tag = 1, .count = q };
  items[1].count += 7;
  const at = &table[2];
  at.* -= 4;
  grow(&kept, 5);
  switch (q) { 7 => { t = 0; }, 5000000001 => { t += 2; }, else => { t = 1; } }
  while (t > 0x100000000000000) { t >>= 1; }
  sum = t;
"""
    p, q = 0xFEDC_BA98_7654_3210, 5000000001
    both = "comptime { @bind_local_task(first, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }"
    task = f"task first() void {{ {body} @activate(@get_local_task_id(8)); }}\n{both}"
    found = run_task(
        tmp_path,
        "".join(f"w[{k}] = {text};\n" for k, text in enumerate(results)),
        f"var w: [{len(results)}]u64; var p: u64 = {p}; var q: u64 = {q};", declarations, task,
        results={"w": "<u8"},
    )["w"].tolist()  # fmt: skip
    t = p + 6 * 3000000000
    for k, v in enumerate((1, 5000000000, 3)):
        t ^= v << k
    t += 2
    while t > 0x100000000000000:
        t >>= 1
    twice = (p * 2806196910506780709 + 1) * 2806196910506780709 + 1
    assert found == [twice & ALL, 2 * q + 1, 5000000000 - 1, q + 7, q, 2 * q, t, 32]


def test_a_sum_takes_few_instructions(tmp_path):
    """A sum is two additions, a comparison and in one case of two an addition; no call and no memory between."""
    text = 'var p: u64 = 0xffffffff; var q: u64 = 1; var t: [6]u16; const time = @import_module("<time>");'
    body = "time.get_timestamp(@ptrcast(*[3]u16, &t)); p += q; time.get_timestamp(@ptrcast(*[3]u16, &t[3]));"
    found = run_task(tmp_path, body, text, results={"t": "u2", "p": "<u8"})
    cycles = int(found["t"][3]) - int(found["t"][0])
    assert found["p"].tolist() == [1 << 32]
    assert cycles < 60


@pytest.mark.parametrize("bits", [20, 24, 31])
def test_widths_that_do_not_fill_their_words(tmp_path, bits):
    high = (1 << bits) - 1
    text = f"var u: u{bits} = {high}; var s: i{bits} = {high >> 1}; var w: u32 = 0xfedcba98;"
    text += " var y: [6]i32; var n: i16 = -3;"
    body = (
        f"u += 2; y[0] = @as(i32, u); s += 1; y[1] = s; y[2] = @as(i32, @as(u{bits}, w)); y[3] = @as(i32, "
        f"@as(i{bits}, w)); s = n; y[4] = s * 2; y[5] = @as(i32, @bitcast(u{bits}, s));"
    )
    found = run_task(tmp_path, body, text, results={"y": "i4"})["y"].tolist()
    low = 0xFEDCBA98 & high
    assert found == [1, -(high >> 1) - 1, low, signed(low, bits), -6, -3 & high]
