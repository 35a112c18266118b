"""Forms of older programs: void prongs, names in function types, exports, @bind_task, <memcpy_multi>, <dsd_ops>."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.diagnostics import CslError
from harness.sdk.compiler import main
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.fabric.csl.running import run_task
from wse_core.errors import ConfigError, DeadlockError

LAYOUT = """const memcpy = @import_module("<memcpy_multi/get_params>", .{ .width = 1, .height = 1 });
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0) });
  @export_name("m", *[2, 2]f32, true);
  @export_name("s", [*]Pair, true);
  @export_name("go", fn(n: u16)void);
}
const Pair = extern struct { a: u16, b: u16 };
"""
PE = """param memcpy_params: comptime_struct;
const sys = @import_module("<memcpy_multi/memcpy>", memcpy_params);
const top = @import_module("layout.csl");
var m = [2, 2]f32{ 1.0, 2.0, 3.0, 4.0 };
var s: [2]u32 = [2]u32{ 0x20001, 0x40003 };
var mp: *[2, 2]f32 = &m;
var sp = @ptrcast([*]top.Pair, &s);
fn go(n: u16) void {
  switch (n) { 1 => twice(), else => void }
  sys.unblock_cmd_stream();
}
fn twice() void { for (@range(i16, 2)) |i| { m[i, 1] *= 2.0; } }
comptime { @export_symbol(mp, "m"); @export_symbol(sp, "s"); @export_symbol(go); }
"""
HOW = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "data_type": MemcpyDataType.MEMCPY_32BIT}


def test_exports_of_matrices_and_structs(tmp_path):
    for name, text in (("layout.csl", LAYOUT), ("pe.csl", PE)):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=8,3", "--fabric-offsets=4,1", "--memcpy", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == 0
    with SdkRuntime(tmp_path / "out") as runner:
        runner.launch("go", np.uint16(2))
        runner.launch("go", np.uint16(1))
        m, s = np.zeros(4, np.float32), np.zeros(2, np.uint32)
        runner.memcpy_d2h(m, runner.get_id("m"), 0, 0, 1, 1, 4, **HOW)
        runner.memcpy_d2h(s, runner.get_id("s"), 0, 0, 1, 1, 2, **HOW)
    assert m.tolist() == [1, 4, 3, 8]
    assert s.tolist() == [0x20001, 0x40003]


OLD = """param memcpy_params: comptime_struct;
param first = memcpy_params.MEMCPYH2D_1; // none was given
const sys = @import_module("<memcpy_multi/memcpy>", @concat_structs(memcpy_params, .{
  .LAUNCH = @get_color(9), .data_type = KIND,
}));
fn go() void { sys.unblock_cmd_stream(); sys.unblock_cmd_stream(); }
comptime { @export_symbol(go); }
"""


@pytest.mark.parametrize(("kind", "status"), [("f32", 0), ("u32", 0), ("f16", 1)])
def test_launch_is_given_to_the_copies_alone_and_streams_are_unblocked_twice(tmp_path, capsys, kind, status):
    layout = LAYOUT[: LAYOUT.index("  @export_name")] + '  @export_name("go", fn()void);\n}\n'
    for name, text in (("layout.csl", layout), ("pe.csl", OLD.replace("KIND", kind))):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=8,3", "--fabric-offsets=4,1", "--memcpy", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == status
    if status:
        assert "copies are of elements of 32 bits" in capsys.readouterr().err
        return
    with SdkRuntime(tmp_path / "out") as runner:
        runner.launch("go")
        runner.launch("go")


ECHO = """param memcpy_params: comptime_struct;
const sys = @import_module("<MODULE/memcpy>", memcpy_params);
const out = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = sys.MEMCPYD2H_1, .output_queue = @get_output_queue(2) });
task word(v: u32) void {
  @block(sys.MEMCPYH2D_1);
  @mov32(out, v + 1, .{ .async = true, .unblock = sys.MEMCPYH2D_1 });
}
comptime { @bind_data_task(word, @get_data_task_id(sys.MEMCPYH2D_1)); }
"""


@pytest.mark.parametrize("module", ["memcpy_multi", "memcpy"])
def test_words_came_while_others_entered_before_sdk_1_0(tmp_path, module):
    """A tutorial of 0.9 sends more words than its queues hold before it asks for the first."""
    colors = ", .MEMCPYH2D_1 = @get_color(3), .MEMCPYD2H_1 = @get_color(4) }"
    layout = LAYOUT[: LAYOUT.index("  @export_name")].replace(" }", colors, 1).replace("memcpy_multi", module) + "}\n"
    for name, text in (("layout.csl", layout), ("pe.csl", ECHO.replace("MODULE", module))):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=8,3", "--fabric-offsets=4,1", "--memcpy", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == 0
    found, how = np.zeros(40, np.uint32), HOW | {"streaming": True}
    with SdkRuntime(tmp_path / "out") as runner:
        runner.memcpy_h2d(3, np.arange(40, dtype=np.uint32), 0, 0, 1, 1, 40, nonblock=True, **how)
        if module == "memcpy":
            with pytest.raises(DeadlockError):
                runner.memcpy_d2h(found, 4, 0, 0, 1, 1, 40, **how)
            return
        runner.memcpy_d2h(found, 4, 0, 0, 1, 1, 40, **how)
    assert found.tolist() == list(range(1, 41))


def test_a_type_alone_is_no_statement_but_void(tmp_path):
    with pytest.raises(CslError, match="not used"):
        run_task(tmp_path, "i16;", results={})
    run_task(tmp_path, "switch (n) { 5 => m(), else => void }", "var n: i16 = 5; fn m() void { n = 6; }", results={})


def test_bind_task(tmp_path):
    """By what it is bound to and its parameters: a data task, or a local one."""
    start = """task word(x: u32) void { a = x; @activate(later); }
