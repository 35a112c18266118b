"""Normalisations of rows that files take apart, in all ways of writing them, are the same networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.plain import PlainGraph
from harness.train.config import parse_train
from harness.train.plain import PlainTrainer
from tests.examples import mixed
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

TEXT = '[network]\nfile = "m.onnx"\n[data]\nsource = "m.npz"\nbatch = 4\n[train]\niterations = 1\n'
N = 6
LENGTHS = {"plain": "", "Clip": 1e-12, "Max": 1e-12, "Add": 1e-8}


class RowsFile:
    """A file of two products grows, with what is done to rows between them."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.nodes, self.shapes = [], {"x": (None, N)}
        self.given = {name: rng.standard_normal((N, N)).astype(np.float32) / 2 for name in ("a.weight", "b.weight")}
        self.given |= {name: rng.standard_normal(N).astype(np.float32) for name in ("a.bias", "g", "h")}
        self.x = rng.standard_normal((8, N)).astype(np.float32)
        self.at = self.op("Gemm", "x", "a.weight", "a.bias", transB=1)

    def constant(self, value):
        """Append a constant; return its name."""
        made = f"c{len(self.nodes)}"
        value = numpy_helper.from_array(np.asarray(value), made)
        self.nodes.append(helper.make_node("Constant", [], [made], value=value))
        return made

    def op(self, name, *inputs, row=N, **attributes):
        """Append an operation on names or constants; return the name of its result, a row of which is noted or not."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        made = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(name, names, [made], f"node {made}", **attributes))
        self.shapes |= {made: (None, row)} if row else {}
        return made

    def write(self):
        """Write the file and data; return what the file gives."""
        self.op("Gemm", self.at, "b.weight", transB=1)
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", N])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", N])],
            [numpy_helper.from_array(array, name) for name, array in self.given.items()],
            value_info=[
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape[1:]])
                for name, shape in self.shapes.items()
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.save(model, "m.onnx")
        y = np.arange(len(self.x)) % N
        np.savez("m.npz", x_train=self.x, y_train=y, x_test=self.x, y_test=y)
        return ReferenceEvaluator("m.onnx").run(None, {"x": self.x})[0]


def deviated(f, form):
    """Append what is above a mean over a deviation, as a form says."""
    axes, kept = np.array([form["axis"]]), int(form["kept"])
    middle = f.op("ReduceMean", f.at, axes, row=1)
    above, again = f.op("Sub", f.at, middle), f.op("Sub", f.at, middle)
    squares = f.op("Mul", again, again) if form["square"] == "Mul" else f.op("Pow", again, np.float32(2))
    variance = f.op("ReduceMean", squares, axes, row=kept, keepdims=kept)
    if form["sample"]:
        many = f.constant(np.float32(N))
        less = f.op("Sub", many, np.float32(1), row=0)
        variance = f.op("Div", f.op("Mul", variance, many, row=kept), less, row=kept)
    if not kept:
        variance = f.op("Unsqueeze", variance, np.array([1]), row=1)
    if form["epsilon"] == "inside":
        variance = f.op("Add", variance, np.float32(0.1), row=1)
    root = f.op("Sqrt", variance, row=1)
    if form["epsilon"] == "outside":
        root = f.op("Add", root, np.float32(1e-6), row=1)
    above = f.op("Mul", "g", above) if form["factor"] == "before" else above
    f.at = f.op("Div", above, root)
    f.at = f.op("Mul", f.at, "g") if form["factor"] == "behind" else f.at
    f.at = f.op("Add", f.at, "h") if form["shift"] else f.at


FORMS = {
    "axis": (-1, 1),
    "kept": (True, False),
    "square": ("Mul", "Pow"),
    "sample": (False, True),
    "epsilon": ("inside", "outside", "none"),
    "factor": ("before", "behind", "none"),
    "shift": (True, False),
}


def compared(f):
    """Compare logits with those of the file; return the operations between the products."""
    unused = {"g", "h"} - {name for node in f.nodes for name in node.input}
    f.given = {name: array for name, array in f.given.items() if name not in unused}
    wanted = f.write()
    run = PlainTrainer(parse_train(TEXT, "a.toml"))
    found = PlainGraph(run.config.graph, "f64").forward(run._active(), f.x)
    assert np.allclose(found, wanted, atol=3e-5)
    assert set(run.state_dict()) == set(f.given)
    return [node.op for node in run.config.graph.nodes][1:-2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@given(st.fixed_dictionaries({key: st.sampled_from(every) for key, every in FORMS.items()}), st.integers(0, 99))
def test_rows_less_their_mean_over_their_deviation_are_normalised(tmp_path_factory, form, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("form"))
        f = RowsFile(seed)
        deviated(f, form)
        ops = compared(f)
    whole = form["factor"] != "none" and form["shift"] and form["epsilon"] == "inside" and not form["sample"]
    assert (ops == ["norm"]) == whole
    assert "norm" in ops or "centred" in ops


@pytest.mark.parametrize(("least", "other", "root"), mixed(LENGTHS, (0, 1), (False, True)))
def test_rows_over_their_lengths_are_normalised_without_a_mean(folder, least, other, root):
    """Beside another normalisation, whose epsilon is another one."""
    f = RowsFile(1)
    f.at = f.op("LayerNormalization", f.at, "g", "h") if other else f.at
    length = f.op("ReduceL2", f.at, np.array([-1]), row=1)
    length = f.op("Mul", length, np.float32(N**-0.5), row=1) if root else length
    length = f.op(least, length, np.float32(LENGTHS[least]), row=1) if least != "plain" else length
    f.at = f.op("Div", f.at, length if least == "Add" else f.op("Expand", length, np.array([8, N])))
    assert compared(f) == ["norm"] * other + ["rms"] + ["multiple"] * (not root)


@pytest.mark.parametrize("form", [{"epsilon": "outside"}, {"epsilon": "inside"}])
def test_a_large_number_beside_a_root_is_no_epsilon(folder, form, monkeypatch):
    monkeypatch.setattr("harness.train.onnx_norms.SMALL", 1e-20)
    f = RowsFile(1)
    deviated(f, {key: every[0] for key, every in FORMS.items()} | form)
    if form["epsilon"] == "inside":
        assert compared(f) == ["norm"]
        return
    with pytest.raises(UnsupportedError, match="ReduceMean"):
        compared(f)
