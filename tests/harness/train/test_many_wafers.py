"""What a run says about its time and bytes, and runs of as many wafers as a cluster has."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.config import TrainConfig
from harness.train.trainer import Trainer
from tests.harness.train import blobs

SIXTY_FOUR = """
wafers = 64
[network]
inputs = 12
layers = [{outputs = 6, activation = "relu"}, {outputs = 4}]
[data]
source = "blobs.npz"
batch = 64
[mesh]
width = 2
height = 1
[train]
iterations = 3
"""


def test_sixty_four_wafers_train_cycle_by_cycle(folder, capsys):
    """One sample each: bit for bit as numpy, the bytes of one wafer, three levels of nodes in the round trip."""
    (folder / "many.toml").write_text(SIXTY_FOUR)
    status, result, err = blobs.run(capsys, "many.toml --iterations 3 --compare 3 --out many")
    assert (status, result["wafers"], result["bit_exact"]) == (0, 64, True), err
    status, one, _ = blobs.run(capsys, "many.toml --iterations 3 --wafers 1 --out one")
    # Whether rows of gradients are made from a copy depends on the samples of a PE: a command per column and matrix.
    down = {name: count for name, count in result["traffic_bytes"].items() if name not in ("losses", "commands")}
    assert down == {name: one["traffic_bytes"][name] for name in down}
    more = one["traffic_bytes"]["commands"] - result["traffic_bytes"]["commands"]
    assert 0 <= more <= 3 * 4 * 2 * 2
    assert result["traffic_bytes"]["losses"] == one["traffic_bytes"]["losses"]
    assert result["loss"] == pytest.approx(one["loss"], rel=1e-3)
    # Nothing of so short a pass is hidden: the round trip through three levels, there and back, and the update.
    trip = 0.85 * (3 * 1000 + 10_000 + 3 * 1000)
    lines = blobs.lines("many")
    for row in lines[1:]:
        assert trip < row["cycles"] < trip + sum(row["stages"].values())
    assert result["bottleneck"] == "round trip"
    assert result["would_save"]["no latency"] * lines[-1]["cycles"] == pytest.approx(trip, rel=0.1)


def test_stages_are_the_time_of_a_pass_and_bytes_those_of_its_words():
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((8, 12)), rng.integers(0, 4, 8)) for _ in range(2)]
    layers = [{"outputs": 10, "activation": "relu", "norm": True}, {"outputs": 4, "density": 0.5}]
    run = Trainer(
        TrainConfig.of(
            wafers=2,
            network={"inputs": 12, "layers": layers},
            data={"batch": 8},
            mesh={"width": 3, "height": 2},
            train={"iterations": 2},
        ),
        data=data,
    )
    for _ in range(2):
        step = run.step()
        assert list(step.stages) == [label for label, _ in run.system.coordinator.script("train").phases]
        last = max(port.ended - np.nanmin(port.entered) for port in run.system.ports)
        assert sum(step.stages.values()) == last
        assert all(cycles > 0 for cycles in step.stages.values())
        longest = {layer: step.stages[f"gradients, layer {layer}"] for layer in (1, 2)}
        assert longest[1] > 1.5 * longest[2] > 0  # ten rows of 13, four of 6
    down = {name: count for name, count in step.traffic.items() if name not in ("gradients", "losses", "samples")}
    assert sum(down.values()) == 4 * step.words
    assert step.traffic["gradients"] + step.traffic["losses"] == 4 * step.gradient_words
    assert step.traffic["losses"] == 4 * 3
    assert step.traffic["samples"] == 2 * 8 * 12
    script = run.system.coordinator.script("train")
    names = {False: 0, True: 0}
    for _, control in run.system.coordinator.streams("train"):
        names = {key: names[key] + int((control == key).sum()) for key in names}
    assert step.traffic["weights"] > 4 * names[False]  # those that commands carry too
    assert script.stretch.max() == len(script.phases) - 1
    shares = run.utilisation()
    assert len(shares) == 3
    assert all(0 < share < 1 for share in shares)


def test_columns_are_at_work_in_the_cycles_in_which_they_do_not_wait():
    """By column of PEs, from what they wait for; the column with most of the features has most to do."""
    rng = np.random.default_rng(1)
    run = Trainer(
        TrainConfig.of(
            wafers=2,
            network={"inputs": 21, "layers": [{"outputs": 12, "activation": "relu"}, {"outputs": 3}]},
            data={"batch": 8},
            mesh={"width": 4, "height": 2},
            train={"iterations": 2},
        ),
        data=[(rng.standard_normal((8, 21)), rng.integers(0, 3, 8)) for _ in range(2)],
    )
    for _ in range(2):
        run.step()
    fabric, shares = run.system.ports[0].wafer.fabric, run.utilisation()
    counters = fabric.counters()
    waits = sum(counters[name] for name in counters if name == "idle" or name.startswith("stall"))
    assert shares == pytest.approx(1 - waits.mean(axis=0) / fabric.cycle)
    features = run.system.resident.plan.layouts[0].counts
    assert max(features) > min(features)
    assert np.argmax(shares) in np.flatnonzero(features == max(features))
    assert 0.1 < min(shares) < max(shares) < 1
