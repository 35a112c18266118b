"""Descriptors of the fabric are chosen, stored, passed and made while a program runs: colors and queues differ.

A PE sends four words to itself on one of two colors and takes them from the color that is expected, so that a wrong
choice stands still.
"""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.running import run_task
from wse_core.errors import WseError

DECLARATIONS = """
const red: color = @get_color(4);
const blue: color = @get_color(5);
var k: u16 = {k};
var n: u16 = 4;
var a = [4]u32{{ 1, 2, 3, 4 }};
var b = @zeros([4]u32);
const from_a = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> a[i] }});
const to_b = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> b[i] }});
const out_red = @get_dsd(fabout_dsd, .{{ .extent = 4, .fabric_color = red, .output_queue = @get_output_queue(2) }});
const out_blue = @get_dsd(fabout_dsd, .{{ .extent = 4, .fabric_color = blue, .output_queue = @get_output_queue(3) }});
const in_red = @get_dsd(fabin_dsd, .{{ .extent = 4, .fabric_color = red, .input_queue = @get_input_queue(2) }});
const in_blue = @get_dsd(fabin_dsd, .{{ .extent = 4, .fabric_color = blue, .input_queue = @get_input_queue(3) }});
fn expect() void {{ if (k == 1) {{ @mov32(to_b, in_blue); }} else {{ @mov32(to_b, in_red); }} }}
comptime {{
  @set_local_color_config(red, .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ RAMP }} }} }});
  @set_local_color_config(blue, .{{ .routes = .{{ .rx = .{{ RAMP }}, .tx = .{{ RAMP }} }} }});
  @block(red); @block(blue);
}}
"""
SEND = "@mov32(out, from_a, .{ .async = true }); expect();"

