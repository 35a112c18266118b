"""All kernels by name.  Importing this module imports every module of kernels; each enters its kernels itself."""
from __future__ import annotations

from importlib import import_module

from fabric.kernels.kernel import KERNELS, Kernel, KernelParam

__all__ = ["KERNELS", "MODULES", "Kernel", "KernelParam"]

MODULES = ("vector", "ping", "broadcast", "chain", "reduce", "allreduce", "gather", "gemv", "gemv_chain",
           "gemm", "ws_forward", "ws_gradient",
           "stencil", "stencil25", "spmv")
"""Modules of this package that hold kernels, simple ones first."""

for _name in MODULES:
    import_module(f"fabric.kernels.{_name}")
