"""The memory service keeps the truth in FP32, streams what is active, and changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.optimizer import OPTIMIZERS, SGD, Adam, make_optimizer
from memx.parameter import Parameter
from memx.pattern import Pattern
from wse_core.errors import ConfigError
from wse_core.sparse import decode_steps, unpack

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def drawn(shape, density, seed, **options):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(shape).astype(np.float32)
    return Parameter("w", weights, pattern=Pattern.random(shape, density, rng), **options)


def received(starts, words, shape):
    """Return the float16 matrix that a stream means."""
    values, steps = unpack(words)
    indptr, indices = decode_steps(starts, steps)
    result = np.zeros(shape, np.float16)
    result[np.repeat(np.arange(shape[0]), np.diff(indptr)), indices] = values[steps != 0xFFFF].view(np.float16)
    return result


# --- patterns and streams ---------------------------------------------------------------------------------------------


@given(shape=SHAPES, density=st.floats(0, 1), seed=st.integers(0, 99))
def test_both_streams_are_views_of_one_array(shape, density, seed):
    p = drawn(shape, density, seed)
    assert p.pattern.count == round(density * shape[0] * shape[1])
    expected = np.where(p.pattern.mask(), p.dense, 0).astype(np.float16)
    assert np.array_equal(received(*p.forward(), shape), expected)
    assert np.array_equal(received(*p.backward(), shape[::-1]), expected.T)
    p.update(SGD(lr=0.5), 1, np.ones(p.pattern.count, np.float32))
    changed = np.where(p.pattern.mask(), p.dense, 0).astype(np.float16)
    assert np.array_equal(received(*p.backward(), shape[::-1]), changed.T)
    assert p.transposes == 1  # once per pattern, not per stream


def test_rounding_to_the_stream_is_nearest_even():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    values = bits.view(np.float32)
    ties = (np.arange(1 << 12, dtype=np.uint32) << 12 | 0x38000000).view(np.float32)
    subnormal = np.ldexp(rng.random(10_000), -rng.integers(14, 28, 10_000)).astype(np.float32)
    values = np.concatenate([values[np.isfinite(values)], ties, subnormal])
    p = Parameter("w", values[None])
    with np.errstate(over="ignore"):
        assert np.array_equal(p.values, values.astype(np.float16).view(np.uint16))


@given(shape=SHAPES, seed=st.integers(0, 99))
def test_transposing_twice_is_nothing(shape, seed):
    pattern = Pattern.random(shape, 0.4, np.random.default_rng(seed))
    turned, order = pattern.transpose()
    assert np.array_equal(turned.mask(), pattern.mask().T)
    assert np.array_equal(
        turned.flat % turned.shape[1] * shape[1] + turned.flat // turned.shape[1], pattern.flat[order]
    )
    assert turned.transpose()[0] == pattern
    assert Pattern.of_steps(shape, *pattern.steps[:2]) == pattern


# --- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_inactive_weights_and_their_state_do_not_change(name):
    optimizer = make_optimizer(name, lr=0.1)
    p = drawn((12, 10), 0.3, 1, slots=optimizer.slots)
    before = p.dense.copy()
    rng = np.random.default_rng(3)
    for step in range(1, 11):
        p.update(optimizer, step, rng.standard_normal(p.pattern.count).astype(np.float32))
    mask = p.pattern.mask()
    assert np.array_equal(p.dense[~mask].view(np.uint32), before[~mask].view(np.uint32))
    assert (p.dense[mask] != before[mask]).all()
    for slot in p.state.values():
        assert not slot[~mask].any()
        assert slot[mask].all()


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-9])
def test_adam_is_adam(size):
    """Against the formulas in float64, with gradients far above and below eps too."""
    rng = np.random.default_rng(4)
    w = rng.standard_normal(50).astype(np.float32)
    state = {slot: np.zeros(50, np.float32) for slot in Adam.slots}
    exact, m, v = w.astype(np.float64), np.zeros(50), np.zeros(50)
    optimizer = Adam(lr=0.01)
    for step in range(1, 30):
        g = (size * rng.standard_normal(50)).astype(np.float32)
        w = optimizer.update(step, w, g, state)
        m, v = 0.9 * m + 0.1 * g.astype(np.float64), 0.999 * v + 0.001 * g.astype(np.float64) ** 2
        exact -= 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    assert w.dtype == np.float32
    assert np.allclose(w, exact, rtol=2e-5, atol=1e-6)


def test_momentum_is_momentum():
    optimizer = SGD(lr=0.1, momentum=0.5, weight_decay=0.25)
    state = {"velocity": np.array([2.0], np.float32)}
    w = optimizer.update(1, np.array([4.0], np.float32), np.array([1.0], np.float32), state)
    assert state["velocity"] == 3.0  # 0.5 * 2 + (1 + 0.25 * 4)
    assert w == np.float32(4) - np.float32(0.1) * np.float32(3)


def test_bytes_per_parameter():
    assert SGD().bytes_per_parameter == 12
    assert Adam().bytes_per_parameter == 20


# --- other masks, regrowth, pruning -----------------------------------------------------------------------------------


def test_gradients_of_other_places_can_be_asked_for():
    p = drawn((6, 5), 0.5, 5)
    p.gradient_pattern = asked = Pattern.dense((6, 5))
    g = np.arange(30, dtype=np.float32).reshape(6, 5)
    before = p.dense.copy()
    p.update(SGD(lr=1.0), 1, g.reshape(-1)[asked.flat])
    mask = p.pattern.mask()
    assert np.array_equal(p.dense[mask], (before - g)[mask])
    assert np.array_equal(p.dense[~mask], before[~mask])


def test_weights_that_come_begin_at_zero_and_others_stay():
    """Values and state, also of one that was there before and has been asked to stay; indices are made once."""
    p = drawn((4, 6), 0.5, 6, slots=("velocity",))
    p.state["velocity"][...] = 3
    p.backward()
    before, old = p.pattern.mask(), p.dense.copy()
    mask = before.copy()
    come, go = np.argwhere(~before)[:2], np.argwhere(before)[0]
    mask[tuple(come.T)], mask[tuple(go)] = True, False
    assert p.become(Pattern.of_mask(mask)) == 2
    assert np.array_equal(p.pattern.mask(), mask)
    for array in (p.dense, p.state["velocity"]):
        assert not array[tuple(come.T)].any()
    assert np.array_equal(p.dense[mask & before], old[mask & before])
    assert p.values.size == p.pattern.count == before.sum() + 1
    p.backward()
    assert p.transposes == 2


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_columns_without_decay_move_as_without_any(name):
    """Biases, the last column, take the step of an optimizer without weight decay, bit for bit; weights do not."""
    rng = np.random.default_rng(3)
    weights, gradients = (rng.standard_normal((5, 4)).astype(np.float32) for _ in range(2))
    moved = {}
    for key, decay, columns in (("all", 0.3, None), ("some", 0.3, 3), ("none", 0.0, None)):
        optimizer = make_optimizer(name, lr=0.1, weight_decay=decay)
        p = Parameter("w", weights.copy(), slots=optimizer.slots)
        p.decaying = columns
        for step in (1, 2):
            p.update(optimizer, step, gradients.reshape(-1))
        moved[key] = p.dense
    assert np.array_equal(moved["some"][:, :3], moved["all"][:, :3])
    assert np.array_equal(moved["some"][:, 3], moved["none"][:, 3])
    assert (moved["some"][:, 3] != moved["all"][:, 3]).all()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="no optimizer"):
        make_optimizer("adagrad")
    with pytest.raises(ConfigError, match="no option 'momentum'"):
        make_optimizer("adam", momentum=0.9)
    with pytest.raises(ConfigError, match="impossible"):
        SGD(lr=float("nan"))
    for name in ("lr", "weight_decay"):
        with pytest.raises(ConfigError, match=r"1e\+300 is impossible"):  # infinite in f32
            make_optimizer("adam", **{name: 1e300})
    for momentum in (1.0, 50.0):
        with pytest.raises(ConfigError, match="never forgets"):
            make_optimizer("sgd", momentum=momentum)
    for name in ("sgd", "adam", "adamw"):
        with pytest.raises(ConfigError, match="takes more than the weight in each step"):
            make_optimizer(name, lr=0.1, weight_decay=10.0)
        assert make_optimizer(name, lr=0.1, weight_decay=9.0).weight_decay == 9
    with pytest.raises(ConfigError, match="eps of 1e-60 is zero in f32"):
        make_optimizer("adamw", eps=1e-60)
    with pytest.raises(ConfigError, match="cannot be streamed"):
        Parameter("w", np.zeros((2, 2)), fmt="f32")
    with pytest.raises(ConfigError, match="does not fit"):
        Parameter("w", np.zeros((2, 2)), pattern=Pattern.dense((2, 3)))
    with pytest.raises(ConfigError, match="3 gradients for 4"):
        Parameter("w", np.zeros((2, 2))).update(SGD(), 1, np.zeros(3))
    with pytest.raises(ConfigError, match="no density"):
        Pattern.random((2, 2), 1.5, np.random.default_rng())


def test_rows_go_out_whole_with_zeros_in_their_gaps():
    """What is streamed has all elements, those that exist as they are; the parameter itself keeps its pattern."""
    p = Parameter("w", np.arange(1, 13).reshape(3, 4), pattern=Pattern.of_mask(np.arange(12).reshape(3, 4) % 5 > 1))
    assert p.streamed is p
    p.whole = True
    sent = p.streamed
    assert sent.pattern == Pattern.dense((3, 4)) != p.pattern
    assert np.array_equal(sent.values.view(np.float16).reshape(3, 4), np.where(p.pattern.mask(), p.dense, 0))
    pattern, entries = sent.transposed
    assert np.array_equal(sent.values[entries].reshape(pattern.shape), sent.values.reshape(3, 4).T)
    assert np.array_equal(p.spread(np.ones(p.pattern.count)).reshape(3, 4), p.pattern.mask())
    p.update(SGD(lr=1.0), 1, np.ones(p.gradient_pattern.count, np.float32))
    assert np.array_equal(p.streamed.values.view(np.float16), np.where(p.pattern.mask(), p.dense, 0).ravel())
    p.set_pattern(Pattern.dense((3, 4)))
    assert p.streamed is p
