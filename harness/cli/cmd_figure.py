"""``wse figure NAME``: calculate a published figure anew and write it as a picture and as a table."""

from __future__ import annotations

import csv
from pathlib import Path

from harness import figures
from harness.cli.cmd_kernel import build_machine
from harness.kit.console import make_progress, plain, print_json, table
from harness.kit.staging import staged_directory
from wse_core.errors import ConfigError

__all__ = ["add_parser", "main"]


def add_parser(sub, common):
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "figure",
        parents=[common],
        help="regenerate a published figure",
        description="Calculate a published figure anew and write NAME.png and NAME.csv.  Small meshes are simulated "
        "cycle by cycle, larger ones come from closed forms; every point says which.  Names: "
        f"{', '.join(figures.NAMES)}.",
    )
    parser.add_argument("name", metavar="NAME", help="which figure")
    parser.add_argument("--out", metavar="DIR", default=".", help="directory for the files (default: here)")
    parser.add_argument(
        "--max-cycle-level",
        metavar="P",
        type=int,
        help="simulate meshes of up to P x P PEs (default: what takes tens of seconds)",
    )
    parser.add_argument("--preset", default="wse2", help="machine to start from (default: %(default)s)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="machine.key=value",
        help="change a modelled number; may be repeated",
    )
    return parser


def main(args):
    """Calculate, write and print."""
    if args.max_cycle_level is not None and args.max_cycle_level < 1:
        raise ConfigError(f"{args.max_cycle_level} is too small; the least is 1", where="--max-cycle-level")
    spec = figures.load(args.name)
    machine = build_machine(args.preset, args.overrides)
    with staged_directory(args.out) as stage:
        with make_progress(args.progress) as progress:
            result = spec.function(machine, args.max_cycle_level, progress)
        write_csv(stage / f"{spec.name}.csv", result.rows)
        write_png(stage / f"{spec.name}.png", result.draw)
    files = [str(Path(args.out) / f"{spec.name}.{end}") for end in ("png", "csv")]
    if args.json:
        print_json(
            {"figure": spec.name, "source": spec.source, "files": files, "notes": result.notes, "rows": result.rows}
        )
    else:
        print(describe(spec, result, files))


def write_csv(path, rows):
    """Write rows of equal keys as a table."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({key: plain(value) for key, value in row.items()} for row in rows)


def write_png(path, draw):
    """Write a picture that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(11, 5), dpi=120, layout="constrained"))
    draw(canvas.figure)
    canvas.print_png(path)


def describe(spec, result, files):
    """Return a figure as text for a terminal."""

    def shown(value):
        return f"{value:,.4g}" if isinstance(value, float) else "" if value is None else str(value)

    keys = list(result.rows[0])
    cells = [keys, *[[shown(row[key]) for key in keys] for row in result.rows]]
    wide = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    lines = [f"{spec.name}: {spec.summary}", f"source: {spec.source}"]
    lines += ["  ".join(f"{text:>{w}}" for text, w in zip(line, wide, strict=True)) for line in cells]
    lines.append(table([(name, shown(value)) for name, value in result.notes.items()]))
    return "\n".join([*lines, *(f"wrote {name}" for name in files)])
