"""Random statements, functions, structs, pointers and vectors: what a PE leaves in memory is what C leaves.

Each program runs with its literals known when it is compiled and unknown, optimised and not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.diagnostics import CslError
from tests.examples import SOAK, examples
from tests.fabric.csl.in_c import outcomes
from tests.fabric.csl.random_programs import make
from tests.fabric.csl.random_values import NUMPY, RECORD
from tests.fabric.csl.running import device_of, run_task

BATCH = 12 if SOAK else 4
"""Programs that gcc compiles at once."""
WORDS = {"a": 0, "b": 2, "c": 4, "d": 6}
"""Words of the struct at which its fields lie."""
FORMS = {
    "known": (True, True),
    "unknown": (False, True),
    "known, plain": (True, False),
    "unknown, plain": (False, False),
}
"""Whether literals are known, and whether passes run."""


def forms_of(seed):
    """Return the ways in which the program of a seed runs: both kinds of literals, one of them without passes too."""
    return ["known", "unknown", ("known, plain", "unknown, plain")[seed % 2]]


def unlike(found, bits, kind):
    """Return what a global holds and should, None if both are the same; one NaN is as good as another."""
    dtype = np.dtype(NUMPY[kind])
    if dtype.kind == "f":
        goal = np.array(bits, f"u{dtype.itemsize}").view(dtype)
        same = (found == goal) | (np.isnan(found) & np.isnan(goal))
    else:
        goal = np.array(bits, np.uint64)
        same = found.astype(np.int64).view(np.uint64) == goal if dtype.kind == "i" else found.astype(np.uint64) == goal
        goal = goal.view(np.int64)
    return None if same.all() else (found.tolist(), goal.tolist())


def differences(program, wanted, form, directory):
    """Return the globals that differ after a program has run, with both values."""
    known, optimise = FORMS[form]
    kinds, counts = program.globals.kinds, program.globals.counts
    results = {name: NUMPY[kind] for name, kind in kinds.items()} | {"s_record": "u2", "t_record": "u2"}
    found = run_task(directory, program.body, *program.declarations(known), results=results, optimise=optimise)
    wrong = {name: unlike(found[name][: counts[name]], wanted[name], kind) for name, kind in kinds.items()}
    for name in ("s_record", "t_record"):
        for part, kind in RECORD.items():
            words = np.dtype(NUMPY[kind]).itemsize // 2
            held = found[name][WORDS[part] : WORDS[part] + words].view(NUMPY[kind])
            wrong[f"{name}.{part}"] = unlike(held, wanted[f"{name}.{part}"], kind)
    return {name: both for name, both in wrong.items() if both is not None}


def wrong_forms(seeds, directory):
    """Return per seed and form what differs, for programs that gcc compiles at once."""
    programs = [make(seed) for seed in seeds]
    for seed, program, wanted in zip(seeds, programs, outcomes(programs, directory), strict=True):
        for form in forms_of(seed) if wanted is not None else ():
            try:
                wrong = differences(program, wanted, form, directory)
            except CslError as error:
                if "the program needs" not in str(error):
                    raise
                continue  # drawn too large for the memory of a PE
            if wrong:
                yield seed, form, wrong


@examples(20, shrink=False)
@given(first=st.integers(0, 1 << 40))
def test_programs(tmp_path_factory, first):
    assert list(wrong_forms(range(first, first + BATCH), tmp_path_factory.mktemp("csl"))) == []


def test_a_wrong_value_is_seen():
    assert unlike(np.array([1, -2], "i2"), [1, (1 << 64) - 2], "i16") is None
    assert unlike(np.array([1, -2], "i2"), [1, 65534], "i16") == ([1, -2], [1, 65534])
    assert unlike(np.array([np.nan, -0.0], "f4"), [0x7FC00001, 0x80000000], "f32") is None
    assert unlike(np.array([1.0], "f2"), [0x3C01], "f16") == ([1.0], [np.float16(1.001)])


def test_without_passes_a_program_does_the_same_in_more_cycles(tmp_path):
    """The switch of the compiler is one: what never changes in a loop is computed in each of its turns."""
    body = "for (@range(u16, n)) |i| { y[i] += (k * 12 + 5) * 3; }"
    names = "var y = @constants([8]i16, 1); var n: u16 = 8; var k: i16 = 2;"
    start = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }"
    files = {"top.csl": f"{names} task job() void {{ {body} }} {start}"}
    devices = [device_of(tmp_path, files, optimise=optimise) for optimise in (True, False)]
    for device in devices:
        device.settle()
        assert device.symbol(0, 0, "y").tolist() == [88] * 8
    assert devices[1].fabric.cycle > 1.5 * devices[0].fabric.cycle


def search(first, count):
    """Look for seeds that fail; `python -m tests.fabric.csl.test_random_programs FIRST COUNT` runs for long."""
    for seed in range(first, first + count, BATCH):
        with tempfile.TemporaryDirectory() as directory:
            try:
                for found in wrong_forms(range(seed, seed + BATCH), Path(directory)):
                    print(*found, flush=True)
            except Exception as error:
                print(seed, type(error).__name__, str(error).splitlines()[:3], flush=True)
        print(seed + BATCH, "so far", file=sys.stderr, flush=True)


if __name__ == "__main__":
    search(int(sys.argv[1]), int(sys.argv[2]))
