"""A prompt read on the wafer: the host sends the embeddings of its tokens and starts the program; what stays in the PEs
is what decoding finds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.host.running import Progress
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.tiles import embedding_rows
from wse_core.errors import ConfigError
from wse_core.formats import Bits

__all__ = ["KEPT", "Reading", "as_cycles", "embeddings", "read_prompt", "readings"]

KEPT = ("weights", "cache", "norms", "biases", "row_biases", "head_norms", "last")
"""The two programs of a PE have these at the same place."""


@dataclass(frozen=True)
class Reading:
    """A `Reading` is what the reading of a prompt gave: bits that the PEs keep, cycles and counters.

    Attributes
    ----------
    kept : dict
        Bits of `KEPT` in the PEs, (height, width, elements).
    addresses : dict
        Word at which each of them lies, (height, width).
    begun, cycles : int
        The cycle in which the first embedding begins to enter, and how many there are from then to the end of the last
        PE.
    stamps : ndarray of int64, shape (parts, height, width)
        When the program began and each of `program.PARTS` was done; zero where a program is not timed.
    hops : int
        Wavelet hops.
    counters : dict
        Counters of all PEs: name -> (array, unit).
    """

    kept: dict[str, Bits]
    addresses: dict[str, NDArray[np.int64]]
    begun: int
    cycles: int
    stamps: NDArray[np.int64]
    hops: int
    counters: dict[str, tuple[NDArray[Any], str]]


def readings(fabric: Fabric, symbol: str, rect: tuple[int, int, int, int] | None = None) -> NDArray[np.int64]:
    """Return readings of the cycle counter that PEs stored, of all or of a rectangle: (readings, height, width)."""
    words = fabric.read(symbol, rect)
    return np.moveaxis(as_cycles(words.reshape(*words.shape[:2], -1, 3)), -1, 0)


def as_cycles(words: NDArray[Any]) -> NDArray[np.int64]:
    """Return readings of the cycle counter from their three words of 16 bits, the last axis."""
    found: NDArray[np.int64] = words.astype(np.int64) @ (1 << 16 * np.arange(3, dtype=np.int64))
    return found


def embeddings(prefill: Prefill, weights: Mapping[str, ArrayLike], tokens: Sequence[int]) -> Bits:
    """Return what enters each row, (height, numbers): for each column the chunks that it is the home of."""
    prompt, place = prefill.prompt, prefill.place
    found = np.zeros((place.height, place.width, prompt.slots, prompt.tokens, place.hidden), np.uint16)
    homes = prompt.homes(place.width)
    for row, (first, count) in enumerate(zip(prompt.firsts, prompt.counts, strict=True)):
        for k in range(count):
            bits = embedding_rows(place, prefill.machine, weights, tokens[first + k], first + k)
            for chunk, (column, slot) in enumerate(homes):
                found[row, column, slot, k] = bits[chunk]
    return found.reshape(place.height, -1)


def read_prompt(
    prefill: Prefill,
    weights: Mapping[str, ArrayLike],
    tables: Mapping[str, Bits],
    tokens: Sequence[int],
    backend: Backend | None = None,
    progress: Progress | None = None,
) -> Reading:
    """Read a prompt on a fabric of its own, all tokens at once.

    Parameters
    ----------
    prefill : Prefill
    weights : mapping
        Tensors by the hub's names: the embedding is looked up by the host.
    tables : mapping
        What `fabric.networks.inference.decode.Decode.tables` made of them.
    tokens : sequence of int
        As many as the placement is for.
    backend : {"compiled", "reference"}, optional
    progress : callable, optional
        As of `fabric.host.fabric.Fabric.run`.

    Raises
    ------
    ConfigError
        Another number of tokens, or a token that does not exist.
    """
    prompt, vocabulary = prefill.prompt, prefill.place.decoder.vocabulary
    if len(tokens) != prompt.length:
        raise ConfigError(f"{len(tokens)} tokens for a program that reads {prompt.length}", where="prefill")
    wrong = next((token for token in tokens if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise ConfigError(f"token {wrong} does not exist", where="prefill", hint=f"0 .. {vocabulary - 1}")
    fabric = Fabric(prefill.layout(), backend)
    for symbol, bits in prefill.tables(tables).items():
        fabric.write(symbol, bits)
    fabric.entered(prefill.inputs[0])  # from now on it is noted when wavelets enter
    for stream, row in zip(prefill.inputs, embeddings(prefill, weights, tokens), strict=True):
        fabric.send(stream, row)
    fabric.launch("prompt")
    run = fabric.run(progress=progress)
    stamps = readings(fabric, "stamps")
    names = [name for name in KEPT if name in tables or name in ("cache", "last")]
    kept = {name: fabric.read(name) for name in names}
    kept = {name: bits.view(f"u{bits.itemsize}") for name, bits in kept.items()}
    begun = int(fabric.entered(prefill.inputs[0])[0])
    return Reading(
        kept,
        addresses(fabric, names),
        begun,
        int(stamps[-1].max()) - begun,
        stamps,
        run.wavelet_hops,
        fabric.all_counters(),
    )


def addresses(fabric: Fabric, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the word at which each PE has each of some symbols, (height, width)."""
    spec = fabric.spec
    table = {name: np.array([image.symbols[name].address for image in spec.programs]) for name in names}
    return {name: words[spec.program_index] for name, words in table.items()}
