"""``wse csl``: look at programs in CSL.  ``check`` says what is wrong with them, ``census`` what they use."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from harness.kit.console import print_json
from harness.kit.modules import need
from wse_core.errors import ConfigError

__all__ = ["add_parser", "main"]


def add_parser(sub: Any, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "csl",
        parents=[common],
        help="check programs in CSL, count what they use",
        description="Look at programs in CSL. The exit status is 1 if one of them has an error.",
    )
    parts = parser.add_subparsers(metavar="WHAT", dest="part", required=True)
    check = parts.add_parser(
        "check",
        parents=[common],
        help="say what is wrong, with file, line and column",
        description="Check layout files with all programs that they name. In a directory, each file with a layout "
        "block is checked with the options that the scripts there give to cslc.",
    )
    census = parts.add_parser(
        "census",
        parents=[common],
        help="count which features a tree of programs uses, and which are not supported",
        description="Count which features of the language the programs below a directory use.",
    )
    for part in (check, census):
        part.add_argument("paths", nargs="+" if part is check else 1, metavar="PATH", help="file or directory")
        part.add_argument(
            "--params",
            action="append",
            default=[],
            dest="bindings",
            metavar="a:1,b:2",
            help="values for params of the layout file; may be repeated",
        )
        part.add_argument("--import-path", action="append", default=[], metavar="DIR", help="where <modules> are")
        part.add_argument("--fp16-format", choices=("f16", "cb16"), default="f16", help="what a 16-bit float is")
    return parser


def main(args: argparse.Namespace) -> int:
    """Do what was asked; return 1 if a program has an error."""
    projects = need("fabric.csl.projects", "the command `wse csl`")
    need("lark", "the command `wse csl`")
    environment = [entry for entry in os.environ.get("CSL_IMPORT_PATH", "").split(":") if entry]
    options = projects.Options(
        params=projects.parse_params(args.bindings),
        import_paths=(*args.import_path, *environment),
        fp16=args.fp16_format,
    )
    return (_check if args.part == "check" else _census)(args, options, projects)


def _found(args: argparse.Namespace, options: Any, projects: Any) -> list[Any]:
    """Return what the arguments name."""
    found = []
    for word in args.paths:
        path = Path(word)
        if path.is_dir():
            found += projects.find_projects(path, options)
        elif path.is_file():
            found.append(projects.Project(path, options))
        else:
            raise ConfigError("there is no such file or directory", where=word)
    return found


def _check(args: argparse.Namespace, options: Any, projects: Any) -> int:
    """Check files and print what is wrong."""
    check_file = need("fabric.csl.check", "the command `wse csl check`").check_file
    diagnostics = need("fabric.csl.diagnostics", "the command `wse csl check`")
    results: list[dict[str, Any]] = []
    messages: dict[str, None] = {}
    for project in _found(args, options, projects):
        entry: dict[str, Any] = {"file": str(project.path), "ok": True}
        try:
            made = check_file(project.path, project.options)
            found = made.report.diagnostics
            if made.layout is not None:
                entry |= {"width": made.layout.width, "height": made.layout.height, "classes": len(made.layout.classes)}
            entry["programs"] = len(made.programs)
        except diagnostics.CslError as error:
            entry["ok"], found = False, error.diagnostics
        entry["messages"] = [item.as_dict() for item in found]
        messages |= {diagnostics.render(item): None for item in found}
        results.append(entry)
    failed = sum(not entry["ok"] for entry in results)
    if args.json:
        print_json({"files": results, "failed": failed})
        return 1 if failed else 0
    for text in messages:
        print(text, file=sys.stderr)
    for entry in results:
        if entry["ok"]:
            size = f"{entry['width']} x {entry['height']} PEs, " if "width" in entry else ""
            count = entry["programs"]
            print(f"{entry['file']}: {size}{count} program{'s' * (count != 1)}, no error")
    if failed:
        print(f"{failed} of {len(results)} with errors", file=sys.stderr)
    return 1 if failed else 0


def _census(args: argparse.Namespace, options: Any, projects: Any) -> int:
    """Count what a tree of programs uses."""
    census = need("fabric.csl.census", "the command `wse csl census`")
    found = census.take(Path(args.paths[0]), options)
    if args.json:
        print_json(found.as_dict())
    else:
        print(found.as_text())
    return 0