CASES = {
    "a const of a choice": ("", f"const out = if (k == 1) out_blue else out_red; {SEND}"),
    "a local variable": ("", f"var out = out_red; if (k == 1) {{ out = out_blue; }} {SEND}"),
    "a local without a value": (
        "",
        f"var out: fabout_dsd; if (k == 1) {{ out = out_blue; }} else {{ out = out_red; }} {SEND}",
    ),
    "a global": ("var out: fabout_dsd;", f"out = if (k == 1) out_blue else out_red; {SEND}"),
    "a global that begins with one": ("var out = out_red;", f"if (k == 1) {{ out = out_blue; }} {SEND}"),
    "from one global to another": (
        "var first: fabout_dsd; var out: fabout_dsd;",
        f"first = if (k == 1) out_blue else out_red; out = first; {SEND}",
    ),
    "another length": (
        "var out: fabout_dsd; const short = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = red, "
        ".output_queue = @get_output_queue(2) });",
        f"out = if (k == 1) out_blue else short; out = @set_dsd_length(out, n); {SEND}",
    ),
    "a loop over some": (
        "var outs = [2]fabout_dsd{ out_red, out_red };",
        "outs[1] = out_blue; for (outs) |out, i| { if (i != k) { continue; } "
        "@mov32(out, from_a, .{ .async = true }); } expect();",
    ),
    "a loop over known ones": (
        "const outs = [2]fabout_dsd{ out_red, out_blue };",
        "for (outs) |out, i| { if (i == k) { @mov32(out, from_a, .{ .async = true }); } } expect();",
    ),
    "a parameter": (
        "fn send(out: fabout_dsd) void { @mov32(out, from_a, .{ .async = true }); }",
        "send(if (k == 1) out_blue else out_red); expect();",
    ),
    "a parameter that is kept": (
        "var out: fabout_dsd; fn keep(which: fabout_dsd) void { out = which; }",
        f"if (k == 1) {{ keep(out_blue); }} else {{ keep(out_red); }} {SEND}",
    ),
    "a result": (
        "fn pick() fabout_dsd { if (k == 1) { return out_blue; } return out_red; }",
        f"const out = pick(); {SEND}",
    ),
    "a result of a choice": (
        "fn pick() fabout_dsd { return if (k == 1) out_blue else out_red; } var out: fabout_dsd;",
        f"out = pick(); {SEND}",
    ),
    "a choice of choices": (
        "",
        f"const out = if (k == 1) (if (n == 4) out_blue else out_red) else (if (n == 4) out_red else out_blue); {SEND}",
    ),
    "an array that stays": ("const outs = [2]fabout_dsd{ out_red, out_blue };", f"const out = outs[k]; {SEND}"),
    "an array that changes": (
        "var outs = [3]fabout_dsd{ out_red, out_red, out_red };",
        f"outs[k + 1] = if (k == 1) out_blue else out_red; const out = outs[k + 1]; {SEND}",
    ),
    "a color in a variable": (
        "var c: color = red;",
        "c = if (k == 1) blue else red; const out = @get_dsd(fabout_dsd, .{ .extent = n, .fabric_color = c }); " + SEND,
    ),
    "color and queue in variables": (
        "var c: color = red; var q: output_queue = @get_output_queue(2);",
        "if (k == 1) { c = blue; q = @get_output_queue(3); } "
        f"const out = @get_dsd(fabout_dsd, .{{ .extent = 4, .fabric_color = c, .output_queue = q }}); {SEND}",
    ),
    "a color as a parameter": (
        "noinline fn send(c: color) void { const out = @get_dsd(fabout_dsd, .{ .extent = 4, .fabric_color = c }); "
        "@mov32(out, from_a, .{ .async = true }); }",
        "send(if (k == 1) blue else red); expect();",
    ),
    "a color made of a number": (
        "var w: u16 = 4;",
        "w += k; const c = @get_color(w); "
        f"const out = @get_dsd(fabout_dsd, .{{ .extent = 4, .fabric_color = c }}); {SEND}",
    ),
    "in a DSR": (
        "const dsr = @get_dsr(dsr_dest, 1); const source = @get_dsr(dsr_src1, 1); var out: fabout_dsd;",
        "out = if (k == 1) out_blue else out_red; @load_to_dsr(dsr, out, .{ .async = true }); "
        "@load_to_dsr(source, from_a); @mov32(dsr, source); expect();",
    ),
    "what comes in": (
        "var in: fabin_dsd;",
        "in = if (k == 1) in_blue else in_red; "
        "if (k == 1) { @mov32(out_blue, from_a, .{ .async = true }); } "
        "else { @mov32(out_red, from_a, .{ .async = true }); } @mov32(to_b, in);",
    ),
    "both sides": (
        "var in: fabin_dsd; var out: fabout_dsd;",
        "in = if (k == 1) in_blue else in_red; out = if (k == 1) out_blue else out_red; "
        "@mov32(out, from_a, .{ .async = true }); @mov32(to_b, in);",
    ),
    "memory in four dimensions": (
        "const whole = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> a[2 * i + j] }); "
        "const turned = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> a[2 * j + i] }); var from: mem4d_dsd;",
        "from = if (n == 4) whole else turned; if (k == 1) { @mov32(out_blue, from, .{ .async = true }); } "
        "else { @mov32(out_red, from, .{ .async = true }); } expect();",
    ),
}


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize(("declarations", "body"), CASES.values(), ids=CASES)
def test_a_descriptor_of_the_fabric_is_data(tmp_path, declarations, body, k):
    found = run_task(tmp_path, body, DECLARATIONS.format(k=k), declarations, results={"b": "u4"})
    assert found["b"].tolist() == [1, 2, 3, 4]


def test_a_turned_walk_is_chosen(tmp_path):
    """The other of two walks that differ in more than numbers, too."""
    declarations, body = CASES["memory in four dimensions"]
    found = run_task(
        tmp_path, body.replace("n == 4", "n != 4"), DECLARATIONS.format(k=1), declarations, results={"b": "u4"}
    )  # fmt: skip
    assert found["b"].tolist() == [1, 3, 2, 4]


def test_a_number_that_is_no_color_of_the_program_stops_the_machine(tmp_path):
    declarations, body = CASES["a color made of a number"]
    with pytest.raises(WseError, match="assert|trap"):
        run_task(tmp_path, body, DECLARATIONS.format(k=1), declarations.replace("= 4", "= 9"), results={})


def test_one_that_never_gets_a_value_is_refused(tmp_path):
    with pytest.raises(CslError, match="'out' never gets a descriptor whose kind is known"):
        run_task(tmp_path, SEND, DECLARATIONS.format(k=1), "var out: fabout_dsd;", results={})


def test_the_thread_of_a_choice_must_be_known(tmp_path):
    """Other operands would share registers with whatever else runs on the queue that was not thought of."""
    text = "const dsr = @get_dsr(dsr_dest, 1); var out: fabout_dsd;"
    body = "out = if (k == 1) out_blue else out_red; @load_to_dsr(dsr, out); @mov32(dsr, from_a, .{ .async = true });"
    with pytest.raises(CslError, match="holds one of several descriptors"):
        run_task(tmp_path, body, DECLARATIONS.format(k=1), text, results={})
