"""The direction of imports is part of the design; this parses every import and cimport and refuses any other edge."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces")
BASE = ("wse_core.params", "wse_core.schema", "wse_core.errors")

# An entry permits the module itself and everything below it; the longest key that fits an importer decides.
PERMITTED = {
    "wse_core": ("wse_core", "wse_core.events"),
    "wse_core.errors": (),
    "wse_core.schema": ("wse_core.errors",),
    "wse_core.numbers": ("wse_core.isa",),
    "wse_core.params": ("wse_core.errors", "wse_core.isa", "wse_core.numbers", "wse_core.schema"),
    "traces": (*BASE, "wse_core.events", "traces"),
    "wse_core.events": BASE,
    "fabric": ("wse_core", "fabric"),
    "memx": ("wse_core", "fabric", "memx"),
    "swarm": ("wse_core", "fabric", "memx", "swarm", "traces.marks"),
    "harness": PACKAGES,
}

LIBRARIES = {
    "wse_core": {"numpy", "cython", "libc", "cpython", "posix"},
    "fabric": {"numpy", "cython", "libc", "cpython", "posix"},
    "memx": {"numpy", "h5py", "cython", "libc", "cpython"},
    "swarm": {"numpy", "cython", "libc", "cpython"},
    "harness": {"numpy", "h5py", "matplotlib"},
    "traces": {"numpy", "h5py", "matplotlib", "cython", "libc", "cpython"},
}
OPTIONAL = {"rich", "sklearn", "scipy", "pandas", "perfetto", "pyarrow", "safetensors", "simpy", "vcd", "xarray", "PIL"}
"""Libraries of the extras, or of libraries (PIL): they may be imported where they are used, never while a module loads.
"""

CYTHON_IMPORT = re.compile(
    r"^(?P<indent>[ \t]*)(?:from\s+(?P<base>\.*[\w.]*)\s+c?import\s+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|c?import\s+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)


def module_name(path, root=ROOT):
    """Return the dotted name of a source file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name, root=ROOT):
    """Whether a dotted name stands for a file or directory of ours."""
    path = Path(root, *name.split("."))
    return path.is_dir() or any(path.with_suffix(suffix).exists() for suffix in (".py", ".pyx", ".pxd"))


def _absolute(importer, is_package, base, level):
    """Return the absolute form of a relative import."""
    if not level:
        return base
    parts = importer.split(".")
    parts = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*parts, base] if base else parts)


