"""A run file is the HDF5 file that a run leaves behind; it has this layout.

==================  ==============================================================================================
place               content
==================  ==============================================================================================
``/`` attributes    ``format`` = "wse-run", ``format_version`` = [major, minor]
``/meta``           attributes: one per field of `RunMeta`; the machine is JSON text
``/counters/NAME``  (n_window, height, width) per PE, or (n_window, height, width, 5) per link in the order of
                    `wse_core.counters.LINKS`; attributes ``unit``, ``doc``, ``kind`` ("pe" or "link"),
                    ``window_cycles`` (0 = one window covers the run)
``/window /y /x``   the axes of counters, as dimension scales; ``/port`` the last one of those per link
``/results/NAME``   numbers, texts or arrays; attributes ``unit``, ``doc``, and ``json`` = true for structured
                    values, which are stored as JSON text
``/events/COLUMN``  optional: the events of the run, see `traces.event_log` and `wse_core.events`
``/marks/list``     optional: phases of the program, see `traces.marks`: (begin, end, track, label) of each, in order,
                    as JSON text
==================  ==============================================================================================

A reader refuses a newer major version and skips what it does not know.  The minor version grows when something is
added, the major one when something changes its meaning.  Rows are y (south is down), columns are x (east is right).
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from wse_core.errors import TraceError

__all__ = ["CHUNK", "FORMAT", "FORMAT_VERSION", "SEGMENT", "STATUSES", "RunMeta", "check_name"]

FORMAT = "wse-run"
FORMAT_VERSION = (1, 3)

CHUNK = 1 << 14
"""A chunk of a column has so many events, which is what the least read costs."""
SEGMENT = 1 << 20
"""A segment has so many events, a multiple of `CHUNK`."""

STATUSES = ("completed", "deadlock", "fault", "cycle limit", "interrupted")
"""A run can end in one of these ways."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def check_name(name: str) -> str:
    """Return `name` if it can name a counter or result, else raise `TraceError`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        hint = "letters, digits, dot, dash and underscore, a letter first"
        raise TraceError(f"{name!r} cannot name a dataset", hint=hint, name=name)
    return name


@dataclass(frozen=True)
class RunMeta:
    """A `RunMeta` says where a run comes from.

    Attributes
    ----------
    job : str
        What ran.
    config_toml : str
        Text of the job file; empty if there was none.
    machine : dict
        Every modelled number by name.
    preset : str
        Preset that the machine started from.
    seed : int
        Seed of the run.
    package_version, commit, build_mode, host, started : str
        Provenance; `started` is UTC in ISO 8601.  Empty if not known.
    status : str
        One of `STATUSES`.
    first_cycle : int
        Cycle of the machine at which recording began; counters and results are those from there on.
    """

    job: str = ""
    config_toml: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    seed: int = 0
    package_version: str = ""
    commit: str = ""
    build_mode: str = ""
    host: str = ""
    started: str = ""
    status: str = "completed"
    first_cycle: int = 0

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise TraceError(f"{self.status!r} is not a status of a run", hint=f"one of {', '.join(STATUSES)}")

    def replace(self, **changes: Any) -> RunMeta:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)
