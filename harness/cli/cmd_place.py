"""The command ``wse place`` gives kernels of a contest problem, or layers of a network, rectangles of the wafer."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.kit.console import make_progress, print_json, table
from harness.kit.files import write_picture
from traces.atomic import atomic_file
from traces.picture import format_of
from wse_core.errors import ConfigError
from wse_core.schema import Field

__all__ = ["add_parser", "main"]

SECONDS = Field("seconds", float, low=0.1, high=1e6, unit="s")
ROUNDS = Field("rounds", int, low=1, high=10**9)
PROCESSES = Field("processes", int, low=1, high=256)
SEED = Field("seed", int, low=0, high=2**63 - 1)
SIDE = Field("side", int, low=1, high=4096, unit="PEs")
MINIBATCH = Field("minibatch", int, low=1, high=2**20, unit="samples")
SOLVERS = ("search", "cp-sat")


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "place",
        parents=[common],
        help="give kernels rectangles of the wafer",
        description="Choose size and place of every kernel of a problem of the ISPD 2020 contest (FILE.kgraph), so "
        "that its score, or the slowest kernel, is least.  Ctrl-C ends the search and keeps the best so far.  Of a "
        "training configuration (FILE.toml or the name of an example): of every layer, as the pipelined mode has them.",
    )
    parser.add_argument("file", metavar="FILE", help="a problem in the contest's format, or a training configuration")
    parser.add_argument(
        "--objective", default="score", metavar="WHAT", help="score of the contest, or slowest: time of the slowest one"
    )
    parser.add_argument("--seconds", metavar="S", help="time of the clock (default: 60)")
    parser.add_argument("--rounds", metavar="N", help="rounds of each process instead: the same result everywhere")
    parser.add_argument("--processes", default="2", metavar="P", help="searches side by side (default: %(default)s)")
    parser.add_argument("--seed", default="0", metavar="N", help="of the search (default: %(default)s)")
    parser.add_argument(
        "--solver",
        default="search",
        metavar="WHAT",
        help="search, or cp-sat: OR-tools, to compare with (default: search)",
    )
    parser.add_argument("--check", metavar="SOLUTION", help="do not search: check a placement and say its score")
    parser.add_argument("--out", metavar="SOLUTION", help="file for the placement, in the contest's format")
    parser.add_argument("--picture", metavar="FILE.png", help="file for a picture of the wafer: .png, .svg or .pdf")
    parser.add_argument(
        "--mesh", metavar="WxH", help="of a configuration: PEs (default: those of the file, all if it streams weights)"
    )
    parser.add_argument("--minibatch", metavar="N", help="of a configuration: samples (default: as the file says)")
    return parser


def main(args: argparse.Namespace) -> int:
    """Place what the file states."""
    if args.picture:
        format_of(args.picture)  # refuses others before anything is searched
    return _contest(args) if args.file.endswith(".kgraph") else _network(args)


def _network(args: argparse.Namespace) -> int:
    """Place the layers of a training configuration as training does, write, print."""
    from harness.place.network import ROUNDS as ENOUGH
    from harness.place.picture import PictureBlock, draw, terminal
    from harness.train.config import load_train
    from harness.train.pipeline_config import minibatch_of
    from harness.train.placement import laid

    for name in ("check", "out", "seconds"):
        if getattr(args, name):
            raise ConfigError("belongs to a contest problem", where=f"--{name}", hint="without it, or a .kgraph file")
    config = load_train(args.file)
    if args.mesh or config.mode == "streaming":  # its mesh says nothing about all layers at once
        machine = config.build_machine()
        width, height = _mesh(args.mesh) if args.mesh else (machine["fabric.width"], machine["fabric.height"])
        config = replace(config, mesh=replace(config.mesh, width=width, height=height))
    if args.minibatch:
        batch = MINIBATCH.parse(args.minibatch, "--minibatch")
        config = replace(config, data=replace(config.data, batch=batch), pipeline=replace(config.pipeline, minibatch=0))
    width, height, batch = config.mesh.width, config.mesh.height, minibatch_of(config)
    rounds = ROUNDS.parse(args.rounds, "--rounds") if args.rounds else ENOUGH
    with make_progress(args.progress) as progress:
        progress.phase(f"{len(config.network.layers)} layers on {width} x {height} PEs")
        found = laid(config, rounds, SEED.parse(args.seed, "--seed"))
    slowest = max(found.cycles)
    rectangles = [found.pipeline.rectangle(number) for number in range(len(found.cycles))]
    layers: list[dict[str, Any]] = [
        {
            "layer": f"{number}: {layer.inputs} x {layer.outputs}",
            **dict(zip(("x", "y", "width", "height"), rectangle, strict=True)),
            "cycles": cycles,
            "utilisation": cycles / slowest,
        }
        for number, (layer, rectangle, cycles) in enumerate(
            zip(found.pipeline.network.layers, rectangles, found.cycles, strict=True), 1
        )
    ]
    blocks = [
        PictureBlock(str(number), *rectangle, cycles / slowest)
        for number, (rectangle, cycles) in enumerate(zip(rectangles, found.cycles, strict=True), 1)
    ]
    ways = {name: path.way for name, path in found.pipeline.paths.items()}
    ways |= {f"{name} onward": path.way_out for name, path in found.pipeline.paths.items() if path.way_out}
    if args.picture:
        with atomic_file(args.picture) as stream:
            write_picture(
                stream,
                lambda figure: draw(figure, blocks, [], width, height, str(args.file), ways),
                format_of(args.picture),
            )
    files = [args.picture] if args.picture else []
    if args.json:
        facts = {"width": width, "height": height, "minibatch": batch, "slowest": slowest, "how": found.how}
        paths = [{"path": name, "links": len(way) - 1} for name, way in ways.items()]
        print_json(facts | {"layers": layers, "paths": paths, "files": files})
        return 0
    print(terminal(blocks, width, height))
    rows = [
        (
            f"layer {layer['layer']}",
            f"{layer['width']} x {layer['height']} PEs at {layer['x']}, {layer['y']}: {layer['cycles']:,.0f} cycles, "
            f"{100 * layer['utilisation']:.0f} % of the time at work",
        )
        for layer in layers
    ]
    how = "found by the search" if found.how == "search" else "side by side in a row"
    rows.append(("network", f"{slowest:,.0f} cycles a minibatch of {batch}, {how}; programs measured one by one"))
    print(table(rows + [("written", name) for name in files]))
    return 0


def _mesh(text: str) -> tuple[int, int]:
    """Return what WxH means."""
    width, cross, height = text.partition("x")
    if not cross:
        raise ConfigError(f"{text!r} is no mesh", where="--mesh", hint="WxH, for example 40x30")
    return SIDE.parse(width, "--mesh"), SIDE.parse(height, "--mesh")


def _contest(args: argparse.Namespace) -> int:
    """Search or check, write, print."""
    from harness.place.kgraph import read_problem
    from harness.place.solution import read_solution, scored

    for name in ("mesh", "minibatch"):
        if getattr(args, name):
            raise ConfigError("belongs to a training configuration", where=f"--{name}", hint="without it")
    if args.seconds and args.rounds:
        raise ConfigError("both are given", where="--seconds, --rounds", hint="one of them")
    problem = read_problem(args.file)
    facts: dict[str, Any] = {"problem": problem.name, "kernels": len(problem.kernels)}
    status = 0
    if args.check:
        placed = read_solution(args.check, problem)
        score = scored(problem, placed)
    else:
        outcome = _searched(args, problem)
        placed, score = outcome.placed, outcome.score
        facts |= {
            "objective": args.objective,
            "bound": float(outcome.bound),
            "over_bound": float(score.slowest / outcome.bound),
            "rounds": outcome.rounds,
            "seconds": outcome.seconds,
            "interrupted": bool(outcome.ended_by),
        }
        if outcome.ended_by:
            print("interrupted: the best so far is kept", file=sys.stderr)
            status = 128 + outcome.ended_by
    facts |= {
        "slowest": float(score.slowest),
        "wire": float(score.wire),
        "score": score.score,
        "used": score.used,
        "files": _write(args, problem, placed),
    }
    _print(args, facts, problem, placed)
    return status


def _searched(args: argparse.Namespace, problem: Any) -> Any:
    """Search as the options say."""
    if args.solver not in SOLVERS:
        raise ConfigError(f"{args.solver!r} is no solver", where="--solver", hint=f"one of {', '.join(SOLVERS)}")
    solve: Any
    if args.solver == "cp-sat":
        from harness.place.cpsat import solve_cp as solve

        if args.rounds:
            raise ConfigError("cp-sat has no rounds", where="--rounds", hint="--seconds")
    else:
        from harness.place.solve import solve

    options: dict[str, Any] = {
        "processes": PROCESSES.parse(args.processes, "--processes"),
        "seed": SEED.parse(args.seed, "--seed"),
    }
    if args.rounds:
        options["rounds"] = ROUNDS.parse(args.rounds, "--rounds")
    if args.seconds:
        options["seconds"] = SECONDS.parse(args.seconds, "--seconds")
    for path in (args.out, args.picture):
        if path and Path(path).is_dir():
            raise ConfigError("is a directory", where=path, hint="the name of a file")
    with make_progress(args.progress) as progress:
        progress.phase(f"{problem.name or 'problem'}: {len(problem.kernels)} kernels")

        def report(share: float, rounds: int, best: Any) -> None:
            shown = {} if best is None else {"slowest": float(best.limit), "wire": best.wire}
            progress.update(round(1000 * share), 1000, rounds=rounds, **shown)

        return solve(problem, args.objective, report=report, **options)


def _blocks(placed: Any) -> list[Any]:
    """Return what a picture shows of a placement."""
    from harness.place.picture import PictureBlock

    times = [item.kernel.time(item.given) for item in placed]
    slowest = max(times)
    return [
        PictureBlock(item.kernel.name, item.x, item.y, item.size[0], item.size[1], float(time / slowest))
        for item, time in zip(placed, times, strict=True)
    ]


def _write(args: argparse.Namespace, problem: Any, placed: Any) -> list[str]:
    """Write the files that are asked for and return their names."""
    from harness.place.picture import draw
    from harness.place.solution import written

    if args.out:
        with atomic_file(args.out) as stream:
            stream.write(written(placed).encode("ascii"))
    if args.picture:
        with atomic_file(args.picture) as stream:
            write_picture(
                stream,
                lambda figure: draw(
                    figure, _blocks(placed), problem.wires, problem.width, problem.height, problem.name or "placement"
                ),
                format_of(args.picture),
            )
    return [path for path in (args.out, args.picture) if path]


def _print(args: argparse.Namespace, facts: dict[str, Any], problem: Any, placed: Any) -> None:
    """Print the result of a placement."""
    from harness.place.picture import terminal

    if args.json:
        places = [
            {
                "name": item.kernel.name,
                "x": item.x,
                "y": item.y,
                "width": item.size[0],
                "height": item.size[1],
                "time": float(item.kernel.time(item.given)),
            }
            for item in placed
        ]
        print_json(facts | {"placement": places})
        return
    print(terminal(_blocks(placed), problem.width, problem.height))
    bound = f", {facts['over_bound']:.3f} of the bound by area" if "over_bound" in facts else ""
    rows = [
        ("problem", f"{facts['problem']}: {facts['kernels']} kernels"),
        ("slowest kernel", f"{facts['slowest']:,.10g}{bound}"),
        ("wires", f"{facts['wire']:,.10g} PEs"),
        ("score", "not known: adapters count" if facts["score"] is None else f"{facts['score']:,.10g}"),
        ("wafer used", f"{100 * facts['used']:.1f} %"),
    ]
    if "rounds" in facts:
        rows.append(("search", f"{facts['rounds']} rounds, {facts['seconds']:.1f} s"))
    rows += [("written", name) for name in facts["files"]]
    print(table(rows))
