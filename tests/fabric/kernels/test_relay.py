"""SUMMA routed by software: what is handed on, what it costs beside routers, and its closed form."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.kernels.kit.plmr import gemm_plan
from fabric.kernels.matmul.gemm import make
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.matmul.relay import SummaRelay
from fabric.kernels.matmul.relay_cycles import SIDES, STEPS, relay_cycles
from fabric.kernels.registry import KERNELS
from tests.examples import SLOW_BUILD
from tests.fabric.kernels.test_gemm import product_run
from wse_core.params import machine


def test_a_tile_stops_at_every_core():
    """No route is longer than a link, and every PE takes each foreign tile once and sends on what others need."""
    w, h, t = 4, 3, 6
    product, session, _, _ = product_run("summa-relay", w, h, h * t, 12 * t, w * t, "f32")
    spec = product.layout.build()
    ramp = 1 << 4
    for table in spec.routes.values():
        used = table[table["valid"] != 0]
        for name in ("rx", "tx"):
            assert set(used[name].ravel().tolist()) - {0}
        assert all((rx == ramp) != (tx == ramp) for rx, tx in zip(used["rx"][..., 0], used["tx"][..., 0], strict=True))
    counters = session.fabric.counters()
    a, b = product.wavelets
    steps = product.slices
    taken = steps * (a * (w - 1) // w + b * (h - 1) // h)
    assert (counters["received"] == taken).all()
    # An end sends its own tiles to one side; a PE inside its own to both, and every other one on.
    sent_a = steps // w * a * np.array([1, w + 1, w + 1, 1])
    sent_b = steps // h * b * np.array([1, h + 1, 1])
    assert (counters["sent"] == sent_a + sent_b[:, np.newaxis]).all()


def test_the_bits_are_those_of_summa():
    for dtype, sums in (("f16", "same"), ("cb16", "f32"), ("f32", "f32")):
        found = [product_run(name, 3, 4, 7, 25, 8, dtype, sums)[2] for name in ("summa", "summa-relay")]
        assert np.array_equal(*found)


@pytest.mark.parametrize("sides", [(2, 1), (5, 1), (1, 6), (2, 2), (7, 1)])
def test_to_the_cycle_along_a_line(sides):
    w, h = sides
    for t in (1, 4) if SLOW_BUILD else (1, 3, 4, 10):
        product, _, _, cycles = product_run("summa-relay", w, h, h * t, max(w, h) * t, w * t, "f32")
        assert cycles == product.expected()


@pytest.mark.parametrize("tile", [1, 2, 4] if SLOW_BUILD else [1, 2, 4, 12])
def test_squares(tile):
    p = 5 if SLOW_BUILD else 9
    product, _, _, cycles = product_run("summa-relay", p, p, p * tile, p * tile, p * tile, "f32")
    assert cycles == pytest.approx(product.expected(), rel=0.02)


def test_routers_are_worth_two_slots_a_wavelet():
    """Against broadcasts: the same product, and per step at least two slots more for each wavelet that is handed on."""
    p, t = 6, 8
    relay, _, _, slow = product_run("summa-relay", p, p, p * t, p * t, p * t, "f32")
    _, _, _, fast = product_run("summa", p, p, p * t, p * t, p * t, "f32")
    assert slow - fast > (p - 2) * sum(relay.wavelets)
    assert slow < 2 * fast


def test_large_meshes_are_continued():
    """What is continued by a line is near what is followed step by step, and takes no longer on any mesh."""
    shape = make("summa-relay", machine(), Problem(2, 2, 8, 8, 8, "f32")).shape
    side = SIDES[1] + (4 if SLOW_BUILD else 12)
    whole = relay_cycles(machine(), side, side, side, (1, 1), (16, 16), shape)
    low, high = (relay_cycles(machine(), n, n, n, (1, 1), (16, 16), shape) for n in (SIDES[1], SIDES[1] - 4))
    assert whole == pytest.approx(low + (side - SIDES[1]) * (low - high) / 4, rel=0.02)
    w, h = 11, 12
    product, _, _, cycles = product_run("summa-relay", w, h, 2 * h, w * h, w, "f32")
    assert product.slices > STEPS
    assert cycles == pytest.approx(product.expected(), rel=0.03)


def test_a_whole_wafer_has_routes_enough():
    """What the published SUMMA is refused for: 2 n routes; the kernel asks for sixteen colors at any size."""
    product = SummaRelay.__new__(SummaRelay)
    product.machine, product.width, product.height, product.slices = machine(), 720, 720, 720
    assert len(product.colors) == gemm_plan("summa", 720, 1, routing="software").routes == 8
    assert product.way == 1


def test_a_choice_of_another_algorithm_is_refused():
    with pytest.raises(Exception, match="summa-relay has no such choice"):
        KERNELS["gemm"].run(machine(), p=2, m=4, k=4, n=4, algorithm="summa-relay", buffers=2)
