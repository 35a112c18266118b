"""Closed forms of all kernels against what the programs measure: random parameters, random machines."""

from __future__ import annotations

from random import Random

import pytest

from fabric.kernels.registry import KERNELS
from tests.examples import some
from tests.fabric.kernels.random_kernels import SIZES, machine_numbers, parameters
from wse_core.errors import ConfigError
from wse_core.params import machine

BOUNDS = {"allgather"}
"""Kernels whose cycles have a lower bound and no closed form."""
MEAN, WORST = 0.03, 0.08
RUNS = some(30)


def runs(name, which, count=RUNS):
    """Yield results of runs; what a machine has no room for is drawn again."""
    seed = 0
    while count:
        r = Random(f"{name} {which} {seed}")
        seed += 1
        overrides, values = machine_numbers(r, which), parameters(r, name)
        try:
            result = KERNELS[name].run(machine("wse2", overrides), **values)
        except ConfigError:
            continue
        assert result["verified"], (values, overrides)
        count -= 1
        yield result, (values, overrides)


def test_every_kernel_is_drawn():
    assert set(SIZES) == set(KERNELS)


@pytest.mark.parametrize("which", ["none", "hop", "all"])
@pytest.mark.parametrize("name", sorted(set(KERNELS) - BOUNDS))
def test_closed_forms(name, which):
    errors = []
    for result, case in runs(name, which):
        errors.append(abs(result["expected_cycles"] / result["cycles"] - 1))
        assert errors[-1] <= WORST, (result["cycles"], result["expected_cycles"], case)
    assert sum(errors) / len(errors) <= MEAN


@pytest.mark.parametrize("which", ["none", "hop", "all"])
@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_bounds_are_named_so_and_hold(name, which):
    for result, case in runs(name, which):
        assert "expected_cycles" not in result
        assert result["lower_bound"] <= result["cycles"], (result["lower_bound"], result["cycles"], case)


def test_few_kernels_keep_a_bound():
    assert len(BOUNDS) <= 3
