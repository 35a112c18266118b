"""`TrainConfig` is the checked file of ``wse train``: network, data, mesh, training, sparsity, checkpoints.

Tables and keys are the dataclasses of `harness.train.tables`; `harness.config.options` says how strictly they are read.
What concerns several keys is checked by `TrainConfig.check`: a batch that does not divide, a format that the machine
does not calculate in, keys that the chosen schedule does not have.

Formats (requirements FMT-06, 08, 09)
    Training is mixed precision only.  ``cb16`` needs both switches, ``train.dtype`` and ``csconfig.use_cbfloat16``;
    with one of them it is f16, and a warning says so.  ``bf16`` must not scale the loss; PEs do not calculate in it, so
    only plain numpy trains with it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import numpy as np

from fabric.networks.graph.dropout import MOST_DRAWN
from fabric.networks.graph.plain import EPSILON
from fabric.networks.graph.tensors import INPUT
from harness.config import toml
from harness.config.assignments import assigned
from harness.config.machine import of_parts, of_table
from harness.config.options import field_of, from_table, place
from harness.train.lookup import Tie, first_product, numbered
from harness.train.loss_scale import MOST
from harness.train.nodes import PLACED, PRESETS, SIDES, SIZES, preset_nodes
from harness.train.patches import tokens_of
from harness.train.shared import check_shared
from harness.train.sparsity import phases, widened
from harness.train.tables import MemxConfig, RunConfig, TrainFile
from harness.train.text import characters, is_text, text_of
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.formats import Half
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from fabric.networks.graph.network import Layer, Network
    from harness.train.data import Dataset
    from harness.train.onnx_reader import OnnxNetwork
    from wse_core.numerics import Stored
    from wse_core.params import Machine

__all__ = ["EXAMPLES", "MatrixConfig", "TrainConfig", "load_train", "parse_train"]

EXAMPLES = (
    *("digits", "digits-sparse75", "digits-sparse90", "fc-mnist-shaped", "chars", "digits-bert", "digits-cnn"),
    *("digits-unet", "pydoc"),
)
"""The files that come with the package have these names."""

TOLD = "places", "fixed_places", "place_scales", "patches", "hidden", "ending", "absent"
"""Files say these keys of a network's table, which are numbers in a row."""
MANY = 10**6
"""So many iterations hold all phases of any schedule."""


class MatrixConfig(NamedTuple):
    """A `MatrixConfig` describes a weight matrix of the network: its sizes and how it begins.

    Attributes
    ----------
    name : str
    inputs, outputs : int
        Features, without the constant one of biases.
    bias : bool
    density : float
        Share of the weights that exist at the begin.
    deviation : float or None
        Of the first weights; None: the root of 2 / (inputs x density).
    row : tuple of int
        Shape of a row in files: (inputs,), or channels, rows and columns of a filter.
    """

    name: str
    inputs: int
    outputs: int
    bias: bool
    density: float
    deviation: float | None
    row: tuple[int, ...]


LATER_KEYS = (
    "kv_heads",
    "base",
    "turned",
    "scaled",
    "window",
    "slopes",
    "biases",
    "ratio",
    "together",
    "factor",
    "shared",
    "each",
    "fixed",
    "fixed_outputs",
    "epsilon",
    "method",
    "sides",
    "shares",
    "image",
    "rows",
    "columns",
)
"""Nodes did not always have these keys, which are left out of a fingerprint where they say nothing."""


