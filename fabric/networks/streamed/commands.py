"""Commands of the stream: what the control wavelets between the weights tell a column of PEs to do.

A command is a control wavelet with a control task id and 16 bits of data.  Pointers (`POINTERS`) are set by commands
whose data are the number of an array in the PE's table of addresses
(`fabric.networks.streamed.resident.Resident.arrays`), since programs of different columns differ in size.  What works
on a row of tokens moves its pointers to the next row, so a command is sent once per row that the column owns.

What an operation is told is declared beside its tasks (`fabric.networks.streamed.operations`).  A control wavelet
starts the task with its id, so an id means one thing in a program; ids are also the order in which a PE picks among
tasks of one priority.  They are given out per network: the commands of `HOMES` have numbers of their own, and a
command that has none takes the first one whose owner the network does not use.  If there are more commands than ids,
some without data of their own share one, and their data tell them apart (`SHARED`).

Source: weight streaming white paper, section 7.3: weights and commands share the stream.  The set of commands is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm import control
from fabric.kernels.streamed import gradient, placement
from wse_core.encoding import N_CONTROL_IDS
from wse_core.errors import UnsupportedError

__all__ = ["FORMS", "HOMES", "MOST", "MOST_SHARED", "POINTERS", "SHARED", "data_of", "given_out", "room", "word"]

POINTERS = {
    "source": "pointer: features that weights and places of the mask refer to",
    "result": "pointer: row that lands next",
    "mine": "pointer: row of output gradients that is sent next",
    "row": "pointer: row of activations",
    "aux": "pointer: row of slopes, or of normalised activations",
    "delta": "pointer: row of gradients",
    "label": "pointer: row of labels",
    "wide": "pointer: row of f32 numbers",
}
"""Where the arrays lie that the next commands work on; the data are the number of an array."""

FORMS = ("steps", "pairs", "both")
"""What data wavelets of a wafer's program carry; see `fabric.networks.streamed.operations.linear.DENSE`."""

NO_TASK = 31
"""This id is no task."""

HOMES = (
    *("begin", "pass", "land", "send", "from_west", "from_east", "ask"),
    *POINTERS,
    *("relu", "gelu", "slope"),
    *("floor", "max_row", "join_max", "join_add", "pass_max", "take", "peak"),
    *("exp_row", "share", "log", "scale", "delta_row", "loss", "right_row"),
    *("k_low", "k_high", "gamma", "sum_row", "mean", "var_row", "deviation", "recall", "norm_row", "affine"),
    *("grad_gamma", "grad_beta", "back_sum", "back_dot", "dot", "back_row"),
    *("bias", "last", "pairs", "steps"),
)
"""These commands have an id of their own, in the order of the ids."""

SHARED = (
    *("no_words", "words_end", "table"),
    *("plane_mean", "plane_variance", "plane_dot", "group_back", "blank", "plane_sum", "plane_square"),
    *("plane_gradients", "plane_back_sum", "plane_back_dot", "plane_back", "resample", "own_strip"),
    *("channel_dot", "channel_total", "pool_inner", "pool_in", "pool_max_back", "pool_mean_back", "channel_gradients"),
    *("log", "share", "floor", "peak", "recall", "deviation", "row16"),
    *("mean", "dot", "head_back", "group_norm", "batch_sums", "batch_unit", "batch_row", "join_max", "pass_max"),
    *("grad_beta", "grad_gamma", "sum_row", "var_row", "norm_row", "back_sum", "back_dot", "back_row"),
)
"""These commands may share an id, in this order: a few cycles for each, and those come first that come seldom."""

MOST_SHARED = 15
"""At most so many commands share an id: each needs one of the ids of local tasks, which colors take too."""

_FREE = tuple(number for number in range(N_CONTROL_IDS) if number != NO_TASK)
MOST = len(_FREE)
"""A network has at most so many commands."""
_HOME = dict(zip(HOMES, _FREE, strict=False))
assert all(_HOME[name] == number for name, number in {**placement.TASKS, **gradient.TASKS}.items())


def given_out(used: Iterable[str]) -> dict[str, int]:
    """Return the control task id of each command that a network uses; more of them than there are ids share one.

    Raises
    ------
    UnsupportedError
        The network uses more commands than there are ids, and too few that may share one.
    """
    names = list(dict.fromkeys(used))
    together = [name for name in SHARED if name in names][: len(names) - MOST + 1] if len(names) > MOST else []
    if len(names) > MOST and not len(names) - MOST < len(together) <= MOST_SHARED:
        raise UnsupportedError(
            f"the operations of the network take {len(names)} commands, a PE has {MOST}",
            feature="commands",
            where="network",
            hint="fewer kinds of operations, such as one kind of normalisation, or mesh.image_rows = 1",
        )
    names = [name for name in names if name not in together[1:]]
    found = {name: _HOME[name] for name in names if name in _HOME}
    left = (number for number in _FREE if number not in found.values())
    found |= {name: next(left) for name in names if name not in _HOME}
    return found | dict.fromkeys(together[1:], found[together[0]] if together else 0)


def room(used: Iterable[str]) -> int:
    """Return how many commands more there may be, all those that may share an id doing so."""
    names = set(used)
    return MOST - len(names) + max(0, len(names.intersection(SHARED)) - 1)


def data_of(ids: Mapping[str, int], name: str) -> int:
    """Return the data of a command that has none of its own: its number among those that share its id."""
    return [other for other, number in ids.items() if number == ids[name]].index(name)


def word(number: int, data: ArrayLike = 0) -> Any:
    """Return the payload of the command with an id, or of many with different data."""
    return np.uint32(control.single("nop", number)) | np.asarray(data, np.uint32)
