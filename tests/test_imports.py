"""The direction of imports is part of the design; this parses every import and cimport and refuses any other edge."""

from __future__ import annotations

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from tests.trees import statements

PACKAGES = OWN_PACKAGES
TOOLS = "tools"
"""Scripts that make files of the project; they are no part of what is installed, and no package imports them."""
BASE = ("wse_core.params", "wse_core.schema", "wse_core.errors")

# An entry permits the module itself and everything below it; the longest key that fits an importer decides.
PERMITTED = {
    "wse_core": ("wse_core", "wse_core.events"),
    "wse_core.errors": ("wse_core.errors",),
    "wse_core.schema": ("wse_core.errors",),
    "wse_core.encoding": (),
    "wse_core.isa": ("wse_core.encoding",),
    "wse_core.numbers": ("wse_core.encoding", "wse_core.isa"),
    "wse_core.params": ("wse_core.errors", "wse_core.isa", "wse_core.numbers", "wse_core.schema"),
    "traces": (*BASE, "wse_core.counters", "wse_core.events", "traces"),
    "wse_core.events": (*BASE, "wse_core.encoding"),
    "fabric": ("wse_core", "fabric"),
    # A run file is what a run leaves behind: the one module that records a fabric knows its writer.  Traces know
    # nothing of fabrics, so there is no way back.
    "fabric.host.recording": ("wse_core", "fabric", "traces"),
    "memx": ("wse_core", "fabric", "memx"),
    "swarm": ("wse_core", "fabric", "memx", "swarm"),
    "harness": tuple(name for name in PACKAGES if name != "wse"),
    # The one name of users: it hands out what the others hold, and none of them knows it.
    "wse": PACKAGES,
    TOOLS: (*PACKAGES, TOOLS),
}

BASE_ROOMS = ("harness.config", "harness.kit")
ASSEMBLING = ("fabric.asm", "fabric.program", "fabric.layout")

# Which rooms of its package a room may import, besides itself.  The base stands on nothing, nobody imports the top.
ROOMS = {
    "harness": (),
    "harness.config": (),
    "harness.kit": (),
    "harness.report": BASE_ROOMS,
    "harness.train": (*BASE_ROOMS, "harness.place", "harness.report"),
    "harness.plan": BASE_ROOMS,
    "harness.place": BASE_ROOMS,
    "harness.sweep": (*BASE_ROOMS, "harness.plan"),
    "harness.validation": BASE_ROOMS,
    "harness.figures": (*BASE_ROOMS, "harness.models", "harness.inference"),
    "harness.jobs": BASE_ROOMS,
    "harness.models": BASE_ROOMS,
    "harness.sdk": BASE_ROOMS,
    "harness.editor": BASE_ROOMS,
    "harness.inference": (*BASE_ROOMS, "harness.models"),
    "harness.cli": (
        *BASE_ROOMS,
        *(
            f"harness.{room}"
            for room in (
                "train",
                "plan",
                "place",
                "sweep",
                "validation",
                "figures",
                "jobs",
                "report",
                "models",
                "inference",
                "sdk",
                "editor",
            )
        ),
    ),
    "harness.__main__": ("harness.cli",),
    "fabric.asm": (),
    "fabric.control": ("fabric.asm",),
    "fabric.debug": ("fabric.host",),
    "fabric.program": ("fabric.asm",),
    "fabric.layout": ("fabric.asm", "fabric.program"),
    "fabric.price": ASSEMBLING,
    "fabric.csl": (*ASSEMBLING, "fabric.price"),
    "fabric.engine": (),
    "fabric.ranks": ("fabric.engine",),
    "fabric.host": (*ASSEMBLING, "fabric.engine", "fabric.ranks"),
    "fabric.kernels": (*ASSEMBLING, "fabric.price", "fabric.host"),
    "fabric.networks": (*ASSEMBLING, "fabric.price", "fabric.host", "fabric.kernels"),
    "fabric": (*ASSEMBLING, "fabric.price", "fabric.host", "fabric.control", "fabric.debug"),
}

