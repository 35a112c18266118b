"""Typed configuration: from TOML text to frozen dataclasses, with every mistake named by file and key.

A schema is a frozen dataclass.  A field is declared with `option`, which carries its meaning and limits::

    @dataclass(frozen=True)
    class Options:
        p: int = option(8, doc="side of the square of PEs", low=1, high=996)
        dtype: str = option("f16", doc="format of the factors", choices=("f16", "cb16"))

`from_table` fills such a class from a TOML table and refuses unknown keys, wrong types and values outside the limits.
Nothing is converted silently, with one exception: a whole number is accepted where a decimal number is expected.

A job file has these keys, all of them optional except ``job``:

===========  ==================================================================================
job          name of the job, one of `harness.jobs.JOBS`
seed         seed of everything random on the host's side
cycle_limit  most cycles a single run on the machine may take
[machine]    ``preset`` and any modelled number to change: ``router.hop = 2``
[options]    what the job itself offers; its module declares it as the dataclass ``Options``
===========  ==================================================================================
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wse_core.errors import ConfigError, WseError

__all__ = [
    "JobConfig",
    "close_match",
    "from_table",
    "load_job",
    "option",
    "parse_assignments",
    "parse_job",
    "parse_value",
    "read_text",
]

MAX_BYTES = 1 << 20
"""Longest job file that is read [bytes]; a longer one is certainly another kind of file."""

NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a table"}


def option(default=dataclasses.MISSING, *, doc, low=None, high=None, choices=(), unit=""):
    """Declare a field of a configuration dataclass.

    Parameters
    ----------
    default
        Value if the key is absent; a field without one must be given.
    doc : str
        Meaning, shown in messages and documentation.
    low, high : number, optional
        Limits, both included; for a list they hold for each item.
    choices : sequence, optional
        The only legal values.
    unit : str, optional
        Unit of the value.

    Returns
    -------
    dataclasses.Field
    """
    metadata = {"doc": doc, "low": low, "high": high, "choices": tuple(choices), "unit": unit}
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def close_match(word, known):
    """Return "did you mean ...?" for a word that resembles a known one, else the list of all.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str
        What would have been right.

    Returns
    -------
    str
    """
    known = [str(name) for name in known]
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    listing = f"known are {', '.join(known)}" if known else "there are none"
    return f"did you mean {near[0]}? {listing[0].upper()}{listing[1:]}" if near else listing


def _toml_type(value):
    """Return what a TOML value is, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, list):
        return "a list"
    return NAMES.get(type(value), type(value).__name__)


def _place(file, path):
    """Return "file: key.path", or whichever of the two is known."""
    return ": ".join(part for part in (str(file) if file else "", path) if part)


def _check_limits(value, metadata, place):
    """Raise `ConfigError` unless `value` obeys the limits that its field declares."""
    low, high, choices = (metadata.get(name) for name in ("low", "high", "choices"))
    unit = f" {metadata['unit']}" if metadata.get("unit") else ""
    if choices and value not in choices:
        raise ConfigError(
            f"{value!r} is not a possible value", where=place, hint=close_match(value, choices), value=value
        )
    if low is not None and value < low:
        raise ConfigError(f"{value}{unit} is too small; the least is {low}{unit}", where=place, value=value)
    if high is not None and value > high:
        raise ConfigError(f"{value}{unit} is too large; the most is {high}{unit}", where=place, value=value)


