"""What tests of training work in."""

from __future__ import annotations

import math

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def any_host(monkeypatch):
    """What a run says when much time is left depends on the host, and of masks on its length; tests read the rest."""
    monkeypatch.setattr("harness.cli.train_run.LONG", math.inf)
    monkeypatch.setattr("harness.cli.cmd_train.LASTING", math.inf)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory to work in, with a small separable problem."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 100)
    samples = rng.standard_normal((4, 12))[labels] + 0.3 * rng.standard_normal((100, 12))
    np.savez(tmp_path / "blobs.npz", x_train=samples[:80], y_train=labels[:80], x_test=samples[80:], y_test=labels[80:])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ids(tmp_path, monkeypatch):
    """A directory to work in, with sequences of four of five tokens, one of three labels each."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = {f"x_{name}": rng.integers(0, 5, (8, 4)) for name in ("train", "test")}
    np.savez("ids.npz", **x, **{f"y_{name}": rng.integers(0, 3, (8, 4)) for name in ("train", "test")})
    return tmp_path


@pytest.fixture
def short_search(monkeypatch):
    """A placement that is found soon, for tests that ask for no good one; `test_placement.py` does."""
    monkeypatch.setattr("harness.place.network.ROUNDS", 1)
