"""One run of the compiler has options, messages, the files that were read, the modules that were made of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fabric.csl.comptime.budget import Budget
from fabric.csl.comptime.dialects import VERSIONS, Dialect
from fabric.csl.comptime.values import Global, Module, Scope
from fabric.csl.diagnostics import CslError, Fault, Report, Source, Span
from fabric.csl.syntax import nodes as n
from fabric.csl.syntax.parser import parse, read
from wse_core.errors import ConfigError
from wse_core.numbers import DEFAULT_PRESET, PRESETS
from wse_core.params import machine

__all__ = ["ARCHITECTURES", "LIBRARY", "TARGETS", "CompilerSession", "Options"]

TARGETS = tuple(PRESETS)
"""Programs can be compiled for these architectures."""
ARCHITECTURES = ("wse1", *TARGETS)
"""Programs can ask for these architectures."""
RENAMED = {"memcpy_multi/": "memcpy/"}
"""Modules in angle brackets had other names in SDK 0.8 to 1.0: the old name with the one of today."""
NOT_MODELLED = {
    "<message_passing>": "how its messages travel between PEs is not public, and no public program uses it",
    "<malloc>": "no public program uses it",
    **dict.fromkeys(("<data_utils>", "<string>", "<types>", "<timer>"), "what its functions are called is not public"),
}
"""This library does not have these modules of the vendor: name -> the reason."""
LIBRARY = Path(__file__).parents[1] / "library"
"""Our own modules in angle brackets lie in this directory."""
KEPT_TREES = 64
"""Trees of so many files are kept for other compilations of the same text."""


@dataclass(frozen=True)
class Options:
    """`Options` are what the caller of the compiler chooses.

    Attributes
    ----------
    arch : str
        The architecture that the program is compiled for, one of `TARGETS`; what it has follows from the preset of this
        name (`wse_core.params`).
    params : dict
        Values for params of the top file: numbers by name.
    import_paths : tuple of str
        Directories searched for modules: for those in angle brackets before our own library, for files last.
    root : pathlib.Path or None
        The directory that files are looked for in where they do not lie beside the importer; None for that of the top
        file.
    fp16 : str
        The 16-bit float of the program: ``f16`` or ``cb16``.
    fabric, offsets : tuple of int
        Size of the fabric and place of the program in it, as `@get_rectangle` tells them.
    frame : tuple of int or None
        Columns in front of the program, rows above it, columns behind and rows below it that must lie in the fabric:
        those of the host's frame.  None: the place of the program is not checked.
    max_inlined_iterations : int
        Iterations of an ``inline`` loop, and of a loop at compile time, that are taken for meant.
    max_comptime_steps : int
        Steps at compile time, of all loops and calls of a program, that are taken for meant; a turn counts for what
        is in it.
    max_instances : int
        Instances of functions that a program may have.
    sdk : str
        The version of the SDK whose refusals are warned of, one of `VERSIONS`; empty: of none.
    optimise : bool
        Whether the passes of `fabric.csl.optimise` run; without them a program does the same, in more cycles.

    Raises
    ------
    ConfigError
        The machine does not have the 16-bit float.
    """

    params: dict[str, int] = field(default_factory=dict)
    import_paths: tuple[str, ...] = ()
    root: Path | None = None
    fp16: str = "f16"
    fabric: tuple[int, int] = (757, 996)
    offsets: tuple[int, int] = (4, 1)
    frame: tuple[int, int, int, int] | None = None
    max_inlined_iterations: int = 50_000_000
    max_comptime_steps: int = 1_000_000
    max_instances: int = 4_000
    lanes: bool = True
    optimise: bool = True
    arch: str = DEFAULT_PRESET
    sdk: str = ""

    def __post_init__(self) -> None:
        if self.sdk not in ("", *VERSIONS):
            what = f"version {self.sdk} of the SDK is not known"
            raise ConfigError(what, where="--sdk", hint=", ".join(VERSIONS))
        if self.fp16 not in ("f16", "cb16"):
            what = "known at compile time only" if self.fp16 == "bf16" else "no 16-bit float"
            raise ConfigError(f"{self.fp16} is {what}", where="the 16-bit float of a program", hint="f16 or cb16")
        # Stages ask whether a number is an int of Python, which those of numpy are not.
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in self.params.items()}
        object.__setattr__(self, "params", plain)


class CompilerSession:
    """A `CompilerSession` holds what all stages of one compilation share: options, machine, messages, files read.

    Attributes
    ----------
    options : Options
    machine : Machine
        The numbers of the architecture: queues, colors with a switch, what starts a data task.
    report : Report
        The messages so far.
    root : pathlib.Path
        The directory of the top file.
    """

    def __init__(self, options: Options, report: Report | None = None, top: Path | None = None) -> None:
        self.options = options
        self.machine = machine(options.arch)
        self.root = options.root or (top.parent if top is not None else Path())
        self.report = report or Report()
        self.dialect = Dialect(options.sdk, self.report)
        self.budget = Budget(options.max_comptime_steps, options.max_inlined_iterations, options.max_instances)
        self._files: dict[Path, tuple[Source, n.File]] = {}
        self.missing_libraries: dict[str, Span] = {}
        self.renamed: set[str] = set()  # prefixes of `RENAMED` that the program imports by
        self.by_address = False
        """Whether some number became a pointer: it may lead to a register."""

    def load(self, path: Path) -> tuple[Source, n.File]:
        """Return a file and its tree; each file is read once.

        Raises
        ------
        Fault
            If it is no CSL; its messages are in the report.
        """
        found = self._files.get(path)
        if found is None:
            found = self._files.get(path.resolve()) or self._parsed(path)
            self._files[path] = self._files[path.resolve()] = found
        return found

    def _parsed(self, path: Path) -> tuple[Source, n.File]:
        """Return a file that was not read yet."""
        whole = path.resolve()
        name = self.name_of(whole)
        if LIBRARY in whole.parents:
            return _of_the_library(whole, name)
        source = read(path, name)
        try:
            return _tree_of(source.name, source.text, source.path)
        except CslError as error:
            for entry in error.diagnostics:
                self.report.add(entry)
            raise Fault(None) from None

    def find(self, name: str, importer: Source, span: Span) -> Path:
        """Return where an imported file lies.

        Parameters
        ----------
        name : str
            As the program wrote it: ``<module>``, or a path relative to the importing file, else to the top file, else
            to an import path.  The compilers of SDK 1.0 to 1.3 went from the top file.

        Raises
        ------
        Fault
            If there is no such file; it names every directory that was looked in.
        """
        if name.startswith("<") and name.endswith(">"):
            inner = name[1:-1]
            for old, new in RENAMED.items():
                if inner.startswith(old):
                    self.renamed.add(old)
                    inner = new + inner[len(old) :]
            for directory in map(Path, (*self.options.import_paths, str(LIBRARY))):
                for found in (Path(directory, f"{inner}.csl"), Path(directory, inner)):
                    if found.is_file():
                        return found
            self.missing_libraries.setdefault(name, span)
            if name in NOT_MODELLED:
                raise Fault(f"the module {name} is not modelled: {NOT_MODELLED[name]}", span)
            there = ", ".join(f"<{module}>" for module in _modules_of_the_library())
            hint = f"the library has {there}; the directory of another one is given with --import-path"
            raise Fault(f"there is no module {name}", span, hint)
        beside = importer.path.parent if importer.path else Path()
        directories = (beside, self.root, *map(Path, self.options.import_paths))
        for directory in directories:
            found = Path(directory, name)
            if found.is_file():
                return found
        root = f"in {self.name_of(self.root.resolve())}, the directory of the top file"
        where = (
            f"beside {importer.name}",
            root,
            *(f"in {entry} (--import-path)" for entry in self.options.import_paths),
        )
        places: dict[Path, str] = {}
        for directory, text in zip(directories, where, strict=True):
            places.setdefault(directory.resolve(), text)
        looked = ", nor ".join(list(places.values())[: 1 if Path(name).is_absolute() else None])
        raise Fault(f"there is no file '{name}' {looked}", span)

    def name_of(self, path: Path) -> str:
        """Return how messages call a file."""
        if LIBRARY in path.parents:
            return f"<{path.relative_to(LIBRARY).with_suffix('')}>"
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)

    def module(self, path: Path, name: str, bindings: dict[str, Any]) -> Module:
        """Return a new instance of a file; its globals are evaluated when they are needed."""
        source, tree = self.load(path)
        assert source.path is not None
        made = Module(source, tree, name, bindings, builtin=source.name.startswith("<"))
        made.scope = Scope(made)
        for item in tree.items:
            if isinstance(item, (n.ComptimeBlock, n.LayoutBlock)):
                continue
            known = made.globals.get(item.name)  # type: ignore[attr-defined]
            if known is not None:
                note = ("the first one is here", known.decl.span)
                self.report.fault(Fault(f"'{item.name}' is declared twice", item.span, None, (note,)))  # type: ignore[attr-defined]
                continue
            made.globals[item.name] = Global(item.name, item, made)  # type: ignore[attr-defined]
        return made


def _modules_of_the_library() -> list[str]:
    """Return the names that programs import modules of our own library by."""
    names = (path.relative_to(LIBRARY).with_suffix("").as_posix() for path in LIBRARY.rglob("*.csl"))
    return sorted(name for name in names if name != "runtime" and not name.startswith("tile_config/"))


@lru_cache(maxsize=KEPT_TREES)
def _tree_of(name: str, text: str, path: Path | None) -> tuple[Source, n.File]:
    """Return a text as a source and its tree: one that is compiled again, with other parameters, is parsed once."""
    source = Source(name, text, path)
    return source, parse(source)


@cache
def _of_the_library(path: Path, name: str) -> tuple[Source, n.File]:
    """Return a module of our own library: parsed once per process, because no stage changes a syntax tree."""
    source = read(path, name)
    return source, parse(source)
