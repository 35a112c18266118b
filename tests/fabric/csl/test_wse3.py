"""Programs for WSE-3: queues in the place of colors, microthreads with ids of their own, what each machine refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, read_bundle, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.diagnostics import CslError
from fabric.host.fabric import Fabric
from harness.sdk.device import SdkDevice
from tests.fabric.csl.running import device_of, run_task
from wse_core import isa
from wse_core.errors import ConfigError, DeadlockError, WseError
from wse_core.params import machine

LAYOUT = """layout {{
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "send.csl", .{{}});
  @set_tile_code(1, 0, "take.csl", .{{}});
  const c = @get_color({color});
  @set_color_config(0, 0, c, .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ EAST }} }} }});
  @set_color_config(1, 0, c, .{{ .routes = .{{ .rx = .{{ WEST }}, .tx = .{{ RAMP }} }} }});
}}
"""
SEND = """const c = @get_color({color});
const q = @get_output_queue({out});
var x = [4]f32{{ 1.0, 2.0, 3.0, 4.0 }};
const mem = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> x[i] }});
const out = @get_dsd(fabout_dsd, if (@is_arch("wse3"))
  .{{ .extent = 4, .output_queue = q }} else .{{ .extent = 4, .output_queue = q, .fabric_color = c }});
task main() void {{ @fmovs(out, mem, .{{ .async = true }}); }}
comptime {{
  if (@is_arch("wse3")) @initialize_queue(q, .{{ .color = c }});
  @bind_local_task(main, @get_local_task_id(9));
  @activate(@get_local_task_id(9));
}}
"""
# The color and a local task have the same number, which only WSE-2 must tell apart.
TAKE = """const c = @get_color({color});
const q = @get_input_queue({into});
const arrive_id = if (@is_arch("wse3")) @get_data_task_id(q) else @get_data_task_id(c);
const other_id = @get_local_task_id({local});
var total: f32 = 0.0;
var count: u16 = 0;
var ends: u16 = 0;
task arrive(x: f32) void {{
  total += x;
  count += 1;
  if (count == 2) {{ @block(if (@is_arch("wse3")) q else c); @activate(other_id); }}
}}
task other() void {{ ends += 1; @unblock(if (@is_arch("wse3")) q else c); }}
comptime {{
  if (@is_arch("wse3")) @initialize_queue(q, .{{ .color = c }});
  @bind_data_task(arrive, arrive_id);
  @bind_local_task(other, other_id);
}}
"""


def sources(color=12, out=2, into=3, local=12):
    """Return one program for both machines: a PE sends four numbers, the other adds them in a data task."""
    values = {"color": color, "out": out, "into": into, "local": local}
    return {"top.csl": LAYOUT.format(**values), "send.csl": SEND.format(**values), "take.csl": TAKE.format(**values)}


def totals(device):
    """Return what the receiving PE of `sources` has."""
    device.settle()
    total = np.ascontiguousarray(device.symbol(1, 0, "total"), "<u2").view("<f4")[0]
    return float(total), *(int(device.symbol(1, 0, name)[0]) for name in ("count", "ends"))


@pytest.mark.parametrize(
    ("arch", "given"),
    [
        ("wse2", {"local": 8}),
        ("wse3", {}),  # local task 12 beside color 12
        ("wse3", {"color": 3, "into": 7, "local": 30}),
        ("wse3", {"color": 20, "out": 7, "into": 0, "local": 20}),
    ],
)
def test_one_source_for_both_machines(tmp_path, arch, given):
    assert totals(device_of(tmp_path, sources(**given), arch=arch)) == (10.0, 4, 1)


def test_engines_agree_and_the_data_task_has_its_queues_number(tmp_path):
    files = sources()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    bundle = bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3")))
    assert [image.data_tasks for image in bundle.programs] == [0, 1 << 3]
    runs = []
    for backend in ("compiled", "reference"):
        fabric = Fabric(bundle.spec(), backend)
        result = fabric.run()
        runs.append((result.cycles, result.wavelet_hops, fabric.read("total", 1, 0).ravel().tolist()))
    assert runs[0] == runs[1]
    assert runs[0][2] == [10.0]


def test_what_was_compiled_knows_its_architecture(tmp_path):
    for name, text in sources().items():
        (tmp_path / name).write_text(text)
    write_bundle(bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3"))), tmp_path / "out")
    bundle = read_bundle(tmp_path / "out")
    assert bundle.spec().machine.preset == "wse3"
    assert totals(SdkDevice(bundle, tmp_path)) == (10.0, 4, 1)
    with pytest.raises(ConfigError, match=r"compiled for wse3, and the machine is wse2"):
        bundle.spec(machine("wse2"))


def test_microthreads_have_ids_of_their_own(tmp_path):
    """Two receives on one microthread come one after the other; on two they run side by side."""
    template = """const c = @get_color(1);
