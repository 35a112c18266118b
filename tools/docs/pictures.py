"""The pictures at the head of the README are drawn anew, each for light and for dark pages.

    python -m tools.docs.pictures [DIR] [--only NAME]

Every number comes from a command that a reader has too: ``wse validate``, ``wse sweep``, ``wse figure modes``,
``wse kernel`` with a trace.  All together take some minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.cli import main as cli
from tools.docs import moving
from traces.style import RC, new_figure
from traces.trace import Trace

__all__ = ["MOST_BYTES", "PICTURES", "THEMES", "main"]

MOST_BYTES = 600_000
"""A picture has at most so many bytes."""
THEMES: dict[str, dict[str, str]] = {
    "": {"paper": "#ffffff", "ink": "#24292f", "quiet": "#57606a", "grid": "#d8dee4"},
    "-dark": {"paper": "#0d1117", "ink": "#e6edf3", "quiet": "#9aa4ae", "grid": "#30363d"},
}
"""A light and a dark page have these colours; the key is what the name of the file ends in."""
LINES = ("#2b9e77", "#e8590c", "#4d8fd6", "#c2559d", "#b8860b", "#8a6fd1", "#7f8c8d")
"""These can be told apart on both."""
SIZE = (3.5, 2.7)
DPI = 220
COLOURS = 256
SWEEP = """\
kernel = "reduce"

[params]
form = "row"
algorithm = ["star", "chain", "tree", "two_phase", "optimal"]
width = 64
height = 1
n = {from = 1, to = 1024, times = 2}
"""
GROUPS = {
    "gemm-summa": "SUMMA",
    "matvec": "matrix-vector",
    "reduce": "reduce",
    "stencil": "stencils",
    "spmm": "sparse products",
    "gemm-local": "dense products",
    "vector": "vector operations",
}
"""Kinds of published points begin so, and are called this."""

NAMES = {"two_phase": "two phases", "optimal": "computed tree"}
"""These algorithms are called otherwise where their own names would say too little."""

Draw = Callable[[Any, dict[str, str], Any], None]


def accuracy() -> list[dict[str, Any]]:
    """Return the points of ``wse validate`` that were measured and are judged."""
    rows = json.loads(_wse("validate", "--json"))["rows"]
    return [row for row in rows if row["error"] is not None and any(row["kind"].startswith(kind) for kind in GROUPS)]


def draw_accuracy(axes: Any, theme: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Draw by how much this model is off over what was published: filled marks are WSE-2, hollow ones WSE-3."""
    axes.axhspan(-10, 10, color=theme["grid"], alpha=0.5, linewidth=0)
    axes.axhline(0, color=theme["quiet"], linewidth=0.6)
    for (kind, name), color, mark in zip(GROUPS.items(), LINES, "os^Dv<>", strict=True):
        for generation, filled in (("WSE-2", color), ("WSE-3", "none")):
            mine = [row for row in rows if row["kind"].startswith(kind) and row["generation"] == generation]
            published, off = [row["published"] for row in mine], [100 * row["error"] for row in mine]
            look = {"color": color, "markerfacecolor": filled, "markersize": 3, "markeredgewidth": 0.6, "alpha": 0.9}
            axes.plot(published, off, mark, label=name if generation == "WSE-2" else None, **look)
    axes.set(xscale="log", ylim=(-21, 21), xlabel="published cycles (hollow: WSE-3)", ylabel="error of this model [%]")
    axes.set_title(f"{len(rows)} published cycle counts")
    axes.legend(loc="upper right", ncols=2, handletextpad=0.1, columnspacing=0.6, fontsize=6.2)


def sums() -> list[dict[str, Any]]:
    """Return the table of a sweep: a sum over 64 PEs by each algorithm, over the length of the vectors."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sums.toml")
        file.write_text(SWEEP, encoding="utf-8")
        _wse("sweep", file, "--out", Path(folder, "sums"), "--processes", "1", "--json")
        with open(Path(folder, "sums", "table.csv"), encoding="utf-8") as stream:
            return [dict(row) for row in csv.DictReader(stream)]


def draw_sums(axes: Any, theme: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Draw the cycles of each algorithm and what none can beat."""
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    for name, color, mark in zip(names, LINES, "os^Dv", strict=False):
        mine = [row for row in rows if row["algorithm"] == name]
        points = [int(row["n"]) for row in mine], [int(row["cycles"]) for row in mine]
        axes.plot(*points, color=color, marker=mark, markersize=3, label=NAMES.get(name, name))
    least = {int(row["n"]): float(row["lower_bound"]) for row in rows if row["algorithm"] == "chain"}
    axes.plot(list(least), list(least.values()), color=theme["quiet"], linestyle=":", label="lower bound")
    axes.set(xscale="log", yscale="log", xlabel="numbers on each PE", ylabel="cycles")
    axes.set_title("a sum over a row of 64 PEs")
    axes.legend(loc="upper left", fontsize=6.5)


