"""All or nothing for directories: files become visible only when the work that wrote them has succeeded."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from traces.atomic import atomic_file, target_of
from wse_core.errors import ConfigError

__all__ = ["alone", "staged_directory"]


@contextlib.contextmanager
def alone(target: str | os.PathLike[str], instead: str = "another directory with --out") -> Iterator[None]:
    """Keep other processes that ask for the same out of a directory while a block runs.

    The lock ends with the process, however that ends, and leaves no file.  A file system without locks gives none.

    Parameters
    ----------
    target : path-like
        Made if needed; removed again if the block leaves it empty.
    instead : str
        What to try if it is taken.

    Raises
    ------
    ConfigError
        Another process works there, or the directory cannot be made.
    """
    target, made = Path(target), list[Path]()
    try:
        _make(target, made)
        handle = os.open(target, os.O_RDONLY)
    except OSError as error:
        _remove_empty(made)
        raise ConfigError(f"cannot be written: {error.strerror}", where=target, hint=instead) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another process works in this directory", where=target, hint=f"wait for it, or {instead}"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(handle)
        _remove_empty(made)


def _make(target: Path, made: list[Path]) -> None:
    """Make a directory and its parents; append those that were missing to `made`, also if one cannot be made."""
    for parent in reversed((target, *target.parents)):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            made.append(parent)


@contextlib.contextmanager
def staged_directory(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a block an empty directory whose files move to `target` at the end.

    Files of the same name are replaced, also where a symbolic link leads to them; devices are refused; other files in
    `target` stay.  If the block fails, for whatever reason, nothing of it remains and `target` is as it was; parent
    directories made for it are removed again.

    Parameters
    ----------
    target : path-like
        Directory for the files; created if needed.

    Yields
    ------
    pathlib.Path
        The empty directory, on the same file system as `target`.

    Raises
    ------
    ConfigError
        If `target` is not a directory or cannot be written.
    """
    target = Path(target)
    made: list[Path] = []
    try:
        _make(target, made)
        stage = Path(tempfile.mkdtemp(prefix=".wse-", suffix=".part", dir=target))
    except (FileExistsError, NotADirectoryError):
        _remove_empty(made)
        raise ConfigError("is in the way: not a directory", where=target, path=str(target)) from None
    except OSError as error:
        _remove_empty(made)
        raise ConfigError(
            f"cannot be written: {error.strerror}", where=target, hint="another directory with --out", path=str(target)
        ) from None
    try:
        yield stage
        found = [(path, target / path.relative_to(stage)) for path in sorted(stage.rglob("*"))]
        for path, place in found:
            if path.is_file():
                target_of(place)  # all can be written, or none is
        for path, place in found:
            if path.is_dir():
                place.mkdir(exist_ok=True)
            elif place.is_symlink():  # what it leads to may lie on another file system
                with open(path, "rb") as source, atomic_file(place) as stream:
                    shutil.copyfileobj(source, stream)
            else:
                os.replace(path, place)
        made.clear()
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        _remove_empty(made)


def _remove_empty(directories: list[Path]) -> None:
    """Remove directories that were just made, innermost first, as far as they are empty."""
    for directory in reversed(directories):
        with contextlib.suppress(OSError):
            directory.rmdir()
