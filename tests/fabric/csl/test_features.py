"""One test per feature of the back end: a small program, what it leaves in memory, often its cycles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fabric.asm import disasm
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from tests.fabric.csl.running import device_of, run_task
from wse_core import isa


def words(directory, body, *declarations, count, kind="i2"):
    """Return the array `y` after a task has run."""
    size = f"var y: [{count}]{'i16' if kind == 'i2' else 'f32' if kind == 'f4' else 'u32'};"
    return run_task(directory, body, size, *declarations, results={"y": kind})["y"].tolist()


def test_loops(tmp_path):
    body = """
  for (@range(i16, n)) |i, k| { y[i] = i * 3 + @as(i16, k); }
  for (@range(i16, 9, 4, -2)) |i| { y[i] += 100; }
  var j: i16 = 5;
  while (j >= 0) : (j -= 1) { if (j == 3) { continue; } y[j] += 1000; if (j == 1) { break; } }
  outer: for (@range(i16, 3)) |a| { for (@range(i16, 3)) |b| { if (a * b == 1) { break :outer; } y[10] += 1; } }
"""
    found = words(tmp_path, body, "var n: i16 = 10;", count=11)
    expected = [4 * i for i in range(10)] + [0]
    for i in (9, 7, 5):
        expected[i] += 100
    for i in (5, 4, 2, 1):
        expected[i] += 1000
    expected[10] = 4
    assert found == expected


def test_calls_results_and_pointers(tmp_path):
    text = """
fn add(a: i16, b: i16) i16 { return a + b; }
fn wide(a: i16, b: f32, c: i16) f32 { return @as(f32, a + c) + b; }
fn bump(p: *i16, by: i16) void { p.* += by; }
noinline fn much(a: i16, b: i16, c: i16, d: i16, e: i16) i16 { return a + 2 * b + 4 * c + 8 * d + 16 * e; }
fn deep(n: i16) i16 { return add(much(n, n, n, n, n), much(1, 2, 3, 4, 5)) + add(n, n); }
var z: f32;
"""
    body = """
  var local: i16 = 5;
  bump(&local, 3);
  y[0] = local;
  y[1] = add(add(1, 2), add(3, x));
  bump(&y[1], 100);
  y[2] = @as(i16, wide(x, 0.5, 2) * 4.0);
  y[3] = deep(x);
  y[4] = much(y[0], y[1], y[2], x, local);
"""
    found = words(tmp_path, body, text, "var x: i16 = 7;", count=5)
    y = [8, 1 + 2 + 3 + 7 + 100, 38, 7 * 31 + (1 + 4 + 12 + 32 + 80) + 14]
    assert found == [*y, y[0] + 2 * y[1] + 4 * y[2] + 8 * 7 + 16 * 8]


def test_more_values_than_registers(tmp_path):
    names = [f"v{k}" for k in range(24)]
    body = "".join(f"  var {name} = x + {k};\n" for k, name in enumerate(names))
    body += "  x += 1;\n  y[0] = " + " + ".join(f"{k} * {name}" for k, name in enumerate(names)) + ";\n"
    body += "  y[1] = " + " + ".join(names) + ";\n"
    found = words(tmp_path, body, "var x: i16 = 2;", count=2)
    assert found == [sum(k * (2 + k) for k in range(24)), sum(2 + k for k in range(24))]


def test_arrays_and_switches(tmp_path):
    body = """
  var a = [4]i16{ x, 2, x + 1, 4 };
  var copy = a;
  a[0] = 50;
  for (copy) |v, k| { y[k] = v; }
  y[4] = a[x];
  y[5] = switch (x) { 1 => 10, 3 => 30, else => 70 };
  switch (y[0]) { 0, 1 => { y[6] = 1; }, 3 => { y[6] = 3; }, else => { y[6] = 9; } }
  table[1, x] = 5;
  y[7] = table[1, 3] + constants[x];
