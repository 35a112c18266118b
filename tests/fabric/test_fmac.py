"""``num.fmac``: multiply-adds that round once, or the product and then the sum, in both engines."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.host.fabric import Fabric
from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.program.functions import EvaluatedFunctions
from fabric.program.program import Program
from harness.cli.cmd_kernel import run_kernel
from tests.fabric.kernels.test_registry import SMALL
from wse_core import numerics, vector
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.params import machine

N = 50
WAYS = ("scalar", "short", "whole", "strided", "sent", "received")


def bits(rng, fmt, n=N):
    values = rng.standard_normal(n) * 2.0 ** rng.integers(-6, 6, n)
    return np.asarray(numerics.encode(values, fmt, 42))


def program(way, fmt, m, operands):
    """Return a `Layout` of a PE that multiplies and adds in one of several ways; the result is ``y``."""
    half = fmt != "f32"
    p = Program("one", m, half="cb16" if fmt == "cb16" else "f16")
    b, c, d = operands
    x, z = p.array("x", N, fmt), p.array("z", 2 * N, fmt)
    y = p.array("y", 2 * N if way == "strided" else N, fmt)
    factor = p.reg16("factor") if half else p.reg32("factor")
    load, move, fmac = (p.ld16, p.mov16, p.fmach) if half else (p.ld32, p.mov32, p.fmacs)
    store = p.st16 if half else p.st32
    k = p.array("k", 1, fmt)
    into, out = p.fabin(p.input_queue(2, 4), N, dtype=fmt), p.fabout(p.output_queue(3, 4), N, dtype=fmt)
    with p.task("main"):
        load(factor, k)
        if way == "scalar":
            one, two = (p.reg16("one"), p.reg16("two")) if half else (p.reg32("one"), p.reg32("two"))
            for at in range(N):
                load(one, z, at * (1 if half else 2))
                load(two, x, at * (1 if half else 2))
                fmac(one, one, two, factor)
                store(one, y, at * (1 if half else 2))
        elif way == "short":
            for at in range(0, N, 2):
                fmac(p.mem1d(y, 2, offset=at), p.mem1d(z, 2, offset=at), p.mem1d(x, 2, offset=at), factor)
        elif way == "whole":
            fmac(y, p.mem1d(z, N), x, factor)
        elif way == "strided":
            fmac(p.mem1d(y, N, stride=2), p.mem1d(z, N), x, factor)
        elif way == "sent":
            fmac(out, p.mem1d(z, N), x, factor, async_=True)
            move(y, into)
        else:
            move(out, x, async_=True)
            fmac(y, p.mem1d(z, N), into, factor)
    p.start("main")
    layout = Layout(1, 1, m)
    layout.place(p, 0, 0)
    layout.route(4, (0, 0, 1, 1), rx="R", tx="R")
    return layout, (("x", c), ("z", np.concatenate([b, b])), ("k", d))


@pytest.mark.parametrize("rule", ["fused", "separate"])
@pytest.mark.parametrize("fmt", ["f16", "cb16", "f32"])
@pytest.mark.parametrize("way", WAYS)
def test_both_engines_round_as_the_machine_says(way, fmt, rule):
    rng = np.random.default_rng(7)
    m = machine("wse2", {"num.fmac": rule})
    b, c, d = bits(rng, fmt), bits(rng, fmt), bits(rng, fmt, 1)
    found = []
    for backend in ("compiled", "reference"):
        layout, values = program(way, fmt, m, (b, c, d))
        fabric = Fabric(layout, backend=backend)
        for name, given in values:
            address = fabric.spec.programs[0].symbols[name].address
            fabric.engine.write_words(0, 0, address, np.ascontiguousarray(given).view(np.uint16))
        fabric.run()
        symbol = fabric.spec.programs[0].symbols["y"]
        words = np.array(fabric.engine.read_words(0, 0, symbol.address, symbol.words), np.uint16)
        found.append(words.view(b.dtype)[:: 2 if way == "strided" else 1])
    wanted = Arithmetic.of(m, fmt).call("fma", c, np.broadcast_to(d, c.shape), b)
    assert np.array_equal(found[0], wanted)
    assert np.array_equal(found[1], wanted)
    other = numerics.fma(c, np.broadcast_to(d, c.shape), b, fmt, 42, fused=rule != "fused")
    assert not np.array_equal(wanted, other)


def test_unfused_is_a_product_and_a_sum():
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(1000).astype(np.float32) for _ in range(3))
    found = numerics.fma(*(x.view(np.uint32) for x in (a, b, c)), "f32", fused=False)
    assert np.array_equal(found.view(np.float32), a * b + c)
    a, b, c = (rng.standard_normal(1000).astype(np.float16) for _ in range(3))
    found = numerics.fma(*(x.view(np.uint16) for x in (a, b, c)), "f16", fused=False)
    assert np.array_equal(found.view(np.float16), a * b + c)


def test_products_of_matrices_round_alike():
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((6, 9)).astype(np.float32), rng.standard_normal((9, 40)).astype(np.float32)
    wanted = np.zeros((6, 40), np.float32)
    for k in range(9):
        wanted = a[:, k : k + 1] * b[k : k + 1] + wanted
    found = vector.product(a.view(np.uint32), b.view(np.uint32), np.zeros((6, 40), np.uint32), "f32", fused=False)
    assert np.array_equal(found.view(np.float32), wanted)


def test_mixed_products_are_exact_either_way():
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(500).astype(np.float16) for _ in range(2))
    c = rng.standard_normal(500).astype(np.float32)
    found = numerics.fma_mixed(a.view(np.uint16), b.view(np.uint16), c.view(np.uint32), "f16")
    assert np.array_equal(found.view(np.float32), a.astype(np.float32) * b.astype(np.float32) + c)


@pytest.mark.parametrize(
    "name", [name for name in SMALL if name in ("gemv", "gemm", "gemm_t", "stencil", "stencil25", "spmv")]
)
def test_kernels_compare_with_what_the_machine_does(name):
    """Their own comparison of every bit is the test."""
    result = run_kernel(KERNELS[name], machine("wse2", {"num.fmac": "separate"}), SMALL[name])
    assert result["cycles"] > 0


def test_functions_follow_the_machine():
    x = np.linspace(-3, 3, 101, dtype=np.float32).view(np.uint32)
    fused, separate = (EvaluatedFunctions(machine("wse2", {"num.fmac": rule})).exp(x) for rule in ("fused", "separate"))
    assert np.abs(fused.view(np.int32) - separate.view(np.int32)).max() <= 2


def test_another_rule_is_refused():
    with pytest.raises(ConfigError, match="num.fmac"):
        machine("wse2", {"num.fmac": "sometimes"})
