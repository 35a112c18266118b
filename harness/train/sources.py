"""Files of samples and their classes are read here, whatever form they have; arrays too large for memory stay in files.

==================  ==================================================================================================
source              what it holds
==================  ==================================================================================================
``data.npz``        arrays x_train, y_train, x_test, y_test of `numpy.savez`
a directory         the same as .npy files, mapped into memory; or the four files of numbers of the form idx, plain or
                    packed by gzip: ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images...``
``data.h5``         the same as data sets of HDF5, of which only the samples of a batch are read
``data.csv``        a sample per line, numbers; the class is the column called label, class, target or y, else the last;
                    targets are those called so, perhaps with a number behind it (``y1``), else as many last ones
==================  ==================================================================================================

Samples of several axes (images) become rows; with a class per token, (samples, tokens, features) and (samples, tokens)
become a row per token; so do numbers of tokens, (samples, tokens), which are looked up; with a class per pixel, labels
have the shape (samples, rows, columns).  Targets, numbers in the place of classes, have the shape (samples, ...), or
(samples, tokens, ...); a token whose targets are not numbers (NaN) has none.  Unsigned bytes are taken as they are:
pixels of 0 to 255 train badly, and `[data] scale` divides them.

Sources: numpy, format of .npy, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html; Y. LeCun et al.,
the form idx, as the MNIST database distributes it.
"""

from __future__ import annotations

import csv
import gzip
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["ARRAYS", "NONE", "RowsOnDemand", "Samples", "Targets", "blocks", "check_labels", "marked", "read_source"]

NONE = -100
"""A token, or pixel, without a label has this one in files and batches."""

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
"""A source has these arrays."""
IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
"""The files of the MNIST database have these names; some copies write a dot for the last hyphen but one."""
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
LABELS = ("label", "class", "target", "y")
"""A column of classes may be called so."""
BLOCK = 1 << 24
"""So many numbers of an array are looked at together."""


