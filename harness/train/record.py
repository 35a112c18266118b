"""A training run leaves a log, a table and a figure.

``log.jsonl`` has one line per iteration and grows while training runs; ``loss.csv`` and ``loss.png`` are made from it
at the end.  A run that goes on from a checkpoint first drops the lines after it, so the log is always that of an
uninterrupted run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.kit.console import plain
from harness.kit.files import write_picture, write_table
from harness.kit.staging import staged_directory
from traces.atomic import atomic_file
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harness.train.loop import Step

__all__ = ["RunLog"]


KEYS = {"iteration", "loss", "scale", "skipped", "host_seconds"}
"""Every line of the log has these keys."""


class RunLog:
    """A `RunLog` keeps the rows of a run in ``log.jsonl``, one line per iteration.

    Parameters
    ----------
    directory : path-like
        Made if needed.
    iteration : int
        Iterations already done; their lines stay, all others go.

    Attributes
    ----------
    rows : list of dict
        One per iteration.
    """

    def __init__(self, directory: str | PathLike[str], iteration: int = 0) -> None:
        self.directory = Path(directory)
        self.path = self.directory / "log.jsonl"
        self.rows = self._read(iteration) if iteration else []
        try:
            with atomic_file(self.path) as stream:
                stream.write("".join(f"{json.dumps(row)}\n" for row in self.rows).encode("utf-8"))
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise ConfigError(
                f"cannot be written: {error.strerror}", where=self.directory, hint="another directory with --out"
            ) from None

    def _read(self, iteration: int) -> list[dict[str, Any]]:
        """Return the lines up to an iteration; the last one may have been cut short."""
        rows = []
        with contextlib.suppress(OSError, ValueError), open(self.path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                ours = isinstance(row, dict) and row.keys() >= KEYS
                if not ours or row["iteration"] not in range(1, iteration + 1):
                    break
                rows.append(row)
        return rows

    def add(self, step: Step, **facts: Any) -> dict[str, Any]:
        """Append what an iteration gave, without what it does not have; return it as a dict.

        Parameters
        ----------
        step : Step
        **facts
            Further things.
        """
        known = {key: value for key, value in dataclasses.asdict(step).items() if value is not None}
        row = plain(known | facts)
        self.rows.append(row)
        try:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        except OSError as error:
            raise ConfigError(
                f"cannot be written: {error.strerror}", where=self.path, hint="free space, then --resume"
            ) from None
        return row

    def close(self) -> None:
        """Close the file of the log."""
        with contextlib.suppress(OSError):  # what cannot be written was said by `add`
            self._file.close()

    def finish(self, title: str, figure: bool = True, form: str = "png") -> list[str]:
        """Write the table, and the figure if wanted in a format of `traces.picture`; return the paths of all files."""
        names = ["log.jsonl"]
        if self.rows:
            keys = list(dict.fromkeys(key for row in self.rows for key in row if not isinstance(row[key], dict)))
            try:
                with staged_directory(self.directory) as stage:
                    write_table(stage / "loss.csv", [{key: row.get(key) for key in keys} for row in self.rows])
                    if figure:
                        write_picture(stage / f"loss.{form}", lambda drawn: self._draw(drawn, title))
            except OSError as error:
                raise ConfigError(
                    f"loss.csv and loss.{form} cannot be written: {error.strerror}",
                    where=self.directory,
                    hint="free space, then --resume; training itself is done",
                ) from None
            names += ["loss.csv", f"loss.{form}"] if figure else ["loss.csv"]
        return [str(self.directory / name) for name in names]

    def _draw(self, figure: Figure, title: str) -> None:
        losses = np.array([float(row["loss"]) for row in self.rows])
        at = np.array([row["iteration"] for row in self.rows])
        left = figure.subplots()
        left.plot(at, losses, label="loss of the batch", lw=1)
        compared = [(row["iteration"], row["numpy_loss"]) for row in self.rows if row.get("numpy_loss") is not None]
        if compared:
            left.plot(*zip(*compared, strict=True), "k:", label="the same by plain numpy", lw=1.5)
        left.set(xlabel="iteration", ylabel="loss", title=title, ylim=(0, None))
        tested = [(row["iteration"], row["test_accuracy"]) for row in self.rows if row.get("test_accuracy") is not None]
        for points, label in (
            (
                [(k, row["accuracy"]) for k, row in zip(at, self.rows, strict=True) if row.get("accuracy") is not None],
                "accuracy of the batch",
            ),
            (tested, "accuracy on held-out samples"),
        ):
            if points:
                right = left.twinx() if len(figure.axes) == 1 else figure.axes[1]
                right.spines.right.set_visible(True)
                right.plot(
                    *zip(*points, strict=True), "C1." if label.startswith("accuracy of") else "C2o-", ms=3, label=label
                )
                right.set(ylabel="accuracy", ylim=(0, 1.02))
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        left.legend(lines, [str(line.get_label()) for line in lines], loc="center right")
