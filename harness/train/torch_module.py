"""A PyTorch module becomes a configuration: exported to an ONNX file as it is trained, and read from there.

PyTorch is imported when it is asked for, and by nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric.networks.graph.tensors import INPUT
from harness.kit.modules import need
from traces.atomic import atomic_file
from wse_core.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig
    from harness.train.onnx_reader import OnnxNetwork

__all__ = ["from_torch"]

STATISTICS = (".running_mean", ".running_var")
SUMMARY = "## Exception summary"
"""What goes before this in an error of PyTorch's exporter is advice to its authors."""
COUNTER = ".num_batches_tracked"
"""Batch normalisation counts its batches here; PyTorch itself uses the number only where momentum is None."""


def from_torch(
    module: Any, example: Any, file: str | Path = "module.onnx", *, dropout: str = "", **tables: Any
) -> TrainConfig:
    """Return the configuration of a training whose network is a PyTorch module.

    The module is exported to an ONNX file in training mode, with all names and nothing folded; the file is what the
    configuration names, so that trained weights go back: ``module.load_state_dict`` takes what
    `harness.train.trainer.Trainer.state_dict` returns.

    Parameters
    ----------
    module : torch.nn.Module
        It gives logits; its own mode of training stays as it was.
    example : torch.Tensor, shape (samples, ...), or several
        Samples of the shape that it takes, two at least: how many stays open.  A module of tokens may take a mask of
        padding too: ``(ids, mask)``, or both by the names of its arguments, as tokenizers give them.
    file : path-like, optional
        Where the ONNX file is written; one that is there is replaced.
    dropout : {"", "ignore", "ignore-attention"}, optional
        As `harness.train.tables.NetworkConfig` has it.
    **tables
        As `harness.train.config.TrainConfig.of` takes them, without ``network``, or with keys of it besides the file.

    Raises
    ------
    ConfigError
        PyTorch or its exporter is missing, the module cannot be exported or has parameters that it does not use, the
        file cannot be written.
    UnsupportedError
        Operations that are not trained here: a line per node; weights that PyTorch does not train, or whose gradient,
        of the example, is another one there.

    Examples
    --------
    >>> config = from_torch(module, torch.randn(2, 1, 8, 8), data={"source": "digits"})  # doctest: +SKIP
    >>> trainer = Trainer(config)  # doctest: +SKIP
    """
    from harness.train.config import TrainConfig
    from harness.train.onnx_file import read_onnx
    from harness.train.torch_check import check_gradients
    from harness.train.torch_example import TorchExample

    torch = need("torch", "a PyTorch module")
    need("onnxscript", "a PyTorch module")
    path, trained, given = Path(file), module.training, TorchExample.of(example)
    try:
        with warnings.catch_warnings(), _masks_as_given(torch):
            warnings.simplefilter("ignore")  # that a module is exported as it is trained: that is what is wanted
            program = torch.onnx.export(
                module.train(),
                given.args,
                kwargs=given.named,
                dynamo=True,
                optimize=False,
                verbose=False,
                dynamic_shapes=given.open(),
            )
        _name_apart(program.model.graph)
        program.save(str(path), external_data=False)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", where=path) from None
    except Exception as error:  # the exporter has many of its own
        text = " ".join(str(error).partition(SUMMARY)[2].split() or str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"PyTorch cannot export the module: {text}", where="module") from error
    finally:
        module.train(trained)
    _say_more(module, path)
    more = dict(tables.pop("network", {})) | ({"dropout": dropout} if dropout else {})
    masked = more.setdefault("masked", given.masked(module)) if given.mask is not None else more.get("masked", ())
    read = read_onnx(path, masked, more.get("dropout", ""))
    network = {"file": str(path.resolve())} | _padding(module, read) | more
    config = TrainConfig.of(network=network, **tables)
    _check_names(module, read)
    check_gradients(module, given, config, read)
    return config


def _name_apart(graph: Any) -> None:
    """Give results names of their own: the exporter calls those of `mean` as a buffer `mean` of the module."""
    taken = {*graph.initializers, *(value.name for value in graph.inputs)}
    for node in graph:
        for value in node.outputs:
            while value.name in taken:
                value.name = f"{value.name}_result"
            taken.add(value.name)


