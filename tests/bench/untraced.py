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
from pathlib import Path

import numpy as np

from wse_core import _build_info

__all__ = ["ROOMS", "compiled", "functions", "real", "seconds", "tree", "without_tracing"]

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "tests")
ROOMS = tuple(f"wse_core.{name}" for name in ("router", "ce", "vecop", "flow", "bulk", "scalar"))
"""Modules that are compiled twice, as in setup.py."""
CHOICE = "if unlikely(s.watch != NULL):"


def without_tracing(text):
    """Return the source of a module without tracing, line by line the same but for the conditions."""
    text = re.sub(r"^(\s*)if TRACE:", r"\1if 0:", text, flags=re.MULTILINE)
    return text.replace(CHOICE, "if 0:")


def compiled(name, folder, change=lambda text: text):
    """Compile a module of the package with the flags of the real build.

    Parameters
    ----------
    name : str
        Dotted, such as ``wse_core.router``.
    folder : path-like
        Where a copy of the sources and the object go; one module and one `change` per folder.
    change : callable
        Changes the text of the module's source and of what it includes.

    Returns
    -------
    Path
        The object file.
    """
    from Cython.Build import cythonize

    folder, source = Path(folder), Path(*name.split(".")).with_suffix(".pyx")
    for pattern in ("wse_core/*.p[yx][xyd]", "wse_core/*.h", "fabric/**/*.p[yx][xyd]", "*/__init__.py"):
        for path in ROOT.glob(pattern):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            target.write_text(change(text) if path.suffix == ".pxd" else text, encoding="utf-8")
    (folder / source).write_text(change((ROOT / source).read_text(encoding="utf-8")), encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        cythonize([str(source)], quiet=True, compiler_directives=dict(_build_info.DIRECTIVES))
    finally:
        os.chdir(before)
    found = (folder / source).with_suffix(".o")
    quote = [flag for part in (folder, folder / "wse_core", folder / "fabric") for flag in ("-iquote", str(part))]
    command = [
        *compiler(),
        "-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION",
        f"-I{np.get_include()}",
        f"-I{sysconfig.get_path('include')}",
        *quote,
        *_build_info.C_FLAGS,
    ]
    subprocess.run([*command, "-c", found.with_suffix(".c"), "-o", found], check=True)
    return found


def compiler():
    """Return the compiler with the flags that setuptools gives it before those of setup.py."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.sysconfig import customize_compiler

    found = new_compiler()
    customize_compiler(found)
    return found.compiler_so


def real(name, folder):
    """Return the object file of a module as it is: what `make build` left, compiled below `folder` if that is older."""
    found = ROOT / "build/release/obj/build/release/cython" / Path(*name.split(".")).with_suffix(".o")
    sources = [*ROOT.glob("wse_core/*.p[yx][xd]"), *ROOT.glob("wse_core/*.h")]
    if found.exists() and found.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return found
    return compiled(name, folder)


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
    for name in (*ROOMS, "fabric.engine.engine"):
        found = compiled(name, folder / name, without_tracing)
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
