"""Networks are read from ONNX files, and trained weights written back into them.

A file is read as an exporter wrote it for training: one chain of nodes from the input to the logits, parameters as
initializers under their own names.  What is constant is worked out (`Transpose`, `Reshape`, `Identity`, `Cast` of
initializers); nodes become the layers of `harness.train.tables.LayerConfig`; what cannot is named, node by node.

======================================================  =============================================================
nodes                                                   become
======================================================  =============================================================
Gemm, or MatMul and Add                                 a layer; the orientation of the weights follows from the node
LayerNormalization behind it                            norm = true
Relu; Gelu; Sigmoid and Mul                             its activation: relu; gelu (tanh form); silu
Identity, Cast to a float, Dropout that drops nothing   nothing
Flatten, Reshape to rows, before the first layer        nothing: samples are rows
Softmax, LogSoftmax as the last node                    nothing, and a warning: the loss has its own
======================================================  =============================================================

What exporters have merged or folded for inference is refused, with the way to export it: parameters that were equal and
became one, names that were lost, batch normalisation without its own statistics.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fabric.networks.graph.operations import EPSILON
from fabric.networks.graph.tensors import INPUT
from harness.kit.modules import need
from traces.atomic import atomic_file
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["OnnxNetwork", "Origin", "export_onnx", "read_onnx", "save_onnx"]

EXPORT = "torch.onnx.export(module.train(), ..., dynamo=True, optimize=False, keep_initializers_as_inputs=False)"
"""So an exporter leaves names and nodes as they are."""
LOST = re.compile(r"(val_\d+|onnx::\w+_\d+|_?to_copy.*|t_\d+)")
"""Names that exporters give to what they made themselves."""
OPSETS = range(13, 24)


class Origin(NamedTuple):
    """Where a tensor of a layer came from.

    Attributes
    ----------
    name : str
        Of the initializer.
    transposed : bool
        Its axes are the other way round there.
    """

    name: str
    transposed: bool = False


class OnnxNetwork(NamedTuple):
    """What a file says.

    Attributes
    ----------
    inputs : int
        Features of a sample.
    layers : list of dict
        Keys of `harness.train.tables.LayerConfig`.
    tensors : dict[str, ndarray of float32]
        First weights by the names of `harness.train.weights`.
    origins : dict[str, Origin]
        By the same names.
    warnings : tuple of str
    """

    inputs: int
    layers: list[dict[str, Any]]
    tensors: dict[str, np.ndarray]
    origins: dict[str, Origin]
    warnings: tuple[str, ...] = ()

    def back(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return trained tensors under the names, and with the axes, that came in."""
        return {
            origin.name: np.ascontiguousarray(tensors[name].T if origin.transposed else tensors[name])
            for name, origin in self.origins.items()
        }


def read_onnx(path: str | Path) -> OnnxNetwork:
    """Return the network of a file.

    Raises
    ------
    ConfigError
        No such file, damage, or a form that inference was meant with; the message says how to export it.
    UnsupportedError
        Operations that are not trained here: a line per node.
    """
    return _OnnxReader(Path(path), _model(Path(path))).network()


