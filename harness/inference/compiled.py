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

from harness.kit.modules import need
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["PARTS", "part_cycles"]

PARTS = {
    "decode": (
        "norm",
        "square",
        "rotation",
        "scores",
        "scale",
        "most",
        "exp",
        "normalise",
        "values",
        "residual",
        "wide",
        "silu",
        "gate",
        "narrow",
        "meeting",
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
    purpose = "program A, whose code is compiled from CSL,"
    need("lark", purpose)
    compiler = need("fabric.csl.compile", purpose)
    CslError = need("fabric.csl.diagnostics", purpose).CslError
    options = need("fabric.csl.comptime.session", purpose).Options(params={"d": features, "t": tokens, "f": ffn})
    bundle_of = need("fabric.csl.artefact", purpose).bundle_of
    session = need("fabric.kernels.kit.session", purpose).Session
    # The programs are written for WSE-2, whose data tasks belong to colors; other numbers are those of the machine.
    machine = need("fabric.csl.rules", purpose).compiled(machine.replace({"task.by_queue": 0}))
    with resources.as_file(resources.files("harness.inference") / "csl" / f"{phase}.csl") as path:
        try:
            made = compiler.compile_file(Path(path), options, machine)
        except CslError as error:
            raise UnsupportedError(
                f"program A's {phase} with {features} features, {tokens} tokens and {ffn} features of the feed-forward "
                "on a PE",
                cause=error.what,
                hint="more PEs",
            ) from error
    ran = session(bundle_of(made).spec(machine), [], task=None)
    names = PARTS[phase]
    words = np.ravel(ran.read("begins"))[: 3 * (len(names) + 2)].reshape(-1, 3).astype(np.int64)
    took = np.diff(words @ (1, 1 << 16, 1 << 32))
    return MappingProxyType({name: int(cycles - took[0]) for name, cycles in zip(names, took[1:], strict=True)})
