"""A machine is made as somebody asks for it: a preset and modelled numbers to change, from a table or from words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.config.assignments import parse_assignments
from harness.config.options import place
from harness.config.toml import flatten
from memx.tiers import BEHIND
from wse_core.errors import ConfigError
from wse_core.numbers import DEFAULT_PRESET
from wse_core.params import PARAMETERS, Machine, machine
from wse_core.schema import described, suggestion

__all__ = ["PARTS", "numbers_of", "of_parts", "of_table", "of_words"]


def of_table(table: Mapping[str, Any], source: object = "") -> Machine:
    """Return the machine of a table ``[machine]`` with dotted keys: ``preset``, and numbers by name.

    Raises
    ------
    ConfigError
        Unknown preset or number, or a value outside its limits; the message names `source`.
    """
    overrides = dict(table)
    try:
        return machine(overrides.pop("preset", DEFAULT_PRESET), overrides)
    except ConfigError as error:
        error.where = place(source, error.where or "machine")
        raise


PARTS = {"memx": ("answer", "capacity", "dram", *BEHIND, "stream", "update"), "swarm": ("link", "node")}
"""These tables take some of the modelled numbers, by how the names of those begin."""


def of_parts(file: dict[str, Any], own: Mapping[str, Iterable[str]], source: object = "") -> dict[str, Any]:
    """Take the modelled numbers out of the tables of a file; return those of all, with dotted names, as ``[machine]``.

    Parameters
    ----------
    file : dict
        Its tables; those of `PARTS` have only keys of their own afterwards.
    own : dict of str to iterable of str
        Keys that a table of `PARTS` has besides.
    source
        For messages.

    Raises
    ------
    ConfigError
        A key that is none, a value that the number cannot have, or a number that two tables set.
    """
    found = file.get("machine", {})
    if not isinstance(found, dict):
        return found
    found = flatten(found)
    for part, begins in PARTS.items():
        table = file.pop(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"expected a table, found {described(table)}", where=place(source, part), value=table)
        known, kept = [name for name in PARAMETERS if name.split(".")[0] in begins], list(own.get(part, ()))
        file |= {part: {key: table[key] for key in table if key in kept}} if kept else {}
        for key, value in flatten({key: value for key, value in table.items() if key not in kept}).items():
            where = place(source, f"{part}.{key}")
            if key not in known:
                raise ConfigError("unknown key", where=where, hint=suggestion(key, [*kept, *known]), key=key)
            if key in found:
                raise ConfigError("is set in [machine] too", where=where, hint=f"once, in [{part}]", key=key)
            found[key] = PARAMETERS[key].field.check(value, where)
    return found


def numbers_of(machine: Machine) -> dict[str, Any]:
    """Return a machine's numbers of memory service and tree by name."""
    begins = {begin for part in PARTS.values() for begin in part}
    return {name: value for name, value in machine.items() if name.split(".")[0] in begins}


def of_words(preset: str, assignments: Iterable[str]) -> Machine:
    """Return the machine that ``--preset`` and ``--set`` ask for.

    Parameters
    ----------
    preset : str
    assignments : iterable of str
        Words ``machine.key=value``; the prefix may be left out.

    Raises
    ------
    ConfigError
        Unknown preset or number, or a value that it cannot take.
    """
    overrides = {}
    for key, text in parse_assignments(assignments, "--set").items():
        name = key.removeprefix("machine.")
        known = PARAMETERS.get(name)
        overrides[name] = known.field.parse(text, f"--set {key}") if known is not None else text
    return machine(preset, overrides)
