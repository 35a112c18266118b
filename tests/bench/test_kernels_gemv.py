"""Host speed of matrix-vector products, and what `make bench` writes about them: hops, steps, multiply-adds per second.

Each run is checked: bits against the order-aware reference, hops and multiply-adds against closed forms, cycles against
the closed form and the lower bound.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fabric.kernels.registry import KERNELS
from tests.bench.test_speed import bench
from tests.bench.workload import Sample
from wse_core.params import machine

PRODUCTS = {
    "pipeline": ("gemv", {"algorithm": "pipeline", "replicated": True}),
    "ring": ("gemv", {"algorithm": "ring", "replicated": True}),
    "ktree": ("gemv", {"algorithm": "ktree", "replicated": True}),
    "ktree, x and y broadcast": ("gemv", {"algorithm": "ktree", "broadcast": True}),
    "chain of 3": ("gemv_chain", {"layers": 3}),
}


def product_workload(name, p, tile):
    """Return a workload for `measure.Rate`: a product of p x p tiles of f16 with sums in f32."""
    kernel, values = PRODUCTS[name]
    units = ("hops", "steps", "macs")

    def run(warm=0):
        result = KERNELS[kernel].run(machine(), p=p, m=p * tile, n=p * tile, **values)
        assert result["verified"]
        assert result["wavelet_hops"] == result["expected_hops"]
        assert result["macs"] == result["expected_macs"]
        assert result["lower_bound"] <= result["cycles"] < 1.1 * result["expected_cycles"]
        done = result["wavelet_hops"], int(result["counters"]["steps"][0].sum()), result["macs"]
        return Sample(result["run_seconds"], result["run_cycles"], dict(zip(units, done, strict=True)))

    return SimpleNamespace(name=f"{name} {p}x{p}", work=dict.fromkeys(units), run=run)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("p", "tile", "rounds"), [(32, 32, 3), (128, 4, 2)])
def test_speed_of_products(benchmark, name, p, tile, rounds):
    """A step of a vector operation, transfers and tasks included, costs at most a few hundred yardsticks."""
    assert bench(benchmark, product_workload(name, p, tile), rounds=rounds).ratio("steps") < 2000
