"""A recipe is a function that runs, for any parameters of a published point, the program behind that point.

A module declares its recipes with the decorator `recipe`, which enters them into `RECIPES`::

    @recipe("R7", ("vector-op",), "one vector operation between two time stamps")
    def vector_operation(machine, point, progress):
        ...
        return Measurement(cycles)

A recipe reads only the parameters of the point (``params`` and what identifies the program, such as ``workload``),
never its published cycles: those are compared by the caller.  It runs programs on the fabric and takes the time from
where the original took it.  What it cannot run it refuses with `CannotRun` and the reason.

`harness.validation.registry` imports all modules and is what others read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wse_core.params import Machine

__all__ = [
    "RECIPES",
    "CannotRun",
    "Measurement",
    "Point",
    "Recipe",
    "Runs",
    "Tell",
    "agree",
    "grid",
    "integer",
    "recipe",
]

RECIPES: dict[tuple[str, str], Recipe] = {}
"""All recipes are here by (name, kind of point)."""


class CannotRun(Exception):
    """A point that this model cannot run; the message is the reason, one line."""


@dataclass(frozen=True)
class Measurement:
    """A `Measurement` is what a recipe measured.

    Attributes
    ----------
    cycles : float
        In the unit of the point: cycles per iteration where the point says so.
    method : str
        ``fabric``: the size of the point ran on the cycle-level fabric.  Anything else says how the figure follows
        from smaller runs, for example ``slope of 4 and 8 PEs``.
    reference : float, optional
        What to compare with if the point is a formula: its value for the parameters that ran.
    """

    cycles: float
    method: str = "fabric"
    reference: float | None = None


Point: TypeAlias = dict[str, Any]
"""What a recipe is shown of a point: see `harness.validation.points`."""
Tell: TypeAlias = Callable[[str], object]
"""Called with a line of text now and then; may raise to stop the run."""
Runs: TypeAlias = Callable[[Machine, Point, Tell], Measurement]
"""A recipe has a function that runs it."""


@dataclass(frozen=True)
class Recipe:
    """A `Recipe` reproduces one or more kinds of points.

    Attributes
    ----------
    name : str
        ``R1`` and so on, as points name it.
    kinds : tuple[str, ...]
        Kinds of points that it runs.
    summary : str
        One line.
    function : callable
        ``function(machine, point, progress)`` returns an `Measurement`; `progress` is called with a line of text now
        and then and may raise to stop the run.
    params : tuple[str, ...]
        Parameters that it honours, those that only describe included; empty: it refuses all points anyway.
    dtypes : tuple[str, ...]
        Formats that it runs in; the first one if a point names none.
    """

    name: str
    kinds: tuple[str, ...]
    summary: str
    function: Runs = field(repr=False)
    params: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("f32",)

    def admit(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters that the recipe does not honour: what ran would not be what the point says.

        Raises
        ------
        CannotRun
        """
        if not self.params:
            return
        for key in params:
            if key not in self.params:
                raise CannotRun(f"recipe {self.name} has no parameter {key}; it knows {', '.join(self.params)}")
        dtype = params.get("dtype", self.dtypes[0])
        if dtype not in self.dtypes:
            raise CannotRun(f"dtype {str(dtype)[:40]!r}: the recipe is for {' or '.join(self.dtypes)}")


def recipe(
    name: str, kinds: Sequence[str], summary: str, params: Sequence[str] = (), dtypes: Sequence[str] = ("f32",)
) -> Callable[[Runs], Runs]:
    """Return a decorator that enters a function into `RECIPES` and leaves it as it is.

    `params` are the parameters that the recipe honours, `dtypes` the formats; a point with others is refused.
    """

    def enter(function: Runs) -> Runs:
        entry = Recipe(name, tuple(kinds), summary, function, tuple(params), tuple(dtypes))
        for kind in kinds:
            RECIPES[name, kind] = entry
        return function

    return enter


def agree(params: Mapping[str, Any], expected: Mapping[str, object]) -> None:
    """Refuse a point that states a size differently from `expected`, what follows from its other parameters."""
    for key, value in expected.items():
        if key in params and params[key] != value:
            raise CannotRun(f"{key}={params[key]!r:.40}, but the other parameters say {value}")


def integer(params: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a parameter of a point as a positive integer; `CannotRun` if it is missing or something else."""
    value = params.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CannotRun(
            f"the point does not state {key} as a positive whole number"
            if value is None
            else f"{key}={value!r} is not a positive whole number"
        )
    return value


def grid(params: Mapping[str, Any], key: str, dimensions: int = 2) -> tuple[int, ...]:
    """Return a parameter such as ``46x46x46`` as a tuple of positive integers; `CannotRun` if it has another form."""
    text = str(params.get(key, ""))
    words = text.split(" ")[0].split("x")
    if len(words) != dimensions or not all(word.isdigit() and int(word) > 0 for word in words):
        raise CannotRun(f"{key}={text!r} is not of the form {'x'.join('N' * dimensions)}")
    return tuple(map(int, words))
