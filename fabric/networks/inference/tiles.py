"""Weights of a model as the PEs hold them: features in the order of the placement, tiles one after the other.

A model is a mapping from the names that the hub gives tensors (``model.layers.0.self_attn.q_proj.weight``) to arrays,
matrices [outputs, inputs].  Matrices and biases are rounded once to the format of the placement; norms are f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.networks.inference.decoder import EMBEDDING, NORMS, POSITIONS, ROUTER
from fabric.networks.inference.placement import NOTHING, DecoderPlacement
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["embedding_rows", "layer_name", "place_weights", "tensor"]

Weights = Mapping[str, ArrayLike]

BLOCK = 1 << 20
"""Numbers that are rounded at a time: they take several times the room of their bits."""


def layer_name(layer: int, name: str) -> str:
    """Return the hub's name of a tensor of a layer."""
    return f"model.layers.{layer}.{name}"


def tensor(weights: Weights, name: str, shape: tuple[int, ...]) -> Any:
    """Return a tensor, of which rows can be taken, or refuse one that is missing or of another shape."""
    if name not in weights:
        raise ConfigError(f"the model has no tensor {name}", where="model")
    found: Any = weights[name]
    found = found if hasattr(found, "shape") else np.asarray(found)
    if found.shape != shape:
        raise ConfigError(f"tensor {name} has the shape {found.shape}, not {shape}", where="model")
    return found


