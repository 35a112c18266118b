"""R15: closed forms of published models, compared with our kernels that do the same.

Reduce-then-broadcast is taken with the chain.  The points have no sizes of their own, so P = 64 PEs with B = 256 words
are taken, or what the point says.  A formula counts from the first step to the last; a kernel's interval has start and
end of its program besides, some 20 cycles.

Source: Luczynski et al., HPDC 2024, arXiv 2404.15888.
"""
from __future__ import annotations

import math

from fabric.kernels import registry
from fabric.recipes.recipe import CannotRun, Outcome, integer, recipe

__all__ = ["FORMULAS", "ramp"]


def ramp(machine):
    """Return (T_R, cycles of a dependent stage without its hop) of a machine."""
    stage = machine["ramp.in"] + machine["ramp.execute"] + machine["ramp.out"]
    return machine["ramp.in"], stage


def _chain(m, p, b, s):
    return b + (ramp(m)[1] + 1) * (p - 1)


def _star(m, p, b, s):
    return b * (p - 1) + ramp(m)[1]


def _tree(m, p, b, s):
    depth = math.log2(p)
    return max(b * depth, b * p * depth / (2 * (p - 1)) + p - 1) + ramp(m)[1] * depth


def _two_phase(m, p, b, s):
    return max(2 * b, b * (2 * p - s - p / s) / (p - 1) + p - 1) + ramp(m)[1] * (s + p / s - 2)


def _broadcast(m, p, b, s):
    return b + p + 2 * ramp(m)[0]


def _broadcast_2d(m, p, b, s):
    return b + 2 * p - 2 + ramp(m)[1]


def _ring(m, p, b, s):
    return 2 * (p - 1) * b / p + 4 * p - 6 + 2 * (p - 1) * ramp(m)[1]


def _reduce_broadcast(m, p, b, s):
    return _chain(m, p, b, s) + _broadcast(m, p, b, s)


def _line(p, b, s):
    return {"form": "row", "width": p, "height": 1, "n": b, "dtype": "f32"}


FORMULAS = {
    "chain reduce": (_chain, "reduce", lambda p, b, s: _line(p, b, s) | {"algorithm": "chain"}),
    "star reduce": (_star, "reduce", lambda p, b, s: _line(p, b, s) | {"algorithm": "star"}),
    "binary tree reduce": (_tree, "reduce", lambda p, b, s: _line(p, b, s) | {"algorithm": "tree"}),
    "two-phase reduce": (_two_phase, "reduce",
                         lambda p, b, s: _line(p, b, s) | {"algorithm": "two_phase", "group": s}),
    "1-d flood broadcast": (_broadcast, "broadcast",
                            lambda p, b, s: {"shape": "row", "width": p, "height": 1, "n": b, "dtype": "f32"}),
    "2-d broadcast": (_broadcast_2d, "broadcast",
                      lambda p, b, s: {"shape": "2d", "width": p, "height": p, "n": b, "dtype": "f32"}),
    "reduce-then-broadcast": (_reduce_broadcast, "allreduce",
                              lambda p, b, s: _line(p, b, s) | {"algorithm": "chain"}),
    "ring allreduce": (_ring, "allreduce", lambda p, b, s: _line(p, b, s) | {"algorithm": "ring"}),
}
"""Start of the workload -> (formula of machine, P, B, S; kernel; its parameters)."""


@recipe("R15", ("formula",), "closed forms of published models against our kernels")
def formula(machine, point, progress):
    """Run the kernel that the formula is about."""
    name, params = point.get("workload", "").lower(), point["params"]
    found = next((entry for start, entry in FORMULAS.items() if name.startswith(start)), None)
    if found is None:
        raise CannotRun("a formula without a kernel of its own; its parts are compared elsewhere")
    evaluate, kernel, arguments = found
    p, b = integer(params, "P", 64), integer(params, "B", 256)
    s = integer(params, "S", max(1, math.isqrt(p)))
    entry = registry.KERNELS.get(kernel)
    wanted = arguments(p, b, s)
    choices = {param.name: param.choices for param in entry.params} if entry else {}
    if any(key not in choices or (choices[key] and value not in choices[key]) for key, value in wanted.items()):
        raise CannotRun(f"there is no kernel {kernel} that does it")
    result = entry.run(machine, **wanted)
    return Outcome(result["cycles"], f"kernel {kernel}, P = {p}, B = {b}", evaluate(machine, p, b, s))
