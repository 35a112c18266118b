"""Each CPython of this machine gets a wheel, built from the source distribution and tried in a new environment.

    python -m tools.release.wheels [--out DIR] [--python PROGRAM ...]

Interpreters are those on the path and those of pyenv, one for each of the `VERSIONS`.  Each gets a wheel, a new
virtual environment with that wheel and the extra ``demo``, and the commands of `smoke`, which run in an empty
directory.  Time and size of what is installed go to ``sizes.md`` beside the wheels.  Wheels made here are for machines
like this one; those that run on every Linux are cibuildwheel's, by the table ``tool.cibuildwheel`` of pyproject.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["VERSIONS", "Tried", "interpreters", "main", "sdist", "size_of"]

ROOT = Path(__file__).resolve().parent.parent.parent
SMOKE = Path(__file__).with_name("smoke.py")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

ASK = """
import json, os, platform, sys, sysconfig
print(json.dumps([
    platform.python_implementation(), "%d.%d" % sys.version_info[:2], platform.python_version(),
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
]))
"""


@dataclass(frozen=True)
class Tried:
    """A `Tried` says what building, installing and using one wheel took: seconds, and bytes on disk."""

    python: str
    wheel: Path
    build: float
    install: float
    own: int
    everything: int
    works: bool


def candidates() -> Iterator[Path]:
    """Yield programs that may be interpreters of the `VERSIONS`, in the order in which they are asked."""
    for version in VERSIONS:
        for folder in os.get_exec_path():
            yield Path(folder, f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob("versions/3.*/bin/python3"))


def interpreters(programs: Sequence[Path] | None = None) -> dict[str, Path]:
    """Return {version: program} of the interpreters that can build: CPython with its lock and its headers."""
    found: dict[str, Path] = {}
    for path in candidates() if programs is None else programs:
        if not os.access(path, os.X_OK):
            continue
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False)
        if done.returncode:  # a shim of pyenv whose version is not selected
            continue
        kind, version, _, free, headers = json.loads(done.stdout)
        if kind == "CPython" and version in VERSIONS and headers and not free:
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: VERSIONS.index(item[0])))


def sdist(out: Path, root: Path = ROOT) -> Path:
    """Make the source distribution of a tree and return its path.

    The list of files that an earlier installation left in the tree is not read: it names files that have gone since.
    """
    info = out / "info"
    shutil.rmtree(info, ignore_errors=True)
    info.mkdir(parents=True)
    words = ["setup.py", "--quiet", "egg_info", "--egg-base", info, "sdist", "--dist-dir", out]
    done = subprocess.run([sys.executable, *map(str, words)], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"no source distribution: {done.stderr.strip()}")
    shutil.rmtree(info)
    return max(out.glob("wse_sim-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def size_of(folder: Path, names: Sequence[str] | None = None) -> int:
    """Return the bytes of the files below a directory, or below some directories in it."""
    tops = [folder] if names is None else [folder / name for name in names]
    return sum(path.stat().st_size for top in tops for path in top.rglob("*") if path.is_file())


def make(python: Path, archive: Path, out: Path) -> Tried:
    """Build a wheel of a source distribution with an interpreter, install it anew and use it."""
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    place = out / f"python-{version}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    quiet = ("--disable-pip-version-check", "-qq")
    begin = time.perf_counter()
    _run(python, "-m", "venv", place / "builder")
    _run(place / "builder/bin/python", "-m", "pip", *quiet, "wheel", "--no-deps", "-w", place, archive)
    built = time.perf_counter()
    (wheel,) = place.glob("*.whl")
    _run(python, "-m", "venv", place / "user")
    user = place / "user/bin/python"
    _run(user, "-m", "pip", *quiet, "install", f"{wheel}[demo]")
    done = time.perf_counter()
    packages = next((place / "user/lib").glob("python*/site-packages"))
    ours = json.loads(_run(user, "-c", OURS))
    own, everything = size_of(packages, ours), size_of(packages) - size_of(packages, ["pip", "setuptools"])
    works = subprocess.run([user, SMOKE], check=False).returncode == 0
    final = wheel.replace(out / wheel.name)
    shutil.rmtree(place)
    return Tried(version, final, built - begin, done - built, own, everything, works)


OURS = """
import json
from importlib.metadata import files
print(json.dumps(sorted({file.parts[0] for file in files("wse-sim") if file.parts[0] != ".."})))
"""
"""Prints the directories of site-packages that the distribution has."""


def _run(*words: str | Path) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def table(archive: Path, tried: Sequence[Tried]) -> str:
    """Return time and size of everything as a table in Markdown."""
    rows = [
        f"| {one.python} | {one.wheel.stat().st_size / 1e6:.1f} | {one.build:.0f} | {one.install:.0f} "
        f"| {one.own / 1e6:.0f} | {one.everything / 1e6:.0f} |"
        for one in tried
    ]
    head = "| CPython | wheel, MB | built in, s | installed in, s | wse-sim on disk, MB | with all that it needs, MB |"
    note = f"The source distribution has {archive.stat().st_size / 1e6:.2f} MB."
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, "", note, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and try a wheel for each interpreter; return 1 if one does not work or none was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/wheels"), metavar="DIR", help="default %(default)s")
    parser.add_argument("--python", type=Path, action="append", metavar="PROGRAM", help="only with this interpreter")
    chosen = parser.parse_args(arguments)
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    found = interpreters(chosen.python)
    for version in VERSIONS:
        print(f"CPython {version}: {found.get(version, 'not on this machine, or without its headers')}", flush=True)
    if not found:
        return 1
    archive = sdist(out)
    tried = []
    for version, python in found.items():
        print(f"==> CPython {version}", flush=True)
        tried.append(make(python, archive, out))
    text = table(archive, tried)
    Path(out, "sizes.md").write_text(text, encoding="utf-8")
    print(text)
    return int(not all(one.works for one in tried))


if __name__ == "__main__":
    sys.exit(main())
