"""Two machines side by side: a case, its run on both, and the first difference between what they show.

A `Case` is a random machine with what the host sends and the places where runs are cut.  `seeded` makes the one that
belongs to a seed, `cases` is a strategy whose failing examples hypothesis makes small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from fabric.asm import disasm
from fabric.engine.engine import Engine
from tests.draw import Seeded, drawn
from tests.random_machines import random_inputs, random_spec
from wse_core.image import DIRS
from wse_core.reference.machine import ReferenceMachine

__all__ = [
    "Case",
    "cases",
    "compare",
    "difference",
    "drawn_cases",
    "fault_of",
    "memory",
    "run_alike",
    "seeded",
    "state_of",
    "step_sizes",
]

LIMIT = 400
SEEDED = 7


def step_sizes(rng):
    """Yield cycle counts: single steps, then longer ones, so that running ahead is cut at random places."""
    style = rng.randrange(0, 3)
    while True:
        yield 1 if style == 0 else rng.randint(1, 7) if style == 1 else rng.choice((1, 50, 400))


@dataclass
class Case:
    """A random machine, the bursts that the host sends first, and an iterator over cycles to run at a time.

    `places`: (output stream, cycles from which the host takes wavelets there) for those that it does not empty at once.
    """

    spec: object
    inputs: list
    sizes: object
    name: str = ""
    places: tuple = ()

    def __repr__(self):
        spec = self.spec

        lines = [f"{self.name}{spec.width} x {spec.height} PEs, {spec.machine}, programs {spec.program_index.tolist()}"]
        for program in spec.programs:
            lines += [f"program {program.name}, active {program.active:#x}:", disasm.listing(program)]
        for color, table in spec.routes.items():
            for y, x in zip(*np.nonzero(table["valid"]), strict=True):
                ways = [f"{_ways(rx)}>{_ways(tx)}" for rx, tx in zip(table["rx"][y, x], table["tx"][y, x], strict=True)]
                lines.append(f"color {color} at ({x}, {y}): {' '.join(ways)}")
        return "\n".join([*lines, f"inputs {spec.inputs}, outputs {spec.outputs}, sent {self.inputs}"])

    def start(self, machine):
        """Hand the machine what the host sends; return it."""
        for burst in self.inputs:
            machine.push_input(*burst)
        for index, cycles in self.places:
            machine.limit_output(index, cycles)
        for index in range(len(self.spec.inputs)):
            machine.entered(index)  # from here on both keep when words enter
        return machine


def _ways(mask):
    """Return the letters of a mask of directions."""
    return "".join(letter for d, letter in enumerate(DIRS) if mask >> d & 1) or "-"


def _case(rng, make, plain, name=""):
    spec = make(rng, True) if plain else make(rng)
    inputs = list(random_inputs(rng, spec, plain))
    return Case(spec, inputs, step_sizes(rng if isinstance(rng, Seeded) else rng.noise()), name)


def seeded(seed, make=random_spec, plain=False):
    """Return the `Case` of a seed; `make` is `random_spec`, `random_traffic` ..."""
    return _case(Seeded(seed), make, plain, f"seed {seed}: ")


def drawn_cases(make=random_spec, plain=False):
    """Return a strategy for a `Case` drawn choice by choice; simple ones have few PEs and default numbers."""
    return drawn(lambda rng: _case(rng, make, plain))


def cases(make=random_spec, plain=False):
    """Return a strategy for a `Case` of either origin.

    One in `SEEDED` + 1 is drawn, which takes hypothesis a second but can be made small; the others come from a seed,
    which takes milliseconds.  Drawn ones stand first, so that a failure shrinks towards them.
    """
    seeds = st.integers(0, 2**32 - 1).map(lambda seed: seeded(seed, make, plain))
    return st.one_of(drawn_cases(make, plain), *[seeds] * SEEDED)


def fault_of(machine):
    """Return what both machines say about a fault."""
    return {key: machine.fault[key] for key in ("kind", "x", "y", "cycle", "address", "color")}


def state_of(machine, status):
    """Return the snapshot, without the idle cycles at the end of a run that ended: those are by definition."""
    state = machine.snapshot()
    if status != "limit":  # also the slots of a last instruction that takes several
        del state["cycle"]
        for entry in state["pe"].values():
            entry["main"] = {"starting": "run"}.get(entry["main"], entry["main"])
            for name in [name for name in entry["counters"] if name in ("busy", "idle") or name.startswith("stall")]:
                del entry["counters"][name]
    for entry in state["pe"].values():
        entry["fifo"] = {number: len(elements) for number, elements in entry["fifo"].items() if len(elements)}
    return state


def run_alike(workload, one, many, rng, before=lambda: None):
    """Run two engines to the end of a workload, cut at random cycles: they are alike at each, and the result is right.

    `before` is called before each piece.
    """
    for engine in (one, many):
        workload.start(engine)
    cycle, status = 0, "limit"
    while status == "limit":
        cycle += rng.choice((3, 40, 200))
        before()
        status = one.run(cycle)
        assert many.run(cycle) == status
        assert difference(state_of(one, status), state_of(many, status)) is None
    assert (status, one.cycle, one.wavelet_hops) == ("complete", many.cycle, many.wavelet_hops)
    workload.check(many)


def memory(machine, spec):
    """Return {(x, y): words} of the data of every PE with a program."""
    return {
        (x, y): machine.read_words(x, y, p.code_words, p.footprint - p.code_words).tolist()
        for y in range(spec.height)
        for x in range(spec.width)
        if spec.program_index[y, x] >= 0
        for p in (spec.programs[spec.program_index[y, x]],)
    }


def compare(case, limit=LIMIT, make=Engine):
    """Run both machines on a case; raise AssertionError at the first difference.  Return the status."""
    spec = case.spec
    machines = case.start(make(spec)), case.start(ReferenceMachine(spec))
    cycle = 0
    while cycle < limit:
        cycle = min(limit, cycle + next(case.sizes))
        status = [machine.run(cycle) for machine in machines]
        where = f"{case.name}cycle {cycle}"
        if "limit" in status and status[0] != status[1]:
            # One machine has seen that nothing can change any more, the other needs a few idle cycles to see it.
            status = [machine.run(cycle + 50) for machine in machines]
        assert status[0] == status[1], f"{where}: {status[0]} != {status[1]}; faults {[m.fault for m in machines]}"
        if status[0] == "fault":
            assert fault_of(machines[0]) == fault_of(machines[1]), f"{where}: {[m.fault for m in machines]}"
            break
        found = difference(*(state_of(machine, status[0]) for machine in machines))
        assert found is None, f"{where}: {found}"
        found = difference(memory(machines[0], spec), memory(machines[1], spec))
        assert found is None, f"{where}: SRAM {found}"
        for k in range(len(spec.outputs)):
            for a, b in zip(machines[0].pop_output(k), machines[1].pop_output(k), strict=True):
                assert np.array_equal(a, b), f"{where}: output stream {k}: {a} != {b}"
        for k in range(len(spec.inputs)):
            a, b = (machine.entered(k).tolist() for machine in machines)
            assert a == b, f"{where}: words of input stream {k} entered in {a}, {b}"
        if status[0] != "limit":
            assert machines[0].last_active == machines[1].last_active, where
            break
    return status[0]


def difference(a, b, path=""):
    """Return the path and values of the first difference between two snapshots, or None."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b), key=repr):
            if key not in a or key not in b:
                return f"{path}/{key}: only in {'the first' if key in a else 'the second'}: {a.get(key, b.get(key))!r}"
            found = difference(a[key], b[key], f"{path}/{key}")
            if found:
                return found
        return None
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {list(a)!r} != {list(b)!r}"
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            found = difference(x, y, f"{path}[{k}]")
            if found:
                return found
        return None
    return None if a == b else f"{path}: {a!r} != {b!r}"
