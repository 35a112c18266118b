"""A bundle is kept in files: ``out.json`` for scripts and the host's names, ``image.npz`` for all arrays.

Both are written beside the directory and moved into place, so that a compilation that fails or is stopped leaves what
was there before.  What is read is not believed: see `fabric.csl.artefact.reading`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fabric.csl.artefact.bundle import Bundle, HostName, HostProgram
from fabric.csl.artefact.reading import FORM, arrays_of, check_form, digest_of, text_of
from wse_core.described import check_fabric, refuse
from wse_core.errors import ConfigError
from wse_core.image import ProgramImage, Symbol
from wse_core.numbers import PRESETS

__all__ = ["IMAGE", "OUT", "read_bundle", "write_bundle"]

OUT, IMAGE, HOST = "out.json", "image.npz", "host.json"
FORMAT = 2
ARRAYS = ("code", "descriptors", "entry", "control_entry")
PLAIN = (
    "name", "code_words", "footprint", "data_tasks", "active", "blocked", "high", "inq_color", "outq_color", "half",
    "main_priority", "labels",
)  # fmt: skip


def write_bundle(bundle: Bundle, directory: str | Path) -> None:
    """Write a bundle into a directory, which is made or replaced file by file.

    Raises
    ------
    ConfigError
        If it cannot be written.
    """
    directory = Path(directory)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise ConfigError("the output directory cannot be made", where=str(directory), cause=str(error)) from None
    try:
        with (made / IMAGE).open("wb") as file:
            arrays = _arrays(bundle)
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        host = json.loads(json.dumps(_host(bundle)))
        host["digest"] = digest_of(host, arrays)
        (made / HOST).write_text(json.dumps(host), encoding="utf-8")
        known = {name: bundle.settings[name] for name in ("params", "colors")}
        (made / OUT).write_text(json.dumps(known, indent=2), encoding="utf-8")
        directory.mkdir(exist_ok=True)
        for name in (IMAGE, HOST, OUT):
            os.replace(made / name, directory / name)
    except OSError as error:
        raise ConfigError("the program cannot be written", where=str(directory), cause=str(error)) from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(made)


def _arrays(bundle: Bundle) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {"index": bundle.index}
    for color, table in bundle.routes.items():
        found[f"route{color}"] = table
    if bundle.filters is not None:
        found["filters"] = bundle.filters
    for k, image in enumerate(bundle.programs):
        for name in ARRAYS:
            found[f"p{k}.{name}"] = getattr(image, name)
        found[f"p{k}.addresses"] = np.array([address for address, _ in image.data], np.int32)
        found[f"p{k}.sizes"] = np.array([len(words) for _, words in image.data], np.int32)
        words = [words for _, words in image.data]
        found[f"p{k}.words"] = np.concatenate(words) if words else np.zeros(0, np.uint16)
    return found


def _host(bundle: Bundle) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "settings": bundle.settings,
        "inputs": bundle.inputs,
        "outputs": bundle.outputs,
        "streams": bundle.streams,
        "names": [vars(entry) for entry in bundle.names],
        "host": [vars(entry) for entry in bundle.host],
        "programs": [
            {
                **{name: getattr(image, name) for name in PLAIN},
                "symbols": [[s.name, s.address, s.count, s.dtype] for s in image.symbols.values()],
                "lines": image.lines,
                "registers": image.registers,
                "undefined": image.undefined,
            }
            for image in bundle.programs
        ],
    }


def read_bundle(directory: str | Path) -> Bundle:
    """Return the bundle of a directory.

    Raises
    ------
    ConfigError
        If there is none, it is of another version of the format, or its files are not what the compiler wrote; the
        message names file, field and value.
    """
    directory = Path(directory)
    try:
        host = text_of(directory / HOST)
        if host.get("format") != FORMAT:
            what = "the program is of another version of this format"
            raise ConfigError(what, where=str(directory), hint="compile anew")
        check_form(host, FORM, "", str(directory / HOST))
        arrays = arrays_of(directory / IMAGE, len(host["programs"]))
    except OSError as error:
        hint = "compile it with cslc -o"
        raise ConfigError("no compiled program here", where=str(directory), cause=str(error), hint=hint) from None
    if len(host["host"]) != len(host["programs"]):
        what = f"as many as programs, {len(host['programs'])}"
        raise refuse("the number of entries in host", len(host["host"]), what, str(directory / HOST))
    if host["settings"]["arch"] not in PRESETS:
        raise refuse("settings.arch", host["settings"]["arch"], " or ".join(PRESETS), str(directory / HOST))
    bundle = _bundle(host, arrays)
    check_fabric(bundle.spec(), str(directory / IMAGE))
    if digest_of(host, arrays) != host["digest"]:
        what = "the files are not as the compiler wrote them: their digest is another one"
        raise ConfigError(what, where=str(directory), hint="compile anew")
    return bundle


def _bundle(host: dict[str, Any], arrays: dict[str, np.ndarray]) -> Bundle:
    return Bundle(
        [_image(k, entry, arrays) for k, entry in enumerate(host["programs"])],
        arrays["index"],
        {int(name[5:]): table for name, table in arrays.items() if name.startswith("route")},
        arrays.get("filters"),
        tuple(tuple(link) for link in host["inputs"]),
        tuple(tuple(link) for link in host["outputs"]),
        {kind: [tuple(place) for place in places] for kind, places in host["streams"].items()},
        [HostName(e["name"], e["ident"], e["kind"], tuple(e["types"])) for e in host["names"]],
        [_host_program(entry) for entry in host["host"]],
        host["settings"],
    )


def _host_program(entry: dict[str, Any]) -> HostProgram:
    return HostProgram(
        entry["exports"],
        entry["hidden"],
        [tuple(record) for record in entry["records"]],
        [[tuple(part) for part in shape] for shape in entry["shapes"]],
        tuple(entry["inputs"]),
        tuple(entry["outputs"]),
        {int(word): tuple(place) for word, place in entry["places"].items()},
    )


def _image(k: int, entry: dict[str, Any], arrays: dict[str, np.ndarray]) -> ProgramImage:
    plain: dict[str, Any] = {name: entry[name] for name in PLAIN}
    plain["registers"] = entry["registers"]
    plain["undefined"] = tuple(entry["undefined"])
    plain |= {name: arrays[f"p{k}.{name}"] for name in ARRAYS}
    for name in ("inq_color", "outq_color"):
        plain[name] = tuple(plain[name])
    ends = np.cumsum(arrays[f"p{k}.sizes"])
    words = np.split(arrays[f"p{k}.words"], ends[:-1]) if len(ends) else []
    for part in words:
        part.setflags(write=False)
    symbols = {name: Symbol(name, address, count, dtype) for name, address, count, dtype in entry["symbols"]}
    return ProgramImage(
        **plain,
        data=tuple(zip(map(int, arrays[f"p{k}.addresses"]), words, strict=True)),
        symbols=symbols,
        lines={int(word): text for word, text in entry["lines"].items()},
    )
