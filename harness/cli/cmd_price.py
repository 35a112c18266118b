"""The command ``wse price FILE`` says the cycles of the tasks and of the source lines of programs, before anything
runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from harness.cli.priced_sources import COMMAND, PricedProgram, built_by, price_built, price_csl, price_runs, source_text
from harness.cli.shared import add_machine_options
from harness.config.assignments import parse_assignments
from harness.config.machine import of_words
from harness.kit.console import print_json
from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.numbers import DEFAULT_PRESET

__all__ = ["add_parser", "main"]


def add_parser(sub: Any, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "price",
        parents=[common],
        help="say what programs cost before they run: cycles of each task and source line",
        description="Say what the programs of a Python script or of a layout file in CSL cost, read from their "
        "instructions: cycles of each task from its start to its end if no wavelet has to be waited for, and of each "
        "source line. A script runs until it would make a Fabric. What cycles depend on and nobody knows before a "
        "run is listed by name and place.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="script.py or layout.csl")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="of a script")
    parser.add_argument(
        "--params",
        action="append",
        default=[],
        dest="bindings",
        metavar="a:1,b:2",
        help="values for params of a layout file; may be repeated",
    )
    parser.add_argument(
        "--given",
        action="append",
        default=[],
        metavar="name=value",
        help="what a variable holds that cycles depend on: whole numbers, commas between them; may be repeated",
    )
    parser.add_argument(
        "--initial", action="store_true", help="take all other variables to hold what the program begins with"
    )
    parser.add_argument(
        "--odds",
        action="append",
        default=[],
        metavar="[file.py:line=]share",
        help="how often a branch is taken that depends on data, 0 to 1: of one source line, or of all; may be repeated",
    )
    parser.add_argument(
        "--launch",
        metavar="TASK",
        help="also the cycles of a run of each layout of a script, in which the host launches this task on all PEs",
    )
    add_machine_options(parser, None)
    return parser


def main(args: argparse.Namespace) -> int:
    """Print the prices; return 1 if a program in CSL has an error."""
    if not args.file.is_file():
        raise ConfigError("there is no such file", where=str(args.file))
    options: dict[str, Any] = {"given": _given(args.given), "initial": args.initial, "odds": _odds(args.odds)}
    chosen = args.overrides or args.preset is not None
    machine = of_words(args.preset or DEFAULT_PRESET, args.overrides) if chosen else None
    runs: list[float] = []
    if args.file.suffix == ".csl":
        if args.launch:
            raise ConfigError("is for layouts that a Python script builds", where="--launch")
        if args.arguments:
            raise ConfigError("a layout file takes no arguments", where=args.arguments[0], hint="--params name:value")
        diagnostics = need("fabric.csl.diagnostics", COMMAND)
        try:
            found = price_csl(args.file, machine, args.bindings, **options)
        except diagnostics.CslError as error:
            for item in error.diagnostics:
                print(diagnostics.render(item), file=sys.stderr)
            return 1
    else:
        if args.bindings:
            raise ConfigError("are of layout files in CSL", where="--params", hint="arguments behind the script")
        layouts, programs = built_by(args.file, args.arguments)
        found = price_built(layouts, programs, machine, **options)
        if args.launch:
            runs = price_runs(layouts, args.launch, machine, options["given"])
    _print(args, found, runs)
    return 0


def _given(words: list[str]) -> dict[str, list[int]]:
    """Return the contents of variables that the command line says."""
    found = {}
    for name, text in parse_assignments(words, "--given").items():
        try:
            found[name] = [int(word, 0) for word in text.split(",")]
        except ValueError:
            raise ConfigError(f"{text!r} is no whole number", where=f"--given {name}", hint="n=12, n=3,5") from None
    return found


def _odds(words: list[str]) -> float | dict[str, float] | None:
    """Return how often branches are taken, by source line or for all."""
    found: dict[str, float] = {}
    for word in words:
        place, _, text = word.rpartition("=")
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ConfigError(f"{text!r} is no share from 0 to 1", where=f"--odds {word}", hint="0.5, file.py:12=0.5")
        found[place] = share
    if "" in found and len(found) > 1:
        raise ConfigError("odds for all branches and odds for some", where="--odds", hint="either the one or the other")
    return found.get("", found or None)


def _print(args: argparse.Namespace, found: list[PricedProgram], runs: list[float]) -> None:
    """Print the prices as text or as JSON."""
    if args.json:
        programs = [one.price.as_dict() | {"where": one.where} for one in found]
        print_json({"file": str(args.file), "programs": programs} | ({"runs": runs} if args.launch else {}))
        return
    for one in found:
        print(f"program {one.price.name!r}{f' on {one.where}' if one.where else ''}")
        for name, task in one.price.tasks.items():
            print(f"  {name}: {_cycles(task)}")
            for line, cycles in task.lines.items():
                text = source_text(line, args.file)
                print(f"  {cycles:>10,.10g}  {line}{f'  {text}' if text else ''}")
            for unknown in task.unknown:
                print(f"    not known before the run: {unknown}")
    for cycles in runs:
        print(f"run of {args.launch!r}: {cycles:,.10g} cycles")


def _cycles(task: Any) -> str:
    """Return in words what a task takes."""
    if task.unknown:
        bounded = task.most < float("inf")
        return f"{task.least:,.10g} {f'to {task.most:,.10g} cycles' if bounded else 'cycles or more'}"
    parts = ""
    if task.meetings:
        parts = f", {task.length:,.10g} of them with the fabric after {task.before:,.10g}"
    beside = f"; {task.beside:,.10g} more beside it when wavelets come" if task.beside else ""
    return f"{task.alone:,.10g} cycles{parts}{beside}"