"""
    declarations = ("var x: i16 = 3;", "var table: [2, 4]i16;", "const constants = [5]i16{ 9, 8, 7, 6, 5 };")
    assert words(tmp_path, body, *declarations, count=8) == [3, 2, 4, 4, 4, 30, 3, 11]


VECTORS = """
var a = [6]f32{ 1.0, 2.0, 3.0, 4.0, 5.0, 6.0 };
var b = [6]f32{ 10.0, 20.0, 30.0, 40.0, 50.0, 60.0 };
const a_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{6} -> a[i] });
const odd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{3} -> b[2 * i + 1] });
const y_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{6} -> y[i] });
var d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> a[i] });
"""


def test_vector_operations(tmp_path):
    body = """
  @fmacs(y_dsd, a_dsd, a_dsd, 2.0);
  @fadds(@set_dsd_length(y_dsd, 3), @set_dsd_length(y_dsd, 3), odd);
  @fmovs(@increment_dsd_offset(@set_dsd_length(y_dsd, 2), 4, f32), -1.5);
"""
    assert words(tmp_path, body, VECTORS, count=6, kind="f4") == [23.0, 46.0, 69.0, 12.0, -1.5, -1.5]


def test_descriptors_that_change_while_the_program_runs(tmp_path):
    body = """
  for (@range(i16, 3)) |i| {
    @fmuls(@increment_dsd_offset(d, 0, f32), d, 10.0);
    d = @increment_dsd_offset(d, 1, f32);
  }
  d = @set_dsd_base_addr(d, &b);
  d = @set_dsd_length(d, count);
  d = @set_dsd_stride(d, 2);
  var local = y_dsd;
  local = @set_dsd_length(local, 3);
  @fmovs(local, d);
  @fmovs(@increment_dsd_offset(local, 3, f32), a_dsd);
"""
    found = words(tmp_path, body, VECTORS, "var count: u16 = 3;", count=10, kind="f4")
    assert found == [10.0, 30.0, 50.0, 10.0, 20.0, 30.0, 4.0, 5.0, 6.0, 0.0]


def test_a_reduction_goes_through_a_pointer(tmp_path):
    body = """
  var sum: f32 = 0.5;
  @fadds(&sum, sum, a_dsd);
  y[0] = sum;
  @fmaxs(&y[1], y[1], odd);
  y[2] = sum * 2.0;
"""
    assert words(tmp_path, body, VECTORS, count=6, kind="f4")[:3] == [21.5, 60.0, 43.0]


def test_four_dimensions(tmp_path):
    text = "const grid = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{3, 2} -> b[i + 3 * j] });"
    found = words(tmp_path, "@fmovs(y_dsd, grid);", VECTORS, text, count=6, kind="f4")
    assert found == [10.0, 40.0, 20.0, 50.0, 30.0, 60.0]
    deltas = "const grid = @get_dsd(mem4d_dsd, .{ .base_address = &b, .extent = .{3, 2}, .stride = .{3, -2} });"
    assert words(tmp_path, "@fmovs(y_dsd, grid);", VECTORS, deltas, count=6, kind="f4") == found


def test_registers_that_the_program_chooses(tmp_path):
    text = """
const src = @get_dsr(dsr_src1, 3);
const dest = @get_dsr(dsr_dest, 4);
const first = @get_dsr(dsr_src0, 4);
comptime { @load_to_dsr(src, a_dsd, .{ .save_address = true }); }
"""
    body = """
  @load_to_dsr(dest, @set_dsd_length(y_dsd, 2));
  @load_to_dsr(first, @set_dsd_length(odd, 2));
  @fadds(dest, first, src);
  @fmovs(@increment_dsd_offset(@set_dsd_length(y_dsd, 2), 2, f32), src);
"""
    assert words(tmp_path, body, VECTORS, text, count=6, kind="f4")[:4] == [21.0, 42.0, 3.0, 4.0]


def test_map(tmp_path):
    text = """
const math = @import_module("<math>");
fn root(x: f32) f32 { return math.sqrt_f32(x) + 1.0; }
fn total(x: f32, sum: *f32) f32 { return sum.* + x; }
var sum: f32 = 0.0;
"""
    body = """
  @map(root, a_dsd, y_dsd);
  @map(total, odd, &sum, &sum);
  y[5] = sum;
  @map(math.sqrt_f32, odd, odd);
  y[4] = b[1];
