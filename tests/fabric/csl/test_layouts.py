"""Layouts: classes of PEs, colors, exports; loops at once against loops one by one."""

from __future__ import annotations

import resource
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.check import check_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from tests.examples import examples
from tests.fabric.csl.sources import compile_texts

PE = """param a: i16 = 0;
param b: i16 = 0;
param s: comptime_struct = .{ .c = 0 };
var x: [4]i16;
comptime { @comptime_assert(a >= -1000 and b < 30000 and s.c < 30000); }
"""
ROUTE = ".{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } }"
OTHER = ".{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST, SOUTH } }, .switches = .{ .pos1 = .{ .rx = NORTH } } }"


def shape(layout):
    """Return what a layout says per PE, whatever the order in which it was said."""
    cells = {}
    for y in range(layout.height):
        for x in range(layout.width):
            cls = layout.classes[layout.grid[y, x]]
            params = {
                name: (str(value.type), getattr(value.data, "fields", value.data))
                for name, (value, _) in cls.params.items()
            }
            params = {
                name: (kind, data if not isinstance(data, dict) else {k: v.data for k, v in data.items()})
                for name, (kind, data) in params.items()
            }
            colors = {c: layout.configs[g[y, x]] for c, g in layout.routes.items() if g[y, x] >= 0}
            cells[x, y] = (cls.path.name, params, colors)
    return cells


def both(directory, text, **options):
    """Return a layout evaluated at once and one by one."""
    files = {"top.csl": text, "pe.csl": PE, "other.csl": PE}
    return [compile_texts(directory, files, lanes=lanes, **options).layout for lanes in (True, False)]


BODIES = [
    'if (x == 0 or y == H - 1) {{ @set_tile_code(x, y, "pe.csl", .{{ .a = x }}); }} '
    'else {{ @set_tile_code(x, y, "other.csl", .{{ .a = {e}, .s = .{{ .c = x / 3 }} }}); }}',
    '@set_tile_code(x, y, if (x % 3 == y % 3) "pe.csl" else "other.csl", .{{ .a = {e} }});',
    'const far = distance(x, y); @set_tile_code(x, y, "pe.csl", .{{ .a = far, .b = {e} }});',
    'last = x; if (last > 4) {{ last = 4; }} @set_tile_code(x, y, "pe.csl", .{{ .a = last }});',
    'seen += 1; @set_tile_code(x, y, "pe.csl", .{{ .a = if (seen > 40) 1 else 0 }});',
    '@set_tile_code(x, y, "pe.csl", .{{ .a = table[x % 4], .b = y }});',
]
EXPRESSIONS = [
    "x + y",
    "x * 7 - y",
    "(x + 3 * y) % 5",
    "x & 3",
    "(y ^ x) | 1",
    "-x",
    "if (x < y) 1 else 2",
    "x / 4 * 4",
    "3",
]
LOOPS = [
    ("for (@range(i16, W)) |x| {", "for (@range(i16, H)) |y| {"),
    ("var x: i16 = 0; while (x < W) : (x += 1) {", "var y: i16 = 0; while (y < H) : (y += 1) {"),
    ("var x: i16 = 0; var y: i16 = 0; while (x <= W - 1) : (x += 1) {", "y = 0; while (y < H) : (y += 1) {"),
    ("for (@range(i16, W - 1, -1, -1)) |x| {", "for (@zeros([H]u8)) |_, yy| { const y: i16 = yy;"),
    ("var x = 0; while (x < W) : (x += 1) {", "var y = 0; while (y < H) : (y += 1) {"),
]
HEAD = """param W: i16;
param H: i16;
const table = [4]i16{ 5, 6, 7, 5 };
fn distance(x: i16, y: i16) i16 {
  if (x > y) { return x - y; }
  return y - x;
}
"""


@examples(60)
@given(
    st.sampled_from(LOOPS),
    st.sampled_from(BODIES),
    st.sampled_from(EXPRESSIONS),
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from(EXPRESSIONS),
)
def test_loops_at_once_mean_the_same(tmp_path_factory, loops, body, expression, width, height, condition):
    colors = f"if (({condition}) % 2 == 0) {{ @set_color_config(x, y, @get_color(3), {ROUTE}); }} "
    colors += f"@set_color_config(x, y, if (y % 2 == 0) @get_color(4) else @get_color(5), {OTHER});"
    text = f"{HEAD}layout {{ @set_rectangle(W, H); var last: i16 = 0; var seen: i16 = 0;\n{loops[0]}\n{loops[1]}\n"
    text += f"{body.format(e=expression)}\n{colors}\n}} }} }}\n"
    text = text.replace("@range(i16, W - 1, -1, -1)", "@range(i16, 0, W, 1)")
    at_once, one_by_one = both(tmp_path_factory.mktemp("layout"), text, params={"W": width, "H": height})
    assert shape(at_once) == shape(one_by_one)


