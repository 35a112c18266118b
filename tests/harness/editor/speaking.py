"""A client of the language server: JSON-RPC over the pipes of a process, nothing of the library that serves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue

HERE = Path(__file__).resolve().parents[3]
SECONDS = 60


class Client:
    """One session with a server of its own process."""

    def __init__(self, root):
        self.root, self.number, self.told = Path(root), 0, {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness", "csl", "lsp"],
            cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.answers = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        found = self.ask("initialize", {"processId": None, "rootUri": self.root.as_uri(), "capabilities": {}})
        self.capabilities = found["capabilities"]
        self.tell("initialized", {})
        return self

    def __exit__(self, *_):
        try:
            if self.process.poll() is None:
                self.ask("shutdown", None)
                self.tell("exit", None)
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                pipe.close()

    def _read(self):
        stream = self.process.stdout
        while line := stream.readline():
            length = int(line.partition(b":")[2])
            while stream.readline().strip():
                pass
            self.answers.put(json.loads(stream.read(length)))
        self.answers.put(None)

    def _write(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def tell(self, method, params):
        """Send what has no answer."""
        self._write({"method": method, "params": params} if params is not None else {"method": method})

    def ask(self, method, params):
        """Return the answer to a request; messages about sources that come before it are kept."""
        self.number += 1
        self._write({"id": self.number, "method": method, **({"params": params} if params is not None else {})})
        while True:
            message = self.answers.get(timeout=SECONDS)
            assert message is not None, self.process.stderr.read().decode()
            if message.get("method") == "textDocument/publishDiagnostics":
                self.told[message["params"]["uri"]] = message["params"]["diagnostics"]
            elif message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    # ---- sources

    def uri(self, name):
        """Return the address of a file of the workspace."""
        return (self.root / name).resolve().as_uri()

    def open(self, name):
        """Open a file with the text that it has."""
        text = (self.root / name).read_text(encoding="utf-8")
        document = {"uri": self.uri(name), "languageId": "csl", "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})

    def change(self, name, text):
        """Take a whole new text for an open file."""
        document = {"uri": self.uri(name), "version": 2}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def at(self, method, name, place, **more):
        """Ask about a place: (line, character), both from 0."""
        position = {"line": place[0], "character": place[1]}
        return self.ask(
            f"textDocument/{method}", {"textDocument": {"uri": self.uri(name)}, "position": position, **more}
        )

    def messages(self, name):
        """Return the messages of a file, after everything before was worked off."""
        self.ask("textDocument/documentSymbol", {"textDocument": {"uri": self.uri(name)}})
        return self.told.get(self.uri(name), [])
