"""Build of the compiled modules; everything declarative stands in pyproject.toml.

Every ``*.pyx`` below ``wse_core/`` and ``fabric/`` becomes one extension module named by its dotted path.  Compiler
directives are set here, once, for all of them.  The environment variable ``WSE_BUILD`` selects a mode:

=========  =====================================================================================================
release    -O3 -g0 for the baseline of the architecture, no contraction of a*b+c, all checks off (default)
checked    -O1, every Cython check on, C macro ``WSE_CHECKED=1`` for hand-written checks
coverage   line tracing for the Cython.Coverage plugin; the generated C stays beside its source
sanitize   -O1 -g with the address and undefined-behaviour sanitizers; ``WSE_CHECKED=1`` as well
races      -O1 -g with the thread sanitizer
=========  =====================================================================================================

Overflow checks are part of the checked mode.  A module whose integers wrap on purpose says so in its head with
``# cython: overflowcheck=False``; that is the one directive a source file may set for itself.

Objects of different modes never meet: each mode builds below ``build/<mode>/``.  An in-place build then copies the
extension modules beside their sources and writes ``wse_core/_build_info.py``, from which ``wse doctor`` and the
Makefile learn the mode.  ``WSE_JOBS`` limits the number of parallel compilations.
"""

import glob
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build as _build
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.command.build_py import build_py as _build_py

ROOT = Path(__file__).resolve().parent
MODES = ("release", "checked", "coverage", "sanitize", "races")
MODE = os.environ.get("WSE_BUILD") or "release"
if MODE not in MODES:
    sys.exit(f"setup.py: WSE_BUILD={MODE!r} is not a build mode; use one of {', '.join(MODES)}")

PACKAGES = ("wse_core", "fabric", "memx", "swarm", "harness", "traces", "wse")
COMPILED = ("wse_core", "fabric")
# Modules of wse_core that report events: compiled twice.
ROOMS = ("router", "ce", "vecop", "flow", "turns", "bulk", "scalar")

# Modules that a run passes a few times, not once per cycle or word: -O1 takes half of the compiler's time for them, a
# sixth of that for all modules.
COLD = (
    "fabric.engine.engine",
    "fabric.engine.inspect",
    "fabric.engine.load",
    "fabric.engine.planes",
    "wse_core.arguments",
)

# Programs that stand before a compiler's name.
WRAPPERS = ("ccache", "sccache", "distcc", "icecc")

CHECKS = MODE in ("checked", "sanitize")
DIRECTIVES = {
    "language_level": "3",
    "boundscheck": CHECKS,
    "wraparound": CHECKS,
    "initializedcheck": CHECKS,
    "nonecheck": CHECKS,
    "overflowcheck": MODE == "checked",
    "cdivision": True,
    "embedsignature": True,
    "binding": True,
    "linetrace": MODE == "coverage",
}
if CHECKS:
    DIRECTIVES["show_performance_hints"] = False  # one per check that this mode asks for

