"""What a compiler that optimises would emit: instructions of loops, and what they cost."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from fabric.asm import disasm
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.rules import MAP_SETUP, MULTIPLY_ADD
from tests.fabric.csl.running import device_of

START = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }\n"
LINE = re.compile(r"^ *(\d+): (?:[0-9a-f]{8} )+ *(\w+)(?:.* @(\d+))?")


def instructions(directory, text, arch="wse2"):
    """Return the instructions of a program as (place, name, place that it jumps to or None)."""
    (directory / "top.csl").write_text(text)
    image = compile_file(directory / "top.csl", Options(arch=arch)).programs[0].emitted.image
    found = [LINE.match(line) for line in disasm.listing(image).splitlines()]
    return [(int(m[1]) // 2, m[2], None if m[3] is None else int(m[3])) for m in found if m]


def loops(directory, text):
    """Return the names of the instructions of each loop, in the order in which the loops end."""
    code = instructions(directory, text)
    return [
        [name for place, name, _ in code if target <= place <= here]
        for here, _, target in code
        if target is not None and target <= here
    ]


def ran(directory, text, like):
    """Return what variable `y` of a program ends as, a list of numbers of the type of `like`, and the cycles."""
    directory.mkdir()
    device = device_of(directory, {"top.csl": text})
    device.settle()
    return device.symbol(0, 0, "y").view(like.dtype).tolist(), device.fabric.cycle


def y_of(directory, text, like):
    """Return what variable `y` of a program ends as."""
    return ran(directory, text, like)[0]


def cycles(directory, text, wanted):
    """Return the cycles of a program whose variable `y` ends as it should."""
    found, end = ran(directory, text, wanted)
    assert found == wanted.tolist()
    return end


GEMV = """
const M: u16 = 16;
const N: u16 = 40;
var A = @constants([M * N]f32, 0.5);
var x = @constants([N]f32, 2.0);
var y: [M]f32;
const dy = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{M} -> y[i] });
var dA = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{M} -> A[i * 40] });
"""


def test_a_product_by_columns_loads_all_its_descriptors(tmp_path):
    """Two of three descriptors are the same in all turns; that of the column moves in a register, its base is set."""
    body = "@fmacs(dy, dy, dA, x[j]); dA = @increment_dsd_offset(dA, 1, f32);"
    text = f"{GEMV}task job() void {{ for (@range(u16, N)) |j| {{ {body} }} }}\n{START}"
    ((*body, _),) = (names for names in loops(tmp_path, text))
    assert body.count("dsr_load") == 3
    assert body.count("nop") == 3 + MULTIPLY_ADD["wse2"]
    assert [name for name in body if name not in ("dsr_load", "nop")] == [
        "add16", "ld32", "fmacs", "add16", "add16", "ldi",
    ]  # fmt: skip
    # A turn takes 17 cycles for the elements, 3 for each of three loads and for the base, and some for the rest.
    assert 40 * 40 < cycles(tmp_path / "a", text, np.full(16, 40, np.float32)) < 46 * 40


@pytest.mark.parametrize(
    ("body", "arch", "idle"),
    [
        ("@fmacs(dy, dy, dA, 0.5);", "wse2", 1),
        ("@fmacs(dy, dy, dA, 0.5);", "wse3", 0),
        ("@fmuls(dy, dA, 0.5);", "wse2", 0),
    ],
)
def test_a_multiply_add_takes_a_cycle_more_on_wse2(tmp_path, body, arch, idle):
    """Its first element comes two cycles after it was issued."""
    names = [name for _, name, _ in instructions(tmp_path, f"{GEMV}task job() void {{ {body} }}\n{START}", arch)]
    assert names.count("nop") == idle
    assert idle == 0 or names[names.index("nop") + 1] == "fmacs"


def test_halves_of_pairs_lie_where_the_pair_lies(tmp_path):
    text = f"""{GEMV}var k: [2]i32;