"""
    found = words(tmp_path, body, VECTORS, text, count=6, kind="f4")
    wanted = np.sqrt(np.arange(1, 5, dtype=np.float32)) + 1
    assert found == [*wanted.tolist(), float(np.sqrt(np.float32(20))), 120.0]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("exp", (-20.0, -1.0, 0.0, 0.3, 5.0, 80.0)),
        ("log", (1e-30, 0.1, 0.999, 1.0, 7.0, 1e30)),
        ("sin", (-9.0, -1.0, 0.0, 0.5, 3.0, 100.0)),
        ("cos", (-9.0, -1.0, 0.0, 0.5, 3.0, 100.0)),
        ("tanh", (-12.0, -1.0, -0.01, 0.02, 0.7, 12.0)),
        ("floor", (-2.5, -2.0, -0.5, 0.0, 2.5, 1e9)),
        ("ceil", (-2.5, -2.0, -0.5, 0.0, 2.5, 1e9)),
    ],
)
def test_functions_of_the_library(tmp_path, name, points):
    values = ", ".join(map(repr, points))
    text = f'const math = @import_module("<math>");\nvar x = [6]f32{{ {values} }};'
    body = f"for (@range(i16, n)) |i| {{ y[i] = math.{name}_f32(x[i]); }}"
    found = words(tmp_path, body.replace("n)", "@as(i16, six))"), text, "var six: i16 = 6;", count=6, kind="f4")
    np.testing.assert_allclose(found, getattr(np, name)(np.array(points)), rtol=3e-6, atol=3e-7)


def test_asserts_stop_the_machine(tmp_path):
    from wse_core.errors import ProgramFault

    with pytest.raises(ProgramFault):
        words(tmp_path, "@assert(x == 4);", "var x: i16 = 3;", count=1)
    assert words(tmp_path, "@assert(x == 3); y[0] = 1;", "var x: i16 = 3;", count=1) == [1]


def test_tail_calls_in_circles_become_jumps(tmp_path):
    text = """
var n: i16 = 30000;
fn ping(add: i16) void { n -= add; y[0] +%= 1; if (n > 0) { pong(add); } }
fn pong(add: i16) void { y[1] += 1; if (n == 20000) { return; } ping(add); }
""".replace("+%=", "+=")
    assert words(tmp_path, "ping(1);", text, count=2) == [10000, 10000]


def test_what_the_back_end_lacks_is_one_message(tmp_path):
    text = "var z: u128 = 3;\ntask job() void { z += 1; }\ncomptime { @bind_local_task(job, @get_local_task_id(8)); }\n"
    (tmp_path / "top.csl").write_text(text)
    with pytest.raises(CslError) as error:
        compile_file(tmp_path / "top.csl", Options())
    (message,) = error.value.diagnostics
    assert (message.span.line, "u128" in message.message) == (2, True)


CHAIN = {
    "layout.csl": """
const c = @get_color(4);
layout {
  @set_rectangle(4, 1);
  for (@range(u16, 4)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{ .c = c, .first = x == 0 });
    if (x == 0) { @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }); }
    else if (x == 3) { @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } }); }
    else { @set_color_config(x, 0, c, .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP, EAST } } }); }
  }
}
""",
    "pe.csl": """
param c: color;
param first: bool;
const layout_mod = @import_module("<layout>");
var data = [5]i16{ 3, 1, 4, 1, 5 };
var y: [6]i16;
var n: i16 = 0;
const out = @get_dsd(fabout_dsd, .{ .extent = 5, .fabric_color = c, .output_queue = @get_output_queue(1) });
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{5} -> data[i] });
task go() void { @mov16(out, mem, .{ .async = true, .activate = finish }); }
task finish() void { y[5] = 99; }
task take(v: i16) void {
  y[n] = v + @as(i16, layout_mod.get_x_coord());
  n += 1;
  if (n == 5) { @activate(@get_local_task_id(9)); }
}
comptime {
  if (first) {
    @bind_local_task(go, @get_local_task_id(8));
    @activate(@get_local_task_id(8));
  } else {
    @bind_data_task(take, @get_data_task_id(c));
  }
  @bind_local_task(finish, @get_local_task_id(9));
  export_nothing();
}
fn export_nothing() void {}
""",
}


def test_wavelets_tasks_and_completions(tmp_path):
    device = device_of(tmp_path, CHAIN, "layout.csl")
    device.settle()
    y = [device.symbol(x, 0, "y").view(np.int16).tolist() if x else None for x in range(4)]
    for x in range(1, 4):
        assert y[x] == [3 + x, 1 + x, 4 + x, 1 + x, 5 + x, 99]


def test_a_loop_that_is_unrolled_takes_fewer_cycles(tmp_path):
    """The same sum with known bounds and with bounds that the program reads."""
    known = device_of(tmp_path / "a", {"top.csl": _loop("8")})
    read = device_of(tmp_path / "b", {"top.csl": _loop("n")})
    for device in (known, read):
        device.settle()
        assert device.symbol(0, 0, "y").view(np.int16).tolist() == [28]
    assert known.fabric.cycle < 0.6 * read.fabric.cycle


def _loop(bound):
    return f"""
