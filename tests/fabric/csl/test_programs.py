"""Programs of our own check; the typed tree says what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.asm import control
from fabric.csl import tree
from fabric.csl.check import check_file
from fabric.csl.check.order import tail_calls
from fabric.csl.comptime.session import LIBRARY, CompilerSession, Options
from fabric.csl.diagnostics import CslError
from fabric.csl.syntax.parser import parse
from tests.fabric.csl.sources import compile_texts, evaluate, running

PROGRAMS = Path(__file__).with_name("programs")
EXAMPLES = {
    "chain/layout.csl": ({"width": 5, "n": 16}, 4),
    "stream/layout.csl": ({"H2D": 1, "D2H": 2}, 1),
    "routes/layout.csl": ({}, 4),
    "fifo/layout.csl": ({}, 1),
    "grid/layout.csl": ({"P": 4}, 4),
    "vectors/program.csl": ({}, 1),
}


def check(name):
    """Check one of our programs."""
    params, _ = EXAMPLES[name]
    return check_file(PROGRAMS / name, Options(params=params))


@pytest.mark.parametrize("name", EXAMPLES)
def test_our_programs_check(name):
    made = check(name)
    assert made.report.diagnostics == []
    assert len(made.programs) == EXAMPLES[name][1]
    assert all(function.body is not None or function.kind == "fn" for p in made.programs for function in p.functions)


def everything(node, found=None):
    """Return all nodes of a typed tree."""
    found = [] if found is None else found
    if isinstance(node, (list, tuple)):
        for item in node:
            everything(item, found)
    elif isinstance(node, (tree.Expr, tree.Statement)):
        found.append(node)
        for name in {name for kind in type(node).__mro__ for name in getattr(kind, "__slots__", ())}:
            if name not in ("span", "type", "function"):
                everything(getattr(node, name), found)
    return found


def body_of(directory, body, *declarations):
    """Return the statements of a task with a body."""
    (program,) = compile_texts(directory, {"top.csl": running(body, *declarations)}).programs
    return next(function for function in program.functions if function.name == "job").body.body


def test_nothing_of_compile_time_is_left():
    """Every expression has a type of the machine, or is a vector of it, and a span in the source."""
    for name in EXAMPLES:
        for program in check(name).programs:
            for function in program.functions:
                for node in everything(function.body):
                    assert node.span.source.text
                    if isinstance(node, tree.Expr):
                        known = node.type.words is not None or str(node.type).endswith(("_dsd", "range"))
                        assert known or str(node.type).startswith("dsr"), (name, node)


def test_what_the_comptime_blocks_set_up():
    made = check("routes/layout.csl")
    unit = made.programs[0].unit
    assert sorted(key for key in unit.tasks) == [("control", 33), ("task", 10)]
    assert list(unit.active) == [10]
    assert {number: state for number, (state, _) in unit.blocked.items()} == {2: False}
    assert list(unit.teardown) == [3]
    assert unit.configs[3][0].filter.kind == "range"
    assert [variable.name for variable in unit.variables if variable.name == "payload"] == ["payload"]
    (payload,) = [variable for variable in unit.variables if variable.name == "payload"]
    assert payload.initial.data == [control.single("adv", deliver=False), 33 << 16]


def test_the_library_is_parsed_once_and_stays_as_it_is(tmp_path):
    """Compilations share the trees of its modules, so none may change what they say."""
    loaded = [CompilerSession(Options()).load(path) for path in LIBRARY.rglob("*.csl")]
    for name in EXAMPLES:
        check(name)
    evaluate(tmp_path, "m.sqrt(@as(f32, 9.0))", 'const m = @import_module("<math>");')
    for source, tree_of in loaded:
        assert CompilerSession(Options()).load(source.path) == (source, tree_of)
        assert CompilerSession(Options()).load(source.path)[1] is tree_of
        assert parse(source) == tree_of


def test_unreached_globals_take_no_memory():
    (program,) = check("stream/layout.csl").programs
    assert [variable.name for variable in program.unit.variables] == ["word", "seen"]


def test_conversions_are_nodes(tmp_path):
    (statement,) = body_of(tmp_path, "w = h;", "var w: i32 = 0;", "var h: u16 = 1;")
    assert isinstance(statement.value, tree.Convert)
    assert (str(statement.value.type), statement.value.kind) == ("i32", "as")


def test_a_known_branch_is_all_that_is_left(tmp_path):
    found = everything(body_of(tmp_path, "if (N > 2) { w = 1; } else { w = nonsense; }", "const N = 3;", "var w: i16;"))
    assert not any(isinstance(node, tree.If) for node in found)
    assert [node.value.value.data for node in found if isinstance(node, tree.Assign)] == [1]


def test_an_inline_loop_is_unrolled(tmp_path):
    text = "inline for ([3]i16{ 1, 2, 4 }) |x| { w += x; }"
    found = everything(body_of(tmp_path, text, "var w: i16;"))
    assert [node.value.value.data for node in found if isinstance(node, tree.Assign)] == [1, 2, 4]


def test_generic_functions_have_an_instance_per_type_and_value(tmp_path):
    text = running(
        "a = f(a, 1); a = f(a, 1); a = f(a, 2); b = f(b, 1);",
        "var a: i16;\nvar b: f32;",
        "fn f(x: anytype, comptime n: u16) @type_of(x) { return x * @as(@type_of(x), n); }",
    )
    (program,) = compile_texts(tmp_path, {"top.csl": text}).programs
    found = [str(function.result) for function in program.functions if function.name == "f"]
    assert sorted(found) == ["f32", "i16", "i16"]


def test_callees_come_before_callers(tmp_path):
    text = running("a();", "fn c() void { }\nfn b() void { c(); }\nfn a() void { b(); c(); }")
    (program,) = compile_texts(tmp_path, {"top.csl": text}).programs
    assert [function.name for function in program.functions] == ["c", "b", "a", "job"]


CIRCLE = """var n: i16 = 9;
fn ping() void { n -= 1; if (n > 0) { pong(); } }
fn pong() void { if (n == 5) { return; } else { ping(); } }"""


def test_tail_calls_may_close_a_circle(tmp_path):
    (program,) = compile_texts(tmp_path, {"top.csl": running("ping();", CIRCLE)}).programs
    by_name = {function.name: function for function in program.functions}
    assert [call.function.name for call in tail_calls(by_name["ping"])] == ["pong"]


def test_other_circles_are_calls(tmp_path):
    text = running("ping();", CIRCLE.replace("ping(); }", "ping(); } n = 1;"))
    (program,) = compile_texts(tmp_path, {"top.csl": text}).programs
    by_name = {function.name: function for function in program.functions}
    assert {"ping", "pong"} <= by_name.keys()
    assert [call.function.name for call in tail_calls(by_name["pong"])] == []


def test_one_run_reports_many_mistakes(tmp_path):
    body = "var a: i16 = 1.5;\n_ = nonsense;\n_ = a + 1;\nf(1);\nvar b: u16 = -1;"
    with pytest.raises(CslError) as caught:
        compile_texts(tmp_path, {"top.csl": running(body, "fn f() void { g(); }", "const bad = @get_color(99);")})
    lines = [entry.span.line for entry in caught.value.diagnostics]
    assert lines == [4, 5, 7, 8]


def test_warnings_do_not_refuse(tmp_path):
    made = compile_texts(tmp_path, {"top.csl": running("var i = 0; i += 1; _ = i;")})
    assert [(entry.severity, "i16 is taken" in entry.message) for entry in made.report.diagnostics] == [
        ("warning", True)
    ]


def test_a_void_color_hides_what_uses_it():
    """A channel that is not connected: its descriptor would be refused, but nothing reaches it."""
    made = check("stream/layout.csl")
    assert made.report.errors == []


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("c.encode_control_task_payload(@get_control_task_id(5))", 5 << 16),
        ("c.encode_single_payload(c.opcode.SWITCH_ADV, true, {}, 0)", control.single("adv", deliver=False)),
        (
            "c.encode_single_payload(c.opcode.NOP, false, @get_control_task_id(7), 9)",
            control.single("nop", task=7, data=9),
        ),
        (
            "c.encode_payload(2, .{ c.opcode.SWITCH_ADV, c.opcode.TEARDOWN }, .{ true, false }, true, {})",
            control.encode(["adv", "teardown"], deliver=[False, True]),
        ),
        ("s.ctrl(s.teardown_cmd_1())", 0x09DF9249),
        ("s.ctrl(s.switch_cmd_11())", 0x0B5F9249),
    ],
)
def test_payloads_of_the_library(tmp_path, expression, wanted):
    modules = 'const c = @import_module("<control>");\nconst s = @import_module("<memcpy/memcpy_switches>");'
    assert evaluate(tmp_path, expression, modules) == ("u32", wanted)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("m.sqrt(@as(f32, 9.0))", 3.0),
        ("m.floor_f16(@as(f16, 2.5))", 2.0),
        ("m.max(@as(i16, 3), -4)", 3),
        ("m.abs(@as(f16, -1.5))", 1.5),
        ("m.sign(@as(i16, -8))", -1),
        ("m.isNaN(m.NaN(f32))", True),
        ("m.isFinite_f16(m.POSITIVE_INF_f16)", False),
        ("d.rotate_clockwise(d.flip(NORTH)) == WEST", True),
    ],
)
def test_functions_of_the_library_at_compile_time(tmp_path, expression, wanted):
    modules = 'const m = @import_module("<math>");\nconst d = @import_module("<directions>");'
    assert evaluate(tmp_path, expression, modules)[1] == wanted
