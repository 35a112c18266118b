"""Values at compile time against Python: random expressions, conversions, statements, functions, modules."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.comptime.numbers import bits_of, float_of, rounded
from fabric.csl.diagnostics import CslError
from fabric.csl.types import F32, FloatType
from tests.examples import examples
from tests.fabric.csl.running import run_task
from tests.fabric.csl.sources import compile_texts, evaluate

INTS = {"i8": (8, True), "u8": (8, False), "i16": (16, True), "u16": (16, False), "i32": (32, True), "u32": (32, False)}
FLOATS = {"f16": np.float16, "f32": np.float32}


def wrapped(number, kind):
    """Return what is left of a number in an integer type."""
    bits, signed = INTS[kind]
    number %= 1 << bits
    return number - (1 << bits) if signed and number >= 1 << bits - 1 else number


@st.composite
def integers(draw, kind, depth=3):
    """Return (text, value) of an expression of an integer type."""
    bits, signed = INTS[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    form = draw(st.integers(0, 8 if depth else 0))
    if form == 0:
        number = draw(st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1])))
        return f"@as({kind}, {number})", number
    text, value = draw(integers(kind, depth - 1))
    if form == 1:
        return f"(-{text})", wrapped(-value, kind)
    if form == 2:
        return f"(~{text})", wrapped(~value, kind)
    if form == 3:
        by = draw(st.integers(0, bits - 1))
        op = draw(st.sampled_from(["<<", ">>"]))
        return f"({text} {op} {by})", wrapped(value << by if op == "<<" else value >> by, kind)
    if form == 4:
        other = draw(st.sampled_from(list(INTS)))
        text, value = draw(integers(other, depth - 1))
        return f"@as({kind}, {text})", wrapped(value, kind)
    if form == 5:
        condition, holds = draw(booleans(depth - 1))
        other, instead = draw(integers(kind, depth - 1))
        return f"(if ({condition}) {text} else {other})", value if holds else instead
    right, b = draw(integers(kind, depth - 1))
    op = draw(st.sampled_from(["+", "-", "*", "&", "|", "^", "/", "%"]))
    if op in "/%" and b == 0:
        op = "+"
    results = {
        "+": lambda: value + b,
        "-": lambda: value - b,
        "*": lambda: value * b,
        "&": lambda: value & b,
        "|": lambda: value | b,
        "^": lambda: value ^ b,
        "/": lambda: math.trunc(abs(value) // abs(b) * (1 if (value < 0) == (b < 0) else -1)),
        "%": lambda: int(math.fmod(value, b)),
    }
    return f"({text} {op} {right})", wrapped(results[op](), kind)


@st.composite
def booleans(draw, depth=2):
    """Return (text, value) of a condition."""
    form = draw(st.integers(0, 3 if depth else 0))
    if form == 0:
        value = draw(st.booleans())
        return "true" if value else "false", value
    if form == 1:
        text, value = draw(booleans(depth - 1))
        return f"(!{text})", not value
    if form == 2:
        (a, x), (b, y) = draw(booleans(depth - 1)), draw(booleans(depth - 1))
        op = draw(st.sampled_from(["and", "or"]))
        return f"({a} {op} {b})", (x and y) if op == "and" else (x or y)
    kind = draw(st.sampled_from(list(INTS)))
    (a, x), (b, y) = draw(integers(kind, depth - 1)), draw(integers(kind, depth - 1))
    op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    return f"({a} {op} {b})", eval(f"{x} {op} {y}")


@st.composite
def floats(draw, kind, depth=3):
    """Return (text, value) of an expression of a float type, rounded after each operation."""
    to = FLOATS[kind]
    with np.errstate(all="ignore"):
        if depth == 0 or draw(st.booleans()):
            number = draw(st.floats(-1000, 1000, allow_nan=False))
            return f"@as({kind}, {number!r})" if "e" not in repr(number) else f"@as({kind}, {number:.9f})", to(
                number if "e" not in repr(number) else float(f"{number:.9f}")
            )
        (a, x), (b, y) = draw(floats(kind, depth - 1)), draw(floats(kind, depth - 1))
        op = draw(st.sampled_from("+-*"))
        return f"({a} {op} {b})", to({"+": x + y, "-": x - y, "*": x * y}[op])


def value(expression, *declarations):
    """Return type and value of an expression."""
    with tempfile.TemporaryDirectory() as directory:
        return evaluate(Path(directory), expression, *declarations)


@examples(150)
@given(st.sampled_from(list(INTS)).flatmap(lambda kind: st.tuples(st.just(kind), integers(kind))))
def test_integers_wrap_as_in_python(case):
    kind, (text, wanted) = case
    assert value(text) == (kind, wanted)


@examples(60)
@given(booleans(3))
def test_conditions(case):
    assert value(case[0]) == ("bool", case[1])


@examples(60)
@given(st.sampled_from(list(FLOATS)).flatmap(lambda kind: st.tuples(st.just(kind), floats(kind))))
def test_floats_round_once_per_operation(case):
    kind, (text, wanted) = case
    assert value(text) == (kind, pytest.approx(float(wanted), nan_ok=True, rel=0, abs=0))


@examples(100)
@given(st.integers(0, 0xFFFFFFFF), st.sampled_from(["f32", "f16", "cb16", "bf16"]))
def test_bits_of_floats(bits, name):
    kind = FloatType(name)
    bits &= (1 << kind.bits) - 1
    number = float_of(bits, kind)
    if not math.isnan(number):
        assert bits_of(number, kind) == bits
        assert rounded(number, kind) == number


@pytest.mark.parametrize(
    ("expression", "kind", "wanted"),
    [
        ("1 << 40", "comptime_int", 1 << 40),
        ("-7 / 2", "comptime_int", -3),
        ("-7 % 2", "comptime_int", -1),
        ("1.0 / 3.0", "comptime_float", 1 / 3),
        ("@as(f32, 1.0) / 3.0", "f32", float(np.float32(1) / np.float32(3))),
        ("-205.0 / 72.0 / @as(f32, 400.0)", "f32", float(np.float32(np.float32(-205 / 72) / np.float32(400)))),
        ("@as(i16, 2.9)", "i16", 2),
        ("@as(i16, -2.9)", "i16", -2),
        ("@as(bool, 0.5)", "bool", True),
        ("@as(u16, true)", "u16", 1),
        ("@as(u8, @as(u16, 513))", "u8", 1),
        ("@bitcast(u16, @as(i16, -1))", "u16", 65535),
        ("@bitcast(u32, @as(f32, 1.0))", "u32", 0x3F800000),
        ("@bitcast(f16, @as(u16, 0x3c00))", "f16", 1.0),
        ("'a' + 1", "comptime_int", 98),
        ('@strlen(@strcat("ab", "c"))', "u16", 3),
        ("@as(u32, 1) << @as(u16, 16)", "u32", 65536),
        ("@as(i16, 5) & 1 == 1", "bool", True),
        ("false and nonsense", "bool", False),
        ("true or nonsense", "bool", True),
        ("if (true) 1 else nonsense", "comptime_int", 1),
        ("switch (@as(u16, 3)) { 1, 2 => 10, 3 => 30, else => 0 }", "comptime_int", 30),
        ("three: { break :three 3; }", "comptime_int", 3),
        ("@type_of(@as(i16, 1)) == i16", "bool", True),
        ("@is_same_type(@element_type([3, 4]f32), f32)", "bool", True),
        ("@element_count([3, 4]f32)", "u32", 12),
        ("@rank([3, 4]f32)", "u16", 2),
        ("@dimensions([3, 4]f32)[1]", "u16", 4),
        ("@has_field(.{ .a = 1 }, \"b\")", "bool", False),
        ("@field(.{ .a = 7 }, \"a\")", "comptime_int", 7),
        ("@concat_structs(.{ .a = 1 }, .{ .b = 2 }).b", "comptime_int", 2),
        ("(.{ 4, 5 })[1]", "comptime_int", 5),
        ("([2, 2]i16{ 1, 2, 3, 4 })[1, 0]", "i16", 3),
        ("@constants([3]u16, 7)[2]", "u16", 7),
        ("@get_int(@get_color(5))", "u16", 5),
        ("@get_color(5) == @get_color(5)", "bool", True),
        ("NORTH == SOUTH", "bool", False),
        ("@is_arch(\"wse2\")", "bool", True),
        ("@is_comptime()", "bool", True),
        ("@range_stop(@range(i16, 4))", "i16", 4),
    ],
)  # fmt: skip
def test_single_expressions(tmp_path, expression, kind, wanted):
    assert evaluate(tmp_path, expression) == (kind, wanted)


STATEMENTS = """
fn sum(n: i16) i16 {
  var total: i16 = 0;
  for (@range(i16, n)) |i| { if (i == 5) continue; if (i == 8) break; total += i; }
  return total;
}
fn count(n: i16) i16 {
  var i: i16 = n;
  var steps: i16 = 0;
  while (i >= 0) : (i -= 1) { steps += 1; }
  return steps;
}
fn squares(n: u16) [4]u16 {
  var found = @zeros([4]u16);
  for (found) |_, i| { found[i] = n * i * i; }
  return found;
}
fn fact(n: u32) u32 { return if (n == 0) 1 else n * fact(n - 1); }
fn change(p: *i16) void { p.* = 9; }
fn pointed() i16 { var x: i16 = 1; change(&x); return x; }
fn copies() i16 { var a = [2]i16{ 1, 2 }; var b = a; b[0] = 7; return a[0] * 10 + b[0]; }
fn fields() i16 { var s = .{ .a = @as(i16, 1), .b = @as(i16, 2) }; s.a = 5; return s.a + s.b; }
fn outer() i16 {
  var n: i16 = 0;
  rows: for (@range(i16, 3)) |i| {
    for (@range(i16, 3)) |j| { if (j == 2) continue :rows; if (i == 2) break :rows; n += 1; }
  }
  return n;
}
fn generic(x: anytype) @type_of(x) { return x + @as(@type_of(x), 1); }
fn sized(comptime n: u16) [n]u16 { return @constants([n]u16, n); }
fn pick(which: u16) f32 { switch (which) { 0 => return 0.5, 1, 2 => { return 1.5; }, else => return 9.0 } }
const late = early + 1;
const early = 2;
const E = enum(u16) { A, B = 4, C };
"""


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("sum(10)", 0 + 1 + 2 + 3 + 4 + 6 + 7),
        ("count(3)", 4),
        ("squares(2)[3]", 18),
        ("fact(10)", 3628800),
        ("pointed()", 9),
        ("copies()", 17),
        ("fields()", 7),
        ("outer()", 4),
        ("generic(@as(u16, 4))", 5),
        ("sized(3)[2]", 3),
        ("pick(2)", 1.5),
        ("late", 3),
        ("@get_int(E.C)", 0),
        ("@as(u16, E.B)", 4),
    ],
)
def test_statements_and_functions(tmp_path, expression, wanted):
    found = evaluate(tmp_path, expression, STATEMENTS)[1]
    assert found == (1 if expression == "@get_int(E.C)" else wanted)


def test_an_import_is_an_instance_of_its_own(tmp_path):
    """The same file twice has two sets of globals; params bind by name; what nothing reaches is not looked at."""
    files = {
        "sub/part.csl": "param n: u16;\nparam m: u16 = n + 1;\nvar kept: [n]u16;\nconst broken = n + nonsense;\n"
        'const inner = @import_module("../deep.csl", .{ .k = m });\nfn f() *[n]u16 { return &kept; }\n',
        "deep.csl": "param k: u16;\nconst twice = 2 * k;\n",
        "top.csl": 'const a = @import_module("sub/part.csl", .{ .n = 3 });\n'
        'const b = @import_module("sub/part.csl", .{ .n = 4, .m = 9 });\n'
        "comptime { @comptime_assert(a.m == 4 and a.inner.twice == 8 and b.inner.twice == 18);\n"
        "  @comptime_assert(@type_of(a.f()) == *[3]u16); _ = b.f(); }\n",
    }
    made = compile_texts(tmp_path, files)
    assert [variable.name for variable in made.programs[0].unit.variables] == ["a.kept", "b.kept"]


def test_comptime_blocks_of_what_is_imported_run_first(tmp_path):
    files = {
        "part.csl": 'comptime { @comptime_print("part"); }\n',
        "top.csl": 'comptime { @comptime_print("top", 1 + 1, .{ .a = 1.5 }); }\n'
        'const p = @import_module("part.csl");\n',
    }
    made = compile_texts(tmp_path, files)
    assert [entry.message for entry in made.report.diagnostics] == ["part", "top 2 .{.a = 1.5}"]


def test_a_value_from_json(tmp_path):
    (tmp_path / "v.json").write_text('{"n:u16": 3, "list": [1, 2]}', encoding="utf-8")
    found = evaluate(tmp_path, "v.n + v.list[1]", 'const v = @import_comptime_value(comptime_struct, "v.json");')
    assert found == ("comptime_int", 5)


def test_the_format_of_sixteen_bits(tmp_path):
    text = "const x: f16 = 6.0;\ncomptime { @comptime_assert(@fp16() == cb16); _ = x; }\n"
    compile_texts(tmp_path, {"top.csl": text}, fp16="cb16")
    assert bits_of(6.0, FloatType("cb16")) == 0x5900
    assert rounded(0.1, F32) == float(np.float32(0.1))


def test_variables_that_begin_undefined(tmp_path):
    decl = "var g: [3]i16 = undefined; var y = @zeros([3]i16);"
    body = (
        "var a: [3]i16 = undefined; var q: f32 = undefined; q = 2.0; a[1] = 4; g[2] = @as(i16, q); y[0] = a[1] + g[2];"
    )
    assert run_task(tmp_path, body, decl, results={"y": "i2"})["y"].tolist() == [6, 0, 0]
    for text, message in (("var a = undefined;", "neither type nor value"), ("y[0] = undefined;", "is no value")):
        with pytest.raises(CslError, match=message):
            run_task(tmp_path, text, decl, results={})


FILLED = {
    "numbers": ("[3]i16", "r[2] = 5;", "t[2] + t[0]"),
    "bools": ("[3]bool", "r[1] = true;", "if (t[1] and !t[0]) 5 else 0"),
    "colors": ("[2]color", "r[0] = @get_color(5);", "@as(i16, @get_int(t[0]))"),
    "a struct": ("S", "r.x = 2; r.v[1] = 3;", "t.x + t.v[1] + t.v[0]"),
    "structs": ("[3]S", "r[2].x = 5;", "t[2].x + t[1].x"),
}


@pytest.mark.parametrize(("kind", "fill", "read"), FILLED.values(), ids=FILLED)
def test_what_has_no_value_at_compile_time_is_filled_in_pieces(tmp_path, kind, fill, read):
    decl = f"""const S = struct {{ x: i16, b: bool, v: [2]i16 }};
