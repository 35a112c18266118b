"""Random statements, functions, structs, pointers and vectors: what a PE leaves in memory is what Python leaves."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fabric.csl.random_programs import make
from tests.fabric.csl.random_values import NUMPY, TooLong
from tests.fabric.csl.running import run_task

RECORD = {"a": ("i2", 0), "b": ("u4", 2), "c": ("f4", 4), "d": ("u2", 6)}
"""Fields of the struct with type and word."""


def differences(seed, directory):
    """Return the globals that differ after a program has run, with both values; None if it takes too long."""
    program = make(seed)
    try:
        wanted = program.run()
    except (TooLong, RecursionError):
        return None
    results = {name: NUMPY[kind] for name, kind in program.kinds.items()} | {"s_record": "u2", "t_record": "u2"}
    found = run_task(directory, program.body, *program.declarations, results=results)
    wrong = {}
    for name, kind in program.kinds.items():
        expected = wanted[name] if isinstance(wanted[name], list) else [wanted[name]]
        got = found[name][: len(expected)]
        if NUMPY[kind].startswith("f"):
            goal = np.array(expected, NUMPY[kind])
            same = (got == goal) | (np.isnan(got) & np.isnan(goal))
        else:
            goal = np.array([int(value) for value in expected], np.int64)
            same = got.astype(np.int64) == goal
        if not same.all():
            wrong[name] = (got.tolist(), goal.tolist())
    for name in ("s_record", "t_record"):
        for part, (kind, at) in RECORD.items():
            got = found[name][at : at + 2 if kind[1] == "4" else at + 1].view(kind)[0]
            if got != wanted[name][part] and not (got != got and wanted[name][part] != wanted[name][part]):
                wrong[f"{name}.{part}"] = (got, wanted[name][part])
    return wrong


@examples(60)
@given(seed=st.integers(0, 1 << 40))
def test_programs(tmp_path_factory, seed):
    assert not differences(seed, tmp_path_factory.mktemp("csl")), f"seed {seed}"


def search(first, count):
    """Look for seeds that fail; `python -m tests.fabric.csl.test_random_programs FIRST COUNT` runs for long."""
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as directory:
            try:
                wrong = differences(seed, Path(directory))
            except Exception as error:
                wrong = {type(error).__name__: str(error).splitlines()[:3]}
        if wrong:
            print(seed, wrong, flush=True)
        elif seed % 100 == 0:
            print(seed, "so far", file=sys.stderr, flush=True)


if __name__ == "__main__":
    search(int(sys.argv[1]), int(sys.argv[2]))
