"""``wse csl format`` and ``wse csl lsp`` are for those who write sources in CSL."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.kit.modules import need
from traces.atomic import atomic_file
from wse_core.errors import ConfigError

__all__ = ["add_text_commands", "format_sources", "serve"]


def add_text_commands(parts: Any, common: argparse.ArgumentParser) -> None:
    """Register the commands of this module, and ``wse csl symbols``."""
    symbols = parts.add_parser(
        "symbols",
        parents=[common],
        help="where the variables of compiled programs lie",
        description="List, per program of what cslc wrote, the memory that it takes and its symbols: address and size "
        "in bytes, bank of the first word, type, and the name by which the layout exports it.",
    )
    symbols.add_argument("directory", type=Path, metavar="DIR", help="what cslc -o wrote")
    made = parts.add_parser(
        "format",
        parents=[common],
        help="bring sources into one layout; comments and line breaks stay",
        description="Indent sources by what is open, and put blanks where rules are certain; line breaks and comments "
        "stay. What a text says does not change. The exit status is 1 if a file is no CSL, or with --check if one "
        "would change.",
    )
    made.add_argument("paths", nargs="+", metavar="PATH", help="files, or directories with all CSL files below; - for "
                      "standard input")  # fmt: skip
    made.add_argument("--check", action="store_true", help="write nothing, name the files that would change")
    made.add_argument("--diff", action="store_true", help="write nothing, print what would change")
    parts.add_parser(
        "lsp",
        parents=[common],
        help="serve an editor: the Language Server Protocol over standard input and output",
        description="Serve an editor by the Language Server Protocol over standard input and output: messages of the "
        "compiler while one types, instructions and cycles of a line, declarations, completion, formatting. "
        "editors/ of the repository has an extension for VS Code.",
    )


def serve(args: argparse.Namespace) -> int:
    """Return 0 when the editor has ended the session that is served."""
    need("pygls", "the command `wse csl lsp`")
    need("lark", "the command `wse csl lsp`")
    need("harness.editor.server", "the command `wse csl lsp`").make_server().start_io()
    return 0


def format_sources(args: argparse.Namespace) -> int:
    """Format files; return 1 if one is no CSL, or would change and must not."""
    need("lark", "the command `wse csl format`")
    style = need("fabric.csl.syntax.style", "the command `wse csl format`")
    diagnostics = need("fabric.csl.diagnostics", "the command `wse csl format`")
    changed: list[str] = []
    faulty: list[str] = []
    for name, path, text in _texts(args.paths, diagnostics.read_text):
        try:
            wanted = style.formatted(diagnostics.Source(name, text, path))
        except diagnostics.CslError as error:
            faulty.append(name)
            print(error.render(), file=sys.stderr)
            continue
        if path is None and not (args.check or args.diff or args.json):
            print(wanted, end="")
        if wanted != text:
            changed.append(name)
            if args.diff and not args.json:
                lines = difflib.unified_diff(text.splitlines(), wanted.splitlines(), name, name, lineterm="")
                print("\n".join(lines))
            if path is not None and not (args.check or args.diff):
                with atomic_file(path) as file:
                    file.write(wanted.encode())
    if args.json:
        print_json({"changed": changed, "faulty": faulty})
    elif not args.diff:
        verb = "would change" if args.check else "changed"
        print("".join(f"{name} {verb}\n" for name in changed if name != "<standard input>"), end="")
    return 1 if faulty or (args.check and changed) else 0


def _texts(words: list[str], read: Any) -> list[tuple[str, Path | None, str]]:
    """Return name, path and text of what the arguments name."""
    found: list[tuple[str, Path | None, str]] = []
    for word in words:
        if word == "-":
            found.append(("<standard input>", None, sys.stdin.read()))
            continue
        path = Path(word)
        files = sorted(path.rglob("*.csl")) if path.is_dir() else [path]
        if not files:
            raise ConfigError("there is no CSL file in this directory", where=word)
        for file in files:
            try:
                found.append((str(file), file, read(file)))
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise ConfigError(f"cannot read the CSL file: {reason}", where=str(file)) from error
    return found
