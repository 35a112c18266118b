"""A color is configured at a PE: routes, switch positions, filter, teardown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fabric.csl.comptime.values import DIRECTIONS, Struct, Value, record
from fabric.csl.diagnostics import Fault, Span
from fabric.csl.types import BOOL, DIRECTION, ArrayType
from fabric.csl.types.rules import is_integer
from wse_core.encoding import N_COLORS
from wse_core.isa import UNSUPPORTED

__all__ = ["MOST_COLORS", "ColorConfig", "Filter", "Position", "color_config", "routable"]

MOST_COLORS = 64
"""Up to SDK 1.2 a color may have a number that no router has: it stands for none, or starts a task."""
FILTER_KINDS = ("counter", "sparse_counter", "range")
POP_MODES = ("no_pop", "always_pop", "pop_on_advance", "pop_on_header")
SWITCHES = ("pos1", "pos2", "pos3", "ring_mode", "pop_mode", "current_switch_pos")
ROUTES = ("rx", "tx", "pop_mode", "color_swap_x", "color_swap_y")
FILTER_FIELDS = (
    "kind", "count_data", "count_control", "filter_control", "init_counter", "limit1", "limit2", "max_counter",
    "min_idx", "max_idx", "fast_mode",
)  # fmt: skip
_COUNTED = ("kind", "count_data", "count_control", "filter_control", "init_counter", "max_counter", "limit1")
FILTER_OF = {
    "counter": (*_COUNTED, "fast_mode"),
    "range": ("kind", "count_data", "count_control", "min_idx", "max_idx", "fast_mode"),
}
"""Each kind of filter has these fields."""


@dataclass(frozen=True)
class Position:
    """A `Position` is one switch position: which side it replaces; both None if it is invalid."""

    rx: tuple[str, ...] | None
    tx: tuple[str, ...] | None


@dataclass(frozen=True)
class Filter:
    """A `Filter` is a wavelet filter of a color: its kind, and the other fields as the program wrote them."""

    kind: str
    fields: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ColorConfig:
    """A `ColorConfig` says what a router does with a color."""

    rx: tuple[str, ...] = ()
    tx: tuple[str, ...] = ()
    positions: tuple[Position, ...] = ()
    current: int = 0
    ring: bool = False
    pop: str = "no_pop"
    filter: Filter | None = None
    teardown: bool = False
    swap: int = 0
    """The color changes places with its partner on these axes: bit 0 is x, bit 1 is y."""


def routable(number: int, span: Span) -> int:
    """Return the number of a color if routers have it."""
    if number >= N_COLORS:
        raise Fault(f"{number} is not a routable color; there are 0 to {N_COLORS - 1}", span)
    return number


def _fields(value: Any, known: tuple[str, ...], what: str, span: Span) -> dict[str, Any]:
    """Return the fields of a struct all of whose names are known."""
    if value.__class__ is not Value or not isinstance(value.data, Struct) or value.data.is_tuple:
        if value.__class__ is Value and isinstance(value.data, Struct) and not value.data.fields:
            return {}
        raise Fault(f"{what} must be a struct, not {value.type}", span)
    for name in value.data.fields:
        if name not in known:
            raise Fault(f"{what} has no field '{name}'", span, f"it has {', '.join(known)}")
    return value.data.fields


def _directions(value: Any, what: str, span: Span) -> tuple[str, ...]:
    """Return one direction or several as their names."""
    if value.type == DIRECTION:
        return (DIRECTIONS[value.data],)
    if isinstance(value.type, ArrayType) and value.type.element == DIRECTION:
        found = [DIRECTIONS[entry] for entry in value.data]
    elif isinstance(value.data, Struct) and (value.data.is_tuple or not value.data.fields):
        items = list(value.data.fields.values())
        if any(item.type != DIRECTION for item in items):
            raise Fault(f"{what} must be directions", span, "NORTH, SOUTH, EAST, WEST, RAMP")
        found = [DIRECTIONS[item.data] for item in items]
    else:
        raise Fault(f"{what} must be directions, not {value.type}", span, ".{ WEST, RAMP }")
    if len(set(found)) != len(found):
        raise Fault(f"{what} names a direction twice", span)
    return tuple(found)


def _bits(value: Any, what: str, span: Span) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the directions of a number as <directions> makes it: those to take from, those to send to."""
    bits = _number(value, what, span, 0, 1023)
    return tuple(
        tuple(name for i, name in enumerate(DIRECTIONS) if bits >> low + i & 1) for low in (len(DIRECTIONS), 0)
    )  # type: ignore[return-value]


def _flag(value: Any, what: str, span: Span) -> bool:
    if value.type != BOOL:
        raise Fault(f"{what} must be true or false, not {value.type}", span)
    return bool(value.data)


def _number(value: Any, what: str, span: Span, low: int, high: int) -> int:
    if not is_integer(value.type):
        raise Fault(f"{what} must be an integer, not {value.type}", span)
    if not low <= value.data <= high:
        raise Fault(f"{what} is {value.data}; it can be {low} to {high}", span)
    return int(value.data)


