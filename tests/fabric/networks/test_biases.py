"""Scores of attention with learned numbers, by distance or by pair: bits, cycles, gradients, prices, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.attention import biases_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.streamed.resident import Resident
from tests.examples import examples
from tests.fabric.networks.test_graphs import Built, Ran, differentiate, on_both
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


class Biased(Built):
    """A graph whose attention adds learned numbers."""

    kind, window = 1, 0

    def seen(self, causal, heads):
        more = {"window": self.window} if self.window else {}
        return {"sequence": self.sequence, "causal": causal, "biases": self.kind} | more


def biased(kind, causal, window, shared, group, size, sequence, dtype="f16", classes=3):
    """Return a network of two blocks."""
    built = Biased(3, shared * group * size, sequence, group)
    built.kind, built.window = kind, window if kind == 1 and window < sequence else 0
    for number in (1, 2):
        built.block("attention" if size % 2 else "rotary", number, shared * group, causal * (kind == 1))
    return built.network(classes, dtype)


FORMS = {
    "kind": st.sampled_from([1, 1, 2]),
    "causal": st.integers(0, 1),
    "window": st.sampled_from([0, 0, 2]),
    "shared": st.integers(1, 3),
    "group": st.integers(1, 2),
    "size": st.integers(1, 4),
    "sequence": st.integers(1, 5),
    "dtype": st.sampled_from(["f16", "cb16"]),
}


@examples(12)
@given(
    form=st.fixed_dictionaries(FORMS), width=st.integers(1, 4), height=st.integers(1, 2), sequences=st.integers(1, 2)
)
def test_scores_with_biases_are_bit_exact(form, width, height, sequences):
    """Gradients and losses, twice, on any width, of several sequences of a PE and of several rows of PEs."""
    ran = Ran(biased(**form), width, height, sequences * form["sequence"], form["sequence"])
    expected = ran.expected(2.0**6)
    for _ in range(2):
        assert np.array_equal(ran.found(2.0**6), expected)
    names = [tensor.name for tensor in ran.network.parameters]
    assert [name for name in names if name.endswith(".shift")] == ["block1.shift", "block2.shift"]


@examples(4)
@given(form=st.fixed_dictionaries(FORMS))
def test_both_machines_add_biases_in_the_same_cycles(form):
    network = biased(**form)
    on_both(lambda: Ran(network, 2, 1, form["sequence"], 1))


@examples(8)
@given(form=st.fixed_dictionaries(FORMS))
def test_gradients_of_biases_are_those_of_finite_differences(form):
    differentiate(biased(**form), 2 * form["sequence"], 1)


@pytest.mark.parametrize(("kind", "causal", "window"), [(1, 0, 0), (1, 1, 0), (1, 1, 3), (1, 0, 2), (2, 0, 0)])
def test_a_bias_is_that_of_a_distance_or_of_a_pair(kind, causal, window):
    """A head without products: shares are those of its numbers, the least distance first, or query after query."""
    tokens, rng = 4, np.random.default_rng(0)
    sizes = {"heads": 2, "sequence": tokens, "causal": causal, "biases": kind} | ({"window": window} if window else {})
    node, zeros, v = Node("mix", "attention", ("q", "k", "v"), sizes), np.zeros((4, 2)), rng.standard_normal((4, 2))
    row, found = OPERATIONS["attention"], biases_of(node)
    numbers = rng.standard_normal((2, found.numbers))
    assert row.parameter(node, 2).columns == numbers.size
    plain = PlainGraph(Network.dense((1, 2)), "f64")
    result, _ = row.plain(plain, node, (zeros, zeros, v), numbers.reshape(1, -1))
    reach = window or tokens
    low = 0 if causal else 1 - reach
    for head, own in enumerate(numbers):
        for i in range(tokens):
            seen = [t for t in range(i + 1 if causal else tokens) if abs(i - t) < reach]
            weights = np.exp([own[t * tokens + i if kind == 2 else i - t - low] for t in seen])
            assert result[i, head] == pytest.approx(weights @ v[seen, head] / weights.sum(), rel=1e-12)


def test_where_biases_are_not_added_is_said():
    """Sequences on several rows of PEs, heads on several columns; tables by pair of tokens that are hidden."""
    network = biased(1, 0, 0, 2, 1, 2, 4)
    for place in ((replace(network, head_columns=2), machine(), 4, 1, 4), (network, machine(), 2, 2, 4)):
        with pytest.raises(UnsupportedError, match="block1.attention: scores with learned biases"):
            Resident(*place)
    for more in ({"biases": 3}, {"biases": 2, "causal": 1}, {"biases": 1, "slope0": 0, "slope1": 0}):
        node = Node("mix", "attention", ("q",) * 3, {"heads": 2, "sequence": 3, "causal": 0} | more)
        with pytest.raises(ConfigError, match="mix: biases"):
            OPERATIONS["attention"].features(node, 4)
