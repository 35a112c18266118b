"""One wafer at work takes activations in, lets streams through and gives numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.host.result import RunResult
from fabric.host.running import Progress
from fabric.networks.graph.lookup import no_number, with_bias
from fabric.networks.graph.plan import IDS
from fabric.networks.streamed.operations.dropout import NUMBERS
from fabric.networks.streamed.resident import Resident

__all__ = ["Pass", "Wafer"]


@dataclass(frozen=True)
class Pass:
    """A `Pass` says what a stream did on a wafer.

    Attributes
    ----------
    cycles : int
        From the first wavelet to the last thing done.
    numbers : list of ndarray of float32
        What left at the south of each column, in order.
    times : list of ndarray of int64
        When, in cycles since the first wavelet.
    run : RunResult
    """

    cycles: int
    numbers: list[NDArray[np.float32]]
    times: list[NDArray[np.int64]]
    run: RunResult


class Wafer:
    """A wafer holds a resident network.

    Parameters
    ----------
    resident : Resident
    backend : {"compiled", "reference"}, optional
        As `fabric.host.fabric.Fabric` takes it.

    Attributes
    ----------
    fabric : Fabric
    """

    def __init__(self, resident: Resident, backend: Backend | None = None) -> None:
        self.resident = resident
        self.fabric = Fabric(resident.layout, backend)
        self.fabric.run()

    def load(self, inputs: NDArray[np.uint16], labels: NDArray[np.uint16], first: int = 0) -> None:
        """Place a batch in the SRAM of the PEs.

        Parameters
        ----------
        inputs : ndarray of uint16, shape (features, samples)
            Bit patterns; or numbers, a row for each table, of a network that looks them up.
        labels : ndarray of uint16, shape (features of the logits, samples)
            Bit patterns of the wanted probabilities; all zero for a token, or pixel, without a label.  Or of targets;
            not numbers for a token without.  Or, if the network takes them so, a row of numbers of classes.
        first : int, optional
            Number of the first sample among those of the whole batch.
        """
        r = self.resident
        if IDS in r.arrays:
            self._write_everywhere(IDS, with_bias(r.network, inputs))
        else:
            ones = r.tiles("a0", inputs)
            ones[..., : r.tokens] = r.one
            self._write("a0", ones)
        if NUMBERS in r.arrays:
            self._write_everywhere(NUMBERS, np.arange(first, first + r.samples, dtype=np.uint16)[None])
        there = np.ones(labels.shape, bool)
        if r.network.some:
            there = labels != no_number(r.network) * r.network.numbered
            if not r.network.loss.judges:
                there = ~np.isnan(r.half.decode(labels))
                there = np.broadcast_to(there.all(0), labels.shape)
            classes = r.by_row("labels", there).reshape(-1, r.inner.label_pixels, r.stacked, r.tokens)
            rows = np.any(classes.transpose(0, 2, 1, 3), axis=0).reshape(r.stacked, 1, -1)
            self._write("labelled", r.side_by_side(np.tile(rows, (1, r.width, 1))).astype(np.float32))
        if r.network.numbered:
            self._write_everywhere("labels", labels)
        else:
            self._write("labels", r.tiles("labels", np.where(there, labels, np.uint16(0))))

    def _write_everywhere(self, name: str, numbers: NDArray[np.uint16]) -> None:
        """Copy numbers of samples, shape (numbers of a sample, samples), to all PEs that have the samples."""
        r = self.resident
        rows = r.by_row(name, numbers).swapaxes(0, 1).reshape(r.stacked, 1, -1)
        self._write(name, r.side_by_side(np.tile(rows, (1, r.width, 1))))

    def _write(self, name: str, tiles: NDArray[np.generic]) -> None:
        """Copy an array to all PEs that hold the network."""
        self.fabric.write(name, tiles, self.resident.mesh)

    def run(
        self, streams: Sequence[tuple[NDArray[np.uint32], NDArray[np.bool_]]], progress: Progress | bool | None = None
    ) -> Pass:
        """Send streams, one per column, and run until all is done.

        Parameters
        ----------
        streams : list of (ndarray of uint32, ndarray of bool)
            Payloads, and which are control wavelets.
        progress : callable, optional
            As `fabric.host.fabric.Fabric.run` takes it.

        Returns
        -------
        Pass
        """
        for column, (payload, is_control) in zip(self.resident.inputs, streams, strict=True):
            for stream in column:
                self.fabric.send(stream, payload, control=is_control)
        run = self.fabric.run(progress=progress)
        came = [self.fabric.receive(stream) for stream in self.resident.outputs]
        return Pass(
            run.cycles,
            [found.payload.view(np.float32) for found in came],
            [found.cycles - run.start for found in came],
            run,
        )

    def activations(self, level: int) -> NDArray[np.uint16]:
        """Return the activations of a level as bit patterns, shape (features, samples)."""
        name = self.resident.network.levels[level]
        tiles = self.fabric.read(self.resident.plan.activation(name), self.resident.mesh)
        return self.resident.rows(name, tiles.view(np.uint16))
