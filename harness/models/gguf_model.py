"""A language model may be in one GGUF file: sizes, weights, tokenizer and chat template, as if it were a directory.

Keys become a ``config.json`` (`harness.models.gguf_keys`), tensors get the hub's names, and what the format changes in
them is undone:

==========================  =========================================================================================
llama, granite, smollm3     rows of queries and keys, which lie pair by pair, get back to half layout
gemma, gemma2, gemma3       weights of norms are 1 + w already
gpt2, gptneox, phi2         queries, keys and values in one matrix are one behind the other, [outputs, inputs]
experts                     one tensor has the matrices of all of them, or each its own
quantized types             values are those of the package `gguf`, rounded to the 16 bits of the PEs as others are
==========================  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder
from harness.models.chat import NAMES, ChatTemplate
from harness.models.configuration import Configuration, configuration_of
from harness.models.gguf_file import GgufFile, read_gguf
from harness.models.gguf_keys import OLDER, WITH_EXPERTS, architecture_of, configuration_table, judged_gguf
from harness.models.keys import KeyVerdict, refuse_first, warnings_of
from harness.models.pieces import UNKNOWN, Vocabulary, byte_table, piece_table
from harness.models.tensors import BLOCKS, Tensor
from harness.models.tokens import Tokenizer, tokenizer_of
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["GgufText", "explained_gguf", "gguf_text", "read_gguf_model"]

FUSED = "qkv_proj"
"""The name of a matrix of queries, keys and values has this last part."""

NAMES_OF_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": f"self_attn.{FUSED}",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Parts of a layer have these names in the format."""

OTHERS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
          "position_embd": "model.embed_positions"}  # fmt: skip
"""These tensors stand beside the layers."""

EXPERTS = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
"""Products of experts: a tensor of all has an "_exps" behind its name, one of a single expert its number."""

