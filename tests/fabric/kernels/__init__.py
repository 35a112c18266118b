"""Kernels: results bit for bit, counts by closed forms, cycles by the formulas of their pages."""

from __future__ import annotations

from fabric.kernels.registry import KERNELS
from wse_core.params import machine

__all__ = ["run"]


def run(name, preset="wse2", overrides=None, **values):
    """Run a kernel, demand that it verified and that its counts are those of the closed forms; return the result."""
    result = KERNELS[name].run(machine(preset, overrides or {}), **values)
    assert result["verified"] is True
    assert result["bit_exact"] is True
    assert result["wavelet_hops"] == result["expected_hops"]
    assert result["macs"] == result["expected_macs"]
    return result
