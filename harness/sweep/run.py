"""A sweep in its directory: what is left of it is measured, then table and figure are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.kit.console import Progress
from harness.kit.files import write_picture
from harness.kit.staging import alone, staged_directory
from harness.sweep.cluster import on_cluster
from harness.sweep.description import FigureOptions, Sweep
from harness.sweep.journal import NAME, Journal
from harness.sweep.picture import axis_of_x, draw, drawn_column
from harness.sweep.point import Measured, Point
from harness.sweep.table import ERROR, rows_of, write_tables
from harness.sweep.workers import side_by_side

__all__ = ["SweepOutcome", "run"]


@dataclass(frozen=True)
class SweepOutcome:
    """An outcome is what a sweep left behind.

    Attributes
    ----------
    rows : list of dict
        The table.
    files : list of str
    earlier : int
        Points that were there already.
    """

    rows: list[dict[str, Any]]
    files: list[str]
    earlier: int

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of these points have failed."""
        return [row for row in self.rows if row[ERROR] is not None]

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """The results of these rows are known to be wrong."""
        return [row for row in self.rows if row.get("verified") is False]


def run(
    sweep: Sweep,
    out: str | Path,
    processes: int = 1,
    scheduler: str | None = None,
    overwrite: bool = False,
    figure: FigureOptions | None = None,
    progress: Progress | None = None,
    form: str = "png",
) -> SweepOutcome:
    """Measure the points of a sweep that are not there yet, and write table and figure.

    Parameters
    ----------
    sweep : Sweep
    out : path-like
        Directory; what an earlier sweep left in it is gone on from.
    processes : int
        Points side by side on this host.
    scheduler : str, optional
        Address of a scheduler of Dask, which takes the points instead.
    overwrite : bool
        Forget what is there.
    figure : FigureOptions, optional
        Instead of what the file says.
    progress : Progress, optional
    form : str
        Of the figure, one of `traces.picture.FORMATS`.

    Raises
    ------
    ConfigError, TraceError
        The directory is taken, was left by another version, or cannot be written; nothing answers at `scheduler`; or
        the figure is of a column that there is not.
    """
    progress, out = progress or Progress(), Path(out)
    shown = sweep.figure if figure is None else figure
    with alone(out), Journal(out, overwrite) as journal:
        left = list({point.identity(): point for _, point in sweep.points}.values())
        left = [point for point in left if point.identity() not in journal.facts]
        earlier = len(sweep.points) - len(left)
        there = f", {earlier:,} are there already" if earlier else ""
        progress.phase(f"{len(left):,} of {len(sweep.points):,} points{there}")
        passing = {}
        for done, (point, measured) in enumerate(_measured(left, processes, scheduler), 1):
            if measured.final:
                journal.keep(point, measured)
            else:
                passing[point.identity()] = measured.facts
            failed = sum(ERROR in facts for facts in (*journal.facts.values(), *passing.values()))
            progress.update(done, len(left), **({"failed": failed} if failed else {}))
        found = journal.facts | passing
        rows = rows_of([(at, found[point.identity()]) for at, point in sweep.points])
        with staged_directory(out) as stage:
            write_tables(stage, rows)
            tables = sorted(path.name for path in stage.iterdir())
        pictures = _picture(out, rows, sweep, shown, form)
    return SweepOutcome(rows, [str(out / name) for name in (NAME, *tables, *pictures)], earlier)


def _measured(points: Sequence[Point], processes: int, scheduler: str | None) -> Iterator[tuple[Point, Measured]]:
    """Yield points and what they gave, as they end."""
    if not points:
        return
    found = side_by_side(points, processes) if scheduler is None else on_cluster(points, scheduler)
    for number, measured in found:
        yield points[number], measured


def _picture(out: Path, rows: list[dict[str, Any]], sweep: Sweep, shown: FigureOptions, form: str) -> list[str]:
    """Write the figure; there is none if every point failed."""
    name = f"figure.{form}"
    if all(row[ERROR] is not None for row in rows):
        return []
    x, y = axis_of_x(sweep.axes, shown.x), drawn_column(rows, shown.y)
    with staged_directory(out) as stage:
        write_picture(stage / name, lambda figure: draw(figure, rows, sweep.axes, x, y, shown.scale))
    return [name]