@contextmanager
def _masks_as_given(torch: Any) -> Iterator[None]:
    """Let PyTorch's encoders not look at the numbers of a mask, which no export can: they only choose a faster way."""
    module = torch.nn.modules.transformer
    own = getattr(module, "_detect_is_causal_mask", None)
    if own is not None:
        module._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        if own is not None:
            module._detect_is_causal_mask = own


def _say_more(module: Any, path: Path) -> None:
    """Let the file say what the exporter does not note: what stays, and second names."""
    from harness.train.onnx_file import FIXED, KEPT, OTHER_NAME
    from harness.train.onnx_reader import AS_MODULE, KNOWN_STATISTICS

    onnx = need("onnx", "a PyTorch module")
    model = onnx.load(path)
    model.metadata_props.add(key=AS_MODULE, value="true")
    held, called = {one.name for one in model.graph.initializer}, dict[int, list[str]]()
    trained = dict(module.named_parameters(remove_duplicate=False))
    free = {name for name, one in trained.items() if one.requires_grad}
    for key, all_names in ((KEPT, set(module.state_dict())), (FIXED, {*dict(module.named_buffers()), *trained})):
        for name in sorted(all_names & held - free):
            if not name.endswith((*STATISTICS, COUNTER)):
                model.metadata_props.add(key=f"{key}{name}", value=name)
    for name, one in trained.items():
        called.setdefault(id(one), []).append(name)
    for names in called.values():
        kept = next((name for name in names if name in held), "")
        for name in names if kept else ():
            if name != kept:
                model.metadata_props.add(key=f"{OTHER_NAME}{name}", value=kept)
    drops = "wse.drops"
    for node in model.graph.node:
        if node.op_type == "Dropout" and len(node.input) == 2:  # of attention, which never says that it is trained
            node.input.append(drops)
        if node.op_type == "BatchNormalization" and KNOWN_STATISTICS in node.name:
            for name in node.input[3:5]:
                model.metadata_props.add(key=f"{KEPT}{name}", value=name)
    if any(drops in node.input for node in model.graph.node):
        model.graph.initializer.append(onnx.helper.make_tensor(drops, onnx.TensorProto.BOOL, (), [True]))
    with atomic_file(path) as stream:
        stream.write(model.SerializeToString())


def _padding(module: Any, read: OnnxNetwork) -> dict[str, int]:
    """Return the token whose row PyTorch does not train, as a key of the network's table: files do not say it."""
    rows = {
        id(one.weight): one.padding_idx
        for one in module.modules()
        if hasattr(one, "padding_idx") and hasattr(one, "weight")
    }
    held = dict(module.named_parameters(remove_duplicate=False))
    pixels = {f"{one['name']}.weight" for one in read.nodes if one["op"] == "convolution" and one["inputs"] == [INPUT]}
    for key, origins in read.origins.items() if read.sequence or read.image else ():
        row = rows.get(id(held.get(origins[0].name))) if origins else None
        if row is not None and (origins[0].columns is not None or key in pixels):  # the table of tokens comes first
            return {"padding": int(row)}
    return {}


def _check_names(module: Any, read: OnnxNetwork) -> None:
    """Refuse what is trained here and not by PyTorch, and parameters that the module does not use."""
    kept = dict(module.named_buffers())
    names = {one.name for origins in read.origins.values() for one in origins} | set(read.other_names)
    found = {name for name in names if not (name in kept and name.endswith(STATISTICS))}
    free = {name for name, one in module.named_parameters(remove_duplicate=False) if one.requires_grad}
    nodes = [node["name"] for node in read.nodes if node.get("fixed")]
    keys = [f"{name}.{what}" for name in nodes for what in ("weight", "bias", "norm.weight", "norm.bias")]
    stay = {one.name for key in keys for one in read.origins.get(key, ())}
    fixed = sorted(found - free - stay)
    if fixed:
        what = "a buffer, a constant or a parameter without gradient" if len(fixed) == 1 else "not trained by PyTorch"
        raise UnsupportedError(
            f"{', '.join(fixed)}: {what}, and all weights of products and normalisations are trained here",
            where="module",
            feature="weights that stay",
            hint="nn.Parameter, requires_grad_(True)",
        )
    unused = sorted(name for name in set(module.state_dict()) - names - set(read.kept) if not name.endswith(COUNTER))
    if unused:
        raise ConfigError(
            f"{', '.join(unused[:5])}{', ...' * (len(unused) > 5)}: the logits do not depend on it",
            where="module",
            cause="a part of the module that forward does not use; the trained weights would lack it",
            hint="leave that part out",
        )
