"""Checkpoints that are never behind by more than a batch: the state of a layer is saved the moment it is updated.

A store is a directory with one file per layer and version.  The version of a finished batch stays until every layer
has the next one, so a crash at any moment leaves one version complete; training resumes there, bitwise.

Which medium can follow is a matter of arithmetic intensity: that of the state (equation 13) against what the medium
needs; if that of activation checkpoints (equation 14) suffices as well, a crash loses a layer instead of a batch.

Source: "Layered gradient accumulation and modular pipeline parallelism", section 8.2, Figure 7.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from harness.plan.hardware import Device
from harness.plan.models import TransformerSizes
from harness.plan.strategies import Degrees, intensities
from harness.plan.tensors import TensorTrainer
from traces.atomic import atomic_file
from wse_core.errors import ConfigError

__all__ = ["MEDIA", "Store", "media"]

MEDIA = ("cpu", "nvme", "ethernet", "network", "disk")
"""These links of `Device` may lead to a checkpoint."""

NAME = re.compile(r"layer([0-9]+)\.v([0-9]+)\.npy")


class Store:
    """A `Store` is a directory of checkpoints.

    Parameters
    ----------
    path : path-like
        Directory; created if needed.
    layers : int
        Layers of the network.
    """

    def __init__(self, path: str | os.PathLike[str], layers: int) -> None:
        self.path, self.layers = Path(path), layers
        self.path.mkdir(parents=True, exist_ok=True)

    def found(self) -> dict[int, set[int]]:
        """Return {version: set of layers} of the files that are there."""
        found: dict[int, set[int]] = {}
        for path in self.path.iterdir():
            match = NAME.fullmatch(path.name)
            if match:
                found.setdefault(int(match[2]), set()).add(int(match[1]))
        return found

    def save(self, trainer: TensorTrainer, layer: int) -> None:
        """Save a layer as it is now; use it as `on_update` of a `Trainer`."""
        with atomic_file(self.path / f"layer{layer}.v{trainer.versions[layer]}.npy") as stream:
            np.save(stream, trainer.whole(layer), allow_pickle=False)
        if len(self.found()[trainer.versions[layer]]) == self.layers:
            self.drop_before(trainer.versions[layer])

    def drop_before(self, version: int) -> None:
        """Remove versions that a complete later one has replaced."""
        for older, layers in self.found().items():
            for layer in layers if older < version else ():
                (self.path / f"layer{layer}.v{older}.npy").unlink()

    def restore(self, trainer: TensorTrainer) -> int:
        """Put the newest complete version into a trainer, whatever its number of ranks, and return its number.

        Raises
        ------
        ConfigError
            If no version is complete.
        """
        complete = [version for version, layers in self.found().items() if len(layers) == self.layers]
        if not complete:
            raise ConfigError("no complete checkpoint", where=self.path)
        version = max(complete)
        whole = [
            np.load(self.path / f"layer{layer}.v{version}.npy", allow_pickle=False) for layer in range(self.layers)
        ]
        if whole[0].shape != (3, trainer.elements) or trainer.layers != self.layers:
            raise ConfigError("the checkpoint is of another network", where=self.path)
        trainer.place(np.stack(whole), trainer.ranks)
        trainer.step, trainer.versions = version, [version] * self.layers
        for later, layers in self.found().items():
            for layer in layers if later > version else ():
                (self.path / f"layer{layer}.v{later}.npy").unlink()
        return version


def media(model: TransformerSizes, config: Degrees, hardware: Device) -> dict[str, str | None]:
    """Return what each medium can keep up with: {link: ``layer``, ``batch`` or None}, the loss by a crash."""
    need = intensities(model, config)
    answer = {}
    for link in MEDIA:
        if link in hardware.links:
            limit = hardware.threshold(link)
            follows = need["state"] >= limit
            answer[link] = ("layer" if need["checkpoint"] >= limit else "batch") if follows else None
    return answer
