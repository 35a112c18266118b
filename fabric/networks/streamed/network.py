"""What a streamed network is: fully connected layers with normalisation and activation, and a classification loss.

A layer computes ``y = activation(norm(W x + b))``; the last one gives logits, and the loss is the mean over the samples
of ``-log softmax(logits)[label]``.  A bias is the weight of an input feature that is always one: the last column of the
layer's matrix.

Source: weight streaming white paper, sections 4 and 7 (layers one after the other); requirements WS-38 to WS-46.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from wse_core.errors import ConfigError

__all__ = ["ACTIVATIONS", "Layer", "Network"]

ACTIVATIONS = ("none", "relu", "gelu")


@dataclass(frozen=True)
class Layer:
    """A fully connected layer.

    Attributes
    ----------
    inputs, outputs : int
        Features.
    activation : {"none", "relu", "gelu"}
    bias : bool
    norm : bool
        Normalise the output features of each sample, then scale and shift them, before the activation.
    """

    inputs: int
    outputs: int
    activation: str = "none"
    bias: bool = True
    norm: bool = False

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.outputs < 1:
            raise ConfigError(f"a layer from {self.inputs} to {self.outputs} features", where="network")
        if self.activation not in ACTIVATIONS:
            raise ConfigError(f"unknown activation {self.activation!r}", where="network", hint=", ".join(ACTIVATIONS))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the layer's matrix; the bias is its last column."""
        return self.outputs, self.inputs + self.bias


@dataclass(frozen=True)
class Network:
    """Layers, first to last.

    Attributes
    ----------
    layers : tuple[Layer, ...]
    dtype : {"f16", "cb16"}
        Of weights and activations; sums are f32.
    """

    layers: tuple[Layer, ...]
    dtype: str = "f16"

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("a network without layers", where="network")
        if self.dtype not in ("f16", "cb16"):
            raise ConfigError(f"a PE has no 16-bit format {self.dtype!r}", where="network", hint="f16 or cb16")
        for k, (below, above) in enumerate(pairwise(self.layers), 1):
            if below.outputs != above.inputs:
                raise ConfigError(
                    f"layer {k} gives {below.outputs} features, layer {k + 1} takes {above.inputs}", where="network"
                )
        if self.layers[-1].activation != "none" or self.layers[-1].norm:
            raise ConfigError("the last layer gives logits: no activation and no normalisation", where="network")

    @property
    def features(self) -> tuple[int, ...]:
        """Features of the inputs and of each layer's outputs."""
        return (self.layers[0].inputs, *(layer.outputs for layer in self.layers))

    @classmethod
    def dense(
        cls,
        features: Sequence[int],
        activation: str = "relu",
        dtype: str = "f16",
        bias: bool = True,
        norm: bool = False,
    ) -> Network:
        """Return a network of so many features per level; all layers but the last are activated and normalised."""
        last = len(features) - 2
        return cls(
            tuple(
                Layer(n, m, activation if k < last else "none", bias, norm and k < last)
                for k, (n, m) in enumerate(pairwise(features))
            ),
            dtype,
        )
