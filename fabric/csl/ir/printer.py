"""The intermediate form as text, for people and for messages of broken promises."""

from __future__ import annotations

from fabric.csl.ir.code import Block, Function

__all__ = ["listing"]


def listing(function: Function) -> str:
    """Return a function as text."""
    lines = [f"{function.kind} {function.name}({', '.join(map(repr, function.params))})"]
    for block in function.blocks:
        lines.append(_head(block))
        lines += [f"    {instr!r}" for instr in block.code]
    return "\n".join(lines)


def _head(block: Block) -> str:
    return f"  {block}:" + (f"  ; loop depth {block.depth}" if block.depth else "")
