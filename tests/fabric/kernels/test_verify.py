"""``verify``: all, a sample that every row and column of PEs takes part in, or nothing; the fraction is said."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from fabric.kernels.kit import verify
from fabric.kernels.kit.session import Session
from fabric.kernels.matmul.gemm import ALGORITHMS, make
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.registry import KERNELS
from harness.cli import main as cli
from tests.fabric.kernels.test_registry import SMALL
from wse_core.params import machine

PRODUCTS = [*ALGORITHMS, "gemm_t"]
HOST = {"host_seconds", "run_seconds", "run_cpu_seconds", "hops_per_second", "pe_cycles_per_second"}
HOST |= {"params", "counters", "arrays"}


def facts(result):
    """Return what of a result does not depend on the host or on the comparison."""
    told = {"verified", "bit_exact", "max_abs_error", "max_bound", "n_results", "n_bounded", "compared_fraction"}
    return {key: value for key, value in result.items() if key not in HOST | told}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_can_be_compared_in_part_or_not_at_all(name):
    full, sample, off = (KERNELS[name].run(machine(), **SMALL[name], verify=mode) for mode in ("full", "sample", "off"))
    assert facts(full) == facts(sample) == facts(off)
    assert (full["verified"], full["compared_fraction"]) == (True, 1.0)
    assert sample["verified"] is True
    assert 0 < sample["compared_fraction"] <= 1
    assert (off["verified"], off["bit_exact"], off["max_abs_error"], off["compared_fraction"]) == (
        None,
        None,
        None,
        0.0,
    )


def product_of(algorithm, width, height, sums="f32"):
    """Return a product, its operands and what the fabric would give."""
    sizes = {"m": 9 * height - 1, "k": 5 * width, "n": 6 * width - 1}
    product = make(algorithm, machine(), Problem(width, height, **sizes, sums=sums))
    rng = np.random.default_rng(3)
    second = (sizes["n"], sizes["k"]) if algorithm == "gemm_t" else (sizes["k"], sizes["n"])
    a, b = product.given.random(rng, (sizes["m"], sizes["k"])), product.given.random(rng, second)
    return product, a, b, product.reference(a, b)


@pytest.mark.parametrize("sums", ["f32", "same"])
@pytest.mark.parametrize("algorithm", PRODUCTS)
def test_a_sample_of_a_product_agrees_and_finds_a_fault_in_any_row_or_column_of_pes(algorithm, sums):
    product, a, b, c = product_of(algorithm, 4, 4, sums)
    with verify.asked_for("sample"):
        sound = product.check(a, b, c)
        assert sound.verified
        assert 0.2 < sound.fraction < 0.4
        for axis in (0, 1):
            for place in range(4):
                at = product.held_by(place, place)[axis]
                wrong = c.copy()
                wrong[at if axis == 0 else slice(None), at if axis == 1 else slice(None)] ^= 1
                assert not product.check(a, b, wrong).bit_exact, (axis, place)


@pytest.mark.parametrize("algorithm", ["ktree", "pipeline", "ring"])
def test_a_sample_of_a_vector_finds_a_fault_in_any_row_of_pes(algorithm, monkeypatch):
    values = {"p": 4, "height": 3, "m": 3 * 40 - 37, "n": 33, "algorithm": algorithm}
    sound = KERNELS["gemv"].run(machine(), **values, verify="sample")
    assert sound["verified"]
    assert sound["bit_exact"]
    assert 1 / 20 < sound["compared_fraction"] < 1 / 6
    read = Session.read
    for row in range(3):

        def wrong(self, symbol, *where, row=row):
            found = read(self, symbol, *where)
            if symbol == "y":
                found = found.copy()
                found[row] ^= 1
            return found

        monkeypatch.setattr(Session, "read", wrong)
        assert KERNELS["gemv"].run(machine(), **values, verify="sample")["bit_exact"] is False, row


@pytest.mark.parametrize("limit", ["ELEMENTS", "PRODUCTS"])
@pytest.mark.parametrize("name", ["gemm", "gemv"])
def test_large_products_are_sampled_unless_asked_for_in_full(name, limit, monkeypatch):
    values = {"gemm": {"p": 3, "m": 9, "k": 9, "n": 9}, "gemv": {"p": 2, "m": 90, "n": 9}}[name]
    assert KERNELS[name].run(machine(), **values)["compared_fraction"] == 1
    monkeypatch.setattr(verify, limit, 100)
    assert 0 < KERNELS[name].run(machine(), **values)["compared_fraction"] < 1
    assert KERNELS[name].run(machine(), **values, verify="full")["compared_fraction"] == 1


def test_the_command_says_the_fraction(capsys):
    words = ["kernel", "gemm", "p=2", "m=8", "k=8", "n=8"]
    for mode, fraction, verified in (("full", 1.0, True), ("sample", 0.5, True), ("off", 0.0, None)):
        assert cli.main([*words, "--verify", mode, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["compared_fraction"], found["verified"], found["params"]["verify"]) == (fraction, verified, mode)
    assert cli.main([*words, "--verify", "sample"]) == 0
    assert re.search(r"compared_fraction +50 % of the results", capsys.readouterr().out)
    assert cli.main([*words, "--verify", "off"]) == 0
    assert re.search(r"verified +not checked", capsys.readouterr().out)
    assert cli.main([*words, "--verify", "off", "verify=full"]) == 2
    assert "verify=full says something else" in capsys.readouterr().err
