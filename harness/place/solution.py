"""Placements are written in the contest's text, checked and scored.

Two lines per kernel: its formal and its execution arguments (h and w, all c, all k), and the corner of least x and y
with the orientation; R90 is turned by a quarter::

    k13 = conv( 112 112 128 64 1 1 1 1 3 4 3 22 )
    k13 : place(258 210 R0)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from harness.place.kernels import FORMAL, Arguments, ContestKernel
from harness.place.kgraph import MOST_BYTES, ContestProblem
from wse_core.errors import ConfigError, LayoutError, UnsupportedError

__all__ = ["PlacedKernel", "Score", "check", "parse_solution", "read_solution", "scored", "wire_length", "written"]

KERNEL = re.compile(r"(\w+)\s*=\s*(\w+)\s*\(([\d\s]*)\)")
PLACE = re.compile(r"(\w+)\s*:\s*place\s*\(\s*(\d+)\s+(\d+)\s+(\w+)\s*\)")
MOST_DIGITS = 12


class PlacedKernel(NamedTuple):
    """A kernel on the wafer: its arguments, its corner of least x and y [PEs], whether it is turned."""

    kernel: ContestKernel
    given: Arguments
    x: int
    y: int
    turned: bool

    @property
    def size(self) -> tuple[int, int]:
        """The kernel has this width and height on the wafer [PEs]."""
        width, height = self.kernel.size(self.given)
        return (height, width) if self.turned else (width, height)


@dataclass(frozen=True)
class Score:
    """A `Score` says what a placement achieves.

    Attributes
    ----------
    slowest : Fraction
        Time of the slowest kernel.
    wire : Fraction
        Sum of the L1 distances between the centres of connected kernels [PEs].
    used : float
        Share of the wafer that rectangles cover.
    score : float or None
        Of the contest, less is better; None where adapters count, whose rule is not known.
    """

    slowest: Fraction
    wire: Fraction
    used: float
    score: float | None


def written(placed: Sequence[PlacedKernel]) -> str:
    """Return a placement as text."""
    lines = []
    for kernel, given, x, y, turned in placed:
        numbers = (*kernel.formal, given.h, given.w, *given.c, *given.k)
        lines.append(f"{kernel.name} = {kernel.kind}( {' '.join(map(str, numbers))} )")
        lines.append(f"{kernel.name} : place({x} {y} {'R90' if turned else 'R0'})")
    return "\n".join(lines) + "\n"


def read_solution(path: str | PathLike[str], problem: ContestProblem) -> list[PlacedKernel]:
    """Read a placement of a problem; `ConfigError` if it is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=Path(path)) from None
    if len(data) > MOST_BYTES:
        raise ConfigError(f"is larger than {MOST_BYTES:,} bytes", where=Path(path), hint="a solution")
    return parse_solution(data.decode("utf-8", "replace"), problem, str(path))


