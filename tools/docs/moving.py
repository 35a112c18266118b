"""A run becomes a moving picture: an SVG in which wavelets travel over the fabric, small enough for the head of a page.

    wse kernel allreduce form=xy width=12 height=6 n=4 --trace full --out allreduce.h5
    python -m tools.docs.moving allreduce.h5 allreduce.svg

Every hop of every wavelet is that of the run, in its cycle; a wavelet that goes straight on is one path.  PEs are green
while an operation is under way and blue while their core waits.  The picture follows the light or dark scheme of its
reader, begins anew when it has ended, and has no script.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traces.movie import in_use
from traces.state import OPEN, RegionStates
from traces.trace import Trace

__all__ = ["MOST_HOPS", "Hop", "Way", "main", "picture", "ways"]

STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Each of the outputs W, E, N, S of a router leads this way."""
BACK = (1, 0, 3, 2)
"""This is the port by which a wavelet comes that left by another one."""
MOST_HOPS = 20_000
"""A run with more hops would be a large file, and nothing that an eye can follow."""
PITCH, PE = 44, 26
"""PEs lie so many pixels apart, and each has so many."""
MARGIN = 30
PER_SECOND = 14
"""A second of the picture has so many cycles."""
REST = 2.0
"""The end stands still for so many seconds."""
COLORS = ("#e8590c", "#9c36b5", "#d9480f", "#c2255c", "#e67700", "#5f3dc4", "#e03131", "#a61e4d")

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #57606a; }
.pe { fill: #8b949e; fill-opacity: .22; }
.works { fill: #2b9e77; }
.waits { fill: #b4cbe6; }
.bar { fill: #8b949e; fill-opacity: .3; }
.now { fill: #57606a; }
@media (prefers-color-scheme: dark) { text, .now { fill: #adb6c0; } .waits { fill: #2d4766; } }
"""


class Hop(NamedTuple):
    """A `Hop` is a wavelet that leaves a router by an output, in a cycle."""

    cycle: int
    x: int
    y: int
    direction: int
    color: int
    data: int


@dataclass(frozen=True)
class Way:
    """A `Way` is what a wavelet travels in one direction without a stop: from a PE, in a cycle, over some hops."""

    begin: int
    x: int
    y: int
    direction: int
    hops: int
    color: int


def ways(events: np.ndarray) -> list[Way]:
    """Return the ways of the wavelets in the grants of routers, in the order in which they begin."""
    ports: dict[Hop, int] = {}
    for event in events:
        for direction in range(4):
            if event["aux"] >> direction & 1:
                cycle, x, y, color, data = (int(event[name]) for name in ("cycle", "x", "y", "color", "data"))
                hop = Hop(cycle, x, y, direction, color, data)
                ports[hop] = int(event["flags"]) >> 1 & 7
    found: list[Way] = []
    taken: set[Hop] = set()
    for first in sorted(ports):
        hop, count = first, 0
        while hop in ports and hop not in taken and (not count or ports[hop] == BACK[hop.direction]):
            taken.add(hop)
            count += 1
            dx, dy = STEPS[hop.direction]
            hop = hop._replace(cycle=hop.cycle + 1, x=hop.x + dx, y=hop.y + dy)
        if count:
            found.append(Way(first.cycle, first.x, first.y, first.direction, count, first.color))
    return found


def picture(trace: Trace) -> str:
    """Return the moving picture of a run.

    Raises
    ------
    SystemExit
        The run has no grants of routers, or too many of them.
    """
    events = trace.events(kinds=("depart",)) if "depart" in trace.filter.kinds else np.zeros(0, [("cycle", "u8")])
    if not 0 < len(events) <= MOST_HOPS:
        sys.exit(f"{len(events):,} grants of routers: record with --trace full, and 1 to {MOST_HOPS:,} of them")
    left, top, columns, rows = region = in_use(trace)
    first, last = int(events["cycle"].min()), int(trace.clock)
    stage = _Ground(left, top, first, (last - first) / PER_SECOND)
    width, height = 2 * MARGIN + PITCH * columns, 2 * MARGIN + PITCH * rows + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{trace.meta.job}: {last - first} cycles</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="0" height="0"><animate id="m" attributeName="x" from="0" to="0" '
        f'begin="0s;m.end" dur="{stage.seconds + REST:.2f}s"/></rect>',
    ]
    lines += stage.pes(RegionStates(trace, region), region)
    lines += [stage.way(way) for way in ways(events)]
    lines += stage.clock(width, height, last - first)
    return "\n".join([*lines, "</svg>", ""])


class _Ground:
    """The ground knows where a PE lies and when a cycle is."""

    def __init__(self, left: int, top: int, first: int, seconds: float) -> None:
        self.left, self.top, self.first, self.seconds = left, top, first, seconds

    def at(self, x: int, y: int) -> tuple[int, int]:
        """Return the middle of a PE."""
        return MARGIN + PITCH * (x - self.left) + PITCH // 2, MARGIN + PITCH * (y - self.top) + PITCH // 2

    def when(self, begin: int, stop: int) -> str:
        """Return the attributes that say from which cycle to which something is so."""
        after = max(begin - self.first, 0) / PER_SECOND
        return f'begin="m.begin+{after:.2f}s" dur="{max(stop - max(begin, self.first), 0) / PER_SECOND:.2f}s"'

    def way(self, way: Way) -> str:
        """Return a wavelet on its way; the two directions of a link lie beside each other."""
        x, y = self.at(way.x, way.y)
        dx, dy = STEPS[way.direction]
        x, y = x + 4 * dy, y - 4 * dx
        length = PITCH * way.hops
        path = f"M{x} {y}h{dx * length}" if dx else f"M{x} {y}v{dy * length}"
        when = self.when(way.begin, way.begin + way.hops)
        return (
            f'<circle r="5" fill="{COLORS[way.color % len(COLORS)]}" visibility="hidden">'
            f'<animateMotion path="{path}" {when}/><set attributeName="visibility" to="visible" {when}/></circle>'
        )

    def pes(self, states: RegionStates, region: tuple[int, int, int, int]) -> Iterator[str]:
        """Yield the PEs, each with the spans in which it works or waits."""
        left, top, columns, rows = region
        for y in range(top, top + rows):
            for x in range(left, left + columns):
                mid_x, mid_y = self.at(x, y)
                place = f'x="{mid_x - PE // 2}" y="{mid_y - PE // 2}" width="{PE}" height="{PE}" rx="4"'
                yield f'<rect class="pe" {place}/>'
                for found, look in ((states.operations, "works"), (states.waits, "waits")):
                    here = found[(found["x"] == x) & (found["y"] == y)]
                    for begin, stop in merged(here):
                        if stop > self.first:
                            shown = f'<set attributeName="visibility" to="visible" {self.when(begin, stop)}/>'
                            yield f'<rect {place} class="{look}" visibility="hidden">{shown}</rect>'

    def clock(self, width: int, height: int, cycles: int) -> Iterator[str]:
        """Yield the bar that grows with the cycles, and its ends."""
        y, length = height - 18, width - 2 * MARGIN
        yield f'<rect class="bar" x="{MARGIN}" y="{y}" width="{length}" height="4" rx="2"/>'
        yield (
            f'<rect class="now" x="{MARGIN}" y="{y}" width="0" height="4" rx="2"><animate attributeName="width" '
            f'from="0" to="{length}" begin="m.begin" dur="{self.seconds:.2f}s" fill="freeze"/></rect>'
        )
        yield f'<text x="{MARGIN}" y="{y - 7}">0</text>'
        yield f'<text x="{width - MARGIN}" y="{y - 7}" text-anchor="end">{cycles} cycles</text>'


def merged(spans: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the stretches that some spans cover together; one that did not end is left out."""
    begin = stop = -1
    for span in np.sort(spans[spans["end"] < OPEN], order="begin"):
        if int(span["begin"]) > stop:
            if stop > begin:
                yield begin, stop
            begin, stop = int(span["begin"]), int(span["end"])
        stop = max(stop, int(span["end"]))
    if stop > begin:
        yield begin, stop


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a run and say how large the picture is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="run file, recorded with --trace full")
    parser.add_argument("out", type=Path, help="the SVG")
    chosen = parser.parse_args(arguments)
    with Trace.open(chosen.run) as trace:
        text = picture(trace)
    chosen.out.write_text(text, encoding="utf-8")
    print(f"{chosen.out}: {len(text) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
