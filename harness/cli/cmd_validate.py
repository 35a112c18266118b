"""``wse validate``: run the programs behind published cycle counts and say how far this model is off."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.shared import add_machine_options
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json
from harness.kit.modules import need
from harness.validation import compare
from harness.validation.points import QUICK, load_points, select
from traces.atomic import atomic_file
from wse_core.errors import ConfigError
from wse_core.errors.base import EXIT_RUN

if TYPE_CHECKING:
    from harness.validation.compare import ComparedPoint

__all__ = ["add_parser", "main"]

BLOCK = re.compile(r"^<!-- begin validation -->\n(.*?)^<!-- end validation -->$", re.MULTILINE | re.DOTALL)


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "validate",
        parents=[common],
        help="compare with published cycle counts",
        description="Rebuild and run the programs behind published cycle counts and compare.  The exit status is 1 "
        f"if the mean absolute error exceeds {100 * compare.MEAN_LIMIT:g} % or a single one "
        f"{100 * compare.WORST_LIMIT:g} %, those of WSE-3 {100 * compare.OTHER_LIMITS[0]:g} and "
        f"{100 * compare.OTHER_LIMITS[1]:g} %, or if nothing could be compared.",
    )
    parser.add_argument("--points", metavar="FILE.json", help="points to compare with (default: those of the package)")
    parser.add_argument("--kind", action="append", default=[], metavar="KIND", help="only this kind; may be repeated")
    parser.add_argument("--recipe", action="append", default=[], metavar="R", help="only this recipe; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a few points of every kind, in seconds")
    parser.add_argument("--no-limits", action="store_true", help="exit status 0 however large the errors are")
    parser.add_argument(
        "--originals",
        metavar="TREE",
        nargs="+",
        help="run the authors' own sources of these directories instead of programs of this package; points whose "
        "program is in none of them are left out",
    )
    parser.add_argument("--write", metavar="FILE.md", help="also write the tables into the block 'validation'")
    add_machine_options(parser)
    return parser


def main(args: argparse.Namespace) -> int | None:
    """Run, print, and return the exit status."""
    points = load_points(args.points)
    machine = of_words(args.preset, args.overrides)
    chosen = select(points, args.kind, args.recipe, QUICK if args.quick else None)
    if not chosen:
        raise ConfigError("no point is left to compare", hint="other values of --kind, --recipe, or no --quick")
    target = _target(args.write) if args.write else None
    find = None
    if args.originals:
        find = need("harness.validation.originals", "the option --originals").find_in(args.originals)
        chosen = [point for point in chosen if find(point) is not None]
        if not chosen:
            raise ConfigError("no point that is left is about a program of these trees", where="--originals")
    with make_progress(args.progress) as progress:
        rows = compare.validate(chosen, machine, progress, find)
    result = compare.summarise(rows)
    if target is not None:
        block = f"<!-- begin validation -->\n{compare.markdown(rows)}\n<!-- end validation -->"
        with atomic_file(args.write) as stream:
            stream.write(BLOCK.sub(lambda _: block, target).encode("utf-8"))
    if args.json:
        print_json({"rows": compare.as_data(rows), "summary": result})
    else:
        print(describe(rows, result))
    return 0 if result["passed"] or (args.no_limits and result["compared"]) else EXIT_RUN


def _target(path: str) -> str:
    """Return the text of a file that has a block for the tables."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError("not a text file", where=path) from None
    if not BLOCK.search(text):
        raise ConfigError("no lines '<!-- begin validation -->' and '<!-- end validation -->' in it", where=path)
    return text


def _parts(parts: Mapping[str, Any]) -> list[str]:
    """Return a line per kind or platform of which something was compared."""
    return [
        f"    {name or 'not said':<24} {part['compared']:>3} of {part['points']:>3}: mean absolute error "
        f"{100 * part['mean_absolute_error']:5.2f} %, worst {100 * part['worst']['error']:+.1f} % "
        f"({part['worst']['id']})"
        for name, part in parts.items()
        if part["compared"]
    ]


def describe(rows: Sequence[ComparedPoint], result: Mapping[str, Any]) -> str:
    """Return rows and summary as text for a terminal."""
    wide = max(len(row.id) for row in rows)
    lines = [f"{'point':<{wide}} {'measured':>12} {'published':>12} {'error':>8}  recipe, method; source"]
    for row in rows:
        if row.error is None:
            continue
        band = (
            ""
            if row.low is None or row.high is None or row.measured is None
            else (
                ", inside the published range"
                if row.low <= row.measured <= row.high
                else ", outside the published range"
            )
        )
        lines.append(
            f"{row.id:<{wide}} {row.measured:>12,.0f} {row.published:>12,.0f} {100 * row.error:>+7.1f}%  "
            f"{row.recipe}, {row.method}{'; assumed: ' + row.assumed if row.assumed else ''}{band}; {row.source}"
        )
    skipped = [row for row in rows if row.error is None]
    if skipped:
        lines.append("not compared")
        lines += [f"    {row.id:<{wide}}  {row.recipe}: {row.reason}" for row in skipped]
    for title, parts in (("per kind", result["kinds"]), ("per platform, of what is judged", result["platforms"])):
        lines += [title, *_parts(parts)]
    for name in result["platforms"]:
        if own := compare.PLATFORMS.get(name):
            numbers = ", ".join(f"{number} = {value}" for number, value in own.items())
            lines.append(f"points of {name} run with {numbers}, unless --set gives them another value than 0")
    for name, part in result["generations"].items():
        if part["compared"]:
            worst = part["worst"]
            lines.append(
                f"{name}, whose numbers are published in part only: {part['compared']} of "
                f"{part['points']} compared, mean absolute error {100 * part['mean_absolute_error']:.2f} % "
                f"(limit {100 * compare.OTHER_LIMITS[0]:g} %), worst {100 * worst['error']:+.1f} % ({worst['id']}; "
                f"limit {100 * compare.OTHER_LIMITS[1]:g} %): {'passed' if part['passed'] else 'FAILED'}"
            )
    if result["worst"] is None:
        what = "nothing compared that is judged" if result["compared"] else "nothing compared"
        verdict = f"{what}: {'passed' if result['passed'] else 'FAILED'}"
        return "\n".join([*lines, verdict])
    mean, worst = 100 * result["mean_absolute_error"], result["worst"]
    limits = 100 * compare.MEAN_LIMIT, 100 * compare.WORST_LIMIT
    lines.append(
        f"all: {result['compared']} compared, {result['skipped']} not; mean absolute error {mean:.2f} % "
        f"(limit {limits[0]:g} %), worst {100 * worst['error']:+.1f} % ({worst['id']}; limit "
        f"{limits[1]:g} %), {len(result['over_limit'])} over the limit: "
        f"{'passed' if result['passed'] else 'FAILED'}"
    )
    return "\n".join(lines)
