"""Every number of the fabric between memory service and wafers, once (as in `wse_core.params`)."""

from __future__ import annotations

from wse_core.params import Param

__all__ = ["PARAMETERS"]

PAPER = "weight streaming white paper, section 6.4"


def _p(name, value, unit, source, confidence, doc):
    return Param(name, value, unit, source, confidence, doc, low=0, high=1 << 62)


PARAMETERS = {
    param.name: param
    for param in (
        _p("link.rate", 100 * 10**9, "bits/s", PAPER, "published", "one link, each direction"),
        _p(
            "planes",
            12,
            "links",
            f"{PAPER}: 1.2 Tb/s per system",
            "published",
            "links of a system, a plane of nodes each",
        ),
        _p("node.ways", 4, "ports", PAPER, "published", "a node is one 1:4 or two 1:2 broadcast-reduce"),
        _p(
            "node.latency",
            1000,
            "ns",
            "no public figure; store and forward of a packet over 100 Gb/s Ethernet",
            "assumed",
            "of a level of the tree, one way",
        ),
        _p(
            "buffer.bytes",
            16 * 2**20,
            "bytes",
            "no public figure; more than the links carry in the latency of a tree",
            "assumed",
            "on the way to a system or waiting there, per direction",
        ),
    )
}
"""By name."""
