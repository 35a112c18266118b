"""Words of a command line of the form ``key=value``."""

from __future__ import annotations

from collections.abc import Iterable

from wse_core.errors import ConfigError

__all__ = ["parse_assignments"]


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
