"""All kernels by name: a table says which module declares which; a module is imported when one of its kernels is asked
for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from fabric.kernels.kit.kernel import DECLARED, Kernel, KernelParam

__all__ = ["KERNELS", "MODULES", "Kernel", "KernelParam", "Registry"]

MODULES: dict[str, tuple[str, ...]] = {
    "basic.vector": ("vector",),
    "basic.ping": ("ping",),
    "collectives.broadcast": ("broadcast",),
    "collectives.chain": ("chain_reduce",),
    "collectives.reduce": ("reduce",),
    "collectives.allreduce": ("allreduce",),
    "collectives.gather": ("scatter", "gather", "allgather"),
    "matvec.gemv": ("gemv",),
    "matvec.chain": ("gemv_chain",),
    "matmul.gemm": ("gemm", "gemm_t"),
    "streamed.forward": ("ws_forward",),
    "streamed.gradient": ("ws_gradient",),
    "stencil.points7": ("stencil",),
    "stencil.points25": ("stencil25",),
    "sparse.spmv": ("spmv",),
}
"""These modules of the package declare kernels, and which, simple ones first."""


class Registry(Mapping[str, Kernel]):
    """Kernels by name, in the order of a table like `MODULES`; names are known without an import."""

    def __init__(self, modules: Mapping[str, tuple[str, ...]]) -> None:
        self._module_of = {name: module for module, names in modules.items() for name in names}

    def __getitem__(self, name: str) -> Kernel:
        module = self._module_of[name]
        if name not in DECLARED:
            import_module(f"fabric.kernels.{module}")
        return DECLARED[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._module_of)

    def __len__(self) -> int:
        return len(self._module_of)

    def __contains__(self, name: object) -> bool:
        return name in self._module_of


KERNELS = Registry(MODULES)
"""The package has these kernels, by name."""