CSL_ROOMS = {
    "diagnostics": (),
    "syntax": ("diagnostics",),
    "types": (),
    "tree": ("diagnostics", "types"),
    "comptime": ("diagnostics", "syntax", "types", "tree"),
    "check": ("diagnostics", "syntax", "types", "tree", "comptime"),
    "ir": ("diagnostics",),
    "rules": (),
    "lower": ("diagnostics", "types", "tree", "comptime", "check", "ir", "rules"),
    "optimise": ("ir", "rules"),
    "allocate": ("diagnostics", "ir", "optimise", "rules"),
    "recall": ("ir", "optimise", "allocate"),
    "emit": ("diagnostics", "ir", "rules"),
    "compile": ("diagnostics", "comptime", "check", "ir", "lower", "optimise", "allocate", "recall", "emit"),
    "artefact": ("diagnostics", "types", "comptime", "rules", "compile"),
    "projects": ("comptime",),
    "census": ("diagnostics", "syntax", "types", "comptime", "check", "projects"),
    "__init__": (),
}
"""The same inside of `fabric.csl`, the stages of a compiler."""

NETWORK_ROOMS = {
    "arithmetic": (),
    "graph": ("arithmetic",),
    "streamed": ("graph", "arithmetic"),
    "pipelined": ("graph", "arithmetic"),
    "inference": (),
    "__init__": (),
}
"""The same inside of `fabric.networks`: the ways to run a network stand on its graph, and not on one another."""

ROOM_EXCEPTIONS = {
    ("harness.figures.throughput", "harness.plan.layers"): "a published figure of the planner's own table of layers",
    ("harness.figures.modes", "harness.place.layers"): "layers lie where the search puts them",
    (
        "harness.figures.vendor_summa",
        "harness.validation.programs.summa_library",
    ): "the published figure measures against the vendor's program, which is a published program",
}
"""Edges between rooms that are not in `ROOMS`, and why; each must still be there."""

LIBRARIES = {
    "wse_core": {"numpy", "cython", "libc", "cpython", "posix"},
    "fabric": {"numpy", "cython", "libc", "cpython", "posix"},
    "memx": {"numpy", "h5py", "cython", "libc", "cpython"},
    "swarm": {"numpy", "cython", "libc", "cpython"},
    "harness": {"numpy", "h5py", "matplotlib"},
    "wse": set(),
    "traces": {"numpy", "h5py", "matplotlib", "cython", "libc", "cpython"},
    TOOLS: {"numpy", "h5py", "matplotlib"},
}
OPTIONAL = {
    "jupytext",
    "nbclient",
    "argcomplete",
    "distributed",
    "jinja2",
    "lark",
    "mpi4py",
    "rich",
    "sklearn",
    "scipy",
    "pandas",
    "perfetto",
    "pyarrow",
    "safetensors",
    "simpy",
    "tokenizers",
    "vcd",
    "xarray",
    "PIL",
}
"""Libraries of the extras, or of libraries (PIL): they may be imported where they are used, never while a module loads.
"""

WHOLE = {"harness.editor.server": {"lsprotocol", "pygls"}}
"""Modules that are nothing without the library of an extra; nobody imports them but by `harness.kit.modules.need`."""