@dataclass(frozen=True)
class TrainConfig(TrainFile):
    """A `TrainConfig` is a training run: what the file says, and what follows from it.

    Attributes
    ----------
    network : NetworkConfig
        Widened, if the sparsity schedule is ``sparse-ift``.
    train : RunConfig
        With the format that is really used.
    machine : dict
        With dotted names.
    plain_widths : tuple of int
        Features of the inputs and of each layer's outputs as the file has them.
    warnings : tuple of str
        Things that are allowed and probably not meant.
    text : str
        The file as it was read.
    source : str
        Where the text came from.
    assignments : tuple of str
        Words ``key=value`` that changed what the file says.
    given : tuple of str
        Dotted names of all keys that the file or a word sets.
    """

    plain_widths: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    text: str = ""
    source: str = ""
    assignments: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: str = "", **tables: Any) -> TrainConfig:
        """Return the configuration of tables as Python objects; checked as those of a file.

        Parameters
        ----------
        source : str
            A name for messages; files that the tables name are looked for beside it.
        **tables
            Keys of the file's top level: dicts, the dataclasses of `harness.train.tables`, or values.

        Examples
        --------
        >>> from harness.train.tables import LayerConfig, RunConfig
        >>> config = TrainConfig.of(
        ...     network={"inputs": 64, "layers": [{"outputs": 32, "activation": "relu"}, LayerConfig(10)]},
        ...     train=RunConfig(iterations=20, clip=1.0),
        ...     swarm={"link.planes": 4},
        ... )
        >>> config.widths, config.train.clip, config.build_machine()["link.planes"]
        ((64, 32, 10), 1.0, 4)
        """
        return _built({name: _plain(value) for name, value in tables.items()}, source)

    # --- what follows from the keys -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The configuration is called as its file, without the ending; ``train`` if there is none."""
        return Path(self.source).stem or "train"

    @property
    def dtype(self) -> Stored:
        """Weights and activations have this format: ``f16``, ``cb16`` or ``bf16``."""
        return cast("Stored", self.train.dtype)

    @property
    def widths(self) -> tuple[int, ...]:
        """The inputs have so many features, and each product's result so many features or channels."""
        return self.graph.features

    @cached_property
    def matrices(self) -> tuple[MatrixConfig, ...]:
        """The network has these weight matrices, in the order of `fabric.networks.graph.network.Network.parameters`."""
        from fabric.networks.graph.table import OPERATIONS

        graph = self.graph
        given: Sequence[Any] = self.network.layers or [
            node for node in self.network.nodes if OPERATIONS[node.op].matrix
        ]
        products, found = [node for node in graph.nodes if OPERATIONS[node.op].matrix], []
        for node, parameter, one in zip(products, graph.parameters, given, strict=False):
            sizes, inputs = dict(node.sizes), parameter.columns - node.size("bias")
            window = (sizes["kernel_height"], sizes["kernel_width"]) if "kernel_height" in sizes else ()
            density = self.sparsity.density if one.density is None else one.density
            deviation, row = getattr(one, "deviation", None), (inputs // math.prod(window), *window)
            found.append(
                MatrixConfig(parameter.name, inputs, parameter.rows, bool(sizes["bias"]), density, deviation, row)
            )
        return tuple(found)

    @cached_property
    def graph(self) -> Network:
        """The network is given here in a format that PEs have, whatever the one that is asked for."""
        from fabric.networks.graph.network import Network
        from harness.train.nodes import graph_of

        dtype: Half = "cb16" if self.dtype == "cb16" else "f16"
        if self.network.nodes:
            some, pixels = self.data.labels != "class", self.data.labels == "pixel"
            sizes = self.network.inputs, self.network.nodes, self.data.sequence
            found = graph_of(*sizes, dtype, some, self.network.image, pixels, self.loss)
        else:
            found = Network.of(self.layers, dtype, loss=self.loss)
        try:
            return dataclasses.replace(
                found,
                epsilon=self.network.epsilon,
                head_columns=self.mesh.head_columns,
                image_rows=self.mesh.image_rows,
                keep_output=self.memx.keep_output,
                recompute=self.train.recompute,
            )
        except UnsupportedError as error:
            error.where = "memx.keep_output" if error.feature == "kept weights" else error.where
            raise

    @property
    def loss(self) -> str:
        """The loss has this name in `fabric.networks.graph.table.LOSSES`."""
        return self.train.loss.replace("-", "_")

    @property
    def targets(self) -> bool:
        """Samples, or tokens, have numbers that are wanted instead of a class."""
        return self.train.loss == "mse"

    @property
    def classes(self) -> int:
        """A sample, a token or a pixel has one of so many classes, or so many targets."""
        return self.graph.classes

    @property
    def at_once(self) -> int:
        """So many samples are on the wafers together: a batch, or the part of it that passes at a time."""
        return self.data.batch // self.train.accumulate

    @cached_property
    def form(self) -> str:
        """Weights go out in this form: with steps, in pairs, or either; the one that takes the fewest cycles."""
        from fabric.networks.graph.plan import MemoryPlan
        from fabric.networks.streamed.operations.gaps import form_of

        if self.memx.dense_rows == "steps":
            return "steps"
        if self.sparsity.masks or self.network.weights:  # which have gaps is not known yet
            return "both"
        plan = MemoryPlan(self.graph, self.mesh.columns)
        return form_of(plan, self.build_machine(), self._tokens, self.densities_of)

    @property
    def _tokens(self) -> int:
        """A PE has so many tokens at a time."""
        return max(1, self.at_once // self.wafers // (self.mesh.height * self.mesh.column_groups))

    @property
    def densities_of(self) -> dict[str, tuple[float, ...]]:
        """Each matrix, by its name in the network, has these densities one after the other."""
        _, *later = phases(self.sparsity, MANY)
        names = (tensor.name for tensor in self.graph.parameters)
        each = ((one.density, *(phase.density for phase in later)) for one in self.matrices)
        return dict(zip(names, each, strict=False))

    @property
    def densities(self) -> set[float]:
        """A matrix may have each of these densities at some time."""
        return {density for of_one in self.densities_of.values() for density in of_one}

    @property
    def layer_densities(self) -> tuple[float, ...]:
        """This share of the weights of each layer exists at the begin; 1 is all."""
        return tuple(matrix.density for matrix in self.matrices)

    @property
    def density(self) -> float:
        """This share of all weights exists at the begin, biases left out, and is 1 if all do."""
        return sum(self.active) / sum(matrix.inputs * matrix.outputs for matrix in self.matrices)

    @property
    def active(self) -> tuple[int, ...]:
        """Each layer has so many weights at the begin, without biases."""
        if self.sparsity.schedule == "sparse-ift":  # as many as the plain network has
            return tuple(n * m for n, m in pairwise(self.plain_widths))
        return tuple(max(1, round(one.density * one.inputs * one.outputs)) for one in self.matrices)

    def iterations(self, samples: int | None) -> int:
        """Return the iterations of the whole run, given the number of training samples, if there is one."""
        if samples is None and not self.train.iterations:
            raise ConfigError("batches that are handed over have no epochs", where="train.epochs", hint="iterations")
        return self.train.iterations or (self.train.epochs or 0) * ((samples or 0) // self.data.batch)

    @property
    def layers(self) -> list[Layer]:
        """The layers with the inputs of each, as `fabric.networks.graph.network.Network.of` takes them."""
        from fabric.networks.graph.network import Layer

        widths = [self.network.inputs, *(layer.outputs for layer in self.network.layers)]
        return [
            Layer(inputs, layer.outputs, layer.activation, layer.bias, layer.norm)
            for inputs, layer in zip(widths, self.network.layers, strict=False)
        ]

    def build_network(self) -> Network:
        """Return the `fabric.networks.graph.network.Network` that wafers hold.

        Raises
        ------
        UnsupportedError
            PEs do not calculate in the format; plain numpy does.
        """
        if self.dtype == "bf16":
            raise UnsupportedError(
                "PEs do not calculate in bf16",
                where=place(self.source, "train.dtype"),
                feature="bf16",
                hint="f16 or cb16",
            )
        return self.graph

    @cached_property
    def dataset(self) -> Dataset:
        """The samples are read once (`harness.train.data.load`)."""
        from harness.train.data import load

        return load(self)

    @cached_property
    def streamed(self) -> Network:
        """Wafers hold this network where weights are streamed: one that takes numbers of tokens if samples are such.

        Samples are read for it, unless nothing can look them up; those that are not there say nothing.
        """
        from harness.train.data import SOURCES

        network = self.build_network()
        takes = {node.op for node in network.nodes if INPUT in node.inputs}
        if takes != {"linear"} or self.data.source in SOURCES:
            return network
        try:
            return numbered(self, network, self.dataset.x_train)
        except ConfigError:
            return network

    def check_memory(self) -> None:
        """Refuse a network whose activations cannot fit its PEs, before anything is made for it."""
        from fabric.networks.streamed.resident import resident_of

        network, mesh = self.streamed, self.mesh
        try:
            samples, groups = self.at_once // self.wafers, mesh.column_groups
            resident_of(network, self.build_machine(), mesh.columns, mesh.height, samples, self.form, groups)
        except (ConfigError, UnsupportedError) as error:
            error.where = place(self.source, error.where or "")
            raise

    def build_machine(self) -> Machine:
        """Return the `wse_core.params.Machine` that the file asks for."""
        return of_table(self.machine)

    def override(self, wafers: int | None = None) -> Self:
        """Return the same run on another number of wafers."""
        if wafers is None:
            return self
        field_of(type(self), "wafers").check(wafers, "--wafers")
        return dataclasses.replace(self, wafers=wafers).check()

    def fingerprint(self) -> str:
        """Return a digest of everything that decides what an iteration does.

        The number of iterations belongs to it only where a schedule depends on it; checkpoints never do, nor does the
        mode, since a checkpoint of one goes on in the other.
        """
        facts = {item.name: getattr(self, item.name) for item in dataclasses.fields(TrainFile)}
        facts = {
            name: dataclasses.asdict(value)
            if dataclasses.is_dataclass(value) and not isinstance(value, type)
            else value
            for name, value in facts.items()
            if name not in ("checkpoint", "mode", "pipeline")
        }
        facts["train"].pop("evaluate")
        facts["train"].pop("patience")
        facts["train"].pop("gradient_norms")
        facts["train"].pop("gradient_histograms")
        for held, key, plain in (  # what was there before there was a choice
            (facts["network"], "file", ""),
            (facts["data"], "scale", 1.0),
            (facts["data"], "held_out", 0.2),
            (facts["data"], "sequence", 1),
            (facts["data"], "labels", "class"),
            (facts["network"], "nodes", ()),
            (facts["network"], "image", ()),
            (facts["network"], "places", ()),
            *((facts["network"], key, ()) for key in ("fixed_places", "place_scales", "ending", "absent")),
            (facts["network"], "token_scale", 1.0),
            (facts["network"], "patches", ()),
            (facts["network"], "padding", None),
            (facts["network"], "tied", ""),
            (facts["network"], "dropout", ""),
            (facts["network"], "masked", ()),
            (facts["network"], "hidden", ()),
            (facts["network"], "epsilon", EPSILON),
            (facts["mesh"], "head_columns", 1),
            (facts["mesh"], "image_rows", 1),
            (facts["mesh"], "column_groups", 1),
            (facts["memx"], "keep_output", False),
            (facts["network"], "preset", ""),
            *((facts["network"], key, () if key in ("hidden_sizes", "depths") else None) for key in SIZES),
            (facts["train"]["schedule"], "rise", 0.3),
            (facts["train"], "loss", "cross-entropy"),
        ):
            if held[key] == plain:
                del held[key]
        for key in [key for key in ("label_smoothing", "recompute") if not facts["train"][key]]:
            del facts["train"][key]
        facts["memx"].pop("files")
        images = "kernel", "kernel_width", "stride", "padding", "output_padding", "groups", "momentum"
        sides = *SIDES, "output_padding_width"
        for node in facts["network"].get("nodes", ()):  # and before there were images, or heads that are shared
            for key in (*images, *sides, *LATER_KEYS):
                if node[key] in (None, (), ""):
                    del node[key]
        if self.train.optimizer.decays == "all":  # what was there before there was a choice
            del facts["train"]["optimizer"]["decays"]
        if self.train.schedule.kind in ("constant", "step", "inverse-root") and self.sparsity.schedule in (
            "static",
            "sparse-ift",
        ):
            del facts["train"]["iterations"], facts["train"]["epochs"]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    # --- checks over several keys -------------------------------------------------------------------------------------

    def check(self) -> Self:
        """Return self if the keys fit each other; the error that is raised otherwise names file and key."""
        try:
            for part in (
                self._check_loss,
                self._check_network,
                self._check_kept,
                self._check_batch,
                self._check_sparsity,
                self._check_tie,
                self._check_training,
                self._check_format,
            ):
                part()
        except (ConfigError, UnsupportedError) as error:
            if self.source and not str(error.where or "").startswith(self.source):
                error.where = place(self.source, error.where or "")
            raise
        return self

    def _check_loss(self) -> None:
        if not self.targets:
            return
        if self.train.label_smoothing:
            raise ConfigError(
                "targets have no probability that could be spread",
                where="train.label_smoothing",
                value=self.train.label_smoothing,
                hint='0, or train.loss = "cross-entropy"',
            )
        if self.data.labels == "pixel":
            raise ConfigError(
                "pixels have classes, and the loss is mse",
                where="data.labels",
                value="pixel",
                hint='"class": every number of an image has a target',
            )
        if is_text(self.data.source):
            raise ConfigError(
                "the next character of a text is a class, and the loss is mse", where="train.loss", hint="cross-entropy"
            )

    def _check_that_memory_is_saved(self) -> None:
        """Refuse to compute again what takes more memory so."""
        from fabric.networks.graph.plan import MemoryPlan

        plans = (
            MemoryPlan(dataclasses.replace(self.graph, recompute=recompute), self.mesh.columns)
            for recompute in (True, False)
        )
        again, kept = (plan.words(self._tokens) for plan in plans)
        if again > kept:
            raise ConfigError(
                f"memory is not saved but taken: arrays have {again:,} words of a PE if stretches are computed again, "
                f"{kept:,} if their results are kept",
                where="train.recompute",
                hint="false",
            )

    def _check_kept(self) -> None:
        if self.train.recompute and not self.graph.segments:
            raise ConfigError(
                "there is nothing to compute again: no stretch of operations lies between two tensors that alone are "
                "needed behind them, but for the last one, with which the way back begins",
                where="train.recompute",
                hint="false",
            )
        if self.train.recompute:
            self._check_that_memory_is_saved()
        if not self.memx.keep_output:
            return
        from fabric.networks.graph.reverse import schedule

        graph = self.graph
        kept = [
            step.parameter for step in schedule(graph, "train") if step.direction == "back" and graph.keeps(step.node)
        ]
        if not kept:
            raise ConfigError(
                "no gradient goes through the last product: its weights are sent once as it is",
                where="memx.keep_output",
                hint="false",
            )
        name = kept[0].name if kept[0] is not None else ""
        if self.form != "pairs" and min(self.densities_of.get(name, (1.0,))) < 1:
            raise UnsupportedError(
                f"{name} has gaps, now or later, and only weights without are kept on the wafers",
                feature="kept weights",
                where="memx.keep_output",
                hint="false, or a dense last product",
            )

    def _check_network(self) -> None:
        if not self.checkpoint.directory.isprintable():
            raise ConfigError("a name with control characters", where="checkpoint.directory")
        for key in SIZES:
            if getattr(self.network, key) not in (None, ()) and not self.network.preset:
                raise ConfigError(f"{key} is the size of a preset", where=f"network.{key}", hint='preset = "gpt"')
        if self.data.labels != "class" and not self.network.nodes:
            raise ConfigError("layers take a class for every sample", where="data.labels", hint="nodes, or a preset")
        self._check_places()
        if self.mesh.head_columns > 1 and not any(node.op == "attention" for node in self.network.nodes):
            raise ConfigError("the network has no heads of attention", where="mesh.head_columns", hint="1")
        if self.mesh.image_rows > 1:
            from fabric.networks.graph.strips import strips_of

            strips_of(self.graph)  # refuses networks that cannot lie so
        if self.network.tied and not self.network.nodes:
            raise ConfigError("layers share no weights", where="network.tied", hint="nodes, or a preset")
        if self.network.nodes:
            if self.network.layers:
                raise ConfigError("layers stand there too", where="network.nodes", hint="either, not both")
            if self.classes < 2 and not self.targets:
                raise ConfigError(
                    "a classification needs at least 2 classes",
                    where="network.nodes",
                    value=self.classes,
                    hint='train.loss = "mse" for numbers that are wanted',
                )
            return
        if not self.network.layers:
            raise ConfigError("a network without layers", where="network.layers")
        last = self.network.layers[-1]
        where = f"network.layers[{len(self.network.layers) - 1}]"
        if self.targets:
            return
        if last.activation != "none" or last.norm:
            raise ConfigError("the last layer gives logits: no activation and no normalisation", where=where)
        if last.outputs < 2:
            raise ConfigError(
                "a classification needs at least 2 classes",
                where=where,
                value=last.outputs,
                hint='train.loss = "mse" for numbers that are wanted',
            )

    def _check_places(self) -> None:
        """Refuse tables that have no row for a place, and a padding that is no token."""
        places, sequence, padding = self.network.places, self.data.sequence, self.network.padding
        where, own = "network.places", self.network.inputs - sum(self.network.places[::3])
        if padding is not None and (padding >= own or not self.network.nodes):
            what = f"token {padding} of {own}" if self.network.nodes else "layers know no tokens"
            raise ConfigError(what, where="network.padding", value=padding)
        if padding is not None and (first_product(self) is None or self.densities != {1.0}):
            what = "a product without gaps that alone takes the samples looks tokens up"
            raise ConfigError(what, where="network.padding", value=padding)
        if self.network.dropout and not self.network.file:
            what = "dropout of a file is left out, and there is none"
            raise ConfigError(what, where="network.dropout", value=self.network.dropout, hint="leave it out")
        if any(one.op == "dropout" for one in self.network.nodes) and self.data.batch > MOST_DRAWN:
            what = f"dropout of {self.data.batch} samples of a batch, which have numbers of 16 bits"
            raise UnsupportedError(what, where="data.batch", feature="dropout", hint=f"at most {MOST_DRAWN}")
        masked = self.network.masked
        if masked and not self.network.file:
            what = "a file takes a mask as a second input, and no other network does"
            raise UnsupportedError(what, where="network.masked", feature="masks", hint="leave it out")
        if masked and masked[0] >= own:
            raise ConfigError(f"token {masked[0]} of {own}", where="network.masked", value=masked)
        if places and not self.network.nodes:
            raise ConfigError("layers know no places", where=where, hint="nodes")
        self._check_patches(own)
        for number in self.network.fixed_places:
            if not 0 <= number < len(places) // 3 or first_product(self) is None or self.densities != {1.0}:
                what = "tables that are not trained are places of a product without gaps that alone takes the samples"
                raise ConfigError(what, where="network.fixed_places", value=number)
        scales = self.network.place_scales
        if scales and (len(scales) != len(places) // 3 or not np.all(np.isfinite(scales)) or 0 in scales):
            what = f"{len(scales)} numbers, some of them nothing, for {len(places) // 3} tables of places"
            raise ConfigError(what, where="network.place_scales", value=scales)
        if len(places) % 3:
            raise ConfigError("three numbers each: rows, first, step", where=where, value=places)
        for count, first, step in zip(places[::3], places[1::3], places[2::3], strict=True):
            ends = first, first + step * (sequence - 1)
            if count < 1 or min(ends) < 0 or max(ends) >= count:
                what = f"{sequence} tokens look up rows {ends[0]} to {ends[1]} of {count}"
                raise ConfigError(what, where=where, value=places)
        if own < 1:
            what = f"{sum(places[::3])} rows of {self.network.inputs} inputs leave no features"
            raise ConfigError(what, where=where, value=places)

    def _check_patches(self, own: int) -> None:
        """Refuse patches that do not make the tokens of a sequence."""
        patches, where = self.network.patches, "network.patches"
        if not patches:
            return
        if len(patches) != 8 or min(patches[:5]) < 1 or patches[5] < 0 or not set(patches[6:]) <= {0, 1}:
            what = "eight numbers: three sides of an image, two of a patch, tokens before them, two marks"
            raise ConfigError(what, where=where, value=patches)
        tokens, features = tokens_of(patches)
        if (tokens, features) != (self.data.sequence, own) or self.data.labels not in ("first", "last"):
            what = f"{tokens} tokens of {features} features, data.sequence is {self.data.sequence}, inputs leave {own}"
            raise ConfigError(what, where=where, value=patches, hint=f'data.sequence = {tokens}, labels = "first"')

    @cached_property
    def tie(self) -> Tie | None:
        """Which matrices share weights; None: none do."""
        return Tie.of(self)

    def _check_batch(self) -> None:
        machine = self.build_machine()
        if not machine["clock.ghz"]:
            raise ConfigError("without a clock links have no rate per cycle", where="machine.clock.ghz", value=0)
        self.check_mesh()
        sequence, unit = self.data.sequence, self.data.sequence * self.train.accumulate
        if sequence > 1 and self.data.batch % unit:
            parts = f"{self.train.accumulate} parts of " * (self.train.accumulate > 1)
            raise ConfigError(
                f"a batch of {self.data.batch} samples has no {parts}whole sequences of {sequence}",
                where="data.batch",
                value=self.data.batch,
                hint=str(max(1, self.data.batch // unit) * unit),
            )
        if self.mode == "streaming" or (self.mode == "auto" and self.wafers > 1):
            self.check_shards()

    def check_mesh(self) -> None:
        """Refuse a mesh that the wafer has no room for, or columns that do not divide into groups."""
        from fabric.networks.streamed.across import joining_rows

        machine, mesh = self.build_machine(), self.mesh
        if mesh.width > machine["fabric.width"] or mesh.height > machine["fabric.height"]:
            raise ConfigError(
                f"{mesh.width} x {mesh.height} PEs exceed the {machine['fabric.width']} x "
                f"{machine['fabric.height']} of {machine.preset}",
                where="mesh",
            )
        if mesh.width % mesh.column_groups:
            raise ConfigError(
                f"{mesh.width} columns of PEs do not divide into {mesh.column_groups} groups",
                where="mesh.column_groups",
                hint=" or ".join(map(str, _divisors_beside(mesh.width, mesh.column_groups))),
            )
        joining = joining_rows(mesh.columns, mesh.column_groups)
        if mesh.height + joining > machine["fabric.height"]:
            raise ConfigError(
                f"{mesh.height} rows of PEs and {joining} in which {mesh.column_groups} groups of columns meet exceed "
                f"the {machine['fabric.height']} of {machine.preset}",
                where="mesh.column_groups",
                hint="more groups, of fewer columns, or fewer rows",
            )

    def check_shards(self) -> None:
        """Refuse a batch that wafers and rows of PEs cannot share equally, as streaming has it."""
        mesh, batch = self.mesh, self.data.batch
        parts = self.train.accumulate
        unit = self.wafers * mesh.groups * parts
        if batch % unit:
            near = [str(number) for number in (batch // unit * unit, (batch // unit + 1) * unit) if number]
            passes, factor = (f"{parts} passes over ", f"{parts} x ") if parts > 1 else ("", "")
            rows = f"{mesh.height // mesh.image_rows} times " * (mesh.image_rows > 1)
            rows += f"{mesh.image_rows if mesh.image_rows > 1 else mesh.height} rows of PEs"
            rows += f" in {mesh.column_groups} groups of columns" * (mesh.column_groups > 1)
            raise ConfigError(
                f"a batch of {batch} does not divide over {passes}{self.wafers} wafer{'s' * (self.wafers > 1)} of "
                f"{rows}: {batch} / ({factor}{self.wafers} x {mesh.groups}) leaves {batch % unit}",
                where="data.batch",
                hint=" or ".join(near),
                value=batch,
            )

    def _check_training(self) -> None:
        train = self.train
        if (train.iterations is None) == (train.epochs is None):
            raise ConfigError("exactly one of iterations and epochs is needed", where="train")
        try:
            train.optimizer.build()
        except ConfigError as error:
            error.where = "train.optimizer"
            raise
        if train.optimizer.decays != "all" and not train.optimizer.build().weight_decay:
            raise ConfigError(
                "nothing decays without a weight decay",
                where="train.optimizer.decays",
                value=train.optimizer.decays,
                hint="weight_decay, or adamw",
            )
        self._check_schedule()
        if train.iterations:
            shortest = min(phase.end - phase.begin for phase in phases(self.sparsity, train.iterations))
            if train.schedule.warmup >= shortest:
                raise ConfigError(
                    f"a warm-up of {train.schedule.warmup} leaves nothing of a phase of {shortest} "
                    f"iteration{'s' * (shortest > 1)}",
                    where="train.schedule.warmup",
                    value=train.schedule.warmup,
                )
        if train.clip == 0:
            raise ConfigError("gradients without a length move nothing", where="train.clip", value=0)
        scale = train.loss_scale.initial
        if scale is not None:
            high = MOST[self.dtype]
            if scale > high or scale.hex().split("p")[0] != "0x1.0000000000000":
                raise ConfigError(
                    f"{scale} is not a power of two up to {high:g}", where="train.loss_scale.initial", value=scale
                )

    def _check_schedule(self) -> None:
        schedule, scale = self.train.schedule, self.train.loss_scale
        owners = {"floor": ("cosine", "linear", "one-cycle"), "every": ("step",), "factor": ("step",)}
        owners["rise"] = ("one-cycle",)
        if schedule.kind == "one-cycle" and schedule.warmup:
            raise ConfigError("one-cycle rises by itself", where="train.schedule.warmup", hint="rise")
        for key, kinds in owners.items():
            if getattr(schedule, key) != getattr(type(schedule)(), key) and schedule.kind not in kinds:
                where = f"train.schedule.{key}"
                raise ConfigError(
                    f"the schedule {schedule.kind} has no {key}", where=where, hint=f"kind {' or '.join(kinds)}"
                )
        if scale.dynamic is False and scale.growth_interval != type(scale)().growth_interval:
            raise ConfigError("a loss scale that stays does not grow", where="train.loss_scale.growth_interval")

    def _check_format(self) -> None:
        if not self.train.mixed_precision:
            raise UnsupportedError(
                "training is mixed precision only: 16-bit operands and f32 sums",
                where="train.mixed_precision",
                feature="pure precision",
            )
        scale = self.train.loss_scale
        if self.dtype == "bf16" and (scale.initial not in (None, 1.0) or scale.dynamic):
            raise ConfigError(
                "bf16 trains with a loss scale of 1 that does not change",
                where="train.loss_scale",
                hint="leave the table out",
            )

    def _check_tie(self) -> None:
        assert self.tie is None or self.network.tied  # it is made, or refused
        check_shared(self)

    def _check_sparsity(self) -> None:
        sparsity = self.sparsity
        if sparsity.density == 0:
            raise ConfigError("nothing is left at a density of 0", where="sparsity.density", value=0)
        exchange = ("every", "fraction", "until")
        known = {"pruning": ("rounds", "fraction", "densities"), "dense-finetune": ("switch",)}
        mine = (known | {"rigl": exchange, "set": exchange}).get(sparsity.schedule, ())
        for key in ("rounds", "fraction", "densities", "switch", "every", "until"):
            if getattr(sparsity, key) is not None and key not in mine:
                raise ConfigError(f"the schedule {sparsity.schedule} has no {key}", where=f"sparsity.{key}")
        kind = "nodes" if self.network.nodes else "layers"
        every: Sequence[Any] = self.network.nodes or self.network.layers
        for k, layer in enumerate(every):
            where = f"network.{kind}[{k}].density"
            if layer.density == 0:
                raise ConfigError("nothing is left at a density of 0", where=where, value=0)
            if layer.density is not None and sparsity.schedule in ("pruning", "sparse-ift"):
                raise ConfigError(f"{sparsity.schedule} gives all layers one density", where=where, value=layer.density)
        if sparsity.schedule == "pruning":
            rounds = sparsity.rounds is not None or sparsity.fraction is not None
            if rounds == (sparsity.densities is not None):
                raise ConfigError("pruning takes either rounds and fraction, or densities", where="sparsity")
            if rounds and (sparsity.rounds is None or not 0 < (sparsity.fraction or 0) < 1):
                raise ConfigError("rounds and a fraction between 0 and 1 are needed", where="sparsity")
            if sparsity.densities == ():
                raise ConfigError(
                    "there is no density to prune to",
                    where="sparsity.densities",
                    hint="one or more, each smaller than the one before",
                )
            steps = (sparsity.density, *(sparsity.densities or ()))
            if 0 in steps or any(b >= a for a, b in pairwise(steps)):
                raise ConfigError(f"densities must fall: {', '.join(map(str, steps))}", where="sparsity.densities")
        if sparsity.schedule == "dense-finetune" and not 0 < (0.5 if sparsity.switch is None else sparsity.switch) < 1:
            raise ConfigError("the switch lies between 0 and 1", where="sparsity.switch", value=sparsity.switch)
        self._check_widths()

    def _check_widths(self) -> None:
        if self.sparsity.schedule == "sparse-ift" and len(self.network.layers) < 2:
            what = (
                "only chains of layers are made wider"
                if self.network.nodes
                else ("there is no layer between inputs and logits that could be wider")
            )
            raise ConfigError(what, where="sparsity.schedule")


def parse_train(text: str, source: str | PathLike[str] = "", assignments: Sequence[str] = ()) -> TrainConfig:
    """Return the `TrainConfig` that a TOML text describes.

    Parameters
    ----------
    text : str
    source : path-like
        Where it came from, for messages; files that it names are looked for beside it.
    assignments : sequence of str
        Words ``key=value``, instead of what the text says: ``swarm.link.planes=4``.

    Raises
    ------
    ConfigError
        Malformed TOML, unknown keys, impossible values; the message names file and key.
    UnsupportedError
        What the machine cannot do.
    """
    table = assigned(toml.parse(text, source), assignments, [item.name for item in dataclasses.fields(TrainFile)])
    return _built(table, str(source), text=text, assignments=tuple(assignments))


def _built(table: dict[str, Any], source: str, **more: Any) -> TrainConfig:
    """Return the `TrainConfig` of tables; they are used up."""
    given = tuple(toml.flatten(table))
    notes = _network_of_file(table, source)
    _network_of_preset(table, source)
    _inputs_of_image(table, source)
    table["machine"] = of_parts(table, {"memx": [item.name for item in dataclasses.fields(MemxConfig)]}, source)
    file = from_table(TrainFile, table, source)
    values = {item.name: getattr(file, item.name) for item in dataclasses.fields(TrainFile)}
    values["train"], warnings = _format(file)
    warnings += notes
    plain = (file.network.inputs, *(layer.outputs for layer in file.network.layers))
    if file.sparsity.schedule == "sparse-ift" and file.sparsity.density and file.network.layers:
        layers = tuple(
            dataclasses.replace(layer, outputs=width)
            for layer, width in zip(file.network.layers, widened(plain, file.sparsity.density)[1:], strict=True)
        )
        values["network"] = dataclasses.replace(file.network, layers=layers)
    config = TrainConfig(**values, plain_widths=plain, warnings=warnings, source=source, given=given, **more).check()
    return dataclasses.replace(config, warnings=(*warnings, *_oddities(config)))


def _network_of_file(table: dict[str, Any], source: str) -> tuple[str, ...]:
    """Put the layers of ``network.file`` into the tables; return what has to be said of it."""
    network = table.get("network")
    if not isinstance(network, dict) or not network.get("file") or not isinstance(network["file"], str):
        return ()
    for key in ("inputs", "layers", "nodes", "image", "token_scale", "tied", *TOLD):
        if key in network:
            raise ConfigError("the file says it", where=place(source, f"network.{key}"), hint="either, not both")
    from harness.train.onnx_dropout import CHOICES
    from harness.train.onnx_file import read_onnx

    masked = network.get("masked", ())
    if masked and not _is_mask(masked):
        what = "a mask is the number of a token, and what it is there, 0 or 1"
        raise ConfigError(what, where=place(source, "network.masked"), value=masked, hint="[0, 0]")
    dropout = network.get("dropout", "")
    if dropout not in CHOICES:
        hint = " or ".join(f'"{one}"' for one in CHOICES)
        raise ConfigError("how to read dropout", where=place(source, "network.dropout"), value=dropout, hint=hint)
    found, data = read_onnx(Path(source).parent / network["file"], masked, dropout), table.get("data")
    if masked and not found.masked:
        where, hint = place(source, "network.masked"), "leave it out"
        raise ConfigError(f"{network['file']} has no mask as a second input", where=where, hint=hint)
    train = table.get("train")
    targets = isinstance(train, dict) and train.get("loss") == "mse"
    if found.by_token:
        _tokens_of_planes(table, network["file"], targets, source)
        data = table["data"]
    if found.planes and not targets and (not isinstance(data, dict) or data.get("labels") != "pixel"):
        raise UnsupportedError(
            f"{network['file']} ends in planes of {found.planes[0]} x {found.planes[1]} pixels, which are no logits of "
            "a sample",
            where=place(source, "data.labels"),
            feature="labels",
            hint='labels = "pixel", and a label for each, or train.loss = "mse"',
        )
    _check_decay(found, train, source)
    network["inputs"] = found.inputs
    if found.layers:
        network["layers"] = found.layers
    else:
        network["nodes"] = list(found.nodes)
    if found.image:
        network["image"] = list(found.image)
    if network.setdefault("epsilon", found.epsilon) != found.epsilon:
        raise ConfigError(
            f"the file says {found.epsilon:g}", where=place(source, "network.epsilon"), hint="leave it out"
        )
    if found.tied:
        network["tied"] = found.tied
    for key in TOLD:
        if getattr(found, key):
            network[key] = list(getattr(found, key))
    if found.token_scale != 1:
        network["token_scale"] = found.token_scale
    if found.sequence:
        _sequences_of_file(table, found, source)
    return found.warnings


def _check_decay(found: OnnxNetwork, train: Any, source: str) -> None:
    """Refuse weight decay of factors of which a file has what they are more than one."""
    more = [one.name for origins in found.origins.values() for one in origins if one.more]
    optimizer = train.get("optimizer") if isinstance(train, dict) else None
    given = optimizer if isinstance(optimizer, dict) else {}
    decays = given.get("weight_decay", 1 if given.get("name") == "adamw" else 0)
    if more and decays and given.get("decays") != "weights":
        what = f"{more[0]} and one are factors, and weight decay shrinks what PyTorch has"
        hint = 'decays = "weights"'
        raise ConfigError(what, where=place(source, "train.optimizer.decays"), hint=hint)


def _tokens_of_planes(table: dict[str, Any], file: str, targets: bool, source: str) -> None:
    """Let tokens that are pixels have labels, as the tokens of sequences have."""
    if targets:
        what = f"{file} gives features of tokens where tokens are pixels, and targets stand in another order"
        hint = "classes, or a result for a sample"
        raise UnsupportedError(what, where=place(source, "train.loss"), feature="targets", hint=hint)
    data = table.setdefault("data", {})
    if isinstance(data, dict) and data.get("labels", "token") == "token":
        data["labels"] = "pixel"


def _sequences_of_file(table: dict[str, Any], found: OnnxNetwork, source: str) -> None:
    """Put what a file says of sequences into the table of the data, or refuse another thing there."""
    data = table.setdefault("data", {})
    if not isinstance(data, dict):
        return
    if data.setdefault("sequence", found.sequence) != found.sequence:
        what = f"the file has sequences of {found.sequence} tokens"
        raise ConfigError(what, where=place(source, "data.sequence"), value=data["sequence"], hint="leave it out")
    if found.alone and data.setdefault("labels", found.alone) != found.alone:
        what = f"the {found.alone} token of a sequence alone has a result in the file"
        raise ConfigError(what, where=place(source, "data.labels"), value=data["labels"], hint=f'"{found.alone}"')
    if not found.alone and data.get("labels") in ("first", "last"):
        what = "every token has a result in the file"
        raise ConfigError(what, where=place(source, "data.labels"), value=data["labels"], hint='"token"')


def _is_mask(masked: Any) -> bool:
    """Return whether a value is the number of a token, and 0 or 1."""
    whole = isinstance(masked, list | tuple) and len(masked) == 2 and all(type(number) is int for number in masked)
    return bool(whole and masked[0] >= 0 and masked[1] in (0, 1))


def _network_of_preset(table: dict[str, Any], source: str) -> None:
    """Put the operations of ``network.preset``, and what a text says of its samples, into the tables."""
    network, data = table.get("network"), table.get("data")
    if not isinstance(network, dict) or not isinstance(network.get("preset"), str) or network["preset"] not in PRESETS:
        return
    classes, data = None, data if isinstance(data, dict) else {}
    if isinstance(data.get("source"), str) and is_text(data["source"]):
        known, sequence = len(characters(text_of(data["source"], Path(source).parent))), data.get("sequence", 1)
        classes = known
        if "inputs" not in network and isinstance(sequence, int):
            network["inputs"] = known + (sequence if network["preset"] in PLACED else 0)
    network["nodes"] = preset_nodes(network, classes, lambda key: place(source, key))


def _inputs_of_image(table: dict[str, Any], source: str) -> None:
    """Put the features of images into the tables, unless they stand there and are right."""
    network = table.get("network")
    image = network.get("image") if isinstance(network, dict) else None
    if not isinstance(network, dict) or image is None or image == [] or image == ():
        return
    if not isinstance(image, (list, tuple)) or len(image) != 3 or not all(type(k) is int and k > 0 for k in image):
        raise ConfigError(
            "an image has three sizes", where=place(source, "network.image"), value=image, hint="[1, 28, 28]"
        )
    inputs = math.prod(image)
    if network.setdefault("inputs", inputs) != inputs:
        raise ConfigError(
            f"images of {' x '.join(map(str, image))} have {inputs} features, not {network['inputs']}",
            where=place(source, "network.inputs"),
            hint="network.image says it",
        )


def _plain(value: Any) -> Any:
    """Return dataclasses, wherever they are, as dicts without keys that were not given."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if part is not None}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _divisors_beside(number: int, near: int) -> list[int]:
    """Return the next divisors of a number below and above another one, as far as there are some."""
    every = [one for one in range(1, number + 1) if number % one == 0]
    return [*[one for one in every if one < near][-1:], *[one for one in every if one > near][:1]]


def _oddities(config: TrainConfig) -> list[str]:
    """Return what is possible and seldom meant."""
    found = []
    if config.train.optimizer.lr == 0:
        found.append("train.optimizer.lr is 0: no weight will ever change")
    if config.mesh.columns > max(config.widths):
        given, of = f"mesh.width is {config.mesh.width}", ""
        if config.mesh.column_groups > 1:
            given, of = f"{given}, {config.mesh.columns} in each of {config.mesh.column_groups} groups", " of a group"
        found.append(
            f"{given}: no layer has more than {max(config.widths)} features, the other columns of PEs{of} have nothing "
            "to do"
        )
    for number, (count, outputs) in enumerate(
        zip(config.active, (one.outputs for one in config.matrices), strict=True), 1
    ):
        if count < outputs:
            found.append(
                f"layer {number} has {'a single weight' if count == 1 else f'{count} weights'} for {outputs} features: "
                f"{outputs - count} of them or more see no input"
            )
    if config.sparsity.schedule in ("rigl", "set") and config.densities == {1.0}:
        found.append(f"sparsity.schedule is {config.sparsity.schedule} and no layer has gaps: no weight is exchanged")
    return found + (_whole_images(config) if config.mesh.image_rows > 1 else [])


def _whole_images(config: TrainConfig) -> list[str]:
    """Return from which operations on images lie whole in several rows of PEs, which do the same, and why."""
    from fabric.networks.graph.strips import strips_of

    rows = config.mesh.image_rows
    return [
        f"{name} takes whole images, in each of the {rows} rows of PEs of one: {why}"
        for name, why in strips_of(config.graph).whole.items()
    ]


def _format(file: TrainFile) -> tuple[RunConfig, tuple[str, ...]]:
    """Return (the table [train] with the format that is really used, warnings)."""
    asked, allowed = file.train.dtype == "cb16", file.csconfig.use_cbfloat16
    if asked and not allowed:
        return (
            dataclasses.replace(file.train, dtype="f16"),
            ("train.dtype is cb16 and csconfig.use_cbfloat16 is not set: f16 is used",),
        )
    if allowed and not asked:
        return file.train, (f"csconfig.use_cbfloat16 is set and train.dtype is {file.train.dtype}, which is used",)
    return file.train, ()


def load_train(name: str | Path = "digits", assignments: Sequence[str] = ()) -> TrainConfig:
    """Return the `TrainConfig` of a file, or of one of the `EXAMPLES` by name, with some keys set as words say."""
    if str(name) in EXAMPLES:
        file = resources.files("harness.train.examples").joinpath(f"{name}.toml")
        return parse_train(file.read_text(encoding="utf-8"), f"{name}.toml", assignments)
    if not Path(name).suffix and not Path(name).exists():
        raise ConfigError(f"there is no file and no example {str(name)!r}", hint=suggestion(name, EXAMPLES))
    return parse_train(toml.read_text(name, f"an example by name: {', '.join(EXAMPLES)}"), name, assignments)