def _choice(value: Any, known: tuple[str, ...], what: str, span: Span) -> str:
    """Return the one flag of a struct that is set."""
    fields = _fields(value, known, what, span)
    chosen = [name for name, entry in fields.items() if _flag(entry, f"{what}.{name}", span)]
    if len(chosen) > 1:
        raise Fault(f"{what} chooses {' and '.join(chosen)} at once", span)
    return chosen[0] if chosen else known[0]


def _flat(value: Any) -> Value | None:
    """Return a config with structs of routes and switches for one whose fields stand in it themselves (SDK 0.4)."""
    if value.__class__ is not Value or not isinstance(value.data, Struct) or "routes" in value.data.fields:
        return None
    parts: dict[str, dict[str, Any]] = {"routes": {}, "switches": {}, "": {}}
    for name, entry in value.data.fields.items():
        part = "routes" if name in ("rx", "tx") else "switches" if name in SWITCHES else ""
        parts[part][name] = entry
    if not parts["routes"]:
        return None
    switches = {"switches": record(parts["switches"])} if parts["switches"] else {}
    return record({"routes": record(parts["routes"]), **switches, **parts[""]})


def color_config(value: Any, span: Span) -> ColorConfig:
    """Return what a config struct means.

    Raises
    ------
    Fault
        For a field that does not exist, or a value outside of what the hardware has.
    """
    flat = _flat(value)
    known = ("routes", "switches", "filter", "teardown", "color_swap_x", "color_swap_y")
    fields = _fields(value if flat is None else flat, known, "the color config", span)
    routes: dict[str, Any] = {}
    rx: tuple[str, ...] = ()
    tx: tuple[str, ...] = ()
    if "routes" in fields and is_integer(fields["routes"].type):
        rx, tx = _bits(fields["routes"], "routes", span)
    elif "routes" in fields:
        routes = _fields(fields["routes"], ROUTES, "routes", span)
        rx = _directions(routes["rx"], "rx", span) if "rx" in routes else ()
        tx = _directions(routes["tx"], "tx", span) if "tx" in routes else ()
    switches = _fields(fields["switches"], SWITCHES, "switches", span) if "switches" in fields else {}
    positions = []
    for name in ("pos1", "pos2", "pos3"):
        if name not in switches:
            break
        positions.append(_position(switches[name], name, span))
    late = [name for name in ("pos2", "pos3") if name in switches][len(positions[1:]) :]
    if late:
        raise Fault(f"switch position {late[0]} is set, but an earlier one is not", span)
    pop = switches.get("pop_mode", routes.get("pop_mode"))
    swaps = [fields.get(name, routes.get(name)) for name in ("color_swap_x", "color_swap_y")]
    return ColorConfig(
        rx,
        tx,
        tuple(positions),
        _number(switches["current_switch_pos"], "current_switch_pos", span, 0, 3)
        if "current_switch_pos" in switches
        else 0,
        _flag(switches["ring_mode"], "ring_mode", span) if "ring_mode" in switches else False,
        _choice(pop, POP_MODES, "pop_mode", span) if pop is not None else "no_pop",
        _filter(fields["filter"], span) if "filter" in fields else None,
        _flag(fields["teardown"], "teardown", span) if "teardown" in fields else False,
        sum(_flag(entry, "a color swap", span) << k for k, entry in enumerate(swaps) if entry is not None),
    )


def _position(value: Any, name: str, span: Span) -> Position:
    """Return a switch position."""
    if is_integer(value.type):
        taken, sent = _bits(value, name, span)
        return Position(taken or None, sent or None)
    fields = _fields(value, ("rx", "tx", "invalid"), name, span)
    if "invalid" in fields and _flag(fields["invalid"], f"{name}.invalid", span):
        return Position(None, None)
    rx = _directions(fields["rx"], f"{name}.rx", span) if "rx" in fields else None
    tx = _directions(fields["tx"], f"{name}.tx", span) if "tx" in fields else None
    return Position(rx, tx)


def _filter(value: Any, span: Span) -> Filter:
    """Return the filter that a ``.filter`` struct describes, its fields checked."""
    fields = _fields(value, FILTER_FIELDS, "filter", span)
    if "kind" not in fields:
        raise Fault("the filter has no kind", span, ".kind = .{ .counter = true }")
    kind = _choice(fields["kind"], FILTER_KINDS, "the filter's kind", span)
    if kind in UNSUPPORTED:
        raise Fault(f"a filter of kind {kind} is not modelled: {UNSUPPORTED[kind]}", span, ".counter, or .range")
    for name in ("limit1", "max_counter") if kind == "counter" else ("min_idx", "max_idx"):
        if name not in fields:
            raise Fault(f"a filter of kind {kind} needs .{name}", span)
    strange = next((name for name in fields if name not in FILTER_OF[kind]), None)
    if strange is not None:
        raise Fault(f"a filter of kind {kind} has no field '{strange}'", span, f"it has {', '.join(FILTER_OF[kind])}")
    numbers = []
    for name, entry in fields.items():
        if name == "kind":
            continue
        if entry.type == BOOL:
            numbers.append((name, int(entry.data)))
        else:
            numbers.append((name, _number(entry, f"filter.{name}", span, 0, 0xFFFF)))
    return Filter(kind, tuple(numbers))
