"""Strips of images become whole images in every row of PEs that has one of the strips.

`fabric.networks.graph.strips` puts this operation where the next one takes whole images.  Its node has the sizes of a
strip, ``channels``, ``height`` and ``width``, and how many ``rows`` of PEs an image lies on.  On the way back each row
takes the gradients of its own strip: all rows have those of the whole image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import NetworkOperation
from fabric.networks.graph.windows import channels_of

__all__ = ["GatherStrips"]


class GatherStrips(NetworkOperation):
    """A `GatherStrips` changes no number, only how many of them a row of PEs has."""

    name, meaning, in_place, channelwise, inner = "gather", "y = the image of which x is a strip", False, True, True
    refused: ClassVar[Mapping[str, str]] = {
        "plain": "plain numpy has whole images",
        "pipelined": "the pipelined mode has no images",
    }

    def features(self, node: Node, given: int) -> int:
        channels_of(node, given)  # refuses what does not fit
        return given * node.size("rows")

    def units(self, node: Node, given: int) -> tuple[int, int]:
        strip = node.size("height") * node.size("width")
        return strip, strip * node.size("rows")
