"""Queues of WSE-3 that get other colors while a program runs, and what runs when one is empty."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from fabric.host.fabric import Fabric
from tests.fabric.csl.running import device_of
from wse_core.errors import DeadlockError

SIZE, LATE = 24, 400
LAYOUT = """layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "send.csl");
  @set_tile_code(1, 0, "take.csl");
  for ([3]u16{ 1, 2, 4 }) |c| {
    @set_color_config(0, 0, @get_color(c), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
    @set_color_config(1, 0, @get_color(c), .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  }
}
"""
SEND = f"""const q = @get_output_queue(2);
const tile = @import_module("<tile_config>");
const time = @import_module("<time>");
const next_id = @get_local_task_id(9);
const sent_id = @get_local_task_id(10);
const colors = [3]u16{{ 1, 2, 4 }};
var n: u16 = 0;
var ends = @zeros([3]u16);
var stamp = @zeros([3]u16);
var x = @zeros([{SIZE}]u32);
const from = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{SIZE}}} -> x[i] }});
const out = @get_dsd(fabout_dsd, .{{ .extent = {SIZE}, .output_queue = q }});
task next() void {{
  for (@range(u16, {SIZE})) |i| x[i] = 100 * @as(u32, n) + @as(u32, i);
  @mov32(out, from, .{{ .async = true, .activate = sent_id }});
}}
task sent() void {{ @queue_flush(q); }}
fn empty() void {{
  time.get_timestamp(&stamp);
  ends[n] = stamp[0];
  n += 1;
  if (n < 3) {{
    tile.output_queue_config.encode_output_queue(2, @bitcast(i16, colors[n]));
    @activate(next_id);
  }}
  tile.queue_flush.exit(q);
}}
comptime {{
  @initialize_queue(q, .{{ .color = @get_color(1) }});
  @set_empty_queue_handler(empty, q);
  @bind_local_task(next, next_id);
  @bind_local_task(sent, sent_id);
  @activate(next_id);
}}
"""
TAKE = f"""const q = @get_input_queue(3);
const tile = @import_module("<tile_config>");
const next_id = @get_local_task_id(9);
const took_id = @get_local_task_id(10);
const colors = [3]u16{{ 1, 2, 4 }};
var n: u16 = 0;
var got = @zeros([3, {SIZE}]u32);
var to = @get_dsd(mem1d_dsd, .{{ .base_address = &got, .extent = {SIZE} }});
const in = @get_dsd(fabin_dsd, .{{ .extent = {SIZE}, .input_queue = q }});
task next() void {{
  if (n == 0) {{ var k: u16 = 0; while (k < {LATE}) : (k += 1) {{}} }}
  @mov32(to, in, .{{ .async = true, .activate = took_id }});
}}
task took() void {{
  to = @increment_dsd_offset(to, {SIZE}, u32);
  n += 1;
  if (n < 3) {{
    tile.input_queue_config.encode_input_queue(3, @bitcast(i16, colors[n]), false);
    @activate(next_id);
  }}
}}
comptime {{
  @initialize_queue(q, .{{ .color = @get_color(1) }});
  @bind_local_task(next, next_id);
  @bind_local_task(took, took_id);
  @activate(next_id);
}}
"""
FILES = {"top.csl": LAYOUT, "send.csl": SEND, "take.csl": TAKE}


def words(device, x, name, kind):
    return np.ascontiguousarray(device.symbol(x, 0, name), "<u2").view(kind)


def test_a_queue_serves_three_colors_one_after_the_other(tmp_path):
    device = device_of(tmp_path, FILES, arch="wse3")
    device.settle()
    wanted = [[100 * n + i for i in range(SIZE)] for n in range(3)]
    assert words(device, 1, "got", "<u4").reshape(3, SIZE).tolist() == wanted
    ends = words(device, 0, "ends", "<u2").tolist()
    assert ends == sorted(ends)
    # More words than both queues and the routers between them hold: nothing is empty before the other PE takes some.
    assert ends[0] > LATE


def test_both_engines_take_the_same_cycles(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    bundle = bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3")))
    runs = []
    for backend in ("compiled", "reference"):
        fabric = Fabric(bundle.spec(), backend)
        result = fabric.run()
        runs.append((result.cycles, result.wavelet_hops, fabric.read("ends", 0, 0).ravel().tolist()))
    assert runs[0] == runs[1]
    assert runs[0][1] == 2 * 3 * SIZE


def test_a_flush_of_an_empty_queue_calls_the_handler_at_once(tmp_path):
    pe = """const q = @get_output_queue(2);