def calls_of(function):
    """Return what a function returns, and how many calls of Python and of C it makes in all."""
    count, before = 0, sys.getprofile()

    def seen(_frame, event, _arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        return function(), count
    finally:
        sys.setprofile(before)


def test_a_whole_wafer_takes_no_work_per_pe(tmp_path):
    """745,500 PEs with two programs: no more calls than for a hundredth of them, only longer arrays.

    Calls are counted because a host that has yet to give the memory of the arrays makes any ratio of times.
    """
    text = f"""{HEAD}
layout {{ @set_rectangle(W, H);
  for (@range(i16, W)) |x| {{ for (@range(i16, H)) |y| {{
    @set_tile_code(x, y, if (x == 0) "pe.csl" else "other.csl", .{{}});
    if (x % 2 == 0) {{ @set_color_config(x, y, @get_color(1), {ROUTE}); }}
    else {{ @set_color_config(x, y, @get_color(1), {OTHER}); }}
  }} }} }}
"""
    files = {"top.csl": text, "pe.csl": PE, "other.csl": PE}
    compile_texts(tmp_path, files, params={"W": 75, "H": 99})  # fills the caches
    calls, before = [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # earlier tests may have needed more
    for width, height in ((75, 99), (750, 994)):
        options = Options(params={"W": width, "H": height})
        made, count = calls_of(lambda options=options: check_file(tmp_path / "top.csl", options))
        calls.append(count)
    assert made.layout.grid.size == 745_500
    assert sorted(cls.count for cls in made.layout.classes) == [994, 744_506]
    assert len(made.programs) == 2
    assert calls[1] < 1.1 * calls[0], calls  # they are the same but for what a collection of garbage calls
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20


def test_programs_that_read_the_same_params_are_one(tmp_path):
    text = """layout { @set_rectangle(4, 1);
  for (@range(u16, 4)) |x| { @set_tile_code(x, 0, "pe.csl", .{ .used = x / 2, .unused = x }); } }"""
    pe = "param used: u16;\nparam unused: u16;\nvar a: [used + 1]u16;\ncomptime { _ = &a; }\n"
    made = compile_texts(tmp_path, {"top.csl": text, "pe.csl": pe})
    assert len(made.layout.classes) == 4
    assert made.program_of == [0, 0, 1, 1]
    assert len(made.programs) == 2


def test_exports_and_their_numbers(tmp_path):
    text = """layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{});
  @export_name("y", [*]f32, true); @export_name("run", fn(i16, f32)void); @export_name("n", u16); }"""
    pe = """var y: [4]f32; const y_ptr: [*]f32 = &y; export var n: u16 = 3;
fn go(a: i16, b: f32) void { y[0] = b; n = 4; _ = a; }
comptime { @export_symbol(y_ptr, "y"); @export_symbol(go, "run"); @export_symbol(n); }"""
    made = compile_texts(tmp_path, {"top.csl": text, "pe.csl": pe})
    names = made.layout.names
    assert [(entry.name, str(entry.type), entry.mutable, entry.ident) for entry in names.values()] == [
        ("y", "[*]f32", True, 0),
        ("run", "fn(i16, f32)void", False, 1),
        ("n", "u16", False, 2),
    ]
    assert [entry.name for entry in made.programs[0].unit.exports] == ["y", "run", "n"]


@pytest.mark.parametrize(
    ("body", "piece"),
    [
        ('@export_symbol(y, "z");', "no @export_name"),
        ('@export_symbol(y, "x");', "is exported as"),
        ('@export_symbol(y_ptr, "y"); @export_symbol(y_ptr, "y");', "twice"),
        ('@export_symbol(1 + 2, "y");', "only a function or a global"),
    ],
)
def test_wrong_exports(tmp_path, body, piece):
    top = """layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{});
  @export_name("y", [*]f32, true); @export_name("x", [*]u32, true); }"""
    pe = f"var y: [4]f32; var y_ptr: [*]f32 = &y;\ncomptime {{ {body} }}\n"
    with pytest.raises(CslError, match=piece):
        compile_texts(tmp_path, {"top.csl": top, "pe.csl": pe})


def test_a_color_is_configured_once_wherever(tmp_path):
    top = f"""layout {{ @set_rectangle(2, 1);
  for (@range(u16, 2)) |x| {{ @set_tile_code(x, 0, "pe.csl", .{{ .x = x }}); }}
  @set_color_config(1, 0, @get_color(2), {ROUTE}); }}"""
    pe = f"param x: u16;\ncomptime {{ if (x == 1) {{ @set_local_color_config(@get_color(2), {ROUTE}); }} }}\n"
    with pytest.raises(CslError, match="configured here and in the layout"):
        compile_texts(tmp_path, {"top.csl": top, "pe.csl": pe})


def test_colors_in_full(tmp_path):
    text = """const d = @import_module("<directions>");
layout { @set_rectangle(2, 1);
  for (@range(u16, 2)) |x| { @set_tile_code(x, 0, "pe.csl", .{}); }
  @set_color_config(0, 0, @get_color(1), .{ .routes = .{ .rx = WEST, .tx = .{ RAMP, EAST } }, .teardown = true,
    .switches = .{ .pos1 = .{ .tx = RAMP }, .pos2 = .{ .invalid = true }, .ring_mode = true,
      .current_switch_pos = 1, .pop_mode = .{ .always_pop = true } },
    .filter = .{ .kind = .{ .counter = true }, .count_data = true, .limit1 = 3, .max_counter = 2,
      .init_counter = 1 } });
  @set_color_config(1, 0, @get_color(1), .{ .routes = d.dirToRxBits(d.flip(EAST)) | d.TX_RAMP,
    .switches = .{ .pos1 = d.TX_EAST, .pos2 = 0 } });
}"""
    layout = compile_texts(tmp_path, {"top.csl": text, "pe.csl": PE}).layout
    first, second = layout.configs
    assert (first.rx, first.tx, first.teardown, first.ring, first.current, first.pop) == (
        ("WEST",), ("RAMP", "EAST"), True, True, 1, "always_pop",
    )  # fmt: skip
    assert [(p.rx, p.tx) for p in first.positions] == [(None, ("RAMP",)), (None, None)]
    assert first.filter.kind == "counter"
    assert dict(first.filter.fields) == {"count_data": 1, "limit1": 3, "max_counter": 2, "init_counter": 1}
    assert (second.rx, second.tx) == (("WEST",), ("RAMP",))
    assert [(p.rx, p.tx) for p in second.positions] == [(None, ("EAST",)), (None, None)]
    assert np.array_equal(layout.routes[1], [[0, 1]])


def test_the_rectangle_in_its_fabric(tmp_path):
    pe = "const r = @get_rectangle();\ncomptime { @comptime_assert(r.width == 2 and r.fabric.width == 20);\n"
    pe += "  @comptime_assert(r.offsets.height == 1); }\n"
    text = 'layout { @set_rectangle(2, 1); for (@range(u16, 2)) |x| { @set_tile_code(x, 0, "pe.csl"); } }'
    compile_texts(tmp_path, {"top.csl": text, "pe.csl": pe}, fabric=(20, 10))


def test_a_number_of_the_command_line_becomes_what_its_param_is(tmp_path):
    """The command line knows numbers only; params of bools and enums are of their types."""
    text = """const Mode = enum(u16) { fast, exact = 4 };
    param flag: bool; param mode: Mode; param scale: f32;
    layout {
      @comptime_assert(flag and mode == Mode.exact and scale == 3.0);
      @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{ .a = if (flag) 2 else 1 });
    }"""
    compile_texts(tmp_path, {"top.csl": text, "pe.csl": PE}, params={"flag": 1, "mode": 4, "scale": 3})
    with pytest.raises(CslError, match="has no member with the number 3"):
        compile_texts(tmp_path, {"top.csl": text, "pe.csl": PE}, params={"flag": 1, "mode": 3, "scale": 3})
    bound = {"top.csl": 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{ .on = 1 }); }'}
    with pytest.raises(CslError, match="but bool is needed"):
        compile_texts(tmp_path, bound | {"pe.csl": "param on: bool; comptime { @comptime_assert(on); }"})
