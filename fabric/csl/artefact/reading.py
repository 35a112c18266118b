"""What is looked at before a compiled program is believed: sizes, types and shapes of its files, then a digest.

The files of a program come from anywhere.  Arrays are read one by one, each after its header: a name that does not
belong there, a type or a size that no program has, is refused before memory is taken.  Texts follow a form.  Bounds of
what an engine copies are those of `wse_core.described`; last comes the digest that the compiler wrote, so that a
changed word is noticed even where it could run.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from wse_core.described import MOST_WORDS, refuse, whole
from wse_core.encoding import N_COLORS, N_CONTROL_IDS, N_FILTERS, N_TASK_IDS
from wse_core.errors import ConfigError
from wse_core.image import DESC_DTYPE, FILTER_DTYPE, ROUTE_DTYPE

__all__ = ["arrays_of", "check_form", "digest_of", "text_of"]

MOST_TEXT = 1 << 28
"""A host.json has at most so many bytes: a hundred times the largest that any program has."""
MOST_SIDE = 4094
"""A row or column has at most so many PEs, as many as an engine takes."""
MOST_PARTS = 1 << 16
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OSError, NotImplementedError, RuntimeError)
"""Reading a damaged archive, or a file that is none, may raise these."""
COUNT = {"code": MOST_WORDS, **dict.fromkeys(("descriptors", "addresses", "sizes", "words"), MOST_PARTS)}
OF_A_PROGRAM: dict[str, Any] = {
    "code": np.uint32, "descriptors": DESC_DTYPE, "entry": np.int32, "control_entry": np.int32,
    "addresses": np.int32, "sizes": np.int32, "words": np.uint16,
}  # fmt: skip


def text_of(path: Path) -> dict[str, Any]:
    """Return a JSON object of a file.

    Raises
    ------
    ConfigError
        If it is too large, or none.
    """
    size = path.stat().st_size
    if size > MOST_TEXT:
        raise refuse("the size of the file", size, f"at most {MOST_TEXT} bytes", str(path))
    try:
        found = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError("the file is no JSON", where=str(path), cause=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise refuse("the file", type(found).__name__, "a JSON object", str(path))
    return found


# --- arrays -----------------------------------------------------------------------------------------------------------


def _rule(name: str, programs: int) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return type and largest shape of an array, None for a name that no program has."""
    side = (MOST_SIDE, MOST_SIDE)
    if name == "index":
        return np.dtype(np.int16), side
    if name == "filters":
        return FILTER_DTYPE, (*side, N_FILTERS)
    if (found := re.fullmatch(r"route(0|[1-9][0-9]?)", name)) and int(found[1]) < N_COLORS:
        return ROUTE_DTYPE, side
    found = re.fullmatch(r"p(0|[1-9][0-9]{0,6})\.([a-z_]+)", name)
    if found is None or int(found[1]) >= programs or found[2] not in OF_A_PROGRAM:
        return None
    count = {"entry": N_TASK_IDS, "control_entry": N_CONTROL_IDS, **COUNT}[found[2]]
    return np.dtype(OF_A_PROGRAM[found[2]]), (count,)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version} of the form of arrays")


def arrays_of(path: Path, programs: int) -> dict[str, np.ndarray]:
    """Return the arrays of an archive, read-only.

    Raises
    ------
    ConfigError
        For an archive that cannot be read, an array that is missing, does not belong there, or has a type or size that
        it cannot have.
    """
    found: dict[str, np.ndarray] = {}
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                rule = _rule(name, programs)
                if rule is None or name in found:
                    raise refuse("an array", name, "one of a compiled program, once", where)
                dtype, most = rule
                with archive.open(entry) as file:
                    shape, _, kind = _header(file)
                if kind != dtype:
                    raise refuse(f"the type of {name}", str(kind), str(dtype), where)
                if len(shape) != len(most) or any(have > limit for have, limit in zip(shape, most, strict=True)):
                    raise refuse(f"the shape of {name}", shape, "at most " + " x ".join(map(str, most)), where)
                with archive.open(entry) as file:
                    found[name] = np.lib.format.read_array(file, allow_pickle=False)
                    if file.read(1):
                        raise refuse(f"the size of {name}", entry.file_size, "that of its array", where)
    except (*DAMAGED, SyntaxError, TypeError, MemoryError, OverflowError) as error:
        raise ConfigError("the arrays cannot be read", where=where, cause=str(error)[:200] or repr(error)) from None
    needed = ["index", *(f"p{k}.{part}" for k in range(programs) for part in OF_A_PROGRAM)]
    for name in needed:
        if name not in found:
            raise ConfigError(f"the array {name} is missing", where=where, field=name, value=None)
    for name, array in found.items():
        if (name.startswith("route") or name == "filters") and array.shape[:2] != found["index"].shape:
            raise refuse(f"the shape of {name}", array.shape, f"that of index, {found['index'].shape}", where)
        array.setflags(write=False)
    for k in range(programs):
        _check_data(found, k, where)
    return found


