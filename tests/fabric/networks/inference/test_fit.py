"""What a PE needs is at least what its program takes, so that what is admitted also assembles."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import CODE_WORDS, GAPS, admit, needed_words, smallest_mesh, tokens_per_row
from fabric.networks.inference.placement import DecoderPlacement
from fabric.networks.inference.rows import POLICIES
from fabric.networks.inference.writer import code_words
from harness.models.presets import PRESETS
from tests.examples import examples
from tests.fabric.networks.inference.small_models import CLASSIC, decoders, have_room
from wse_core.errors import PlanError
from wse_core.params import machine

ALL = Decoder(6, 2, 4, 2, 4, 5, 5, 64, 1e-5, o_bias=True, ffn_bias=True, qkv_bias=True, head_norms=True, rotary=2,
              norms="both", score_cap=2.0, logit_cap=3.0, local_base=9.0, activation="gelu",
              different=(LayerKind(turns=False), LayerKind(window=2, local=True)))  # fmt: skip
"""Has all that takes code, but for norms of projections."""


@examples(15)
@given(
    decoder=decoders(),
    width=st.integers(1, 9),
    height=st.integers(1, 7),
    room=st.integers(1, 9),
    batch=st.sampled_from([0, 0, 1, 3, 8]),
    int8=st.booleans(),
)
@example(decoder=Decoder(1, 1, 6, 3, 8, 1, 2, 64), width=1, height=1, room=1, batch=0, int8=True)
@example(decoder=ALL, width=5, height=3, room=2, batch=4, int8=True)
@example(decoder=CLASSIC[0], width=5, height=3, room=2, batch=4, int8=False)
@example(decoder=CLASSIC[1], width=5, height=3, room=2, batch=4, int8=True)
@example(decoder=CLASSIC[2], width=5, height=3, room=2, batch=0, int8=True)
def test_programs_take_what_is_reckoned(decoder, width, height, room, batch, int8):
    """Code stays below its share; variables are those that are counted, but for the gaps between them."""
    place = DecoderPlacement(decoder, width, height, room, batch=batch, int8=int8)
    assume(have_room(needed_words(place)))
    counted = {name: words for name, words in needed_words(place).items() if name != "code"}
    for image in Decode(machine(), place).layout().build().programs:
        code = 2 * len(image.code)
        assert code <= code_words(place)
        words = sum(symbol.words for symbol in image.symbols.values())
        assert sum(counted.values()) - GAPS <= words + 64
        assert words <= sum(counted.values())


def test_published_models_are_refused_with_a_mesh_that_carries_one():
    """The 8B model needs most of a wafer; on 64 x 64 the largest tensor is named."""
    place = DecoderPlacement(PRESETS["LLaMA3-8B"], 64, 64, 1)
    with pytest.raises(PlanError, match=r"PE \(0, 0\) needs .* the most of them for gate_up"):
        admit(place, machine(), 64, "shift")
    mesh = smallest_mesh(place, machine(), 64, "shift")
    assert mesh is not None
    assert 360_000 < mesh[0] * mesh[1] < 750_000
    large = DecoderPlacement(PRESETS["QWen2-72B"], 64, 64, 1)
    assert smallest_mesh(large, machine(), 64, "shift") is None
    with pytest.raises(PlanError, match="no mesh of one wafer"):
        admit(large, machine(), 64, "shift")


@examples(10)
@given(decoder=decoders(), tokens=st.integers(1, 40), policy=st.sampled_from(POLICIES))
def test_the_smallest_mesh_is_the_smallest(decoder, tokens, policy):
    """No mesh of a small wafer with fewer PEs carries it; the one that is named does."""
    small = machine("wse2", {"mem.words": CODE_WORDS + GAPS + 1500, "fabric.width": 9, "fabric.height": 11})

    def fits(width, height):
        place = DecoderPlacement(decoder, width, height, tokens_per_row(tokens, height, policy))
        return sum(needed_words(place).values()) <= small["mem.words"]

    carrying = [(w, h) for w in range(1, 10) for h in range(1, 12) if fits(w, h)]
    found = smallest_mesh(DecoderPlacement(decoder, 1, 1, tokens), small, tokens, policy)
    assert (found is None) == (not carrying)
    if found is not None:
        assert fits(*found)
        assert found[0] * found[1] == min(w * h for w, h in carrying)
