"""Random networks for the wafer: widths, depth, tiles, minibatch, functions, norm, optimizer, format."""

from __future__ import annotations

import numpy as np

from fabric.networks.pipelined.fit import words
from fabric.networks.pipelined.updates import Rule
from tests.fabric.networks.pipelined import Case
from wse_core.errors import ConfigError

__all__ = ["drawn"]

RULES = (Rule(), Rule("sgd", 0.9), Rule("adam"), Rule("adamw", 0.0, 0.01))
UPDATES = 24


def drawn(seed):
    """Return the `Case` of a number; what does not fit its PEs is drawn again."""
    rng = np.random.default_rng(seed)
    while True:
        depth = int(rng.integers(2, 5))
        features = [*rng.integers(8, 72, depth).tolist(), int(rng.integers(3, 11))]
        shapes = [tuple(rng.integers(1, 8, 2).tolist()) for _ in range(depth)]
        batch = int(rng.choice([2, 4, 8]))
        options = {
            "activation": str(rng.choice(["relu", "gelu", "none"])),
            "norm": bool(rng.integers(2)),
            "rule": RULES[int(rng.integers(len(RULES)))],
            "batch": batch,
            "dtype": str(rng.choice(["f16", "cb16"])),
            "loss_rows": int(rng.choice([k for k in (1, 2, 4, 8) if batch % k == 0])),
        }
        try:
            case = Case(features, shapes, updates=UPDATES, **options)
        except ConfigError:
            continue
        if all(words(tile, case.rule, UPDATES) <= case.machine["mem.words"] for tile in case.pipeline.tiles):
            return case
