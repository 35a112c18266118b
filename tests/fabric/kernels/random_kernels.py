"""Kernels with random parameters on machines with random numbers, for tests of closed forms."""

from __future__ import annotations

from random import Random
from typing import Any

from fabric.kernels.registry import KERNELS

__all__ = ["machine_numbers", "parameters"]

BETWEEN = {
    "router.hop": (1, 8),
    "router.depth": (2, 8),
    "ramp.in": (1, 6),
    "ramp.out": (1, 6),
    "ramp.execute": (1, 3),
    "ramp.in_buffer": (1, 4),
    "task.start": (0, 8),
    "vec.start": (0, 3),
    "vec.drain": (0, 3),
    "ce.dsr_load": (1, 10),
    "ce.dsr_edit": (1, 3),
    "ce.dsr_dimension": (0, 5),
    "ce.tsc_read": (1, 8),
    "ce.branch_taken": (1, 9),
    "ce.branch_not_taken": (1, 4),
    "ce.call": (1, 9),
    "ce.ret": (1, 9),
    "ce.config": (1, 5),
    "ce.load_latency": (1, 4),
    "ce.fp_latency": (1, 4),
}
"""Numbers of the machine that closed forms name, and what they are drawn from."""


def machine_numbers(r: Random, which: str) -> dict[str, int]:
    """Return numbers to change: ``none``, only the ``hop`` (as a user sets it), or ``all``."""
    if which == "none":
        return {}
    names = ["router.hop"] if which == "hop" else BETWEEN
    return {name: r.randint(*BETWEEN[name]) for name in names}


def _size(r: Random, low: int, high: int) -> int:
    """Return a size: the least, any, or a small one rather than a large one."""
    return r.choice([low, r.randint(low, high), round(low * (high / low) ** r.random())])


def parameters(r: Random, name: str) -> dict[str, Any]:
    """Return random parameters of a kernel; some combinations may be refused."""
    found: dict[str, Any] = {}
    for param in KERNELS[name].params:
        if param.choices and param.name not in ("data", "verify"):
            found[param.name] = r.choice(param.choices)
        elif param.kind is bool:
            found[param.name] = r.random() < 0.5
    found |= {key: value(r) if callable(value) else _size(r, *value) for key, value in SIZES[name].items()}
    if name in ("gemm", "gemm_t"):
        side = found["p"] = _size(r, 1, 9)
        found |= {key: _size(r, 1, 8 * side) for key in "mkn"}
        if r.random() < 0.3:
            found |= {"width": r.randint(1, 6), "height": r.randint(1, 6)}
        if found.get("algorithm") != "summa":
            found.pop("buffers", None)
    if name.startswith("ws_"):
        groups = found["groups"] = r.choice([1, 1, 2])
        found["width"] *= groups
        found["tokens"] = _size(r, found["height"] * groups, 80)
    return found


def _any(*values: Any) -> Any:
    return lambda r: r.choice(values)


def _share(most: float) -> Any:
    return lambda r: most * r.random()


_REDUCE = {"width": (1, 24), "height": (1, 6), "n": (1, 300), "sums": _any("auto"), "group": _any(0, 0, 2, 3, 5)}
_MOVE = {"width": (1, 14), "height": (1, 6), "n": (1, 150)}
_STREAMED = {"inputs": (1, 48), "outputs": (1, 48), "width": (1, 5), "height": (1, 6), "density": _share(1)}
SIZES: dict[str, dict[str, Any]] = {
    "vector": {
        "n": (1, 2000),
        "stride": _any(1, 1, 2, 3, 4, -1, -8, 7),
        "dtype": _any("auto"),
        "conflict": _any(False),
    },
    "ping": {"hops": (1, 60)},
    "broadcast": {"width": (1, 20), "height": (1, 20), "n": (1, 300)},
    "chain_reduce": {"pes": (1, 40), "n": (1, 400), "sums": _any("auto")},
    "reduce": _REDUCE,
    "allreduce": _REDUCE,
    "scatter": _MOVE,
    "gather": _MOVE,
    "allgather": _MOVE,
    "gemv": {"p": (1, 20), "height": _any(0, 1, 3), "m": (1, 200), "n": (1, 300)},
    "gemv_chain": {"p": (1, 14), "height": _any(0, 0, 1, 3), "m": (1, 150), "n": (1, 150), "layers": (1, 4)},
    "gemm": {},
    "gemm_t": {},
    "ws_forward": _STREAMED,
    "ws_gradient": _STREAMED,
    "stencil": {"width": (1, 7), "height": (1, 7), "nz": (1, 250), "steps": (1, 6)},
    "stencil25": {"width": (1, 9), "height": (1, 9), "nz": (1, 200), "steps": (1, 3), "radius": (2, 4)},
    "spmv": {"width": (1, 6), "height": (1, 6), "m": (1, 100), "n": (1, 100), "density": _share(0.3)},
}
"""Sizes per kernel: a range, or a function of the source of random numbers."""
