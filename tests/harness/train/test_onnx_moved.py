"""Nodes of a file that put numbers in other places: what they become, and that the network is the same one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from harness.train.config import parse_train
from harness.train.onnx_moved import moves_of
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

TEXT = """
[network]
file = "m.onnx"
[data]
source = "images.npz"
batch = 4
[mesh]
width = 2
height = 2
[train]
iterations = 2
optimizer = {name = "sgd", lr = 0.05}
"""
SIDES = 2, 6, 4
FAR = np.iinfo(np.int64).max


def node(op, given, result, *numbers, **attributes):
    """Return (node, its constants): `numbers` are inputs that the file says, None for one that it leaves out."""
    held = {f"{result}.{k}": np.asarray(one) for k, one in enumerate(numbers) if one is not None}
    names = [f"{result}.{k}" if one is not None else "" for k, one in enumerate(numbers)]
    given = [given] if isinstance(given, str) else given
    results = [result] if isinstance(result, str) else result
    return helper.make_node(op, [*given, *names], results, f"node {result}", **attributes), held


def cut(result, axis, start, end=FAR, step=1, given="a"):
    """Return the node of a slice."""
    return node("Slice", given, result, [start], [end], [axis], [step])


def padded(mode, *ends):
    """Return the node of a padding."""
    return [node("Pad", "a", "m", ends, mode=mode)]


def shuffled(order, *sizes):
    """Return the nodes of a permutation between two shapes."""
    shapes = [0, *sizes], [0, 4, 6, 4]
    return [
        node("Reshape", "a", "s", shapes[0]),
        node("Transpose", "s", "t", perm=[0, *order]),
        node("Reshape", "t", "m", shapes[1]),
    ]


def split(*order):
    """Return the nodes of channels that are taken apart, as a list, and put together."""
    parts = [node("SequenceAt", "s", f"p{k}", np.int64(k)) for k in (0, 1) if f"p{k}" in order]
    return [node("SplitToSequence", "a", "s", np.int64(2), axis=1), *parts, node("Concat", order, "m", axis=1)]


def helped(op):
    """Return the node of an operation on all channels and one."""
    return node(op, ["a", "s"], "m")


def focused():
    """Return the nodes of every second pixel of rows and columns, side by side as channels."""
    found = []
    for k, (i, j) in enumerate(np.ndindex(2, 2)):
        found += [cut(f"r{k}", 2, i, step=2), cut(f"q{k}", 3, j, step=2, given=f"r{k}")]
    return [*found, node("Concat", [f"q{k}" for k in range(4)], "m", axis=1)]


LARGER = ["multiple", "add", "relu", "add"]
MOVES = {
    "flipped": ([cut("m", 3, -1, -FAR, -1)], ["resample"]),
    "cropped": ([cut("c", 2, 1, -1), cut("m", 3, 1, 3, given="c")], ["resample"]),
    "every second": ([cut("m", 2, 1, step=2)], ["resample"]),
    "reflected": (padded("reflect", 0, 0, 1, 2, 0, 0, 2, 1), ["resample"]),
    "repeated at the edge": (padded("edge", 0, 0, 2, 0, 0, 0, 0, 1), ["resample"]),
    "gone round": (padded("wrap", 0, 0, 1, 1, 0, 0, 1, 1), ["resample"]),
    "zeros before a pool": (
        [node("Pad", "a", "z", [0, 0, 1, 1, 0, 0, 1, 1]), node("MaxPool", "z", "m", kernel_shape=[2, 2])],
        ["resample", "maxpool"],
    ),
    "zeros beyond windows": (
        [
            (
                helper.make_node("Conv", ["a", "wide.weight"], ["m"], "wide", pads=[2, 1, 3, 4], dilations=[1, 2]),
                {"wide.weight": np.random.default_rng(1).standard_normal((3, 4, 2, 2)).astype(np.float32) / 3},
            )
        ],
        ["resample", "convolution"],
    ),
    "depth to space": ([node("DepthToSpace", "a", "m", blocksize=2, mode="CRD")], ["transposed"]),
    "depth to space by columns": ([node("DepthToSpace", "a", "m", blocksize=2)], ["transposed"]),
    "space to depth": ([node("SpaceToDepth", "a", "m", blocksize=2)], ["convolution"]),
    "shuffled": (shuffled((2, 1, 3, 4), 2, 2, 6, 4), ["convolution"]),
    "focused": (focused(), ["convolution"]),
    "parts the other way round": (split("p1", "p0"), ["convolution"]),
    "a part twice": (split("p1", "p1"), ["convolution"]),
    "gathered": ([node("Gather", "a", "m", [3, 1, 0, 0, 2], axis=1)], ["convolution"]),
    "zeros beside channels": ([node("Pad", "a", "m", [0, 1, 0, 0, 0, 2, 0, 0])], ["convolution"]),
    "every second and zeros beside": (
        [cut("r", 2, 0, step=2), cut("q", 3, 0, step=2, given="r"), node("Pad", "q", "m", [0, 1, 0, 0, 0, 1, 0, 0])],
        ["resample", "convolution"],
    ),
    "two of four and cropped": ([cut("c", 1, 1, 3), cut("m", 2, 2, given="c")], ["resample", "convolution"]),
    "a part of each": (
        [
            node("Split", "a", ["p", "q"], np.array([1, 3]), axis=1),
            node("Relu", "p", "r"),
            node("Concat", ["r", "q"], "m", axis=1),
        ],
        ["convolution", "relu", "convolution", "concat"],
    ),
    "rows shuffled": (shuffled((1, 3, 2, 4), 4, 3, 2, 4), ["resample"]),
    **{
        f"{op} of a channel": (
            [node("ReduceMean", "a", "s", [1], keepdims=1), helped(op)],
            ["convolution", *(["multiple"] if op == "Sub" else []), "convolution", "mul" if op == "Mul" else "add"],
        )
        for op in ("Add", "Mul", "Sub")
    },
    "channels of their own": (
        [
            cut("p", 1, 0, 2),
            cut("q", 1, 2, 4),
            cut("r", 2, -1, -FAR, -1, given="q"),
            node("Concat", ["p", "r"], "m", axis=1),
        ],
        ["convolution", "resample", "convolution", "concat"],
    ),
    "the larger of two": (
        [cut("p", 1, 0, 2), cut("q", 1, 2, 4), node("Max", ["p", "q"], "m")],
        ["convolution", "convolution", *LARGER],
    ),
    "the smaller of two": (
        [cut("p", 1, 0, 2), cut("q", 1, 2, 4), node("Min", ["p", "q"], "m")],
        ["convolution", "convolution", "multiple", "add", "relu", "multiple", "add"],
    ),
    "the largest channel": (
        [node("ReduceMax", "a", "m", [1], keepdims=1)],
        ["convolution", "convolution", *LARGER] * 2,
    ),
    "the sum of channels": ([node("ReduceSum", "a", "m", [1], keepdims=1)], ["convolution", "multiple"]),
    "the sum of rows": ([node("ReduceSum", "a", "m", [2], keepdims=1)], ["avgpool", "multiple"]),
    "nothing": (split("p0", "p1"), []),
    "seen as other sides": ([node("Reshape", "a", "m", [0, 4, 4, 6])], []),
}
OTHER = {
    "rows for columns": [node("Transpose", "a", "m", perm=[0, 1, 3, 2])],
    "rows for channels": [node("Transpose", "a", "t", perm=[0, 2, 1, 3]), node("Reshape", "t", "m", [0, 4, 6, 4])],
    "depth to space and turned": [
        node("DepthToSpace", "a", "d", blocksize=2),
        node("Transpose", "d", "m", perm=[0, 1, 3, 2]),
    ],
}
"""By name: nodes that nothing here does, or that do not end with an image."""


def _renamed(one):
    made, more = one
    made = copy.deepcopy(made)
    made.name, made.output[0] = "node b", "b"
    return made, more


def written(moves, path="m.onnx"):
    """Write a network with such nodes between a convolution and a product; return its parameters."""
    rng, graph = np.random.default_rng(4), [one for one, _ in moves]
    first = rng.standard_normal((4, SIDES[0], 3, 3)) / 3
    held = {name: array for _, some in moves for name, array in some.items()}
    held |= {"first.weight": first.astype(np.float32)}
    start = [helper.make_node("Conv", ["x", "first.weight"], ["a"], "first", pads=[1] * 4)]

    def saved(nodes, result):
        ends = [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["n", *"abc"[: 3 if result == "m" else 1]])]
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SIDES])
        parts = [numpy_helper.from_array(array, name) for name, array in held.items()]
        graph = helper.make_graph([*start, *nodes], "g", [given], ends, parts)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, path)
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(model).run(None, {"x": np.zeros((1, *SIDES), np.float32)})[0]

    count = saved(graph, "m")[0].size
    held["last.weight"] = rng.standard_normal((3, count)).astype(np.float32) / np.float32(np.sqrt(count))
    ends = [node("Flatten", "m", "f")[0], helper.make_node("Gemm", ["f", "last.weight"], ["y"], "last", transB=1)]
    saved([*graph, *ends], "y")
    return {name: array for name, array in held.items() if "weight" in name}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((8, *SIDES)).astype(np.float32), rng.integers(0, 3, 8)
    np.savez("images.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return tmp_path


@pytest.mark.parametrize("name", MOVES)
def test_numbers_in_other_places_are_the_same_network(folder, name):
    """Logits are those of the reference evaluator; on wafers bits are the oracle's, and constants stay."""
    moves, ops = MOVES[name]
    given = written(moves)
    config = parse_train(TEXT, "a.toml")
    assert [one.op for one in config.network.nodes] == ["convolution", *ops, "linear"]
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()
    machine, oracle = Trainer(config), Trainer(config, backend="numpy")
    before = machine.tensors()
    assert [machine.step().loss for _ in range(2)] == [oracle.step().loss for _ in range(2)]
    found, other = machine.tensors(), oracle.tensors()
    assert all(np.array_equal(found[one], other[one]) for one in found)
    stay = {f"{one.name}.weight" for one in config.network.nodes if one.fixed}
    assert all(np.array_equal(found[one], before[one]) == (one in stay) for one in found if one.endswith("weight"))
    assert set(machine.state_dict()) == set(given)


