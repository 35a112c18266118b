"""The picture of docs/architecture.md has packages and their edges, a wavelet's way, a weight's way, the two engines.

    python -m tools.docs.architecture [FILE]

Everything that is drawn stands in the tables below; `tests/test_architecture.py` compares packages, edges and modules
with the source, and the size of the file with `MOST_BYTES`.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["EDGES", "MOST_BYTES", "PACKAGES", "PICTURE", "WAVELET", "WEIGHT", "draw", "main"]

PICTURE = "docs/figures/architecture.png"
MOST_BYTES = 100_000

PACKAGES = {
    "wse_core": ("one PE: numbers, formats, ops,", "router, CE; reference of it"),
    "traces": ("run files, events,", "figures, exports"),
    "fabric": ("programs, layouts, engine,", "host, kernels, networks"),
    "memx": ("weights, optimizers,", "coordinator, tiers"),
    "swarm": ("tree, system of wafers,", "cluster"),
    "harness": ("command line, training,", "planner, validation"),
    "wse": ("what users import:", "all of it under one name"),
}
"""Each package is drawn with what it holds, in two lines."""

EDGES = {
    "fabric": ("wse_core", "traces"),
    "memx": ("wse_core", "fabric"),
    "swarm": ("wse_core", "fabric", "memx"),
    "harness": ("wse_core", "traces", "fabric", "memx", "swarm"),
    "traces": ("wse_core",),
    "wse_core": (),
    "wse": ("wse_core", "traces", "fabric", "harness"),
}
"""Each package may import these packages."""

WAVELET = (
    ("task", "a CE's step sends", "wse_core/ce.pyx"),
    ("ramp", "ready after ramp.out", "wse_core/router.pyx"),
    ("router", "a hop per cycle", "wse_core/router.pyx"),
    ("input queue", "ready after ramp.in", "wse_core/router.pyx"),
    ("task or operand", "picker or vector step", "wse_core/ce.pyx"),
)
WEIGHT = (
    ("store", "FP32 weight and state", "memx/parameter.py"),
    ("coordinator", "16-bit words, commands", "memx/coordinator.py"),
    ("tree down", "a copy per wafer", "swarm/tree.py"),
    ("wafer", "multiply-add per token", "fabric/networks/streamed/wafer.py"),
    ("tree up", "gradients are added", "swarm/tree.py"),
    ("update", "back in the store", "memx/optimizer.py"),
)
"""The way of a weight has these stations: name, what happens, module."""

PLACES = {
    "harness": (0.6, 4.2),
    "swarm": (0.6, 3.15),
    "memx": (0.6, 2.1),
    "fabric": (0.6, 1.05),
    "wse_core": (0.6, 0.0),
    "traces": (4.3, 2.1),
    "wse": (4.3, 4.2),
}
SIZE = (2.5, 0.75)
INK, FILL, PAPER = "#1f3044", "#dfe9f3", "#f6f2e6"


def _box(axes: Any, x: float, y: float, size: tuple[float, float], lines: Sequence[str], fill: str = FILL) -> None:
    """Draw a box whose first line is its name."""
    from matplotlib.patches import FancyBboxPatch

    w, h = size
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=style, fc=fill, ec=INK, lw=1))
    step = h / (len(lines) + 1)
    for k, line in enumerate(lines):
        weight = "bold" if k == 0 else "normal"
        axes.text(
            x + w / 2, y + h - (k + 1) * step, line, ha="center", va="center", fontsize=8, weight=weight, color=INK
        )


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
    """Draw an arrow between boxes."""
    style = {"arrowstyle": "-|>", "color": INK, "lw": 0.9, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", end, start, arrowprops=style)


def _packages(axes: Any) -> None:
    """Draw the packages; an arrow points from who imports to what is imported, where no way down the column says it."""
    w, h = SIZE
    for name, lines in PACKAGES.items():
        _box(axes, *PLACES[name], SIZE, (name, *lines))
    for name, below in EDGES.items():
        for other in below:
            if any(other in EDGES[between] for between in below if PLACES[between][0] == PLACES["fabric"][0]):
                continue
            (x, y), (a, b) = PLACES[name], PLACES[other]
            if x == a:
                _arrow(axes, (x + w / 2, y), (a + w / 2, b + h))
            elif x < a:
                _arrow(axes, (x + w, y + h / 2), (a, b + h / 2), -0.15)
            else:
                _arrow(axes, (x + w / 2, y), (a + w, b + h / 2), -0.25)
    axes.set_title("who imports whom", fontsize=10, loc="left", color=INK)
    axes.set_xlim(0.5, 7)
    axes.set_ylim(-0.05, 5.05)


def _engines(axes: Any) -> None:
    """Draw the two engines behind one hand-over."""
    _box(axes, 0.2, 4.0, (2.9, 0.75), ("Program, Layout", "fabric.program, fabric.layout"))
    _box(axes, 0.2, 2.75, (2.9, 0.75), ("FabricSpec", "the only hand-over (wse_core.image)"), PAPER)
    _box(axes, -0.35, 1.3, (1.9, 0.95), ("Engine", "compiled", "fabric.engine"))
    _box(axes, 1.75, 1.3, (1.9, 0.95), ("Reference", "plain Python", "wse_core.reference"))
    _box(axes, 0.2, 0.1, (2.9, 0.75), ("Fabric", "host: copies, runs, errors"))
    _arrow(axes, (1.65, 4.0), (1.65, 3.5))
    _arrow(axes, (1.3, 2.75), (0.6, 2.25))
    _arrow(axes, (2.0, 2.75), (2.7, 2.25))
    _arrow(axes, (1.0, 0.85), (0.6, 1.3))
    _arrow(axes, (2.3, 0.85), (2.7, 1.3))
    axes.text(1.65, 1.77, "=", ha="center", va="center", fontsize=15, color=INK)
    axes.set_title("two engines, equal in every cycle", fontsize=10, loc="left", color=INK)
    axes.set_xlim(-0.5, 3.8)
    axes.set_ylim(0, 5.1)


def _way(axes: Any, title: str, stations: Sequence[tuple[str, str, str]]) -> None:
    """Draw a way from station to station."""
    gap, width = 0.35, (12 - 0.35 * (len(stations) - 1)) / len(stations)
    for k, (name, what, module) in enumerate(stations):
        x = k * (width + gap)
        _box(axes, x, 0.1, (width, 1.0), (name, what, module.replace("networks/streamed", "..")))
        if k:
            _arrow(axes, (x - gap, 0.6), (x, 0.6))
    axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xlim(-0.05, 12.05)
    axes.set_ylim(0, 1.15)


def draw() -> bytes:
    """Return the picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 2, height_ratios=(4.2, 1, 1), width_ratios=(7, 4.3))
    _packages(figure.add_subplot(grid[0, 0]))
    _engines(figure.add_subplot(grid[0, 1]))
    _way(figure.add_subplot(grid[1, :]), "a wavelet's way", WAVELET)
    _way(figure.add_subplot(grid[2, :]), "a weight's way, once per iteration", WEIGHT)
    for axes in figure.axes:
        axes.axis("off")
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return _reduced(data)


def _reduced(data: io.BytesIO) -> bytes:
    """Return a picture with few colours."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(data) as image:
        image.convert("RGB").quantize(32, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Draw the picture; return 1 if it is too large to be kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.architecture", description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", default=PICTURE, metavar="FILE", help="default %(default)s")
    args = parser.parse_args(argv)
    data = draw()
    Path(args.out).write_bytes(data)
    print(f"{args.out}: {len(data) / 1e3:.0f} kB")
    return int(len(data) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
