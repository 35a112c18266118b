"""``wse kernels``: which kernels there are, what they take, and whose algorithms they are."""

from __future__ import annotations

import textwrap

from harness.kit.console import print_json
from harness.kit.modules import need

__all__ = ["add_parser", "describe", "main"]


def add_parser(sub, common):
    """Register the subcommand and return its parser."""
    return sub.add_parser(
        "kernels",
        parents=[common],
        help="list the kernels with their parameters and sources",
        description="List the kernels with their parameters, defaults and the source of each algorithm.",
    )


def describe(kernel):
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


def main(args):
    """Print the list."""
    kernels = need("fabric.kernels.registry", "the command `wse kernels`").KERNELS
    found = [describe(kernel) for kernel in kernels.values()]
    if args.json:
        print_json({"kernels": found})
        return
    for kernel in found:
        print(f"{kernel['name']}: {kernel['summary']}")
        for param in kernel["params"]:
            choices = f" ({', '.join(map(str, param['choices']))})" if param["choices"] else ""
            head = f"    {param['name']}={param['default']}"
            text = f"{param['doc']}{choices}"
            print(textwrap.fill(text, 110, initial_indent=f"{head:<24}", subsequent_indent=" " * 24))
        print(textwrap.fill(f"source: {kernel['source']}", 110, initial_indent=" " * 4, subsequent_indent=" " * 8))
