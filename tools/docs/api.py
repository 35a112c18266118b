"""The page docs/api.md has the public classes and functions, from their signatures and docstrings.

    python -m tools.docs.api [--write FILE | --check FILE]

Without an option the page is printed.  `PARTS` says what it holds.  Methods that the op table names are not repeated
here: one line points at their table.  A test keeps the page in step (`tests/test_api.py`).
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.kit.modules import OWN_PACKAGES
from wse_core import errors, isa

__all__ = ["PAGE", "PARTS", "main", "members", "page"]

PAGE = "docs/api.md"
WIDTH = 118

PARTS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Programs and layouts",
        (("fabric.program.program", "Program"), ("fabric.layout.layout", "Layout"), ("fabric.asm.unit", "Unit")),
    ),
    (
        "Running",
        (
            ("fabric.host.fabric", "Fabric"),
            ("fabric.host.result", "RunResult"),
            ("fabric.host.recording", "record"),
            ("fabric.host.streams", "Received"),
            ("fabric.host.debug", "Debugger"),
            ("fabric.asm.control", "single"),
            ("fabric.asm.control", "encode"),
            ("fabric.asm.control", "decode"),
            ("fabric.asm.control", "Control"),
            ("fabric.ranks.joined", "joined"),
            ("swarm.crew", "crew"),
        ),
    ),
    ("The machine", (("wse_core.params", "machine"), ("wse_core.params", "Machine"), ("wse_core.params", "Param"))),
    ("Kernels", (("fabric.kernels.kit.kernel", "Kernel"), ("fabric.kernels.kit.kernel", "KernelParam"))),
    (
        "Run files",
        (
            ("wse", "open"),
            ("traces.trace", "Trace"),
            ("traces.picture", "Picture"),
            ("traces.reader", "RunFile"),
            ("traces.run_format", "RunMeta"),
            ("wse_core.events", "TraceFilter"),
        ),
    ),
)
"""Chapter -> (module, name) of what it describes; the errors make a chapter of their own."""

HEAD = """# API

The classes and functions that programs of users touch, with their signatures and what they say of themselves. Written
by `python -m tools.docs.api --write docs/api.md`. [kernels.md](kernels.md) teaches how to use them,
[trace-format.md](trace-format.md) has run files, [glossary.md](glossary.md) the words.

All of it is in reach of one line: `import wse`, then `wse.Program`, `wse.Layout`, `wse.Fabric`, `wse.machine`,
`wse.open("run.h5")`.
"""

Item = tuple[str, str]
"""An entry in a section such as Parameters has a head and a text."""


def sections(doc: str) -> dict[str, str]:
    """Return the sections of a NumPy docstring by name; what stands before the first is called ``""``."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return {"": parts[0].strip()} | {
        name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def items(text: str) -> list[Item]:
    """Return the entries of a section whose heads stand at the margin."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith(" "):
            found.append([line.strip(), ""])
        elif line.strip() and found:
            found[-1][1] += " " + line.strip()
    return [(head, body.strip()) for head, body in found]


def _marked(text: str) -> str:
    """Return a docstring's text with code in the marks of Markdown."""
    return re.sub(r"``(.+?)``", r"`\1`", text.replace("\n", " ")).replace("  ", " ")


def _prose(text: str) -> Iterator[str]:
    """Yield paragraphs; those with a form of their own are kept as they are."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if any(line.startswith((" ", "=", ">>>", "|", "-")) for line in lines):
            kind = "python" if lines[0].lstrip().startswith(">>>") else "text"
            yield f"```{kind}\n{textwrap.dedent(paragraph)}\n```"
        elif paragraph.strip():
            yield textwrap.fill(_marked(paragraph), WIDTH, break_long_words=False, break_on_hyphens=False)


def _list(name: str, text: str) -> str:
    """Return a section as a list."""
    rows = [f"*{name}*", ""]
    for head, body in items(text):
        label, _, kind = head.partition(" : ")
        code = ", ".join(f"`{part.strip()}`" for part in label.split(","))
        line = f"- {code}{f' ({_marked(kind)})' if kind else ''}{': ' if body else ''}{_marked(body)}"
        wrapped = textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        rows += wrapped
    return "\n".join(rows)


def described(doc: str | None) -> list[str]:
    """Return a docstring as blocks of Markdown."""
    parts = sections(doc or "")
    blocks = list(_prose(parts.pop("")))
    for name, text in parts.items():
        if name in ("Parameters", "Attributes", "Raises", "Other Parameters"):
            blocks.append(_list(name, text))
        elif name in ("Returns", "Yields"):
            said = "; ".join(f"{head}{': ' if body else ''}{body}" for head, body in items(text))
            blocks.append(textwrap.fill(f"*{name}* {_marked(said)}", WIDTH, break_long_words=False))
        else:
            blocks += [f"*{name}*", *_prose(text)]
    return blocks


def signature(name: str, thing: Any) -> str:
    """Return a call with its parameters as a block of code; one parameter a line if it is long."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"```python\n{name}(...)\n```"
    words, stars = [], False
    for p in found.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not stars:
            words.append("*")
        stars = stars or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        words.append(_parameter(p))
    result = "" if found.return_annotation is found.empty else f" -> {_type(found.return_annotation)}"
    text = f"{name}({', '.join(words)}){result}"
    if len(text) > WIDTH:
        text = f"{name}(\n    " + ",\n    ".join(words) + f",\n){result}"
    return f"```python\n{text}\n```"


