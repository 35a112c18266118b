"""Samples are here that come with a library.

The handwritten digits are those of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI machine
learning repository, 1998, CC BY 4.0), 1,797 test images, as scikit-learn distributes them.  Its file of numbers is read
where it is installed: importing scikit-learn, and SciPy with it, would take longer than most trainings of them here.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from harness.kit.modules import need

__all__ = ["load_digits"]

DIGITS = "datasets/data/digits.csv.gz"
"""The digits are in scikit-learn: a line per image, 64 pixels of 0 to 16 and the digit."""


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return (images, labels): float64 (1797, 65) with pixels in 0 .. 1 and a last column of ones, and int64.

    Raises
    ------
    ConfigError
        If scikit-learn is not installed.
    """
    table = _table()
    pixels = table[:, :-1] / 16.0
    return np.hstack([pixels, np.ones((len(pixels), 1))]), table[:, -1].astype(np.int64)


def _table() -> np.ndarray:
    """Return the numbers of the file; by scikit-learn itself where its file is not what is known here."""
    found = find_spec("sklearn")
    path = Path(found.origin).parent / DIGITS if found is not None and found.origin else None
    if path is not None and path.is_file():
        with gzip.open(path) as lines:
            text = np.frombuffer(lines.read(), np.uint8)
        ends = np.flatnonzero(text < ord("0"))  # each number has one figure or two, then a comma or a new line
        if len(ends) == 1797 * 65 and (text[ends[64::65]] == ord("\n")).all() and np.diff(ends, prepend=-1).max() <= 3:
            figures = np.where(text < ord("0"), 0, text.astype(np.float64) - ord("0"))
            return (10 * figures[ends - 2] + figures[ends - 1]).reshape(1797, 65)
    digits = need("sklearn.datasets", "the data set digits").load_digits()
    return np.column_stack([np.asarray(digits.data, np.float64), np.asarray(digits.target, np.float64)])
