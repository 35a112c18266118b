"""Options that several subcommands share."""

from __future__ import annotations

import argparse

__all__ = ["add_machine_options", "add_overrides"]


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--preset`` and ``--set``; `harness.config.machine.of_words` says what they mean."""
    parser.add_argument("--preset", default="wse2", help="machine to start from (default: %(default)s)")
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Give a parser ``--set``."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="machine.key=value",
        help="change a modelled number, for example --set machine.router.hop=2; may be repeated",
    )
