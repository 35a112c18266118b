"""A decoder on several regions gives the oracle's bits, whatever the split, also with several requests on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decoder import Decoder, LayerKind
from fabric.networks.inference.fit import admit, needed_words, regions_needed
from fabric.networks.inference.passing import Passing, PipelineOracle
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.pipeline_cycles import PipelineCycles
from fabric.networks.inference.placement import DecoderPlacement, shares
from fabric.networks.inference.resident import ResidentDecoder
from fabric.networks.inference.rows import POLICIES
from tests.examples import examples, few
from tests.fabric.networks.inference.small_models import decoders, random_weights
from wse_core.errors import ConfigError, DeadlockError, PlanError
from wse_core.params import machine

SMALL = Decoder(24, 3, 4, 2, 8, 20, 17, 64, 1e-5)
TINY = Decoder(8, 2, 2, 1, 4, 6, 7, 64, 1e-5)
"""For the plain-Python machine."""


def pipeline(decoder, width, height, regions, tokens, policy="shift", dtype="f16", requests=1):
    room = tokens if policy == "concat" else -(-tokens // height)
    place = DecoderPlacement(decoder, width, height, room, dtype, requests=requests)
    return RegionPipeline(machine(), place, regions, policy)


def run(built, tokens, seed=0, backend=None):
    """Let every request take so many tokens, all of them on the way at once; return (passing, what came).

    What came has the logits and tokens of the oracle.
    """
    decoder, requests = built.place.decoder, built.place.requests
    weights = random_weights(decoder, seed)
    passing, oracle = Passing(built, weights, backend=backend), PipelineOracle(built, weights)
    fed = [(seed + 3 * n * n) % decoder.vocabulary for n in range(tokens * requests)]
    for token in fed:
        passing.send(token)
    found = []
    for n, token in enumerate(fed):
        passed = passing.receive()
        wanted, bits = oracle.step(token, n % requests)
        assert np.array_equal(passed.logits, bits)
        assert passed.token == wanted
        found.append(passed)
    passing.finish()
    return passing, found


@examples(12)
@given(
    decoder=decoders(layers=4),
    width=st.integers(1, 6),
    height=st.integers(1, 5),
    regions=st.integers(1, 4),
    requests=st.integers(1, 3),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["f16", "cb16"]),
    seed=st.integers(0, 99),
)
def test_bits_are_the_oracles(decoder, width, height, regions, requests, policy, dtype, seed):
    """Any split, mesh and number of requests, tokens following one another through the regions."""
    built = pipeline(decoder, width, height, min(regions, decoder.layers), height + 2, policy, dtype, requests)
    tokens = min(height + 2, 5)
    _, found = run(built, tokens, seed)
    assert len(found) == tokens * requests  # each with the oracle's bits


@pytest.mark.parametrize("requests", [1, 2])
def test_regions_have_layers_of_their_own(requests):
    """Regions with a window, without, with local positions and without: the oracle's bits beyond the window."""
    near, far = LayerKind(window=3, local=True), LayerKind()
    decoder = replace(SMALL, layers=4, different=(near, near, far, far), local_base=50.0, norms="both")
    built = pipeline(decoder, 4, 3, 3, 7, requests=requests)
    assert [stage.place.decoder.window for stage in built.stages] == [3, None, None]
    assert [stage.place.decoder.is_local for stage in built.stages] == [True, False, False]
    run(built, 7)


def test_both_engines_give_the_same():
    """The plain-Python machine gives the same bits and cycles."""
    found = [run(pipeline(TINY, 2, 1, 2, 1, requests=2), 1, backend=backend) for backend in ("compiled", "reference")]
    (one, mine), (two, others) = found
    assert [(a.token, a.begun, a.cycles) for a in mine] == [(b.token, b.begun, b.cycles) for b in others]
    assert one.busy == two.busy


def test_the_answer_is_that_of_one_region():
    """Tokens do not depend on the split; a region's part of the cycles is less than the whole."""
    weights = random_weights(SMALL)
    whole = ResidentDecoder(Decode(machine(), DecoderPlacement(SMALL, 4, 3, 2)), weights)
    _, found = run(pipeline(SMALL, 4, 3, 3, 4), 4)
    fed = [3 * n * n % SMALL.vocabulary for n in range(4)]
    for token, passed in zip(fed, found, strict=True):
        step = whole.step(token)
        assert step.token == passed.token
        values, others = (bits.view(np.float32) for bits in (step.logits, passed.logits))
        assert np.abs(values - others).max() < 0.02  # zeros are added at a hand-over, nothing else


