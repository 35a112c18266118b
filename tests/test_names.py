"""Pages and comments name files and modules of this project: what is named in backticks is there."""

from __future__ import annotations

import ast
import importlib
import re

import pytest

from fabric import Fabric
from harness.train.pipeline_support import SUPPORT
from tests.conftest import ROOT
from wse_core.params import PARAMETERS

PACKAGES = "wse_core|fabric|memx|swarm|harness|traces|wse|tools|tests"
FILE = re.compile(rf"`((?:{PACKAGES})/[\w./*]+)`")
DOTTED = re.compile(rf"`((?:{PACKAGES})(?:\.\w+)+)`")
SUFFIXES = (".py", ".pyx", ".pyi", ".pxd")


def texts():
    """Yield (name, text) of all pages and sources; copies that setup.py makes and pages that are generated aside."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for package in PACKAGES.split("|"):
        found += [path for suffix in SUFFIXES for path in (ROOT / package).rglob(f"*{suffix}")]
    for path in found:
        if not path.name.startswith("traced_") and path.name not in ("api.md", "test_names.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def exists(name, root):
    """Whether a dotted name is a module or package, or what one of them defines or imports."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        base = root.joinpath(*parts[:k])
        files = [path for suffix in SUFFIXES if (path := base.with_suffix(suffix)).exists()]
        if base.is_dir():
            files.append(base / "__init__.py")
        if files:
            word = parts[k] if k < len(parts) else None
            bound = re.compile(
                rf"^\s*(?:(?:async |c|cp)?(?:def|class)\b.*\b{word}\b|[^#\n=]*\b{word}\b[^\n=]*[=:,(])", re.M
            )
            return word is None or any(bound.search(path.read_text(encoding="utf-8")) for path in files)
    return False


def missing(text, root):
    """Return the names in a text that lead nowhere."""
    files = [name for name in FILE.findall(text) if not any(root.glob(name.rstrip("/")))]
    keys = PARAMETERS.keys() | SUPPORT.keys()  # of machine and training file
    dotted = [name for name in DOTTED.findall(text) if name not in keys and not exists(name, root)]
    return files + [name for name in dotted if not (name.startswith("fabric.") and hasattr(Fabric, name.split(".")[1]))]


def test_what_is_named_is_there():
    found = {name: lost for name, text in texts() if (lost := missing(text, ROOT))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("`memx/a.py` and `memx/*.py`", []),
        ("`memx/b.py`", ["memx/b.py"]),
        ("`memx.a`, `memx.a.f`, `memx.a.LIMIT` and `memx.a.Part.field`", []),
        ("`memx.a.g`", ["memx.a.g"]),
        ("`memx.b`", ["memx.b"]),
        ("`router.hop`, `fabric.width` and `fabric.read`", []),
    ],
)
def test_a_name_that_leads_nowhere_is_seen(tmp_path, text, lost):
    (tmp_path / "memx").mkdir()
    (tmp_path / "memx" / "a.py").write_text(
        "LIMIT: int = 3\n\n\ndef f():\n    pass\n\n\nclass Part:\n    pass\n", "utf-8"
    )
    (tmp_path / "memx" / "__init__.py").touch()
    assert missing(text, tmp_path) == lost


def is_need(node):
    """Whether an expression imports one of our modules by its name."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "need" and node.args):
        return False
    named = node.args[0]
    return isinstance(named, ast.Constant) and str(named.value).startswith(("fabric.", "harness.", "swarm.", "traces."))


def asked_by_name():
    """Return (file, module, name) of all that functions ask of a module which they import when they need it."""
    found = set()
    for path in sorted((ROOT / "harness").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            inside, modules = list(ast.walk(function)), {}
            for node in inside:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_need(node.value):
                    modules.setdefault(node.targets[0].id, set()).add(node.value.args[0].value)
            for node in inside:
                if not isinstance(node, ast.Attribute):
                    continue
                if is_need(node.value):
                    found.add((path.name, node.value.args[0].value, node.attr))
                elif isinstance(node.value, ast.Name) and len(modules.get(node.value.id, ())) == 1:
                    found.add((path.name, *modules[node.value.id], node.attr))
    return sorted(found)


def test_what_commands_ask_modules_for_is_there():
    """No checker follows a name that is looked up in a module which is imported when it is needed."""
    found = asked_by_name()
    assert len(found) > 20
    missing = [one for one in found if not hasattr(importlib.import_module(one[1]), one[2])]
    assert missing == []
