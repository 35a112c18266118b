"""A process that ends itself at a counted moment, as if somebody had killed it then.

Moments are counted in calls of functions, Python's and built-in ones, of the main thread: the same ones on a fast host
and on a loaded one, between any two of which something may be half-done.  No handler runs and no buffer is written, as
with any ``kill -9``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile

__all__ = ["Countdown", "Victims"]


class Countdown:
    """Counts calls from now on; ends the process at one of them.

    Parameters
    ----------
    calls : float
        At which one to end; infinite to count only.  May be changed at any time.
    """

    def __init__(self, calls=float("inf")):
        self.calls, self.count = calls, 0
        sys.setprofile(self._event)

    def _event(self, frame, event, _):
        self.count += event in ("call", "c_call")
        if self.count >= self.calls:
            names = []
            while frame is not None:
                names.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}")
                frame = frame.f_back
            os.write(2, f"killed in {' '.join(names)}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)


class Victims:
    """Processes that do the same and are killed, without an interpreter that starts and imports for each.

    One process runs `code`, which imports and defines ``case``; for each case a copy of it is forked that calls
    ``case(*words)``.  It starts no thread itself, so nothing is lost in a copy.

    Parameters
    ----------
    code : str
    cwd : path-like
    env : dict
    """

    def __init__(self, code, cwd, env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tests.killed import serve; serve()", code],
            cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate()

    def run(self, *words):
        """Run a case; return its exit status as that of a finished process, and what it wrote as an error."""
        with tempfile.NamedTemporaryFile("r") as said:
            self.process.stdin.write(json.dumps([said.name, words]) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline()), said.read()


def serve():
    """Run what `Victims` asks for until it goes."""
    space = {}
    exec(sys.argv[1], space)
    for line in sys.stdin:
        said, words = json.loads(line)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for number, file in enumerate((nowhere, nowhere, os.open(said, os.O_WRONLY))):
                    os.dup2(file, number)
                space["case"](*words)
                status = 0
            finally:
                os._exit(status)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)
