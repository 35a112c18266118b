"""Sliding: never longer wires, never an overlap, and as short as trying every place where that is possible."""

from __future__ import annotations

import itertools
import sys
from random import Random

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from harness.place.wiring import shortened, wire_of
from tests.examples import examples
from tests.harness.place.exhaustive import free
from wse_core.errors import ConfigError


def scattered(count, random, width, height):
    """Return corners and sizes of rectangles that do not overlap."""
    placed = []
    while len(placed) < count:
        w, h = random.randrange(1, 5), random.randrange(1, 5)
        new = (random.randrange(width - w + 1), random.randrange(height - h + 1), w, h)
        if free(new, placed):
            placed.append(new)
    found = np.array(placed)
    return found[:, :2], found[:, 2:]


def apart(corners, sizes):
    """Whether no two overlap."""
    whole = [tuple(row) for row in np.hstack([corners, sizes]).tolist()]
    return all(free(a, [b]) for a, b in itertools.combinations(whole, 2))


@examples(40)
@given(st.integers(2, 9), st.integers(0, 10**9))
def test_wires_never_get_longer(count, seed):
    random = Random(seed)
    corners, sizes = scattered(count, random, 24, 20)
    wires = [tuple(random.sample(range(count), 2)) for _ in range(random.randrange(1, 2 * count))]
    new = shortened(corners, sizes, wires, (24, 20))
    assert apart(new, sizes)
    assert (new >= 0).all()
    assert (new + sizes <= (24, 20)).all()
    assert wire_of(new, sizes, wires) <= wire_of(corners, sizes, wires)
    assert new.dtype == corners.dtype


@examples(25)
@given(st.integers(0, 10**9))
def test_two_come_as_close_as_they_can(seed):
    """Nothing is in the way: sides touch, and centres differ by less than a PE otherwise."""
    random = Random(seed)
    corners, sizes = scattered(2, random, 20, 20)
    new = shortened(corners, sizes, [(0, 1)], (20, 20))
    (w, h), (v, u) = sizes
    # One beside the other or one above the other: on which axis depends on where they were.
    assert wire_of(new, sizes, [(0, 1)]) in ((w + v) / 2 + abs(h - u) % 2 / 2, (h + u) / 2 + abs(w - v) % 2 / 2)


def test_length_of_wires():
    corners, sizes = np.array([[0, 0], [10, 5]]), np.array([[3, 2], [4, 4]])
    assert wire_of(corners, sizes, [(0, 1), (0, 1)]) == 2 * (10.5 + 6)
    assert wire_of(corners, sizes, []) == 0
    assert shortened(corners, sizes, [], (20, 20)).tolist() == corners.tolist()


def test_without_the_library_one_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigError, match=r"needs scipy.*pip install 'wse-sim\[place\]'"):
        shortened(np.zeros((2, 2), int), np.ones((2, 2), int), [(0, 1)], (9, 9))
