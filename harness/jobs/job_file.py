"""The file of ``wse run`` says which job, on which machine, with which options.

A job file has these keys, all of them optional except ``job``:

===========  ==================================================================================
job          name of the job, one of `harness.jobs.JOBS`
seed         seed of everything random on the host's side
cycle_limit  most cycles a single run on the machine may take
[machine]    ``preset`` and any modelled number to change: ``router.hop = 2``
[options]    what the job itself offers; its module declares it as the dataclass ``Options``
===========  ==================================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config import toml
from harness.config.machine import of_table
from harness.config.options import from_table, option, place
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["JobConfig", "load_job", "parse_job"]


@dataclass(frozen=True)
class JobConfig:
    """A job as a file describes it.

    Attributes
    ----------
    job : str
        Name of the job.
    seed : int
        Seed of everything random on the host's side.
    cycle_limit : int
        Most cycles that a single run may take.
    machine : dict
        ``preset`` and modelled numbers to change, flattened to dotted names.
    options
        Instance of the job's own ``Options``.
    text : str
        The file as it was read, kept for the run file.
    source : str
        Where the text came from.
    """

    job: str = option(doc="name of the job")
    seed: int = option(0, doc="seed of everything random on the host's side", low=0, high=2**63 - 1)
    cycle_limit: int = option(10**9, doc="most cycles that a single run may take", low=1, high=2**62, unit="cycles")
    machine: dict = option({}, doc="preset and modelled numbers to change")
    options: Any = dataclasses.field(default=None, metadata={"doc": "what the job itself offers"})
    text: str = dataclasses.field(default="", metadata={"doc": "the file as it was read"})
    source: str = dataclasses.field(default="", metadata={"doc": "where the text came from"})

    def build_machine(self) -> Machine:
        """Return the `wse_core.params.Machine` that the job asks for.

        Raises
        ------
        ConfigError
            Unknown preset or number, or a value outside its range; the message names the file.
        """
        return of_table(self.machine, self.source)


@dataclass(frozen=True)
class _JobFile:
    """A `_JobFile` has the keys that a job file may have."""

    job: str = option(doc='name of the job, for example job = "digits"')
    seed: int = option(0, doc="seed", low=0, high=2**63 - 1)
    cycle_limit: int = option(10**9, doc="most cycles", low=1, high=2**62, unit="cycles")
    machine: dict = option({}, doc="preset and modelled numbers to change")
    options: dict = option({}, doc="what the job itself offers")


def parse_job(text: str, source: object, find_options: Callable[[str], type]) -> JobConfig:
    """Return the `JobConfig` that a TOML text describes.

    Parameters
    ----------
    text : str
        The TOML text.
    source : path-like
        Where it came from, for messages.
    find_options : callable
        ``find_options(job)`` returns the dataclass of the job's own options, or raises `ConfigError`.

    Raises
    ------
    ConfigError
        Malformed TOML (with line and column), or anything that `from_table` refuses.
    """
    file = from_table(_JobFile, toml.parse(text, source), source)
    try:
        schema = find_options(file.job)
    except ConfigError as error:
        error.where = error.where or place(source, "job")
        raise
    options: Any = from_table(schema, file.options, source, "options")
    config = JobConfig(
        job=file.job,
        seed=file.seed,
        cycle_limit=file.cycle_limit,
        machine=toml.flatten(file.machine),
        options=options,
        text=text,
        source=str(source),
    )
    config.build_machine()
    return config


def load_job(path: str | Path, find_options: Callable[[str], type]) -> JobConfig:
    """Return the `JobConfig` in a TOML file; see `parse_job`."""
    return parse_job(toml.read_text(path, "wse run without a file, which uses the built-in job"), path, find_options)
