"""`build` makes the nodes of the syntax tree from the parser's raw tree: one function per rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl.diagnostics import Fault, Source, Span
from fabric.csl.syntax import nodes as n

__all__ = ["build"]

# fmt: off
RESERVED = frozenset((
    "const", "var", "param", "fn", "comptime", "if", "else", "for", "while", "switch", "break", "continue", "return",
    "export", "extern", "inline", "struct", "enum", "and", "or",
))
# fmt: on
"""Words that no declaration can have as its name; the newer ones of the language are not among them."""
MOST_DIGITS = 4_200
"""Digits of a number that is written out; Python converts up to 4,300."""
MOST_NESTED = 400
"""A source may nest at most so deep: the stages of the compiler follow it down."""

RULES: dict[str, Callable[[list[Any], Span], Any]] = {}


def build(tree: Any, source: Source) -> n.File:
    """Return the nodes of a raw tree; iterative, so that no nesting is too deep for it."""
    made: dict[int, Any] = {}
    for sub in tree.iter_subtrees():
        children = [made[id(child)] if hasattr(child, "children") else child for child in sub.children]
        meta = sub.meta
        span = Span(source, 0, 0) if meta.empty else Span(source, meta.start_pos, meta.end_pos)
        made[id(sub)] = RULES[sub.data](children, span)
    found: n.File = made[id(tree)]
    _check_depth(found)
    return found


def _check_depth(root: n.SyntaxNode) -> None:
    """Refuse a source that nests too deep."""
    level = [root]
    for _ in range(MOST_NESTED):
        level = [below for node in level for below in n.children(node)]
        if not level:
            return
    raise Fault(f"this nests deeper than {MOST_NESTED} levels", level[0].span, "split it into functions or statements")


def rule(*names: str) -> Callable:
    """Register a function for rules of the grammar."""

    def register(function: Callable) -> Callable:
        for name in names:
            RULES[name] = function
        return function

    return register


def simple(name: str, node: Callable[..., Any]) -> None:
    """Register a rule whose children are the fields of a node, in order."""
    RULES[name] = lambda c, span: node(*(_plain(child) for child in c), span=span)


def _plain(child: Any) -> Any:
    """Return a token as a string, anything else as it is."""
    return str(child) if isinstance(child, str) else child


def unescape(text: str, span: Span) -> str:
    r"""Return what a quoted text means; a character per byte."""
    inner, out, at = text[1:-1], [], 0
    while at < len(inner):
        if inner[at] != "\\":
            out.append(inner[at])
            at += 1
            continue
        kind = inner[at + 1]
        if kind == "x":
            digits = inner[at + 2 : at + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise Fault("\\x needs two hexadecimal digits", span) from None
            at += 4
        elif kind in "nt\\\"'r0":
            out.append({"n": "\n", "t": "\t", "r": "\r", "0": "\0"}.get(kind, kind))
            at += 2
        else:
            raise Fault(f"'\\{kind}' is no escape sequence", span, "use \\n, \\t, \\\\, \\\", \\' or \\xNN")
    return "".join(out)


@rule("file")
def _file(c: list[Any], span: Span) -> n.File:
    return n.File(c, span=span)


@rule("storage", "inlining")
def _word(c: list[Any], span: Span) -> str:
    return str(c[0])


@rule("attributes", "params")
def _list(c: list[Any], span: Span) -> list[Any]:
    return [item for item in c if item is not None]


@rule("arguments", "init_items")
def _items(c: list[Any], span: Span) -> list[Any]:
    return [item for item in c if isinstance(item, n.SyntaxNode)]


@rule("init_fields", "struct_fields")
def _pairs(c: list[Any], span: Span) -> list[tuple[str, n.SyntaxNode]]:
    rest = [item for item in c if item is not None]
    return [(str(rest[i]), rest[i + 1]) for i in range(0, len(rest), 2)]


@rule("attribute")
def _attribute(c: list[Any], span: Span) -> n.Attribute:
    return n.Attribute(str(c[0]), c[2], span=span)


def _named_by(name: Any, span: Span) -> str:
    """Return the name of a declaration."""
    if str(name) in RESERVED:
        raise Fault(f"'{name}' is a word of the language; it cannot be a name", span)
    return str(name)


def _declared(kind: str) -> Callable:
    def make(c: list[Any], span: Span) -> n.VarDecl:
        storage, name, of_type, attributes, value = c
        if kind == "const" and value is None and storage != "extern":
            raise Fault(f"the const '{name}' has no value", span, f"const {name} = ...; or var, or extern const")
        return n.VarDecl(kind, _named_by(name, span), of_type, value, storage, tuple(attributes), span=span)

    return make


RULES["const_decl"] = _declared("const")
RULES["var_decl"] = _declared("var")


@rule("comptime_const", "comptime_var")
def _comptime_var(c: list[Any], span: Span) -> n.VarDecl:
    _, name, of_type, attributes, value = c
    kind = "const" if span.text[len("comptime") :].lstrip().startswith("const") else "var"
    return n.VarDecl(kind, _named_by(name, span), of_type, value, None, tuple(attributes), True, span=span)


@rule("param_decl")
def _param_decl(c: list[Any], span: Span) -> n.ParamDecl:
    name, of_type, attributes, value = c
    return n.ParamDecl(_named_by(name, span), of_type, value, tuple(attributes), span=span)


simple("color_decl", n.ColorDecl)


@rule("fn_decl")
def _fn(c: list[Any], span: Span) -> n.FnDecl:
    storage, inlining, name, params, before, result, after, *body = c
    _check_parameters(params)
    if not any(body) and storage != "extern":
        raise Fault(f"the function '{name}' has no body", span, "{ ... }; or extern fn, for one of another file")
    return n.FnDecl(
        "fn",
        _named_by(name, span),
        params,
        result,
        body[0] if body else None,
        storage,
        inlining,
        (*before, *after),
        span=span,
    )


def _check_parameters(params: list[n.FunctionParameter]) -> None:
    """Refuse two parameters of one name."""
    seen: set[str] = set()
    for param in params:
        if param.name in seen:
            raise Fault(f"the parameter '{param.name}' is declared twice", param.span)
        seen |= {param.name} if param.name not in (None, "_") else set()


@rule("task_decl")
def _task(c: list[Any], span: Span) -> n.FnDecl:
    name, params, before, result, after, body = c
    _check_parameters(params)
    return n.FnDecl("task", _named_by(name, span), params, result, body, None, None, (*before, *after), span=span)


@rule("named_param")
def _named(c: list[Any], span: Span) -> n.FunctionParameter:
    return n.FunctionParameter(_named_by(c[1], span), c[2], c[0] is not None, span=span)


@rule("unnamed_param")
def _unnamed(c: list[Any], span: Span) -> n.FunctionParameter:
    return n.FunctionParameter(None, c[0], span=span)


@rule("comptime_block")
def _comptime_block(c: list[Any], span: Span) -> n.ComptimeBlock:
    return n.ComptimeBlock(c[-1], span=span)


simple("layout_block", n.LayoutBlock)


@rule("block")
def _block(c: list[Any], span: Span) -> n.Block:
    return n.Block(c, span=span)


simple("expr_stmt", n.ExprStatement)
simple("assign", n.Assign)
simple("return", n.Return)
simple("break", n.Break)
simple("continue", n.Continue)
simple("if_stmt", n.If)
simple("labelled", n.Labelled)


@rule("for_stmt")
def _for(c: list[Any], span: Span) -> n.For:
    inline, sequence, item, index, body = c
    if item == index and item != "_":
        raise Fault(f"the element and its index are both called '{item}'", span, f"|{item}, i|")
    return n.For(sequence, str(item), None if index is None else str(index), body, inline is not None, span=span)


@rule("while_stmt")
def _while(c: list[Any], span: Span) -> n.While:
    inline, condition, step, body = c
    return n.While(condition, step, body, inline is not None, span=span)


@rule("switch")
def _switch(c: list[Any], span: Span) -> n.Switch:
    return n.Switch(c[0], [case for case in c[1:] if case is not None], span=span)


simple("case", n.Case)


@rule("labelled_value")
def _labelled_value(c: list[Any], span: Span) -> n.ExprStatement:
    return n.ExprStatement(n.BlockExpr(str(c[0]), c[1], span=span), span=span)


@rule("open_if")
def _open_if(c: list[Any], span: Span) -> n.SyntaxNode:
    """Return an `if` that no semicolon ends: a value, unless one of its branches is no value."""
    condition, *branches = c
    values = [branch.value for branch in branches if isinstance(branch, n.ExprStatement)]
    if len(values) < 2:
        return n.If(condition, branches[0], branches[1] if len(branches) == 2 else None, span=span)
    return n.ExprStatement(n.IfExpr(condition, *values, span=span), span=span)


@rule("case_values", "extents")
def _case_values(c: list[Any], span: Span) -> list[n.SyntaxNode]:
    return [entry for entry in c if entry is not None]


@rule("default")
def _default(c: list[Any], span: Span) -> None:
    return None


simple("if_expr", n.IfExpr)


@rule("leaving")
def _leaving(c: list[Any], span: Span) -> n.BlockExpr:
    """Return a branch that leaves the function or loop instead of giving a value, as a block that does so."""
    return n.BlockExpr(None, n.Block(c, span=span), span=span)


@rule("comptime")
def _comptime(c: list[Any], span: Span) -> n.Comptime:
    return n.Comptime(c[-1], span=span)


@rule("block_expr")
def _block_expr(c: list[Any], span: Span) -> n.BlockExpr:
    return n.BlockExpr(_plain(c[0]), c[1], span=span)


@rule("access")
def _access(c: list[Any], span: Span) -> n.Access:
    names = [str(item) for item in c if isinstance(item, str)]
    extents, base, *subscripts = c[len(names) :]
    if len(extents) != len(names):
        what = f"{len(names)} names, but {len(extents)} extents"
        raise Fault(what, span, "one extent per name: |i, j|{M, N} -> a[i, j]")
    return n.Access(names, extents, base, subscripts, span=span)


@rule("logical_or")
def _or(c: list[Any], span: Span) -> n.Binary:
    return n.Binary("or", *c, span=span)


@rule("logical_and")
def _and(c: list[Any], span: Span) -> n.Binary:
    return n.Binary("and", *c, span=span)


@rule("binary")
def _binary(c: list[Any], span: Span) -> n.Binary:
    return n.Binary(str(c[1]), c[0], c[2], span=span)


@rule("unary")
def _unary(c: list[Any], span: Span) -> n.Unary:
    return n.Unary(str(c[0]), c[1], span=span)


@rule("init")
def _init(c: list[Any], span: Span) -> n.Init:
    return n.Init(c[0], _literal(c[1], span), span=span)


@rule("anonymous")
def _anonymous(c: list[Any], span: Span) -> n.SyntaxNode:
    return _literal(c[1], span)


def _literal(items: list[Any], span: Span) -> n.SyntaxNode:
    """Return the literal of what stands between braces."""
    if items and isinstance(items[0], n.SyntaxNode):
        return n.TupleLiteral(items, span=span)
    seen: set[str] = set()
    for name, value in items:
        if name in seen:
            raise Fault(f"the field .{name} is given twice", value.span)
        seen.add(name)
    return n.StructLiteral(items, span=span)


@rule("pointer_type")
def _pointer(c: list[Any], span: Span) -> n.PointerType:
    return n.PointerType(c[1], c[0] is not None, False, span=span)


@rule("many_pointer_type")
def _many(c: list[Any], span: Span) -> n.PointerType:
    return n.PointerType(c[1], c[0] is not None, True, span=span)


@rule("array_type")
def _array(c: list[Any], span: Span) -> n.ArrayType:
    return n.ArrayType(c[:-1], c[-1], span=span)


@rule("fn_type")
def _fn_type(c: list[Any], span: Span) -> n.FnType:
    return n.FnType(str(c[0]), [param.type for param in c[2]], c[4], span=span)  # names mean nothing


simple("name", n.Name)


@rule("int")
def _int(c: list[Any], span: Span) -> n.Int:
    digits = str(c[0]).replace("_", "")
    if len(digits) > MOST_DIGITS:
        raise Fault(f"a number of {len(digits):,} digits; at most {MOST_DIGITS:,} are taken", span)
    return n.Int(int(digits, 0) if not digits.isdigit() else int(digits), str(c[0]), span=span)


@rule("char")
def _char(c: list[Any], span: Span) -> n.Int:
    text = unescape(str(c[0]), span)
    if len(text) != 1:
        raise Fault("a character literal holds one character", span)
    return n.Int(ord(text), str(c[0]), span=span)


@rule("float")
def _float(c: list[Any], span: Span) -> n.Float:
    value = float(str(c[0]).replace("_", ""))
    if value == float("inf"):
        raise Fault("this number is larger than any float of 64 bits", span)
    return n.Float(value, span=span)


@rule("string")
def _string(c: list[Any], span: Span) -> n.String:
    return n.String(unescape(str(c[0]), span), span=span)


@rule("builtin")
def _builtin(c: list[Any], span: Span) -> n.Builtin:
    return n.Builtin(str(c[0]), c[1], span=span)


@rule("group")
def _group(c: list[Any], span: Span) -> n.SyntaxNode:
    return c[0]


simple("field", n.FieldAccess)


@rule("deref")
def _deref(c: list[Any], span: Span) -> n.Deref:
    return n.Deref(c[0], span=span)


@rule("index")
def _index(c: list[Any], span: Span) -> n.Index:
    return n.Index(c[0], c[1:], span=span)


simple("call", n.Call)


@rule("struct_type")
def _struct_type(c: list[Any], span: Span) -> n.StructType:
    packing, form, _, given, _ = c
    seen: set[str] = set()
    for name, kind in given or []:
        if name in seen:
            raise Fault(f"the {form} has the field '{name}' twice", kind.span)
        seen.add(name)
    return n.StructType(str(form), _plain(packing), given or [], span=span)


@rule("enum_type")
def _enum_type(c: list[Any], span: Span) -> n.EnumType:
    base, *members = c
    return n.EnumType(base, [member for member in members if member is not None], span=span)


@rule("enum_member")
def _enum_member(c: list[Any], span: Span) -> tuple[str, n.SyntaxNode | None]:
    return str(c[0]), c[1]


@rule("asm", "asm_op")
def _asm(c: list[Any], span: Span) -> n.Asm:
    return n.Asm(span.text, span=span)
