"""Forms of the language that public documents have and few public programs use: each with what it must do."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from fabric.host.fabric import Fabric
from tests.fabric.csl.running import device_of, run_task
from wse_core.errors import DeadlockError, QueueFault

ARCHES = ("wse2", "wse3")
VECTORS = """var a = [8]f32{ 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5 };
var y = @zeros([8]f32);
var buffer = @zeros([6]f32);
const from = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] });
const to = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> y[i] });
"""
LINE = """param x: u16;
const by_queue = @is_arch("wse3");
const c = @get_color(3);
const other = @get_color(1);
const out_queue = @get_output_queue(2);
const in_queue = @get_input_queue(2);
const tile = @import_module("<tile_config>");
const control = @import_module("<control>");
var total: u32 = 0;
const out = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .output_queue = out_queue });
const advance = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .output_queue = out_queue, .control = true });
task arrive(v: u32) void { total = total * 10 + v; }
comptime {
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
  if (x > 0) @bind_data_task(arrive, if (by_queue) @get_data_task_id(in_queue) else @get_data_task_id(c));
  if (by_queue) { @initialize_queue(out_queue, .{ .color = c }); @initialize_queue(in_queue, .{ .color = c }); }
}
"""


def line(main, configs, count=2):
    """Return a program of some PEs in a row: what each does, and what it does with its colors."""
    tiles = "\n".join(f'  @set_tile_code({k}, 0, "pe.csl", .{{ .x = {k} }});' for k in range(count))
    layout = f"layout {{\n  @set_rectangle({count}, 1);\n{tiles}\n}}\n"
    pe = LINE + f"task main() void {{ {main} }}\ncomptime {{ {configs} }}\n"
    return {"top.csl": layout, "pe.csl": pe}


def total(device, x):
    """Return what a PE of `line` has received, digit by digit."""
    return int(np.ascontiguousarray(device.symbol(x, 0, "total"), "<u2").view("<u4")[0])


ROUTE = "@set_local_color_config(c, .{ .routes = .{ .rx = .{ if (x == 0) RAMP else WEST }, .tx = .{ if (x == 0) EAST"


@pytest.mark.parametrize("arch", ARCHES)
def test_a_synchronous_operation_on_a_fifo_ends_when_that_is_full_or_empty(tmp_path, arch):
    found = run_task(
        tmp_path,
        "@fmovs(fifo, from); @fmovs(to, fifo); @fmovs(to, fifo);",
        VECTORS,
        "const fifo = @allocate_fifo(buffer);",
        results={"y": "<f4"},
        arch=arch,
    )
    assert found["y"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 0, 0]


@pytest.mark.parametrize("arch", ARCHES)
def test_an_operation_tells_whether_a_fifo_ended_it(tmp_path, arch):
    """Whether the FIFO is the target, a source, or in a DSR; one that does not wait has not been ended yet."""
    body = """
      const some = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i] });
      told[0] = @fmovs(fifo, from);
      while (@fmovs(&last, fifo)) { turns += 1; }
      told[1] = @fmovs(to, fifo);
      told[2] = @fmovs(fifo, some);
      if (!@fmovs(fifo, 7.5)) { turns = 0; }
      @load_to_dsr(held, fifo);
      told[3] = @fadds(some, held, 1.0);
      told[4] = @fadds(some, held, 1.0);
      told[5] = @fmovs(fifo, some) and !@fmovs(from, fifo);
      @load_to_dsr(copied, fifo);
      @fmovs(copied, 9.0);
      told[6] = @fmovs(to, fifo, .{ .async = true });
    """
    words = "var told: [7]bool; var turns: u16; var last: f32; "
    fifo = """const fifo = @allocate_fifo(buffer);
      const held = @get_dsr(dsr_src1, 3); const copied = @get_dsr(dsr_dest, 4);"""
    names = {"told": "u2", "turns": "u2", "last": "<f4", "y": "<f4"}
    found = run_task(tmp_path, body, VECTORS, words, fifo, results=names, arch=arch)
    assert found["told"].tolist() == [0, 0, 1, 1, 0, 1, 1]
    assert (found["turns"].tolist(), found["last"].tolist()) == ([6], [5.5])
    assert found["y"][0] == 9.0


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("if (@fadds(to, from, held)) { k = 1; }", "cannot be told where its operand is one only sometimes"),
        ("@fmovs(to, held);", "how many elements this operation has is not known"),
    ],
)
def test_a_register_that_holds_a_fifo_at_times(tmp_path, operation, message):
    body = "if (k > 0) { @load_to_dsr(held, fifo); } else { @load_to_dsr(held, from); } " + operation
    words = "var k: i16; const held = @get_dsr(dsr_src1, 3); const fifo = @allocate_fifo(buffer);"
    with pytest.raises(CslError, match=message):
        run_task(tmp_path, body, VECTORS, words, results={})


@pytest.mark.parametrize("arch", ARCHES)
def test_a_fifo_may_say_how_many_elements_an_operation_has(tmp_path, arch):
    """What an operation has not done of them is left for the next; without a length the other operand says it."""
    body = """
      @fmovs(fifo, from);
      @set_fifo_read_length(fifo, 2);
      @fmovs(to, fifo);
      @fmovs(&last, fifo);
      @set_fifo_read_length(fifo, n);
      @fadds(&sum, sum, fifo);
      @fmovs(fifo, 7.0);
      @set_fifo_read_length(fifo, 5);
      told[0] = @fmovs(to, fifo);
      seen[0] = y[0];
      @fmovs(fifo, from);
      told[1] = @fmovs(to, fifo);
      told[2] = @fmovs(to, fifo, .{ .async = true });
      @set_fifo_write_length(other, 2);
      @fmovs(other, 8.0);
      told[3] = @fmovs(&seen[1], other) and @fmovs(&seen[1], other) and !@fmovs(&seen[1], other);
    """
    words = """var told: [4]bool; var seen: [2]f32; var last: f32; var sum: f32 = 0.0; var n: u16 = 3;
      var more: [4]f32; const other = @allocate_fifo(more);"""
    names = {"told": "u2", "seen": "<f4", "last": "<f4", "sum": "<f4", "y": "<f4"}
    found = run_task(tmp_path, body, VECTORS, words, "const fifo = @allocate_fifo(buffer);", results=names, arch=arch)
    assert (found["last"].tolist(), found["sum"].tolist()) == ([2.5], [13.5])
    assert (found["told"].tolist(), found["seen"].tolist()) == ([0, 1, 1, 1], [7, 8])
    assert found["y"].tolist() == [4.5, 5.5, 2.5, 3.5, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@set_fifo_write_length(fifo, 2); @fmovs(fifo, from);", "must be the first source here, or the only vector"),
        (
            "@set_fifo_read_length(fifo, 2); @load_to_dsr(@get_dsr(dsr_src1, 3), fifo);",
            "a DSR with a FIFO whose length",
        ),
    ],
)
def test_lengths_of_fifos_that_are_refused(tmp_path, body, message):
    with pytest.raises(CslError, match=message):
        run_task(tmp_path, body, VECTORS, "const fifo = @allocate_fifo(buffer);", results={})


@pytest.mark.parametrize("arch", ARCHES)
def test_two_operations_between_memory_and_a_fifo_run_beside_each_other(tmp_path, arch):
    """One fills a FIFO that is too small for it while the other empties it: each has a microthread of its own."""
    filled = "@fmovs(to, fifo, .{ .async = true }); @fmovs(fifo, from, .{ .async = true });"
    names = {"y": "<f4"}
    found = run_task(tmp_path, filled, VECTORS, "const fifo = @allocate_fifo(buffer);", results=names, arch=arch)
    assert found["y"].tolist() == [k + 0.5 for k in range(8)]


def test_two_queues_of_one_number_share_a_microthread(tmp_path):
    """What fills a FIFO and what empties it stand still on WSE-2, and the message says why."""
    text = """var buffer: [4]f32; const fifo = @allocate_fifo(buffer); const c = @get_color(3);
