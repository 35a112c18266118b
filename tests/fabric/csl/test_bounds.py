"""What surely goes beyond its array is refused, by descriptors and by copies of the host; so is a program beyond the
fabric."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fabric.csl.diagnostics import CslError
from harness.sdk.compiler import main
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.fabric.csl.running import device_of, run_task
from wse_core.errors import ConfigError

ARRAYS = ("var a: [8]u32;", "var h: [8]u16;", "var n: u16 = 9;", "var p: [*]u32 = &a;")


def dsd(fields, kind="mem1d_dsd"):
    """Return an operation on a descriptor with these fields."""
    return f"@mov32(@get_dsd({kind}, .{{ {fields} }}), 1);"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (dsd(".tensor_access = |i|{9} -> a[i]"), "element 8 of 'a', which has 8"),
        (dsd(".tensor_access = |i|{4} -> a[2 * i + 2]"), "element 8 of 'a'"),
        (dsd(".tensor_access = |i|{2} -> a[0 - i]"), "element -1 of 'a'"),
        (dsd(".tensor_access = |i, j|{2, 5} -> a[4 * i + j]", "mem4d_dsd"), "element 8 of 'a'"),
        (dsd(".base_address = &a, .extent = 9"), "element 8 of 'a'"),
        (dsd(".base_address = &a, .extent = 2, .offset = 7"), "element 8 of 'a'"),
        (dsd(".tensor_access = |i|{5} -> h[i]"), "element 4 of 'h', which has 4"),
        ("const d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] }); "
         "@mov32(@increment_dsd_offset(d, 1, u32), 1);", "element 8 of 'a'"),
        (dsd(".tensor_access = |i|{70000} -> a[0]"), "70000 does not fit into the 16 bits"),
        (dsd(".tensor_access = |i, j|{2, 70000} -> a[0]", "mem4d_dsd"), "70000 does not fit into the 16 bits"),
        (dsd(".tensor_access = |i|{2} -> a[40000 * i]"), "stride of 40000 elements"),
    ],
)  # fmt: skip
def test_a_walk_beyond_its_array(tmp_path, text, message):
    with pytest.raises(CslError, match=re.escape(message)):
        run_task(tmp_path, text, *ARRAYS, results={})


@pytest.mark.parametrize(
    ("text", "in_a", "in_h"),
    [
        (dsd(".tensor_access = |i|{8} -> a[i]"), [1] * 8, [0] * 8),
        (dsd(".tensor_access = |i|{8} -> a[7 - i]"), [1] * 8, [0] * 8),
        (dsd(".tensor_access = |i|{0} -> a[20]"), [0] * 8, [0] * 8),
        (dsd(".tensor_access = |i|{4} -> h[i]"), [0] * 8, [1, 0] * 4),
        (
            "const d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{9} -> h[i] }); "
            "@mov32(@set_dsd_length(@set_dsd_base_addr(d, &a), 8), 1);",
            [1] * 8,
            [0] * 8,
        ),
    ],
)
def test_a_walk_inside(tmp_path, text, in_a, in_h):
    zeros = "a = @zeros([8]u32); h = @zeros([8]u16);"
    found = run_task(tmp_path, f"{zeros} {text}", *ARRAYS, results={"a": "<u4", "h": "<u2"})
    assert (found["a"].tolist(), found["h"].tolist()) == (in_a, in_h)


BEHIND = "const src = @get_dsd(mem1d_dsd, .{ .base_address = &h, .extent = LENGTH }); " + (
    "const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i + 4] }); @mov32(to, src);"
)


@pytest.mark.parametrize("length", ["4", "small"])
def test_an_operation_walks_as_far_as_its_first_source_says(tmp_path, length):
    """Its other operands may have a longer extent than there is array."""
    small = "var small: u16 = 4;"
    found = run_task(tmp_path, BEHIND.replace("LENGTH", length), *ARRAYS, small, results={"a": "u4"})
    assert found["a"].tolist() == [0] * 8
    with pytest.raises(CslError, match="element 8 of 'a', which has 8"):
        long = BEHIND.replace("LENGTH", "5").replace("&h", "&b")
        run_task(tmp_path, long, *ARRAYS, "var b: [5]u32;", results={})


def test_a_known_array_is_one(tmp_path):
    text = "fn f(v: [2]u32) u32 { return v[1]; }"
    assert run_task(tmp_path, "a[1] = f([2]u32{ 4, 5 });", text, *ARRAYS, results={"a": "u4"})["a"][1] == 5


LAYOUT = """const memcpy = @import_module("<memcpy/get_params>", .{ .width = WIDTH, .height = 1 });
layout {
  @set_rectangle(WIDTH, 1);
  for (@range(i16, WIDTH)) |x| { @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x) }); }
  @export_name("x", [*]f32, true);
  @export_name("y", [*]f32, true);
  @export_name("odd", [*]u8, true);
  @export_name("nowhere", [*]f32, true);
  @export_name("go", fn()void);
}
"""
PE = """param memcpy_params: comptime_struct;
const sys = @import_module("<memcpy/memcpy>", memcpy_params);
var x: [4]f32;
var y: [1]f32;
var bytes: [8]u8;
var x_ptr: [*]f32 = &x;
var y_ptr: [*]f32 = &y;
var odd_ptr: [*]u8 = &bytes;
var nowhere_ptr: [*]f32 = &x;
fn go() void {
  x_ptr = @ptrcast([*]f32, &x[2]);
  odd_ptr = @ptrcast([*]u8, &bytes[1]);
  nowhere_ptr = @bitcast([*]f32, @as(u16, 0xb000));
  sys.unblock_cmd_stream();
}
comptime {
  @export_symbol(x_ptr, "x"); @export_symbol(y_ptr, "y"); @export_symbol(odd_ptr, "odd");
  @export_symbol(nowhere_ptr, "nowhere"); @export_symbol(go);
}
"""
HOW = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT}


@pytest.fixture
def runner(tmp_path):
    for name, text in (("layout.csl", LAYOUT.replace("WIDTH", "1")), ("pe.csl", PE)):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=8,3", "--fabric-offsets=4,1", "--memcpy", "--channels=1", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == 0
    runner = SdkRuntime(tmp_path / "out")
    runner.load()
    runner.run()
    return runner


def test_a_copy_beyond_the_array(runner, capsys):
    x, y = runner.get_id("x"), runner.get_id("y")
    runner.memcpy_h2d(y, np.array([7], np.float32), 0, 0, 1, 1, 1, **HOW)
    runner.memcpy_h2d(x, np.arange(4, dtype=np.float32), 0, 0, 1, 1, 4, **HOW)
    with pytest.raises(ConfigError, match="5 elements of 32 bits goes beyond the array of the symbol 'x': 'x'.* has 4"):
        runner.memcpy_h2d(x, np.arange(5, dtype=np.float32), 0, 0, 1, 1, 5, **HOW)
    for _ in range(2):  # reading is said, once
        two = np.zeros(2, np.float32)
        runner.memcpy_d2h(two, y, 0, 0, 1, 1, 2, **HOW)
        assert two[0] == 7
    said = capsys.readouterr().err
    assert said.count("warning: a copy of 2 elements of 32 bits goes beyond the array of the symbol 'y'") == 1
    with pytest.raises(ConfigError, match="9 elements of 16 bits goes beyond"):
        half = {**HOW, "data_type": MemcpyDataType.MEMCPY_16BIT}
        runner.memcpy_h2d(x, np.zeros(9, np.uint32), 0, 0, 1, 1, 9, **half)
    back = np.zeros(1, np.float32)
    runner.memcpy_d2h(back, y, 0, 0, 1, 1, 1, **HOW)
    assert back[0] == 7


def test_a_copy_through_a_pointer_that_moved(runner):
    """What counts is where the pointer leads at that moment."""
    x = runner.get_id("x")
    runner.launch("go")
    runner.memcpy_h2d(x, np.array([5, 6], np.float32), 0, 0, 1, 1, 2, **HOW)
    with pytest.raises(ConfigError, match="'x' of .* has 2 of 32 bits"):
        runner.memcpy_h2d(x, np.zeros(3, np.float32), 0, 0, 1, 1, 3, **HOW)
    with pytest.raises(ConfigError, match="where no array lies"):
        runner.memcpy_h2d(runner.get_id("nowhere"), np.zeros(1, np.float32), 0, 0, 1, 1, 1, **HOW)
    with pytest.raises(ConfigError, match="the upper half of a word"):
        runner.memcpy_h2d(runner.get_id("odd"), np.zeros(1, np.float32), 0, 0, 1, 1, 1, **HOW)


def test_names_and_ends(runner):
    with pytest.raises(ConfigError, match="exports no symbol 'z'.*symbols: x, y"):
        runner.get_id("z")
    x = runner.get_id("x")
    runner.stop()
    for command in (
        lambda: runner.memcpy_h2d(x, np.zeros(1, np.float32), 0, 0, 1, 1, 1, **HOW),
        lambda: runner.memcpy_d2h(np.zeros(1, np.float32), x, 0, 0, 1, 1, 1, **HOW),
        lambda: runner.launch("go"),
        lambda: runner.call("go"),
    ):
        with pytest.raises(ConfigError, match="was stopped"):
            command()


@pytest.mark.parametrize(
    ("width", "options", "message"),
    [
        (1, "--fabric-dims=8,3 --fabric-offsets=4,1 --memcpy", None),
        (2, "--fabric-dims=9,3 --fabric-offsets=4,1 --memcpy", None),
        (2, "--fabric-dims=8,3 --fabric-offsets=4,1 --memcpy", "--fabric-dims=9,3"),
        (1, "--fabric-dims=8,2 --fabric-offsets=4,1 --memcpy", "--fabric-dims=8,3"),
        (2, "--fabric-dims=3,3 --fabric-offsets=4,1", "--fabric-dims=6,3"),
        (2, "--fabric-dims=6,3 --fabric-offsets=4,1", None),
        (1, "--fabric-dims=8,3 --fabric-offsets=3,1 --memcpy", "--fabric-offsets=4,1"),
        (1, "--memcpy", None),
    ],
)
def test_the_fabric_has_room_for_program_and_frame(tmp_path, capsys, width, options, message):
    for name, text in (("layout.csl", LAYOUT.replace("WIDTH", str(width))), ("pe.csl", PE)):
        (tmp_path / name).write_text(text)
    status = main([str(tmp_path / "layout.csl"), *options.split(), "-o", str(tmp_path / "out")])
    assert (status, message is not None and message in capsys.readouterr().err) == (bool(message), bool(message))


def test_code_lies_as_densely_as_the_vendors_where_it_would_not_fit(tmp_path):
    """What the program does is the same; one that does not fit even so is refused with its sizes."""
    body = "".join(f"y[{k}] = y[{k}] * 3 + {11 * k}; " for k in range(40)) + "big[0] = 7;"
    made = {}
    for count in (20000, 23900):
        text = f"var y = @constants([40]i16, 5); var big: [{count}]u16; task job() void {{ {body} }}"
        start = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }"
        device = device_of(tmp_path, {"top.csl": text + start})
        device.settle()
        image = device.bundle.programs[0]
        made[count] = image.code_words, device.symbol(0, 0, "y").tolist(), int(device.symbol(0, 0, "big")[0])
        assert made[count][1:] == ([15 + 11 * k for k in range(40)], 7)
    assert made[20000][0] >= 2 * len(image.code) > made[23900][0] >= len(image.code)
    with pytest.raises(CslError, match="the program needs 49,"):
        device_of(tmp_path, {"top.csl": text.replace("23900", "24200") + start})