@pytest.mark.parametrize(
    ("width", "height", "regions", "requests"), few([(3, 4, 3, 2), (1, 2, 3, 1), (4, 3, 2, 1), (8, 4, 2, 3)], 2)
)
def test_cycles_and_bubbles_are_those_of_the_closed_form(width, height, regions, requests):
    """A token alone, and tokens that follow one another: each region works as long as the form says, within 5 %."""
    built = pipeline(SMALL, width, height, regions, height + 1, requests=requests)
    form = PipelineCycles(built).round(height)
    passing = Passing(built, random_weights(SMALL))
    last = height * requests
    for _ in range(last):  # all positions but the last, one behind the other
        passing.send(1)
    for _ in range(last):
        passing.receive()
    passing.finish()
    passing.send(1)
    alone = passing.receive()
    assert alone.cycles == pytest.approx(form.latency, rel=0.05)
    for _ in range(requests - 1):
        passing.send(1)
        passing.receive()
    passing.finish()
    starts = [[begin for begin, _ in busy] for busy in passing.busy]
    for k, (busy, wanted) in enumerate(zip(passing.busy, form.busy, strict=True)):
        assert len(busy) == last + requests
        assert sum(end - begin for begin, end in busy[last:]) == pytest.approx(wanted, rel=0.05)
        assert all(end <= begin for (_, end), begin in zip(busy, starts[k][1:], strict=False))
    period = starts[-1][last - 1] - starts[-1][last - 1 - requests]  # of the slowest region, which never waits
    assert period == pytest.approx(max(PipelineCycles(built).round(height - 1).busy), rel=0.05)
    assert form.share == pytest.approx(1 - sum(form.busy) / regions / form.cycles)
    idle = 1 - 1 / regions  # of one request, whose token is in one region at a time
    assert form.share == pytest.approx(idle, abs=0.08) if requests == 1 else form.share < idle - 0.2


def test_only_the_last_region_has_the_output_matrix():
    """Memory of the regions: layers shared as evenly as it goes; a model too large for one mesh fits several."""
    wide = Decoder(64, 5, 4, 2, 16, 150, 40, 64, 1e-5)
    place = DecoderPlacement(wide, 2, 2, 4)
    regions = regions_needed(place, machine())
    assert regions is not None
    assert regions > 1
    with pytest.raises(PlanError, match=rf"or --regions {regions} of this one"):
        admit(place, machine(), 8, "shift")
    parts = shares(place, regions)
    assert sum(part.decoder.layers for part in parts) == 5
    assert [part.first for part in parts] == np.cumsum([0, *[part.decoder.layers for part in parts[:-1]]]).tolist()
    assert ["output matrix" in needed_words(part) for part in parts] == [False] * (regions - 1) + [True]
    built = RegionPipeline(machine(), place, regions)
    for image, part in zip(_first_programs(built), parts, strict=True):
        assert image.footprint <= sum(needed_words(part).values()) <= machine()["mem.words"]


def _first_programs(built):
    """Return the program of the corner of each region."""
    spec = built.layout().build()
    return [spec.programs[spec.program_index[0, stage.column]] for stage in built.stages]


def test_what_is_refused():
    """More regions than layers or than the wafer is wide, a full cache, no token on the way."""
    with pytest.raises(ConfigError, match="4 regions for 3 layers"):
        pipeline(SMALL, 2, 2, 4, 4)
    with pytest.raises(PlanError, match="3 regions of 300 columns; 2 lie side by side"):
        pipeline(SMALL, 300, 2, 3, 4)
    passing = Passing(pipeline(TINY, 2, 1, 2, 1), random_weights(TINY))
    with pytest.raises(ConfigError, match="token 7 does not exist"):
        passing.send(7)
    passing.send(0)
    with pytest.raises(ConfigError, match="room for 1 tokens of a request"):
        passing.send(1)
    passing.receive()
    with pytest.raises(DeadlockError, match="no token is on the way"):
        passing.receive()
