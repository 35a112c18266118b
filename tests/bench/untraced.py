"""A build without tracing, to compare the real one with.

Router and CE, in six rooms, are compiled twice; in the copies that run when nothing is recorded, `TRACE` is 0, a
constant.  Here the same sources are compiled with every ``if TRACE:`` turned into ``if 0:``, and the engine without its
choice between the copies: a machine that has never heard of tracing.  `functions` gives the instructions of each
function of an object file, so that two builds can be compared; `tree` is a complete package directory with the build
without tracing in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from wse_core import _build_info

__all__ = ["ROOMS", "built", "choices", "compiled", "functions", "seconds", "translated", "tree", "without_tracing"]

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "wse", "tests")
ROOMS = tuple(f"wse_core.{name}" for name in ("router", "ce", "vecop", "flow", "bulk", "scalar"))
"""Modules that are compiled twice, as in setup.py."""
CHOICE = "if unlikely(s.watch != NULL):"
CHOOSES = "fabric.engine.cycles"
"""The module that chooses between the copies."""
CIMPORTED = re.compile(r"^\s*(?:from ([\w.]+) cimport|cimport ([\w.]+))", re.MULTILINE)
HEADER = re.compile(r'^ *cdef extern from "([^"]+)"', re.MULTILINE)
MARKED = re.compile(r"if TRACE: +# <{14}\n(?: \*.*\n)*\*/\n(.*)")
"""Where a condition begins in what Cython writes, and the line of C behind that comment."""


def without_tracing(text):
    """Return the source of a module without tracing, line by line the same but for the conditions."""
    text = re.sub(r"^(\s*)if TRACE:", r"\1if 0:", text, flags=re.MULTILINE)
    return text.replace(CHOICE, "if 0:")


def translated(
    names: Sequence[str], folder: str | os.PathLike[str], change: Callable[[str], str] = lambda text: text
) -> dict[str, Path]:
    """Translate modules of the package to C, with the directives of the real build.

    Parameters
    ----------
    names : sequence of str
        Dotted, such as ``wse_core.router``.
    folder : path-like
        Where a copy of the sources and the C go.
    change : callable
        Changes the text of the modules' sources and of what they include.

    Returns
    -------
    dict
        Name: file of C.
    """
    from Cython.Build import cythonize

    folder = Path(folder)
    sources = {name: Path(*name.split(".")).with_suffix(".pyx") for name in names}
    for pattern in ("wse_core/*.p[yx][xyd]", "wse_core/*.h", "fabric/**/*.p[yx][xyd]", "*/__init__.py"):
        for path in ROOT.glob(pattern):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            ours = path.suffix == ".pxd" or path.relative_to(ROOT) in sources.values()
            text = path.read_text(encoding="utf-8")
            target.write_text(change(text) if ours else text, encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        cythonize(list(map(str, sources.values())), quiet=True, compiler_directives=dict(_build_info.DIRECTIVES))
    finally:
        os.chdir(before)
    return {name: (folder / source).with_suffix(".c") for name, source in sources.items()}


def compiled(source: Path, folder: str | os.PathLike[str], *words: str) -> Path:
    """Compile a file of C with the flags of the real build and the includes of a copy; return the object file."""
    found = Path(folder, source.stem).with_suffix(".o")
    subprocess.run([*command(Path(folder)), *words, "-c", source, "-o", found], check=True)
    return found


def choices(source: Path, *words: str) -> list[str]:
    """Return the line of C of each ``if TRACE:`` in a file that Cython wrote, as the compiler sees it."""
    done = subprocess.run(
        [*command(ROOT), *words, "-E", "-CC", "-P", source], check=True, capture_output=True, text=True
    )
    lines = (line.strip() for line in MARKED.findall(done.stdout))
    return [line for line in lines if line != "}"]  # the comment stands at the end of a block again


def built(name: str, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return C and object file of a module as `make build` left them; made below a folder if those are older."""
    left, module = ROOT / "build" / "release", module_path(name)
    c = left / "cython" / module.with_suffix(".c")
    found = left / "obj" / "build" / "release" / "cython" / module.with_suffix(".o")
    newest = max(path.stat().st_mtime for path in sources_of(name))
    if all(path.exists() and path.stat().st_mtime > newest for path in (c, found)):
        return c, found
    c = translated([name], folder)[name]
    return c, compiled(c, folder)


def module_path(name: str) -> Path:
    """Return the path of a module without its suffix."""
    return Path(*name.split("."))


def sources_of(name: str) -> list[Path]:
    """Return what a module is made from: its source, its declarations, and those and the headers that they name."""
    found, todo = [], [ROOT / module_path(name).with_suffix(".pyx"), ROOT / module_path(name).with_suffix(".pxd")]
    while todo:
        path = todo.pop()
        if path.exists() and path not in found:
            found.append(path)
            text = path.read_text(encoding="utf-8")
            todo += [ROOT / module_path(one or other).with_suffix(".pxd") for one, other in CIMPORTED.findall(text)]
            todo += [ROOT / header for header in HEADER.findall(text)]
    return found


def command(folder: Path) -> list[str]:
    """Return the command that compiles a module whose sources lie below a folder."""
    quote = [flag for part in (folder, folder / "wse_core", folder / "fabric") for flag in ("-iquote", str(part))]
    return [
        *compiler(),
        "-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION",
        f"-I{np.get_include()}",
        f"-I{sysconfig.get_path('include')}",
        *quote,
        *_build_info.C_FLAGS,
    ]


def compiler():
    """Return the compiler with the flags that setuptools gives it before those of setup.py."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    found = new_compiler()
    customize_compiler(found)
    return found.compiler_so


def functions(path):
    """Return the instructions of each function of an object file: name -> lines, addresses within it left out."""
    text = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
    ).stdout
    found, lines = {}, None
    for line in text.splitlines():
        if match := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            lines = found.setdefault(match[1], [])
        elif lines is not None and (match := re.match(r"\s+[0-9a-f]+:\s+(.*)", line)):
            lines.append(re.sub(r"\b[0-9a-f]+ <", "<", match[1]).strip())
    return found


def tree(folder):
    """Make a package directory without tracing below `folder`; return its path."""
    folder = Path(folder)
    target = folder / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    for name, source in translated((*ROOMS, CHOOSES), folder / "bare", without_tracing).items():
        found = compiled(source, folder / "bare")
        module = target / Path(*name.split(".")).with_suffix(suffix)
        module.unlink()
        subprocess.run(
            [_build_info.COMPILER, "-shared", found, "-lm", *_build_info.LINK_FLAGS, "-o", module], check=True
        )
    return target


CHILD = """
import sys, time
import fabric.engine.engine
from tests.bench import workloads
assert fabric.engine.engine.__file__.startswith(sys.argv[1]), fabric.engine.engine.__file__
name, *size = sys.argv[2:]
workload = getattr(workloads, name)(*map(int, size))
for line in sys.stdin:
    engine = workload.engine()
    begin = time.process_time()
    status = engine.run(workload.limit)
    seconds = time.process_time() - begin
    workload.finish(engine, status)
    print(seconds, flush=True)
"""


def seconds(folder, name, *size):
    """Start a process with the packages of `folder`; return a function that runs a workload in it once.

    The function returns seconds of the process itself.

    Call the function with ``end=True`` to end the process.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), name, *map(str, size)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )

    def run(end=False):
        if end:
            child.stdin.close()
            child.stdout.close()
            return child.wait()
        child.stdin.write("\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    return run
