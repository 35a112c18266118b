"""Run the suite some times beside busy loops: what fails only then is a defect of a test.

    python -m tests.loaded [--times 10] [--loops 4] [--json] [-- COMMAND ...]

Runs follow each other; each draws other examples.  What each of them says goes to ``build/loaded/N.log``, a line about
it to standard output.  The exit status is 1 if any of them fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.conftest import ROOT

LOGS = ROOT / "build" / "loaded"


@contextlib.contextmanager
def busy(loops: int) -> Iterator[None]:
    """Let so many processes do nothing as fast as they can."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(number: int, command: list[str]) -> dict[str, object]:
    """Run the command once; return its number, status, seconds and last line."""
    log, since = LOGS / f"{number}.log", time.monotonic()
    # Variables of a `make loaded ARGS=...` are not meant for the `make test` that it runs.
    own = {name: value for name, value in os.environ.items() if name not in {"ARGS", "MAKEFLAGS", "MFLAGS"}}
    with log.open("w") as stream:
        done = subprocess.run(command, cwd=ROOT, env=own, stdout=stream, stderr=subprocess.STDOUT, check=False)
    status = done.returncode
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-1:]
    return {"run": number, "status": status, "seconds": round(time.monotonic() - since, 1), "said": told}


def main(given: list[str] | None = None) -> int:
    """Run the suite as arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.loaded", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--times", type=int, default=10, help="runs (default: 10)")
    parser.add_argument("--loops", type=int, default=4, help="busy loops beside them (default: 4)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("command", nargs="*", default=["make", "test"], help="what is run (default: make test)")
    args = parser.parse_args(given)
    LOGS.mkdir(parents=True, exist_ok=True)
    found = []
    with busy(args.loops):
        for number in range(1, args.times + 1):
            found.append(one := run(number, args.command))
            if not args.json:
                verdict = "passed" if one["status"] == 0 else f"status {one['status']}"
                print(
                    f"{number:3} of {args.times}: {verdict}, {one['seconds']} s: {'; '.join(one['said'])}", flush=True
                )
    if args.json:
        print(json.dumps({"loops": args.loops, "command": args.command, "runs": found}))
    return int(not found or any(one["status"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
