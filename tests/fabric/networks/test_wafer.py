"""A resident network: bits against the reference, gradients against finite differences, time against nonzeros."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from fabric.kernels.basic import vector
from fabric.kernels.streamed.forward import COLOR_W, X_BANK
from fabric.kernels.streamed.gradient_cycles import dot_cycles
from fabric.networks.graph.network import Layer, Network
from fabric.networks.graph.table import CHOICES
from fabric.networks.streamed.commands import HOMES, given_out, word
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.writer import script_of
from memx.pattern import Pattern
from tests.examples import examples
from tests.fabric.networks import Case
from tests.fabric.networks.known import KNOWN
from wse_core import isa
from wse_core.errors import ConfigError
from wse_core.params import machine

CASES = {
    "features": st.lists(st.integers(1, 11), min_size=2, max_size=4).map(tuple),
    "width": st.integers(1, 5),
    "height": st.integers(1, 4),
    "tokens": st.integers(1, 6),
    "norm": st.booleans(),
    "bias": st.booleans(),
    "activation": st.sampled_from(CHOICES),
    "density": st.one_of(st.just(1.0), st.floats(0, 1)),
    "dtype": st.sampled_from(["f16", "cb16"]),
    "form": st.sampled_from(["steps", "pairs", "both"]),
    "seed": st.integers(0, 99),
}


@examples(40)
@given(scale=st.sampled_from([1.0, 2.0**-4, 2.0**10, 2.0**15]), **CASES)
def test_iterations_are_bit_exact(scale, **values):
    """Activations of all levels, gradients of all parameters and losses; twice, so that nothing is left behind."""
    places = () if values["density"] < 1 else None  # not whole rows, some of which have no weight: test_sparse_asks
    case = Case(**values, turned=places)
    expected = case.expected(scale)
    for _ in range(2):
        passed, found = case.train(scale)
        for level in range(1, len(case.network.features)):
            assert np.array_equal(case.wafer.activations(level), case.oracle.activations[level])
        assert np.array_equal(found, expected)
        assert passed.cycles > 0


@examples(4)
@given(
    **CASES
    | {
        "features": st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple),
        "width": st.integers(1, 3),
        "height": st.integers(1, 2),
        "tokens": st.integers(1, 3),
    }
)
def test_both_machines_take_the_same_cycles(**values):
    runs = []
    for backend in ("compiled", "reference"):
        passed, found = Case(backend=backend, **values).train()
        # How many quiet cycles lie between two runs is not laid down, so idle ones are left out.
        counters = {name: count for name, count in passed.run.counters.items() if name != "idle"}
        runs.append((passed.cycles, counters, [t.tolist() for t in passed.times], found.tolist()))
    assert runs[0] == runs[1]


@examples(10)
@given(**CASES)
def test_a_test_counts_what_is_right_and_does_nothing_else(**values):
    """The forward part of an iteration gives the logits of the iteration; a number per column comes back."""
    case = Case(**values)
    case.load()
    for _ in range(2):  # what one pass counted is not in the next
        passed = case.wafer.run(case.coordinator.streams("test"))
        logits = case.oracle.forward(case.inputs, case.coordinator.parameters)
        assert np.array_equal(case.wafer.activations(len(case.network.layers)), logits)
        found = np.array([number for numbers in passed.numbers for number in numbers])
        assert found.view(np.uint32).tolist() == case.oracle.right(case.labels).tolist()
        numbers = case.oracle.half.decode(logits)
        assert found.sum() == (numbers[case.targets, np.arange(numbers.shape[1])] == numbers.max(0)).sum()
    assert case.matrices[0].transposes == 0


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
def test_logits_next_to_each_other_differ(dtype):
    """Of the smallest numbers as of the largest, only the larger one counts; equal ones are right both."""
    case = Case((3, 2), tokens=6, dtype=dtype)
    half = case.oracle.half
    top = int(half.encode(np.array([60000.0]))[0])
    rows = np.array([[1, 2, top, 0x8001, 7, 0], [2, 1, top - 1, 0x8002, 7, 0x8000]], np.uint16)
    case.oracle.results = {case.network.logits.name: rows}
    numbers = half.decode(rows)
    for label in (0, 1):
        labels = half.encode(np.eye(2)[[label] * 6].T)
        assert case.oracle.right(labels).view(np.float32).sum() == (numbers[label] == numbers.max(0)).sum()


def test_layer_1_has_no_activation_gradient():
    """An iteration streams the first matrix once and the others twice."""
    case = Case((9, 7, 5, 4), 2, 2, 2, bias=False)
    sent = sum(int((~is_control).sum()) for _, is_control in case.coordinator.streams("train"))
    first, *others = (parameter.pattern.count for parameter in case.matrices)
    assert sent == first + 2 * sum(others)
    case.train()
    assert [parameter.transposes for parameter in case.matrices] == [0, 1, 1]
    case.train()
    assert [parameter.transposes for parameter in case.matrices] == [0, 1, 1]


def test_a_gradient_mask_of_its_own():
    """Gradients are sent where they are asked for, whichever weights there are."""
    case = Case((8, 6, 3), 3, 2, 2, density=0.4, seed=3)
    for parameter in case.matrices:
        parameter.gradient_pattern = Pattern.random(parameter.pattern.shape, 0.6, case.rng)
    passed, found = case.train()
    assert np.array_equal(found, case.expected())
    assert sum(map(len, passed.numbers)) == sum(p.gradient_pattern.count for p in case.matrices) + 3
    case.matrices[0].set_pattern(Pattern.random((6, 9), 0.5, case.rng))  # the script is written again
    assert np.array_equal(case.train()[1], case.expected())


@pytest.mark.parametrize("activation", [name for name in CHOICES if name != "relu"])
@pytest.mark.parametrize("norm", [False, True])
def test_gradients_agree_with_finite_differences(activation, norm):
    """Central differences of the loss in float64, at every parameter, within what 16-bit rounding explains."""
    case = Case((5, 6, 3), 2, 2, 2, activation=activation, norm=norm, seed=5)
    _, found = case.train()
    gradients = found[:-2].view(np.float32)
    weights = [case.oracle.half.decode(parameter.values) for parameter in case.coordinator.parameters]

    def loss(values):
        x = case.oracle.half.decode(case.inputs)
        norms = iter(values[2:])
        for k, layer in enumerate(case.network.layers):
            matrix = values[k].reshape(layer.shape)
            x = matrix[:, :-1] @ x + matrix[:, -1:]
            if layer.norm:
                gamma, beta = next(norms).reshape(2, -1)
                x = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * gamma[:, None] + beta[:, None]
            x = KNOWN[layer.activation](x)
        shifted = x - x.max(0)
        return float((np.log(np.exp(shifted).sum(0)) - shifted[case.targets, np.arange(x.shape[1])]).sum())

    expected = []
    for k, values in enumerate(weights):
        for at in range(values.size):
            moved = []
            for step in (1e-5, -1e-5):
                changed = [v.copy() for v in weights]
                changed[k].reshape(-1)[at] += step
                moved.append(loss(changed))
            expected.append((moved[0] - moved[1]) / 2e-5)
    expected = np.array(expected)
    assert np.abs(gradients - expected).max() < 0.01 * np.abs(expected).max()
    assert found[-2:].view(np.float32).sum() == pytest.approx(loss(weights), rel=3e-3)


def test_time_follows_the_nonzeros():
    """Multiply-adds, weights and gradients exactly; cycles of a whole iteration within a tenth."""
    cycles, macs, sent, came = {}, {}, {}, {}
    loss = 8 * (4 * 6 + 7)  # multiply-adds of exp and log
    for density in (1.0, 0.5, 0.25, 0.1):
        case = Case((2400, 8, 4), 1, 1, 8, bias=False)
        case.matrices[0].set_pattern(Pattern.random((8, 2400), density, np.random.default_rng(1)))
        passed, _ = case.train()
        cycles[density], macs[density] = passed.cycles, passed.run.macs - 2 * 32 * 8 - loss
        came[density] = sum(map(len, passed.numbers)) - 32 - 1
        sent[density] = sum(int((~is_control).sum()) for _, is_control in case.coordinator.streams("train")) - 2 * 32
    for density in (0.5, 0.25, 0.1):
        assert cycles[density] == pytest.approx(density * cycles[1.0], rel=0.1)
    for count, whole in ((macs, 2400 * 8 * 8), (sent, 2400 * 8), (came, 2400 * 8)):
        assert all(count[density] == density * whole for density in count)


def pair_cycles(tokens, m, feature):
    """Return the cycles that two weights of a dense row cost their PE, whose features stand one behind the other."""
    places = [[(0, 2), (X_BANK + k * tokens, 1)] for k in (feature, feature + 1)]
    each = [vector.expected_cycles(isa.BY_NAME["fmachs"], tokens, 1, m, (0, 2), sources) for sources in places]
    return m["task.start"] + sum(each) - 2 * m["ce.tsc_read"] + 2 * m["ce.dsr_edit"] + 1


def turn_cycles(tokens, m):
    """Return the cycles that two neighbouring places of a dense mask cost their PE when a command asks for a row."""
    answer = dot_cycles(tokens, m) - m["task.start"] - 1 - m["ce.dsr_edit"] - 1
    return 2 * (answer + m["ce.dsr_edit"]) + 1 + m["ce.branch_taken"]


@pytest.mark.parametrize("tokens", [1, 4, 7])
def test_two_weights_and_two_gradients_of_a_dense_row_take_what_the_closed_forms_say(tokens):
    """Twenty more features of one output feature, on one PE."""
    m, found = machine(), {}
    for features in (40, 60):
        case = Case((features, 1), tokens=tokens, activation="none", form="pairs", turned=())
        case.load()
        found[features] = [case.wafer.run(case.coordinator.streams(kind)).cycles for kind in ("test", "train")]
    product, both = (more - less for more, less in zip(found[60], found[40], strict=True))
    assert product == sum(pair_cycles(tokens, m, feature) for feature in range(41, 61, 2))
    assert both - product == 10 * turn_cycles(tokens, m)


def test_a_matrix_with_gaps_has_no_pairs_unless_its_rows_go_out_whole():
    case = Case((6, 4), form="pairs")
    words = case.coordinator.script("train").n_words
    case.matrices[0].set_pattern(Pattern.random((4, 7), 0.5, case.rng))
    assert case.coordinator.script("test").n_words < case.coordinator.script("train").n_words == words
    with pytest.raises(ConfigError, match=r"w0 has gaps.*both"):
        script_of(case.resident, "train", case.matrices)
    with pytest.raises(ConfigError, match="do not come as 'triples'"):
        Case((6, 4), form="triples")


def test_what_does_not_fit_is_named():
    network = Network.dense((4000, 10))
    with pytest.raises(ConfigError, match=r"49152 bytes.*array a0 of level 0 alone takes 64032 bytes"):
        assert Resident(network, machine(), 2, 2, 32).layout
    with pytest.raises(ConfigError, match="10 samples of a wafer do not divide into 4 rows"):
        Resident(network, machine(), 2, 4, 10)


def test_networks_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match=r"layer1\.linear gives 3 features, layer2\.linear takes 4"):
        Network.of((Layer(2, 3), Layer(4, 1)))
    with pytest.raises(ConfigError, match="logits"):
        Network.of((Layer(2, 3, "relu"),))
    with pytest.raises(ConfigError, match="unknown activation"):
        Layer(2, 3, "swoosh")
    with pytest.raises(ConfigError, match="16-bit format"):
        Network.of((Layer(2, 3),), "bf16")


def test_every_command_has_its_own_task():
    ids = given_out(HOMES)
    assert len(set(ids.values())) == len(HOMES) <= 63
    assert 31 not in ids.values()
    for number in ids.values():
        decoded = control.decode(int(word(number, 0xABCD)))
        assert (decoded.task, decoded.data) == (number, 0xABCD)


def test_rows_go_where_they_belong():
    case = Case((7, 5), 3, 2, 2)
    tiles = case.resident.tiles("a0", case.inputs)
    assert np.array_equal(case.resident.rows("input", tiles), case.inputs)
    assert case.resident.plan.layouts[0].starts == (0, 3, 5, 7)


def test_nothing_happens_without_commands():
    """The same weights without the commands between them: sums are made, but no row lands and nothing comes back."""
    case = Case((6, 5, 3), 2, 2, 2)
    case.load()
    passed = case.wafer.run(
        [(payload[~control_], control_[~control_]) for payload, control_ in case.coordinator.streams("train")]
    )
    assert not any(map(len, passed.numbers))
    assert not case.wafer.activations(1).any()
    assert passed.run.macs > 0


def test_element_wise_work_moves_nothing():
    """ReLU and its slopes add commands down the columns, and not one wavelet along rows or out."""
    moved = []
    for activation in ("none", "relu"):
        case = Case((6, 5, 3), 3, 2, 2, activation=activation)
        case.train()
        moved.append({color: counts.sum() for color, counts in case.wafer.fabric.link_counts().items()})
    assert moved[0].keys() == moved[1].keys()
    assert {color for color in moved[0] if moved[0][color] != moved[1][color]} == {COLOR_W}


def test_a_wafer_holds_activations_only():
    """No array of a PE has the size of weights or of optimizer state; the stream does not depend on the optimizer."""
    case = Case((12, 10, 4), 2, 2, 3)
    held = {name: array.rows for name, array in case.resident.plan.arrays.items()}
    assert set(held) == {"a0", "a1", "a2", "s1", "d0", "d1", "labels", "expo"}
    assert max(held.values()) == 1 + 6  # rows of tokens: the features of a column and the row of ones
    assert not any("Optimizer" in type(value).__name__ for value in vars(case.resident).values())
