"""R9, R12, R13 and the host of R8 have points that this model does not run, each with its reason."""

from __future__ import annotations

from harness.validation.recipe import CannotRun, Measurement, Point, Tell, recipe
from wse_core.params import Machine

__all__ = []


def _refuse(name: str, kinds: tuple[str, ...], summary: str, reason: str) -> None:
    @recipe(name, kinds, summary)
    def refuse(machine: Machine, point: Point, progress: Tell) -> Measurement:
        raise CannotRun(reason)


_refuse(
    "R9",
    ("whole-program",),
    "a whole program with the host's frame",
    "the memcpy frame, the host's traffic and the idle tail are not modelled",
)
_refuse("R8", ("host-io",), "a host copy through the memcpy frame", "the memcpy frame and its runtime are not modelled")
_refuse(
    "R12",
    ("llm-end-to-end",),
    "whole layers of a language model",
    "a throughput of a whole model, in tokens per second at a clock that the source leaves open",
)
_refuse(
    "R13",
    ("application-level", "ratio-claim"),
    "an application, or a ratio of two programs",
    "a figure of an application or a ratio, no cycle count of a stated program",
)
