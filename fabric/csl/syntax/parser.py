"""`parse` makes the syntax tree of the text of a program.

The grammar stands in ``csl.lark``; the library `lark` (extra ``csl``) makes the tables of an LALR(1) parser from it.
They are kept in the user's cache directory, because making them takes longer than parsing any program.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fabric.csl.diagnostics import CslError, Diagnostic, Fault, Source, Span, read_text
from fabric.csl.syntax.build import build
from fabric.csl.syntax.nodes import File
from wse_core.errors import ConfigError

__all__ = ["instead_of_files", "parse", "read"]

GRAMMAR = Path(__file__).with_name("csl.lark")
LEXIS = re.compile(r'//[^\n]*|\s+|"(?:\\.|[^"\\\n])*"|\'(?:\\.[0-9a-fA-F]*|[^\'\\\n])\'|\w+|.', re.DOTALL)
PAIRS = {")": "(", "]": "[", "}": "{"}
TYPES = {
    "int": "i16", "long": "i32", "unsigned": "u16", "short": "i16", "char": "u8", "float": "f32", "double": "f32",
    "let": "i16", "auto": "i16", "int32_t": "i32", "uint32_t": "u32", "int16_t": "i16", "uint16_t": "u16",
}  # fmt: skip
"""Words with which other languages declare variables have these types in their place."""
NESTED = "functions, tasks and params are declared at the top of a file, not inside of a block"
TOP = "a file has const, var, param, fn, task, comptime and layout at its top"
STARTS = {"NAME", "INT", "STRING", "BUILTIN"}


def cache_file() -> str | None:
    """Return where the parser's tables are kept, or None if nothing can be written there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(base, "wse-sim")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(directory / "csl-grammar") if os.access(directory, os.W_OK) else None


@lru_cache(maxsize=1)
def parser() -> Any:
    """Return the parser; made once per process."""
    try:
        import lark
    except ModuleNotFoundError as error:
        raise ConfigError(
            "reading CSL needs the library lark, which is not installed", hint="pip install 'wse-sim[csl]'"
        ) from error
    options = {"parser": "lalr", "start": "file", "propagate_positions": True, "maybe_placeholders": True}
    return lark.Lark(GRAMMAR.read_text(encoding="utf-8"), cache=cache_file() or False, **options)


_OPEN: ContextVar[Mapping[Path, str]] = ContextVar("texts that stand in for files", default=MappingProxyType({}))


@contextmanager
def instead_of_files(texts: Mapping[Path, str]) -> Iterator[None]:
    """Let texts stand in for the files at their resolved paths, as an editor has them that are not written yet."""
    token = _OPEN.set(texts)
    try:
        yield
    finally:
        _OPEN.reset(token)


def read(path: str | Path, name: str | None = None) -> Source:
    """Read a file of CSL as a `Source`.

    Parameters
    ----------
    path : path
        Where it lies.
    name : str, optional
        How messages call it; the path if not given.

    Returns
    -------
    Source

    Raises
    ------
    ConfigError
        If it cannot be read.
    """
    path = Path(path)
    if (held := _OPEN.get()) and (text := held.get(path.resolve())) is not None:
        return Source(name or str(path), text, path)
    try:
        return Source(name or str(path), read_text(path), path)
    except UnicodeDecodeError as error:
        where = f"{path}:{error.object[: error.start].count(bytes([10])) + 1}"
        raise ConfigError("cannot read the CSL file: it is not UTF-8 text from here on", where=where) from error
    except OSError as error:
        raise ConfigError(f"cannot read the CSL file: {error.strerror}", where=str(path)) from error


def parse(source: Source) -> File:
    """Return the tree of a source.

    Raises
    ------
    CslError
        If the text is no CSL; it says where and what was expected.
    """
    from lark.exceptions import UnexpectedInput

    engine = parser()
    try:
        return build(engine.parse(source.text), source)
    except UnexpectedInput as error:
        raise CslError([explain(error, source, engine)]) from None
    except Fault as fault:
        assert fault.diagnostic is not None
        raise CslError([fault.diagnostic]) from None