def _typed(value, kind, metadata, place, file, path):
    """Return `value` as `kind`, checked against the limits in `metadata`, or raise `ConfigError`."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        kinds = [item for item in typing.get_args(kind) if item is not type(None)]
        return _typed(value, kinds[0], metadata, place, file, path)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise ConfigError(f"expected a table, found {_toml_type(value)}", where=place, value=value)
        return from_table(kind, value, file, path)
    if origin in (tuple, list):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected a list, found {_toml_type(value)}", where=place, value=value)
        item = typing.get_args(kind)[0]
        items = [_typed(v, item, metadata, f"{place}[{i}]", file, f"{path}[{i}]") for i, v in enumerate(value)]
        return origin(items)
    if kind is dict or origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"expected a table, found {_toml_type(value)}", where=place, value=value)
        return dict(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(
            f"expected {NAMES.get(kind, kind)}, found {_toml_type(value)}: {value!r}", where=place, value=value
        )
    if kind is float and not math.isfinite(value):
        raise ConfigError(f"{value} is not a usable number", where=place, value=value)
    _check_limits(value, metadata, place)
    return value


def from_table(cls, table, file=None, path=""):
    """Fill a configuration dataclass from a TOML table.

    Parameters
    ----------
    cls : type
        Frozen dataclass whose fields are declared with `option`.
    table : dict
        The table as `tomllib` returns it.
    file : path-like, optional
        File it came from, for messages.
    path : str, optional
        Dotted key of the table within the file, for messages.

    Returns
    -------
    cls

    Raises
    ------
    ConfigError
        Unknown or missing key, wrong type, or a value outside its limits.  The message names file and key.
    """
    hints = typing.get_type_hints(cls)
    fields = {item.name: item for item in dataclasses.fields(cls)}
    values = {}
    for key, value in table.items():
        full = f"{path}.{key}" if path else key
        if key not in fields:
            raise ConfigError("unknown key", where=_place(file, full), hint=close_match(key, fields), key=full)
        values[key] = _typed(value, hints[key], fields[key].metadata, _place(file, full), file, full)
    for name, item in fields.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and name not in values:
            full = f"{path}.{name}" if path else name
            raise ConfigError(
                f"required key is missing: {full}", where=_place(file, path), hint=item.metadata.get("doc"), key=full
            )
    try:
        return cls(**values)
    except WseError as error:  # from a check across fields in __post_init__
        error.where = error.where or _place(file, path)
        raise


@dataclass(frozen=True)
class JobConfig:
    """A job as a file describes it.

    Attributes
    ----------
    job : str
        Name of the job.
    seed : int
        Seed of everything random on the host's side.
    cycle_limit : int
        Most cycles that a single run may take.
    machine : dict
        ``preset`` and modelled numbers to change, flattened to dotted names.
    options
        Instance of the job's own ``Options``.
    text : str
        The file as it was read, kept for the run file.
    source : str
        Where the text came from.
    """

    job: str = option(doc="name of the job")
    seed: int = option(0, doc="seed of everything random on the host's side", low=0, high=2**63 - 1)
    cycle_limit: int = option(10**9, doc="most cycles that a single run may take", low=1, high=2**62, unit="cycles")
    machine: dict = option({}, doc="preset and modelled numbers to change")
    options: Any = dataclasses.field(default=None, metadata={"doc": "what the job itself offers"})
    text: str = dataclasses.field(default="", metadata={"doc": "the file as it was read"})
    source: str = dataclasses.field(default="", metadata={"doc": "where the text came from"})

    def build_machine(self):
        """Return the `wse_core.params.Machine` that the job asks for.

        Raises
        ------
        ConfigError
            Unknown preset or number, or a value outside its range; the message names the file.
        """
        from wse_core.params import machine

        overrides = dict(self.machine)
        preset = overrides.pop("preset", "wse2")
        try:
            return machine(preset, overrides)
        except ConfigError as error:
            error.where = _place(self.source, error.where or "machine")
            raise


@dataclass(frozen=True)
class _JobFile:
    """The keys that a job file may have."""

    job: str = option(doc='name of the job, for example job = "digits"')
    seed: int = option(0, doc="seed", low=0, high=2**63 - 1)
    cycle_limit: int = option(10**9, doc="most cycles", low=1, high=2**62, unit="cycles")
    machine: dict = option({}, doc="preset and modelled numbers to change")
    options: dict = option({}, doc="what the job itself offers")


def _flatten(table, prefix=""):
    """Return a nested table as one level with dotted keys: TOML reads router.hop = 2 as nested tables."""
    flat = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def read_text(path):
    """Return the text of a configuration file.

    Raises
    ------
    ConfigError
        If it is missing, unreadable, a directory, too large, or not UTF-8.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"the file is larger than {MAX_BYTES:,} bytes", where=path, cause="not a job file")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        near = []
        if path.parent.is_dir():
            near = difflib.get_close_matches(path.name, [item.name for item in path.parent.iterdir()], n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else "wse run without a file uses the built-in job"
        raise ConfigError("no such file", where=path, hint=hint, path=str(path)) from None
    except IsADirectoryError:
        raise ConfigError("is a directory, not a job file", where=path, path=str(path)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line} is not UTF-8 text", where=path, path=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, path=str(path)) from None


def parse_job(text, source, find_options):
    """Return the `JobConfig` that a TOML text describes.

    Parameters
    ----------
    text : str
        The TOML text.
    source : path-like
        Where it came from, for messages.
    find_options : callable
        ``find_options(job)`` returns the dataclass of the job's own options, or raises `ConfigError`.

    Raises
    ------
    ConfigError
        Malformed TOML (with line and column), or anything that `from_table` refuses.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        last = f"at line {len(text.splitlines())}, the end of the document"
        message = str(error).replace("at end of document", last)
        raise ConfigError(f"not valid TOML: {message}", where=source, path=str(source)) from None
    file = from_table(_JobFile, table, source)
    try:
        schema = find_options(file.job)
    except ConfigError as error:
        error.where = error.where or _place(source, "job")
        raise
    options = from_table(schema, file.options, source, "options")
    config = JobConfig(
        job=file.job,
        seed=file.seed,
        cycle_limit=file.cycle_limit,
        machine=_flatten(file.machine),
        options=options,
        text=text,
        source=str(source),
    )
    config.build_machine()
    return config


def load_job(path, find_options):
    """Return the `JobConfig` in a TOML file; see `parse_job`."""
    return parse_job(read_text(path), path, find_options)


TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def parse_value(text, kind, place, choices=()):
    """Return one command-line value in its declared type.

    Parameters
    ----------
    text : str
        What was written.
    kind : type or str
        ``int``, ``float``, ``bool``, ``str``, or ``tuple`` / ``list`` for whole numbers separated by commas.
    place : str
        What the value is for, used in the message.
    choices : sequence, optional
        The only legal values.

    Raises
    ------
    ConfigError
        If the text has another form or is not among the choices.
    """
    name = getattr(kind, "__name__", str(kind))
    text = text.strip()
    try:
        if name == "bool":
            if text.lower() not in TRUE + FALSE:
                raise ValueError
            value = text.lower() in TRUE
        elif name == "int":
            value = int(text, 0)
        elif name == "float":
            value = float(text)
        elif name in ("tuple", "list"):
            value = tuple(int(item, 0) for item in text.split(","))
        else:
            value = text
    except ValueError:
        wanted = {"tuple": "whole numbers separated by commas", "list": "whole numbers separated by commas"}
        words = wanted.get(name) or next((word for kind, word in NAMES.items() if kind.__name__ == name), name)
        raise ConfigError(f"expected {words}, found {text!r}", where=place, value=text) from None
    if choices and value not in choices:
        raise ConfigError(f"{text!r} is not a possible value", where=place, hint=close_match(text, choices), value=text)
    return value


def parse_assignments(words, what):
    """Return command-line words of the form ``key=value`` as a dict of str.

    Parameters
    ----------
    words : iterable of str
        The words.
    what : str
        What they set, used in the message.

    Raises
    ------
    ConfigError
        A word without ``=`` or key, or a key that is set twice.
    """
    found = {}
    for word in words:
        key, sign, value = word.partition("=")
        key = key.strip()
        if not sign or not key:
            raise ConfigError(f"{word!r} sets nothing", where=what, hint="write it as key=value", value=word)
        if key in found:
            raise ConfigError(f"{key} is given twice", where=what, key=key)
        found[key] = value
    return found
