"""A fault that is planted in one of two machines is found, and the example that shows it is a small one."""

from __future__ import annotations

import dataclasses
import itertools
import random

import hypothesis

from fabric.engine.engine import Engine
from tests.compare import compare, drawn_cases, seeded
from tests.random_traffic import random_traffic
from tests.random_vectors import random_vectors
from wse_core import isa
from wse_core.params import machine


def starts_late(spec):
    """Return an engine whose vector operations start a cycle later."""
    numbers = spec.machine
    slow = machine(numbers.preset, {**numbers, "vec.start": numbers["vec.start"] + 1})
    return Engine(dataclasses.replace(spec, machine=slow))


def differs(case):
    """Whether the planted fault shows."""
    case.sizes = itertools.repeat(60)
    try:
        compare(case, 120, make=starts_late)
    except AssertionError:
        return True
    return False


def instructions(case):
    """Return the operations of all programs."""
    return [op for program in case.spec.programs for _, op, *_ in isa.decode(program.code.tolist())]


def test_a_planted_fault_shrinks_to_one_vector_operation():
    """Of up to five operations in a loop, on any of many machines, one is left, on the machine as it comes."""
    settings = hypothesis.settings(
        max_examples=500, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    found = hypothesis.find(drawn_cases(random_vectors), differs, settings=settings, random=random.Random(1))
    names = [op.name for op in instructions(found)]
    assert len([name for name in names if name in ("fadds", "fsubs", "fmuls", "fmacs")]) == 1, names
    assert len(names) <= 12, names  # the frame has ten: registers, descriptors, the loop
    assert found.spec.machine == machine("wse2")


def test_a_seed_makes_the_machine_it_always_made():
    """A note that names a seed must find its case again, at least while operations and numbers are the same ones."""
    spec = seeded(3, random_traffic).spec
    masks = int(sum(table["rx"].sum() + table["tx"].sum() for table in spec.routes.values()))
    changed = {"ce.load_latency": 3, "ce.fp_latency": 4, "ce.dsr_load": 1, "ce.dsr_dimension": 0}
    assert spec.machine == machine("wse2", {**changed, "vec.drain": 2, "router.depth": 3})
    assert (spec.width, spec.height, masks) == (5, 4, 88)
