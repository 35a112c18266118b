"""A language model is a directory of the hub's layout, ``config.json``, ``*.safetensors``, ``tokenizer.json``, or one
GGUF file (`harness.models.gguf_model`).

Tensors stay in the file until they are asked for.  Names and shapes are checked at once: what is missing, has another
shape, or would change results and is not modelled (a bias that the decoder does not have) is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import EMBEDDING, FFN, NORMS, POSITIONS, ROUTER, Decoder
from harness.kit.jsonfile import read_json
from harness.kit.staging import staged_directory
from harness.models.chat import ChatTemplate, find_template
from harness.models.classic import CLASSIC, pair_order, renamed
from harness.models.configuration import CONFIG, Configuration, read_configuration, token_ids, write_configuration
from harness.models.gguf_file import SUFFIX
from harness.models.gguf_model import GgufText, read_gguf_model
from harness.models.keys import refuse_first, warnings_of
from harness.models.lazy import RoundedTensors
from harness.models.lowering import NOT_TIED, lowered, same
from harness.models.presets import PRESETS, find_preset
from harness.models.rounding import Loss, held, rounded, rounded_weights
from harness.models.tensors import Tensor, read_tensors, write_tensors
from harness.models.text_files import GENERATION, PIECES, TOKENIZER, judged_generation, optional_table
from harness.models.tokens import Tokenizer, load_tokenizer
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named
from wse_core.formats import Arithmetic
from wse_core.schema import suggestion

__all__ = [
    "ADAPTER",
    "CARD",
    "EXAMPLES",
    "INDEX",
    "WEIGHTS",
    "LanguageModel",
    "find_decoder",
    "find_directory",
    "find_model",
    "load_model",
    "save_model",
    "shipped_models",
    "tensor_shapes",
    "weight_files",
]

Array = np.ndarray[Any, np.dtype[Any]]

EXAMPLES = Path(__file__).parent / "examples"
"""The models that are shipped lie in this directory."""

INDEX, WEIGHTS, ADAPTER = "model.safetensors.index.json", "model.safetensors", "adapter_config.json"
CARD = "README.md"
"""What a model is, for people, stands in this file."""

IGNORED = "rotary_emb.inv_freq"
"""Ends the names of tensors that old files carry and nobody needs."""

FOREIGN = {
    **dict.fromkeys(("q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"), f"{CONFIG} says of no such bias "
                    "(attention_bias)"),
    **dict.fromkeys(("q_norm.weight", "k_norm.weight"), "its architecture has no norms of queries and keys; a Qwen3, "
                    "an Olmo2 and an Olmo3 have"),
    **dict.fromkeys(("gate_proj.bias", "up_proj.bias", "down_proj.bias"), f"{CONFIG} says of no such bias (mlp_bias)"),
}  # fmt: skip
"""Other models of these families have tensors that are explained here, by the ends of their names."""


@dataclass(frozen=True)
class LanguageModel:
    """A `LanguageModel` is a model with its weights.

    Attributes
    ----------
    name : str
        Of its directory.
    configuration : Configuration
    tensors : mapping
        By the names of the decoder's parts, as they lie in the files but for `harness.models.lowering`.
    directory : Path
        Or its one file.
    text : GgufText or None
        Tokenizer and chat template of that file; None: they are files of the directory.
    """

    name: str
    configuration: Configuration
    tensors: Mapping[str, Tensor]
    directory: Path
    text: GgufText | None = None

    @property
    def decoder(self) -> Decoder:
        """The decoder has its sizes."""
        return self.configuration.decoder

    def weights(self) -> dict[str, Array]:
        """Return all tensors as float32, exactly as they are in the file."""
        return {name: tensor.f32() for name, tensor in self.tensors.items()}

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, Array], list[Loss]]:
        """Return all tensors as float32 values of a 16-bit format, and what rounding lost."""
        return rounded_weights(self.tensors, arithmetic)

    def mapped(self, arithmetic: Arithmetic) -> RoundedTensors:
        """Return the same tensors, each of which is read and rounded when it is asked for."""

        def rows(name: str, first: int, last: int) -> tuple[Array, Loss]:
            tensor, own = self.tensors[name], held(name, arithmetic)
            try:
                return rounded(name, tensor.rows(first, last).f32(), own)
            except ConfigError:
                rounded(name, tensor.f32(), own)  # says where in the whole tensor
                raise

        return RoundedTensors({name: tensor.shape for name, tensor in self.tensors.items()}, rows)

    @property
    def has_tokenizer(self) -> bool:
        """Whether there is a file for one."""
        if self.text is not None:
            return self.text.has_tokenizer
        return any((self.directory / name).exists() for name in (TOKENIZER, PIECES))

    def tokenizer(self) -> Tokenizer:
        """Return its tokenizer; ConfigError if there is none, or its library is missing."""
        return load_tokenizer(self.directory / TOKENIZER) if self.text is None else self.text.tokenizer()

    def chat_template(self) -> ChatTemplate:
        """Return its chat template; ConfigError if there is none."""
        return find_template(self.directory) if self.text is None else self.text.chat_template()


def tensor_shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor that a decoder needs."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (decoder.vocabulary, decoder.hidden)}
    if decoder.learned:
        shapes[POSITIONS] = (decoder.context, decoder.hidden)

    def norm(name: str) -> None:
        shapes.update({f"{name}.{part}": (decoder.hidden,) for part in decoder.norm_parts})

    for number in range(decoder.layers):
        prefix = f"model.layers.{number}."
        first, *others = [f"{prefix}{name}" for name in NORMS[decoder.norms]]
        norm(first)
        if decoder.experts:
            shapes[f"{prefix}{ROUTER}"] = (decoder.experts, decoder.hidden)
        for name, shape in decoder.shapes().items():
            for part in decoder.ffn_names if name in FFN else ["self_attn."]:
                shapes[f"{prefix}{part}{name}.weight"] = shape
                if decoder.has_bias(name):
                    shapes[f"{prefix}{part}{name}.bias"] = shape[:1]
        for name, count in decoder.query_key_norms.items():
            shapes[f"{prefix}self_attn.{name}.weight"] = (count,)
        for name in others:
            norm(name)
    norm("model.norm")
    if not decoder.tied:
        shapes["lm_head.weight"] = (decoder.vocabulary, decoder.hidden)
    if decoder.head_bias:
        shapes["lm_head.bias"] = (decoder.vocabulary,)
    return shapes


def weight_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights of a directory.

    Raises
    ------
    ConfigError
        There are none, it is not clear which, or the index is none.
    UnsupportedError
        Weights that are to be added to those of another model.
    """
    if (directory / ADAPTER).exists():
        raise UnsupportedError("weights of an adapter, which the library would add", where=directory / ADAPTER,
                               hint="a directory in which they are merged, or without the adapter's files")  # fmt: skip
    index, single = directory / INDEX, directory / WEIGHTS
    if not index.exists():
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise ConfigError("no *.safetensors in it", where=directory, path=str(directory))
        if len(files) > 1 and single not in files:
            raise ConfigError(f"{len(files)} weight files and no {INDEX}", where=directory, path=str(directory))
        return [single] if single in files else files
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise ConfigError("no table weight_map of tensors and files", where=index, path=str(index))
    names = sorted(set(table.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ConfigError(f"names a file outside of the directory: {named(name)}", where=index, path=str(index))
    if single.exists() and WEIGHTS not in names:
        raise ConfigError(
            f"{WEIGHTS} stands beside {INDEX}, which names other files: two sets of weights",
            where=directory,
            hint="take away the older one",
            path=str(directory),
        )
    return [directory / name for name in names]


def _refuse_foreign(name: str, found: Mapping[str, Tensor], decoder: Decoder, where: Path) -> None:
    """Refuse a tensor that the decoder does not have, unless without it the answers are the same."""
    if name.endswith(IGNORED):
        return
    if name == "lm_head.weight" and decoder.tied:
        if same(found[name], found[EMBEDDING]):
            return
        raise ConfigError(
            NOT_TIED,
            where=where,
            hint="false in config.json, if the file's own output matrix is meant",
            path=str(where),
        )
    what = next((why for end, why in FOREIGN.items() if name.endswith(f".{end}")), None)
    if what is not None:
        if name.endswith(".bias") and not found[name].f32().any():
            return
        raise UnsupportedError(f"tensor {named(name)}: {what}", where=where)
    raise ConfigError(
        f"tensor {named(name)} belongs to no part of the decoder",
        where=where,
        cause="a model of another architecture under a known name",
        path=str(where),
    )


def _checked(found: Mapping[str, Tensor], decoder: Decoder, where: Path, says: str = CONFIG) -> dict[str, Tensor]:
    """Return the tensors that a decoder needs, or refuse what is missing, misshapen or more.

    `says`: what the sizes are from.
    """
    if decoder.layers > len(found):  # before a list of the names of so many layers is made
        raise ConfigError(
            f"{says} has {decoder.layers:,} layers, the files have {len(found)} tensors", where=where, path=str(where)
        )
    wanted = tensor_shapes(decoder)
    missing = [name for name in wanted if name not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(f"tensor {missing[0]}{more} is missing", where=where, path=str(where))
    for name, shape in wanted.items():
        if found[name].shape != shape:
            raise ConfigError(
                f"tensor {name} is {list(found[name].shape)}, {says} wants {list(shape)}", where=where, path=str(where)
            )
    for name in found:
        if name not in wanted:
            _refuse_foreign(name, found, decoder, where)
    return {name: found[name] for name in wanted}


def _with_generation(configuration: Configuration, directory: Path) -> Configuration:
    """Return a configuration with the end tokens of ``generation_config.json``, if it has some."""
    path = directory / GENERATION
    table = optional_table(path)
    if table is None:
        return configuration
    verdicts = judged_generation(table)
    refuse_first(verdicts, path)
    try:
        stops = token_ids(table.get("eos_token_id"), "eos_token_id", configuration.decoder.vocabulary)
    except ConfigError as error:
        raise ConfigError(error.what, where=path, path=str(path)) from None
    warnings = *configuration.warnings, *warnings_of(verdicts)
    return replace(configuration, stops=stops or configuration.stops, warnings=warnings)


def _loaded(path: Path) -> LanguageModel:
    """Return the model of a GGUF file."""
    configuration, tensors, text = read_gguf_model(path)
    whole = _fitted(tensors, configuration, path, "its head")
    return LanguageModel(path.name, whole[0], whole[1], path, text)


def _fitted(
    found: dict[str, Tensor], configuration: Configuration, where: Path, says: str = CONFIG
) -> tuple[Configuration, dict[str, Tensor]]:
    """Return configuration and tensors as the decoder has them."""
    decoder, architecture = configuration.decoder, configuration.architecture
    try:
        if architecture in CLASSIC:
            found = renamed(found, decoder, architecture)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, hint=error.hint, path=str(where)) from None
    if decoder.o_bias and architecture not in CLASSIC and not any(name.endswith("o_proj.bias") for name in found):
        # Biases that files do not have are zero, and older files say attention_bias without this one.
        configuration = replace(configuration, decoder=replace(configuration.decoder, o_bias=False))
    try:
        order = pair_order(decoder, architecture)
        found = lowered(found, configuration.decoder, architecture, configuration.factors, order)
    except ConfigError as error:
        raise ConfigError(error.what, where=where, hint=error.hint, path=str(where)) from None
    return configuration, _checked(found, configuration.decoder, where, says)


def load_model(directory: str | Path) -> LanguageModel:
    """Return the model of a directory, or of a GGUF file.

    Raises
    ------
    ConfigError
        Something is missing, damaged or does not fit together; the message names file and tensor.
    UnsupportedError
        A model of another kind.
    """
    directory = Path(directory)
    if directory.suffix == SUFFIX and not directory.is_dir():
        return _loaded(directory)
    if not directory.is_dir():
        raise ConfigError("no directory of a model", where=directory, path=str(directory))
    configuration = _with_generation(read_configuration(directory / CONFIG), directory)
    found: dict[str, Tensor] = {}
    for path in weight_files(directory):
        for name, tensor in read_tensors(path).items():
            if name in found:
                raise ConfigError(f"tensor {named(name)} is in two files", where=path, path=str(path))
            found[name] = tensor
    configuration, tensors = _fitted(found, configuration, directory)
    return LanguageModel(directory.resolve().name, configuration, tensors, directory)


def shipped_models() -> list[str]:
    """Return the names of the shipped models."""
    return sorted(path.name for path in EXAMPLES.iterdir() if (path / CONFIG).exists()) if EXAMPLES.exists() else []


def find_directory(name: str) -> Path:
    """Return the directory of a shipped model, or the one that a path means, or a GGUF file.

    Raises
    ------
    ConfigError
        There is neither; says what can be given in the place of a file, a name on the hub, or a preset.
    """
    shipped, path = shipped_models(), Path(name)
    if name.rstrip("/") in shipped:
        return EXAMPLES / name.rstrip("/")
    if path.is_dir():
        return path
    if path.is_file():
        if path.suffix == SUFFIX:
            return path
        raise ConfigError(f"{named(name)} is a file", hint=f"the directory with {CONFIG} and {WEIGHTS}, or a GGUF file")
    for preset in PRESETS:
        if preset.lower() == name.lower():
            raise ConfigError(
                f"{preset} is known by its sizes; its weights are not here",
                hint=f"wse plan {preset} --inference --mesh 360x360, or the directory of its files",
            )
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith("/"):
        raise ConfigError(f"no directory {named(name)}, and nothing is fetched from the hub",
                          hint=f"hf download {named(name)} --local-dir DIRECTORY, and then that directory")  # fmt: skip
    if "/" in name or path.suffix in (SUFFIX, ".safetensors", ".json"):
        raise ConfigError(f"no directory {named(name)}", hint=f"the directory with {CONFIG} and {WEIGHTS}")
    raise ConfigError(
        f"no model {named(name)!r}: neither shipped nor a directory", hint=suggestion(name, [*shipped, *PRESETS])
    )


def find_model(name: str) -> LanguageModel:
    """Return a shipped model by its name, or the model of a directory.

    Raises
    ------
    ConfigError
        As of `find_directory` and `load_model`.
    """
    return load_model(find_directory(name))


def find_decoder(name: str) -> tuple[str, Decoder]:
    """Return name and sizes of a preset, of a shipped model, of a directory with ``config.json``, or of a GGUF file.

    Raises
    ------
    ConfigError
        There is none of these.
    """
    shipped = EXAMPLES / name
    for directory in (shipped, Path(name)):
        if (directory / CONFIG).exists():
            return directory.resolve().name, read_configuration(directory / CONFIG).decoder
    if Path(name).suffix == SUFFIX and Path(name).is_file():
        return Path(name).name, read_gguf_model(Path(name))[0].decoder
    return find_preset(name)


def save_model(
    directory: str | Path,
    configuration: Configuration,
    tensors: Mapping[str, Tensor | Array],
    tokenizer: str | None = None,
    card: str | None = None,
) -> None:
    """Write a model as a directory, all or nothing; a `tokenizer` is the text of its file, a `card` what people read.

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
            (staging / TOKENIZER).write_text(tokenizer, encoding="utf-8")
        if card is not None:
            (staging / CARD).write_text(card, encoding="utf-8")
