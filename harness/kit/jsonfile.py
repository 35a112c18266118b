"""JSON files of others are read by one function, which says in a line what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wse_core.errors import ConfigError
from wse_core.errors.values import named

__all__ = ["read_json", "read_value"]

MAX_BYTES = 256 << 20
"""Longest file that is read [bytes]; the vocabularies of today take up to a tenth."""


def read_json(path: Path, instead: str | None = None) -> dict[str, Any]:
    """Return the table that a file holds; a byte order mark before it is not part of it.

    Raises
    ------
    ConfigError
        As of `read_value`, or it is no table.
    """
    table = read_value(path, instead)
    if not isinstance(table, dict):
        raise ConfigError("no table of keys", where=Path(path), path=str(path))
    return table


def read_value(path: Path, instead: str | None = None) -> Any:
    """Return what a file holds; a byte order mark before it is not part of it.

    Parameters
    ----------
    path : Path
    instead : str, optional
        What to try if there is no such file.

    Raises
    ------
    ConfigError
        It is missing, unreadable, too long, not UTF-8, not JSON, or a key stands twice in it.
    """
    path = Path(path)

    def refused(what: str, hint: str | None = None) -> ConfigError:
        return ConfigError(what, where=path, hint=hint, path=str(path))

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise refused(f"key {named(twice)} stands twice in it")
        return found

    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)  # the size of a device is said to be 0
        if len(raw) > MAX_BYTES:
            raise refused(f"longer than {MAX_BYTES:,} bytes, certainly no file of a model")
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=once)
    except FileNotFoundError:
        raise refused("no such file", instead) from None
    except IsADirectoryError:
        raise refused("is a directory") from None
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refused(f"line {line} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise refused(f"not valid JSON: {named(' '.join(str(error).split()))}") from None
