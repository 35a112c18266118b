"""`cslc` and `cs_python` on programs of our own: compile, run a host script, read its verdict."""

from __future__ import annotations

import importlib
import json
import re
import sys

import numpy as np
import pytest

from fabric.csl.artefact import read_bundle
from harness.cli.main import main as cli
from harness.sdk import compiler, python
from harness.sdk.modules import provided
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from wse_core.errors import ConfigError, DeadlockError

LAYOUT = """
param width: u16;
param n: u16;
const memcpy = @import_module("<memcpy/get_params>", .{ .width = width, .height = 2 });
layout {
  @set_rectangle(width, 2);
  for (@range(u16, width)) |x| {
    for (@range(u16, 2)) |y| {
      @set_tile_code(x, y, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .n = n });
    }
  }
  @export_name("a", [*]f32, true);
  @export_name("half", [*]u16, true);
  @export_name("count", u16, true);
  @export_name("scale", fn(f32, i16)void);
  @export_name("silent", fn()void);
}
"""
PE = """
param memcpy_params: comptime_struct;
param n: u16;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const layout_mod = @import_module("<layout>");
var a: [n]f32;
var other: [n]f32;
var a_ptr: [*]f32 = &a;
var half: [n]u16;
var half_ptr: [*]u16 = &half;
export var count: u16 = 7;
fn scale(by: f32, plus: i16) void {
  for (@range(u16, n)) |i| {
    other[i] = a[i] * by + @as(f32, plus);
    half[i] = half[i] + layout_mod.get_x_coord() + 10 * layout_mod.get_y_coord();
  }
  a_ptr = &other;
  count += 1;
  sys_mod.unblock_cmd_stream();
}
fn silent() void { count += 1; }
comptime {
  @export_symbol(a_ptr, "a");
  @export_symbol(half_ptr, "half");
  @export_symbol(count);
  @export_symbol(scale);
  @export_symbol(silent);
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return the directory of a compiled program of 3 x 2 PEs."""
    directory = tmp_path_factory.mktemp("program")
    (directory / "layout.csl").write_text(LAYOUT)
    (directory / "pe.csl").write_text(PE)
    out = directory / "out"
    words = ["--arch=wse2", str(directory / "layout.csl"), "--fabric-dims=10,4", "--fabric-offsets", "4,1"]
    assert compiler.main([*words, "--params=width:3", "--params", "n:5", "-o", str(out), "--memcpy"]) == 0
    return out


def started(directory):
    """Return a runtime with the program loaded."""
    runner = SdkRuntime(directory)
    runner.load()
    runner.run()
    return runner


@pytest.mark.parametrize("order", MemcpyOrder)
def test_copies_and_launches(compiled, order):
    runner = started(compiled)
    values = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    letter = "C" if order is MemcpyOrder.ROW_MAJOR else "F"
    options = {"streaming": False, "order": order, "nonblock": False, "data_type": MemcpyDataType.MEMCPY_32BIT}
    runner.memcpy_h2d(runner.get_id("a"), values.ravel(letter), 0, 0, 3, 2, 5, **options)
    small = options | {"data_type": MemcpyDataType.MEMCPY_16BIT}
    runner.memcpy_h2d(runner.get_id("half"), np.full(30, 100, np.uint32), 0, 0, 3, 2, 5, **small)
    runner.launch("scale", np.float32(2.5), np.int16(-3), nonblock=False)
    result = np.zeros(30, np.float32)
    runner.memcpy_d2h(result, runner.get_id("a"), 0, 0, 3, 2, 5, **options)
    assert (result.reshape((2, 3, 5), order=letter) == values * np.float32(2.5) - 3).all()
    halves = np.zeros(2 * 1 * 5, np.uint32)
    runner.memcpy_d2h(halves, runner.get_id("half"), 1, 0, 1, 2, 5, **small)
    wanted = np.array([[101], [111]]) * np.ones((2, 5), int)
    assert (halves.reshape((2, 1, 5), order=letter)[:, 0] == wanted).all()
    count = np.zeros(6, np.uint32)
    runner.memcpy_d2h(count, runner.get_id("count"), 0, 0, 3, 2, 1, **small)
    assert (count == 8).all()
    runner.stop()
    assert runner.read_symbol(2, 1, "count", np.uint16).tolist() == [8]


