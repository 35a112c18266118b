"""Program B is a decoder that computes what the model says, composed of this project's parts.

Columns of PEs are cut into as many groups as there are heads of keys; a group holds its key head and the query heads
that share it, each column whole pairs of rotary features.  So scores are summed inside a group only, which is short,
and the rest takes longer than program A: sums are f32, silu runs over all of the feed-forward's width, exponentials
over every head.  With fewer columns than key heads, columns hold several heads, one after the other.

Decode: the sums and lines of `fabric.networks.inference`, ten all-reduces as the paper counts them::

    norm (1) y   q, k, v y   scores, group x   max y   sum y   P V y   O x   norm (1) y   gate, up y   down x

Norms of heads, of a model that has them, take another one in the group, of a value per head; those of projections one
along x.

Prefill: sequence over y, features over x; products by MeshGEMM with weights in place, the left matrix aligned by one
turn less than there are columns, as the kernel does; scores as `gemm_t` inside a group, P V by floods inside a group.
P V by floods has no kernel yet: its step is written from the step of `gemm_t` and not measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.decoder import NORMS, Decoder
from harness.inference.costs import (
    alignment,
    axis_sums,
    cdiv,
    elementwise,
    even,
    flooded,
    group_sum,
    matrix_vector,
    mesh_gemm,
    moved,
    scores,
    vector_function,
)
from harness.inference.ledger import PartCost
from harness.inference.phase import LayerCycles
from wse_core.params import Machine

__all__ = ["Tiles", "decode", "prefill", "tiles"]


@dataclass(frozen=True)
class Tiles:
    """A `Tiles` has the numbers of features of a PE, the largest of all PEs.

    Attributes
    ----------
    group : int
        Columns of a head group.
    rounds : int
        Groups that a column serves, one after the other: 1 unless there are more key heads than columns.
    keys, values : int
        Features of a key head and of a value head on a column; keys are whole rotary pairs.
    queries : int
        Query heads of a group.
    across, along : int
        Hidden features of a column, and of a row.
    inner : int
        Features of the feed-forward part on a column.
    """

    group: int
    rounds: int
    keys: int
    values: int
    queries: int
    across: int
    along: int
    inner: int

    @property
    def projected(self) -> int:
        """A column has so many features of queries, keys and values."""
        return self.rounds * ((self.queries + 1) * self.keys + self.values)

    @property
    def turned(self) -> int:
        """A column has so many heads of queries and of keys that turn with their position."""
        return self.rounds * (self.queries + 1)


def tiles(decoder: Decoder, width: int, height: int) -> Tiles:
    """Return the tiles of a decoder on a mesh."""
    group = max(1, width // decoder.kv_heads)
    return Tiles(
        group=group,
        rounds=cdiv(decoder.kv_heads, width),
        keys=2 * cdiv(decoder.head_size // 2, group),
        values=cdiv(decoder.head_size, group),
        queries=decoder.group,
        across=cdiv(decoder.hidden, width),
        along=cdiv(decoder.hidden, height),
        inner=cdiv(decoder.ffn, width),
    )


def _norms(machine: Machine, decoder: Decoder, n: int, rows: int = 1) -> PartCost:
    """Return the cycles of all norms of a layer beside their all-reduces, of so many rows of n features."""
    m = machine
    found = len(NORMS[decoder.norms]) * _norm(m, n, rows)
    if decoder.centred:
        computed = decoder.norm_sums // 2
        found += computed * rows * (elementwise(m, "fadds", n) + elementwise(m, "fmacs", n, 3))
    return found + decoder.norm_bias * len(NORMS[decoder.norms]) * rows * elementwise(m, "fadds", n)


def _norm(machine: Machine, n: int, rows: int = 1) -> PartCost:
    """Return the cycles of a norm of so many rows of n features beside its all-reduce."""
    m = machine
    own = elementwise(m, "fmachs", n, 3) + 3 * elementwise(m, "fmuls", n)
    return rows * own + vector_function(m, "rsqrt", rows)


def _rotation(machine: Machine, features: int) -> PartCost:
    """Return the cycles of turning queries and keys: four products of halves, and one rounding of all."""
    return 4 * elementwise(machine, "fmuls", features // 2, 3) + elementwise(machine, "fmuls", features)


def _of_turning(decoder: Decoder, cycles: PartCost) -> PartCost:
    """Return what a layer takes in the mean if only layers that turn take so long."""
    turning = sum(kind.turns for kind in decoder.different)
    return cycles * turning / decoder.layers if decoder.different else cycles


def _biases(machine: Machine, decoder: Decoder, hidden: int, inner: int) -> dict[str, PartCost]:
    """Return the cycles of biases of the output projection and of the feed-forward part, if there are some."""
    numbers = (decoder.o_bias + decoder.ffn_bias) * hidden + len(decoder.inward) * decoder.ffn_bias * inner
    return {"biases": elementwise(machine, "faddhs", numbers)} if numbers else {}


def _limits(machine: Machine, decoder: Decoder, scores: int) -> dict[str, PartCost]:
    """Return the cycles of a window and a cap of so many scores, the mean of all layers."""
    found: dict[str, PartCost] = {}
    if decoder.window is not None:
        windowed = sum(kind.window is not None for kind in decoder.different)
        found["window"] = elementwise(machine, "fmins", scores) * windowed / decoder.layers
    if decoder.score_cap is not None:
        around = 2 * elementwise(machine, "fmuls", scores) + 3 * elementwise(machine, "fadds", scores)
        functions = vector_function(machine, "exp", scores) + vector_function(machine, "reciprocal", scores)
        found["cap"] = around + functions
    return found


def _softmax(machine: Machine, heads: int, tokens: int, values: int) -> PartCost:
    """Return the cycles of scaling, maximum, exponentials, sums and the division of so many heads' scores."""
    m = machine
    each = elementwise(m, "fmaxs", tokens) + elementwise(m, "fsubs", tokens) + elementwise(m, "fadds", tokens)
    whole = 2 * elementwise(m, "fmuls", heads * tokens) + vector_function(m, "exp", heads * tokens)
    return heads * (each + elementwise(m, "fmuls", values)) + whole + vector_function(m, "reciprocal", heads)


