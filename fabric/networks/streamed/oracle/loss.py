"""Softmax cross-entropy, and how many samples are classified right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.operations import APART
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.streamed.oracle.mesh import MeshArithmetic

__all__ = ["forward", "right"]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]
LOWEST = 0xFF800000


def forward(
    a: MeshArithmetic, tensor: NetworkTensor, logits: Halves, labels: Halves, scale: float, some: bool = False
) -> tuple[Bits, Halves]:
    """Return (losses per column as f32 bits, gradients of the logits, which lie as a tensor says).

    With `some`, tokens whose labels are all zero have neither.
    """
    below, wanted = _below(a, tensor, logits), a.widen(labels)
    hits = np.array(a.over_columns(a.mul(wanted, below), a.sub, 0, tensor))
    powers = a.functions.exp(below)
    sums = a.joined(a.over_columns(powers, a.add, 0, tensor), a.add)
    share, logs = a.functions.reciprocal(sums), a.functions.log(sums)
    if some:
        labelled = np.asarray(labels.any(0), np.float32).view(np.uint32)
        share, logs = a.mul(np.asarray(share), labelled), a.mul(np.asarray(logs), labelled)
    hits[0] = a.add(hits[0], logs)
    delta = a.sub(a.mul(share[None], powers), wanted)
    bits = np.uint32(int(np.array(scale, np.float32).view(np.uint32)) & 0xFFFF0000)  # its upper half is sent
    return a.south(hits), a.narrow(a.mul(delta, np.full_like(delta, bits)))


def right(a: MeshArithmetic, tensor: NetworkTensor, logits: Halves, labels: Halves) -> Bits:
    """Return per column how many samples no logit of which is larger than that of their label, as f32 bits."""
    far = a.times(_below(a, tensor, logits), APART)
    found = a.plus(a.larger(far, np.full_like(far, np.float32(-1).view(np.uint32))), 1.0)
    return a.south(np.array(a.over_columns(a.mul(found, a.widen(labels)), a.add, 0, tensor)))


def _below(a: MeshArithmetic, tensor: NetworkTensor, logits: Halves) -> Bits:
    """Return the logits less the largest of their sample, in f32."""
    wide = a.widen(logits)
    return a.sub(wide, a.joined(a.over_columns(wide, a.larger, LOWEST, tensor), a.larger)[None])