class RowsOnDemand:
    """Samples that lie in a file and are read as float32 rows when they are asked for.

    Parameters
    ----------
    array : array_like
        Of two axes or more, with `shape` and slices: a memory map, a data set of HDF5.
    scale : float, optional
        All numbers are divided by this.

    Examples
    --------
    >>> rows = RowsOnDemand(np.arange(8, dtype=np.uint8).reshape(2, 2, 2), 2.0)
    >>> rows.shape, rows[np.array([1, 0])].tolist()
    ((2, 4), [[2.0, 2.5, 3.0, 3.5], [0.0, 0.5, 1.0, 1.5]])
    """

    def __init__(self, array: Any, scale: float = 1.0) -> None:
        self.array, self.scale = array, np.float32(scale)
        self.shape = len(array), int(np.prod(array.shape[1:]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        if isinstance(which, slice) or isinstance(self.array, np.ndarray):
            found = self.array[which]
        else:  # HDF5 reads ascending places, each once
            places, back = np.unique(which, return_inverse=True)
            found = self.array[places][back]
        with np.errstate(over="ignore"):
            rows = np.asarray(found).reshape(len(found), -1).astype(np.float32)
        return rows if self.scale == 1 else rows / self.scale


Samples: TypeAlias = np.ndarray | RowsOnDemand


def blocks(samples: Samples, together: int = 1) -> Iterator[np.ndarray]:
    """Yield all rows in pieces that fit memory, so many neighbouring rows together."""
    step = together * max(1, BLOCK // max(1, samples.shape[1] * together))
    for start in range(0, len(samples), step):
        yield samples[start : start + step]


def marked(labels: np.ndarray, where: str) -> np.ndarray:
    """Return labels with -1 for none; `ConfigError` at `where` for another number below zero."""
    found = np.where(labels == NONE, -1, labels)
    if (labels[found < 0] != NONE).any():
        wrong = int(labels[(labels < 0) & (labels != NONE)][0])
        raise ConfigError(f"{wrong} is no class, and none is {NONE}", where=where, value=wrong)
    return found


def check_labels(labels: np.ndarray, image: Sequence[int], where: str | Path, what: str = "labels") -> None:
    """Refuse labels that are not one for each sample, or for each pixel of an image of so many rows and columns.

    Raises
    ------
    ConfigError
    """
    wanted = len(labels), *image
    if labels.shape == wanted:
        return
    said = "a label for every pixel" if image else "a label for every sample"
    hint = None if image or labels.ndim != 3 else 'labels = "pixel"'
    raise ConfigError(f"{what} have shape {labels.shape}, {said} is {wanted}", where=where, hint=hint)


class Targets(NamedTuple):
    """Samples have numbers that are wanted instead of classes.

    Attributes
    ----------
    features : int
        Of a sample, or token.
    tokens : bool
        Each token has its own.
    """

    features: int
    tokens: bool = False


def read_source(
    path: Path,
    names: tuple[str, ...],
    held_out: float,
    seed: int,
    scale: float,
    sequence: int = 1,
    targets: Targets | None = None,
) -> dict[str, Any]:
    """Return the arrays of a file or directory by name: samples as `Samples`, classes as ndarrays of int64.

    Targets are ndarrays of float32, a row per sample, or token.

    Parameters
    ----------
    path : Path
    names : tuple of str
        Data sets with a name, for messages.
    held_out : float
        Share of the samples of a file that knows no test samples, chosen by `seed`.
    seed : int
    scale : float
        Samples are divided by this.
    sequence : int
        Samples that are sequences have so many tokens, or a multiple; 0: their tokens are the pixels of a row.
    targets : Targets, optional
        What samples have instead of classes.

    Raises
    ------
    ConfigError
        No such file or form, damage, arrays that are missing, no numbers, or do not fit each other.
    """
    if path.is_dir():
        given = _directory(path)
    elif path.suffix == ".npz":
        given = _guarded(path, _archive)
    elif path.suffix in (".h5", ".hdf5"):
        given = _guarded(path, _hdf5)
    elif path.suffix == ".csv":
        given = _guarded(path, lambda name: _table(name, held_out, seed, targets))
    else:
        hint = f"{suggestion(path.name, names)}, or an .npz, .h5 or .csv file, or a directory of .npy or idx files"
        raise ConfigError(f"{path.name!r} is no data set", where="data.source", value=path.name, hint=hint)
    found: dict[str, Any] = {}
    for part in ("train", "test"):
        found |= _checked(path, part, given[f"x_{part}"], given[f"y_{part}"], scale, sequence, targets)
    if found["x_train"].shape[1] != found["x_test"].shape[1]:
        raise ConfigError("x_train and x_test have different numbers of features", where=path)
    return found


def _guarded(path: Path, read: Any) -> dict[str, Any]:
    """Return what a reader of a file gives; any damage is a `ConfigError`."""
    try:
        return dict(read(path))
    except FileNotFoundError:
        raise ConfigError("no such file", where=path, hint="the path is relative to the configuration") from None
    except ConfigError:
        raise
    except Exception as error:  # zipfile, zlib, h5py and numpy have one each for every kind of damage
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"cannot be read: {text}", where=path, cause=f"not a whole {path.suffix} file") from None


def _needed(path: Path, names: Any) -> None:
    missing = [name for name in ARRAYS if name not in names]
    if missing:
        raise ConfigError(f"there is no array {missing[0]}", where=path, hint=f"needed are {', '.join(ARRAYS)}")


def _archive(path: Path) -> Mapping[str, Any]:
    with open(path, "rb") as raw:
        file = np.load(raw, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ConfigError("is one array, not an archive of several", where=path, hint="numpy.savez")
        _needed(path, file.files)
        arrays = {name: file[name] for name in ARRAYS}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ConfigError(f"{name} is no array", where=path, hint="numpy.savez")
    return arrays


def _hdf5(path: Path) -> Mapping[str, Any]:
    import h5py

    file = h5py.File(path, "r")  # stays open: samples are read from it
    _needed(path, file)
    for name in ARRAYS:
        if not isinstance(file[name], h5py.Dataset):
            raise ConfigError(f"{name} is no data set", where=path)
    return {name: file[name] if name.startswith("x") else file[name][...] for name in ARRAYS}


def _directory(path: Path) -> dict[str, Any]:
    """Return the arrays of .npy files as memory maps, or those of idx files."""
    here = {file.name for file in path.iterdir()}
    idx = {}
    for array, name in IDX.items():
        dotted = name.replace("-idx", ".idx")
        idx[array] = next((n for n in (name, f"{name}.gz", dotted, f"{dotted}.gz") if n in here), "")
    if any(idx.values()):
        _needed(path, [array for array, name in idx.items() if name])
        return {array: _guarded(path / name, _idx)["array"] for array, name in idx.items()}
    _needed(path, [name.removesuffix(".npy") for name in here if name.endswith(".npy")])

    def mapped(name: Path) -> dict[str, Any]:
        return {"array": np.load(name, mmap_mode="r", allow_pickle=False)}

    return {name: _guarded(path / f"{name}.npy", mapped)["array"] for name in ARRAYS}


def _idx(path: Path) -> dict[str, Any]:
    """Return the array of an idx file: two zero bytes, type, number of axes, sizes, then numbers, high byte first."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if data[:2] != b"\0\0" or data[2] not in IDX_TYPES:
        raise ConfigError("does not begin as an idx file", where=path)
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return {"array": np.frombuffer(data, IDX_TYPES[data[2]], offset=4 + 4 * data[3]).reshape(shape)}


def _table(path: Path, held_out: float, seed: int, targets: Targets | None) -> dict[str, Any]:
    """Return the samples of a .csv file, a share of them held out."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if not lines:
        raise ConfigError("has no lines", where=path)
    names: list[str] = []
    if not all(_is_number(cell) for cell in lines[0]):
        names, lines = [cell.strip().lower() for cell in lines[0]], lines[1:]
    table, columns = np.array([[float(cell) for cell in line] for line in lines]), len(names or lines[0])
    if targets is not None:
        called = [k for k, name in enumerate(names) if name.rstrip("_0123456789") in LABELS]
        places = called or list(range(max(0, columns - targets.features), columns))
        x, y = np.delete(table, places, axis=1), table[:, places]
    else:
        place = next((names.index(name) for name in LABELS if name in names), -1) % columns
        classes = table[:, place]
        if not np.array_equal(classes, np.round(classes)):
            hint = f'a column {LABELS[0]}, or train.loss = "mse" for targets'
            raise ConfigError(f"column {place + 1} has no whole numbers", where=path, hint=hint)
        x, y = np.delete(table, place, axis=1), classes.astype(np.int64)
    unseen = np.zeros(len(x), bool)
    unseen[np.random.default_rng(seed).permutation(len(x))[: round(held_out * len(x))]] = True
    return {"x_train": x[~unseen], "y_train": y[~unseen], "x_test": x[unseen], "y_test": y[unseen]}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _aimed(path: Path, part: str, x: Any, y: Any, targets: Targets, sequence: int) -> tuple[Any, np.ndarray]:
    """Return (samples, targets of each as a row of float32); tokens are samples if each has its own."""
    if x.dtype.kind not in "fiu" or y.dtype.kind not in "fiu":
        raise ConfigError(f"x_{part} is {x.dtype} and y_{part} is {y.dtype}", where=path, hint="numbers for both")
    if targets.tokens and y.ndim > 1 and tuple(x.shape[:2]) == y.shape[:2] and (len(x.shape) == 3 or y.ndim == 3):
        if y.shape[1] % sequence:
            what = f"x_{part} has sequences of {y.shape[1]} tokens"
            raise ConfigError(what, where="data.sequence", value=sequence, hint=str(y.shape[1]))
        rows = y.shape[0] * y.shape[1]
        x, y = np.asarray(x).reshape(rows, -1), y.reshape(rows, -1)
    if len(x.shape) < 2 or y.ndim < 1 or len(x) != len(y) or not x.size or y.size != len(y) * targets.features:
        wanted = "(samples, features) and (samples, targets)"
        raise ConfigError(
            f"x_{part} of shape {tuple(x.shape)} does not fit y_{part} of shape {y.shape} with {targets.features} "
            "targets of a sample",
            where=path,
            hint=f"{wanted}; with a target for every token (samples, tokens, features) and (samples, tokens, targets)",
        )
    with np.errstate(over="ignore"):
        return x, np.asarray(y).reshape(len(y), -1).astype(np.float32)


def _checked(
    path: Path, part: str, x: Any, y: Any, scale: float, sequence: int, targets: Targets | None
) -> dict[str, Any]:
    """Return a part of the arrays, as rows and int64; what was in memory as float32, what lies in a file there."""
    if targets is not None:
        x, aims = _aimed(path, part, x, y, targets, sequence)
        return {f"x_{part}": _rows(path, part, x, scale), f"y_{part}": aims}
    if x.dtype.kind not in "fiu" or y.dtype.kind not in "iu":
        floats = y.dtype.kind == "f" and x.dtype.kind in "fiu"
        hint = "numbers for x, whole numbers for y" + ', or train.loss = "mse" for targets' * floats
        raise ConfigError(f"x_{part} is {x.dtype} and y_{part} is {y.dtype}", where=path, hint=hint)
    if y.ndim == 2 and not sequence:
        y = y[:, None]
    if y.ndim == 2 and len(x.shape) in (2, 3) and tuple(x.shape[:2]) == y.shape:  # tokens of sequences, or numbers
        if y.shape[1] % sequence:
            what = f"x_{part} has sequences of {y.shape[1]} tokens"
            raise ConfigError(what, where="data.sequence", value=sequence, hint=str(y.shape[1]))
        x, y = np.asarray(x).reshape(y.size, -1), y.reshape(-1)
    if len(x.shape) < 2 or y.ndim not in (1, 3) or len(x) != len(y) or not x.size:
        raise ConfigError(
            f"x_{part} of shape {x.shape} does not fit y_{part} of shape {y.shape}",
            where=path,
            hint="(samples, features) and (samples,); (samples, tokens, features), or numbers of tokens as (samples, "
            "tokens), and (samples, tokens); images and (samples, rows, columns)",
        )
    return {f"x_{part}": _rows(path, part, x, scale), f"y_{part}": np.asarray(y).astype(np.int64)}


def _rows(path: Path, part: str, x: Any, scale: float) -> Samples:
    """Return samples as rows: what was in memory as float32, what lies in a file there."""
    rows = RowsOnDemand(x, scale)
    found: Samples = rows[:] if type(x) is np.ndarray else rows
    if not all(np.isfinite(block).all() for block in blocks(found)):
        raise ConfigError(f"x_{part} has numbers that are not finite", where=path)
    return found
