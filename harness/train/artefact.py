"""Compiling a pipelined network leaves placement, routes, programs by their digests; a run starts from it.

One JSON file.  Whoever runs from it neither places layers nor looks for ways, and refuses if what it gets is not, bit
for bit, what was compiled: programs and routes have a digest of their own.

Source: vendor documentation, execution modes; requirements LP-02 and LP-04.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.pipelined.paths import FoundPath
from fabric.networks.pipelined.pipeline import Pipeline, Placed
from traces.atomic import atomic_file
from wse_core.errors import ConfigError
from wse_core.image import FabricSpec

__all__ = ["VERSION", "Artefact", "digest_of", "read", "write"]

VERSION = 1


@dataclasses.dataclass(frozen=True)
class Artefact:
    """An `Artefact` is what compiling a pipelined network leaves: placement, data paths, digests.

    Attributes
    ----------
    config : str
        Digest of the configuration, the table ``[pipeline]`` included.
    placed : list of Placed
    ways : dict[str, FoundPath]
    digest : str
        Of programs, routes and links to the host.
    """

    config: str
    placed: list[Placed]
    ways: dict[str, FoundPath]
    digest: str


def digest_of(spec: FabricSpec) -> str:
    """Return a digest of programs, where they are, routes, filters and links to the host."""
    found = hashlib.sha256(repr((spec.width, spec.height, spec.inputs, spec.outputs)).encode())
    for program in spec.programs:
        found.update(np.ascontiguousarray(program.code).tobytes())
        found.update(np.ascontiguousarray(program.descriptors).tobytes())
        found.update(repr((program.footprint, program.inq_color, program.outq_color, program.half)).encode())
        for address, words in program.data:
            found.update(repr(address).encode() + np.ascontiguousarray(words).tobytes())
    found.update(np.ascontiguousarray(spec.program_index).tobytes())
    for color in sorted(spec.routes):
        found.update(repr(color).encode() + np.ascontiguousarray(spec.routes[color]).tobytes())
    if spec.filters is not None:
        found.update(np.ascontiguousarray(spec.filters).tobytes())
    return found.hexdigest()


def write(path: str | PathLike[str], config: str, pipeline: Pipeline) -> Artefact:
    """Compile a pipeline and write what came of it; return the `Artefact`."""
    ways = {name: FoundPath(found.color, found.way, found.way_out) for name, found in pipeline.paths.items()}
    made = Artefact(config, pipeline.placed, ways, digest_of(pipeline.layout.build()))
    values = {
        "version": VERSION,
        "config": config,
        "digest": made.digest,
        "placement": [dataclasses.asdict(at) for at in made.placed],
        "paths": {name: dataclasses.asdict(way) for name, way in ways.items()},
    }
    with atomic_file(Path(path)) as file:
        file.write(json.dumps(values, indent=1).encode())
    return made


def read(path: str | PathLike[str], config: str) -> Artefact:
    """Return the `Artefact` of a file.

    Raises
    ------
    ConfigError
        There is none, it is damaged, or it was compiled for another configuration.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise ConfigError(f"cannot be read: {reason}", where=path, hint="wse train CONFIG --compile-only") from None
    try:
        values: Any = json.loads(text)
        known = values["version"]
        placed = [Placed(**{key: int(at[key]) for key in ("x", "y", "columns", "rows")}) for at in values["placement"]]
        ways = {
            str(name): FoundPath(int(way["color"]), _places(way["way"]), _places(way["way_out"]))
            for name, way in values["paths"].items()
        }
        made = Artefact(str(values["config"]), placed, ways, str(values["digest"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"is no compiled network: {error!r}", where=path, hint="compile again") from None
    if known != VERSION:
        raise ConfigError(f"has version {known}, not {VERSION}", where=path, hint="compile again")
    if made.config != config:
        raise ConfigError("was compiled for another configuration", where=path, hint="compile again")
    return made


def _places(values: Any) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in values]
