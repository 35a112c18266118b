"""One table has all operations that weight streaming does."""

from __future__ import annotations

from collections.abc import Iterable

from fabric.networks.graph.attention import biases_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.reverse import schedule
from fabric.networks.streamed.commands import POINTERS, given_out
from fabric.networks.streamed.operations.attention import ATTENTION
from fabric.networks.streamed.operations.biases import COMMANDS as BIASES
from fabric.networks.streamed.operations.channels import BATCH_NORM, CHANNEL_NORM, GROUP_NORM, MULTIPLE, SCALE, SHIFT
from fabric.networks.streamed.operations.code import EPSILON, JOINS
from fabric.networks.streamed.operations.convolution import CONVOLUTION
from fabric.networks.streamed.operations.dropout import DROPOUT
from fabric.networks.streamed.operations.elementwise import ADD, CONCAT, MUL
from fabric.networks.streamed.operations.linear import LINEAR
from fabric.networks.streamed.operations.lookup import LOOKUP
from fabric.networks.streamed.operations.loss import LOSS, MEAN_SQUARES
from fabric.networks.streamed.operations.lowering import Lowering
from fabric.networks.streamed.operations.norm import HEAD_RMS, NORM
from fabric.networks.streamed.operations.pooling import AVERAGE_POOL, MAX_POOL, UPSAMPLE, bordered
from fabric.networks.streamed.operations.resample import RESAMPLE
from fabric.networks.streamed.operations.rotary import ROTARY
from fabric.networks.streamed.operations.rows import ROWS
from fabric.networks.streamed.operations.shapes import SHAPE, shapes_of
from fabric.networks.streamed.operations.strips import GATHER, strip_commands
from fabric.networks.streamed.operations.token_mean import TOKEN_MEAN

__all__ = ["STREAMED", "after", "ids_of", "present"]

STREAMED: dict[str, Lowering] = {
    "linear": LINEAR,
    "lookup": LOOKUP,
    **ROWS,
    "add": ADD,
    "mul": MUL,
    "concat": CONCAT,
    "rotary": ROTARY,
    "attention": ATTENTION,
    "tokenmean": TOKEN_MEAN,
    "convolution": CONVOLUTION,
    "transposed": CONVOLUTION,
    "shift": SHIFT,
    "scale": SCALE,
    "multiple": MULTIPLE,
    "dropout": DROPOUT,
    "groupnorm": GROUP_NORM,
    "channelnorm": CHANNEL_NORM,
    "batchnorm": BATCH_NORM,
    "maxpool": MAX_POOL,
    "avgpool": AVERAGE_POOL,
    "upsample": UPSAMPLE,
    "resample": RESAMPLE,
    "gather": GATHER,
    "cross_entropy": LOSS,
    "mse": MEAN_SQUARES,
    "norm": NORM,
    "centred": NORM,
    "rms": NORM,
    "headrms": HEAD_RMS,
}
"""Operations stand here by the names of `fabric.networks.graph.table.OPERATIONS`, in the order of programs' tasks."""


def after(step: NetworkStep) -> list[str]:
    """Return the commands that follow a row of a product where it lands."""
    return [STREAMED[later.op].after[later.direction] for later in step.then]


def present(network: Network) -> set[str]:
    """Return the operations that a network's schedule has."""
    steps = schedule(network, "train", STREAMED)
    return {part.op for step in steps for part in (step, *step.then)} | {node.op for node in network.nodes}


def ids_of(network: Network, more: Iterable[str] = ()) -> dict[str, int]:
    """Return the control task id of each command of a network's operations, and of some more."""
    there = present(network)
    used = [*POINTERS, *JOINS]
    for name, lowering in STREAMED.items():
        used += lowering.commands if name in there else ()
    shapes = SHAPE if shapes_of(network) else ()  # a loss per pixel has one too
    several = EPSILON if len(network.epsilons) > 1 else ()
    biased = BIASES if any(node.op == "attention" and biases_of(node) for node in network.nodes) else ()
    return given_out([*used, *biased, *bordered(network), *shapes, *several, *strip_commands(network), *more])
