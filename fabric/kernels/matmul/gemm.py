"""Matrix products are done on a mesh of PEs, by every algorithm that WaferLLM compares.

===========  ==================================================  =====================  ============  ===============
algorithm    what moves                                          longest way per step   tiles per PE  module
===========  ==================================================  =====================  ============  ===============
summa        one panel of A and of B per step, by broadcasts     n - 1 hops             5             summa
summa-relay  the same, handed on by cores, not by routers        1 hop, n - 1 cores     5             relay
allgather    as summa, all panels before the product             n - 1 hops             2 n + 1       allgather
cannon       rings of neighbours, back over the whole line       n - 1 hops             5             shift
meshgemm     folded rings (INTERLEAVE)                           2 hops                 5             shift
gemm_t       C = A B^T: B on folded rings, sums along rows       2 hops, n - 1 in sums  6             transposed
===========  ==================================================  =====================  ============  ===============

Tiles are those of a square mesh of n x n; how matrices are cut on any mesh, what the numbers of a result mean, and the
lower bound stand in `fabric.kernels.matmul.distributed`.  The published figure of 3 tiles for the shifting algorithms
leaves no place for a tile that arrives while its predecessor is multiplied; here there is one.  SUMMA and allgather use
one color per axis, not one per root, since a router's routes can be rewritten (`summa`).

Where the time goes: a CE has one issue slot per cycle for the product, for each wavelet it sends and for each it
receives.  Broadcasts are copied by routers, so that a PE pays S per tile of S wavelets; a shift costs it 2 S.  A
shift needs no instructions that turn routers, nor a search for the tile to use.  So SUMMA is ahead for large tiles, the
shifts are for small ones, many PEs to one matrix.  The length of a way is paid once, not per step, by all of them:
nothing synchronises the steps, and wavelets on the way do not wait for one another.  Handed on by software a tile
costs every PE on its way two slots per wavelet, and the next step begins one PE further: `summa-relay` shows what
routers are worth, and what is left to a mesh with fewer routes than an algorithm asks for.

Sources
    He et al., WaferLLM (OSDI 2025), section 5; the modules' own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fabric.kernels.kit.data import data_params
from fabric.kernels.kit.kernel import KernelParam, kernel
from fabric.kernels.kit.report import report
from fabric.kernels.kit.verify import compared
from fabric.kernels.matmul.allgather import AllGatherProduct
from fabric.kernels.matmul.distributed import Product
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.relay import SummaRelay
from fabric.kernels.matmul.shift import Cannon, MeshGemm
from fabric.kernels.matmul.summa import Summa
from fabric.kernels.matmul.transposed import GemmT
from fabric.program.program import Program
from wse_core.errors import ConfigError
from wse_core.formats import Bits
from wse_core.params import Machine

__all__ = ["ALGORITHMS", "expected_cycles", "gemm", "gemm_t", "make", "programs"]

ALGORITHMS = {found.algorithm: found for found in (Summa, SummaRelay, AllGatherProduct, Cannon, MeshGemm)}
"""Each algorithm of C = A B has a class, by its name."""


def programs(machine: Machine, p: int, m: int, k: int, n: int, dtype: str, buffers: int = 1) -> dict[Any, Program]:
    """Return the programs of SUMMA on a square of p x p PEs, assembled.

    Raises
    ------
    ProgramError
        The tiles do not fit into a PE.
    """
    return Summa(machine, Problem(p, p, 1, 1, 1, dtype), buffers).sized(m, k, n).build()


def expected_cycles(product: Product, machine: Machine) -> float:
    """Return the cycles of the formula of a product's module; `machine` is the product's."""
    return product.expected()


def make(algorithm: str, machine: Machine, problem: Problem, **options: Any) -> Product:
    """Return a product by the name of its algorithm.

    Parameters
    ----------
    algorithm : str
        One of `ALGORITHMS`, or ``gemm_t`` (B is n x k then).
    machine : Machine
    problem : Problem
    **options
        ``buffers`` of summa, ``align`` of cannon and meshgemm.

    Raises
    ------
    ConfigError
        No such algorithm, or the product does not fit.
    """
    found = ALGORITHMS | {GemmT.algorithm: GemmT}
    if algorithm not in found:
        raise ConfigError(f"GEMM algorithm {algorithm!r} is unknown", hint=", ".join(found), value=algorithm)
    return found[algorithm](machine, problem, **options)


def result(product: Product, a: Bits, b: Bits) -> dict[str, Any]:
    """Multiply on the fabric and return the result of a kernel."""
    session, c = product.run(a, b)
    starts, stops = session.stamps(0, 0, product.width, product.height)
    cycles = int((stops - starts).max())
    return report(
        session,
        compared(lambda: product.check(a, b, c)),
        cycles,
        expected_cycles=product.expected(),
        expected_hops=product.hops,
        expected_macs=product.macs,
        **product.facts(session, cycles),
        arrays={"c": c},
    )


def _mesh() -> list[KernelParam]:
    return [
        KernelParam("p", 8, int, "PEs along each side", low=1),
        KernelParam("width", 0, int, "PEs along x; 0: p", low=0),
        KernelParam("height", 0, int, "PEs along y; 0: p", low=0),
    ]


def _formats() -> list[KernelParam]:
    return [
        KernelParam("dtype", "f16", str, "format of A and B", ("f16", "cb16", "f32")),
        KernelParam("sums", "f32", str, "format of C and of the sums: f32, or that of A and B", ("f32", "same")),
    ]


@kernel(
    "gemm",
    "matrix product over PEs: SUMMA (also handed on by cores), allgather, Cannon, or MeshGEMM",
    "He et al., WaferLLM (OSDI 2025), section 5; SUMMA: van de Geijn and Watts, 1997; Cannon, 1969",
    [
        *_mesh(),
        KernelParam("m", 128, int, "rows of A and C", low=1),
        KernelParam("k", 128, int, "columns of A, rows of B", low=1),
        KernelParam("n", 128, int, "columns of B and C", low=1),
        *_formats(),
        KernelParam("algorithm", "summa", str, "how the tiles come to the PEs", tuple(ALGORITHMS)),
        KernelParam("buffers", 1, int, "summa: buffers for arriving tiles; 2: tiles arrive during the product", (1, 2)),
        KernelParam(
            "align", "fabric", str, "cannon, meshgemm: who brings the tiles to where they start", ("fabric", "host")
        ),
        *data_params(),
    ],
)
def gemm(
    machine: Machine,
    p: int,
    width: int,
    height: int,
    m: int,
    k: int,
    n: int,
    dtype: str,
    sums: str,
    algorithm: str,
    buffers: int,
    align: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `gemm`; see the head of this module."""
    options: dict[str, dict[str, Any]] = {
        "summa": {"buffers": buffers},
        "cannon": {"align": align},
        "meshgemm": {"align": align},
    }
    for key, value, usual in (("buffers", buffers, 1), ("align", align, "fabric")):
        if value != usual and key not in options.get(algorithm, {}):
            raise ConfigError(
                f"{algorithm} has no such choice", where=f"kernel gemm: {key}", hint=f"{key}={usual!r}", value=value
            )
    problem = Problem(width or p, height or p, m, k, n, dtype, sums)
    product = make(algorithm, machine, problem, **options.get(algorithm, {}))
    rng = np.random.default_rng(seed)
    a = product.given.random(rng, (m, k), data, terms=k)
    return result(product, a, product.given.random(rng, (k, n), data, terms=4 * k))


@kernel(
    "gemm_t",
    "matrix product with the transpose, C = A B^T, without a transpose (dist-GEMM-T)",
    "He et al., WaferLLM (OSDI 2025), sections 4.1 and 5.4",
    [
        *_mesh(),
        KernelParam("m", 128, int, "rows of A and C", low=1),
        KernelParam("k", 128, int, "columns of A and of B", low=1),
        KernelParam("n", 128, int, "rows of B, columns of C", low=1),
        *_formats(),
        *data_params(),
    ],
)
def gemm_t(
    machine: Machine,
    p: int,
    width: int,
    height: int,
    m: int,
    k: int,
    n: int,
    dtype: str,
    sums: str,
    seed: int,
    data: str,
) -> dict[str, Any]:
    """Run the kernel `gemm_t`; see `fabric.kernels.matmul.transposed`."""
    product = make("gemm_t", machine, Problem(width or p, height or p, m, k, n, dtype, sums))
    rng = np.random.default_rng(seed)
    a = product.given.random(rng, (m, k), data, terms=k)
    return result(product, a, product.given.random(rng, (n, k), data, terms=4 * k))
