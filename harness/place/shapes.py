"""A kernel has these shapes: for a time limit, the least height for every width, and the execution arguments of each.

Candidates are all (h, w, q): h and w cut the image, and every part takes c = q - 1 pieces of the inputs, or all of
them.  With these the height is given, and the least k of each part that keeps time and memory follows; so one pass over
some thousand candidates gives the whole curve.  Integers throughout, as `harness.place.kernels` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from harness.place.kernels import BESIDE, Arguments, ContestKernel

__all__ = ["FOREVER", "NEVER", "Shapes", "inverse", "least_time"]

FOREVER = 2**62
"""This time limit keeps nothing out, and fits into 64 bits."""
NEVER = 1 << 20
"""Height or width that no wafer has: there is no such shape."""


def inverse(curve: np.ndarray, most: int) -> np.ndarray:
    """Return the least index at which a falling curve is at most 0 .. `most`; `NEVER` where it is not.

    Turns the least height for every width into the least width for every height, and back.
    """
    found = np.searchsorted(-curve, -np.arange(most + 1))
    found[found == len(curve)] = NEVER
    return found


def _pairs(kernel: ContestKernel, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return h and w of all useful cuts of the image: among those of one product, none is better for every part.

    The image of the smallest part bounds them, so that h and w are arguments of each part.
    """
    parts = kernel.parts
    high, wide = min(part.height for part in parts), min(part.width for part in parts)
    h, w = np.meshgrid(np.arange(1, min(high, most) + 1), np.arange(1, min(wide, most) + 1), indexing="ij")
    keep = h * w <= most
    h, w = h[keep], w[keep]
    pieces = np.array([-(-part.height // h) * -(-part.width // w) for part in parts])
    useful = []
    order = np.lexsort((*pieces[::-1], h * w))
    best: list[np.ndarray] = []
    product = 0
    for index in order:
        if h[index] * w[index] != product:
            product, best = h[index] * w[index], []
        column = pieces[:, index]
        if not any((other <= column).all() for other in best):
            best.append(column)
            useful.append(index)
    return h[useful], w[useful]


class Shapes:
    """A `Shapes` has the shapes of one kernel on a wafer.

    Parameters
    ----------
    kernel : ContestKernel
    width, height : int
        Of the wafer [PEs].
    memory : int
        Of a PE [words].
    """

    def __init__(self, kernel: ContestKernel, width: int, height: int, memory: int) -> None:
        self.kernel, self.wafer = kernel, (width, height)
        most = self.most = max(width, height)
        h, w = _pairs(kernel, most // 2)
        deepest = max(part.inputs for part in kernel.parts) + 1
        counts = np.minimum(most // np.maximum(h * w, 1), deepest) - 1  # q is 2 .. most / (h w), at most deepest
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        q = np.arange(counts.sum()) - starts + 2
        h, w = np.repeat(h, counts), np.repeat(w, counts)
        order = np.argsort(h * w * q, kind="stable")
        self.h, self.w, self.q = h[order], w[order], q[order]
        self.heights = self.h * self.w * self.q
        self.different, self.starts = np.unique(self.heights, return_index=True)
        product = self.h * self.w
        self.steps, self.least_k = [], []
        for part in kernel.parts:
            c = np.minimum(self.q - 1, part.inputs)
            self.steps.append(
                -(-part.height // self.h)
                * -(-part.width // self.w)
                * -(-part.inputs // c)
                * (part.filter_height * part.filter_width)
            )
            words = part.outputs * (
                part.inputs * part.filter_height * part.filter_width * product
                + (part.width + part.filter_width - 1) * (part.height + part.filter_height - 1) * c
            )
            self.least_k.append(-(-words // (memory * c * product)))

    def _outputs(self, limit: Fraction) -> list[np.ndarray]:
        """Return the least k of each part for every candidate; `NEVER` where there is none."""
        found = []
        for part, steps, least in zip(self.kernel.parts, self.steps, self.least_k, strict=True):
            rounds = min(int(limit * part.stride**2), FOREVER) // steps
            k = np.maximum(-(-part.outputs // np.maximum(rounds, 1)), least)
            found.append(np.where((rounds > 0) & (k <= part.outputs), k, NEVER))
        return found

    def natural(self, limit: Fraction) -> np.ndarray:
        """Return the least width for each height 0 .. side of the wafer, as the kernel lies unturned."""
        widths = np.minimum(BESIDE * np.sum(self._outputs(limit), axis=0), NEVER)
        least = np.full(self.most + 1, NEVER)
        least[self.different] = np.minimum.reduceat(widths, self.starts)  # candidates are in the order of heights
        least = np.minimum.accumulate(least)
        least[least > self.most] = NEVER
        return least

    def curve(self, limit: Fraction) -> np.ndarray:
        """Return the least height on the wafer for each width 0 .. width, turned or not.

        Parameters
        ----------
        limit : Fraction
            The kernel takes at most this time.
        """
        width, height = self.wafer
        turned = self.natural(limit)
        curve = np.minimum(turned, inverse(turned, self.most))[: width + 1]
        curve[curve > height] = NEVER
        return curve

    def area(self, limit: Fraction) -> int:
        """Return the area of the smallest shape on the wafer [PEs]; at least `NEVER` if there is none."""
        curve = self.curve(limit)
        return int((curve * np.arange(len(curve)))[1:].min())

    def arguments(self, limit: Fraction, width: int, height: int) -> tuple[Arguments, bool] | None:
        """Return the fastest arguments found within a rectangle of the wafer and a time limit, and if turned.

        Of several the smallest rectangle; None if nothing fits.
        """
        best = None
        outputs = self._outputs(limit)
        total = BESIDE * np.sum(outputs, axis=0)
        for turned, (wide, high) in ((False, (width, height)), (True, (height, width))):
            fits = np.flatnonzero((self.heights <= high) & (total <= wide))
            if len(fits):
                index = fits[np.argmin(self.heights[fits] * total[fits])]
                area = int(self.heights[index] * total[index])
                if best is None or area < best[0]:
                    c = tuple(int(min(self.q[index] - 1, part.inputs)) for part in self.kernel.parts)
                    k = tuple(int(column[index]) for column in outputs)
                    best = area, Arguments(int(self.h[index]), int(self.w[index]), c, k), turned
        return None if best is None else best[1:]


def least_time(shapes: Sequence[Shapes], counts: Sequence[int], room: int, digits: int = 12) -> Fraction:
    """Return the least time limit at which the smallest shapes of all kernels have no more area than there is.

    Parameters
    ----------
    shapes : sequence of Shapes
        Kinds of kernels.
    counts : sequence of int
        How many of each.
    room : int
        Area of the wafer [PEs].
    digits : int
        Halvings of the interval: the result is at most 2**-digits too large.
    """

    def fits(limit: Fraction) -> bool:
        return sum(shape.area(limit) * count for shape, count in zip(shapes, counts, strict=True)) <= room

    high = Fraction(1)
    while not fits(high) and high < FOREVER:
        high *= 2
    low = high / 2
    for _ in range(digits):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
