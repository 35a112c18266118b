"""A published model's sizes are given random weights: what its layers cost does not depend on what they say."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from harness.models.configuration import Configuration
from harness.models.hub import tensor_shapes
from harness.models.lazy import RoundedTensors
from harness.models.presets import find_preset
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["RandomModel", "random_model", "sized_model"]

VOCABULARY = 512
"""Tokens: the tables of a real vocabulary would outweigh a layer."""
BLOCK = 1 << 22
"""So many weights at most are drawn at a time, of a seed of their own: any of them can be drawn without the others."""


@dataclass(frozen=True)
class RandomModel:
    """Random weights in the place of a model's; a seed gives them again, or any part of them.

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
        return {name: np.asarray(tensor) for name, tensor in self.mapped(arithmetic).items()}, []

    def mapped(self, arithmetic: Arithmetic) -> RoundedTensors:
        """Return the same tensors, each of which is drawn when it is asked for."""
        shapes = tensor_shapes(self.configuration.decoder)
        numbers = {name: number for number, name in enumerate(shapes)}

        def rows(name: str, first: int, last: int) -> tuple[NDArray[np.float32], None]:
            shape = last - first, *shapes[name][1:]
            if "norm" in name:
                return np.full(shape, float(name.endswith(".weight")), np.float32), None
            found = np.empty(shape, np.float32)
            each = max(1, BLOCK // math.prod(shape[1:]))
            scale = np.float32(shapes[name][-1] ** 0.5)
            for block in range(first // each, -(-last // each)):
                begin, end = block * each, min((block + 1) * each, shapes[name][0])
                rng = np.random.default_rng([self.seed, numbers[name], block])
                drawn = rng.standard_normal((end - begin, *shape[1:]), np.float32)[max(0, first - begin) : last - begin]
                found[max(0, begin - first) :][: len(drawn)] = arithmetic.decode(arithmetic.encode(drawn / scale))
            return found, None

        return RoundedTensors(shapes, rows)

    def tokenizer(self) -> NoReturn:
        """Refuse: random weights have no text."""
        raise ConfigError(
            f"{self.name} with random weights has no tokenizer", where="prompt", hint="--prompt-ids 1,2,3"
        )

    chat_template = tokenizer


def random_model(preset: str, layers: int | str, seed: int = 0) -> RandomModel:
    """Return so many layers of a published model with random weights and a vocabulary of `VOCABULARY` tokens.

    `layers` may be "all": the whole model, with all of its tokens.

    Raises
    ------
    ConfigError
        No such model, or it has fewer layers.
    """
    name, decoder = find_preset(preset)
    if isinstance(layers, str):
        return RandomModel(name, Configuration(decoder), seed)
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
