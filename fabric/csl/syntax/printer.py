"""The syntax tree is printed as text: one form for each tree, with parentheses only where they are needed.

For debugging, and for tests: what was printed parses to the same tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fabric.csl.syntax import nodes as n

__all__ = ["show"]

LEVELS = {"or": 1, "and": 2, "&": 4, "|": 4, "^": 4, "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "%": 7}
COMPARISON, PREFIX, LITERAL, TYPE, POSTFIX = 3, 8, 9, 10, 11
INDENT = "  "


def show(node: n.SyntaxNode, depth: int = 0) -> str:
    """Return a node as text.

    Parameters
    ----------
    node : Node
        A file, declaration, statement or expression.
    depth : int
        Levels of indentation of the lines after the first.
    """
    return _SHOWN[node.__class__](node, depth)


def _level(node: n.SyntaxNode) -> int:
    """Return how tightly an expression binds; 0 for those that only stand alone or in parentheses."""
    if isinstance(node, n.Binary):
        return LEVELS.get(node.op, COMPARISON)
    if isinstance(node, (n.Unary, n.Comptime)):
        return PREFIX
    if isinstance(node, n.Init):
        return LITERAL
    if isinstance(node, (n.PointerType, n.ArrayType, n.FnType)):
        return TYPE
    if isinstance(node, (n.IfExpr, n.Access, n.Switch, n.BlockExpr, n.Block)):
        return 0
    return POSTFIX


def _at(node: n.SyntaxNode, least: int, depth: int = 0) -> str:
    """Return an operand, in parentheses if it binds less tightly than asked for."""
    text = show(node, depth)
    return text if _level(node) >= least else f"({text})"


def _list(items: list[Any], depth: int) -> str:
    return ", ".join(show(item, depth) for item in items)


def _quoted(text: str) -> str:
    escapes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
    return "".join(escapes.get(c) or (c if 32 <= ord(c) < 127 else f"\\x{ord(c):02x}") for c in text)


def _lines(items: list[n.SyntaxNode], depth: int) -> str:
    return "".join(f"{INDENT * (depth + 1)}{_statement(item, depth + 1)}\n" for item in items)


def _statement(node: n.SyntaxNode, depth: int) -> str:
    """Return a statement with its semicolon, if it has one."""
    own = (n.Block, n.If, n.For, n.While, n.Switch, n.Labelled, n.VarDecl, n.ComptimeBlock)
    return show(node, depth) + ("" if isinstance(node, own) else ";")


def _body(node: n.SyntaxNode, depth: int) -> str:
    return _statement(node, depth)


def _block(node: n.Block, depth: int) -> str:
    return f"{{\n{_lines(node.body, depth)}{INDENT * depth}}}" if node.body else "{}"


def _attributes(items: tuple[n.Attribute, ...]) -> str:
    return "".join(f" {item.name}({show(item.value)})" for item in items)


def _var(node: n.VarDecl, depth: int) -> str:
    head = f"{node.storage} " if node.storage else ""
    head += "comptime " if node.comptime else ""
    kind = f": {_at(node.type, TYPE)}" if node.type is not None else ""
    value = f" = {show(node.value, depth)}" if node.value is not None else ""
    return f"{head}{node.kind} {node.name}{kind}{_attributes(node.attributes)}{value};"


def _param(node: n.ParamDecl, depth: int) -> str:
    kind = f": {_at(node.type, TYPE)}" if node.type is not None else ""
    value = f" = {show(node.value, depth)}" if node.value is not None else ""
    return f"param {node.name}{kind}{_attributes(node.attributes)}{value};"


def _color(node: n.ColorDecl, depth: int) -> str:
    return f"color {node.name}{f' = {show(node.value, depth)}' if node.value is not None else ''};"


def _parameter(node: n.FunctionParameter, depth: int) -> str:
    kind = _at(node.type, TYPE)
    return kind if node.name is None else f"{'comptime ' if node.comptime else ''}{node.name}: {kind}"


def _fn(node: n.FnDecl, depth: int) -> str:
    head = "".join(f"{word} " for word in (node.storage, node.inline) if word)
    text = f"{head}{node.kind} {node.name}({_list(node.params, depth)}) {_at(node.result, TYPE)}"
    return f"{text}{_attributes(node.attributes)}{';' if node.body is None else f' {show(node.body, depth)}'}"


def _if(node: n.If, depth: int) -> str:
    # Braces keep an `else` with the `if` that it belongs to.
    then = _body(node.then, depth)
    if node.otherwise is None:
        return f"if ({show(node.condition, depth)}) {then}"
    return f"if ({show(node.condition, depth)}) {then} else {_body(node.otherwise, depth)}"


def _if_expr(node: n.IfExpr, depth: int) -> str:
    then = show(node.then, depth)
    if isinstance(node.then, (n.IfExpr, n.Comptime)):
        then = f"({then})"
    text = f"if ({show(node.condition, depth)}) {then}"
    return text if node.otherwise is None else f"{text} else {show(node.otherwise, depth)}"


def _for(node: n.For, depth: int) -> str:
    names = node.item if node.index is None else f"{node.item}, {node.index}"
    head = f"{'inline ' if node.inline else ''}for ({show(node.sequence, depth)}) |{names}|"
    return f"{head} {_body(node.body, depth)}"


def _while(node: n.While, depth: int) -> str:
    step = f" : ({show(node.step, depth)})" if node.step is not None else ""
    return f"{'inline ' if node.inline else ''}while ({show(node.condition, depth)}){step} {_body(node.body, depth)}"


def _switch(node: n.Switch, depth: int) -> str:
    cases = []
    for case in node.cases:
        values = "else" if case.values is None else _list(case.values, depth)
        cases.append(f"{INDENT * (depth + 1)}{values} => {show(case.body, depth + 1)},\n")
    return f"switch ({show(node.subject, depth)}) {{\n{''.join(cases)}{INDENT * depth}}}"


def _jump(word: str, label: str | None, value: n.SyntaxNode | None, depth: int) -> str:
    return f"{word}{f' :{label}' if label else ''}{f' {show(value, depth)}' if value is not None else ''}"


def _binary(node: n.Binary, depth: int) -> str:
    level = _level(node)
    left = _at(node.left, level + 1 if level == COMPARISON else level, depth)
    return f"{left} {node.op} {_at(node.right, level + 1, depth)}"


def _unary(node: n.Unary, depth: int) -> str:
    return f"{node.op}{_at(node.value, PREFIX, depth)}"


def _comptime(node: n.Comptime, depth: int) -> str:
    if isinstance(node.value, n.IfExpr):
        return f"comptime ({show(node.value, depth)})"
    return f"comptime {_at(node.value, PREFIX, depth)}"


def _access(node: n.Access, depth: int) -> str:
    names = ", ".join(node.names)
    return f"|{names}|{{{_list(node.extents, depth)}}} -> {show(node.base)}[{_list(node.subscripts, depth)}]"


def _fields(fields: list[tuple[str, n.SyntaxNode]], depth: int) -> str:
    return ", ".join(f".{name} = {show(value, depth)}" for name, value in fields)


def _init(node: n.Init, depth: int) -> str:
    body = node.body
    inner = _fields(body.fields, depth) if isinstance(body, n.StructLiteral) else _list(body.items, depth)  # type: ignore[attr-defined]
    return f"{_at(node.type, TYPE, depth)}{{{inner}}}"


def _pointer(node: n.PointerType, depth: int) -> str:
    return f"{'[*]' if node.many else '*'}{'const ' if node.const else ''}{_at(node.target, TYPE, depth)}"


def _fn_type(node: n.FnType, depth: int) -> str:
    params = ", ".join(_at(param, TYPE, depth) for param in node.params)
    return f"{node.kind}({params}) {_at(node.result, TYPE, depth)}"


def _struct_type(node: n.StructType, depth: int) -> str:
    fields = "".join(f" {name}: {_at(kind, TYPE, depth)}," for name, kind in node.fields)
    return f"{node.packing + ' ' if node.packing else ''}{node.form} {{{fields} }}"


def _enum_type(node: n.EnumType, depth: int) -> str:
    members = "".join(f" {name}{f' = {show(v, depth)}' if v is not None else ''}," for name, v in node.members)
    return f"enum{f'({_at(node.base, TYPE, depth)})' if node.base is not None else ''} {{{members} }}"


def _float(node: n.Float, depth: int) -> str:
    text = repr(node.value)
    return text if any(c in text for c in ".e") else f"{text}.0"


_SHOWN: dict[type, Callable[[Any, int], str]] = {
    n.File: lambda x, d: "".join(f"{show(item)}\n" for item in x.items),
    n.VarDecl: _var,
    n.ParamDecl: _param,
    n.ColorDecl: _color,
    n.FnDecl: _fn,
    n.FunctionParameter: _parameter,
    n.ComptimeBlock: lambda x, d: f"comptime {show(x.body, d)}",
    n.LayoutBlock: lambda x, d: f"layout {show(x.body, d)}",
    n.Block: _block,
    n.ExprStatement: lambda x, d: show(x.value, d),
    n.Assign: lambda x, d: f"{show(x.target, d)} {x.op} {show(x.value, d)}",
    n.Return: lambda x, d: _jump("return", None, x.value, d),
    n.Break: lambda x, d: _jump("break", x.label, x.value, d),
    n.Continue: lambda x, d: _jump("continue", x.label, None, d),
    n.If: _if,
    n.For: _for,
    n.While: _while,
    n.Switch: _switch,
    n.Labelled: lambda x, d: f"{x.label}: {show(x.body, d)}",
    n.Name: lambda x, d: x.name,
    n.Int: lambda x, d: str(x.value),
    n.Float: _float,
    n.String: lambda x, d: f'"{_quoted(x.value)}"',
    n.Unary: _unary,
    n.Binary: _binary,
    n.Comptime: _comptime,
    n.IfExpr: _if_expr,
    n.BlockExpr: lambda x, d: f"{f'{x.label}: ' if x.label else ''}{show(x.body, d)}",
    n.Access: _access,
    n.FieldAccess: lambda x, d: f"{_at(x.base, POSTFIX, d)}.{x.name}",
    n.Deref: lambda x, d: f"{_at(x.base, POSTFIX, d)}.*",
    n.Index: lambda x, d: f"{_at(x.base, POSTFIX, d)}[{_list(x.subscripts, d)}]",
    n.Call: lambda x, d: f"{_at(x.callee, POSTFIX, d)}({_list(x.arguments, d)})",
    n.Builtin: lambda x, d: f"{x.name}({_list(x.arguments, d)})",
    n.StructLiteral: lambda x, d: f".{{{_fields(x.fields, d)}}}",
    n.TupleLiteral: lambda x, d: f".{{{_list(x.items, d)}}}",
    n.Init: _init,
    n.PointerType: _pointer,
    n.ArrayType: lambda x, d: f"[{_list(x.dims, d)}]{_at(x.element, TYPE, d)}",
    n.FnType: _fn_type,
    n.StructType: _struct_type,
    n.EnumType: _enum_type,
    n.Asm: lambda x, d: x.text,
}