def test_rows_and_columns_are_broadcast(compiled):
    runner = started(compiled)
    a = runner.get_id("a")
    result = np.zeros(30, np.float32)
    options = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT}
    rows = np.arange(10, dtype=np.float32)
    runner.memcpy_h2d_rowbcast(a, rows, 0, 0, 3, 2, 5, **options)
    runner.memcpy_d2h(result, a, 0, 0, 3, 2, 5, **options)
    assert (result.reshape(2, 3, 5) == rows.reshape(2, 1, 5)).all()
    columns = np.arange(15, dtype=np.float32)
    runner.memcpy_h2d_colbcast(a, columns, 0, 0, 3, 2, 5, **options)
    runner.memcpy_d2h(result, a, 0, 0, 3, 2, 5, **options)
    assert (result.reshape(2, 3, 5) == columns.reshape(1, 3, 5)).all()


def test_mistakes_of_scripts_are_told(compiled, tmp_path):
    runner = started(compiled)
    with pytest.raises(ConfigError, match="exports no symbol 'nothing'"):
        runner.get_id("nothing")
    with pytest.raises(ConfigError, match="takes 2 arguments"):
        runner.launch("scale", np.float32(1))
    with pytest.raises(ConfigError, match="i16 is needed"):
        runner.launch("scale", np.float32(1), np.int32(1))
    with pytest.raises(DeadlockError, match="unblock_cmd_stream"):
        runner.launch("silent")
    with pytest.raises(ConfigError, match="no compiled program"):
        SdkRuntime(tmp_path)


def test_what_is_written_is_what_is_read(compiled):
    bundle = read_bundle(compiled)
    assert (bundle.width, bundle.height, len(bundle.programs)) == (3, 2, 1)
    assert json.loads((compiled / "out.json").read_text())["params"] == {"width": "3", "n": "5"}
    spec = bundle.spec()
    assert spec.programs[0].symbols["a"].dtype == "f32"


def test_a_script_runs_with_the_modules_that_it_expects(compiled, tmp_path, capsys):
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\n"
        "from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime\n"
        "from cerebras.sdk.sdk_utils import memcpy_view\n"
        "runner = SdkRuntime(sys.argv[1], cmaddr=None)\n"
        "print('ids', runner.get_id('a'), __name__)\n"
        "sys.exit(3)\n"
    )
    assert python.main([str(script), str(compiled)]) == 3
    assert "ids 0 __main__" in capsys.readouterr().out
    with pytest.raises(ImportError):
        importlib.import_module("cerebras.sdk.sdk_utils")
    with provided():
        importlib.import_module("cerebras.sdk.sdk_utils")
        assert importlib.import_module("cerebras.sdk.runtime.runtime_utils").memcpy_view is not None
    assert not any(name.startswith("cerebras") for name in sys.modules)


def test_what_the_vendors_modules_have_beyond_these_is_refused_by_its_name(tmp_path, capsys):
    script = tmp_path / "run.py"
    script.write_text(
        "from cerebras.sdk.runtime.sdkruntimepybind import SimfabConfig, get_platform\n"
        "print(get_platform(None, SimfabConfig(num_threads=4)).is_simulation())\n"
        "from cerebras.sdk.runtime.sdkruntimepybind import get_system\n"
    )
    assert python.main([str(script)]) == 1
    out = capsys.readouterr()
    assert out.out == "True\n"
    assert "run.py:3: error:" in out.err
    assert "there is no machine but the modelled one; this script needs get_system" in out.err
    script.write_text("from cerebras.sdk.sdk_utils import nothing\n")
    with pytest.raises(ImportError, match="nothing"):
        python.main([str(script)])


def test_a_compilation_that_fails_writes_nothing(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE.replace("count += 1;", "count += true;", 1))
    words = [str(tmp_path / "layout.csl"), "--params=width:3,n:5", "-o", str(tmp_path / "out")]
    assert compiler.main(words) == 1
    assert "pe.csl:18:" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout.csl", "pe.csl"]


