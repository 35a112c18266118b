"""The graph of an ONNX file becomes the layers or operations of a network, node by node.

What depends on no sample is worked out by ONNX' own reference evaluator, also what is made of the shape of a tensor;
parameters may be transposed and get axes of length one.  `harness.train.onnx_file` says what nodes become.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.plain import EPSILON
from fabric.networks.graph.resample import SIZED, resampled
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT
from harness.kit.modules import need
from harness.train.nodes import enlarged, window_at
from harness.train.onnx_dropout import LEAVES_OUT, WHOLE
from harness.train.onnx_functions import BINARY, STEPS, Call, call_of, composed, powers_of, told
from harness.train.onnx_repeats import RANDOM
from wse_core.errors import ConfigError, UnsupportedError

__all__ = [
    "AS_MODULE",
    "EXPORT",
    "FIXED",
    "KEPT",
    "KNOWN_STATISTICS",
    "LOST",
    "FileTensor",
    "OnnxNetwork",
    "OnnxReader",
    "Origin",
]

EXPORT = "torch.onnx.export(module.train(), ..., dynamo=True, optimize=False, keep_initializers_as_inputs=False)"
"""So an exporter leaves names and nodes as they are."""
TRAINING = "torch.onnx.export(..., dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)"
"""So an exporter says that batch normalisation is trained."""
LOST = re.compile(r"(val_\d+|onnx::\w+_\d+|_?to_copy.*|t_\d+|lifted_tensor_\d+|.*Constant(_\d+)?_output_\d+)")
"""Exporters give such names to what they made themselves."""
SAMPLES = 1_000_003
"""So many samples stand for a number of them that is left open: a prime that no sizes multiply to."""
KEPT = "wse.kept:"
"""A property of a file whose key begins so names an array that a module keeps: its value is the name there."""
AS_MODULE = "wse.as_module"
"""A file with this property has the parameters of a module, none of them merged because their values were equal."""
FIXED = "wse.fixed:"
"""The key of a property of a file begins so if it names an array that is not trained."""
KEEPS = ("Transpose", "Reshape", "Identity", "Cast", "CastLike", "Unsqueeze", "Squeeze")
"""A parameter is still one behind these operations."""
POINTWISE = ("Add", "Sub", "Mul", "Relu", "Gelu", "Tanh", "PRelu", "Identity", "Cast", "Dropout")
"""These do the same wherever channels stand."""
BY_BATCH, KNOWN_STATISTICS = "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"
"""PyTorch calls nodes so that normalise over batches; the latter take known statistics."""
FLOATS = (1, 10, 11, 16)
"""But for rounding a number of these types stays the same: float32, float16, float64 and bfloat16."""


class Origin(NamedTuple):
    """An `Origin` says from which part of which tensor of a file a parameter came.

    Attributes
    ----------
    name : str
        Of the initializer.
    shape : tuple of int
        Of the initializer.
    transposed : bool
        Its axes are the other way round there.
    rows : tuple of int or None
        Numbers of the rows of the initializer, its axes turned if need be, that ours has; None: all.
    columns : tuple of int or None
        First and end of the columns of ours that it has; None: all.
    copies : int
        Ours has its numbers so many times, one after the other.
    ours, across : tuple of int or None
        Rows and columns of ours that it has, in order; None: all.
    places : tuple of int or None
        For each number of ours its place among those of the initializer; None: as the others say.
    more : float
        Ours are so much larger: factors of a normalisation that a module has less one.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    rows: tuple[int, ...] | None = None
    columns: tuple[int, int] | None = None
    copies: int = 1
    ours: tuple[int, ...] | None = None
    across: tuple[int, ...] | None = None
    places: tuple[int, ...] | None = None
    more: float = 0.0


