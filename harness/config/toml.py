"""TOML files are read: their text, their tables, and what is wrong with one that cannot be read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wse_core.errors import ConfigError
from wse_core.schema import close_match

__all__ = ["MAX_BYTES", "flatten", "parse", "read_text"]

MAX_BYTES = 1 << 20
"""Longest file that is read [bytes]; a longer one is certainly another kind of file."""


def parse(text: str, source: object) -> dict[str, Any]:
    """Return the table that a text describes.

    Raises
    ------
    ConfigError
        Malformed, with line and column.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, tables in tables in tables
        last = f"at line {len(text.splitlines())}, the end of the document"
        message = str(error).replace("at end of document", last)
        raise ConfigError(f"not valid TOML: {message}", where=source, path=str(source)) from None


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested table as one level with dotted keys: TOML reads router.hop = 2 as nested tables."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _names(directory: Path) -> list[str]:
    """Return the names of the TOML files of a directory; nothing else is ever meant."""
    try:
        return [item.name for item in directory.iterdir() if item.suffix == ".toml"]
    except OSError:
        return []


def read_text(path: str | Path, instead: str = "the name of a TOML file") -> str:
    """Return the text of a configuration file.

    Parameters
    ----------
    path : path-like
    instead : str
        What to try if there is no such file and none of a similar name.

    Raises
    ------
    ConfigError
        If it is missing, unreadable, a directory, too large, or not UTF-8.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)  # the size of a device is said to be 0
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"longer than {MAX_BYTES:,} bytes, certainly no file of settings", where=path)
        return raw.decode("utf-8-sig")  # a byte order mark is no part of the text
    except FileNotFoundError:
        near = close_match(path.name, _names(path.parent))
        hint = f"did you mean {path.with_name(near)}?" if near else instead
        raise ConfigError("no such file", where=path, hint=hint, path=str(path)) from None
    except IsADirectoryError:
        raise ConfigError("is a directory, no file of settings", where=path, path=str(path)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line} is not UTF-8 text", where=path, path=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, path=str(path)) from None