def _choice(machine: Machine, decoder: Decoder, tokens: int = 1) -> dict[str, PartCost]:
    """Return the cycles in which so many tokens find their experts and shares, if there are experts to be chosen.

    For each choice the largest logit and its number, the lowest of equal ones, are looked for among all.
    """
    m, experts, chosen = machine, decoder.experts, decoder.chosen
    if not experts:
        return {}
    search = 4 * elementwise(m, "fmaxs", experts) + 3 * elementwise(m, "fsubs", experts)
    search += 3 * elementwise(m, "fmuls", experts)
    summed = chosen if decoder.renormalised else experts
    shares = vector_function(m, "exp", summed) + vector_function(m, "reciprocal", 1)
    return {"choice of experts": tokens * (chosen * search + shares)}


def _gated(machine: Machine, n: int, decoder: Decoder) -> PartCost:
    """Return the cycles of act(gate) * up over n values: exp and reciprocal, and what stands around them."""
    m = machine
    if decoder.activation == "relu":
        return elementwise(m, "fmaxs", n) + decoder.gated * elementwise(m, "fmuls", n)
    around = 4 * elementwise(m, "fmuls", n) + elementwise(m, "fmaxs", n) + elementwise(m, "fadds", n)
    around -= (not decoder.gated) * elementwise(m, "fmuls", n)
    if decoder.activation == "gelu":
        around += 2 * elementwise(m, "fmuls", n) + elementwise(m, "fadds", n)
    if decoder.activation == "gelu_erf":  # a polynomial of four degrees, and what is around it
        around += 9 * elementwise(m, "fmuls", n) + 2 * elementwise(m, "fadds", n)
    return vector_function(m, "exp", n) + vector_function(m, "reciprocal", n) + around


def decode(
    machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096, sums: str = "f32"
) -> LayerCycles:
    """Return a step of decode over a cache of so many tokens; `sums` is f32, or f16 as in program A."""
    m, t = machine, tiles(decoder, width, height)
    rows, heads, chosen = cdiv(tokens, height), t.rounds * t.queries, max(1, decoder.chosen)
    along_y = {
        "norm": 1,
        **{f"norm {k}": 1 for k in range(3, 1 + decoder.norm_sums)},
        "q, k, v": t.projected,
        "max": heads,
        "sum": heads,
        "P V": heads * t.values,
        **({"second norm": 1} if decoder.norm_sums > 1 else {}),
        **({"router": decoder.experts} if decoder.experts else {}),
        "gate, up": chosen * len(decoder.inward) * t.inner,
    }
    along_x = {"O": t.along, "down": t.along}
    kind = "f32" if sums == "f32" else "same"
    levels = 2 if sums != "f32" and min(width, height) > 3 else 0
    y, _ = axis_sums(m, height, tuple(along_y.values()), sums, levels)
    x, _ = axis_sums(m, width, tuple(along_x.values()), sums, levels)
    found: dict[str, PartCost] = {**dict(zip(along_y, y, strict=True)), **dict(zip(along_x, x, strict=True))}
    found["scores"] = t.rounds * group_sum(m, t.group, even(t.queries * rows), sums)
    local: dict[str, PartCost] = {}
    if decoder.head_norms:
        found["norms of heads"] = group_sum(m, t.group, t.turned, sums)
        local["norms of heads"] = _norm(m, t.keys, t.turned)
    if decoder.projection_norms:
        found["norms of projections"] = axis_sums(m, width, (2,), sums)[0][0]
        local["norms of projections"] = _norm(m, (t.queries + 1) * t.rounds * t.keys)
    local |= _biases(m, decoder, t.along, t.inner) | _limits(m, decoder, heads * rows) | _choice(m, decoder)
    router = {"router": matrix_vector(m, decoder.experts, t.along, kind)} if decoder.experts else {}
    return LayerCycles(
        "B",
        "decode",
        decoder.layers,
        found,
        {
            "q, k, v": matrix_vector(m, t.projected, t.along, kind),
            "scores": heads * matrix_vector(m, rows, t.keys, kind),
            "P V": heads * matrix_vector(m, t.values, rows, kind),
            "O": matrix_vector(m, t.along, heads * t.values, kind),
            **router,
            "gate, up": chosen * matrix_vector(m, len(decoder.inward) * t.inner, t.along, kind),
            "down": chosen * matrix_vector(m, t.along, t.inner, kind),
        },
        {
            "norms": _norms(m, decoder, t.along),
            "rotation": _of_turning(decoder, t.rounds * _rotation(m, (t.queries + 1) * t.keys)),
            "softmax": _softmax(m, heads, rows, t.values),
            "silu": _gated(m, chosen * t.inner, decoder),
            "residuals": 2 * elementwise(m, "fadds", t.along),
            **local,
        },
    )


