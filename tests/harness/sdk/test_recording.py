"""Runs of host scripts as run files: pictures, exports and chains of waits name lines and tasks of the CSL."""

from __future__ import annotations

import re

import pytest

from harness.cli.main import main as cli
from harness.sdk import compiler
from traces.trace import Trace

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
const there = @get_color(3);
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .sends = true });
  @set_tile_code(1, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(1), .sends = false });
  @set_color_config(0, 0, there, .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
  @set_color_config(1, 0, there, .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });
  @export_name("go", fn(u16)void);
  @export_name("left", [*]f32, true);
}
"""
PE = """param memcpy_params: comptime_struct;
param sends: bool;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const there = @get_color(3);
const done_id = @get_local_task_id(9);
var left = @constants([4]f32, 2.5);
var left_ptr: [*]f32 = &left;
const mine = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> left[i] });
const out = @get_dsd(fabout_dsd, .{ .extent = 4, .fabric_color = there, .output_queue = @get_output_queue(2) });
const in = @get_dsd(fabin_dsd, .{ .extent = 4, .fabric_color = there, .input_queue = @get_input_queue(2) });
fn go(count: u16) void {
  if (!sends) {
    @fadds(mine, mine, in);
  } else if (count == 4) {
    @mov32(out, mine);
  }
  @activate(done_id);
}
task everything_is_there() void {
  sys_mod.unblock_cmd_stream();
}
comptime {
  @bind_local_task(everything_is_there, done_id);
  @export_symbol(go);
  @export_symbol(left_ptr, "left");
}
"""
ADD, MOVE = 13, 15  # lines of pe.csl
SCRIPT = """import sys
import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime, MemcpyDataType, MemcpyOrder
with SdkRuntime("out") as runner:
    runner.launch("go", np.uint16(int(sys.argv[1])), nonblock=False)
    found = np.zeros(4, np.float32)
    runner.memcpy_d2h(found, runner.get_id("left"), 1, 0, 1, 1, 4, streaming=False,
                      data_type=MemcpyDataType.MEMCPY_32BIT, order=MemcpyOrder.ROW_MAJOR, nonblock=False)
    assert (found == 5).all()
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Go where a program of two PEs is compiled."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"layout.csl": LAYOUT, "pe.csl": PE, "run.py": SCRIPT}.items():
        (tmp_path / name).write_text(text)
    assert compiler.main(["layout.csl", "-o", "out", "--memcpy"]) == 0
    return tmp_path


def test_a_script_is_recorded_and_looked_at(program, capsys):
    assert cli(["csl", "run", "--out", "run.h5", "--trace", "full", "run.py", "4"]) == 0
    capsys.readouterr()
    assert cli(["view", "run.h5", "--tasks", "1,0"]) == 0
    assert "everything_is_there" in capsys.readouterr().out
    with Trace.open("run.h5") as trace:  # what a host calls has its own name, not that of calls in general
        tasks = trace.names["tasks"].values()
        assert "host calls" not in tasks
        assert any(re.fullmatch("host calls [a-z_]+.*", name) for name in tasks)
    assert cli(["export", "run.h5", "--format", "perfetto", "--out", "run.pftrace"]) == 0
    exported = (program / "run.pftrace").read_bytes()
    for name in ("everything_is_there", f"pe.csl:{ADD}", f"pe.csl:{MOVE}"):
        assert name.encode() in exported
    assert cli(["view", "run.h5", "--figure", "all", "--out", "pictures"]) == 0
    assert (program / "pictures").is_dir()


def test_a_chain_of_waits_names_the_source(program, capsys):
    """Without a sender the other PE waits: the message says where, and the file has what happened until then."""
    assert cli(["csl", "run", "--out", "run.h5", "--trace", "events", "run.py", "3"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("run.py:5: error:")
    assert f"PE (1, 0): main thread, fadds (pe.csl:{ADD}), 0 of 4 elements done, waits for a wavelet of color 3" in said
    assert cli(["view", "run.h5"]) == 0
    assert "deadlock" in capsys.readouterr().out


def test_what_cannot_be_recorded_is_refused(program, capsys):
    assert cli(["csl", "run", "--trace", "full", "run.py", "4"]) == 2
    assert "--out FILE.h5" in capsys.readouterr().err
    assert cli(["csl", "run", "nothing.py"]) == 2
    assert "no such file" in capsys.readouterr().err
    (program / "idle.py").write_text("print('nothing to record')\n")
    assert cli(["csl", "run", "--out", "idle.h5", "idle.py"]) == 1
    assert "no fabric was built" in capsys.readouterr().err
    assert not (program / "idle.h5").exists()
