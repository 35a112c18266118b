"""Matrix products as workloads: bits, hops, multiply-adds and cycles of each run are checked."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fabric.kernels.matmul.gemm import make
from tests.bench.workload import Sample
from wse_core.params import machine

__all__ = ["product_workload"]


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
    product = make(name, machine(), p, p, m, k, n, "f16", sums)
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
