"""Options are made from a table: from TOML to frozen dataclasses, with every mistake named by file and key.

A schema is a frozen dataclass.  A field is declared with `option`, which carries its meaning and limits::

    @dataclass(frozen=True)
    class Options:
        p: int = option(8, doc="side of the square of PEs", low=1, high=996)
        dtype: str = option("f16", doc="format of the factors", choices=("f16", "cb16"))

`from_table` fills such a class from a table as `tomllib` returns it and refuses unknown keys; each value goes through
`wse_core.schema.Field`, as kernel parameters and modelled numbers do.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from wse_core.errors import ConfigError, WseError
from wse_core.schema import Field, described, suggestion

__all__ = ["field_of", "from_table", "option", "place"]

T = TypeVar("T")


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple = (),
    unit: str = "",
) -> Any:
    """Declare a field of a configuration dataclass.

    Parameters
    ----------
    default
        Value if the key is absent; a field without one must be given.
    doc : str
        Meaning, shown in messages and documentation.
    low, high : number, optional
        Limits, both included; for a list they hold for each item.
    choices : sequence, optional
        The only legal values.
    unit : str, optional
        Unit of the value.

    Returns
    -------
    dataclasses.Field
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": tuple(choices), "unit": unit}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@functools.lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    """Return the declared kinds of the fields of a class, which are texts that take long to read."""
    return typing.get_type_hints(cls)


def field_of(cls: type, name: str) -> Field:
    """Return the `Field` of one option of a configuration dataclass."""
    (found,) = (item for item in dataclasses.fields(typing.cast(Any, cls)) if item.name == name)
    return Field(name, _hints(typing.cast(Any, cls))[name], **found.metadata)


def place(file: object, path: str) -> str:
    """Return "file: key.path", or whichever of the two is known."""
    return ": ".join(part for part in (str(file) if file else "", path) if part)


def _typed(value: Any, kind: Any, metadata: Mapping, file: object, path: str) -> Any:
    """Return the value of a key as its declared kind, checked against the limits in `metadata`."""
    origin, where = typing.get_origin(kind), place(file, path)
    if origin in (typing.Union, types.UnionType):
        kinds = [item for item in typing.get_args(kind) if item is not type(None)]
        return _typed(value, kinds[0], metadata, file, path)
    is_schema = dataclasses.is_dataclass(kind)
    if is_schema or dict in (kind, origin):
        if not isinstance(value, dict):
            raise ConfigError(f"expected a table, found {described(value)}", where=where, value=value)
        return from_table(kind, value, file, path) if is_schema else dict(value)
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list, found {described(value)}", where=where, value=value)
        item = typing.get_args(kind)[0]
        return origin(_typed(entry, item, metadata, file, f"{path}[{k}]") for k, entry in enumerate(value))
    return Field(path, kind, **metadata).check(value, where)


def from_table(cls: type[T], table: Mapping[str, Any], file: object = None, path: str = "") -> T:
    """Fill a configuration dataclass from a TOML table.

    Parameters
    ----------
    cls : type
        Frozen dataclass whose fields are declared with `option`.
    table : dict
        The table as `tomllib` returns it.
    file : path-like, optional
        File it came from, for messages.
    path : str, optional
        Dotted key of the table within the file, for messages.

    Returns
    -------
    cls

    Raises
    ------
    ConfigError
        Unknown or missing key, wrong type, or a value outside its limits.  The message names file and key.
    """
    hints = _hints(typing.cast(Any, cls))
    fields = {item.name: item for item in dataclasses.fields(typing.cast(Any, cls))}
    values = {}
    for key, value in table.items():
        full = f"{path}.{key}" if path else key
        if key not in fields:
            raise ConfigError("unknown key", where=place(file, full), hint=suggestion(key, fields), key=full)
        values[key] = _typed(value, hints[key], fields[key].metadata, file, full)
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and name not in values:
            full = f"{path}.{name}" if path else name
            raise ConfigError(
                f"required key is missing: {full}", where=place(file, path), hint=item.metadata.get("doc"), key=full
            )
    try:
        return cls(**values)
    except WseError as error:  # from a check across fields in __post_init__
        error.where = error.where or place(file, path)
        raise