def _type(annotation: Any) -> str:
    """Return an annotation as it was written."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _parameter(p: inspect.Parameter) -> str:
    """Return a parameter with type and default; a default that is no plain value is left out."""
    mark = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
    typed = p.annotation is not p.empty
    text = f"{mark}{p.name}" + (f": {_type(p.annotation)}" if typed else "")
    if p.default is p.empty:
        return text
    shown = repr(p.default)
    if isinstance(p.default, str):
        shown = f'"{p.default}"'
    elif len(shown) > 40 or "<" in shown:
        shown = "..."
    return f"{text} = {shown}" if typed else f"{text}={shown}"


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield (name, member) of what a class of ours offers; of programs without the operations of the op table."""
    operations = {*isa.BY_NAME, *isa.UNSUPPORTED} if hasattr(owner, "fmacs") else set()
    for name in sorted(dir(owner)):
        if name.startswith("_") or name in operations:
            continue
        member = inspect.getattr_static(owner, name)
        if isinstance(member, (classmethod, staticmethod)):
            member = member.__func__
        written = member.fget if isinstance(member, property) else member
        if inspect.isfunction(written) and written.__module__.partition(".")[0] in OWN_PACKAGES:
            yield name, member


def _cell(thing: Any) -> str:
    """Return the first paragraph of a docstring for a cell of a table."""
    first, _, _ = sections(inspect.getdoc(thing) or "")[""].partition("\n\n")
    return _marked(first).replace("|", "\\|")


def _entry(module: str, name: str) -> Iterator[str]:
    """Yield the blocks of a class or function."""
    thing = getattr(import_module(module), name)
    yield f"### {name}"
    yield f"`{module}.{name}`"
    yield signature(name, thing)
    yield from described(inspect.getdoc(thing))
    if not inspect.isclass(thing):
        return
    fields = [(key, member) for key, member in members(thing) if isinstance(member, property)]
    if fields:
        rows = [f"| `{key}` | {_cell(member)} |" for key, member in fields]
        yield "\n".join(["| property | value |", "|---|---|", *rows])
    for key, member in members(thing):
        if not isinstance(member, property):
            yield f"#### {name}.{key}"
            yield signature(key, member)
            yield from described(inspect.getdoc(member))
    operations = [op for op in isa.BY_NAME if callable(getattr(thing, op, None))]
    if "fmacs" in operations:
        names = ", ".join(f"`{op}`" for op in operations)
        yield textwrap.fill(
            f"Operations, a method each, with their operands and meaning in [accuracy.md](accuracy.md): {names}.",
            WIDTH,
            break_on_hyphens=False,
        )


def _errors() -> Iterator[str]:
    """Yield the chapter on errors."""
    yield "## Errors"
    yield textwrap.fill(
        "`wse_core.errors`. Every error of this project is a `WseError`; its message says what, where, the likely "
        "cause and what to try, and everything in it is also an attribute.",
        WIDTH,
    )
    found = [getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))]
    found = [error for error in found if issubclass(error, Exception)]
    rows = [f"| `{error.__name__}` | `{error.__bases__[0].__name__}` | {_cell(error)} |" for error in found]
    yield "\n".join(["| error | is a | when |", "|---|---|---|", *rows])


def page() -> str:
    """Return the whole page."""
    blocks = [HEAD.strip()]
    for chapter, entries in PARTS:
        blocks.append(f"## {chapter}")
        for module, name in entries:
            blocks += _entry(module, name)
    return "\n\n".join([*blocks, *_errors()]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print, write or check the page; return 1 if it is behind."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.api", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", metavar="FILE", help=f"write it there, usually {PAGE}")
    parser.add_argument("--check", metavar="FILE", help="exit with 1 if the file holds something else")
    args = parser.parse_args(argv)
    text = page()
    if args.write:
        Path(args.write).write_text(text, encoding="utf-8")
    elif args.check:
        if Path(args.check).read_text(encoding="utf-8") != text:
            print(f"{args.check} is behind the source: python -m tools.docs.api --write {args.check}", file=sys.stderr)
            return 1
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
