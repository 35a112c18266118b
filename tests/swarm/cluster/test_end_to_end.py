"""The layer-level model against a whole iteration on a cycle-level wafer."""

from __future__ import annotations

import pytest

from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh, shapes_of
from swarm.cluster.timeline import iteration
from swarm.timing import Links
from tests.fabric.networks import Case
from wse_core.params import machine


@pytest.mark.parametrize(
    ("features", "width", "height", "tokens", "density", "options", "tolerance"),
    [
        ((64, 48, 10), 4, 4, 8, 1.0, {"activation": "none", "bias": False}, 0.01),
        ((128, 96, 64, 10), 4, 2, 16, 1.0, {"activation": "none", "bias": False}, 0.01),
        ((128, 96, 64, 10), 4, 2, 16, 0.25, {"activation": "none", "bias": False}, 0.01),
        ((160, 96, 10), 8, 2, 8, 0.5, {"activation": "relu"}, 0.01),
        ((96, 40, 10), 1, 3, 12, 1.0, {"activation": "gelu", "norm": True, "form": "pairs"}, 0.01),
        ((48, 40, 24, 10), 6, 1, 5, 1.0, {"activation": "relu", "norm": True, "form": "pairs"}, 0.01),
        ((64, 48, 10), 4, 32, 2, 1.0, {"activation": "gelu", "form": "pairs"}, 0.01),
        ((61, 47, 10), 5, 2, 3, 0.5, {"activation": "relu", "form": "both"}, 0.02),
        ((61, 47, 10), 5, 2, 3, 0.97, {"activation": "relu", "form": "both"}, 0.02),
        ((61, 47, 10), 5, 2, 3, 0.6, {"activation": "relu", "form": "pairs"}, 0.02),
    ],
)
def test_an_iteration_takes_what_the_wafer_takes(features, width, height, tokens, density, options, tolerance):
    """The sum of all phases, and when the last gradient of each layer leaves."""
    case = Case(features, width, height, tokens, density=density, **options)
    passed, _ = case.train()
    script, leaves = case.coordinator.script("train"), {}
    for places, times in zip(script.places, passed.times, strict=True):
        for number in range(len(features) - 1):
            mine = times[(places >= script.offsets[number]) & (places < script.offsets[number + 1])]
            leaves[number + 1] = max(leaves.get(number + 1, 0), int(mine.max(initial=0)))
    numbers = {"links": Links(latency=0), "update_latency": 0, "form": case.resident.form}
    cluster = Cluster(mesh=Mesh(machine(), width, height), **numbers)
    hertz = cluster.mesh.hertz
    masks = [
        one.pattern.mask()[:, : layer.inputs] for layer, one in zip(case.network.layers, case.matrices, strict=True)
    ]
    layers = shapes_of(case.network, masks)
    timeline = iteration(layers, tokens * height, cluster)
    edges = timeline.edges - cluster.load(features[0], tokens * height)
    assert (timeline.busy["compute"] + edges) * hertz == pytest.approx(passed.cycles, rel=tolerance)
    begin = timeline.of("compute")[0].start
    for layer, cycles in leaves.items():
        span = next(s for s in timeline.of("compute", "gradient") if s.layer == layer)
        assert (span.end - begin + edges) * hertz == pytest.approx(cycles, abs=tolerance * passed.cycles), layer
