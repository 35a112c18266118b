"""Names that one file of a program declares with `extern` and another one exports."""

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.running import device_of

START = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }"


def run(directory, top, **files):
    device = device_of(directory, {"top.csl": f"{top} {START}"} | {f"{name}.csl": text for name, text in files.items()})
    device.settle()
    return device


@pytest.mark.parametrize("first", ["a", "b"])
def test_it_is_the_memory_of_the_file_that_exports_it(tmp_path, first):
    """Whichever file is imported first, whoever asks first, at compile time too, by address and by descriptor."""
    imports = [f'const {name} = @import_module("{name}.csl", .{{ .n = 4 }});' for name in ("a", "b")]
    device = run(
        tmp_path,
        f"{''.join(imports if first == 'a' else imports[::-1])} extern var v: [4]i16; var y: [4]i16;"
        "const ahead = a.d; task job() void { v[3] = 7; a.add(); y = v; @mov16(ahead, 9); }",
        a="param n: i16; extern var v: [n]i16; const d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> v[i] });"
        "fn add() void { const p = &v; p[2] += v[3]; }",
        b="param n: i16; export var v: [n]i16 = @constants([n]i16, 1);",
    )
    assert device.symbol(0, 0, "y").tolist() == [1, 1, 8, 7]
    assert device.symbol(0, 0, "b.v").tolist() == [9, 9, 8, 7]


def test_functions_are_linked_as_data_is(tmp_path):
    device = run(
        tmp_path,
        'const a = @import_module("a.csl"); var y: i16;'
        "export fn twice(x: i16) i16 { return 2 * x; } task job() void { y = a.f(4); }",
        a="extern fn twice(x: i16) i16; fn f(x: i16) i16 { return twice(x) + 5; }",
    )
    assert device.symbol(0, 0, "y").tolist() == [13]


def test_constants_are_linked_and_known(tmp_path):
    device = run(
        tmp_path,
        'const a = @import_module("a.csl"); var y: [2]i16; export const lim: i16 = 40;'
        "export const tab = [2]i16{ 3, 4 }; task job() void { y[0] = a.f(4); y[1] = a.g(); }",
        a="extern const lim: i16; extern const tab: [2]i16; const half = lim / 2;"
        "fn f(x: i16) i16 { return lim + x + half; } fn g() i16 { return tab[1]; }",
    )
    assert device.symbol(0, 0, "y").tolist() == [64, 4]
    with pytest.raises(CslError, match="the const 'k' has no value"):
        run(tmp_path, "const k: i16; task job() void {}")


def test_an_extern_name_that_nobody_uses_needs_no_other(tmp_path):
    device = run(tmp_path, "extern var nowhere: i16; var y: i16; task job() void { y = 3; }")
    assert device.symbol(0, 0, "y").tolist() == [3]


@pytest.mark.parametrize(
    ("top", "a", "message"),
    [
        ("", "extern var v: i16; fn f() void { v = 1; }", "no file of this program exports 'v'"),
        ("var v: i16;", "extern var v: i16; fn f() void { v = 1; }", "no file of this program exports 'v'"),
        ("export var v: i16;", "extern var v: u16; fn f() void { v = 1; }", "declared as var u16, but exported as var"),
        ("export var v: i16;", "extern var v; fn f() void { v = 1; }", "the extern .v. has no type"),
        ("export const v: i16 = 1;", "extern var v: i16; fn f() void { v = 1; }", "exported as const i16"),
        (
            'export var v: i16; const b = @import_module("b.csl");',
            "extern var v: i16; fn f() void { v = 1; }",
            "'v' is exported 2 times",
        ),
    ],
)
def test_what_does_not_link_is_refused(tmp_path, top, a, message):
    with pytest.raises(CslError, match=message):
        run(
            tmp_path,
            f'const a = @import_module("a.csl"); {top} task job() void {{ a.f(); }}',
            a=a,
            b="export var v: i16;",
        )
