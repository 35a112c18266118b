"""Hostile sources end in one refusal with a place, under a limit of processor time and memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fabric.csl.allocate.thin import CROWDED
from fabric.csl.diagnostics import CslError
from harness.sdk.compiler import main
from tests.fabric.csl.hostile import HOSTILE
from tests.fabric.csl.running import run_task
from tests.fabric.csl.sources import compile_texts, running

ROOT = Path(__file__).parents[3]
SECONDS, BYTES = 60, 2 << 30
"""Of processor time, on any host, and of address space."""


@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_with_a_word(tmp_path, capsys, name):
    text, piece = HOSTILE[name]
    (tmp_path / "top.csl").write_text(text, encoding="utf-8")
    (tmp_path / "pe.csl").write_text("comptime { }\n", encoding="utf-8")
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out"), "--max-comptime-steps=20000"]) == 1
    said = capsys.readouterr().err
    assert "top.csl:" in said
    assert piece in said
    assert not (tmp_path / "out").exists()


def limits():
    """Let a process end that takes more."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


@pytest.mark.parametrize("name", ["endless: while", "large: an array of constants", "nested: ifs"])
def test_the_limits_that_nobody_chose_are_low_enough(tmp_path, name):
    """In a process of its own, which would be ended."""
    text, piece = HOSTILE[name]
    (tmp_path / "top.csl").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "harness.sdk.compiler", str(tmp_path / "top.csl")], preexec_fn=limits,
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-500:]
    assert piece in done.stderr
    assert "internal error" not in done.stderr


