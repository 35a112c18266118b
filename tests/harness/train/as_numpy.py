"""A training on wafers is held against the same one by numpy in the order of the wafers."""

from __future__ import annotations

import numpy as np


def trained_as_in_numpy(run, words):
    """Compare losses, scales, weights, statistics and what a test says, bit for bit; `run` gives (trainer, steps)."""
    (one, steps), (other, expected) = run(words), run(words, "numpy")
    assert [(step.loss, step.scale) for step in steps] == [(step.loss, step.scale) for step in expected]
    assert all(step.cycles > 0 for step in steps)
    for name, value in one.tensors().items():
        assert np.array_equal(value, other.tensors()[name]), name
    held = one.dataset.x_test[:9], one.dataset.y_test[:9]
    assert one.test(*held) == other.test(*held)