const d = @get_color(2);
const qc = @get_input_queue(2);
const qd = @get_input_queue(3);
var x: [8]f32; var y: [8]f32;
var z: [200]f32;
const idle = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{200} -> z[i] });
const mx = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> x[i] });
const my = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> y[i] });
const inc = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = qc });
const ind = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = qd });
task job() void {
  @fmovs(mx, inc, .{ .async = true, .ut_id = @get_ut_id(FIRST) });
  @fmovs(my, ind, .{ .async = true, .ut_id = @get_ut_id(SECOND) });
}
comptime {
  @initialize_queue(qc, .{ .color = c });
  @initialize_queue(qd, .{ .color = d });
  @bind_local_task(job, @get_local_task_id(8));
}
"""
    (tmp_path / "a.csl").write_text(template.replace("FIRST", "5").replace("SECOND", "6"))
    (image,) = bundle_of(compile_file(tmp_path / "a.csl", Options(arch="wse3"))).programs
    named = [isa.async_fields(imm)["ut"] for _, op, *_, imm in isa.decode(image.code) if op.name == "fmovs"]
    assert named == [5, 6]


WRONG = {
    "data task of a color": ("const id = ¶@get_data_task_id(@get_color(3));", "belongs to an input queue"),
    "local id of a queue": ("const id = @get_local_task_id(¶7);", "7 is not the id of a local task on wse3"),
    "too many queues": ("const q = @get_output_queue(¶8);", "there are 0 to 7"),
    "no such microthread": ("const u = @get_ut_id(¶8);", "there are 0 to 7"),
    "descriptor without a queue": (
        "const d = @get_dsd(fabin_dsd, ¶.{ .extent = 1, .fabric_color = @get_color(1) });",
        "names its queue",
    ),
    "priority of a queue": (
        "comptime { @initialize_queue(@get_input_queue(2), ¶.{ .color = @get_color(1), "
        ".priority = .{ .high = true } }); }",
        "has no field 'priority' on wse3",
    ),
    "table of control tasks": ("comptime { @set_control_task_table(¶.{ .stride = 9 }); }", "no 'stride' of this value"),
}
NEEDED = "\ncomptime {{ _ = {}; }}\n"


@pytest.mark.parametrize("case", WRONG)
def test_what_wse3_refuses_has_a_place_and_a_reason(tmp_path, case):
    text, words = WRONG[case]
    if text.startswith("const"):
        text += NEEDED.format(text.split()[1])
    place = text.index("¶")
    (tmp_path / "a.csl").write_text(text.replace("¶", ""))
    with pytest.raises(CslError) as caught:
        compile_file(tmp_path / "a.csl", Options(arch="wse3"))
    (found,) = caught.value.diagnostics
    assert words in found.message
    assert found.span.start == place


@pytest.mark.parametrize("line", ["const u = @get_ut_id(2);", "comptime { @set_control_task_table(.{}); }"])
def test_what_only_wse3_has_is_refused_for_wse2(tmp_path, line):
    text = line + (NEEDED.format("u") if line.startswith("const") else "")
    (tmp_path / "a.csl").write_text(text)
    with pytest.raises(CslError, match="exists on WSE-3 only"):
        compile_file(tmp_path / "a.csl", Options())
    compile_file(tmp_path / "a.csl", Options(arch="wse3"))


ROUTES = {
    "two inputs": (3, ".routes = .{ .rx = .{ WEST, RAMP }, .tx = .{ EAST } }", "takes from 2 directions at once"),
    "a switch where there is none": (
        10,
        ".routes = .{ .rx = .{ WEST }, .tx = .{ EAST } }, .switches = .{ .pos1 = .{ .rx = NORTH } }",
        "color 10 has no switch on wse3",
    ),
    "swap": (4, ".routes = .{ .rx = .{ WEST }, .tx = .{ EAST }, .color_swap_x = true }", "no color swap"),
}


@pytest.mark.parametrize("case", ROUTES)
def test_routes_that_only_wse2_has(tmp_path, case):
    color, config, words = ROUTES[case]
    (tmp_path / "pe.csl").write_text("comptime { }\n")
    (tmp_path / "top.csl").write_text(
        'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); '
        f"@set_color_config(0, 0, @get_color({color}), .{{ {config} }}); }}\n"
    )
    with pytest.raises(CslError, match=words):
        bundle_of(compile_file(tmp_path / "top.csl", Options(arch="wse3")))
    bundle_of(compile_file(tmp_path / "top.csl", Options()))


def test_a_color_beside_the_queue_must_be_that_of_the_queue(tmp_path):
    files = sources()
    files["send.csl"] = files["send.csl"].replace(".{ .extent = 4, .output_queue = q } else", ".{ .extent = 4, "
    ".output_queue = q, .fabric_color = @get_color(13) } else")  # fmt: skip
    with pytest.raises(CslError, match=r"says color 13, but output queue 2 has color 12"):
        device_of(tmp_path, files, arch="wse3")


def test_a_control_task_may_not_have_another_tasks_id_without_a_table(tmp_path):
    text = """task a() void { }
