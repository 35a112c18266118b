"""Checkpoints: everything that training needs to go on, written all or nothing.

A checkpoint is a directory ``iteration-N-D``, D being the first digits of the digest of its manifest:

===================  =================================================================================================
tensors.safetensors  weights, optimizer state, sparsity patterns
state.json           loss scale, position and random state of the data, counters, configuration
manifest.json        format, version, iteration, digest of the configuration, size and SHA-256 of the other files, shape
                     and type of each tensor, and the SHA-256 of the manifest itself
===================  =================================================================================================

Writing: files go into a directory ``.part-P-K`` (P: process), each is forced to the disk, then the directory is renamed
and its parent forced to the disk.  A process that is killed leaves a whole checkpoint or a ``.part`` that the next save
removes.  Nothing is ever written over: the same content has the same name, other content another.

Reading: bytes are compared with the manifest before anything is made of them, so a damaged, truncated or foreign
checkpoint is one `CheckpointError`.

Source of the tensor format: safetensors, https://github.com/huggingface/safetensors (version 0.4 and later).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from harness.kit.modules import need
from traces.provenance import package_version
from wse_core.errors import CheckpointError, ConfigError

__all__ = ["FORMAT", "VERSION", "counts", "found", "latest", "load", "remove", "save"]

FORMAT = "wse-training-checkpoint"
VERSION = 2

NAME = re.compile(r"iteration-(\d{10})-([0-9a-f]{12})")
PART = re.compile(r"\.part-(\d+)-\d+")
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_numbers = count()


def _library() -> Any:
    return need("safetensors.numpy", "a checkpoint")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False, indent=1).encode()


def save(
    directory: str | PathLike[str],
    iteration: int,
    tensors: Mapping[str, np.ndarray],
    state: Mapping[str, Any],
    config: str = "",
    keep: int | None = None,
) -> Path:
    """Write a checkpoint, all of it or nothing.

    Parameters
    ----------
    directory : path-like
        Where checkpoints are; made if needed.
    iteration : int
        Iterations done.
    tensors : dict[str, ndarray]
    state : dict
        What JSON can carry without loss.
    config : str
        Digest of the configuration; `load` can compare it.
    keep : int, optional
        How many checkpoints stay, the newest ones; default all.

    Returns
    -------
    pathlib.Path
        The checkpoint.

    Raises
    ------
    ConfigError
        The library safetensors is missing, or the directory cannot be written.
    """
    directory = Path(directory)
    files, digest = _contents(iteration, tensors, state, config)
    target = directory / f"iteration-{int(iteration):010d}-{digest[:12]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        if not (target.exists() and _whole(target)):
            _discard(target)
            _write(directory, target, files)
        _retire(directory, target, iteration, keep)
    except OSError as error:
        raise ConfigError(
            f"a checkpoint cannot be written: {error.strerror or error}",
            where=directory,
            hint="free space, or another checkpoint.directory",
        ) from error
    return target


def _contents(
    iteration: int, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any], config: str
) -> tuple[dict[str, bytes], str]:
    """Return the bytes of each file of a checkpoint, the manifest last, and the digest of the manifest."""
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    files = {TENSORS: _library().save(arrays), STATE: _json(state)}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "package": package_version(),
        "numpy": np.__version__,
        "iteration": int(iteration),
        "config": config,
        "files": {name: {"bytes": len(data), "sha256": _digest(data)} for name, data in files.items()},
        "tensors": {name: [str(value.dtype), list(value.shape)] for name, value in arrays.items()},
    }
    digest = _digest(_json(manifest))
    return {**files, MANIFEST: _json({**manifest, "sha256": digest})}, digest


def _write(directory: Path, target: Path, files: Mapping[str, bytes]) -> None:
    """Bring files to the disk beside their place, then put them there at once."""
    part = _part(directory)
    part.mkdir()
    try:
        for name, data in files.items():
            with open(part / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _force(part)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _force(directory)


def _retire(directory: Path, target: Path, iteration: int, keep: int | None) -> None:
    """Remove what the checkpoint `target` takes the place of, so that the newest `keep` stay; None: all."""
    for old in found(directory):
        if keep is not None and old != target and _number(old) == iteration:
            _discard(old)  # of the same iteration of another run
    for old in found(directory)[:-keep] if keep else ():
        if old != target:
            _discard(old)


def remove(paths: Iterable[Path]) -> None:
    """Remove checkpoints, each of them at once."""
    for path in paths:
        _discard(path)


def found(directory: str | PathLike[str]) -> list[Path]:
    """Return the checkpoints in a directory, oldest first, as list of pathlib.Path; their files are not looked at."""
    try:
        names = [path for path in Path(directory).iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
        return sorted(names, key=lambda path: (_number(path), path.stat().st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return []


def latest(directory: str | PathLike[str]) -> Path | None:
    """Return the newest whole checkpoint in a directory, or None if there is none at all.

    Raises
    ------
    CheckpointError
        There are checkpoints, and all of them are damaged.
    """
    paths, last = found(directory), None
    for path in reversed(paths):
        try:
            _read(path)
            return path
        except CheckpointError as error:
            last = last or error
    if last:
        raise last
    return None


def load(path: str | PathLike[str], config: str | None = None) -> tuple[int, dict[str, np.ndarray], dict[str, Any]]:
    """Return (iteration, tensors, state) of a checkpoint.

    Parameters
    ----------
    path : path-like
        The directory of one checkpoint.
    config : str, optional
        Digest of the configuration that it must have been made with.

    Raises
    ------
    CheckpointError
        It is missing, damaged, truncated, of another format or version, or of another configuration.
    """
    path = Path(path)
    manifest, files = _read(path)
    if config is not None and manifest["config"] != config:
        raise CheckpointError(
            "the checkpoint was made with another configuration",
            path=path,
            hint="the same file and number of wafers as in that run, or --resume without a file",
        )
    library = _library()
    try:
        tensors = library.load(files[TENSORS])
        state = json.loads(files[STATE])
    except Exception as error:  # the library has exceptions of its own
        raise CheckpointError(f"cannot be read: {error}", path=path) from None
    shapes = {name: [str(value.dtype), list(value.shape)] for name, value in tensors.items()}
    if shapes != manifest["tensors"]:
        odd = next(
            name
            for name in sorted({*shapes, *manifest["tensors"]})
            if shapes.get(name) != manifest["tensors"].get(name)
        )
        raise CheckpointError(f"tensor {odd!r} is not what the manifest says", path=path)
    return manifest["iteration"], tensors, state


def counts(state: Mapping[str, Any], names: Sequence[str]) -> list[int]:
    """Return counters of a state; `CheckpointError` if one is missing or no count."""
    values = []
    for name in names:
        value = state.get(name)
        if type(value) is not int or value < 0:
            raise CheckpointError(f"{name} is {value!r}, no count")
        values.append(value)
    return values


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return (manifest, bytes of the files) of a checkpoint whose digests are right, else raise `CheckpointError`."""
    damaged = {"cause": "damage of the disk, or a copy that was cut short", "hint": "an older checkpoint"}
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise CheckpointError("is no checkpoint of this package", path=path)
        if manifest.get("version") != VERSION:
            raise CheckpointError(f"has version {manifest.get('version')}, this package reads {VERSION}", path=path)
        own = manifest.pop("sha256", None)
        if own != _digest(_json(manifest)):
            raise CheckpointError("the manifest is damaged", path=path, **damaged)
        files = {}
        for name in (TENSORS, STATE):
            data, facts = (path / name).read_bytes(), manifest["files"][name]
            if len(data) != facts["bytes"]:
                raise CheckpointError(
                    f"{name} has {len(data):,} bytes instead of {facts['bytes']:,}", path=path, **damaged
                )
            if _digest(data) != facts["sha256"]:
                raise CheckpointError(f"{name} is damaged", path=path, **damaged)
            files[name] = data
    except OSError as error:
        raise CheckpointError(
            f"{Path(error.filename or path).name} cannot be read: {error.strerror}",
            path=path,
            hint="the directory of a checkpoint, iteration-...",
        ) from None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError("the manifest is damaged", path=path, **damaged) from None
    return manifest, files


def _whole(path: Path) -> bool:
    try:
        _read(path)
    except CheckpointError:
        return False
    return True


def _number(path: Path) -> int:
    return int(path.name.split("-")[1])


def _part(directory: Path) -> Path:
    """Return a name for a directory that nobody takes for a checkpoint."""
    return directory / f".part-{os.getpid()}-{next(_numbers)}"


def _force(directory: Path) -> None:
    """Force the entries of a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(path: Path) -> None:
    """Remove a checkpoint so that no part of it is ever taken for one."""
    if path.exists():
        part = _part(path.parent)
        path.rename(part)
        shutil.rmtree(part, ignore_errors=True)


def _sweep(directory: Path) -> None:
    """Remove what killed processes left."""
    for path in directory.iterdir():
        match = PART.fullmatch(path.name)
        if match and not _alive(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    """Whether a process other than this one exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()
