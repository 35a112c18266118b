"""Words of a command line are taken as ``key=value``."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS
from wse_core.schema import suggestion

__all__ = ["assigned", "parse_assignments"]


def parse_assignments(words: Iterable[str], what: str) -> dict[str, str]:
    """Return command-line words of the form ``key=value`` as a dict of str.

    Parameters
    ----------
    words : iterable of str
        The words.
    what : str
        What they set, used in the message.

    Raises
    ------
    ConfigError
        A word without ``=`` or key, or a key that is set twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        key = key.strip()
        if not sign or not key:
            raise ConfigError(f"{word!r} sets nothing", where=what, hint="write it as key=value", value=word)
        if key in found:
            raise ConfigError(f"{key} is given twice", where=what, key=key)
        found[key] = value
    return found


def assigned(table: Mapping[str, Any], words: Iterable[str], known: Sequence[str]) -> dict[str, Any]:
    """Return the tables of a file with some keys set as ``--set`` says.

    Parameters
    ----------
    table : dict
        As `tomllib` returns it; not changed.
    words : iterable of str
        Words ``table.key=value`` with a value as in TOML, or a plain text; a modelled number, whose value may be
        written as for other commands, needs no table.
    known : sequence of str
        Tables and keys of the file's top level.

    Raises
    ------
    ConfigError
        A word that sets nothing, a first part that is no table, or a number that cannot have such a value.
    """
    found: dict[str, Any] = copy.deepcopy(dict(table))
    for key, text in parse_assignments(words, "--set").items():
        path = ["machine", key] if key in PARAMETERS else key.split(".")
        if path[0] not in known:
            raise ConfigError("unknown key", where=f"--set {key}", hint=suggestion(path[0], known), key=key)
        number = PARAMETERS.get(key if path[-1] == key else ".".join(path[1:]))
        value = number.field.parse(text, f"--set {key}") if number is not None else _value(text)
        inner = found
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{name} is no table", where=f"--set {key}", key=key)
        inner[path[-1]] = value
    return found


def _value(text: str) -> Any:
    """Return what a text means in TOML, or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text