def modes() -> list[dict[str, Any]]:
    """Return the table of ``wse figure modes``."""
    with tempfile.TemporaryDirectory() as folder:
        _wse("figure", "modes", "--out", folder, "--json")
        with open(Path(folder, "modes.csv"), encoding="utf-8") as stream:
            return [dict(row) for row in csv.DictReader(stream)]


def draw_modes(axes: Any, theme: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Draw samples per second of both ways to train, over the size of the network."""
    for name, color, mark in (("streaming", LINES[0], "o"), ("pipelined", LINES[1], "s")):
        mine = [row for row in rows if row[f"{name}_samples_per_s"]]
        sizes = [float(row["parameters"]) for row in mine]
        rates = [float(row[f"{name}_samples_per_s"]) for row in mine]
        axes.plot(sizes, rates, color=color, label=name)
        for size, rate, row in zip(sizes, rates, mine, strict=True):
            filled = color if row[name] == "simulated" else theme["paper"]
            axes.plot(size, rate, mark, color=color, markerfacecolor=filled, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="weights of the network", ylabel="samples a second")
    axes.set_title("training on 12 x 12 PEs; hollow: model")
    axes.legend(loc="upper right")


PICTURES: dict[str, tuple[Callable[[], list[dict[str, Any]]], Draw]] = {
    "readme-accuracy": (accuracy, draw_accuracy),
    "readme-sums": (sums, draw_sums),
    "readme-modes": (modes, draw_modes),
}
"""Each picture has what makes its numbers, and what draws them."""
MOVING = "readme-allreduce"
RUN = ("allreduce", "algorithm=chain", "form=xy", "width=12", "height=6", "n=16")


def still(folder: Path, name: str) -> Iterator[Path]:
    """Draw a picture for light and dark pages; yield the files."""
    from matplotlib import rc_context
    from PIL import Image

    made, drawn = PICTURES[name]
    rows = made()
    for ending, theme in THEMES.items():
        ink = dict.fromkeys(("text.color", "axes.titlecolor"), theme["ink"])
        quiet = dict.fromkeys(("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), theme["quiet"])
        with rc_context(RC | ink | quiet | {"axes.facecolor": theme["paper"], "figure.facecolor": theme["paper"]}):
            figure = new_figure(*SIZE)
            drawn(figure.subplots(), theme, rows)
            path = folder / f"{name}{ending}.png"
            figure.savefig(path, dpi=DPI)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        yield path


def animated(folder: Path) -> Iterator[Path]:
    """Record a sum over a rectangle that goes back to all, and draw it moving; yield the file."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run.h5")
        _wse("kernel", *RUN, "--trace", "full", "--out", run, "--json")
        path = folder / f"{MOVING}.svg"
        with Trace.open(run) as trace:
            path.write_text(moving.picture(trace), encoding="utf-8")
    yield path


def _wse(*words: str | Path) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.main([str(word) for word in words])
    if status:
        sys.exit(f"wse {' '.join(map(str, words))}: failed")
    return out.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the pictures; return 1 if one is too large to be kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.pictures", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", nargs="?", default="docs/figures", metavar="DIR", help="default %(default)s")
    parser.add_argument("--only", choices=[*PICTURES, MOVING], action="append", help="only this one; may be repeated")
    args = parser.parse_args(argv)
    out, large = Path(args.out), False
    out.mkdir(parents=True, exist_ok=True)
    for name in args.only or [*PICTURES, MOVING]:
        for path in animated(out) if name == MOVING else still(out, name):
            size = path.stat().st_size
            print(f"{path}: {size / 1e3:.0f} kB", flush=True)
            large |= size > MOST_BYTES
    return int(large)


if __name__ == "__main__":
    sys.exit(main())
