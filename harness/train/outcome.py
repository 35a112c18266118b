"""A training run on wafers leaves a run file with counters and phases, and a report, for the other commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.host.recording import Recorder
from harness.train import phases
from harness.train.config import TrainConfig
from harness.train.trainer import Trainer
from traces.atomic import atomic_file
from traces.provenance import provenance
from traces.run_format import RunMeta
from traces.writer import RunWriter
from wse_core.params import Machine

if TYPE_CHECKING:  # a run in one mode does not wait for the other
    from fabric.host.fabric import Fabric
    from harness.train.pipelined import PipelinedTrainer

__all__ = ["meta_of", "write"]


def meta_of(config: TrainConfig, machine: Machine, command: str) -> RunMeta:
    """Return the `RunMeta` of a run; `command` is what to type for it, without ``wse``."""
    return RunMeta(
        job=command,
        config_toml=config.text,
        machine=dict(machine),
        preset=machine.preset,
        seed=config.seed,
        **provenance(),
    )


def write(
    directory: Path,
    trainer: Trainer | PipelinedTrainer,
    rows: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    recorder: Recorder,
    report: bool = True,
) -> list[str]:
    """Write ``run.h5`` and, if wanted, ``report.html``; return their names.

    Parameters
    ----------
    directory : Path
    trainer : Trainer or PipelinedTrainer
    rows : list of dict
        Of the log.
    result : dict
        Numbers and texts.
    recorder : Recorder
        With the phases of memory service, tree and wafers, and events of the first wafer if asked for.
    report : bool
        ``wse report`` makes it later, if not.
    """
    first: object
    if isinstance(trainer, Trainer):
        system = trainer.compile()
        phases.place(recorder, system.sent, system.ports[0].origin if system.timed else 0)
        first = system.ports[0].wafer
    else:
        first = trainer.compile().wafer
    fabric: Fabric | None = getattr(first, "fabric", None)  # a wafer has one, numpy in its place does not
    with RunWriter(recorder.path, recorder.meta) as writer:
        if recorder.windows is None and fabric is not None:
            for name, (values, unit) in fabric.all_counters().items():
                writer.add_counter(name, values, unit)
        for name, value in _flat(result):
            writer.add_result(name, value)
        for name in ("iteration", "loss", "accuracy", "cycles", "boundary"):
            if all(name in row for row in rows):
                writer.add_result(f"curve_{name}", np.array([row[name] for row in rows]))
        recorder.finish(writer)
    if not report:
        return ["run.h5"]
    from harness.report.page import page
    from traces.trace import Trace

    with Trace.open(recorder.path) as trace, atomic_file(directory / "report.html") as file:
        file.write(page(trace).encode("utf-8"))
    return ["run.h5", "report.html"]


def _flat(result: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of a result, those of tables inside with both names."""
    for name, value in result.items():
        full = before + re.sub(r"\W+", "_", name)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{full}_")
        elif value is not None:
            yield full, value