def imports_of(path, root=ROOT):
    """Return (module, at_load_time) for each import in a file; a submodule taken from a package counts by itself."""
    text = path.read_text(encoding="utf-8")
    importer, is_package = module_name(path, root), path.stem == "__init__"
    raw = []
    if path.suffix == ".py":
        tree = ast.parse(text)
        inner = {
            id(child)
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                raw += [(alias.name, None, id(node) not in inner) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(importer, is_package, node.module or "", node.level)
                raw += [(base, alias.name, id(node) not in inner) for alias in node.names]
    else:
        bare = re.sub(r'"""(?:.|\n)*?"""', "", text)
        for match in CYTHON_IMPORT.finditer(bare):
            at_load = not match["indent"]
            if match["modules"]:
                raw += [(word.split()[0], None, at_load) for word in match["modules"].split(",")]
                continue
            base = match["base"]
            level = len(base) - len(base.lstrip("."))
            base = _absolute(importer, is_package, base.lstrip("."), level)
            words = match["names"].strip("()").replace("\n", " ").split(",")
            raw += [(base, word.split()[0], at_load) for word in words if word.split()]
    found = []
    for base, name, at_load in raw:
        full = f"{base}.{name}" if name else base
        found.append((full if name and is_module(full, root) and is_module(base, root) else base, at_load))
    return found


def permitted(importer, imported):
    """Whether `importer` may import `imported`, both dotted names of ours."""
    fitting = [key for key in PERMITTED if importer == key or importer.startswith(f"{key}.")]
    allowed = PERMITTED[max(fitting, key=len)]
    return any(imported == name or imported.startswith(f"{name}.") for name in allowed)


def edge_faults(path, root=ROOT):
    """Return the forbidden edges of a file as sentences."""
    importer = module_name(path, root)
    top = importer.partition(".")[0]
    faults = []
    for imported, at_load in imports_of(path, root):
        other = imported.partition(".")[0]
        if other in PACKAGES:
            if not permitted(importer, imported):
                faults.append(f"{importer} may not import {imported}")
        elif other in OPTIONAL:
            if at_load:
                faults.append(f"{importer} imports the optional {other} while it loads")
        elif other not in sys.stdlib_module_names and other not in LIBRARIES[top]:
            faults.append(f"{importer} imports {other}, which is no dependency of {top}")
    return list(dict.fromkeys(faults))


def sources(root=ROOT):
    """Return every source file of the packages that is not generated."""
    return sorted(
        path
        for package in PACKAGES
        for path in Path(root, package).rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd") and path.name != "opcodes.pxd" and not path.name.startswith("traced_")
    )


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_edge_against_the_direction(path):
    assert edge_faults(path) == []


def test_sources_are_found():
    names = {module_name(path) for path in sources()}
    assert {"wse_core.errors", "fabric", "memx", "swarm", "harness.cli.main", "traces.writer"} <= names


def test_no_module_imports_the_build_or_the_tests():
    culprits = [
        (module_name(path), imported)
        for path in sources()
        for imported, _ in imports_of(path)
        if imported.partition(".")[0] in ("setup", "tests")
    ]
    assert culprits == []


@pytest.mark.parametrize(
    ("place", "text", "fault"),
    [
        ("wse_core/a.py", "from fabric import mesh", "wse_core.a may not import fabric.mesh"),
        ("wse_core/a.py", "def f():\n    import harness.cli.main\n", "wse_core.a may not import harness.cli.main"),
        ("wse_core/errors.py", "import wse_core.params", "wse_core.errors may not import wse_core.params"),
        ("fabric/a.pyx", "from harness cimport b", "fabric.a may not import harness"),
        ("fabric/k/a.py", "from ...swarm import links", "fabric.k.a may not import swarm"),
        ("memx/a.pxd", "cimport swarm.links", "memx.a may not import swarm.links"),
        ("traces/a.py", "from wse_core import isa", "traces.a may not import wse_core.isa"),
        ("wse_core/events.pyx", "from traces import writer", "wse_core.events may not import traces.writer"),
        ("traces/a.pyx", "from wse_core.numerics cimport (f16,\n    f32)", "traces.a may not import wse_core.numerics"),
        ("harness/a.py", "import torch", "harness.a imports torch, which is no dependency of harness"),
        ("harness/a.py", "import rich.console", "harness.a imports the optional rich while it loads"),
        ("fabric/a.py", "import h5py", "fabric.a imports h5py, which is no dependency of fabric"),
    ],
)
def test_a_forbidden_edge_is_seen(tmp_path, place, text, fault):
    core = ("wse_core/isa.py", "wse_core/params.py", "wse_core/numerics.pyx")
    for name in (*core, "traces/writer.py", "fabric/mesh.py"):
        Path(tmp_path, name).parent.mkdir(exist_ok=True)
        Path(tmp_path, name).touch()
    path = Path(tmp_path, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert edge_faults(path, tmp_path) == [fault]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("harness/a.py", "from swarm import links\nimport memx, traces.writer, os"),
        ("harness/a.py", "def f():\n    import sklearn.datasets\n"),
        ("fabric/a.pyx", "from wse_core.numerics cimport f16 as g\ncimport numpy as cnp\nfrom libc.stdint cimport *"),
        ("wse_core/a.pyx", '"""Text.\n\nimport harness\n"""\nfrom .isa import OPS\ncimport cython'),
        ("traces/a.py", "from wse_core.errors import TraceError\nfrom . import schema"),
    ],
)
def test_a_permitted_edge_is_not_refused(tmp_path, place, text):
    path = Path(tmp_path, place)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert edge_faults(path, tmp_path) == []


def test_own_packages_match_the_list_of_the_harness():
    from harness.kit.modules import OWN_PACKAGES

    assert OWN_PACKAGES == PACKAGES
