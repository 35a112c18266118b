"""Several subcommands share options, and have one door through which each kind of their values comes in."""

from __future__ import annotations

import argparse

from harness.cli.completion import complete_by, complete_numbers
from wse_core.errors import ConfigError
from wse_core.errors.values import shown
from wse_core.numbers import DEFAULT_PRESET, PRESETS

__all__ = ["CLOCKS", "add_format", "add_machine_options", "add_overrides", "mesh_of", "text_of", "token_ids_of"]

CLOCKS = ("clock.ghz", "plan.core_ghz")
"""Tokens per second are given at these numbers of the machine: the vendor's scripts, and the published rate."""


def add_machine_options(parser: argparse.ArgumentParser, preset: str | None = DEFAULT_PRESET) -> None:
    """Give a parser ``--preset`` and ``--set``; `harness.config.machine.of_words` says what they mean.

    `preset` is the default; None: the machine that a program was written for.
    """
    default = "that of the program" if preset is None else "%(default)s"
    start = parser.add_argument("--preset", default=preset, help=f"machine to start from (default: {default})")
    complete_by(start, lambda args: PRESETS)
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--set``."""
    option = parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="machine.key=value",
        help="change a modelled number, for example --set machine.router.hop=2; may be repeated",
    )
    complete_numbers(option)


def add_format(parser: argparse.ArgumentParser, of: str = "pictures") -> None:
    """Give a parser ``--format`` for its pictures."""
    from traces.picture import FORMATS

    parser.add_argument("--format", choices=FORMATS, default="png", help=f"of {of} (default: %(default)s)")


def mesh_of(text: str, option: str) -> tuple[int, int]:
    """Return PEs along x and y of a text such as ``16x16``.

    Raises
    ------
    ConfigError
        The text is none; names the option.
    """
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 7 and int(part) for part in parts):
        raise ConfigError(f"{shown(text)} is no mesh", where=option, hint="WxH, for example 16x16")
    return int(parts[0]), int(parts[1])


def token_ids_of(text: str, option: str) -> list[int]:
    """Return the tokens of a text such as ``1,2,3``.

    Raises
    ------
    ConfigError
        The text is none; names the option.
    """
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise ConfigError(f"{shown(text)} is no list of tokens", where=option, hint=f"{option} 1,2,3") from None


def text_of(text: str, option: str) -> str:
    """Return a text of the command line, or refuse one whose bytes are no UTF-8.

    Raises
    ------
    ConfigError
        Python keeps such bytes as halves of surrogate pairs, which no tokenizer takes; names the option.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        what = f"character {error.start + 1} is no text in UTF-8: {shown(text[error.start])}"
        raise ConfigError(what, where=option, hint="a terminal and a locale of UTF-8") from None
    return text
