"""Digests of what a network becomes: bytes of everything that a change of form must not change."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

__all__ = ["digest", "held", "of_layout"]


def digest(*parts):
    """Return the first half of the SHA-256 of arrays, texts and numbers, in order."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            part = f"{part.dtype.str} {part.shape}".encode() + np.ascontiguousarray(part).tobytes()
        found.update(part if isinstance(part, bytes) else repr(part).encode())
        found.update(b"\0")
    return found.hexdigest()[:32]


def of_layout(layout):
    """Return the digest of a layout: program images without their names and lines, who runs which, routes, ports."""
    spec = layout.build()
    parts = [spec.program_index, spec.inputs, spec.outputs]
    for image in spec.programs:
        parts += [image.code, image.code_words, image.footprint, image.descriptors, image.entry, image.control_entry]
        parts += [image.data_tasks, image.active, image.blocked, image.high, image.inq_color, image.outq_color]
        parts += [image.half, image.main_priority]
        parts += [part for address, words in image.data for part in (address, words)]
        parts += [(symbol.name, symbol.address, symbol.count, symbol.dtype) for symbol in image.symbols.values()]
    for color, table in sorted(spec.routes.items()):
        parts += [color, np.asarray(table)]
    if spec.filters is not None:
        parts.append(spec.filters)
    return digest(*parts)


def held(file, found):
    """Return what a file of digests says of the keys of `found`."""
    known = json.loads(Path(file).read_text())
    return {key: known.get(key) for key in found}
