"""Hashes of the decoded columns of small traces: what is recorded of a few kernels must not change unnoticed.

    python -m tests.traces.golden            # compare, say what differs
    python -m tests.traces.golden --renew    # write tests/traces/golden.json anew, after a change that is meant

A change of a modelled number, of a kernel's program or of the kinds of events changes hashes; the number of events per
kind, kept beside them, helps to see what happened.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from traces.trace import Trace
from wse_core.events import EVENT_DTYPE, KINDS, LEVELS, TraceFilter

__all__ = ["CASES", "FILE", "decoded", "record"]

FILE = Path(__file__).with_name("golden.json")
CASES = {
    "chain_reduce": ("chain_reduce", {"pes": 5, "n": 12}),
    "chain_reduce f16": ("chain_reduce", {"pes": 4, "n": 9, "dtype": "f16"}),
    "broadcast 2d": ("broadcast", {"width": 4, "height": 3, "n": 8}),
    "meshgemm": ("gemm", {"p": 3, "m": 6, "k": 6, "n": 6, "algorithm": "meshgemm"}),
    "allreduce ring": ("allreduce", {"algorithm": "ring", "width": 4, "n": 8}),
    "ping": ("ping", {"hops": 5}),
}


def record(case, path, backend="compiled"):
    """Run a case and write its trace to `path`."""
    from fabric.host.engines import around
    from fabric.host.recording import Recorder
    from fabric.kernels.registry import KERNELS
    from traces.run_format import RunMeta
    from traces.writer import RunWriter
    from wse_core.params import machine

    kernel, values = CASES[case]
    wse2 = machine("wse2")
    meta = RunMeta(job=f"kernel {kernel}", machine=dict(wse2), preset="wse2")
    recorder = Recorder(path, meta, TraceFilter(LEVELS["full"]), None, [])
    with around(backend, recorder.watch):
        KERNELS[kernel].run(wse2, **values)
    with RunWriter(path, meta) as writer:
        recorder.finish(writer)
    recorder.log.remove()


def decoded(path):
    """Return what a trace holds: hash of each column, number of events of each kind."""
    with Trace.open(path) as trace:
        events = trace.events()
    columns = {
        name: hashlib.sha256(np.ascontiguousarray(events[name]).tobytes()).hexdigest()[:24]
        for name in EVENT_DTYPE.names
    }
    counts = np.bincount(events["kind"], minlength=len(KINDS))
    return {"columns": columns, "events": {kind: int(n) for kind, n in zip(KINDS, counts, strict=True) if n}}


def main(argv=None):
    """Compare or renew; return 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.traces.golden", description=__doc__.split("\n")[0])
    parser.add_argument("--renew", action="store_true", help=f"write {FILE.name} anew")
    args = parser.parse_args(argv)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            record(case, Path(folder, f"{case}.h5"))
            found[case] = decoded(Path(folder, f"{case}.h5"))
    if args.renew:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    known = json.loads(FILE.read_text(encoding="utf-8"))
    differing = [case for case in CASES if known.get(case) != found[case]]
    for case in differing:
        print(f"{case}: was {json.dumps(known.get(case))}\n{'':{len(case)}}   is {json.dumps(found[case])}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
