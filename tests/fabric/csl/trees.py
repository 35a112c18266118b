"""Random syntax trees: every form that the grammar has, nested."""

from __future__ import annotations

from hypothesis import strategies as st

from fabric.csl.diagnostics import Source, Span
from fabric.csl.syntax import nodes as n

__all__ = ["expressions", "files"]

NOWHERE = Span(Source("nowhere", ""), 0, 0)
KEYWORDS = {
    "const",
    "var",
    "param",
    "fn",
    "task",
    "layout",
    "comptime",
    "if",
    "else",
    "for",
    "while",
    "switch",
    "break",
    "continue",
    "return",
    "export",
    "extern",
    "inline",
    "noinline",
    "align",
    "linksection",
    "linkname",
    "struct",
    "union",
    "enum",
    "packed",
    "and",
    "or",
    "asm",
    "volatile",
    "color",
}

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(lambda x: x not in KEYWORDS)
fields = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)  # words of the language are names after a dot
texts = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=6)
OPERATORS = ("or", "and", "==", "<", ">=", "!=", "&", "|", "^", "<<", ">>", "+", "-", "*", "/", "%")


def make(node, *strategies, **named):
    """Return a strategy of nodes whose fields come from strategies."""
    return st.builds(lambda *args, **kw: node(*args, **kw, span=NOWHERE), *strategies, **named)


leaves = st.one_of(
    make(n.Name, names),
    make(n.Int, st.integers(0, 1 << 70)),
    make(n.Float, st.floats(0, 1e300, allow_nan=False, allow_infinity=False)),
    make(n.String, texts),
    make(n.StructLiteral, st.just([])),
)


def pairs(values, least=0):
    """Return lists of (name, value) without a name twice."""
    return st.lists(st.tuples(fields, values), min_size=least, max_size=3, unique_by=lambda pair: pair[0])


def few(values, least=0):
    """Return short lists."""
    return st.lists(values, min_size=least, max_size=3)


def _types(inner, exprs):
    return st.one_of(
        make(n.PointerType, inner, st.booleans(), st.booleans()),
        make(n.ArrayType, few(exprs, 1), inner),
        make(n.FnType, st.sampled_from(["fn", "task"]), few(inner), inner),
    )


def _extend(exprs):
    literal = st.one_of(make(n.StructLiteral, pairs(exprs)), make(n.TupleLiteral, few(exprs, 1)))
    types = st.recursive(make(n.Name, names), lambda inner: _types(inner, exprs), max_leaves=3)
    base = st.recursive(make(n.Name, names), lambda b: make(n.Field, b, fields), max_leaves=3)
    access = names.flatmap(
        lambda name: make(n.Access, st.just([name]), few(exprs, 1).map(lambda x: x[:1]), base, few(exprs, 1))
    )
    case = make(n.Case, st.one_of(st.none(), few(exprs, 1)), make(n.ExprStatement, _plain(exprs)))
    return st.one_of(
        make(n.Unary, st.sampled_from("-!~&"), exprs),
        make(n.Binary, st.sampled_from(OPERATORS), exprs, exprs),
        make(n.Comptime, exprs),
        make(n.IfExpr, exprs, exprs, exprs),
        make(n.Field, exprs, fields),
        make(n.Deref, exprs),
        make(n.Index, exprs, few(exprs, 1)),
        make(n.Call, exprs, few(exprs)),
        make(n.Builtin, names.map("@{}".format), few(exprs)),
        make(n.Init, types, literal),
        literal,
        types,
        access,
        make(n.Switch, exprs, few(case)),
        make(
            n.StructType,
            st.sampled_from(["struct", "union"]),
            st.sampled_from([None, "extern", "packed"]),
            pairs(types),
        ),
        make(n.EnumType, st.one_of(st.none(), types), pairs(st.one_of(st.none(), exprs))),
    )


def _plain(exprs):
    """Return expressions that may begin a statement."""
    return exprs.filter(lambda x: not isinstance(x, (n.IfExpr, n.Switch, n.Access, n.BlockExpr, n.Block, n.Comptime)))


expressions = st.recursive(leaves, _extend, max_leaves=12)
types = st.recursive(make(n.Name, names), lambda inner: _types(inner, expressions), max_leaves=3)
maybe = st.one_of(st.none(), expressions)
attributes = st.lists(make(n.Attribute, st.sampled_from(["align", "linksection", "linkname"]), expressions), max_size=2)


def _var(node_kind, **named):
    value = expressions if node_kind == "const" else maybe
    return make(
        n.VarDecl,
        st.just(node_kind),
        names,
        st.one_of(st.none(), types),
        value,
        attributes=attributes.map(tuple),
        **named,
    )


places = _plain(expressions)
assigns = make(n.Assign, places, st.sampled_from(["=", "+=", "-=", "<<=", "|="]), expressions)
simple = st.one_of(
    assigns,
    make(n.ExprStatement, places),
    make(n.Return, maybe),
    make(n.Break, st.none(), maybe),
    make(n.Break, names, maybe),
    make(n.Continue, st.one_of(st.none(), names)),
)
local = st.one_of(
    _var("const"), _var("var"), _var("const", comptime=st.just(True)), _var("var", comptime=st.just(True))
)


def _nest(statements):
    blocks = make(n.Block, few(statements))
    loops = st.one_of(
        make(n.For, expressions, names, st.one_of(st.none(), names), blocks, st.booleans()),
        make(n.While, expressions, st.one_of(st.none(), assigns), blocks, st.booleans()),
    )
    case = make(n.Case, st.one_of(st.none(), few(expressions, 1)), st.one_of(blocks, simple))
    return st.one_of(
        blocks,
        make(n.If, expressions, blocks, st.one_of(st.none(), blocks, simple)),
        make(n.If, expressions, simple, st.none()),
        loops,
        make(n.Labelled, names, st.one_of(blocks, loops)),
        make(n.Switch, expressions, few(case)),
        make(n.ComptimeBlock, blocks),
    )


statements = st.recursive(st.one_of(simple, local), _nest, max_leaves=6)
blocks = make(n.Block, few(statements))
parameters = few(make(n.Parameter, names, types, st.booleans()))
storages = st.sampled_from([None, "export", "extern"])
items = st.one_of(
    _var("const", storage=storages),
    _var("var", storage=storages),
    make(n.ParamDecl, names, st.one_of(st.none(), types), maybe, attributes.map(tuple)),
    make(n.ColorDecl, names, maybe),
    make(
        n.FnDecl,
        st.just("fn"),
        names,
        parameters,
        types,
        st.one_of(st.none(), blocks),
        storages,
        st.sampled_from([None, "inline", "noinline"]),
        attributes.map(tuple),
    ),
    make(n.FnDecl, st.just("task"), names, parameters, types, blocks, attributes=attributes.map(tuple)),
    make(n.ComptimeBlock, blocks),
    make(n.LayoutBlock, blocks),
)
files = make(n.File, few(items))