const in = @get_dsd(fabin_dsd, .{ .extent = 20, .fabric_color = c, .input_queue = @get_input_queue(1) });
const out = @get_dsd(fabout_dsd, .{ .extent = 20, .fabric_color = c, .output_queue = @get_output_queue(1) });
const first = @get_dsd(fabout_dsd, .{ .extent = 8, .fabric_color = c, .output_queue = @get_output_queue(2) });
task job() void { @fmovs(first, 1.0); @fmovs(fifo, in, .{ .async = true }); @fmovs(out, fifo, .{ .async = true }); }
comptime { @set_local_color_config(c, .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
  @bind_local_task(job, @get_local_task_id(8)); @initialize_queue(@get_input_queue(1), .{ .color = c }); }"""
    (tmp_path / "top.csl").write_text(text)
    fabric = Fabric(bundle_of(compile_file(tmp_path / "top.csl", Options())).spec())
    fabric.launch("job")
    with pytest.raises(DeadlockError, match="the fabric's queues number the microthreads"):
        fabric.run()


def test_a_fifo_of_wse3_may_suspend_what_is_synchronous_and_end_what_is_not(tmp_path):
    actions = "const fifo = @allocate_fifo(buffer, .{ .empty_action = .{ .suspend = true } });"
    body = "task job() void { @fmovs(to, fifo); }\ncomptime { @bind_local_task(job, @get_local_task_id(8)); }"
    (tmp_path / "top.csl").write_text("\n".join([VECTORS, actions, body]))
    fabric = Fabric(bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3"))).spec())
    fabric.launch("job")
    with pytest.raises(DeadlockError, match="waits for a FIFO"):
        fabric.run()
    actions = """const fifo = @allocate_fifo(buffer, .{ .empty_action = .{ .terminate = true } });
task after() void { y[0] = 9.0; }
comptime { @bind_local_task(after, @get_local_task_id(9)); }"""
    body = "@fmovs(to, fifo, .{ .async = true, .activate = after });"
    found = run_task(tmp_path, body, VECTORS, actions, results={"y": "<f4"}, arch="wse3")
    assert found["y"].tolist() == [9] + 7 * [0]


@pytest.mark.parametrize(
    ("arch", "action", "message"),
    [
        ("wse2", ".suspend = true", "on WSE-3 only|exists on WSE-3 only"),
        ("wse3", ".fault = true", "'fault' of a FIFO is not modelled"),
        ("wse3", ".terminate = true, .suspend = true", "one 'full_action'"),
        ("wse3", ".wait = true", "has no field 'wait'"),
    ],
)
def test_actions_of_a_fifo_that_are_refused(tmp_path, arch, action, message):
    actions = f"const fifo = @allocate_fifo(buffer, .{{ .full_action = .{{ {action} }} }});"
    with pytest.raises(CslError, match=message):
        run_task(tmp_path, "@fmovs(fifo, from);", VECTORS, actions, results={}, arch=arch)


@pytest.mark.parametrize("arch", ARCHES)
def test_filters_are_numbered_in_the_order_of_their_colors(tmp_path, arch):
    """That of color 3 is the second one; of WSE-3's counters a wavelet is two."""
    filtered = ", .filter = .{ .kind = .{ .counter = true }, .max_counter = 9, .limit1 = 9 } });"
    set_up = f"""const f = @get_filter_id(c); @comptime_assert(f == 1);
      tile.filters.set_max_counter(f, {"2" if arch == "wse3" else "1"});
      tile.filters.set_active_limit(f, {"4" if arch == "wse3" else "2"});"""
    wait = "var k: u16 = 0; while (k < 60) : (k += 1) {} for (@range(u32, 7)) |v| { @mov32(out, v); }"
    files = line(
        f"if (x == 1) {{ {set_up} }} else {{ {wait} }}",
        f"{ROUTE} else RAMP }} }} {filtered} @set_local_color_config(other, .{{ .routes = .{{ .rx = .{{ WEST }} }}"
        f"{filtered}",
    )
    device = device_of(tmp_path, files, arch=arch)
    device.settle()
    assert total(device, 1) == 1346  # 0, 1, not 2, 3, 4, not 5, 6


def test_a_filter_of_the_layout_is_numbered_too(tmp_path):
    """PEs of one file and no params are two programs if the layout filters other colors."""
    layout = """layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl");
  @set_tile_code(1, 0, "pe.csl");
  const filter = .{ .kind = .{ .range = true }, .min_idx = 0, .max_idx = 4 };
  @set_color_config(PE, 0, @get_color(1), .{ .routes = .{ .rx = .{ WEST } }, .filter = filter });
  for (@range(u16, 2)) |x|
    @set_color_config(x, 0, @get_color(3), .{ .routes = .{ .rx = .{ WEST } }, .filter = filter });
}
"""
    pe = """export var number: u16 = @get_filter_id(@get_color(3));
task t() void {}
comptime { @bind_local_task(t, @get_local_task_id(9)); }
"""
    with pytest.raises(CslError, match="other colors from PE to PE"):
        device_of(tmp_path, {"top.csl": layout.replace("PE", "1"), "pe.csl": pe})
    pe = "param x: u16;\n" + pe
    layout = layout.replace('"pe.csl");', '"pe.csl", .{ .x = 0 });', 1).replace('"pe.csl");', '"pe.csl", .{ .x = 1 });')
    device = device_of(tmp_path, {"top.csl": layout.replace("PE", "1"), "pe.csl": pe})
    assert [int(device.symbol(x, 0, "number")[0]) for x in (0, 1)] == [0, 1]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (".kind = .{ .sparse_counter = true }, .limit1 = 3, .limit2 = 4", "sparse_counter is not modelled"),
        (".kind = .{ .counter = true }, .max_counter = 3", "needs .limit1"),
        (".kind = .{ .range = true }, .max_counter = 3, .min_idx = 0, .max_idx = 1", "has no field 'max_counter'"),
    ],
)
def test_filters_that_are_refused(tmp_path, filter, message):
    config = f"@set_local_color_config(c, .{{ .routes = .{{ .rx = .{{ WEST }} }}, .filter = .{{ {filter} }} }});"
    with pytest.raises(CslError, match=message):
        device_of(tmp_path, line("", config))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("ring", [True, False])
