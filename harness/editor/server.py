"""A language server for CSL puts the protocol, by the library pygls, around `harness.editor.answers`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from fabric.csl.diagnostics import CslError, Diagnostic, Source, Span
from fabric.csl.syntax.style import formatted
from harness.editor.answers import complete, declared, explained
from harness.editor.outline import Outline
from harness.editor.projects import Workspace
from wse_core import __version__

__all__ = ["make_server"]

SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}
KINDS = {
    "builtin": lsp.CompletionItemKind.Function,
    "word": lsp.CompletionItemKind.Keyword,
    "type": lsp.CompletionItemKind.Class,
    "field": lsp.CompletionItemKind.Field,
    "module": lsp.CompletionItemKind.Module,
    "fn": lsp.CompletionItemKind.Function,
    "task": lsp.CompletionItemKind.Event,
    "const": lsp.CompletionItemKind.Constant,
}
SYMBOLS = {
    "fn": lsp.SymbolKind.Function,
    "task": lsp.SymbolKind.Event,
    "const": lsp.SymbolKind.Constant,
    "param": lsp.SymbolKind.TypeParameter,
}


def path_of(uri: str) -> Path:
    """Return the file of a URI."""
    return Path(unquote(urlparse(uri).path))


def made_range(document: TextDocument, start: int, end: int) -> lsp.Range:
    """Return two offsets of a document as the client counts."""
    return lsp.Range(document.client_position_at_offset(start), document.client_position_at_offset(end))


class CslServer(LanguageServer):
    """A server talks with one client.

    Attributes
    ----------
    sources : harness.editor.projects.Workspace
    """

    def __init__(self) -> None:
        super().__init__("wse-csl", __version__)
        self.sources = Workspace()
        self.told: set[Path] = set()

    def document(self, path: Path) -> TextDocument:
        """Return a file as a document."""
        return self.workspace.get_text_document(path.as_uri())

    def place(self, params: Any) -> tuple[Path, int]:
        """Return the file and the offset that a request asks about."""
        document = self.workspace.get_text_document(params.text_document.uri)
        return path_of(params.text_document.uri), document.offset_at_position(params.position)

    def look(self, path: Path) -> None:
        """Send the messages of all sources that belong to the layouts of a source."""
        found = self.sources.messages(path)
        for file in self.told - set(found):
            found[file] = []
        self.told = {file for file, messages in found.items() if messages} | {path.resolve()}
        for file, messages in found.items():
            document = self.document(file)
            items = [self.item(document, entry) for entry in messages]
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(file.as_uri(), items))

    def item(self, document: TextDocument, entry: Diagnostic) -> lsp.Diagnostic:
        """Return a message of the compiler as the protocol has it."""
        text = entry.message + (f"\nhint: {entry.hint}" if entry.hint else "")
        notes = [
            lsp.DiagnosticRelatedInformation(lsp.Location(span.source.path.resolve().as_uri(), self.span(span)), note)
            for note, span in entry.notes
            if span.source.path is not None
        ]
        return lsp.Diagnostic(
            made_range(document, entry.span.start, max(entry.span.end, entry.span.start + 1)),
            text,
            severity=SEVERITY[entry.severity],
            source="wse csl",
            related_information=notes or None,
        )

    def span(self, span: Span) -> lsp.Range:
        """Return a place of a source that need not be open."""
        assert span.source.path is not None
        document = TextDocument(span.source.path.as_uri(), span.source.text)
        return made_range(document, span.start, span.end)


def make_server() -> CslServer:
    """Return a server; ``start_io()`` speaks with an editor over standard input and output."""
    server = CslServer()
    for name, answer in ANSWERS.items():
        server.feature(name, *OPTIONS.get(name, ()))(_bound(server, answer))
    return server


def _bound(server: CslServer, answer: Callable[[CslServer, Any], Any]) -> Callable[[Any], Any]:
    """Return an answer that knows its server."""

    def ask(params: Any) -> Any:
        return answer(server, params)

    return ask


def _initialized(server: CslServer, params: Any) -> None:
    root = server.workspace.root_path
    server.sources.root = Path(root) if root else None


def _opened(server: CslServer, params: lsp.DidOpenTextDocumentParams) -> None:
    path = path_of(params.text_document.uri)
    server.sources.change(path, params.text_document.text)
    server.look(path)


def _changed(server: CslServer, params: lsp.DidChangeTextDocumentParams) -> None:
    path = path_of(params.text_document.uri)
    server.sources.change(path, server.workspace.get_text_document(params.text_document.uri).source)
    server.look(path)


def _saved(server: CslServer, params: lsp.DidSaveTextDocumentParams) -> None:
    server.look(path_of(params.text_document.uri))


def _closed(server: CslServer, params: lsp.DidCloseTextDocumentParams) -> None:
    server.sources.change(path_of(params.text_document.uri), None)


def _hover(server: CslServer, params: lsp.HoverParams) -> lsp.Hover | None:
    text = explained(server.sources, *server.place(params))
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text)) if text else None


def _definition(server: CslServer, params: lsp.DefinitionParams) -> lsp.Location | None:
    found = declared(server.sources, *server.place(params))
    if found is None:
        return None
    start, end = (found.declaration.start, found.declaration.end) if found.declaration else (0, 0)
    document = TextDocument(found.path.as_uri(), found.outline.text)
    return lsp.Location(found.path.as_uri(), made_range(document, start, end))


def _completion(server: CslServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
    path, offset = server.place(params)
    return [
        lsp.CompletionItem(
            each.label,
            kind=KINDS.get(each.kind, lsp.CompletionItemKind.Variable),
            detail=each.detail or None,
            # The `@` stands there already.
            insert_text=each.label.removeprefix("@"),
            filter_text=each.label.removeprefix("@"),
        )
        for each in complete(server.sources, path, offset)
    ]


def _formatting(server: CslServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
    document = server.workspace.get_text_document(params.text_document.uri)
    try:
        text = formatted(Source(document.uri, document.source))
    except CslError:
        return []  # its message is shown already
    return [lsp.TextEdit(made_range(document, 0, len(document.source)), text)] if text != document.source else []


def _symbols(server: CslServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    document = server.workspace.get_text_document(params.text_document.uri)
    outline = Outline(document.source)
    found = []
    for each in outline.exported():
        where = made_range(document, each.start, each.end)
        found.append(lsp.DocumentSymbol(each.name, SYMBOLS.get(each.kind, lsp.SymbolKind.Variable), where, where))
    return found


ANSWERS: dict[str, Callable[[CslServer, Any], Any]] = {
    lsp.INITIALIZED: _initialized,
    lsp.TEXT_DOCUMENT_DID_OPEN: _opened,
    lsp.TEXT_DOCUMENT_DID_CHANGE: _changed,
    lsp.TEXT_DOCUMENT_DID_SAVE: _saved,
    lsp.TEXT_DOCUMENT_DID_CLOSE: _closed,
    lsp.TEXT_DOCUMENT_HOVER: _hover,
    lsp.TEXT_DOCUMENT_DEFINITION: _definition,
    lsp.TEXT_DOCUMENT_COMPLETION: _completion,
    lsp.TEXT_DOCUMENT_FORMATTING: _formatting,
    lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL: _symbols,
}
"""Each method of the protocol is answered by one of these functions."""
OPTIONS = {lsp.TEXT_DOCUMENT_COMPLETION: (lsp.CompletionOptions(trigger_characters=["@", "."]),)}
