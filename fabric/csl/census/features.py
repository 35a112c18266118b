"""Which features of the language a syntax tree uses, by name and with the number of uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fabric.csl.syntax import nodes as n
from fabric.csl.types import named_type

__all__ = ["UNSUPPORTED", "features_of"]

UNSUPPORTED = {"inline assembly": "refused: write it with builtins", "bf16": "known at compile time only"}
"""These features are not simply supported: name -> what becomes of them."""

DECLARATIONS: dict[type, Callable[[Any], str | None]] = {
    n.ParamDecl: lambda x: "param with default" if x.value is not None else "param",
    n.ColorDecl: lambda x: "color declaration (old)",
    n.FnDecl: lambda x: x.kind,
    n.LayoutBlock: lambda x: "layout block",
    n.ComptimeBlock: lambda x: "comptime block",
    n.Comptime: lambda x: "comptime expression",
    n.Access: lambda x: f"access expression, {len(x.names)} dimension{'s' * (len(x.names) > 1)}",
    n.StructLiteral: lambda x: "anonymous struct" if x.fields else None,
    n.TupleLiteral: lambda x: "tuple",
    n.Init: lambda x: "array literal" if isinstance(x.type, n.ArrayType) else "named struct literal",
    n.StructType: lambda x: f"{x.packing + ' ' if x.packing else ''}{x.form} type",
    n.EnumType: lambda x: "enum",
    n.FnType: lambda x: f"{x.kind} type",
    n.PointerType: lambda x: "[*]T" if x.many else "*T",
    n.ArrayType: lambda x: "array" if len(x.dims) == 1 else "array of several dimensions",
    n.Asm: lambda x: "inline assembly",
    n.If: lambda x: "if",
    n.IfExpr: lambda x: "if as a value",
    n.Switch: lambda x: "switch",
    n.Labelled: lambda x: "label",
    n.BlockExpr: lambda x: "block as a value",
    n.Deref: lambda x: "dereference",
    n.String: lambda x: "string",
}


def _loops(node: n.SyntaxNode) -> str | None:
    if isinstance(node, n.For):
        over = "range" if isinstance(node.sequence, n.Builtin) and node.sequence.name == "@range" else "array"
        return f"{'inline ' if node.inline else ''}for over {'a range' if over == 'range' else 'an array'}"
    if isinstance(node, n.While):
        return f"{'inline ' if node.inline else ''}while{' with continue step' if node.step else ''}"
    return None


def features_of(tree: n.File) -> Counter[str]:
    """Return how often a file uses each feature.

    Returns
    -------
    collections.Counter
        Names of builtins begin with ``@``, names of modules stand in ``<>``, everything else is in words.
    """
    found: Counter[str] = Counter()
    for node in n.walk(tree):
        kind = node.__class__
        if (kind in DECLARATIONS and (name := DECLARATIONS[kind](node))) or (name := _loops(node)):
            found[name] += 1
        if isinstance(node, n.Builtin):
            found[node.name] += 1
            _of_builtin(node, found)
        elif isinstance(node, n.VarDecl):
            found[node.kind] += 1
            if node.storage:
                found[f"{node.storage} {node.kind}"] += 1
        elif isinstance(node, n.FnDecl):
            if node.inline:
                found[f"{node.inline} fn"] += 1
            if node.storage:
                found[f"{node.storage} fn"] += 1
            if node.params and node.kind == "task":
                found[f"task with {len(node.params)} parameter{'s' * (len(node.params) > 1)}"] += 1
        elif isinstance(node, n.Attribute):
            found[node.name] += 1
        elif isinstance(node, n.Assign) and node.op != "=":
            found["compound assignment"] += 1
        elif isinstance(node, n.Name) and (known := named_type(node.name)) is not None:
            found[f"type {known}"] += 1
        elif isinstance(node, n.Unary) and node.op == "&":
            found["address"] += 1
        elif isinstance(node, (n.Break, n.Continue)):
            found["break" if isinstance(node, n.Break) else "continue"] += 1
    return found


def _of_builtin(node: n.Builtin, found: Counter[str]) -> None:
    """Count what the arguments of a builtin say: the module of an import, kinds and fields of DSDs, options."""
    arguments = node.arguments
    if node.name == "@import_module" and arguments:
        for inner in n.walk(arguments[0]):
            if isinstance(inner, n.String) and inner.value.startswith("<"):
                found[inner.value] += 1
    if node.name == "@get_dsd" and arguments and isinstance(arguments[0], n.Name):
        for inner in arguments[1:]:
            for field, _ in inner.fields if isinstance(inner, n.StructLiteral) else ():
                found[f"{arguments[0].name}.{field}"] += 1
        return
    if node.name in ("@set_color_config", "@set_local_color_config") and isinstance(arguments[-1], n.StructLiteral):
        for name, value in arguments[-1].fields:
            found[f"color config: {name}"] += 1
            for part, _ in value.fields if isinstance(value, n.StructLiteral) else ():
                found[f"color config: {name}.{part}"] += 1
    elif len(arguments) > 1 and isinstance(arguments[-1], n.StructLiteral) and node.name != "@import_module":
        for name, _ in arguments[-1].fields:
            if name in ("async", "activate", "unblock", "on_control", "priority", "index", "ut_id", "save_address"):
                found[f"option {name}"] += 1
