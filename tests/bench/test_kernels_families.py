"""Host speed of collectives, weight-streaming products, stencils and sparse products, as `make bench` writes it.

Each run is checked: bits against the order-aware reference, hops and multiply-adds against closed forms, cycles against
the closed form of the kernel (its error may be what it is said to be there).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fabric.kernels.registry import KERNELS
from tests.bench.test_speed import bench
from tests.bench.workload import Sample
from wse_core.params import machine

FAMILIES = {
    "broadcast": ("broadcast", 0.01, lambda p: {"n": 256}),
    "reduce": ("reduce", 0.01, lambda p: {"n": 256}),
    "reduce, rows then columns": ("reduce", 0.01, lambda p: {"n": 256, "form": "xy"}),
    "allreduce": ("allreduce", 0.01, lambda p: {"n": 256, "form": "xy"}),
    "allreduce, ring": ("allreduce", 0.01, lambda p: {"n": 256, "algorithm": "ring"}),
    "scatter": ("scatter", 0.01, lambda p: {"n": 16}),
    "gather": ("gather", 0.01, lambda p: {"n": 16}),
    "allgather": ("allgather", 0.6, lambda p: {"n": 8}),
    "ws_forward": ("ws_forward", 0.1, lambda p: {"inputs": 2 * p, "outputs": 32, "tokens": 8 * p, "density": 0.2}),
    "ws_gradient": ("ws_gradient", 0.6, lambda p: {"inputs": 2 * p, "outputs": 32, "tokens": 8 * p, "density": 0.2}),
    "stencil": ("stencil", 0.4, lambda p: {"nz": 100, "steps": 2}),
    "stencil25": ("stencil25", 0.02, lambda p: {"nz": 50, "steps": 1}),
    "spmv": ("spmv", 0.02, lambda p: {"m": 32 * p, "n": 32 * p}),
}
"""Name: kernel, relative error of its cycles that is known, parameters on p x p PEs."""


def kernel_workload(name, p):
    """Return a workload for `measure.Rate`: a kernel on p x p PEs."""
    kernel, error, values = FAMILIES[name]
    units = ("hops", "steps")

    def run(warm=0):
        result = KERNELS[kernel].run(machine(), width=p, height=p, **values(p))
        assert result["verified"]
        assert result["wavelet_hops"] == result["expected_hops"]
        assert result["macs"] == result["expected_macs"]
        assert abs(result["cycle_error"]) <= error
        done = result["wavelet_hops"], int(result["counters"]["steps"][0].sum())
        return Sample(result["run_seconds"], result["run_cycles"], dict(zip(units, done, strict=True)))

    return SimpleNamespace(name=f"{name} {p}x{p}", work=dict.fromkeys(units), run=run)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("p", "rounds"), [(32, 3), (128, 2)])
def test_speed_of_kernels(benchmark, name, p, rounds):
    """A hop, with the steps, tasks and instructions that belong to it, costs at most a few hundred yardsticks."""
    assert bench(benchmark, kernel_workload(name, p), rounds=rounds).ratio("hops") < 2000
