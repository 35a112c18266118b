"""The command ``wse figure NAME`` gives a published figure or table anew, as a picture, as CSV and as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import figures
from harness.cli.completion import complete_by
from harness.cli.shared import add_format, add_machine_options
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json, table
from harness.kit.files import write_markdown, write_picture, write_table
from harness.kit.staging import staged_directory
from wse_core.schema import Field

if TYPE_CHECKING:
    from harness.figures import Result, Spec

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "figure",
        parents=[common],
        help="regenerate a published figure or table",
        description="Calculate a published figure or table anew and write NAME.png, NAME.csv and NAME.md.  Small "
        "meshes are simulated cycle by cycle, larger ones come from closed forms; every point says which.  Names: "
        f"{', '.join(figures.NAMES)}.",
    )
    name = parser.add_argument("name", metavar="NAME", help="which figure")
    complete_by(name, lambda args: figures.NAMES)
    parser.add_argument("--out", metavar="DIR", default=".", help="directory for the files (default: here)")
    parser.add_argument(
        "--max-cycle-level",
        metavar="P",
        type=int,
        help="simulate meshes of up to P x P PEs (default: what takes tens of seconds)",
    )
    add_format(parser, "the picture")
    add_machine_options(parser)
    return parser


def main(args: argparse.Namespace) -> None:
    """Calculate, write and print."""
    spec = figures.load(args.name)
    machine = of_words(args.preset, args.overrides)
    if args.max_cycle_level is not None:
        most = min(machine["fabric.width"], machine["fabric.height"])
        field = Field("max-cycle-level", int, low=1, high=most, unit="PEs a side")
        field.check(args.max_cycle_level, "--max-cycle-level")
    with staged_directory(args.out) as stage:
        with make_progress(args.progress) as progress:
            result = spec.function(machine, args.max_cycle_level, progress)
        write_table(stage / f"{spec.name}.csv", result.rows)
        write_markdown(stage / f"{spec.name}.md", f"{spec.name}: {spec.summary}", result.rows, result.notes)
        write_picture(stage / f"{spec.name}.{args.format}", result.draw)
    files = [str(Path(args.out) / f"{spec.name}.{end}") for end in (args.format, "csv", "md")]
    if args.json:
        print_json(
            {"figure": spec.name, "source": spec.source, "files": files, "notes": result.notes, "rows": result.rows}
        )
    else:
        print(describe(spec, result, files))


def describe(spec: Spec, result: Result, files: list[str]) -> str:
    """Return a figure as text for a terminal."""

    def shown(value: Any) -> str:
        return f"{value:,.4g}" if isinstance(value, float) else "" if value is None else str(value)

    keys = list(result.rows[0])
    cells = [keys, *[[shown(row[key]) for key in keys] for row in result.rows]]
    wide = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    lines = [f"{spec.name}: {spec.summary}", f"source: {spec.source}"]
    lines += ["  ".join(f"{text:>{w}}" for text, w in zip(line, wide, strict=True)) for line in cells]
    lines.append(table([(name, shown(value)) for name, value in result.notes.items()]))
    return "\n".join([*lines, *(f"wrote {name}" for name in files)])
