"""Look-ups and products in other words are the networks of those in plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.onnx_alike import alike
from harness.train.onnx_file import FIXED, KEPT, read_onnx
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

V, D, S = 7, 4, 3
GIVEN = {"table": (V, D), "turned": (D, V), "w": (5, D), "v": (D, 5), "g": (D,)}


def node(op, inputs, made, **attributes):
    return helper.make_node(op, inputs, [made], made, **attributes)


def read(looks, multiplies, result=("n", S, 5), told=(), **constants):
    """Return what is read from a file of tokens that looks rows up and multiplies them; `told` are its properties."""
    taken = {name for one in (*looks, *multiplies) for name in one.input}
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in GIVEN.items() if name in taken}
    if "turned" in given:
        given["turned"] = np.random.default_rng(0).standard_normal((V, D)).astype(np.float32).T
    given |= {name: np.array(one) for name, one in constants.items()}
    graph = helper.make_graph(
        [*looks, *multiplies],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", S])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    for key in told:
        model.metadata_props.add(key=key, value=key.partition(":")[2])
    onnx.save(model, "m.onnx")
    return read_onnx("m.onnx")


PLAIN = (
    [node("Gather", ["table", "x"], "e", axis=0)],
    [node("Transpose", ["w"], "t", perm=[1, 0]), node("MatMul", ["e", "t"], "y")],
)
ENDS = {"depth": np.int64(V), "values": np.array([0.0, 1.0], np.float32), "last": np.array([-1])}
LOOKS = {
    "indexed": [
        node("Max", ["x"], "m"),
        node("Shape", ["m"], "s"),
        node("Expand", ["x", "s"], "b"),
        node("Unsqueeze", ["b", "last"], "u"),
        node("Concat", ["u"], "i", axis=-1),
        node("GatherND", ["table", "i"], "e"),
    ],
    "one hot": [node("OneHot", ["x", "depth", "values"], "o"), node("MatMul", ["o", "table"], "e")],
    "equal": [
        node("Unsqueeze", ["x", "last"], "u"),
        node("Equal", ["u", "counts"], "o"),
        node("Cast", ["o"], "c", to=1),
        node("MatMul", ["c", "table"], "e"),
    ],
    "table turned": [
        node("OneHot", ["x", "depth", "values"], "o"),
        node("Transpose", ["turned"], "back", perm=[1, 0]),
        node("MatMul", ["o", "back"], "e"),
    ],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", LOOKS)
def test_rows_of_a_table_are_looked_up(folder, name):
    wanted, found = read(*PLAIN), read(LOOKS[name], PLAIN[1], counts=np.arange(V), **ENDS)
    assert [one["op"] for one in found.nodes] == [one["op"] for one in wanted.nodes] == ["linear", "linear"]
    assert found.sequence == S
    for ours, other in zip(wanted.tensors.values(), found.tensors.values(), strict=True):
        assert np.allclose(ours, other)
    back = found.back(found.tensors)
    assert {name: one.shape for name, one in back.items()} == {
        name: GIVEN[name] for name in (name.removeprefix("table ") if "turned" in name else "table", "w")
    }


@pytest.mark.parametrize("equation", ["bsd,cd->bsc", "bsd,dc->bsc", "cd,bsd->bsc"])
def test_letters_may_say_a_product(folder, equation):
    matrix = "v" if "dc" in equation else "w"
    sides = ["w", "e"] if equation.startswith("cd") else ["e", matrix]
    found = read(PLAIN[0], [node("Einsum", sides, "y", equation=equation)])
    *_, last = found.tensors.values()
    assert [one["op"] for one in found.nodes] == ["linear", "linear"]
    assert np.array_equal(found.back(found.tensors)[matrix], last.T if matrix == "v" else last)
    assert last.shape == (5, D)


def test_letters_that_turn_the_result_are_refused(folder):
    """It is the product, turned, and nothing takes tokens as features."""
    with pytest.raises(UnsupportedError, match=r"y \(the result\): takes the tokens of a sequence as features"):
        read(PLAIN[0], [node("Einsum", ["e", "w"], "y", equation="bsd,cd->bcs")])


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
@pytest.mark.parametrize(
    ("first", "second"), [([-1], [-1]), ([3], [2]), ([2], [2]), ([-3], [-1]), ([2, 3], [1]), ([1], [-1])]
)
def test_axes_that_are_left_out_one_after_the_other_are_left_out_together(op, first, second):
    """But where one is counted from the first axis on and the other from the last."""
    ends = node("Constant", [], "a", value_ints=first), node("Constant", [], "b", value_ints=second)
    graph = helper.make_graph(
        [*ends, node(op, ["x", "a"], "m", keepdims=0), node(op, ["m", "b"], "y", keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x, made = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32), alike(model)
    wanted, found = (ReferenceEvaluator(one).run(None, {"x": x})[0] for one in (model, made))
    assert np.allclose(wanted, found)
    assert [one.op_type for one in made.graph.node].count(op) == 1 + (first[0] * second[0] < 0)


@pytest.mark.parametrize("pad", [0, 3])
def test_the_last_token_that_is_no_padding_is_the_last_one_where_there_is_none(folder, pad):
    """As classifiers of language models take it: by the largest place that counts."""
    picks = [
        node("Equal", ["x", "pad"], "none"),
        node("Not", ["none"], "some"),
        node("Cast", ["some"], "ones", to=6),
        node("Mul", ["places", "ones"], "kept"),
        node("ArgMax", ["kept"], "last", axis=-1, keepdims=0),
        node("Shape", ["x"], "count", start=0, end=1),
        node("Squeeze", ["count"], "samples"),
        node("Range", ["zero", "samples", "one"], "rows"),
        node("Unsqueeze", ["rows", "axis"], "r"),
        node("Unsqueeze", ["last", "axis"], "l"),
        node("Concat", ["r", "l"], "both", axis=-1),
        node("GatherND", ["z", "both"], "y"),
    ]
    numbers = {"pad": np.int64(pad), "places": np.arange(S, dtype=np.int32), "zero": np.int64(0), "one": np.int64(1)}
    product = [*PLAIN[1][:1], node("MatMul", ["e", "t"], "z")]
    found = read(PLAIN[0], [*product, *picks], ("n", 5), axis=np.array([1]), **numbers)
    assert (found.alone, found.absent) == ("last", (pad,))
    picks[3] = node("Sub", ["ones", "places"], "kept")
    with pytest.raises(UnsupportedError, match="which is not the last one that is no padding"):
        read(PLAIN[0], [*product, *picks], ("n", 5), axis=np.array([1]), **numbers)


def test_what_is_made_of_parameters_is_named(folder):
    with pytest.raises(UnsupportedError, match="takes t, which is made of g, w: parameters are trained as they are"):
        read(PLAIN[0], [node("Mul", ["w", "g"], "u"), node("Transpose", ["u"], "t"), node("MatMul", ["e", "t"], "y")])


@pytest.mark.parametrize("kept", [True, False])
def test_buffers_that_a_module_does_not_keep_do_not_go_back(folder, kept):
    told = [f"{FIXED}g", *[f"{KEPT}g"] * kept]
    found = read(PLAIN[0], [node("Mul", ["e", "g"], "k"), PLAIN[1][0], node("MatMul", ["k", "t"], "y")], told=told)
    assert ("g" in found.back(found.tensors)) == kept
    assert [one.get("fixed", False) for one in found.nodes] == [False, True, False]


def test_functions_of_tokens_in_steps_that_are_none_together_are_read_one_by_one(folder):
    """Squares of a rectifier less half of another function of the same, and one that chooses between two."""
    steps = [
        node("Relu", ["z"], "r"),
        node("Pow", ["r", "two"], "s"),
        node("Tanh", ["z"], "h"),
        node("Mul", ["h", "half"], "m"),
        node("Sub", ["s", "m"], "d"),
        node("Exp", ["z"], "power"),
        node("Add", ["power", "one"], "more"),
        node("Log", ["more"], "soft"),
        node("Greater", ["z", "far"], "large"),
        node("Where", ["large", "z", "soft"], "plus"),
        node("Add", ["d", "plus"], "y"),
    ]
    numbers = {"two": 2.0, "half": 0.5, "one": 1.0, "far": 20.0}
    ends = [helper.make_node("Constant", [], [name], value_float=value) for name, value in numbers.items()]
    found = read(PLAIN[0], [*ends, PLAIN[1][0], node("MatMul", ["e", "t"], "z"), *steps])
    ops = ["linear", "linear", "relu", "mul", "tanh", "multiple", "multiple", "add", "softplus", "add"]
    assert [one["op"] for one in found.nodes] == ops