task job() void {{ for (@range(i32, 2)) |j| {{ y[k[j] * 3] = y[k[j + 1]] + 1.0; }} }}\n{START}"""
    assert "mov16" not in [name for body in loops(tmp_path, text) for name in body]


def test_descriptors_of_operations_in_a_row_are_loaded_anew(tmp_path):
    """The result of one operation is what the next reads and writes; yet each sets up all its operands."""
    text = f"""{GEMV}
const dx = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{M}} -> x[i] }});
task job() void {{ @fadds(dy, dy, dx); @fadds(dy, dy, dx); @fmuls(dy, dy, 0.5); }}
{START}"""
    names = [name for _, name, _ in instructions(tmp_path, text)]
    assert names.count("dsr_load") == 3 + 3 + 2
    wanted = np.full(16, 2, np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_function_that_is_called_in_a_loop_does_not_disturb_its_descriptors(tmp_path):
    """Both loops use the same numbers of DSRs, one inside the other."""
    text = f"""{GEMV}
const dx = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{M}} -> x[i] }});
noinline fn inner() void {{ for (@range(u16, 20)) |_| {{ @fadds(dy, dy, dx); }} }}
task job() void {{
  for (@range(u16, 30)) |_| {{ @fmuls(dx, dx, 0.5); inner(); @fmovs(dy, 0.0); @fmovs(dx, 2.0); }}
  inner();
}}
{START}"""
    wanted = np.full(16, 40, np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


STENCIL = """
const W: u16 = 20;
const H: u16 = 14;
var u = @constants([H, W]f32, 1.0);
var v: [H, W]f32;
var c: f32 = 0.25;
"""


def test_the_inner_loop_of_a_stencil(tmp_path):
    """Rows are multiplied before it, subscripts that differ by a constant share an index, c is loaded once."""
    sums = "u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]"
    body = f"v[i, j] = c * ({sums}) - u[i, j];"
    ranges = "for (@range(u16, 1, H - 1, 1)) |i| { for (@range(u16, 1, W - 1, 1)) |j|"
    text = f"{STENCIL}task job() void {{ {ranges} {{ {body} }} }} }}\n{START}"
    inner = loops(tmp_path, text)[0]
    assert [inner.count(name) for name in ("ld32", "st32", "add16", "sll16", "mul16", "ldi")] == [5, 1, 8, 1, 0, 1]
    assert len(inner) == 22


@pytest.mark.parametrize("place", ["y[i]", "y[2]", "total"])
def test_sums_lie_in_registers(tmp_path, place):
    """What a loop adds to is loaded before it and stored after it."""
    text = f"""var a = @constants([8, 300]i16, 3);
var y: [8]i16;
var total: i16 = 0;
task job() void {{ for (@range(u16, 8)) |i| {{ for (@range(u16, 300)) |j| {{ {place} += a[i, j]; }} }} y[7] = total; }}
{START}"""
    inner = loops(tmp_path, text)[0]
    assert (inner.count("ld16"), inner.count("st16")) == (1, 0)


def test_a_sum_that_a_pointer_may_reach_stays_in_memory(tmp_path):
    text = f"""var a = @constants([30]i16, 3);
var y: i16 = 0;
var p: [*]i16 = &a;
task job() void {{ p[0] = 0; p = @ptrcast([*]i16, &y);
  for (@range(u16, 30)) |j| {{ y += a[j]; if (j == 20) {{ p[0] = 7; }} }} }}
{START}"""
    wanted = np.array([7 + 9 * 3], np.int16)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_loop_whose_bounds_are_known_where_it_is_called_is_unrolled(tmp_path):
    text = f"""var y: i16;
var a = [4]i16{{ 1, 2, 3, 4 }};
inline fn sum(n: u16) i16 {{ var s: i16 = 0; for (@range(u16, n)) |i| {{ s += a[i]; }} return s; }}
task job() void {{ y = sum(4); }}
{START}"""
    assert loops(tmp_path, text) == []
    wanted = np.array([10], np.int16)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_small_arrays_lie_in_registers(tmp_path):
    """Also the two time stamps around an operation: nothing is stored between them."""
    text = f"""const time = @import_module("<time>");
