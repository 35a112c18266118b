"""Every number of the memory service, once, with unit, source and confidence (as in `wse_core.params`)."""

from __future__ import annotations

from wse_core.params import Param

__all__ = ["PARAMETERS"]

PAPER = "weight streaming white paper"


def _p(name, value, unit, source, confidence, doc):
    return Param(name, value, unit, source, confidence, doc, low=0, high=1 << 62)


PARAMETERS = {
    param.name: param
    for param in (
        _p("capacity.least", 4 * 10**12, "bytes", f"{PAPER}, section 6.3", "published", "smallest configuration"),
        _p("capacity.most", 24 * 10**14, "bytes", f"{PAPER}, section 6.3", "published", "largest configuration"),
        _p(
            "stream.rate",
            150 * 10**9,
            "bytes/s",
            f"{PAPER}, section 6.4: 1.2 Tb/s of I/O per system",
            "published",
            "rate at which weights leave and gradients arrive",
        ),
        _p("dram.bytes", 10**12, "bytes", "no public figure", "assumed", "DRAM in front of flash"),
        _p(
            "flash.rate",
            150 * 10**9,
            "bytes/s",
            "no public figure; white paper, section 6.3: performance of DRAM",
            "assumed",
            "read rate of flash, all channels together",
        ),
        _p(
            "update.rate",
            75 * 10**9,
            "parameters/s",
            "white paper, section 6.3: updates keep up with the stream; one 16-bit weight per 2 bytes of the stream",
            "inferred",
            "optimizer steps per second, all processors together",
        ),
        _p(
            "update.latency",
            10_000,
            "ns",
            "no public figure; a message through a host",
            "assumed",
            "from the arrival of a gradient to the new weight in the stream",
        ),
    )
}
"""By name."""
