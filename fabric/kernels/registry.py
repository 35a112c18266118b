"""All kernels by name.  Importing this module imports every module of kernels; each enters its kernels itself."""

from __future__ import annotations

from importlib import import_module

from fabric.kernels.kit.kernel import KERNELS, Kernel, KernelParam

__all__ = ["KERNELS", "MODULES", "Kernel", "KernelParam"]

MODULES = (
    "basic.vector",
    "basic.ping",
    "collectives.broadcast",
    "collectives.chain",
    "collectives.reduce",
    "collectives.allreduce",
    "collectives.gather",
    "matvec.gemv",
    "matvec.chain",
    "matmul.gemm",
    "streamed.forward",
    "streamed.gradient",
    "stencil.points7",
    "stencil.points25",
    "sparse.spmv",
)
"""Modules of this package that hold kernels, simple ones first."""

for _name in MODULES:
    _module = import_module(f"fabric.kernels.{_name}").__name__
    for _kernel in [found for found in KERNELS.values() if found.function.__module__ == _module]:
        KERNELS[_kernel.name] = KERNELS.pop(_kernel.name)  # somebody may have imported a later module before
