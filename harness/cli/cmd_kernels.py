"""``wse kernels [NAME ...]`` tells which kernels there are, what they take, and whose algorithms they are."""

from __future__ import annotations

import argparse
from typing import Any

from harness.cli.completion import complete_by
from harness.cli.kernel_pages import as_text, describe, kernel_names
from harness.kit.console import print_json
from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "kernels",
        parents=[common],
        help="list the kernels with their parameters and sources",
        description="List kernels with their parameters, defaults and the source of each algorithm.",
    )
    names = parser.add_argument("names", nargs="*", metavar="NAME", help="only these kernels (default: all)")
    complete_by(names, lambda args: kernel_names())
    return parser


def main(args: argparse.Namespace) -> None:
    """Print the list of kernels."""
    kernels = need("fabric.kernels.registry", "the command `wse kernels`").KERNELS
    for name in args.names:
        if name not in kernels:
            raise ConfigError(f"unknown kernel {name!r}", hint=suggestion(name, kernels), kernel=name)
    found = [describe(kernels[name]) for name in dict.fromkeys(args.names or kernels)]
    if args.json:
        print_json({"kernels": found})
    else:
        print("\n".join(as_text(kernel) for kernel in found))
