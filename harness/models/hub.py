"""A language model as a directory of the hub's layout: ``config.json``, ``*.safetensors``, ``tokenizer.json``.

Tensors stay in the file until they are asked for.  Names and shapes are checked at once: what is missing, has another
shape, or would change results and is not modelled (a bias that the decoder does not have) is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder
from harness.kit.staging import staged_directory
from harness.models.configuration import Configuration, read_configuration, write_configuration
from harness.models.presets import PRESETS, find_preset
from harness.models.rounding import Loss, rounded_weights
from harness.models.tensors import Tensor, read_tensors, write_tensors
from harness.models.tokens import Tokenizer, load_tokenizer
from wse_core.errors import ConfigError
from wse_core.formats import Arithmetic
from wse_core.schema import suggestion

__all__ = ["EXAMPLES", "LanguageModel", "find_decoder", "find_model", "load_model", "save_model", "tensor_shapes"]

Array = np.ndarray[Any, np.dtype[Any]]

EXAMPLES = Path(__file__).parent / "examples"
"""Directory of the models that are shipped."""

CONFIG, INDEX, WEIGHTS, TOKENS = "config.json", "model.safetensors.index.json", "model.safetensors", "tokenizer.json"

IGNORED = "rotary_emb.inv_freq"
"""Ends the names of tensors that old files carry and nobody needs."""


@dataclass(frozen=True)
class LanguageModel:
    """A model with its weights.

    Attributes
    ----------
    name : str
        Of its directory.
    configuration : Configuration
    tensors : mapping
        By the hub's names, as they lie in the files.
    directory : Path
    """

    name: str
    configuration: Configuration
    tensors: Mapping[str, Tensor]
    directory: Path

    @property
    def decoder(self) -> Decoder:
        """Its sizes."""
        return self.configuration.decoder

    def weights(self) -> dict[str, Array]:
        """Return all tensors as float32, exactly as they are in the file."""
        return {name: tensor.f32() for name, tensor in self.tensors.items()}

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, Array], list[Loss]]:
        """Return all tensors as float32 values of a 16-bit format, and what rounding lost."""
        return rounded_weights(self.tensors, arithmetic)

    def tokenizer(self) -> Tokenizer:
        """Return its tokenizer; ConfigError if there is none, or its library is missing."""
        return load_tokenizer(self.directory / TOKENS)


def tensor_shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor that a decoder needs."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (decoder.vocabulary, decoder.hidden)}
    for number in range(decoder.layers):
        prefix = f"model.layers.{number}."
        shapes[f"{prefix}input_layernorm.weight"] = (decoder.hidden,)
        for name, shape in decoder.shapes().items():
            part = "mlp" if name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            shapes[f"{prefix}{part}.{name}.weight"] = shape
            if decoder.qkv_bias and name in ("q_proj", "k_proj", "v_proj"):
                shapes[f"{prefix}{part}.{name}.bias"] = shape[:1]
        shapes[f"{prefix}post_attention_layernorm.weight"] = (decoder.hidden,)
    shapes["model.norm.weight"] = (decoder.hidden,)
    if not decoder.tied:
        shapes["lm_head.weight"] = (decoder.vocabulary, decoder.hidden)
    return shapes


def _shards(directory: Path) -> list[Path]:
    """Return the weight files of a directory."""
    index = directory / INDEX
    if not index.exists():
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise ConfigError("no *.safetensors in it", where=directory, path=str(directory))
        if len(files) > 1 and (directory / WEIGHTS) not in files:
            raise ConfigError(f"{len(files)} weight files and no {INDEX}", where=directory, path=str(directory))
        return [directory / WEIGHTS] if (directory / WEIGHTS) in files else files
    try:
        table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted({str(name) for name in table.values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError("no table weight_map of tensors and files", where=index, path=str(index)) from None
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ConfigError(f"names a file outside of the directory: {name!r}", where=index, path=str(index))
    return [directory / name for name in names]


def _checked(found: Mapping[str, Tensor], decoder: Decoder, where: Path) -> dict[str, Tensor]:
    """Return the tensors that a decoder needs, or refuse what is missing, misshapen or more."""
    if decoder.layers > len(found):  # before a list of the names of so many layers is made
        raise ConfigError(
            f"{CONFIG} has {decoder.layers:,} layers, the files have {len(found)} tensors", where=where, path=str(where)
        )
    wanted = tensor_shapes(decoder)
    missing = [name for name in wanted if name not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(f"tensor {missing[0]}{more} is missing", where=where, path=str(where))
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ConfigError(
                f"tensor {name} is {list(found[name].shape)}, {CONFIG} wants {list(shape)}",
                where=where,
                path=str(where),
            )
    tied = {"lm_head.weight"} if decoder.tied else set()
    others = [name for name in found if name not in wanted and not name.endswith(IGNORED) and name not in tied]
    if others:
        raise ConfigError(
            f"tensor {others[0]} belongs to no part of the decoder",
            where=where,
            cause="a model of another architecture under a known name",
            path=str(where),
        )
    return {name: found[name] for name in wanted}


def load_model(directory: str | Path) -> LanguageModel:
    """Return the model of a directory.

    Raises
    ------
    ConfigError
        Something is missing, damaged or does not fit together; the message names file and tensor.
    UnsupportedError
        A model of another kind.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ConfigError("no directory of a model", where=directory, path=str(directory))
    configuration = read_configuration(directory / CONFIG)
    found: dict[str, Tensor] = {}
    for path in _shards(directory):
        for name, tensor in read_tensors(path).items():
            if name in found:
                raise ConfigError(f"tensor {name} is in two files", where=path, path=str(path))
            found[name] = tensor
    tensors = _checked(found, configuration.decoder, directory)
    return LanguageModel(directory.resolve().name, configuration, tensors, directory)