task done() void { b = a + 1; }
var a: u32 = 0; var b: u32 = 0;
const c: color = @get_color(3);
const later = @get_local_task_id(9);
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c });
comptime {
  @bind_task(word, c); @bind_task(done, later);
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}"""
    found = run_task(tmp_path, "@mov32(out, 7);", start, results={"a": "u4", "b": "u4"})
    assert (found["a"], found["b"]) == (7, 8)


def test_a_color_activates_its_local_task(tmp_path):
    """Before SDK 1.0 a local task had a color: at the start, while running, when an operation is done."""
    start = """task one() void { a += 1; @fmovs(d, 1.0); @mov32(out, 5, .{ .async = true, .activate = second }); }
task two() void { b = a + 1; }
var a: u16 = 0; var b: u16 = 0; var v: [4]f32;
const d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> v[i] });
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(3) });
const first = @get_color(14); const second = @get_color(15); const third = @get_color(16);
task three() void { a += 1; @activate(first); }
comptime { @set_local_color_config(@get_color(3), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
  @bind_task(one, first); @bind_task(two, second); @bind_task(three, third); @activate(third); }"""
    found = run_task(tmp_path, "", start, results={"a": "u2", "b": "u2"})
    assert (found["a"], found["b"]) == (2, 3)


@pytest.mark.parametrize("place", ["comptime { @activate(c); }", "task go() void { @activate(c); }"])
def test_a_color_that_brings_wavelets_is_not_activated(tmp_path, place):
    start = f"""task word(x: u32) void {{ }} const c = @get_color(3); const id = @get_local_task_id(9); {place}
comptime {{ @bind_data_task(word, @get_data_task_id(c)); {"@bind_task(go, id);" if "go" in place else ""} }}"""
    with pytest.raises(CslError, match="takes wavelets"):
        run_task(tmp_path, "", start, results={})


def test_dsd_ops(tmp_path):
    start = """const ops = @import_module("<dsd_ops>");
var a = [2]f32{ 1.0, 2.0 }; var b = @zeros([2]f32); var h = [2]u16{ 1, 2 };
const da = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> a[i] });
const db = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> b[i] });
const dh = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> h[i] });"""
    body = "ops.mov(f32, db, da); ops.add(f32, db, db, da); ops.mul(f32, db, db, db); ops.sub(u16, dh, dh, 1);"
    found = run_task(tmp_path, body, start, results={"b": "f4", "h": "u2"})
    assert (found["b"].tolist(), found["h"].tolist()) == ([4, 16], [0, 1])


def test_a_seed_is_said_to_have_no_effect(tmp_path, capsys):
    text = """const random = @import_module("<random>");
