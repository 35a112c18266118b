"""Does an installed distribution work?  Three commands are run with the environment that runs this file.

    ENVIRONMENT/bin/python tools/release/smoke.py

It is a file, not a module of the project: it imports nothing but the standard library, so that a wheel can be tried
where the source is not.  Commands run in an empty directory, and each must give the cycles that the documentation
states.  The status is 1 if one does not; the digits need the extra ``demo``.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

COMMANDS: dict[str, dict[str, Any]] = {
    "wse doctor": {"problems": []},
    "wse kernel vector op=fmuls n=5124": {"cycles": 5130, "verified": True},
    "wse train digits": {"cycles": 3_746_514, "done": 132},
    "wse generate pydoc --prompt 'An exception object ' --tokens 8 --mesh 8x8": {"bit_exact": True},
}
"""Each command has what its JSON must say."""


def wrong(answer: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return a sentence for each key whose value is another one than wanted."""
    return [
        f"{key} is {answer.get(key)!r} instead of {value!r}"
        for key, value in wanted.items()
        if answer.get(key) != value
    ]


def attempt(command: str, wanted: dict[str, Any], folder: str) -> tuple[list[str], float]:
    """Run a command in a directory; return what is wrong with its answer, and the seconds that it took."""
    wse = Path(sysconfig.get_path("scripts"), "wse")
    words = [str(wse), *shlex.split(command)[1:], "--json"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "WSE_"))}
    begin = time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        return [f"status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"], seconds
    return wrong(json.loads(done.stdout), wanted), seconds


def main() -> int:
    """Run every command, print a line for each, and return 1 if one of them failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for command, wanted in COMMANDS.items():
            problems, seconds = attempt(command, wanted, folder)
            print(f"{command}: {'; '.join(problems) or 'as stated'}, {seconds:.1f} s")
            failed |= bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