def test_ring_mode_while_running(tmp_path, arch, ring):
    """Behind its last position a switch stays, or begins again."""
    send = """for (@range(u32, 1, 6, 1)) |v| {
      @mov32(out, v);
      @mov32(advance, control.encode_single_payload(control.opcode.SWITCH_ADV, true, {}, 0)); }"""
    mode = f"tile.switch_config.{'set' if ring else 'clear'}_ring_mode(c);"
    # the sender is in the middle
    config = f"""const routes = if (x == 1) .{{ .rx = .{{ RAMP }}, .tx = .{{ WEST }} }} else
      .{{ .rx = .{{ if (x == 0) EAST else WEST }}, .tx = .{{ RAMP }} }};
      @set_local_color_config(c, if (x == 1) .{{ .routes = routes, .switches = .{{ .pos1 = .{{ .tx = EAST }},
        .ring_mode = {"false" if ring else "true"} }} }} else .{{ .routes = routes }});"""
    files = line(f"if (x == 1) {{ {mode} {send} }}", config, 3)
    files["pe.csl"] = files["pe.csl"].replace("if (x > 0) @bind", "if (x != 1) @bind")
    device = device_of(tmp_path, files, arch=arch)
    device.settle()
    assert (total(device, 0), total(device, 2)) == ((135, 24) if ring else (1, 2345))


