"""Closed forms of the decoder against the engine: whole steps and each part, on sizes they were not written from."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.inference.decode import PARTS, Decode
from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.placement import Placement
from fabric.networks.inference.resident import Resident
from tests.examples import few
from tests.fabric.networks.inference.small_models import random_weights
from wse_core.params import machine

SIZES = few(
    [
        (Decoder(64, 2, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5),
        (Decoder(96, 2, 6, 6, 16, 200, 80, 64, 1e-5, qkv_bias=True), 24, 6),
        (Decoder(48, 1, 2, 1, 24, 70, 30, 64, 1e-5), 3, 8),
        (Decoder(30, 2, 8, 4, 4, 30, 20, 64, 1e-5), 1, 1),
        (Decoder(128, 2, 4, 2, 32, 344, 100, 64, 1e-5), 16, 9),
        (Decoder(256, 1, 8, 4, 32, 512, 200, 64, 1e-5), 32, 10),
    ],
    2,
)


def measured(decoder, width, height, tokens, timed):
    """Run some tokens; return (decode, cycles of each step, time stamps of the last, their PEs' slowest)."""
    decode = Decode(machine(), Placement(decoder, width, height, -(-tokens // height)), timed=timed)
    resident = Resident(decode, random_weights(decoder))
    cycles = [resident.step(token % 7).cycles for token in range(tokens)]
    return decode, cycles, resident.stamps() if timed else None


@pytest.mark.parametrize(("decoder", "width", "height"), SIZES)
def test_steps(decoder, width, height):
    """A step is within 5 % of its closed form, before, in and after the first rounds of the cache."""
    tokens = min(2 * height + 3, 24)
    decode, cycles, _ = measured(decoder, width, height, tokens, False)
    model = StepCycles(decode)
    for before in sorted({0, 1, height // 2, height - 1, tokens - 1}):
        assert model.step(before) == pytest.approx(cycles[before], rel=0.05)


@pytest.mark.parametrize(("decoder", "width", "height"), [size for size in SIZES if size[1] > 1])
def test_parts(decoder, width, height):
    """Each part of the last layer is within 5 %, or 12 cycles of the short ones."""
    tokens = height + 2
    decode, _, stamps = measured(decoder, width, height, tokens, True)
    ends = stamps.max(axis=(1, 2))
    expected = StepCycles(decode).parts(tokens - 1)
    got = dict(zip(PARTS, np.diff(ends), strict=True))
    layers = decoder.layers
    for part in PARTS[2 if layers == 1 else 3 :]:  # what goes before the first of a layer is another layer's end
        if part != "norm 1":
            assert got[part] == pytest.approx(expected[part], rel=0.05, abs=12), part
