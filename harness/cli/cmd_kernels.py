"""``wse kernels [NAME ...]``: which kernels there are, what they take, and whose algorithms they are."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.cli.completion import complete_by
from harness.kit.console import print_json
from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from fabric.kernels.kit.kernel import Kernel

__all__ = ["add_parser", "as_text", "describe", "kernel_names", "main"]


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


def kernel_names() -> list[str]:
    """Return the names of the kernels, nothing if the modules are not compiled; for completion."""
    try:
        return list(need("fabric.kernels.registry", "completion").KERNELS)
    except ConfigError:
        return []


def describe(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel of the registry as plain data.

    Returns
    -------
    dict
        ``name``, ``summary``, ``source`` and ``params``: a list of dicts with ``name``, ``kind``, ``default``,
        ``choices`` and ``doc``.
    """
    params = [
        {
            "name": param.name,
            "kind": param.kind.__name__,
            "default": param.default,
            "choices": list(param.choices),
            "doc": param.doc,
        }
        for param in kernel.params
    ]
    return {"name": kernel.name, "summary": kernel.summary, "source": kernel.source, "params": params}


def main(args: argparse.Namespace) -> None:
    """Print the list."""
    kernels = need("fabric.kernels.registry", "the command `wse kernels`").KERNELS
    for name in args.names:
        if name not in kernels:
            raise ConfigError(f"unknown kernel {name!r}", hint=suggestion(name, kernels), kernel=name)
    found = [describe(kernels[name]) for name in dict.fromkeys(args.names or kernels)]
    if args.json:
        print_json({"kernels": found})
    else:
        print("\n".join(as_text(kernel) for kernel in found))


def as_text(kernel: Mapping[str, Any]) -> str:
    """Return what `describe` gave as lines for a terminal."""
    lines = [f"{kernel['name']}: {kernel['summary']}"]
    for param in kernel["params"]:
        choices = f" ({', '.join(map(str, param['choices']))})" if param["choices"] else ""
        head = f"    {param['name']}={param['default']}"
        text = f"{param['doc']}{choices}"
        lines.append(textwrap.fill(text, 110, initial_indent=f"{head:<23} ", subsequent_indent=" " * 24))
    lines.append(textwrap.fill(f"source: {kernel['source']}", 110, initial_indent=" " * 4, subsequent_indent=" " * 8))
    return "\n".join(lines)