def test_too_much_memory_is_a_message(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE)
    words = [str(tmp_path / "layout.csl"), "--params=width:3,n:9000", "-o", str(tmp_path / "out")]
    assert compiler.main(words) == 1
    assert "pe.csl:6:1: error: the program needs 90,192 bytes, a PE has 49,152" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_options_of_other_versions_are_said_to_mean_nothing(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text("layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }")
    words = ["layout.csl", "--max-parallelism=8", "--fancy", "-o", str(tmp_path / "out")]
    words[0] = str(tmp_path / words[0])
    assert compiler.main(words) == 0
    said = capsys.readouterr().err
    assert "--max-parallelism=8 means nothing here" in said
    assert "--fancy means nothing here" in said
    assert compiler.main([*words, "other.csl"]) == 2
    assert "'other.csl' is no option" in capsys.readouterr().err


def test_other_machines_are_refused(tmp_path, capsys):
    assert compiler.main(["--arch=wse1", "layout.csl"]) == 1
    assert "wse1" in capsys.readouterr().err


def test_a_listing_names_the_source_lines(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE)
    assert cli(["csl", "listing", str(tmp_path / "layout.csl"), "--params", "width:3,n:5"]) == 0
    text = capsys.readouterr().out
    place = text.index("other[i] = a[i] * by + @as(f32, plus);")
    assert "fmuls" in text[place:]
    assert "pe.csl:14" in text
    after = [line for line in text[place:].splitlines()[1:] if re.match(r" +\d+: ", line)]
    product = next(line for line in after if " fmuls " in line)
    assert re.search(r" r\d+, r\d+, r\d+ .*; 2 cycles$", product)
    assert all(re.search(r"; (\d+( or \d+)? cycles?|\d+ elements? a cycle)$", line) for line in after)
    assert cli(["csl", "listing", str(tmp_path / "layout.csl"), "--params", "width:3,n:5", "--optimise=0"]) == 0
    assert len(capsys.readouterr().out) > len(text)


def test_wse_csl_run_is_cs_python(tmp_path, capsys):
    (tmp_path / "run.py").write_text("import sys, cerebras.sdk.sdk_utils\nprint(sys.argv[1:])\n")
    assert cli(["csl", "run", str(tmp_path / "run.py"), "--name", "out"]) == 0
    assert "['--name', 'out']" in capsys.readouterr().out
    (tmp_path / "run.py").write_text("assert 1 + 1 == 3, 'the sum is wrong'\n")
    assert cli(["csl", "run", str(tmp_path / "run.py")]) == 1
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == "AssertionError: the sum is wrong"
    assert "defect of wse-sim" not in said


def test_a_mistake_of_a_script_has_its_line(compiled, tmp_path, capsys, monkeypatch):
    script, helper = tmp_path / "run.py", tmp_path / "helper.py"
    helper.write_text("def start(runner):\n    runner.launch('nothing')\n")
    script.write_text(
        "import sys\n"
        "from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime\n"
        "from helper import start\n"
        "runner = SdkRuntime(sys.argv[1])\n"
        "if len(sys.argv) > 2:\n"
        "    start(runner)\n"
        "runner.launch('silent')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert python.main([str(script), str(compiled)]) == 1
    assert capsys.readouterr().err.startswith(
        "run.py:7: error:\n    runner.launch('silent')\nthe program is not loaded"
    )
    assert python.main([str(script), str(compiled), "helper"]) == 1
    assert capsys.readouterr().err.startswith("helper.py:2: error:\n    runner.launch('nothing')\n")
    sys.modules.pop("helper", None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cerebras.elf.cself_utils", "of SDK 0.x, is not supported; SdkRuntime"),
        ("cerebras.sdk.other", "there are cerebras.appliance"),
    ],
)
def test_a_module_of_the_vendor_that_is_not_here_is_said(tmp_path, capsys, name, said):
    script = tmp_path / "run.py"
    script.write_text(f"import numpy\nfrom {name} import Runner\n")
    assert python.main([str(script)]) == 1
    out = capsys.readouterr().err
    assert "run.py:2: error:" in out
    assert said in out
    assert "Traceback" not in out
    script.write_text(f"try:\n  import {name}\nexcept ImportError:\n  print('another way')\n")
    assert python.main([str(script)]) == 0
    assert capsys.readouterr().out == "another way\n"


def test_a_copy_with_strides_reaches_every_other_pe(compiled):
    runner = started(compiled)
    place, how = runner.get_id("a"), {"order": MemcpyOrder.ROW_MAJOR, "streaming": False, "nonblock": False}
    runner.memcpy_h2d_stride(place, np.arange(1, 21, dtype=np.float32), 0, 0, 3, 2, 5, 2, 1, **how)
    found = np.zeros(30, np.float32)
    runner.memcpy_d2h(found, place, 0, 0, 3, 2, 5, **how)
    wanted = np.zeros((2, 3, 5), np.float32)
    wanted[:, ::2] = np.arange(1, 21).reshape(2, 2, 5)
    assert found.reshape(2, 3, 5).tolist() == wanted.tolist()
    with pytest.raises(ConfigError, match="lead nowhere"):
        runner.memcpy_h2d_stride(place, np.zeros(30, np.float32), 0, 0, 3, 2, 5, 0, 1, **how)


def test_a_result_needs_an_array_that_can_be_written(compiled):
    runner = started(compiled)
    goal = np.zeros(30, np.float32)
    goal.flags.writeable = False
    how = {"order": MemcpyOrder.ROW_MAJOR, "streaming": False, "nonblock": False}
    with pytest.raises(ConfigError, match="cannot be written"):
        runner.memcpy_d2h(goal, runner.get_id("a"), 0, 0, 3, 2, 5, **how)


OPTIONS = """
const shared = @import_module("<shared>");
param n: u16;
param marked: u16;
const half = @fp16();
var some: [n * shared.factor]half = @constants([n * shared.factor]half, 1.5);
var sink: u16 = marked;
fn go() void { inline for (@range(u16, 4)) |k| { sink += k; } some[0] = 2.0; }
comptime { @export_symbol(go); }
"""
OPTIONS_LAYOUT = """
param n: u16;
param marked: u16;
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .n = n, .marked = marked });
  @export_name("go", fn()void);
}
"""


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 0, ""),
        (["--arch", "wse2"], 0, ""),
        (["--arch=wse1"], 1, "programs for wse1 are not supported"),
        (["--fabric-dims=8", "--verbose"], 1, "are no two numbers"),
        (["--fabric-offsets", "4,1", "--memcpy", "--channels=1"], 0, ""),
        (["--width-west-buf=0", "--width-east-buf", "0"], 0, ""),
        (["--params=m:3"], 1, "'m'"),
        (["--params=n:x"], 1, "'n:x' is no param"),
        (["--colors=marked:7"], 0, ""),
        (["--verbose"], 0, "words of code"),
        (["--fp16-format=cb16"], 0, ""),
        (["--fp16-format", "bf16"], 1, "bf16 is known at compile time only"),
        (["--max-inlined-iterations=2"], 1, "pe.csl:8:"),
        (["--optimise=1"], 0, ""),
        (["--optimise=0"], 0, ""),
        (["--link-section-start-address-bytes=0x100"], 0, ""),
        (["--warnings-as-errors"], 0, ""),
    ],
)
def test_every_option_of_cslc(tmp_path, capsys, monkeypatch, words, status, said):
    """Each with its own effect; where a module in angle brackets is, comes from --import-path or the environment."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "shared.csl").write_text("const factor: u16 = 3;\n")
    (tmp_path / "layout.csl").write_text(OPTIONS_LAYOUT)
    (tmp_path / "pe.csl").write_text(OPTIONS)
    layout, out, place = (str(tmp_path / name) for name in ("layout.csl", "out", "shared"))
    given = ["--params=n:2,marked:5", "-o", out, *words]
    assert compiler.main([layout, *given]) == 1
    if status == 0:
        assert "pe.csl:2:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert compiler.main([*given, "--import-path", place, layout]) == status
    found = capsys.readouterr()
    assert said in found.err + found.out
    assert (tmp_path / "out" / "out.json").exists() == (status == 0)
    if status == 0:
        bundle = read_bundle(tmp_path / "out")
        some = bundle.programs[0].symbols["some"]
        assert (some.count, bundle.programs[0].half) == (6, "cb16" if "--fp16-format=cb16" in words else "f16")
        assert len(bundle.programs[0].code) == (34 if "--optimise=0" in words else 24)
        facts = json.loads((tmp_path / "out" / "out.json").read_text())
        assert facts["colors"] == ({"marked": "7"} if "--colors=marked:7" in words else {})
        monkeypatch.setenv("CSL_IMPORT_PATH", f"/nowhere:{place}")
        assert compiler.main([layout, *given]) == 0


def test_warnings_as_errors_write_nothing(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text(
        "var x = 0;\nfn f() void { x += 1; }\ncomptime { @export_symbol(f); }\n"
        'layout { @set_rectangle(1, 1); @set_tile_code(0, 0); @export_name("f", fn()void); }\n'
    )
    words = [str(tmp_path / "layout.csl"), "-o", str(tmp_path / "out")]
    assert compiler.main([*words, "--warnings-as-errors"]) == 1
    assert "layout.csl:1:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert compiler.main(words) == 0
    assert "warning" in capsys.readouterr().err
