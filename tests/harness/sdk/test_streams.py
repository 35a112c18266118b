"""Streams of the host, traces and printed lines of programs of our own."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from harness.sdk.debug import debug_util
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
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
