"""A process that ends itself at a counted moment, as if somebody had killed it then.

Moments are counted in calls of functions, Python's and built-in ones, of the main thread: the same ones on a fast host
and on a loaded one, between any two of which something may be half-done.  No handler runs and no buffer is written, as
with any ``kill -9``.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["Countdown"]


class Countdown:
    """Counts calls from now on; ends the process at one of them.

    Parameters
    ----------
    calls : float
        At which one to end; infinite to count only.  May be changed at any time.
    """

    def __init__(self, calls=float("inf")):
        self.calls, self.count = calls, 0
        sys.setprofile(self._event)

    def _event(self, frame, event, _):
        self.count += event in ("call", "c_call")
        if self.count >= self.calls:
            names = []
            while frame is not None:
                names.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}")
                frame = frame.f_back
            os.write(2, f"killed in {' '.join(names)}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
