"""A result comes from a version, a commit, a build mode and a host, which are found here.

Read from files only; no other program is started.
"""

from __future__ import annotations

import datetime
import importlib
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["DISTRIBUTION", "ROOT", "build_info", "commit", "package_version", "provenance", "utc_now"]

DISTRIBUTION = "wse-sim"
ROOT = Path(__file__).resolve().parents[1]
"""This directory holds the packages: the checkout, or where the distribution was installed."""


def package_version() -> str:
    """Return the version of this package as str, which is that of the distribution too (tests/test_packaging.py).

    Metadata of an installation are not asked: to find and read them is a good part of a short command.
    """
    return importlib.import_module("wse_core").__version__


def build_info() -> dict[str, Any]:
    """Return the facts that setup.py recorded about the compiled modules.

    Returns
    -------
    dict
        Lower-case names, among them ``mode``; ``{"mode": None}`` if nothing was built.
    """
    try:
        module = importlib.import_module("wse_core._build_info")
    except ModuleNotFoundError:
        return {"mode": None}
    return {name.lower(): value for name, value in vars(module).items() if name.isupper()}


def commit(root: str | os.PathLike[str] = ROOT) -> str | None:
    """Return the commit that is checked out at `root`, or None outside a checkout.

    Parameters
    ----------
    root : path-like
        Directory with ``.git``, which may also be the small file that a linked worktree has.

    Returns
    -------
    str or None
        Forty or more hexadecimal digits.
    """
    try:
        git = Path(root, ".git")
        if git.is_file():
            git = Path(root, git.read_text(encoding="utf-8").partition(":")[2].strip())
        head = Path(git, "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head or None
        name = head.partition(":")[2].strip()
        shared = Path(git, "commondir")
        places = [git, Path(git, shared.read_text(encoding="utf-8").strip())] if shared.exists() else [git]
        for place in places:
            if Path(place, name).is_file():
                return Path(place, name).read_text(encoding="utf-8").strip()
            if Path(place, "packed-refs").is_file():
                for line in Path(place, "packed-refs").read_text(encoding="utf-8").splitlines():
                    digest, _, ref = line.partition(" ")
                    if ref == name:
                        return digest
    except (OSError, UnicodeDecodeError):
        pass
    return None


def utc_now() -> str:
    """Return the time in UTC as ISO 8601 text with seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def provenance() -> dict[str, Any]:
    """Return version, commit, build mode and host, as `traces.run_format.RunMeta` takes them.

    Returns
    -------
    dict
        Keys ``package_version``, ``commit``, ``build_mode``, ``host`` and ``started``, all str.
    """
    return {
        "package_version": package_version(),
        "commit": commit() or "",
        "build_mode": build_info()["mode"] or "",
        "host": f"{platform.node()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "started": utc_now(),
    }
