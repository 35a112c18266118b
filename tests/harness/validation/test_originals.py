"""Programs in their own source: which trees are known, what is run, and how counts come back."""

from __future__ import annotations

import numpy as np
import pytest

from harness.cli import main as cli
from harness.validation import originals
from harness.validation.points import load_points, select
from harness.validation.recipe import CannotRun
from wse_core.errors import ConfigError
from wse_core.params import machine

POINTS = {point["id"]: point for point in load_points()}

LAYOUT = """param width: u16;
param height: u16;
param tile_size: u16;
param iters: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = width, .height = height });
layout {
  @set_rectangle(width, height);
  for (@range(u16, width)) |x| {
    for (@range(u16, height)) |y| {
      @set_tile_code(x, y, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .n = tile_size, .turns = iters });
    }
  }
  @export_name("A", [*]f32, true);
  @export_name("x", [*]f32, true);
  @export_name("y", [*]f32, true);
  @export_name("maxmin_time", [*]f32, true);
  @export_name("compute", fn()void);
}
"""
PE = """param memcpy_params;
param n: u16;
param turns: u16;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const time = @import_module("<time>");
var a: [n * ((n + 3) / 4 * 4) + 1]f32;
var x: [n]f32;
var y: [(n + 3) / 4 * 4]f32;
var stamps: [6]u16 align(4);
var a_out: [*]f32 = &a;
var x_out: [*]f32 = &x;
var y_out: [*]f32 = &y;
var stamps_out: [*]f32 = @ptrcast([*]f32, &stamps);
const dy = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> y[i] });
const dx = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> x[i] });
fn compute() void {
  time.enable_tsc();
  time.get_timestamp(@ptrcast(*[3]u16, &stamps[0]));
  @fmuls(dy, dx, 2.0);
  time.get_timestamp(@ptrcast(*[3]u16, &stamps[3]));
  sys.unblock_cmd_stream();
}
comptime {
  @export_symbol(a_out, "A");
  @export_symbol(x_out, "x");
  @export_symbol(y_out, "y");
  @export_symbol(stamps_out, "maxmin_time");
  @export_symbol(compute);
}
"""


@pytest.fixture
def tree(tmp_path):
    """Return a tree with a program in the place of the public matrix-vector product: one operation of n elements."""
    directory = tmp_path / "tree" / "2benchmarks" / "14-single-tile-matvec"
    directory.mkdir(parents=True)
    (directory / "layout_matvec.csl").write_text(LAYOUT)
    (directory / "pe.csl").write_text(PE)
    return tmp_path / "tree"


def test_the_program_of_a_tree_runs_and_its_stamps_come_back(tree):
    find = originals.find_in([str(tree)])
    counts = []
    for n in (20, 50):
        point = POINTS[f"MATVEC-N{n}"]
        recipe = find(point)
        outcome = recipe.function(machine(), point, lambda text: None)
        assert "lingzhi227/MIMD_dataflow" in outcome.method
        counts.append(outcome.cycles)
    assert counts[1] - counts[0] == 30  # a multiplication of so many more elements
    assert find(POINTS["SPMM-COO-01"]) is None
    assert find(POINTS["SUMMA-P32-T4"]) is None


def test_the_command_runs_what_the_trees_have(tree, capsys):
    assert cli.main(["validate", "--originals", str(tree), "--no-limits"]) == 0
    out = capsys.readouterr().out
    assert "matvec-1pe" in out
    assert "spmm-local" not in out
    assert out.count("layout_matvec.csl, 2 x 2 PEs") == 7
    assert cli.main(["validate", "--originals", str(tree), "--kind", "gemm-local"]) == 2
    assert "about a program of these trees" in capsys.readouterr().err


def test_directories_that_are_none_or_unknown_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        originals.find_in([str(tmp_path / "none")])
    with pytest.raises(ConfigError, match="none of the known programs"):
        originals.find_in([str(tmp_path)])


def test_what_does_not_compile_is_a_point_that_cannot_run(tree):
    (tree / "2benchmarks" / "14-single-tile-matvec" / "pe.csl").write_text(PE.replace("fn compute", "fn other"))
    point = POINTS["MATVEC-N20"]
    with pytest.raises(CannotRun, match="compute"):
        originals.find_in([str(tree)])(point).function(machine(), point, lambda text: None)


