"""Plant faults one after the other and say how many of them the tests of their rooms see.

    python -m tests.faults [ROOM ...] [--json] [--least 0.95]

Works on a copy of the tree below build/, compiled modules included, with the tests' ordinary profile.  The exit status
is 1 if a smaller share than `--least` is seen, or if tests fail without a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness.kit.modules import OWN_PACKAGES
from tests.conftest import ROOT
from tests.faults import FaultRoom, rooms

TREE = ROOT / "build" / "tree-faults"
PARTS = (*OWN_PACKAGES, "tools", "tests", "docs")
PATIENCE = 5
"""Tests with a fault may take so many times as long as without one, and two minutes; what hangs them is seen too."""
FAILED = 1  # status of pytest: tests were run, and some failed


def copy_tree() -> None:
    """Make the copy, with everything that tests read."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    for part in PARTS:
        shutil.copytree(ROOT / part, TREE / part, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, TREE)


def ended(room: FaultRoom, limit: float | None = None) -> tuple[int, str]:
    """Return the exit status of the room's tests in the copy, and who failed; `FAILED` if they take more seconds.

    Files whose tests take the least come first, so that most faults are seen in seconds.
    """
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--benchmark-disable"]
    command += ["-m", "not packaging", "-n", str(os.cpu_count() or 1), "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", *room.tests]
    environment = {**os.environ, "PYTHONPATH": str(TREE), "WSE_FIRST_FAILURE": "1"}
    try:
        done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return FAILED, f"more than {limit:.0f} s"
    lines = done.stdout.decode(errors="replace").splitlines()
    return done.returncode, "\n".join(line for line in lines if line.startswith(("E  ", "FAILED", "ERROR")))


def seen_in(room: FaultRoom) -> list[bool]:
    """Return which faults of a room its tests see."""
    begun = time.monotonic()
    status, who = ended(room)
    if status != 0:
        raise SystemExit(f"{room.name}: its tests fail without a fault\n{who}")
    limit = PATIENCE * (time.monotonic() - begun) + 120
    found = []
    for fault in room.faults:
        path = Path(TREE, fault.file)
        text = path.read_text(encoding="utf-8")
        path.write_text(fault.planted(text), encoding="utf-8")
        status, _ = ended(room, limit)
        path.write_text(text, encoding="utf-8")
        if status not in (0, FAILED, 2):  # 2: a module with the fault cannot be imported
            raise SystemExit(f"{room.name}: pytest ended with {status} for {fault.what!r}")
        found.append(status != 0)
        print(f"{room.name}: {'seen' if status else 'NOT SEEN'}: {fault.what}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Plant the faults of the rooms that are named."""
    known = {room.name: room for room in rooms()}
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--least", type=float, default=0.95, help="share of all that must be seen (default: 0.95)")
    given = parser.parse_args()
    unknown = [name for name in given.rooms if name not in known]
    if unknown:
        parser.error(f"no room {unknown[0]!r}; there are {', '.join(known)}")
    copy_tree()
    found = {name: seen_in(known[name]) for name in given.rooms or known}
    total, count = sum(map(sum, found.values())), sum(map(len, found.values()))
    rows = {name: {"faults": len(seen), "seen": sum(seen)} for name, seen in found.items()}
    if given.json:
        print(json.dumps({"rooms": rows, "faults": count, "seen": total, "share": total / count}))
    else:
        for name, row in rows.items():
            print(f"{name:16} {row['seen']:3} of {row['faults']:3} seen")
        print(f"{'all':16} {total:3} of {count:3} seen: {total / count:.1%}")
    return int(total < given.least * count)


if __name__ == "__main__":
    sys.exit(main())
