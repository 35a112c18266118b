"""The network of a configuration becomes the graph of an ONNX file, node by node.

Parameters are initializers under the names of `harness.train.weights`; images are images there, and flattened where
features are wanted.  Batch normalisation is written as it is trained, so that the file can be trained again; for
inference ``training_mode`` is to be set to 0.

Source: ONNX operators, https://onnx.ai/onnx/operators/, version 21.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.graph.activations import ACTIVATIONS, LeakyRelu
from fabric.networks.graph.dropout import ratio_of
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.resample import METHODS, SLOPE
from fabric.networks.graph.tensors import INPUT
from fabric.networks.graph.windows import Window, window_of
from harness.kit.modules import need
from memx.statistics import MOMENTUM
from wse_core.errors import UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["OnnxWriter"]

BY_NAME = {
    **{
        name: name.capitalize()
        for name in ("relu", "tanh", "sigmoid", "elu", "softplus", "softsign", "mish", "add", "mul")
    },
    "hardswish": "HardSwish",
}
"""What is an operator of the same meaning has its name there."""
RESIZED: dict[str, dict[str, Any]] = {
    "linear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": SLOPE},
}
"""The operator has these attributes where it does what a method of `fabric.networks.graph.resample` says."""
SIDES_OF = (("height", "out_height"), ("width", "out_width"))
"""A node of other sides has those of what is given, and of the result, under these names."""
OPSET = 21
FEATURES = ("linear", "norm")
"""These take features, not images."""


class OnnxWriter:
    """An `OnnxWriter` makes an ONNX file of a trained network.

    Parameters
    ----------
    path : Path
        For messages.
    config : TrainConfig
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`.
    """

    def __init__(self, path: Path, config: TrainConfig, tensors: Mapping[str, np.ndarray]) -> None:
        self.path, self.config, self.tensors = path, config, tensors
        self.helper, self.numpy_helper = (need(f"onnx.{name}", "an .onnx file") for name in ("helper", "numpy_helper"))
        self.nodes: list[Any] = []
        self.held: dict[str, np.ndarray] = {}
        self.given = {node.name: node for node in config.network.nodes}

    def model(self) -> Any:
        """Return the whole file.

        Raises
        ------
        UnsupportedError
            An operation that is not written.
        """
        helper, config, image = self.helper, self.config, list(self.config.network.image)
        results, flat = {INPUT: "x"}, {INPUT: not image}
        for node in config.graph.nodes[:-1]:
            given, rows = [results[name] for name in node.inputs], flat[node.inputs[0]]
            if node.op in FEATURES and not rows:
                given, rows = [self._add("Flatten", given, axis=1)], True
            seen = self.given[node.group].image if node.group in self.given else ()
            results[node.name] = self._seen(self._written(node, given, rows), node, seen)
            rows = rows and not seen
            flat[node.name] = rows
        pixels = list(config.graph.label_image)
        if not rows and not pixels:  # a single pixel per channel
            self._add("Flatten", [results[node.name]], axis=1)
        self.nodes[-1].output[0] = "logits"
        ends = [
            helper.make_tensor_value_info(name, 1, ["samples", *sizes])  # 1: float32
            for name, sizes in (("x", image or [config.widths[0]]), ("logits", [config.classes, *pixels]))
        ]
        held = [self.numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(self.nodes, config.name, ends[:1], ends[1:], held)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="wse-sim")

    def _add(self, op: str, given: list[str], **attributes: Any) -> str:
        """Append a node; return the name of its result."""
        name = f"t{len(self.nodes) + 1}"
        self.nodes.append(self.helper.make_node(op, given, [name], f"{op} {len(self.nodes) + 1}", **attributes))
        return name

    def _seen(self, name: str, node: Node, image: Sequence[int]) -> str:
        """Return features, or what is an image of them."""
        if not image:
            return name
        shape = f"{node.name}.image"
        self.held[shape] = np.array([0, *image], np.int64)
        return self._add("Reshape", [name, shape])

    def _held(self, node: Node, *names: str, shape: tuple[int, ...] | None = None) -> list[str]:
        """Keep parameters of a node, or of the one whose they are, as initializers; return their names."""
        shares = self.given[node.group].shares if node.group in self.given else ""
        found = [f"{shares or node.group}.{name}" for name in names]
        for name in found:
            array = np.asarray(self.tensors[name], np.float32)
            self.held[name] = array if shape is None else array.reshape(shape)
        return found

    def _written(self, node: Node, given: list[str], rows: bool) -> str:
        """Append what a node of ours is; `rows`: it is given features, not images."""
        writers: dict[str, Callable[[Node, list[str]], str]] = {
            "linear": self._linear,
            "convolution": self._convolution,
            "transposed": self._transposed,
            "maxpool": lambda node, given: self._add("MaxPool", given, **_window(node), **_border(node)),
            "avgpool": lambda node, given: self._add("AveragePool", given, **_window(node), **_border(node)),
            "upsample": self._upsample,
            "resample": self._resample,
            "norm": self._norm,
            "centred": self._norm,
            "groupnorm": self._group_norm,
            "channelnorm": lambda node, given: self._channel_norm(node, given, rows),
            "batchnorm": self._batch_norm,
            "shift": lambda node, given: self._shift(node, given, rows),
            "concat": lambda node, given: self._add("Concat", given, axis=1),
            "dropout": self._dropout,
            "silu": lambda node, given: self._add("Mul", [given[0], self._add("Sigmoid", given)]),
            "gelu": lambda node, given: self._add("Gelu", given, approximate="tanh"),
            "gelu_erf": lambda node, given: self._add("Gelu", given, approximate="none"),
            **dict.fromkeys(BY_NAME, lambda node, given: self._add(BY_NAME[node.op], given)),
            "relu6": partial(self._clipped, low=0.0, high=6.0),
            "hardtanh": partial(self._clipped, low=-1.0, high=1.0),
            "hardsigmoid": lambda node, given: self._add("HardSigmoid", given, alpha=1 / 6, beta=0.5),
            **{
                name: partial(self._leaky, share=row.share)
                for name, row in ACTIVATIONS.items()
                if isinstance(row, LeakyRelu)
            },
        }
        if node.op not in writers:
            raise UnsupportedError(f"{node.name}: {node.op} is not written", where=self.path, feature="onnx")
        return writers[node.op](node, given)

    def _dropout(self, node: Node, given: list[str]) -> str:
        if node.size("together") > 1:
            what = f"{node.name}: dropout of {node.size('together')} features together is not written"
            raise UnsupportedError(what, where=self.path, feature="onnx")
        names = f"{node.name}.ratio", f"{node.name}.training"
        self.held |= zip(names, (np.array(ratio_of(node), np.float32), np.array(True)), strict=True)
        return self._add("Dropout", [*given, *names])

    def _leaky(self, node: Node, given: list[str], share: float) -> str:
        return self._add("LeakyRelu", given, alpha=share)

    def _clipped(self, node: Node, given: list[str], low: float, high: float) -> str:
        ends = []
        for value in (low, high):
            ends.append(f"{node.name}.{value:g}")
            self.held[ends[-1]] = np.array(value, np.float32)
        return self._add("Clip", [*given, *ends])

    def _linear(self, node: Node, given: list[str]) -> str:
        names = self._held(node, "weight", *["bias"] * node.size("bias"))
        return self._add("Gemm", [*given, *names], transB=1)

    def _convolution(self, node: Node, given: list[str]) -> str:
        names = self._held(node, "weight", *["bias"] * node.size("bias"))
        more = {"pads": _pads(node), "group": node.size("groups")}
        return self._add("Conv", [*given, *names], **_window(node), **more)

    def _transposed(self, node: Node, given: list[str]) -> str:
        more, one = {"pads": _pads(node), "group": node.size("groups")}, self.given[node.group]
        further = one.output_padding or 0
        along = further if one.output_padding_width is None else one.output_padding_width
        return self._add(
            "ConvTranspose",
            [*given, *self._held(node, "weight")],
            **_window(node),
            **more,
            output_padding=[further, along],
        )

    def _upsample(self, node: Node, given: list[str]) -> str:
        scales, shape = f"{node.name}.scales", f"{node.name}.shape"
        by = node.size("kernel_height"), node.size("kernel_width")
        self.held[scales] = np.array([1, 1, *by], np.float32)
        if (node.size("height"), node.size("width")) == by:  # perhaps of features
            self.held[shape] = np.array([0, -1, 1, 1], np.int64)
            given = [self._add("Reshape", [*given, shape])]
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._add("Resize", [*given, "", scales], mode="nearest", **how)

    def _resample(self, node: Node, given: list[str]) -> str:
        method = METHODS[node.size("method")]
        if method == "mean":
            return self._add("AveragePool", given, **_window(node), pads=_pads(node), count_include_pad=0)
        if method == "pick":
            return self._picked(node, given)
        if method not in RESIZED:
            raise UnsupportedError(f"{node.name}: means of {method} are not written", where=self.path, feature="onnx")
        sides = f"{node.name}.sides"
        self.held[sides] = np.array([node.size("out_height"), node.size("out_width")], np.int64)
        return self._add("Resize", [*given, "", "", sides], axes=[2, 3], **RESIZED[method])

    def _picked(self, node: Node, given: list[str]) -> str:
        """Append a zero behind each side, where there are zeros, and what gathers rows, then columns."""
        for axis, side, (whole, count) in ((2, "row", SIDES_OF[0]), (3, "column", SIDES_OF[1])):
            lines = np.array([node.size(f"{side} {k}") for k in range(node.size(count))], np.int64)
            if (lines < 0).any():
                ends = f"{node.name}.{side}.ends"
                self.held[ends] = np.array([0] * (4 + axis) + [1] + [0] * (3 - axis), np.int64)
                given = [self._add("Pad", [*given, ends])]
            name = f"{node.name}.{side}s"
            self.held[name] = np.where(lines < 0, node.size(whole), lines)
            given = [self._add("Gather", [*given, name], axis=axis)]
        return given[0]

    def _epsilon(self, node: Node) -> float:
        """Return what a normalisation adds below its root."""
        return node.epsilon(self.config.network.epsilon)

    def _norm(self, node: Node, given: list[str]) -> str:
        names = self._held(node, "norm.weight", *["norm.bias"] * (node.op == "norm"))
        return self._add("LayerNormalization", [*given, *names], axis=-1, epsilon=self._epsilon(node))

    def _group_norm(self, node: Node, given: list[str]) -> str:
        names = self._held(node, "norm.weight", "norm.bias")
        return self._add(
            "GroupNormalization", [*given, *names], num_groups=node.size("groups"), epsilon=self._epsilon(node)
        )

    def _channel_norm(self, node: Node, given: list[str], rows: bool) -> str:
        """Append a normalisation of features, or of channels, which stand last there."""
        given = given if rows else [self._add("Transpose", given, perm=[0, 2, 3, 1])]
        names = self._held(node, "norm.weight", "norm.bias")
        found = self._add("LayerNormalization", [*given, *names], axis=-1, epsilon=self._epsilon(node))
        return found if rows else self._add("Transpose", [found], perm=[0, 3, 1, 2])

    def _batch_norm(self, node: Node, given: list[str]) -> str:
        names = self._held(node, *(f"norm.{what}" for what in ("weight", "bias", "running_mean", "running_var")))
        share = self.given[node.group].momentum
        more = {
            "epsilon": self._epsilon(node),
            "momentum": 1 - (MOMENTUM if share is None else share),
            "training_mode": 1,
        }
        return self._add("BatchNormalization", [*given, *names], **more)

    def _shift(self, node: Node, given: list[str], rows: bool) -> str:
        shape = (-1,) if rows else (-1, 1, 1)
        if self.given[node.group].each and not rows:
            what = f"{node.name}: a shift of each pixel is not written"
            raise UnsupportedError(what, where=self.path, feature="onnx")
        return self._add("Add", [*given, *self._held(node, "bias", shape=shape)])


def _border(node: Node) -> dict[str, Any]:
    """Return the attributes of the padding of pooling: a mean counts it."""
    pads = _pads(node)
    counted = {"count_include_pad": 1} if node.op == "avgpool" else {}
    return {"pads": pads, **counted} if any(pads) else {}


def _pads(node: Node) -> list[int]:
    """Return rows above, columns on the left, rows below and columns on the right that are no pixels."""
    window = _over(node)
    return [*window.before, *window.behind]


def _over(node: Node) -> Window:
    """Return the window of a node over its images."""
    return window_of(node, math.prod(node.size(name) for name in ("channels", "height", "width")))


def _window(node: Node) -> dict[str, list[int]]:
    """Return the attributes of a window."""
    window = _over(node)
    found = {"kernel_shape": [window.kernel_height, window.kernel_width], "strides": list(window.strides)}
    return found | ({"dilations": list(window.dilations)} if window.dilations != (1, 1) else {})