var x: f32 = 0.0;
task job() void { random.set_global_prng_seed(7); x = random.random_f32(0.0, 1.0); }
comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }
"""
    (tmp_path / "top.csl").write_text(text)
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    assert "warning: the seed has no effect" in capsys.readouterr().err


def test_a_color_may_have_a_number_that_no_router_has(tmp_path):
    """Up to SDK 1.2: it says that a stream is not used, or it starts a task; what routes it is refused."""
    text = """
param unused: color = @get_color(32);
const later: color = @get_color(25);
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = unused });
var a: u16 = 0;
task second() void { a += 10; }
comptime { @bind_task(second, later); }
"""
    body = "if (@get_int(unused) < 24) { @mov32(out, 7); } else { a = @get_int(unused); } @activate(later);"
    assert run_task(tmp_path, body, text, results={"a": "u2"})["a"] == 42
    for wrong in (
        "comptime { @set_local_color_config(unused, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }); }",
        "task data(x: u32) void {} comptime { @bind_data_task(data, @get_data_task_id(unused)); }",
        "comptime { _ = out; }",
    ):
        with pytest.raises(CslError, match="32 is not a routable color; there are 0 to 23"):
            run_task(tmp_path, "", text, wrong, results={})
    with pytest.raises(CslError, match="64 is not a color; there are 0 to 63"):
        run_task(tmp_path, "", "const c = @get_color(64); comptime { _ = c; }", results={})


def test_queues_are_numbers_and_colors_are_ids_of_tasks(tmp_path):
    """Before SDK 1.0; colors also where a function takes the id of a local task, known or not."""
    text = """
const c: color = @get_color(3);
const queues = [2]u16{ 1, 2 };
const in = @get_dsd(fabin_dsd, .{ .extent = 1, .fabric_color = c, .input_queue = queues[0] });
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .output_queue = 2 });
const first: color = @get_color(14); const second: color = @get_color(15);
var a: u32 = 0; var turn: u16 = 0;
fn then(cb: local_task_id) void { @activate(cb); }
task one() void { a += 10; then(if (turn == 0) second else first); turn += 1; }
task two() void { a += 100; }
comptime {
  @bind_task(one, first); @bind_task(two, second);
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}
"""
    body = "@mov32(out, 7); @mov32(&a, in); then(first);"
    assert run_task(tmp_path, body, text, results={"a": "u4"})["a"] == 117
    with pytest.raises(CslError, match="has type color, but local_task_id is needed"):
        run_task(tmp_path, "", "const t: local_task_id = @get_color(9); comptime { _ = t; }", results={}, arch="wse3")


STREAMS = LAYOUT[: LAYOUT.index("  @export_name")] + "}\n"
GIVEN = """param memcpy_params: comptime_struct;
const sys = @import_module("<memcpy_multi/memcpy>", @concat_structs(memcpy_params, .{
  .MEMCPYH2D_1 = @get_color(1), .MEMCPYD2H_1 = @get_color(2) }));
