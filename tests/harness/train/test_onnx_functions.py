"""Functions of a number in a file, with constants before, in and behind them, become activations and multiples."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.onnx_functions import GRID, composed
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.harness.train.test_onnx_moved import TEXT, folder, node, written  # noqa: E402, F401


def of(op, *numbers, **attributes):
    """Return the node of a function with limits behind the tensor."""
    return [node(op, "a", "m", *(None if n is None else np.float32(n) for n in numbers), **attributes)]


def with_one(op, *order):
    """Return the nodes of a function of a tensor and one, which no parameter is."""
    return [(helper.make_node("Constant", [], ["one"], "one", value_float=1.0), {}), node(op, order, "m")]


def raised(*steps):
    """Return the nodes of powers, each of the step before it, or of a function of that."""
    nodes, at = [], "a"
    for number, step in enumerate(steps):
        made = "m" if number == len(steps) - 1 else f"s{number}"
        if isinstance(step, str):
            nodes.append(node(step, at, made))
        else:
            exponent = helper.make_node("Constant", [], [f"p{number}"], f"p{number}", value_float=float(step))
            nodes += [(exponent, {}), node("Pow", [at, f"p{number}"], made)]
        at = made
    return nodes


def with_channels(op, *numbers, shape=(4, 1, 1)):
    """Return the nodes of a tensor of images and constants of its channels."""
    array = numpy_helper.from_array(np.array(numbers or (0.5, -1, 2, 4), np.float32).reshape(shape), "numbers")
    return [(helper.make_node("Constant", [], ["c"], "c", value=array), {}), node(op, ["a", "c"], "m")]


FUNCTIONS = {
    "between": (of("Clip", -1, 1), ["hardtanh"]),
    "between two": (of("Clip", -2, 2), ["multiple", "hardtanh", "multiple"]),
    "between others": (of("Clip", -0.5, 1.5), ["shift", "hardtanh", "shift"]),
    "not below": (of("Clip", 0.1), ["shift", "relu", "shift"]),
    "not above": (of("Clip", None, 0.1), ["shift", "multiple", "relu", "multiple", "shift"]),
    "softsign": (of("Softsign"), ["softsign"]),
    "elu of a half": (of("Elu", alpha=0.5), ["elu", "multiple", "relu", "multiple", "add"]),
    "selu": (of("Selu"), ["elu", "multiple", "relu", "multiple", "add"]),
    "less numbers of channels": (with_channels("Sub"), ["shift"]),
    "over numbers of channels": (with_channels("Div"), ["scale"]),
    "one less it": (with_one("Sub", "one", "a"), ["multiple", "shift"]),
    "squares": (raised(2), ["mul"]),
    "cubes": (raised(3), ["mul", "mul"]),
    "squares of what is above": (raised("Relu", 2), ["relu", "mul"]),
    "squares less themselves": (
        [*raised(2)[:1], node("Pow", ["a", "p0"], "q"), node("Sub", ["q", "a"], "m")],
        ["multiple", "mul", "add"],
    ),
    "gates of two": (
        [node("Sigmoid", "a", "s"), node("Mul", ["a", "s"], "q"), node("Mul", ["q", "s"], "m")],
        ["silu", "sigmoid", "mul"],
    ),
    "one and it": (with_one("Add", "a", "one"), ["shift"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_with_constants_are_the_same_network(folder, name):  # noqa: F811
    """Logits are those of the reference evaluator; on wafers bits are the oracle's."""
    moves, ops = FUNCTIONS[name]
    written(moves)
    config = parse_train(TEXT, "a.toml")
    assert [one.op for one in config.network.nodes] == ["convolution", *ops, "linear"]
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]


@pytest.mark.parametrize(
    ("moves", "what"),
    [
        (with_channels("Div", 1, 0, 1, 1), "divides by zero"),
        (with_channels("Sub", shape=(4,)), "not one for each of 4 channels"),
        ([node("Div", "a", "m", np.ones((4, 1, 1), np.float32))], "takes m.0, a parameter"),
        ([node("Sub", "a", "m", np.ones((4, 1, 1), np.float32))], "takes m.0, a parameter"),
        ([node("Relu", "a", "r"), node("Div", ["a", "r"], "m")], "only constants divide"),
        ([node("Relu", "a", "r"), node("Max", ["a", "r", "a"], "m")], "two tensors are compared"),
    ],
)
def test_other_constants_and_pairs_are_named(folder, moves, what):  # noqa: F811
    written(moves)
    with pytest.raises(UnsupportedError, match=what):
        parse_train(TEXT, "a.toml")


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.maximum(x, 0.1),
        lambda x: np.minimum(x, -2),
        lambda x: np.clip(x, 0.2, 0.3),
        lambda x: 3 - 2 * x,
        lambda x: np.maximum(x, 0) + 1,
    ],
)
def test_what_a_function_is_made_of_gives_what_it_gives(call):
    """Ends of what it is compared at are none of its own."""
    found = composed(call)
    made = found.outer * found.row.numbers(found.inner * (GRID + found.before))[0] + found.straight * GRID
    assert np.allclose(made + found.bent * np.maximum(GRID, 0) + found.behind, call(GRID), rtol=1e-6, atol=1e-5)
    assert abs(found.before) < 10


def test_functions_that_jump_are_none():
    """A number less what lies between two ends is one; a jump, or kinks of their own, are nothing here."""
    softshrink = composed(lambda x: np.maximum(x - 1, 0) + np.minimum(x + 1, 0))
    assert (softshrink.row.name, softshrink.outer, softshrink.straight) == ("hardtanh", -1, 1)
    assert composed(lambda x: np.where(np.abs(x) > 0.5, x, 0)) is None
    assert composed(lambda x: np.maximum(x - 1, 0) + np.minimum(x + 2, 0)) is None