CYTHON_IMPORT = re.compile(
    r"^(?P<indent>[ \t]*)(?:from\s+(?P<base>\.*[\w.]*)\s+c?import\s+(?P<names>\([^)]*\)|[^\n#]+)"
    r"|c?import\s+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)


def module_name(path, root=ROOT):
    """Return the dotted name of a source file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
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
    return [(name, at_load) for name, at_load, _ in all_imports_of(path, root)]


def all_imports_of(path, root=ROOT):
    """Return (module, at_load_time, for_types_only) for each import in a file."""
    return imports_in(path.read_text(encoding="utf-8"), path, root)


@functools.cache
def imports_in(text, path, root):
    """Return the same for the text of a file, which is taken apart once however many tests ask."""
    importer, is_package = module_name(path, root), path.stem == "__init__"
    raw = []
    if path.suffix == ".py":
        for node, at_load, for_types in statements(ast.parse(text).body):
            if isinstance(node, ast.Import):
                raw += [(alias.name, None, at_load, for_types) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(importer, is_package, node.module or "", node.level)
                raw += [(base, alias.name, at_load, for_types) for alias in node.names]
    else:
        bare = re.sub(r'"""(?:.|\n)*?"""', "", text)
        for match in CYTHON_IMPORT.finditer(bare):
            at_load = not match["indent"]
            if match["modules"]:
                raw += [(word.split()[0], None, at_load, False) for word in match["modules"].split(",")]
                continue
            base = match["base"]
            level = len(base) - len(base.lstrip("."))
            base = _absolute(importer, is_package, base.lstrip("."), level)
            words = match["names"].strip("()").replace("\n", " ").split(",")
            raw += [(base, word.split()[0], at_load, False) for word in words if word.split()]
    found = []
    for base, name, at_load, for_types in raw:
        full = f"{base}.{name}" if name else base
        found.append((full if name and is_module(full, root) and is_module(base, root) else base, at_load, for_types))
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
        if other in (*PACKAGES, TOOLS):
            if not permitted(importer, imported):
                faults.append(f"{importer} may not import {imported}")
        elif other in OPTIONAL:
            if at_load:
                faults.append(f"{importer} imports the optional {other} while it loads")
        elif other not in sys.stdlib_module_names and other not in LIBRARIES[top] | WHOLE.get(importer, set()):
            faults.append(f"{importer} imports {other}, which is no dependency of {top}")
    return list(dict.fromkeys(faults))


def room_of(name):
    """Return the room of a module: its package and the directory or file below it."""
    return ".".join(name.split(".")[:2])


def room_faults(path, root=ROOT):
    """Return the edges of a file that leave its room and are not permitted."""
    importer = module_name(path, root)
    room = room_of(importer)
    faults = []
    for imported, _ in imports_of(path, root):
        other = room_of(imported)
        same_package = imported.partition(".")[0] == importer.partition(".")[0]
        if same_package and other not in (room, *ROOMS[room]) and (importer, imported) not in ROOM_EXCEPTIONS:
            faults.append(f"{importer} may not import {imported}")
    return list(dict.fromkeys(faults))


def circles(graph):
    """Return the sets of modules that reach each other, as frozensets of more than one."""
    reach = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            for name in graph.get(todo.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        reach[start] = seen
    found = set()
    for name, seen in reach.items():
        circle = frozenset(other for other in seen if name in reach.get(other, ())) | {name}
        if len(circle) > 1:
            found.add(circle)
    return found


def import_graph(root=ROOT):
    """Return what each module of ours imports, inside functions too; not what only its annotations name."""
    graph = {}
    for path in sources(root):
        importer = module_name(path, root)
        edges = graph.setdefault(importer, set())
        for imported, _, for_types in all_imports_of(path, root):
            if imported.partition(".")[0] in (*PACKAGES, TOOLS) and imported != importer and not for_types:
                edges.add(imported)
    return graph


def sources(root=ROOT):
    """Return every source file of the packages that is not generated."""
    return sorted(
        path
        for package in (*PACKAGES, TOOLS)
        for path in Path(root, package).rglob("*")
        if path.suffix in (".py", ".pyx", ".pxd")
        and path.name not in ("opcodes.pxd", "constants.pxd")
        and not path.name.startswith("traced_")
    )


@pytest.mark.parametrize("package", [*PACKAGES, TOOLS])
def test_no_edge_against_the_direction(package):
    files = [path for path in sources() if module_name(path).partition(".")[0] == package]
    assert files
    assert [fault for path in files for fault in edge_faults(path)] == []


@pytest.mark.parametrize("package", ["fabric", "harness"])
def test_no_room_reaches_where_it_may_not(package):
    files = [path for path in sources() if module_name(path).partition(".")[0] == package]
    assert files
    assert [fault for path in files for fault in room_faults(path)] == []


@pytest.mark.parametrize(("package", "rooms"), [("csl", CSL_ROOMS), ("networks", NETWORK_ROOMS)])
def test_rooms_inside_of_a_room_stand_on_earlier_ones(package, rooms):
    faults = []
    for path in sources():
        parts = module_name(path).split(".") if path.stem != "__init__" else [*module_name(path).split("."), "__init__"]
        if parts[:2] != ["fabric", package]:
            continue
        for imported, _ in imports_of(path):
            other = imported.split(".")
            if other[:2] == ["fabric", package] and other[2] not in (parts[2], *rooms[parts[2]]):
                faults.append(f"{'.'.join(parts)} may not import {imported}")
    assert faults == []
    graph = {room: set(below) for room, below in rooms.items()}
    assert circles(graph) == set()


def test_the_oracle_of_streamed_networks_knows_nothing_of_streams():
    """It would repeat what it is to check: it stands on operations, arithmetic and the shape of parameters."""
    allowed = ("oracle", "parameters")
    for path in sources():
        if not module_name(path).startswith("fabric.networks.streamed.oracle"):
            continue
        for imported, _ in imports_of(path):
            other = imported.split(".")
            assert other[:3] != ["fabric", "networks", "streamed"] or other[3] in allowed, (path, imported)
            assert other[:4] not in (["fabric", "networks", "graph", name] for name in ("plan", "layouts", "reverse"))


def test_every_exception_is_still_needed():
    edges = {(module_name(path), imported) for path in sources() for imported, _ in imports_of(path)}
    assert set(ROOM_EXCEPTIONS) <= edges


def test_rooms_themselves_stand_in_layers():
    """A table of permissions with a circle in it would permit anything."""
    assert circles({room: set(others) for room, others in ROOMS.items()}) == set()


def test_no_module_imports_itself_by_way_of_others():
    """Neither while it loads nor later: an import inside a function hides a circle, it does not break it."""
    assert circles(import_graph()) == set()


def test_a_circle_is_seen(tmp_path):
    package = Path(tmp_path, "memx")
    package.mkdir()
    texts = {
        "a": "import memx.b",
        "b": "def f():\n    from memx import c",
        "c": "from memx.a import x",
        "d": "import memx.a",
    }
    for name, text in texts.items():
        Path(package, f"{name}.py").write_text(text, encoding="utf-8")
    assert circles(import_graph(tmp_path)) == {frozenset({"memx.a", "memx.b", "memx.c"})}
    Path(package, "c.py").write_text("if TYPE_CHECKING:\n    from memx.a import x", encoding="utf-8")
    assert circles(import_graph(tmp_path)) == set()


@pytest.mark.parametrize(
    ("place", "text", "fault"),
    [
        ("fabric/asm/a.py", "from fabric.host import b", "fabric.asm.a may not import fabric.host.b"),
        ("harness/train/a.py", "from harness.cli import b", "harness.train.a may not import harness.cli.b"),
        ("harness/plan/a.py", "def f():\n    import harness.train.b", "harness.plan.a may not import harness.train.b"),
        ("harness/kit/a.py", "import harness.config.b", "harness.kit.a may not import harness.config.b"),
        ("harness/cli/a.py", "import harness.plan.b\nimport harness.kit.b", None),
    ],
)
def test_an_edge_between_rooms_is_seen(tmp_path, place, text, fault):
    for room in ("fabric/host", "harness/cli", "harness/train", "harness/config", "harness/plan", "harness/kit"):
        Path(tmp_path, room).mkdir(parents=True)
        Path(tmp_path, room, "b.py").touch()
    path = Path(tmp_path, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    assert room_faults(path, tmp_path) == ([fault] if fault else [])


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
        ("wse_core/errors/base.py", "import wse_core.params", "wse_core.errors.base may not import wse_core.params"),
        ("fabric/a.pyx", "from harness cimport b", "fabric.a may not import harness"),
        ("fabric/k/a.py", "from ...swarm import links", "fabric.k.a may not import swarm"),
        ("memx/a.pxd", "cimport swarm.links", "memx.a may not import swarm.links"),
        ("traces/a.py", "from wse_core import isa", "traces.a may not import wse_core.isa"),
        ("wse_core/events.pyx", "from traces import writer", "wse_core.events may not import traces.writer"),
        ("traces/a.pyx", "from wse_core.numerics cimport (f16,\n    f32)", "traces.a may not import wse_core.numerics"),
        ("harness/a.py", "from tools.docs import api", "harness.a may not import tools.docs"),
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
        ("tools/a.py", "from harness.cli import main\nfrom tools import stubs"),
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


def test_setup_and_make_build_all_packages():
    setup, make = (Path(ROOT, name).read_text(encoding="utf-8") for name in ("setup.py", "Makefile"))
    assert ast.literal_eval(re.search(r"^PACKAGES = (\(.+\))$", setup, re.MULTILINE)[1]) == PACKAGES
    assert tuple(re.search(r"^PACKAGES := (.+)$", make, re.MULTILINE)[1].split()) == PACKAGES


PRIVATE = re.compile(r"^\s*from [\w.]+ import (?:\([^)]*|[^\n(]*)(?<!\w)_[a-z]", re.MULTILINE)
"""An import of a private name; without one a file need not be taken apart."""


def private_imports(text: str) -> list[str]:
    """Return the names with a leading underscore that a module takes from others."""
    if not PRIVATE.search(text):
        return []
    nodes = [node for node, *_ in statements(ast.parse(text).body) if isinstance(node, ast.ImportFrom) and node.module]
    return [alias.name for node in nodes for alias in node.names if re.match(r"_[a-z]", alias.name)]


@pytest.mark.parametrize("package", [*PACKAGES, TOOLS])
def test_no_module_takes_private_names_of_another(package):
    for path in sorted(Path(ROOT, package).rglob("*.py")):
        assert [n for n in private_imports(path.read_text(encoding="utf-8")) if n != "_build_info"] == [], path


def test_a_private_name_is_seen():
    assert private_imports("from a.b import _c, d\nfrom __future__ import annotations") == ["_c"]
