"""The memory of this process that is in RAM is read: now, and at the most.

The kernel's own peak (``ru_maxrss``) begins with that of the process that started this one; the high-water mark of
``/proc`` does not, and can be started anew.  Where there is no ``/proc``, the former is told.
"""

from __future__ import annotations

import contextlib
import resource

__all__ = ["peak_bytes", "resident_bytes", "restart_peak"]


def peak_bytes() -> int:
    """Return the most bytes since the process began, or since `restart_peak`."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Return the bytes now; where the system does not say, the most so far."""
    return _status("VmRSS") or peak_bytes()


def restart_peak() -> None:
    """Have `peak_bytes` begin with what is there now, if the system can."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status(name: str) -> int:
    """Return a number of kilobytes of the process's page in ``/proc`` in bytes, 0 if it is not there."""
    with contextlib.suppress(OSError), open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
