"""Gradients as rows times scalars: the bits of dots, the price of their program, where they pay and where they fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.streamed.gradient import TURNED
from fabric.networks.graph.network import Layer, Network
from fabric.networks.streamed.operations.gradients import pays
from fabric.networks.streamed.resident import Resident
from memx.pattern import Pattern
from swarm.cluster.programs import TaskCosts
from tests.examples import examples
from tests.fabric.networks import Case
from wse_core.errors import ConfigError
from wse_core.params import machine

CASES = {
    "features": st.lists(st.integers(1, 19), min_size=2, max_size=4).map(tuple),
    "width": st.integers(1, 5),
    "height": st.integers(1, 4),
    "tokens": st.integers(1, 13),
    "bias": st.booleans(),
    "norm": st.booleans(),
    "dtype": st.sampled_from(["f16", "cb16"]),
    "form": st.sampled_from(["pairs", "both"]),
    "seed": st.integers(0, 99),
}

ALL = [f"layer{number}.weight" for number in range(1, 5)]


@examples(40)
@given(scale=st.sampled_from([1.0, 2.0**10, 2.0**15]), **CASES)
def test_both_forms_give_the_same_bits(scale, **values):
    """Overflows are among them; twice, so that nothing is left behind by a phase of the other form."""
    expected = Case(**values).expected(scale)
    for names in ((), ALL, ALL[::2]):
        case = Case(**values, turned=names)
        assert case.resident.turned == frozenset(names) & {parameter.name for parameter in case.network.parameters}
        for _ in range(2):
            assert np.array_equal(case.train(scale)[1], expected)


@examples(4)
@given(
    **CASES
    | {
        "features": st.lists(st.integers(1, 6), min_size=2, max_size=3).map(tuple),
        "width": st.integers(1, 3),
        "height": st.integers(1, 3),
        "tokens": st.integers(1, 6),
    }
)
def test_both_machines_take_the_same_cycles(**values):
    runs = []
    for backend in ("compiled", "reference"):
        passed, found = Case(**values, turned=ALL, backend=backend).train()
        runs.append((passed.cycles, [t.tolist() for t in passed.times], found.tolist()))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", ["wse2", "wse3"])
def test_another_machine_gives_the_same_bits(name):
    case = Case((23, 9, 4), 3, 2, 5, form="pairs", turned=ALL, name=name)
    assert np.array_equal(case.train()[1], case.expected())


def test_masks_with_gaps_ask_place_by_place():
    """Also where programs could do otherwise; a mask that is dense again is answered from the copy."""
    case = Case((12, 6, 3), 3, 2, 2, form="both", seed=3, turned=ALL)
    dense = case.train()[0].cycles
    kept = case.matrices[0].pattern
    case.matrices[0].set_pattern(Pattern.random(kept.shape, 0.5, case.rng))
    assert np.array_equal(case.train()[1], case.expected())
    case.matrices[0].gradient_pattern = kept  # all gradients of a matrix with gaps, as regrowth wants them
    assert np.array_equal(case.train()[1], case.expected())
    case.matrices[0].set_pattern(kept)
    assert np.array_equal(case.train()[1], case.expected())
    assert case.train()[0].cycles == dense


@pytest.mark.parametrize(("tokens", "bias"), [(1, False), (3, True), (4, False), (8, True), (11, True), (32, False)])
def test_a_row_takes_what_its_program_costs(tokens, bias):
    """Four more rows of gradients on one PE: exactly the price of the command, for even and odd numbers of features."""
    for features in (6, 7, 16, 33):
        found = {}
        for rows in (8, 12):
            case = Case((features, rows), tokens=tokens, activation="none", bias=bias, form="pairs", turned=ALL)
            ends = [case.train()[0].times[0][number] for number in (features + bias - 1, 4 * (features + bias) - 1)]
            found[rows] = ends[1] - ends[0]
        tasks = TaskCosts(case.resident, 0, "only", [True])
        row = tasks.command("send", data=features + bias | TURNED)
        assert found[8] == found[12] == 3 * row.alone


def test_a_phase_takes_the_form_that_costs_less():
    """From two features of eight tokens on; with a single row the copy has to pay for itself."""
    m = machine()
    assert not pays(m, "f16", 8, rows=100, owned=10, features=1, bias=False)
    assert pays(m, "f16", 8, rows=100, owned=10, features=2, bias=False)
    assert not pays(m, "f16", 8, rows=1, owned=1, features=2, bias=False)
    assert not pays(m, "f16", 32, rows=100, owned=1, features=0, bias=True)
    assert not pays(m, "f16", 10_000, rows=100, owned=1, features=9, bias=True)  # no program has room for a row
    case = Case((24, 5, 40, 9), 8, 1, 8, form="pairs")
    assert case.resident.turned == {"layer1.weight", "layer3.weight"}  # of 5 features a column has one at most
    assert Case((24, 5, 40, 9), 8, 1, 8, form="steps").resident.turned == frozenset()


@pytest.mark.parametrize("features", [(64, 32, 10), (98, 33, 7), (9, 40, 3)])
@pytest.mark.parametrize(("width", "tokens"), [(1, 4), (3, 8), (4, 32), (7, 5)])
def test_what_is_chosen_is_never_slower(features, width, tokens):
    """Than dots alone, by more than a cycle a row: that of a program that has both."""
    case = Case(features, width, 2, tokens, form="pairs")
    chosen, rows = case.train()[0].cycles, sum(features[1:])
    assert chosen <= Case(features, width, 2, tokens, form="pairs", turned=()).train()[0].cycles + rows


def test_784_256_128_10_takes_at_most_two_million_cycles():
    """On 8 x 8 PEs with 32 samples each; with dots alone they are 4.05 million, and every bit is the same."""
    case = Case((784, 256, 128, 10), 8, 8, 32, form="pairs")
    passed, found = case.train()
    assert len(case.resident.turned) == 3
    assert passed.cycles < 1_450_000
    dots, same = Case((784, 256, 128, 10), 8, 8, 32, form="pairs", turned=()).train()
    assert dots.cycles > 4_000_000
    assert np.array_equal(found, same)


def test_copies_give_way_to_what_the_network_needs():
    """A copy that does not fit is not made, largest first; a network that does not fit without is refused as ever."""
    features = (700, 20, 9)
    fits = {tokens: Case(features, 2, 1, tokens, form="pairs").resident for tokens in (16, 32, 48)}
    assert fits[16].turned == {"layer1.weight", "layer2.weight"}
    assert fits[48].turned == {"layer2.weight"}
    assert fits[48].layout
    assert all(sum(map(r.words, r.plan.arrays)) < machine()["mem.words"] for r in fits.values())
    case = Case(features, 2, 1, 48, form="pairs")
    assert np.array_equal(case.train()[1], case.expected())
    with pytest.raises(ConfigError, match=r"array a0 of level 0 alone takes \d+ bytes"):
        assert Case(features, 2, 1, 75, form="pairs").resident.layout


def test_copies_have_their_place_in_the_plan():
    """An even number of features per token, behind the constant input, and a sum of each."""
    network = Network.of((Layer(21, 9, "relu", True), Layer(9, 4)))
    resident = Resident(network, machine(), 2, 1, 8, "pairs", turned=["layer1.weight"])
    plan = resident.plan.arrays
    assert (plan["by_token"].rows, plan["totals"].rows) == (12, 12)
    assert (resident.words("by_token"), resident.words("totals")) == (12 * 8, 2 * 12)
    symbols = resident.program(0, "only").assemble().symbols
    assert symbols["by_token"].address % 2 == 1  # two at a time they never meet the sums in a bank
    assert symbols["totals"].address % 2 == 0
