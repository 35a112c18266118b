"""The build: modes that do not mix, what distributions contain, and what the project's files promise each other.

Most build a toy project with the same setup.py; the last two build the whole one.  All carry the mark ``packaging``:
the copies that ``make checked`` and its relatives test need not repeat them.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

import wse_core
from harness.kit.modules import OWN_PACKAGES as PACKAGES
from tests.conftest import ROOT
from tools.release import wheels

pytestmark = pytest.mark.packaging

PROJECT = tomllib.loads(Path(ROOT, "pyproject.toml").read_text(encoding="utf-8"))
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
WHEEL = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
INSTALL = ("pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
SHIFTED = re.compile(r"^    (\w+ = \d+ << \d+)", re.MULTILINE)
MOST_BYTES = 2_600_000
DIRECTIVE = re.compile(r"^#\s*cython:\s*(.+)$", re.MULTILINE)

TOY = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "toy"\nversion = "1"\n',
    "wse_core/__init__.py": "",
    "wse_core/twice.h": "static inline unsigned twice(unsigned x) { return 2 * x; }\n",
    "wse_core/isa.py": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n\n@dataclass(frozen=True)\n"
        "class Op:\n    code: int\n\n\n"
        "def opcodes_pxd() -> str:\n    return f'cdef enum:\\n    OP_ADD = {Op(7).code}\\n'\n"
    ),
    "wse_core/strict.pyx": (
        "from libc.stdint cimport uint32_t\nfrom wse_core.opcodes cimport OP_ADD\n\n"
        'cdef extern from "twice.h":\n    unsigned twice(unsigned) nogil\n\n'
        'cdef extern from *:\n    """\n    #ifdef WSE_CHECKED\n    #define IS_CHECKED 1\n    #else\n'
        '    #define IS_CHECKED 0\n    #endif\n    """\n    int IS_CHECKED\n\n'
        "def add(uint32_t a, uint32_t b):\n    cdef uint32_t c = a + b\n    return c\n\n"
        "def item(list values, int i):\n    return values[i]\n\n"
        "def facts():\n    return OP_ADD, IS_CHECKED, twice(21)\n"
    ),
    "fabric/__init__.py": "",
    "fabric/kernels/__init__.py": "",
    "fabric/kernels/wraps.pyx": (
        "# cython: overflowcheck=False\nfrom libc.stdint cimport uint32_t\n\n"
        "def add(uint32_t a, uint32_t b):\n    cdef uint32_t c = a + b\n    return c\n"
    ),
}


def environment(**changes):
    """Return the environment for a child without settings of the outer build.

    One compilation at a time: processes that share two small ones take longer to start than to translate them.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WSE_") and k != "LD_PRELOAD"}
    return kept | {"WSE_JOBS": "1"} | changes


@pytest.fixture(scope="module", autouse=True)
def without_optimisation(tmp_path_factory):
    """Let builds call a compiler that leaves out optimisation: nothing that is shown here depends on it."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    script = tmp_path_factory.mktemp("compiler") / "cc"
    script.write_text(f'#!/bin/bash\nexec {compiler} "${{@/#-O[123]/-O0}}"\n', encoding="utf-8")
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(script))
        yield


def python(*words, cwd, **changes):
    """Run this interpreter in a directory and return the finished process."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )


def made(folder):
    """Make a small project around a copy of setup.py below a folder; return where it is."""
    for name, text in TOY.items():
        path = folder / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "setup.py", folder / "toy")
    return folder / "toy"


@pytest.fixture
def toy(tmp_path):
    """The small project, with nothing built."""
    return made(tmp_path)


@pytest.fixture
def single(toy):
    """The small project with one module, where one shows as much as two."""
    (toy / "fabric" / "kernels" / "wraps.pyx").unlink()
    return toy


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The small project after a release build; tests look at it or take a copy."""
    folder = made(tmp_path_factory.mktemp("released"))
    build(folder, jobs="2")
    return folder


@pytest.fixture(scope="module")
def checked(released, tmp_path_factory):
    """The small project after a release build and a checked one, which is in place then; tests take a copy."""
    folder = shutil.copytree(released, tmp_path_factory.mktemp("checked") / "toy")
    build(folder, "checked")
    return folder


@pytest.fixture
def built(released, tmp_path):
    """The small project after a release build, to go on with: files keep their times, as if it had been built there."""
    return shutil.copytree(released, tmp_path / "toy")


