"""Commands of the stream: what the control wavelets between the weights tell a column of PEs to do.

A command is a control wavelet with a control task id and 16 bits of data.  ``source``, ``result``, ``mine``, ``row``,
``aux``, ``delta``, ``label`` and ``wide`` set a pointer: their data are the number of an array in the PE's table of
addresses (`fabric.networks.streamed.resident.Resident.arrays`), since programs of different columns differ in size.
What works on a row of tokens moves its pointers to the next row, so a command is sent once per row that the column
owns.

Each phase of an iteration has its own table of commands.  Their ids are one space all the same, 52 of the 63 there are:
a control wavelet starts the task with its id, so an id could mean two things only if something were done between the
phases (a task that reads a mode and branches, or another table of tasks), which costs cycles per command, and the ids
are also the order in which a PE picks among tasks of one priority.  A program leaves out the tasks of phases that its
network does not have (`fabric.networks.streamed.rows.RowTasks`); 11 ids are left.

Source: weight streaming white paper, section 7.3: weights and commands share the stream.  The set of commands is ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fabric.asm import control
from fabric.kernels.streamed import gradient, placement

__all__ = [
    "ACTIVATIONS",
    "DENSE",
    "FORMS",
    "IDS",
    "LOSS",
    "MEANING",
    "NORMALISATION",
    "PHASES",
    "POINTERS",
    "PRODUCTS",
    "word",
]

PRODUCTS = {
    "begin": "send the partial sums round the ring of columns",
    "pass": "add the own partial sums to those that arrive and send them on",
    "land": "add the own partial sums, round, keep the row",
    "send": "a row of the mask: send the own row of output gradients to all columns, then answer data places (DENSE)",
    "from_west": "a row of the mask: take the row of output gradients from the west, then the same",
    "from_east": "the same from the east",
    "ask": "a place of the mask, data = step to the feature: send its gradient south",
}
"""Streamed products and gradients: what follows a row of weights or of a mask."""
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
ACTIVATIONS = {
    "relu": "row: keep what is positive; aux row: its slope, one or zero",
    "gelu": "row: x times the normal distribution (tanh form); aux row: its slope",
    "slope": "delta row: times the aux row",
}
"""Activations and their slopes, a row of tokens each."""
LOSS = {
    "floor": "sums: minus infinity",
    "max_row": "sums: maximum with a row",
    "join_max": "sums: maximum with what arrives round the ring",
    "join_add": "sums: plus what arrives round the ring",
    "onward": "send the sums round the ring, and keep them",
    "take": "sums: what arrives round the ring",
    "peak": "keep the sums as the largest logits; sums: zero",
    "exp_row": "wide row: exp(row - peak), added to the sums; hits: minus label times (row - peak)",
    "share": "keep 1 / sums",
    "log": "hits: plus log(sums)",
    "scale": "data = upper half of the f32 loss scale",
    "delta_row": "delta row: (wide row times share, minus label) times loss scale",
    "loss": "send the sum of the hits south; hits and sums: zero",
    "right_row": "hits: plus label, where the row is the largest logit",
}
"""Softmax cross-entropy, and how many samples are classified right; sums over all columns go round their ring, as those
of the normalisation do."""
NORMALISATION = {
    "k_low": "data = lower half of an f32 constant, 1 / features",
    "k_high": "data = its upper half",
    "gamma": "data = factor of the next feature",
    "sum_row": "sums: plus a row",
    "mean": "keep sums times constant as the mean; sums: zero",
    "var_row": "sums: plus the square of (row - mean)",
    "deviation": "keep 1 / sqrt(sums times constant + epsilon), also as wide row; sums: zero",
    "recall": "deviation: what the wide row keeps",
    "norm_row": "aux row: (row - mean) / deviation",
    "affine": "row: aux row times factor plus data",
    "grad_gamma": "send the sum of delta row times aux row south",
    "grad_beta": "send the sum of the delta row south",
    "back_sum": "sums: plus delta row times factor",
    "back_dot": "sums: plus delta row times factor times aux row",
    "dot": "keep sums times constant as the mean product; sums: zero",
    "back_row": "delta row: (delta row times factor - mean - aux row times mean product) / deviation, the wide row",
}
"""Normalisation over the features of a sample, forward and backward."""

DENSE = {
    "bias": "sums: plus data, the weight of the constant input",
    "last": "sums: plus data times the present feature: the last weight of a row with an odd number of them",
    "pairs": "a data wavelet carries the weights of the next two features",
    "steps": "a data wavelet carries a weight and the step to its feature",
}
"""Rows without gaps: what follows from their order is not sent.  Only programs for dense matrices have these tasks; in
them a command that begins a row of the mask asks for all gradients of the row too, if its data say how many."""
FORMS = ("steps", "pairs", "both")
"""What data wavelets of a wafer's program carry; see `DENSE`."""

PHASES = (PRODUCTS, POINTERS, ACTIVATIONS, LOSS, NORMALISATION, DENSE)
MEANING = {name: meaning for phase in PHASES for name, meaning in phase.items()}
"""What each command does."""

_FIXED = {**placement.TASKS, **gradient.TASKS}
IDS = {name: (number if number < 31 else number + 1) for number, name in enumerate(MEANING)}
"""Control task id of each command; 31 is no task."""
assert all(IDS[name] == number for name, number in _FIXED.items())


def word(name: str, data: ArrayLike = 0) -> Any:
    """Return the payload of a command, or of many with different data."""
    return np.uint32(control.single("nop", IDS[name])) | np.asarray(data, np.uint32)
