"""Some functions of the library have no body there: the machine does their work.

`ROUTINES` is keyed by the name of the module's source and of the function; each takes the `FunctionLowering` and the
call.
"""

from __future__ import annotations

from fabric.csl.lower.routines.library import ROUTINES

__all__ = ["ROUTINES"]
