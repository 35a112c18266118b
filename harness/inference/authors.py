"""Program A: the program of the paper's authors as it is published, on this machine.

It is a skeleton for timing, and is composed as one.  All sizes are cut into equal tiles of a square of P x P PEs; keys
and values are as wide as the hidden state, in a single head; sums are f16; the cache has a fixed length; there is no
embedding, no output matrix, no bias and no norm of heads.  What a PE computes is compiled and run
(`harness.inference.compiled`), transfers are closed forms of kernels.  Their own programs run beside it in
docs/inference.md.

Decode, ten all-reduces by trees of two levels (`harness.inference.line`), d' = d / P, f' = f / P, t = cached tokens
/ P, rounded up::

    norm (1)   q, k, v (3 d')   scores (t)   max (1)   sum (1)
    P V (d')   O (d')           norm (1)     up, gate (2 f')   down (d')

Prefill, nine products of P steps each.  A step multiplies tiles while those of the next step move, in turns with them,
and five times the left matrix is aligned by P / 2 turns.  The scores' step also adds its product along the row
toward a root that moves; rows pass sums on one after the other, so that a step pays the words, not the way.
"""

from __future__ import annotations

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.decoder import Decoder
from fabric.price import timing
from harness.inference.compiled import decode_parts, prefill_parts
from harness.inference.costs import all_reduce, cdiv, even, moved
from harness.inference.ledger import PartCost
from harness.inference.line import line_cycles
from harness.inference.phase import LayerCycles
from harness.inference.works import line_work, multiplied, partial_work, ring_work
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["LEVELS", "decode", "prefill"]

LEVELS = 2
"""All trees of the authors' programs have so many levels (K)."""
SHORTEST = 3
"""A line of so many PEs has no groups."""
CALLED = ("norm", "sum", "O", "second norm", "down")
"""The functions of these sums are called from several places, and are a part of none."""


def _side(decoder: Decoder, width: int, height: int) -> int:
    """Return the side of a square mesh, or refuse it or the decoder."""
    if decoder.centred or decoder.parallel or not decoder.gated or decoder.experts:
        raise UnsupportedError(
            "program A of a model that is no LLaMA",
            cause="its authors' layer has RMSNorm, a gate, no experts, and one part behind the other",
            hint="program B, which stands beside it",
        )
    if width != height:
        raise UnsupportedError(
            f"program A on {width} x {height} PEs", hint="a square mesh: theirs are square; program B takes any"
        )
    return width


def decode(
    machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096, groups: int = 0
) -> LayerCycles:
    """Return a step of decode over a cache of so many tokens, by trees of so many groups (0: those of `groups_of`)."""
    m, p = machine, _side(decoder, width, height)
    d, f, t = cdiv(decoder.hidden, p), cdiv(decoder.ffn, p), cdiv(tokens, p)
    part = decode_parts(m, d, t, f)
    counts = {
        "norm": 1,
        "q, k, v": 3 * d,
        "scores": t,
        "max": 1,
        "sum": 1,
        "P V": d,
        "O": d,
        "second norm": 1,
        "up, gate": 2 * f,
        "down": d,
    }

    def product(name: str, depth: int, columns: int) -> PartCost:
        return _product(m, part[name], depth, columns)

    def summed(name: str, n: int) -> PartCost:
        if p <= SHORTEST:
            return all_reduce(m, p, n, "f16")
        count = even(n)
        cycles = line_cycles(m, p, wavelets_of(count, "f16"), name in CALLED, name == "max", groups)
        return PartCost.of(cycles, line_work, m, p, count, "f16", LEVELS, ())

    return LayerCycles(
        "A",
        "decode",
        decoder.layers,
        {name: summed(name, n) for name, n in counts.items()},
        {
            "q, k, v": product("query", d, d) + product("key", d, d) + product("value", d, d),
            "scores": product("scores", d, t),
            "P V": product("values", t, d),
            "O": product("output", d, d),
            "up, gate": product("up", d, f) + product("gate", d, f),
            "down": product("down", f, d),
        },
        {
            "norms": PartCost.code(2 * part["norm"]),
            "rotation": PartCost.code(2 * part["rotation"]),
            "softmax": PartCost.code(sum(part[name] for name in ("scale", "most", "exp", "normalise"))),
            "silu": PartCost.code(part["silu"] + part["gated"]),  # over d' values, although the vector has f'
            "residuals": PartCost.code(2 * part["residual"]),
            "between layers": PartCost.code(part["between"]),
        },
    )


def _product(machine: Machine, cycles: float, turns: int, n: int) -> PartCost:
    """Return the cost of a product in so many turns, each a multiply-add of n elements, and of what is around them."""
    added = turns * PartCost.of(timing.steps(machine, "fmach", n), multiplied, n)
    return added + PartCost.code(cycles - added)


def prefill(machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096) -> LayerCycles:
    """Return the prefill of so many tokens."""
    m, p = machine, _side(decoder, width, height)
    s, d, f = cdiv(tokens, p), cdiv(decoder.hidden, p), cdiv(decoder.ffn, p)
    part = prefill_parts(m, d, s, f)

    def words(count: int) -> int:
        """Return the wavelets of a tile, of which whole pairs move."""
        return wavelets_of(count // 4 * 4, "f16")

    def product(name: str, depth: int, columns: int, left: bool = True) -> PartCost:
        """Return the cycles of all steps of a product; moves take turns with what is multiplied."""
        tiles = words(s * depth) * left + words(depth * columns)
        moves = PartCost.of(2 * tiles, ring_work, p, tiles)

        def step(cycles: float) -> PartCost:
            return _product(m, cycles - float(moves), depth * columns, s) + moves

        return step(part[name].first) + (p - 1) * step(part[name].further)

    def line(n: int) -> PartCost:
        """Return the cycles of a chain from both ends to the middle, and back to all, of n numbers."""
        half, count = p // 2, wavelets_of(even(n), "f16")
        cycles = half * timing.stage(m) + count + timing.transfer(m, count, half, 6, 2)
        return PartCost.of(cycles, partial_work, p, n, "same")

    def local(*names: str) -> PartCost:
        return PartCost.code(sum(part[name].first for name in names))

    summed = PartCost.of(2 * wavelets_of(even(s * s), "f16"), partial_work, p, s * s, "same")
    turn = PartCost.code(part["turn"].further) - moved(p, words(s * d))
    turns = {"X": s * d, "P": s * s, "attention": s * d, "second X": s * d, "inner": s * f}
    return LayerCycles(
        "A",
        "prefill",
        decoder.layers,
        {"norms": 2 * line(s), "softmax": 2 * line(s), "scores": p * summed + timing.way(m, p)},
        {
            "q, k, v": product("query", d, d) + product("key", d, d) + product("value", d, d),
            "scores": product("scores", d, s, left=False),
            "P V": product("values", s, d),
            "O": product("output", d, d),
            "up, gate": product("up", d, f) + product("gate", d, f),
            "down": product("down", f, d),
            "alignment": sum((p // 2 * (turn + moved(p, words(n))) for n in turns.values()), PartCost(0)),
        },
        {
            "norms": 2 * local("norm"),
            "rotation": 2 * local("rotation"),
            "softmax": local("softmax", "exp", "normalise"),
            "silu": local("silu"),
        },
    )
