"""What a PE computes in program A is compiled and run: its parts in CSL, of the tile sizes that are asked for.

``csl`` beside this module has a program for each phase: the operations of the authors' program on a PE, in our own
words, each part between two readings of the cycle counter.  A number of the machine, or the compiler, that changes
changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.kit.modules import need
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["LINE", "PARTS", "line_parts", "part_cycles"]

PARTS = {
    "decode": (
        "norm",
        "query",
        "key",
        "value",
        "rotation",
        "scores",
        "scale",
        "most",
        "exp",
        "normalise",
        "values",
        "output",
        "residual",
        "up",
        "gate",
        "silu",
        "gated",
        "down",
        "between",
    ),
    "prefill": (
        "norm",
        "prepare",
        "square",
        "scores",
        "values",
        "wide",
        "narrow",
        "rotation",
        "softmax",
        "exp",
        "normalise",
        "silu",
        "start",
        "aim",
        "finish",
    ),
}
"""The program of a phase does these parts, in this order."""

LINE = {
    "meeting": (1, 2),
    "leaving": (5, 6),
    "opening": (7, 8),
    "closing": (14, 15),
    "meeting below": (21, 22),
    "again": (28, 29),
    "passing": (29, 30),
    "relaying": (35, 36),
    "relaying below": (41, 42),
    "passing below": (47, 48),
    "joining": (53, 54),
    "spreading": (55, 56),
    "returning": (56, 57),
    "called": (58, 59),
    "inlined": (59, 61),
    "held": (61, 62),
    "described": (62, 63),
}
"""The program of a line has these parts, each between two of its readings."""


@lru_cache(256)
def part_cycles(
    machine: Machine, phase: Literal["decode", "prefill"], features: int, tokens: int, ffn: int
) -> Mapping[str, int]:
    """Return the cycles of each part of a layer on a PE, by name.

    Parameters
    ----------
    machine : Machine
    phase : {"decode", "prefill"}
    features, tokens, ffn : int
        Features, tokens (of the cache, or of the prompt) and features of the feed-forward that a PE has.

    Raises
    ------
    ConfigError
        The parser's library is missing; the message says how it is installed.
    UnsupportedError
        The tiles do not fit into a PE.
    """
    sizes = {"d": features, "t": tokens, "f": ffn}
    what = f"{features} features, {tokens} tokens and {ffn} features of the feed-forward on a PE"
    names = PARTS[phase]
    took = np.diff(_readings(machine, phase, sizes, what)[: len(names) + 2])
    return MappingProxyType({name: int(cycles - took[0]) for name, cycles in zip(names, took[1:], strict=True)})


@lru_cache(16)
def line_parts(machine: Machine) -> Mapping[str, int]:
    """Return the cycles of what a PE executes around the transfers of a sum over a line, by name."""
    read = _readings(machine, "line", {}, "sums over a line")
    reading = read[1] - read[0]
    return MappingProxyType({name: int(read[end] - read[begin] - reading) for name, (begin, end) in LINE.items()})


def _readings(machine: Machine, program: str, sizes: dict[str, int], what: str) -> NDArray[np.int64]:
    """Return what a program of ``csl``, compiled for such sizes, has read from the cycle counter."""
    purpose = "program A, whose code is compiled from CSL,"
    need("lark", purpose)
    compiler = need("fabric.csl.compile", purpose)
    CslError = need("fabric.csl.diagnostics", purpose).CslError
    options = need("fabric.csl.comptime.session", purpose).Options(params=sizes)
    bundle_of = need("fabric.csl.artefact", purpose).bundle_of
    session = need("fabric.kernels.kit.session", purpose).Session
    # The programs are written for WSE-2, whose data tasks belong to colors; other numbers are those of the machine.
    machine = need("fabric.csl.rules", purpose).compiled(machine.replace({"task.by_queue": 0}))
    with resources.as_file(resources.files("harness.inference") / "csl" / f"{program}.csl") as path:
        try:
            made = compiler.compile_file(Path(path), options, machine)
        except CslError as error:
            raise UnsupportedError(f"program A's {program} with {what}", cause=error.what, hint="more PEs") from error
    ran = session(bundle_of(made).spec(machine), [], task=None)
    words = np.ravel(ran.read("begins")).reshape(-1, 3).astype(np.int64)
    return words @ (1, 1 << 16, 1 << 32)
