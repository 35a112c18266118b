"""Completion in the shell is done by argcomplete: commands, options, names of kernels, models and figures, key=value
words.

The shell is told once with ``eval "$(register-python-argcomplete wse)"``.  At each tab it then runs ``wse`` with the
line in its environment; `complete` answers and ends the process.  Nothing here costs a command anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["complete", "complete_by", "complete_list", "complete_numbers", "complete_paths"]


def complete_by(action: argparse.Action, names: Callable[[argparse.Namespace], Iterable[str]]) -> None:
    """Say what an argument may be, as a function of the arguments before it, called only when a shell asks."""

    def completer(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        return list(names(parsed_args))

    action.completer = completer  # type: ignore[attr-defined]


def complete_paths(action: argparse.Action, names: Callable[[argparse.Namespace], Iterable[str]]) -> None:
    """Say what an argument may be beside a file or a directory: names, and what lies where the shell is."""

    def completer(parsed_args: argparse.Namespace, prefix: str = "", **_: Any) -> list[str]:
        place = Path(prefix if prefix.endswith("/") or not prefix else Path(prefix).parent)
        there = sorted(place.iterdir()) if place.is_dir() else []
        return [*names(parsed_args), *(f"{path}/" if path.is_dir() else str(path) for path in there)]

    action.completer = completer  # type: ignore[attr-defined]


def complete_list(action: argparse.Action, names: Sequence[str] | Callable[[], Sequence[str]]) -> None:
    """Say what the words of an argument may be that takes several with commas between."""

    def completer(prefix: str = "", **_: Any) -> list[str]:
        before = prefix[: prefix.rfind(",") + 1]
        return [before + name for name in (names() if callable(names) else names)]

    action.completer = completer  # type: ignore[attr-defined]


def complete_numbers(action: argparse.Action, prefix: str = "machine.") -> None:
    """Say that an argument sets a modelled number, as in ``machine.router.hop=2``, with the prefix or without."""

    def names(args: argparse.Namespace) -> list[str]:
        from wse_core.params import PARAMETERS

        return [f"{start}{name}=" for start in (prefix, "") for name in PARAMETERS]

    complete_by(action, names)


def complete(build_parser: Callable[..., argparse.ArgumentParser], commands: Sequence[str]) -> int:
    """Answer a shell that asks how a line may go on; return the exit status if nothing can be answered."""
    try:
        import argcomplete
    except ImportError:
        print("wse: completion needs argcomplete: pip install 'wse-sim[complete]'", file=sys.stderr)
        return 1
    words = os.environ.get("COMP_LINE", "").split()[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    parser = build_parser((command,) if command in commands else commands)
    argcomplete.autocomplete(parser, always_complete_options="long")
    return 1
