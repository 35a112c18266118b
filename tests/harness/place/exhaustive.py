"""The slow twin of the search: every shape of every kernel at every place, for small wafers."""

from __future__ import annotations

import itertools
from fractions import Fraction

from harness.place.kernels import Arguments


def shapes(kernel, width, height, memory):
    """Return {(width, height on the wafer): least time} of all execution arguments."""
    found = {}
    parts = kernel.parts
    tops = [range(1, kernel.formal[0] + 1), range(1, kernel.formal[1] + 1)]
    tops += [range(1, part.inputs + 1) for part in parts] + [range(1, part.outputs + 1) for part in parts]
    for h, w, *rest in itertools.product(*tops):
        given = Arguments(h, w, tuple(rest[: len(parts)]), tuple(rest[len(parts) :]))
        if kernel.memory(given) > memory:
            continue
        wide, high = kernel.size(given)
        time = kernel.time(given)
        for size in ((wide, high), (high, wide)):
            if size[0] <= width and size[1] <= height and time < found.get(size, time + 1):
                found[size] = time
    return found


def smallest(sizes):
    """Return the sizes that contain no other one."""
    return [s for s in sizes if not any(o != s and o[0] <= s[0] and o[1] <= s[1] for o in sizes)]


def free(rectangle, others):
    """Whether a rectangle (x, y, width, height) overlaps none of others."""
    x, y, w, h = rectangle
    return all(x >= a + c or a >= x + w or y >= b + d or b >= y + h for a, b, c, d in others)


def packs(choices, width, height, placed=()):
    """Whether rectangles, each of one of its sizes, have room on the wafer."""
    if len(placed) == len(choices):
        return True
    return any(
        free((x, y, w, h), placed) and packs(choices, width, height, (*placed, (x, y, w, h)))
        for w, h in choices[len(placed)]
        for x in range(width - w + 1)
        for y in range(height - h + 1)
    )


def slowest(problem):
    """Return the least possible time of the slowest kernel, or None if nothing fits."""
    tables = [shapes(kernel, problem.width, problem.height, problem.memory) for kernel in problem.kernels]
    for time in sorted({time for table in tables for time in table.values()}):
        choices = [smallest([size for size, t in table.items() if t <= time]) for table in tables]
        if all(choices) and packs(choices, problem.width, problem.height):
            return time
    return None


def score(problem):
    """Return the least possible score."""
    tables = [shapes(kernel, problem.width, problem.height, problem.memory) for kernel in problem.kernels]
    best = [None]

    def place(sizes, placed, so_far):
        if best[0] is not None and so_far >= best[0]:
            return
        index = len(placed)
        if index == len(sizes):
            best[0] = so_far
            return
        w, h = sizes[index]
        for x in range(problem.width - w + 1):
            for y in range(problem.height - h + 1):
                if free((x, y, w, h), placed):
                    more = Fraction(0)
                    for pair in problem.wires:
                        if max(pair) == index:
                            a, b, c, d = placed[min(pair)]
                            more += Fraction(abs(2 * x + w - 2 * a - c) + abs(2 * y + h - 2 * b - d), 2)
                    place(sizes, (*placed, (x, y, w, h)), so_far + Fraction(problem.wire_weight) * more)

    chosen = itertools.product(*(table.items() for table in tables))
    for found in sorted(chosen, key=lambda found: max(time for _, time in found)):
        place([size for size, _ in found], (), Fraction(problem.time_weight) * max(time for _, time in found))
    return best[0]
