"""One clock over memory service, tree and wafers."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.optimizer import SGD
from memx.tiers import Tier, Tiers
from swarm.cluster import layer_costs
from swarm.cluster import timeline as events
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import LayerShape, Mesh, shapes_of
from swarm.cluster.timeline import iteration, round_trip
from swarm.timing import Links
from tests.examples import examples
from tests.fabric.networks import Case
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine

MESH = Mesh(machine(), 4, 4)
LAYERS = (LayerShape(64, 48), LayerShape(48, 40), LayerShape(40, 10))
"""Less than `events.FINE` rows in the first layer: its parts are rows."""


def layer_time(layer, tokens, cluster):
    """Return (seconds of a layer's gradient, of one row of it)."""
    cost = layer_costs.gradient(layer, tokens, cluster.mesh)
    return cost.busy / cluster.mesh.hertz, cost.busy / cluster.mesh.hertz / cost.rows


# --- order and overlap ------------------------------------------------------------------------------------------------


def test_layers_run_forward_then_backward():
    """FC-MNIST-shaped: three steps forward, three back, the first layer without gradients of its inputs."""
    timeline = iteration(LAYERS, 64, Cluster(mesh=MESH))
    assert [(s.phase, s.layer) for s in timeline.of("compute")] == [
        ("forward", 1),
        ("forward", 2),
        ("forward", 3),
        ("loss", 3),
        ("backward", 3),
        ("gradient", 3),
        ("backward", 2),
        ("gradient", 2),
        ("gradient", 1),
    ]
    assert [s.layer for s in timeline.of("update")] == [3, 2, 1]
    assert [(s.phase, s.layer) for s in timeline.of("stream")] == [(s.phase, s.layer) for s in timeline.of("compute")]


def test_stream_receipt_and_update_overlap():
    """The backward stream of a layer begins before the gradients of the layer above have been received."""
    timeline = iteration(LAYERS, 64, Cluster(mesh=MESH))
    for layer in (1, 2):
        streamed = next(s for s in timeline.of("stream", "backward" if layer > 1 else "gradient") if s.layer == layer)
        above = {
            kind: next(s for s in timeline.of(kind, "gradient") if s.layer == layer + 1)
            for kind in ("receive", "update")
        }
        assert streamed.start < above["receive"].end
        assert above["update"].start < above["receive"].end
        received = next(s for s in timeline.of("receive") if s.layer == layer)
        updated = next(s for s in timeline.of("update") if s.layer == layer)
        part = updated.busy / min(LAYERS[layer - 1].outputs, events.FINE if layer == 1 else events.COARSE)
        assert updated.end - received.end == pytest.approx(part)  # one part behind the last gradient


def test_wafers_wait_at_the_boundary_only():
    timeline = iteration(LAYERS, 64, Cluster(mesh=MESH, update_latency=1e-3))
    assert timeline.idle > 0
    assert timeline.lost > timeline.idle  # updated weights come at the pace of their gradients
    assert all(seconds == 0 for (phase, layer), seconds in timeline.waits.items() if (phase, layer) != ("forward", 1))
    waited = timeline.idle + sum(timeline.waits.values())
    assert timeline.seconds == pytest.approx(timeline.edges + waited + timeline.busy["compute"])


def test_a_slow_link_is_waited_for():
    """Fewer planes: weights come more slowly, in proportion, and the report says what holds everything up."""
    slow = [iteration(LAYERS, 64, Cluster(mesh=MESH, links=Links(planes=1, rate=rate))) for rate in (4e8, 2e8)]
    assert [timeline.bottleneck for timeline in slow] == ["receive", "receive"]  # no backward stream for layer 1
    assert slow[1].busy["stream"] == pytest.approx(2 * slow[0].busy["stream"])
    assert slow[1].seconds == pytest.approx(2 * slow[0].seconds, rel=0.15)
    two = iteration(LAYERS, 64, Cluster(mesh=MESH, links=Links(planes=2, rate=2e8)))
    assert two.busy["stream"] == pytest.approx(slow[0].busy["stream"])


def test_updates_must_keep_up():
    """White paper, section 6.3: slower than the stream they are the bottleneck; a larger batch does not change them."""
    rate = 2e8
    links = Links(planes=1, rate=8 * rate)
    slow = Cluster(mesh=MESH, links=links, update_rate=rate / 2 / 16)
    timeline = iteration(LAYERS, 16, slow)
    assert timeline.bottleneck == "update"
    assert timeline.seconds >= timeline.busy["update"]
    assert iteration(LAYERS, 32, slow).busy["update"] == pytest.approx(timeline.busy["update"])
    assert iteration(LAYERS, 16, replace(slow, update_rate=75e9)).bottleneck != "update"


# --- boundary ---------------------------------------------------------------------------------------------------------


@examples(20)
@given(
    systems=st.sampled_from([1, 2, 4, 5, 16, 64]),
    latency=st.floats(0, 4e-4),
    node=st.floats(0, 1e-4),
    outputs=st.integers(2, events.FINE),
    tokens=st.integers(4, 64),
)
def test_boundary_idle_is_what_layer_1_does_not_hide(systems, latency, node, outputs, tokens):
    """max(0, round trip - time of layer 1's gradients), to one row; in all, what its shorter pass does not hide."""
    layers = (LayerShape(64, outputs), LayerShape(outputs, 10))
    cluster = Cluster(systems, MESH, Links(latency=node), update_latency=latency)
    timeline = iteration(layers, tokens * systems, cluster)
    hidden, row = layer_time(layers[0], tokens, cluster)
    wanted = max(0.0, round_trip(layers[0], tokens, cluster) - hidden)
    assert abs(timeline.idle - wanted) <= row * 1.001
    used = layer_costs.forward(layers[0], tokens, cluster.mesh).busy / cluster.mesh.hertz
    lost = max(0.0, round_trip(layers[0], tokens, cluster) - min(used, hidden))
    assert abs(timeline.lost - lost) <= row * 1.001


@pytest.mark.parametrize("latency", [1e-6, 3e-5, 1e-3])
def test_rows_last_to_first_hide_nothing(latency):
    """Gradients in another order than the stream's: the whole round trip is waited for."""
    cluster = Cluster(4, MESH, update_latency=latency, reversed_gradients=True)
    timeline = iteration(LAYERS, 64 * 4, cluster)
    assert timeline.idle + timeline.edges == pytest.approx(round_trip(LAYERS[0], 64, cluster), rel=1e-6)
    assert timeline.idle >= iteration(LAYERS, 64 * 4, replace(cluster, reversed_gradients=False)).idle


# --- systems ----------------------------------------------------------------------------------------------------------


def test_bytes_of_the_memory_service_do_not_depend_on_systems():
    found = {
        (t.bytes_out, t.bytes_back) for t in (iteration(LAYERS, 64 * n, Cluster(n, MESH)) for n in (1, 2, 4, 8, 64))
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("width", "norm", "activation", "bias", "density", "form"),
    [
        (1, True, "relu", True, 1.0, "steps"),
        (2, False, "none", False, 1.0, "pairs"),
        (5, True, "relu", True, 1.0, "pairs"),
        (5, True, "gelu", True, 0.3, "steps"),
        (4, False, "relu", True, 0.3, "both"),
    ],
)
def test_words_are_those_of_the_coordinator(width, norm, activation, bias, density, form):
    """Every weight, request and command that goes out, and every number that comes back."""
    case = Case((24, 20, 9, 5), width, 2, 2, activation, norm, bias, density, form=form)
    masks = [
        one.pattern.mask()[:, : layer.inputs] for layer, one in zip(case.network.layers, case.matrices, strict=True)
    ]
    timeline = iteration(
        shapes_of(case.network, masks), 4, Cluster(mesh=Mesh(machine(), width, 2), form=case.resident.form)
    )
    script = case.coordinator.script("train")
    assert timeline.bytes_out == pytest.approx(4 * script.n_words)
    assert timeline.bytes_back == pytest.approx(4 * len(script.back))


@pytest.mark.parametrize("systems", [5, 9, 17])
def test_one_wafer_of_each_depth_stands_for_all(systems, monkeypatch):
    """A tree that is not full: simulating every wafer gives the same clock."""
    cluster = Cluster(systems, MESH, Links(latency=3e-5))
    few = iteration(LAYERS, 64 * systems, cluster)
    assert 1 < len(cluster.latencies) < systems
    from swarm.tree import levels

    monkeypatch.setattr(
        Cluster,
        "latencies",
        property(lambda self: tuple(sorted(depth * self.links.latency for depth in levels(self.systems)))),
    )
    every = iteration(LAYERS, 64 * systems, cluster)
    assert every.seconds == pytest.approx(few.seconds)
    assert every.idle == pytest.approx(few.idle)


def test_runs_repeat():
    timelines = [iteration(LAYERS, 192, Cluster(3, MESH)) for _ in range(2)]
    assert timelines[0] == timelines[1]


def test_every_system_gets_the_same_plan():
    """Strict data parallel: what a wafer does depends on its share of the batch, not on how many there are."""
    plans = [events.jobs(LAYERS, 64, Cluster(n, MESH)) for n in (1, 2, 4, 8, 64)]
    assert all(plan == plans[0] for plan in plans)
    other = events.jobs(LAYERS, 128, Cluster(4, MESH))
    assert [(job.phase, job.layer, job.size) for job in other] == [(job.phase, job.layer, job.size) for job in plans[0]]
    assert all(more.busy > job.busy for more, job in zip(other, plans[0], strict=True))


def test_updates_of_an_iteration_come_before_the_next_one_streams():
    """Iteration t + 1 uses the weights that t updated, row by row: the last layers' updates are long over."""
    timeline = iteration(LAYERS, 64, Cluster(mesh=MESH, update_latency=2e-5), iterations=3)
    when = {(s.iteration, s.kind, s.phase, s.layer): s for s in timeline.spans}
    for turn in (1, 2):
        for layer in (1, 2, 3):
            updated, streamed = when[turn - 1, "update", "gradient", layer], when[turn, "stream", "forward", layer]
            assert streamed.start >= updated.start + 2e-5
            assert streamed.end >= updated.end + 2e-5


# --- sparsity ---------------------------------------------------------------------------------------------------------


def test_all_four_phases_follow_the_nonzeros():
    """Activations, their gradients, gradients of weights, updates: time in proportion, for layers that stream."""
    cluster = Cluster(mesh=Mesh(machine(), 2, 2), form="steps")
    found = {}
    for density in (1.0, 0.5, 0.25, 0.1):
        timeline = iteration((LayerShape(2600, 2600, density), LayerShape(2600, 2600, density)), 32, cluster)
        found[density] = [
            sum(s.busy for s in timeline.of(kind, phase))
            for kind, phase in (
                ("compute", "forward"),
                ("compute", "backward"),
                ("compute", "gradient"),
                ("update", None),
            )
        ]
    for density in (0.5, 0.25, 0.1):
        for phase, dense in zip(found[density], found[1.0], strict=True):
            assert phase / dense == pytest.approx(density, rel=0.1)


# --- flash ------------------------------------------------------------------------------------------------------------


def test_flash_hides_behind_the_stream_or_stalls_by_its_deficit():
    layers = (LayerShape(64, 64),) * 8
    parameters = 8 * 64 * 64
    in_dram = iteration(layers, 64, Cluster(mesh=MESH))
    assert in_dram.busy["flash read"] == 0

    def with_flash(rate):
        tiers = Tiers(dram_bytes=parameters * 20 / 4, behind=(Tier("flash", 1e9, rate),))
        return iteration(layers, 64, Cluster(mesh=MESH, tiers=tiers), iterations=3)

    fast, slow = with_flash(150e9), with_flash(2e8)
    assert fast.seconds == pytest.approx(in_dram.seconds, rel=1e-3)
    assert 0 < fast.busy["flash read"] < fast.seconds
    assert slow.bottleneck == "flash read"
    assert slow.seconds == pytest.approx(slow.busy["flash read"], rel=0.25)
    assert slow.seconds > in_dram.seconds
    # seven layers are not kept: weights twice, without indices, and the state of weights and two momenta
    assert fast.busy["flash read"] * 150e9 == pytest.approx(7 * 64 * 64 * (2 + 2 + 12))


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="do not divide over 3 systems"):
        iteration(LAYERS, 64, Cluster(3, MESH))
    with pytest.raises(ConfigError, match="without layers"):
        iteration((), 64, Cluster(mesh=MESH))
    with pytest.raises(ConfigError, match="without systems"):
        Cluster(0)
    with pytest.raises(ConfigError, match="no boundary"):
        iteration(LAYERS, 64, Cluster(mesh=MESH), iterations=1)
    with pytest.raises(ConfigError, match="update_rate"):
        Cluster(update_rate=0)
    small = Cluster(mesh=MESH, tiers=Tiers(behind=(Tier("flash", 1000, 1),)), optimizer=SGD())
    with pytest.raises(ConfigError, match=r"64,704 bytes.* 1,000"):
        iteration(LAYERS, 64, small)


def test_without_simpy_one_clear_message(monkeypatch):
    real = importlib.import_module
    monkeypatch.setattr(
        importlib,
        "import_module",
        lambda name, *rest: (_ for _ in ()).throw(ImportError(name)) if name == "simpy" else real(name, *rest),
    )
    with pytest.raises(UnsupportedError, match=r"SimPy, which is not installed.*wse-sim\[plan\]"):
        iteration(LAYERS, 64, Cluster(mesh=MESH))