var y: [6]u16;
task job() void {{
  var begin = @zeros([3]u16);
  var end = @zeros([3]u16);
  time.enable_tsc();
  time.get_timestamp(&begin);
  time.get_timestamp(&end);
  y[0] = end[0] - begin[0];
}}
{START}"""
    names = [name for _, name, _ in instructions(tmp_path, text)]
    assert names.count("tsc") == 2
    assert names[names.index("tsc") + 1] == "tsc"
    assert names.count("st16") == 1
    wanted = np.array([5, 0, 0, 0, 0, 0], np.uint16)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_running_sum_begins_with_its_scalar(tmp_path):
    """The scalar lives on after the operation: the register of the sum is another one."""
    text = f"""{GEMV}
const dx = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{M}} -> x[i] }});
var s: f32 = 1.0;
task job() void {{ const first = s * 3.0; @fadds(&y[0], first, dx); y[1] = first; }}
{START}"""
    wanted = np.zeros(16, np.float32)
    wanted[:2] = 35, 3
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_program_always_becomes_the_same_code(tmp_path):
    """Whatever was compiled before, and wherever objects lie: also with values that are kept in memory."""
    names = [f"v{k}" for k in range(20)]
    body = "".join(f"  var {name} = x + {k};\n" for k, name in enumerate(names))
    body += "  for (@range(i16, x)) |i| {" + "".join(f" {a} += {b} * i;" for a, b in itertools.pairwise(names))
    body += " work(i); }\n  y = " + " + ".join(names) + ";\n"
    inner = "noinline fn work(n: i16) void { for (@range(i16, n)) |k| { x += k * n; y -= x; } }"
    text = f"var x: i16 = 3;\nvar y: i16;\n{inner}\ntask job() void {{\n{body}}}\n{START}"
    (tmp_path / "top.csl").write_text(text)
    codes, kept = set(), []
    for k in range(6):
        image = compile_file(tmp_path / "top.csl", Options()).programs[0].emitted.image
        codes.add(image.code.tobytes())
        kept.append([object() for _ in range(1000 * k + 1)])  # objects of the next run lie elsewhere
    assert len(codes) == 1


# ---- @map, constants, the order of blocks

OUTER = """
const N: u16 = 6;
var A = @constants([4 * N]f32, 0.5);
var x = [N]f32{ 1.0, 2.0, 3.0, 4.0, 5.0, 6.0 };
var y: [4]f32;
const dx = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{N} -> x[i] });
const total = @get_dsr(dsr_src0, 1);
const column = @get_dsr(dsr_src1, 1);
const elements = @get_dsr(dsr_src1, 2);
fn add(factor: f32) void { @fmacs(total, total, column, factor); }
task job() void {
  @load_to_dsr(total, @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> y[i] }));
  @load_to_dsr(column, @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> A[i] }), .{ .save_address = true });
  @load_to_dsr(elements, dx);
  @map(add, WHAT);
}
"""


@pytest.mark.parametrize("what", ["dx", "elements"])
def test_a_map_has_no_loop_and_waits_for_no_element(tmp_path, what):
    """Its turns are one instruction, done as often as a register says, each with an element from memory itself."""
    text = OUTER.replace("WHAT", what) + START
    names = [name for _, name, _ in instructions(tmp_path, text)]
    assert names.count("nop") + names.count("ldi") == MAP_SETUP
    assert [name for name in names if name not in ("nop", "dsr_load", "ldi")] == ["fmacs", "done"]
    wanted = np.full(4, 10.5, np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_an_element_that_the_function_changes_is_loaded_after_it(tmp_path):
    """Each turn adds to all of x what the element of the turn is at that time."""
    text = f"""
