"""An answer is compared with numpy in the order of the PEs, bit by bit: every step, or some, drawn by a seed.

Sample
    The first step, and of each `EACH` that follow one.  Before such a step keys and values are read from the memory of
    the PEs, so that numpy need not have taken the tokens before; behind it the next token, all logits and all of the
    cache have to be numpy's.  So a wrong bit in a step that is compared is found; one in another step only where later
    steps differ too from what numpy makes of the cache that they find.  A prompt that another program has read, at once
    or in pieces, is not compared.

    Of a batch the lanes of such a step are compared, and of an answer that is guessed ahead the tokens of a check, with
    what the cache has of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.edge import Came
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.prefill.oracle import PrefillOracle
from fabric.networks.inference.prefill.program import Prefill
from fabric.networks.inference.resident import ResidentDecoder, Resumed
from harness.inference.yardsticks import Agreement, Yardstick

__all__ = ["EACH", "SAMPLED_FROM", "Compared", "is_drawn"]

SAMPLED_FROM = 100_000_000
"""Parameters from which an answer is compared by sample if nothing is said: numpy, on one core, would take a tenth of
the time that a step takes on two, and hours for a prompt that is read at once."""

EACH = 4
"""Of so many steps one is compared."""


def is_drawn(number: int, seed: int) -> bool:
    """Whether a step, the first one is 0, is in the sample of a seed."""
    block, place = divmod(number - 1, EACH)
    return number == 0 or place == int(np.random.default_rng([seed, block]).integers(EACH))


class Compared:
    """A `Compared` has an answer's oracle and plain numpy beside it, and notes how they agree.

    Parameters
    ----------
    oracle : Oracle
    weights : mapping
        Tensors by the hub's names, as the PEs have them.
    answer : Agreement
        Where it is noted how all agree.
    seed : int, optional
        Of the sample; None: every step is compared.
    first : int
        The first step of the sample: 1 behind a prompt that another program has read.
    """

    def __init__(
        self,
        oracle: Oracle,
        weights: Mapping[str, NDArray[Any]],
        answer: Agreement,
        seed: int | None = None,
        first: int = 0,
    ) -> None:
        self.oracle, self.answer, self.seed, self.first = oracle, answer, seed, first
        self.yardstick = Yardstick(oracle.place, weights, answer)
        self._passed: list[int] = []  # tokens that plain numpy has yet to take

    def goes_on(self, resident: ResidentDecoder, tokens: Sequence[int]) -> None:
        """Go on behind tokens that have been taken before, with the cache that the PEs have."""
        self.oracle.take_over(resident.cache(), len(tokens))
        self._passed += tokens

    def looks(self) -> bool:
        """The step that comes is compared: always, or if the sample has it."""
        return self.seed is None or is_drawn(self.answer.steps - self.first, self.seed)

    def before(self, resident: ResidentDecoder) -> None:
        """Give the oracle the cache of the PEs if the step to come is one of the sample."""
        if self.seed is not None and self.looks():
            self.oracle.take_over(resident.cache(), resident.count)

    def compare(self, token: int, step: Came, resident: ResidentDecoder | None = None) -> None:
        """Let both take a token and compare, if its step is to be; `resident`: of a sample, where the cache is."""
        self._passed.append(token)
        if self.looks():
            self.yardstick.compare(self.oracle.step(token), self._taken(), step)
            if self.seed is not None and resident is not None and not self.oracle.has(resident.cache()):
                self.answer.bit_exact = False
            self.answer.steps_compared += 1
        self.answer.steps += 1

    def compare_prompt(self, prefill: Prefill, prompt: Sequence[int], resumed: Resumed) -> None:
        """Let both read a prompt and compare what came of it."""
        self._passed += prompt
        if self.seed is None:
            hidden = PrefillOracle(prefill, self.oracle).read(prompt)
            self.yardstick.compare(self.oracle.answer(hidden), self._taken(), resumed)
            self.answer.steps_compared += 1
        self.answer.steps += 1

    def follow(self, tokens: Sequence[int]) -> None:
        """Let plain numpy take tokens of which no logits came, before the next that it compares."""
        self._passed += tokens

    def skip(self, tokens: Sequence[int]) -> None:
        """Leave out tokens that a program has read and whose steps are not compared."""
        self.follow(tokens)
        self.answer.steps += 1

    def _taken(self) -> list[int]:
        """Return the tokens that plain numpy takes now."""
        taken, self._passed = self._passed, []
        return taken