@pytest.mark.parametrize("mode", [0, 1])
def test_pop_mode_of_wse3_while_running(tmp_path, mode):
    """Of a payload of two commands the second PE sees the first if nothing is popped, else the second."""
    words = (
        "const words = control.encode_payload(2, .{ control.opcode.SWITCH_ADV, control.opcode.NOP }, ALL, true, {});"
    )
    words = words.replace("ALL", ".{ true, true }")
    send = f"{words} @mov32(advance, words); for (@range(u32, 1, 3, 1)) |v| @mov32(out, v);"
    wait = "var k: u16 = 0; while (k < 60) : (k += 1) {}"
    name = ("NO_POP", "ALWAYS_POP")[mode]
    set_up = f"tile.switch_config.set_pop_mode(c, tile.switch_config.pop_mode.{name});"
    config = """@set_local_color_config(c, if (x == 0) .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }
      else if (x == 1) .{ .routes = .{ .rx = .{ WEST }, .tx = .{ EAST } } }
      else if (x == 2) .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } }, .switches = .{ .pos1 = .{ .tx = EAST } } }
      else .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });"""
    main = f"if (x == 0) {{ {wait} {send} }} if (x == 1) {{ {set_up} }}"
    device = device_of(tmp_path, line(main, config, 4), arch="wse3")
    device.settle()
    assert (total(device, 2), total(device, 3)) == ((12, 0) if mode else (0, 12))


