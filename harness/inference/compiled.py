"""What a PE computes in program A is compiled and run: its parts in CSL, of the tile sizes that are asked for.

``csl`` beside this module has a program for each phase: the operations of the authors' program on a PE, in our own
words, each part between two readings of the cycle counter.  A number of the machine, or the compiler, that changes
changes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from harness.kit.modules import need
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["DECODE", "LINE", "PREFILL", "PrefillPart", "decode_parts", "line_parts", "prefill_parts"]

DECODE = (
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
)
"""The program of a step of decode does these parts, in this order."""

PREFILL = {
    "norm": (1, 2),
    "query": (2, 7),
    "key": (7, 12),
    "value": (12, 17),
    "rotation": (17, 18),
    "scores": (18, 23),
    "softmax": (23, 24),
    "exp": (24, 25),
    "normalise": (25, 26),
    "values": (26, 31),
    "output": (31, 36),
    "up": (36, 41),
    "gate": (41, 46),
    "silu": (46, 47),
    "down": (47, 52),
    "turn": (52, 57),
}
"""The program of prefill does these parts, from a reading to another one; products and turns have four steps, with a
reading behind each and one at the end."""

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


@dataclass(frozen=True)
class PrefillPart:
    """A `PrefillPart` says what the steps of a part of a layer take on a PE, while tiles move.

    Attributes
    ----------
    first : float
        With what is prepared before it.
    further : float
        On average over steps that take their tiles from one buffer and from the other.
    """

    first: float
    further: float


@lru_cache(256)
def decode_parts(machine: Machine, features: int, tokens: int, ffn: int) -> Mapping[str, int]:
    """Return the cycles of each part of a layer of decode on a PE, by name.

    Parameters
    ----------
    machine : Machine
    features, tokens, ffn : int
        Features, tokens of the cache and features of the feed-forward that a PE has.

    Raises
    ------
    ConfigError
        The parser's library is missing; the message says how it is installed.
    UnsupportedError
        The tiles do not fit into a PE.
    """
    took = np.diff(_of_tiles(machine, "decode", features, tokens, ffn)[: len(DECODE) + 2])
    return MappingProxyType({name: int(cycles - took[0]) for name, cycles in zip(DECODE, took[1:], strict=True)})


@lru_cache(256)
def prefill_parts(machine: Machine, features: int, tokens: int, ffn: int) -> Mapping[str, PrefillPart]:
    """Return the cycles of each part of a layer of prefill on a PE, by name; parts without steps have a first one only.

    Parameters
    ----------
    machine : Machine
    features, tokens, ffn : int
        Features, tokens of the prompt and features of the feed-forward that a PE has.

    Raises
    ------
    ConfigError
        The parser's library is missing; the message says how it is installed.
    UnsupportedError
        The tiles do not fit into a PE.
    """
    took = np.diff(_of_tiles(machine, "prefill", features, tokens, ffn))
    took -= took[0]  # of a reading
    found = {}
    for name, (begin, end) in PREFILL.items():
        further = took[begin + 1 : end - 1]
        found[name] = PrefillPart(float(took[begin]), float(further[:2].mean()) if further.size else 0.0)
    return MappingProxyType(found)


@lru_cache(16)
def line_parts(machine: Machine) -> Mapping[str, int]:
    """Return the cycles of what a PE executes around the transfers of a sum over a line, by name."""
    read = _readings(machine, "line", {}, "sums over a line")
    reading = read[1] - read[0]
    return MappingProxyType({name: int(read[end] - read[begin] - reading) for name, (begin, end) in LINE.items()})


def _of_tiles(machine: Machine, program: str, features: int, tokens: int, ffn: int) -> NDArray[np.int64]:
    what = f"{features} features, {tokens} tokens and {ffn} features of the feed-forward on a PE"
    return _readings(machine, program, {"d": features, "t": tokens, "f": ffn}, what)


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
