"""Host speed of the matrix products, and what `make bench` writes about them: hops and multiply-adds per second.

Each run is checked: bits against the order-aware reference (calculated once), hops and multiply-adds against closed
forms, cycles between the lower bound and the formula of the algorithm.
"""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fabric.kernels.gemm import ALGORITHMS, make
from tests.bench.test_speed import bench
from tests.bench.workloads import Sample
from wse_core.params import machine


def product_workload(name, p, tile):
    """Return a workload for `measure.Rate`: a product of p x p tiles of f16 with sums in f32."""
    size = p * tile
    product = make(name, machine(), p, p, size, size, size, "f16")
    rng = np.random.default_rng(7)
    a, b = product.given.random(rng, (size, size)), product.given.random(rng, (size, size))
    expected = product.reference(a, b)
    work = {"hops": product.hops, "macs": product.macs}  # in a run

    def run(warm=0):
        session, c = product.run(a, b)
        assert np.array_equal(c, expected)
        assert session.run.wavelet_hops == product.hops
        assert session.run.macs == product.macs
        assert product.lower_bound < session.run.cycles < 1.1 * product.expected() + 100
        return Sample(session.run.host_seconds, session.run.cycles, work)

    return SimpleNamespace(name=f"{name} {p}x{p}", work=work, run=run)


@pytest.mark.parametrize(("name", "p", "tile", "rounds", "most"), [
    *((name, 32, 8, 3, 2000) for name in (*ALGORITHMS, "gemm_t")),
    *((name, 128, 2, 1, 8000) for name in ("summa", "meshgemm")),
])
def test_speed_of_products(benchmark, name, p, tile, rounds, most):
    """A hop, with the products, tasks and instructions that belong to it, costs at most `most` yardsticks."""
    assert bench(benchmark, product_workload(name, p, tile), rounds=rounds).ratio("hops") < most
