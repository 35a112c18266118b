"""Several commands have these texts about kernels: their names, and the page of one."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.kit.modules import need
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from fabric.kernels.kit.kernel import Kernel

__all__ = ["as_text", "describe", "kernel_names"]


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
