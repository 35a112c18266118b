"""Entries of keys and values are followed from PE to PE, for `fabric.networks.inference.move.cycles`."""

import numpy as np
from numpy.typing import NDArray

class Follower:
    """A `Follower` has the times of all PEs of two meshes, layer by layer."""

    def __init__(
        self, costs: dict[str, float], shares: NDArray[np.int64], ways: NDArray[np.uint8], down: bool, behind: int
    ) -> None: ...
    def layer(self, at: NDArray[np.float64], taken: NDArray[np.float64]) -> None:
        """Follow one layer: `at` is when each PE of the first mesh can go on, `taken` the same of the other's roots."""
