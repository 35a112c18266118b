"""Program A: the program of the paper's authors as it is published, on this machine.

It is a skeleton for timing, and is composed as one.  All sizes are cut into equal tiles of a square of P x P PEs; keys
and values are as wide as the hidden state, in a single head; sums are f16; the cache has a fixed length; there is no
embedding, no output matrix, no bias and no norm of heads.  Element-wise parts take the cycles that their code takes,
which was counted by hand (`infer.*` of `wse_core.numbers`): 30 % of them is 8 % of a layer of decode and 10 % of one of
prefill.

Decode, ten all-reduces by K-trees of two levels, d' = d / P, f' = f / P, t = cached tokens / P, rounded up::

    norm (1)   q, k, v (3 d')   scores (t)   max (1)   sum (1)
    P V (d')   O (d')           norm (1)     up, gate (2 f')   down (d')

Prefill, nine products of P steps each.  A step multiplies tiles of s x k and k x c in

    110 + k (42 + c (s / lanes + 2)) + twice the wavelets that move

cycles, and five times the left matrix is aligned by P / 2 turns.  The scores' step also adds its product along the row
toward a root that moves; rows pass sums on one after the other, so that a step pays the words, not the way.
"""

from __future__ import annotations

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.decoder import Decoder
from fabric.price import timing
from harness.inference.costs import all_reduce, cdiv, matrix_vector, moved
from harness.inference.ledger import PartCost
from harness.inference.phase import LayerCycles
from harness.inference.works import multiplied, partial_work
from wse_core.errors import UnsupportedError
from wse_core.params import Machine

__all__ = ["LEVELS", "STEPS", "decode", "prefill"]

LEVELS = 2
"""All trees of the authors' programs have so many levels (K)."""

STEPS = (
    "q, k, v",
    "scores",
    "scale",
    "max",
    "sum",
    "P V",
    "O",
    "residual",
    "up, gate",
    "product",
    "down",
    "second residual",
)
"""These steps of a layer of decode cost no more than `infer.glue` beside their sums and products."""


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


def decode(machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096) -> LayerCycles:
    """Return a step of decode over a cache of so many tokens."""
    m, p = machine, _side(decoder, width, height)
    d, f, t = cdiv(decoder.hidden, p), cdiv(decoder.ffn, p), cdiv(tokens, p)
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
    return LayerCycles(
        "A",
        "decode",
        decoder.layers,
        {
            name: all_reduce(m, p, n, "f16", LEVELS) if p > 3 else all_reduce(m, p, n, "f16")
            for name, n in counts.items()
        },
        {
            "q, k, v": 3 * matrix_vector(m, d, d, "same"),
            "scores": matrix_vector(m, t, d, "same"),
            "P V": matrix_vector(m, d, t, "same"),
            "O": matrix_vector(m, d, d, "same"),
            "up, gate": 2 * matrix_vector(m, f, d, "same"),
            "down": matrix_vector(m, d, f, "same"),
        },
        {
            "norms": PartCost.code(2 * m["infer.norm"]),
            "rotation": PartCost.code(2 * (m["infer.rotation"] + m["infer.rotation_value"] * d)),
            "exp": PartCost.code(m["infer.exp"] * t),
            "silu": PartCost.code(m["infer.silu"] * d),  # over d' values, although the vector has f'
            "glue": PartCost.code(m["infer.glue"] * len(STEPS)),
        },
    )


def prefill(machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096) -> LayerCycles:
    """Return the prefill of so many tokens."""
    m, p = machine, _side(decoder, width, height)
    s, d, f = cdiv(tokens, p), cdiv(decoder.hidden, p), cdiv(decoder.ffn, p)
    column = PartCost.of(timing.steps(m, "fmach", s), multiplied, s) + PartCost.code(m["infer.prefill_column"])

    def words(count: int) -> int:
        return wavelets_of(count + count % 2, "f16")

    def product(depth: int, columns: int, left: bool = True) -> PartCost:
        work = depth * (PartCost.code(m["infer.prefill_depth"]) + columns * column)
        tiles = moved(p, words(s * depth) * left + words(depth * columns))
        return p * (PartCost.code(m["infer.prefill_step"]) + work + tiles)

    def line(n: int) -> PartCost:
        """Return the cycles of a chain from both ends to the middle, and back to all, of n numbers."""
        half = p // 2
        cycles = half * timing.stage(m) + words(n) + timing.transfer(m, words(n), half, 6, 2)
        return PartCost.of(cycles, partial_work, p, n, "same")

    summed = PartCost.of(2 * words(s * s), partial_work, p, s * s, "same")
    turns = {"X": s * d, "P": s * s, "attention": s * d, "second X": s * d, "inner": s * f}
    return LayerCycles(
        "A",
        "prefill",
        decoder.layers,
        {
            "norms": 2 * line(s),
            "softmax": 2 * line(s),
            "scores": p * (PartCost.code(m["infer.prefill_step"]) + summed) + timing.way(m, p),
        },
        {
            "q, k, v": 3 * product(d, d),
            "scores": product(d, s, left=False),
            "P V": product(s, d),
            "O": product(d, d),
            "up, gate": 2 * product(d, f),
            "down": product(f, d),
            "alignment": sum(
                (p // 2 * (PartCost.code(m["infer.prefill_turn"]) + moved(p, words(n))) for n in turns.values()),
                PartCost(0),
            ),
        },
        {
            "norms": PartCost.code(2 * m["infer.norm"] * s),
            "rotation": PartCost.code(2 * (m["infer.rotation"] + m["infer.rotation_value"] * s * d)),
            "exp": PartCost.code(m["infer.prefill_exp"] * s * s),
            "silu": PartCost.code(m["infer.prefill_silu"] * s * d),
        },
    )
