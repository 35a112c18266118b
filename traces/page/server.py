"""A run in a browser, part by part: the pages of a file that is too large for one, made as they are asked for.

The server listens on this machine alone, and an address without its token is not known: other users of the machine and
pages of the web have neither.  It answers questions; nothing that it is sent changes anything.
"""

from __future__ import annotations

import functools
import hmac
import html
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from traces.page.parts import RunParts
from traces.page.write import page_text
from wse_core.errors import WseError

__all__ = ["RunServer"]

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""Names by which a browser may call the server; a page of the web that resolves its own name to here has another."""
HTTP_PORT = 80
"""This port is left out of an address by browsers."""
KEPT = 4
"""So many pages are kept, for a reader who goes back."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RunServer(ThreadingHTTPServer):
    """A `RunServer` shows the parts of a run at an address of this machine.

    Parameters
    ----------
    parts : RunParts
        Of a trace that stays open as long as the server.
    port : int, optional
        Default: one that is free.

    Raises
    ------
    OSError
        The port is not free.
    """

    daemon_threads = True

    def __init__(self, parts: RunParts, port: int = 0) -> None:
        super().__init__((HOST, port), _Answer)
        self.parts, self.token = parts, secrets.token_urlsafe(16)
        self._lock = threading.Lock()  # HDF5 reads one thing at a time
        self._page = functools.lru_cache(KEPT)(lambda number: page_text(parts.columns(number)).encode("utf-8"))

    @property
    def address(self) -> str:
        """A browser opens this address."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that left before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def page(self, number: int) -> bytes:
        """Return the page of a part, read from the file unless it was just shown."""
        with self._lock:
            return self._page(number)


class _Answer(BaseHTTPRequestHandler):
    """An `_Answer` is given to one request."""

    server: RunServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "wse", ""
    timeout = 60

    def do_GET(self) -> None:
        """Send a page, or say that there is none."""
        name, _, port = self.headers.get("Host", "").partition(":")
        token, _, rest = self.path.split("?", 1)[0].lstrip("/").partition("/")
        if name not in NAMES or (port or str(HTTP_PORT)) != str(self.server.server_port):
            self._say(HTTPStatus.MISDIRECTED_REQUEST, "This server answers by the address that wse serve printed.")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._say(HTTPStatus.NOT_FOUND, "Not here. The address that wse serve printed has a token; copy all of it.")
        elif not rest:
            self._send(HTTPStatus.FOUND, b"", Location=f"/{token}/0")
        elif not rest.isdecimal() or not rest.isascii() or len(rest) > 9 or int(rest) >= len(self.server.parts):
            self._say(HTTPStatus.NOT_FOUND, f"The run has parts 0 to {len(self.server.parts) - 1}.")
        else:
            try:
                self._send(HTTPStatus.OK, self.server.page(int(rest)))
            except WseError as error:
                self._say(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    do_HEAD = do_GET

    def _say(self, status: HTTPStatus, text: str) -> None:
        """Send one sentence as a page."""
        page = f"<!doctype html><meta charset=utf-8><title>wse serve</title><p>{html.escape(text)}</p>"
        self._send(status, page.encode("utf-8", "replace"))

    def _send(self, status: HTTPStatus, body: bytes, **headers: str) -> None:
        """Send an answer; of a question about its head alone, no more."""
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Leave the terminal as it is."""
