"""The oracle of a streamed network stands on arrays alone: no memory service, no stream, no wafer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.streamed.oracle.walk import StreamedOracle
from wse_core.params import machine


def test_arrays_are_enough():
    """Logits, loss and gradients agree with float64 within what 16-bit numbers allow, in any order of the weights."""
    network = Network.dense((6, 5, 3), "relu")
    oracle = StreamedOracle(network, machine(), 2, 2, 8)
    rng = np.random.default_rng(4)
    matrices, weights = [], []
    for layer in network.layers:
        places = np.argwhere(rng.random(layer.shape) < 0.7)
        rng.shuffle(places)
        bits = oracle.half.encode(rng.standard_normal(len(places)))
        matrix = np.zeros(layer.shape)
        matrix[tuple(places.T)] = oracle.half.decode(bits)
        matrices.append(matrix)
        asked = np.argwhere(np.ones(layer.shape))
        given, wanted = (SimpleNamespace(rows=at[:, 0], indices=at[:, 1]) for at in (places, asked))
        weights.append(SimpleNamespace(values=bits, pattern=given, gradient_pattern=wanted))
    inputs = oracle.half.encode(rng.standard_normal((6, 8)))
    wanted = np.eye(3)[rng.integers(0, 3, 8)].T

    logits = oracle.half.decode(oracle.forward(inputs, weights))
    one = np.ones((1, 8))
    x = np.concatenate([oracle.half.decode(inputs), one])
    hidden = np.concatenate([np.maximum(matrices[0] @ x, 0), one])
    plain = matrices[1] @ hidden
    assert np.allclose(logits, plain, atol=0.02)

    losses, delta = oracle.loss(oracle.half.encode(wanted), 1.0)
    share = np.exp(plain) / np.exp(plain).sum(axis=0)
    assert np.isclose(losses.view(np.float32).sum(), -np.log(share[wanted > 0]).sum(), rtol=0.01)
    assert np.allclose(oracle.half.decode(delta), share - wanted, atol=0.01)

    first, second = oracle.backward(delta)
    assert np.allclose(second.view(np.float32).reshape(3, 6), (share - wanted) @ hidden.T, atol=0.05)
    below = (matrices[1][:, :5].T @ (share - wanted)) * (hidden[:5] > 0)
    assert np.allclose(first.view(np.float32).reshape(5, 7), below @ x.T, atol=0.05)
