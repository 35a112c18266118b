"""The layer-level model is set against the system at cycle level for transformer blocks and convolution stacks.

Eight of each.  Four of each (`SEEN`) were looked at while the model was written; the others were drawn at random when
it was finished (`drawn`, one per seed of `SEEDS`), and nothing was changed for them.  Every point is an iteration in
steady state: memory service, tree and wafers, waiting and round trips included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.tensors import INPUT
from fabric.networks.streamed.resident import Resident
from harness.figures import Result, figure
from harness.figures.layer_model import draw, errors_of
from swarm.cluster.check import compare
from swarm.cluster.cluster import Cluster
from swarm.cluster.shapes import Mesh
from wse_core.errors import ConfigError, ProgramError, UnsupportedError
from wse_core.params import machine as preset

if TYPE_CHECKING:
    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = [
    "SEEDS",
    "SEEN",
    "ConvolutionStack",
    "ConvolutionStage",
    "GraphCase",
    "TransformerBlocks",
    "drawn",
    "graph_model",
    "points",
]

SEEDS = tuple(range(20261128, 20261132))
"""A transformer block and a convolution stack are drawn for each."""
MOST = 1.2e7
"""Most products of an iteration of what is drawn: with them the host is busy for seconds."""


class GraphBuilder:
    """Nodes are appended one behind the other."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, group: str, op: str, *inputs: str, **sizes: int) -> str:
        """Append a node that takes what others give, by default what the last one gives; return its name."""
        taken = inputs or ((self.nodes[-1].name,) if self.nodes else (INPUT,))
        self.nodes.append(Node(f"{group}.{op}", op, taken, sizes))
        return self.nodes[-1].name

    def linear(self, group: str, inputs: int, outputs: int, given: str = "", bias: int = 1) -> str:
        """Append a product of features."""
        return self.add(group, "linear", *[given] * bool(given), inputs=inputs, outputs=outputs, bias=bias)


@dataclass(frozen=True)
class TransformerBlocks:
    """Transformer blocks stand between an embedding of tokens and their logits.

    Attributes
    ----------
    vocabulary, width, heads, kv_heads, inner, sequence, blocks : int
    norm, activation : str
    gated, rotary, causal : bool
    """

    vocabulary: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    sequence: int
    blocks: int = 1
    norm: str = "norm"
    activation: str = "gelu"
    gated: bool = False
    rotary: bool = False
    causal: bool = True

    @property
    def name(self) -> str:
        """The network is called so in words."""
        extras = ["gated"] * self.gated + ["rotary"] * self.rotary + ["causal"] * self.causal
        heads = f"{self.heads} heads" + f" on {self.kv_heads}" * (self.heads != self.kv_heads)
        sizes = f"{self.blocks} x {self.width}, {heads}, {self.sequence} tokens, {self.inner}"
        return ", ".join([f"transformer {sizes}", self.norm, self.activation, *extras])

    @property
    def network(self) -> Network:
        """The graph has these nodes."""
        b, d = GraphBuilder(), self.width
        x = b.linear("embed", self.vocabulary, d, bias=0)
        for k in range(1, self.blocks + 1):
            x = self._block(b, f"block{k}", x)
        b.add("final", self.norm, x)
        b.linear("logits", d, self.vocabulary)
        b.add("loss", "cross_entropy")
        return Network(tuple(b.nodes), self.vocabulary)

    def _block(self, b: GraphBuilder, name: str, x: str) -> str:
        """Append a block; return what it gives."""
        d, keys = self.width, self.width // self.heads * self.kv_heads
        unit = b.add(f"{name}.before", self.norm, x)
        parts = []
        for part, outputs, heads in (("q", d, self.heads), ("k", keys, self.kv_heads), ("v", keys, 0)):
            parts.append(b.linear(f"{name}.{part}", d, outputs, unit))
            if heads and self.rotary:
                parts[-1] = b.add(f"{name}.{part}", "rotary", heads=heads, sequence=self.sequence)
        shared = {"kv_heads": self.kv_heads} if self.kv_heads != self.heads else {}
        sizes = {"heads": self.heads, "sequence": self.sequence, "causal": int(self.causal), **shared}
        b.add(f"{name}.attention", "attention", *parts, **sizes)
        x = b.add(f"{name}.first", "add", b.linear(f"{name}.out", d, d), x)
        unit = b.add(f"{name}.behind", self.norm, x)
        b.linear(f"{name}.up", d, self.inner, unit)
        inner = b.add(f"{name}.up", self.activation)
        if self.gated:
            b.add(f"{name}.gate", "mul", inner, b.linear(f"{name}.side", d, self.inner, unit))
        return b.add(f"{name}.second", "add", b.linear(f"{name}.down", self.inner, d), x)


