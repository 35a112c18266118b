"""A headless browser of the Chromium family opens pages for tests, if one is on the machine.

It is spoken to by the DevTools protocol over two pipes: a message is JSON with a zero byte behind it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import selectors
import shutil
import subprocess
import time

import numpy as np
from PIL import Image

__all__ = ["BROWSER", "Browser"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WORDS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --remote-debugging-pipe about:blank"
)
PATIENCE = 600  # seconds for an answer, on a busy host


class Browser:
    """A browser with one page; use it as a context manager.

    Parameters
    ----------
    profile : path-like
        Directory for what the browser writes.

    Attributes
    ----------
    errors : list of str
        Of the scripts of the pages, since the browser was started.
    """

    def __init__(self, profile):
        ours, theirs = os.pipe(), os.pipe()
        # The protocol wants descriptors 3 and 4; a shell can move any to there.
        line = f'exec "$0" {WORDS} --user-data-dir="$1" 3<&{ours[0]} 4>&{theirs[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, BROWSER, str(profile)],
            pass_fds=(ours[0], theirs[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in = ours[1], theirs[0]
        self._number, self._held, self._session, self.errors = 0, b"", None, []

    def __enter__(self):
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        answer = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = answer["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Page.enable")
        return self

    def __exit__(self, *exc_info):
        os.close(self._out)  # the browser ends when nobody speaks to it any more
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._in)

    def ask(self, method, **params):
        """Send a command and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("method") == "Runtime.exceptionThrown":
                details = found["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]

    def _message(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._held:
            with selectors.DefaultSelector() as selector:
                selector.register(self._in, selectors.EVENT_READ)
                assert selector.select(max(0, end - time.monotonic())), "the browser does not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._held += part
        found, _, self._held = self._held.partition(b"\0")
        return json.loads(found)

    def open(self, address, width=1200, height=800, dark=False):
        """Open a page in a window of a size and wait until it says that it is ready."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        end = time.monotonic() + PATIENCE
        while self.run("document.documentElement?.dataset.ready") != "yes":
            assert time.monotonic() < end, self.errors
            time.sleep(0.02)

    def picture(self, selector):
        """Return what a reader sees at a node of the page: an array of its height x width x RGB, in pixels."""
        found = self.run(
            f"(box => [box.x, box.y, box.width, box.height])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        clip = dict(zip(("x", "y", "width", "height"), found, strict=True), scale=1)
        data = self.ask("Page.captureScreenshot", format="png", clip=clip)["data"]
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            return np.asarray(image.convert("RGB"))

    def run(self, script):
        """Return what a script gives; it may wait for something."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")
