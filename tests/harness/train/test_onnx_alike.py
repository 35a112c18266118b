"""Look-ups and products in other words are the networks of those in plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.onnx_file import read_onnx
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

V, D, S = 7, 4, 3
GIVEN = {"table": (V, D), "turned": (D, V), "w": (5, D), "v": (D, 5)}


def node(op, inputs, made, **attributes):
    return helper.make_node(op, inputs, [made], made, **attributes)


def read(looks, multiplies, **constants):
    """Return what is read from a file of tokens that looks rows up and multiplies them."""
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
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", S, 5])],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), "m.onnx")
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
    with pytest.raises(UnsupportedError, match="Einsum"):
        read(PLAIN[0], [node("Einsum", ["e", "w"], "y", equation="bsd,cd->bcs")])
