"""Files appear complete or not at all: they are written beside the target, flushed to disk, renamed at the end.

The target is where a symbolic link leads, so the link stays and what it names is replaced.  Devices, pipes and
sockets are refused: a rename would put a regular file in their place, which on a machine whose user is root takes
``/dev/null`` away from everybody.  What a killed process left of a file goes when the file is written again.
Directories that are missing are made, and removed again if nothing is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wse_core.errors import TraceError

__all__ = ["PendingFile", "atomic_file", "target_of"]


def target_of(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to a path replaces: the end of its symbolic links.

    Raises
    ------
    TraceError
        It is neither a regular file nor a free name.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise TraceError("cannot be written: is a directory", path=path, exit_code=2)
    if target.is_symlink() or (target.exists() and not target.is_file()):  # a link to itself stays a link
        raise TraceError(
            "cannot be written: is a device, a pipe or a socket, no file",
            path=path,
            hint="the name of a file; without --out nothing is written",
            exit_code=2,
        )
    return target


class PendingFile:
    """A `PendingFile` takes its name by `publish` and vanishes by `discard`.

    Parameters
    ----------
    path : path-like
        Its name; directories that are missing are made.

    Attributes
    ----------
    descriptor : int
        Open for writing until `discard`.

    Raises
    ------
    TraceError
        `path` cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.target = Path(path), target_of(path)
        self._made: list[Path] = []
        try:
            for parent in reversed(self.target.parents):
                if not parent.exists():
                    parent.mkdir(exist_ok=True)
                    self._made.append(parent)
            _remove_leftovers(self.target)
            self.descriptor, self.temporary = _made_and_locked(self.target)
        except OSError as error:
            self._remove_empty()
            raise TraceError(f"cannot be written: {error.strerror}", path=self.path, exit_code=2) from None

    def publish(self) -> None:
        """Flush the file to disk and give it its name."""
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(self.descriptor, 0o666 & ~mask)
        os.fsync(self.descriptor)
        os.replace(self.temporary, self.target)
        self._made.clear()
        with contextlib.suppress(OSError):  # not every file system can flush a directory
            directory = os.open(self.target.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def discard(self) -> None:
        """Close the file; unless it was published, remove it and the directories that were made for it."""
        os.close(self.descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.temporary)
        self._remove_empty()

    def _remove_empty(self) -> None:
        for directory in reversed(self._made):
            with contextlib.suppress(OSError):
                directory.rmdir()


def _made_and_locked(target: Path) -> tuple[int, str]:
    """Return descriptor and name of a new file beside `target`; the lock on it says that its process is alive."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.exists(name):
            return descriptor, name
        os.close(descriptor)  # somebody took it for a leftover before it was locked


def _remove_leftovers(target: Path) -> None:
    """Remove what killed processes left of files of this name: whose lock is free, nobody writes."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.????????.part"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Give a block a binary file that takes the name `path` when the block succeeds, and vanishes otherwise.

    Raises
    ------
    TraceError
        If the file cannot be created or written.
    """
    pending = PendingFile(path)
    try:
        with open(pending.descriptor, "wb", closefd=False) as stream:
            yield stream
        pending.publish()
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror or error}", path=path) from None
    finally:
        pending.discard()
