"""The command ``wse csl`` is for programs in CSL.

``check`` says what is wrong with them, ``census`` what they use, ``listing`` what the compiler makes of each line,
``call`` calls a function of a file without a layout, ``symbols`` says where variables of compiled programs lie,
``run`` runs a host script, ``scripts`` all scripts of a tree, ``format`` brings texts into one layout, ``lsp`` serves
an editor.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cli.csl_text import add_text_commands, format_sources, serve
from harness.cli.shared import add_overrides
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json
from harness.kit.endings import Terminated
from harness.kit.modules import need
from wse_core.errors import ConfigError, WseError
from wse_core.errors.base import EXIT_RUN
from wse_core.events import FOREVER, LEVELS
from wse_core.numbers import DEFAULT_PRESET, PRESETS
from wse_core.params import Machine

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
    listing = parts.add_parser(
        "listing",
        parents=[common],
        help="print the instructions beside the source lines that they come from",
        description="Compile a layout file and print each program: instructions with their registers and cycles under "
        "the source line that they come from.",
    )
    call = parts.add_parser(
        "call",
        parents=[common],
        help="call a function of a file on one PE and print the globals that it leaves",
        description="Compile a file without a layout, call one of its functions on one PE, and print cycles and "
        "globals.",
    )
    _add_run(parts)
    add_text_commands(parts, common)
    scripts = parts.add_parser(
        "scripts",
        parents=[common],
        help="run every program of a tree by its own script, and say how each ends",
        description="Run the scripts of a tree of programs as they are, in a copy of the tree, with this project's "
        "cslc and cs_python on the path. The exit status is 1 if one fails, or, with --against, if one fails that did "
        "not before.",
    )
    scripts.add_argument("tree", metavar="TREE", type=Path, help="such as a copy of the public examples")
    scripts.add_argument("--only", action="append", default=[], metavar="TEXT", help="scripts with this in their path")
    scripts.add_argument("--scripts", metavar="PATTERN", help="names; default commands*.sh, with --ci *.sh")
    scripts.add_argument(
        "--ci", action="store_true", help="any checkout: scripts that call cslc, how far each comes, what is missing"
    )
    scripts.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="for each; default 1800")
    scripts.add_argument("--against", type=Path, metavar="FILE", help="what --json printed before")
    for part in (check, census, listing, call):
        part.add_argument("paths", nargs="+" if part is check else 1, metavar="PATH", help="file or directory")
        part.add_argument(
            "--params",
            action="append",
            default=[],
            dest="bindings",
            metavar="a:1,b:2",
            help="values for params of the layout file; may be repeated",
        )
        if part is call:
            part.add_argument("call", metavar="CALL", help="such as 'f(3)'")
        part.add_argument(
            "--arch",
            choices=tuple(PRESETS),
            default=DEFAULT_PRESET,
            help=f"what is compiled for; default {DEFAULT_PRESET}",
        )
        part.add_argument("--import-path", action="append", default=[], metavar="DIR", help="where <modules> are")
        part.add_argument("--fp16-format", choices=("f16", "cb16"), default="f16", help="what a 16-bit float is")
        if part is not census:
            part.add_argument("--sdk", default="", metavar="V", help="warn of what SDK 1.0 ... 2.10 refuses")
            part.add_argument(
                "--optimise", type=int, choices=(0, 1), default=1, help="0: code as the source says it; default 1"
            )
    return parser


def _add_run(parts: Any) -> None:
    """Register the command ``wse csl run``."""
    run = parts.add_parser(
        "run",
        help="run a host script, as cs_python does",
        description="Run a host script with the modules that it expects; its own arguments come after it.",
    )
    run.add_argument("--out", type=Path, metavar="FILE.h5", help="record the run, for wse view, export and report")
    run.add_argument(
        "--trace",
        choices=("counters", *LEVELS),
        default="counters",
        help="what is recorded: counters (default); events of tasks, operations and waits; or full: every wavelet's "
        "way as well",
    )
    run.add_argument("--trace-window", metavar="CYCLES", type=int, help="counters of each window of so many cycles")
    run.add_argument("--trace-cycles", metavar="A:B", help="record cycles A to B - 1 only")
    run.add_argument("--trace-region", metavar="X,Y,W,H", help="record these PEs of the program's rectangle only")
    add_overrides(run)
    run.add_argument("script", metavar="SCRIPT")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="what the script is given")


def main(args: argparse.Namespace) -> int:
    """Do what was asked; return 1 if a program has an error."""
    if args.part == "symbols":
        return _symbols(args)
    if args.part == "scripts":
        return _scripts(args)
    alone = {"run": _run, "format": format_sources, "lsp": serve}.get(args.part)
    if alone is not None:
        return alone(args)
    projects = need("fabric.csl.projects", "the command `wse csl`")
    need("lark", "the command `wse csl`")
    environment = [entry for entry in os.environ.get("CSL_IMPORT_PATH", "").split(":") if entry]
    options = projects.Options(
        params=projects.parse_params(args.bindings),
        import_paths=(*args.import_path, *environment),
        fp16=args.fp16_format,
        optimise=args.part == "census" or bool(args.optimise),
        arch=args.arch,
        sdk=getattr(args, "sdk", ""),
    )
    return {"check": _check, "census": _census, "listing": _listing, "call": _call}[args.part](args, options, projects)


def _run(args: argparse.Namespace) -> int:
    """Run a host script, and record it if a file is named."""
    if not os.path.isfile(args.script):
        raise ConfigError("there is no such file", where=args.script)
    chosen = _machine(args.overrides) if args.overrides else None
    if args.out is None:
        if args.trace != "counters" or args.trace_window or args.trace_cycles or args.trace_region:
            raise ConfigError("needs a file to record to", where="--trace", hint="--out FILE.h5")
        return _run_script(args, None, chosen)
    from fabric.host.recording import record
    from harness.cli import selection

    recording = record(
        args.out,
        args.trace,
        args.trace_window,
        job=Path(args.script).name,
        region=selection.rectangle(args.trace_region, "--trace-region") if args.trace_region else None,
        cycles=selection.cycle_range(args.trace_cycles, "--trace-cycles") if args.trace_cycles else (0, FOREVER),
    )
    return _run_script(args, recording, chosen)


def _run_script(args: argparse.Namespace, recording: Any, chosen: Any) -> int:
    """Run a host script; what it raises itself, such as a failed assertion, is said as Python says it: status 1."""
    run_script = need("harness.sdk.python", "the command `wse csl run`").run_script
    try:
        return int(run_script(args.script, args.arguments, recording, chosen))
    except (WseError, OSError, MemoryError, Terminated):
        raise
    except Exception as error:
        traceback.print_exception(error)
        return EXIT_RUN


def _symbols(args: argparse.Namespace) -> int:
    """Print where the variables of compiled programs lie."""
    listing = need("harness.sdk.symbols", "the command `wse csl symbols`")
    bundle = need("fabric.csl.artefact", "the command `wse csl symbols`").read_bundle(args.directory)
    if args.json:
        print_json({"programs": listing.symbols_of(bundle)})
    else:
        print(listing.table(bundle))
    return 0


def _machine(overrides: list[str]) -> Callable[[str], Machine]:
    """Return what gives the machine that runs layouts compiled for an architecture, with some numbers changed."""
    rules = need("fabric.csl.rules", "the command `wse csl run`").COMPILED

    def words(arch: str) -> list[str]:
        return [*(f"{name}={value}" for name, value in rules[arch].items()), *overrides]

    of_words(DEFAULT_PRESET, words(DEFAULT_PRESET))  # what is wrong is said before the script begins
    return lambda arch: of_words(arch, words(arch))


def _scripts(args: argparse.Namespace) -> int:
    """Run the scripts of a tree and print a table."""
    need("lark", "the command `wse csl scripts`")
    runner = need("harness.sdk.scripts", "the command `wse csl scripts`")
    before = _passed_before(args.against) if args.against else None
    only = tuple(args.only)
    if args.ci and args.scripts is None:
        found = runner.find_drivers(args.tree, only)
    else:
        found = runner.find_scripts(args.tree, args.scripts or "commands*.sh", only, "cslc" if args.ci else "")
    outcomes = []
    with make_progress(args.progress) as progress:
        progress.phase(f"{len(found)} scripts")

        def begins(number: int, script: Path) -> None:
            progress.update(number, len(found), now=script.parent.name)

        for outcome in runner.run_scripts(args.tree, found, args.limit, begins):
            outcomes.append(outcome)
    failed = [entry.script for entry in outcomes if (entry.failed if args.ci else entry.status)]
    if args.json:
        print_json(runner.as_data(outcomes))
    else:
        print(runner.as_verdicts(outcomes) if args.ci else runner.as_text(outcomes))
    if before is None:
        return 1 if failed else 0
    lost = [script for script in failed if script in before]
    for script in lost:
        print(f"{script} fails, and did not before", file=sys.stderr)
    return 1 if lost else 0


def _passed_before(path: Path) -> set[str]:
    """Return the scripts that passed, of what was printed before."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {entry["script"] for entry in kept["scripts"] if entry["status"] == 0}
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "wse csl scripts TREE --json > FILE"
        raise ConfigError(f"this is no list of outcomes: {error}", where=str(path), hint=hint) from None


