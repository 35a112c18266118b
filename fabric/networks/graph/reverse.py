"""The schedule of a network is one flat list of steps: forward, loss, and back.

Steps back follow from those forward, last to first, by each operation's own `reverse`.  A step on single rows is done
as soon as a product has given each row (`NetworkStep.then`), if nothing between the two needs what is not there yet;
one such step, since it moves the pointers to the next row.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT

__all__ = ["fused", "schedule"]


def schedule(network: Network, kind: str, done: Container[str] | None = None) -> list[NetworkStep]:
    """Return the steps of an iteration, or of a test.

    Parameters
    ----------
    network : Network
    kind : {"train", "test"}
    done : container of str, optional
        Operations that the mode has; default all.

    Raises
    ------
    UnsupportedError
        The graph is no chain, or has operations that are not done: the message names them.
    """
    chain, tensors, loss = network.chain(done, "weight streaming does not do"), network.tensors, network.nodes[-1]
    steps = [
        NetworkStep(node, "forward", (tensors[node.inputs[0]],), (tensors[node.name],), parameter)
        for node, _, parameter in chain
    ]
    if kind == "test":
        return fused([*steps, NetworkStep(loss, "test", (network.logits,))])
    steps.append(NetworkStep(loss, "forward", (network.logits,), (network.logits.gradient,)))
    wanted = {INPUT: False}  # whether the gradient of a tensor is: not that of the samples
    for node, _, parameter in chain:
        wanted[node.name] = wanted[node.inputs[0]] or parameter is not None
    for node, row, parameter in reversed(chain):
        x = node.inputs[0]
        steps += row.reverse(node, tensors[x], tensors[node.name], parameter, wanted[x])
    return fused(steps)


def fused(steps: list[NetworkStep]) -> list[NetworkStep]:
    """Return the steps with those on single rows in the `then` of the product that gives the rows."""
    found: list[NetworkStep] = []
    for step in steps:
        into = _giver(found, step) if OPERATIONS[step.op].rowwise else None
        if into is None:
            found.append(step)
        else:
            found[into] = replace(found[into], then=(*found[into].then, step))
    return found


def _giver(steps: list[NetworkStep], step: NetworkStep) -> int | None:
    """Return the place of the product whose rows a step can end at once."""
    for place in range(len(steps) - 1, -1, -1):
        given = steps[place]
        if step.reads[0] in given.writes:
            return place if given.op == "linear" and not given.then else None
        if any(step.reads[0] in later.writes for later in given.then):
            return None
        if step.reads[0] in given.reads or step.writes[0] in given.reads:
            return None
    return None
