"""Rows of a matrix with gaps go out whole where that takes fewer cycles: the same bits, and never slower than all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fabric.networks.graph.network import Network
from fabric.networks.graph.plan import MemoryPlan
from fabric.networks.streamed.operations.gaps import form_of, zeros_pay
from tests.examples import some
from tests.fabric.networks import Case
from wse_core.params import machine

PLACES = [((60, 30, 8), 1, 2, 16), ((98, 33, 7), 2, 2, 8), ((150, 60, 8), 4, 2, 4), ((40, 60, 8), 8, 2, 2)]


def ran(place, density, form):
    """Return the case, the cycles of an iteration, and whether what comes back is what the mask's own weights give."""
    features, width, height, tokens = place
    case = Case(features, width, height, tokens, density=density, form=form, seed=3)
    passed, found = case.train()
    return case, passed.cycles, np.array_equal(found, case.expected())


@pytest.mark.parametrize("place", PLACES[: some(4, 2)])
@pytest.mark.parametrize("density", [0.9, 0.7, 0.5, 0.1])
def test_the_form_that_is_chosen_takes_the_fewest_cycles(place, density):
    """To a hundredth, and no more than all weights would take in pairs."""
    taken = {}
    for form in ("pairs", "both", "steps"):
        case, taken[form], same = ran(place, density, form)
        assert same
    names = [tensor.name for tensor in case.network.parameters]
    densities = {name: (one.pattern.density,) for name, one in zip(names, case.matrices, strict=True)}
    chosen = form_of(case.resident.plan, case.resident.machine, case.resident.tokens, densities)
    assert taken[chosen] <= 1.01 * min(taken.values())
    assert taken[chosen] <= ran(place, 1.0, "pairs")[1]


def test_whole_rows_are_words_of_all_weights_with_zeros():
    """The words of a dense network, with zeros where nothing is; gradients come of the weights that exist."""
    whole, _, _ = ran(((12, 9, 5), 2, 1, 3), 0.8, "pairs")
    dense = Case((12, 9, 5), 2, 1, 3, form="pairs", seed=3)
    assert whole.coordinator.script("test").n_words == dense.coordinator.script("test").n_words
    for matrix, sent in zip(whole.matrices, whole.coordinator.streamed, strict=True):
        assert matrix.whole
        assert matrix.pattern.density < 1 == sent.pattern.density
        assert np.array_equal(sent.values.reshape(matrix.dense.shape) != 0, matrix.pattern.mask())
        pattern, entries = sent.transposed
        assert np.array_equal(sent.values[entries].reshape(pattern.shape), sent.values.reshape(matrix.dense.shape).T)
    assert whole.matrices[0].streamed is not whole.matrices[0]
    assert dense.matrices[0].streamed is dense.matrices[0]


def test_the_price_decides_for_each_matrix_where_there_are_both_forms():
    """A branch tells pairs from steps, so there hardly a matrix with gaps goes out whole; what does takes less time."""
    place = machine(), "f16", 4, [(30, 60), (60, 30)]
    assert zeros_pay(*place, 0.99)
    assert not zeros_pay(*place, 0.6)
    assert not zeros_pay(*place, 1.0)
    assert not zeros_pay(machine(), "f16", 30_000, [(30, 60)], 0.99)  # so many tokens do not fit a PE
    case, taken, same = ran(((60, 30, 8), 2, 2, 4), 0.985, "both")
    names = [tensor.name for tensor in case.network.parameters]
    both = zip(names, case.matrices, strict=True)
    assert same
    assert all(case.resident.sends_whole(name, one.pattern.density) == one.whole for name, one in both)
    assert any(one.whole for one in case.matrices)
    case = Case((60, 30, 8), 2, 2, 4, density=0.985, form="both", seed=3)
    case.resident.sends_whole = lambda name, density: False
    assert taken < case.train()[0].cycles


@pytest.mark.parametrize(
    ("densities", "form"),
    [
        ([(1.0,), (1.0,)], "pairs"),
        ([(1.0,), (0.9,)], "pairs"),
        ([(1.0,), (0.1,)], "pairs"),  # the large matrix is dense: a branch for the small one costs more than its zeros
        ([(0.1,), (1.0,)], "both"),
        ([(0.01,), (0.01,)], "steps"),
        ([(1.0, 0.02, 0.02, 0.02), (1.0, 0.02, 0.02, 0.02)], "both"),
    ],
)
def test_all_matrices_have_a_say(densities, form):
    network = Network.dense((200, 40, 4))
    names = [tensor.name for tensor in network.parameters]
    assert form_of(MemoryPlan(network, 2), machine(), 4, dict(zip(names, densities, strict=True))) == form


@pytest.mark.parametrize("share", ["75 %", "14 %"][: some(2, 1)])
def test_the_table_of_the_documentation_is_what_wafers_take(share):
    page = Path("docs/weight-streaming.md").read_text(encoding="utf-8")
    table = page[page.index("| weights that exist | steps | both | pairs |") :]
    row = next(line for line in table.splitlines() if line.startswith(f"| {share} |"))
    _, _, *said, least, _ = (cell.strip().replace(",", "") for cell in row.split("|"))
    place, density = ((600, 120, 120, 8), 4, 4, 4), int(share[:-2]) / 100
    taken = []
    for form in ("steps", "both", "pairs"):
        features, width, height, tokens = place
        taken.append(Case(features, width, height, tokens, density=density, form=form).train()[0].cycles)
    assert taken == [int(cycles) for cycles in said]
    assert float(least) == round(min(taken) / 284_541, 2)
