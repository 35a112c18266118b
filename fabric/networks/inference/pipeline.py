"""A decoder lies on several regions of a wafer: layers in a row of meshes, a token's state going from one to the next.

Regions of equal size lie side by side, from the west to the east.  Each is a resident decoder of its own
(`fabric.networks.inference.decode`) with some of the layers, as evenly as it goes, the first regions having one more;
the last one also has the last norm, the output matrix and the arg max.  A token's embedding enters the first region at
the west edge; behind its last layer, column 0 of each row sends its chunk of the residual stream to column 0 of the
next region, f32 as it is, where it enters as an embedding does.  The next token leaves the last region at the north
edge.  The host does nothing between regions.

Bubbles
    A token of an answer depends on the one before, so that with one request only one region works at a time.  While a
    prompt is read, its tokens follow one another through the regions.  With several requests their tokens come in
    turns, and regions work on different ones; each request has a cache of its own, and all are at the same position.

Routes
    A hand-over passes the routers of its own region on the way: `COLOR_HAND`, one color or the other by the parity of
    the region that sends, since column 0 of a region receives one and sends the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from fabric.layout.layout import Layout
from fabric.networks.inference.axes import COLOR_HAND
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.placement import DecoderPlacement, shares
from fabric.networks.inference.tiles import place_weights
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = ["RegionPipeline"]


class RegionPipeline:
    """A `RegionPipeline` has programs, routes and data of a decoder on several regions.

    Parameters
    ----------
    machine : Machine
    place : DecoderPlacement
        Of the whole model on the mesh of one region; its `requests` are answered in turns.
    regions : int
    policy, answers
        As of `Decode`.

    Attributes
    ----------
    stages : list of Decode
        The regions, from the west to the east.

    Raises
    ------
    PlanError
        The regions do not lie side by side on the wafer.
    """

    def __init__(
        self, machine: Machine, place: DecoderPlacement, regions: int, policy: str = "shift", answers: int | None = None
    ) -> None:
        self.machine, self.place, self.policy = machine, place, policy
        most = machine["fabric.width"] // place.width
        if regions > most:
            raise PlanError(
                f"{regions} regions of {place.width} columns; {most} lie side by side on the wafer",
                where="--regions",
                hint="narrower regions with more rows, or fewer of them",
                limit="width",
                needed=regions * place.width,
                available=machine["fabric.width"],
            )
        self.stages = [
            Decode(machine, own, policy, answers=answers, region=k) for k, own in enumerate(shares(place, regions))
        ]

    def layout(self) -> Layout:
        """Return the `Layout` of all regions, with the streams in `inputs` and `output`; built."""
        width, height = self.place.width, self.place.height
        layout = Layout(width * len(self.stages), height, self.machine)
        for stage in self.stages:
            stage.paint(layout)
        for k, stage in enumerate(self.stages[:-1]):
            color, first = COLOR_HAND[k % 2], stage.column
            layout.route(color, (first, 0, 1, height), rx="R", tx="E")
            if width > 1:
                layout.route(color, (first + 1, 0, width - 1, height), rx="W", tx="E")
            layout.route(color, (first + width, 0, 1, height), rx="W", tx="R")
        layout.build()
        self.inputs, self.output = self.stages[0].inputs, self.stages[-1].output
        return layout

    def tables(self, weights: Mapping[str, ArrayLike]) -> list[dict[str, NDArray[Any]]]:
        """Return what the host writes into each region before the first token, as `Decode.tables`."""
        return [place_weights(stage.place, self.machine, weights) for stage in self.stages]
