"""A fabric runs on one of the engines, and needs so much host memory there."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fabric.ranks import joined
from fabric.ranks.rows import part_of, rows_of
from wse_core.errors import ConfigError, MemoryLimitError
from wse_core.image import FabricSpec

if TYPE_CHECKING:
    from fabric.host.fabric import Fabric

__all__ = [
    "BACKENDS",
    "Backend",
    "around",
    "available_bytes",
    "check_backend",
    "check_memory",
    "chosen",
    "estimate_bytes",
    "make_engine",
]

Backend = Literal["compiled", "reference"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


def check_backend(backend: Backend) -> None:
    """Refuse a backend that does not exist."""
    if backend not in BACKENDS:
        raise ConfigError(f"unknown backend {backend!r}", hint=" or ".join(BACKENDS))


def make_engine(spec: FabricSpec, backend: Backend = "compiled") -> Any:
    """Return an engine: ``compiled`` is `fabric.engine.engine.Engine`, ``reference`` the plain-Python twin.

    Where several ranks have the fabric together (`fabric.ranks.joined`), the first is this rank's side of it.
    """
    check_backend(backend)
    if backend == "compiled":
        try:
            from fabric.engine.engine import Engine
        except ImportError as error:
            raise ConfigError(
                "the compiled engine cannot be imported", cause=str(error), hint='make build, or backend="reference"'
            ) from None
        ranks = joined.world()
        if ranks is None:
            return Engine(spec)
        from fabric.ranks.engine import RankedEngine

        return RankedEngine(spec, ranks)
    joined.refuse_ranks("the plain-Python machine")
    from wse_core.reference.machine import ReferenceMachine

    return ReferenceMachine(spec)


def estimate_bytes(spec: FabricSpec, backend: Backend = "compiled") -> int:
    """Return how much host memory an engine can come to need [bytes].

    Tables of the compiled engine are backed when touched, so an idle fabric needs far less; the estimate assumes that
    every PE runs its program and every router on a route holds wavelets.

    Parameters
    ----------
    spec : FabricSpec
    backend : {"compiled", "reference"}
    """
    cells = spec.width * spec.height
    depth = spec.machine["router.depth"]
    ports, total = 5, 1 << 20
    for table in spec.routes.values():
        total += table.nbytes + (8 + 1) * cells + table.count("valid") * ports * (8 * depth + 17)
    running = np.bincount(spec.program_index.reshape(-1) + 1, minlength=len(spec.programs) + 1)[1:].tolist()
    for n, program in zip(running, spec.programs, strict=True):
        queues = sum(c >= 0 for c in program.inq_color) + sum(c >= 0 for c in program.outq_color)
        data = 2 * (program.footprint - program.code_words)
        total += n * (data + 1024 + 256 * queues + 32 * len(program.descriptors))
    if backend == "reference":
        words = sum(n * program.footprint for n, program in zip(running, spec.programs, strict=True))
        used = spec.program_index >= 0
        for table in spec.routes.values():
            used |= table["valid"] != 0
        total += 8 * words + 20000 * int(np.count_nonzero(used))
    if spec.filters is not None:
        total += 2 * spec.filters.nbytes
    return int(total)


def available_bytes() -> int | None:
    """Return the host memory that a new engine may take [bytes]; None where the system does not say."""
    found = []
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as lines:
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with (
        contextlib.suppress(OSError, ValueError),
        open("/sys/fs/cgroup/memory.max") as limit,
        open("/sys/fs/cgroup/memory.current") as used,
    ):
        found.append(max(0, int(limit.read()) - int(used.read())))
    return min(found) if found else None


_AROUND: contextvars.ContextVar[tuple[Backend, Callable[[Fabric], object] | None]] = contextvars.ContextVar(
    "around", default=("compiled", None)
)


@contextlib.contextmanager
def around(backend: Backend = "compiled", on_build: Callable[[Fabric], object] | None = None) -> Iterator[None]:
    """Choose, for every `Fabric` made inside the block, its backend and who hears of it.

    This is how a command records or inspects runs of kernels, which make their fabrics themselves.

    Parameters
    ----------
    backend : {"compiled", "reference"}
        For fabrics that name none.
    on_build : callable, optional
        Called with each new fabric before anything runs on it.
    """
    token = _AROUND.set((backend, on_build))
    try:
        yield
    finally:
        _AROUND.reset(token)


def chosen() -> tuple[Backend, Callable[[Fabric], object] | None]:
    """Return what `around` says here: the backend and who hears of a new fabric."""
    return _AROUND.get()


def check_memory(spec: FabricSpec, backend: Backend, limit: int | None = None) -> None:
    """Refuse a fabric that can need more host memory than `limit`, or than there is [bytes]; of ranks: its own rows."""
    ranks = joined.world()
    if ranks is not None:
        spec = part_of(spec, *rows_of(spec.height, ranks.rank, ranks.size))
    needed = estimate_bytes(spec, backend)
    limit = available_bytes() if limit is None else limit
    if limit is not None and needed > limit:
        data = max((p.footprint for p in spec.programs), default=0)
        raise MemoryLimitError(
            f"{spec.width} x {spec.height} PEs with {len(spec.routes)} colors and up to {data} "
            f"words each can need {needed / 2**30:.2f} GiB of host memory, {limit / 2**30:.2f} GiB are available",
            needed_bytes=needed,
            available_bytes=limit,
            hint="a smaller rectangle, smaller variables or fewer colors; memory_limit=... overrides the check",
        )
