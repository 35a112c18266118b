"""A directory of CSL has layout files to compile, each with the options that the scripts there give to ``cslc``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabric.csl.comptime.session import TARGETS, Options
from wse_core.errors import ConfigError

__all__ = ["Project", "find_projects", "parse_params", "sources_of"]

FLAGS = ("--memcpy", "--verbose", "--warnings-as-errors")
LAYOUT = re.compile(r"^\s*layout\s*\{", re.MULTILINE)


@dataclass
class Project:
    """A `Project` is a layout file to compile with the options that a script gives.

    Attributes
    ----------
    path : pathlib.Path
        The layout file.
    options : Options
    origin : pathlib.Path or None
        The script that says so.
    arch : str
        The architecture that the script asks for.
    """

    path: Path
    options: Options = field(default_factory=Options)
    origin: Path | None = None
    arch: str = "wse2"


def parse_params(words: list[str]) -> dict[str, int]:
    """Return the params of ``a:1,b:2`` words.

    Raises
    ------
    ConfigError
        For a word of another form.
    """
    found: dict[str, int] = {}
    for word in words:
        for entry in filter(None, word.split(",")):
            name, colon, number = entry.partition(":")
            try:
                if not colon or not name.strip().isidentifier():
                    raise ValueError
                found[name.strip()] = int(number, 0)
            except ValueError:
                raise ConfigError(f"'{entry}' is no param", where="--params", hint="--params name:number,...") from None
    return found


def sources_of(directory: Path) -> list[Path]:
    """Return every CSL file below a directory, in order of their names."""
    return sorted(path for path in directory.rglob("*.csl") if path.is_file())


def _commands(script: Path) -> list[list[str]]:
    """Return the calls of ``cslc`` in a shell script, as words; those that the shell has to work out are left out."""
    try:
        text = script.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for line in text.splitlines():
        if not line.lstrip().startswith("cslc ") or "$" in line or "`" in line:
            continue
        try:
            found.append(shlex.split(line, comments=True)[1:])
        except ValueError:
            continue
    return found


def _project(words: list[str], script: Path) -> Project | None:
    """Return what a call of ``cslc`` compiles, or None if it names no file."""
    file, arch = None, "wse2"
    values: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            file = word
        elif word not in FLAGS:
            name, equals, value = word.partition("=")
            values.setdefault(name, []).append(value if equals else next(rest, ""))
    if file is None:
        return None
    arch = values.get("--arch", [arch])[-1]
    paths = tuple(str(script.parent / entry) for value in values.get("--import-path", []) for entry in value.split(":"))
    params = parse_params([*values.get("--params", []), *values.get("--colors", [])])
    size = values.get("--fabric-dims", [""])[-1].split(",")
    fabric = (int(size[0]), int(size[1])) if len(size) == 2 and all(part.isdigit() for part in size) else None
    options = Options(params=params, import_paths=paths)
    if fabric is not None:
        options = replace(options, fabric=fabric)
    if arch in TARGETS:
        options = replace(options, arch=arch)
    return Project(script.parent / file, options, script, arch)


def find_projects(directory: Path, options: Options | None = None) -> list[Project]:
    """Return what a tree of programs compiles.

    Parameters
    ----------
    directory : path
        Where to look, also below.
    options : Options, optional
        Params and import paths of the caller; they come on top of those of scripts.

    Returns
    -------
    list of Project
        One per call of ``cslc`` in a script, except those for other machines, and one per file with a layout block that
        no script names.

    Raises
    ------
    ConfigError
        If the directory has no CSL file.
    """
    options = options or Options()
    files = sources_of(directory)
    if not files:
        raise ConfigError("there is no CSL file in this directory", where=str(directory))
    found: list[Project] = []
    for script in sorted(directory.rglob("*.sh")):
        for words in _commands(script):
            try:
                project = _project(words, script)
            except ConfigError:
                continue
            if project is not None and project.path.is_file():
                found.append(project)
    named = {project.path.resolve() for project in found}
    for path in files:
        if path.resolve() not in named and LAYOUT.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(Project(path))
    wanted = [project for project in found if project.arch in TARGETS]
    for project in wanted:
        mine = project.options
        project.options = Options(
            params={**mine.params, **options.params},
            import_paths=(*options.import_paths, *mine.import_paths),
            fp16=options.fp16,
            fabric=mine.fabric,
            optimise=options.optimise,
            arch=mine.arch if project.origin else options.arch,
        )
    return wanted
