"""A published model's sizes are given random weights: what its layers cost does not depend on what they say."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from harness.models.configuration import Configuration
from harness.models.hub import tensor_shapes
from harness.models.presets import find_preset
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["RandomModel", "random_model", "sized_model"]

VOCABULARY = 512
"""Tokens: the tables of a real vocabulary would outweigh a layer."""
BLOCK = 1 << 22
"""So many weights are drawn at a time."""


@dataclass(frozen=True)
class RandomModel:
    """Random weights in the place of a model's; a seed gives them again.

    Attributes
    ----------
    name : str
    configuration : Configuration
    seed : int
    """

    name: str
    configuration: Configuration
    seed: int = 0

    has_tokenizer: ClassVar[bool] = False
    """Whether there is a text for its tokens."""

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, NDArray[Any]], list[Any]]:
        """Return all tensors as float32 values of a 16-bit format; nothing was lost."""
        rng, found = np.random.default_rng(self.seed), {}
        for name, shape in tensor_shapes(self.configuration.decoder).items():
            values = np.ones(shape, np.float32)
            if "norm" in name:
                values *= name.endswith(".weight")
            else:
                flat = values.reshape(-1)
                for first in range(0, flat.size, BLOCK):
                    part = flat[first : first + BLOCK]
                    drawn = rng.standard_normal(part.size, np.float32) / np.float32(shape[-1] ** 0.5)
                    part[...] = arithmetic.decode(arithmetic.encode(drawn))
            found[name] = values
        return found, []

    def tokenizer(self) -> NoReturn:
        """Refuse: random weights have no text."""
        raise ConfigError(
            f"{self.name} with random weights has no tokenizer", where="prompt", hint="--prompt-ids 1,2,3"
        )

    chat_template = tokenizer


def random_model(preset: str, layers: int, seed: int = 0) -> RandomModel:
    """Return so many layers of a published model with random weights and a vocabulary of `VOCABULARY` tokens.

    Raises
    ------
    ConfigError
        No such model, or it has fewer layers.
    """
    name, decoder = find_preset(preset)
    if not 1 <= layers <= decoder.layers:
        raise ConfigError(
            f"{layers} layers of {name}", where="--random-layers", hint=f"1 to {decoder.layers}", value=layers
        )
    return RandomModel(name, Configuration(replace(decoder.part(0, layers), vocabulary=VOCABULARY)), seed)


def sized_model(preset: str) -> RandomModel | None:
    """Return a published model of which only sizes are asked, all of its layers and tokens; None for other names."""
    if Path(preset).is_dir():
        return None
    with contextlib.suppress(ConfigError):
        name, decoder = find_preset(preset)
        return RandomModel(name, Configuration(decoder))
    return None
