"""Numbers that are taken by strides where they lie anyway are the tensor itself."""

from __future__ import annotations

import numpy as np
import pytest

from harness.train.onnx_file import read_onnx
from tests.harness.train.test_onnx_file import values
from wse_core.errors import UnsupportedError

onnx = pytest.importorskip("onnx")
node = onnx.helper.make_node


def strided(path, strides):
    """Write a file whose means of images are taken by such strides; return nothing."""
    given = values(np.random.default_rng(0), w=(4, 2, 3, 3), v=(5, 4))
    held = {"row": [-1], "zero": 0, "one": 1, "none": [], "out": [-1, 4]}
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv"),
        node("GlobalAveragePool", ["c"], ["m"], "pool"),
        node("Shape", ["m"], ["whole"], "sizes", start=0, end=1),
        node("Reshape", ["whole", "none"], ["size0"], "samples"),
        node("Reshape", ["m", "row"], ["flat"], "flat"),
    ]
    sums = "zero"
    for axis, (size, stride) in enumerate(zip((None, 4, 1, 1), strides, strict=True)):
        held |= {f"stride{axis}": stride, f"axes{axis}": [other for other in range(4) if other != axis]}
        held |= {} if size is None else {f"size{axis}": size}
        nodes += [
            node("Range", ["zero", f"size{axis}", "one"], [f"range{axis}"], f"range {axis}"),
            node("Mul", [f"range{axis}", f"stride{axis}"], [f"steps{axis}"], f"steps {axis}"),
            node("Unsqueeze", [f"steps{axis}", f"axes{axis}"], [f"part{axis}"], f"part {axis}"),
            node("Add", [sums, f"part{axis}"], [f"sum{axis}"], f"sum {axis}"),
        ]
        sums = f"sum{axis}"
    nodes += [
        node("Gather", ["flat", sums], ["taken"], "taken"),
        node("Reshape", ["taken", "out"], ["rows"], "rows"),
        node("Gemm", ["rows", "v"], ["y"], "last", transB=1),
    ]
    arrays = given | {name: np.array(one, np.int64) for name, one in held.items()}
    ends = [onnx.helper.make_tensor_value_info(*one) for one in (("x", 1, ["n", 2, 6, 6]), ("y", 1, ["n", 5]))]
    start = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], start)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9), path)


def test_a_tensor_in_one_piece_is_itself(tmp_path):
    strided(tmp_path / "m.onnx", (4, 1, 4, 4))
    assert [one["op"] for one in read_onnx(tmp_path / "m.onnx").nodes] == ["convolution", "avgpool", "linear"]


@pytest.mark.parametrize("strides", [(4, 2, 4, 4), (0, 1, 4, 4), (8, 1, 1, 1)])
def test_other_strides_are_named(tmp_path, strides):
    strided(tmp_path / "m.onnx", strides)
    with pytest.raises(UnsupportedError, match="flat .Reshape.|taken .Gather."):
        read_onnx(tmp_path / "m.onnx")
