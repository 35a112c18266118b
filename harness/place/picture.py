"""A placement is shown as a picture of the wafer, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["PictureBlock", "draw", "draw_wafer", "terminal"]

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
EMPTY = "."
MOST_NAMED = 40
"""The picture bears the names of at most so many blocks, and shows their loads one by one."""
PALE = 0.35
WAYS = {"activations": ("#c8442f", "-"), "gradients": ("#2f6fc8", "--")}
"""Data paths have these colours and styles; all others have `OTHER`."""
OTHER = "#5d6b71", ":"


class PictureBlock(NamedTuple):
    """A block is a rectangle of a picture: name, corner and size [PEs], load as share of the slowest time."""

    name: str
    x: int
    y: int
    width: int
    height: int
    load: float


def terminal(blocks: Sequence[PictureBlock], width: int, height: int, columns: int = 64) -> str:
    """Return the wafer as lines of letters, x to the right and y downwards, a dot where nothing lies.

    A character is twice as high as it is wide; it shows what lies in its middle.
    """
    wide = max(1, min(columns, width))
    high = max(1, min(columns, round(height / width * wide / 2), height))
    lines = []
    for row in range(high):
        y = (row + 0.5) * height / high
        line = ""
        for column in range(wide):
            x = (column + 0.5) * width / wide
            inside = (
                index
                for index, block in enumerate(blocks)
                if block.x <= x < block.x + block.width and block.y <= y < block.y + block.height
            )
            found = next(inside, None)
            line += EMPTY if found is None else LETTERS[found % len(LETTERS)]
        lines.append(line)
    return "\n".join(lines)


def shades(count: int) -> list[tuple[float, ...]]:
    """Return colours of blocks in their order."""
    from matplotlib import colormaps

    return [colormaps["viridis"](index / max(1, count - 1))[:3] for index in range(count)]


def draw_ways(axes: Any, ways: Mapping[str, Sequence[tuple[int, int]]]) -> None:
    """Draw data paths over the PEs that they pass, in a colour for each kind: the first word of their names."""
    for name, places in ways.items():
        kind = name.split()[0]
        colour, style = WAYS.get(kind, OTHER)
        label = kind if kind in WAYS and kind not in axes.get_legend_handles_labels()[1] else None
        middles = [(x + 0.5, y + 0.5) for x, y in places]
        marker = "o" if len(middles) == 1 else None  # neighbours: one PE
        axes.plot(
            *zip(*middles, strict=True),
            color=colour,
            linestyle=style,
            marker=marker,
            markersize=3,
            linewidth=1.1,
            label=label,
        )
    if ways:
        axes.legend(loc="lower right", fontsize=6, frameon=False)


def draw_wafer(
    axes: Any, blocks: Sequence[PictureBlock], wires: Sequence[tuple[int, int]], width: int, height: int, title: str
) -> None:
    """Draw the wafer with rectangles in the colours of their order and lines between centres that are connected."""
    from matplotlib.patches import Rectangle

    for block, colour in zip(blocks, shades(len(blocks)), strict=True):
        pale = tuple(1 - (1 - part) * (1 - PALE) for part in colour)
        place = block.x, block.y
        axes.add_patch(Rectangle(place, block.width, block.height, facecolor=pale, edgecolor="white", linewidth=0.5))
        if len(blocks) <= MOST_NAMED and block.name:
            middle = block.x + block.width / 2, block.y + block.height / 2
            axes.text(*middle, block.name, ha="center", va="center", fontsize=5.5, color="#222", clip_on=True)
    for first, second in wires:
        ends = [(block.x + block.width / 2, block.y + block.height / 2) for block in (blocks[first], blocks[second])]
        axes.plot(*zip(*ends, strict=True), color="#c8442f", linewidth=0.8, alpha=0.75)
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xlabel="x [PEs]", ylabel="y [PEs]", title=title)
    axes.add_patch(Rectangle((0, 0), width, height, fill=False, edgecolor="#8a979d", linewidth=0.8))


def draw(
    figure: Any,
    blocks: Sequence[PictureBlock],
    wires: Sequence[tuple[int, int]],
    width: int,
    height: int,
    title: str,
    ways: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> None:
    """Draw the wafer and, beside it, the loads of all blocks.

    Parameters
    ----------
    figure : Figure
    blocks : sequence of PictureBlock
    wires : sequence of (int, int)
        Numbers of blocks that are connected.
    width, height : int
        PEs.
    title : str
    ways : mapping, optional
        The PEs of data paths by their names, where they are known.
    """
    wafer, loads = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    draw_wafer(wafer, blocks, wires, width, height, title)
    draw_ways(wafer, ways or {})
    places = range(len(blocks))
    loads.barh(places, [100 * block.load for block in blocks], color=shades(len(blocks)), height=0.8)
    loads.set(xlim=(0, 100), xlabel="time [% of the slowest one's]", title="load")
    loads.invert_yaxis()
    if len(blocks) <= MOST_NAMED:
        loads.set_yticks(list(places), [block.name for block in blocks], fontsize=5.5)
