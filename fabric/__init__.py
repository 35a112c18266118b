"""The package `fabric` has everything between processing elements; this is its public face.

```python
from fabric import Fabric, Layout, Program, machine
```

`wse` hands out the same names among others, and its docstring says what each of them is.
Importing the package loads none of them and no compiled module; each name loads what it needs when it is first used.
Rooms: `fabric.asm`, `fabric.program`, `fabric.layout`, `fabric.price`, `fabric.host`, `fabric.engine`,
`fabric.kernels`, `fabric.networks`, `fabric.csl`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fabric import control, debug, price
    from fabric.host.fabric import Fabric
    from fabric.host.recording import record
    from fabric.host.result import RunResult
    from fabric.host.streams import Received
    from fabric.layout.layout import Layout
    from fabric.layout.rectangles import Rect
    from fabric.layout.streams import Stream
    from fabric.program.program import Program
    from wse_core.image import ENDLESS
    from wse_core.params import machine

__all__ = [
    "ENDLESS",
    "Fabric",
    "Layout",
    "Program",
    "Received",
    "Rect",
    "RunResult",
    "Stream",
    "control",
    "debug",
    "machine",
    "price",
    "record",
]

_HOME = {
    "ENDLESS": "wse_core.image",
    "Fabric": "fabric.host.fabric",
    "Layout": "fabric.layout.layout",
    "Program": "fabric.program.program",
    "Received": "fabric.host.streams",
    "Rect": "fabric.layout.rectangles",
    "RunResult": "fabric.host.result",
    "Stream": "fabric.layout.streams",
    "control": "fabric.control",
    "debug": "fabric.debug",
    "machine": "wse_core.params",
    "price": "fabric.price",
    "record": "fabric.host.recording",
}
"""Module of each name; a module that carries the name itself is handed out whole."""


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    found = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