def test_there_are_forty():
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("comptime { var i: i32 = 0; while (i < 300) { i += 1; } }", "max_comptime_steps", 900),
        ("comptime { var i: i32 = 0; while (i < 300) { i += 1; } }", "max_inlined_iterations", 300),
        (running("f(1);", "fn f(comptime n: i32) void { if (n < 30) { f(n + 1); } }"), "max_instances", 40),
    ],
)
def test_an_option_raises_each_limit(tmp_path, text, option, value):
    compile_texts(tmp_path, {"top.csl": text}, **{option: value})
    with pytest.raises(CslError, match=f"--{option.replace('_', '-')} raises the limit"):
        compile_texts(tmp_path, {"top.csl": text}, **{option: value // 3})


def test_the_limit_of_turns_is_that_of_a_loop(tmp_path):
    """Loops one after the other, and a loop of a function that is called often, have it each."""
    text = "fn f() void { for (@range(i16, 50)) |i| { if (i < 0) { break; } } }\n"
    text += "comptime { for (@range(i16, 50)) |i| { f(); if (i < 0) { break; } } }\n"
    compile_texts(tmp_path, {"top.csl": text}, max_inlined_iterations=50)
    with pytest.raises(CslError, match="--max-inlined-iterations raises the limit"):
        compile_texts(tmp_path, {"top.csl": text}, max_inlined_iterations=49)


def test_a_turn_counts_for_what_is_in_it(tmp_path):
    """A loop of long turns without an end is found as soon as one of short turns."""
    loop = "var i: i32 = 0; while (i < 300) {{ i += 1; {} }}"
    short, long = (f"comptime {{ {loop.format('i += 0; ' * n)} }}" for n in (0, 30))
    compile_texts(tmp_path, {"top.csl": short}, max_comptime_steps=1500)
    with pytest.raises(CslError, match="more than 1,500 steps"):
        compile_texts(tmp_path, {"top.csl": long}, max_comptime_steps=1500)
    compile_texts(tmp_path, {"top.csl": long}, max_comptime_steps=15_000)


def test_more_values_than_anybody_has_registers_for(tmp_path):
    """What the allocator keeps in memory before it looks at the rest comes back as it was, in loops too."""
    n = 4 * CROWDED
    body = "for (@range(i16, 3)) |t| {" + "".join(f"var v{k}: i16 = x * {k + 1} + t; " for k in range(n))
    body += "".join(f"y ^= v{k}; v{k} += y; " for k in range(n)) + "".join(f"z += v{k} ^ {k}; " for k in range(n)) + "}"
    found = run_task(tmp_path, body, "var x: i16 = 7;", "var y: i16;", "var z: i16;", results={"y": "u2", "z": "u2"})
    y = z = 0
    for t in range(3):
        values = [7 * (k + 1) + t for k in range(n)]
        for k, value in enumerate(values):
            y ^= value & 0xFFFF
            values[k] = value + y & 0xFFFF
        z += sum(value ^ k for k, value in enumerate(values))
    assert [found["y"][0], found["z"][0]] == [y, z & 0xFFFF]


CIRCLES = {
    "itself": {"a.csl": 'const m = @import_module("a.csl");\n'},
    "each other": {"a.csl": 'const m = @import_module("b.csl");\n', "b.csl": 'const m = @import_module("a.csl");\n'},
    "with params that grow": {"a.csl": 'param n: i32 = 0;\nconst m = @import_module("a.csl", .{ .n = n + 1 });\n'},
}


@pytest.mark.parametrize("files", CIRCLES.values(), ids=CIRCLES)
def test_imports_in_a_circle_are_named(tmp_path, files):
    with pytest.raises(CslError, match=r"in a circle: (\S*[ab].csl) imports (\S*[ab].csl imports )?\1"):
        compile_texts(tmp_path, files, top="a.csl")


def test_an_import_of_itself_that_ends(tmp_path):
    again = '@import_module("a.csl", .{ .n = n - 1 })'
    text = f'param n: i32 = 5;\nconst m = if (n > 0) {again} else @import_module("<empty>");\n'
    text += "const depth: i32 = if (n > 0) m.depth + 1 else 0;\ncomptime { @comptime_assert(depth == 5 or n < 5); }\n"
    ready = compile_texts(tmp_path, {"a.csl": text}, top="a.csl").programs[0].unit.ready
    depths = [module.globals["depth"].value.data for module in ready if "depth" in module.globals]
    assert sorted(depths) == [0, 1, 2, 3, 4, 5]


def test_limits_are_numbers(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["x.csl", "--max-instances=0"])
    assert "at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("depth", [20, 60])
def test_loops_inside_of_each_other_are_weighed_once_each(tmp_path, depth):
    """What a loop weighs is asked for each loop around it; a body of known turns doubled the work at each level."""
    loops = "".join(f"for (@range(u16, 3)) |i{k}| {{ " for k in range(depth))
    compile_texts(tmp_path, {"top.csl": running(loops + "y += 1; " + "}" * depth, "var y: u16;")})
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0


def test_calls_are_weighed_once_each(tmp_path):
    forks = "".join(f"fn g{k + 2}() void {{ g{k + 1}(); g{k}(); }}\n" for k in range(50))
    text = running("if (n > 9) { for (@range(u16, 3)) |i| { late(); } }", forks, "fn g0() void { }", "fn g1() void { }",
                   "fn late() void { if (false) { g51(); } y += 1; }", "var y: i16; var n: u16;")  # fmt: skip
    (tmp_path / "top.csl").write_text(text)
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xef\xbb\xbfconst a = 3;\r\nvar b: i16 = a;\r\n", None),
        (b"// caf\xe9\nconst a = 3; // \xff\n", None),
        (b"const a = 3;\nconst caf\xe9 = 4;\n", "top.csl:2: cannot read the CSL file: it is not UTF-8"),
        ("const a = 3;".encode("utf-16"), "top.csl:1: cannot read the CSL file: it is not UTF-8"),
        (b"const a = 3;\0\n", "top.csl:1:13: error:"),
        (b"const fn = 3;\n", "'fn' is a word of the language"),
        (b"fn f(if: i16) void { }\n", "'if' is a word of the language"),
        (b"const a = 1e999;\ncomptime { _ = a; }\n", "larger than any float"),
    ],
)
def test_bytes_of_a_file(tmp_path, capsys, data, said):
    """A mark at the begin is skipped, and in comments any byte may stand; elsewhere the line is named."""
    (tmp_path / "top.csl").write_bytes(data)
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == (said is not None)
    assert (said or "") in capsys.readouterr().err


def test_a_long_line_is_shown_in_part(tmp_path, capsys):
    line = "const a = " + " + ".join(["1"] * 100) + " + none" + " + 2" * 100 + ";"
    (tmp_path / "top.csl").write_text(line + "\ncomptime { _ = a; }\n")
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out"), "--max-comptime-steps=20000"]) == 1
    place, shown, caret, *_ = capsys.readouterr().err.splitlines()
    assert "'none' is not known" in place
    assert shown.strip().startswith("...")
    assert shown[caret.index("^") :].startswith("none")
    assert max(map(len, (shown, caret))) < 220
