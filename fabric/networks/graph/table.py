"""One table has all operations that networks may have."""

from __future__ import annotations

from fabric.networks.graph.activations import ACTIVATIONS, Activation
from fabric.networks.graph.attention import SelfAttention
from fabric.networks.graph.batch_norm import BatchNorm
from fabric.networks.graph.channel_norm import ChannelNorm
from fabric.networks.graph.concat import Concat
from fabric.networks.graph.convolution import ImageConvolution
from fabric.networks.graph.dropout import Dropout
from fabric.networks.graph.gather import GatherStrips
from fabric.networks.graph.group_norm import GroupNorm, HeadRms
from fabric.networks.graph.lookup import Lookup
from fabric.networks.graph.operations import (
    Add,
    CentredNorm,
    CrossEntropy,
    Linear,
    MeanSquares,
    Mul,
    NetworkLoss,
    NetworkOperation,
    Norm,
    Rms,
)
from fabric.networks.graph.pooling import AveragePool, MaxPool, Upsample
from fabric.networks.graph.resample import Resample
from fabric.networks.graph.rotary import RotaryEmbedding
from fabric.networks.graph.scale import ChannelScale, Multiple
from fabric.networks.graph.shift import ChannelShift
from fabric.networks.graph.token_mean import TokenMean
from fabric.networks.graph.transposed import TransposedConvolution
from wse_core.errors import ConfigError

__all__ = ["CHOICES", "LOSSES", "OPERATIONS", "activation"]

OPERATIONS: dict[str, NetworkOperation] = {
    row.name: row
    for row in (
        Linear(),
        Lookup(),
        Norm(),
        CentredNorm(),
        Rms(),
        *ACTIVATIONS.values(),
        Add(),
        Mul(),
        Concat(),
        RotaryEmbedding(),
        SelfAttention(),
        TokenMean(),
        ImageConvolution(),
        TransposedConvolution(),
        ChannelShift(),
        ChannelScale(),
        Multiple(),
        Dropout(),
        GroupNorm(),
        ChannelNorm(),
        HeadRms(),
        BatchNorm(),
        MaxPool(),
        AveragePool(),
        Upsample(),
        Resample(),
        GatherStrips(),
        CrossEntropy(),
        MeanSquares(),
    )
}
"""Each operation has its row, by name."""

LOSSES = tuple(name for name, row in OPERATIONS.items() if isinstance(row, NetworkLoss))
"""A network has one of these as its end."""

CHOICES = ("none", *ACTIVATIONS)
"""A product may be followed by these: names of activations, or nothing."""


def activation(name: str) -> Activation | None:
    """Return the row of an activation, None for ``none``; `ConfigError` for a name that there is not."""
    if name not in CHOICES:
        raise ConfigError(f"unknown activation {name!r}", where="network", hint=", ".join(CHOICES))
    return ACTIVATIONS.get(name)
