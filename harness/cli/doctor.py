"""The doctor gathers facts about this installation and this host, and says what is wrong with them.

`examine` gathers everything as plain data; ``wse doctor`` prints it.  Every part is gathered on its own and none of
them needs the engine, so a broken installation can still be described.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.kit.modules import OWN_PACKAGES
from traces.provenance import DISTRIBUTION, ROOT, build_info, commit, package_version

__all__ = [
    "assumptions",
    "build_facts",
    "examine",
    "host_facts",
    "import_names",
    "in_the_way",
    "numeric_facts",
    "versions",
]

SHOWN_CPU_FLAGS = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512_fp16", "asimd", "fphp", "asimdhp")
LIBRARIES = {
    "numpy": "numpy",
    "h5py": "h5py",
    "matplotlib": "matplotlib",
    "cython": "Cython",
    "scikit-learn": "sklearn",
    "rich": "rich",
}
REQUIRED = ("numpy", "h5py", "matplotlib")


def _canonical(name: str) -> str:
    """Return a distribution name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def versions() -> dict[str, Any]:
    """Return versions of the package, of Python and of the libraries.

    Returns
    -------
    dict
        Name to version; None for what is not installed.
    """
    found = {DISTRIBUTION: package_version(), "commit": commit(), "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    try:
        found["hdf5"] = importlib.import_module("h5py.version").hdf5_version
    except ImportError:
        found["hdf5"] = None
    return found


def build_facts(root: Path = ROOT) -> dict[str, Any]:
    """Return how the compiled modules were built and whether they are there.

    Parameters
    ----------
    root : path-like
        Directory that holds the packages.

    Returns
    -------
    dict
        What setup.py recorded, and the lists ``compiled``, ``missing`` (source without module) and ``stale`` (source
        newer than its module) of dotted names.  An installed distribution has no sources, so nothing can be missing.
    """
    found = build_info() | {"compiled": [], "missing": [], "stale": []}
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    for package in OWN_PACKAGES:
        modules = {}
        for path in sorted(Path(root, package).rglob("*.so")):
            if path.name.endswith(suffixes):
                modules[".".join((*path.relative_to(root).parent.parts, path.name.partition(".")[0]))] = path
        found["compiled"] += sorted(modules)
        for source in sorted(Path(root, package).rglob("*.pyx")):
            name = ".".join(source.relative_to(root).with_suffix("").parts)
            if name not in modules:
                found["missing"].append(name)
            elif source.stat().st_mtime > modules[name].stat().st_mtime:
                found["stale"].append(name)
    return found


def _read(path: str | Path) -> str:
    """Return the text of a small system file, or an empty string."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def memory_facts(proc: str | Path = "/proc", cgroup: str | Path = "/sys/fs/cgroup") -> dict[str, Any]:
    """Return memory of the host [bytes]: total, available, and the limit that a container sets, or None.

    Parameters
    ----------
    proc, cgroup : path-like
        Where the kernel shows them; tests use other places.
    """
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", _read(Path(proc, "meminfo")), flags=re.MULTILINE))
    total, available = (int(fields[name]) * 1024 if name in fields else None for name in ("MemTotal", "MemAvailable"))
    shown = _read(Path(cgroup, "memory.max")).strip()
    limit = int(shown) if shown.isdigit() else None
    if limit is not None:
        used = _read(Path(cgroup, "memory.current")).strip()
        left = max(0, limit - int(used)) if used.isdigit() else limit
        available = left if available is None else min(available, left)
    return {"total_bytes": total, "available_bytes": available, "limit_bytes": limit}


def host_facts() -> dict[str, Any]:
    """Return processor, threads, memory and disk as a dict."""
    text = _read("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, flags=re.MULTILINE)
    present = flags.group(1).split() if flags else []
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    disk: dict[str, int | None] = {}
    for name, place in (("current directory", "."), ("temporary directory", tempfile.gettempdir())):
        try:
            disk[name] = shutil.disk_usage(place).free
        except OSError:
            disk[name] = None
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": model.group(1).strip() if model else platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "features": [flag for flag in SHOWN_CPU_FLAGS if flag in present],
        "cores": os.cpu_count(),
        "usable_threads": len(os.sched_getaffinity(0)),
        "cpu_quota": int(quota[0]) / int(quota[1]) if len(quota) == 2 and quota[0].isdigit() else None,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "memory": memory_facts(),
        "free_disk_bytes": disk,
    }


def numeric_facts() -> dict[str, Any]:
    """Return whether host floating point behaves as the model needs it, and what computes it.

    Returns
    -------
    dict
        ``subnormals`` and ``round_to_nearest`` as bool, found by computing with numpy, and ``backend``: what
        `wse_core.vector` uses for long operations, or None if it is not there.
    """
    import numpy as np

    backend = None
    # First: a module that was built wrongly changes the mode when it is loaded.  One of another build than its
    # neighbours has other signatures, which is a TypeError.
    with contextlib.suppress(ImportError, TypeError):
        backend = importlib.import_module("wse_core.vector").backend()
        importlib.import_module("fabric.engine.engine")
    tiny = np.array([np.finfo(np.float32).smallest_subnormal] * 2, dtype=np.float32)
    one, half_step = np.float64(1.0), np.float64(2.0**-53)
    return {
        "subnormals": bool((tiny * np.float32(2) != 0).all()),
        "round_to_nearest": bool(one + half_step == 1.0 and one + 3 * half_step == 1.0 + 4 * half_step),
        "backend": backend,
    }


def import_names(
    names: Sequence[str] = OWN_PACKAGES,
    root: Path = ROOT,
    find_spec: Callable[[str], Any] = importlib.util.find_spec,
    distributions: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return, for each import name of ours, where Python finds it and who else provides it.

    Parameters
    ----------
    names : iterable of str
        Import names to look at.
    root : path-like
        Directory in which they should be.
    find_spec : callable
        Finds a module; tests replace it.
    distributions : mapping, optional
        Import name to the distributions that provide it; asked from importlib.metadata if not given.

    Returns
    -------
    dict
        Name to dict with ``origin`` (path or None), ``ours`` (bool), ``others`` (list of distribution names).
    """
    distributions = metadata.packages_distributions() if distributions is None else distributions
    found = {}
    for name in names:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        places = [*(getattr(spec, "submodule_search_locations", None) or ()), getattr(spec, "origin", None)]
        origin = next((place for place in places if place), None)
        expected = Path(root, name).resolve()
        ours = origin is not None and (Path(origin).resolve() == expected or expected in Path(origin).resolve().parents)
        others = {other for other in distributions.get(name, ()) if _canonical(other) != DISTRIBUTION}
        found[name] = {"origin": origin, "ours": ours, "others": sorted(others)}
    return found


def in_the_way(names: Sequence[str] = OWN_PACKAGES, place: Path | None = None, root: Path = ROOT) -> list[str]:
    """Return what lies in a directory under one of our import names and is not ours.

    ``python FILE`` looks into the directory of the file first, ``python -m`` and a notebook into the working directory;
    a command such as ``wse`` does neither, so that it cannot fall over what it finds here.

    Parameters
    ----------
    names : iterable of str
        Import names to look for.
    place : path-like, optional
        The directory; the working directory if not given.
    root : path-like
        Directory of ours.

    Returns
    -------
    list of str
        Names of files and directories, sorted.
    """
    place = Path.cwd() if place is None else Path(place)
    if place.resolve() == Path(root).resolve():
        return []
    forms = [form for name in names for form in (name, f"{name}.py")]
    found = [Path(place, form) for form in forms]
    return sorted(
        path.name
        for path in found
        if (path.suffix == ".py" and path.is_file()) or (path.suffix == "" and any(path.glob("*.py")))
    )


def assumptions() -> list[dict[str, Any]]:
    """Return every modelled number as a list of dicts.

    Returns
    -------
    list of dict
        ``name``, ``values`` per preset, ``unit``, ``source``, ``confidence`` and ``doc``, in the order of
        `wse_core.params`.
    """
    from wse_core.params import PARAMETERS

    return [
        {
            "name": name,
            "values": dict(param.values),
            "unit": param.unit,
            "source": param.source,
            "confidence": param.confidence,
            "doc": param.doc,
        }
        for name, param in PARAMETERS.items()
    ]


def _problems(facts: dict[str, Any]) -> list[str]:
    """Return what is wrong, as sentences that say what to do."""
    found = []
    found += [f"{name} is not installed: make build" for name in REQUIRED if facts["versions"][name] is None]
    build = facts["build"]
    if build["mode"] is None:
        found.append(f"{'the build mode is unknown' if build['compiled'] else 'nothing is compiled'}: make build")
    elif build["missing"]:
        found.append(f"not compiled: {', '.join(build['missing'])}: make build")
    if build["stale"]:
        found.append(f"changed since it was compiled: {', '.join(build['stale'])}: make build")
    for name, entry in facts["imports"].items():
        if entry["others"]:
            found.append(
                f"the import name {name} is also provided by {', '.join(entry['others'])}: use a virtual environment "
                f"without it (make builds one), or uninstall it"
            )
        if entry["origin"] is None:
            found.append(f"the package {name} cannot be found: reinstall {DISTRIBUTION}")
        elif not entry["ours"]:
            found.append(f"import {name} finds {entry['origin']}, which is not ours: check PYTHONPATH")
    for name in facts["in_the_way"]:
        found.append(
            f"{name} in this directory is found before ours by programs that are run here: give it another name, or "
            f"run them elsewhere"
        )
    numerics = facts["numerics"]
    if not numerics["subnormals"]:
        found.append("this process flushes subnormal numbers to zero: a library changed the floating-point mode")
    if not numerics["round_to_nearest"]:
        found.append("this process does not round to nearest: a library changed the floating-point mode")
    return found


def examine(with_assumptions: bool = False) -> dict[str, Any]:
    """Return everything that ``wse doctor`` knows.

    Parameters
    ----------
    with_assumptions : bool
        Add the list of modelled numbers under ``assumptions``.

    Returns
    -------
    dict
        ``versions``, ``build``, ``host``, ``numerics``, ``imports``, ``in_the_way`` and ``problems`` (a list of str,
        empty if all is well).
    """
    facts: dict[str, Any] = {
        "versions": versions(),
        "build": build_facts(),
        "host": host_facts(),
        "numerics": numeric_facts(),
        "imports": import_names(),
        "in_the_way": in_the_way(),
    }
    facts["problems"] = _problems(facts)
    if with_assumptions:
        facts["assumptions"] = assumptions()
    return facts
