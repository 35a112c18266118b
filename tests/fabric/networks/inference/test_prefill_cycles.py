"""Closed forms of the reading of a prompt against the engine: all of it and each part, on sizes they were not written
from.
"""

from __future__ import annotations

import numpy as np
import pytest

from fabric.networks.inference.decode_cycles import StepCycles
from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.prefill.cycles import PromptCycles
from fabric.networks.inference.prefill.program import PARTS, Prefill
from fabric.networks.inference.prefill.reading import read_prompt
from tests.examples import few
from tests.fabric.networks.inference.test_prefill import Both
from wse_core.params import machine

SIZES = few(
    [
        (Decoder(64, 2, 4, 2, 16, 96, 60, 64, 1e-5), 7, 5, 13),
        (Decoder(48, 2, 6, 6, 16, 80, 40, 64, 1e-5, qkv_bias=True), 12, 4, 11),
        (Decoder(30, 2, 8, 4, 4, 30, 20, 64, 1e-5), 1, 3, 8),
        (Decoder(40, 1, 2, 1, 24, 70, 30, 64, 1e-5), 5, 7, 15),
        (Decoder(56, 1, 3, 3, 12, 90, 30, 64, 1e-5), 10, 4, 20),
        (Decoder(128, 1, 4, 2, 32, 344, 100, 64, 1e-5), 16, 7, 15),
    ],
    2,
)


@pytest.mark.parametrize(("decoder", "width", "height", "length"), SIZES)
def test_prompts_and_their_parts(decoder, width, height, length):
    """A prompt, each part of its last layer and the transition are within 5 %, or 15 cycles of the short ones."""
    both = Both(decoder, width, height, length, 1)
    form = PromptCycles(both.prefill)
    assert form.prompt_cycles() == pytest.approx(both.reading.cycles, rel=0.05)
    assert StepCycles(both.decode).transition() == pytest.approx(both.resident.resume().transition, rel=0.05)

    timed = Prefill(machine(), both.prompt, timed=True)
    reading = read_prompt(timed, both.weights, both.decode.tables(both.weights), both.tokens)
    ends = reading.stamps.max(axis=(1, 2))
    got = dict(zip(PARTS, np.diff(np.concatenate([[ends[-1] - reading.cycles], ends[1:]])), strict=True))
    expected = PromptCycles(timed).parts()
    for part in PARTS:
        if decoder.layers == 1 or part != "norm 1":  # which begins with the end of the layer before
            assert expected[part] == pytest.approx(got[part], rel=0.05, abs=15), part
