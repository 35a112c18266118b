"""Streams of the host, traces and printed lines of programs of our own."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from harness.sdk.debug import debug_util
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.fabric.csl.running import device_of
from wse_core import image as im
from wse_core.errors import ConfigError

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{
  .width = 3, .height = 1, .MEMCPYH2D_1 = @get_color(8), .MEMCPYD2H_1 = @get_color(9) });
layout {
  @set_rectangle(3, 1);
  for (@range(u16, 3)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x) });
  }
}
"""
PE = """
param memcpy_params: comptime_struct;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const trace = @import_module("<debug>", .{ .key = "values", .buffer_size = 40 });
const prt = @import_module("<simprint>");
var total: u32 = 0;
const out = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = sys_mod.MEMCPYD2H_1, .output_queue = @get_output_queue(2) });
task take(v: u32) void {
  @block(@get_data_task_id(sys_mod.MEMCPYH2D_1));
  total += v;
  trace.trace_u32(total);
  trace.trace_i16(@as(i16, v) - 100);
  trace.trace_string("got");
  prt.fmt("value {d} in {X}", .{ total, v });
  @mov32(out, total, .{ .async = true, .unblock = sys_mod.MEMCPYH2D_1 });
}
comptime { @bind_data_task(take, @get_data_task_id(sys_mod.MEMCPYH2D_1)); }
"""


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """Return a function that makes a runtime of a layout, whose PEs add up what is streamed to them."""

    def make(layout):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "layout.csl").write_text(layout)
        (tmp_path / "pe.csl").write_text(PE)
        write_bundle(bundle_of(compile_file("layout.csl", Options())), "out")
        made = SdkRuntime("out")
        made.load()
        made.run()
        return made

    return make


@pytest.fixture
def runner(runtime):
    """Return a runtime of three PEs in a row."""
    return runtime(LAYOUT)


OPTIONS = {"streaming": True, "data_type": MemcpyDataType.MEMCPY_32BIT, "order": MemcpyOrder.COL_MAJOR}


def test_words_of_each_pe_come_in_order(runner):
    values = np.arange(1, 13, dtype=np.uint32).reshape(1, 3, 4)
    runner.memcpy_h2d(8, values.ravel("F"), 0, 0, 3, 1, 4, nonblock=True, **OPTIONS)
    found = np.zeros(9, np.uint32)
    runner.memcpy_d2h(found, 9, 0, 0, 3, 1, 3, **OPTIONS)
    sums = np.cumsum(values[0], axis=1)
    assert (found.reshape((1, 3, 3), order="F")[0] == sums[:, :3]).all()
    last = np.zeros(3, np.uint32)
    runner.memcpy_d2h(last, 9, 0, 0, 3, 1, 1, **OPTIONS)
    assert (last == sums[:, 3]).all()


def test_a_pe_that_others_of_its_stream_surround_is_reached_over_its_ramp(runtime):
    square = LAYOUT.replace(".height = 1", ".height = 3").replace("@set_rectangle(3, 1)", "@set_rectangle(3, 3)")
    square = square.replace("    @set_tile_code(x, 0,", "    for (@range(u16, 3)) |y| @set_tile_code(x, y,")
    runner = runtime(square)
    assert (1, 1, im.DIR_R, 8) in runner.fabric.spec.inputs
    values = np.arange(1, 37, dtype=np.uint32).reshape(3, 3, 4)
    runner.memcpy_h2d(8, values.ravel("F"), 0, 0, 3, 3, 4, nonblock=True, **OPTIONS)
    found = np.zeros(36, np.uint32)
    runner.memcpy_d2h(found, 9, 0, 0, 3, 3, 4, **OPTIONS)
    assert (found.reshape((3, 3, 4), order="F") == np.cumsum(values, axis=2)).all()


def test_a_stream_that_nobody_reads_is_a_message(runner):
    with pytest.raises(ConfigError, match="color 5"):
        runner.memcpy_h2d(5, np.zeros(1, np.uint32), 0, 0, 1, 1, 1, **OPTIONS)


@pytest.mark.parametrize(("name", "value"), [("order", "COL_MAJOR"), ("data_type", 1), ("order", None)])
def test_an_option_that_is_no_member_would_mean_another_one_and_is_refused(runner, name, value):
    words, options = np.zeros(1, np.uint32), OPTIONS | {name: value}
    with pytest.raises(ConfigError, match=f"{name} is {value!r}"):
        runner.memcpy_h2d(8, words, 0, 0, 1, 1, 1, **options)
    with pytest.raises(ConfigError, match=f"{name} is {value!r}"):
        runner.memcpy_d2h(words, 9, 0, 0, 1, 1, 1, **options)


def test_traces_and_printed_lines(runner, tmp_path):
    runner.memcpy_h2d(8, np.array([5, 250], np.uint32), 1, 0, 1, 1, 2, nonblock=False, **OPTIONS)
    runner.stop()
    found = debug_util("out")
    assert found.read_trace(4 + 1, 1, "values") == [5, -95, "got", 255, 150, "got"]
    assert found.read_trace(4, 1, "values") == []
    assert found.get_symbol(4 + 1, 1, "total", np.uint32).tolist() == [255]
    with pytest.raises(ConfigError, match="keys: values"):
        found.read_trace(4, 1, "others")
    lines = (tmp_path / "sim.log").read_text().splitlines()
    cycles = [int(line[1:].partition(" ")[0]) for line in lines]
    assert 0 < cycles[0] < cycles[1] <= runner.fabric.cycle
    assert [line.partition(" ")[2] for line in lines] == ["value 5 in 5", "value 255 in FA"]


PRINTING = """
const prt = @import_module("<simprint>");
const dbg = @import_module("<debug>", .{ .key = "k", .buffer_size = 40 });
const name = "cell";
var n: i16 = -7;
var f: f32 = 1.5;
var on: bool = true;
task job() void {
  prt.fmt("{s} {d} {X} {b} {f} {d} {}", .{ name, n, 255, @as(u16, 5), f, on, "end" });
  prt.fmt("100 % {", .{});
  prt.print_u32_decimal(70000);
  prt.print_string("\\n");
  dbg.trace(5);
  dbg.trace(-70000);
  dbg.trace(2.5);
}
comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }
"""


def test_lines_hold_strings_and_literals(tmp_path):
    device = device_of(tmp_path, {"top.csl": PRINTING})
    device.settle()
    lines = [line.partition(" ")[2] for line in device.records.lines()]
    assert lines == ["cell -7 FF 101 1.500000 True end", "100 % {", "70000"]
    assert device.records.trace(0, 0, "k") == [5, -70000, 2.5]


@pytest.mark.parametrize(("text", "said"), [("{q}", "is no form"), ("{s}", "shows a string, not i16")])
def test_forms_that_do_not_fit_are_refused(tmp_path, text, said):
    with pytest.raises(CslError, match=said):
        device_of(tmp_path, {"top.csl": PRINTING.replace("{s} {d}", text).replace("name, n", "n")})
