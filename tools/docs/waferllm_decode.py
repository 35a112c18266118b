"""WaferLLM's Decode is run from a tree of its sources and compared with numpy, bit for bit in f16.

    python -m tools.docs.waferllm_decode TREE [--mesh 8] [--tile 8] [--seeds 3]

``Decode/WSE-2`` of the tree is compiled and does one token of one layer with numbers of our own, small enough that no
sum overflows (its own script fills everything with numbers of one sign and looks at no result).  `decode` does the same
with numpy, every operation rounded once, in the order of the program's PEs.  It follows the program as it is: the norm
scales the squares; a rotation turns even features only, as setting the base of a descriptor drops the offset that made
it the odd ones; silu acts on what up gives.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tools.docs.waferllm_order import product, summed
from tools.docs.waferllm_runs import running
from wse_core.errors import ConfigError, WseError

__all__ = ["decode", "main", "of_wafer"]

Half = NDArray[np.float16]
WEIGHTS = (
    "Q_weight",
    "K_weight",
    "V_weight",
    "XKCache",
    "XVCache",
    "O_weight",
    "UP_weight",
    "GATE_weight",
    "DOWN_weight",
)


def numbers(mesh: int, tile: int, seed: int) -> dict[str, Half]:
    """Return what each PE begins with, by symbol: shape (rows, columns, elements of a PE)."""
    rng = np.random.default_rng(seed)

    def draw(count: int, size: float) -> Half:
        return rng.uniform(-size, size, (mesh, mesh, count)).astype(np.float16)

    found = {name: draw(tile * tile, 0.4) for name in WEIGHTS}
    for name, count, size in (
        ("X", tile, 2.0),
        ("W", tile, 1.0),
        ("freqs_sin", tile // 2, 1.0),
        ("freqs_cos", tile // 2, 1.0),
    ):
        found[name] = np.broadcast_to(draw(count, size)[:, :1], (mesh, mesh, count)).copy()  # alike in a row
    return found


def of_wafer(tree: Path, given: dict[str, Half], groups: int) -> Half:
    """Return what the program of the tree leaves as the result of each PE."""
    mesh, tile = given["X"].shape[1:]
    with running(tree, "decode", (tile, tile, tile), mesh, groups, given) as runner:
        runner.launch("decode_host", np.int16(0), np.int16(1))
        rows = [[runner.read_symbol(x, y, "Z_tile", np.float16) for x in range(mesh)] for y in range(mesh)]
    return np.array(rows)


def decode(given: dict[str, Half], groups: int) -> Half:
    """Return what each PE must have at the end."""
    mesh, tile = given["X"].shape[1:]
    one, length = np.float16(1), np.float16(mesh * tile)

    def along(axis: int, parts: Half, combine: Callable[[Half, Half], Half] = np.add) -> Half:
        total = summed(np.moveaxis(parts, axis, 0), groups, combine)
        return np.broadcast_to(np.expand_dims(total, axis), parts.shape)

    def times(x: Half, name: str) -> Half:
        return product(x, given[name].reshape(mesh, mesh, x.shape[2], -1))

    def in_order(x: Half) -> Half:
        total = np.zeros((mesh, mesh, 1), np.float16)
        for k in range(x.shape[2]):
            total = total + x[..., k : k + 1]
        return total

    def norm(x: Half) -> Half:
        squares = x * x
        mean = along(0, in_order(squares)) / length
        return squares * given["W"] * (one / np.sqrt(mean + np.float16(1e-6)))

    def turned(x: Half) -> Half:
        found = x.copy()
        found[..., ::2] = x[..., ::2] * given["freqs_cos"] + x[..., ::2] * given["freqs_sin"]
        return found

    def power(x: Half) -> Half:
        near = one + x / np.float16(256)
        near = near * near
        return near * near

    x = norm(given["X"])
    query = turned(along(0, times(x, "Q_weight")))
    score = along(1, times(query, "XKCache")) * (one / np.sqrt(length))
    most = along(0, np.maximum(score.max(axis=2, keepdims=True), np.float16(0)), np.maximum)
    score = power(score - most)
    score = score * (one / along(0, in_order(score)))
    first = given["X"] + along(1, times(along(0, times(score, "XVCache")), "O_weight"))
    x = norm(first)
    up, gate = along(0, times(x, "UP_weight")), along(0, times(x, "GATE_weight"))
    up = up / (one + power(-up))
    return first + along(1, times(up * gate, "DOWN_weight"))


def main(arguments: list[str] | None = None) -> int:
    """Compare; return 1 if a number differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.waferllm_decode", description="Decode of WaferLLM.")
    parser.add_argument("tree", type=Path, metavar="TREE", help="the sources of WaferLLM")
    parser.add_argument("--mesh", type=int, default=8, metavar="P", help="PEs of a side; default 8")
    parser.add_argument("--tile", type=int, default=8, metavar="N", help="features of a PE, even; default 8")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="sets of numbers; default 3")
    args = parser.parse_args(arguments)
    wrong = 0
    try:
        for seed in range(args.seeds):
            given = numbers(args.mesh, args.tile, seed)
            found, wanted = of_wafer(args.tree, given, 2), decode(given, 2)
            if not np.isfinite(wanted).all():
                raise ConfigError("a number is not finite, so that nothing is compared", where=f"seed {seed}")
            differ = int((found.view(np.uint16) != wanted.view(np.uint16)).sum())
            wrong += differ
            spread = f"{np.abs(wanted).min():.3g} to {np.abs(wanted).max():.3g}"
            print(f"seed {seed}: {differ} of {wanted.size} numbers differ; sizes {spread}")
    except WseError as error:
        print(str(error), file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
