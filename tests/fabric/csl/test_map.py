"""`@map` over operands of every kind, against the same in Python."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.running import device_of, run_task

VECTORS = """
const math = @import_module("<math>");
var a = [8]f32{ 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0 };
var b = [8]f32{ 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0 };
var h = [8]f16{ 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0, 64.0 };
var y: [8]f32;
var g: [8]f16;
var three: u16 = 3;
const da = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] });
const db = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> b[i] });
const dh = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> h[i] });
const dg = @get_dsd(mem1d_dsd, .{ .base_address = &g, .extent = 8 });
const dy = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> y[i] });
const back = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[7 - i] });
const columns = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 4} -> a[i + 2 * j] });
const cube = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j, k|{2, 2, 2} -> y[i + 4 * j + 2 * k] });
const source = @get_dsr(dsr_src1, 3);
const goal = @get_dsr(dsr_dest, 2);
fn square(v: f32) f32 { return v * v; }
fn sum(v: f32, w: f32) f32 { return v + w; }
fn power(v: f32, comptime n: i16) f32 { var r = v; for (@range(i16, n - 1)) |_| { r *= v; } return r; }
fn twice(v: anytype) @type_of(v) { return v + v; }
fn wide(v: anytype, w: f32) f32 { return @as(f32, v) * w; }
"""


def after(directory, body, *declarations, name="y", kind="f4"):
    """Return an array after a task."""
    return run_task(directory, body, VECTORS, *declarations, results={name: kind})[name].tolist()


A = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
BY_COLUMNS = [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("@map(square, columns, dy);", [v * v for v in BY_COLUMNS]),
        ("@map(sum, columns, back, cube);", [BY_COLUMNS[k] + A[7 - k] for k in (0, 4, 1, 5, 2, 6, 3, 7)]),
        ("@map(sum, @set_dsd_length(da, three), @set_dsd_length(db, three - 1), dy);", [11.0, 22.0] + [0.0] * 6),
        ("@map(sum, da, @set_dsd_length(db, three), dy);", [11.0, 22.0, 33.0] + [0.0] * 5),
        ("@map(power, da, 3, dy);", [v**3 for v in A]),
        ("@map(twice, da, dy);", [2 * v for v in A]),
        ("@map(wide, dh, 0.5, dy);", [v * v / 2 for v in A]),
        ("@map(math.sqrt, db, dy);", None),
        ("@load_to_dsr(source, back); @load_to_dsr(goal, dy); @map(square, source, goal);", [v * v for v in A[::-1]]),
        ("@load_to_dsr(source, @set_dsd_length(da, three)); @map(square, source, dy);", [1.0, 4.0, 9.0] + [0.0] * 5),
        ("@load_to_dsr(source, da); @set_dsr_base_addr(source, &b); @map(square, source, dy);",
         [100 * v * v for v in A]),
        ("@load_to_dsr(source, @set_dsd_length(da, 4), .{ .save_address = true }); @map(square, source, dy);"
         "@map(square, source, @increment_dsd_offset(dy, 4, f32));", [v * v for v in A]),
        ("@load_to_dsr(source, @set_dsd_length(da, 2), .{ .save_address = true }); @map(square, source, dy);"
         "@fmovs(@increment_dsd_offset(dy, 4, f32), source);", [1.0, 4.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]),
        ("@load_to_dsr(goal, @set_dsd_length(dy, 3), .{ .save_address = true }); @map(square, da, goal);"
         "@map(square, db, goal);", [1.0, 4.0, 9.0, 100.0, 400.0, 900.0, 0.0, 0.0]),
    ],
)  # fmt: skip
def test_operands(tmp_path, body, wanted):
    found = after(tmp_path, body)
    if wanted is None:
        wanted = [pytest.approx((10 * v) ** 0.5) for v in A]
    assert found == wanted


SUMS = """
const ones = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{400} -> a[0] });
fn add(v: f32) void { @fmacs(dy, dy, da, v); }
fn doubled(v: f32) void { @fmacs(dy, dy, da, v * 2.0); }
fn mixed(v: f16) void { @fmachs(dy, dy, dh, v); }
fn weighted(v: f32, w: f32) void { @fmovs(dg32, w); @fmacs(dy, dy, da, v); }
var g32: [8]f32;
const dg32 = @get_dsd(mem1d_dsd, .{ .base_address = &g32, .extent = 8 });
"""


def added(begin, factors, row=A):
    """Return sums of products, one after the other; a function of the sums gives factors as they are by then."""
    sums = list(begin)
    for k in range(len(factors) if not callable(factors) else 8):
        factor = factors(sums, k) if callable(factors) else factors[k]
        sums = [one + other * factor for one, other in zip(sums, row, strict=True)]
    return sums


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("@map(add, db);", added([0] * 8, [10 * v for v in A])),
        ("@map(add, back);", added([0] * 8, A[::-1])),
        ("@map(add, @set_dsd_length(db, three));", added([0] * 8, [10, 20, 30])),
        ("@map(add, ones);", added([0] * 8, [1] * 400)),
        ("@map(doubled, da);", added([0] * 8, [2 * v for v in A])),
        ("@map(mixed, dh);", added([0] * 8, [v * v for v in A], [v * v for v in A])),
        ("@map(weighted, da, db);", added([0] * 8, A)),
        ("@fmovs(dy, 1e-3); @map(add, dy);", None),
        ("@load_to_dsr(source, @set_dsd_length(db, 2)); @map(add, source); @fmovs(@set_dsd_length(dy, 2), source);",
         [10.0, 20.0, *added([0] * 8, [10, 20])[2:]]),
        ("@load_to_dsr(source, @set_dsd_length(db, 2), .{ .save_address = true }); @map(add, source);"
         "@map(add, source); @fmovs(@set_dsd_length(dy, 2), source);",
         [50.0, 60.0, *added([0] * 8, [10, 20, 30, 40])[2:]]),
    ],
)  # fmt: skip
def test_multipliers(tmp_path, body, wanted):
    """A multiply-add takes each of them when its turn comes, behind what those before have written."""
    found = after(tmp_path, body, SUMS)
    if wanted is None:
        wanted = pytest.approx(added([1e-3] * 8, lambda sums, k: sums[k]), rel=1e-5)
    assert found == wanted


def test_multipliers_are_loaded_where_no_register_is_left_for_them(tmp_path):
    """A program that names nearly all DSRs keeps them; the sums are the same."""
    names = [f"const taken{k} = @get_dsr(dsr_src1, {k});" for k in range(14)]
    loads = " ".join(f"@load_to_dsr(taken{k}, da);" for k in range(14))
    assert after(tmp_path, loads + "@map(add, db);", SUMS, *names) == added([0] * 8, [10 * v for v in A])


def test_a_generic_function_takes_the_type_of_the_elements(tmp_path):
    assert after(tmp_path, "@map(math.sqrt, dh, dg);", name="g", kind="f2") == A
    text = "var d = @get_dsd(mem1d_dsd, .{ .base_address = &g, .extent = 8 });"
    assert after(tmp_path, "d = @set_dsd_length(d, 2); @map(twice, d, d);", text, name="g", kind="f2") == [0.0] * 8
    with pytest.raises(CslError, match="what the elements of this dsr_src1 are is not known"):
        after(tmp_path, "@load_to_dsr(source, dh); @map(math.sqrt, source, dg);")


def test_what_a_dsr_holds_must_be_one_kind(tmp_path):
    with pytest.raises(CslError, match="is never loaded"):
        after(tmp_path, "@map(square, source, dy);")
    with pytest.raises(CslError, match="holds a mem4d_dsd"):
        after(tmp_path, "@load_to_dsr(source, columns); @map(square, source, dy);")
    with pytest.raises(CslError, match="several kinds"):
        after(tmp_path, "@load_to_dsr(source, da); @load_to_dsr(source, columns); @map(square, source, dy);")


def test_a_mixed_sum_takes_its_sources_in_either_order(tmp_path):
    body = "@faddhs(dy, dh, da); @faddhs(dy, dy, dh); @faddhs(dy, db, dh); @faddhs(dy, dy, @as(f16, 1.0));"
    assert after(tmp_path, body) == [10 * v + v * v + 1 for v in A]


FROM_THE_FABRIC = {
    "layout.csl": """
