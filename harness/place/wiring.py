"""Wires become shorter at the same sizes: rectangles slide in what room is left, by two linear programs.

Two rectangles that do not overlap are apart in x or in y.  Kept apart as they are, the sum of the L1 distances of
connected centres is least for a linear program per axis, whose matrix is that of a network, so that corners come out
whole.  Which axis keeps two apart is chosen anew from each result until nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.kit.modules import need

__all__ = ["shortened", "wire_of"]

MOST_ROUNDS = 8


def wire_of(corners: np.ndarray, sizes: np.ndarray, wires: Sequence[tuple[int, int]]) -> float:
    """Return the sum of the L1 distances of connected centres.

    Parameters
    ----------
    corners, sizes : numpy.ndarray
        (items, 2): x and y; width and height [PEs].
    wires : sequence of (int, int)
    """
    if not wires:
        return 0.0
    doubled = 2 * corners + sizes
    ends = np.array(wires)
    return float(np.abs(doubled[ends[:, 0]] - doubled[ends[:, 1]]).sum()) / 2


def shortened(
    corners: np.ndarray, sizes: np.ndarray, wires: Sequence[tuple[int, int]], room: tuple[int, int]
) -> np.ndarray:
    """Return corners with wires that are as short as sliding makes them, never longer than before.

    Parameters
    ----------
    corners, sizes : numpy.ndarray
        (items, 2), int: x and y; width and height of rectangles that do not overlap [PEs].
    wires : sequence of (int, int)
        Connected items.
    room : (int, int)
        Width and height of the wafer [PEs].

    Raises
    ------
    ConfigError
        SciPy is not installed.
    """
    linprog = need("scipy.optimize", "sliding rectangles together").linprog
    best, length = corners, wire_of(corners, sizes, wires)
    for turn in range(MOST_ROUNDS if wires else 0):
        apart = _apart(best, sizes, turn % 2)
        new = np.empty_like(best)
        for axis in (0, 1):
            slid = _slid(linprog, sizes[:, axis], apart[axis], wires, room[axis])
            if slid is None:
                return best
            new[:, axis] = slid
        now = wire_of(new, sizes, wires)
        if now >= length and turn % 2:
            break
        if now <= length:
            best, length = new, now
    return best


def _apart(corners: np.ndarray, sizes: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for both axes which item lies wholly before which; a pair is kept by the axis with the wider gap."""
    gaps = [corners[None, :, axis] - (corners + sizes)[:, None, axis] for axis in (0, 1)]  # [i, j]: from i to j
    widest = [np.maximum(gap, gap.T) for gap in gaps]
    across = widest[0] > widest[1] if first else widest[0] >= widest[1]
    before = (across & (gaps[0] >= 0), ~across & (gaps[1] >= 0))
    for relation in before:
        np.fill_diagonal(relation, False)
    return _direct(before[0]), _direct(before[1])


def _direct(before: np.ndarray) -> np.ndarray:
    """Return an order without what follows from the rest of it."""
    number = before.astype(np.float32)
    return before & ~((number @ number) > 0)


def _slid(
    linprog: object, sizes: np.ndarray, before: np.ndarray, wires: Sequence[tuple[int, int]], room: int
) -> np.ndarray | None:
    """Return the corners along one axis that make wires shortest, or None if the solver gives up."""
    from scipy.sparse import csr_array

    items, ends = len(sizes), np.array(wires)
    first, second = ends[:, 0], ends[:, 1]
    earlier, later = np.nonzero(before)
    orders, count = len(earlier), len(wires)
    rows: list[np.ndarray] = [np.arange(orders)] * 2
    columns, values = [earlier, later], [np.ones(orders), -np.ones(orders)]
    limits = [-sizes[earlier].astype(float)]
    # The distance of a wire is at least the difference of its centres, either way round.
    shift = (sizes[first] - sizes[second]) / 2
    for index, sign in enumerate((1, -1)):
        row = orders + index * count + np.arange(count)
        rows += [row] * 3
        columns += [first, second, items + np.arange(count)]
        values += [np.full(count, sign), np.full(count, -sign), np.full(count, -1)]
        limits.append(-sign * shift)
    matrix = csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(orders + 2 * count, items + count),
    )
    # Centres of an odd and an even side are half a PE apart at least; without this the optimum lies between PEs.
    bounds = [(0, int(room - size)) for size in sizes] + [(float(abs(s) % 1), None) for s in shift]
    objective = np.concatenate([np.zeros(items), np.ones(count)])
    result = linprog(objective, A_ub=matrix, b_ub=np.concatenate(limits), bounds=bounds, method="highs-ds")  # type: ignore[operator]
    if result.x is None:
        return None
    corner = np.rint(result.x[:items]).astype(int)
    kept = (corner[earlier] + sizes[earlier] <= corner[later]).all() and (corner >= 0).all()
    return corner if kept and (corner + sizes <= room).all() else None