def save_onnx(source: str | Path, path: str | Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the file `source` again with other values of its parameters, whole or not at all.

    Parameters
    ----------
    source, path : path-like
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`.
    """
    model, numpy_helper = _model(Path(source)), need("onnx.numpy_helper", "a network from an .onnx file")
    new = _OnnxReader(Path(source), model).network().back(tensors)
    for held in model.graph.initializer:
        if held.name in new:
            kind = numpy_helper.to_array(held).dtype
            held.CopyFrom(numpy_helper.from_array(new[held.name].astype(kind), held.name))
    _write(path, model)


def export_onnx(path: str | Path, config: TrainConfig, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the network of a configuration as an ONNX file of its own, from samples to logits.

    Parameters
    ----------
    path : path-like
    config : TrainConfig
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`, which are those of the initializers.

    Raises
    ------
    UnsupportedError
        An operation that is not written.
    """
    helper, numpy_helper = (need(f"onnx.{name}", "an .onnx file") for name in ("helper", "numpy_helper"))
    nodes: list[Any] = []
    kept: list[str] = []

    def add(op: str, given: list[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(op, given, [f"t{len(nodes) + 1}"], f"{op} {len(nodes) + 1}", **attributes))
        return f"t{len(nodes)}"

    results = {INPUT: "x"}
    for node in config.graph.nodes[:-1]:
        given = [results[name] for name in node.inputs]
        if node.op == "linear":
            names = [f"{node.group}.weight"] + [f"{node.group}.bias"] * node.size("bias")
            at, kept = add("Gemm", [*given, *names], transB=1), [*kept, *names]
        elif node.op == "norm":
            names = [f"{node.group}.norm.weight", f"{node.group}.norm.bias"]
            at, kept = add("LayerNormalization", [*given, *names], axis=-1, epsilon=EPSILON), [*kept, *names]
        elif node.op == "silu":
            at = add("Mul", [given[0], add("Sigmoid", given)])
        elif node.op in ("relu", "gelu", "add", "mul"):
            more = {"approximate": "tanh"} if node.op == "gelu" else {}
            at = add(node.op.capitalize(), given, **more)
        else:
            raise UnsupportedError(f"{node.name}: {node.op} is not written", where=path, feature="onnx")
        results[node.name] = at
    nodes[-1].output[0] = "logits"
    ends = [
        helper.make_tensor_value_info(name, 1, ["samples", features])  # 1: float32
        for name, features in (("x", config.widths[0]), ("logits", config.classes))
    ]
    held = [numpy_helper.from_array(np.asarray(tensors[name], np.float32), name) for name in kept]
    graph = helper.make_graph(nodes, config.name, ends[:1], ends[1:], held)
    opset = helper.make_opsetid("", 20)
    _write(path, helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="wse-sim"))


def _write(path: str | Path, model: Any) -> None:
    """Write a file, whole or not at all."""
    try:
        with atomic_file(Path(path)) as stream:
            stream.write(model.SerializeToString())
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=path) from None


def _model(path: Path) -> Any:
    onnx = need("onnx", "a network from an .onnx file")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except FileNotFoundError:
        raise ConfigError("no such file", where=path, hint="the path is relative to the configuration") from None
    except Exception as error:  # protobuf and the checker have one each for every kind of damage
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise ConfigError(f"cannot be read: {text}", where=path, cause="not a whole ONNX file") from None
    version = next((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    if version not in OPSETS:
        raise ConfigError(f"has operators of version {version}", where=path, hint=f"{OPSETS[0]} to {OPSETS[-1]}")
    return model


class _OnnxReader:
    """Reads one graph: values that are known, then the chain of nodes from its input."""

    def __init__(self, path: Path, model: Any) -> None:
        self.path, self.graph = path, model.graph
        self.to_array = need("onnx.numpy_helper", "a network from an .onnx file").to_array
        self.attribute = need("onnx.helper", "a network from an .onnx file").get_attribute_value
        self.known: dict[str, np.ndarray] = {item.name: self.to_array(item) for item in self.graph.initializer}
        self.origin = {name: Origin(name) for name, values in self.known.items() if values.dtype.kind == "f"}
        self.refused: list[str] = []
        self.warnings: list[str] = []
        self.layers: list[dict[str, Any]] = []
        self.inputs = 0
        self.tensors: dict[str, np.ndarray] = {}
        self.origins: dict[str, Origin] = {}
        self.used: Counter[str] = Counter()
        self.gate = ""  # the value that a Sigmoid under way will be multiplied with

    def network(self) -> OnnxNetwork:
        """Return what the graph says."""
        given = [item.name for item in self.graph.input if item.name not in self.known]
        if len(given) != 1 or len(self.graph.output) != 1:
            count = f"{len(given)} inputs and {len(self.graph.output)} outputs"
            raise UnsupportedError(f"the graph has {count}", where=self.path, feature="onnx", hint="one of each")
        at = given[0]
        for node in self.graph.node:
            if self._constant(node):
                continue
            taken = [name for name in node.input if name and name not in self.known]
            if taken not in ([at], [self.gate, at], [at, self.gate]) and not self.refused:
                self._refuse(node, f"takes {', '.join(taken) or 'nothing'}, not what the node before it gives")
            self._node(node)
            at = node.output[0]
        if at != self.graph.output[0].name and not self.refused:
            self.refused.append(f"{self.graph.output[0].name}: is not what the last node gives")
        self._shared()
        if self.refused or not self.layers:
            what = "; ".join(self.refused) or "there is no product in it"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint="networks that are chains of layers")
        return OnnxNetwork(self.inputs, self.layers, self.tensors, self.origins, tuple(self.warnings))

    def _name(self, node: Any) -> str:
        return str(node.name or node.output[0])

    def _refuse(self, node: Any, why: str) -> None:
        self.refused.append(f"{self._name(node)} ({node.op_type}): {why}")

    def _of(self, node: Any, name: str, default: Any) -> Any:
        return next((self.attribute(item) for item in node.attribute if item.name == name), default)

    # --- what is constant ---------------------------------------------------------------------------------------------

    def _constant(self, node: Any) -> bool:
        """Work a node out that depends on no sample; return whether it is one."""
        if node.op_type == "Constant":
            held = self._of(node, "value", None)
            single = [self._of(node, f"value_{kind}", None) for kind in ("float", "floats", "int", "ints")]
            values = (
                self.to_array(held) if held is not None else np.array(next((v for v in single if v is not None), 0))
            )
            self.known[node.output[0]] = values
            return True
        if not node.input or any(name and name not in self.known for name in node.input):
            return False
        values, origin = self.known[node.input[0]], self.origin.get(node.input[0])
        if node.op_type == "Transpose":
            order = self._of(node, "perm", list(range(values.ndim))[::-1])
            values = values.transpose(order)
            origin = origin and origin._replace(transposed=origin.transposed != (list(order) == [1, 0]))
        elif node.op_type == "Reshape":
            shape = [n or values.shape[k] for k, n in enumerate(self.known[node.input[1]].tolist())]
            values = values.reshape(shape)
            origin = origin if values.shape == self.known[node.input[0]].shape else None
        elif node.op_type not in ("Identity", "Cast"):
            self._refuse(node, "is not worked out on constants")
        self.known[node.output[0]] = values
        if origin:
            self.origin[node.output[0]] = origin
        return True

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _node(self, node: Any) -> None:
        if self.gate and node.op_type != "Mul":
            self._refuse(node, "a sigmoid that is not multiplied with its own input is no activation here")
            self.gate = ""
        readers: dict[str, Callable[[Any], None]] = {
            "Gemm": self._gemm,
            "MatMul": self._matmul,
            "Add": self._add,
            "LayerNormalization": self._norm,
            "Relu": lambda node: self._activation(node, "relu"),
            "Gelu": self._gelu,
            "Sigmoid": self._sigmoid,
            "Mul": self._mul,
            "Identity": lambda node: None,
            "Cast": lambda node: None,
            "Dropout": self._dropout,
            "Flatten": self._rows,
            "Reshape": self._rows,
            "Softmax": self._softmax,
            "LogSoftmax": self._softmax,
            "BatchNormalization": self._batch_norm,
        }
        if node.op_type not in readers:
            self._refuse(node, "is not trained here")
        else:
            readers[node.op_type](node)

    def _parameter(self, node: Any, place: int, name: str, transposed: bool = False) -> np.ndarray | None:
        """Return an initializer that a node takes, kept under a name of ours; None if it is none."""
        given = node.input[place] if len(node.input) > place else ""
        origin = self.origin.get(given)
        if origin is None:
            self._refuse(node, f"takes {given or 'nothing'}, which is no parameter of the file")
            return None
        values = np.asarray(self.known[given], np.float32)
        self.tensors[name] = np.ascontiguousarray(values.T if transposed else values)
        self.origins[name] = origin._replace(transposed=origin.transposed != transposed)
        self.used[origin.name] += 1
        return self.tensors[name]

    def _layer(self, node: Any, transposed: bool) -> bool:
        """Begin a layer whose weights are the second input of a node; return whether that went well."""
        weights = self._parameter(node, 1, f"layer{len(self.layers) + 1}.weight", transposed)
        if weights is None:
            return False
        if weights.ndim != 2:
            self._refuse(node, f"weights of shape {weights.shape} are no matrix")
            return False
        outputs, inputs = weights.shape
        if self.layers and inputs != self.layers[-1]["outputs"]:
            self._refuse(node, f"takes {inputs} features, the layer before it gives {self.layers[-1]['outputs']}")
        self.inputs = self.inputs or inputs
        self.layers.append({"outputs": outputs, "activation": "none", "bias": False, "norm": False})
        return True

    def _bias(self, node: Any, place: int) -> None:
        layer = self.layers[-1]
        values = self._parameter(node, place, f"layer{len(self.layers)}.bias")
        if values is not None and values.shape != (layer["outputs"],):
            self._refuse(node, f"a bias of shape {values.shape} for {layer['outputs']} features")
        layer["bias"] = True

    def _gemm(self, node: Any) -> None:
        if self._of(node, "alpha", 1.0) != 1 or self._of(node, "beta", 1.0) != 1 or self._of(node, "transA", 0):
            self._refuse(node, "alpha and beta are 1 and transA is 0 here")
        elif self._layer(node, not self._of(node, "transB", 0)) and len(node.input) > 2 and node.input[2]:
            self._bias(node, 2)

    def _matmul(self, node: Any) -> None:
        if node.input[0] in self.known:
            self._refuse(node, "weights are the second factor here")
        else:
            self._layer(node, True)

    def _add(self, node: Any) -> None:
        places = [place for place, name in enumerate(node.input) if name in self.known]
        fresh = self.layers and not (self.layers[-1]["bias"] or self.layers[-1]["norm"])
        if len(places) != 1 or not fresh or self.layers[-1]["activation"] != "none":
            self._refuse(node, "only the bias of a product is added here")
        else:
            self._bias(node, places[0])

    def _norm(self, node: Any) -> None:
        layer, number = (self.layers[-1] if self.layers else None), len(self.layers)
        if layer is None or layer["norm"] or layer["activation"] != "none":
            self._refuse(node, "only the result of a product is normalised here, before its activation")
            return
        if self._of(node, "axis", -1) not in (-1, 1):
            self._refuse(node, "only the features of a sample are normalised here")
        if abs(self._of(node, "epsilon", 1e-5) - EPSILON) > 1e-9:
            self._refuse(node, f"epsilon is {EPSILON:g} here")
        for place, what in ((1, "weight"), (2, "bias")):
            values = self._parameter(node, place, f"layer{number}.norm.{what}")
            if values is not None and values.shape != (layer["outputs"],):
                self._refuse(node, f"a {what} of shape {values.shape} for {layer['outputs']} features")
        layer["norm"] = True

    def _activation(self, node: Any, name: str) -> None:
        if not self.layers or self.layers[-1]["activation"] != "none":
            self._refuse(node, "only the result of a product, or of its normalisation, is activated here, and once")
        else:
            self.layers[-1]["activation"] = name

    def _gelu(self, node: Any) -> None:
        if self._of(node, "approximate", b"none") != b"tanh":
            self._refuse(node, "the erf form is not calculated here; nn.GELU(approximate='tanh') is")
        else:
            self._activation(node, "gelu")

    def _sigmoid(self, node: Any) -> None:
        self.gate = str(node.input[0])

    def _mul(self, node: Any) -> None:
        if self.gate and self.gate in node.input:
            self._activation(node, "silu")
        else:
            self._refuse(node, "is not trained here")
        self.gate = ""

    def _dropout(self, node: Any) -> None:
        ratio = self.known.get(node.input[1], 0.5) if len(node.input) > 1 and node.input[1] else 0.5
        drops = self.known.get(node.input[2], True) if len(node.input) > 2 and node.input[2] else False
        if drops and np.any(ratio):
            self._refuse(node, "dropout is not modelled: export with a ratio of 0")

    def _rows(self, node: Any) -> None:
        if self.layers:
            self._refuse(node, "only samples become rows here")
        elif node.op_type == "Flatten" and self._of(node, "axis", 1) != 1:
            self._refuse(node, "axis is 1 here")
        elif node.op_type == "Reshape" and self.known[node.input[1]].shape != (2,):
            self._refuse(node, "samples become rows of two axes here")

    def _softmax(self, node: Any) -> None:
        if node.output[0] != self.graph.output[0].name:
            self._refuse(node, "is not trained here")
        else:
            self.warnings.append(f"{self._name(node)} of {self.path.name} is left out: the loss begins with logits")

    def _batch_norm(self, node: Any) -> None:
        if not self._of(node, "training_mode", 0):
            raise ConfigError(
                f"{self._name(node)}: batch normalisation with the statistics of inference",
                where=self.path,
                hint=EXPORT,
            )
        self._refuse(node, "is not trained here")

    def _shared(self) -> None:
        """Refuse parameters that several nodes share, and names that are an exporter's own."""
        merged = [name for name, count in self.used.items() if count > 1]
        if merged:
            raise ConfigError(
                f"{merged[0]} is the parameter of {self.used[merged[0]]} nodes",
                where=self.path,
                cause="exporters merge parameters that are equal when they begin",
                hint=EXPORT,
            )
        lost = [name for name in self.used if LOST.fullmatch(name)]
        if lost and not self.refused:
            raise ConfigError(
                f"{lost[0]} is no name of a parameter",
                where=self.path,
                cause="the exporter folded it, for example transposed it, and its name was lost",
                hint=EXPORT,
            )
