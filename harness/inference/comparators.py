"""The paper compares with these two systems, under the assumptions that it states.

T10 takes the wafer for cores joined by a crossbar, all equally far.  Its decode is the layer of program A with rings in
place of trees, in the published closed form: nothing is fitted.  Its prefill is P steps, each with a partner some P
hops away and nothing overlapped: two constants for all models and meshes.  Ladder takes the mesh for one memory: every
access is a collective, so that the weights of a layer pass a row of PEs one after the other (decode) or the whole wafer
(prefill), at about one a cycle, and each access pays the length of the lines: two constants per phase.

All six constants are declared in `wse_core.numbers` (``t10.*``, ``ladder.*``); none depends on the model.  They were
taken at `clock.ghz`, from the cells of tables 3 and 4 which they then give: fits, and no predictions.
"""

from __future__ import annotations

from fabric.networks.inference.decoder import Decoder
from harness.inference import authors
from harness.inference.costs import cdiv, published_ring
from wse_core.params import Machine

__all__ = ["ladder_decode", "ladder_prefill", "t10_decode", "t10_prefill"]


def t10_decode(machine: Machine, decoder: Decoder, side: int, tokens: int = 4096) -> float:
    """Return the cycles of a step of T10's decode, all layers."""
    d, f, t = cdiv(decoder.hidden, side), cdiv(decoder.ffn, side), cdiv(tokens, side)
    counts = (1, 3 * d, t, 1, 1, d, d, 1, 2 * f, d)
    sums = sum(published_ring(machine, side, n) for n in counts)
    phase = authors.decode(machine, decoder, side, side, tokens)
    return decoder.layers * (sums + sum(phase.products.values()) + sum(phase.local.values()))


def _words(decoder: Decoder, tokens: int) -> int:
    """Return the weights of a layer and the values that its tokens carry in and out."""
    return decoder.product_parameters + 2 * tokens * decoder.hidden


def t10_prefill(machine: Machine, decoder: Decoder, side: int, tokens: int = 4096) -> float:
    """Return the cycles of T10's prefill, all layers."""
    step = machine["t10.prefill_step"] * side**2 * decoder.hidden
    return float(decoder.layers * (step + machine["t10.prefill_word"] * _words(decoder, tokens) / side))


def ladder_decode(machine: Machine, decoder: Decoder, side: int) -> float:
    """Return the cycles of a step of Ladder's decode, all layers."""
    line = machine["ladder.decode_line"] * side
    return float(decoder.layers * (line + machine["ladder.decode_word"] * decoder.product_parameters / side))


def ladder_prefill(machine: Machine, decoder: Decoder, side: int, tokens: int = 4096) -> float:
    """Return the cycles of Ladder's prefill, all layers."""
    pairs = machine["ladder.prefill_pair"] * side**2
    return float(decoder.layers * (pairs + machine["ladder.prefill_word"] * _words(decoder, tokens)))