var n: u16 = 0;
const tile = @import_module("<tile_config>");
var during: u16 = 0;
var after: u16 = 9;
task job() void { @queue_flush(q); }
fn empty() void {
  n += 1;
  during = @as(u16, tile.queue_flush.is_flushed(q));
  tile.queue_flush.exit(q);
  after = @as(u16, tile.queue_flush.is_flushed(q));
}
comptime {
  @initialize_queue(q, .{ .color = @get_color(1) });
  @set_empty_queue_handler(empty, q);
  @bind_local_task(job, @get_local_task_id(8));
  @activate(@get_local_task_id(8));
}
"""
    device = device_of(tmp_path, {"top.csl": pe}, arch="wse3")
    device.settle()
    assert [int(device.symbol(0, 0, name)[0]) for name in ("n", "during", "after")] == [1, 1, 0]


@pytest.mark.parametrize(("first", "wanted"), [(2, (1, 0)), (3, (0, 1))])
def test_of_two_queues_the_one_that_is_flushed_and_empty_is_handled(tmp_path, first, wanted):
    """What the other one sent stands still, since nobody takes it."""
    pe = f"""const a = @get_output_queue(2);
const b = @get_output_queue(3);
const tile = @import_module("<tile_config>");
var of_a: u16 = 0;
var of_b: u16 = 0;
const out = @get_dsd(fabout_dsd, .{{ .extent = 4, .output_queue = @get_output_queue({5 - first}) }});
task job() void {{ @mov32(out, @as(u32, 7)); @queue_flush(@get_output_queue({5 - first})); again(); }}
fn again() void {{ @activate(@get_local_task_id(9)); }}
task other() void {{ @queue_flush(@get_output_queue({first})); }}
fn empty_a() void {{ of_a += 1; tile.queue_flush.exit(a); }}
fn empty_b() void {{ of_b += 1; tile.queue_flush.exit(b); }}
comptime {{
  @initialize_queue(a, .{{ .color = @get_color(1) }});
  @initialize_queue(b, .{{ .color = @get_color(2) }});
  @set_empty_queue_handler(empty_a, a);
  @set_empty_queue_handler(empty_b, b);
  @bind_local_task(job, @get_local_task_id(8));
  @bind_local_task(other, @get_local_task_id(9));
  @activate(@get_local_task_id(8));
}}
"""
    (tmp_path / "top.csl").write_text(pe)
    fabric = Fabric(bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3"))).spec())
    with pytest.raises(DeadlockError, match="waits for room in output queue"):
        fabric.run()
    found = tuple(int(fabric.read(name, 0, 0).ravel()[0]) for name in ("of_a", "of_b"))
    assert found == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("@set_empty_queue_handler(empty, q);", ""), "nothing happens when this queue is empty"),
        (("@queue_flush(q)", "@queue_flush(@get_input_queue(2))"), "@queue_flush of an input queue is not modelled"),
        (("encode_output_queue(2,", "encode_output_queue(5,"), "output_queue 5 gets another color, but has none"),
        (("encode_output_queue(2,", "encode_output_queue(n,"), "the queue must be known"),
        (("task sent() void {", "task wrong() void {} task sent() void {"), None),
        (("@activate(next_id);\n}", "@bind_local_task(sent, @get_local_task_id(29));\n}"), "needed for handlers"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    files = {**FILES, "send.csl": SEND.replace(*change)}
    if message is None:
        device_of(tmp_path, files, arch="wse3")
        return
    with pytest.raises(CslError, match=message):
        device_of(tmp_path, files, arch="wse3")


def test_dsrs_and_filters_that_are_refused(tmp_path):
    load = "task next() void { @load_to_dsr(@get_dsr(dsr_src1, 3), in);"
    files = {**FILES, "take.csl": TAKE.replace("task next() void {", load)}
    with pytest.raises(CslError, match="a DSR with input_queue 3, which gets another color"):
        device_of(tmp_path, files, arch="wse3")
    known = TAKE.replace("@bitcast(i16, colors[n]), false", "4, true")
    with pytest.raises(CslError, match="color 4 has no filter, and filter_enable is true"):
        device_of(tmp_path, {**FILES, "take.csl": known}, arch="wse3")


def test_wse2_has_no_flush(tmp_path):
    with pytest.raises(CslError, match="exists on WSE-3 only"):
        device_of(tmp_path, {"top.csl": "task t() void { @queue_flush(@get_output_queue(2)); }\n"
                  "comptime { @bind_local_task(t, @get_local_task_id(9)); }\n"})  # fmt: skip