const c = @get_color(4);
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .c = c, .first = true });
  @set_tile_code(1, 0, "pe.csl", .{ .c = c, .first = false });
  @set_color_config(0, 0, c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  @set_color_config(1, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
}
""",
    "pe.csl": """
param c: color;
param first: bool;
var n = [6]i16{ 1, 2, 3, 4, 5, 6 };
var y: [6]i16;
const dn = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{6} -> n[i] });
const dy = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{6} -> y[i] });
const out = @get_dsd(fabout_dsd, .{ .extent = 6, .fabric_color = c, .output_queue = @get_output_queue(2) });
const in = @get_dsd(fabin_dsd, .{ .extent = 6, .fabric_color = c, .input_queue = @get_input_queue(2) });
const register = if (first) @get_dsr(dsr_dest, 2) else @get_dsr(dsr_src1, 2);
fn shift(v: i16) i16 { return v * 10; }
task job() void {
  if (first) { @load_to_dsr(register, out); @map(shift, dn, register); }
  else { @load_to_dsr(register, in); @map(shift, register, dy); }
}
comptime {
  @bind_local_task(job, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  @initialize_queue(@get_input_queue(2), .{ .color = c });
}
""",
}


def test_wavelets_through_a_dsr(tmp_path):
    device = device_of(tmp_path, FROM_THE_FABRIC, "layout.csl")
    device.settle()
    assert device.symbol(1, 0, "y").tolist() == [100, 200, 300, 400, 500, 600]
