"""`--sdk` warns of what single versions of the vendor's compiler refuse, and changes nothing else."""

from __future__ import annotations

import pytest

from fabric.csl.check import check_file
from fabric.csl.compile import compile_file
from fabric.csl.comptime.dialects import SINCE, UNTIL, VERSIONS
from fabric.csl.comptime.session import Options
from harness.sdk.compiler import main
from tests.fabric.csl.sources import running
from wse_core.errors import ConfigError

CASES = {
    "a label": running("l: while (true) { break :l; }"),
    "inline fn": running("x = f(x);", "inline fn f(a: i16) i16 { return a + 1; }", "var x: i16;"),
    "a packed struct": running("x.a = 1;", "const S = packed struct { a: u4, b: u12 };", "var x: S;"),
    "a union": running("x.a = 1;", "const S = union { a: u16, b: i16 };", "var x: S;"),
    "anyopaque": running("_ = @ptrcast(*anyopaque, &x);", "var x: i16;"),
    "an integer of this width": running("x += 1;", "var x: u12;"),
    "an implicit conversion to a wider type": running("y = x;", "var x: i16;", "var y: i32;"),
    "an anonymous struct for a named one": running("x = .{ .a = 1 };", "const S = struct { a: i16 };", "var x: S;"),
    "@concat_structs": running("x = s.a;", "const s = @concat_structs(.{ .a = 1 }, .{ .b = 2 });", "var x: i16;"),
    "the base_address of a DSD": running(
        "@mov16(d, x[0]);", "var x: [4]i16;", "const d = @get_dsd(mem1d_dsd, .{ .base_address = &x, .extent = 4 });"
    ),
    "a fabric input whose queue is not initialized": running(
        "@mov16(&x, d);", "var x: i16;",
        "const d = @get_dsd(fabin_dsd, .{ .extent = 1, .fabric_color = @get_color(1), "
        ".input_queue = @get_input_queue(2) });",
    ),
}  # fmt: skip


def warnings(path, sdk):
    made = compile_file(path, Options(sdk=sdk))
    return [entry.message for entry in made.checked.report.diagnostics if "refuses this" in entry.message]


@pytest.mark.parametrize("feature", CASES)
def test_each_version_is_warned_of_what_it_lacks(tmp_path, feature):
    (tmp_path / "top.csl").write_text(CASES[feature])
    assert warnings(tmp_path / "top.csl", "") == []
    for version in VERSIONS:
        at = VERSIONS.index(version)
        refused = at < VERSIONS.index(SINCE.get(feature, "1.0")) or at > VERSIONS.index(UNTIL.get(feature, "2.10"))
        found = warnings(tmp_path / "top.csl", version)
        assert any(f"SDK {version} refuses this: {feature} " in message for message in found) == refused, found


def test_what_is_not_analysed_and_our_own_library_are_left_alone(tmp_path):
    text = running("if (@is_arch(\"wse3\")) { l: while (true) { break :l; } } m.sqrt(@as(f32, 2.0));",
                   'const m = @import_module("<math>");')  # fmt: skip
    (tmp_path / "top.csl").write_text(text.replace("m.sqrt", "_ = m.sqrt"))
    assert warnings(tmp_path / "top.csl", "1.0") == []


def test_the_command_warns_and_compiles(tmp_path, capsys):
    (tmp_path / "top.csl").write_text(CASES["a label"])
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out"), "--sdk=1.2"]) == 0
    assert "top.csl:2:1: " in (said := capsys.readouterr().err)
    assert "warning: SDK 1.2 refuses this: a label came with 1.3" in said
    assert main([str(tmp_path / "top.csl"), "-o", str(tmp_path / "out"), "--sdk=1.9"]) == 1
    assert "version 1.9 of the SDK is not known" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="version 3 of the SDK"):
        check_file(tmp_path / "top.csl", Options(sdk="3"))