@pytest.mark.parametrize("one", originals.ORIGINALS, ids=lambda one: f"{one.layout}, {one.workload}")
def test_each_program_has_points_and_arrays_for_them(one):
    """What is prepared has the sizes that the params say, and the lengths that the arrays have."""
    points = [point for point in select(load_points()) if one.fits(point)]
    assert points
    for point in points[:2] if isinstance(one, originals.TileProgram) else ():
        shown = point | {"params": point["params"] | point.get("assumed", {})}
        params, arrays = one.prepare(shown)
        assert all(isinstance(value, int) and value > 0 for value in params.values())
        for values in arrays.values():
            assert values.dtype in (np.float32, np.int32)
        lengths = {name: value for name, value in params.items() if name.endswith("_len")}
        sizes = {values.size for values in arrays.values()}
        for name, value in lengths.items():
            assert {value, value * params["Nt"]} & sizes, name
        if "B" in arrays and one.kind == "spmm-local":
            assert arrays["B"].shape == (params["Kt"], params["M"] + 1)


LINE = """param Pw: u16;
param Nx: u16;
param step: u16;
param Algo: u16;
param is_allred: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = Pw, .height = 1 });
const even = @get_color(1);
const odd = @get_color(2);
layout {
  @set_rectangle(Pw, 1);
  for (@range(u16, Pw)) |x| {
    const from = if (x % 2 == 0) odd else even;
    const to = if (x % 2 == 0) even else odd;
    @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .from = from, .to = to, .first = x == 0,
      .last = x == Pw - 1, .late = x == 2, .n = Nx });
    if (x > 0) { @set_color_config(x, 0, to, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } } }); }
    if (x < Pw - 1) { @set_color_config(x, 0, from, .{ .routes = .{ .rx = .{ EAST }, .tx = .{ RAMP } } }); }
  }
  @export_name("x", [*]f32, true);
  @export_name("time_buf_u16", [*]u16, true);
  @export_name("time_ref", [*]u16, true);
  @export_name("f_sync", fn(i16)void);
  @export_name("f_memcpy_timestamps", fn()void);
}
"""
CHAIN = """param memcpy_params;
param from: color;
param to: color;
param first: bool;
param last: bool;
param late: bool;
param n: u16;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const time = @import_module("<time>");
var x = @constants([n]f32, 1.0);
var idle: [64]f32;
var stamps: [6]u16;
var zero: [3]u16;
var x_out: [*]f32 = &x;
var stamps_out: [*]u16 = &stamps;
var zero_out: [*]u16 = &zero;
const all = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> x[i] });
const more = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{64} -> idle[i] });
const into = @get_dsd(fabin_dsd, .{ .extent = n, .fabric_color = from, .input_queue = @get_input_queue(2) });
const out = @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = to, .output_queue = @get_output_queue(3) });
fn f_sync(k: i16) void {
  time.enable_tsc();
  if (late) { @fmuls(more, more, 2.0); }
  time.get_timestamp(@ptrcast(*[3]u16, &stamps[0]));
  if (first) { @fadds(all, all, into); } else if (last) { @fmovs(out, all); } else { @fadds(out, all, into); }
  time.get_timestamp(@ptrcast(*[3]u16, &stamps[3]));
  sys.unblock_cmd_stream();
}
fn f_memcpy_timestamps() void { sys.unblock_cmd_stream(); }
comptime {
  @export_symbol(x_out, "x");
  @export_symbol(stamps_out, "time_buf_u16");
  @export_symbol(zero_out, "time_ref");
  @export_symbol(f_sync);
  @export_symbol(f_memcpy_timestamps);
}
"""


