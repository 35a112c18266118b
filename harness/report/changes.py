"""Two runs are compared by what they were asked for: keys of their files, words of their commands, numbers."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import toml
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from traces.trace import Trace

__all__ = ["NOT_THERE", "asked_for", "differences", "names_of"]

NOT_THERE = "-"
"""A run that does not have a key shows this; a value that reads so stands in quotes."""
BARE = re.compile(r"[A-Za-z0-9_-]+")
WRITTEN = " (in the file)"
"""What a file says under a name that the run gives another value has this behind its name."""


def asked_for(trace: Trace) -> dict[str, Any]:
    """Return what a run was asked for, as one level of names: its file, its command, modelled numbers, the version."""
    meta, file = trace.meta, trace.files[0]
    found: dict[str, Any] = {}
    try:
        found |= dict(_flat(toml.parse(meta.config_toml, "")))
    except ConfigError:
        found["configuration"] = meta.config_toml  # a text of another form is compared as a whole
    params = file.result("params") if "params" in file.results else None
    if isinstance(params, dict) or meta.job.startswith("kernel "):
        params = params or {}  # a run that did not end has those of its file alone, under the same names
        for name in [name for name in found if name.startswith("params.")]:
            given, key = found.pop(name), name.removeprefix("params.")
            if key not in params or _form(params[key]) != _form(given):  # else it is the same, told twice
                found = _over(found, {key: given})
        found = _over(found, params)
    changed, words = _words(meta.job)
    found = _over(found | changed, words)
    found = _over(found, meta.machine)
    version = {"version": meta.package_version, "commit": meta.commit, "build": meta.build_mode}
    return _over(found, {"preset": meta.preset, "seed": meta.seed, **version})


def _over(found: dict[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return names and values with those of another source, which hide nothing: what has the same name stays beside."""
    result = dict(found)
    for name, value in layer.items():
        if name in result:
            beside = name + WRITTEN
            while beside in result:
                beside += WRITTEN
            result[beside] = result[name]
        result[name] = value
    return result


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names with dots, and with numbers in brackets for tables in lists, and what stands under them."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            part = key if BARE.fullmatch(key) else json.dumps(key)  # a dot in a key is no step into a table
            yield from _flat(inner, f"{name}.{part}" if name else part)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}[{number}]")
    elif name:
        yield name, value


def _words(job: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a command says: the keys that ``--set`` changes, and its options and other words."""
    try:
        words = shlex.split(job)
    except ValueError:
        words = job.split()
    changed: dict[str, Any] = {}
    options: dict[str, list[str]] = {}
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
            key, _, text = value.partition("=")
            changed |= dict(_flat(_value(text.strip()), key.strip()))
        else:
            options.setdefault(name, []).append(value or "True")
    return changed, {name: " ".join(values) for name, values in options.items()} | {"command": " ".join(rest)}


def _value(text: str) -> Any:
    """Return the value that a word of a command has in a file, a text if it is none."""
    try:
        return toml.parse(f"value = {text}", "")["value"]
    except (ConfigError, KeyError):
        return text


def differences(*asked: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return name and the value of each run of all that differ; what one does not have is a dash."""
    rows = {}
    for name in sorted(set().union(*asked)):
        forms = [_form(one[name]) if name in one else None for one in asked]
        if len(set(forms)) > 1:
            rows[name] = _shown(name, asked)
    return [
        (name, *values)
        for name, values in rows.items()
        # A seed, say, stands in the file and is that of the run: once is enough where both say the same.
        if not name.endswith(WRITTEN) or rows.get(name.removesuffix(WRITTEN)) != values
    ]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _form(value: Any) -> str:
    """Return what two values have in common if they are the same, in type and in number."""
    return repr(_plain(value))


def _shown(name: str, asked: tuple[Mapping[str, Any], ...]) -> tuple[str, ...]:
    """Return the values of a name as texts, of which two are the same only if the values are."""
    forms = {_form(one[name]) for one in asked if name in one}
    texts = {str(_plain(one[name])) for one in asked if name in one}
    show = str if len(texts) == len(forms) and NOT_THERE not in texts else repr
    return tuple(show(_plain(one[name])) if name in one else NOT_THERE for one in asked)


def names_of(*paths: Path) -> tuple[str, ...]:
    """Return the parts of paths that tell them apart."""
    parts = [list(path.resolve().parts) for path in paths]
    for end in (0, -1):  # something is left of every name: a/run.h5 beside run.h5 stays what it is
        while all(len(one) > 1 for one in parts) and len({one[end] for one in parts}) == 1:
            for one in parts:
                del one[end]
    names = ["/".join(one) for one in parts]
    often = Counter(names)
    return tuple(f"{name} ({k + 1})" if often[name] > 1 else name for k, name in enumerate(names))