def test_both_sides_of_a_switch_position_at_once(tmp_path):
    set_up = (
        "tile.switch_config.set_rxtx_switch_pos1(c, WEST, RAMP); tile.switch_config.set_current_switch_position(c, 1);"
    )
    config = """@set_local_color_config(c, if (x == 0) .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } }
      else .{ .routes = .{ .rx = .{ EAST }, .tx = .{ SOUTH } } });"""
    files = line(f"if (x == 1) {{ {set_up} }} else {{ @mov32(out, @as(u32, 7)); }}", config)
    device = device_of(tmp_path, files, arch="wse3")
    device.settle()
    assert total(device, 1) == 7


@pytest.mark.parametrize(("mode", "wavelets"), [("simd_max", 2), ("simd_off", 4)])
def test_modes_of_wse3_for_elements_of_16_bits(tmp_path, mode, wavelets):
    send = f"""const halves = @get_dsd(fabout_dsd, .{{ .extent = 4, .output_queue = out_queue,
      .simd_mode = .{{ .{mode} = true }} }}); if (x == 0) @mov16(halves, from);"""
    files = line(send, f"{ROUTE} else RAMP }} }} }});")
    files["pe.csl"] += """var four = [4]u16{ 1, 2, 3, 4 };
const from = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> four[i] });
var count: u16 = 0;
"""
    files["pe.csl"] = files["pe.csl"].replace("{ total = total", "{ count += 1; total = total")
    device = device_of(tmp_path, files, arch="wse3")
    device.settle()
    assert device.symbol(1, 0, "count")[0] == wavelets
    with pytest.raises(CslError, match=rf"no simd mode '{mode}' on WSE-2"):
        device_of(tmp_path, files, arch="wse2")


@pytest.mark.parametrize("arch", ARCHES)
def test_calls_may_lie_deeper_than_the_machine_has_return_addresses(tmp_path, arch):
    count = 20
    chain = "".join(f"noinline fn f{k}(v: i16) i16 {{ return f{k + 1}(v + 1) + v; }}\n" for k in range(count))
    chain += f"noinline fn f{count}(v: i16) i16 {{ return v; }}\nvar r: i16 = 0;"
    assert run_task(tmp_path, "r = f0(1);", chain, results={"r": "<i2"}, arch=arch)["r"][0] == sum(range(1, count + 2))


@pytest.mark.parametrize(
    ("arch", "operation"),
    [
        ("wse3", "@fmovs(@get_dsd(fabout_dsd, .{ .extent = 8, .output_queue = @get_output_queue(5) }), from);"),
        ("wse3", "@fmovs(to, @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = @get_input_queue(5) }));"),
        ("wse2", "@fmovs(to, @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = @get_input_queue(5) }));"),
    ],
)
def test_a_queue_that_was_never_bound_is_a_fault_when_it_is_used(tmp_path, arch, operation):
    """Public programs keep descriptors of such queues in code that they do not come to (residual)."""
    late = f"if (flag) {{ {operation} }}"
    with pytest.raises(QueueFault, match=r"\(queue 5\)(?s:.*)@initialize_queue(?s:.*)in top.csl:") as caught:
        run_task(tmp_path, late, VECTORS, "var flag = true;", results={}, arch=arch)
    assert caught.value.x == 0
    found = run_task(tmp_path, late + " y[0] = 3.0;", VECTORS, "var flag = false;", results={"y": "<f4"}, arch=arch)
    assert found["y"][0] == 3


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("arch", ARCHES)
def test_a_deadlock_names_a_task_that_was_activated_while_it_waited(tmp_path, arch, backend):
    """Activations are not counted: a task that is to run once per operation needs an id per operation."""
    pe = """var n: u16 = 0;
const id = @get_local_task_id(9);
const in = @get_dsd(fabin_dsd, .{ .extent = 1, .fabric_color = @get_color(2), .input_queue = @get_input_queue(2) });
var got: u32 = 0;
task job() void { @activate(id); @activate(id); }
task once() void { n += 1; if (n == 1) { @mov32(&got, in, .{ .async = true }); } }
comptime {
  @bind_local_task(job, @get_local_task_id(8));
  @bind_local_task(once, id);
  @activate(@get_local_task_id(8));
  @initialize_queue(@get_input_queue(2), .{ .color = @get_color(2) });
}
"""
    (tmp_path / "top.csl").write_text(pe)
    bundle = bundle_of(compile_file(tmp_path / "top.csl", Options(arch=arch)))
    with pytest.raises(DeadlockError, match=r"task 'once' was activated again before it had begun") as caught:
        Fabric(bundle.spec(), backend).run()
    assert "activations are not counted" in str(caught.value)
