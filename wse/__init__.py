"""The package `wse` has everything that programs of users touch under one name.

```python
import wse

program, layout = wse.Program("send"), wse.Layout(2, 1)
with wse.open("run.h5") as trace: ...
```

====================  ============================================================================================
`Program`             one PE's code, assembled to an image
`Layout`, `Rect`      a rectangle of PEs: programs, routes, parameters, streams at the edge
`Fabric`              a layout on an engine: copies, launches, runs, counters, typed errors
`RunResult`           what a run did
`Received`, `Stream`  wavelets that left at the edge; the link they took
`machine`             the modelled numbers: a preset with changes
`price`               what a program costs before it runs: ``wse.price(program)`` (module)
`record`              a run file of what a fabric does in a block: events, counters, names, results
`open`                a run file for reading: a `Trace`
`Trace`, `RunFile`    what happened in a run, event by event; the file's parts
`TraceFilter`         which events of a run are recorded
`KERNELS`             kernels by name: ``wse.KERNELS["gemm"].run(wse.machine())``
`TrainConfig`         what is trained, on which system
`Trainer`             training on wafers, iteration after iteration
`train`               training by weight streaming, seen from the host (module)
`ENDLESS`             the extent of an operation that never ends
`control`             payloads of control wavelets (module)
`debug`               stop where something happens, look, change, go back (module)
`errors`              what may be raised (module)
====================  ============================================================================================

Importing the package loads none of them and no compiled module; each name loads what it needs when it is first used.
The packages that hold them (`fabric`, `traces`, `harness` ...) can be imported too; their names are also those of
others, such as an SSH library, and this one is not.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabric import control, debug, price
    from fabric.host.fabric import Fabric
    from fabric.host.recording import record
    from fabric.host.result import RunResult
    from fabric.host.streams import Received
    from fabric.kernels.registry import KERNELS
    from fabric.layout.layout import Layout
    from fabric.layout.rectangles import Rect
    from fabric.layout.streams import Stream
    from fabric.program.program import Program
    from harness import train
    from harness.train.config import TrainConfig
    from harness.train.trainer import Trainer
    from traces.reader import RunFile
    from traces.trace import Trace
    from wse_core import errors
    from wse_core.events import TraceFilter
    from wse_core.image import ENDLESS
    from wse_core.params import machine

__all__ = [
    "ENDLESS",
    "KERNELS",
    "Fabric",
    "Layout",
    "Program",
    "Received",
    "Rect",
    "RunFile",
    "RunResult",
    "Stream",
    "Trace",
    "TraceFilter",
    "TrainConfig",
    "Trainer",
    "control",
    "debug",
    "errors",
    "machine",
    "open",
    "price",
    "record",
    "train",
]

_HOME = {
    "KERNELS": "fabric.kernels.registry",
    "RunFile": "traces.reader",
    "Trace": "traces.trace",
    "TraceFilter": "wse_core.events",
    "TrainConfig": "harness.train.config",
    "Trainer": "harness.train.trainer",
    "errors": "wse_core.errors",
    "train": "harness.train",
}
"""Module of each name that `fabric` does not hand out; a module that carries the name itself is handed out whole."""


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a run file for reading, or what a run that did not end has left of one.

    Parameters
    ----------
    path : path-like
        The file, as ``--out`` or `record` wrote it.

    Returns
    -------
    Trace
        It has events, counters and provenance; use it as a context manager.

    Raises
    ------
    wse.errors.TraceError
        There is no such file; or it is damaged, foreign or of a newer version.
    """
    return import_module("traces.trace").Trace.open(path)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME.get(name, "fabric")
    module = import_module(home)
    found = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
