"""Core files, and the tools that look at compiled programs."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from harness.cli.main import main as cli
from harness.sdk import compiler, runtime, shell, symbols
from harness.sdk.debug import debug_util
from harness.sdk.runtime import SdkRuntime, SdkTarget, SimfabConfig, get_platform
from wse_core.errors import ConfigError

LAYOUT = """
param n: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 2 });
layout {
  @set_rectangle(2, 2);
  for (@range(u16, 2)) |x| {
    for (@range(u16, 2)) |y| {
      @set_tile_code(x, y, if (y == 0) "top.csl" else "low.csl", .{ .memcpy_params = memcpy.get_params(x), .n = n });
    }
  }
  @export_name("values", [*]f32, true);
  @export_name("go", fn()void);
}
"""
PE = """
param memcpy_params;
param n: u16;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
const place = @import_module("<layout>");
const trace = @import_module("<debug>", .{ .key = "seen", .buffer_size = 20 });
export var values = @zeros([n]f32);
var out: [*]f32 = &values;
fn go() void {
  for (@range(u16, n)) |i| { values[i] = @as(f32, i) + FACTOR * @as(f32, place.get_x_coord()); }
  trace.trace_u16(n + place.get_x_coord());
  sys.unblock_cmd_stream();
}
comptime {
  @export_symbol(out, "values");
  @export_symbol(go);
}
"""


def build(directory, n=5):
    """Compile the program into a directory `out`."""
    directory.mkdir(exist_ok=True)
    (directory / "layout.csl").write_text(LAYOUT)
    (directory / "top.csl").write_text(PE.replace("FACTOR", "10.0"))
    (directory / "low.csl").write_text(PE.replace("FACTOR", "100.0"))
    words = [
        str(directory / "layout.csl"),
        "--arch=wse3",
        "--fabric-dims=9,4",
        "--fabric-offsets=4,1",
        f"--params=n:{n}",
    ]
    assert compiler.main([*words, "-o", str(directory / "out"), "--memcpy", "--channels=1"]) == 0
    return directory / "out"


@pytest.fixture
def out(tmp_path):
    return build(tmp_path)


def looked_at(util):
    """Return all that a program left: a value of each PE, and what it traced."""
    values = util.get_symbol_rect(((4, 1), (2, 2)), "values", np.float32)
    return values[..., 2].tolist(), util.read_trace(5, 2, "seen"), util.get_symbol(4, 1, "values", np.float32).shape


def test_a_core_is_read_as_the_program_that_left_it(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    platform = get_platform(None, SimfabConfig(dump_core=True, core_path="kept"), SdkTarget.WSE3)
    runner = SdkRuntime(out, platform)
    runner.load()
    runner.run()
    runner.dump_core("before")
    runner.launch("go", nonblock=False)
    runner.stop()
    wanted = ([[2.0, 2.0], [12.0, 102.0]], [6], (5,))
    assert looked_at(debug_util(out)) == wanted
    monkeypatch.setattr(runtime, "_LAST", {})  # as in another process
    assert looked_at(debug_util(out, core_path="kept")) == wanted
    assert debug_util(out, core_path="before").get_symbol(5, 2, "values", np.float32)[2] == 0.0
    with pytest.raises(ConfigError, match="has not run in this script.*dump_core"):
        debug_util(out)
    for name in ("out.core", "corefile.cs1"):
        (tmp_path / name).write_bytes((tmp_path / "kept").read_bytes())
        assert looked_at(debug_util(out)) == wanted
        (tmp_path / name).unlink()
    util = debug_util(out, core_path="kept")
    with pytest.raises(ConfigError, match="no symbol 'nothing'"):
        util.get_symbol(4, 1, "nothing", np.float32)
    with pytest.raises(ConfigError, match=r"no PE \(3, 0\)"):
        util.get_symbol(7, 1, "values", np.float32)


def test_a_core_of_another_program_or_none_at_all_is_refused(out, tmp_path):
    runner = SdkRuntime(out)
    runner.load()
    runner.dump_core(tmp_path / "core")
    other = build(tmp_path / "other", n=6)
    with pytest.raises(ConfigError, match="core of another program"):
        debug_util(other, core_path=tmp_path / "core")
    for text in (b"", b"no zip", (tmp_path / "core").read_bytes()[:500]):
        (tmp_path / "bad").write_bytes(text)
        with pytest.raises(ConfigError, match="is no core file"):
            debug_util(out, core_path=tmp_path / "bad")


def test_symbols_have_addresses_banks_and_the_names_of_the_layout(out, capsys):
    assert symbols.main([str(out)]) == 0
    text = capsys.readouterr().out
    assert cli(["csl", "symbols", str(out)]) == 0
    assert capsys.readouterr().out == text
    assert "of 2 PEs, the first is (4, 1):" in text
    assert "of 2 PEs, the first is (4, 2):" in text
    assert cli(["csl", "symbols", str(out), "--json"]) == 0
    programs = json.loads(capsys.readouterr().out)["programs"]
    for program in programs:
        rows = {row["name"]: row for row in program["symbols"]}
        values = rows["values"]
        assert (values["bytes"], values["type"], values["exported"]) == (20, "[5]f32", "")
        assert rows["out"]["exported"] == "values"
        assert values["bank"] == values["address"] // 2 % 8
        assert values["address"] >= program["code"]
        assert program["code"] + program["data"] + program["free"] == 49152
        assert [row["address"] for row in program["symbols"]] == sorted(row["address"] for row in program["symbols"])
    assert symbols.main([str(out / "nothing")]) == 1
    assert capsys.readouterr().err.startswith("cs_readelf: ")


def test_the_shell_compiles_and_draws(out, tmp_path, capsys):
    capsys.readouterr()
    assert shell.main(["visualize", "--artifact_dir", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["AA", "BB"]
    assert [line.split()[0] for line in lines[2:4]] == ["A", "B"]
    words = ["compile", str(tmp_path / "layout.csl"), "--fabric-dims=9,4", "--fabric-offsets=4,1", "--params=n:3"]
    assert shell.main([*words, "-o", str(tmp_path / "second")]) == 0
    assert (tmp_path / "second" / "out.json").is_file()
    assert shell.main(["smoke"]) == 0
    assert shell.main(["visualize", "--artifact_dir", str(tmp_path)]) == 1
    run = subprocess.run(
        [sys.executable, "-m", "harness.sdk.shell", "nothing"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