fn make() {kind} {{ var r: {kind}; {fill} return r; }}
const t = make();
var y: i16;
"""
    assert run_task(tmp_path, f"y = {read};", decl, results={"y": "i2"})["y"].tolist() == [5]


def test_a_function_whose_result_exists_at_compile_time_only_is_called_then(tmp_path):
    decl = """fn config(n: i16) comptime_struct { return .{ .m = n + 1 }; }
fn more(comptime n: i16) comptime_int { return n + 1; }
fn word(b: bool) comptime_string { return if (b) "yes" else "no"; }
var k: i16 = 2;
var y = @zeros([3]i16);
"""
    body = "const c = config(4); y[0] = c.m + config(3).m; y[1] = more(3) * k; y[2] = @as(i16, @strlen(word(true)));"
    assert run_task(tmp_path, body, decl, results={"y": "i2"})["y"].tolist() == [9, 8, 3]
    with pytest.raises(CslError, match="compile time"):
        run_task(tmp_path, "const c = config(k); y[0] = c.m;", decl, results={})


def test_functions_store_through_pointers_at_compile_time(tmp_path):
    """Through those to elements and to structs too, a struct's own pointers among them."""
    text = """
    const P = struct { x: i16, y: [2]i16, p: *i16 };
    fn fill(p: [*]i16, n: u16) void { for (@range(u16, n)) |i| { p[i] += @as(i16, i) * 10; } }
    fn move(q: *P) void { q.x += 4; q.y[1] = 7; q.p.* = 9; }
    fn make() i16 {
      var z: i16 = 1;
      var q = P{ .x = 1, .y = @zeros([2]i16), .p = &z };
      move(&q);
      var t = @constants([4]i16, 1);
      fill(&t, 4);
      return q.x * 1000 + q.y[1] * 100 + z * 10 + t[3];
    }
    """
    assert evaluate(tmp_path, "make()", text) == ("i16", 5821)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("fn f(p: [*]const i16) void { p[0] = 1; }", "const i16 does not let its target change"),
        ("fn f(p: [*]i16) void { p[4] = 1; }", "index 4 is outside of the .4.i16 that this points to"),
        ("fn f(p: [*]i16) void { p[-1] = 1; }", "index -1 is outside of"),
    ],
)
def test_stores_through_pointers_that_are_refused_at_compile_time(tmp_path, body, message):
    with pytest.raises(CslError, match=message):
        evaluate(tmp_path, "make()", body + "fn make() i16 { var t = @zeros([4]i16); f(&t); return t[0]; }")
