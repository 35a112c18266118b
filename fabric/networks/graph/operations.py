"""One row per operation of a network: what it computes, what it needs and keeps, and how it goes back.

A row is read by everything that runs, prices or checks a network: weight streaming (`fabric.networks.streamed`), the
pipelined mode (`fabric.networks.pipelined`), the oracles of both, the plain trainer, the layer model.  What a row does
not have, and no mode refuses by name, `tests/fabric/networks/test_operations.py` does not let pass.

==============  ==========================================  ==========================================  ============
operation       forward                                     backward, from dy                           kept
==============  ==========================================  ==========================================  ============
linear          y_o = r(sum_i W_oi x_i + b_o)               dx_i = r(sum_o W_oi dy_o)                   x
                                                            dW_oi = sum_t dy_o x_i, db_o = sum_t dy_o
norm            u = r((x - mean x) / sqrt(var x + eps))     e = g dy, dg = sum_t dy u, ds = sum_t dy    u, 1 / sqrt
                y = r(g u + s)                              dx = r((e - mean e - u mean(e u)) / sqrt)
activations     y = r(f(x))                                 dx = r(f'(x) dy), f' rounded                slopes
centred         norm without shift                          the same, without ds                        u, 1 / sqrt
rms             norm without mean and shift                 without the first mean                      u, 1 / sqrt
add             y = r(a + b)                                da = db = dy                                -
mul             y = r(a b)                                  da = r(b dy), db = r(a dy)                  a, b
concat          y = a, then b                               da, db = parts of dy                        -
rotary          `fabric.networks.graph.rotary`                                                          -
lookup          `fabric.networks.graph.lookup`                                                          numbers
convolution     `fabric.networks.graph.convolution`                                                     x
transposed      `fabric.networks.graph.transposed`                                                      x
shift           `fabric.networks.graph.shift`                                                           -
scale           y = r(g x)                                  dx = r(g dy), dg = sum_t dy x               x
multiple        y = r(c x)                                  dx = r(c dy)                                -
dropout         `fabric.networks.graph.dropout`                                                         -
groupnorm       `fabric.networks.graph.group_norm`                                                      u, 1 / sqrt
channelnorm     `fabric.networks.graph.channel_norm`                                                    u, 1 / sqrt
headrms         `fabric.networks.graph.group_norm`                                                      u, 1 / sqrt
batchnorm       `fabric.networks.graph.batch_norm`                                                      u
maxpool         `fabric.networks.graph.pooling`                                                         x, y
avgpool         `fabric.networks.graph.pooling`                                                         -
upsample        `fabric.networks.graph.pooling`                                                         -
resample        `fabric.networks.graph.resample`                                                        -
attention       `fabric.networks.graph.attention`                                                       logs of sums
tokenmean       `fabric.networks.graph.token_mean`                                                      -
cross_entropy   sum over tokens of -log softmax(x)[label]   dx = r((softmax(x) - onehot) scale)         exponentials
mse             sum over tokens of mean((x - target)^2)     dx = r(2 / features (x - target) scale)     -
==============  ==========================================  ==========================================  ============

r rounds to 16 bits, sums are f32; t runs over tokens, means over the features of a token.  A tensor that several
operations take has the sum of their gradients, the last of them first, rounded after each addition.

Sources: weight streaming white paper, sections 4.2 and 5.3; J. L. Ba et al., "Layer normalization", 2016.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fabric.networks.graph.nodes import NetworkStep, Node
from fabric.networks.graph.plain import EPSILON, PlainArithmetic
from fabric.networks.graph.tensors import INPUT, NetworkTensor
from wse_core.errors import ConfigError

__all__ = [
    "APART",
    "EPSILON",
    "Add",
    "CentredNorm",
    "CrossEntropy",
    "Floats",
    "Linear",
    "MeanSquares",
    "Mul",
    "NetworkLoss",
    "NetworkOperation",
    "Norm",
    "Rms",
    "Values",
    "wanted_of",
]

Floats: TypeAlias = np.ndarray
Values: TypeAlias = np.ndarray | None
"""`Values` are those of a parameter, or its gradient; None if the operation has none."""

APART = 2.0**100
"""Times this, any two 16-bit numbers that differ are more than one apart."""


class NetworkOperation:
    """A row of the table; subclasses say what differs.

    Attributes
    ----------
    name, meaning : str
    operands : int
        Tensors that it takes; if there are several, the numpy forms take and return tuples.
    differ : bool
        The tensors that it takes may differ in size; `features` is given the sum.
    passes : bool
        The gradient of the result is that of each operand.
    featurewise : bool
        Feature by feature of operands that lie alike; so does all that is done in place.
    again : bool
        On the way back it reads what it took and gave.
    retakes : bool
        On the way back it reads what it took.
    rowwise : bool
        A row of the result depends on one row of what is given, so that it can be made as soon as that is there.
    in_place : bool
        The result takes the place of what is given, if nothing else needs that.
    channelwise : bool
        A channel of the result, of attention heads that share keys and values, is made of those of the tensors that it
        takes, in the same PEs.
    headwise : bool
        What it takes and gives are heads, so many features each as `unit` says, which may lie on several columns.
    matrix : bool
        Its parameter is a matrix of weights, a row per feature of the result, or per channel.
    inner : bool
        A layout puts it into the network that a row of PEs works on; no other network has it.
    over_batch : bool
        Sums over all samples of all wafers make a round trip to the memory service, which keeps running statistics.
    training : bool
        It does nothing but in training.
    normalises : bool
        A number is added below a root, which its node may have (`fabric.networks.graph.nodes.Node.epsilon`).
    keeps : tuple of (letter, per, format)
        Arrays kept from forward to back: the letter that begins their names, a row per ``feature``, per ``unit`` of
        features, or one per ``token`` alone, ``half`` or ``f32``.
    refused : dict[str, str]
        Modes that do not have it, and why.
    """

    name: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    operands: ClassVar[int] = 1
    differ: ClassVar[bool] = False
    passes: ClassVar[bool] = False
    featurewise: ClassVar[bool] = False
    again: ClassVar[bool] = False
    retakes: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False
    in_place: ClassVar[bool] = True
    channelwise: ClassVar[bool] = False
    headwise: ClassVar[bool] = False
    matrix: ClassVar[bool] = False
    inner: ClassVar[bool] = False
    over_batch: ClassVar[bool] = False
    training: ClassVar[bool] = False
    normalises: ClassVar[bool] = False
    keeps: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    refused: ClassVar[Mapping[str, str]] = {}

    def features(self, node: Node, given: int) -> int:
        """Return the features of the result."""
        return given

    def results(self, node: Node) -> int:
        """Return the features, or channels, that a product gives."""
        return node.size("outputs")

    def takes(self, node: Node, given: int) -> tuple[int, ...]:
        """Return the features that each operand must have, given those of the first."""
        return (given,) * self.operands

    def unit(self, node: Node, given: int) -> int:
        """Return how many neighbouring features are one thing to the operation: a channel, a group, a head."""
        return 1

    def units(self, node: Node, given: int) -> tuple[int, int]:
        """Return how many neighbouring features of the first operand, and of the result, it wants in one column."""
        unit = self.unit(node, given)
        return unit, unit

    def units_of(self, node: Node, given: Sequence[int]) -> tuple[int, ...]:
        """Return how many of each operand it wants in one column: as many units of each, given their features."""
        unit, _ = self.units(node, given[0])
        return tuple(unit if self.differ else unit * features // given[0] for features in given)

    def parameter(self, node: Node, given: int) -> NetworkTensor | None:
        """Return the parameter of a node that is given so many features."""
        return None

    def reverse(
        self,
        node: Node,
        given: tuple[NetworkTensor, ...],
        y: NetworkTensor,
        parameter: NetworkTensor | None,
        wanted: bool,
    ) -> list[NetworkStep]:
        """Return the steps from the gradient of `y` to those of what is given, if wanted, and of the parameter."""
        step = NetworkStep(node, "back", (y.gradient,), tuple(x.gradient for x in given), parameter)
        if self.matrix:  # a request of its own asks for the gradients of the weights
            return [step] * wanted + [NetworkStep(node, "ask", (given[0], y.gradient), (), parameter)]
        return [step] if wanted or parameter is not None else []

    def plain(self, a: PlainArithmetic, node: Node, x: Any, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        """Return (result, what is kept) by numpy, rows of samples; `values` is the rounded parameter."""
        raise NotImplementedError

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        """Return (gradient of what was given, gradient of the parameter)."""
        raise NotImplementedError


class Linear(NetworkOperation):
    """A product with a matrix; the weights of the constant input, biases, are its last column."""

    name, meaning, in_place, matrix = "linear", "y = W x + b", False, True

    def features(self, node: Node, given: int) -> int:
        if given != node.size("inputs"):
            raise ConfigError(
                f"{node.inputs[0]} gives {given} features, {node.name} takes {node.size('inputs')}", where="network"
            )
        return node.size("outputs")

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        columns = node.size("inputs") + node.size("bias")
        return NetworkTensor(f"{node.group}.weight", node.size("outputs"), "parameter", columns)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        rows = x @ values[:, : x.shape[1]].T
        return a.round(rows + values[:, -1] if node.size("bias") else rows), x

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        whole = [delta.T @ kept, delta.sum(0)[:, None]][: 1 + node.size("bias")]
        first = node.inputs == (INPUT,)  # nobody needs the gradient of the samples
        below = delta if first else a.round(delta @ values[:, : kept.shape[1]])
        return below, np.concatenate(whole, axis=1)


class Norm(NetworkOperation):
    """Normalisation over the features of a token; its parameter has factors in row 0 and shifts in row 1."""

    name, meaning, normalises = "norm", "y = g (x - mean x) / sqrt(var x + eps) + s", True
    keeps = (("n", "feature", "half"), ("v", "token", "f32"))

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 2, "parameter", given)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        centred = x - x.mean(1, keepdims=True)
        inverse = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + a.dtype.type(node.epsilon(a.epsilon)))
        unit = a.round(centred * inverse)
        return a.round(unit * values[0] + values[1]), (unit, inverse)

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        unit, inverse = kept
        scaled = delta * values[0]
        mean, dot = scaled.mean(1, keepdims=True), (scaled * unit).mean(1, keepdims=True)
        gradient = np.stack([(delta * unit).sum(0), delta.sum(0)])
        return a.round((scaled - mean - unit * dot) * inverse), gradient


class CentredNorm(Norm):
    """A `CentredNorm` normalises over the features of a token; its parameter has factors and no shifts."""

    name, meaning = "centred", "y = g (x - mean x) / sqrt(var x + eps)"
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode normalises with a shift"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 1, "parameter", given)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        return super().plain(a, node, x, np.concatenate([values, np.zeros_like(values)]))

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        below, gradient = super().plain_back(a, node, delta, kept, values)
        assert gradient is not None
        return below, gradient[:1]


class Rms(Norm):
    """Normalisation by the root of the mean square over the features of a token; its parameter has factors alone."""

    name, meaning = "rms", "y = g x / sqrt(mean x x + eps)"
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode normalises with a mean"}

    def parameter(self, node: Node, given: int) -> NetworkTensor:
        return NetworkTensor(f"{node.group}.norm", 1, "parameter", given)

    def plain(self, a: PlainArithmetic, node: Node, x: np.ndarray, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        assert values is not None
        inverse = 1 / np.sqrt((x * x).mean(1, keepdims=True) + a.dtype.type(node.epsilon(a.epsilon)))
        unit = a.round(x * inverse)
        return a.round(unit * values[0]), (unit, inverse)

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Floats, Values]:
        assert values is not None
        (unit, inverse), scaled = kept, delta * values[0]
        dot = (scaled * unit).mean(1, keepdims=True)
        return a.round((scaled - unit * dot) * inverse), (delta * unit).sum(0)[None]


class Mul(NetworkOperation):
    """Two tensors of one size are multiplied number by number: a gate."""

    name, meaning, operands, featurewise, again, in_place = "mul", "y = a b", 2, True, True, False
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode places chains of layers"}

    def plain(self, a: PlainArithmetic, node: Node, x: Any, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return a.round(x[0] * x[1]), x

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        return (a.round(delta * kept[1]), a.round(delta * kept[0])), None


class Add(NetworkOperation):
    """Two tensors of one size are added: a residual connection ends so."""

    name, meaning, operands, featurewise, passes, in_place = "add", "y = a + b", 2, True, True, False
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode places chains of layers"}

    def plain(self, a: PlainArithmetic, node: Node, x: Any, values: np.ndarray | None) -> tuple[np.ndarray, Any]:
        return a.round(x[0] + x[1]), None

    def plain_back(
        self, a: PlainArithmetic, node: Node, delta: Floats, kept: Any, values: Values
    ) -> tuple[Any, Values]:
        return (delta, delta), None


def wanted_of(labels: np.ndarray, classes: int, smoothing: float = 0.0) -> np.ndarray:
    """Return the wanted probabilities of labels, a row per sample; zeros for a label below zero.

    Parameters
    ----------
    labels : ndarray of int, shape (samples,) or (samples, pixels)
    classes : int
    smoothing : float
        This share of a label's probability is spread over all classes alike (C. Szegedy et al., "Rethinking the
        Inception architecture for computer vision", 2016).

    Returns
    -------
    ndarray, shape (samples, classes) or (samples, classes x pixels)
    """
    found = (1 - smoothing) * np.eye(classes)[np.maximum(labels, 0)] + smoothing / classes
    found = found * (labels >= 0)[..., None]
    return np.asarray(np.moveaxis(found, -1, 1)).reshape(len(labels), -1)


class NetworkLoss(NetworkOperation):
    """A `NetworkLoss` ends a network and begins the way back.

    Attributes
    ----------
    judges : bool
        What a network gives is right or wrong: labels are classes.
    none : float
        What is wanted of a token without a label, or target, is this number in every feature.
    """

    judges: ClassVar[bool] = True
    none: ClassVar[float] = 0.0

    def wanted(self, labels: np.ndarray, classes: int, smoothing: float = 0.0) -> np.ndarray:
        """Return what the rows of labels, or targets, want of the result, a row per sample; `none` where there is none.

        Parameters
        ----------
        labels : ndarray, shape (samples, ...)
        classes : int
            Features that the network gives for a label.
        smoothing : float
            As of `wanted_of`.
        """
        raise NotImplementedError

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        """Return which labels, or targets of a sample, there are: ndarray of bool."""
        raise NotImplementedError

    def plain_loss(
        self, a: PlainArithmetic, logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0
    ) -> tuple[Any, np.ndarray]:
        """Return (sum of the losses, gradients of the result); both are zero where there is no label, or target.

        Parameters
        ----------
        a : PlainArithmetic
        logits : ndarray, shape (samples, features)
        labels : ndarray, shape (samples, ...)
        smoothing : float
        """
        raise NotImplementedError


class CrossEntropy(NetworkLoss):
    """Softmax and cross-entropy against labels, summed over the tokens that have one; it begins the way back.

    If its node has ``some`` = 1, tokens may have none: a label below zero.  If it has ``height`` and ``width``, so many
    rows and columns of pixels have a label each, and the logits of one are that pixel of all channels.
    """

    name, meaning = "cross_entropy", "-log softmax(x)[label], summed over tokens"

    def features(self, node: Node, given: int) -> int:
        pixels = self.unit(node, given)
        if pixels < 1 or given % pixels:
            raise ConfigError(f"{node.name}: {given} features are no channels of {pixels} pixels", where="network")
        return given

    def unit(self, node: Node, given: int) -> int:
        return math.prod(dict(node.sizes).get(side, 1) for side in ("height", "width"))

    def wanted(self, labels: np.ndarray, classes: int, smoothing: float = 0.0) -> np.ndarray:
        return wanted_of(labels, classes, smoothing)

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        return np.asarray(labels >= 0)

    def plain_loss(
        self, a: PlainArithmetic, logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0
    ) -> tuple[Any, np.ndarray]:
        if labels.ndim > 1:  # a pixel is a sample
            count, pixels = labels.shape
            by_pixel = logits.reshape(count, -1, pixels).swapaxes(1, 2)
            loss, delta = self.plain_loss(a, by_pixel.reshape(count * pixels, -1), labels.ravel(), smoothing)
            return loss, delta.reshape(by_pixel.shape).swapaxes(1, 2).reshape(logits.shape)
        below = logits - logits.max(1, keepdims=True)
        powers = np.exp(below)
        sums = powers.sum(1, keepdims=True)
        labelled = labels >= 0
        wanted = a.round(wanted_of(labels, logits.shape[1], smoothing))
        loss = (np.log(sums[:, 0]) - (wanted * below).sum(1))[labelled].sum(dtype=a.dtype)
        return loss, np.where(labelled[:, None], powers / sums - wanted, a.dtype.type(0))


class MeanSquares(NetworkLoss):
    """A `MeanSquares` is the mean of the squared differences to targets, one for each feature, summed over their
    tokens.

    A token whose targets are not numbers (NaN) has none.
    """

    name, meaning = "mse", "mean((x - target)^2), summed over tokens"
    judges, none = False, math.nan
    refused: ClassVar[Mapping[str, str]] = {"pipelined": "the pipelined mode ends with softmax"}

    def wanted(self, labels: np.ndarray, classes: int, smoothing: float = 0.0) -> np.ndarray:
        targets = np.asarray(labels)
        return targets.reshape(len(targets), math.prod(targets.shape[1:]))  # of no sample at all too

    def labelled(self, labels: np.ndarray) -> np.ndarray:
        missing = np.isnan(labels)  # of no label at all too
        return ~missing.any(axis=tuple(range(1, missing.ndim)))

    def plain_loss(
        self, a: PlainArithmetic, logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0
    ) -> tuple[Any, np.ndarray]:
        there = self.labelled(labels)[:, None]
        targets = a.round(np.where(there, self.wanted(labels, logits.shape[1]), 0))
        apart = np.where(there, logits - targets, a.dtype.type(0))
        mean = apart * a.dtype.type(1 / logits.shape[1])
        return (mean * apart).sum(dtype=a.dtype), mean + mean
