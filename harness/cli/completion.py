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
from typing import Any

__all__ = ["complete", "complete_by"]


def complete_by(action: argparse.Action, names: Callable[[argparse.Namespace], Iterable[str]]) -> None:
    """Say what an argument may be, as a function of the arguments before it, called only when a shell asks."""

    def completer(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        return list(names(parsed_args))

    action.completer = completer  # type: ignore[attr-defined]


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
