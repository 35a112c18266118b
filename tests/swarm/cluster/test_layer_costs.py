"""Costs of a layer against the cycle-level kernels that they stand for."""

from __future__ import annotations

import pytest

from fabric.kernels.streamed import forward, gradient
from fabric.kernels.streamed.placement import Placement
from memx.pattern import Pattern
from swarm.cluster import layer_costs
from swarm.cluster.shapes import LayerShape, Mesh, shapes_of
from tests.examples import SOAK, seeds
from tests.fabric.kernels import run
from tests.fabric.networks.streamed.test_digests import drawn
from wse_core.errors import ConfigError
from wse_core.params import machine

SHAPES = [
    (64, 64, 64, 4, 4),
    (256, 40, 32, 8, 4),
    (40, 96, 16, 8, 2),
    (16, 200, 16, 2, 2),
    (128, 16, 64, 1, 4),
    (100, 90, 24, 6, 3),
    (8, 160, 16, 4, 4),
    (160, 8, 16, 4, 4),
]
"""inputs, outputs, tokens, width, height."""
TOLERANCE = {"forward": 0.08, "backward": 0.08, "gradient": 0.08}
"""Relative, for random patterns of a density that others were drawn with; dense layers must be within `DENSE`."""
DENSE = 0.03


@pytest.mark.parametrize(
    ("shape", "density"),
    [
        (shape, density)
        for k, shape in enumerate(SHAPES)
        for j, density in enumerate((1.0, 0.5, 0.2))
        if SOAK or (k + j) % 3 == 0
    ],
)
def test_costs_are_those_of_cycle_level_wafers(shape, density):
    inputs, outputs, tokens, width, height = shape
    layer, mesh = LayerShape(inputs, outputs, density), Mesh(machine(), width, height)
    for phase, tolerance in TOLERANCE.items():
        cost = getattr(layer_costs, phase)(layer, tokens, mesh, "steps")
        sizes = (
            {"inputs": outputs, "outputs": inputs, "transposed": True}
            if phase == "backward"
            else {"inputs": inputs, "outputs": outputs}
        )
        got = run(
            "ws_gradient" if phase == "gradient" else "ws_forward",
            tokens=tokens,
            width=width,
            height=height,
            density=density,
            **sizes,
        )["cycles"]
        within = DENSE if density == 1 else tolerance
        assert cost.busy + cost.latency == pytest.approx(got, rel=within), phase
        assert cost.rows == sizes["outputs"]


@pytest.mark.parametrize(
    ("shape", "tolerance"),
    [((1024, 512, 32, 64, 2), 0.02), ((1024, 250, 16, 100, 1), 0.06), ((4096, 128, 32, 256, 2), 0.02)],
)
def test_costs_of_meshes_that_are_not_simulated(shape, tolerance):
    """Against the kernels' closed forms, which follow every row of a pattern."""
    inputs, outputs, tokens, width, height = shape
    pattern, mesh = Pattern.dense((outputs, inputs)), Mesh(machine(), width, height)
    places = [Placement(features, tokens, width, height) for features in (inputs, outputs)]
    for phase, kernel in (("forward", forward), ("gradient", gradient)):
        wanted = kernel.expected_cycles(pattern.indptr, pattern.indices, *places, mesh.machine)
        cost = getattr(layer_costs, phase)(LayerShape(inputs, outputs), tokens, mesh, "steps")
        assert cost.busy + cost.latency == pytest.approx(wanted, rel=tolerance), phase


def test_time_follows_the_nonzeros():
    """All three phases on the wafer, for a layer that is large for its mesh; without steps dense rows take less."""
    mesh = Mesh(machine(), 2, 2)
    for phase in TOLERANCE:
        dense = getattr(layer_costs, phase)(LayerShape(1400, 1400), 32, mesh, "steps").busy
        for density in (0.5, 0.25, 0.1):
            part = getattr(layer_costs, phase)(LayerShape(1400, 1400, density), 32, mesh, "steps").busy
            assert part / dense == pytest.approx(density, rel=0.1), (phase, density)
        assert getattr(layer_costs, phase)(LayerShape(1400, 1400), 32, mesh).busy < 0.99 * dense