@dataclass(frozen=True)
class ConvolutionStage:
    """A stage has a convolution and what follows it.

    Attributes
    ----------
    outputs, kernel, stride, padding, groups : int
    norm, activation, pool : str
        Operations, or nothing.
    """

    outputs: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    groups: int = 1
    norm: str = ""
    activation: str = "relu"
    pool: str = ""

    @property
    def name(self) -> str:
        """The stage is called so in words."""
        extras = [f"/{self.stride}"] * (self.stride > 1) + [f" in {self.groups}"] * (self.groups > 1)
        return "".join([f"{self.outputs} of {self.kernel}", *extras, f" {self.norm}", f" {self.pool}"]).strip()


@dataclass(frozen=True)
class ConvolutionStack:
    """Convolutions stand one behind the other, and a product classifies; or every pixel has a label.

    Attributes
    ----------
    image : (int, int, int)
        Channels, rows, columns.
    stages : tuple of ConvolutionStage
    classes : int
    pixels : bool
        The image is made as large again as it was by a transposed convolution, beside what it was then.
    """

    image: tuple[int, int, int]
    stages: tuple[ConvolutionStage, ...]
    classes: int = 10
    pixels: bool = False

    @property
    def name(self) -> str:
        """The network is called so in words."""
        found = ["convolutions " + " x ".join(map(str, self.image)), *(stage.name for stage in self.stages)]
        return ", ".join([*found, "a label per pixel" if self.pixels else f"{self.classes} classes"])

    @property
    def network(self) -> Network:
        """The graph has these nodes."""
        b, (channels, height, width) = GraphBuilder(), self.image
        for k, stage in enumerate(self.stages, 1):
            sizes = {"channels": channels, "height": height, "width": width}
            kernel = {"kernel_height": stage.kernel, "kernel_width": stage.kernel}
            kernel |= {"stride": stage.stride, "padding": stage.padding, "groups": stage.groups}
            b.add(f"stage{k}", "convolution", **sizes, **kernel, bias=int(not stage.norm), outputs=stage.outputs)
            height, width = ((side + 2 * stage.padding - stage.kernel) // stage.stride + 1 for side in (height, width))
            channels = stage.outputs
            sizes = {"channels": channels, "height": height, "width": width}
            if stage.norm:
                b.add(f"stage{k}", stage.norm, **sizes, **({"groups": 2} if stage.norm == "groupnorm" else {}))
            if stage.activation:
                b.add(f"stage{k}", stage.activation)
            if k == 1:
                first, of_first = b.nodes[-1].name, sizes
            if stage.pool:
                b.add(f"pool{k}", stage.pool, **sizes, kernel_height=2, kernel_width=2, stride=2)
                height, width = height // 2, width // 2
        if not self.pixels:
            b.linear("logits", channels * height * width, self.classes)
            b.add("loss", "cross_entropy")
            return Network(tuple(b.nodes), int(np.prod(self.image)))
        by = of_first["height"] // height
        sizes = {**of_first, "kernel_height": by, "kernel_width": by, "stride": by, "groups": 1, "bias": 0}
        up = b.add("up", "transposed", **sizes, outputs=channels)
        up = b.add("up", "shift", up, **of_first)
        b.add("both", "concat", up, first)
        image = {"height": of_first["height"], "width": of_first["width"]}
        window = {"kernel_height": 1, "kernel_width": 1, "stride": 1, "groups": 1, "bias": 1}
        b.add("logits", "convolution", **image, channels=2 * of_first["channels"], **window, outputs=self.classes)
        b.add("loss", "cross_entropy", **image)
        return Network(tuple(b.nodes), int(np.prod(self.image)))


@dataclass(frozen=True)
class GraphCase:
    """A network of any form is on a cluster.

    Attributes
    ----------
    of : TransformerBlocks or ConvolutionStack
    width, height : int
        PEs of a wafer.
    tokens : int
        Samples of a PE.
    systems : int
    """

    of: TransformerBlocks | ConvolutionStack
    width: int
    height: int
    tokens: int
    systems: int = 1

    @property
    def fits(self) -> bool:
        """Whether wafers hold it."""
        try:
            resident = Resident(self.of.network, preset(), self.width, self.height, self.tokens * self.height)
            resident.program(min(1, self.width - 1), "only" if self.height == 1 else "top")
        except (ConfigError, UnsupportedError, ProgramError):
            return False
        return True


SEEN = (
    GraphCase(TransformerBlocks(32, 32, 4, 4, 64, 8, rotary=True), 4, 2, 16, systems=2),
    GraphCase(TransformerBlocks(24, 24, 4, 4, 48, 16, 2, causal=False), 4, 4, 16),
    GraphCase(
        TransformerBlocks(40, 32, 8, 4, 40, 8, norm="rms", activation="silu", gated=True, rotary=True),
        4,
        2,
        8,
        systems=4,
    ),
    GraphCase(TransformerBlocks(20, 12, 2, 1, 30, 4, norm="rms"), 1, 4, 12),
    GraphCase(
        ConvolutionStack(
            (1, 8, 8),
            (
                ConvolutionStage(8, norm="groupnorm", pool="maxpool"),
                ConvolutionStage(16, norm="groupnorm", pool="avgpool"),
            ),
        ),
        4,
        4,
        4,
        systems=2,
    ),
    GraphCase(
        ConvolutionStack(
            (3, 6, 6),
            (
                ConvolutionStage(12, norm="batchnorm"),
                ConvolutionStage(12, 3, 2, groups=12),
                ConvolutionStage(8, 1, 1, 0),
            ),
        ),
        3,
        4,
        4,
    ),
    GraphCase(
        ConvolutionStack(
            (2, 8, 8), (ConvolutionStage(6, norm="batchnorm", pool="maxpool"), ConvolutionStage(10)), 4, pixels=True
        ),
        2,
        2,
        2,
    ),
    GraphCase(
        ConvolutionStack((1, 7, 9), (ConvolutionStage(10, 5, 2, 2), ConvolutionStage(6, 3, 1, 0, activation=""))),
        6,
        1,
        8,
        systems=8,
    ),
)
"""These networks were looked at while the model was written: four transformers, four stacks of convolutions."""


def drawn(seeds: Iterable[int] = SEEDS) -> tuple[GraphCase, ...]:
    """Return a random transformer block and a random stack of convolutions for each seed, the first that fit."""
    found = []
    for seed in seeds:
        for draw_one in (_blocks, _stack):
            rng = np.random.default_rng((seed, draw_one is _stack))
            case = draw_one(rng)
            while not case.fits or _products(case) > MOST:
                case = draw_one(rng)
            found.append(case)
    return tuple(found)


def _products(case: GraphCase) -> float:
    """Return the multiplications of an iteration, of all wafers, about."""
    network, found = case.of.network, 0.0
    for node in network.nodes:
        parameter = network.parameter(node) if OPERATIONS[node.op].matrix else None
        pixels = network.tensors[node.name].rows / OPERATIONS[node.op].results(node) if parameter else 0
        found += 3 * parameter.rows * parameter.columns * pixels if parameter else 0
    return found * case.tokens * case.height * case.systems


def _blocks(rng: np.random.Generator) -> GraphCase:
    """Return a random case of transformer blocks."""
    size, shared = 2 * int(rng.integers(1, 9)), int(rng.choice([1, 1, 2]))
    kv_heads, sequence = int(rng.integers(1, 7)), int(rng.choice([4, 6, 8, 12, 16, 24]))
    width = size * kv_heads * shared
    of = TransformerBlocks(
        int(rng.integers(8, 80)),
        width,
        kv_heads * shared,
        kv_heads,
        int(rng.integers(width, 4 * width + 1)),
        sequence,
        int(rng.choice([1, 1, 2])),
        str(rng.choice(["norm", "rms"])),
        str(rng.choice(["relu", "gelu", "silu", "gelu_erf", "tanh"])),
        bool(rng.random() < 0.4),
        bool(rng.random() < 0.5),
        bool(rng.random() < 0.6),
    )
    systems = int(rng.choice([1, 1, 2, 4]))
    return GraphCase(of, int(rng.integers(1, 9)), int(rng.integers(1, 9)), sequence * int(rng.integers(1, 4)), systems)


def _stack(rng: np.random.Generator) -> GraphCase:
    """Return a random case of convolutions."""
    image = int(rng.integers(1, 4)), int(rng.integers(6, 13)), int(rng.integers(6, 13))
    stages, channels = [], image[0]
    for _ in range(int(rng.integers(1, 4))):
        kernel, alone = int(rng.choice([1, 3, 3, 5])), rng.random() < 0.2
        channels = channels if alone else 2 * int(rng.integers(1, 11))
        stages.append(
            ConvolutionStage(
                channels,
                kernel,
                int(rng.choice([1, 1, 2])),
                int(rng.integers(0, kernel // 2 + 1)),
                channels if alone else 1,
                str(rng.choice(["", "groupnorm", "batchnorm"])) if channels % 2 == 0 else "",
                str(rng.choice(["", "relu", "gelu", "silu"])),
                str(rng.choice(["", "", "maxpool", "avgpool"])),
            )
        )
    of, systems = ConvolutionStack(image, tuple(stages), int(rng.integers(2, 12))), int(rng.choice([1, 1, 2, 4]))
    return GraphCase(of, int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 9)), systems)


def points(
    machine: Machine, cases: Iterable[tuple[str, GraphCase]], progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return a row per (set, case)."""
    rows, todo = [], list(cases)
    for done, (kind, case) in enumerate(todo):
        if progress is not None:
            progress.update(done, len(todo), network=case.of.name)
        network = case.of.network
        masks = _every(network)
        both = compare(network, masks, Cluster(case.systems, Mesh(machine, case.width, case.height)), case.tokens)
        rows.append(
            {
                "set": kind,
                "network": case.of.name,
                "mesh": f"{case.width} x {case.height}",
                "samples": case.tokens,
                "systems": case.systems,
                "cycles": both.cycles,
                "model": round(both.model),
                "error": both.error,
            }
        )
    return rows


def _every(network: Network) -> list[np.ndarray]:
    """Return masks without gaps of all matrices."""
    found = []
    for node in network.nodes:
        parameter = network.parameter(node) if OPERATIONS[node.op].matrix else None
        if parameter is not None:
            found.append(np.ones((parameter.rows, parameter.columns - node.size("bias")), bool))
    return found


@figure(
    "graph-model",
    "cycles of an iteration of transformers and convolutions: the layer-level model against the cycle level",
    "this model, both of its levels of time",
)
def graph_model(
    machine: Machine,
    max_cycle_level: int | None = None,
    progress: Progress | None = None,
    seen: Sequence[GraphCase] = SEEN,
    unseen: Sequence[GraphCase] | None = None,
) -> Result:
    """Return the `Result`; see the head of this module."""
    chosen = [("seen", case) for case in seen] + [("unseen", case) for case in (drawn() if unseen is None else unseen)]
    side = 8 if max_cycle_level is None else max_cycle_level
    if progress is not None:
        progress.phase("iterations at both levels")
    rows = points(machine, [(kind, one) for kind, one in chosen if max(one.width, one.height) <= side], progress)
    if not rows:
        raise ConfigError(f"no network has a mesh of at most {side} PEs a side", where="--max-cycle-level", hint="8")
    return Result(rows, errors_of(rows), lambda picture: draw(picture, rows))
