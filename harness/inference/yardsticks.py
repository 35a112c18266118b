"""Answers are compared with an oracle, bit by bit, and with plain numpy, whose distance is held against its bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.edge import Came
from fabric.networks.inference.placement import DecoderPlacement
from harness.models.bound import bounded_logits
from harness.models.plain import PlainDecoder
from wse_core.formats import Bits

__all__ = ["Agreement", "Yardstick"]

LARGE = 50_000_000
"""Parameters from which the plain decoder that answers are compared with is one of float32: float64 takes memory."""


@dataclass(kw_only=True)
class Agreement:
    """An `Agreement` says how answers agree with numpy; all None if nothing was compared.

    Attributes
    ----------
    bit_exact : bool or None
        Whether all steps gave the oracle's bits.
    max_abs_error : float or None
        Largest difference of a logit from plain numpy in float64.
    error_bound, error_share : float or None
        How large it should be at most (`harness.models.bound`), and the largest part of its own bound that a logit
        takes; None for large models too.
    steps, steps_compared: int
        Of one answer: how often the PEs gave a next token, or took one of the prompt, since something is compared; and
        how many of these steps were compared.  A prompt that is read at once is one step.
    """

    bit_exact: bool | None = None
    max_abs_error: float | None = None
    error_bound: float | None = None
    error_share: float | None = None
    steps: int = 0
    steps_compared: int = 0


class Yardstick:
    """A `Yardstick` is plain numpy beside the tokens of one request.

    Parameters
    ----------
    place : DecoderPlacement
        Of the whole decoder, on the mesh that decodes.
    weights : mapping
        Tensors by the hub's names, as the PEs have them.
    agreement : Agreement
        Where it is noted how all agree.
    """

    def __init__(self, place: DecoderPlacement, weights: Mapping[str, NDArray[Any]], agreement: Agreement) -> None:
        self.place, self.weights, self.agreement = place, weights, agreement

    @cached_property
    def plain(self) -> PlainDecoder:
        """The plain decoder is made when the first token is compared."""
        decoder = self.place.decoder
        return PlainDecoder(decoder, self.weights, np.float64 if decoder.parameters < LARGE else np.float32)

    def follow(self, tokens: Sequence[int]) -> None:
        """Take tokens of which no logits come."""
        self.plain.forward(tokens)

    def compare(self, wanted: tuple[int, Bits], tokens: Sequence[int], came: Came) -> None:
        """Take tokens; note how what came agrees with what the oracle wants (next token, logits) and plain numpy."""
        likeliest, bits = wanted
        found, same = self.agreement, likeliest == came.token and np.array_equal(bits, came.logits)
        error = np.abs(came.logits.view(np.float32) - self.plain.forward(tokens)[-1]).max()
        found.bit_exact = bool(found.bit_exact is not False and same)
        found.max_abs_error = max(found.max_abs_error or 0.0, float(error))

    def conclude(self, tokens: Sequence[int], logits: Sequence[NDArray[np.float32]]) -> None:
        """Note how the errors of an answer's logits compare with their bounds; `tokens`: all that were taken."""
        place, agreement = self.place, self.agreement
        if place.decoder.parameters >= LARGE:
            return
        found = np.array(logits)
        places = place.width + place.height
        plain, bound = bounded_logits(place.decoder, self.weights, tokens, place.dtype, places, place.int8)
        plain, bound = plain[-len(found) :], bound[-len(found) :]
        share = np.abs(found - plain) / bound
        agreement.error_bound = max(agreement.error_bound or 0.0, float(bound.max()))
        agreement.error_share = max(agreement.error_share or 0.0, float(share.max()))
