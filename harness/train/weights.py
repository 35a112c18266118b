"""Weights, masks and optimizer state are read and written in other programs' files: safetensors, and numpy's .npz.

One tensor per name, float32 unless it says otherwise, layers counted from 1::

    layer1.weight        (outputs, inputs)      layer1.bias          (outputs,)
    layer1.norm.weight   (outputs,)             layer1.norm.bias     (outputs,)
    layer1.norm.running_mean, layer1.norm.running_var    (outputs,): of a batch normalisation
    layer1.mask          (outputs, inputs), bool: which weights exist
    layer1.weight.m      optimizer state of a tensor: its name and that of the state (m and v, velocity)
    updates              (1,), int64: how often the weights were updated, for optimizers that count

Of a network of nodes the name of the node stands for that of the layer; what a ``shift`` adds is its bias, what a
``scale`` multiplies with its weight.  Filters of a convolution have the shape (channels of the result, channels of a
group, rows, columns), those of a transposed one (channels that are given, channels of a group of the result, rows,
columns), and so have their masks and state.

A file that is read may leave out what it does not want to say, but not a part of it: the weights of all layers or of
none, all biases or none, and so on.  Other floating-point types are rounded to float32.

Source: safetensors, https://github.com/huggingface/safetensors; names as those of PyTorch's modules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.kit.modules import need
from memx.parameter import Parameter
from memx.pattern import Pattern
from traces.atomic import atomic_file
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["check_form", "put", "read", "taken", "write"]

UPDATES = "updates"
FORMS = (".safetensors", ".npz")


def _library() -> Any:
    return need("safetensors.numpy", "a file of weights")


def views(parameters: Sequence[Parameter], rows: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return the arrays behind all names but masks and updates, as views; `rows` are the shapes of matrices' rows."""
    return {name: array for name, (_, array) in _named(parameters, rows).items()}


def _named(parameters: Sequence[Parameter], rows: Sequence[tuple[int, ...]]) -> dict[str, tuple[str, np.ndarray]]:
    """Return {name: (what it is of its layer, array)}."""
    found: dict[str, tuple[str, np.ndarray]] = {}
    for number, parameter in enumerate(parameters):
        layer = parameter.name.rpartition(".")[0]
        for slot, array in (("", parameter.dense), *((f".{slot}", array) for slot, array in parameter.state.items())):
            if parameter.name.endswith(".shift"):
                parts = {"bias": array[0]}
            elif parameter.name.endswith(".scale"):
                parts = {"weight": array[0]}
            elif number >= len(rows):
                parts = dict(zip(("norm.weight", "norm.bias"), array, strict=False))  # some have no shifts
            else:
                count = math.prod(rows[number])
                parts = {"weight": array[:, :count].reshape(len(array), *rows[number])}  # a view: one axis is cut
                if array.shape[1] > count:
                    parts["bias"] = array[:, count]
            found |= {f"{layer}.{what}{slot}": (f"{what}{slot}", part) for what, part in parts.items()}
        if parameter.statistics is not None:
            for what, part in zip(("norm.running_mean", "norm.running_var"), parameter.statistics.running, strict=True):
                found[f"{layer}.{what}"] = what, part
    return found


def taken(parameters: Sequence[Parameter], rows: Sequence[tuple[int, ...]], updates: int) -> dict[str, np.ndarray]:
    """Return everything by name, as copies; what does not exist is zero."""
    found = {name: np.array(array, order="C") for name, array in views(parameters, rows).items()}
    for row, parameter in zip(rows, parameters, strict=False):
        name = parameter.name.removesuffix(".weight")
        mask = parameter.pattern.mask()[:, : math.prod(row)]
        found[f"{name}.mask"] = np.ascontiguousarray(mask).reshape(len(mask), *row)
        for key in [key for key in found if key == parameter.name or key.startswith(f"{parameter.name}.")]:
            found[key] = np.where(found[f"{name}.mask"], found[key], np.float32(0))
    return found | {UPDATES: np.array([updates], np.int64)}


