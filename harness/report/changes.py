"""What two runs were asked for that differs: every key of their files, every word of their commands, every number."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import toml
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["asked_for", "differences", "names_of"]


def asked_for(trace: Trace) -> dict[str, Any]:
    """Return what a run was asked for, as one level of names: its file, its command, modelled numbers, the version."""
    meta, file = trace.meta, trace.files[0]
    found: dict[str, Any] = {}
    try:
        found |= dict(_flat(toml.parse(meta.config_toml, "")))
    except ConfigError:
        found["configuration"] = meta.config_toml  # a text of another form is compared as a whole
    params = file.result("params") if "params" in file.results else None
    if isinstance(params, dict):
        found = {name: value for name, value in found.items() if not name.startswith("params.")} | params
    found |= dict(_words(meta.job))
    found |= meta.machine
    version = {"version": meta.package_version, "commit": meta.commit, "build": meta.build_mode}
    return found | {"preset": meta.preset, "seed": meta.seed} | version


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names with dots, and with numbers in brackets for tables in lists, and what stands under them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}[{number}]")
    else:
        yield name, value


def _words(job: str) -> Iterator[tuple[str, Any]]:
    """Yield what a command says: its options, those of ``--set`` under their own names, and its other words."""
    try:
        words = shlex.split(job)
    except ValueError:
        words = job.split()
    rest: list[str] = []
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            rest.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name == "--set":
            yield value.partition("=")[0].strip(), value.partition("=")[2].strip()
        else:
            yield name, value or True
    yield "command", " ".join(rest)


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, value of the first and of the second of all that differ; what one does not have is a dash."""
    return [
        (name, _shown(first, name), _shown(second, name))
        for name in sorted({*first, *second})
        if name not in first or name not in second or _plain(first[name]) != _plain(second[name])
    ]


def _plain(value: Any) -> str:
    """Return what two equal values have in common, whether they were written as words or kept as numbers."""
    return str(value.tolist() if hasattr(value, "tolist") else value)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return _plain(values[name]) if name in values else "-"


def names_of(first: Path, second: Path) -> tuple[str, str]:
    """Return the parts of two paths that tell them apart."""
    one, other = list(first.resolve().parts), list(second.resolve().parts)
    while one and other and one[0] == other[0]:
        del one[0], other[0]
    while one and other and one[-1] == other[-1]:
        del one[-1], other[-1]
    if not one or not other:
        return f"{first.name} (first)", f"{second.name} (second)"
    return "/".join(one), "/".join(other)
