"""What the assembler refuses, said about the source: each error becomes a message with a place in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabric.asm import hints
from fabric.asm.operands import Var
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.ir import StaticMemory
from wse_core.errors import WseError

__all__ = ["HINTS", "in_source"]

HINTS = {
    **hints.HINTS,
    "dsr id": "@get_dsr(dsr_{file}, {id}), or leave the choice to the compiler",
    "dsrs": "use fewer numbers in @get_dsr, or load every descriptor with @load_to_dsr",
    "load": "@load_to_dsr before it",
}
"""What the assembler refuses comes with these hints, in the words of CSL."""

SHOWN = 4
"""The message about a program's size shows so many of its largest parts, not more."""


def in_source(
    error: WseError, spans: Mapping[str, Span], variables: Mapping[StaticMemory, Var], code_words: int, whole: Span
) -> Fault:
    """Return a refusal of the assembler as a `Fault`.

    Parameters
    ----------
    error : WseError
    spans : mapping
        Places that instructions were given, as text, to the spans that they stand for.
    variables : mapping
        All that lies in memory.
    code_words : int
        Words of code, as far as it was written.
    whole : Span
        Stands for the program where nothing smaller is known.
    """
    if getattr(error, "limit", None) == "memory":
        return _too_large(error, variables, code_words, whole)
    return Fault(error.what, spans.get(str(error.where), whole), error.hint or error.cause)


def _too_large(error: Any, variables: Mapping[StaticMemory, Var], code_words: int, whole: Span) -> Fault:
    """Return the message for a program that does not fit, at the declaration of its largest variable."""
    own = sorted((m for m in variables if m.span is not None), key=lambda m: -m.words)
    own_words = sum(memory.words for memory in own)
    parts = [(f"'{memory.name}'", memory.words) for memory in own] + [("code", code_words)]
    parts.append(("what the compiler adds", sum(m.words for m in variables) - own_words))
    largest = [f"{name} {2 * words:,}" for name, words in sorted(parts, key=lambda part: -part[1])[:SHOWN] if words]
    message = f"the program needs {2 * error.needed:,} bytes, a PE has {2 * error.available:,}"
    place = own[0].span if own and own[0].words >= code_words else whole
    return Fault(message, place or whole, f"bytes of its largest parts: {', '.join(largest)}")
