"""``cs_python --check=memory`` names the faults of memory of a CSL program by file and line."""

from __future__ import annotations

import pytest

from harness.sdk.compiler import main as cslc
from harness.sdk.python import main as cs_python

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
const C: color = @get_color(4);
layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .sends = true });
  @set_tile_code(1, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(1), .sends = false });
  @set_color_config(0, 0, C, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  @set_color_config(1, 0, C, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  @export_name("go", fn()void);
}
"""
PE = """param memcpy_params: comptime_struct;
param sends: bool;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const C: color = @get_color(4);
var y = @zeros([32]f32);
var u: [4]f32;
const out = @get_dsd(fabout_dsd, .{ .extent = 32, .fabric_color = C, .output_queue = @get_output_queue(2) });
const into = @get_dsd(fabin_dsd, .{ .extent = 32, .fabric_color = C, .input_queue = @get_input_queue(2) });
const all = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{32} -> y[i] });
task done() void { AFTER sys.unblock_cmd_stream(); }
fn go() void {
  if (sends) {
    @fmovs(out, all, .{ .async = true, .activate = done });
    SENDER
  } else {
    @fmovs(all, into, .{ .async = true, .activate = done });
    RECEIVER
  }
}
comptime { @bind_local_task(done, @get_local_task_id(10)); @export_symbol(go); }
"""
RUN = """
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime
r = SdkRuntime("out"); r.load(); r.run(); r.launch("go", nonblock=False); r.stop()
"""


def checked(tmp_path, monkeypatch, capsys, sender="", receiver="", after=""):
    monkeypatch.chdir(tmp_path)
    text = PE.replace("SENDER", sender).replace("RECEIVER", receiver).replace("AFTER", after)
    for name, content in (("layout.csl", LAYOUT), ("pe.csl", text), ("run.py", RUN)):
        (tmp_path / name).write_text(content, encoding="utf-8")
    words = ["layout.csl", "--fabric-dims=9,3", "--fabric-offsets=4,1", "--memcpy", "--channels=1", "-o", "out"]
    assert cslc(words) == 0
    capsys.readouterr()
    status = cs_python(["--check=memory", "run.py"])
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ({"sender": "y[31] = 7.0;"}, ("pe.csl:13: race", "reads y[31]", "the main thread wrote", "pe.csl:14")),
        ({"receiver": "y[0] = y[31];"}, ("pe.csl:16: race", "microthread 2 writes y[31]", "read", "pe.csl:17")),
        ({"after": "y[0] = u[2];"}, ("pe.csl:10: unset", "reads u[2], which has no value")),
    ],
)
def test_a_fault_is_named(tmp_path, monkeypatch, capsys, parts, texts):
    status, said = checked(tmp_path, monkeypatch, capsys, **parts)
    assert status == 1
    for text in texts:
        assert text in said, said


def test_what_is_in_order_has_no_findings(tmp_path, monkeypatch, capsys):
    status, said = checked(tmp_path, monkeypatch, capsys, after="u[2] = y[31]; y[0] = u[2];")
    assert (status, said.strip()) == (0, "memory: no findings")


def test_another_check_is_refused(capsys):
    assert cs_python(["--check=time", "run.py"]) == 2
    assert "--check=memory" in capsys.readouterr().err
