"""Streams, programs, addresses, cycles, numbers and weights of random networks are those that were written down once.

`networks.json` holds digests by the seed of a network: a change of form leaves them alone.  A change of behaviour is
declared, and then ``python -m tests.fabric.networks.streamed.test_digests`` writes them anew.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fabric.networks.graph.network import Layer, Network
from memx.optimizer import make_optimizer
from memx.parameter import Parameter
from memx.pattern import Pattern
from swarm.cluster.layer_costs import phases
from swarm.cluster.shapes import Mesh, shapes_of
from swarm.system import System
from tests.examples import seeds
from tests.fabric.networks.digests import digest, held, of_layout
from wse_core.formats import Arithmetic
from wse_core.params import machine

FILE = Path(__file__).with_name("networks.json")
COUNT = 40
MACHINE = machine("wse2")


def drawn(seed):
    """Return (system, shards) of a number: network, mesh, wafers, form and weights."""
    rng = np.random.default_rng(seed)
    depth, most = int(rng.integers(1, 5)), int(rng.choice([9, 40, 130]))
    features = rng.integers(1, most + 1, depth + 1).tolist()
    names = ["none", "relu", "gelu"]
    layers = [
        Layer(n, m, str(rng.choice(names)), bool(rng.integers(2)), bool(rng.integers(2)))
        for n, m in pairwise(features[:-1])
    ]
    layers.append(Layer(*features[-2:], "none", bool(rng.integers(2))))
    network = Network.of(tuple(layers), str(rng.choice(["f16", "cb16"])))
    form = str(rng.choice(["steps", "pairs", "both"]))
    density = 1.0 if form == "pairs" else float(rng.choice([0.1, 0.3, 0.7, 1.0]))
    width, height = int(rng.integers(1, 8)), int(rng.integers(1, 6))
    wafers, tokens = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 3, 8]))
    matrices, norms = [], {}
    for k, layer in enumerate(layers):
        mask = rng.random((layer.outputs, layer.inputs)) < (density if form != "both" or k % 2 else 1.0)
        mask = np.concatenate([mask, np.ones((layer.outputs, int(layer.bias)), bool)], axis=1)
        weights = rng.standard_normal(mask.shape) / np.sqrt(layer.inputs)
        pattern = Pattern.of_mask(mask)
        matrices.append(Parameter(f"layer{k}", weights, network.dtype, pattern=pattern, slots=("m", "v")))
        if rng.random() < 0.2:
            matrices[-1].gradient_pattern = Pattern.random(mask.shape, 0.6, rng)
        if layer.norm:
            both = 1 + 0.3 * rng.standard_normal((2, layer.outputs))
            norms[k] = Parameter(f"norm{k}", both, network.dtype, slots=("m", "v"))
    batch = wafers * height * tokens
    system = System(network, matrices, norms, MACHINE, width, height, wafers, batch, form=form)
    half = Arithmetic.of(MACHINE, network.dtype)
    shards = []
    for _ in range(wafers):
        labels = np.eye(features[-1])[rng.integers(0, features[-1], batch // wafers)].T
        shards.append((half.encode(rng.standard_normal((features[0], batch // wafers))), half.encode(labels)))
    return system, shards


def streams(system, kind):
    """Return the digest of a script: words of all columns, their order, what they carry, what comes back."""
    script = system.coordinator.script(kind)
    words = [part for stream in system.coordinator.streams(kind, 4.0) for part in stream]
    order = [script.sequence, script.sources, script.seconds, script.back, script.asking, script.offsets]
    return digest(*words, *order, *script.places, script.phases, script.answers)


def recorded(seed):
    """Return the digests of a network."""
    system, shards = drawn(seed)
    parameters, adam = system.coordinator.parameters, make_optimizer("adam", lr=0.01)
    found = {kind: streams(system, kind) for kind in ("train", "test")}
    found["programs"] = of_layout(system.resident.layout)
    found["addresses"] = digest(system.resident.arrays, *(port.wafer.fabric.read("table") for port in system.ports[:1]))
    cycles, numbers = [], []
    for step in range(1, 4):
        done = system.train(shards, 4.0)
        cycles.append((done.total_cycles, done.load, done.boundary, sorted(done.stages.items())))
        numbers += [done.gradients.view(np.uint32), float(done.loss)]
        offset = 0
        for parameter in parameters:
            count = parameter.gradient_pattern.count
            parameter.update(adam, step, done.gradients[offset : offset + count] / np.float32(64))
            offset += count
    right, lasted = system.test(*(np.concatenate(part, axis=1) for part in zip(*shards, strict=True)))
    numbers.append(int(right))
    cycles.append(lasted)
    found |= {"cycles": digest(cycles), "numbers": digest(*numbers)}
    found["weights"] = digest(*(part for p in parameters for part in (p.dense, p.values)))
    found["layers"] = costs(system)
    return found


def costs(system):
    """Return the digest of what the layer model says of an iteration, to a thousandth of a cycle."""
    masks = []
    for matrix, layer in zip(system.coordinator.matrices, system.network.layers, strict=True):
        masks.append(matrix.pattern.mask()[:, : layer.inputs])
    mesh = Mesh(MACHINE, system.resident.width, system.resident.height)
    found = phases(shapes_of(system.network, masks), system.resident.samples, mesh, system.resident.form)
    rows = [(one.phase, one.layer, {k: round(v, 3) for k, v in vars(one.cost).items()}) for one in found]
    return digest(rows)


@pytest.mark.parametrize("seed", seeds(COUNT))
def test_a_network_is_what_it_was(seed):
    found = {str(seed): recorded(seed)}
    assert found == held(FILE, found)


if __name__ == "__main__":
    FILE.write_text(json.dumps({str(seed): recorded(seed) for seed in range(COUNT)}, indent=1) + "\n")
