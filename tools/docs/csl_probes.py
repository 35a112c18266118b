"""What the compiler makes of each feature of the language and each function of the library: it is asked.

A probe is a small program that uses one thing.  It is compiled to an image; the answer is "yes", or the message of the
refusal.  Functions of the library are found in its sources; arguments for them come from the types of their parameters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import LIBRARY, Options
from fabric.csl.diagnostics import CslError, Source
from fabric.csl.syntax import nodes as n
from fabric.csl.syntax.parser import parse
from fabric.csl.syntax.printer import show

__all__ = ["FEATURES", "answer", "functions", "library_answers"]

GLOBALS = """layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }
var vh: f16; var vf: f32; var vi: i16; var vu: u16; var vl: i32; var vw: u32; var vs: i8; var vc: u8;
var vb: bool;
var words: [8]u32; var numbers: [8]f32; var clock: [3]u16; var short: [8]i16;
const mem = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> numbers[i] });
const ints = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> short[i] });
const in_queue = @get_input_queue(2);
const in_dsd = @get_dsd(fabin_dsd, .{ .extent = 8, .fabric_color = @get_color(2), .input_queue = in_queue });
const out_queue = @get_output_queue(3);
const out_dsd = @get_dsd(fabout_dsd, .{ .extent = 8, .fabric_color = @get_color(3), .output_queue = out_queue });
task late() void { }
"""
SETUP = "@bind_local_task(job, @get_local_task_id(9)); @bind_local_task(late, @get_local_task_id(10));"


def _out(extent: int, more: str) -> str:
    """Return a descriptor `o` that sends, with one field more."""
    place = ".fabric_color = @get_color(5), .output_queue = @get_output_queue(4)"
    return f"const o = @get_dsd(fabout_dsd, .{{ .extent = {extent}, {place}, {more} }});"


FEATURES: dict[str, dict[str, tuple[str, str]]] = {
    "declarations": {
        "param with a default": ("vi = p;", "param p: i16 = 3;"),
        "const and var without a type": ("vi = c + v;", "const c = 3; var v: i16 = c;"),
        "export var": ("e = 1;", "export var e: i16 = 0;"),
        "color declaration (old)": ("@block(red);", "color red = 4;"),
        "align": ("a[0] = 1;", "var a: [4]i16 align(16);"),
        "linksection": ("a[0] = 1;", 'var a: [4]i16 linksection(".mine");'),
        "inline fn, noinline fn": (
            "vi = f(1) + g(2);",
            "inline fn f(x: i16) i16 { return x; } noinline fn g(x: i16) i16 { return x; }",
        ),
        "generic fn (anytype, comptime)": (
            "vi = f(vi, 2);",
            "fn f(x: anytype, comptime k: i16) @type_of(x) { return x * k; }",
        ),
        "function of type fn as param": ("p();", "fn f() void { } param p: fn()void = f;"),
    },
    "types": {
        "bool": ("vb = !vb;", ""),
        "i8, u8": ("vs = @as(i8, vc) + vs;", ""),
        "i16, u16": ("vi = @as(i16, vu) * vi;", ""),
        "i32, u32": ("vl = @as(i32, vw) * vl;", ""),
        "i64, u64 at run time": ("w += 1; vf = @as(f32, w / 7);", "var w: i64 = 1;"),
        "other widths up to 32 bits": ("w += 1;", "var w: i20 = 1;"),
        "integers of more than 64 bits at run time": ("w += 1;", "var w: i80 = 1;"),
        "i64, u64 at compile time": ("vl = @as(i32, w >> 8);", "const w: i64 = 1 << 40;"),
        "f16": ("vh = vh * vh + 1.0;", ""),
        "f32": ("vf = vf * vf + 1.0;", ""),
        "division of floats": ("vf = vf / 3.0; vh = vh / vh;", ""),
        "arrays of several dimensions": ("a[1, vu] = 2;", "var a: [2, 3]i16;"),
        "struct types": (
            "s.a = 1; s.b = 2.0;",
            "const S = struct { a: i16, b: f32 }; var s: S = S{ .a = 0, .b = 0.0 };",
        ),
        "packed struct types": (
            "s.a = 1;",
            "const S = packed struct { a: u8, b: u8 }; var s: S = S{ .a = 0, .b = 0 };",
        ),
        "union types": ("s.a = 1;", "const S = packed union { a: u16, b: i16 }; var s: S = S{ .a = 0 };"),
        "enum": ("e = E.B;", "const E = enum(u16) { A, B }; var e: E = E.A;"),
        "pointers *T, [*]T": ("p.* = q[vu];", "var p: *i16 = &vi; var q: [*]i16 = &short;"),
        "structs as arguments and results": (
            "const s = f(S{ .a = vi }); vi = s.a;",
            "const S = struct { a: i16 }; fn f(s: S) S { return S{ .a = s.a + 1 }; }",
        ),
        "pointers to functions at run time": ("p();", "fn f() void { } var p: *const fn()void = &f;"),
        "anonymous structs and tuples": ("vi = s.a + t[1];", "const s = .{ .a = 1 }; const t = .{ 1, 2 };"),
        "strings": ('vu = @strlen("four");', ""),
    },
    "statements": {
        "if, while, for": (
            "for (@range(i16, vi)) |i| { if (i > 2) { vu += 1; } } while (vb) : (vi += 1) { vb = false; }",
            "",
        ),
        "for over an array, with an index": ("for (short) |x, i| { vi += x; vu += i; }", ""),
        "inline for, inline while": ("inline for (@range(i16, 3)) |i| { vi += i; }", ""),
        "break, continue, labels": ("out: while (true) { while (vb) { break :out; } continue; }", ""),
        "break with a value at run time": ("vi = blk: { break :blk vi + 1; };", ""),
        "switch, also as a value": (
            "vi = switch (vi) { 1 => 2, 3, 4 => 5, else => 6 }; switch (vb) { true => { }, else => { } }",
            "",
        ),
        "if as a value": ("vi = if (vb) 1 else vi;", ""),
        "short circuits": ("vb = vb and vi > 0 or vf < 1.0;", ""),
        "calls that return values": ("vi = f(f(vi));", "fn f(x: i16) i16 { if (x > 0) { return 1; } return x; }"),
        "recursion": ("vi = f(vi);", "fn f(x: i16) i16 { if (x > 0) { return 1 + f(x - 1); } return x; }"),
        "recursion of two functions": (
            "vi = f(vi);",
            "fn f(x: i16) i16 { if (x > 0) { return 1 + g(x); } return x; } fn g(x: i16) i16 { return 1 + f(x - 1); }",
        ),
        "tail calls in circles": ("f();", "fn f() void { vi -= 1; if (vi > 0) { g(); } } fn g() void { f(); }"),
        "inline assembly": ('_ = asm("nop");', ""),
    },
    "vectors": {
        "mem1d_dsd, mem4d_dsd": (
            "@fmovs(m, mem);",
            "const m = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 4} -> numbers[4 * i + j] });",
        ),
        "circbuf_dsd": (
            "@fmovs(m, mem);",
            "const m = @get_dsd(circbuf_dsd, .{ .base_address = &numbers, .extent = 8, .wraparound = 8 });",
        ),
        "fabin_dsd, fabout_dsd": ("@fmovs(mem, in_dsd); @fmovs(out_dsd, mem);", ""),
        "DSDs chosen while the program runs": (
            "@fmovs(if (vi > 1) mem else rest, 1.0);",
            "const rest = @set_dsd_length(mem, 2);",
        ),
        "DSDs that change while the program runs": (
            "d = @increment_dsd_offset(d, vi, f32); @fmovs(d, 1.0);",
            "var d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> numbers[i] });",
        ),
        "descriptor of a color known at run time": (
            "@fmovs(@get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c }), 1.0);",
            "var c: color = @get_color(1); export var other: color = @get_color(2);",
        ),
        "explicit DSRs": ("@load_to_dsr(d, mem); @fmovs(d, 1.0);", "const d = @get_dsr(dsr_dest, 2);"),
        "FIFOs": ("@fmovs(f, in_dsd, .{ .async = true });", "var b: [4]f32; const f = @allocate_fifo(b);"),
        "lengths of FIFOs": ("@set_fifo_read_length(f, 2);", "var b: [4]f32; const f = @allocate_fifo(b);"),
        "option async, activate, unblock": ("@fmovs(out_dsd, mem, .{ .async = true, .activate = late });", ""),
        "option priority": ("@fmovs(out_dsd, mem, .{ .async = true, .priority = .{ .high = true } });", ""),
        "option index": ("@fmacs(mem, mem, mem, vf, .{ .index = vu });", ""),
        "option on_control": ("@fmovs(mem, in_dsd, .{ .async = true, .on_control = .{ .terminate = true } });", ""),
        "option ut_id": ("@fmovs(out_dsd, mem, .{ .async = true, .ut_id = 3 });", ""),
        "registers of the router by their addresses": (
            "@bitcast(*u16, at(0x7f24)).* = @bitcast(*u16, at(0x7f24)).* & 0xfc00 | 0x202;",
            "fn at(word: u16) u16 { return 2 * word; } comptime { @set_local_color_config(@get_color(4), "
            ".{ .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } } }); }",
        ),
        "control wavelets": ("@mov32(o, 0);", _out(1, ".control = true")),
        "simd_mode": ("@mov16(o, ints);", _out(8, ".simd_mode = .{ .simd_32 = true }")),
        "advance_switch": ("@fmovs(o, mem);", _out(8, ".advance_switch = true")),
        "wavelet_index_offset": ("@mov16(o, ints);", _out(8, ".wavelet_index_offset = true")),
        "control_transform": ("@mov32(o, 0);", _out(1, ".control_transform = true")),
    },
}
"""Each feature, by group, is used by these statements of a task and these declarations."""

VALUES = {
    "f32": "vf", "f16": "vh", "u16": "vu", "i16": "vi", "u32": "vw", "i32": "vl", "u8": "vc", "i8": "vs", "bool": "vb",
    "color": "@get_color(4)", "direction": "EAST", "comptime_string": '"text"', "comptime_struct": ".{ vu }",
    "type": "f32", "comptime_int": "0", "local_task_id": "@get_local_task_id(10)", "[*]u32": "&words",
    "[*]f32": "&numbers", "*[3]u16": "&clock", "control_task_id": "@get_control_task_id(40)",
    "fabric_io": "m.color_config.fabric_io.TX_EAST", "pop_mode": "m.switch_config.pop_mode.ALWAYS_POP",
    "output_queue": "@get_output_queue(4)", "anytype": "vf",
    "@type_of(x)": "vf", "complex_32": "m.get_complex(vh, vh)", "complex_64": "m.get_complex(vf, vf)",
}  # fmt: skip
"""A parameter of each type is given this argument."""

COLLECTIVES = (
    'const c2d = @import_module("<collectives_2d/params>");\nconst m = @import_module("<collectives_2d/pe>", .{ '
    ".dim_params = c2d.get_params(0, 0, .{ .x_colors = .{ @get_color(6), @get_color(7) }, .x_entrypoints = .{ "
    "@get_local_task_id(11), @get_local_task_id(12) } }).x });"
)
TALLY = (
    'const {0} = @import_module("<kernels/tally/layout>", .{{ .kernel_width = 1, .kernel_height = 1, '
    ".phase2_tally = 0, .colors = [3]color{{ @get_color(6), @get_color(7), @get_color(8) }}, "
    ".output_color = @get_color(9) }});"
)
IMPORTS = {
    "<debug>": 'const m = @import_module("<debug>", .{ .key = "k", .buffer_size = 32 });',
    "<simprint>": 'const m = @import_module("<simprint>", .{ .enable = true });',
    "<memcpy/memcpy>": 'const g = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1 });\n'
    'const m = @import_module("<memcpy/memcpy>", g.get_params(0));',
    "<memcpy/get_params>": 'const m = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1 });',
    "<collectives_2d/pe>": COLLECTIVES,
    "<kernels/tally/layout>": TALLY.format("m"),
    "<kernels/tally/pe>": TALLY.format("t") + '\nconst m = @import_module("<kernels/tally/pe>", .{ '
    ".tally_params = t.get_params(0, 0), .input_queues = [2]u16{ 2, 3 }, .output_queues = [2]u16{ 4, 5 } });",
}
"""These modules need params, with their import as `m`."""

ARGUMENTS = {
    "ctrl": ("m.teardown_cmd_1()",),
    **{f"{verb}_complex": ("m.get_complex(vf, vf)",) * 2 for verb in ("add", "subtract", "multiply")},
    "get_complex": ("vf", "vf"),
    "encode_single_payload": ("m.opcode.NOP", "true", "{}", "0"),
    "encode_payload": ("1", ".{ m.opcode.NOP }", ".{ true }", "true", "{}"),
    "fmt": ('"{d}"', ".{ vu }"), "fmt_no_nl": ('"{d}"', ".{ vu }"), "fmt_with_coords": ('"{d}"', ".{ vu }"),
    "reset_routes": ("@get_color(4)", ".{ .rx = EAST, .tx = RAMP }"),
    "update_task_priority": ("@get_local_task_id(9)", "m.task_priority.level.HIGH"),
    "update_main_thread_priority": ("m.main_thread_priority.level.HIGH",),
    "set_task_priority": ("@get_local_task_id(9)",), "clear_task_priority": ("@get_local_task_id(9)",),
    "set_counter": ("1", "vu"), "set_max_counter": ("1", "vu"), "set_active_limit": ("1", "vu"),
    "set_current_switch_position": ("@get_color(4)", "2"),
    "get_params": ("0", "0", ".{ .x_colors = .{ @get_color(6), @get_color(7) }, .x_entrypoints = .{ "
                   "@get_local_task_id(11), @get_local_task_id(12) } }"),
}  # fmt: skip
"""The arguments of these functions do not follow from their types."""

INNER = {
    "<control>": ("entry_bits", "place", "ignore_place"),
    "<collectives_2d/params>": ("axis", "entries"),
    "<kernels/tally/layout>": ("of_row", "of_column"),
    "<kernels/tally/pe>": ("conclude", "pass_on", "proceed"),
    "<math>": ("bits_f32", "bits_f16", "peer", "lowest"),
}
"""These functions of modules are their own business."""
COLLECTIVE = ("init", "broadcast", "scatter", "gather", "reduce_fadds")


@lru_cache(maxsize=1)
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="csl-probes-")


def answer(body: str, before: str = "", setup: str = SETUP) -> str:
    """Return "yes" if a program with a task of some statements compiles, else the first message.

    Parameters
    ----------
    body, before : str
        Statements of the task, and declarations before it.
    setup : str
        Statements of a comptime block.
    """
    path = Path(_directory().name, "probe.csl")
    text = (
        f"{GLOBALS}{before}\ntask job() void {{ {body} }}\ncomptime {{ {setup} @activate(@get_local_task_id(9)); }}\n"
    )
    path.write_text(text, encoding="utf-8")
    try:
        bundle_of(compile_file(path, Options()))
    except CslError as error:
        message = next(entry.message for entry in error.diagnostics if entry.severity == "error")
        return f"refused: {message}"
    return "yes"


def functions() -> Iterator[tuple[str, n.FnDecl]]:
    """Yield (module, function) for all that programs may call; parts of <tile_config> have their place in it."""
    for path in sorted(LIBRARY.rglob("*.csl")):
        name = path.relative_to(LIBRARY).with_suffix("").as_posix()
        if name == "runtime" or name.startswith("kernels/fft/"):  # called by the compiler; by a layout
            continue
        for item in parse(Source(name, path.read_text(encoding="utf-8"), path)).items:
            if not isinstance(item, n.FnDecl) or item.kind != "fn" or item.name in INNER.get(f"<{name}>", ()):
                continue
            if name != "collectives_2d/pe" or item.name in COLLECTIVE:
                yield f"<{name}>", item


def library_answers() -> list[tuple[str, str, str]]:
    """Return (module, function, answer) for every function of the library."""
    found = []
    for module, function in functions():
        part = module.removeprefix("<tile_config/").rstrip(">") if module.startswith("<tile_config/") else ""
        shown = "<tile_config>" if part else module
        imports = IMPORTS.get(module, f'const m = @import_module("{shown}");')
        found.append((shown, f"{part}.{function.name}" if part else function.name, _call(function, part, imports)))
    return found


def _call(function: n.FnDecl, part: str, imports: str) -> str:
    """Return what the compiler says to a call, at run time or in a constant."""
    given = ARGUMENTS.get(function.name)
    if given is None or len(given) != len(function.params):
        default = "@get_color(4)" if part in ("switch_config", "color_config") else VALUES["anytype"]
        given = tuple(default if (kind := show(param.type)) == "anytype" else VALUES[kind] for param in function.params)
    call = f"m.{part + '.' if part else ''}{function.name}({', '.join(given)})"
    statement = f"{call};" if show(function.result) == "void" else f"_ = {call};"
    first = answer(statement, imports)
    if first == "yes":
        return "yes"
    others = {"yes, in a comptime block": answer("", imports, f"{SETUP} {statement}")}
    if show(function.result) != "void":
        known = answer("", f"{imports}\nconst known = {call};", f"{SETUP} _ = known;")
        others = {"yes, as an operand": answer(f"@fmovs({call}, mem);", imports), "yes": known, **others}
    return next((shown for shown, said in others.items() if said == "yes"), first)
