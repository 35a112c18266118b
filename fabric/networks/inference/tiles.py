"""Weights of a model as the PEs hold them: features in the order of the placement, tiles one after the other.

A model is a mapping from the names that the hub gives tensors (``model.layers.0.self_attn.q_proj.weight``) to arrays,
matrices [outputs, inputs].  Matrices and biases are rounded once to the format of the placement; norms are f32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.networks.inference.placement import NOTHING, Placement
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic, Bits
from wse_core.params import Machine

__all__ = ["embedding_rows", "layer_name", "place_weights", "tensor"]

Weights = Mapping[str, ArrayLike]


def layer_name(layer: int, name: str) -> str:
    """Return the hub's name of a tensor of a layer."""
    return f"model.layers.{layer}.{name}"


def tensor(weights: Weights, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a tensor as float64, or refuse one that is missing or of another shape."""
    if name not in weights:
        raise ConfigError(f"the model has no tensor {name}", where="model")
    found = np.asarray(weights[name])
    if found.shape != shape:
        raise ConfigError(f"tensor {name} has the shape {found.shape}, not {shape}", where="model")
    return found.astype(np.float64)


def _picked(matrix: NDArray[np.float64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return tiles matrix[rows[a], columns[b]], shape (a, b, rows, columns); zero where a list has `NOTHING`."""
    padded = np.zeros((matrix.shape[0] + 1, matrix.shape[1] + 1))  # index -1 is the zero behind the last
    padded[:-1, :-1] = matrix
    assert NOTHING == -1
    return padded[rows[:, np.newaxis, :, np.newaxis], columns[np.newaxis, :, np.newaxis, :]]


def _by_columns(tiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return tiles (height, width, rows, depth) as a PE holds them, column by column: (height, width, elements)."""
    return tiles.swapaxes(2, 3).reshape(*tiles.shape[:2], -1)


def embedding_rows(place: Placement, machine: Machine, weights: Weights, token: int) -> Bits:
    """Return what a token's embedding sends into each row: bits of 16-bit numbers, shape (height, hidden)."""
    decoder = place.decoder
    name = "model.embed_tokens.weight"
    if name not in weights:
        raise ConfigError(f"the model has no tensor {name}", where="model")
    row = np.append(np.asarray(weights[name])[token].astype(np.float64), 0.0)
    assert len(row) == decoder.hidden + 1
    return Arithmetic.of(machine, place.dtype).encode(row[place.hidden_rows])


def place_weights(place: Placement, machine: Machine, weights: Weights) -> dict[str, Bits]:
    """Return what the PEs hold: symbol -> bits of shape (height, width, elements).

    Raises
    ------
    ConfigError
        A tensor is missing or has another shape; the message names it.
    """
    decoder, half = place.decoder, Arithmetic.of(machine, place.dtype)
    shapes = decoder.shapes()
    queries, keys, hidden, ffn = place.queries, place.keys, place.hidden_rows, place.ffn_columns
    tiles: list[Bits] = []
    norms: list[Bits] = []
    biases: list[Bits] = []

    def add(parts: list[NDArray[np.float64]], name: str) -> None:
        """Add tiles of shape (height, width, rows, depth) that lie below one another."""
        flat = half.encode(_by_columns(np.concatenate(parts, axis=2)))
        tiles.append(np.pad(flat, ((0, 0), (0, 0), (0, place.tile_words(place.shapes[name]) - flat.shape[2]))))

    def along_y(name: str, shape: tuple[int, int], outputs: NDArray[np.int64]) -> NDArray[np.float64]:
        return _picked(tensor(weights, name, shape), outputs, hidden).swapaxes(0, 1)

    def norm(name: str) -> None:
        values = np.append(tensor(weights, name, (decoder.hidden,)), 0.0)
        norms.append(np.asarray(values[hidden], np.float32).view(np.uint32))

    for layer in range(decoder.layers):
        attention = {k: layer_name(layer, f"self_attn.{k}.weight") for k in ("q_proj", "k_proj", "v_proj", "o_proj")}
        inner = {k: layer_name(layer, f"mlp.{k}.weight") for k in ("gate_proj", "up_proj", "down_proj")}
        norm(layer_name(layer, "input_layernorm.weight"))
        norm(layer_name(layer, "post_attention_layernorm.weight"))
        cut = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        add([along_y(attention[k], shapes[k], outputs) for k, outputs in cut.items()], "qkv")
        add([_picked(tensor(weights, attention["o_proj"], shapes["o_proj"]), hidden, queries)], "o")
        add([along_y(inner[k], shapes[k], ffn) for k in ("gate_proj", "up_proj")], "gate_up")
        add([_picked(tensor(weights, inner["down_proj"], shapes["down_proj"]), hidden, ffn)], "down")
        if decoder.qkv_bias:
            found = []
            for k, outputs in cut.items():
                values = tensor(weights, layer_name(layer, f"self_attn.{k}.bias"), (shapes[k][0],))
                found.append(np.append(values, 0.0)[outputs])
            biases.append(half.encode(np.concatenate(found, axis=1)))
    norm("model.norm.weight")
    head = "model.embed_tokens.weight" if decoder.tied else "lm_head.weight"
    add([along_y(head, (decoder.vocabulary, decoder.hidden), place.ids)], "head")

    size = place.height, place.width
    result = {"weights": np.concatenate(tiles, axis=2)}
    by_row = np.concatenate(norms, axis=1)[:, np.newaxis]
    result["norms"] = np.broadcast_to(by_row, (*size, by_row.shape[2]))
    if biases:
        by_column = np.concatenate(biases, axis=1)[np.newaxis]
        result["biases"] = np.broadcast_to(by_column, (*size, by_column.shape[2]))
    return result