def parse_solution(text: str, problem: ContestProblem, where: str = "solution") -> list[PlacedKernel]:
    """Return the placement that a text states, in the order of the problem's kernels."""
    known = {kernel.name: kernel for kernel in problem.kernels}
    arguments: dict[str, Arguments] = {}
    places: dict[str, tuple[int, int, bool]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line, place = raw.strip(), f"{where}: line {number}"
        if not line:
            continue
        kernel_line, place_line = KERNEL.fullmatch(line), PLACE.fullmatch(line)
        match = kernel_line or place_line
        if not match:
            raise ConfigError(
                "is no line of a solution", where=place, hint="k1 = conv( ... ), or k1 : place(258 210 R0)"
            )
        name = match[1]
        if name not in known:
            raise ConfigError(f"the problem has no kernel {name[:40]}", where=place, hint="a kernel of the problem")
        if name in (arguments if kernel_line else places):
            raise ConfigError(f"{name} stands there twice", where=place, hint="once")
        if kernel_line:
            arguments[name] = _arguments(known[name], kernel_line[2], kernel_line[3].split(), place)
        else:
            x, y = (_number(word, place) for word in match.group(2, 3))
            if match[4] not in ("R0", "R90"):
                raise ConfigError(f"{match[4][:40]!r} is no orientation", where=place, hint="R0 or R90")
            places[name] = x, y, match[4] == "R90"
    for name in known:
        if name not in arguments or name not in places:
            what = "execution arguments" if name not in arguments else "place"
            raise ConfigError(f"{name} has no {what}", where=where, hint="two lines for every kernel")
    return [PlacedKernel(kernel, arguments[name], *places[name]) for name, kernel in known.items()]


def _number(word: str, place: str) -> int:
    """Return a number; refuse one so long that working with it would take time."""
    if len(word) > MOST_DIGITS:
        raise ConfigError(f"a number has {len(word)} digits", where=place, hint=f"at most {MOST_DIGITS}")
    return int(word)


def _arguments(kernel: ContestKernel, kind: str, words: Sequence[str], place: str) -> Arguments:
    """Return the execution arguments of a line, which must repeat the kernel's formal ones."""
    numbers = [_number(word, place) for word in words]
    formal, parts = len(FORMAL[kernel.kind]), len(kernel.parts)
    if kind != kernel.kind or tuple(numbers[:formal]) != kernel.formal:
        wanted = f"{kernel.kind}( {' '.join(map(str, kernel.formal))} ... )"
        raise ConfigError(f"{kernel.name} is another kernel in the problem", where=place, hint=wanted)
    given = numbers[formal:]
    if len(given) != 2 + 2 * parts:
        raise ConfigError(
            f"{kernel.name} has {len(given)} execution arguments", where=place, hint=f"{2 + 2 * parts} of them"
        )
    return Arguments(given[0], given[1], tuple(given[2 : 2 + parts]), tuple(given[2 + parts :]))


def check(problem: ContestProblem, placed: Sequence[PlacedKernel]) -> None:
    """Refuse a placement that is not valid.

    Raises
    ------
    LayoutError
        Execution arguments out of range, too much memory, a rectangle beyond the wafer, or two that overlap.
    """
    for item in placed:
        name = item.kernel.name
        if reason := item.kernel.refused(item.given):
            raise LayoutError(reason, where=name, hint="other execution arguments")
        memory = item.kernel.memory(item.given)
        if memory > problem.memory:
            raise LayoutError(
                f"needs {float(memory):.1f} words of a PE, which has {problem.memory}", where=name, hint="more PEs"
            )
        width, height = item.size
        if item.x < 0 or item.y < 0 or item.x + width > problem.width or item.y + height > problem.height:
            raise LayoutError(
                f"{width} x {height} PEs at ({item.x}, {item.y}) lie beyond the wafer of "
                f"{problem.width} x {problem.height}",
                where=name,
                hint="another place",
            )
    # Sorted by x, a rectangle can overlap only those that begin before its right side.
    order = sorted(placed, key=lambda item: item.x)
    for index, item in enumerate(order):
        width, height = item.size
        for other in order[index + 1 :]:
            if other.x >= item.x + width:
                break
            if other.y < item.y + height and item.y < other.y + other.size[1]:
                raise LayoutError(
                    f"overlaps {other.kernel.name} at ({other.x}, {max(item.y, other.y)})",
                    where=item.kernel.name,
                    hint="another place",
                )


def wire_length(problem: ContestProblem, placed: Sequence[PlacedKernel]) -> Fraction:
    """Return the sum of the L1 distances between the centres of connected kernels [PEs]."""
    doubled = [(2 * item.x + item.size[0], 2 * item.y + item.size[1]) for item in placed]
    return Fraction(
        sum(abs(doubled[a][0] - doubled[b][0]) + abs(doubled[a][1] - doubled[b][1]) for a, b in problem.wires), 2
    )


def scored(problem: ContestProblem, placed: Sequence[PlacedKernel], strict: bool = False) -> Score:
    """Return what a valid placement achieves.

    Parameters
    ----------
    strict : bool
        Refuse a problem whose score cannot be known, instead of leaving it out.

    Raises
    ------
    LayoutError
        It is not valid.
    UnsupportedError
        `strict`, and adapters count.
    """
    check(problem, placed)
    if strict and problem.adapter_weight:
        raise no_adapters(problem)
    slowest, wire = max(item.kernel.time(item.given) for item in placed), wire_length(problem, placed)
    used = sum(width * height for width, height in (item.size for item in placed))
    total = float(problem.time_weight * float(slowest) + problem.wire_weight * float(wire))
    return Score(slowest, wire, used / (problem.width * problem.height), None if problem.adapter_weight else total)


def no_adapters(problem: ContestProblem) -> UnsupportedError:
    """Return the refusal of a score in which adapters count."""
    return UnsupportedError(
        f"adapters count {problem.adapter_weight:g} each in its score, and the rule by which they arise is not known",
        where=problem.name or "problem",
        hint="--objective slowest, for which they do not matter",
    )
