"""All distributed matrix products: bits, counts and cycles on any mesh, in any format."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.matmul.gemm import ALGORITHMS, make
from fabric.kernels.matmul.local import product_cycles
from fabric.kernels.matmul.problem import Problem
from fabric.kernels.registry import KERNELS
from tests.examples import SLOW_BUILD, SOAK, examples, few
from tests.fabric.kernels import run
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

NAMES = [*ALGORITHMS, "gemm_t"]
SIDE = st.integers(1, 3 if SLOW_BUILD else 5)
SIZE = st.integers(1, 10 if SLOW_BUILD else 30)
FORMAT = st.tuples(st.sampled_from(["f16", "cb16", "f32"]), st.sampled_from(["f32", "same"]))
DATA = st.sampled_from(["normal", "ones", "special"])


def product_run(name, width, height, m, k, n, dtype="f16", sums="f32", overrides=None, backend=None, **options):
    """Return (product, session, C, cycles) of a product of normal numbers."""
    product = make(name, machine("wse2", overrides or {}), Problem(width, height, m, k, n, dtype, sums), **options)
    rng = np.random.default_rng(5)
    a, b = product.given.random(rng, (m, k)), product.given.random(rng, (n, k) if name == "gemm_t" else (k, n))
    session, c = product.run(a, b, backend=backend)
    assert product.check(a, b, c).verified
    starts, stops = session.stamps(0, 0, width, height)
    return product, session, c, int((stops - starts).max())


@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(st.sampled_from(["wse2", "wse3"]), SIDE, SIDE, SIZE, SIZE, SIZE, FORMAT, DATA, st.integers(0, 1000))
def test_any_mesh_and_size(name, preset, width, height, m, k, n, formats, data, seed):
    options = {} if name == "gemm_t" else {"algorithm": name}
    if name in ("cannon", "meshgemm") and seed % 2:
        options["align"] = "host"
    result = run(
        "gemm_t" if name == "gemm_t" else "gemm",
        preset,
        width=width,
        height=height,
        m=m,
        k=k,
        n=n,
        dtype=formats[0],
        sums=formats[1],
        data=data,
        seed=seed,
        **options,
    )
    steps = math.lcm(width, height)
    rows, columns = 2 * -(-m // (2 * height)), -(-n // (steps if name == "gemm_t" else width))
    depth = -(-k // (width if name == "gemm_t" else steps))
    assert result["macs"] == width * height * steps * rows * depth * columns
    assert result["useful_macs"] == m * k * n
    assert result["arrays"]["c"].shape == (m, n)
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.2 if name == "gemm_t" else 0.12)
    assert 0 < result["lower_bound"] <= result["cycles"]
    assert result["compute_cycles"] + result["align_cycles"] + result["communication_cycles"] == result["cycles"]
    assert result["communication_cycles"] > 0
    assert result["words_per_pe"] <= machine()["mem.words"]
    # Cyclic shifts: three per axis, and three more where its lines are aligned the other way round.
    turned = 6 if options.get("align") == "host" else 12
    assert result["colors_per_pe"] <= {"summa": 2, "summa-relay": 8, "allgather": 2, "gemm_t": 7}.get(name, turned)


@pytest.mark.parametrize("name", ["cannon", "meshgemm"])
@pytest.mark.parametrize(("width", "height"), [(5, 5), (8, 8), (6, 4), (1, 5)])
def test_alignment_goes_the_shorter_way_round(name, width, height):
    """No line turns further than half of its ring, and cycles fall with it."""
    product, session, _, cycles = product_run(name, width, height, 4 * height, 4 * height * width, 3 * width)
    slices = product.slices
    for lines, moved, ring in zip(product.line_turns, product.moved, product.rings.values(), strict=True):
        shorter = np.minimum(moved, slices - moved) if ring.n > 1 else moved
        assert lines.tolist() == shorter.tolist()
    assert session.run.wavelet_hops == product.hops
    assert cycles == pytest.approx(product.expected(), rel=0.03)
    assert len(product.colors) == (12 if min(width, height) > 2 else 3)


@pytest.mark.parametrize(
    ("name", "needed"),
    [("summa", 10), ("summa-relay", 16), ("allgather", 10), ("cannon", 20), ("meshgemm", 20), ("gemm_t", 15)],
)
def test_a_limit_of_the_device_is_refused_by_its_name(name, needed):
    """The PLMR limits: routes, cores and memory; what is just enough is taken."""
    kernel = "gemm_t" if name == "gemm_t" else "gemm"
    options = {} if name == "gemm_t" else {"algorithm": name}
    sizes = {"p": 4, "m": 16, "k": 16, "n": 16} | options
    assert KERNELS[kernel].run(machine("wse2", {"router.colors": needed}), **sizes)["verified"]
    few = machine("wse2", {"router.colors": needed - 1})
    for overrides, changed, limit, asked in (
        (few, {}, "routes", needed),
        (machine(), {"p": 4000}, "width", 4000),
        (machine(), {"m": 800, "k": 800, "n": 800}, "memory", None),
    ):
        with pytest.raises(PlanError, match=f"kernel {kernel}") as caught:
            KERNELS[kernel].run(overrides, **sizes | changed)
        assert caught.value.limit == limit
        assert caught.value.needed == asked if asked else caught.value.needed > caught.value.available


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"ce.config": 18},
        {"vec.start": 2, "vec.drain": 3},
        {"router.hop": 3, "ce.branch_taken": 2, "ce.branch_not_taken": 1},
    ],
)
def test_cycles_follow_the_machine(name, overrides):
    """Tiles of some size, on machines with other latencies; the same formula."""
    p = 3 if SLOW_BUILD else 8 if SOAK else 6
    product, _, _, cycles = product_run(name, p, p, 12 * p, 12 * p, 12 * p, overrides=overrides)
    assert cycles == pytest.approx(product.expected(), rel=0.1 if name == "gemm_t" else 0.03)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("width", "height"), few([(2, 3), (3, 3)], 1))
def test_equals_the_plain_machine_cycle_for_cycle(name, width, height):
    _, first, c, _ = product_run(name, width, height, 5, 4, 6)
    _, second, d, _ = product_run(name, width, height, 5, 4, 6, backend="reference")
    assert first.run.cycles == second.run.cycles
    assert first.run.counters == second.run.counters
    assert np.array_equal(c, d)


@pytest.mark.parametrize("name", NAMES)
def test_slow_router_writes_do_not_upset_anything(name):
    """Small tiles and PEs that are late to take them: a router is turned only after all wavelets have passed."""
    for p, tile in few(((4, 2), (5, 1)), 1):
        _, usual, expected, _ = product_run(name, p, p, p * tile, p * tile, p * tile)
        for config in (1, 40):
            _, late, c, _ = product_run(name, p, p, p * tile, p * tile, p * tile, overrides={"ce.config": config})
            assert np.array_equal(c, expected), config
            assert late.run.counters["macs"] == usual.run.counters["macs"], config


def test_identity_of_a_square():
    """C = A for B = 1: nothing is mixed up, in any algorithm."""
    for name in NAMES:
        product = make(name, machine(), Problem(4, 4, 9, 10, 10))
        a = product.given.random(np.random.default_rng(1), (9, 10))
        _, c = product.run(a, product.given.encode(np.eye(10)))
        assert (c.view(np.float32) == product.given.decode(a)).all()


def test_steps_of_shifts_hide_the_way():
    """A step takes the product, a slot per wavelet moved, and its instructions; the way back of Cannon is paid once."""
    long = 40 if SLOW_BUILD else 200
    cycles = {name: product_run(name, long, 1, 2, long, long, align="host")[3] for name in ("cannon", "meshgemm")}
    difference = cycles["cannon"] - cycles["meshgemm"]
    assert 0 <= difference < long
    if not SLOW_BUILD:
        assert difference > long / 2
    found, _, _, total = product_run("meshgemm", 4, 4, 64, 64, 64, align="host")
    step = product_cycles(found.shape, machine()) + 2 * sum(found.wavelets)
    assert 4 * step - 2 * sum(found.wavelets) < total < 4 * (step + 60)


def test_alignment_is_counted_separately():
    aligned, session, _, total = product_run("meshgemm", 5, 5, 20, 20, 20)
    host, other, _, less = product_run("meshgemm", 5, 5, 20, 20, 20, align="host")
    turns = aligned.align_cycles(session) - host.align_cycles(other)
    assert turns > 0
    assert total - less == pytest.approx(turns, abs=20)
    turned = 1 + 2 + 2 + 1  # lines 0 .. 4, the shorter way round
    assert aligned.hops - host.hops == turned * sum(aligned.wavelets) * aligned.rings["a"].grants


def test_left_matrix_of_gemm_t_does_not_move():
    """All traffic is B along y and sums along x: wavelets that enter the ramps."""
    product, session, _, _ = product_run("gemm_t", 4, 6, 13, 17, 11)
    sent = int(session.fabric.counters()["sent"].sum())
    steps = 12
    assert sent == 24 * product.wavelets[1] * (steps - 1) + steps * 6 * 3 * product.part_wavelets


def test_allgather_is_refused_where_panels_do_not_fit():
    size = {"m": 320, "k": 1024, "n": 320}
    make("meshgemm", machine(), Problem(8, 8, **size))
    with pytest.raises(ConfigError, match="does not fit into the 24576 words"):
        make("allgather", machine(), Problem(8, 8, **size))


def test_memory_of_the_algorithms():
    """Tiles of a square mesh: 5 for summa and the shifts, 2 p + 1 for allgather, a little code besides."""
    p, tile = 8, 32
    problem = Problem(p, p, p * tile, p * tile, p * tile, sums="same")
    words = {name: make(name, machine(), problem).words for name in NAMES}
    for name, tiles in (
        ("summa", 5),
        ("summa-relay", 5),
        ("meshgemm", 5),
        ("cannon", 5),
        ("allgather", 2 * p + 1),
        ("gemm_t", 5),
    ):
        assert tiles * tile**2 < words[name] < tiles * tile**2 + 600


def test_choices_that_do_not_exist():
    with pytest.raises(ConfigError, match="unknown"):
        make("strassen", machine(), Problem(2, 2, 4, 4, 4))
    with pytest.raises(ConfigError, match="no such choice"):
        run("gemm", p=2, algorithm="cannon", buffers=2)
    with pytest.raises(ConfigError, match="exceed"):
        run("gemm", width=100_000, algorithm="meshgemm")


def test_every_pe_has_the_program_of_its_place():
    """Programs are placed in steps; every PE of a larger mesh gets the colors of its ring."""
    product = make("meshgemm", machine(), Problem(13, 20, 26, 260, 13))
    columns, rows = product.kinds_along("a"), product.kinds_along("b")
    assert [back for _, back in rows] == [rank > 130 for rank in 13 * np.array(product.rings["b"].rank)]
    spec = product.layout.build()
    names = np.array([program.name for program in spec.programs])[spec.program_index]
    for y in range(20):
        for x in range(13):
            (x_colors, b_back), (y_colors, a_back) = columns[x], rows[y]
            back = " a back" * a_back + " b back" * b_back
            assert names[y, x] == f"meshgemm {x_colors} {y_colors}{back}"


@pytest.mark.parametrize("name", ["cannon", "meshgemm"])
@pytest.mark.parametrize(("width", "height"), [(3, 1), (5, 1), (1, 3), (1, 5)])
def test_a_line_of_one_pe_moves_nothing_while_it_is_aligned(name, width, height):
    """The closed form holds where tiles of one axis change hands by name only, also with slow links."""
    overrides = {"router.hop": 4, "router.depth": 5}
    product, _, _, cycles = product_run(name, width, height, height, 5, width, overrides=overrides)
    assert product.expected() == pytest.approx(cycles, rel=0.03)