OWN_PARTS = {
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "gemma3": {"ffn_norm": "pre_feedforward_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
}
"""These parts are others in an architecture."""

POSITIONS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that say how positions are scaled, and are no weights."""

PAIRED = ("llama", "granite", "smollm3")
"""Files of these architectures have the rows of queries and keys pair by pair."""

SHIFTED = ("gemma", "gemma2", "gemma3")
"""Files of these architectures have the weights of norms as the factor that they are."""

BEGINS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral")
"""The first token stands before a text that is cut in one of these ways, unless a file says otherwise."""


@dataclass(frozen=True)
class GgufText:
    """A `GgufText` has tokenizer and chat template of a file.

    Attributes
    ----------
    path : Path
    metadata : dict
        Keys of tokens and templates.
    """

    path: Path
    metadata: Mapping[str, Any]

    @property
    def has_tokenizer(self) -> bool:
        """Whether the file has tokens."""
        return "tokenizer.ggml.tokens" in self.metadata

    def _key(self, name: str, missing: Any = None) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        return missing if value is None else value

    def _texts(self) -> list[str]:
        """Return the texts of the tokens."""
        tokens = self._key("tokens")
        if not isinstance(tokens, list) or not tokens or not all(isinstance(text, str) for text in tokens):
            raise ConfigError("no tokens in it", where=self.path, hint="--prompt-ids", path=str(self.path))
        return tokens

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the file.

        Raises
        ------
        ConfigError
            There is none, its lists do not fit together, or the library is missing.
        UnsupportedError
            It is of a kind that is not read.
        """
        tokens, kind, cut = self._texts(), self._key("model"), self._key("pre")
        types = self._key("token_type", [1] * len(tokens))
        try:
            vocabulary = Vocabulary(
                tokens,
                types,
                self._key("bos_token_id") if self._key("add_bos_token", kind == "llama" or cut in BEGINS) else None,
                self._key("eos_token_id") if self._key("add_eos_token", False) else None,
            )
            if kind == "gpt2":
                table = byte_table(vocabulary, self._key("merges", []), cut)
            elif kind == "llama":
                by_place = architecture_of(self.metadata) in SHIFTED  # their scores are not those of merges
                scores = None if by_place else self._key("scores", [0.0] * len(tokens))
                unknown = self._key("unknown_token_id", types.index(UNKNOWN) if UNKNOWN in types else None)
                table = piece_table(vocabulary, scores, unknown, self._key("add_space_prefix", not by_place))
            else:
                what = named(kind) if isinstance(kind, str) else shown(kind)
                raise UnsupportedError(f"a tokenizer of kind {what}", hint="gpt2 and llama are read; --prompt-ids")
        except UnsupportedError as error:
            raise UnsupportedError(error.what, where=self.path, hint=error.hint) from None
        except ConfigError as error:
            raise ConfigError(error.what, where=self.path, hint="--prompt-ids", path=str(self.path)) from None
        return tokenizer_of(self.path, table)

    def chat_template(self) -> ChatTemplate:
        """Return the chat template; ConfigError if there is none."""
        text = self.metadata.get("tokenizer.chat_template")
        if not isinstance(text, str) or not text:
            raise ConfigError("no chat template in it", where=self.path, path=str(self.path),
                              hint="--prompt without --chat: the text as it stands")  # fmt: skip
        tokens, special = self._texts(), {}
        ends = {"unk_token": "unknown_token_id", "sep_token": "seperator_token_id", "pad_token": "padding_token_id"}
        for name in NAMES:
            number = self._key(ends.get(name, f"{name}_id"))
            if isinstance(number, int) and 0 <= number < len(tokens):
                special[name] = tokens[number]
        return ChatTemplate(text, "tokenizer.chat_template", str(self.path), special)


def _hub_name(name: str, own: str) -> str:
    """Return the hub's name of a tensor; one that is not known stays as it is."""
    stem, _, kind = name.rpartition(".")
    if stem in OTHERS:
        return f"{OTHERS[stem]}.{kind}"
    parts = stem.split(".")
    if parts[0] != "blk" or len(parts) not in (3, 4) or not parts[1].isdecimal():
        return name
    if len(parts) == 4:
        single = own in WITH_EXPERTS and parts[2] in EXPERTS and parts[3].isdecimal()
        return f"model.layers.{parts[1]}.mlp.experts.{parts[3]}.{EXPERTS[parts[2]]}.{kind}" if single else name
    known = NAMES_OF_PARTS | OWN_PARTS.get(own, {})
    return f"model.layers.{parts[1]}.{known[parts[2]]}.{kind}" if parts[2] in known else name


def _halves(count: int, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which row of a file, pair by pair in each head, each row in half layout is."""
    pairs = np.arange(size).reshape(size // 2, 2).T.ravel()
    return (np.arange(count)[:, np.newaxis] * size + pairs).ravel()


def _apart(name: str, own: str, tensor: Tensor, decoder: Decoder) -> dict[str, Tensor]:
    """Return the tensors that one of a file stands for, by the decoder's names: itself, or its parts."""
    stem, _, kind = name.rpartition(".")
    parts = stem.split(".")
    product = EXPERTS.get(parts[2].removesuffix("_exps")) if len(parts) == 3 and parts[2].endswith("_exps") else None
    if product and own in WITH_EXPERTS and kind == "weight":
        if len(tensor.shape) != 3 or tensor.shape[0] != decoder.experts:
            raise ConfigError(f"tensor {named(name)} is {list(tensor.shape)}, not the matrices of {decoder.experts} "
                              "experts")  # fmt: skip
        room = f"model.layers.{parts[1]}.mlp.experts"
        return {f"{room}.{k}.{product}.{kind}": replace(tensor, data=data) for k, data in enumerate(tensor.data)}
    hub = _hub_name(name, own)
    if own not in OLDER or not hub.endswith((f".{FUSED}.weight", f".{FUSED}.bias")):
        return {hub: tensor}
    counts = [decoder.query_features, decoder.kv_features, decoder.kv_features]
    if not tensor.shape or tensor.shape[0] != sum(counts):
        raise ConfigError(f"tensor {named(name)} is {list(tensor.shape)}; its products have {sum(counts)} rows")
    cut = np.cumsum(counts)[:-1].tolist()
    return {hub.replace(FUSED, f"{part}_proj"): replace(tensor, data=data)
            for part, data in zip("qkv", np.split(tensor.data, cut), strict=True)}  # fmt: skip


def _as_on_the_hub(file: GgufFile, own: str, configuration: Configuration) -> dict[str, Tensor]:
    """Return the tensors under the hub's names, rows of queries and keys in half layout."""
    decoder, found = configuration.decoder, {}
    counts = {"q_proj": decoder.heads, "k_proj": decoder.kv_heads} if own in PAIRED else {}
    for name, tensor in file.tensors.items():
        if name in POSITIONS:
            continue
        for hub, part in _apart(name, own, tensor, decoder).items():
            count = counts.get(hub.split(".")[-2] if hub.count(".") > 1 else "")
            rows = count and count * decoder.head_size
            order = _halves(count, decoder.head_size) if count and part.shape[0] == rows else None
            if hub in found:
                raise ConfigError(f"tensor {named(name)} is in it twice under other names")
            found[hub] = replace(part, name=hub, order=order)
    return found


def read_gguf_model(path: Path) -> tuple[Configuration, dict[str, Tensor], GgufText]:
    """Return what a file has: configuration, tensors by the hub's names, and its texts.

    Raises
    ------
    ConfigError
        It is damaged, or its parts do not fit together.
    UnsupportedError
        It is of another kind, or a key asks for what is not modelled.
    """
    file = read_gguf(path)
    try:
        own = architecture_of(file.metadata)
        verdicts = judged_gguf(path.name, file.metadata)
        refuse_first(verdicts)
        configuration = configuration_of(configuration_table(file.metadata, file.tensors))
        warnings = *warnings_of(verdicts), *configuration.warnings
        factors = configuration.factors
        if own in SHIFTED:
            factors = replace(factors, norms=0.0)
        configuration = replace(configuration, warnings=warnings, factors=factors)
        tensors = _as_on_the_hub(file, own, configuration)
    except UnsupportedError as error:
        raise UnsupportedError(error.what, where=path, hint=error.hint) from None
    except ConfigError as error:
        raise ConfigError(error.what, where=path, hint=error.hint, path=str(path)) from None
    return configuration, tensors, GgufText(path, file.metadata)


def explained_gguf(path: Path) -> list[KeyVerdict]:
    """Return what is done with every key of a file, and what its tensors are."""
    file = read_gguf(path)
    found = judged_gguf(path.name, file.metadata)
    kinds = [tensor.dtype for tensor in file.tensors.values()]
    for kind in dict.fromkeys(kinds):
        how = "values of the package gguf, rounded" if kind in BLOCKS else "weights"
        found.append(KeyVerdict(path.name, f"tensors of type {kind}", kinds.count(kind), "used", how))
    return found


def gguf_text(path: Path) -> GgufText:
    """Return tokenizer and template of a file, whatever its weights are."""
    return GgufText(path, read_gguf(path).metadata)
