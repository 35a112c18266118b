"""The layer-level model against a whole iteration on a cycle-level wafer."""

from __future__ import annotations

from itertools import pairwise

import pytest

from swarm.cluster.cluster import Cluster
from swarm.cluster.layer_costs import LayerShape, Mesh
from swarm.cluster.timeline import iteration
from tests.fabric.networks import Case
from wse_core.params import machine


@pytest.mark.parametrize(
    ("features", "width", "height", "tokens", "density", "tolerance"),
    [
        ((64, 48, 10), 4, 4, 8, 1.0, 0.07),
        ((128, 96, 64, 10), 4, 2, 16, 1.0, 0.03),
        ((128, 96, 64, 10), 4, 2, 16, 0.25, 0.07),
        ((160, 96, 10), 8, 2, 8, 0.5, 0.07),
        ((96, 40, 10), 1, 3, 12, 1.0, 0.04),
    ],
)
def test_an_iteration_takes_what_the_wafer_takes(features, width, height, tokens, density, tolerance):
    """Layers without bias and activation: the sum of all phases, and when the last gradient of each layer leaves.

    The loss is in the wafer's cycles only; it weighs in the smallest network.
    """
    case = Case(features, width, height, tokens, "none", bias=False, density=density)
    passed, _ = case.train()
    script, leaves = case.coordinator.script("train"), {}
    for places, times in zip(script.places, passed.times, strict=True):
        for number in range(len(features) - 1):
            mine = times[(places >= script.offsets[number]) & (places < script.offsets[number + 1])]
            leaves[number + 1] = max(leaves.get(number + 1, 0), int(mine.max(initial=0)))
    cluster = Cluster(mesh=Mesh(machine(), width, height))
    layers = [
        LayerShape(i, o, parameter.pattern.density)
        for (i, o), parameter in zip(pairwise(features), case.matrices, strict=True)
    ]
    timeline = iteration(layers, tokens * height, cluster)
    assert timeline.busy["compute"] * cluster.mesh.hertz == pytest.approx(passed.cycles, rel=tolerance)
    begin = timeline.of("compute")[0].start
    for layer, cycles in leaves.items():
        span = next(s for s in timeline.of("compute", "gradient") if s.layer == layer)
        assert (span.end - begin) * cluster.mesh.hertz == pytest.approx(cycles, abs=tolerance * passed.cycles), layer


def test_elementwise_work_is_left_out_and_small():
    """Biases count as an input; activations, slopes and the loss are what the model does not have."""
    features, width, height, tokens = (256, 96, 10), 2, 2, 16
    passed, _ = Case(features, width, height, tokens, "relu").train()
    mesh = Mesh(machine(), width, height)
    timeline = iteration([LayerShape(i + 1, o) for i, o in pairwise(features)], tokens * height, Cluster(mesh=mesh))
    ratio = timeline.busy["compute"] * mesh.hertz / passed.cycles
    assert 0.95 < ratio < 1.0
