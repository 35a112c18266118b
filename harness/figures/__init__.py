"""Figures of publications are calculated anew: here are a registry, and what a figure is made of.

A module of this package enters its figure with the decorator `figure`::

    @figure("gemv-scaling", "what it shows", "where it was published")
    def gemv_scaling(machine, max_cycle_level, progress):
        ...
        return Result(rows, notes, draw)

It is imported when it is asked for; `NAMES` says which modules there are.  `harness.cli.cmd_figure` runs figures and
writes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["FIGURES", "NAMES", "Result", "Spec", "figure", "load"]

NAMES = {
    "gemm-scaling": "gemm_scaling",
    "gemv-scaling": "gemv_scaling",
    "graph-model": "graph_model",
    "layer-model": "layer_model",
    "modes": "modes",
    "throughput": "throughput",
    **{f"waferllm-table-{number}": "waferllm_tables" for number in range(2, 9)},
    "waferllm-parts": "waferllm_parts",
    "waferllm-layer": "waferllm_layer",
}
"""A figure has its module of this package by its name."""

FIGURES: dict[str, Spec] = {}
"""`FIGURES` has the figures of the modules that are imported, by name."""


@dataclass(frozen=True)
class Result:
    """A `Result` is what a figure shows: rows, notes and lines.

    Attributes
    ----------
    rows : list of dict
        One per point, all with the same keys: the lines of the CSV file.
    notes : dict
        Further facts in few numbers, such as the largest error of a closed form.
    draw : callable
        ``draw(figure)`` paints a `matplotlib.figure.Figure`.
    """

    rows: list
    notes: dict
    draw: Callable = field(repr=False)


@dataclass(frozen=True)
class Spec:
    """A `Spec` is a figure that can be made by name.

    Attributes
    ----------
    name, summary, source : str
    function : callable
        ``function(machine, max_cycle_level, progress)`` returns a `Result`; points with at most `max_cycle_level` PEs a
        side (None: the figure's default) are simulated, the others come from closed forms.
    """

    name: str
    summary: str
    source: str
    function: Callable = field(repr=False)


def figure(name: str, summary: str, source: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Return a decorator that enters a function into `FIGURES` and leaves it as it is."""

    def enter(function: Callable[..., Result]) -> Callable[..., Result]:
        FIGURES[name] = Spec(name, summary, source, function)
        return function

    return enter


def load(name: str) -> Spec:
    """Return the `Spec` of a figure.

    Raises
    ------
    ConfigError
        There is no such figure.
    """
    if name not in NAMES:
        raise ConfigError(f"there is no figure {name!r}", key=name, hint=suggestion(name, NAMES))
    import_module(f"harness.figures.{NAMES[name]}")
    return FIGURES[name]
