"""All or nothing for directories: files become visible only when the work that wrote them has succeeded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from wse_core.errors import ConfigError

__all__ = ["staged_directory"]


@contextlib.contextmanager
def staged_directory(target):
    """Give a block an empty directory whose files move to `target` at the end.

    Files of the same name are replaced, other files in `target` stay.  If the block fails, for whatever reason, nothing
    of it remains and `target` is as it was; parent directories made for it are removed again.

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
    made = []
    try:
        for parent in reversed((target, *target.parents)):
            if not parent.exists():
                parent.mkdir()
                made.append(parent)
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
        for path in sorted(stage.rglob("*")):
            place = target / path.relative_to(stage)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                os.replace(path, place)
        made.clear()
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        _remove_empty(made)


def _remove_empty(directories):
    """Remove directories that were just made, innermost first, as far as they are empty."""
    for directory in reversed(directories):
        with contextlib.suppress(OSError):
            directory.rmdir()
