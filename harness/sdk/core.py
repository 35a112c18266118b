"""Core files keep the memory of all PEs after a run, for the debug module in another process.

A file holds, per program, the words of data of each of its PEs, and a digest of the compiled layout, so that a core
is read with the program that left it.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.csl.artefact import read_bundle
from fabric.csl.artefact.files import IMAGE
from harness.sdk.records import Records
from traces.atomic import atomic_file
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from harness.sdk.device import SdkDevice

__all__ = ["NAMES", "CoreFile", "write_core"]

NAMES = ("out.core", "corefile.cs1")
"""These files are written by the vendor's runtimes where nothing else is asked for: since SDK 2.0, and before."""


def _digest(directory: Path) -> str:
    return hashlib.sha256((directory / IMAGE).read_bytes()).hexdigest()


def write_core(device: SdkDevice, path: str | Path) -> None:
    """Write the memory of all PEs.

    Parameters
    ----------
    device : SdkDevice
        With a program loaded; what is under way stays so.
    path : path
        Replaced if it is there.
    """
    found: dict[str, NDArray[Any]] = {
        "digest": np.array(_digest(device.directory)),
        "cycle": np.array(device.fabric.cycle, np.int64),
    }
    for number, image, mask in device.programs():
        first = image.code_words
        found[f"program{number}"] = device.read_each(first, image.footprint - first, mask, 0, 0)[mask]
    with atomic_file(str(path)) as stream:
        np.savez_compressed(stream, **found)  # type: ignore[arg-type]


class CoreFile:
    """A `CoreFile` is read as the program that left it would be.

    Parameters
    ----------
    path : path
    directory : path
        What ``cslc -o`` wrote.

    Raises
    ------
    ConfigError
        It is no core file, or that of another program.
    """

    def __init__(self, path: str | Path, directory: str | Path) -> None:
        self.bundle = read_bundle(Path(directory))
        try:
            with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as found:
                digest = str(found["digest"])
                self.cycle = int(found["cycle"])
                self._words = {name: found[name] for name in found.files if name.startswith("program")}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ConfigError(f"is no core file ({error})", where=str(path)) from None
        if digest != _digest(Path(directory)):
            raise ConfigError(f"is the core of another program than {directory}", where=str(path))
        self._places: dict[tuple[int, int], int] = {}
        for number in range(len(self.bundle.programs)):
            ys, xs = np.nonzero(self.bundle.index == number)
            self._places |= {(int(x), int(y)): k for k, (y, x) in enumerate(zip(ys, xs, strict=True))}
        self.records = Records(self)

    def symbol(self, x: int, y: int, name: str) -> NDArray[np.uint16]:
        """Return the words of a global of one PE.

        Raises
        ------
        ConfigError
            There is no such PE, or it has no such symbol.
        """
        if (x, y) not in self._places:
            raise ConfigError(f"there is no PE ({x}, {y}) with a program")
        number = int(self.bundle.index[y, x])
        image, host = self.bundle.programs[number], self.bundle.host[number]
        found = image.symbols.get(name) or image.symbols.get(host.exports.get(name, ""))
        if found is None:
            raise ConfigError(f"PE ({x}, {y}) has no symbol '{name}'")
        words = self._words[f"program{number}"][self._places[x, y]]
        start = found.address - image.code_words
        return np.array(words[start : start + found.words])
