"""``tokenizer.model`` of sentencepiece becomes a ``tokenizer.json`` where a model comes without one.

The file has pieces with scores, which `harness.models.pieces` turns into merges; the package `sentencepiece` knows its
form.  Beside it ``tokenizer_config.json`` and ``added_tokens.json`` may add tokens, and say whether special ones stand
before and behind a text.  A space is put before a text, and behind each special token in it, as the files
``tokenizer.json`` of such models have it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.kit.modules import need
from harness.models.pieces import BYTE, CONTROL, OWN, UNKNOWN, Vocabulary, piece_table
from harness.models.text_files import ADDED, PIECES, content_of, optional_table
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["table_of_pieces"]

MAX_BYTES = 64 << 20
"""Longest file that is read [bytes]; those of today take a tenth."""

JOINED = 2
"""This model type has pieces that are joined best score first."""

KINDS = {1: "unigram", 3: "word", 4: "char"}


def _parsed(path: Path) -> Any:
    """Return what the package makes of a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its module is made by a generator whose types warn when they are imported
        package = need("sentencepiece.sentencepiece_model_pb2", f"the tokenizer {path}")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path, path=str(path)) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"longer than {MAX_BYTES:,} bytes, no file of pieces", where=path, path=str(path))
    try:
        found = package.ModelProto.FromString(raw)
    except Exception as error:  # DecodeError is a class of another package, and texts that are none raise others
        what = f"no file of sentencepiece: {named(' '.join(str(error).split()))}"
        raise ConfigError(what, where=path, path=str(path)) from None
    if not found.pieces:
        raise ConfigError("no pieces in it", where=path, cause="no file of sentencepiece", path=str(path))
    return found


def _refused(found: Any) -> str | None:
    """Return why pieces are not read; None if they are."""
    if found.trainer_spec.model_type != JOINED:
        return f"pieces of type {KINDS.get(found.trainer_spec.model_type, found.trainer_spec.model_type)}"
    normal = found.normalizer_spec
    if normal.precompiled_charsmap:
        return f"characters of a text that are changed by the table {named(normal.name or 'of the file')}"
    if normal.remove_extra_whitespaces:
        return "white space that is taken out of a text"
    if not normal.escape_whitespaces or found.trainer_spec.treat_whitespace_as_suffix:
        return "white space that is no mark before a word"
    return None


def _added(directory: Path, config: Mapping[str, Any], count: int) -> dict[int, tuple[str, int]]:
    """Return text and type of the tokens that files beside the pieces add or change."""
    found: dict[int, tuple[str, int]] = {}
    for text, number in (optional_table(directory / ADDED) or {}).items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise ConfigError(f"token {shown(text)} has the number {shown(number)}", where=directory / ADDED)
        found[number] = text, OWN
    entries = config.get("added_tokens_decoder")
    for key, token in entries.items() if isinstance(entries, dict) else ():
        content = content_of(token)
        if content is None or not key.isdecimal() or len(key) > len(str(MAX_BYTES)):
            raise ConfigError(f"added token {named(key)} is {shown(token)}", where=directory)
        found[int(key)] = content, CONTROL if isinstance(token, dict) and token.get("special") is True else OWN
    wrong = next((number for number in found if not 0 <= number < count + len(found)), None)
    if wrong is not None:
        raise ConfigError(f"added token {wrong} is none of {count + len(found):,}", where=directory)
    return found


def _end(config: Mapping[str, Any], name: str, own: int, tokens: list[str]) -> int | None:
    """Return the token that stands before (`bos_token`) or behind a text; None: there is none."""
    text = content_of(config.get(name))
    if text is None:
        return own if 0 <= own < len(tokens) else None
    if text not in tokens:
        raise ConfigError(f"{name} is {shown(text)}, which {PIECES} does not have")
    return tokens.index(text)


def table_of_pieces(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``tokenizer.json`` that a ``tokenizer.model`` comes to, given the ``tokenizer_config.json`` beside it.

    Raises
    ------
    ConfigError
        The file is damaged, tokens do not fit together, or the package is missing.
    UnsupportedError
        Its pieces are not joined by scores, or it changes white space or characters.
    """
    found = _parsed(path)
    why = _refused(found)
    if why is not None:
        raise UnsupportedError(why, where=path, hint="a tokenizer.json beside it, or --prompt-ids")
    tokens = [piece.piece for piece in found.pieces]
    types, scores = [int(piece.type) for piece in found.pieces], [float(piece.score) for piece in found.pieces]
    for number, (text, kind) in sorted(_added(path.parent, config, len(tokens)).items()):
        if number == len(tokens):
            tokens, types, scores = [*tokens, text], [*types, kind], [*scores, 0.0]
        elif number > len(tokens):
            raise ConfigError(f"added token {number} behind {len(tokens):,} tokens", where=path.parent)
        elif tokens[number] != text:
            what = f"token {number} is {shown(tokens[number])} in {PIECES}, and {shown(text)} beside it"
            raise ConfigError(what, where=path.parent)
        elif types[number] not in (UNKNOWN, BYTE):
            types[number] = kind
    spec = found.trainer_spec
    try:
        begin = _end(config, "bos_token", spec.bos_id, tokens) if config.get("add_bos_token", True) else None
        end = _end(config, "eos_token", spec.eos_id, tokens) if config.get("add_eos_token", False) else None
        vocabulary = Vocabulary(tokens, types, begin, end)
        return piece_table(vocabulary, scores, spec.unk_id, found.normalizer_spec.add_dummy_prefix)
    except ConfigError as error:
        raise ConfigError(error.what, where=path, hint="--prompt-ids", path=str(path)) from None
