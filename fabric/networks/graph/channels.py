"""Operations on the channels of an image have this in common: a channel is a unit, and results have the same sizes."""

from __future__ import annotations

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import NetworkOperation
from fabric.networks.graph.windows import channels_of

__all__ = ["ChannelOperation"]


class ChannelOperation(NetworkOperation):
    """This operation works on each channel; its node has ``channels``, ``height`` and ``width``."""

    def features(self, node: Node, given: int) -> int:
        channels_of(node, given)  # refuses what does not fit
        return given

    def unit(self, node: Node, given: int) -> int:
        return given // node.size("channels")
