"""Every wavelet hop of a step has its reason: the sums, the shift, the token in and out, and nothing else."""

from __future__ import annotations

import pytest

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.resident import ResidentDecoder
from tests.examples import few
from tests.fabric.networks.inference.hops import step_hops
from tests.fabric.networks.inference.small_models import random_weights
from wse_core.params import machine

DECODER = Decoder(22, 2, 6, 2, 8, 13, 19, 64, 1e-5, qkv_bias=True)


@pytest.mark.parametrize(
    ("width", "height", "policy"),
    few([(1, 1, "shift"), (3, 4, "shift"), (9, 4, "concat"), (2, 5, "round"), (7, 2, "shift"), (4, 3, "shift")], 4),
)
def test_hops_are_those_of_sums_and_shifts(width, height, policy):
    """Counted hops equal the closed form in every step, so element-wise parts and transposes move nothing."""
    tokens = 2 * height + 2
    room = tokens if policy == "concat" else -(-tokens // height)
    decode = Decode(machine(), DecoderPlacement(DECODER, width, height, room), policy)
    resident = ResidentDecoder(decode, random_weights(DECODER))
    for before in range(tokens):
        expected = step_hops(decode, before)
        more = resident.step(before % 7).hops - sum(expected.values())
        # Columns without a token send zeros for the next one at once: the first step has those of the second too.
        assert (0 <= more < decode.sums["back"].hops + (width == 1)) if before == 0 else more == 0
    assert (expected["cache"] > 0) == (policy == "shift" and height > 2)
