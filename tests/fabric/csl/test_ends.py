"""What follows an operation on a DSR stands where the DSR was loaded, if that load was for asynchronous operations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fabric.csl.running import device_of

TEXT = """
const c = @get_color(2);
const iq = @get_input_queue(3);
const oq = @get_output_queue(3);
var a = [4]f32{ 1.0, 2.0, 3.0, 4.0 };
var seen: u16 = 0;
const out = @get_dsr(dsr_dest, 2);
const from = @get_dsr(dsr_src1, 2);
const da = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i] });
const job_id = @get_local_task_id(8);
const next_id = @get_local_task_id(9);
task next() void { seen += 1; }
task job() void {
  @load_to_dsr(out, @get_dsd(fabout_dsd, .{ .extent = 4, .fabric_color = c, .output_queue = oq }), LOADED);
  @load_to_dsr(from, da);
  @fmovs(out, from, .{ .async = true, .activate = next });
}
comptime {
  @bind_local_task(job, job_id);
  @bind_local_task(next, next_id);
  @activate(job_id);
  if (@is_arch("wse3")) { @initialize_queue(oq, .{ .color = c }); }
}
"""
TOP = """
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl");
  @set_tile_code(1, 0, "there.csl");
  @set_color_config(0, 0, @get_color(2), .{ .routes = .{ .rx = .{RAMP}, .tx = .{EAST} } });
  @set_color_config(1, 0, @get_color(2), .{ .routes = .{ .rx = .{WEST}, .tx = .{RAMP} } });
}
"""
THERE = """
const iq = @get_input_queue(3);
var b = @zeros([4]f32);
const db = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> b[i] });
task job() void {
  @fmovs(db, @get_dsd(fabin_dsd, .{ .extent = 4, .fabric_color = @get_color(2), .input_queue = iq }));
}
comptime {
  @bind_local_task(job, @get_local_task_id(8));
  @activate(@get_local_task_id(8));
  @initialize_queue(iq, .{ .color = @get_color(2) });
}
"""


@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize(
    ("loaded", "seen"),
    [(".{}", 1), (".{ .async = true }", 0), (".{ .async = true, .activate = next }", 1)],
    ids=["of the operation", "nothing", "of the register"],
)
def test_what_follows_stands_in_the_register(tmp_path, arch, loaded, seen):
    """A public stencil for WSE-3 whose tiles wait for nobody depends on it: its tasks must not count (Jorineg)."""
    files = {"top.csl": TOP, "pe.csl": TEXT.replace("LOADED", loaded), "there.csl": THERE}
    device = device_of(tmp_path, files, arch=arch)
    device.settle()
    assert device.symbol(0, 0, "seen").tolist() == [seen]
    assert device.symbol(1, 0, "b").view(np.float32).tolist() == [1, 2, 3, 4]
