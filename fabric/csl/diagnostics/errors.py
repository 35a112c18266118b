"""Messages: one is a `Diagnostic`, an analysis that cannot go on raises a `Fault`, a `Report` collects, a `CslError`
leaves the compiler.

A `Fault` is caught at the next place where work can go on (a statement, a declaration, a file), so that one run reports
many mistakes.  What depends on something faulty stays silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fabric.csl.diagnostics.source import Span
from wse_core.errors import WseError
from wse_core.errors.base import EXIT_RUN

__all__ = ["CslError", "Diagnostic", "Fault", "Report", "render"]

MOST = 100
"""A report is full after so many errors."""


@dataclass(frozen=True)
class Diagnostic:
    """A `Diagnostic` is one message about a place in a source.

    Attributes
    ----------
    severity : str
        ``error``, ``warning`` or ``note`` (what ``@comptime_print`` says).
    message : str
        What is wrong, in one sentence without a full stop.
    span : Span
        Where.
    hint : str or None
        What to try.
    notes : tuple
        Further places: pairs of a text and a span.
    """

    severity: str
    message: str
    span: Span
    hint: str | None = None
    notes: tuple[tuple[str, Span], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the message as plain data for JSON."""
        line, column = self.span.source.position(self.span.start)
        return {
            "severity": self.severity,
            "file": self.span.source.name,
            "line": line,
            "column": column,
            "message": self.message,
            "hint": self.hint,
            "notes": [{"message": text, "at": str(span)} for text, span in self.notes],
        }


WIDEST = 200
"""A message shows at most so many characters of a line."""


def render(diagnostic: Diagnostic) -> str:
    """Return a message as text: place and sentence, the line, a caret under it, hint and notes."""
    span = diagnostic.span
    line, column = span.source.position(span.start)
    lines = [f"{span}: {diagnostic.severity}: {diagnostic.message}"]
    text = span.source.line(line)
    if len(text) > WIDEST:
        first = max(0, min(column - 1 - WIDEST // 3, len(text) - WIDEST))
        before, after = "... " if first else "", " ..." if first + WIDEST < len(text) else ""
        text, column = f"{before}{text[first : first + WIDEST]}{after}", column - first + len(before)
    if text.strip():
        width = max(1, min(span.end - span.start, len(text) - column + 1))
        margin = "".join("\t" if c == "\t" else " " for c in text[: column - 1])
        lines += [f"    {text}", f"    {margin}^{'~' * (width - 1)}"]
    if diagnostic.hint:
        lines.append(f"    hint: {diagnostic.hint}")
    lines += [f"{place}: note: {message}" for message, place in diagnostic.notes]
    return "\n".join(lines)


class Fault(Exception):
    """Analysis of one thing cannot go on; `diagnostic` is None where the reason has been reported already."""

    def __init__(
        self, message: str | None, span: Span | None = None, hint: str | None = None, notes: tuple = ()
    ) -> None:
        super().__init__(message)
        self.diagnostic = None if message is None or span is None else Diagnostic("error", message, span, hint, notes)

    def blame(self, site: Span) -> None:
        """Say what lies inside of the library at `site`, whose user can mend it."""
        if self.diagnostic is not None:
            self.diagnostic = _blamed(self.diagnostic, site)


class Report:
    """A `Report` has the messages of one run of the compiler, in the order in which they were found."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._seen: set[tuple[str, str]] = set()

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep a message unless the same one at the same place is there already."""
        key = (str(diagnostic.span), diagnostic.message)
        if key in self._seen and diagnostic.severity != "note":
            return
        self._seen.add(key)
        self.diagnostics.append(diagnostic)
        if len(self.errors) >= MOST:
            raise CslError(self.diagnostics)

    def warn(self, message: str, span: Span, hint: str | None = None) -> None:
        """Add a warning about a place to the messages."""
        self.add(Diagnostic("warning", message, span, hint))

    def note(self, message: str, span: Span) -> None:
        """Keep what a program printed while it was compiled."""
        self.add(Diagnostic("note", message, span))

    def fault(self, fault: Fault) -> None:
        """Keep the message of a fault, if it has one."""
        if fault.diagnostic is not None:
            self.add(fault.diagnostic)

    @property
    def errors(self) -> list[Diagnostic]:
        """These messages are errors, in the order in which they were found."""
        return [entry for entry in self.diagnostics if entry.severity == "error"]

    @contextmanager
    def recover(self) -> Iterator[None]:
        """Keep a fault raised inside and go on after the block."""
        try:
            yield
        except Fault as fault:
            self.fault(fault)

    @contextmanager
    def blaming(self, site: Span) -> Iterator[None]:
        """Like `recover`; an error inside of the library is said to be at `site`, whose user can mend it."""
        before = len(self.diagnostics)
        with self.recover():
            yield
        for k, entry in enumerate(self.diagnostics[before:], before):
            if entry.severity == "error":
                self.diagnostics[k] = _blamed(entry, site)

    def check(self) -> None:
        """Raise `CslError` if there is an error."""
        if self.errors:
            raise CslError(self.diagnostics)


def _blamed(entry: Diagnostic, site: Span) -> Diagnostic:
    """Return a message as said at `site` if it lies inside of the library and that does not."""
    if site.source.is_library or not entry.span.source.is_library:
        return entry
    return replace(entry, span=site, hint=None, notes=(("in the library, here", entry.span), *entry.notes))


class CslError(WseError):
    """CSL sources that do not compile; `diagnostics` has every message."""

    exit_code = EXIT_RUN

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        errors = [entry for entry in diagnostics if entry.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        first = errors[0]
        super().__init__(first.message + more, where=str(first.span), hint=first.hint)
        self.diagnostics = tuple(diagnostics)

    def render(self) -> str:
        """Return all messages as text."""
        return "\n".join(render(entry) for entry in self.diagnostics)
