"""Sizes that fit into a PE: build a program, or say which sizes would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wse_core.errors import ConfigError, PlanError, ProgramError
from wse_core.params import Machine

__all__ = ["can", "fit", "nearest"]


def fit(
    where: str,
    machine: Machine,
    build: Callable[..., Any],
    sizes: dict[str, int],
    smaller: dict[str, tuple[int, int]],
    attempt: Callable[..., Any] | None = None,
) -> Any:
    """Return ``build(**sizes)``, or say which sizes would fit into a PE.

    Parameters
    ----------
    where : str
        Who asks, for the message.
    machine : Machine
    build : callable
        Returns an assembled program; raises `ProgramError` if it is too large.
    sizes : dict[str, int]
    smaller : dict[str, tuple[int, int]]
        Per size that may change the range to search for the value, nearest to the present one, that fits: (low, high).
    attempt : callable, optional
        Raises `ProgramError` where `build` would, as a rule, and takes less: the search asks it, for some of its values
        are whole wafers.  What it finds is built before it is named.

    Raises
    ------
    PlanError
        The program does not fit; names the limit and, per size, the value that would fit with the others unchanged.
    ProgramError
        What is wrong is not a question of size: the smallest sizes fail as well.
    """
    try:
        return build(**sizes)
    except ProgramError as error:
        found = []
        for key, (low, high) in smaller.items():
            value = nearest(attempt or build, sizes, key, low, high)
            if value is not None and (attempt is None or can(build, sizes | {key: value})):
                found.append(f"{key}={value}")
        if not found:
            try:
                build(**{**sizes, **{key: low for key, (low, high) in smaller.items()}})
            except ProgramError:
                raise error from None  # no question of size
            found = ["smaller values of several of " + ", ".join(smaller)]
        kind, limit = ConfigError, {}
        if error.fields.get("limit"):
            kind, limit = PlanError, {key: error.fields[key] for key in ("limit", "needed", "available")}
        raise kind(
            f"does not fit into the {machine['mem.words']} words of a PE",
            cause=error.what if limit else f"an array longer than the memory ({error.what})",
            where=where,
            hint=" or ".join(found),
            **limit,
            **sizes,
        ) from None


def can(build: Callable[..., Any], sizes: dict[str, int]) -> bool:
    """Return whether a program can be built."""
    try:
        build(**sizes)
    except ProgramError:
        return False
    return True


def nearest(build: Callable[..., Any], sizes: dict[str, int], key: str, low: int, high: int) -> int | None:
    """Return the value in low .. high, nearest to the present one, for which a program can be built; None if none."""

    def fits(value: int) -> bool:
        return can(build, sizes | {key: value})

    good, bad = (low, high) if high <= sizes[key] else (high, low)
    if not fits(good):
        return None
    if fits(bad):
        return bad
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
