"""The schedule of a network is one flat list of steps: forward, loss, and back.

Steps back follow from those forward, last to first, by each operation's own `reverse`.  A tensor that several
operations take gets its gradient from the last of them; those of the others are added, one after the other.  What works
in place on a tensor that something else needs too works on a copy.  A step on single rows is done as soon as a product
has given each row (`NetworkStep.then`), if nothing between the two needs what is not there yet; one such step, since it
moves the pointers to the next row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import replace

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import NetworkStep, Node
from fabric.networks.graph.operations import Add
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT, NetworkTensor

__all__ = ["fused", "schedule"]

ADD = Add.name


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
        The graph has operations that are not done, or results that nothing takes: the message names them.
    """
    operations = network.operations(done, "weight streaming does not do")
    tensors, loss, steps = network.tensors, network.nodes[-1], list[NetworkStep]()
    for node, row, parameter in operations:
        given, y = tuple(tensors[name] for name in node.inputs), tensors[node.name]
        if row.in_place and not network.in_place(node):
            steps.append(NetworkStep(replace(node, op=ADD), "copy", given, (y,)))
            given = (y,)
        if kind == "test" and row.training:
            continue
        direction = "known" if kind == "test" and row.over_batch else "forward"
        steps.append(NetworkStep(node, direction, given, (y,), parameter))
    if kind == "test":
        return fused([*steps, NetworkStep(loss, "test", (network.logits,))])
    steps.append(NetworkStep(loss, "forward", (network.logits,), (network.logits.gradient,)))
    wanted = {INPUT: False}  # whether the gradient of a tensor is: not that of the samples
    for node, _, parameter in operations:
        wanted[node.name] = parameter is not None or any(wanted[name] for name in node.inputs)
    back, again = _Gradients(network, steps), _again(network, steps)
    for node, row, parameter in reversed(operations):
        steps += again.get(node.name, ())
        given = tuple(tensors[name] for name in node.inputs if wanted[name])
        y = tensors[node.name]
        if row.passes:
            back.give(node, y.gradient, given)
            continue
        every = tuple(tensors[name] for name in node.inputs)
        for step in row.reverse(node, every, y, parameter, bool(given)):
            if row.in_place and not network.in_place(node):
                steps.append(replace(step, writes=(y.gradient,)))
                back.give(node, y.gradient, given)
            else:
                back.add(step)
    return fused(steps)


def _again(network: Network, steps: list[NetworkStep]) -> dict[str, list[NetworkStep]]:
    """Return the steps of the forward pass that come again before the way back through the last node of a segment.

    They are those whose results, or what they keep, the way back through the segment needs.
    """
    found = {}
    for nodes in network.segments:
        names, needed = {node.name for node in nodes}, set[str]()
        for node in nodes:
            row, tensors = OPERATIONS[node.op], network.tensors
            given = tuple(tensors[name] for name in node.inputs)
            parameter = network.parameter(node)
            for step in () if row.passes else row.reverse(node, given, tensors[node.name], parameter, True):
                needed |= {tensor.name for tensor in step.reads if tensor.kind == "activation"}
            needed |= {*node.inputs, node.name} if row.again else set()
            needed |= set(node.inputs) if row.retakes else set()
        for node in reversed(nodes):
            needed |= set(node.inputs) if node.name in needed or OPERATIONS[node.op].keeps else set()
            needed |= {node.name} if OPERATIONS[node.op].keeps else set()
        found[nodes[-1].name] = [replace(step, again=True) for step in steps if step.writes[0].name in needed & names]
    return found


class _Gradients:
    """Steps that give gradients are appended to `steps`: the first gradient of a tensor is written, others added."""

    def __init__(self, network: Network, steps: list[NetworkStep]) -> None:
        self.steps, self.parts = steps, Counter({network.logits.name: 1})

    def give(self, node: Node, delta: NetworkTensor, given: tuple[NetworkTensor, ...]) -> None:
        """Append what makes a gradient a part of those of some tensors."""
        for x in given:
            again = self.parts[x.name] > 0
            reads = (x.gradient, delta) if again else (delta,)
            self.steps.append(NetworkStep(replace(node, op=ADD), "sum" if again else "copy", reads, (x.gradient,)))
            self.parts[x.name] += 1

    def add(self, step: NetworkStep) -> None:
        """Append a step; what it writes is added to what is there."""
        writes = []
        for x in step.writes:
            writes.append(replace(x, part=self.parts[x.name]))
            self.parts[x.name] += 1
        self.steps.append(replace(step, writes=tuple(writes)))
        for x in writes:
            if x.part:
                whole = replace(x, part=0)
                self.steps.append(NetworkStep(replace(step.node, op=ADD), "sum", (whole, x), (whole,)))


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
