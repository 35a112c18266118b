"""Each key of a file of a model is used, ignored with a reason, refused with a reason, or unknown.

A file is judged by a table of *known* keys.  What is in no table is unknown and is said, never passed over: a model in
which somebody set a key that changes its answers must not be answered as if it had none.  The same tables load a model
and explain it (``wse generate MODEL --explain``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wse_core.errors import UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["NOTHING", "ONE", "Key", "KeyVerdict", "ignored", "judged", "refuse_first", "unless", "used", "warnings_of"]

NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})
"""By one of these values a file asks for nothing."""
ONE: tuple[Any, ...] = (None, 1)
"""A factor of one of these values has no effect."""

Does = Literal["used", "ignored", "refused", "unknown"]

Refuses = Callable[[Any, Mapping[str, Any]], str | None]
"""Given a value and the table it stands in, the reason why it is refused, or None."""


def _never(value: Any, table: Mapping[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class KeyVerdict:
    """A `KeyVerdict` says what is done with a key.

    Attributes
    ----------
    file : str
        Name of the file in the model's directory.
    key : str
        Keys inside of tables with a dot: ``rope_scaling.factor``.  Empty for a file as a whole.
    value : object
        None too where the key is missing, which then `why` says.
    does : {"used", "ignored", "refused", "unknown"}
    why : str
        Used as what; ignored or refused because of what.
    said : bool
        Whether it is ignored although the hub's library would obey it: a run warns of that.
    """

    file: str
    key: str
    value: Any
    does: Does
    why: str
    said: bool = False


@dataclass(frozen=True)
class Key:
    """A `Key` says what is done with a known key.

    Attributes
    ----------
    does : {"used", "ignored"}
    why : str
        Used as what, or ignored because of what.
    refuses : callable
        Says of a value that would change answers, and is not modelled, why it is refused.
    inside : mapping or None
        The known keys of a table that is the value.
    missing : str
        What is taken if the key is missing, where the reader should know.
    neutral : collection or None
        Values that change nothing for the hub's library either; with others an ignored key is said in a run.
    """

    does: Literal["used", "ignored"]
    why: str
    refuses: Refuses = _never
    inside: Mapping[str, Key] | None = None
    missing: str = ""
    neutral: Collection[Any] | None = None


def used(why: str, refuses: Refuses = _never, **more: Any) -> Key:
    """Return a key whose value is used."""
    return Key("used", why, refuses, **more)


def ignored(why: str, refuses: Refuses = _never, **more: Any) -> Key:
    """Return a key whose value changes nothing that is computed here."""
    return Key("ignored", why, refuses, **more)


def unless(neutral: Collection[Any], why: str) -> Key:
    """Return a key that is ignored if it says nothing (one of the neutral values), and refused otherwise."""
    return Key("ignored", "it asks for nothing", lambda value, _: None if _among(value, neutral) else why)


def _among(value: Any, neutral: Collection[Any]) -> bool:
    """Whether a value is one of those, true and 1 being two things, and 1 and 1.0 one."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in neutral)


def judged(
    file: str, table: Mapping[str, Any], keys: Mapping[str, Key], what: str, prefix: str = ""
) -> list[KeyVerdict]:
    """Return what is done with every key of a table, and with known ones that are missing where that matters.

    Parameters
    ----------
    file, what : str
        The file, and what the table says something about, for the message on an unknown key.
    prefix : str
        Of the keys of a table inside of another.
    """
    found = []
    for name, value in table.items():
        key, full = keys.get(name), prefix + name
        if key is None:
            found.append(
                KeyVerdict(file, full, value, "unknown", f"no key of {what} that is known here; not looked at")
            )
            continue
        reason = key.refuses(value, table)
        if reason is not None:
            found.append(KeyVerdict(file, full, value, "refused", reason))
        elif key.inside is not None and isinstance(value, dict):
            found += judged(file, value, key.inside, what, f"{full}.")
        else:
            said = key.does == "ignored" and key.neutral is not None and not _among(value, key.neutral)
            found.append(KeyVerdict(file, full, value, key.does, key.why, said))
    missing = [(name, key) for name, key in keys.items() if key.missing and name not in table]
    return found + [KeyVerdict(file, prefix + name, None, "used", f"missing: {key.missing}") for name, key in missing]


def refuse_first(verdicts: list[KeyVerdict], where: Any = None) -> None:
    """Raise `UnsupportedError` with the first key that is refused, if one is."""
    for verdict in verdicts:
        if verdict.does == "refused":
            head = f"{named(verdict.key)} {shown(verdict.value)}"
            raise UnsupportedError(f"{head}: {verdict.why}", where=where, hint="wse generate MODEL --explain")


def warnings_of(verdicts: list[KeyVerdict]) -> list[str]:
    """Return what a run should say of keys that nobody looked at, a line per file and kind."""
    found = []
    for file in dict.fromkeys(verdict.file for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict.file == file]
        for kind, says in (
            ([v for v in own if v.does == "unknown"], "unknown here and not looked at"),
            ([v for v in own if v.said], "not obeyed here"),
        ):
            if kind:
                names = ", ".join(named(verdict.key) for verdict in kind[:5])
                more = f" and {len(kind) - 5} more" if len(kind) > 5 else ""
                found.append(f"{file}: {names}{more}: {says} (wse generate MODEL --explain)")
    return found
