"""Arguments of `reduce` and `allreduce`, which take the same ones: drawn for property tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

FORMS = ("row", "column", "xy", "snake")


def calls(algorithms: Sequence[str], machines: Sequence[Mapping[str, int]]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw arguments of `tests.fabric.kernels.run`: a preset, one of the changes to it, and a whole call of a sum."""
    return st.fixed_dictionaries(
        {
            "preset": st.sampled_from(["wse2", "wse3"]),
            "overrides": st.sampled_from(machines),
            "algorithm": st.sampled_from(algorithms),
            "form": st.sampled_from(FORMS),
            "width": st.integers(1, 9),
            "height": st.integers(1, 6),
            "n": st.integers(1, 40),
            "group": st.integers(0, 6),
            "dtype": st.sampled_from(["f16", "cb16", "f32"]),
            "sums": st.sampled_from(["auto", "f32"]),
            "data": st.sampled_from(["normal", "ones", "special"]),
            "seed": st.integers(0, 1000),
        }
    )


def closing(machine, wavelets):
    """Most cycles by which a star may end before `Reduce.end` says, where place 0 begins later than the others."""
    depth = machine["router.depth"]
    room = machine["queue.in_depth"][2] + machine["ramp.in_buffer"] + depth
    return room // (wavelets - depth) if wavelets > depth else 0
