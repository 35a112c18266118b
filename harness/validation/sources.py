"""The programs in CSL that points stand for (``csl`` beside this module), compiled by `fabric.csl`.

A source has the params of its point, its variables are filled by name, and it leaves the readings of the cycle counter
at begin and end in ``stamps``.
"""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

from fabric.csl.diagnostics import CslError
from harness.kit.modules import need
from harness.validation.recipe import CannotRun
from wse_core.image import FabricSpec
from wse_core.params import Machine

__all__ = ["compiled", "fitting"]


@functools.lru_cache(32)
def _specification(machine: Machine, name: str, params: tuple[tuple[str, int], ...]) -> FabricSpec:
    purpose = "a program in CSL that `wse validate` compiles"
    need("lark", purpose)
    compiler = need("fabric.csl.compile", purpose)
    session = need("fabric.csl.comptime.session", purpose)
    artefact = need("fabric.csl.artefact", purpose)
    # The programs are written for WSE-2, whose data tasks belong to colors; other numbers are those of the machine.
    machine = need("fabric.csl.rules", purpose).compiled(machine.replace({"task.by_queue": 0}))
    with resources.as_file(resources.files("harness.validation") / "csl" / f"{name}.csl") as path:
        made = compiler.compile_file(Path(path), session.Options(params=dict(params)), machine)
        found = artefact.bundle_of(made).spec(machine)
    assert isinstance(found, FabricSpec)
    return found


def compiled(machine: Machine, name: str, **params: int) -> FabricSpec:
    """Return a program of this package as what an engine runs.

    Parameters
    ----------
    machine : Machine
    name : str
        Its file without ``.csl``.
    **params
        Its params.

    Raises
    ------
    ConfigError
        The parser's library is missing; the message says how it is installed.
    CslError
        It does not fit into a PE.
    """
    return _specification(machine, name, tuple(sorted(params.items())))


def fitting(what: str, machine: Machine, name: str, **params: int) -> FabricSpec:
    """Return a program as `compiled` does; one that does not fit into a PE is a point that cannot run.

    Parameters
    ----------
    what : str
        The data that the point asks for, in words: several things.
    machine, name, **params
        As `compiled` takes them.

    Raises
    ------
    CannotRun
    """
    try:
        return compiled(machine, name, **params)
    except CslError as error:
        raise CannotRun(f"{what} do not fit into a PE: {error.what}") from None
