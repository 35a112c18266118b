"""A transformer does attention and sums past blocks between its matrices, in models that no cycle-level wafer holds.

Attention takes what its commands take in programs of small networks (`swarm.cluster.graph_costs`), of as many tokens in
a PE and features of a head in a column.  On more rows of PEs than those a sequence takes as much longer per row; on
more columns a head takes as long as on `BESIDE`, since keys follow one another round their ring: on eight columns that
is 4 % too much to 7 % too little.
Where scores of long sequences do not fit a PE, 8 bytes for each of its tokens and of the sequence's, they are priced as
if they did; `AttentionCost.beyond` says so.

Source: weight streaming white paper, sections 4.2 and 7.2; the layout is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.tensors import INPUT
from swarm.cluster import graph_costs, layer_costs
from swarm.cluster.graph_costs import GraphShape
from swarm.cluster.layer_costs import Cost, PhaseCost, latency_of, tokens_of
from swarm.cluster.shapes import AttentionShape, LayerShape, Mesh
from wse_core.params import Machine

__all__ = ["AttentionCost", "attention_cost", "beyond", "phases", "sum_cost"]

SIZES, ROWS, TOKENS, BESIDE = (3, 8), (2, 3), 24, 4
"""Most is priced of so many features of a head in a column, rows of PEs of a sequence, tokens of a PE, and columns of a
head; of features two numbers if there are more than the larger one, of rows two if there are several."""
SUMMED = 16
"""Tokens of a sum that is priced; of more it takes as much longer."""
WORDS = {"attend": 6, "attend back": 10}
"""Words are commands besides those per head: operands, and the end of their list."""


@dataclass(frozen=True)
class AttentionCost:
    """Attention of a layer has this cost on a wafer.

    Attributes
    ----------
    cycles : dict[str, float]
        ``attend`` and ``attend back``.
    words : dict[str, int]
        Likewise.
    beyond : str
        What of it no program does, in words; empty: nothing.
    """

    cycles: dict[str, float]
    words: dict[str, int]
    beyond: str


PHASES = tuple(WORDS)


@lru_cache(maxsize=64)
def attention_cost(shape: AttentionShape, tokens: int, mesh: Mesh) -> AttentionCost:
    """Return the cost of attention.

    Parameters
    ----------
    shape : AttentionShape
    tokens : int
        Of a PE.
    mesh : Mesh
    """
    columns = max(1, min(shape.size, mesh.width // shape.kv_heads))
    features, commands = -(-shape.size // columns), -(-shape.kv_heads // mesh.width)
    own, group = min(tokens, shape.sequence), shape.heads // shape.kv_heads
    rows, count = shape.sequence / own, commands * max(1.0, tokens / shape.sequence)
    cycles, words = {}, {}
    form = mesh.apart.machine, own, group, shape.causal, min(columns, BESIDE)
    for phase in PHASES:
        one, two = (_on_rows(form, phase, features, rows, number) for number in (1, 1 + (count > 1)))
        cycles[phase] = one + (count - 1) * (two - one)
        words[phase] = mesh.width * (WORDS[phase] + round(count))
    scores = 8 * own * shape.sequence / columns
    beyond = ["sequences that do not divide over rows of PEs"] * (shape.sequence % own > 0)
    beyond += [f"{scores:,.0f} bytes of scores in a PE"] * (scores > 2 * mesh.machine["mem.words"])
    return AttentionCost(cycles, words, ", ".join(beyond))


Form = tuple[Machine, int, int, bool, int]
"""Machine, tokens of a PE, query heads that share one of keys, whether it is causal, columns of a head."""


def _on_rows(form: Form, phase: str, features: int, rows: float, number: int) -> float:
    """Return the cycles of some commands one behind the other, on any number of rows of a sequence."""
    if rows == 1:
        return _of_features(form, phase, features, 1, number)
    low, high = (_of_features(form, phase, features, count, number) for count in ROWS)
    return low + (high - low) * (rows - ROWS[0]) / (ROWS[1] - ROWS[0])


def _of_features(form: Form, phase: str, features: int, rows: int, number: int) -> float:
    """Return the same on rows that are priced, for any number of features."""
    if features <= SIZES[1]:
        return _of_tokens(form, features, rows, number)[phase]
    low, high = (_of_tokens(form, size, rows, number)[phase] for size in SIZES)
    return low + (high - low) * (features - SIZES[0]) / (SIZES[1] - SIZES[0])


def _of_tokens(form: Form, features: int, rows: int, number: int) -> dict[str, float]:
    """Return the same of features that are priced, for any number of tokens of a PE.

    Programs of many tokens, which take long to walk through or do not fit, need not be priced: a command takes a
    constant, each key one too, and of each query with each key a part.  The rows of the priced ones begin in the same
    banks of memory.
    """
    machine, tokens, group, causal, beside = form
    if tokens <= TOKENS:
        return _priced(machine, tokens, features, group, rows, causal, number, beside)
    banks = machine["mem.banks"]
    last = TOKENS - (TOKENS - tokens) % banks
    some = [max(1, last - 2 * banks), last - banks, last]
    found = [_priced(machine, one, features, group, rows, causal, number, beside) for one in some]
    return {name: float(np.polyval(np.polyfit(some, [one[name] for one in found], 2), tokens)) for name in PHASES}


@lru_cache(maxsize=256)
def _priced(
    machine: Machine, tokens: int, features: int, group: int, rows: int, causal: bool, number: int, beside: int
) -> dict[str, float]:
    """Return the cycles of the phases of a network with so many heads of keys and values on its few columns."""
    height = rows * -(-3 // rows)
    network = _network(number, number * group, features * beside, rows * tokens, causal)
    shape = GraphShape(replace(network, head_columns=beside))
    costs = graph_costs.phases(shape, tokens * height, Mesh(machine, beside, height))
    return {one.phase: one.cost.busy for one in costs if one.phase in (*PHASES, "add")}


def _network(kv_heads: int, heads: int, size: int, sequence: int, causal: bool) -> Network:
    """Return a network with attention and a sum past it."""
    features, keys = heads * size, kv_heads * size
    sizes = {"heads": heads, "kv_heads": kv_heads, "sequence": sequence, "causal": int(causal)}

    def product(name: str, given: str, inputs: int, outputs: int) -> Node:
        return Node(f"{name}.linear", "linear", (given,), {"inputs": inputs, "outputs": outputs, "bias": 0})

    nodes = [
        product("begin", INPUT, 1, features),
        product("q", "begin.linear", features, features),
        product("k", "begin.linear", features, keys),
        product("v", "begin.linear", features, keys),
        Node("mix.attention", "attention", ("q.linear", "k.linear", "v.linear"), sizes),
        Node("sum.add", "add", ("mix.attention", "begin.linear")),
        product("logits", "sum.add", features, 2),
        Node("loss", "cross_entropy", ("logits.linear",)),
    ]
    return Network(tuple(nodes), 1)


@lru_cache(maxsize=64)
def sum_cost(features: int, tokens: int, mesh: Mesh) -> float:
    """Return the cycles of a sum of two tensors, or of a copy, of so many features."""
    some = min(tokens, SUMMED)
    one, two = (_priced(mesh.apart.machine, some, 1, 1, 1, False, heads, 1)["add"] for heads in (1, 2))
    return one + (-(-features // mesh.width) - 1) * (two - one) * tokens / some


def phases(layers: Sequence[LayerShape], tokens: int, mesh: Mesh, form: str | None = None) -> tuple[PhaseCost, ...]:
    """Return the phases of an iteration, those without a matrix among them; parameters as of `layer_costs.phases`."""
    costs = layer_costs.phases(layers, tokens, mesh, form)
    if not any(layer.attention or layer.residual for layer in layers):
        return costs
    return tuple(_mixed(costs, layers, tokens_of(tokens, mesh), mesh))


def beyond(layers: Sequence[LayerShape], tokens: int, mesh: Mesh) -> str:
    """Return what of the attention of some layers no program does, in words; empty: nothing."""
    of_pe = tokens_of(tokens, mesh)
    said = (attention_cost(one.attention, of_pe, mesh).beyond for one in layers if one.attention)
    return "; ".join(dict.fromkeys(one for one in said if one))


def _mixed(costs: Sequence[PhaseCost], layers: Sequence[LayerShape], tokens: int, mesh: Mesh) -> Iterator[PhaseCost]:
    """Yield the phases with those that have no matrix: attention before its layer, sums past blocks behind theirs.

    On the way back a sum's gradient is copied for the block, and the block's added to what goes past it.
    """
    way, ways = latency_of(False, mesh), ("norm", "backward", "gradient")
    last = {one.layer: one for one in costs if one.phase not in ways}
    first: dict[int, PhaseCost] = {}
    for one in costs:
        if one.phase in ways:
            first.setdefault(one.layer, one)
    for one in costs:
        layer = layers[one.layer - 1]
        found = layer.attention and attention_cost(layer.attention, tokens, mesh)
        rows = -(-layer.outputs // mesh.width) * mesh.width
        if found and one.phase == "forward":
            yield PhaseCost("attend", one.layer, Cost(1, found.cycles["attend"], found.words["attend"], 0, way))
        if layer.residual and one is first.get(one.layer):
            busy = 2 * sum_cost(layer.outputs, tokens, mesh)
            yield PhaseCost("sum", one.layer, Cost(1, busy, 2 * rows + 5 * mesh.width, 0, way))
        yield one
        if layer.residual and one is last[one.layer]:
            busy = sum_cost(layer.outputs, tokens, mesh)
            yield PhaseCost("add", one.layer, Cost(1, busy, rows + 3 * mesh.width, 0, way))
        if found and one.phase == "backward":
            name = "attend back"
            yield PhaseCost(name, one.layer, Cost(1, found.cycles[name], found.words[name], 0, way))