def build(toy, mode="release", jobs="1"):
    """Build the toy in place and assert that it worked in silence."""
    done = python("setup.py", "--quiet", "build_ext", "--inplace", cwd=toy, WSE_BUILD=mode, WSE_JOBS=jobs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def ask(toy, code):
    """Return what an expression gives in a fresh interpreter in the toy's directory, or the name of its exception."""
    imports = "from fabric.kernels import wraps; " if "wraps" in code else ""
    program = (
        "import json\nfrom wse_core import strict, _build_info\n"
        f"try:\n    {imports}answer = {code}\nexcept Exception as error:\n    answer = type(error).__name__\n"
        "print(json.dumps(answer))"
    )
    done = python("-c", program, cwd=toy, PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_release_build(released):
    toy = released
    assert ask(toy, "strict.facts()") == [7, 0, 42]
    assert ask(toy, "strict.add(2**32 - 1, 2)") == 1
    assert ask(toy, "_build_info.MODE") == "release"
    assert {"-O3", "-ffp-contract=off"} <= set(ask(toy, "_build_info.C_FLAGS"))
    assert not any(flag.startswith("-march") for flag in ask(toy, "_build_info.C_FLAGS"))
    assert ask(toy, "strict.add.__doc__").startswith("add(a, b)") or "add(" in ask(toy, "strict.add.__doc__")
    assert list(toy.glob("*/**/*.c")) == list(toy.glob("build/**/*.c"))


@pytest.mark.parametrize(
    ("writes", "chosen", "asked"),
    [(True, "", True), (False, "", False), (True, "cc", False)],
    ids=["it can write", "it cannot", "another compiler is asked for"],
)
def test_ccache_stands_before_the_compiler_if_it_is_there(single, tmp_path, writes, chosen, asked):
    """A stand-in for ccache notes that it was called; none of our own caches is filled."""
    place, note = tmp_path / "bin", tmp_path / "called"
    place.mkdir()
    script = f'[ "$1" = --get-config ] && {{ echo {tmp_path / "cache" if writes else ""}; exit; }}; touch {note}'
    (place / "ccache").write_text(f'#!/bin/bash\n{script}; exec "$@"\n', encoding="utf-8")
    (place / "ccache").chmod(0o755)
    path = os.pathsep.join([str(place), os.environ["PATH"]])
    done = python("setup.py", "--quiet", "build_ext", "--inplace", cwd=single, CC=chosen, PATH=path)
    assert done.returncode == 0, done.stderr
    assert note.exists() is asked
    assert "ccache" not in ask(single, "_build_info.COMPILER")
    assert ask(single, "strict.facts()") == [7, 0, 42]


@pytest.mark.parametrize(
    ("variable", "flags"),
    [
        ("CFLAGS", "-O2 -Ofast"),
        ("LDFLAGS", "-Wl,-O1 -ffast-math"),
        ("CPPFLAGS", "-funsafe-math-optimizations"),
        ("CC", "cc -Ofast"),
    ],
)
def test_flags_that_change_results_are_refused_in_one_line(toy, variable, flags):
    done = python("setup.py", "--quiet", "build_ext", "--inplace", cwd=toy, **{variable: flags})
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"setup.py: {variable} holds {flags.split()[-1]}, which changes results and the importing process; remove it"
    ]
    assert not list(toy.glob("wse_core/*.so"))


def test_modes_replace_each_other_in_place_and_keep_their_objects_apart(checked, tmp_path):
    toy = shutil.copytree(checked, tmp_path / "toy")
    assert ask(toy, "_build_info.MODE") == "checked"
    assert ask(toy, "strict.facts()") == [7, 1, 42]
    assert ask(toy, "strict.add(2**32 - 1, 2)") == "OverflowError"
    assert ask(toy, "wraps.add(2**32 - 1, 2)") == 1
    assert ask(toy, "strict.item([1, 2], 2)") == "IndexError"
    build(toy, "release")
    assert ask(toy, "_build_info.MODE") == "release"
    assert ask(toy, "strict.facts()") == [7, 0, 42]
    assert sorted(path.name for path in (toy / "build").iterdir()) == ["checked", "release"]


def test_coverage_build_keeps_the_c_beside_the_source(single):
    toy = single
    build(toy, "coverage")
    assert (toy / "wse_core" / "strict.c").exists()
    assert ask(toy, "_build_info.DIRECTIVES")["linetrace"] is True
    (toy / ".coveragerc").write_text("[run]\nplugins = Cython.Coverage\nsource = wse_core\ncore = ctrace\n")
    (toy / "use.py").write_text("from wse_core import strict\nassert strict.add(1, 2) == 3\n")
    done = python("-m", "coverage", "run", "use.py", cwd=toy)
    assert done.returncode == 0, done.stderr
    report = json.loads(python("-m", "coverage", "json", "-q", "-o", "-", cwd=toy).stdout)
    lines = TOY["wse_core/strict.pyx"].splitlines()
    executed = report["files"]["wse_core/strict.pyx"]["executed_lines"]
    missing = report["files"]["wse_core/strict.pyx"]["missing_lines"]
    assert lines.index("    cdef uint32_t c = a + b") + 1 in executed
    assert lines.index("    return values[i]") + 1 in missing


def test_sanitize_build_calls_the_sanitizers(single):
    toy = single
    build(toy, "sanitize")
    module = (toy / "wse_core" / f"strict{SUFFIX}").read_bytes()
    assert b"__asan_init" in module
    assert b"__ubsan_handle" in module
    assert "MODE = 'sanitize'" in (toy / "wse_core" / "_build_info.py").read_text()


def test_only_what_changed_is_compiled(built):
    toy = built
    modules = {name: toy / "build" / "release" / "lib" / name for name in (
        f"wse_core/strict{SUFFIX}", f"fabric/kernels/wraps{SUFFIX}"
    )}  # fmt: skip
    opcodes = toy / "wse_core" / "opcodes.pxd"
    before = {name: path.stat().st_mtime_ns for name, path in modules.items()}
    written = opcodes.stat().st_mtime_ns
    build(toy)
    assert {name: path.stat().st_mtime_ns for name, path in modules.items()} == before
    assert opcodes.stat().st_mtime_ns == written

    time.sleep(0.02)
    table = toy / "wse_core" / "isa.py"
    table.write_text(table.read_text().replace("Op(7)", "Op(9)"))
    build(toy)
    after = {name: path.stat().st_mtime_ns for name, path in modules.items()}
    assert [name for name in before if after[name] != before[name]] == [f"wse_core/strict{SUFFIX}"]
    assert ask(toy, "strict.facts()[0]") == 9

    time.sleep(0.02)
    header = toy / "wse_core" / "twice.h"
    header.write_text(header.read_text().replace("2 * x", "3 * x"))
    build(toy)
    assert ask(toy, "strict.facts()[2]") == 63


def test_a_module_without_source_disappears(built):
    toy = built
    (toy / "fabric" / "kernels" / "wraps.pyx").unlink()
    build(toy)
    assert list((toy / "fabric").rglob("*.so")) == []
    assert len(list((toy / "wse_core").rglob("*.so"))) == 1


def test_a_warning_of_cython_stops_the_build(single):
    toy = single
    (toy / "wse_core" / "bad.pyx").write_text("def f():\n    cdef int x\n    return x\n")
    done = python("setup.py", "--quiet", "build_ext", "--inplace", cwd=toy)
    assert done.returncode != 0
    assert "bad.pyx:3" in done.stdout + done.stderr
    assert "Cython refused" in done.stderr


@pytest.mark.parametrize(("name", "value"), [("WSE_BUILD", "fast"), ("WSE_JOBS", "many"), ("WSE_JOBS", "0")])
def test_unknown_settings_are_one_line(toy, name, value):
    done = python("setup.py", "--quiet", "build_ext", "--inplace", cwd=toy, **{name: value})
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(f"setup.py: {name}={value!r} is not")
    assert "Traceback" not in done.stderr


def test_a_wheel_does_not_take_the_mode_of_an_older_build_in_place(checked, tmp_path):
    toy = shutil.copytree(checked, tmp_path / "toy")
    done = python("-m", *WHEEL, "-w", "dist", ".", cwd=toy, WSE_BUILD="release")
    assert done.returncode == 0, done.stderr
    wheel = next((toy / "dist").glob("*.whl"))
    assert "MODE = 'release'" in zipfile.ZipFile(wheel).read("wse_core/_build_info.py").decode()
    assert "MODE = 'checked'" in (toy / "wse_core" / "_build_info.py").read_text()


def test_a_wheel_has_no_debug_information(released, tmp_path):
    """Python's own flags often ask for it, and it is five sixths of a module."""
    toy = shutil.copytree(released, tmp_path / "toy")
    done = python("-m", *WHEEL, "-w", "dist", ".", cwd=toy, CFLAGS="-g")
    assert done.returncode == 0, done.stderr
    wheel = zipfile.ZipFile(next((toy / "dist").glob("*.whl")))
    modules = [wheel.read(name) for name in wheel.namelist() if name.endswith(".so")]
    assert len(modules) == 2
    assert not any(b".debug_info" in module for module in modules)
    build(toy)
    assert ask(toy, "strict.facts()") == [7, 0, 42]


def test_metadata():
    project = PROJECT["project"]
    assert project["name"] == "wse-sim"
    assert project["requires-python"] == ">=3.11"
    assert project["scripts"] == {
        "wse": "harness.cli.main:main",
        "cslc": "harness.sdk.compiler:main",
        "cs_python": "harness.sdk.python:main",
        "cs_readelf": "harness.sdk.symbols:main",
        "sdk_debug_shell": "harness.sdk.shell:main",
    }
    assert set(project["optional-dependencies"]) == {
        "test",
        "cluster",
        "editor",
        "complete",
        "csl",
        "torch",
        "demo",
        "gguf",
        "models",
        "onnx",
        "mpi",
        "nice",
        "perfetto",
        "notebook",
        "place",
        "plan",
        "site",
        "solver",
        "tables",
        "train",
        "vcd",
        "dev",
    }
    names = {re.split(r"[<>=]", item)[0] for item in project["dependencies"]}
    assert names == {"numpy", "h5py", "matplotlib"}


def test_license_is_complete():
    text = Path(ROOT, "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_sources_set_no_directive_of_their_own():
    found = {}
    for package in PACKAGES:
        for path in [*Path(ROOT, package).rglob("*.pyx"), *Path(ROOT, package).rglob("*.pxd")]:
            for words in DIRECTIVE.findall(path.read_text(encoding="utf-8")):
                if words.replace(" ", "") != "overflowcheck=False":
                    found[str(path.relative_to(ROOT))] = words
    assert found == {}


def test_constants_of_declaration_files_are_written_out():
    """Cython cannot translate ``1 << 18`` in an enum of a declaration file where overflow is checked."""
    pages = (path for package in PACKAGES for path in Path(ROOT, package).rglob("*.pxd"))
    assert [(path.name, found) for path in pages for found in SHIFTED.findall(path.read_text(encoding="utf-8"))] == []


def test_every_package_is_typed_and_has_a_head():
    for package in PACKAGES:
        assert Path(ROOT, package, "py.typed").exists()
        assert Path(ROOT, package, "__init__.py").read_text(encoding="utf-8").startswith('"""')


def test_sources_carry_no_machine_paths():
    found = []
    kinds = (".py", ".pyx", ".pxd", ".pyi", ".toml", ".md", ".in", ".h")
    folders = (ROOT / name for name in (*PACKAGES, "tools", "docs"))
    for path in [*ROOT.glob("*.*"), *(path for folder in folders for path in folder.rglob("*"))]:
        if path.suffix in kinds and path.name != "_build_info.py":
            text = path.read_text(encoding="utf-8")
            found += [str(path) for word in ("home", "root", "work", "Users") if f"/{word}/" in text]
    assert found == []


def test_the_two_commands_of_the_readme(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert "make run" in readme
    assert "make test" in readme
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    assert "make test" in script.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_help_names_every_target(root, tmp_path):
    done = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for name in (
        "run",
        "test",
        "quick",
        "soak",
        "bench",
        "checked",
        "sanitize",
        "races",
        "coverage",
        "lint",
        "wheels",
        "clean",
    ):
        assert f"make {name} " in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_says_what_is_missing(root, tmp_path):
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        shutil.copy(root / name, tmp_path)
    for name in PACKAGES:
        (tmp_path / name).mkdir()
    (tmp_path / "harness" / "cli").mkdir()
    shutil.copy(root / "harness" / "cli" / "preflight.py", tmp_path / "harness" / "cli")

    def make(*words, **changes):
        env = environment(**changes)
        command = ["make", *words]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    done = make("test", "PYTHON=python-that-is-not-there")
    assert done.returncode != 0
    assert "no python-that-is-not-there found; install Python 3.11 or newer" in done.stderr
    done = make("test", f"PYTHON={sys.executable} -S", CC="compiler-that-is-not-there")
    assert done.returncode != 0
    assert "no C compiler: compiler-that-is-not-there was not found" in done.stderr
    assert not (tmp_path / ".venv").exists()


GENERATED = ("opcodes.pxd", "constants.pxd", "_build_info.py", "traced_")
KINDS = [
    ".py",
    ".pyx",
    ".pxd",
    ".pyi",
    ".h",
    ".typed",
    ".toml",
    ".json",
    ".safetensors",
    ".csl",
    ".lark",
    ".tmpl",
    ".css",
    ".js",
]


def sources():
    """Return every file that a source distribution must contain, as text paths."""
    wanted = ["setup.py", "pyproject.toml", "README.md", "CITATION.cff", "LICENSE", "MANIFEST.in"]
    for package in (*PACKAGES, "examples"):
        for path in Path(ROOT, package).rglob("*"):
            if path.suffix in KINDS and path.is_file():
                wanted.append(str(path.relative_to(ROOT)))
    return sorted(name for name in set(wanted) if not Path(name).name.startswith(GENERATED))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution of the project, made in a copy so that nothing of it is left in the checkout."""
    copy = tmp_path_factory.mktemp("sdist") / "project"
    skip = (".venv", ".git", "build", "runs", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*skip))
    return wheels.sdist(copy / "dist", copy)


def test_the_source_distribution_is_complete_and_clean(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sdist.name == f"wse_sim-{wse_core.__version__}.tar.gz"
    assert [name for name in sources() if name not in names] == []
    assert [name for name in names if name.endswith((".so", ".c", ".pyc"))] == []
    assert [name for name in names if Path(name).name.startswith(GENERATED)] == []
    assert [name for name in names if name.split("/")[0] in ("tests", "docs", "tools", "build", ".ci")] == []
    assert "CHANGELOG.md" not in names  # a page, as those of docs


def test_the_source_distribution_is_small(sdist):
    """It has what a build takes and no more: sources come to 2.2 MB when packed, the shipped model to 0.4."""
    assert 1_000_000 < sdist.stat().st_size < MOST_BYTES


def test_wheels_are_built_and_tried_for_each_version_that_is_supported():
    configured = PROJECT["tool"]["cibuildwheel"]
    inner = re.fullmatch(r"cp3\{([\d,]+)\}-manylinux_\*", configured["build"])[1]
    assert tuple(f"3.{minor}" for minor in inner.split(",")) == wheels.VERSIONS
    named = [line.rpartition(" :: ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert tuple(named) == wheels.VERSIONS
    assert set(configured["test-extras"]) <= set(PROJECT["project"]["optional-dependencies"])
    assert configured["test-command"] == "python {project}/" + wheels.SMOKE.relative_to(ROOT).as_posix()


ANEW = ("wse_core/wake", "fabric/engine/inspect")
"""Modules that the wheel's build translates and compiles, besides those of which the checkout has nothing."""


def hand_on(project, released):
    """Give an unpacked source distribution what `make build` left in the checkout, but for the modules `ANEW`.

    What is there has the times of its files, so that setup.py takes it or makes it anew as it does in the checkout; the
    fingerprint, which would have everything made anew, is that of a build in this environment.
    """
    left, target = ROOT / "build" / "release", project / "build" / "release"
    modules = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for path in (path for package in ("wse_core", "fabric") for path in Path(ROOT, package).rglob("*.pyx")):
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        c, module = Path("cython", f"{name}.c"), f"{name}{SUFFIX}"
        if name not in ANEW and (left / c).exists() and (left / "lib" / module).exists():
            for found, place in ((left / c, target / c), (left / "lib" / module, target / modules / module)):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, place)
    for path in Path(ROOT, "wse_core").glob("*.p[yx][xd]"):
        if path.name.startswith(GENERATED):
            shutil.copy2(path, project / "wse_core")
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy2(released / "build" / "release" / "fingerprint", target)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_wheel_from_the_source_distribution_works_elsewhere(sdist, released, tmp_path):
    """The build takes what the checkout has compiled from the same files; that all of them are in the distribution is
    shown above, and that it can be compiled by the modules which are left.
    """
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (project,) = (tmp_path / "unpacked").iterdir()
    hand_on(project, released)
    done = python("-m", *WHEEL, "-w", tmp_path, project, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    anew = [project / "build" / "release" / "cython" / f"{name}.c" for name in ANEW]
    assert all(path.stat().st_mtime >= sdist.stat().st_mtime for path in anew)
    wheel = next(tmp_path.glob("wse_sim-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(PACKAGES)
    assert [name for name in names if name.endswith((".c", ".pyx", ".pyc"))] == []
    for source in sources():
        if source.startswith(PACKAGES):
            if source.endswith(".pyx"):
                assert source.removesuffix(".pyx") + SUFFIX in names
            else:
                assert source in names

    target = tmp_path / "site"
    done = python("-m", *INSTALL, "--target", target, wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = python("-m", "harness", "doctor", "--json", cwd=tmp_path, PYTHONPATH=str(target))
    facts = json.loads(done.stdout)
    assert facts["build"]["mode"] == "release"
    assert facts["problems"] == []
    assert all(Path(entry["origin"]).is_relative_to(target) for entry in facts["imports"].values())
    done = python("-c", f"import {', '.join(facts['build']['compiled'])}", cwd=tmp_path, PYTHONPATH=str(target))
    assert done.returncode == 0, done.stderr
