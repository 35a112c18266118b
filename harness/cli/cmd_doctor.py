"""``wse doctor``: describe this installation, find what is wrong with it, list every modelled number."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from harness.cli.doctor import examine
from harness.kit.console import print_json, table

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "doctor",
        parents=[common],
        help="describe this installation and what is wrong with it",
        description="Describe this installation and what is wrong with it; the exit status is 1 if anything is.",
    )
    parser.add_argument(
        "--assumptions", action="store_true", help="list every modelled number with unit, source and confidence"
    )
    return parser


def main(args: argparse.Namespace) -> int | None:
    """Print the description; return 1 if there is a problem, else 0."""
    facts = examine(args.assumptions)
    if args.json:
        print_json(facts)
    else:
        print(describe(facts))
        if args.assumptions:
            print(describe_assumptions(facts["assumptions"]))
    return 1 if facts["problems"] else 0


def _gib(count: int) -> str:
    """Return a number of bytes in GiB, as text."""
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"


def describe(facts: dict[str, Any]) -> str:
    """Return the facts of `harness.cli.doctor.examine` as text."""
    build, host, numerics = facts["build"], facts["host"], facts["numerics"]
    memory = host["memory"]
    limit = f", limited to {_gib(memory['limit_bytes'])}" if memory["limit_bytes"] else ""
    quota = f", quota {host['cpu_quota']:g}" if host["cpu_quota"] else ""
    omp = f", OMP_NUM_THREADS={host['omp_num_threads']}" if host["omp_num_threads"] else ""
    parts = [
        (
            "versions",
            [
                (name, value or ("unknown" if name == "commit" else "not installed"))
                for name, value in facts["versions"].items()
            ],
        ),
        (
            "build",
            [
                ("mode", build["mode"] or "nothing built"),
                ("compiler", f"{build.get('compiler', '-')} {' '.join(build.get('c_flags', ()))}"),
                ("built with Cython", build.get("cython_version", "-")),
                ("compiled modules", len(build["compiled"])),
            ],
        ),
        (
            "host",
            [
                ("system", host["system"]),
                ("processor", f"{host['processor']} ({host['architecture']})"),
                ("features", " ".join(host["features"]) or "none of note"),
                ("threads", f"{host['usable_threads']} usable of {host['cores']} cores{quota}{omp}"),
                ("memory", f"{_gib(memory['available_bytes'])} available of {_gib(memory['total_bytes'])}{limit}"),
                *((f"free disk, {name}", _gib(count)) for name, count in host["free_disk_bytes"].items()),
            ],
        ),
        (
            "numerics",
            [
                ("backend", numerics["backend"] or "not built"),
                ("host rounds to nearest", "yes" if numerics["round_to_nearest"] else "NO"),
                ("host keeps subnormals", "yes" if numerics["subnormals"] else "NO"),
            ],
        ),
        ("import names", [(name, entry["origin"] or "not found") for name, entry in facts["imports"].items()]),
    ]
    lines = [f"{title}\n{table(rows, indent='    ')}" for title, rows in parts]
    if facts["problems"]:
        listing = "\n".join(
            textwrap.fill(text, 110, initial_indent="    - ", subsequent_indent="      ") for text in facts["problems"]
        )
        lines.append(f"problems\n{listing}")
    else:
        lines.append("no problem found")
    return "\n".join(lines)


def describe_assumptions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the modelled numbers as text: one line each, with meaning and source below."""
    count: dict[str, int] = {}
    lines = ["modelled numbers"]
    for row in rows:
        values = list(row["values"].items())
        first = values[0][1]
        shown = " ".join([_value(first), *(f"({preset}: {_value(v)})" for preset, v in values[1:] if v != first)])
        head = f"    {row['name']} = {shown} {row['unit']}".rstrip()
        lines.append(f"{head} [{row['confidence']}]")
        text = f"{row['doc']}; source: {row['source']}"
        lines.append(textwrap.fill(text, 110, initial_indent=" " * 8, subsequent_indent=" " * 8))
        count[row["confidence"]] = count.get(row["confidence"], 0) + 1
    total = ", ".join(f"{number} {name}" for name, number in count.items())
    return "\n".join([*lines, f"{len(rows)} numbers: {total}"])


def _value(value: Any) -> str:
    """Return one modelled value as text."""
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
