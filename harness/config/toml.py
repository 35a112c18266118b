"""TOML files: their text, their tables, and what is wrong with one that cannot be read."""

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


def read_text(path: str | Path) -> str:
    """Return the text of a configuration file.

    Raises
    ------
    ConfigError
        If it is missing, unreadable, a directory, too large, or not UTF-8.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"the file is larger than {MAX_BYTES:,} bytes", where=path, cause="not a job file")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        near = close_match(path.name, (item.name for item in path.parent.iterdir())) if path.parent.is_dir() else None
        hint = f"did you mean {path.with_name(near)}?" if near else "wse run without a file uses the built-in job"
        raise ConfigError("no such file", where=path, hint=hint, path=str(path)) from None
    except IsADirectoryError:
        raise ConfigError("is a directory, not a job file", where=path, path=str(path)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line} is not UTF-8 text", where=path, path=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, path=str(path)) from None
