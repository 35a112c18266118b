"""Host speed of the matrix products, and what `make bench` writes about them: hops and multiply-adds per second."""

from __future__ import annotations

import pytest

from fabric.kernels.matmul.gemm import ALGORITHMS
from tests.bench.products import product_workload
from tests.bench.test_speed import bench


@pytest.mark.parametrize(
    ("name", "p", "tile", "rounds", "most"),
    [
        *((name, 32, 8, 3, 2000) for name in (*ALGORITHMS, "gemm_t")),
        *((name, 128, 2, 1, 8000) for name in ("summa", "meshgemm")),
    ],
)
def test_speed_of_products(benchmark, name, p, tile, rounds, most):
    """A hop, with the products, tasks and instructions that belong to it, costs at most `most` yardsticks."""
    assert bench(benchmark, product_workload(name, p, (tile, tile, tile)), rounds=rounds).ratio("hops") < most


@pytest.mark.parametrize(("tile", "sums", "most"), [((192, 8, 96), "same", 8), ((60, 60, 60), "f32", 12)])
def test_speed_of_multiply_adds(benchmark, tile, sums, most):
    """A multiply-add of a product that computing bounds, with all that it takes, costs at most `most` yardsticks."""
    assert bench(benchmark, product_workload("summa", 8, tile, sums), rounds=3).ratio("macs") < most
