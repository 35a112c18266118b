"""A decoder on several regions that runs: tokens go in, those that follow come out, many being on the way at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import ArrayLike

from fabric.host.engines import Backend
from fabric.host.fabric import Fabric
from fabric.networks.inference.edge import Came, Edge
from fabric.networks.inference.log import noted
from fabric.networks.inference.oracle import Oracle
from fabric.networks.inference.pipeline import RegionPipeline
from fabric.networks.inference.rows import Rows
from wse_core.errors import DeadlockError
from wse_core.formats import Bits

__all__ = ["LOOK", "Passing", "PipelineOracle"]

LOOK = 64
"""Cycles after which the host looks whether a token has left; it answers at once."""


class Passing:
    """A `Passing` is a decoder that runs on several regions of a fabric, tokens passing from one to the next.

    Parameters
    ----------
    pipeline : RegionPipeline
    weights : mapping
        Tensors by the hub's names.
    tables : list of mapping, optional
        What `RegionPipeline.tables` made of the weights, if it is there already.
    backend : {"compiled", "reference"}, optional

    Attributes
    ----------
    fabric : Fabric
    edge : Edge
        Where tokens go in and out; of each request in turn.
    busy : list of list of (int, int)
        Of each region, of each token that is through: when its first PE took the token, when its last one was through.
    """

    def __init__(
        self,
        pipeline: RegionPipeline,
        weights: Mapping[str, ArrayLike],
        tables: Sequence[Mapping[str, Bits]] | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.pipeline, self.place = pipeline, pipeline.place
        self.fabric = Fabric(pipeline.layout(), backend)
        for stage, table in zip(pipeline.stages, tables or pipeline.tables(weights), strict=True):
            for symbol, bits in table.items():
                self.fabric.write(symbol, bits, (stage.column, 0, self.place.width, self.place.height))
        self.fabric.entered(pipeline.inputs[0])  # from now on it is noted when wavelets enter
        self.fabric.launch("token")
        self.busy: list[list[tuple[int, int]]] = [[] for _ in pipeline.stages]
        most = Rows.most(self.place.height, self.place.tokens_per_row, pipeline.policy) * self.place.requests
        self.edge = Edge(self.fabric, pipeline.stages[0], pipeline.stages[-1], weights, most)

    def send(self, token: int) -> None:
        """Let the next token enter (`Edge.send`)."""
        self.edge.send(token)

    def receive(self) -> Came:
        """Run until the next token leaves, and return it; tokens leave in the order in which they entered.

        Raises
        ------
        ConfigError
            The logits are no numbers.
        DeadlockError
            None is on the way.
        """
        fabric, status = self.fabric, "limit"
        while not self.edge.has_left():
            if status != "limit":
                raise DeadlockError("no token is on the way", cycle=fabric.cycle)
            status = fabric.run(max_cycles=LOOK, on_limit="return", on_wait="return").status
        found = self.edge.take()
        self.note()
        return found

    def note(self) -> None:
        """Take out what the regions have noted."""
        for stage, known in zip(self.pipeline.stages, self.busy, strict=True):
            noted(self.fabric, stage.column, known)

    def finish(self) -> None:
        """Run until nothing moves: regions note when they were through with the last token."""
        self.fabric.run(on_wait="return")
        self.note()


class PipelineOracle:
    """A `PipelineOracle` gives, bit by bit, what the regions must give: an `Oracle` per region and request.

    Parameters
    ----------
    pipeline : RegionPipeline
    weights : mapping
    tables : list of mapping, optional
        What `RegionPipeline.tables` made of the weights, if it is there already.
    """

    def __init__(
        self,
        pipeline: RegionPipeline,
        weights: Mapping[str, ArrayLike],
        tables: Sequence[Mapping[str, Bits]] | None = None,
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
