"""This package says what a program costs before anything runs: cycles of its tasks and of its source lines.

A program is priced, not counted by hand: `fabric.price` walks through the assembled program of a PE and adds up what
the machine's numbers say, so a program that changes changes its price, and so does a machine.

```python
from fabric.price import price, price_code

found = price(program)                      # Program or ProgramImage; a machine of your own as second argument
found.tasks["main"].alone                   # cycles from the picker's choice of the task to its next choice
found.tasks["main"].lines                   # the same by source line
found.unknown                               # what is not known before the run, by name and place
price(program, given={"n": 12})             # variables that cycles depend on
price(program, odds={"mine.py:31": 0.25})   # how often a branch is taken that depends on data

price_code(lambda p: p.fmuls(x, x, x))      # a piece of code, written into an empty program
```

A task that meets the fabric waits for others.  Its price is cut there: `TaskPrice.before` its first operation with the
fabric, the `length` of that, and what comes `after` it; `meetings` has all of them.

=============  =======================================================================================================
`program`      `price`, `price_code` (a piece of code), `price_run` (a whole run of one PE), `pricer` (task by task)
`layout`       `price_layout`: each program with the parameters that a layout sets
`lines`        who waits for whom: tasks of several PEs along lines, rings, trees and chains; runs of a layout
`prices`       what they return: `ProgramPrice`, `TaskPrice`, `Unknown`
`tasks`        what a task finds when it begins: a fixed point over the tasks that may have run before
`walk`         a walk through code: threads, slots, latencies
`code`         instructions, `Meeting` with the fabric, `NotKnown`
`effects`      what may be left behind where it is not known which way a task goes
`state`        what is known of registers, memory, DSRs; scalar instructions
`content`      what a DSR holds
`steps`        steps of vector operations: lanes, groups, bank conflicts
`costs`        cost classes of instructions
`timing`       the words of closed forms: ramps, stages, trains
=============  =======================================================================================================

Timing: docs/machine.md, of which all prices are sums.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabric.price.layout import PlacedPrice, price_layout
    from fabric.price.prices import ProgramPrice, TaskPrice, Unknown
    from fabric.price.program import price, price_code, price_run, pricer

__all__ = [
    "PlacedPrice",
    "ProgramPrice",
    "TaskPrice",
    "Unknown",
    "price",
    "price_code",
    "price_layout",
    "price_run",
    "pricer",
]

_HOME = {name: "program" if name.startswith("price") else "prices" for name in __all__}
_HOME |= {"PlacedPrice": "layout", "price_layout": "layout"}


class _Face(ModuleType):
    """The module, which prices what it is called with: ``fabric.price(program)`` is ``fabric.price.price(program)``."""

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.price(*args, **more)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
