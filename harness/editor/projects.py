"""A source belongs to layouts, of which the compiler says messages, instructions and cycles of lines.

A source belongs to each layout that reaches it by imports and `@set_tile_code`.  Layouts are looked for beside the
source and above it, up to the root of the workspace; their options are those that scripts there give to ``cslc``.
Texts that are open in the editor stand in for their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import LIBRARY, CompilerSession, Options
from fabric.csl.diagnostics import CslError, Diagnostic, Fault, Source, Span
from fabric.csl.emit.listing import instructions
from fabric.csl.projects import Project, find_projects
from fabric.csl.syntax.parser import instead_of_files, parse
from harness.editor.outline import Outline
from wse_core.errors import WseError

__all__ = ["Known", "Workspace"]

MOST_ABOVE = 3
"""Layouts are looked for in at most so many directories above that of a source."""


@dataclass
class Known:
    """This is what the compiler said of a layout.

    Attributes
    ----------
    messages : dict of Path to list of Diagnostic
        By file.
    lines : dict of (Path, int) to list of str
        Instructions of a line, with their cycles; of layouts without an error.
    """

    messages: dict[Path, list[Diagnostic]] = field(default_factory=dict)
    lines: dict[tuple[Path, int], list[str]] = field(default_factory=dict)


class Workspace:
    """A `Workspace` has the sources below a directory and the texts that are open.

    Attributes
    ----------
    root : pathlib.Path or None
    texts : dict of Path to str
        What is open.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self.texts: dict[Path, str] = {}
        self._known: dict[Path, Known] = {}

    def text(self, path: Path) -> str:
        """Return the text of a source, open or not; empty if it cannot be read."""
        found = self.texts.get(path.resolve())
        if found is not None:
            return found
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def change(self, path: Path, text: str | None) -> None:
        """Take the text of an open source; None: it is closed."""
        path = path.resolve()
        if text is None:
            self.texts.pop(path, None)
        else:
            self.texts[path] = text
        self._known.clear()

    # ---- files

    def find(self, name: str, importer: Path) -> Path | None:
        """Return where a file or module lies that a source names."""
        projects = self.projects(importer)
        options = projects[0].options if projects else Options()
        top = projects[0].path if projects else importer
        source = Source(str(importer), "", importer)
        try:
            return CompilerSession(options, top=top).find(name, source, Span(source, 0, 0)).resolve()
        except Fault:
            return None

    def reaches(self, top: Path) -> set[Path]:
        """Return the sources that a layout reaches, itself too."""
        found: set[Path] = set()
        todo = [top.resolve()]
        while todo:
            path = todo.pop()
            if path in found or LIBRARY in path.parents:
                continue
            found.add(path)
            for name in Outline(self.text(path)).files():
                for directory in (path.parent, top.parent):
                    other = (directory / name).resolve()
                    if not name.startswith("<") and other.is_file():
                        todo.append(other)
        return found

    def projects(self, path: Path) -> list[Project]:
        """Return the layouts that a source belongs to."""
        path = path.resolve()
        for directory in self._above(path):
            try:
                found = [one for one in find_projects(directory) if path in self.reaches(one.path)]
            except WseError:
                continue
            if found:
                return found
        return []

    def _above(self, path: Path) -> Iterator[Path]:
        """Yield the directory of a source and those above it."""
        root = self.root.resolve() if self.root else path.parent
        for directory in [path.parent, *path.parent.parents][: 1 + MOST_ABOVE]:
            yield directory
            if directory == root:
                return

    # ---- what the compiler says

    def known(self, path: Path) -> list[Known]:
        """Return what the compiler says of the layouts that a source belongs to."""
        projects = self.projects(path)
        if not projects:
            return [self._alone(path.resolve())]
        return [self._project(project) for project in projects]

    def messages(self, path: Path) -> dict[Path, list[Diagnostic]]:
        """Return the messages of all sources of the layouts that a source belongs to, by file, each once."""
        found: dict[Path, dict[tuple[str, str], Diagnostic]] = {path.resolve(): {}}
        for known in self.known(path):
            for file, messages in known.messages.items():
                table = found.setdefault(file, {})
                table |= {(str(entry.span), entry.message): entry for entry in messages}
        return {file: list(table.values()) for file, table in found.items()}

    def instructions(self, path: Path, line: int) -> list[str]:
        """Return the instructions of a line, counted from 1, with their cycles, of the first layout that has some."""
        for known in self.known(path):
            found = known.lines.get((path.resolve(), line))
            if found:
                return found
        return []

    def _alone(self, path: Path) -> Known:
        """Return what can be said of a source that no layout reaches."""
        known = Known({path: []})
        try:
            with instead_of_files(self.texts):
                parse(Source(str(path), self.text(path), path))
        except CslError as error:
            self._sort(known, error.diagnostics)
        return known

    def _project(self, project: Project) -> Known:
        """Return what is known of a layout."""
        key = project.path.resolve()
        if key in self._known:
            return self._known[key]
        known = self._known[key] = Known({file: [] for file in self.reaches(key)})
        with instead_of_files(self.texts):
            try:
                made = compile_file(project.path, project.options)
                bundle_of(made)
                self._sort(known, made.checked.report.diagnostics)
                for program in made.programs:
                    for place, text in instructions(program.emitted, made.machine):
                        if place is not None:
                            known.lines.setdefault((Path(place.file).resolve(), place.line), []).append(text)
            except CslError as error:
                self._sort(known, error.diagnostics)
            except WseError as error:
                source = Source(str(key), self.text(key), key)
                self._sort(known, [Diagnostic("error", str(error), Span(source, 0, 1))])
        return known

    def _sort(self, known: Known, messages: object) -> None:
        """Put messages to their files; what stands in the library stands where it is used."""
        for entry in messages:  # type: ignore[attr-defined]
            path = entry.span.source.path
            if path is not None and LIBRARY not in path.parents:
                known.messages.setdefault(path.resolve(), []).append(entry)
