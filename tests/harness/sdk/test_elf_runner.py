"""`CSELFRunner`, the host's side before SDK 0.9: tensors go in and out at the edges, symbols are set and read."""

from __future__ import annotations

from glob import glob

import numpy as np
import pytest

from harness.sdk.compiler import main
from harness.sdk.elf_runner import CSELFRunner, ELFLoader, ELFMemory, read_trace
from wse_core.errors import ConfigError, DeadlockError

LAYOUT = """const there = @get_color(0);
const back = @get_color(1);
layout {
  @set_rectangle(2, 2);
  for (@range(i16, 2)) |y| {
    for (@range(i16, 2)) |x| {
      @set_tile_code(x, y, "pe.csl", .{ .takes = x == 0 });
      @set_color_config(x, y, there, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ if (x == 0) RAMP else EAST } } });
      @set_color_config(x, y, back, .{ .routes = .{ .rx = .{ if (x == 0) RAMP else WEST }, .tx = .{ EAST } } });
    }
  }
}
"""
PE = """param takes: bool;
const back = @get_color(1);
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = back });
export var gain: [2]f32 = @zeros([2]f32);
export var ended: u16 = 0;
task number(x: f32) void { @fmovs(out, x * gain[0] + gain[1]); }
task end() void { ended += 1; }
comptime {
  if (takes) {
    @bind_task(number, @get_color(0));
    @bind_task(end, @get_color(43));
  }
}
"""
IN = "{ x[y=0:1][k=0:2] -> [PE[-1, y] -> index[k]] }"
OUT = "{ z[y=0:1][k=0:2] -> [PE[2, y] -> index[k]] }"


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Return the files that scripts list of a compiled program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE)
    assert main(["layout.csl", "--fabric-dims=4,4", "--fabric-offsets=1,1", "-o", "out"]) == 0
    return glob("out/bin/out_[0-9]*.elf")


def test_tensors_go_through_the_program_and_symbols_are_set_and_read(compiled):
    runner = CSELFRunner(compiled)
    tensor = np.arange(6, dtype=np.float32).reshape(2, 3)
    gains = np.array([[[2, 1], [3, 5]]], np.float32)  # by column, then row
    runner.set_symbol_rect("gain", gains, offset=(1, 1))
    runner.add_input_tensor(0, IN, tensor, sentinel=43)
    runner.add_output_tensor(1, OUT, np.float32)
    runner.connect_and_run()
    wanted = tensor * gains[0, :, :1] + gains[0, :, 1:]
    assert runner.out_tensor_dict["z"].tolist() == wanted.tolist()
    assert runner.get_symbol_rect(((1, 1), (2, 2)), "ended", np.uint16)[..., 0].tolist() == [[1, 1], [0, 0]]
    assert runner.get_symbol(1, 2, "gain", np.float32).tolist() == [3, 5]
    assert list(ELFMemory(*compiled).iter_coordinates()) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_a_tensor_may_enter_at_one_pe_of_a_side(compiled):
    runner = CSELFRunner(compiled)
    runner.set_symbol(1, 2, "gain", np.array([1, 0], np.float32))
    runner.add_input_tensor(0, ("WEST", 1), np.arange(3, dtype=np.float32))
    runner.add_output_tensor(1, "{ z[k=0:2] -> [PE[2, 1] -> index[k]] }", np.float32)
    runner.connect_and_run()
    assert runner.out_tensor_dict["z"].tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="there is no side 'UP'"):
        runner.add_input_tensor(0, ("UP", 1), np.zeros(3, np.float32))


def test_numbers_of_16_bits_before_a_sentinel_have_their_places_with_them(compiled):
    runner = CSELFRunner(compiled)
    runner.set_symbol_rect("gain", np.array([[[1, 0], [1, 0]]], np.float32), offset=(1, 1))
    runner.add_input_tensor(0, IN, np.zeros((2, 3), np.uint16), sentinel=43)
    runner.add_output_tensor(1, OUT, np.uint32)
    runner.connect_and_run()
    assert runner.out_tensor_dict["z"].tolist() == [[0, 0x10000, 0x20000]] * 2


def test_results_that_do_not_come_are_a_message(compiled):
    runner = CSELFRunner(compiled)
    runner.add_input_tensor(0, "{ x[y=0:0][k=0:1] -> [PE[-1, y] -> index[k]] }", np.zeros((1, 2), np.float32))
    runner.add_output_tensor(1, "{ z[k=0:2] -> [PE[2, 0] -> index[k]] }", np.float32)
    with pytest.raises(DeadlockError, match=r"2 of 3 wavelets of color 1 have left PE \(1, 0\)"):
        runner.connect_and_run()


def test_what_does_not_fit_is_refused(compiled):
    runner = CSELFRunner(compiled)
    with pytest.raises(ConfigError, match=r"PE \(0, 0\) of a port map does not lie beside the program's 2 x 2"):
        runner.add_output_tensor(1, "{ z[k=0:0] -> [PE[0, 0] -> index[k]] }", np.float32)
    with pytest.raises(ConfigError, match="the tensor has 2 elements, its port map 6"):
        runner.add_input_tensor(0, IN, np.zeros(2, np.float32))
    with pytest.raises(ConfigError, match="has not run"):
        runner.get_symbol(1, 1, "gain", np.float32)
    runner.set_symbol(1, 1, "gain", np.zeros(3, np.float32))
    with pytest.raises(ConfigError, match="has 4 words, the values 6"):
        runner.connect_and_run()
    with pytest.raises(ConfigError, match="no ELF file"):
        CSELFRunner(glob("elsewhere/bin/*.elf"))