def _check_data(found: dict[str, np.ndarray], k: int, where: str) -> None:
    """Check that the parts of the initial data are as long together as their words."""
    addresses, sizes, words = (found[f"p{k}.{part}"] for part in ("addresses", "sizes", "words"))
    if len(addresses) != len(sizes):
        raise refuse(f"the length of p{k}.sizes", len(sizes), f"{len(addresses)}, as of addresses", where)
    if len(sizes) and int(sizes.min()) < 0:
        raise refuse(f"p{k}.sizes[{int(sizes.argmin())}]", sizes.min(), "at least 0", where)
    if int(sizes.sum(dtype=np.int64)) != len(words):
        raise refuse(f"the length of p{k}.words", len(words), f"{int(sizes.sum(dtype=np.int64))}, as sizes say", where)


# --- texts ------------------------------------------------------------------------------------------------------------

TEXT, NUMBER, ANY = "text", "number", "any"
PAIR_OF_SIZES = [NUMBER, NUMBER]
PORT = [NUMBER, NUMBER, NUMBER, NUMBER]
FORM: dict[str, Any] = {
    "format": NUMBER,
    "digest": TEXT,
    "settings": {
        "params": {str: TEXT}, "colors": {str: TEXT}, "fabric": PAIR_OF_SIZES, "offsets": PAIR_OF_SIZES, "fp16": TEXT,
        "arch": TEXT, "?ports": ANY, "?beside": ANY,
    },
    "inputs": (PORT,),
    "outputs": (PORT,),
    "streams": {"inputs": ([NUMBER, NUMBER, NUMBER],), "outputs": ([NUMBER, NUMBER, NUMBER],)},
    "names": ({"name": TEXT, "ident": NUMBER, "kind": TEXT, "types": (TEXT,)},),
    "host": (
        {
            "exports": {str: TEXT}, "hidden": {str: TEXT}, "records": ([TEXT, TEXT, TEXT],), "shapes": (ANY,),
            "inputs": (NUMBER,), "outputs": (NUMBER,), "places": {int: [TEXT, NUMBER]},
        },
    ),
    "programs": (
        {
            "name": TEXT, "code_words": NUMBER, "footprint": NUMBER, "data_tasks": NUMBER, "active": NUMBER,
            "blocked": NUMBER, "high": NUMBER, "inq_color": (NUMBER,), "outq_color": (NUMBER,), "half": TEXT,
            "main_priority": NUMBER, "labels": {str: NUMBER}, "symbols": ([TEXT, NUMBER, NUMBER, TEXT],),
            "lines": {int: TEXT}, "registers": ANY, "undefined": (TEXT,),
        },
    ),
}  # fmt: skip
"""The text of a compiled program must have this form: keys with the types of their values.  A dict with names has
these; one with `str` or `int` has any, with values of one form; a list has as many parts, a tuple any number of one
form.  Names that begin with ``?`` may be missing.
"""


def check_form(found: Any, form: Any, field: str, where: str) -> None:
    """Check that a JSON value follows a form.

    Raises
    ------
    ConfigError
        For the first part that does not.
    """
    if form == TEXT:
        if not isinstance(found, str):
            raise refuse(field, found, "a text", where)
    elif form == NUMBER:
        whole(found, -(1 << 31), (1 << 32) - 1, field, where)
    elif isinstance(form, (list, tuple)):
        many = isinstance(form, tuple)
        if not isinstance(found, list) or not (many or len(found) == len(form)):
            raise refuse(field, found, "a list" if many else f"a list of {len(form)}", where)
        for k, part in enumerate(found):
            check_form(part, form[0] if many else form[k], f"{field}[{k}]", where)
    elif isinstance(form, dict):
        _check_names(found, form, field, where)


def _check_names(found: Any, form: dict[Any, Any], field: str, where: str) -> None:
    if not isinstance(found, dict):
        raise refuse(field, found, "an object", where)
    prefix = f"{field}." if field else ""
    kind = next(iter(form))
    if isinstance(kind, type):
        for name, part in found.items():
            if kind is int and not re.fullmatch(r"[0-9]{1,9}", name):
                raise refuse(f"a name in {field}", name, "a whole number", where)
            check_form(part, form[kind], f"{prefix}{name}", where)
        return
    for name, part in form.items():
        plain = name.removeprefix("?")
        if plain in found:
            check_form(found[plain], part, f"{prefix}{plain}", where)
        elif plain == name:
            raise ConfigError(f"{prefix}{name} is missing", where=where, field=f"{prefix}{name}", value=None)


# --- digest -----------------------------------------------------------------------------------------------------------


def digest_of(host: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return the digest of a compiled program: of every array, and of every text but the digest itself."""
    made = hashlib.sha256()
    texts = {name: value for name, value in host.items() if name != "digest"}
    made.update(json.dumps(texts, sort_keys=True, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        made.update(f"\n{name} {array.dtype.descr} {array.shape}\n".encode())
        made.update(array.view(np.uint8).data if array.size else b"")
    return made.hexdigest()