var n: i16 = 8;
var y: i16;
var a = [8]i16{{ 0, 1, 2, 3, 4, 5, 6, 7 }};
task job() void {{ for (@range(i16, {bound})) |i| {{ y += a[i]; }} }}
comptime {{ @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }}
"""


def test_an_id_that_is_known_at_run_time_only(tmp_path):
    """It may be activated, blocked and unblocked; others stay as they are."""
    body = """
  for (ids) |id, k| { if (take[k]) { @activate(id); } }
  @block(ids[n]);
  other = ids[n];
  @activate(ids[3]);
"""
    declarations = """
const ids = [4]local_task_id{
  @get_local_task_id(9), @get_local_task_id(10), @get_local_task_id(11), @get_local_task_id(12) };
var take = [4]bool{ true, false, true, false };
var n: u16 = 2;
var other: local_task_id;
task a() void { y[0] = 1; }
task b() void { y[1] = 1; }
task c() void { y[2] = y[3] + 1; }
task last() void { y[3] = 1; @unblock(other); }
comptime {
  @bind_local_task(a, ids[0]);
  @bind_local_task(b, ids[1]);
  @bind_local_task(c, ids[2]);
  @bind_local_task(last, ids[3]);
}
"""
    assert words(tmp_path, body, declarations, count=4) == [1, 0, 2, 1]


def test_tasks_of_equal_priority_come_in_turn(tmp_path):
    """After task 8 comes 12, though 7 has the lower number; its value is not overwritten before it is passed on."""
    body = "held = 1; @activate(@get_local_task_id(7)); @activate(@get_local_task_id(12));"
    declarations = """