const other = @import_module("other.csl", .{ .stream = memcpy_params.MEMCPYH2D_2 });
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = sys.MEMCPYD2H_1 });
task word(x: u32) void { @mov32(out, x + @get_int(other.stream)); }
comptime { @bind_task(word, sys.MEMCPYH2D_1); }
"""


def test_a_pe_gives_the_colors_of_its_streams_itself(tmp_path):
    """Up to SDK 0.9; a color that nobody gave has the default of the param that it is bound to."""
    other = "param stream: color = @get_color(32);"
    for name, text in (("layout.csl", STREAMS), ("pe.csl", GIVEN), ("other.csl", other)):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=8,3", "--fabric-offsets=4,1", "--memcpy", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == 0
    found = np.zeros(2, np.uint32)
    with SdkRuntime(tmp_path / "out") as runner:
        runner.memcpy_h2d(1, np.array([5, 9], np.uint32), 0, 0, 1, 1, 2, **HOW | {"streaming": True}, nonblock=True)
        runner.memcpy_d2h(found, 2, 0, 0, 1, 1, 2, **HOW | {"streaming": True})
    assert found.tolist() == [37, 41]
    (tmp_path / "pe.csl").write_text(GIVEN.replace("(memcpy_params, .{", "(.{ .MEMCPYH2D_1 = @get_color(1) }, .{"))
    assert main([str(tmp_path / "layout.csl"), *options]) == 1


CONTROL = """const c: color = @get_color(3);
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .control = true });
fn send(id: u32, data: u32) void { @mov32(out, id << 16 | data); }
comptime { @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } }); }
"""


def test_a_control_wavelet_starts_the_task_of_its_id_whatever_that_is(tmp_path):
    """WSE-2 has one table: topic 5 of SDK 1.0 sends the id of a data task.  An entry of a control task goes first."""
    text = """
    var a: u16 = 0; var b: u16 = 0;
    task data(x: u16, high: u16) void { a += x; b += high; }
    task entry(x: u16) void { a += 10 * x; }
    const old: color = @get_color(40);
    task older(x: u16) void { a += 100 * x; }
    comptime { @bind_data_task(data, @get_data_task_id(c)); @bind_task(older, old); }
    """
    body = "send(3, 7); send(40, 5); send(9, 100);"
    found = run_task(tmp_path, body, CONTROL, text, results={"a": "u2", "b": "u2"})
    assert (found["a"], found["b"]) == (507, 3)
    both = "comptime { @bind_control_task(entry, @get_control_task_id(3)); }"
    found = run_task(tmp_path, body, CONTROL, text, both, results={"a": "u2", "b": "u2"})
    assert (found["a"], found["b"]) == (570, 0)


def test_a_task_of_bind_task_that_takes_wavelets_may_be_activated(tmp_path):
    """So the transforms of SDK 0.9 go on; what it takes then is whatever the registers hold."""
    text = "var a: u16 = 0; task next(x: i16) void { a += 1; if (a < 3) @activate(@get_color(6)); }"
    bound = "comptime { @bind_task(next, @get_color(6)); }"
    assert run_task(tmp_path, "@activate(@get_color(6));", text, bound, results={"a": "u2"})["a"] == 3
    new = "comptime { @bind_data_task(next, @get_data_task_id(@get_color(6))); }"
    with pytest.raises(CslError, match="the task of id 6 takes wavelets: it cannot be activated"):
        run_task(tmp_path, "@activate(@get_color(6));", text, new, results={})


def test_routes_and_switches_may_stand_in_the_config_itself(tmp_path):
    """So they did in SDK 0.4; beside a struct of routes they are refused as before."""
    flat = ".rx = .{ RAMP }, .tx = .{ EAST }, .pos1 = .{ .tx = RAMP }, .current_switch_pos = 1"
    text = """
    var a: u32 = 0; task word(x: u32) void { a = x; }
    const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(3) });
    comptime { @bind_data_task(word, @get_data_task_id(@get_color(3))); }
    comptime { @set_local_color_config(@get_color(3), CONFIG); }
    """
    routed = text.replace("CONFIG", f".{{ {flat} }}")
    assert run_task(tmp_path, "@mov32(out, 6);", routed, results={"a": "u4"})["a"] == 6
    with pytest.raises(CslError, match="the color config has no field 'rx'"):
        run_task(tmp_path, "", text.replace("CONFIG", f".{{ .routes = .{{}}, {flat} }}"), results={})


def test_an_operation_takes_the_index_of_its_wavelet_where_none_is_said(tmp_path):
    """So in SDK 0.4, where a flag may be a number; from 0.5 on the option `index` says it."""
    text = """
    var m = [6]f16{ 1.0, 2.0, 3.0, 4.0, 5.0, 6.0 }; var y = @zeros([3]f16);
    const c: color = @get_color(3);
    const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c });
    const dm = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> m[i], .wavelet_index_offset = 1 });
    const dy = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> y[i] });
    task word(x: f16, index: i16) void { @fmach(dy, dy, dm, x); }
    comptime { @bind_task(word, c); @set_local_color_config(c, .{ .rx = .{ RAMP }, .tx = .{ RAMP } }); }
    """
    body = "@mov32(out, 0x23c00);"  # 1.0 with the index 2
    assert run_task(tmp_path, body, text, results={"y": "f2"})["y"].tolist() == [3, 4, 5]
    said = text.replace("dm, x)", "dm, x, .{ .index = 1 })")
    assert run_task(tmp_path, body, said, results={"y": "f2"})["y"].tolist() == [2, 3, 4]
    with pytest.raises(CslError, match="has type comptime_int, but bool is needed"):
        run_task(tmp_path, body, text.replace("= 1 }", "= 2 }"), results={})


def test_collectives_have_a_module_of_what_both_axes_share(tmp_path):
    """Before SDK 0.7."""
    text = """
    const shared = @import_module("<collectives_2d/common>", .{ .c2d_params = .{} });
    const params = @import_module("<collectives_2d/params>").get_params(0, 0, .{
      .x_colors = .{ @get_color(0), @get_color(1), @get_color(2), @get_color(3) } });
    const x = @import_module("<collectives_2d/pe>", .{ .dim_params = params.x });
    var a: u16 = 9;
    """.replace('@import_module("<collectives_2d/params>").get', "c2d.get")
    params = 'const c2d = @import_module("<collectives_2d/params>");'
    call = "x.init(&shared.pendings); a = x.pe_id;"
    assert run_task(tmp_path, call, params, text, results={"a": "u2"})["a"] == 0
    with pytest.raises(CslError, match="'init' takes 0 arguments, not 2"):
        run_task(tmp_path, "x.init(1, 2);", params, text, results={})


WORDS = """param memcpy_params: comptime_struct;
const start: color = @get_color(4);
const sys = @import_module("<memcpy_multi/memcpy>", @concat_structs(memcpy_params, .{ .LAUNCH = start }));
var a = @zeros([2]u32); var given: u32 = 0; var turn: u16 = 0;
var ap: [*]u32 = &a;
task word(x: u32) void {
  if (turn == 0) { given = x; turn = 1; return; }
  turn = 0;
  a[x] += given;
  sys.unblock_cmd_stream();
}
comptime { @bind_task(word, start); @export_symbol(ap, "a"); }
"""


def test_a_launch_of_words_and_copies_by_position(tmp_path):
    """SDK 0.6: a data task of the program reads which function is meant."""
    layout = STREAMS.replace("}\n", '  @export_name("a", [*]u32, true);\n}\n', 1).replace("width = 1", "width = 2")
    layout = layout.replace("(1, 1)", "(2, 1)").replace(
        "  @export_name",
        '  @set_tile_code(1, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(1) });\n  @export_name',
    )
    for name, text in (("layout.csl", layout), ("pe.csl", WORDS)):
        (tmp_path / name).write_text(text)
    options = ["--fabric-dims=9,3", "--fabric-offsets=4,1", "--memcpy", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "layout.csl"), *options]) == 0
    found = np.zeros(4, np.uint32)
    with SdkRuntime(tmp_path / "out") as runner:
        symbol = runner.get_id("a")
        runner.memcpy_h2d(symbol, np.array([1, 2, 3, 4], np.uint32), False, 0, 0, 2, 1, 2, 0, False)
        runner.memcpy_launch(4, np.array([10, 0], np.uint32), False)
        runner.memcpy_launch(4, np.array([20, 1], np.uint32), False)
        runner.memcpy_d2h(found, symbol, False, 0, 0, 2, 1, 2, 0, False)
        for wrong in ((symbol, found, 0, 0, 0, 2, 1, 2, 0, False), (symbol, found, False, 0, 0, 2, 1, 2, 1, False)):
            with pytest.raises(ConfigError, match="seven values by position, or the ten of SDK 0.6"):
                runner.memcpy_h2d(*wrong)
    assert found.tolist() == [11, 22, 13, 24]
