"""Functions that call themselves: results against Python, what a call keeps, how deep calls go, what is refused."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.diagnostics import CslError
from tests.examples import examples
from tests.fabric.csl.running import run_task
from wse_core.errors import ConfigError, ProgramFault

PROGRAMS = {
    "factorial": (
        "i32",
        "fn f(n: i32) i32 { if (n < 2) { return 1; } return n * f(n - 1); }",
        "f(5) + f(3) + f(4)",
        150,
    ),
    "two calls in a sum": (
        "i16",
        "fn f(n: i16) i16 { if (n < 2) return n; return f(n - 1) + f(n - 2); }",
        "f(12)",
        144,
    ),
    "a call as an argument": (
        "i16",
        "fn f(m: i16, n: i16) i16 { if (m == 0) { return n + 1; } if (n == 0) { return f(m - 1, 1); } "
        "return f(m - 1, f(m, n - 1)); }",
        "f(2, 3)",
        9,
    ),
    "floats": (
        "f32",
        "fn f(x: f32, n: i16) f32 { if (n == 0) { return 1.0; } "
        "if (n % 2 == 0) { const h = f(x, n / 2); return h * h; } return x * f(x, n - 1); }",
        "f(1.5, 6)",
        1.5**6,
    ),
    "calls in a loop": (
        "i16",
        "fn f(n: i16) i16 { if (n == 0) { return 1; } var s: i16 = 0; "
        "for (@range(i16, n)) |i| { if (i == 2) { continue; } s += f(n - 1) + i; } return s; }",
        "f(4)",
        # f(1) = 1, f(2) = 2 * 1 + 1, f(3) = 2 * 3 + 1, f(4) = 3 * 7 + 0 + 1 + 3
        25,
    ),
    "an array of its own": (
        "i16",
        "fn f(n: i16) i16 { var t: [3]i16 = .{ n, n + 1, n + 2 }; if (n == 0) { return t[one]; } "
        "const k = f(n - 1); t[one] += k; return t[0] + t[1] + t[2]; } var one: u16 = 1;",
        "f(4)",
        43,
    ),
    "a variable with an address": (
        "i16",
        "fn bump(p: *i16) void { p.* += 1; } "
        "fn f(n: i16) i16 { var a = n; if (n > 0) { const r = f(n - 1); bump(&a); return a * 10 + r; } return a; }",
        "f(3)",
        90,
    ),
    "a struct": (
        "i16",
        "const S = struct { a: i16, b: i16 }; "
        "fn f(n: i16) i16 { var s = S{ .a = n, .b = 1 }; if (n > 0) { s.b += f(n - 1); } return s.a * s.b; }",
        "f(4)",
        functools.reduce(lambda r, n: n * (1 + r), (1, 2, 3, 4), 0),
    ),
    "a descriptor": (
        "f32",
        "var v = [4]f32{ 1.0, 2.0, 3.0, 4.0 }; "
        "fn f(n: i16) f32 { if (n == 0) { return 0.0; } "
        "const d = @get_dsd(mem1d_dsd, .{ .base_address = &v, .extent = @as(u16, n) }); const r = f(n - 1); "
        "@fmuls(d, d, 2.0); return r + v[0]; }",
        "f(3)",
        2 + 4 + 8,
    ),
    "one in another": (
        "i16",
        "fn f(n: i16) i16 { if (n == 0) { return 1; } return 2 * f(n - 1); } "
        "fn g(n: i16) i16 { if (n == 0) { return f(2); } return g(n - 1) + f(n); }",
        "g(3)",
        18,
    ),
    "a hundred deep": ("i16", "fn f(n: i16) i16 { if (n == 0) { return 0; } return 1 + f(n - 1); }", "f(100)", 100),
    "two in a circle": (
        "i16",
        "fn even(n: i16) i16 { if (n == 0) { return 1; } return odd(n - 1) + 10; } "
        "fn odd(n: i16) i16 { if (n == 0) { return 0; } return even(n - 1) + 100; }",
        "even(5) * 2 + odd(3)",  # each from elsewhere
        2 * (10 + 100 + 10 + 100 + 10) + 100 + 10 + 100 + 1,
    ),
    "each other's arguments": (
        "u16",
        "fn f(n: u16) u16 { if (n == 0) { return 1; } return n - m(f(n - 1)); } "
        "fn m(n: u16) u16 { if (n == 0) { return 0; } return n - f(m(n - 1)); }",
        "f(10) * 16 + m(9)",
        6 * 16 + 6,
    ),
    "results of other sizes, and none": (
        "f32",
        "var log: i16 = 0; "
        "fn half(n: i16) f32 { note(n); if (n < 2) { return 1.0; } return @as(f32, n) + whole(n - 1, 0.5); } "
        "fn whole(n: i16, x: f32) f32 { var t: [2]f32 = .{ x, half(n - 1) }; note(-n); return t[0] + t[one] * x; } "
        "fn note(n: i16) void { log += 1; if (n == 6) { _ = half(3); log += 100; } } var one: u16 = 1;",
        "half(6) + @as(f32, log)",
        # half(n) = n + 0.5 + half(n - 2) / 2 notes n and all below; half(6) notes 7, half(3) of it 3 and 100
        6.5 + (4.5 + (2.5 + 0.5) / 2) / 2 + 110,
    ),
    "a parser": (
        "i16",
        "var text = [9]u8{ '2', '*', '(', '3', '+', '4', ')', '+', '1' }; var at: u16 = 0; "
        "fn peek() i16 { return if (at < 9) @as(i16, text[at]) else 0; } "
        "fn sum() i16 { var v = product(); while (peek() == '+') { at += 1; v += product(); } return v; } "
        "fn product() i16 { var v = factor(); while (peek() == '*') { at += 1; v *= factor(); } return v; } "
        "fn factor() i16 { at += 1; if (text[at - 1] != '(') { return @as(i16, text[at - 1]) - '0'; } "
        "const v = sum(); at += 1; return v; }",
        "sum()",
        15,
    ),
    "a call that ends it": (
        "i16",
        "fn f(a: i16, b: i16) i16 { if (b == 0) { return a; } return f(b, a % b); }",
        "f(48, 36)",
        12,
    ),
}


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize(("kind", "functions", "call", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_results(tmp_path, kind, functions, call, expected, arch, level):
    results = {"y": {"i16": "i2", "u16": "u2", "i32": "i4", "f32": "f4"}[kind]}
    found = run_task(tmp_path, f"y = {call};", f"var y: {kind};", functions, results=results, arch=arch, optimise=level)
    assert found["y"].tolist() == [expected]


SORT = """fn swap(p: [*]i16, i: i16, j: i16) void { const t = p[i]; p[i] = p[j]; p[j] = t; }
fn sort(p: [*]i16, low: i16, high: i16) void {
  if (low >= high) { return; }
  const pivot = p[high];
  var i = low;
  var j = low;
  while (j < high) : (j += 1) { if (p[j] < pivot) { swap(p, i, j); i += 1; } }
  swap(p, i, high);
  sort(p, low, i - 1);
  sort(p, i + 1, high);
}
"""


@examples(12)
@given(st.lists(st.integers(-99, 99), min_size=1, max_size=20), st.sampled_from([0, 1]))
def test_quicksort(tmp_path_factory, numbers, level):
    text = f"var y = [{len(numbers)}]i16{{ {', '.join(map(str, numbers))} }};\n" + SORT
    call = f"sort(&y, 0, {len(numbers) - 1});"
    found = run_task(tmp_path_factory.mktemp("sort"), call, text, results={"y": "i2"}, optimise=level)
    assert found["y"].tolist() == sorted(numbers)


def test_calls_that_do_not_end_are_said(tmp_path):
    with pytest.raises(ProgramFault, match="calls of a function in itself nest too deep"):
        run_task(tmp_path, "y = f(1);", "var y: i16;", "fn f(n: i16) i16 { return 1 + f(n); }", results={})


def test_a_call_from_elsewhere_finds_the_stack_as_it_was(tmp_path):
    """Also one that comes after many; an early return leaves nothing behind."""
    functions = (
        "fn f(n: i16) i16 { for (@range(i16, 3)) |i| { if (n == i) return i; } return f(n - 1) + f(n - 2) * 2; }"
    )

    @functools.cache
    def f(n):
        return n if n < 3 else f(n - 1) + 2 * f(n - 2)

    body = "for (@range(i16, 40)) |k| { y[k % 8] = f(k % 8); }"
    found = run_task(tmp_path, body, "var y = @zeros([8]i16);", functions, results={"y": "i2", ".recursion_top": "u2"})
    assert found["y"].tolist() == [f(k) for k in range(8)]
    assert found[".recursion_top"].tolist() == [0]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("fn f(n: u64) u64 { if (n == 0) { return 1; } return 1 + g(n); } fn g(n: u64) u64 { return 1 + f(n - 1); }",
         "has a u64"),
        ("fn f(n: i16) i16 { var t: [65]i16; t[n] = n; if (n == 0) { return 1; } return f(n - 1) + t[n]; }",
         "more than 128 bytes of variables in memory"),
        ("fn f(n: u64) u64 { if (n == 0) { return 1; } return n + f(n - 1); }", "has a u64"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path, functions, message):
    with pytest.raises(CslError, match=message):
        run_task(tmp_path, "_ = f(3);", functions, results={})


def test_a_program_without_recursion_has_no_stack(tmp_path):
    with pytest.raises(ConfigError, match="no symbol"):
        run_task(tmp_path, "y = 1;", "var y: i16;", results={".recursion_top": "u2"})
