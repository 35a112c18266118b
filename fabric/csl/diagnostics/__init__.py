"""Messages about CSL sources say what is wrong, where, and what to try."""

from __future__ import annotations

from fabric.csl.diagnostics.errors import CslError, Diagnostic, Fault, Report, render
from fabric.csl.diagnostics.source import Source, Span, read_text

__all__ = ["CslError", "Diagnostic", "Fault", "Report", "Source", "Span", "read_text", "render"]
