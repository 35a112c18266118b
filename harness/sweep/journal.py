"""A line per point that is done, kept the moment it is: what a sweep goes on from, however it was ended.

``points.jsonl``: each line is one JSON object with ``point`` (`Point.identity`), ``by`` (version and commit that
measured it), ``seconds`` (CPU time) and ``facts``.  A line is written in one piece and flushed to disk; one that a
crash or a full disk cut off is dropped by the next sweep.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Self

from harness.sweep.point import Measured, Point, origin
from traces.atomic import target_of
from wse_core.errors import ConfigError, TraceError

__all__ = ["NAME", "Journal"]

NAME = "points.jsonl"


class Journal:
    """A `Journal` keeps the points of a sweep that are done.

    Parameters
    ----------
    directory : Path
        Where the file lies, or comes to lie.
    afresh : bool
        Forget what is there.

    Attributes
    ----------
    facts : dict
        What each point gave, by its identity.

    Raises
    ------
    ConfigError
        The file is something else, or was written by another version.
    TraceError
        It cannot be written.
    """

    def __init__(self, directory: Path, afresh: bool = False) -> None:
        self.path = directory / NAME
        self.facts: dict[str, dict[str, Any]] = {}
        target_of(self.path)
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise TraceError(f"cannot be written: {error.strerror}", path=self.path, exit_code=2) from None
        try:
            if afresh:
                os.ftruncate(self._file, 0)
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def _read(self) -> None:
        """Take what is there; forget a line that was cut off."""
        whole = self.path.read_bytes()
        kept = whole.rfind(b"\n") + 1
        mine = list(origin())
        for number, line in enumerate(whole[:kept].splitlines(), 1):
            try:
                entry = json.loads(line)
                point, by, facts = entry["point"], entry["by"], dict(entry["facts"])
            except (ValueError, TypeError, KeyError):
                raise ConfigError(
                    "is no line of a sweep", where=f"{self.path}: line {number}", hint="--overwrite, which begins anew"
                ) from None
            if by != mine:
                raise ConfigError(
                    f"was measured by {_told(by)}, this is {_told(mine)}: one table would mix them",
                    where=f"{self.path}: line {number}",
                    hint="--overwrite, which begins anew, or another directory with --out",
                )
            self.facts[point] = facts
        if kept < len(whole):
            os.ftruncate(self._file, kept)

    def keep(self, point: Point, measured: Measured) -> None:
        """Write a line, all of it or nothing."""
        entry: dict[str, Any] = {
            "point": point.identity(),
            "by": origin(),
            "seconds": round(measured.seconds, 6),
            "facts": measured.facts,
        }
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        before = os.fstat(self._file).st_size
        try:
            done = os.write(self._file, line)
            if done < len(line):  # the disk is nearly full: the rest says so, or fits after all
                os.write(self._file, line[done:])
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise TraceError(f"cannot be written: {error.strerror}", path=self.path) from None
        self.facts[entry["point"]] = json.loads(line)["facts"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not os.fstat(self._file).st_size:  # nothing was done: nothing is left
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def _told(by: Any) -> str:
    """Return version and commit for people."""
    version, *commit = by if isinstance(by, list) else [by]
    return f"version {version}" + (f", commit {commit[0][:10]}" if commit and commit[0] else "")