class OnnxNetwork(NamedTuple):
    """An `OnnxNetwork` is what a file says about a network.

    Attributes
    ----------
    inputs : int
        Features of a sample.
    layers : list of dict
        Keys of `harness.train.tables.LayerConfig`; empty if the network is no chain of layers.
    tensors : dict[str, ndarray of float32]
        First weights by the names of `harness.train.weights`.
    origins : dict[str, tuple of Origin]
        By the same names; several where one of ours is made of several, as the product that looks up tokens and places.
    warnings : tuple of str
    nodes : list of dict
        Instead of layers: keys of `harness.train.tables.NodeConfig`.
    image : tuple of int
        Channels, rows and columns of a sample; empty if it is none.
    sequence : int
        Tokens of a sequence, each of which is a sample here; 0 if the network knows no sequences.
    places : tuple of int
        As `harness.train.tables.NetworkConfig` has them.
    fixed_places, token_scale, place_scales, patches
        As `harness.train.tables.NetworkConfig` has them.
    alone : str
        The ``first`` or ``last`` token of a sequence alone has a result; empty: every one has.
    masked : tuple of int
        As `harness.train.tables.NetworkConfig` has it, if the graph takes a mask.
    ending, absent : tuple of int
        As `harness.train.tables.NetworkConfig` has them.
    hidden : tuple of int
        Numbers of tokens that are hidden, in attention or from a mean.
    planes : tuple of int
        Rows and columns of the result, if it has logits for each pixel; empty if a sample has one of a class.
    by_token : bool
        The pixels of the result are the tokens of a sequence, and the file has their features behind them.
    epsilon : float
        Of normalisations.
    tied : str
        The product that shares the table of the first one.
    other_names : dict[str, str]
        Names that a module has besides for a parameter of the file.
    kept : dict[str, ndarray]
        What a module keeps besides its parameters, and is not trained.
    parted : dict[str, ndarray]
        Parameters of the file of which some numbers alone may be ours.
    """

    inputs: int
    layers: list[dict[str, Any]]
    tensors: dict[str, np.ndarray]
    origins: dict[str, tuple[Origin, ...]]
    warnings: tuple[str, ...] = ()
    nodes: Sequence[dict[str, Any]] = ()
    image: tuple[int, ...] = ()
    sequence: int = 0
    places: tuple[int, ...] = ()
    fixed_places: tuple[int, ...] = ()
    token_scale: float = 1.0
    place_scales: tuple[float, ...] = ()
    patches: tuple[int, ...] = ()
    alone: str = ""
    masked: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    ending: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    planes: tuple[int, ...] = ()
    by_token: bool = False
    epsilon: float = EPSILON
    tied: str = ""
    other_names: Mapping[str, str] = MappingProxyType({})
    kept: Mapping[str, np.ndarray] = MappingProxyType({})
    parted: Mapping[str, np.ndarray] = MappingProxyType({})

    def back(self, tensors: Mapping[str, np.ndarray], gradients: bool = False) -> dict[str, np.ndarray]:
        """Return trained tensors, or `gradients` of them, under the names, and with the axes, that came in."""
        found: dict[str, np.ndarray] = {}
        for name, origins in self.origins.items():
            for origin in origins:
                ours = tensors[name] if origin.columns is None else tensors[name][:, slice(*origin.columns)]
                ours = ours[: len(ours) // origin.copies]
                ours = ours - np.float32(origin.more) if origin.more and not gradients else ours
                ours = ours if origin.ours is None else ours[list(origin.ours)]
                ours = ours if origin.across is None else ours[:, list(origin.across)]
                if origin.places is not None:
                    before = self.parted.get(origin.name)  # of which not all numbers are used
                    whole = np.zeros(origin.shape, np.float32) if before is None or gradients else np.array(before)
                    whole = found.setdefault(origin.name, whole)
                    whole.ravel()[list(origin.places)] = np.ravel(ours)
                    continue
                if origin.rows is None:
                    found[origin.name] = np.ascontiguousarray(ours.T if origin.transposed else ours)
                    continue
                turned = origin.transposed and len(origin.shape) > 1
                whole = found.setdefault(origin.name, np.zeros(origin.shape, np.float32))
                (whole.T if turned else whole)[list(origin.rows)] = ours
        shapes = {origin.name: origin.shape for origins in self.origins.values() for origin in origins}
        named = {name: values.reshape(shapes[name]) for name, values in found.items()}
        named |= {other: named[name] for other, name in self.other_names.items() if name in named}
        return named if gradients else dict(self.kept) | named


class FileTensor(NamedTuple):
    """A `FileTensor` is a tensor of a graph that depends on the samples.

    Attributes
    ----------
    node : str
        What gives it: the name of a node of ours, ``input``; empty if that was refused.
    shape : tuple of int
        Of a sample; empty if that is not known.
    groups : int
        It is seen as so many groups of channels, for an instance normalisation; 0: it is not.
    border : tuple of int
        Rows of zeros above, columns of them on the left, rows below and columns on the right of images: `Pad`.
    last : bool
        The file has its channels behind rows and columns.
    """

    node: str
    shape: tuple[int, ...]
    groups: int = 0
    border: tuple[int, ...] = ()
    last: bool = False

    @property
    def features(self) -> int:
        """The tensor has so many features; 0 if that is not known."""
        return math.prod(self.shape) if self.shape else 0

    @property
    def image(self) -> tuple[int, ...]:
        """Images have channels, rows and columns; what has one side, as sound has, is a row.  Empty if it is none."""
        channels, *sides = self.shape or (0,)
        return (channels, *[1] * (len(sides) == 1), *sides) if len(sides) in (1, 2) else ()


class OnnxReader:
    """An `OnnxReader` reads one graph: values that are known, then every node that depends on the samples.

    Parameters
    ----------
    path : Path
        For messages.
    model : onnx.ModelProto
    masked : sequence of int, optional
        As `harness.train.tables.NetworkConfig` has it.
    """

    def __init__(self, path: Path, model: Any, masked: Sequence[int] = ()) -> None:
        self.path, self.graph, self.opsets, self.masked = path, model.graph, model.opset_import, tuple(masked)
        self.to_array = need("onnx.numpy_helper", "a network from an .onnx file").to_array
        self.attribute = need("onnx.helper", "a network from an .onnx file").get_attribute_value
        self.known: dict[str, np.ndarray] = {item.name: self.to_array(item) for item in self.graph.initializer}
        self.origin = {
            name: Origin(name, values.shape) for name, values in self.known.items() if values.dtype.kind == "f"
        }
        self.refused: list[str] = []
        self.warnings: list[str] = []
        self.nodes: list[dict[str, Any]] = []
        self.values: dict[str, FileTensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}  # of what nodes of ours give
        self.pending: dict[str, tuple[str, Call, Any]] = {}  # functions of a tensor that are no nodes of ours yet
        self.unfinished: dict[str, tuple[Any, set[str]]] = {}  # group norms that lack a factor or a shift
        self.tensors: dict[str, np.ndarray] = {}
        self.origins: dict[str, tuple[Origin, ...]] = {}
        self.used: Counter[str] = Counter()
        self.takes = Counter(name for node in self.graph.node for name in node.input)
        self.left = Counter(self.takes)  # of a tensor: nodes that are still to take it
        self.samples = SAMPLES
        self.inputs = 0
        self.fixed = {item.value for item in model.metadata_props if item.key.startswith(FIXED)}
        self.held = {item.value for item in model.metadata_props if item.key.startswith(KEPT)}
        self.order = {self._name(node): number for number, node in enumerate(self.graph.node)}
        self.at = -1  # number of the node that is looked at
        self.refused_at: dict[str, int] = {}
        self.as_module = any(item.key == AS_MODULE for item in model.metadata_props)
        self.epsilon = EPSILON  # of the normalisation that is read

    def network(self) -> OnnxNetwork:
        """Return what the graph says.

        Raises
        ------
        ConfigError
            A form that inference was meant with.
        UnsupportedError
            Operations that are not trained here: a line per node.
        """
        given = [item for item in self.graph.input if item.name not in self.known]
        if not 1 <= len(given) <= 2 or len(self.graph.output) != 1:
            names = ", ".join(item.name for item in (*given, *self.graph.output))
            what = f"the graph has {len(given)} inputs and {len(self.graph.output)} outputs: {names}"
            hint = "one of each, and a mask of padding besides the numbers of tokens"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint=hint)
        image = self._begin(given[0])
        for item in given[1:]:
            self._begin_mask(item)
        takes = self.takes
        for number, node in enumerate(self.graph.node):
            self.at = number
            known = self._constant(node)
            if not known:
                self._node(node)
            self._release(node)
            for name in node.output[:1] if not known else ():
                self.values.setdefault(name, FileTensor("", ()))
                if not takes[name] and name != self.graph.output[0].name and not self.refused:
                    self._refuse(node, "nothing takes its result")
        self._ends()
        self._shared()
        self._norms_alike()
        self._frozen()
        if self.refused or not any(node["op"] in ("linear", "convolution", "transposed") for node in self.nodes):
            what = "; ".join(self.refused) or "there is no product in it"
            folded = any(LOST.fullmatch(item.name) for item in self.graph.initializer if len(item.dims) > 1)
            hint = f"{EXPORT}, for the file was optimised" if folded else "the operations of docs/training.md"
            raise UnsupportedError(what, where=self.path, feature="onnx", hint=hint)
        image = image or FileTensor("", self.shapes[INPUT]).image
        own = [one["epsilon"] for one in self.nodes if "epsilon" in one]
        for one in self.nodes:
            if one.get("epsilon") in own[:1]:  # the first one is that of the network
                del one["epsilon"]
        placed = {one.name for origins in self.origins.values() for one in origins if one.places is not None}
        parted = {name: np.asarray(self.known[name], np.float32) for name in placed}
        return self._network(image)._replace(epsilon=next(iter(own), EPSILON), parted=parted)

    def _begin_mask(self, given: Any) -> None:
        """Take a second input; readers of sequences do."""
        what = f"{given.name}: a second input is a mask of tokens here, and samples are no numbers of tokens"
        raise UnsupportedError(what, where=self.path, feature="onnx", hint="one input")

    def _release(self, node: Any) -> None:
        """Count what a node takes."""
        for name in node.input:
            self.left[name] -= 1

    def _network(self, image: tuple[int, ...]) -> OnnxNetwork:
        """Return what was found."""
        more = "fixed", "shares", "epsilon"
        chain = not image and not any(one.get(key) for one in self.nodes for key in more)
        names = self._layers() if chain else None
        if names is None:
            found = OnnxNetwork(self.inputs, [], self.tensors, self.origins, tuple(self.warnings), self.nodes, image)
            sizes = self.values[self.graph.output[0].name].image[1:]
            return found._replace(planes=sizes if image and math.prod(sizes) > 1 else ())
        layers, renamed = names
        tensors = {_renamed(name, renamed): values for name, values in self.tensors.items()}
        origins = {_renamed(name, renamed): origin for name, origin in self.origins.items()}
        return OnnxNetwork(self.inputs, layers, tensors, origins, tuple(self.warnings))

    def _begin(self, given: Any) -> tuple[int, ...]:
        """Take the input of the graph; return its sizes if it is an image."""
        sizes = [item.dim_value for item in given.type.tensor_type.shape.dim]
        self.samples = sizes[0] if sizes and sizes[0] > 0 else SAMPLES
        shape = tuple(sizes[1:]) if all(size > 0 for size in sizes[1:]) else ()
        if len(sizes) == 4 and not shape:
            raise UnsupportedError(
                f"{given.name}: images of a size that is left open", where=self.path, feature="onnx", hint="fixed sizes"
            )
        self.inputs = math.prod(shape) if shape else 0
        self.values[given.name], self.shapes[INPUT] = FileTensor(INPUT, shape), shape
        return self.values[given.name].image

    def _ends(self) -> None:
        """Refuse what was begun and is not whole, and a result that the graph does not end with."""
        self._settle([self.graph.output[0].name])
        for node, lacks in self.unfinished.values():
            what = f"without a {' and a '.join(sorted(lacks))} per channel"
            self._refuse(node, f"a normalisation {what} is not trained here")
        last = self.values.get(self.graph.output[0].name)
        if not self.refused and (last is None or last.node != (self.nodes[-1]["name"] if self.nodes else "")):
            self.refused.append(f"{self.graph.output[0].name}: is not what the last node gives")
        elif (
            not self.refused
            and last
            and (last.groups or last.border or last.last or (math.prod(last.shape[1:]) > 1 and not last.image))
        ):
            shape = (last.groups, last.features // last.groups) if last.groups else last.shape
            what = f"of shape {shape} are no logits: a sample, or a pixel of an image, has one class here"
            self.refused.append(f"{self.graph.output[0].name}: results {what}")

    def _layers(self) -> tuple[list[dict[str, Any]], dict[str, str]] | None:
        """Return a chain of layers, and new names of its nodes; None if the nodes are none."""
        found: list[dict[str, Any]] = []
        names, before = dict[str, str](), INPUT
        for node in self.nodes:
            op, layer = node["op"], found[-1] if found else None
            if node["inputs"] != [before]:
                return None
            if op == "linear":
                found.append({"outputs": node["outputs"], "activation": "none", "bias": node["bias"], "norm": False})
            elif op == "norm" and layer and not layer["norm"] and layer["activation"] == "none":
                layer["norm"] = True
            elif op in ACTIVATIONS and layer and layer["activation"] == "none":
                layer["activation"] = op
            else:
                return None
            before, names[node["name"]] = node["name"], f"layer{len(found)}"
        return found, names

    # --- what is constant ---------------------------------------------------------------------------------------------

    def _constant(self, node: Any) -> bool:
        """Work a node out that depends on no sample but by its shape; return whether it is one.

        What is drawn is another thing each time.
        """
        if node.op_type in RANDOM and node.op_type != "Dropout":
            return False
        if node.op_type == "Shape" and node.input[0] in self.values:
            shape = self._whole(node.input[0])
            if shape:
                whole = np.array(shape, np.int64)
                self.known[node.output[0]] = whole[self._of(node, "start", 0) : self._of(node, "end", len(whole))]
                return True
        if node.op_type == "CastLike" and node.input[0] in self.known and node.input[1] in self.values:
            given = self.graph.input[0]  # the only tensor of whole numbers, if it is one
            ids = given.name == node.input[1] and given.type.tensor_type.elem_type not in FLOATS
            self.known[node.output[0]] = np.asarray(self.known[node.input[0]], np.int64 if ids else np.float32)
            if node.input[0] in self.origin:
                self.origin[node.output[0]] = self.origin[node.input[0]]
            return True
        if any(name and name not in self.known for name in node.input):
            return False
        origin = self.origin.get(node.input[0]) if node.input else None
        cuts = node.op_type in ("Split", "SplitToSequence", "SequenceAt") and self._cut_known(node)
        if cuts or (node.op_type == "Add" and self._more_than(node)):
            return True
        if origin is None or node.op_type in ("Shape", "Size"):
            self._evaluated(node)
        elif node.op_type in KEEPS:
            self._kept(node, origin)
        else:
            self._changed(node)
        return True

    def _cut_known(self, node: Any) -> bool:
        """Cut a constant into pieces, or take one of them; pieces of rows of a parameter are parts of it."""
        if node.op_type == "SequenceAt":
            whole, at = self.known[node.input[0]], int(self.known[node.input[1]].reshape(()))
            if whole.dtype != object:
                return False
            self.known[node.output[0]] = whole[at]
            if (name := f"{node.input[0]}#{at % len(whole)}") in self.origin:
                self.origin[node.output[0]] = self.origin[name]
            return True
        self._evaluated(node)
        origin, values = self.origin.get(node.input[0]), self.known[node.input[0]]
        parts = [self.known[name] for name in node.output] if node.op_type == "Split" else self.known[node.output[0]]
        names = node.output if node.op_type == "Split" else [f"{node.output[0]}#{k}" for k in range(len(parts))]
        begin, axis = 0, int(self._of(node, "axis", 0)) % values.ndim
        rows = origin is not None and origin.rows is None and origin.shape == values.shape and not origin.transposed
        for name, part in zip(names, parts, strict=True):
            if origin is not None and rows and axis == 0 and part.ndim == values.ndim:
                self.origin[name] = origin._replace(rows=tuple(range(begin, begin + len(part))))
            begin += len(part) if part.ndim else 0
        return True

    def _more_than(self, node: Any) -> bool:
        """Keep a parameter, a vector, to which a number is added; return whether that is what a node does."""
        for given, other in (node.input, node.input[::-1]):
            origin, values = self.origin.get(given), self.known[other]
            plain = values.size == 1 and other not in self.origin and math.prod(self.known[given].shape[:-1]) == 1
            if origin is not None and plain and math.prod(self.known[given].shape) > 1:
                self._evaluated(node)
                self.origin[node.output[0]] = origin._replace(more=origin.more + float(values.reshape(())))
                return True
        return False

    def _whole(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor of all samples; empty if that is not known."""
        shape, turned = self.values[name].shape, self.values[name].last
        shape = (*shape[1:], shape[0]) if turned else shape
        return (self.samples, *shape) if shape else ()

    def _changed(self, node: Any) -> None:
        """Refuse what changes the numbers of a parameter."""
        self._refuse(node, "is not worked out on parameters")
        self.known[node.output[0]] = self.known[node.input[0]]

    def _evaluated(self, node: Any) -> None:
        """Work out a node by the reference evaluator."""
        try:
            found = self._run(node, {name: self.known[name] for name in node.input if name})
        except Exception as error:  # operators have one each for what they do not take
            self._refuse(node, f"is not worked out on constants: {' '.join(str(error).split())[:100]}")
            found = [np.zeros(1)] * len(node.output)
        for name, values in zip(node.output, found, strict=True):
            self.known[name] = np.asarray(values) if not isinstance(values, list) else _list_of(values)

    def _run(self, node: Any, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return what the reference evaluator makes of what a node takes, by name.

        What it takes minutes for, or gigabytes, where there are as many samples as stand for an open number, is quick.
        """
        if node.op_type == "Expand":
            whole, sides = (given[name] for name in node.input)
            return [np.broadcast_to(whole, np.broadcast_shapes(whole.shape, tuple(sides.tolist())))]
        if node.op_type == "GatherND" and not self._of(node, "batch_dims", 0):
            whole, at = (given[name] for name in node.input)
            return [whole[tuple(np.moveaxis(at, -1, 0))]]
        helper, reference = (need(name, "a network from an .onnx file") for name in ("onnx.helper", "onnx.reference"))
        kinds = {name: helper.np_dtype_to_tensor_dtype(values.dtype) for name, values in given.items()}
        ins = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
        outs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        model = helper.make_model(helper.make_graph([node], "constants", ins, outs), opset_imports=self.opsets)
        return list(reference.ReferenceEvaluator(model).run(None, dict(given)))

    def _kept(self, node: Any, origin: Origin) -> None:
        """Keep a parameter as one whose axes have changed."""
        before = self.known[node.input[0]]
        self._evaluated(node)
        after = self.known[node.output[0]]
        if node.op_type == "Transpose" and before.ndim == 2 and after.shape == before.shape[::-1]:
            order = self._of(node, "perm", [1, 0])
            origin = origin._replace(transposed=origin.transposed != (list(order) == [1, 0]))
        elif node.op_type == "Transpose" and not np.array_equal(after.ravel(), before.ravel(), equal_nan=True):
            return  # filters whose axes change places do not go back
        elif [n for n in after.shape if n != 1] != [n for n in before.shape if n != 1] or after.dtype.kind != "f":
            return  # no parameter any more
        self.origin[node.output[0]] = origin

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _name(self, node: Any) -> str:
        return str(node.name or node.output[0])

    def _refuse(self, node: Any, why: str) -> None:
        line = f"{self._name(node)} ({node.op_type}): {why}"
        self.refused_at.setdefault(line, self.order.get(self._name(node), self.at))
        if line not in self.refused:
            self.refused.append(line)

    @property
    def reached(self) -> int:
        """The first node that was refused has this number, or the last one that was looked at."""
        return min((self.refused_at[line] for line in self.refused if line in self.refused_at), default=self.at)

    def _of(self, node: Any, name: str, default: Any) -> Any:
        return next((self.attribute(item) for item in node.attribute if item.name == name), default)

    def _folded(self, node: Any) -> None:
        """Refuse a product into which a normalisation has gone, by what the exporter notes."""
        if any("BatchNorm" in item.value for item in node.metadata_props) and node.op_type != "BatchNormalization":
            raise ConfigError(
                f"{self._name(node)}: batch normalisation is folded into it, as for inference",
                where=self.path,
                hint=EXPORT,
            )

    def _readers(self) -> dict[str, Callable[[Any, FileTensor], None]]:
        """Return what reads nodes, by operation."""
        return {
            "Gemm": self._gemm,
            "MatMul": self._matmul,
            "Conv": self._convolution,
            "ConvTranspose": self._transposed,
            "Concat": self._concat,
            "Pad": self._pad,
            "Slice": self._slice,
            "MaxPool": self._pool,
            "AveragePool": self._pool,
            "GlobalAveragePool": self._over_sides,
            "GlobalMaxPool": self._over_sides,
            "Resize": self._resize,
            "Upsample": self._resize,
            "Expand": self._expand,
            "ReduceMean": self._over_sides,
            "ReduceMax": self._over_sides,
            "ReduceSum": self._sum_of_sides,
            "Add": self._add,
            "Sub": self._sub,
            "Div": self._div,
            "Max": self._larger,
            "Min": self._larger,
            "Mul": self._mul,
            "PRelu": self._learned_bend,
            "Transpose": self._transpose,
            "LayerNormalization": self._norm,
            "ChannelNormalization": self._norm_of_channels,
            "GroupNormalization": self._group_norm,
            "InstanceNormalization": self._instance_norm,
            "Relu": self._relu,
            "Gelu": self._gelu,
            "Tanh": self._tanh,
            "Identity": self._same,
            "Cast": self._cast,
            "Dropout": self._dropout,
            "Flatten": self._rows,
            "Reshape": self._rows,
            "Squeeze": self._sides,
            "Unsqueeze": self._sides,
            "Softmax": self._softmax,
            "LogSoftmax": self._softmax,
            "BatchNormalization": self._batch_norm,
        }

    def _node(self, node: Any) -> None:
        self._folded(node)
        if self._followed(node):
            return
        self._settle(node.input)
        readers = self._readers()
        given = next((self.values[name] for name in node.input if name in self.values), FileTensor("", ()))
        if node.op_type not in readers:
            self._refuse(node, "is not trained here")
        elif any(self.values[name].last for name in node.input if name in self.values):
            self._behind(node, given, readers[node.op_type])
        elif given.border and node.op_type not in ("Conv", "Pad"):
            self._refuse(node, "zeros around images are those of a convolution here")
        else:
            readers[node.op_type](node, given)

    # --- functions ----------------------------------------------------------------------------------------------------

    def _followed(self, node: Any) -> bool:
        """Go on with a function of a tensor, or begin one that has no reader of its own; return whether it is one."""
        op, parts, base = node.op_type, list[Any](), ""
        names = node.input[:1] if op not in BINARY else node.input
        steps = sum(name in self.pending for name in names)
        for name in names:
            if name in self.values:
                here, call, _ = self.pending.get(name, (name, _unchanged, None))
                if base not in ("", here):
                    return False
                base = here
                parts.append(call)
            elif self._number(name):
                parts.append(float(self.known[name].reshape(())))
            else:
                return False
        alone = op in self._readers() and (op not in BINARY or all(callable(part) for part in parts))
        if not base or (alone and not steps):
            return False
        outer = BINARY.get(op) or call_of(node, self.known, self._of)
        if outer is None:
            return False
        x = self.values[base]
        self.values[node.output[0]] = x._replace(node="-" if x.node else "")
        self.pending[node.output[0]] = base, _joined(outer, parts), node
        return True

    def _number(self, name: str) -> bool:
        """Return whether an input is a number of the file that is no parameter."""
        return name in self.known and self.known[name].size == 1 and name not in self.origin

    def _settle(self, names: Sequence[str]) -> None:
        """Make activations of functions that something else takes."""
        for name in dict.fromkeys(names):
            if name not in self.pending:
                continue
            base, call, node = self.pending.pop(name)
            x, (row, factor) = self.values[base], told(call)
            if row is not None:
                self.values[name] = FileTensor("", ())
                self._add_node(node, row.name, x)
                self.values[name] = self.values[name]._replace(last=x.last)
            elif factor == 1:
                self.values[name] = x
            elif factor is not None:
                self.values[name] = self._multiple(node, x, factor)
            elif self._in_turn(node, call):
                self._settle([one for one in node.input if one in self.pending])
                self._node(node)
                self._settle([name])
            else:
                self.values[name] = self._of_parts(node, x, call)._replace(last=x.last)

    def _in_turn(self, node: Any, call: Call) -> bool:
        """Return whether a function that is none here may be so in steps: what chooses between numbers is not."""
        steps = any(one in self.pending for one in node.input) and node.op_type in STEPS
        return steps and composed(call) is None and powers_of(call) is None

    def _multiple(self, node: Any, x: FileTensor, factor: float) -> FileTensor:
        """Append what multiplies a tensor by a constant, unless that is one; return the result."""
        if factor == 1 or not x.node:
            return x
        name = self._add_node(node, "multiple", x, factor=float(f"{factor:.7g}"))
        made = FileTensor(name, x.shape, x.groups, last=x.last)
        self.values[node.output[0]] = made
        return made

    def _of_parts(self, node: Any, x: FileTensor, call: Call, called: str = "") -> FileTensor:
        """Append an activation of a multiple, and a multiple of it, that a function is; return the result."""
        found = composed(call)
        powers = powers_of(call) if found is None and x.node else None
        if powers is not None:
            return self._of_powers(node, x, powers)
        if found is None:
            self._refuse(node, f"takes a function of numbers that is none of {', '.join(ACTIVATIONS)}, nor multiples")
            return FileTensor("", ())
        if not x.node:
            return FileTensor("", ())
        made = self._multiple(node, self._plus(node, x, found.before), found.inner)
        if found.row.name != "relu" or found.outer:
            self._add_node(node, found.row.name, made, name=called)
            made = self._multiple(node, self.values[node.output[0]], found.outer)
        elif found.straight:  # neither bent nor anything else
            return self._plus(node, self._multiple(node, x, found.straight), found.behind)
        beside = self._multiple(node, x, found.straight) if found.straight else None
        if found.bent:
            self._add_node(node, "relu", x)
            beside = self._multiple(node, self.values[node.output[0]], found.bent)
        if beside is not None:
            self._add_node(node, "add", made, beside)
            made = self.values[node.output[0]]
        return self._plus(node, made, found.behind)

    def _of_powers(self, node: Any, x: FileTensor, powers: Sequence[float]) -> FileTensor:
        """Append products of a tensor with itself, multiples and their sum, behind a number; return the result."""
        power, total = x, None if not powers[1] else self._multiple(node, x, powers[1])
        for factor in powers[2:]:
            if not any(powers[2:]):
                break
            self._add_node(node, "mul", power, x)
            power = self.values[node.output[0]]
            if factor:
                part = self._multiple(node, power, factor)
                if total is not None:
                    self._add_node(node, "add", total, part)
                    part = self.values[node.output[0]]
                total = part
            if not powers[3]:
                break
        return self._plus(node, x if total is None else total, powers[0])

    def _plus(self, node: Any, x: FileTensor, number: float) -> FileTensor:
        """Append what adds a constant to a tensor, unless that is zero; return the result."""
        count = self.shapes.get(x.node, x.shape)[:1]
        if not number or not x.node:
            return x
        if not count:
            self._refuse(node, f"adds {number:g} to a tensor of an open shape")
            return x
        name = self._add_node(node, "shift", x, fixed=True)
        self.tensors[f"{name}.bias"], self.origins[f"{name}.bias"] = np.full(count, number, np.float32), ()
        made = FileTensor(name, x.shape, x.groups, last=x.last)
        self.values[node.output[0]] = made
        return made

    def _add_node(
        self, node: Any, op: str, *given: FileTensor, shape: tuple[int, ...] | None = None, name: str = "", **keys: Any
    ) -> str:
        """Append a node of ours that gives the result of `node`; return its name."""
        if not all(value.node for value in given):
            return ""
        taken = {one["name"] for one in self.nodes}
        wanted = name or re.sub(r"[^\w.]+", "_", self._name(node)).strip("_.") or op
        wanted = _apart(wanted)
        name, number = wanted, 2
        while name in taken or name == INPUT:
            name, number = f"{wanted}_{number}", number + 1
        keys |= {"epsilon": self.epsilon} if OPERATIONS[op].normalises else {}
        self.nodes.append({"name": name, "op": op, "inputs": [value.node for value in given], **keys})
        self.values[node.output[0]] = FileTensor(name, given[0].shape if shape is None else shape)
        self.shapes[name] = self.values[node.output[0]].shape
        return name

    def _named(self, node: Any, place: int) -> str:
        """Return the name of the module whose ``weight`` an input is, empty if it is called otherwise."""
        origin = self.origin.get(node.input[place]) if len(node.input) > place else None
        return origin.name.removesuffix(".weight") if origin and origin.name.endswith(".weight") else ""

    def _parameter(self, node: Any, place: int, name: str, transposed: bool = False) -> np.ndarray | None:
        """Return an initializer that a node takes, kept under a name of ours; None if it is none."""
        given = node.input[place] if len(node.input) > place else ""
        origin = self.origin.get(given)
        if origin is None:
            self._refuse(node, f"takes {given or 'nothing'}, which is {self._no_parameter(given)}")
            return None
        values = np.asarray(self.known[given], np.float32)
        self.tensors[name] = np.ascontiguousarray(values.T if transposed else values)
        self.origins[name] = (origin._replace(transposed=origin.transposed != transposed),)
        self.used[origin.name] += 1
        return self.tensors[name]

    def _no_parameter(self, name: str) -> str:
        """Return what is said of an input that has to be a parameter: of what it is calculated."""
        makers, names, found = {one: node for node in self.graph.node for one in node.output}, [name], list[str]()
        for given in names:
            names += [one for one in (makers[given].input if given in makers else ()) if one and one not in names]
            if given in self.origin and given not in makers:
                found.append(self.origin[given].name)
        if not found or name not in self.known:
            return "no parameter of the file"
        return (
            f"made of {', '.join(sorted(found)[:3])}: parameters are trained as they are, and not what is made of them "
            "(a norm of weights is left out by torch.nn.utils.parametrize.remove_parametrizations)"
        )

    def _vector(self, node: Any, place: int, name: str, count: int, what: str, repeated: bool = False) -> None:
        """Keep a parameter with a number per feature or channel; one that is `repeated` may have fewer."""
        values = self._parameter(node, place, name)
        if values is None:
            return
        if repeated and 0 < values.size < count and count % values.size == 0:
            copies = count // values.size
            values = np.tile(values.reshape(-1), copies)
            self.origins[name] = (self.origins[name][0]._replace(copies=copies),)
        if values.size != count:
            self._refuse(node, f"{what} of shape {values.shape} for {count} features")
        self.tensors[name] = values.reshape(-1)

    # --- products -----------------------------------------------------------------------------------------------------

    def _linear(self, node: Any, x: FileTensor, transposed: bool) -> str:
        """Append a product whose weights are the second input; return its name, empty if that did not go well."""
        weights = self.known.get(node.input[1])
        if weights is None or self.origin.get(node.input[1]) is None:
            self._refuse(node, f"takes {node.input[1]}, which is {self._no_parameter(node.input[1])}")
            return ""
        if weights.ndim != 2:
            self._refuse(node, f"weights of shape {weights.shape} are no matrix")
            return ""
        outputs, inputs = weights.shape[::-1] if transposed else weights.shape
        if len(x.shape) > 1:
            self._refuse(node, f"takes tensors of shape {x.shape}, and features are multiplied here")
        elif x.features not in (0, inputs):
            self._refuse(node, f"takes {inputs} features, what it is given has {x.features}")
        if x.node == INPUT:
            self.inputs = inputs
        name = self._add_node(
            node, "linear", x, shape=(int(outputs),), name=self._named(node, 1), outputs=int(outputs), bias=False
        )
        self._parameter(node, 1, f"{name}.weight", transposed)
        return name

    def _bias(self, node: Any, place: int, name: str) -> None:
        one = next(one for one in self.nodes if one["name"] == name)
        one["bias"] = True
        self._vector(node, place, f"{name}.bias", one["outputs"], "a bias")

    def _gemm(self, node: Any, x: FileTensor) -> None:
        if self._of(node, "alpha", 1.0) != 1 or self._of(node, "beta", 1.0) != 1 or self._of(node, "transA", 0):
            self._refuse(node, "alpha and beta are 1 and transA is 0 here")
            return
        name = self._linear(node, x, not self._of(node, "transB", 0))
        if name and len(node.input) > 2 and node.input[2]:
            self._bias(node, 2, name)

    def _matmul(self, node: Any, x: FileTensor) -> None:
        if node.input[0] in self.known:
            self._refuse(node, "weights are the second factor here")
        elif node.input[1] in self.values:
            self._refuse(node, "products of two tensors are not trained here")
        else:
            self._linear(node, x, True)

    def _add(self, node: Any, x: FileTensor) -> None:
        places = [place for place, name in enumerate(node.input) if name in self.known]
        if not places:
            self._pair(node, "add")
            return
        if len(places) == 1 and x.node in self.unfinished:
            self._affine(node, places[0], x, "bias")
            return
        last = self.nodes[-1] if self.nodes else {}
        bare = last.get("bias") is False and x.node == last["name"] and not self._elsewhere(x.node)
        if len(places) == 1 and bare and not x.groups:
            if not self._broadcast(node, places[0], x):
                return
            self._bias(node, places[0], x.node)
            self.values[node.output[0]] = x
        elif len(places) == 1 and x.node and not x.groups and node.input[places[0]] in self.origin:
            if self._broadcast(node, places[0], x):
                self._shift(node, places[0], x)
        elif x.node:
            self._refuse(node, "only the bias of a product, or a parameter per channel or feature, is added here")

    def _sub(self, node: Any, x: FileTensor) -> None:
        """Append the sum of a tensor and what another is with the other sign."""
        if node.input[1] in self.known and x.node:
            self._with_constants(node, x, "shift", -np.asarray(self.known[node.input[1]], np.float32))
            return
        if not all(name in self.values for name in node.input):
            self._refuse(node, "only a tensor is taken from another here")
            return
        one, other = (self.values[name] for name in node.input)
        self._summed(node, one, self._multiple(node, other, -1))

    def _div(self, node: Any, x: FileTensor) -> None:
        """Append products with one over what a tensor is divided by."""
        if node.input[0] not in self.values or node.input[1] not in self.known:
            self._refuse(node, "only constants divide tensors here")
        elif x.node:
            with np.errstate(divide="ignore"):
                factors = 1 / np.asarray(self.known[node.input[1]], np.float32)
            self._with_constants(node, x, "scale", factors)

    def _with_constants(self, node: Any, x: FileTensor, op: str, values: np.ndarray) -> None:
        """Append a sum with, or a product with, a constant per channel or feature: it is not trained."""
        origin = self.origin.get(node.input[1])
        if origin is not None and origin.name not in self.fixed and not LOST.fullmatch(origin.name):
            self._refuse(node, f"takes {origin.name}, a parameter, from a tensor or divides by it: only constants are")
        elif not np.isfinite(values).all():
            self._refuse(node, "divides by zero")
        elif x.groups or len(x.shape) == 1 < len(self.shapes.get(x.node, x.shape)):
            self._refuse(node, "a number for each pixel of an image is not added, or multiplied with, here")
        elif self._broadcast(node, 1, x):
            name = self._add_node(node, op, x, fixed=True)
            key = f"{name}.{'bias' if op == 'shift' else 'weight'}"
            self.tensors[key], self.origins[key] = values.reshape(-1), ()

    def _larger(self, node: Any, x: FileTensor) -> None:
        """Append the larger, or smaller, number of two tensors: one of them and what the other is above, or below."""
        if len(node.input) != 2 or not all(name in self.values for name in node.input):
            self._refuse(node, "two tensors are compared here")
            return
        one, other = (self.values[name] for name in node.input)
        one, other = self._alike(node, one, other, "add")
        self._larger_of(node, one, other, 1 if node.op_type == "Max" else -1)

    def _larger_of(self, node: Any, one: FileTensor, other: FileTensor, sign: int = 1) -> FileTensor:
        """Append the larger number of two tensors, the smaller one if the sign is below zero; return the result."""
        if one.shape != other.shape:
            self._refuse(node, f"takes two tensors of one shape here, not of {one.shape} and {other.shape}")
        self._add_node(node, "add", self._multiple(node, other, sign), self._multiple(node, one, -sign))
        self._add_node(node, "relu", self.values[node.output[0]])
        above = self._multiple(node, self.values[node.output[0]], sign)
        self._add_node(node, "add", one, above)
        return self.values[node.output[0]]

    def _largest_channel(self, node: Any, x: FileTensor) -> None:
        """Append the largest channel of each pixel: the first half of the channels with the second, again and again."""
        while x.shape[0] > 1:
            half = -(-x.shape[0] // 2)
            every = np.eye(x.shape[0])[:, :, None, None]
            shape = (half, *x.shape[1:])
            first, last = (self._constant_filters(node, x, rows, shape) for rows in (every[:half], every[-half:]))
            x = self._larger_of(node, first, last)
        self.values[node.output[0]] = x

    def _elsewhere(self, name: str) -> bool:
        """Return whether more than the present node takes what a node of ours gives."""
        taken = any(name in one["inputs"] for one in self.nodes)
        taken |= any(self.values[base].node == name for base, _, _ in self.pending.values())
        return taken or sum(self.left[tensor] for tensor, value in self.values.items() if value.node == name) > 1

    def _shift(self, node: Any, place: int, x: FileTensor) -> None:
        """Append what adds a parameter per channel, or feature."""
        named = self.origin[node.input[place]].name
        name = self._add_node(node, "shift", x, name=named.removesuffix(".bias") if named.endswith(".bias") else "")
        pixels = math.prod(self.shapes.get(x.node, x.shape)[1:])
        if len(x.shape) == 1 and pixels > 1:
            self._refuse(node, "a number for each pixel of an image is not added here")
        if name:
            self._vector(node, place, f"{name}.bias", self.known[node.input[place]].size, "a bias")

    def _pair(self, node: Any, op: str) -> None:
        """Append a sum or product of two tensors, number by number."""
        one, other = (self.values[name] for name in node.input)
        self._summed(node, one, other, op)

    def _alike(self, node: Any, one: FileTensor, other: FileTensor, op: str) -> list[FileTensor]:
        """Return two tensors of one shape: a channel is repeated, and for products the pixel of each channel."""
        found = [one, other]
        if len(one.shape) != len(other.shape) or not one.image or not other.image:
            return found
        for k, (own, wanted) in enumerate(((one, other), (other, one))):
            alone = (wanted.shape[0], *[1] * (len(wanted.shape) - 1))
            if own.shape == (1, *wanted.shape[1:]) != wanted.shape:  # a gate of each pixel
                found[k] = self._constant_filters(node, own, np.ones((wanted.shape[0], 1, 1, 1)), wanted.shape)
            elif op == "mul" and own.shape == alone != wanted.shape:  # a gate of each channel
                found[k] = self._repeat(node, own, wanted.shape[1:])
        return found

    def _summed(self, node: Any, one: FileTensor, other: FileTensor, op: str = "add") -> None:
        """Append what is done to two tensors of one shape."""
        one, other = self._alike(node, one, other, op)
        if one.shape and other.shape and one.shape != other.shape:
            self._refuse(node, f"takes two tensors of one shape here, not of {one.shape} and {other.shape}")
        self._add_node(node, op, one, other)

    def _concat(self, node: Any, x: FileTensor) -> None:
        """Append what puts tensors side by side, two at a time."""
        if not all(name in self.values for name in node.input):
            self._refuse(node, "puts tensors beside constants")
            return
        first, *others = [self.values[name] for name in node.input]
        if not all(value.shape and not value.groups for value in (first, *others)):
            self._refuse(node, "puts tensors of an open shape side by side")
        elif self._of(node, "axis", 1) % (1 + len(first.shape)) != 1:
            self._refuse(node, "only channels of images, or features, are put side by side here: axis is 1")
        elif len({value.shape[1:] for value in (first, *others)}) > 1:
            self._refuse(node, f"takes images of one size here, not of {[value.shape for value in (first, *others)]}")
        for other in others if not self.refused else ():
            shape = (first.shape[0] + other.shape[0], *first.shape[1:])
            first = FileTensor(self._add_node(node, "concat", first, other, shape=shape), shape)

    def _broadcast(self, node: Any, place: int, x: FileTensor) -> bool:
        """Refuse factors or shifts that are not one per feature, or per channel of an image; return whether they are.

        A vector stands for the columns of an image, also where there are as many of them as channels.
        """
        found = self.known[node.input[place]].shape
        shape = (x.shape[0], *[1] * (len(x.shape) - 1)) if x.shape else found[-1:]
        right = found in (shape, (1, *shape))
        if not right:
            count, what = x.shape[0] if x.shape else "all", "channels" if len(x.shape) > 1 else "features"
            self._refuse(node, f"numbers of shape {found} are not one for each of {count} {what}")
        return right

    # --- channels behind rows and columns -----------------------------------------------------------------------------

    def _transpose(self, node: Any, x: FileTensor) -> None:
        """See channels of images behind rows and columns, or before them again."""
        count = len(x.shape) + 1
        order = list(self._of(node, "perm", range(count)[::-1]))
        behind = [0, *range(2, count), 1]
        turns = [0, count - 1, *range(1, count - 1)] if x.last else behind
        if x.node and (not x.image or x.groups or x.border or order not in (turns, list(range(count)))):
            self._refuse(node, "only channels of images are put behind their rows and columns here, or before them")
        elif x.node:
            self.values[node.output[0]] = x._replace(last=x.last != (order == turns))

    def _behind(self, node: Any, x: FileTensor, read: Callable[[Any, FileTensor], None]) -> None:
        """Read a node that is given images whose channels stand last: as if they stood first."""
        op, names = node.op_type, [name for name in node.input if name in self.values]
        given = {name: self.values[name] for name in names}
        if not all(value.node for value in given.values()) or op == "Transpose":
            self._transpose(node, x)
        elif not all(value.last for value in given.values()):
            self._refuse(node, "channels stand last in one of the tensors that it takes, and first in another")
        elif op == "MatMul" and len(names) == 1 and node.input[0] in names:
            self._pointwise(node, x)
        elif op in ("ReduceMean", "LayerNormalization"):
            (self._mean_of_planes if op == "ReduceMean" else self._channel_norm)(node, x)
        elif op in POINTWISE:
            held = {name: self.known[name] for name in node.input if name in self.known}
            self.values |= {name: value._replace(last=False) for name, value in given.items()}
            wide = len(x.shape) - 1
            self.known |= {
                name: array.reshape(-1, *[1] * wide)
                for name, array in held.items()
                if array.size == x.shape[0] == array.shape[-1]
            }
            read(node, self.values[names[0]])
            self.values |= given
            self.known |= held
            made = self.values.get(node.output[0], FileTensor("", ()))
            self.values[node.output[0]] = made._replace(last=bool(made.node))
        else:
            self._refuse(node, "is not read where channels stand behind rows and columns")

    def _pointwise(self, node: Any, x: FileTensor) -> None:
        """Append a product with the channels of each pixel: a convolution of single pixels."""
        weights = self.known.get(node.input[1])
        if weights is None or node.input[1] not in self.origin or weights.ndim != 2 or len(weights) != x.shape[0]:
            self._refuse(node, f"takes {node.input[1]}, which is no parameter of {x.shape[0]} channels")
            return
        outputs = weights.shape[1]
        shape = (outputs, *x.shape[1:])
        name = self._add_node(node, "convolution", x, shape=shape, name=self._named(node, 1), outputs=outputs)
        self.nodes[-1] |= {"kernel": 1, "kernel_width": 1, "stride": 1, "groups": 1, "bias": False}
        values = self._parameter(node, 1, f"{name}.weight", transposed=True)
        assert values is not None
        self.tensors[f"{name}.weight"] = values[:, :, None, None]
        self.values[node.output[0]] = FileTensor(name, shape, last=True)

    def _mean_of_planes(self, node: Any, x: FileTensor) -> None:
        """Append the mean over the rows and columns of images whose channels stand last."""
        axes, count = self._axes(node), len(x.shape) + 1
        if sorted(axis % count for axis in axes) != list(range(1, count - 1)):
            self._refuse(node, "only the mean over rows and columns of images is taken here")
            return
        kept = bool(self._of(node, "keepdims", 1))
        self._add_node(node, "avgpool", x, shape=(x.shape[0], *[1] * (count - 2 if kept else 0)))
        self.values[node.output[0]] = self.values[node.output[0]]._replace(last=kept)

    def _channel_norm(self, node: Any, x: FileTensor) -> None:
        """Append a normalisation over the channels of each pixel, which stand last."""
        if self._of(node, "axis", -1) not in (-1, len(x.shape)):
            self._refuse(node, "only the channels of each pixel are normalised here where they stand last")
            return
        self._small(node)
        self._channels_normed(node, x)
        self.values[node.output[0]] = self.values[node.output[0]]._replace(last=True)

    def _channels_normed(self, node: Any, x: FileTensor, behind: int = 0) -> None:
        if len(node.input) < 3 or not node.input[2] or self._zeros(node.input[2]) != self._ones(node.input[1]):
            self._refuse(node, "channels of a pixel are normalised with factors and shifts here, or with neither")
            return
        name = self._add_node(node, "channelnorm", x, name=self._named(node, 1).removesuffix(".norm"))
        if name:
            self._normed_by(node, name, ("weight", "bias"), x.shape[0], behind)

    def _norms_alike(self) -> None:
        """Let norms over features, channels of one pixel, be as those over channels if there are such."""
        there = any(one["op"] == "channelnorm" for one in self.nodes)
        for one in self.nodes if there else ():
            if one["op"] == "norm" and math.prod(self.shapes[one["inputs"][0]][1:]) == 1:
                one["op"] = "channelnorm"

    def _norm_of_channels(self, node: Any, x: FileTensor) -> None:
        """Append a normalisation over the channels of each pixel that the file takes apart."""
        if x.node and not x.image:
            self._refuse(node, "only channels of images are normalised over the second axis here")
            return
        self._small(node)
        self._channels_normed(node, x, len(x.shape) - 1)

    def _ones(self, name: str) -> bool:
        """Return whether an input is a constant of ones."""
        return name not in self.origin and name in self.known and bool(np.all(self.known[name] == 1))

    # --- images -------------------------------------------------------------------------------------------------------

    def _window(self, node: Any, x: FileTensor, kernel: Sequence[int]) -> dict[str, Any] | None:
        """Return the keys of a window, a method too if a mean does not count what is outside; None if it is refused."""
        count = len(kernel)
        strides, dilations = (list(self._of(node, name, [1] * count)) for name in ("strides", "dilations"))
        pads = list(self._of(node, "pads", [0] * 2 * count))
        if count == 1:
            kernel, strides, dilations, pads = [1, *kernel], [1, *strides], [1, *dilations], [0, pads[0], 0, pads[1]]
        if len(kernel) != 2 or (x.node and len(x.shape) != 1 + count):
            self._refuse(
                node, "only images, or rows of them, are convolved and pooled here: channels and one or two sides"
            )
            return None
        if "Pool" in node.op_type and set(dilations) != {1}:
            self._refuse(node, "pooled windows have no gaps here: dilations are 1")
            return None
        reach = [d * (int(k) - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        automatic, border = self._of(node, "auto_pad", b"NOTSET"), x.border or (0,) * 4
        if automatic in (b"SAME_UPPER", b"SAME_LOWER") and node.op_type != "ConvTranspose":
            around = [side + ends for side, ends in zip(x.image[1:], np.add(border[:2], border[2:]), strict=True)]
            pads = _same(around, strides, reach, automatic == b"SAME_LOWER")
        elif automatic not in (b"NOTSET", b"VALID"):
            self._refuse(node, "sides are padded by numbers that the file says here")
            return None
        pads = [one + more for one, more in zip(pads, border, strict=True)]
        counted = node.op_type != "AveragePool" or bool(self._of(node, "count_include_pad", 0))
        inside = any(pads) and not counted
        if self._of(node, "ceil_mode", 0) and any(ends := _ceiled(x.image[1:], strides, reach, pads)):
            if node.op_type == "AveragePool" and counted and any(pads):
                what = "a mean counts zeros beside the image, but not those that ceil_mode adds"
                self._refuse(node, f"{what}: count_include_pad is 0, or ceil_mode")
                return None
            inside = node.op_type == "AveragePool"
            pads = [*pads[:2], pads[2] + ends[0], pads[3] + ends[1]]
        found = {"kernel": kernel[0], "kernel_width": kernel[1], "stride": strides[0]}
        found |= {"stride_width": strides[1]} if strides[0] != strides[1] else {}
        found |= {"dilation": dilations[0]} if set(dilations) != {1} else {}
        found |= {"dilation_width": dilations[1]} if dilations[0] != dilations[1] else {}
        above, left, below, right = pads
        found |= {"padding": above} if above else {}
        found |= {"padding_width": left} if left != above else {}
        found |= {"padding_below": below} if below != above else {}
        found |= {"padding_right": right} if right != left else {}
        return {name: int(value) for name, value in found.items()} | ({"method": "mean"} if inside else {})

    def _moved(self, node: Any, x: FileTensor, channels: int, keys: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of what windows give."""
        if not x.shape:
            return ()
        try:
            window = window_at(x.image, keys)
        except ConfigError as error:
            self._refuse(node, error.what)
            return ()
        return (channels, *(window.out_height, window.out_width)[-len(x.shape) + 1 :])

    def _convolution(self, node: Any, x: FileTensor) -> None:
        filters = self.known.get(node.input[1])
        if filters is None or node.input[1] not in self.origin:
            self._refuse(node, f"takes {node.input[1]}, which is no parameter of the file")
            return
        keys = self._window(node, x, filters.shape[2:])
        if keys is None:
            return
        x = self._padded_beyond(node, x, keys)
        outputs, groups = len(filters), int(self._of(node, "group", 1))
        if x.shape and filters.shape[1] * groups != x.shape[0]:
            self._refuse(node, f"takes {filters.shape[1] * groups} channels, what it is given has {x.shape[0]}")
        shape = self._moved(node, x, outputs, keys)
        name = self._add_node(node, "convolution", x, shape=shape, name=self._named(node, 1), outputs=outputs)
        if not name:
            return
        self.nodes[-1] |= {**keys, "groups": groups, "bias": False}
        self._filters(node, name)

    def _padded_beyond(self, node: Any, x: FileTensor, keys: dict[str, Any]) -> FileTensor:
        """Append rows and columns of zeros where windows of a convolution see nothing else; return what has them."""
        if not x.node or not x.image:
            return x
        above, left = keys.get("padding", 0), keys.get("padding_width", keys.get("padding", 0))
        pads = [above, left, keys.get("padding_below", above), keys.get("padding_right", left)]
        gaps = keys.get("dilation", 1), keys.get("dilation_width", keys.get("dilation", 1))
        reach = [d * (k - 1) for d, k in zip(gaps, (keys["kernel"], keys["kernel_width"]), strict=True)]
        over = [max(0, n - most) for n, most in zip(pads, reach * 2, strict=True)]
        if not any(over):
            return x
        names = ("padding", "padding_width", "padding_below", "padding_right")
        keys |= {name: n - less for name, n, less in zip(names, pads, over, strict=True)}
        lines = [[*[-1] * over[k], *range(x.image[1 + k]), *[-1] * over[2 + k]] for k in (0, 1)]
        picked: dict[str, Any] = {"method": "pick", "rows": tuple(lines[0]), "columns": tuple(lines[1])}
        shape = (x.shape[0], *[len(one) for one in lines][-len(x.shape) + 1 :])
        name = self._add_node(node, "resample", x._replace(border=()), shape=shape, **picked)
        return FileTensor(name, shape)

    def _transposed(self, node: Any, x: FileTensor) -> None:
        filters = self.known.get(node.input[1])
        if filters is None or node.input[1] not in self.origin:
            self._refuse(node, f"takes {node.input[1]}, which is no parameter of the file")
            return
        keys, more = self._window(node, x, filters.shape[2:]), list(self._of(node, "output_padding", [0, 0]))
        if keys is None:
            return
        more = [0, *more][-2:]
        if self._of(node, "output_shape", None):
            self._refuse(node, "rows and columns are enlarged by output_padding here")
            return
        outputs, groups = filters.shape[1] * int(self._of(node, "group", 1)), int(self._of(node, "group", 1))
        if x.shape and len(filters) != x.shape[0]:
            self._refuse(node, f"takes {len(filters)} channels, what it is given has {x.shape[0]}")
            return
        sides = enlarged(keys, x.image[1:], more)[-len(x.shape) + 1 :] if x.shape else []
        name = self._add_node(
            node, "transposed", x, shape=(outputs, *sides), name=self._named(node, 1), outputs=outputs
        )
        if not name:
            return
        self.nodes[-1] |= {**keys, "groups": groups, "bias": False, "output_padding": int(more[0])}
        self.nodes[-1] |= {"output_padding_width": int(more[1])} if more[0] != more[1] else {}
        self._filters(node, name)

    def _filters(self, node: Any, name: str) -> None:
        """Keep the filters of a convolution, and its bias if there is one."""
        values = self._parameter(node, 1, f"{name}.weight")
        if values is not None and values.ndim == 3:  # windows of one row
            self.tensors[f"{name}.weight"] = values[:, :, None]
        if len(node.input) > 2 and node.input[2] and not self._zeros(node.input[2]):
            self._bias(node, 2, name)

    def _pad(self, node: Any, x: FileTensor) -> None:
        """Note zeros around images, for the convolution that takes them."""
        ends = self.known.get(node.input[1], np.array([])).ravel().tolist() if len(node.input) > 1 else []
        axes = self.known.get(node.input[3]) if len(node.input) > 3 and node.input[3] else None
        number = self.known.get(node.input[2], np.ones(1)) if len(node.input) > 2 and node.input[2] else np.zeros(1)
        sides = [2, 3] if len(x.shape) == 3 else [2]
        at = (
            list(range(len(x.shape) + 1)) if axes is None else [int(axis) % (1 + len(x.shape)) for axis in axes.ravel()]
        )
        by_axis = dict(zip(at, zip(ends[: len(at)], ends[len(at) :], strict=False), strict=False))
        pads = [int(by_axis.get(axis, (0, 0))[end]) for end in (0, 1) for axis in sides]
        others = any(any(by_axis[axis]) for axis in by_axis if axis not in sides)
        plain = self._of(node, "mode", b"constant") == b"constant" and not number.any()
        if not x.node:
            return
        if not x.image or len(ends) != 2 * len(at) or not plain or min(pads) < 0 or others:
            self._refuse(node, "only zeros beside the rows and columns of images are put here")
            return
        pads = pads if len(sides) == 2 else [0, pads[0], 0, pads[1]]
        pads = [one + more for one, more in zip(pads, x.border or (0,) * 4, strict=True)]
        self.values[node.output[0]] = x._replace(border=tuple(pads) if any(pads) else ())

    def _slice(self, node: Any, x: FileTensor) -> None:
        """Leave out the last columns of a convolution: windows do not go so far to the right."""
        starts, ends, axes, steps = (
            self.known.get(node.input[k], np.array([])).ravel().tolist()
            if len(node.input) > k and node.input[k]
            else []
            for k in range(1, 5)
        )
        sides = (self.samples, *x.shape)
        every = zip(starts, ends, axes or range(len(starts)), strict=False)
        if x.shape and all(begin == 0 and end >= sides[axis] for begin, end, axis in every) and steps in ([], [1]):
            self.values[node.output[0]] = x
            return
        one = self.nodes[-1] if self.nodes else {}
        last = one.get("op") == "convolution" and one["name"] == x.node and not self._elsewhere(x.node)
        plain = starts == [0] and len(ends) == 1 and steps in ([], [1]) and x.image and axes in ([-1], [len(x.shape)])
        if x.node and not (last and plain):
            self._refuse(node, "only the last columns of a convolution are left out here")
        if not x.node or not last or not plain:
            return
        width = x.shape[-1]
        kept = min(width, ends[0]) if ends[0] >= 0 else width + ends[0]
        window = window_at(self._images_of(one), one)
        less = window.behind[1] - (width - kept) * window.strides[1]
        if kept < 1 or less < 0:
            self._refuse(node, "only columns that a convolution's padding makes are left out here")
            return
        one.pop("padding_right", None)
        one |= {"padding_right": less} if less != window.before[1] else {}
        self.shapes[x.node] = (*x.shape[:-1], kept)
        self.values[node.output[0]] = x._replace(shape=(*x.shape[:-1], kept))

    def _images_of(self, one: Mapping[str, Any]) -> tuple[int, ...]:
        """Return channels, rows and columns of what a node of ours is given."""
        return FileTensor("", self.shapes[one["inputs"][0]]).image

    def _zeros(self, name: str) -> bool:
        """Return whether an input is a constant of zeros, which exporters add where there is no bias."""
        stays = name not in self.origin or self.origin[name].name in self.fixed
        return stays and name in self.known and not self.known[name].any()

    def _pool(self, node: Any, x: FileTensor) -> None:
        keys = self._window(node, x, self._of(node, "kernel_shape", [1, 1]))
        if keys is None:
            return
        largest = node.op_type == "MaxPool"
        if len([name for name in node.output if name]) > 1:
            self._refuse(node, "the places of the largest pixels are no result here")
        elif x.node:
            op = "maxpool" if largest else "resample" if "method" in keys else "avgpool"
            self._add_node(node, op, x, shape=self._moved(node, x, x.shape[0], keys))
            self.nodes[-1] |= keys

    def _resize(self, node: Any, x: FileTensor) -> None:
        """Append what repeats pixels; how a file says so is told by what it makes of an image of numbers."""
        if not x.node:
            return
        if not x.image:
            self._refuse(node, "only images are enlarged here: channels, rows and columns")
            return
        sides = self._resized(node, x)
        if sides is None:
            return
        given, found = sides
        by = [side // max(1, own) for side, own in zip(found.shape, given.shape, strict=True)]
        if np.array_equal(found, given.repeat(by[0], 0).repeat(by[1], 1)):
            by = by[-len(x.shape) + 1 :]
            self.values[node.output[0]] = x if set(by) == {1} else self._repeat(node, x, by)
            return
        method = next((one for one in SIZED if np.allclose(found, resampled(given, one, found.shape), atol=1e-4)), "")
        before, after = (" x ".join(map(str, one.shape[-len(x.shape) + 1 :])) for one in sides)
        if not method:
            what = f"{before} pixels become {after} in a way that is none of nearest (a whole scale) and"
            self._refuse(node, f"{what} {', '.join(SIZED)}; a ConvTranspose is trained")
            return
        shape = (x.shape[0], *found.shape[-len(x.shape) + 1 :])
        self._add_node(node, "resample", x, shape=shape, method=method, sides=found.shape)

    def _resized(self, node: Any, x: FileTensor) -> tuple[np.ndarray, np.ndarray] | None:
        """Return rows and columns of numbers, and what a node makes of them; None if it is refused."""
        held = {name: self.known[name] for name in node.input[1:] if name}
        for name, values in held.items():
            if len(values) == 1 + len(x.shape) and values.dtype.kind == "i":  # sizes of all samples and channels
                alone = [
                    n if n != whole else 1 for n, whole in zip(values[:2], (self.samples, x.shape[0]), strict=True)
                ]
                held[name] = np.array([*alone, *values[2:]], values.dtype)
        given = np.random.default_rng(0).standard_normal((1, 1, *x.shape[1:])).astype(np.float32)
        try:
            found = self._run(node, {node.input[0]: given} | held)[0]
        except Exception as error:  # operators have one each for what they do not take
            self._refuse(node, f"cannot be followed: {' '.join(str(error).split())[:100]}")
            return None
        if found.shape[:2] != (1, 1) or found.ndim != given.ndim:
            self._refuse(node, "only rows and columns of images are enlarged here, or made fewer")
            return None
        rows = (-1, given.shape[-1]), (-1, found.shape[-1])
        return given.reshape(rows[0]), found.reshape(rows[1])

    def _repeat(self, node: Any, x: FileTensor, by: Sequence[int]) -> FileTensor:
        """Append what repeats pixels of a tensor, rows and columns so many times; return the tensor."""
        shape = x.shape[0], *(side * times for side, times in zip(x.shape[1:], by, strict=True))
        by = [1, *by][-2:]
        taken = next((o for o in self.nodes if o["op"] == "upsample" and o["inputs"] == [x.node]), {})
        if (taken.get("kernel"), taken.get("kernel_width")) == tuple(by):
            return FileTensor(taken["name"], shape)
        name = self._add_node(node, "upsample", x, shape=shape, kernel=by[0], kernel_width=by[1])
        return FileTensor(name, shape)

    def _expand(self, node: Any, x: FileTensor) -> None:
        """Repeat the pixel of each channel."""
        wanted = self._rest(self.known.get(node.input[1], np.array([])).tolist(), x, whole=False)
        if x.node and (wanted is None or len(x.shape) < 2 or x.shape != (wanted[0], *[1] * (len(wanted) - 1))):
            self._refuse(node, "only a pixel of each channel is repeated here")
        elif x.node and wanted is not None:
            self.values[node.output[0]] = x if wanted == x.shape else self._repeat(node, x, wanted[1:])

    def _over_sides(self, node: Any, x: FileTensor) -> None:
        """Append the mean, or the largest pixel, of each channel, or of each row or column of it."""
        largest, whole = "Max" in node.op_type, node.op_type.startswith("Global")
        apart = bool(x.groups) and x.groups == x.shape[0]  # the file has the pixels of a channel side by side
        count = 3 if apart else len(x.shape) + 1
        axes = list(range(2, count)) if whole else sorted(axis % count for axis in self._axes(node) or range(count))
        kept = whole or bool(self._of(node, "keepdims", 1))
        if not x.node:
            return
        if axes == [1] and x.image and not x.groups and not largest and kept:
            self._mean_of_channels(node, x)
            return
        if axes == [1] and x.image and not x.groups and largest and kept:
            self._largest_channel(node, x)
            return
        lone = axes == [3] and not kept  # rows would be seen as columns
        if not x.image or (x.groups and not apart) or not axes or not set(axes) <= set(range(2, count)) or lone:
            what = "largest pixel" if largest else "mean"
            self._refuse(node, f"only the {what} over rows and columns of images is taken here, not over axes {axes}")
            return
        gone = range(1, len(x.shape)) if apart else [axis - 1 for axis in axes]
        shape = tuple(1 if k in gone else side for k, side in enumerate(x.shape) if kept or k not in gone)
        shape = (*shape, 1) if apart and kept else shape
        keys: dict[str, Any] = {}
        if largest or len(gone) < len(x.shape) - 1:
            sides = [1, *(side if k in gone else 1 for k, side in enumerate(x.shape[1:], 1))][-2:]
            keys = {"kernel": sides[0], "kernel_width": sides[1]}
        self._add_node(node, "maxpool" if largest else "avgpool", x._replace(groups=0), shape=shape, **keys)

    def _sum_of_sides(self, node: Any, x: FileTensor) -> None:
        """Append a sum over rows, columns or channels: the mean, as many times as there are."""
        self._over_sides(node, x)
        mean = self.values.get(node.output[0], FileTensor("", ()))
        if mean.node and mean.features:
            self.values[node.output[0]] = self._multiple(node, mean, x.features // mean.features)

    def _axes(self, node: Any) -> list[int]:
        """Return the axes that a node reduces, none if it does not say."""
        axes = self._of(node, "axes", None)
        if axes is None and len(node.input) > 1 and node.input[1]:
            axes = self.known.get(node.input[1], np.array([])).ravel().tolist()
        return list(axes or [])

    def _mean_of_channels(self, node: Any, x: FileTensor) -> None:
        """Append the mean over the channels of each pixel: a convolution of single pixels that is not trained."""
        self._constant_filters(node, x, np.full((1, x.shape[0], 1, 1), 1 / x.shape[0]), (1, *x.shape[1:]))

    def _constant_filters(
        self,
        node: Any,
        x: FileTensor,
        filters: np.ndarray,
        shape: tuple[int, ...],
        op: str = "convolution",
        **keys: Any,
    ) -> FileTensor:
        """Append a convolution whose filters are constants; return its result."""
        kernel = {"kernel": filters.shape[2], "kernel_width": filters.shape[3], "stride": 1, "groups": 1}
        name = self._add_node(node, op, x, shape=shape, outputs=shape[0], **kernel | keys, bias=False, fixed=True)
        self.tensors[f"{name}.weight"], self.origins[f"{name}.weight"] = filters.astype(np.float32), ()
        return FileTensor(name, shape)

    # --- normalisation ------------------------------------------------------------------------------------------------

    def _small(self, node: Any) -> None:
        self._epsilon(node, self._of(node, "epsilon", 1e-5))

    def _epsilon(self, node: Any, epsilon: float) -> None:
        """Note what a normalisation adds below its root."""
        self.epsilon = float(f"{epsilon:.5g}")
        if not 1e-12 <= self.epsilon <= 1:
            self._refuse(node, f"epsilon is 1e-12 to 1 here, not {self.epsilon:g}")

    def _over_features(self, node: Any) -> bool:
        """Return whether the axis of a normalisation is that of features."""
        return self._of(node, "axis", -1) in (-1, 1)

    def _norm_of_images(self, node: Any, x: FileTensor) -> None:
        """Append a normalisation over whole images, and a factor and a shift for each pixel of each channel."""
        self._small(node)
        name = self._add_node(node, "groupnorm", x, groups=1, fixed=True)
        for what, around in (("weight", 1), ("bias", 0)):
            key = f"{name}.norm.{what}"
            self.tensors[key], self.origins[key] = np.full(x.shape[0], around, np.float32), ()
        for place, (op, what) in enumerate((("scale", "weight"), ("shift", "bias")), 1):
            given = node.input[place] if len(node.input) > place else ""
            if not given or (given not in self.origin and np.all(self.known.get(given) == 1 - (op == "shift"))):
                continue
            name = self._add_node(node, op, self.values[node.output[0]], name=self._named(node, 1), each=True)
            self._vector(node, place, f"{name}.{what}", x.features, f"a {what}")

    def _norm(self, node: Any, x: FileTensor) -> None:
        if x.node and len(x.shape) == 3 and self._of(node, "axis", -1) in (1, -3) and not x.groups:
            self._norm_of_images(node, x)
            return
        if not self._over_features(node) or len(x.shape) > 1:
            self._refuse(node, "only the features of a sample are normalised here")
        self._small(node)
        bare = len(node.input) < 3 or not node.input[2] or self._zeros(node.input[2])
        op = "centred" if bare else "norm"
        name = self._add_node(node, op, x, name=self._named(node, 1).removesuffix(".norm"))
        if not name:
            return
        count = x.features or len(self.known.get(node.input[1], ()))
        self._normed_by(node, name, ("weight", "bias")[: 2 - bare], count, 0)

    def _normed_by(self, node: Any, name: str, whats: Sequence[str], count: int, behind: int | None = None) -> None:
        """Keep the factors and shifts of a normalisation; constants of a file stay what they are.

        They lie along the axis with so many axes `behind` it, unless their operator has them as vectors (None).
        """
        for place, what in enumerate(whats, 1):
            shape = np.shape(self.known.get(node.input[place], ()))
            axis = len(shape) - 1 - (behind or 0)
            if behind is not None and math.prod(shape) > 1 and (axis < 0 or shape[axis] != math.prod(shape)):
                self._refuse(node, f"a {what} of shape {shape} does not lie along the axis that is normalised")
        trained = [node.input[place] in self.origin for place, _ in enumerate(whats, 1)]
        if not any(trained) and all(node.input[place] in self.known for place, _ in enumerate(whats, 1)):
            self.nodes[-1]["fixed"] = True
            for place, what in enumerate(whats, 1):
                values = np.asarray(self.known[node.input[place]], np.float32).reshape(-1)
                if values.size != count:
                    self._refuse(node, f"a {what} of shape {values.shape} for {count} features")
                self.tensors[f"{name}.norm.{what}"], self.origins[f"{name}.norm.{what}"] = values, ()
            return
        for place, what in enumerate(whats, 1):
            self._vector(node, place, f"{name}.norm.{what}", count, f"a {what}")

    def _group_norm(self, node: Any, x: FileTensor) -> None:
        groups = int(self._of(node, "num_groups", 1))
        self._small(node)
        if x.node and not x.image:
            self._refuse(node, "only groups of channels of images are normalised here")
            return
        named = self._named(node, 1).removesuffix(".norm")  # as `export_onnx` calls it
        name = self._add_node(node, "groupnorm", x, name=named, groups=groups)
        if name:
            self._normed_by(node, name, ("weight", "bias"), x.shape[0])

    def _instance_norm(self, node: Any, x: FileTensor) -> None:
        """Begin a group norm as exporters take it apart: groups as instances, then a factor and a shift per channel."""
        self._small(node)
        scale, shift = (self.known.get(name) for name in node.input[1:3])
        if not x.node:
            return
        if not x.groups and x.image and all(name in self.known for name in node.input[1:3]):
            name = self._add_node(node, "groupnorm", x, name=self._named(node, 1), groups=x.shape[0])
            self._normed_by(node, name, ("weight", "bias"), x.shape[0])
            return
        plain = scale is not None and shift is not None and np.all(scale == 1) and np.all(shift == 0)
        if not x.groups or not plain:
            self._refuse(node, "only groups of channels of images are normalised here")
            return
        name = self._add_node(node, "groupnorm", x, groups=x.groups)
        self.values[node.output[0]] = FileTensor(name, x.shape, x.groups)
        self.unfinished[name] = node, {"factor", "shift"}

    def _affine(self, node: Any, place: int, x: FileTensor, what: str) -> None:
        """Give a group norm the factors or shifts of its channels."""
        self.values[node.output[0]] = x
        if not x.groups and not self._broadcast(node, place, x):
            self.unfinished.pop(x.node)
            return
        self._number_of_channels(node, place, x, what)
        begun, lacks = self.unfinished[x.node]
        lacks.discard("factor" if what == "weight" else "shift")
        if x.groups or (what == "bias" and "factor" in lacks):
            self._refuse(begun, "factors of channels come first, then shifts, behind the groups")
        if not lacks:
            del self.unfinished[x.node]
            weight = self.origins.get(f"{x.node}.norm.weight")  # none: it was refused, or stays
            self._rename(x.node, self._named(node, place) or (weight[0].name.removesuffix(".weight") if weight else ""))

    def _number_of_channels(self, node: Any, place: int, x: FileTensor, what: str) -> None:
        """Keep factors or shifts of a group norm; constants of a file stay what they are, both or none."""
        name, values = f"{x.node}.norm.{what}", np.asarray(self.known[node.input[place]], np.float32)
        one = next(one for one in self.nodes if one["name"] == x.node)
        stays, before = node.input[place] not in self.origin, f"{x.node}.norm.weight" in self.origins
        if before and stays != bool(one.get("fixed")):
            self._refuse(node, "factors and shifts are both trained here, or neither")
        elif stays and values.size == x.shape[0]:
            one["fixed"] = True
            self.tensors[name], self.origins[name] = values.reshape(-1), ()
        else:
            self._vector(node, place, name, x.shape[0], f"a {what}")

    def _rename(self, old: str, new: str) -> None:
        """Call a node as its module is called, if that is possible."""
        new = _apart(new)
        if not re.fullmatch(r"[\w.]+", new) or new == INPUT or any(one["name"] == new for one in self.nodes):
            return
        for one in self.nodes:
            one["name"] = new if one["name"] == old else one["name"]
            one["inputs"] = [new if name == old else name for name in one["inputs"]]
        self.values = {
            name: value._replace(node=new) if value.node == old else value for name, value in self.values.items()
        }
        self.shapes[new] = self.shapes[old]
        for held in (self.tensors, self.origins):
            for name in [name for name in held if name.startswith(f"{old}.norm.")]:
                held[new + name.removeprefix(old)] = held.pop(name)  # type: ignore[assignment]

    def _batch_norm(self, node: Any, x: FileTensor) -> None:
        named = self._name(node)  # PyTorch's dynamo=True says so alone
        if self.as_module and KNOWN_STATISTICS in named:
            self._known_norm(node, x)
            return
        if not self._of(node, "training_mode", 0) and (BY_BATCH not in named or KNOWN_STATISTICS in named):
            raise ConfigError(
                f"{self._name(node)}: batch normalisation with the statistics of inference",
                where=self.path,
                cause="the module was exported as it is used, or by an exporter that does not say how",
                hint=f"{EXPORT}, or {TRAINING}, or wse.train.from_torch(module, example)",
            )
        self._small(node)
        pixels = math.prod(self.shapes.get(x.node, x.shape)[1:])  # of what it was before it was seen as features
        if x.node and (not (x.image or len(x.shape) == 1) or (len(x.shape) == 1 and pixels > 1)):
            self._refuse(node, "only channels of images, or features of samples, are normalised over batches here")
            return
        name = self._add_node(node, "batchnorm", x, name=self._named(node, 1).removesuffix(".norm"))
        if not name:
            return
        self.nodes[-1]["momentum"] = round(1 - self._of(node, "momentum", 0.9), 6)
        count = x.shape[0] if x.shape else 0
        self._normed_by(node, name, ("weight", "bias"), count)
        for place, what in enumerate(("running_mean", "running_var"), 3):
            self._vector(node, place, f"{name}.norm.{what}", count, f"a {what}")

    def _known_norm(self, node: Any, x: FileTensor) -> None:
        """Append a normalisation with statistics that stay: sums and products with numbers of channels."""
        self._small(node)
        factors, shifts, means, variances = (np.asarray(self.known[name], np.float32) for name in node.input[1:5])
        inverse = 1 / np.sqrt(variances + np.float32(self.epsilon))
        origins = [self.origin.get(name) for name in node.input[1:3]]
        if not any(origin is not None and origin.name not in self.fixed for origin in origins):
            for op, what, values in (
                ("scale", "weight", factors * inverse),
                ("shift", "bias", shifts - means * factors * inverse),
            ):
                name = self._add_node(node, op, x, fixed=True)
                self.tensors[f"{name}.{what}"], self.origins[f"{name}.{what}"] = values, ()
                x = self.values.get(node.output[0], x)
            return
        named = self._named(node, 1).removesuffix(".norm")
        for op, what, values in (("shift", "bias", -means), ("scale", "weight", inverse)):
            name = self._add_node(node, op, x, fixed=True, name=f"{named}.known" if named else "")
            self.tensors[f"{name}.{what}"], self.origins[f"{name}.{what}"] = values, ()
            x = self.values.get(node.output[0], x)
        for place, (op, what) in enumerate((("scale", "weight"), ("shift", "bias")), 1):
            name = self._add_node(node, op, x, name=named)
            self._vector(node, place, f"{name}.{what}", len(means), f"a {what}")
            x = self.values.get(node.output[0], x)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _relu(self, node: Any, x: FileTensor) -> None:
        self._add_node(node, "relu", x)

    def _gelu(self, node: Any, x: FileTensor) -> None:
        self._add_node(node, "gelu" if self._of(node, "approximate", b"none") == b"tanh" else "gelu_erf", x)

    def _tanh(self, node: Any, x: FileTensor) -> None:
        self._add_node(node, "tanh", x)

    def _mul(self, node: Any, x: FileTensor) -> None:
        places = [place for place, name in enumerate(node.input) if name in self.known]
        if len(places) == 1 and x.node in self.unfinished:
            self._affine(node, places[0], x, "weight")
        elif not places:
            self._pair(node, "mul")
        elif x.node and places and node.input[places[0]] in self.origin and not x.groups:
            self._scale(node, places[0], x)
        elif x.node and places:
            self._refuse(node, "takes numbers of the file that are not trained")

    def _scale(self, node: Any, place: int, x: FileTensor) -> None:
        """Append what multiplies by a parameter per channel, or feature, or one for all."""
        values = self.known[node.input[place]]
        if values.size > 1 and not self._broadcast(node, place, x):
            return
        pixels = math.prod(self.shapes.get(x.node, x.shape)[1:])
        if len(x.shape) == 1 and pixels > 1 and values.size > 1:
            self._refuse(node, "a number for each pixel of an image is not multiplied with here")
            return
        count = x.shape[0] // (pixels if len(x.shape) == 1 else 1) if x.shape else values.size
        named = self.origin[node.input[place]].name
        name = self._add_node(node, "scale", x, name=named.removesuffix(".weight"))
        if name:
            self.nodes[-1] |= {"shared": int(values.size)} if values.size < count else {}
            self._vector(node, place, f"{name}.weight", count, "a factor", repeated=True)

    def _learned_bend(self, node: Any, x: FileTensor) -> None:
        """Append what a learned slope below zero is: relu(x) - a relu(-x)."""
        if not x.node:
            return
        if len(node.input) < 2 or node.input[1] not in self.origin:
            self._refuse(node, "takes slopes that are no parameter of the file")
            return
        whole = FileTensor(x.node, x.shape)
        self._add_node(node, "relu", whole)
        above = self.values[node.output[0]]
        below = self._multiple(node, whole, -1)
        self._add_node(node, "relu", below)
        self._scale(node, 1, self.values[node.output[0]])
        self._add_node(node, "add", above, self._multiple(node, self.values[node.output[0]], -1))

    def _same(self, node: Any, x: FileTensor) -> None:
        self.values[node.output[0]] = x

    def _cast(self, node: Any, x: FileTensor) -> None:
        if self._of(node, "to", 0) not in FLOATS:
            self._refuse(node, "only to numbers with a point: what is cut off gives no gradient")
        self.values[node.output[0]] = x

    def _dropout(self, node: Any, x: FileTensor) -> None:
        ratio = self._drops(node)
        if not ratio:
            self.values[node.output[0]] = x
            return
        drawn = tuple(self._of(node, WHOLE, x.shape))  # the numbers of a sample that are drawn have this shape
        own = len(drawn) - next((k for k, n in enumerate(reversed(drawn)) if n != 1), len(drawn))
        if drawn != x.shape and (len(drawn) != len(x.shape) or drawn[:own] != x.shape[:own] or x.last):
            self._refuse(node, f"drops what belongs to {drawn} numbers of {x.shape} together: {LEAVES_OUT}")
            return
        more: dict[str, Any] = {"together": math.prod(x.shape[own:])} if drawn != x.shape else {}
        if self._add_node(node, "dropout", x, ratio=ratio, **more):
            self.values[node.output[0]] = x._replace(node=self.values[node.output[0]].node)

    def _drops(self, node: Any) -> float:
        """Return the share of the numbers that a node drops."""
        ratio = self.known.get(node.input[1], 0.5) if len(node.input) > 1 and node.input[1] else 0.5
        drops = self.known.get(node.input[2], True) if len(node.input) > 2 and node.input[2] else False
        share = float(f"{float(np.max(ratio)):.7g}") if np.all(drops) else 0.0
        if share >= 1:
            self._refuse(node, f"drops all numbers: {LEAVES_OUT}")
            return 0.0
        return share

    def _rows(self, node: Any, x: FileTensor) -> None:
        """See a tensor otherwise: as features, in groups of channels, or as the image that it was."""
        if not x.node:
            return
        if node.op_type == "Flatten":
            if self._of(node, "axis", 1) != 1:
                self._refuse(node, "axis is 1 here")
            self.values[node.output[0]] = FileTensor(x.node, (x.features,) if x.shape else ())
            return
        wanted = self.known.get(node.input[1], np.array([])).tolist()
        rest = self._rest(wanted, x)
        if len(wanted) == 2 and (not x.shape or (rest is not None and len(rest) == 1)):
            self.values[node.output[0]] = FileTensor(x.node, rest or ())
        elif rest is not None and rest in (x.shape, (*x.shape, 1, 1), (*x.shape, 1)):
            self.values[node.output[0]] = FileTensor(x.node, rest)
        elif rest is not None and len(rest) == 2 and x.image and x.shape[0] % rest[0] == 0:
            self.values[node.output[0]] = FileTensor(x.node, x.shape, rest[0])
        elif rest is not None and len(x.shape) == 1 and rest == self.shapes.get(x.node):
            self.values[node.output[0]] = FileTensor(x.node, rest)  # the image that it was
        elif rest is not None and FileTensor("", rest).image and self._seen_as(node, x, rest):
            self.values[node.output[0]] = FileTensor(x.node, rest)
        else:
            seen = ", ".join("samples" if n == self.samples else str(n) for n in wanted)
            self._refuse(node, f"tensors of shape {x.shape} are not seen as ({seen}) here")

    def _seen_as(self, node: Any, x: FileTensor, shape: tuple[int, ...]) -> bool:
        """See features as an image from here on, if nothing else takes them; return whether that is so."""
        features = len(x.shape) == 1 and self.shapes.get(x.node) in (x.shape, ()) and not x.groups
        if not features or self._elsewhere(x.node):
            return False
        self.shapes[x.node] = shape
        for one in self.nodes:
            if one["name"] == x.node:
                one["image"] = FileTensor("", shape).image
        return True

    def _sides(self, node: Any, x: FileTensor) -> None:
        """See a tensor with more, or fewer, sides of one pixel."""
        axes = self._of(node, "axes", None)
        if axes is None and len(node.input) > 1 and node.input[1]:
            axes = self.known.get(node.input[1], np.array([])).ravel().tolist()
        if not x.node:
            return
        shape = [0, *x.shape]
        if node.op_type == "Unsqueeze":
            for axis in sorted(axis % (len(shape) + len(axes or ())) for axis in axes or ()):
                shape.insert(axis, 1)
        else:
            gone = [axis % len(shape) for axis in axes] if axes else [k for k, side in enumerate(shape) if side == 1]
            shape = [side for k, side in enumerate(shape) if k not in gone or side != 1]
        made = FileTensor(x.node, tuple(shape[1:]))
        alike = made.image == x.image or math.prod(x.shape[1:]) == 1
        if not x.shape or shape[0] or shape[1] != x.shape[0] or not alike or len(shape) > 4:
            self._refuse(node, "only rows and columns of one pixel are put in or left out here")
        self.values[node.output[0]] = made

    def _rest(self, wanted: Sequence[int], x: FileTensor, whole: bool = True) -> tuple[int, ...] | None:
        """Return the shape of a sample that a shape of all samples says; None if that cannot be known.

        `whole`: the sample has as many numbers.
        """
        if not wanted or not x.shape:
            return None
        first, rest = wanted[0], list(wanted[1:])
        if -1 in rest and (first in (0, self.samples)):
            rest[rest.index(-1)] = x.features // max(1, math.prod(n for n in rest if n != -1))
        elif first not in (0, -1, self.samples):
            return None
        return tuple(rest) if math.prod(rest) == x.features or not whole else None

    def _softmax(self, node: Any, x: FileTensor) -> None:
        if node.output[0] != self.graph.output[0].name:
            self._refuse(node, "is not trained here")
        else:
            self.warnings.append(f"{self._name(node)} of {self.path.name} is left out: the loss begins with logits")
            self.values[node.output[0]] = x

    def _shared(self) -> None:
        """Refuse parameters that several nodes share, and names that are an exporter's own."""
        merged = [name for name, count in self.used.items() if count > 1]
        if not self.refused:
            merged = [name for name in merged if not self._is_tied(name) and not self._is_one(name)]
        if merged and not self.refused:
            raise ConfigError(
                f"{merged[0]} is the parameter of {self.used[merged[0]]} nodes",
                where=self.path,
                cause="the exporter merged parameters of equal values; or nodes that share it take other parts of it, "
                "or the other way round (as tied autoencoders do), or have others of their own",
                hint=f"a parameter for each, or wse.train.from_torch(module, example); {EXPORT}",
            )
        self._named_by_exporters()

    def _frozen(self) -> None:
        """Let the numbers of a node stay that the file says are not trained, all of them.

        Buffers that a module does not keep do not go back.
        """
        for one in self.nodes:
            keys = [f"{one['name']}.{what}" for what in ("weight", "bias", "norm.weight", "norm.bias")]
            names = {origin.name for key in keys for origin in self.origins.get(key, ())}
            if names and names <= self.fixed:
                one["fixed"] = True
                gone = [key for key in keys if names.isdisjoint(self.held) and key in self.origins]
                self.origins |= dict.fromkeys(gone, ())

    def _is_one(self, name: str) -> bool:
        """Let nodes that take the same part of a parameter, and all others alike, share it; return whether they do.

        Exporters merge parameters whose numbers are all ones, or all zeros, whether modules share them or not.
        """
        values = next((self.known[one] for one, origin in self.origin.items() if origin.name == name), np.zeros(1))
        if not self.as_module and np.all(values == values.flat[0]):
            return False
        parts = defaultdict[tuple[Origin, ...], list[str]](list)
        for key, origins in self.origins.items():
            if any(origin.name == name for origin in origins):
                parts[origins].append(key)
        rows = [
            row
            for (origin, *_) in parts
            for row in {*(origin.places or ())} or origin.rows or range(len(self.known[name].T))
        ]
        whole = len(parts) > 1 and any(origin.rows is None is origin.places for (origin, *_) in parts)
        if whole or len(set(rows)) < len(rows) or any(len(origins) > 1 for origins in parts):
            return False
        order = [str(one["name"]) for one in self.nodes]
        for keys in parts.values():
            names = sorted({_node_of(key, order) for key in keys}, key=order.index)
            owned = [self._owned(node, order) for node in names]
            if len(names) < len(keys) or any(one != owned[0] for one in owned):
                return False
            for one in self.nodes:
                if one["name"] in names[1:]:
                    one["shares"] = names[0]
        return True

    def _owned(self, node: str, order: Sequence[str]) -> dict[str, tuple[Origin, ...]]:
        """Return the origins of the parameters of a node, by what is behind its name."""
        return {key[len(node) :]: origins for key, origins in self.origins.items() if _node_of(key, order) == node}

    def _is_tied(self, name: str) -> bool:
        """Return whether nodes share a parameter in a way that is trained; a graph without look-ups has none."""
        return False

    def _named_by_exporters(self) -> None:
        """Refuse parameters whose names are lost."""
        lost = [name for name in self.used if LOST.fullmatch(name)]
        if lost and not self.refused:
            raise ConfigError(
                f"{lost[0]} is no name of a parameter",
                where=self.path,
                cause="it is a constant of the module, or the exporter folded it and its name was lost",
                hint=EXPORT,
            )


def _renamed(name: str, names: Mapping[str, str]) -> str:
    """Return the name of a tensor with that of its layer, given those of its node."""
    for old in sorted(names, key=len, reverse=True):
        if name.startswith(f"{old}."):
            return names[old] + name.removeprefix(old)
    return name


def _node_of(key: str, names: Sequence[str]) -> str:
    """Return the longest of names with which that of a parameter begins."""
    return max((name for name in names if key.startswith(f"{name}.")), key=len, default="")


def _apart(name: str) -> str:
    """Return the name of a module so that it is none of the samples: `input.0` of a `self.input` is `input_0`."""
    return name.replace(".", "_", 1) if name.startswith(f"{INPUT}.") else name


def _list_of(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return tensors, whose shapes may differ, as an array of objects."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def _same(sides: Sequence[int], strides: Sequence[int], reach: Sequence[int], lower: bool) -> list[int]:
    """Return rows above, columns on the left, rows below, columns on the right for a window per stride."""
    every = zip(sides, strides, reach, strict=True)
    ends = [max(0, (-(-side // stride) - 1) * stride + over - side) for side, stride, over in every]
    first = [(one + lower) // 2 for one in ends]
    return [*first, *(one - own for one, own in zip(ends, first, strict=True))]


def _ceiled(sides: Sequence[int], strides: Sequence[int], reach: Sequence[int], pads: Sequence[int]) -> list[int]:
    """Return rows below and columns on the right more, so that no pixel is left over by windows that begin inside."""
    found = []
    for side, stride, over, first, last in zip(sides, strides, reach, pads[:2], pads[2:], strict=True):
        count = -(-(side + first + last - over) // stride) + 1
        count -= (count - 1) * stride >= side + first
        found.append(max(0, (count - 1) * stride + over - (side + first + last)))
    return found


def _joined(outer: Callable[..., np.ndarray], parts: Sequence[Any]) -> Call:
    """Return a function of what functions of one number give, some of which are numbers."""
    return lambda x: outer(*(part(x) if callable(part) else part for part in parts))
