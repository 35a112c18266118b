"""Wrong sources, as cslc meets them: one clear message at the right place, with a caret; nothing is written."""

from __future__ import annotations

import re

import pytest

from fabric.csl.check import check_file
from fabric.csl.comptime.session import Options
from harness.sdk.compiler import main
from tests.fabric.csl.wrong import LAYOUTS, PE, PROGRAMS

MARK = "¶"
HEAD = re.compile(r"^(?P<file>[^\s:]*[^:]*):(?P<line>\d+):(?P<column>\d+): error: (?P<message>.+)$")


def refusal(directory, capsys, marked, **files):
    """Compile a marked source; return its errors as (line, column, message, text of the line), and the marked place."""
    before = marked[: marked.index(MARK)]
    place = (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    for name, text in {"top.csl": marked.replace(MARK, ""), "pe.csl": PE, **files}.items():
        (directory / name).write_text(text, encoding="utf-8")
    status = main([str(directory / "top.csl"), "-o", str(directory / "out"), "--max-inlined-iterations=5000"])
    lines = capsys.readouterr().err.splitlines()
    assert status == 1
    assert not (directory / "out").exists()
    assert sorted(path.name for path in directory.iterdir()) == sorted({"top.csl", "pe.csl", *files})
    found = [(match, lines[k + 1 : k + 3]) for k, line in enumerate(lines) if (match := HEAD.match(line))]
    assert lines
    assert found
    return found, place


def told(found):
    """Return the one message: place, file, text, the column above which the caret stands, and the line of source."""
    ((match, (source, caret)),) = found
    return (
        (int(match["line"]), int(match["column"])),
        match["file"],
        match["message"],
        caret.index("^") - 4 + 1,
        source[4:].strip(),
    )


@pytest.mark.parametrize(("marked", "piece"), [*PROGRAMS.values(), *LAYOUTS.values()], ids=[*PROGRAMS, *LAYOUTS])
def test_a_wrong_program(tmp_path, capsys, marked, piece):
    """One message, at the place, with the line and a caret under the column."""
    found, place = refusal(tmp_path, capsys, marked)
    at, file, message, caret, source = told(found)
    assert at == place, message
    assert file.endswith("top.csl")
    assert piece in message
    assert caret == place[1]
    assert source


def test_there_are_two_hundred():
    assert len(PROGRAMS) + len(LAYOUTS) >= 200


def test_an_operation_without_a_route_is_a_warning(tmp_path, capsys):
    """A program may keep code for rectangles of other sizes, so it compiles."""
    pe = """param c: color;
const o = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .output_queue = @get_output_queue(2) });
task t() void { @fmovs(o, 1.0); }
comptime { @bind_local_task(t, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }
"""
    (tmp_path / "pe.csl").write_text(pe)
    (tmp_path / "top.csl").write_text(
        'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{ .c = @get_color(3) }); }\n'
    )
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    assert "pe.csl:3:17: warning: color 3 is sent here, but no PE has a route" in capsys.readouterr().err


@pytest.mark.parametrize(
    "code",
    [
        "task t() void { if (flag) { @fmovs(o, 1.0); } }",
        "task t() void { if (flag) return; @fmovs(o, 1.0); }",
        "task t() void { while (flag) { @fmovs(o, 1.0); } }",
        "task t() void { if (flag) @activate(@get_local_task_id(10)); } task u() void { @fmovs(o, 1.0); }"
        " comptime { @bind_local_task(u, @get_local_task_id(10)); }",
    ],
)
def test_an_operation_that_may_belong_to_other_pes_is_none(tmp_path, capsys, code):
    pe = """param c: color; var flag = false;
const o = @get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = c, .output_queue = @get_output_queue(2) });
comptime { @bind_local_task(t, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }
"""
    (tmp_path / "pe.csl").write_text(pe + code)
    (tmp_path / "top.csl").write_text(
        'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{ .c = @get_color(3) }); }\n'
    )
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err == ""


def test_an_end_of_a_route_where_nothing_comes_is_no_mistake(tmp_path, capsys):
    """Public programs leave such ends (MeshGEMV); where something may come, a warning says so."""
    top = """layout {
  @set_rectangle(2, 1);
  @set_tile_code(0, 0, "pe.csl");
  @set_tile_code(1, 0, "pe.csl");
  @set_color_config(0, 0, @get_color(3), .{ .routes = .{ .rx = .{ NORTH }, .tx = .{ EAST } } });
}
"""
    (tmp_path / "pe.csl").write_text(PE)
    (tmp_path / "top.csl").write_text(top)
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    (tmp_path / "top.csl").write_text(top.replace("{ NORTH }", "{ RAMP }"))
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    assert "color 3 leaves PE (0, 0) to EAST" in capsys.readouterr().err


def test_a_name_for_the_host_that_no_program_offers_is_a_warning(tmp_path, capsys):
    """Its id exists, and a copy would find nothing."""
    names = '@export_name("x", f32, true); @export_name("go", fn()void);'
    top = f'layout {{ @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl"); {names} }}\n'
    (tmp_path / "top.csl").write_text(top)
    (tmp_path / "pe.csl").write_text("var x: f32 = 0.0;\ncomptime { @export_symbol(x); }\n")
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "top.csl:1:94: warning: no program offers 'go' to the host" in said
    assert "'x'" not in said


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("switch (n) { 1 => n = 2, 2 => n = 3 }", "for other values of the u16 this switch does nothing"),
        ("switch (n) { 1 => n = 2, else => {} } switch (n == 1) { true => n = 1, false => n = 2 }", ""),
        ("comptime { @set_local_color_config(@get_color(1), .{ .routes = .{ .rx = .{ WEST } } }); }", "rx and no tx"),
        ("comptime { @set_local_color_config(@get_color(1), .{ .routes = .{ .tx = .{ WEST } } }); }", "tx and no rx"),
    ],
)
def test_what_does_nothing_is_a_warning(tmp_path, body, warning):
    code = (
        body
        if body.startswith("comptime")
        else (f"task t() void {{ {body} }} comptime {{ @bind_local_task(t, @get_local_task_id(9)); }}")
    )
    (tmp_path / "pe.csl").write_text(f"var n: u16 = 1;\n{code}\n")
    found = [entry.message for entry in check_file(tmp_path / "pe.csl", Options()).report.diagnostics]
    assert [warning in message for message in found] == [True] * bool(warning)
