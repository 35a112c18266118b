"""The weight-streaming product: bits, counts, layouts, and time proportional to the weights that are not zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.kernels.streamed.placement import TASKS, Placement, chunks, column_streams
from memx.parameter import Parameter
from memx.pattern import Pattern
from tests.examples import examples
from tests.fabric.kernels import run
from wse_core.errors import ConfigError


@examples(25)
@given(
    inputs=st.integers(1, 20),
    outputs=st.integers(1, 12),
    columns=st.integers(1, 5),
    groups=st.integers(1, 3),
    height=st.integers(1, 3),
    more=st.integers(0, 9),
    density=st.floats(0, 1),
    transposed=st.booleans(),
    dtype=st.sampled_from(["f16", "cb16"]),
    data=st.sampled_from(["normal", "ones", "special"]),
    seed=st.integers(0, 99),
)
def test_products_are_bit_exact(columns, groups, height, more, **values):
    tokens = groups * height + more
    result = run("ws_forward", width=columns * groups, groups=groups, height=height, tokens=tokens, **values)
    assert result["macs"] == result["nonzeros"] * tokens
    assert result["weights_sent"] == result["nonzeros"] * groups


def test_cycles_of_a_layer_that_streams():
    """The formula, and time in proportion to what is not zero."""
    sizes = {"inputs": 2600, "outputs": 10, "tokens": 32, "width": 2, "height": 2}
    cycles = {}
    for density in (1.0, 0.5, 0.25, 0.1):
        result = run("ws_forward", density=density, **sizes)
        assert abs(result["cycle_error"]) < 0.1
        cycles[density] = result["cycles"]
        assert result["macs"] == round(density * 2600 * 10) * 32
    for density in (0.5, 0.25, 0.1):
        assert cycles[density] / cycles[1.0] == pytest.approx(density, rel=0.1)


@pytest.mark.parametrize(
    ("width", "tokens", "overrides"),
    [
        (80, 32, {}),  # the way back from the last column to the first has room for whole rows
        (2, 24, {"router.hop": 2}),
        (4, 12, {"router.hop": 8}),  # a row's last words are still on the link when the next row begins
        (3, 24, {"router.hop": 6}),  # a late column finds so much, and the rest comes at the pace of the links
    ],
)
def test_cycles_of_rings_with_more_tokens_than_room(width, tokens, overrides):
    sizes = {"inputs": width, "outputs": max(10, width), "tokens": tokens, "width": width, "height": 1}
    result = run("ws_forward", overrides=overrides, density=0.5, **sizes)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.03)


def test_a_layer_without_weights_gives_zeros():
    result = run("ws_forward", density=0.0, inputs=5, outputs=3, tokens=4, width=3, height=2)
    assert not result["arrays"]["y"].any()
    assert result["macs"] == 0


def test_layout_b_shortens_the_ring():
    flat = run("ws_forward", inputs=48, outputs=8, tokens=24, width=6, height=2, density=0.2)
    grouped = run("ws_forward", inputs=48, outputs=8, tokens=24, width=6, height=2, groups=3, density=0.2)
    assert flat["additions"] == 8 * 24 * 5
    assert grouped["additions"] == 8 * 24 * 1
    assert np.array_equal(flat["arrays"]["y"].shape, grouped["arrays"]["y"].shape)


# --- placement --------------------------------------------------------------------------------------------------------


def test_layout_a_of_the_paper():
    """Figure 15: two sequences of six positions, twelve features, four by four PEs."""
    place = Placement(12, 12, 4, 4)
    assert [place.held(x, 0)[0] for x in range(4)] == [slice(3 * x, 3 * x + 3) for x in range(4)]
    assert [place.held(0, y)[1] for y in range(4)] == [slice(3 * y, 3 * y + 3) for y in range(4)]


@given(
    features=st.integers(1, 50),
    tokens=st.integers(6, 40),
    columns=st.integers(1, 6),
    groups=st.integers(1, 3),
    height=st.integers(1, 2),
)
def test_every_feature_of_every_token_lies_in_one_pe(features, tokens, columns, groups, height):
    place = Placement(features, tokens, columns * groups, height, groups)
    held = np.zeros((features, tokens), int)
    for x in range(place.width):
        for y in range(height):
            held[place.held(x, y)] += 1
    assert (held == 1).all()
    for feature in range(features):
        column = place.owner(feature)
        assert place.feature_starts[column] <= feature < place.feature_starts[column + 1]


def test_chunks_are_nearly_equal():
    assert chunks(10, 4).tolist() == [0, 3, 6, 8, 10]
    assert chunks(2, 4).tolist() == [0, 1, 2, 2, 2]


# --- streams ----------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 99), columns=st.integers(1, 5))
def test_columns_receive_the_weights_of_their_features_and_nothing_else(seed, columns):
    rng = np.random.default_rng(seed)
    p = Parameter("w", rng.standard_normal((7, 11)), pattern=Pattern.random((7, 11), 0.4, rng))
    places = [Placement(n, 4, columns, 1) for n in (11, 7)]
    streams = column_streams(p.pattern.indptr, p.pattern.indices, p.values, *places)
    found = np.zeros((7, 11), np.uint16)
    for column, (payload, is_control) in enumerate(streams):
        row, feature = 0, int(places[0].feature_starts[column])
        for word, command in zip(payload.tolist(), is_control.tolist(), strict=True):
            if command:
                task = control.decode(word).task
                distance = (column - places[1].owner(row)) % columns
                assert task == TASKS["land" if distance == 0 else "begin" if distance == 1 else "pass"]
                row, feature = row + 1, int(places[0].feature_starts[column])
            else:
                feature += word >> 16
                assert places[0].owner(feature) == column
                found[row, feature] = word & 0xFFFF
        assert row == 7
    assert np.array_equal(found.reshape(-1)[p.pattern.flat], p.values)
    assert sum(len(payload) for payload, _ in streams) == p.pattern.count + 7 * columns


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"width": 4, "groups": 3}, "groups that divide"),
        ({"tokens": 3, "height": 4}, "height up to 3"),
        ({"inputs": 20000, "width": 1}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_said(values, says):
    with pytest.raises(ConfigError, match=says):
        run("ws_forward", **values)
