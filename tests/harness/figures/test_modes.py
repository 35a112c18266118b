"""Both modes on the same PEs: simulated where that is cheap, predicted beyond, and where they cross."""

from __future__ import annotations

import io

import matplotlib.figure
import numpy as np
import pytest

from harness.figures import modes
from wse_core.errors import ConfigError
from wse_core.params import machine

SMALL, LARGE = 4, 2000


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modes, "ROUNDS", 1)
        patch.setattr(modes, "TOKENS", 8)
        return modes.modes(machine("wse2"), 6, widths=(SMALL, 16, LARGE))


def test_small_networks_are_simulated_and_predicted(found):
    for row in found.rows[:2]:
        for name in ("streaming", "pipelined"):
            assert row[name] == "simulated"
            assert abs(row[f"{name}_error"]) < 0.05
            assert row[f"{name}_samples_per_s"] > 0
    assert found.rows[0]["parameters"] == SMALL * 65 + SMALL * (SMALL + 1) + 10 * (SMALL + 1)
    assert found.rows[0]["streaming_samples_per_s"] > found.rows[1]["streaming_samples_per_s"]
    assert found.notes["samples of an update"] == 6 * 8


def test_what_fits_no_pe_streams_only(found):
    large = found.rows[-1]
    assert (large["pipelined"], large["pipelined_samples_per_s"], large["minibatch"]) == ("does not fit", None, None)
    assert large["streaming"] == "model"
    assert 0 < large["streaming_samples_per_s"] < found.rows[1]["streaming_samples_per_s"] / 100


def test_it_is_drawn(found):
    picture = matplotlib.figure.Figure()
    found.draw(picture)
    picture.savefig(stream := io.BytesIO(), format="png")
    assert stream.getvalue().startswith(b"\x89PNG")
    texts = [text.get_text() for text in picture.axes[0].get_legend().get_texts()]
    assert texts == ["pipelined", "streaming", "pipelined does not fit"]


def test_crossings_by_hand():
    def row(parameters, pipelined, streaming):
        return {"parameters": parameters, "pipelined_samples_per_s": pipelined, "streaming_samples_per_s": streaming}

    assert modes.crossings([row(10, 1, 2), row(1000, 2, 1)]) == [pytest.approx(100)]
    assert modes.crossings([row(10, 1, 2), row(1000, 4, 1), row(4000, 1, 4)]) == pytest.approx(
        [10 * 100 ** (1 / 3), 2000]
    )
    assert modes.crossings([row(10, 3, 2), row(1000, 2, 1), row(9000, None, 1)]) == []


def test_too_few_pes_are_refused():
    with pytest.raises(ConfigError, match="4 PEs a side"):
        modes.modes(machine("wse2"), 3)


def test_a_simulation_is_that_of_the_wafer():
    """The cycles of an update hold its minibatches, and do not depend on how many came before."""
    cycles, measured, size = modes.pipelined(machine("wse2"), 6, modes.network(16))
    assert 6 * modes.TOKENS % size == 0
    assert measured is not None
    assert np.isclose(cycles, measured, rtol=0.05)
