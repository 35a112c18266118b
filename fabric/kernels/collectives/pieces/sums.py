"""Sums over the PEs of a rectangle have the lines of a form, the colors, and the tree that is fastest on each line.

Forms: ``row`` and ``column`` take all lines of one direction at once, ``xy`` rows and then column 0, ``snake`` one line
through all PEs.  `reduces` gives a `Reduce` piece for each line that follows another, chosen by the closed forms.

Timing: none of its own; that of the pieces.
Source: Luczynski et al., HPDC 2024 (arXiv 2404.15888).
"""

from __future__ import annotations

from collections.abc import Sequence

from fabric.kernels.collectives import costs
from fabric.kernels.collectives.pieces import trees
from fabric.kernels.collectives.pieces.line_reduce import Reduce
from fabric.kernels.collectives.pieces.lines import Line
from fabric.kernels.kit.data import wavelets_of
from fabric.kernels.kit.kernel import KernelParam
from fabric.kernels.kit.plmr import Plan, PlmrDevice
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["AUTO", "FORMS", "admit", "color_pool", "format_params", "lines_of", "pick_sums", "reduces"]

FORMS = ("row", "column", "xy", "snake")
AUTO = ("chain", "star", "tree", "two_phase")
"""The form ``auto`` chooses from these; of equally fast ones the first."""


def color_pool(machine: Machine) -> tuple[int, ...]:
    """Return the colors of `machine`, those that can switch first."""
    switched = machine["switch.colors"]
    return tuple(sorted(range(machine["router.colors"]), key=lambda color: (color not in switched, color)))


def lines_of(form: str, width: int, height: int) -> list[Line]:
    """Return the lines of a form, in the order in which they follow one another."""
    if form == "snake":
        return [Line.snake(width, height)]
    if form == "column":
        return [Line.columns(width, height)]
    rows = Line.rows(width, height)
    return [rows, Line.columns(1, height)] if form == "xy" else [rows]


def format_params() -> list[KernelParam]:
    """Return the declarations of the parameters that say in which formats data are and are summed."""
    return [
        KernelParam("dtype", "f32", str, "format of the data", ("f16", "cb16", "f32")),
        KernelParam(
            "sums",
            "auto",
            str,
            "format of the sums: that of the data, or f32 for 16-bit data",
            ("auto", "f16", "cb16", "f32"),
        ),
    ]


def pick_sums(dtype: str, sums: str, where: str) -> str:
    """Return the format of the sums, or refuse one that cannot hold the data."""
    sums = dtype if sums == "auto" else sums
    if sums not in (dtype, "f32"):
        raise ConfigError(
            f"{dtype} data cannot be summed in {sums}",
            where=f"{where}: sums",
            hint=f"{dtype} or f32" if dtype != "f32" else "f32",
            value=sums,
        )
    return sums


def reduces(
    lines: Sequence[Line], algorithm: str, group: int, n: int, dtype: str, sums: str, machine: Machine, spare: int = 0
) -> list[Reduce]:
    """Return the `Reduce` pieces of consecutive lines, with colors and queues of their own.

    Parameters
    ----------
    lines : sequence of Line
    algorithm : str
        ``auto`` or a name that `trees.build` knows.
    group : int
        Group size of two_phase, 0 for the default.
    n, dtype, sums, machine
        As the kernel's.
    spare : int
        Colors to be left for others.
    """
    wire, pool = costs.Wire.of(machine), color_pool(machine)
    b, pieces, used = wavelets_of(n, sums), [], 0
    for number, line in enumerate(lines):
        most = max(1, (len(pool) - spare - used) // (len(lines) - number))
        found = []
        for name in AUTO if algorithm == "auto" else (algorithm,):
            tree = trees.build(name, len(line), b, wire, min(group, len(line)), most)
            colors = tuple(pool[(used + k) % len(pool)] for k in range(tree.colors))  # too many: the plan is refused
            found.append(Reduce(line, tree, colors, n, dtype if number == 0 else sums, sums, 2 + number))
        found = [piece for piece in found if piece.tree.colors <= most] or found
        pieces.append(min(found, key=lambda piece: piece.end(0, machine)))
        used += pieces[-1].tree.colors
    return pieces


def admit(
    machine: Machine, name: str, layout_size: tuple[int, int], pieces: Sequence[Reduce], words: int = 0, extra: int = 0
) -> Plan:
    """Refuse a plan that needs more PEs, memory or colors than the machine has."""
    width, height = layout_size
    hops = sum(max(k - q for k, q in enumerate(r.tree.parent) if q >= 0) for r in pieces if len(r.tree) > 1)
    plan = Plan(
        name, width, height, words, sum(r.tree.colors for r in pieces) + extra, hops, sum(r.roundings for r in pieces)
    )
    return PlmrDevice.of(machine).admit(plan, where=f"kernel {name}")
