"""What is asked of a language model: a prompt, how many tokens, how they are chosen; and what cannot be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.rows import POLICIES
from harness.models.configuration import Configuration
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic

__all__ = ["Hear", "Model", "Sampling", "checked", "known_policy"]

Hear = Callable[[int, int], None]
"""Called with the number of a step and its token, as each token of the answer comes."""


class Model(Protocol):
    """What answers: `harness.models.hub.LanguageModel`, or one of random weights."""

    @property
    def configuration(self) -> Configuration: ...

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, NDArray[Any]], Any]: ...


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes
    ----------
    temperature : float
        0: the likeliest, found on the wafer.  Else the host draws from softmax(logits / temperature).
    top_k : int
        Draw among so many of the likeliest only; 0: all.
    seed : int
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"{self.temperature} is no temperature", where="--temperature", hint="0 or more")
        if self.top_k < 0:
            raise ConfigError(f"{self.top_k} tokens to draw from", where="--top-k", hint="1 or more; 0: all")

    def drawer(self, answers: int | None = None) -> Callable[[NDArray[np.float32], int], int]:
        """Return a function of logits and the likeliest token that gives the next one, below `answers`."""
        rng = np.random.default_rng(self.seed)

        def draw(logits: NDArray[np.float32], likeliest: int) -> int:
            if self.temperature == 0:
                return likeliest
            values = logits[:answers].astype(np.float64) / self.temperature
            order = np.argsort(-values, kind="stable")[: self.top_k or len(values)]
            shares = np.exp(values[order] - values[order[0]])
            return int(rng.choice(order, p=shares / shares.sum()))

        return draw


def checked(model: Model, prompt: Sequence[int], count: int) -> int:
    """Return how many tokens the cache must take, or refuse a prompt that cannot be answered."""
    decoder = model.configuration.decoder
    if not prompt:
        raise ConfigError("an empty prompt", where="prompt", hint="at least one token")
    if count < 1:
        raise ConfigError(f"{count} tokens to generate", where="--tokens", hint="1 or more")
    wrong = next((token for token in prompt if not 0 <= token < decoder.vocabulary), None)
    if wrong is not None:
        raise ConfigError(
            f"token {wrong} is none of the {decoder.vocabulary} of the model", where="prompt", value=int(wrong)
        )
    tokens = len(prompt) + count - 1  # the last one is never read
    if tokens + 1 > decoder.context:
        shorter = decoder.context - count, decoder.context - len(prompt)
        rooms = [
            f"{room} tokens of {what}" for room, what in zip(shorter, ("prompt", "answer"), strict=True) if room > 0
        ]
        raise ConfigError(
            f"{len(prompt)} tokens of prompt and {count} of answer; the context of the model holds {decoder.context}",
            where="prompt",
            hint=f"at most {' or '.join(rooms)}" if rooms else "a shorter prompt and a shorter answer",
        )
    return tokens


def known_policy(policy: str) -> None:
    """Refuse a cache policy that does not exist."""
    if policy not in POLICIES:
        raise ConfigError(f"unknown cache policy {policy!r}", where="--cache", hint=", ".join(POLICIES))