@pytest.mark.parametrize("tokens", [4, 16, 40])
def test_columns_wait_for_the_busiest_of_an_uneven_pattern(tokens):
    """Thirty columns of three features, a third of the weights: most of the time is waiting.  The patterns differ."""
    shape, mesh = LayerShape(90, 128, 0.3), Mesh(machine(), 30, 1)
    for phase, kernel in (("forward", "ws_forward"), ("gradient", "ws_gradient")):
        got = run(kernel, inputs=90, outputs=128, tokens=tokens, width=30, height=1, density=0.3)["cycles"]
        assert getattr(layer_costs, phase)(shape, tokens, mesh).busy == pytest.approx(got, rel=0.08), phase


def test_a_late_column_holds_up_rows_of_gradients():
    """Without that the model is an eighth too fast here: 160 columns, few of which have an entry in a row."""
    got = run("ws_gradient", inputs=512, outputs=256, tokens=16, width=160, height=1, density=0.2)["cycles"]
    cost = layer_costs.gradient(LayerShape(512, 256, 0.2), 16, Mesh(machine(), 160, 1))
    assert cost.busy == pytest.approx(got, rel=0.04)


def test_rows_that_are_not_followed_take_as_long(monkeypatch):
    shape, mesh = LayerShape(80, 900, 0.5), Mesh(machine(), 20, 4)
    phases = forward, gradient = layer_costs.forward, layer_costs.gradient
    every = [phase(shape, 64, mesh).busy for phase in phases]
    monkeypatch.setattr(layer_costs, "FOLLOWED", 300)
    assert [forward(shape, 64, mesh).busy, gradient(shape, 64, mesh).busy] == pytest.approx(every, rel=0.03)


def test_layers_that_are_alike_are_followed_once():
    """Three blocks of two layers take three times what a block takes, but for the first and the last layer."""
    mesh = Mesh(machine(), 4, 4)
    block = [LayerShape(32, 48, activation="relu", bias=True), LayerShape(48, 32, norm=True, bias=True)]
    followed = layer_costs.phases(block * 6, 32, mesh)
    alike = {(one.phase, one.cost) for one in followed if one.layer in (3, 5, 7, 9)}
    assert len(alike) == 3
    every = layer_costs._followed(
        (*block * 6,), (None, *(below.activation != "none" for below in (block * 6)[:-1])), 8, mesh, "pairs"
    )
    assert sum(one.cost.busy for one in followed) == pytest.approx(sum(cost.busy for cost in every.values()), rel=0.01)


@pytest.mark.parametrize("seed", seeds(20))
def test_what_is_followed_is_what_is_written(seed):
    """Every word that a wafer gets and every number that it gives is in a phase, and none twice."""
    system, _ = drawn(seed)
    for matrix in system.coordinator.matrices:
        matrix.gradient_pattern = None
    masks = [
        matrix.pattern.mask()[:, : layer.inputs]
        for matrix, layer in zip(system.coordinator.matrices, system.network.layers, strict=True)
    ]
    resident, script = system.resident, system.coordinator.script("train")
    mesh = Mesh(machine(), resident.width, resident.height)
    followed = layer_costs.phases(shapes_of(system.network, masks), resident.samples, mesh, resident.form)
    assert sum(one.cost.words for one in followed) == script.n_words
    assert sum(one.cost.numbers for one in followed) == len(script.back)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="no density"):
        LayerShape(2, 2, 1.5)
    with pytest.raises(ConfigError, match="0 to 4 features"):
        LayerShape(0, 4)
    with pytest.raises(ConfigError, match="do not fit the wafer"):
        Mesh(machine(), 10_000, 4)
    assert Mesh(machine()).width == machine()["fabric.width"]
