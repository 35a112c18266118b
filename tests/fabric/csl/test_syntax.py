"""Parser and printer: what was printed parses to the same tree; spans, literals, precedence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.diagnostics import CslError, Source
from fabric.csl.syntax import nodes as n
from fabric.csl.syntax.parser import cache_file, parse
from fabric.csl.syntax.printer import show
from tests.examples import examples
from tests.fabric.csl.trees import Trees


def tree_of(text):
    """Return the tree of a text."""
    return parse(Source("test.csl", text))


def value_of(text):
    """Return the tree of an expression."""
    return tree_of(f"const x = {text};").items[0].value


@examples(600)
@given(st.integers(0, 1 << 32))
def test_an_expression_survives_printing(seed):
    tree = Trees(seed).expr(5)
    assert value_of(show(tree)) == tree


@examples(200)
@given(st.integers(0, 1 << 32))
def test_a_file_survives_printing(seed):
    tree = Trees(seed).file()
    assert tree_of(show(tree)) == tree


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x & 1 == 0", "(x & 1) == 0"),
        ("a or b and c", "a or (b and c)"),
        ("a + b << c & d", "((a + b) << c) & d"),
        ("a | b & c", "(a | b) & c"),
        ("-a * b", "(-a) * b"),
        ("&a[1]", "&(a[1])"),
        ("p.*[1]", "(p.*)[1]"),
        ("a - b - c", "(a - b) - c"),
        ("if (a) b else if (c) d else e", "if (a) b else (if (c) d else e)"),
        ("1 + if (a) b else c + 2", "1 + (if (a) b else (c + 2))"),
        ("a or if (b) c else d", "a or (if (b) c else d)"),
        ("a == if (b) c - 1 else d", "a == (if (b) (c - 1) else d)"),
        ("comptime a + b", "(comptime a) + b"),
        ("[N - 1]i16{1}", "([N - 1]i16){1}"),
    ],
)
def test_precedence(text, same):
    assert value_of(text) == value_of(same)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("1_000", 1000),
        ("'a'", 97),
        (r"'\n'", 10),
        (r"'\x0a'", 10),
        ("007", 7),
    ],
)
def test_integers(text, value):
    assert value_of(text) == n.Int(value, span=value_of(text).span)


@pytest.mark.parametrize(("text", "value"), [("1.5", 1.5), ("1.5e3", 1500.0), ("2e-1", 0.2)])
def test_floats(text, value):
    assert value_of(text).value == value


def test_words_of_the_language_name_fields():
    tree = value_of(".{ .color = a.filter, .async = true, .if = b.const }")
    assert [name for name, _ in tree.fields] == ["color", "async", "if"]


def test_an_else_belongs_to_the_nearest_if():
    (function,) = tree_of("fn f() void { if (a) if (b) x = 1; else x = 2; }").items
    (outer,) = function.body.body
    assert outer.otherwise is None
    assert outer.then.otherwise is not None


def test_spans_name_their_text():
    (item,) = tree_of("\n  const total = first + @as(i16, second);").items
    assert (item.span.line, item.span.column) == (2, 3)
    assert item.value.span.text == "first + @as(i16, second)"
    assert item.value.right.arguments[1].span.text == "second"
    assert str(item.value.right.span) == "test.csl:2:25"


def test_every_node_has_a_span_inside_its_parent():
    text = "fn f(a: [4]i16) void { for (@range(i16, 4)) |i| { a[i] += if (i == 2) 1 else .{ .b = &c }; } }"
    for node in n.walk(tree_of(text)):
        for child in n.children(node):
            assert node.span.start <= child.span.start <= child.span.end <= node.span.end


def test_deep_nesting_parses():
    depth = 3000
    assert value_of("(" * depth + "1" + ")" * depth).value == 1


def test_tables_are_made_where_nothing_can_be_kept(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert cache_file() is None


def test_a_damaged_table_is_made_again(monkeypatch, tmp_path):
    from fabric.csl.syntax import parser

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "wse-sim").mkdir()
    (tmp_path / "wse-sim" / "csl-grammar").write_bytes(b"no table")
    parser.parser.cache_clear()
    try:
        assert tree_of("const a = 1;").items[0].name == "a"
    finally:
        parser.parser.cache_clear()


def test_a_text_that_is_no_csl_is_one_error():
    with pytest.raises(CslError) as caught:
        tree_of("this is no program")
    assert len(caught.value.diagnostics) == 1


def test_an_access_expression_inside_of_an_extent():
    tree = value_of("|i, j|{4, (|k|{2} -> a[k]).n} -> b[i, j]")
    assert (tree.names, len(tree.extents), tree.base.name, len(tree.subscripts)) == (["i", "j"], 2, "b", 2)