def explain(error: Any, source: Source, engine: Any) -> Diagnostic:
    """Return what a refusal of the parser means to the reader of the source."""
    text = source.text
    accepted = set(
        getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", ()) or ()
    )
    wanted = [_shown(name, engine) for name in sorted(accepted - {"$END"})]
    start = getattr(error, "pos_in_stream", None)
    start = len(text) if start is None or getattr(getattr(error, "token", None), "type", "") == "$END" else start
    before = _tokens(text, start)
    if start >= len(text):
        return _explain_end(text, source, before)
    found = LEXIS.match(text, start)
    word = found[0] if found else text[start]
    span = Span(source, start, start + len(word))
    if word in ("'", '"'):
        return Diagnostic(
            "error", f"this {'string' if word == chr(34) else 'character'} does not end in its line", span
        )
    if word == "/" and text.startswith("/*", start):
        return Diagnostic("error", "block comments are not part of CSL", span, "write // before each line")
    if (known := habit(text, start, word)) is not None:
        return Diagnostic("error", f"'{word}' does not fit here", span, known)
    last = before[-1] if before else None
    if (
        habit(text, start, word) is None
        and "SEMICOLON" in accepted
        and last is not None
        and last[0] not in ";{}"
        and word not in PAIRS.keys() - {"}"}
    ):
        place = Span(source, last[1], last[1] + 1)
        return Diagnostic("error", f"';' is missing after '{last[0]}'", place, f"found '{word}' instead")
    if len(wanted) == 1:
        return Diagnostic("error", f"expected {wanted[0]} before '{word}'", span)
    hint = None
    if accepted >= STARTS:
        hint = "an expression is expected here"
    elif 0 < len(wanted) <= 8:
        hint = f"expected one of {', '.join(wanted)}"
    elif not _open_brackets(before) and (last is None or last[0] in ";}"):
        hint = TOP
    if word in PAIRS and not _open_brackets(before):
        hint = f"no '{PAIRS[word]}' is open here"
    return Diagnostic("error", f"'{word}' does not fit here", span, hint)


def habit(text: str, start: int, word: str) -> str | None:
    """Return what CSL has for something that other languages have, which stands at a place that does not fit."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if re.search(r"\bfor\s*\([^)|]*$", line) and (
        word in (";", "=", ",") or re.search(r"\bfor\s*\(\s*(\w+\s+)?$", line)
    ):
        return "loops run over ranges: for (@range(i16, n)) |i| { ... }"
    if re.search(r"(\+\s*|-\s*-\s*)$", line) and word in ("+", ";", ")"):
        sign = "+" if line.rstrip().endswith("+") else "-"
        return f"there is no {sign}{sign}; write i {sign}= 1"
    if word == "|" and line.endswith("|"):
        return "'or' is the operator: a or b"
    if (kind := re.search(r"(?:^|[;{])\s*(\w+)\s*\*?\s*$", line)) and kind[1] in TYPES and word.isidentifier():
        return f"a variable has its type behind its name: var {word}: {TYPES[kind[1]]} = ..."
    if word == "?":
        return "a choice is written: if (c) a else b"
    if re.search(r"(?:^|[;{])\s*(fn|task|param)\s*$", line) and word.isidentifier():
        return NESTED
    return None


def _explain_end(text: str, source: Source, before: list[tuple[str, int]]) -> Diagnostic:
    """Return the message for a text that ends too early."""
    end = len(text.rstrip())
    place = Span(source, max(0, end - 1), end)
    still = _open_brackets(before)
    if still:
        bracket, start = still[-1]
        return Diagnostic("error", f"the file ends, but this '{bracket}' is still open", Span(source, start, start + 1))
    return Diagnostic("error", "the file ends in the middle of a declaration", place, "is a ';' missing?")


def _open_brackets(tokens: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the brackets among (token, end) pairs that are not closed, with their offsets."""
    still: list[tuple[str, int]] = []
    for token, end in tokens:
        if token in "([{":
            still.append((token, end - 1))
        elif token in PAIRS and still:
            still.pop()
    return still


def _tokens(text: str, end: int) -> list[tuple[str, int]]:
    """Return the words before an offset, without blanks and comments, each with the offset after it."""
    return [
        (match[0], match.end())
        for match in LEXIS.finditer(text, 0, end)
        if not match[0].isspace() and not match[0].startswith("//")
    ]


NAMES = {
    "NAME": "a name",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "CHAR": "a character",
    "BUILTIN": "a builtin",
    "ASSIGN": "an assignment",
    "EQUALS": "'='",
    "COMPARE": "a comparison",
    "SHIFT": "a shift",
    "DEREF": "'.*'",
    "DOTBRACE": "'.{'",
}


def _shown(name: str, engine: Any) -> str:
    """Return a terminal as a reader knows it."""
    if name in NAMES:
        return NAMES[name]
    return f"'{engine.get_terminal(name).pattern.value}'"
