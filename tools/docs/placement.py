"""The table and the picture of docs/placement.md have contest problems placed, checked and drawn.

    python -m tools.docs.placement PROBLEMS SOLUTIONS [--seconds S] [--processes P]

PROBLEMS is a directory of ``.kgraph`` files, which are not part of this project; those in whose score adapters count
are left out.  SOLUTIONS gets a placement for each, with what was spent on it; one that is there is checked and shown,
not searched again.  Problems whose score is mostly wire are placed a second time for the slowest kernel.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.kit.files import write_picture
from harness.place.kgraph import ContestProblem, read_problem
from harness.place.picture import PictureBlock, draw_wafer
from harness.place.solution import PlacedKernel, read_solution, scored, written
from harness.place.solve import solve
from traces.atomic import atomic_file

__all__ = ["main", "table"]

PAGE, PICTURE = Path("docs/placement.md"), Path("docs/figures/placement.png")
MARKED = re.compile(r"(<!-- begin problems -->\n).*?(<!-- end problems -->)", re.S)
MOST_WIRE = 0.4
"""From this share of wire in a score on the slowest kernel is looked at for itself."""
ACROSS = 5


def problems(directory: Path) -> Iterator[tuple[str, ContestProblem]]:
    """Yield name and problem of each file whose score is known."""
    for path in sorted(directory.glob("*.kgraph")):
        problem = read_problem(path)
        if not problem.adapter_weight:
            yield path.stem, problem


def placed(name: str, problem: ContestProblem, objective: str, folder: Path, seconds: float, processes: int) -> Path:
    """Return the file of a placement, which is searched if it is not there."""
    path = folder / f"{name}-{objective}.sol"
    if not path.exists():
        outcome = solve(problem, objective, seconds=seconds, processes=processes)
        spent = {"seconds": outcome.seconds, "processes": processes, "bound": float(outcome.bound)}
        with atomic_file(path.with_suffix(".json")) as stream:
            stream.write(json.dumps(spent).encode())
        with atomic_file(path) as stream:
            stream.write(written(outcome.placed).encode())
        print(f"{path}: {outcome.score}", flush=True)
    return path


def row(name: str, problem: ContestProblem, objective: str, path: Path) -> tuple[dict[str, Any], list[PlacedKernel]]:
    """Return a row of the table and the placement, which is read and checked."""
    found = read_solution(path, problem)
    score = scored(problem, found, strict=True)
    spent = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    return {
        "problem": name,
        "kernels": len(problem.kernels),
        "objective": objective,
        "bound": spent["bound"],
        "slowest": float(score.slowest),
        "over": float(score.slowest) / spent["bound"],
        "wire": float(score.wire),
        "score": score.score,
        "used": score.used,
        "cpu": spent["seconds"] * spent["processes"],
    }, found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table of the page."""
    lines = [
        "| problem | kernels | objective | slowest kernel | over the bound by area | wires | score | wafer used "
        "| CPU time |",
        "|" + "---|" * 9,
    ]
    for r in rows:
        lines.append(
            f"| {r['problem']} | {r['kernels']} | {r['objective']} | {r['slowest']:,.10g} | {r['over']:.3f} "
            f"| {r['wire']:,.10g} | {r['score']:,.10g} | {100 * r['used']:.1f} % | {r['cpu']:.0f} s |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Search what is missing, check everything, write table and picture."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.placement", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("problems", type=Path, metavar="PROBLEMS")
    parser.add_argument("solutions", type=Path, metavar="SOLUTIONS")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of a process (default %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="default %(default)s")
    parser.add_argument("--page", type=Path, default=PAGE, help="default %(default)s")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="default %(default)s")
    args = parser.parse_args(argv)
    rows, wafers = [], []
    for name, problem in problems(args.problems):
        for objective in ("score", "slowest"):
            path = placed(name, problem, objective, args.solutions, args.seconds, args.processes)
            facts, found = row(name, problem, objective, path)
            rows.append(facts)
            if objective == "score":
                wafers.append((name, problem, found))
                if facts["wire"] * problem.wire_weight < MOST_WIRE * facts["score"]:
                    break
    if not rows:
        print(f"{args.problems}: no problem whose score is known", file=sys.stderr)
        return 1
    text = args.page.read_text(encoding="utf-8")
    text = MARKED.sub(lambda match: f"{match[1]}{table(rows)}{match[2]}", text)
    with atomic_file(args.page) as stream:
        stream.write(text.encode())
    with atomic_file(args.picture) as stream:
        write_picture(stream, lambda figure: _drawn(figure, wafers))
    return 0


def _drawn(figure: Any, wafers: Sequence[tuple[str, ContestProblem, list[PlacedKernel]]]) -> None:
    """Draw all wafers of a page."""
    high = -(-len(wafers) // ACROSS)
    for index, (name, problem, found) in enumerate(wafers):
        axes = figure.add_subplot(high, min(ACROSS, len(wafers)), index + 1)
        blocks = [PictureBlock("", item.x, item.y, *item.size, 1.0) for item in found]
        draw_wafer(axes, blocks, problem.wires, problem.width, problem.height, name)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")


if __name__ == "__main__":
    sys.exit(main())
