"""These errors are for files around a run that cannot be written or read: run files and checkpoints."""

from __future__ import annotations

import os
from typing import Any

from wse_core.errors.base import EXIT_RUN, WseError, join_place

__all__ = ["CheckpointError", "TraceError"]


class TraceError(WseError):
    """A `TraceError` is raised for a run file that cannot be written, or is damaged, foreign or too new.

    Parameters
    ----------
    what : str
        What went wrong.
    path : str or os.PathLike, optional
        The file.
    exit_code : int, optional
        2 when the file was an input; the default of 1 fits a failed write.
    **parts
        See `WseError`.
    """

    exit_code = EXIT_RUN

    path: str | None

    def __init__(
        self, what: str = "", *, path: str | os.PathLike[str] | None = None, exit_code: int | None = None, **parts: Any
    ) -> None:
        super().__init__(what, **parts, path=None if path is None else str(path))
        if exit_code is not None:
            self.exit_code = exit_code

    def place(self) -> str:
        return join_place(self.where, self.path)


class CheckpointError(WseError):
    """A checkpoint that is damaged, foreign or of another network, found before anything is touched.

    Parameters
    ----------
    what : str
        What is wrong.
    path : str or os.PathLike, optional
        The checkpoint or the file in it.
    **parts
        See `WseError`.
    """

    path: str | None

    def __init__(self, what: str = "", *, path: str | os.PathLike[str] | None = None, **parts: Any) -> None:
        super().__init__(what, **parts, path=None if path is None else str(path))

    def place(self) -> str:
        return join_place(self.where, self.path)