@pytest.mark.parametrize("name", OTHER)
def test_numbers_in_places_that_nothing_here_makes_are_refused(folder, name):
    """A function takes the image that they would be."""
    written([*OTHER[name][:-1], _renamed(OTHER[name][-1]), node("Relu", "b", "m")])
    with pytest.raises(UnsupportedError, match=r"node [bm] \(\w+\): .* in other places of one of shape"):
        parse_train(TEXT, "a.toml")


@pytest.mark.parametrize("name", OTHER)
def test_numbers_in_any_places_are_features(folder, name):
    """Where a product takes them at once, a convolution of whole images puts each in its place."""
    written(OTHER[name])
    run, x = PlainTrainer(parse_train(TEXT, "a.toml")), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    assert np.allclose(run.model.forward(run._active(), x.reshape(len(x), -1)), wanted, atol=5e-3)


def test_filters_of_constants_have_no_zeros_on_wafers(folder):
    """A permutation of channels streams a weight for each, and keeps its mask when others are exchanged."""
    written(MOVES["shuffled"][0])
    rigl = TEXT + '[sparsity]\ndensity = 0.5\nschedule = "rigl"\nevery = 1\nfraction = 0.9\n'
    for text in (TEXT, rigl):
        run = Trainer(parse_train(text, "a.toml"), backend="numpy")
        moved = run.matrices[1].pattern.mask()
        assert moved.sum() == 4
        run.step()
        assert np.array_equal(run.matrices[1].pattern.mask(), moved)


