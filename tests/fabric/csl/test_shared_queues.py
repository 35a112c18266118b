"""Descriptors name color and queue: queues of several colors, colors of several queues, DSRs that two want."""

from __future__ import annotations

import numpy as np

from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from tests.fabric.csl.running import device_of, run_task

COLORS = 12
LAYOUT = f"""
layout {{
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "from.csl");
  @set_tile_code(1, 0, "to.csl");
  for (@range(u16, {COLORS})) |k| {{
    @set_color_config(0, 0, @get_color(k), .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ EAST }} }} }});
    @set_color_config(1, 0, @get_color(k), .{{ .routes = .{{ .rx = .{{ WEST }}, .tx = .{{ RAMP }} }} }});
  }}
}}
"""
START = "comptime { @bind_local_task(job, @get_local_task_id(24)); @activate(@get_local_task_id(24)); }\n"
WORDS = 3


def one_after_the_other(sends: bool) -> str:
    """Return a program that sends or receives words on every color; the receiver begins with the last one."""
    text = f"var data = @zeros([{COLORS}, {WORDS}]i16);\n"
    body = ""
    for k in range(COLORS) if sends else reversed(range(COLORS)):
        text += (
            f"const m{k} = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{WORDS}}} -> data[{k}, i] }});\n"
            f"const f{k} = @get_dsd(fab{'out' if sends else 'in'}_dsd, "
            f".{{ .extent = {WORDS}, .fabric_color = @get_color({k}) }});\n"
        )
        fill = "".join(f"  data[{k}, {i}] = {100 * k + i};\n" for i in range(WORDS))
        body += f"{fill}  @mov16(f{k}, m{k});\n" if sends else f"  @mov16(m{k}, f{k});\n"
    return f"{text}task job() void {{\n{body}}}\n{START}"


def test_more_colors_than_queues(tmp_path):
    files = {"top.csl": LAYOUT, "from.csl": one_after_the_other(True), "to.csl": one_after_the_other(False)}
    device = device_of(tmp_path, files)
    device.settle()
    found = device.symbol(1, 0, "data").reshape(COLORS, WORDS)
    assert found.tolist() == [[100 * k + i for i in range(WORDS)] for k in range(COLORS)]
    sender, receiver = device.bundle.programs
    assert sorted(c for c in sender.outq_color if c >= 0) == list(range(COLORS))
    assert sorted(c for c in receiver.inq_color if c >= 0) == list(range(COLORS))


def test_a_color_of_two_queues_has_their_microthreads(tmp_path):
    """The second operation does not wait for the first one, which nobody lets go on."""
    text = """
const c = @get_color(4);
const never = @get_color(5);
var data = [2]i16{ 1, 2 };
var y: [2]i16;
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> data[i] });
const first = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = c, .output_queue = @get_output_queue(2) });
const second = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = c, .output_queue = @get_output_queue(3) });
const in = @get_dsd(fabin_dsd, .{ .extent = 2, .fabric_color = never, .input_queue = @get_input_queue(6) });
"""
    y = run_task(
        tmp_path,
        "@add16(first, mem, in, .{ .async = true }); y[0] = 1; @mov16(second, mem, .{ .async = true }); y[1] = 1;",
        text,
        results={"y": "i2"},
    )["y"]
    assert y.tolist() == [1, 1]
    image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
    assert (image.outq_color[2], image.outq_color[3]) == (4, 4)


def test_a_descriptor_beside_a_chosen_dsr_may_take_a_chosen_one(tmp_path):
    """The partner of ``dest 1`` is ``src0 1``, which the program loads itself for another operation."""
    decl = """
var a = [4]i16{ 1, 2, 3, 4 };
var b = [4]i16{ 10, 20, 30, 40 };
var y: [4]i16;
const A = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> a[i] });
const B = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> b[i] });
const Y = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> y[i] });
const to = @get_dsr(dsr_dest, 1);
const from = @get_dsr(dsr_src0, 1);
const other = @get_dsr(dsr_src1, 1);
var which: i16 = 1;
"""
    body = """
  for (@range(i16, 2)) |k| {
    @load_to_dsr(to, Y);
    @load_to_dsr(from, A);
    @load_to_dsr(other, B);
    if (k == which) { @add16(to, from, other); } else { @sub16(to, B, other); }
  }
"""
    found = run_task(tmp_path, body, decl, results={"y": "i2"})
    assert found["y"].tolist() == [11, 22, 33, 44]
    zero = run_task(tmp_path, body, decl.replace("which: i16 = 1", "which: i16 = 0"), results={"y": "i2"})
    assert np.array_equal(zero["y"], np.zeros(4))
