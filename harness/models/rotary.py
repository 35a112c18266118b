"""Angles of rotary positions: f64 on the host; whoever turns rounds cosines and sines once."""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder

__all__ = ["angles"]

Array = np.ndarray[Any, np.dtype[Any]]


def angles(decoder: Decoder, positions: Array) -> Array:
    """Return the angle of each position and pair, (positions, head_size / 2), f64 radians.

    Pair i of a head is its features i and i + head_size / 2 (half layout, as in the hub's files).
    """
    return np.multiply.outer(positions.astype(np.float64), decoder.turns())