def test_a_reduce_on_a_line_gives_its_sum_and_its_cycles_from_the_first_start(tmp_path):
    (tmp_path / "layout.csl").write_text(LINE)
    (tmp_path / "pe.csl").write_text(CHAIN)
    find = originals.find_in([str(tmp_path)])
    counts = []
    for n in (16, 48):
        point = POINTS["FORM-CHAIN"] | {"params": {"P": 4, "B": n}}
        outcome = find(point).function(machine(), point, lambda text: None)
        assert outcome.reference == n + 6 * 3
        assert "P = 4" in outcome.method
        assert outcome.method.endswith("numbers of hardware (CS-2 of 2023)")
        skew = int(outcome.method.split(" cycles")[0].split()[-1])
        assert 64 < skew < 100  # one PE begins after a product of 64 elements, which counts
        counts.append(outcome.cycles)
    assert counts[1] - counts[0] == 32
    assert 64 + 16 + 18 <= counts[0] < 64 + 16 + 18 + 64
    fills = CHAIN.replace("@fmuls(more, more, 2.0)", "@fmovs(more, 2.0)")
    (tmp_path / "pe.csl").write_text(fills)
    skews = []
    for changes in ({}, {"vec.fill_late": 1500}):
        outcome = find(point).function(machine("wse2", changes), point, lambda text: None)
        skews.append(int(outcome.method.split(" cycles")[0].split()[-1]))
    assert skews[1] - skews[0] == 64 * 1500 // 1000 - 64 * 114 // 1000  # 114 unless somebody asks for another number
    (tmp_path / "pe.csl").write_text(CHAIN.replace("@fadds(out, all, into)", "@fsubs(out, all, into)"))
    with pytest.raises(CannotRun, match="sum that it leaves is wrong"):
        find(point).function(machine(), point, lambda text: None)


RINGED = """param w: i16;
param h: i16;
param tile_width: i16;
param tile_height: i16;
param radius: i16;
const across = (w - 2 * radius) / tile_width + 2;
const down = (h - 2 * radius) / tile_height + 2;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = across, .height = down });
layout {
  @set_rectangle(across, down);
  for (@range(i16, across)) |x| {
    for (@range(i16, down)) |y| {
      const memcpy_params = memcpy.get_params(x);
      @set_tile_code(x, y, "pe.csl", .{ .memcpy_params = memcpy_params, .n = tile_width * tile_height, .r = radius });
    }
  }
  @export_name("weights", [*]f32, true);
  @export_name("start", fn(i32)void);
}
"""
ITERATES = """param memcpy_params;
param n: i16;
param r: i16;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
var weights: [r + 1]f32;
var weights_out: [*]f32 = &weights;
var cells: [n]f32;
var left: i32;
const all = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{n} -> cells[i] });
const loop_id = @get_local_task_id(18);
fn start(count: i32) void { left = count; @activate(loop_id); }
task loop() void {
  if (left == 0) { sys.unblock_cmd_stream(); return; }
  left -= 1;
  @fmuls(all, all, weights[r]);
  @activate(loop_id);
}
comptime {
  @bind_local_task(loop, loop_id);
  @export_symbol(weights_out, "weights");
  @export_symbol(start);
}
"""


@pytest.fixture
def stencil(tmp_path):
    """Return a tree with a program in the place of the tiled stencil: each iteration is one operation on all cells."""
    directory = tmp_path / "tree" / "tiled-stencil"
    directory.mkdir(parents=True)
    (directory / "layout.csl").write_text(RINGED)
    (directory / "pe.csl").write_text(ITERATES)
    return tmp_path / "tree"


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_an_iteration_of_a_stencil_is_taken_from_starts_of_its_task(stencil, preset):
    find = originals.find_in([str(stencil)])
    counts = []
    for tile in ("2x2", "4x5"):
        point = next(
            one for one in POINTS.values() if one["params"].get("tile") == tile and one["params"]["radius"] == 2
        )
        counts.append(find(point).function(machine(preset), point, lambda text: None).cycles)
    assert counts[1] - counts[0] == 16  # a multiplication of so many more cells


def test_a_stencil_whose_task_does_not_start_cannot_run(stencil):
    pe = stencil / "tiled-stencil" / "pe.csl"
    pe.write_text(ITERATES.replace("get_local_task_id(18)", "get_local_task_id(17)"))
    point = POINTS["STENT-R2-2x2"]
    with pytest.raises(CannotRun, match="task 18 starts 0 times in 4 iterations"):
        originals.find_in([str(stencil)])(point).function(machine(), point, lambda text: None)
