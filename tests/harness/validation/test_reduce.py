"""R3: the published reduces of 512 PEs, and points of any other size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.validation.recipe import CannotRun
from harness.validation.registry import RECIPES
from tests.examples import examples, few
from wse_core.params import machine

PUBLISHED = {2: 10055, 16: 8989, 128: 9297, 512: 7218, 4: 9421, 32: 8973}
"""Group size: cycles, pr0f3ss/SpMM_Cerebras, reduce_2colors_2phase/results.txt; 512 PEs x 4,096 words."""


def run(pes, words, group=None, **params):
    point = {"params": {"pe_grid": f"{pes}x1", "words_per_pe": words, "dtype": "f32", **params}}
    if group is not None:
        point["params"]["group_size"] = group
    return RECIPES["R3", "reduce-1d"].function(machine(), point, lambda line: None)


@pytest.mark.parametrize(("group", "published"), few(PUBLISHED.items(), 4))
def test_published_points(group, published):
    outcome = run(512, 4096, group)
    assert outcome.method == "fabric"
    assert outcome.cycles == pytest.approx(published, rel=0.01)
    assert -60 <= outcome.cycles - published <= 0  # the published clock starts earlier, by the same for all


@examples(12)
@given(st.integers(1, 24), st.integers(1, 40), st.integers(1, 30))
def test_any_point(pes, words, group):
    cycles = run(pes, words, group).cycles
    assert cycles >= (words if pes > 1 else 0)
    assert run(1, words, group, pe_grid=f"1x{pes}").cycles == cycles


def test_one_group_is_the_chain():
    assert run(24, 30).cycles == run(24, 30, 24).cycles == run(24, 30, 500).cycles == 30 + 6 * 23 + 12


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pe_grid": "4x4"}, "4 x 4 PEs are no line"),
        ({"pe_grid": "many"}, "pe_grid"),
        ({"words_per_pe": None}, "words_per_pe"),
        ({"words_per_pe": 20000}, "20000 words .* a PE has 49,152"),
        ({"dtype": "f64"}, "f64"),
        ({"pe_grid": "2000x1"}, "2000"),
    ],
)
def test_what_cannot_run(params, message):
    with pytest.raises(CannotRun, match=message):
        run(8, 8, 2, **params)
