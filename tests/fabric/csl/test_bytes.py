"""Arrays of u8 and i8 are bytes of words, the lower half first; pointers reach either half."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.diagnostics import CslError
from tests.examples import examples
from tests.fabric.csl.running import run_task
from tests.fabric.csl.sources import compile_texts, running

WORDS = "var a = [4]u32{ 0x44332211, 0x88776655, 0, 0 };"


@examples(40)
@given(st.data())
def test_stores_and_loads_are_those_of_a_bytearray(tmp_path_factory, data):
    """Through pointers and arrays, with known and unknown indices, signed and not."""
    memory = [bytearray(range(1, 8)), bytearray(range(128, 144))]
    starts = [", ".join(map(str, memory[0])), "0x83828180, 0x87868584, 0x8b8a8988, 0x8f8e8d8c"]
    lines, seen = [], []
    names = {"s": (0, 0), "p": (1, 0), "q": (1, 3), "i": (1, 0)}  # q points to an odd byte
    for turn in range(data.draw(st.integers(1, 12))):
        name = data.draw(st.sampled_from(sorted(names)))
        which, first = names[name]
        at = data.draw(st.integers(0, len(memory[which]) - 1 - first))
        index = data.draw(st.sampled_from((str(at), f"n{at}")))
        signed = name == "i"
        op, number = data.draw(st.sampled_from(("=", "+=", "^=", "load"))), data.draw(st.integers(0, 127))
        place = first + at
        old = memory[which][place]
        if op == "load":
            lines.append(f"r[{turn}] = @as(i16, {name}[{index}]);")
            seen.append((turn, old - 256 if signed and old > 127 else old))
            continue
        lines.append(f"{name}[{index}] {op} {number};")
        memory[which][place] = {"=": number, "+=": old + number, "^=": old ^ number}[op] & 0xFF
    declarations = [f"var s = [7]u8{{ {starts[0]} }};", f"var w = [4]u32{{ {starts[1]} }};", "var r = @zeros([12]i16);"]
    declarations += [f"var n{k}: u16 = {k};" for k in range(16)]
    head = "const p = @ptrcast([*]u8, &w); const i = @ptrcast([*]i8, &w); const q = @ptrcast([*]u8, &p[3]);"
    found = run_task(
        tmp_path_factory.mktemp("bytes"), "\n".join([head, *lines, "s[0] ^= 0; w[0] ^= 0; r[11] ^= 0;"]), *declarations,
        results={"s": "u1", "w": "u1", "r": "i2"},
    )  # fmt: skip
    assert found["s"].tolist() == [*memory[0], 0]
    assert found["w"].tolist() == list(memory[1])
    assert [int(found["r"][turn]) for turn, _ in seen] == [number for _, number in seen]


CASES = {
    "the neighbour stays": ("@ptrcast([*]u8, &a)[3] = 9;", "a", [0x09332211, 0x88776655, 0, 0]),
    "a loop": ("for (b) |x, k| { a[k] = @as(u32, x); }", "a", [1, 2, 3, 255]),
    "a loop over signed ones": ("for (c) |x| { a[2] += @as(u32, @bitcast(u16, @as(i16, x))); }", "a[2]", 65535),
    "a literal": ("b = [4]u8{ n, n + 1, 7, n }; a[0] = @as(u32, b[1]);", "b", [0x0605, 0x0507]),
    "one value": ("b = @constants([4]u8, n);", "b", [0x0505, 0x0505]),
    "a known value": ("b = @constants([4]u8, 3);", "b", [0x0303, 0x0303]),
    "a copy": ("var local = b; local[1] = 9; b = local;", "b", [0x0901, 0xFF03]),
    "a row of a matrix": ("m[n - 4, 2] = 9; a[0] = @as(u32, m[1, n - 3]); a[1] = @as(u32, m[0, 1]);", "a[0:2]", [9, 2]),
    "an address of an element": ("put(&b[n - 4]); a[0] = @as(u32, get(&b[1]));", "b", [0x6301, 0xFF03]),
    "a pointer to one of them": ("const p: *u8 = &b[3]; p.* -= 1; a[0] = @as(u32, p.*);", "b", [0x0201, 0xFE03]),
    "a pointer to a variable": ("put(&n); a[0] = @as(u32, n);", "a[0]", 99),
    "a pointer to a signed variable": ("down(&z); a[0] = @as(u32, @bitcast(u16, @as(i16, z)));", "a[0]", 65534),
    "the number of a pointer": (
        "const at = @bitcast(u16, &b[1]); const p = @bitcast([*]u8, at + 1); p[1] = 8; a[0] = @as(u32, at & 1);",
        "b", [0x0201, 0x0803],
    ),
    "back to words": ("const p = @ptrcast([*]u8, &a); const w = @ptrcast([*]u16, p); w[1] = 5;", "a[0]", 0x00052211),
    "a pointer as a number of the type": (
        "const p = @ptrcast([*]u8, &a); const q: *const u8 = &p[5]; a[2] = @as(u32, q.*);", "a[2]", 0x66,
    ),
    "a global pointer": ("g[1] = 6; a[0] = @as(u32, h.*);", "b", [0x0601, 0xFF03]),
    "a struct as in C": (
        "e.b = 7; e.c = 0x1234; const p = @ptrcast([*]u8, &e); a[0] = @as(u32, p[1]); a[1] = @as(u32, p[3]); "
        "put(&e.b); a[2] = @as(u32, e.b);", "a[0:3]", [7, 0x12, 99],
    ),
    "a comptime value": ("const t = comptime [3]u8{ 1, 2, 3 }; a[0] = @as(u32, t[n - 4]);", "a[0]", 2),
    "a parameter of many bytes": ("a[0] = total(&b, 4); a[1] = total(@ptrcast([*]u8, &a), 1);", "a[0:2]", [261, 5]),
}  # fmt: skip
DECLARATIONS = (
    WORDS,
    "var b = [4]u8{ 1, 2, 3, 255 }; var c = [1]i8{ -1 }; var m = [2, 3]u8{ 1, 2, 3, 4, 5, 6 }; var n: u8 = 5;",
    "var z: i8 = -1; var g: [*]u8 = &b; var h: *u8 = &b[3];",
    "const E = extern struct { a: u8, b: u8, c: u16 }; var e = E{ .a = 1, .b = 2, .c = 3 };",
    "noinline fn put(p: *u8) void { p.* = 99; } noinline fn get(p: *u8) u8 { return p.*; }",
    "noinline fn down(p: *i8) void { p.* -= 1; }",
    "noinline fn total(p: [*]u8, count: u16) u32 { var s: u32 = 0; "
    "for (@range(u16, count)) |k| { s += @as(u32, p[k]); } return s; }",
)


@pytest.mark.parametrize(("body", "what", "wanted"), CASES.values(), ids=CASES)
def test_bytes(tmp_path, body, what, wanted):
    name = what[0]
    found = run_task(tmp_path, body, *DECLARATIONS, results={name: "u4" if name == "a" else "u2"})[name]
    first, _, last = what[2:-1].partition(":")
    if first:
        found = found[int(first) : int(last)] if last else found[int(first)]
    assert np.array(found).tolist() == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@mov16(@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> b[i] }), 1);", "walks over words, not over bytes"),
        ("@mov16(@get_dsd(mem1d_dsd, .{ .base_address = &b, .extent = 4 }), 1);", "walks over words, not over bytes"),
        ("var p: *[4]u8 = &b; b = p.*;", "not copied as a whole"),
    ],
)
def test_what_bytes_cannot(tmp_path, text, message):
    with pytest.raises(CslError, match=message):
        run_task(tmp_path, text, *DECLARATIONS, results={})


def test_an_index_is_checked_as_in_any_array(tmp_path):
    with pytest.raises(CslError, match="index 4 is outside"):
        compile_texts(tmp_path, {"top.csl": "var b: [4]u8;\n" + running("b[4] = 1;")})