def test_memory_of_all_pes_and_traces_by_the_name_of_their_import(compiled):
    """`ELFLoader` is of SDK 0.4, `csl_utils.read_trace` of 0.6 to 0.8."""
    with pytest.raises(ConfigError, match="has not run in this script"):
        ELFLoader(compiled[0], "core.out")
    code = PE.replace("ended += 1;", 'ended += 1; log.trace_string("end"); log.trace_u16(ended);')
    with open("pe.csl", "w", encoding="utf-8") as file:
        file.write('const log = @import_module("<debug>", .{ .buffer_size = 100 });' + code)
    assert main(["layout.csl", "--fabric-dims=4,4", "--fabric-offsets=1,1", "-o", "out"]) == 0
    runner = CSELFRunner(compiled)
    with pytest.raises(ConfigError, match="has not run"):
        read_trace(runner, 1, 1, "log")
    runner.add_input_tensor(0, IN, np.zeros((2, 3), np.float32), sentinel=43)
    runner.connect_and_run("core.out")
    assert read_trace(runner, 1, 2, "log") == ["end", 1]
    loader = ELFLoader(compiled[0], "core.out")
    assert loader.get_as_array("ended", 1, np.uint16)[..., 0].tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 0]]
    with pytest.raises(ConfigError, match="'gain' has 2 elements, not 3"):
        loader.get_as_array("gain", 3, np.float32)


def test_arrays_enter_and_leave_at_a_side(compiled):
    """As in SDK 0.6 to 0.8: the first index is the PE."""
    runner = CSELFRunner(compiled)
    runner.set_symbol_rect("gain", np.array([[[2, 1], [3, 5]]], np.float32), offset=(1, 1))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    runner.add_input_array("x", 0, "W", array, sentinel=43)
    runner.add_output_array("z", 1, "E", np.zeros((2, 3), np.float32))
    runner.connect_and_run()
    assert runner.out_tensor_dict["z"].tolist() == [[1, 3, 5], [14, 17, 20]]
    with pytest.raises(ConfigError, match="there is no side 'UP'"):
        runner.add_input_array("x", 0, "UP", array)
    with pytest.raises(ConfigError, match="'x' is no array; batches"):
        runner.add_input_array("x", 0, "W", None)


STREAMS = """const memcpy = @import_module("<memcpy/get_params>", .{
  .width = 2, .height = 1, .MEMCPYH2D_1 = @get_color(0), .MEMCPYH2D_2 = @get_color(2), .MEMCPYD2H_1 = @get_color(1) });
layout {
  @set_rectangle(2, 1);
  for (@range(u16, 2)) |x| { @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x) }); }
}
"""
STREAM_PE = """param memcpy_params: comptime_struct;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const out = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = sys.MEMCPYD2H_1, .output_queue = @get_output_queue(2) });
var gain: f32 = 1.0;
task number(x: f32) void { @fmovs(out, x * gain); }
task factor(x: f32) void { gain = x; }
comptime {
  @bind_data_task(number, @get_data_task_id(sys.MEMCPYH2D_1));
  @bind_data_task(factor, @get_data_task_id(sys.MEMCPYH2D_2));
}
"""


def test_streams_of_pes_in_batches(tmp_path, monkeypatch):
    """As in SDK 0.5 and 0.6, with --memcpy: port maps name the PEs, arrays lie by row, column and place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout.csl").write_text(STREAMS)
    (tmp_path / "pe.csl").write_text(STREAM_PE)
    assert main(["layout.csl", "--fabric-dims=9,3", "--fabric-offsets=4,1", "--memcpy", "-o", "out"]) == 0
    runner = CSELFRunner(glob("out/bin/out_[0-9]*.elf"), height=1, width=2, input_colors=[0, 2], output_colors=[1])
    factors = "{factors[i=0:1, j=0:0] -> [PE[i, j] -> index[0]]}}"
    runner.add_input_array("x", 0, "W", None, reusable=True)
    runner.add_input_tensor(2, factors, None, reusable=True)
    runner.add_output_array("z", 1, "W", np.zeros((1, 2, 3), np.float32), reusable=True)
    runner.load()
    runner.start()
    for k in (2, 5):
        x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
        runner.prepare_input_tensor(2, factors, np.array([[k], [k + 1]], np.float32))
        runner.run_batch([2])
        runner.prepare_input_array(0, 0, x)
        runner.run_batch([0, 1])
        assert (runner.out_tensor_dict["z"] == x * np.array([[[k], [k + 1]]])).all()
    with pytest.raises(DeadlockError, match=r"0 of 3 wavelets of color 1 have left PE \(0, 0\)"):
        runner.run_batch([1])
    with pytest.raises(ConfigError, match="no array enters on color 7"):
        runner.prepare_input_array(7, 0, np.zeros((1, 2, 3), np.float32))
    runner.stop()