def _encoded(matrix: Any, half: Arithmetic) -> Bits:
    """Return the bits of a matrix with a row and a column of zeros behind the last, encoded some rows at a time."""
    rows, columns = matrix.shape
    bits = np.zeros((rows + 1, columns + 1), half.bits_dtype)
    each = max(1, BLOCK // columns)
    for first in range(0, rows, each):
        bits[first : min(first + each, rows), :-1] = half.encode(np.asarray(matrix[first : first + each]))
    return bits


def _placed(bits: Bits, outputs: NDArray[np.int64], inputs: NDArray[np.int64], turned: bool) -> Bits:
    """Return the tiles of an encoded matrix as PEs hold them: shape (height, width, depth, rows).

    Parameters
    ----------
    bits : ndarray
        With zeros at index `NOTHING`.
    outputs, inputs : ndarray
        Features of each place, shapes (places, rows) and (places, depth).
    turned : bool
        Whether inputs lie over y and outputs over x; else the reverse.
    """
    whole = bits[outputs.ravel()][:, inputs.ravel()].reshape(*outputs.shape, *inputs.shape)
    return whole.transpose((2, 0, 3, 1) if turned else (0, 2, 3, 1))


def embedding_rows(place: DecoderPlacement, machine: Machine, weights: Weights, token: int, position: int) -> Bits:
    """Return what a token at a position sends into each row: bits of 16-bit numbers, shape (height, hidden).

    It is the row of its embedding; where positions are learned, the host adds the row of its position, and the sum is
    rounded once.

    Raises
    ------
    ConfigError
        There is no table of embeddings, or the position is behind the last learned one.
    """
    decoder = place.decoder
    tables = [(EMBEDDING, token), *[(POSITIONS, position)] * decoder.learned]
    if decoder.learned and position >= decoder.context:
        raise ConfigError(
            f"position {position}; the model has learned {decoder.context}", where="decoder", hint="a shorter text"
        )
    row = np.zeros(decoder.hidden + 1)
    for name, number in tables:
        if name not in weights:
            raise ConfigError(f"the model has no tensor {name}", where="model")
        row[:-1] += np.asarray(weights[name][number], np.float64)  # type: ignore[index]
    return Arithmetic.of(machine, place.dtype).encode(row[place.hidden_rows])


Part = tuple[str, tuple[int, int], NDArray[np.int64], NDArray[np.int64]]
"""A `Part` is a matrix of a product: name, shape, and the features of each place that are its outputs and its inputs.
"""


def _feed_forward(place: DecoderPlacement, layer: int) -> Iterator[tuple[str, list[Part]]]:
    """Yield the products of a layer's feed-forward part, or of its router and all experts, in their order."""
    decoder, shapes, hidden, ffn = place.decoder, place.decoder.shapes(), place.hidden_rows, place.ffn_columns
    if decoder.experts:
        every = np.tile(np.arange(decoder.experts), (place.width, 1))
        yield "router", [(layer_name(layer, ROUTER), (decoder.experts, decoder.hidden), every, hidden)]
    for part in decoder.ffn_names:
        yield "gate_up", [(layer_name(layer, f"{part}{k}.weight"), shapes[k], ffn, hidden) for k in decoder.inward]
        yield "down", [(layer_name(layer, f"{part}down_proj.weight"), shapes["down_proj"], hidden, ffn)]


def place_weights(place: DecoderPlacement, machine: Machine, weights: Weights) -> dict[str, Bits]:
    """Return what the PEs hold: symbol -> bits of shape (height, width, elements).

    Raises
    ------
    ConfigError
        A tensor is missing or has another shape; the message names it.
    """
    decoder, half = place.decoder, Arithmetic.of(machine, place.dtype)
    assert NOTHING == -1  # an index of -1 takes the zeros behind the last
    shapes, size = decoder.shapes(), (place.height, place.width)
    queries, keys, hidden, ffn = place.queries, place.keys, place.hidden_rows, place.ffn_columns
    tiles = np.zeros((*size, place.weight_words), np.uint16)
    norms = [(hidden != NOTHING).astype(np.float32).view(np.uint32)] * place.mask_vectors
    biases: list[Bits] = []
    row_biases: list[Bits] = []
    head_norms: list[NDArray[np.uint32]] = []
    at = 0

    def add(name: str, parts: Sequence[Part]) -> None:
        """Add a product's tiles: those of some matrices below one another."""
        nonlocal at
        shape, low = place.shapes[name], 0
        view = tiles[:, :, at : at + shape.rows * shape.depth].reshape(*size, shape.depth, shape.rows)
        assert np.may_share_memory(view, tiles)
        for tensor_name, wanted, outputs, inputs in parts:
            bits = _encoded(tensor(weights, tensor_name, wanted), half)
            view[..., low : low + outputs.shape[1]] = _placed(bits, outputs, inputs, turned=inputs is hidden)
            low += outputs.shape[1]
        at += place.tile_words(shape)

    def norm(name: str, features: NDArray[np.int64], count: int) -> NDArray[np.uint32]:
        values = np.append(np.asarray(tensor(weights, name, (count,)), np.float32), np.float32(0))
        return values[features].view(np.uint32)

    def bias(name: str, features: NDArray[np.int64]) -> Bits:
        product = name.split(".")[-2]
        return half.encode(np.append(tensor(weights, name, (shapes[product][0],)), 0.0)[features])

    for layer in range(place.first, place.first + decoder.layers):
        attention = {k: layer_name(layer, f"self_attn.{k}.weight") for k in ("q_proj", "k_proj", "v_proj", "o_proj")}
        for name in NORMS[decoder.norms]:
            for part in decoder.norm_parts:
                norms.append(norm(layer_name(layer, f"{name}.{part}"), hidden, decoder.hidden))
        cut = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        add("qkv", [(attention[k], shapes[k], outputs, hidden) for k, outputs in cut.items()])
        add("o", [(attention["o_proj"], shapes["o_proj"], hidden, queries)])
        for product, matrices in _feed_forward(place, layer):
            add(product, matrices)
        for k, outputs in cut.items() if decoder.qkv_bias else ():
            biases.append(bias(layer_name(layer, f"self_attn.{k}.bias"), outputs))
        if decoder.o_bias:
            row_biases.append(bias(layer_name(layer, "self_attn.o_proj.bias"), hidden))
        if decoder.ffn_bias:
            biases += [bias(layer_name(layer, f"mlp.{k}.bias"), ffn) for k in decoder.inward]
            row_biases.append(bias(layer_name(layer, "mlp.down_proj.bias"), hidden))
        for name, count in decoder.query_key_norms.items():
            features = (queries if name[0] == "q" else keys) if decoder.projection_norms else place.of_head
            head_norms.append(norm(layer_name(layer, f"self_attn.{name}.weight"), features, count))
    if place.last:
        norms += [norm(f"model.norm.{part}", hidden, decoder.hidden) for part in decoder.norm_parts]
        if decoder.head_bias:
            values = np.append(tensor(weights, "lm_head.bias", (decoder.vocabulary,)), 0.0)
            biases.append(half.encode(values[place.ids]))
        head = EMBEDDING if decoder.tied else "lm_head.weight"
        add("head", [(head, (decoder.vocabulary, decoder.hidden), place.ids, hidden)])

    result: dict[str, Bits] = {"weights": tiles}
    by_row = np.concatenate(norms, axis=1)[:, np.newaxis]
    result["norms"] = np.broadcast_to(by_row, (*size, by_row.shape[2]))
    if row_biases:
        by_row = np.concatenate(row_biases, axis=1)[:, np.newaxis]
        result["row_biases"] = np.broadcast_to(by_row, (*size, by_row.shape[2]))
    for symbol, parts in (("biases", biases), ("head_norms", head_norms)):
        if parts:
            by_column = np.concatenate(parts, axis=1)[np.newaxis]
            result[symbol] = np.broadcast_to(by_column, (*size, by_column.shape[2]))
    return result