def prefill(
    machine: Machine, decoder: Decoder, width: int, height: int, tokens: int = 4096, sums: str = "f32"
) -> LayerCycles:
    """Return the prefill of so many tokens; `sums` is f32, or f16 as in program A."""
    m, t = machine, tiles(decoder, width, height)
    rows, heads, chosen = cdiv(tokens, height), t.rounds * t.queries, max(1, decoder.chosen)
    slices = math.lcm(width, height)
    kind = "f32" if sums == "f32" else "same"
    depth, attention, inner = (cdiv(n, slices) for n in (decoder.hidden, heads * t.values * width, decoder.ffn))

    def left(k: int) -> PartCost:
        return alignment(m, width, (height - 1) * (slices // width), wavelets_of(even(rows * k), "f16"))

    def gemm(k: int, columns: int) -> PartCost:
        return mesh_gemm(m, width, height, rows, k, columns, kind) + left(k)

    def by_experts(k: int, columns: int) -> PartCost:
        """Products of all experts, each with the tokens that chose it: all are chosen as often."""
        count = cdiv(rows * chosen, decoder.experts or 1)
        return max(1, decoder.experts) * mesh_gemm(m, width, height, count, k, columns, kind) + left(k)

    def tile(k: int, columns: int) -> int:
        return wavelets_of(even(k * columns), "f16")

    asked = scores(m, t.group, height, rows, t.keys, kind, heads, t.rounds)
    weighted = height * (
        heads * (matrix_vector(m, rows, rows, kind, t.values) + flooded(tile(rows, rows)))
        + t.rounds * (moved(height, tile(rows, t.values)) + PartCost.code(m["infer.weight_step"]))
    )
    width_of_scores = cdiv(tokens, t.group)
    norms = axis_sums(m, width, (rows,) * decoder.norm_sums, sums)[0]
    own: dict[str, PartCost] = {}
    local: dict[str, PartCost] = {}
    if decoder.head_norms:
        own["norms of heads"] = group_sum(m, t.group, rows * t.turned, sums)
        local["norms of heads"] = _norm(m, t.keys, rows * t.turned)
    if decoder.projection_norms:
        own["norms of projections"] = axis_sums(m, width, (2 * rows,), sums)[0][0]
        local["norms of projections"] = _norm(m, (t.queries + 1) * t.rounds * t.keys, rows)
    local |= _biases(m, decoder, rows * t.across, rows * t.inner)
    local |= _limits(m, decoder, heads * rows * width_of_scores) | _choice(m, decoder, rows)
    return LayerCycles(
        "B",
        "prefill",
        decoder.layers,
        {
            "norms": sum(norms, PartCost(0)),
            "softmax": 2 * t.rounds * group_sum(m, t.group, even(t.queries * rows), sums),
            **own,
        },
        {
            "q, k, v": gemm(depth, t.projected),
            "scores": asked,
            "P V": weighted,
            "O": gemm(attention, t.across),
            **({"router": gemm(depth, decoder.experts)} if decoder.experts else {}),
            "gate, up": by_experts(depth, len(decoder.inward) * t.inner),
            "down": by_experts(inner, t.across),
        },
        {
            "norms": _norms(m, decoder, t.across, rows),
            "rotation": _of_turning(decoder, t.rounds * _rotation(m, rows * (t.queries + 1) * t.keys)),
            "softmax": _softmax(m, heads * rows, width_of_scores, t.values),
            "silu": _gated(m, rows * chosen * t.inner, decoder),
            "residuals": 2 * elementwise(m, "fadds", rows * t.across),
            **local,
        },
    )