def write(path: str | Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file, whole or not at all.

    Raises
    ------
    ConfigError
        Another suffix than those of `FORMS`, a directory that cannot be written, or the library is missing.
    """
    path = Path(path)
    check_form(path)
    try:
        with atomic_file(path) as stream:
            if path.suffix == ".npz":
                np.savez(stream, allow_pickle=False, **tensors)
            else:
                stream.write(_library().save(dict(tensors)))
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=path) from None


def check_form(path: Path) -> None:
    """Refuse a file whose name does not say one of the forms, or one that needs a library that is missing."""
    if path.suffix not in FORMS:
        raise ConfigError(f"{path.suffix or path.name!r} is no form of weights", where=path, hint=" or ".join(FORMS))
    if path.suffix == ".safetensors":
        _library()


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name.

    Raises
    ------
    ConfigError
        No such file, another form, or damage.
    """
    path = Path(path)
    check_form(path)
    try:
        if path.suffix == ".npz":
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        return dict(_library().load(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", where=path) from None
    except ConfigError:
        raise
    except Exception as error:  # the libraries have one each for every kind of damage
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"cannot be read: {text}", where=path, cause=f"not a whole {path.suffix} file") from None


def put(
    tensors: Mapping[str, np.ndarray],
    parameters: Sequence[Parameter],
    rows: Sequence[tuple[int, ...]],
    where: object = "weights",
) -> int:
    """Give parameters the values, masks and state that tensors have; return the updates that were made before.

    Parameters
    ----------
    tensors : dict of str to ndarray
        By the names of this module.
    parameters : sequence of Parameter
        The matrices of all layers, then the normalisations.
    rows : sequence of tuple of int
        Shape of a row of each matrix: features that a layer takes; of filters channels, rows and columns of a window.
    where
        For messages.

    Raises
    ------
    ConfigError
        A name that the network does not have, another shape, no numbers, or a part of what belongs together; nothing
        has changed then.
    """
    held = views(parameters, rows)
    masks = {parameter.name.removesuffix("weight") + "mask": parameter for parameter in parameters[: len(rows)]}
    shapes = {name: array.shape for name, array in held.items()} | {UPDATES: (1,)}
    shapes |= {name: held[parameter.name].shape for name, parameter in masks.items()}
    for name, tensor in tensors.items():
        if name not in shapes:
            raise ConfigError(f"the network has no {name}", where=where, hint=suggestion(name, shapes))
        if tensor.shape != shapes[name]:
            raise ConfigError(f"{name} has shape {tensor.shape}", where=where, hint=f"{shapes[name]}")
        if name in masks and not np.isin(tensor, (0, 1)).all():
            raise ConfigError(f"{name} is no mask", where=where, hint="true and false, or 1 and 0")
        if name.endswith(".running_var") and (np.asarray(tensor, np.float64) < 0).any():
            raise ConfigError(f"{name} has a variance below zero", where=where)
        if name in held and not (tensor.dtype.kind in "fiu" and np.isfinite(tensor.astype(np.float32)).all()):
            raise ConfigError(f"{name} has values that are no finite numbers in float32", where=where)
    kinds = {name: kind for name, (kind, _) in _named(parameters, rows).items()} | dict.fromkeys(masks, "mask")
    for name, kind in kinds.items():
        if name not in tensors and any(other in tensors for other in kinds if kinds[other] == kind):
            raise ConfigError(f"{name} is missing", where=where, hint=f"the {kind} of every layer, or of none")
    for name, array in held.items():
        if name in tensors:
            array[...] = tensors[name]
    for name, parameter in masks.items():
        if name in tensors:
            mask = np.ones(parameter.dense.shape, bool)
            exists = tensors[name].reshape(len(mask), -1) != 0
            mask[:, : exists.shape[1]] = exists
            parameter.set_pattern(Pattern.of_mask(mask))
    for parameter in parameters:
        parameter.refresh()
    return int(tensors[UPDATES][0]) if UPDATES in tensors else 0
