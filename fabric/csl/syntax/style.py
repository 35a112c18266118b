"""A source text has one layout: indentation, blanks, blank lines.  Line breaks and comments stay as they are.

A line is indented by what is open in front of it, two blanks for each statement that brackets have opened, and by two
more where a statement goes on.  Blanks follow rules where these are certain (commas, brackets, assignments,
comparisons, words before a parenthesis); elsewhere several become one, and whether there is one is the author's choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fabric.csl.diagnostics import Source
from fabric.csl.syntax.parser import parse
from wse_core.errors import InternalError

__all__ = ["TOKEN", "formatted"]

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.[0-9a-fA-F]*|[^'\\\n])')
    |(?P<number>[0-9][0-9_]*\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?|[0-9][0-9_]*[eE][+-]?[0-9]+|[0-9]\w*)
    |(?P<word>@?[A-Za-z_]\w*)
    |(?P<mark>\.\s*\{|\.\*|<<=|>>=|[-+*/%&|^]=|==|!=|<=|>=|<<|>>|->|=>|[^\s\w])
    |(?P<end>\n)|(?P<blank>[^\S\n]+)""",
    re.VERBOSE,
)
"""What a text consists of; `end` is that of a line."""

STEP = 2
WIDE = {"=", "==", "!=", "<=", ">=", "<", ">", "->", "=>"} | {f"{c}=" for c in ("+", "-", "*", "/", "%", "&", "|", "^")}
WIDE |= {"<<=", ">>="}
"""Marks with a blank on either side."""
ASKING = {"if", "for", "while", "switch"}
"""These words have a blank before their parenthesis."""
CLOSES = {")": "(", "]": "[", "}": "{"}


@dataclass
class _Level:
    """A `_Level` is an open bracket: the indentation of its contents, and where the statement began that is being
    written in it.
    """

    inside: int
    closing: int
    begun: int | None = None


def formatted(source: Source) -> str:
    """Return the text of a source in the one layout; it says the same, and formatting it again changes nothing.

    Raises
    ------
    CslError
        The text is no CSL.
    """
    before = parse(source)
    text = "".join(_laid(source.text))
    if parse(Source(source.name, text, source.path)) != before:
        raise InternalError("a text says something else after it was formatted", where=source.name)
    return text


def _lines(text: str) -> Iterator[list[tuple[str, str, int]]]:
    """Yield the tokens of each line: kind, text, and how many blanks stand in front."""
    line: list[tuple[str, str, int]] = []
    blanks = 0
    for match in TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "end":
            yield line
            line, blanks = [], 0
        elif kind == "blank":
            blanks = len(match[0].expandtabs(4))
        else:
            line.append((kind, ".{" if match[0][0] == "." and match[0][-1] == "{" else match[0].rstrip(), blanks))
            blanks = 0
    if line:
        yield line


def _laid(text: str) -> Iterator[str]:
    """Yield the lines of a text in the one layout, with their ends."""
    levels = [_Level(0, 0)]
    empty = True  # no blank line at the beginning
    owed = False
    for line in _lines(text):
        if not line:
            owed = not empty
            continue
        if owed:
            yield "\n"
        owed = empty = False
        indent = _indentation(levels, line[0])
        yield f"{' ' * indent}{_spaced(line)}\n"
        for kind, token, _ in line:
            if kind != "comment":
                _step(levels, token, indent)


def _indentation(levels: list[_Level], first: tuple[str, str, int]) -> int:
    """Return where a line begins whose first token is given."""
    here = levels[-1]
    if first[1] in CLOSES and len(levels) > 1:
        return here.closing
    if here.begun is None or first[0] == "comment":
        return here.inside
    return max(here.inside, here.begun + STEP)


def _step(levels: list[_Level], token: str, indent: int) -> None:
    """Go on by a token of a line with an indentation."""
    here = levels[-1]
    if token in CLOSES:
        if len(levels) > 1:
            levels.pop()
        if token == "}":
            levels[-1].begun = None
        return
    if token in (";", ","):
        here.begun = None
        return
    if here.begun is None:
        here.begun = indent
    if token in ("(", "[", "{", ".{"):
        levels.append(_Level(here.begun + STEP, here.begun))


def _spaced(line: list[tuple[str, str, int]]) -> str:
    """Return the tokens of a line with the blanks that belong between them."""
    text = line[0][1]
    opened: list[str] = []  # per parenthesis of the line what stands in front of it
    asked = False
    for (_, left, _), (kind, right, blanks) in pairwise(line):
        if right == "(":
            opened.append(left)
        if left == ")":
            asked = bool(opened) and opened.pop() in {*ASKING, ":"}
        if kind == "comment":
            text += " " * max(1, blanks)
        elif _blank(left, right, blanks) or (right == "{" and left == ")" and asked):
            text += " "
        text += right
    return text


def _blank(left: str, right: str, blanks: int) -> bool:
    """Return whether a blank belongs between two tokens, of which the author had some between them."""
    if right in (",", ";", ")", "]") or left in ("(", "[", "."):
        return False
    if left in (",", ";") or left in WIDE or right in WIDE:
        return True
    if (left in ASKING and right == "(") or (left == "}" and right == "else") or (left == "else" and right == "{"):
        return True
    return bool(blanks)
