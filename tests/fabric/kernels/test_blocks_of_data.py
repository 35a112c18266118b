"""Data of kernels are drawn, written and compared by blocks; the blocks change nothing."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fabric.kernels.collectives import allreduce, reduce
from fabric.kernels.kit import check
from fabric.kernels.matvec import gemv as module
from fabric.kernels.registry import KERNELS
from wse_core import formats
from wse_core.formats import Arithmetic
from wse_core.params import machine


@pytest.mark.parametrize("fmt", ["f16", "cb16", "f32"])
@pytest.mark.parametrize("data", ["normal", "special"])
def test_random_data_do_not_depend_on_the_block(fmt, data, monkeypatch):
    arithmetic = Arithmetic.of(machine(), fmt)
    whole = arithmetic.random(np.random.default_rng(4), (37, 11), data)
    monkeypatch.setattr(formats, "BLOCK", 10)
    assert np.array_equal(arithmetic.random(np.random.default_rng(4), (37, 11), data), whole)


@pytest.mark.parametrize("fmt", ["f16", "f32"])
@pytest.mark.parametrize("data", ["normal", "special", "ones"])
@pytest.mark.parametrize("many", [1, 1 << 25])
def test_rows_drawn_as_they_are_asked_for_are_those_of_the_matrix(fmt, data, many, monkeypatch):
    monkeypatch.setattr(formats, "BLOCK", 50)
    monkeypatch.setattr(formats, "MANY", many)
    arithmetic = Arithmetic.of(machine(), fmt)
    for height, width, rows in ((37, 11, 5), (10, 20, 5), (4, 300, 1), (3, 7, 9)):
        rng, other = np.random.default_rng(4), np.random.default_rng(4)
        whole = arithmetic.random(rng, (height, width), data)
        bands = [band.copy() for band in arithmetic.random_rows(other, (height, width), rows, data)]
        assert [len(band) for band in bands] == [min(rows, height - y) for y in range(0, height, rows)]
        assert np.array_equal(np.concatenate(bands), whole)
        assert rng.random() == other.random()  # what is drawn next is the same too


def test_random_data_need_little_more_than_their_bits():
    arithmetic = Arithmetic.of(machine(), "f16")
    tracemalloc.start()
    try:
        bits = arithmetic.random(np.random.default_rng(0), (1 << 12, 1 << 12))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * bits.nbytes


@pytest.mark.parametrize("algorithm", ["ktree", "ring"])
def test_a_matrix_written_and_compared_by_bands_gives_the_same(algorithm, monkeypatch):
    values = {"p": 3, "height": 5, "m": 47, "n": 20, "algorithm": algorithm}
    whole = KERNELS["gemv"].run(machine(), **values)
    monkeypatch.setattr(module, "ELEMENTS", 2 * 10 * 21)  # bands of two rows of PEs, and a last one of one
    bands = KERNELS["gemv"].run(machine(), **values)
    assert bands["verified"]
    for key in ("cycles", "wavelet_hops", "macs", "n_results", "n_bounded"):
        assert bands[key] == whole[key]
    assert bands["max_abs_error"] == pytest.approx(whole["max_abs_error"], rel=1e-6)
    assert np.array_equal(bands["arrays"]["y"], whole["arrays"]["y"])


@pytest.mark.parametrize("form", ["row", "column", "xy", "snake"])
@pytest.mark.parametrize("name", ["reduce", "allreduce"])
def test_sums_compared_by_rows_give_the_same(name, form, monkeypatch):
    values = {"form": form, "width": 7, "height": 5, "n": 3, "dtype": "f16"}
    whole = KERNELS[name].run(machine(), **values)
    monkeypatch.setattr(reduce, "BLOCK", 50)  # two rows of the five
    monkeypatch.setattr(check, "BLOCK", 10)
    monkeypatch.setattr(allreduce, "BLOCK", 50)
    monkeypatch.setattr(allreduce, "FEW", 0)  # results are read back by rows
    parts = KERNELS[name].run(machine(), **values)
    assert parts["verified"]
    for key in ("cycles", "wavelet_hops", "n_results", "n_bounded"):
        assert parts[key] == whole[key]
    for key in ("max_abs_error", "max_bound"):
        assert parts[key] == pytest.approx(whole[key], rel=1e-6)
