"""What is done with every key of every file of a model: used, ignored, refused, or unknown; nothing is run for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.kit.jsonfile import read_json
from harness.models.chat import TEMPLATE
from harness.models.configuration import CONFIG, configuration_of, judged_configuration
from harness.models.gguf_file import SUFFIX
from harness.models.gguf_model import explained_gguf
from harness.models.hub import CARD, INDEX, load_model, weight_files
from harness.models.keys import KeyVerdict, ignored, judged, used
from harness.models.piece_file import table_of_pieces
from harness.models.text_files import (
    ADDED,
    GENERATION,
    PIECES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    judged_generation,
    judged_tokenizer,
    judged_tokenizer_config,
    optional_table,
)
from wse_core.errors import ConfigError, UnsupportedError

__all__ = ["explained"]

INDEX_KEYS = {"weight_map": used("which file has which tensor"), "metadata": ignored("it repeats what the files say")}

OTHER_FILES = {
    CARD: "it is for people",
    "special_tokens_map.json": "special tokens stand in tokenizer.json; their names are those of a chat template",
    "added_tokens.json": "added tokens stand in tokenizer.json",
    "vocab.json": "the vocabulary stands in tokenizer.json",
    "merges.txt": "the vocabulary stands in tokenizer.json",
    "tokenizer.model": "the vocabulary stands in tokenizer.json",
    "chat_template.json": "it is about pictures and films; texts have another one",
    "pytorch_model.bin": "weights are read from *.safetensors",
    "consolidated.safetensors": "the same weights under other names, for other programs",
    "params.json": "sizes for other programs",
}
"""Files that models come with and that are not opened, and why."""


def explained(directory: Path) -> list[KeyVerdict]:
    """Return what is done with every key of the files of a directory, and what else keeps it from being loaded.

    A file that cannot be read, and what is refused of several keys together or of a tensor, is a row without a key.
    """
    if directory.suffix == SUFFIX and directory.is_file():
        return _explained_file(directory)
    found: list[KeyVerdict] = []
    tables: dict[str, dict[str, Any]] = {}

    def take(name: str, judge: Callable[[dict[str, Any]], list[KeyVerdict]], needed: bool = False) -> None:
        if not needed and not (directory / name).exists():
            return
        try:
            tables[name] = read_json(directory / name)
            found.extend(judge(tables[name]))
        except (ConfigError, UnsupportedError) as error:
            found.append(_whole(name, error))

    take(CONFIG, judged_configuration, needed=True)
    take(GENERATION, judged_generation)
    take(TOKENIZER, judged_tokenizer)
    pieces = not (directory / TOKENIZER).exists() and (directory / PIECES).exists()
    if pieces:
        found.append(_pieces(directory, tables))
        if (directory / ADDED).exists():
            found.append(KeyVerdict(ADDED, "", None, "used", "tokens beside those of the pieces"))
    alone = TEMPLATE if (directory / TEMPLATE).exists() else None
    take(TOKENIZER_CONFIG, lambda table: judged_tokenizer_config(table, tables.get(TOKENIZER, {}), alone, pieces))
    if alone is not None:
        found.append(KeyVerdict(TEMPLATE, "", None, "used", "the chat template of --chat"))
    take(INDEX, lambda table: judged(INDEX, table, INDEX_KEYS, "an index"))
    if not any(verdict.does == "refused" for verdict in found):
        found += _together(directory, tables[CONFIG])
    return found + _other_files(directory, found)


def _pieces(directory: Path, tables: dict[str, dict[str, Any]]) -> KeyVerdict:
    """Return the verdict on pieces without a ``tokenizer.json``, whose table they get."""
    try:
        config = optional_table(directory / TOKENIZER_CONFIG) or {}
        tables[TOKENIZER] = table_of_pieces(directory / PIECES, config)
    except (ConfigError, UnsupportedError) as error:
        return _whole(PIECES, error)
    return KeyVerdict(PIECES, "", None, "used", "tokens of a text, joined by the scores of pieces")


def _explained_file(path: Path) -> list[KeyVerdict]:
    """Return what is done with every key of a GGUF file, and what else keeps it from being loaded."""
    found: list[KeyVerdict] = []
    try:
        found = explained_gguf(path)
        if not any(verdict.does == "refused" for verdict in found):
            load_model(path)
    except (ConfigError, UnsupportedError) as error:
        found.append(_whole(path.name, error))
    return found


def _whole(file: str, error: ConfigError | UnsupportedError) -> KeyVerdict:
    """Return the verdict on a file as a whole."""
    parts = error.what, error.cause and f"likely cause: {error.cause}", error.hint and f"try: {error.hint}"
    return KeyVerdict(file, "", None, "refused", "; ".join(part for part in parts if part))


def _together(directory: Path, config: dict[str, Any]) -> list[KeyVerdict]:
    """Return what is refused of keys that are right one by one, and of the tensors."""
    try:
        configuration_of(config)
    except (ConfigError, UnsupportedError) as error:
        return [_whole(CONFIG, error)]
    try:
        load_model(directory)
    except (ConfigError, UnsupportedError) as error:
        where = Path(str(error.where)).name if error.where and Path(str(error.where)) != directory else "*.safetensors"
        return [_whole(where, error)]
    return []


def _other_files(directory: Path, found: list[KeyVerdict]) -> list[KeyVerdict]:
    """Return the files of a directory of which nothing was said yet: weights, and what is not opened."""
    known = {verdict.file for verdict in found}
    try:
        weights = {path.name for path in weight_files(directory)}
    except (ConfigError, UnsupportedError):
        weights = set()
    rows = []
    for path in sorted(directory.iterdir()):
        if path.name in known or path.is_dir() or path.name.startswith("."):
            continue
        if path.name in weights:
            rows.append(KeyVerdict(path.name, "", None, "used", "weights"))
        else:
            why = OTHER_FILES.get(path.name, "no file that is known here; not opened")
            rows.append(KeyVerdict(path.name, "", None, "ignored", why))
    return rows
