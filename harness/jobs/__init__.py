"""Jobs for ``wse run``: each is a module of this package, named in `JOBS`.

A job module provides

``Options``
    a frozen dataclass whose fields are declared with `harness.config.options.option`: the ``[options]`` of its
    file;
``run(config, out_dir, progress)``
    does the work.  `config` is a `harness.jobs.job_file.JobConfig`, `out_dir` an empty directory for the files that the
    job leaves, `progress` a `harness.kit.console.Progress`.  It returns a dict that JSON can carry.  A key ``verified``
    that is false makes the command fail;
``report(result)``
    optional: the text for people, made from that dict.

The files appear at their final place only after `run` has returned; a job that fails or is interrupted leaves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from types import ModuleType
from typing import Any

from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["DEFAULT_JOB", "JOBS", "Job", "default_config", "load", "options_of"]


@dataclass(frozen=True)
class Job:
    """A `Job` is an entry of the registry.

    Attributes
    ----------
    name : str
        What the key ``job`` of a job file says.
    module : str
        Module that implements it.
    summary : str
        One line for people.
    """

    name: str
    module: str
    summary: str


JOBS = {"digits": Job("digits", "harness.jobs.digits", "classify the handwritten digits of scikit-learn with one GEMM")}
DEFAULT_JOB = "digits"


def load(name: str) -> ModuleType:
    """Return the module of a job.

    Raises
    ------
    ConfigError
        If there is no such job, or something that it needs is missing.
    """
    if name not in JOBS:
        raise ConfigError(f"unknown job {name!r}", hint=suggestion(name, JOBS), job=name)
    return need(JOBS[name].module, f"the job {name}")


def options_of(name: str) -> type[Any]:
    """Return the dataclass of a job's own options."""
    return load(name).Options


def default_config() -> tuple[str, str]:
    """Return (text, name) of the job file that ships with the package and runs when none is given."""
    name = f"{DEFAULT_JOB}.toml"
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8"), f"built-in {name}"
