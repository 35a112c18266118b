"""A machine is a preset of the table in `wse_core.numbers`, with overrides whose type and limits are checked.

A *preset* (``wse2``, ``wse3``) is a column of that table; a `Machine` is a preset with overrides, from a file, from
``--set machine.NAME=VALUE`` or from a call of `machine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from wse_core.errors import ConfigError
from wse_core.isa import Op
from wse_core.numbers import DEFAULT_PRESET, PRESETS, ROWS
from wse_core.schema import Field, close_match, suggestion

__all__ = ["PARAMETERS", "PRESETS", "Machine", "Param", "machine"]


@dataclass(frozen=True)
class Param:
    """A `Param` is one modelled number with its unit, source and confidence.

    Attributes
    ----------
    name : str
        Key, dotted by part of the machine.
    value : int, float, str or tuple of int
        Value of the default preset (wse2).
    unit, source, confidence, doc : str
        Unit of the value, where it comes from, how sure it is, and what it means.
    choices : tuple
        Legal values, empty if any value of the same type within [low, high] is legal.
    any_length : bool
        Whether a list of another length is legal.
    """

    name: str
    value: Any
    unit: str
    source: str
    confidence: str
    doc: str
    low: int = 0
    high: int = 2**31 - 1
    choices: tuple[Any, ...] = ()
    any_length: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """The number has these values, one per preset."""
        return {preset: column.get(self.name, self.value) for preset, column in PRESETS.items()}

    @property
    def field(self) -> Field:
        """Type and limits, as `wse_core.schema` checks them."""
        kind = type(self.value)
        length = len(self.value) if kind is tuple and not self.any_length else None
        low, high = (None, None) if kind is str else (self.low, self.high)
        return Field(self.name, kind, self.doc, low, high, self.choices, self.unit, length)

    def check(self, value: Any) -> Any:
        """Return `value`, or what a text means, in the parameter's type; `ConfigError` if it is not legal."""
        where = f"machine.{self.name}"
        if isinstance(value, str):
            return self.field.parse(value, where)
        return self.field.check(value, where)


PARAMETERS: Mapping[str, Param] = MappingProxyType({row["name"]: Param(**row) for row in ROWS})
"""All modelled numbers are here by name, in the order of the table."""


class Machine(Mapping[str, Any]):
    """A machine is a preset with overrides: an immutable mapping from parameter name to value.

    ``machine("wse2")["router.hop"]`` is 1.  Equal machines compare and hash equal.
    """

    __slots__ = ("_hash", "_values", "preset")

    def __init__(self, preset: str, values: Mapping[str, Any]) -> None:
        self.preset = preset
        self._values = dict(values)
        self._hash = hash((preset, tuple(self._values.items())))  # machines are keys of what is remembered for them

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Machine) and self.preset == other.preset and self._values == other._values

    def __reduce__(self) -> tuple[Any, ...]:
        return Machine, (self.preset, self._values)

    def __repr__(self) -> str:
        column = PRESETS.get(self.preset, {})
        changed = {k: v for k, v in self.items() if v != column.get(k, PARAMETERS[k].value)}
        return f"machine({self.preset!r}{''.join(f', {k}={v!r}' for k, v in changed.items())})"

    def lanes(self, op: Op | str) -> int:
        """Return the elements that a vector form of an operation handles per cycle; 0 if it has no vector form."""
        return self._values.get(f"lanes.{op if isinstance(op, str) else op.name}", 0)

    def replace(self, overrides: Mapping[str, Any] | None = None, /, **more: Any) -> Machine:
        """Return a machine with some numbers changed; ``router_hop=2`` may stand for ``router.hop``."""
        return Machine(self.preset, {**self._values, **_checked({**(overrides or {}), **more})})


def _checked(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers by their full names, each in its type and within its limits."""
    names = {key: _resolve(key) for key in numbers}
    return {name: PARAMETERS[name].check(numbers[key]) for key, name in names.items()}


def _resolve(key: str) -> str:
    if key in PARAMETERS:
        return key
    for name in PARAMETERS:
        if name.replace(".", "_") == key:
            return name
    raise ConfigError(f"unknown machine parameter {key!r}", where="machine", hint=_known(key), key=key)


def _known(key: str) -> str:
    """Return which number may have been meant; there are too many to list."""
    near = close_match(key, PARAMETERS)
    return f"{f'did you mean {near}? ' if near else ''}wse doctor --assumptions lists all"


def machine(preset: str = DEFAULT_PRESET, overrides: Mapping[str, Any] | None = None, /, **more: Any) -> Machine:
    """Build a `Machine` from a preset and overrides.

    Parameters
    ----------
    preset : str
        Column of the table to start from, a key of `PRESETS`: wse2, wse3.
    overrides, **more
        Numbers to change, by name (``{"router.hop": 2}`` or ``router_hop=2``).

    Raises
    ------
    ConfigError
        Unknown preset or parameter, or a value outside its range.

    Examples
    --------
    >>> machine("wse2", {"router.hop": 2})["router.hop"]
    2
    """
    if preset not in PRESETS:
        raise ConfigError(
            f"unknown machine preset {preset!r}", where="machine", hint=suggestion(preset, PRESETS), key="preset"
        )
    base = Machine(preset, {name: p.value for name, p in PARAMETERS.items()} | _checked(PRESETS[preset]))
    return base.replace(overrides, **more)
