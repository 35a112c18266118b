"""A command works on a part of a trace, which ``wse view`` and ``wse export`` let users say by the same options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from traces.trace import DERIVED, Trace
from wse_core.errors import ConfigError
from wse_core.events import FOREVER, KINDS

__all__ = ["add_options", "cycle_range", "inside", "of_args", "rectangle"]


def add_options(parser: argparse.ArgumentParser, cycles: bool = True) -> None:
    """Give a parser the options of a selection; a command that shows all cycles has none of them."""
    group = parser.add_argument_group("selection")
    if cycles:
        group.add_argument("--cycles", metavar="A:B", help="cycles A to B - 1; either may be missing")
    group.add_argument("--region", metavar="X,Y,W,H", help="rectangle of PEs: corner, width, height")
    group.add_argument("--kinds", metavar="K,K", help=f"kinds of events: {', '.join((*KINDS, *DERIVED))}")
    group.add_argument("--colors", metavar="C,C", help="events of these colors only, of those that have one")


def cycle_range(text: str, where: str = "--cycles") -> tuple[int, int]:
    """Return (first, stop) of a text ``A:B``, given with the option `where`."""
    first, colon, stop = text.partition(":")
    try:
        found = (int(first) if first else 0), (int(stop) if stop else FOREVER)
    except ValueError:
        found = None
    if not colon or found is None or not 0 <= found[0] < found[1]:
        raise ConfigError(f"{text!r} is no range of cycles", where=where, hint="such as 1000:2000 or :500")
    return found


def rectangle(text: str, where: str = "--region") -> tuple[int, int, int, int]:
    """Return (x, y, width, height) of a text ``X,Y,W,H``, given with the option `where`."""
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        found = ()
    if len(found) != 4 or min(found) < 0 or min(found[2:]) < 1:
        raise ConfigError(f"{text!r} is no rectangle", where=where, hint="such as 0,0,8,8: corner, width, height")
    return found


def of_args(args: argparse.Namespace, kinds: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the selection of parsed arguments as keywords of `Trace.events`; `kinds` if none were named."""
    chosen = tuple(args.kinds.split(",")) if args.kinds else kinds
    for kind in chosen or ():
        if kind not in (*KINDS, *DERIVED):
            raise ConfigError(f"{kind!r} is no kind of event", where="--kinds", hint=", ".join((*KINDS, *DERIVED)))
    try:
        colors = tuple(int(word) for word in args.colors.split(",")) if args.colors else None
    except ValueError:
        raise ConfigError(f"{args.colors!r} are no colors", where="--colors", hint="such as 0,1") from None
    selection = {
        "cycles": cycle_range(args.cycles) if getattr(args, "cycles", None) else (0, FOREVER),
        "colors": colors,
        "region": rectangle(args.region) if args.region else None,
    }
    return selection | ({"kinds": chosen} if chosen else {})


def inside(trace: Trace, region: tuple[int, ...], where: str = "--region") -> None:
    """Refuse a rectangle that reaches outside the fabric."""
    height, width = trace.shape
    x, y, w, h = region
    if min(x, y) < 0 or x + w > width or y + h > height:
        raise ConfigError(f"reaches outside the {width} x {height} PEs of the run", where=where)
