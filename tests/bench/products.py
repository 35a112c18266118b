"""Matrix products as workloads: bits, hops, multiply-adds and cycles of each run are checked."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import numpy as np

from fabric.kernels.matmul.gemm import make
from fabric.kernels.matmul.problem import Problem
from tests.bench.workload import Sample
from wse_core.params import machine

__all__ = ["cost_of_product", "product_workload"]


def product_workload(name, p, tile, sums="f32"):
    """Return a workload for `measure.Rate`: a product of f16 matrices on p x p PEs.

    Parameters
    ----------
    name : str
        Of an algorithm of `fabric.kernels.matmul.gemm`.
    p : int
        PEs along each side.
    tile : tuple of int
        Rows of A, columns of A, columns of B on each PE.
    sums : {"f32", "same"}
    """
    m, k, n = (p * size for size in tile)
    product = make(name, machine(), Problem(p, p, m, k, n, "f16", sums))
    rng = np.random.default_rng(7)
    a = product.given.random(rng, (m, k))
    b = product.given.random(rng, (n, k) if name == "gemm_t" else (k, n))
    expected = product.reference(a, b)
    work = {"hops": product.hops, "macs": product.macs}  # in a run

    def run(warm=0):
        session, c = product.run(a, b)
        assert np.array_equal(c, expected)
        assert session.run.wavelet_hops == product.hops
        assert session.run.macs == product.macs
        assert product.lower_bound < session.run.cycles < 1.1 * product.expected() + 100
        return Sample(session.run.host_seconds, session.run.cycles, work)

    return SimpleNamespace(name=f"{name} {p}x{p} tiles {'x'.join(map(str, tile))}", work=work, run=run)


def cost_of_product(name, other, p, tile, rounds):
    """Return (CPU of an algorithm's simulation over that of another one's for the same product, ns of it per hop).

    The two run in turn; the first number is the median of the ratios of neighbours.
    """
    products = [make(each, machine(), Problem(p, p, *(p * size for size in tile))) for each in (name, other)]
    rng = np.random.default_rng(7)
    m, k, n = (p * size for size in tile)
    a, b = products[0].given.random(rng, (m, k)), products[0].given.random(rng, (k, n))
    ratios, costs = [], []
    for _ in range(rounds):
        (mine, c), (theirs, _) = (product.run(a, b) for product in products)
        assert mine.run.wavelet_hops == products[0].hops
        ratios.append(mine.run.cpu_seconds / theirs.run.cpu_seconds)
        costs.append(mine.run.cpu_seconds / mine.run.wavelet_hops * 1e9)
    assert np.array_equal(c, products[0].reference(a, b))
    return statistics.median(ratios), min(costs)
