"""The machine that somebody asks for: a preset and modelled numbers to change, from a file's table or from words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.config.assignments import parse_assignments
from harness.config.options import place
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, Machine, machine

__all__ = ["of_table", "of_words"]


def of_table(table: Mapping[str, Any], source: object = "") -> Machine:
    """Return the machine of a table ``[machine]`` with dotted keys: ``preset``, and numbers by name.

    Raises
    ------
    ConfigError
        Unknown preset or number, or a value outside its limits; the message names `source`.
    """
    overrides = dict(table)
    try:
        return machine(overrides.pop("preset", "wse2"), overrides)
    except ConfigError as error:
        error.where = place(source, error.where or "machine")
        raise


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