def find_model(name: str) -> LanguageModel:
    """Return a shipped model by its name, or the model of a directory.

    Raises
    ------
    ConfigError
        There is neither; a preset has no weights here and is told what can be asked about it.
    """
    shipped = sorted(path.name for path in EXAMPLES.iterdir() if (path / CONFIG).exists()) if EXAMPLES.exists() else []
    if name in shipped:
        return load_model(EXAMPLES / name)
    if Path(name).is_dir():
        return load_model(name)
    for preset in PRESETS:
        if preset.lower() == name.lower():
            raise ConfigError(
                f"{preset} is known by its sizes; its weights are not here",
                hint=f"wse plan {preset} --inference --mesh 360x360, or the directory of its files",
            )
    raise ConfigError(
        f"no model {name!r}: neither shipped nor a directory", hint=suggestion(name, [*shipped, *PRESETS])
    )


def find_decoder(name: str) -> tuple[str, Decoder]:
    """Return name and sizes of a preset, of a shipped model, or of a directory with ``config.json``.

    Raises
    ------
    ConfigError
        There is none of these.
    """
    shipped = EXAMPLES / name
    for directory in (shipped, Path(name)):
        if (directory / CONFIG).exists():
            return directory.resolve().name, read_configuration(directory / CONFIG).decoder
    return find_preset(name)


def save_model(
    directory: str | Path,
    configuration: Configuration,
    tensors: Mapping[str, Tensor | Array],
    tokenizer: str | None = None,
) -> None:
    """Write a model as a directory, all or nothing; a `tokenizer` is the text of its file.

    Raises
    ------
    ConfigError
        A tensor is missing or misshapen, or the directory is there already or cannot be written.
    """
    wanted = tensor_shapes(configuration.decoder)
    for name, shape in wanted.items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            have = list(tensors[name].shape) if name in tensors else "missing"
            raise ConfigError(f"tensor {name} is {have}, the decoder wants {list(shape)}")
    with staged_directory(directory) as staging:
        (staging / CONFIG).write_text(write_configuration(configuration), encoding="utf-8")
        write_tensors(staging / WEIGHTS, {name: tensors[name] for name in wanted})
        if tokenizer is not None:
            (staging / TOKENS).write_text(tokenizer, encoding="utf-8")