var x = [4]f32{{ 1.0, 0.0, 0.0, 0.0 }};
var y: [4]f32;
const dx = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> x[i] }});
const dy = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> y[i] }});
fn grow(e: f32) void {{ @fadds(dx, dx, e); }}
task job() void {{ @map(grow, dx); @fmovs(dy, dx); }}
{START}"""
    wanted = np.array([9, 8, 8, 8], np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


@pytest.mark.parametrize("turns", [3, 300])
def test_a_map_that_walks_backwards(tmp_path, turns):
    text = f"""
var x: [{turns}]i16;
var y = @zeros([{turns}]i16);
var k: i16 = 0;
const back = @get_dsd(mem1d_dsd, .{{ .base_address = &x[{turns - 1}], .extent = {turns}, .stride = -1 }});
const dy = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{turns}}} -> y[i] }});
fn count() i16 {{ k += 1; return k; }}
fn same(a: i16) i16 {{ return a; }}
fn taken(a: i16) i16 {{ return count(); }}
task job() void {{ @map(taken, back, back); @map(same, back, dy); }}
{START}"""
    wanted = np.arange(1, turns + 1, dtype=np.int16)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_constant_is_put_into_a_register_once(tmp_path):
    text = f"{GEMV}task job() void {{ {'@fmuls(dy, dy, 0.5); @fadds(dy, dy, 3.0);' * 4} }}\n{START}"
    names = [name for _, name, _ in instructions(tmp_path, text)]
    assert names.count("ldi32") == 2
    wanted = np.full(16, 5.625, np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_a_task_that_counts_goes_on_without_a_jump_while_it_counts(tmp_path):
    """What is done when the counter comes to zero stands at the end; both ways end where they are."""
    text = f"""
var left: u16 = 3;
var y: [1]u16;
task job() void {{
  left -= 1;
  if (left == 0) {{
    y[0] = 7;
  }} else {{
    @activate(@get_local_task_id(8));
  }}
}}
{START}"""
    names = [name for _, name, _ in instructions(tmp_path, text)]
    assert names == ["ld16", "sub16", "st16", "br16", "activate", "done", "ldi", "st16", "done"]
    wanted = np.array([7], np.uint16)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


def test_an_inline_function_of_known_numbers_does_what_it_says_when_it_is_called(tmp_path):
    """It was done once, before the program began, if all that it did could also stand in a comptime block."""
    text = f"""{GEMV}
const to = @get_dsr(dsr_dest, 1);
const from = @get_dsr(dsr_src1, 1);
inline fn load(comptime a: u16, comptime b: u16) void {{
  @load_to_dsr(to, @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{8}} -> y[i + a] }}));
  @load_to_dsr(from, @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{8}} -> x[i + b] }}));
}}
inline fn go_on(comptime id: u16) void {{ @activate(@get_local_task_id(id)); }}
task job() void {{
  load(0, 0);
  @fmovs(to, from);
  x[10] = 5.0;
  load(8, 3);
  @fmovs(to, from);
  go_on(9);
}}
task second() void {{ y[0] = 1.0 + y[8]; }}
comptime {{ @bind_local_task(second, @get_local_task_id(9)); }}
{START}"""
    wanted = np.array([3, *[2] * 14, 5], np.float32)
    assert y_of(tmp_path / "a", text, wanted) == wanted.tolist()


CALLED = """
var x: [4]f32;
var y: [4]f32;
const dx = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{4}} -> x[i] }});
fn twice(value: f32) f32 {{ return value + value; }}
fn once() void {{ {body} }}
task job() void {{ for (@range(u16, 10)) |_| {{ once(); }} }}
"""


@pytest.mark.parametrize(("body", "turns"), [("y[0] += 1.0;", 10), ("@map(twice, dx, dx);", 1)])
def test_a_function_written_in_place_weighs_what_its_body_does(tmp_path, body, turns):
    """Ten calls of a `@map` would be forty turns; ten additions are written one after the other."""
    names = [name for _, name, _ in instructions(tmp_path, CALLED.format(body=body) + START)]
    assert names.count("fadds") == turns * (4 if "@map" in body else 1)
