"""Rotary positions on the host, in f64; whoever turns by them rounds cosines and sines once."""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder

__all__ = ["cosines"]

Array = np.ndarray[Any, np.dtype[Any]]


def cosines(decoder: Decoder, positions: Array, local: bool = False) -> tuple[Array, Array]:
    """Return cosine and sine of the angle of each position and pair, (positions, head_size / 2) each, f64.

    `local`: of layers whose positions are local.  Pair i of a head is its features i and i + head_size / 2 (half
    layout, as in the hub's files).
    """
    turn = np.multiply.outer(positions.astype(np.float64), decoder.turns(local))
    lengths = decoder.amplitudes(local)
    return lengths * np.cos(turn), lengths * np.sin(turn)
