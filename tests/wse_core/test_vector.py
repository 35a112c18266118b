"""The bulk kernels give the bits of the scalar forms: every operation, format and length, in every kernel set.

A host may lack the instructions of a set; `tests.wse_core.emulated` runs its kernels all the same.
"""

import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import SLOW_BUILD, SOAK, examples, some
from tests.float_mode import MODES, current, float_mode
from tests.wse_core import emulated, exact
from tests.wse_core.emulated import OPERATIONS, scalar
from wse_core import numerics, vector
from wse_core.errors import ConfigError, UnsupportedError

STEP = 60 if SLOW_BUILD else 1 if SOAK else 9
"""Of the special factors every so many are tried."""
FORMATS = [("f16", 42), ("cb16", 31), ("cb16", 42), ("cb16", 1), ("cb16", 62)]


def operands(rng, operation, fmt, bias, n):
    widths = {"h": exact.layout(fmt, bias), "s": exact.F32}
    a, b, *k = (exact.codes(rng, widths[letter], n) for letter in OPERATIONS[operation])
    return a, b, int(k[0][0]) if k and n else 0


@pytest.fixture(params=vector.backends())
def backend(request):
    before = vector.set_backend(request.param)
    yield request.param
    vector.set_backend(before)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The kernels of vector.h as a shared object of plain C."""
    if not emulated.compiler():
        pytest.skip("no C compiler on this host")
    return emulated.build(tmp_path_factory.mktemp("emulated"))


def with_backend(name):
    """Return `vector.run` with a backend of this host."""

    def run(*words, **how):
        before = vector.set_backend(name)
        try:
            return vector.run(*words, **how)
        finally:
            vector.set_backend(before)

    return run


@pytest.fixture(scope="module")
def every_run(request):
    """`vector.run` with every backend of this host, the kernels of both instruction sets in plain C: name -> function.

    A test compares all of them with one result of the scalar forms, which takes longer than any of them.
    """
    found = {name: with_backend(name) for name in vector.backends()}
    if emulated.compiler():
        library = request.getfixturevalue("library")
        found |= {f"emulated {name}": emulated.Kernels(library, name).run for name in emulated.LEVELS}
    return found


@pytest.fixture(scope="module")
def runs(every_run):
    """As `every_run`, but in plain C only what this host has no instructions for: for many operands that is slow."""
    here = vector.backends()
    return {name: run for name, run in every_run.items() if name in here or name.split()[-1] not in here}


def guarded_run(env, root, *words):
    """Run `tests.wse_core.guarded` in a process of its own: memory beyond an operand ends it."""
    command = [sys.executable, "-m", "tests.wse_core.guarded", *map(str, words)]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


over_formats = pytest.mark.parametrize(("fmt", "bias"), FORMATS, ids=lambda value: str(value))
over_operations = pytest.mark.parametrize("operation", OPERATIONS)


@over_operations
@over_formats
def test_kernels_equal_scalar_forms(runs, operation, fmt, bias):
    rng = np.random.default_rng(40)
    for _ in range(12):  # a factor per round; twelve kinds of factor
        a, b, k = operands(rng, operation, fmt, bias, some(4003))
        want = scalar(operation, a, b, k, fmt, bias)
        for name, run in runs.items():
            assert np.array_equal(run(operation, a, b, k, fmt=fmt, bias=bias), want), (name, hex(k))


@over_formats
def test_every_pair_of_special_factor_and_code(runs, fmt, bias):
    f = exact.layout(fmt, bias)
    every = np.arange(65536, dtype=np.uint16)
    some = np.array(exact.edge_codes(f), np.uint16)
    rng = np.random.default_rng(41)
    for k in exact.edge_codes(f)[::STEP]:
        a = some[rng.integers(0, len(some), 65536)]
        want = numerics.fma(every, k, a, fmt, bias)
        for name, run in runs.items():
            assert np.array_equal(run("fmach", a, every, k, fmt=fmt, bias=bias), want), (name, hex(k))
        other = np.full(65536, k, np.uint16)
        for operation in ("faddh", "fsubh", "fmulh"):
            want = scalar(operation, every, np.uint16(k), 0, fmt, bias)
            for name, run in runs.items():
                got = run(operation, every, other, fmt=fmt, bias=bias)
                assert np.array_equal(got, want), (name, operation, hex(k))


@over_formats
def test_multiply_add_at_constructed_ties(runs, fmt, bias):
    f = exact.layout(fmt, bias)
    x, k, c = exact.fma_ties(np.random.default_rng(42), f, f, some(900))
    for factor in set(k.tolist()):
        mine = k == factor
        a, b = c[mine], x[mine]
        want = numerics.fma(b, factor, a, fmt, bias)
        for name, run in runs.items():
            assert np.array_equal(run("fmach", a, b, factor, fmt=fmt, bias=bias), want), (name, hex(factor))


def test_known_double_rounding_cases(every_run):
    def once(operation, a, b, k, dtype, **how):
        a, b = np.full(19, a, dtype), np.full(19, b, dtype)
        (result,) = {value for run in every_run.values() for value in run(operation, a, b, k, **how).tolist()}
        return result

    assert once("fmach", 0x3BFF, 0x03FE, 0xC402, np.uint16) == 0x3BFF
    assert once("fmach", 0x0001, 0x3100, 0xFDAA, np.uint16, fmt="cb16") == 0xDABF
    assert once("fmacs", 0x30800000, 0x45800800, 0x45800800, np.uint32) == 0x4B801001


def test_every_bias_of_cb16(runs):
    """Codes of every exponent, those at the ends of the range too, through decoding, a sum and encoding."""
    for bias in range(1, 63):
        every = np.arange(bias % 5, 65536, 1 if SOAK else 5, dtype=np.uint16)  # five biases together have all
        other = np.random.default_rng(bias).permutation(every)
        for operation, k in (("faddh", 0), ("fmulh", 0), ("fmach", 0x3C01)):
            want = scalar(operation, every, other, k, "cb16", bias)
            for name, run in runs.items():
                got = run(operation, every, other, k, fmt="cb16", bias=bias)
                assert np.array_equal(got, want), (name, operation, bias)


@over_operations
@pytest.mark.parametrize(("fmt", "bias"), FORMATS[:3])
def test_every_length_and_nothing_beyond_it(every_run, operation, fmt, bias):
    rng = np.random.default_rng(43)
    for n in range(70):
        a, b, k = operands(rng, operation, fmt, bias, n)
        start = 1 + n % 3  # not aligned to more than an element
        want = np.full(n + 64, 0xA5A5, "u4" if operation.endswith("s") else "u2")
        want[start : start + n] = scalar(operation, a, b, k, fmt, bias)
        for name, run in every_run.items():
            room = np.full_like(want, 0xA5A5)
            run(operation, a, b, k, out=room[start : start + n], fmt=fmt, bias=bias)
            assert np.array_equal(room, want), (name, n)


@pytest.mark.parametrize("name", vector.backends())
def test_nothing_is_touched_beyond_the_end(name, child_env, root):
    assert guarded_run(child_env, root, name).returncode == 0


@pytest.mark.parametrize("name", emulated.LEVELS)
def test_emulated_kernels_touch_nothing_beyond_the_end(name, library, child_env, root):
    assert guarded_run(child_env, root, name, library).returncode == 0


@over_operations
def test_the_result_may_replace_an_operand(every_run, operation):
    rng = np.random.default_rng(44)
    letters = OPERATIONS[operation]
    for n, (name, run) in itertools.product((1, 7, 16, 61), every_run.items()):
        a, b, k = operands(rng, operation, "f16", 42, n)
        want = scalar(operation, a, b, k, "f16", 42)
        for index, operand in enumerate((a, b)):
            if letters[index] == operation[-1]:
                pair = [a.copy(), b.copy()]
                run(operation, *pair, k, out=pair[index])
                assert np.array_equal(pair[index], want), (name, operand.dtype)
        if letters[:2] in ("ss", "hh"):
            both = a.copy()
            run(operation, both, both, k, out=both)
            assert np.array_equal(both, scalar(operation, a, a, k, "f16", 42)), name


@over_operations
@pytest.mark.parametrize("fmt", ["f16", "cb16"])
def test_flushing(backend, operation, fmt):
    a, b, k = operands(np.random.default_rng(45), operation, fmt, 42, 3001)
    got = vector.run(operation, a, b, k, fmt=fmt, ftz=True)
    assert np.array_equal(got, scalar(operation, a, b, k, fmt, 42, True))


@examples(150)
@given(
    data=st.data(),
    operation=st.sampled_from(sorted(OPERATIONS)),
    form=st.sampled_from(FORMATS),
    name=st.sampled_from(vector.backends()),
)
def test_any_bits(data, operation, form, name):
    n = data.draw(st.integers(0, 20))
    bits = {"h": st.integers(0, 0xFFFF), "s": st.integers(0, 0xFFFFFFFF)}
    letters = OPERATIONS[operation]
    a, b = (
        np.array(data.draw(st.lists(bits[letter], min_size=n, max_size=n)), "u2" if letter == "h" else "u4")
        for letter in letters[:2]
    )
    k = data.draw(bits[letters[2]]) if len(letters) == 3 else 0
    before = vector.set_backend(name)
    try:
        got = vector.run(operation, a, b, k, fmt=form[0], bias=form[1])
    finally:
        vector.set_backend(before)
    assert np.array_equal(got, scalar(operation, a, b, k, *form))


def test_accumulation_is_in_element_order_with_one_rounding_each():
    """A column by column product, as an element does it, equals an explicit loop in that order."""
    rng = np.random.default_rng(46)
    columns = numerics.encode(rng.normal(size=(64, 32)))
    x = numerics.encode(rng.normal(size=64))
    total = np.zeros(32, np.uint32)
    for column, factor in zip(columns, x.tolist(), strict=True):
        vector.run("fmachs", total, column, factor, out=total)
    slow = np.zeros(32, np.float32)
    for column, factor in zip(columns.view(np.float16), x.view(np.float16), strict=True):
        slow = np.float32(factor) * column.astype(np.float32) + slow
    assert np.array_equal(total, slow.view(np.uint32))


def test_backends_can_be_chosen():
    available = vector.backends()
    assert available[0] == "portable"
    before = vector.set_backend("portable")
    assert vector.backend() == "portable"
    assert vector.set_backend("best") == "portable"
    assert vector.backend() == available[-1]
    vector.set_backend(before)
    with pytest.raises(ConfigError, match="no vector backend"):
        vector.set_backend("neon")
    for name in {"avx2", "avx512"} - set(available):
        with pytest.raises(UnsupportedError):
            vector.set_backend(name)


def test_threads_may_run_side_by_side():
    rng = np.random.default_rng(47)
    a, b, k = operands(rng, "fmach", "f16", 42, 5000)
    want = scalar("fmach", a, b, k, "f16", 42)
    results = [None] * 4

    def work(i):
        results[i] = vector.run("fmach", a, b, k, repeat=20)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(result, want) for result in results)


H, S = np.zeros(4, np.uint16), np.zeros(4, np.uint32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: vector.run("fdivs", S, S),
        lambda: vector.run("faddh", H, S),
        lambda: vector.run("faddh", H, H[:3]),
        lambda: vector.run("faddh", H[::2], H[::2]),
        lambda: vector.run("faddh", H, H, 1),
        lambda: vector.run("fmach", H, H, 0x10000),
        lambda: vector.run("faddh", H, H, fmt="f32"),
        lambda: vector.run("faddh", H, H, fmt="cb16", bias=63),
        lambda: vector.run("faddh", H[:3], H[:3], out=H[1:]),
        lambda: vector.run("faddhs", H, S, out=H),
        lambda: vector.run("faddh", [0], [0]),
    ],
)
def test_mistakes_are_named(call):
    with pytest.raises(ConfigError):
        call()


@pytest.mark.parametrize("mode", MODES)
def test_results_do_not_depend_on_the_float_mode_of_the_caller(backend, mode):
    def everything():
        rng = np.random.default_rng(44)
        for operation in OPERATIONS:
            for fmt, bias in FORMATS:
                a, b, k = operands(rng, operation, fmt, bias, 997)
                yield vector.run(operation, a, b, k, fmt=fmt, bias=bias).tobytes()

    want = list(everything())
    with float_mode(mode) as before:
        got = list(everything())
        assert current() == before
    assert got == want


@pytest.mark.parametrize("wrong", [{"bias": True}, {"bias": 42.0}, {"ftz": "no"}, {"ftz": 2}])
def test_settings_that_are_none_are_refused(wrong):
    with pytest.raises(ConfigError):
        vector.run("fadds", np.zeros(3, np.uint32), np.zeros(3, np.uint32), **wrong)
