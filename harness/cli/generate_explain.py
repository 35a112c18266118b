"""``wse generate MODEL --explain`` says what is done with every key of every file of a model."""

from __future__ import annotations

import argparse
from typing import Any

from harness.kit.console import print_json, printable, table
from harness.models.explain import explained
from harness.models.hub import find_directory
from harness.models.keys import KeyVerdict
from wse_core.errors import ConfigError
from wse_core.errors.base import EXIT_INPUT
from wse_core.errors.values import named, shown

__all__ = ["explain"]

OF_EVERY_COMMAND = ("command", "handler", "parser", "template", "json", "progress", "debug", "model", "explain")


def explain(args: argparse.Namespace) -> int:
    """Print a row for each key; return 2 if one is refused or unknown.

    Raises
    ------
    ConfigError
        There is no such model, or an option says something about a run.
    """
    for name, value in vars(args).items():
        if name not in OF_EVERY_COMMAND and value != args.parser.get_default(name):
            option = "--set" if name == "overrides" else f"--{name.replace('_', '-')}"
            raise ConfigError("says something about a run, and --explain runs nothing", where=option)
    directory = find_directory(args.model)
    verdicts = explained(directory)
    counts = {does: sum(v.does == does for v in verdicts) for does in ("used", "ignored", "refused", "unknown")}
    if args.json:
        print_json({"model": directory.resolve().name, "keys": [_fields(v) for v in verdicts], "counts": counts})
    else:
        for file in dict.fromkeys(verdict.file for verdict in verdicts):
            print(printable(named(file)))
            print(table(_rows([verdict for verdict in verdicts if verdict.file == file]), indent="    "))
        print(", ".join(f"{count} {does}" for does, count in counts.items()))
    return EXIT_INPUT if counts["refused"] or counts["unknown"] else 0


def _fields(verdict: KeyVerdict) -> dict[str, Any]:
    """Return a verdict as data; of long values, what messages show of them."""
    value, text = verdict.value, shown(verdict.value)
    return {
        "file": verdict.file,
        "key": verdict.key,
        "value": text if isinstance(value, (list, dict, str)) and text != repr(value) else value,
        "does": verdict.does,
        "why": verdict.why,
        "said": verdict.said,
    }


def _rows(verdicts: list[KeyVerdict]) -> list[tuple[str, str]]:
    """Return the verdicts of a file for people."""
    says = {"used": "used", "ignored": "ignored", "refused": "REFUSED", "unknown": "UNKNOWN"}
    keys = [named(verdict.key) for verdict in verdicts]
    width = max(map(len, keys))
    rows = []
    for verdict, key in zip(verdicts, keys, strict=True):
        value = "" if not verdict.key or verdict.why.startswith("missing:") else shown(verdict.value)
        value = value if len(value) <= 30 else f"{value[:26]}...{value[-1]}"
        warned = " (a run says so)" if verdict.said else ""
        rows.append((f"{key:<{width}}  {value:<30}" if width else "", f"{says[verdict.does]}: {verdict.why}{warned}"))
    return rows