var held: i16;
task take() void { held = 2; y[1] = held; }
task pass() void { y[0] = held; }
comptime {
  @bind_local_task(take, @get_local_task_id(7));
  @bind_local_task(pass, @get_local_task_id(12));
}
"""
    assert words(tmp_path, body, declarations, count=2) == [1, 2]


PRIORITIES = """
const color = @get_color(1);
const out = @get_dsd(fabout_dsd, .{{ .extent = 4, .fabric_color = color, .output_queue = @get_output_queue(3) }});
const into = @get_dsd(fabin_dsd, .{{ .extent = 4, .fabric_color = color, .input_queue = @get_input_queue(2) }});
var x = @zeros([4]f32);
const all = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> x[i] }});
comptime {{ @initialize_queue(@get_{}_queue({}), .{{ .priority = .{{ .{} = true }} }}); }}
task job() void {{
  @fmovs({}, .{{ .async = true{} }});
}}
comptime {{ @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }}
"""


@pytest.mark.parametrize(("queue", "level", "operands", "option", "found"), [
    ("output", "high", "out, all", "", "high"),
    ("input", "medium", "all, into", "", "medium"),
    ("input", "high", "out, all", "", "low"),  # another queue
    ("output", "high", "out, all", ", .priority = .{ .medium = true }", "medium"),
])  # fmt: skip
def test_an_operation_has_its_own_priority_or_that_of_its_queue(queue, level, operands, option, found, tmp_path):
    number = 3 if queue == "output" else 2
    (tmp_path / "top.csl").write_text(PRIORITIES.format(queue, number, level, operands, option))
    image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
    assert re.findall(r"priority=(\w+)", disasm.listing(image)) == [found]


@pytest.mark.parametrize(("arch", "found", "main"), [("wse2", "low", 1), ("wse3", "medium", 2)])
def test_threads_of_which_nothing_is_said_wait_for_the_main_thread_or_take_turns(arch, found, main, tmp_path):
    """On WSE-3 what comes in must not wait for an operation of the main thread (`PRIORITIES_UNSAID`)."""
    setting = "comptime { @initialize_queue(@get_output_queue(3), .{ .color = color }); }"
    text = re.sub(r"^comptime .*initialize.*$", setting if arch == "wse3" else "", PRIORITIES, flags=re.MULTILINE)
    text = (
        text.replace("{{", "{")
        .replace("}}", "}")
        .replace("@fmovs({}, .{ .async = true{} });", "@fmovs(out, all, .{ .async = true });")
    )
    (tmp_path / "top.csl").write_text(text)
    image = compile_file(tmp_path / "top.csl", Options(arch=arch)).programs[0].emitted.image
    assert re.findall(r"priority=(\w+)", disasm.listing(image)) == [found]
    assert image.main_priority == main


def test_random_numbers_have_23_bits_of_the_generator(tmp_path):
    body = "for (@range(i16, 40)) |i| { y[i] = random.random_f32(-2.0, 6.0); }"
    found = words(tmp_path, body, 'const random = @import_module("<random>");', count=40, kind="f4")
    state, draws = 0xDEADBEEF, []
    for _ in range(80):
        for _ in range(128):
            state = (state << 1 | (state >> 22 ^ state >> 17) & 1) & 0xFFFFFFFF
        draws.append(state & 0xFFFF)
    bits = [(high << 16 | low) & 0x7FFFFF for low, high in zip(draws[::2], draws[1::2], strict=True)]
    assert found == [float(np.float32(-2) + np.float32(8) * np.float32(x / 2**23)) for x in bits]
    assert len(set(found)) == 40


def test_random_points_lie_in_the_circle_as_often_as_the_vendors_tutorials_check(tmp_path):
    """They allow pi to be 0.1 off with 200 points (SDK 1.4), 0.01 with 10,000 (SDK 0.4)."""
    body = """
    for (@range(u16, 10000)) |i| {
      const x = random.random_f32(-1.0, 1.0); const z = random.random_f32(-1.0, 1.0);
      if (x * x + z * z <= 1.0) { y[1] += 1.0; }
      if (i == 199) { y[0] = y[1]; }
    }"""
    found = words(tmp_path, body, 'const random = @import_module("<random>");', count=2, kind="f4")
    assert abs(4 * found[0] / 200 - np.pi) < 0.1
    assert abs(4 * found[1] / 10000 - np.pi) < 0.01


def test_colors_that_share_a_queue_get_queues_of_their_own(tmp_path):
    """Two outputs of one queue go out by different ones, none of which is a microthread that receives."""
    text = """
