"""Softmax cross-entropy is computed, and how many labels are told right.

A label belongs to a sample, or to a pixel of it: then its logits are that pixel of all channels.  Rows are taken apart
into (channels, pixels, samples), with one pixel where a sample has a label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.operations import APART
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["forward", "right", "squares"]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]
LOWEST = 0xFF800000


def forward(
    a: MeshArithmetic,
    tensor: NetworkTensor,
    logits: Halves,
    labels: Halves,
    scale: float,
    some: bool = False,
    pixels: int = 1,
) -> tuple[Bits, Halves]:
    """Return (losses per column as f32 bits, gradients of the logits, which lie as a tensor says).

    With `some`, what has labels that are all zero has neither.
    """
    shape = -1, pixels, logits.shape[1]
    below, wanted = _below(a, tensor, logits.reshape(shape)), a.widen(labels).reshape(shape)
    hits = np.array(a.over_columns(a.mul(wanted, below), a.sub, 0, tensor, pixels))
    powers = a.functions.exp(below)
    sums = a.joined(a.over_columns(powers, a.add, 0, tensor, pixels), a.add)
    share, logs = a.functions.reciprocal(sums), a.functions.log(sums)
    if some:
        labelled = np.asarray(wanted.any(0), np.float32).view(np.uint32)
        share, logs = a.mul(np.asarray(share), labelled), a.mul(np.asarray(logs), labelled)
    hits[0] = a.add(hits[0], logs)
    delta = a.sub(a.mul(share[None], powers), wanted)
    bits = np.uint32(int(np.array(scale, np.float32).view(np.uint32)) & 0xFFFF0000)  # its upper half is sent
    found = a.narrow(a.mul(delta, np.full_like(delta, bits)))
    return a.south_of_planes(hits), found.reshape(logits.shape)


def right(a: MeshArithmetic, tensor: NetworkTensor, logits: Halves, labels: Halves, pixels: int = 1) -> Bits:
    """Return per column how many labels there are none of whose logits is larger than their own, as f32 bits."""
    shape = -1, pixels, logits.shape[1]
    far = a.times(_below(a, tensor, logits.reshape(shape)), APART)
    found = a.plus(a.larger(far, np.full_like(far, np.float32(-1).view(np.uint32))), 1.0)
    hits = a.mul(found, a.widen(labels).reshape(shape))
    return a.south_of_planes(np.array(a.over_columns(hits, a.add, 0, tensor, pixels)))


def squares(
    a: MeshArithmetic, tensor: NetworkTensor, given: Halves, targets: Halves, scale: float
) -> tuple[Bits, Halves]:
    """Return (mean squares per column as f32 bits, gradients of what is given), none where targets are no numbers."""
    wide = a.widen(targets)
    there = ~np.isnan(wide.view(np.float32)).any(0)
    labelled = np.asarray(there, np.float32).view(np.uint32)
    apart = a.sub(a.widen(given), np.where(there, wide, np.uint32(0)))
    apart = a.mul(apart, np.broadcast_to(labelled, apart.shape))
    mean = a.times(apart, 1 / tensor.rows)
    hits = np.array(a.over_columns(a.mul(apart, mean), a.add, 0, tensor))
    bits = np.uint32(int(np.array(scale, np.float32).view(np.uint32)) & 0xFFFF0000)  # its upper half is sent
    half = a.mul(mean, np.full_like(mean, bits))
    return a.south(hits), a.narrow(a.add(half, half))


def _below(a: MeshArithmetic, tensor: NetworkTensor, logits: Halves) -> Bits:
    """Return the logits of shape (channels, pixels, samples) less the largest of all channels, in f32."""
    wide = a.widen(logits)
    largest = a.joined(a.over_columns(wide, a.larger, LOWEST, tensor, logits.shape[1]), a.larger)
    return a.sub(wide, np.broadcast_to(largest, wide.shape))