def _call(args: argparse.Namespace, options: Any, projects: Any) -> int:
    """Call a function and print what it leaves."""
    call_function = need("harness.sdk.call", "the command `wse csl call`").call_function
    diagnostics = need("fabric.csl.diagnostics", "the command `wse csl call`")
    path = Path(args.paths[0])
    if not path.is_file():
        raise ConfigError("there is no such file", where=str(path))
    try:
        cycles, values = call_function(path, args.call, options)
    except diagnostics.CslError as error:
        for item in error.diagnostics:
            print(diagnostics.render(item), file=sys.stderr)
        return 1
    if args.json:
        print_json({"cycles": cycles, "globals": {name: array.tolist() for name, array in values.items()}})
        return 0
    print(f"{cycles} cycles")
    for name, array in values.items():
        print(f"{name} = {' '.join(f'{x:g}' for x in array.tolist())}")
    return 0


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
    compile_file = need("fabric.csl.compile", "the command `wse csl check`").compile_file
    bundle_of = need("fabric.csl.artefact", "the command `wse csl check`").bundle_of
    diagnostics = need("fabric.csl.diagnostics", "the command `wse csl check`")
    results: list[dict[str, Any]] = []
    messages: dict[str, None] = {}
    for project in _found(args, options, projects):
        entry: dict[str, Any] = {"file": str(project.path), "ok": True}
        try:
            compiled = compile_file(project.path, project.options)
            bundle_of(compiled)
            made = compiled.checked
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


def _listing(args: argparse.Namespace, options: Any, projects: Any) -> int:
    """Print what becomes of each source line."""
    compile_file = need("fabric.csl.compile", "the command `wse csl listing`").compile_file
    show = need("fabric.csl.emit.listing", "the command `wse csl listing`").listing
    diagnostics = need("fabric.csl.diagnostics", "the command `wse csl listing`")
    try:
        made = compile_file(args.paths[0], options)
    except diagnostics.CslError as error:
        for item in error.diagnostics:
            print(diagnostics.render(item), file=sys.stderr)
        return 1
    texts = [show(program.emitted) for program in made.programs]
    if args.json:
        print_json({"programs": texts})
    else:
        print("\n\n".join(texts))
    return 0
