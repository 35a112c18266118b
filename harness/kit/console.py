"""The command line says results on standard output, and all else on standard error.

Results go to standard output: text, or with ``--json`` exactly one JSON object on one line.  Everything else goes to
standard error.  Progress appears only when standard error is a terminal, or when it was asked for; it uses rich if
that is installed and plain lines if not.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TextIO

import numpy as np

from wse_core.errors.values import CONTROLS

__all__ = ["Progress", "make_progress", "plain", "print_json", "printable", "table"]


def plain(value: Any) -> Any:
    """Return `value` as data that JSON can carry.

    NumPy scalars become Python numbers, arrays and tuples become lists, mappings become dicts with str keys, and
    numbers that are not finite become the strings ``nan``, ``inf`` and ``-inf``, because JSON has no word for them.

    Raises
    ------
    TypeError
        If there is no such form.
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if hasattr(value, "__fspath__"):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


CONTROL = {code: text for code, text in CONTROLS.items() if code != ord("\n")}


def printable(text: str) -> str:
    """Return a text with control characters as ``\\xNN``: what stands in a file must not steer a terminal."""
    return text.translate(CONTROL)


def print_json(value: Any) -> None:
    """Print `value` as one JSON object on one line of standard output."""
    print(json.dumps(plain(value), allow_nan=False))


def table(rows: Iterable[Sequence[Any]], indent: str = "") -> str:
    """Return `rows` of (label, text) as lines with the texts aligned."""
    rows = [(str(label), str(text)) for label, text in rows]
    width = max((len(label) for label, _ in rows), default=0)
    return printable("\n".join(f"{indent}{label:<{width}}  {text}".rstrip() for label, text in rows))


class Progress:
    """A `Progress` is silent; it is the base of the visible ones.

    A job calls `phase` when something new begins, `update` as often as it likes, and `note` for a line worth keeping.
    """

    def phase(self, text: str) -> None:
        """Announce the next part of the work."""

    def update(self, done: int, total: int | None = None, **facts: Any) -> None:
        """Report how far the current phase is.

        Parameters
        ----------
        done, total : int or float
            Amount of work; `total` may be unknown.
        **facts
            Short things to show beside it, such as ``cycles=1200``.
        """

    def note(self, text: str) -> None:
        """Show one line of text."""

    def close(self) -> None:
        """End the display; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class PlainProgress(Progress):
    """A `PlainProgress` is text: one rewritten line on a terminal, now and then a full line elsewhere."""

    def __init__(self, stream: TextIO, interactive: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.interactive = interactive
        self.clock = clock
        self.interval = 0.1 if interactive else 5.0
        self.last = -math.inf
        self.begun = clock()
        self.open_line = False

    def phase(self, text: str) -> None:
        self._end_line()
        self._write(f"==> {text}\n")
        self.begun = self.clock()
        self.last = self.begun - self.interval / 2

    def update(self, done: int, total: int | None = None, **facts: Any) -> None:
        now = self.clock()
        if now - self.last < self.interval and done != total:
            return
        self.last = now
        share = f"{100 * done / total:5.1f} %" if total else f"{done:,}"
        shown = [f"{name} {_short(value)}" for name, value in facts.items()]
        seconds = (now - self.begun) * (total - done) / done if total and done else None
        left = [_count(done, total), *([] if seconds is None else [f"{_clock(seconds)} left"])] if total else []
        line = "    " + "  ".join([share, *left, *shown])
        if self.interactive:
            self._write(f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}")
            self.open_line = True
        else:
            self._write(f"{line}\n")

    def note(self, text: str) -> None:
        self._end_line()
        self._write(f"    {text}\n")

    def close(self) -> None:
        self._end_line()

    def _end_line(self) -> None:
        if self.open_line:
            self._write("\n")
            self.open_line = False

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class RichProgress(Progress):
    """A `RichProgress` shows bars by rich: what is done, bar, share, count and time left in one line, facts in a
    second.

    Of the first line only the description gives way, so that it holds in 80 columns and fewer.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
        from rich.table import Column
        from rich.text import Text

        class TwoLines(Bars):
            def get_renderables(self) -> Iterator[Any]:
                for task in self.tasks:
                    yield self.make_tasks_table([task])
                    if task.fields["facts"]:
                        yield Text(f"    {task.fields['facts']}", no_wrap=True, overflow="ellipsis")

        columns = [
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[count]}", markup=False, table_column=Column(no_wrap=True)),
            TimeRemainingColumn(),
        ]
        self.bars = TwoLines(*columns, console=Console(file=stream), expand=True, get_time=clock)
        self.bars.start()
        self.task: Any = None

    def phase(self, text: str) -> None:
        self._finish()
        self.task = self._begun(text)

    def _begun(self, text: str) -> Any:
        return self.bars.add_task(text, total=None, facts="", count="")

    def update(self, done: int, total: int | None = None, **facts: Any) -> None:
        if self.task is None:
            self.task = self._begun("working")
        shown = "  ".join(f"{name} {_short(value)}" for name, value in facts.items())
        self.bars.update(self.task, completed=done, total=total, facts=shown, count=_count(done, total))

    def note(self, text: str) -> None:
        self.bars.console.print(f"    {text}", markup=False, highlight=False)

    def close(self) -> None:
        self._finish()
        self.bars.stop()

    def _finish(self) -> None:
        """Show the current phase as complete, whatever its length turned out to be."""
        if self.task is not None:
            done = self.bars.tasks[self.task].completed or 1
            self.bars.update(self.task, completed=done, total=done)
            self.task = None


def _count(done: int | None, total: int | None) -> str:
    """Return how much of how much."""
    return f"{_short(done)}/{_short(total)}" if total else ""


def _clock(seconds: float) -> str:
    """Return a time as h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _short(value: Any) -> str:
    """Return a fact in few characters."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def make_progress(wanted: bool | None = None, stream: TextIO | None = None) -> Progress:
    """Return the progress display that fits.

    Parameters
    ----------
    wanted : bool, optional
        True or False forces it on or off; None shows it only on a terminal.
    stream : file, optional
        Where to show it; standard error if not given.

    Returns
    -------
    Progress
    """
    stream = sys.stderr if stream is None else stream
    interactive = bool(getattr(stream, "isatty", lambda: False)())
    if wanted is False or (wanted is None and not interactive):
        return Progress()
    if interactive:
        try:
            return RichProgress(stream)
        except ImportError:
            pass
    return PlainProgress(stream, interactive)
