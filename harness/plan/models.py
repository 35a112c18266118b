"""Models as the planner sees them have sizes, never weights.

Presets: the five models of the weight-streaming paper (Table 2; tokens and batches of Tables 3 and 5), the family X_[x]
and its neighbours of the paper on layered accumulation (equation 1, Table B.1), and three open models whose sizes are
those of their published configuration files.  A user's model comes from a TOML file with the keys of
`TransformerSizes`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.config import toml
from harness.config.options import from_table, option
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = [
    "CRITICAL_CONSTANT",
    "PRESETS",
    "Sizes",
    "TensorSize",
    "TransformerSizes",
    "critical_sequences",
    "find_model",
    "load_model",
    "x_model",
]

CRITICAL_CONSTANT = 573.0
"""The critical batch in tokens is this times the cube root of the parameters (equation 2; fixed by GPT-3 at 3.2 M
tokens).
"""


MOST_X = 10_000
"""X_[x] has at most this x, and any model at most so many layers."""


@dataclass(frozen=True)
class TensorSize:
    """A `TensorSize` is one activation that a wafer must keep for the backward pass, for models that are no
    transformers.
    """

    name: str = option(doc="name of the tensor")
    elements: int = option(doc="elements per sample", low=1)
    parameters: int = option(0, doc="parameters of the layer that makes it", low=0)


class Sizes(Protocol):
    """What the formulas of `harness.plan.strategies` ask of a model; `TransformerSizes` says what each is.

    Sizes are whole numbers in every model but those of `harness.plan.sweep`.
    """

    @property
    def name(self) -> str: ...
    @property
    def layers(self) -> float: ...
    @property
    def width(self) -> float: ...
    @property
    def sequence(self) -> float: ...
    @property
    def heads(self) -> float: ...
    @property
    def layer_parameters(self) -> float: ...
    @property
    def core(self) -> float: ...
    @property
    def counted(self) -> float: ...
    @property
    def factor(self) -> float: ...
    @property
    def critical_batch(self) -> float: ...


@dataclass(frozen=True)
class TransformerSizes:
    """A `TransformerSizes` has the sizes of a transformer.

    Every key of a model file is a field of this class.

    Attributes
    ----------
    layers, width, sequence, heads : int
        d_l, d_m, d_s and d_a; L, H and S in the weight-streaming paper.
    intermediate : int
        Width inside the feed-forward part; 0 means four times `width`.
    kv_heads : int
        Heads of keys and values; 0 means `heads`.
    gated : bool
        Whether the feed-forward part has a third matrix.
    small : int
        Parameters per layer and unit of width that are no matrices (biases, norms); X_[x] counts 13.
    vocabulary : int
        Rows of the embedding; with `untied` it counts twice.
    total : float
        Published number of parameters with everything; 0 means computed.
    tokens, batch_tokens, iterations : float
        Of a published training run; 0 means unknown.
    """

    name: str = option(doc="name of the model")
    layers: int = option(doc="number of layers", low=1, high=MOST_X)
    width: int = option(doc="features of the hidden state", low=1, high=10**9)
    sequence: int = option(doc="tokens in a sequence", low=1, high=10**9)
    heads: int = option(1, doc="attention heads", low=1)
    intermediate: int = option(0, doc="width inside the feed-forward part; 0: four times the width", low=0)
    kv_heads: int = option(0, doc="heads of keys and values; 0: as many as heads", low=0)
    gated: bool = option(False, doc="feed-forward part with three matrices")
    small: int = option(0, doc="parameters per layer and unit of width outside the matrices", low=0)
    vocabulary: int = option(0, doc="rows of the embedding", low=0)
    untied: bool = option(False, doc="the output matrix is not the embedding")
    total: float = option(0.0, doc="published number of parameters", low=0)
    tokens: float = option(0.0, doc="tokens of the training run", low=0)
    batch_tokens: float = option(0.0, doc="tokens in a batch", low=0)
    iterations: float = option(0.0, doc="batches of the training run", low=0)
    critical: float = option(0.0, doc="critical batch in sequences; 0: by the scaling law", low=0)
    tensors: list[TensorSize] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.heads > 1 and self.width % self.heads:
            raise ConfigError(f"width {self.width} is no multiple of {self.heads} heads", where=self.name)
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(f"{self.heads} heads do not share {self.kv_heads} key heads", where=self.name)

    @property
    def inner(self) -> int:
        """The feed-forward part has this width inside."""
        return self.intermediate or 4 * self.width

    @property
    def layer_parameters(self) -> int:
        """One layer has p_l weights in its matrices; for standard layers (4 + 2 n_I) d_m^2."""
        keys = self.width // self.heads * self.kv_heads if self.kv_heads else self.width
        return 2 * self.width * (self.width + keys) + (3 if self.gated else 2) * self.width * self.inner

    @property
    def core(self) -> int:
        """All layers have p weights in their matrices; memory, traffic and time are computed from it."""
        return self.layer_parameters * self.layers

    @property
    def counted(self) -> int:
        """The layers have so many parameters, biases and norms included; Table B.1 prints this for X_[x]."""
        return self.core + self.small * self.width * self.layers

    @property
    def parameters(self) -> float:
        """The model has P parameters in all: as published, else layers and embedding."""
        if self.tensors:
            return sum(tensor.parameters for tensor in self.tensors)
        return self.total or self.counted + self.vocabulary * self.width * (2 if self.untied else 1)

    @property
    def factor(self) -> float:
        """A layer has 4 + 2 n_I weights for each square of the width (equation 12 and others)."""
        return self.layer_parameters / self.width**2

    @property
    def critical_batch(self) -> float:
        """The critical batch is b_c, in sequences (equation 2)."""
        return self.critical or critical_sequences(self.core, self.sequence)


def critical_sequences(core: float, sequence: float) -> float:
    """Return the critical batch in sequences of a model with `core` weights (equation 2)."""
    return CRITICAL_CONSTANT * core ** (1 / 3) / sequence


def x_model(x: int) -> TransformerSizes:
    """Return X_[x] (equation 1): d_a = x/2, d_h = 2x, d_l = x, d_s = 16x, d_m = x^2, n_I = 4.

    Raises
    ------
    ConfigError
        Unless `x` is even and at least 2.
    """
    if x > MOST_X:
        raise ConfigError(f"X_[x] beyond X{MOST_X}, which has 1.2e21 parameters, is not planned", where=f"X{x}"[:20])
    if x < 2 or x % 2:
        raise ConfigError(f"X_[{x}] does not exist: x must be even and at least 2, because x/2 is a number of heads")
    return TransformerSizes(f"X{x}", layers=x, width=x * x, heads=x // 2, sequence=16 * x, small=13)


PRESETS = {
    "gpt2-xl": TransformerSizes(
        "gpt2-xl", 48, 1600, 1024, 25, total=1.5e9, tokens=3e11, batch_tokens=5.24e5, iterations=1e5
    ),
    "megatron-8.3b": TransformerSizes(
        "megatron-8.3b", 72, 3072, 1024, 32, total=8.3e9, tokens=1.57e11, batch_tokens=1.1e6, iterations=1.43e5
    ),
    "turing-nlg": TransformerSizes(
        "turing-nlg", 78, 4256, 1024, 28, total=1.72e10, tokens=1.57e11, batch_tokens=5.24e5, iterations=3e5
    ),
    "gpt-3": TransformerSizes(
        "gpt-3", 96, 12288, 2048, 96, total=1.75e11, tokens=3e11, batch_tokens=3.2e6, iterations=9.37e4
    ),
    "megatron-turing": TransformerSizes(
        "megatron-turing", 105, 20480, 2048, 128, total=5.3e11, tokens=2.7e11, batch_tokens=3.9e6, iterations=6.92e4
    ),
    "bert": TransformerSizes("bert", 24, 1024, 512, 16),
    "megatron-lm": TransformerSizes("megatron-lm", 72, 3072, 1024, 32),
    "t-nlg": TransformerSizes("t-nlg", 78, 4256, 1024, 28),
    "llama3-8b": TransformerSizes(
        "llama3-8b",
        32,
        4096,
        8192,
        32,
        intermediate=14336,
        kv_heads=8,
        gated=True,
        small=2,
        vocabulary=128256,
        untied=True,
    ),
    "llama2-13b": TransformerSizes(
        "llama2-13b", 40, 5120, 4096, 40, intermediate=13824, gated=True, small=2, vocabulary=32000, untied=True
    ),
    "qwen2-72b": TransformerSizes(
        "qwen2-72b",
        80,
        8192,
        32768,
        64,
        intermediate=29568,
        kv_heads=8,
        gated=True,
        small=2,
        vocabulary=152064,
        untied=True,
    ),
}
"""Models by name; X2, X32, X160 and so on are made by `find_model`."""


def load_model(path: str | Path) -> TransformerSizes:
    """Return the model that a TOML file describes; unknown keys are errors."""
    table = toml.parse(toml.read_text(path, f"a model by name: {', '.join(PRESETS)}, X<even number>"), path)
    if "network" in table:
        what = "describes a training, with a network of its own, not the sizes of a model"
        raise ConfigError(what, where=path, hint=f"wse train {path} --project 1")
    model = from_table(TransformerSizes, {"name": Path(path).stem} | table, path)
    if not math.isfinite(model.parameters):
        raise ConfigError("number of parameters is not finite", where=path)
    return model


def find_model(name: str) -> TransformerSizes:
    """Return the model of a name: a preset, ``X160``, or a TOML file.

    Raises
    ------
    ConfigError
        Nothing of that name.
    """
    if name.endswith(".toml"):
        return load_model(name)
    match = re.fullmatch(r"[xX]_?\[?([0-9]+)\]?", name)
    if match:
        return x_model(int(match[1][:20]))
    model = PRESETS.get(name.lower())
    if model is None:
        raise ConfigError(f"no model {name!r}", hint=suggestion(name, [*PRESETS, "X<even number>", "FILE.toml"]))
    return model