# -fno-fast-math after CFLAGS of the environment: no flag from outside may change a bit of a result.
# What is silenced is habitual in generated code; doubts about uninitialised values are left to the checked builds.
QUIET = [f"-Wno-{name}" for name in ("unused-function", "unused-variable", "unused-but-set-variable", "sign-compare")]
COMMON_FLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-fast-math", *QUIET]
# A release has no debug information: where Python's own flags ask for it, it is five sixths of a module and a third of
# the compiler's time.  The instructions are the same.
MODE_FLAGS = {
    "release": ["-O3", "-g0", "-Wno-maybe-uninitialized"],
    "checked": ["-O1", "-g"],
    "coverage": ["-O1", "-Wno-maybe-uninitialized"],
    "sanitize": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
    "races": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread", "-Wno-maybe-uninitialized"],
}
MODE_LINK_FLAGS = {"sanitize": ["-fsanitize=address,undefined"], "races": ["-fsanitize=thread"]}
MODE_MACROS = {
    "checked": [("WSE_CHECKED", "1")],
    "coverage": [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")],
    "sanitize": [("WSE_CHECKED", "1")],
}
MACROS = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION"), *MODE_MACROS.get(MODE, [])]
C_FLAGS = [*COMMON_FLAGS, *MODE_FLAGS[MODE]]
LINK_FLAGS = MODE_LINK_FLAGS.get(MODE, [])


FORBIDDEN = re.compile(
    r"-Ofast|-ffast-math|-funsafe-math-optimizations|-fassociative-math|-freciprocal-math"
    r"|-ffinite-math-only|-mdaz-ftz|-fp-model[= ]fast\S*"
)


def refuse_fast_math():
    """End the build if a flag from outside would change results.

    On the compiler's line `COMMON_FLAGS` outvotes such a flag; on the linker's line it adds start-up code that makes
    whoever imports the modules flush subnormal numbers.
    """
    for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED"):
        if found := FORBIDDEN.search(os.environ.get(name, "")):
            sys.exit(f"setup.py: {name} holds {found[0]}, which changes results and the importing process; remove it")


def compiler():
    """Return the command of the C compiler as words."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def remember_compilations():
    """Let ccache stand before the compiler where it is installed, can write, and nobody has chosen a compiler."""
    if not os.environ.get("CC"):
        os.environ.pop("CC", None)  # an empty one would be called
    if "CC" in os.environ or not shutil.which("ccache"):
        return
    asked = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=False)
    place = Path(asked.stdout.strip()).absolute()
    existing = next(path for path in (place, *place.parents) if path.exists())
    if asked.returncode == 0 and asked.stdout.strip() and os.access(existing, os.W_OK):
        os.environ["CC"] = shlex.join(["ccache", *compiler()])


def number_of_jobs():
    """Return how many compilations may run side by side."""
    text = os.environ.get("WSE_JOBS", "")
    if text and not (text.isdigit() and int(text) > 0):
        sys.exit(f"setup.py: WSE_JOBS={text!r} is not a positive whole number")
    return int(text) if text else min(8, len(os.sched_getaffinity(0)))


def write_if_changed(path, text):
    """Write `text` to `path` unless it already holds exactly that, so that nothing is rebuilt in vain."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def find_extensions():
    """Return one `Extension` per .pyx file of the compiled packages, in a stable order."""
    os.chdir(ROOT)
    generate_constants()
    generate_traced()
    headers = sorted(path for name in COMPILED for path in glob.glob(f"{name}/**/*.h", recursive=True))
    sources = sorted(path for name in COMPILED for path in glob.glob(f"{name}/**/*.pyx", recursive=True))
    # -iquote instead of -I: a header of ours can never hide a system header of the same name.
    quote = [flag for name in (".", *COMPILED) for flag in ("-iquote", name)]
    names = {source: source[: -len(".pyx")].replace(os.sep, ".") for source in sources}
    return [
        Extension(
            names[source],
            [source],
            depends=headers,
            define_macros=[*MACROS, ("WSE_TRACE", "1")] if "traced_" in source else list(MACROS),
            extra_compile_args=[*quote, *C_FLAGS, *(["-O1"] if MODE == "release" and names[source] in COLD else [])],
            extra_link_args=list(LINK_FLAGS),
        )
        for source in sources
    ]


def generate_traced():
    """Write the sources of the modules that report events: copies of the `ROOMS`, compiled with WSE_TRACE."""
    ours = re.compile(rf"\bwse_core\.({'|'.join(ROOMS)}) cimport\b")
    for name in ROOMS:
        for suffix in (".pyx", ".pxd"):
            source = ROOT / "wse_core" / f"{name}{suffix}"
            if not source.exists():
                continue
            text = ours.sub(r"wse_core.traced_\1 cimport", source.read_text(encoding="utf-8"))
            if suffix == ".pyx" and text.startswith("#"):
                first, _, rest = text.partition("\n")
                text = f"{first}\n# Generated from {source.name} by setup.py; do not edit.\n{rest}"
            write_if_changed(ROOT / "wse_core" / f"traced_{source.name}", text)


def load_tables():
    """Return the tables that C and Python share, loaded without their package: name -> module, for those that exist."""
    tables = {}
    try:
        for name in ("encoding", "isa"):  # the second one imports the first
            path = ROOT / "wse_core" / f"{name}.py"
            if path.exists():
                spec = importlib.util.spec_from_file_location(f"wse_core.{name}", path)
                tables[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(tables[name])
    finally:
        for name in tables:
            del sys.modules[f"wse_core.{name}"]
    return tables


def generate_constants():
    """Write the constants of the compiled modules from their tables, and check that no op lacks a body."""
    tables = load_tables()
    if "encoding" in tables:
        write_if_changed(ROOT / "wse_core" / "constants.pxd", tables["encoding"].constants_pxd())
    if "isa" in tables:
        write_if_changed(ROOT / "wse_core" / "opcodes.pxd", tables["isa"].opcodes_pxd())
        check_bodies(tables["isa"], ROOT / "wse_core" / "alu.pxd")


def check_bodies(isa, source):
    """End the build if an op of the table has no branch in the function of alu.pxd that executes its form."""
    if not source.exists():
        return
    functions = re.split(r"^cdef inline ", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for form, function in (("alu", "alu"), ("br", "condition")):
        body = next(text for text in functions if re.match(rf"\w+ {function}\(", text))
        for op in isa.OPS:
            if op.form == form and not re.search(rf"\bop == OP_{op.name.upper()}\b", body):
                sys.exit(f"setup.py: {source.name}: `{function}` has no branch for the op {op.name} of isa.py")


def build_info():
    """Return the text of wse_core/_build_info.py for the current mode."""
    import Cython

    facts = {
        "MODE": MODE,
        "CYTHON_VERSION": Cython.__version__,
        "COMPILER": next(word for word in compiler() if Path(word).stem not in WRAPPERS),
        "C_FLAGS": tuple(C_FLAGS),
        "LINK_FLAGS": tuple(LINK_FLAGS),
        "DIRECTIVES": DIRECTIVES,
    }
    lines = [f"{name} = {value!r}" for name, value in facts.items()]
    return "\n".join(
        ['"""How the extension modules beside this file were built; written by setup.py."""', "", *lines, ""]
    )


def fingerprint():
    """Return a digest of everything besides the sources that decides what a build produces."""
    import Cython
    import numpy

    facts = [MODE, DIRECTIVES, MACROS, C_FLAGS, COLD, LINK_FLAGS, Cython.__version__, numpy.__version__, sys.version]
    facts += [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class build(_build):
    """`build` with one directory per mode."""

    def initialize_options(self):
        super().initialize_options()
        self.build_base = os.path.join("build", MODE)


class build_py(_build_py):
    """`build_py` that puts the facts of this build into what it copies, never the facts of an older one."""

    def run(self):
        super().run()
        if not self.editable_mode:
            write_if_changed(Path(self.build_lib, "wse_core", "_build_info.py"), build_info())


class build_ext(_build_ext):
    """`build_ext` that generates, cythonizes in parallel and keeps the modes apart."""

    def finalize_options(self):
        super().finalize_options()
        if self.parallel is None:
            self.parallel = number_of_jobs()
        if self.inplace or self.editable_mode:
            base = os.path.join("build", MODE)
            self.build_lib = os.path.join(base, "lib")
            self.build_temp = os.path.join(base, "obj")

    def run(self):
        refuse_fast_math()
        remember_compilations()
        os.chdir(ROOT)
        super().run()
        if self.inplace or self.editable_mode:
            self.remove_orphans()
            write_if_changed(ROOT / "wse_core" / "_build_info.py", build_info())

    def copy_extensions_to_source(self):
        # A copy "only if newer" would keep the modules of another mode that happens to be younger.
        force, self.force = self.force, True
        try:
            super().copy_extensions_to_source()
        finally:
            self.force = force

    def build_extensions(self):
        import multiprocessing

        import numpy
        from Cython.Build import cythonize
        from Cython.Compiler import Options
        from Cython.Compiler.Errors import CompileError

        record = Path("build", MODE, "fingerprint")
        if not record.exists() or record.read_text(encoding="utf-8") != fingerprint():
            record.unlink(missing_ok=True)
            self.force = True
        # Worker processes must inherit the option below, which only forking gives them.
        multiprocessing.set_start_method("fork", force=True)
        Options.warning_errors = True
        try:
            generated = cythonize(
                self.extensions,
                nthreads=number_of_jobs() if number_of_jobs() > 1 else 0,  # 0: in this process
                force=bool(self.force),
                quiet=not self.verbose,
                build_dir=None if MODE == "coverage" else os.path.join("build", MODE, "cython"),
                compiler_directives=DIRECTIVES,
            )
        except CompileError as error:
            sys.exit(f"setup.py: Cython refused {error}; its messages stand above")
        by_name = {extension.name: extension for extension in generated}
        for extension in self.extensions:
            done = by_name[extension.name]
            for name in ("sources", "define_macros", "extra_compile_args", "extra_link_args", "libraries", "depends"):
                setattr(extension, name, getattr(done, name))
            extension.include_dirs = [*done.include_dirs, numpy.get_include()]
        # The largest first, so that no processor is left alone with it at the end.
        self.extensions.sort(key=lambda extension: -os.path.getsize(extension.sources[0]))
        super().build_extensions()
        write_if_changed(record, fingerprint())

    def remove_orphans(self):
        """Delete extension modules beside the sources whose .pyx is gone: they would still be imported."""
        wanted = {extension.name.replace(".", "/") for extension in self.extensions}
        for name in COMPILED:
            for path in glob.glob(f"{name}/**/*.so", recursive=True):
                if os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0]) not in wanted:
                    os.remove(path)


setup(
    packages=find_packages(str(ROOT), include=[pattern for name in PACKAGES for pattern in (name, f"{name}.*")]),
    ext_modules=find_extensions(),
    cmdclass={"build": build, "build_py": build_py, "build_ext": build_ext},
)
