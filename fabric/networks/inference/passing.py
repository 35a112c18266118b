"""A decoder on several regions that runs: tokens go in, those that follow come out, many being on the way at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fabric.host.fabric import Fabric
from fabric.networks.inference.log import noted
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.pipeline import Pipeline
from fabric.networks.inference.rows import Rows
from fabric.networks.inference.tiles import embedding_rows
from wse_core.errors import ConfigError, DeadlockError
from wse_core.formats import Bits

__all__ = ["LOOK", "Passed", "Passing", "PipelineOracle"]

LOOK = 64
"""Cycles after which the host looks whether a token has left; it answers at once."""


@dataclass(frozen=True)
class Passed:
    """What one token gave that went through all regions.

    Attributes
    ----------
    token : int
        The next token, the one with the largest logit.
    logits : ndarray of uint32, shape (vocabulary,)
        Bits of f32 numbers.
    begun, cycles : int
        The cycle in which the token begins to enter the first region, and how many there are from then to that in
        which the next has left the last one.
    """

    token: int
    logits: Bits
    begun: int
    cycles: int


class Passing:
    """A decoder on several regions of a fabric.

    Parameters
    ----------
    pipeline : Pipeline
    weights : mapping
        Tensors by the hub's names.
    tables : list of mapping, optional
        What `Pipeline.tables` made of the weights, if it is there already.
    backend : {"compiled", "reference"}, optional

    Attributes
    ----------
    fabric : Fabric
    sent, received : int
        Tokens so far.
    busy : list of list of (int, int)
        Of each region, of each token that is through: when its first PE took the token, when its last one was through.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        weights: Mapping[str, ArrayLike],
        tables: Sequence[Mapping[str, Bits]] | None = None,
        backend: str | None = None,
    ) -> None:
        self.pipeline, self.place, self.weights = pipeline, pipeline.place, weights
        self.fabric = Fabric(pipeline.layout(), backend)
        for stage, table in zip(pipeline.stages, tables or pipeline.tables(weights), strict=True):
            for symbol, bits in table.items():
                self.fabric.write(symbol, bits, (stage.column, 0, self.place.width, self.place.height))
        self.fabric.entered(pipeline.inputs[0])  # from now on it is noted when wavelets enter
        self.fabric.launch("token")
        self.sent = self.received = 0
        self.busy: list[list[tuple[int, int]]] = [[] for _ in pipeline.stages]
        self._entered: list[int] = []
        self._left: list[tuple[int, float]] = []
        most = Rows.most(self.place.height, self.place.tokens_per_row, pipeline.policy)
        self.most = most * self.place.requests

    def send(self, token: int) -> None:
        """Let the next token enter: of each request in turn.

        Raises
        ------
        ConfigError
            No such token, or the cache is full.
        """
        vocabulary = self.place.decoder.vocabulary
        if not 0 <= token < vocabulary:
            raise ConfigError(f"token {token} does not exist", where="decoder", hint=f"0 .. {vocabulary - 1}")
        if self.sent >= self.most:
            each = self.most // self.place.requests
            raise ConfigError(f"the cache is full: it has room for {each} tokens of a request", where="decoder")
        rows = embedding_rows(self.place, self.pipeline.machine, self.weights, token)
        for stream, chunk in zip(self.pipeline.inputs, rows, strict=True):
            self.fabric.send(stream, chunk)
        self.sent += 1

    def receive(self) -> Passed:
        """Run until the next token leaves, and return it; tokens leave in the order in which they entered.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        DeadlockError
            None is on the way.
        """
        fabric, status = self.fabric, "limit"
        while len(self._left) < 2:
            if status != "limit":
                raise DeadlockError("no token is on the way", cycle=fabric.cycle)
            status = fabric.run(max_cycles=LOOK, on_limit="return", on_wait="return").status
            left = fabric.receive(self.pipeline.output)
            self._left += zip(left.cycles.tolist(), left.values("f32").tolist(), strict=True)
        (_, found), (cycle, _) = self._left[:2]
        del self._left[:2]
        logits = self._logits()
        if not np.isfinite(found) or not np.isfinite(logits.view(np.float32)).all():
            raise ConfigError(
                f"logits of token {self.received} are no finite numbers",
                where="decoder",
                hint="weights that overflow 16-bit numbers; cb16 has a larger range",
            )
        self.note()
        each = self.place.hidden // 2
        self._entered += [int(cycle) for cycle in fabric.entered(self.pipeline.inputs[0])]
        begun = self._entered[self.received * each]
        self.received += 1
        return Passed(int(found), logits, begun, cycle + 1 - begun)

    def note(self) -> None:
        """Take out what the regions have noted."""
        for stage, known in zip(self.pipeline.stages, self.busy, strict=True):
            noted(self.fabric, stage.column, known)

    def finish(self) -> None:
        """Run until nothing moves: regions note when they were through with the last token."""
        self.fabric.run(on_wait="return")
        self.note()

    def _logits(self) -> Bits:
        """Return the bits of the logits of the token that left, as the PEs of row 0 hold them."""
        last = self.pipeline.stages[-1]
        found = self.fabric.read("logits", last.column, 0, self.place.width, 1)[0].view(np.uint32)
        return found[self.place.ids >= 0]


class PipelineOracle:
    """What the regions must give, bit by bit: an `Oracle` per region and request, one handing on to the next.

    Parameters
    ----------
    pipeline : Pipeline
    weights : mapping
    tables : list of mapping, optional
        What `Pipeline.tables` made of the weights, if it is there already.
    """

    def __init__(
        self, pipeline: Pipeline, weights: Mapping[str, ArrayLike], tables: Sequence[Mapping[str, Bits]] | None = None
    ) -> None:
        tables = tables or pipeline.tables(weights)
        self.requests = [
            [Oracle(stage, weights, dict(table)) for stage, table in zip(pipeline.stages, tables, strict=True)]
            for _ in range(pipeline.place.requests)
        ]

    def step(self, token: int, request: int = 0) -> tuple[int, Bits]:
        """Let a request take a token; return (the next one, bits of the logits of all tokens)."""
        first, *others = self.requests[request]
        x = first.through(first.embedding(token))
        for oracle in others:
            x = oracle.through(oracle.handed(x))
        return (others[-1] if others else first).answer(x)