const a = @get_color(4);
const b = @get_color(5);
const c = @get_color(6);
var data: [2]i16;
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> data[i] });
const first = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = a, .output_queue = @get_output_queue(3) });
const second = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = b, .output_queue = @get_output_queue(3) });
const in = @get_dsd(fabin_dsd, .{ .extent = 2, .fabric_color = c, .input_queue = @get_input_queue(5) });
task job() void {
  @mov16(first, mem, .{ .async = true });
  @mov16(second, mem, .{ .async = true });
  @mov16(mem, in, .{ .async = true });
}
comptime { @bind_local_task(job, @get_local_task_id(8)); }
"""
    (tmp_path / "top.csl").write_text(text)
    image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
    assert image.outq_color[3] == 4
    assert image.inq_color[5] == 6
    assert image.outq_color.index(5) not in (3, 5)


def test_as_many_colors_as_there_are_queues(tmp_path):
    """Six outputs and eight inputs without a named queue take all that there are, each one of its own."""
    text = "var data: [2]i16;\nconst mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> data[i] });\n"
    body = ""
    for number in range(14):
        kind = "fabout" if number < 6 else "fabin"
        text += f"const d{number} = @get_dsd({kind}_dsd, .{{ .extent = 2, .fabric_color = @get_color({number}) }});\n"
        body += f"  @mov16({f'd{number}, mem' if number < 6 else f'mem, d{number}'});\n"
    text += f"task job() void {{\n{body}}}\ncomptime {{ @bind_local_task(job, @get_local_task_id(20)); }}\n"
    (tmp_path / "top.csl").write_text(text)
    image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
    assert sorted(image.outq_color) == [-1, -1, *range(6)]
    assert sorted(image.inq_color) == list(range(6, 14))


def test_a_counter_is_counted_in_its_register(tmp_path):
    """The step of a loop is one addition, without a copy."""
    text = "var y: i16;\ntask job() void { var i: i16 = y; while (i < 100) : (i += 3) { y += 1; } }\n"
    text += "comptime { @bind_local_task(job, @get_local_task_id(8)); }\n"
    (tmp_path / "top.csl").write_text(text)
    image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
    names = [op.name for _, op, *_ in isa.decode(image.code)]
    assert names.count("add16") == 2
    assert names.count("mov16") <= 1


def test_the_fields_of_a_union_share_their_place(tmp_path):
    text = "const U = union { a: u16, b: i32 }; var u: U = U{ .b = -2 }; var v: U = U{ .a = 7 };"
    body = "  y[0] = u.b; y[1] = @as(i32, u.a); u.a = 5; y[2] = u.b; y[3] = @as(i32, v.a); v = U{ .b = 9 }; y[4] = v.b;"
    found = run_task(tmp_path, body, "var y: [5]i32;", text, results={"y": "i4"})["y"].tolist()
    assert found == [-2, 65534, (-2 & ~0xFFFF) | 5, 7, 9]


def test_a_descriptor_without_a_first_value_takes_the_kind_of_what_is_assigned(tmp_path):
    body = """
  grow();
  d = @set_dsd_length(a_dsd, 2);
  @fmovs(@set_dsd_length(y_dsd, 2), d);
  d = @set_dsd_base_addr(d, &b);
  @fmovs(@increment_dsd_offset(@set_dsd_length(y_dsd, 2), 2, f32), d);
"""
    text = "var d: mem1d_dsd; fn grow() void { d = @set_dsd_length(d, 5); }"
    text = text.replace("var d", "var e: mem1d_dsd; var d").replace("grow() void {", "grow() void { e = d; d = e;")
    before = VECTORS[: VECTORS.index("var d =")]
    assert words(tmp_path, body, before, text, count=6, kind="f4") == [1.0, 2.0, 10.0, 20.0, 0.0, 0.0]


def test_a_color_whose_number_a_local_task_has_lets_control_wavelets_in(tmp_path):
    text = """
const c = @get_color(9);
const again = @get_local_task_id(@get_int(c));
var rounds: i16 = 0;
var order = [1]u32{ 40 << 16 };
const orders = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> order[i] });
const out = @get_dsd(fabout_dsd, .{
  .extent = 1, .fabric_color = c, .control = true, .output_queue = @get_output_queue(2) });
task dispatch() void { @mov32(out, orders, .{ .async = true }); }
task step() void { rounds += 1; if (rounds < 3) { @activate(again); } }
comptime {
  @bind_local_task(dispatch, again);
  @bind_control_task(step, @get_control_task_id(40));
  @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}
"""
    assert run_task(tmp_path, "@activate(again);", text, results={"rounds": "i2"})["rounds"].tolist() == [3]


def test_an_anonymous_struct_of_run_time_values_becomes_a_named_one(tmp_path):
    """As result, argument and assigned value; also within another one."""
    text = """
const S = struct { a: i16, b: f32 };
const T = struct { s: S, v: [2]i16 };
fn make(a: i16) S { return .{ .b = @as(f32, a) * 0.5, .a = a }; }
fn first(s: S) i16 { return s.a + @as(i16, s.b); }
var k: i16 = 6;
var s = S{ .a = 1, .b = 2.0 };
var t: T = T{ .s = S{ .a = 0, .b = 0.0 }, .v = [2]i16{ 0, 0 } };
"""
    body = """
  y[0] = make(k).a;
  y[1] = @as(i16, make(k).b);
  y[2] = first(.{ .a = k, .b = 1.0 });
  s = .{ .a = s.a + k, .b = @as(f32, s.a) };
  y[3] = s.a;
  y[4] = @as(i16, s.b);
  t = .{ .s = .{ .a = k, .b = 3.0 }, .v = .{ k, 2 } };
  y[5] = t.s.a + t.v[0] + t.v[1];
"""
    assert words(tmp_path, body, text, count=6) == [6, 3, 7, 7, 1, 14]
