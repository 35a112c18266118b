"""Networks are read from ONNX files, and trained weights written back into them.

A file is read as an exporter wrote it for training: from one input to the logits, of a sample or of each pixel of an
image, parameters as initializers under their own names.  A chain of products becomes the layers of
`harness.train.tables.LayerConfig`, any other graph nodes of `harness.train.tables.NodeConfig`, called as their modules
are; what cannot is named, node by node.

======================================================  =============================================================
nodes                                                   become
======================================================  =============================================================
Gemm, or MatMul and Add                                 linear; the orientation of the weights follows from the node
Conv; ConvTranspose                                     convolution; transposed
Transpose that puts channels last, or first again       nothing; MatMul between them is a convolution of single pixels
Add of a parameter per channel or feature               shift, if it is no product's bias
Mul by one, or by one for all; PRelu                    scale; relu, multiple, scale and add
Mul, Div by a constant; Sub of two tensors              multiple; multiple and add
MaxPool; AveragePool, which counts its padding          maxpool; avgpool
GlobalAveragePool, ReduceMean over rows and columns     avgpool of the whole image
Resize to the nearest pixel, by a whole number          upsample
Resize, linear or cubic; AveragePool without padding    resample
what puts numbers in other places                       `harness.train.onnx_moved`
Mul of an image and a number per channel; Expand        upsample, and mul
LayerNormalization, whole or in steps                   norm; channelnorm over the channels of each pixel
GroupNormalization, or Reshape, InstanceNormalization,  groupnorm
Reshape, Mul and Add; InstanceNormalization
BatchNormalization in training mode                     batchnorm
Relu; Gelu; Tanh; Sigmoid and Mul                       relu; gelu (tanh form) or gelu_erf; tanh; silu
Add, Mul of two tensors; Concat of channels, features   add, mul; concat
Flatten, Reshape to rows, Squeeze of single pixels      nothing: an image is its features
Identity, Cast to a float, Dropout that drops nothing   nothing
Dropout; what `harness.train.onnx_dropout` knows        dropout
Softmax, LogSoftmax as the last node                    nothing, and a warning: the loss has its own
samples that are sequences                              `harness.train.onnx_tokens`: look-ups, attention, rotary, rms
what works along the tokens of sequences                `harness.train.onnx_turned`: tokens are the pixels of a row
======================================================  =============================================================

What exporters have merged or folded for inference is refused, with the way to export it: parameters that were equal and
became one, names that were lost, batch normalisation that is not said to be trained.

Source: ONNX operators, https://onnx.ai/onnx/operators/, versions 13 to 23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.kit.modules import need
from harness.train.onnx_alike import alike
from harness.train.onnx_dropout import by_channel, without
from harness.train.onnx_moved import MovedReader
from harness.train.onnx_norms import put_together
from harness.train.onnx_patches import PatchReader, has_patches
from harness.train.onnx_reader import FIXED, KEPT, OnnxNetwork, OnnxReader
from harness.train.onnx_repeats import once
from harness.train.onnx_strided import in_one_piece
from harness.train.onnx_tokens import FeatureReader, TokenReader, has_features, has_sequences
from harness.train.onnx_turned import TurnedReader, may_turn
from harness.train.onnx_writer import OnnxWriter
from traces.atomic import atomic_file
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["FIXED", "KEPT", "OTHER_NAME", "export_onnx", "read_onnx", "save_onnx"]

OPSETS = range(13, 24)
OTHER_NAME = "wse.also_called:"
"""A property of a file whose key begins so says how else a module calls a parameter: its value is the name there."""


def read_onnx(path: str | Path, masked: Sequence[int] = (), dropout: str = "") -> OnnxNetwork:
    """Return the network of a file.

    Parameters
    ----------
    path : path-like
    masked, dropout : optional
        As `harness.train.tables.NetworkConfig` has them.

    Raises
    ------
    ConfigError
        No such file, damage, or a form that inference was meant with; the message says how to export it.
    UnsupportedError
        Operations that are not trained here: a line per node.
    """
    return _network(Path(path), _model(Path(path)), masked, dropout)


def save_onnx(
    source: str | Path,
    path: str | Path,
    tensors: Mapping[str, np.ndarray],
    masked: Sequence[int] = (),
    dropout: str = "",
) -> None:
    """Write the file `source` again with other values of its parameters, whole or not at all.

    Parameters
    ----------
    source, path : path-like
    tensors : dict of str to ndarray
        By the names of `harness.train.weights`.
    masked, dropout : optional
        As `harness.train.tables.NetworkConfig` has them.
    """
    model, numpy_helper = _model(Path(source)), need("onnx.numpy_helper", "a network from an .onnx file")
    new = _network(Path(source), model, masked, dropout).back(tensors)
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
    _write(path, OnnxWriter(Path(path), config, tensors).model())


def _network(path: Path, model: Any, masked: Sequence[int], dropout: str) -> OnnxNetwork:
    """Return what the graph of a file says."""
    model = by_channel(model)
    model, left_out = without(model, dropout) if dropout else (model, [])
    model = put_together(once(in_one_piece(alike(model))))
    names = {item.key.removeprefix(OTHER_NAME): item.value for item in model.metadata_props if OTHER_NAME in item.key}
    tokens = has_sequences(model.graph) and not has_rows(model.graph)
    made: list[OnnxReader] = [TokenReader(path, model, masked) if tokens else MovedReader(path, model)]
    made += [PatchReader(path, model)] if has_patches(model.graph) else []
    made += [FeatureReader(path, model)] if has_features(model.graph) else []
    made += [TurnedReader(path, model)] if may_turn(model.graph) else []
    known = made[0].known
    kept = {item.key.removeprefix(KEPT): known[item.value] for item in model.metadata_props if KEPT in item.key}
    found = _read(made)
    found = found._replace(sequence=0, alone="") if has_features(model.graph) else found
    said = (f"dropout is left out: {', '.join(left_out)}",) if left_out else ()
    return found._replace(other_names=names, kept=kept, warnings=(*found.warnings, *said))


def _read(readers: Sequence[OnnxReader]) -> OnnxNetwork:
    """Return the network of the first reader that takes a graph whole.

    Raises
    ------
    ConfigError
        Of the first one: a form that inference was meant with.
    UnsupportedError
        Of the one that came furthest before it refused a node, the first of such ones; of the one whose tokens are
        pixels only if another one found that products are taken along tokens.
    """
    refusals: list[tuple[int, ConfigError | UnsupportedError]] = []
    for reader in readers:
        try:
            return reader.network()
        except UnsupportedError as error:
            along = any("products are of a token's own" in str(other) for _, other in refusals)
            if not isinstance(reader, TurnedReader) or along:
                refusals.append((reader.reached, error))
        except ConfigError:
            if not refusals:
                raise
    raise max(refusals, key=lambda one: one[0])[1]


def has_rows(graph: Any) -> bool:
    """Return whether a graph convolves or pools along one side of its samples, as of sound: channels and that side."""
    known = {item.name: len(item.dims) for item in graph.initializer}
    given = [item.type.tensor_type for item in graph.input if item.name not in known]
    sides = [list(one.ints) for node in graph.node for one in node.attribute if one.name == "kernel_shape"]
    filters = [known.get(node.input[1], 0) for node in graph.node if node.op_type in ("Conv", "ConvTranspose")]
    along = 3 in filters or 1 in map(len, sides)
    return along and len(given) == 1 and given[0].elem_type == 1 and len(given[0].shape.dim) == 3


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
