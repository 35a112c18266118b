"""An editor asks at a place of a source: what is this, where is it declared, what can stand here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fabric.csl.comptime.builtins import BUILTINS
from fabric.csl.comptime.builtins.dsds import FIELDS, LOAD_OPTIONS
from fabric.csl.comptime.builtins.operations import OPTIONS
from fabric.csl.comptime.colors import FILTER_FIELDS, POP_MODES, ROUTES
from fabric.csl.comptime.session import LIBRARY
from fabric.csl.types import PREDEFINED
from harness.editor.outline import Declaration, Outline
from harness.editor.projects import Workspace

__all__ = ["Suggestion", "Whereabouts", "complete", "declared", "explained"]

WORDS = (
    "align", "and", "break", "color", "comptime", "const", "continue", "else", "enum", "export", "extern", "false",
    "fn", "for", "if", "inline", "layout", "linkname", "linksection", "noinline", "or", "packed", "param", "return",
    "struct", "switch", "task", "true", "union", "var", "while",
)  # fmt: skip
"""These words belong to the language itself."""

STRUCTS = {
    "@set_color_config": ("routes", "switches", "filter", "teardown", *ROUTES, *FILTER_FIELDS, *POP_MODES),
    "@set_local_color_config": ("routes", "switches", "filter", "teardown", *ROUTES, *FILTER_FIELDS, *POP_MODES),
    "@initialize_queue": ("color", "priority", "ctrl_table_id"),
    "@load_to_dsr": LOAD_OPTIONS,
    "@get_dsd": tuple(dict.fromkeys(name for fields in FIELDS.values() for name in fields)),
    "@allocate_fifo": ("activate_push", "activate_pop"),
    "@set_control_task_table": ("instructions", "stride"),
}
"""These builtins take a struct with these fields."""
MOST_INSTRUCTIONS = 40
"""A hover shows at most so many instructions of a line."""


@dataclass(frozen=True)
class Whereabouts:
    """A `Whereabouts` is a declaration and the file that it stands in."""

    path: Path
    outline: Outline
    declaration: Declaration | None


@dataclass(frozen=True)
class Suggestion:
    """A `Suggestion` is one word that can stand at a place.

    Attributes
    ----------
    label : str
        The word.
    kind : str
        ``builtin``, ``word``, ``type``, ``field``, ``module``, or the kind of a declaration.
    detail : str
        What it is, in a line.
    """

    label: str
    kind: str
    detail: str = ""


def declared(workspace: Workspace, path: Path, offset: int) -> Whereabouts | None:
    """Return where the name at an offset is declared, or which file a string there names; None for neither."""
    outline = Outline(workspace.text(path))
    token = outline.at(offset)
    if token is not None and token.kind == "string":
        found = workspace.find(token.text[1:-1], path)
        return Whereabouts(found, Outline(workspace.text(found)), None) if found else None
    chain = outline.chain(token.end) if token is not None and token.kind == "word" else []
    return _followed(workspace, Whereabouts(path, outline, None), chain, offset) if chain else None


def _followed(workspace: Workspace, start: Whereabouts, chain: list[str], offset: int) -> Whereabouts | None:
    """Return what ``a.b.c`` means: the first name at the offset, the others in what is imported under it."""
    first = start.outline.resolve(chain[0], offset)
    if first is None:
        return None
    here = Whereabouts(start.path, start.outline, first)
    for name in chain[1:]:
        inner = _imported(workspace, here)
        if inner is None:
            return None
        one = next((d for d in inner.outline.exported() if d.name == name), None)
        if one is None:
            return None
        here = Whereabouts(inner.path, inner.outline, one)
    return here


def _imported(workspace: Workspace, found: Whereabouts) -> Whereabouts | None:
    """Return the file that a declaration imports."""
    if found.declaration is None or found.declaration.module is None:
        return None
    path = workspace.find(found.declaration.module, found.path)
    return Whereabouts(path, Outline(workspace.text(path)), None) if path else None


def explained(workspace: Workspace, path: Path, offset: int) -> str:
    """Return Markdown about the word at an offset, and the instructions of its line with their cycles."""
    outline = Outline(workspace.text(path))
    parts = [_of_word(workspace, path, outline, offset)]
    line = outline.text.count("\n", 0, offset) + 1
    made = workspace.instructions(path, line)
    if made:
        shown = made[:MOST_INSTRUCTIONS]
        more = [f"... and {len(made) - len(shown)} more"] if len(made) > len(shown) else []
        count = f"{len(made)} instruction{'s' * (len(made) != 1)} of line {line}"
        parts.append(f"{count}:\n```text\n" + "\n".join([*shown, *more]) + "\n```")
    return "\n\n---\n\n".join(part for part in parts if part)


def _of_word(workspace: Workspace, path: Path, outline: Outline, offset: int) -> str:
    token = outline.at(offset)
    if token is None or token.kind not in ("word", "string"):
        return ""
    if token.text.startswith("@"):
        spec = BUILTINS.get(token.text)
        if spec is None:
            return f"`{token.text}` is no builtin."
        if spec.refused:
            return f"`{spec.name}` is refused: {spec.meaning}"
        most = "" if spec.most == spec.least else " or more" if spec.most is None else f" to {spec.most}"
        return f"`{spec.name}`: {spec.meaning}\n\n{spec.least}{most} arguments; {spec.group}"
    found = declared(workspace, path, offset)
    if found is None:
        return f"`{token.text}`: a type" if token.text in PREDEFINED else ""
    if found.declaration is None:
        return f"`{shown(found.path)}`"
    remark = found.outline.remark(found.declaration)
    line = found.outline.text.count("\n", 0, found.declaration.start) + 1
    text = f"```csl\n{found.outline.line_of(found.declaration)}\n```\n{found.declaration.kind}"
    text += f" of `{shown(found.path)}`, line {line}"
    return f"{text}\n\n{remark}" if remark else text


def shown(path: Path) -> str:
    """Return how a file is called: modules of the library in angle brackets."""
    return f"<{path.relative_to(LIBRARY).with_suffix('')}>" if LIBRARY in path.parents else path.name


def complete(workspace: Workspace, path: Path, offset: int) -> list[Suggestion]:
    """Return the words that can stand at an offset: builtins behind ``@``, names behind a point, else what is known."""
    outline = Outline(workspace.text(path))
    before = outline.text[:offset]
    word = before[len(before.rstrip("_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) :]
    front = before[: len(before) - len(word)].rstrip()
    if before.endswith("@" + word):
        return [Suggestion(spec.name, "builtin", spec.meaning) for spec in BUILTINS.values() if not spec.refused]
    chain = outline.chain(offset)
    if len(chain) > 1:
        found = _followed(workspace, Whereabouts(path, outline, None), chain[:-1], offset)
        inner = _imported(workspace, found) if found else None
        return [_of(inner.outline, each) for each in inner.outline.exported()] if inner else []
    if front.endswith("."):
        return [Suggestion(name, "field") for name in _fields(outline, offset)]
    known = [_of(outline, each) for each in outline.visible(offset)]
    return [*known, *(Suggestion(w, "word") for w in WORDS), *(Suggestion(name, "type") for name in sorted(PREDEFINED))]


def _of(outline: Outline, declaration: Declaration) -> Suggestion:
    """Return a declaration as what can stand somewhere."""
    kind = "module" if declaration.module else declaration.kind
    return Suggestion(declaration.name, kind, outline.line_of(declaration))


def _fields(outline: Outline, offset: int) -> Iterator[str]:
    """Yield the fields of a struct that is written at an offset."""
    called = outline.call(offset)
    name = called[0] if called else ""
    if name == "@get_dsd":
        kinds = [kind for kind in FIELDS if kind in outline.text[max(0, offset - 400) : offset]]
        last = max(kinds, key=lambda kind: outline.text.rfind(kind, 0, offset), default=None)
        yield from FIELDS[last] if last else STRUCTS[name]
    elif name in STRUCTS:
        yield from STRUCTS[name]
    elif name in BUILTINS:
        yield from OPTIONS
