"""Random edits of a compiled program by the thousand: ``python -m tests.fuzz_programs [--edits N] [--seed S]``.

Each edit is read, and run if it is accepted, in a process of its own kind that may die of it: a signal is counted with
its seed, and the next process goes on behind it.  `tests/fabric/csl/test_damaged_programs.py` has some hundred of them.
"""

from __future__ import annotations

import argparse
import collections
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from fabric.csl.artefact import bundle_of, read_bundle, write_bundle
from fabric.csl.compile import compile_file
from fabric.host.fabric import Fabric
from tests.fabric.csl.test_damaged_programs import LAYOUT, PE, edited
from wse_core.errors import InternalError, WseError

__all__ = ["main"]


def compiled(there):
    """Compile the program that is edited into a directory; return that of its files."""
    (there / "layout.csl").write_text(LAYOUT, encoding="utf-8")
    (there / "pe.csl").write_text(PE, encoding="utf-8")
    write_bundle(bundle_of(compile_file(there / "layout.csl")), there / "out")
    return there / "out"


def one(program, seed, there):
    """Return what became of an edit: the name of an error, or ``ran``; a traceback is an error of another kind."""
    edited(random.Random(seed), program, there)
    try:
        Fabric(read_bundle(there).spec()).run(max_cycles=2000)
    except InternalError as error:
        return f"INTERNAL {error}"
    except WseError as error:
        return type(error).__name__
    except Exception as error:
        return f"TRACEBACK {type(error).__name__}: {error}"
    return "ran"


def worker(program, first, last, mark):
    """Try a range of seeds, and note each before it is tried."""
    seen = collections.Counter()
    with tempfile.TemporaryDirectory() as there:
        for seed in range(first, last):
            mark.write_text(str(seed), encoding="utf-8")
            seen[one(program, seed, Path(there) / "out")] += 1
    print(dict(seen), flush=True)
    return int(any(name.startswith(("INTERNAL", "TRACEBACK")) for name in seen))


def main(arguments=None):
    """Try all edits; return 1 if one ended in a signal, a traceback or an internal error."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_programs", description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    at, end, failed = given.seed, given.seed + given.edits, 0
    if given.worker:
        return worker(Path(given.worker[0]), at, end, Path(given.worker[1]))
    with tempfile.TemporaryDirectory() as there:
        program, mark = compiled(Path(there)), Path(there) / "mark"
        while at < end:
            words = [sys.executable, "-m", "tests.fuzz_programs", f"--edits={end - at}", f"--seed={at}"]
            done = subprocess.run([*words, "--worker", str(program), str(mark)], check=False)
            if done.returncode >= 0:
                return int(bool(failed or done.returncode))
            at, failed = int(mark.read_text(encoding="utf-8")), failed + 1
            print(f"seed {at}: signal {-done.returncode}", flush=True)
            at += 1
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