task b() void { }
comptime {
  TABLE
  @bind_local_task(a, @get_local_task_id(9));
  @bind_control_task(b, @get_control_task_id(9));
}
"""
    (tmp_path / "a.csl").write_text(text.replace("TABLE", ""))
    with pytest.raises(CslError, match="a control task and another have the id 9"):
        compile_file(tmp_path / "a.csl", Options(arch="wse3"))
    (tmp_path / "b.csl").write_text(text.replace("TABLE", "@set_control_task_table(.{ .instructions = 2 });"))
    compile_file(tmp_path / "b.csl", Options(arch="wse3"))
    compile_file(tmp_path / "a.csl", Options())


def test_wide_operations_take_eight_half_words_a_cycle(tmp_path):
    """So an operation of 256 half words more takes 32 cycles more; how it begins and ends is the same."""
    spent = {}
    for length in (256, 512):
        (place := tmp_path / str(length)).mkdir()
        found = run_task(
            place,
            "time.get_timestamp(&t0); @faddh(d, s, q); time.get_timestamp(&t1);",
            "var a: [516]f16; var b: [512]f16;",
            f"const s = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{length}}} -> a[i] }});",
            f"const q = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{length}}} -> a[i + 4] }});",  # another bank
            f"const d = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{length}}} -> b[i] }});",
            'const time = @import_module("<time>");',
            "var t0: [3]u16; var t1: [3]u16;",
            results={"t0": "<u2", "t1": "<u2"},
            arch="wse3",
        )
        spent[length] = int(found["t1"][0]) - int(found["t0"][0])
    assert spent[512] - spent[256] == 32


HELD = """const c = @get_color(3);
const into = @get_input_queue(2);
const back = @get_output_queue(3);
const ut = @get_ut_id(6);
var x: [8]u32;
var seen: [3]u16;
var y = [8]u32{ 1, 2, 3, 4, 5, 6, 7, 8 };
var z: [200]f32;
const idle = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{200} -> z[i] });
const mx = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> x[i] });
const my = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> y[i] });
const in = @get_dsd(fabin_dsd, .{ .extent = 8, .input_queue = into });
const out = @get_dsd(fabout_dsd, .{ .extent = 8, .output_queue = back });
const done_id = @get_local_task_id(9);
task job() void {
  @block(BLOCKED);
  @mov32(mx, in, .{ .async = true, .ut_id = ut, .activate = done_id });
  @mov32(out, my);                    // of another thread: goes on
  @fmuls(idle, idle, 2.0);            // long enough for all words to come
  seen[0] = @as(u16, x[0]);
  @assert(seen[0] == 0);
  @unblock(BLOCKED);
  seen[2] = 1;
}
task done() void { seen[2] += 1; }
comptime {
  @initialize_queue(into, .{ .color = c });
  @initialize_queue(back, .{ .color = c });
  @bind_local_task(job, @get_local_task_id(8));
  @bind_local_task(done, done_id);
  @activate(@get_local_task_id(8));
}
"""
LOOP = """layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{});
  @set_color_config(0, 0, @get_color(3), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ RAMP } } });
}
"""


def held(directory, blocked, text=HELD):
    """Return the device with the program on it."""
    (directory / "layout.csl").write_text(LOOP)
    (directory / "pe.csl").write_text(text.replace("BLOCKED", blocked))
    write_bundle(bundle_of(compile_file(directory / "layout.csl", Options(arch="wse3"))), directory / "out")
    device = SdkDevice(read_bundle(directory / "out"), directory / "out")
    device.settle()
    return device


def test_a_blocked_microthread_takes_no_word_until_it_is_unblocked(tmp_path):
    device = held(tmp_path, "ut")
    assert device.symbol(0, 0, "x").view(np.uint32).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert device.symbol(0, 0, "seen")[0] == 0
    assert device.symbol(0, 0, "seen")[2] == 2
    with pytest.raises(WseError):  # another thread is none of its business: words come at once
        held(tmp_path, "@get_ut_id(5)").fabric.run()


def test_a_microthread_that_nobody_unblocks_is_said_to_wait(tmp_path):
    text = HELD.replace("  @unblock(BLOCKED);\n", "")
    device = held(tmp_path, "ut", text)
    with pytest.raises(DeadlockError, match="microthread 6, mov32.*0 of 8 elements"):
        device.fabric.run()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("comptime { @block(¶@get_ut_id(2)); }", "is for a program that runs"),
        ("var u = @get_ut_id(2);\ntask t() void { @block(¶u); }", "must be known when the program is compiled"),
    ],
)
def test_what_cannot_be_known_of_a_microthread_is_refused(tmp_path, line, words):
    (tmp_path / "a.csl").write_text(
        line.replace("¶", "") + "\ncomptime { @bind_local_task(t, @get_local_task_id(9)); }"
    )
    with pytest.raises(CslError) as caught:
        compile_file(tmp_path / "a.csl", Options(arch="wse3"))
    assert any(words in entry.message for entry in caught.value.diagnostics)


ROTATING = """const c = @get_color(3);
const into = @get_input_queue(2);
const back = @get_output_queue(3);
var y = [10]u32{ 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x1000a };
const my = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{10} -> y[i] });
const out = @get_dsd(fabout_dsd, .{ .extent = 10, .output_queue = back });
var kept: [10]u32;
var at: u16 = 0;
var others = @zeros([4]u16);
task take(word: u32) void { kept[at] = word; at += 1; }
task other(word: u16) void { others[others[0] + 1] = word; others[0] += 1; }
task job() void { @mov32(out, my); }
comptime {
  @initialize_queue(into, .{ .color = c });
  @initialize_queue(back, .{ .color = c });
  @bind_rotating_tasks(take, other, @get_data_task_id(into), .{ .init = INIT, .limit = LIMIT });
  @bind_local_task(job, @get_local_task_id(8));
  @activate(@get_local_task_id(8));
}
"""


@pytest.mark.parametrize(("init", "limit", "instead"), [(0, 3, [4, 8]), (2, 4, [3, 8]), (0, 9, [10]), (1, 0, [])])
def test_another_task_starts_when_the_counter_is_at_its_limit(tmp_path, init, limit, instead):
    """Each start compares first: at the limit the other task runs and the counter begins anew, else it counts."""
    device = held(tmp_path, "", ROTATING.replace("INIT", str(init)).replace("LIMIT", str(limit)))
    words = [*range(1, 10), 0x1000A]
    kept = device.symbol(0, 0, "kept").view(np.uint32).tolist()
    others = device.symbol(0, 0, "others").tolist()
    assert others[1 : 1 + others[0]] == instead
    assert kept[: device.symbol(0, 0, "at")[0]] == [word for word in words if word & 0xFFFF not in instead]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (".{ .init = 0 }", "'init' and 'limit'"),
        (".{ .init = 0, .limit = 70000 }", "numbers of 16 bits"),
        ("3", "struct"),
    ],
)
def test_a_counter_of_tasks_is_two_numbers(tmp_path, config, words):
    text = ROTATING.replace(".{ .init = INIT, .limit = LIMIT }", config)
    with pytest.raises(CslError, match=words):
        held(tmp_path, "", text)
    with pytest.raises(CslError, match="exists on WSE-3 only"):
        (tmp_path / "a.csl").write_text(
            "task t(w: u32) void {}\ncomptime { @bind_rotating_tasks(t, t, @get_data_task_id(@get_color(3)), 3); }"
        )
        compile_file(tmp_path / "a.csl", Options())
