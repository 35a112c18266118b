"""A census shows features per file, and for each program of a tree whether it checks and what stands in its way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric.csl.census.features import UNSUPPORTED, features_of
from fabric.csl.check.program import check_file
from fabric.csl.comptime.builtins import BUILTINS
from fabric.csl.comptime.session import LIBRARY, Options
from fabric.csl.diagnostics import CslError, Diagnostic
from fabric.csl.projects import find_projects, sources_of
from fabric.csl.syntax.parser import parse, read

__all__ = ["Census", "take"]


@dataclass
class Census:
    """A `Census` tells which features of CSL the programs below a directory use.

    Attributes
    ----------
    directory : pathlib.Path
    files : int
        CSL files below it.
    lines : int
    unparsed : list
        The first message of each file that does not parse.
    uses : collections.Counter
        Uses of each feature.
    files_with : collections.Counter
        Files that use it.
    programs : list of tuple
        Per program its file and the messages that keep it from compiling.
    """

    directory: Path
    files: int = 0
    lines: int = 0
    unparsed: list[Diagnostic] = field(default_factory=list)
    uses: Counter[str] = field(default_factory=Counter)
    files_with: Counter[str] = field(default_factory=Counter)
    programs: list[tuple[Path, list[Diagnostic]]] = field(default_factory=list)

    @property
    def missing(self) -> dict[str, str]:
        """These features are used and not supported: name -> why."""
        return {name: reason for name in sorted(self.uses) if (reason := self._status(name))}

    def _status(self, name: str) -> str | None:
        """Return why a feature is not supported, or None."""
        if name.startswith("@"):
            spec = BUILTINS.get(name)
            if spec is None:
                return "unknown"
            return spec.meaning if spec.refused else None
        if name.startswith("<"):
            return None if Path(LIBRARY, f"{name[1:-1]}.csl").is_file() else "not in our library"
        return UNSUPPORTED.get(name)

    def as_dict(self) -> dict[str, Any]:
        """Return the census as plain data for JSON."""
        return {
            "directory": str(self.directory),
            "files": self.files,
            "lines": self.lines,
            "parsed": self.files - len(self.unparsed),
            "unparsed": [entry.as_dict() for entry in self.unparsed],
            "features": {
                name: {"uses": count, "files": self.files_with[name], "missing": self._status(name)}
                for name, count in sorted(self.uses.items())
            },
            "programs": [
                {"file": str(path), "ok": not errors, "errors": [entry.as_dict() for entry in errors]}
                for path, errors in self.programs
            ],
        }

    def as_text(self) -> str:
        """Return the census for a reader."""
        good = sum(not errors for _, errors in self.programs)
        lines = [
            f"{self.files} files, {self.lines} lines: {self.files - len(self.unparsed)} parse",
            f"{len(self.programs)} programs: {good} check without error",
            "",
            f"{'feature':<44}{'uses':>8}{'files':>8}",
        ]
        for name, count in sorted(self.uses.items(), key=lambda pair: (-self.files_with[pair[0]], pair[0])):
            status = self._status(name)
            lines.append(f"{name:<44}{count:>8}{self.files_with[name]:>8}{f'  {status}' if status else ''}".rstrip())
        for entry in self.unparsed:
            lines.append(f"{entry.span}: {entry.message}")
        for path, errors in self.programs:
            if errors:
                more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
                lines.append(f"{path}: {errors[0].span}: {errors[0].message}{more}")
        return "\n".join(lines)


def take(directory: Path, options: Options | None = None) -> Census:
    """Return the census of a tree of programs.

    Parameters
    ----------
    directory : path
        Where they are.
    options : Options, optional
        Params and import paths on top of those that the scripts there give.

    Raises
    ------
    ConfigError
        If there is no CSL file.
    """
    projects = find_projects(directory, options)
    census = Census(directory)
    for path in sources_of(directory):
        census.files += 1
        source = read(path)
        census.lines += source.text.count("\n") + (not source.text.endswith("\n"))
        try:
            found = features_of(parse(source))
        except CslError as error:
            census.unparsed.append(error.diagnostics[0])
            continue
        census.uses.update(found)
        census.files_with.update(dict.fromkeys(found, 1))
    for project in projects:
        try:
            check_file(project.path, project.options)
            census.programs.append((project.path, []))
        except CslError as error:
            census.programs.append((project.path, [e for e in error.diagnostics if e.severity == "error"]))
    return census