def test_features_that_are_picked_are_a_product(folder):
    """Behind a product features have no rows and columns."""
    rng = np.random.default_rng(4)
    held = {"first.weight": rng.standard_normal((6, 48)) / 7, "last.weight": rng.standard_normal((3, 4))}
    moves, numbers = cut("m", 1, 4, 0, -1)
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "first.weight"], ["a"], "first", transB=1),
        moves,
        helper.make_node("Gemm", ["m", "last.weight"], ["y"], "last", transB=1),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *sides])
        for name, sides in (("x", SIDES), ("y", (3,)))
    ]
    held = {name: array.astype(np.float32) for name, array in held.items()} | numbers
    parts = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], parts)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), "m.onnx")
    config = parse_train(TEXT, "a.toml")
    assert [one.op for one in config.network.nodes] == ["linear"] * 3
    run, x = PlainTrainer(config), np.load("images.npz")["x_test"]
    (wanted,) = ReferenceEvaluator("m.onnx").run(None, {"x": x})
    logits = run.model.forward(run._active(), x.reshape(len(x), -1))
    assert np.abs(logits - wanted).max() < 0.01 * np.abs(wanted).max()


@pytest.mark.parametrize("seed", range(20))
def test_places_are_never_told_wrong(seed):
    """What is found puts numbers where they were; places that are changed at random are other ones, or none."""
    rng = np.random.default_rng(seed)
    given = 2, 4, 2
    places = np.arange(16).reshape(given)[rng.permutation(2)][:, rng.integers(0, 4, 3)][:, :, rng.integers(0, 2, 3)]
    for changed in (places, rng.permuted(places.ravel()).reshape(places.shape)):
        found = moves_of(changed, given, changed.shape)
        if found is None:
            assert changed is not places
            continue
        image = np.arange(16.0).reshape(given)
        if found.rows:
            image = image[:, list(found.rows)][:, :, list(found.columns)]
        if found.filters is not None:
            image = np.einsum("oc,cij->oij", found.filters[:, :, 0, 0], image)
        assert np.array_equal(image, changed)
