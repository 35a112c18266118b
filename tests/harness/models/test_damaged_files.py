"""Files of a model with anything in the place of anything: loaded, or refused in one short line; explained always."""

from __future__ import annotations

import copy
import json
import random

import pytest

from harness.models.explain import explained
from harness.models.hub import load_model
from harness.models.tensors import write_tensors
from harness.models.tokens import load_tokenizer
from tests.examples import seeds
from tests.harness.models.hub_twin import BASES, tensors_of
from tests.harness.models.test_text_files import byte_level, pieces
from wse_core.errors import ConfigError, UnsupportedError

JUNK = (
    None, True, -1, 0, 10**30, 1e308, float("nan"), "x" * 5000, "\x1b[31m", "\ud800", [], {}, [[]] * 50,
    {"content": 3}, [None], {"a": {"b": [1]}},
)  # fmt: skip
NAMES = ("zz", "\x07", "é" * 200)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def places(value, at=()):
    """Yield the place of each value inside of another, as its keys and numbers."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inner)[:40]:
        yield from places(item, (*at, key))


def damaged(table, draw):
    """Return a table in which one value is another one, is gone, or has a neighbour."""
    table = copy.deepcopy(table)
    *way, last = draw.choice(list(places(table)))
    inner = table
    for key in way:
        inner = inner[key]
    how = draw.random()
    if how < 0.2 and isinstance(inner, dict):
        del inner[last]
    elif how < 0.3 and isinstance(inner, dict):
        inner[draw.choice(NAMES)] = draw.choice(JUNK)
    else:
        inner[last] = draw.choice(JUNK)
    return table


def refused(function, *given):
    """Call a function that may refuse, in one short line of printable characters."""
    try:
        return function(*given)
    except (ConfigError, UnsupportedError) as error:
        assert str(error).isprintable()
        assert len(str(error)) < 800
        return None


@pytest.mark.parametrize("seed", seeds(200))
def test_files_with_anything_in_them(tmp_path, seed):
    pytest.importorskip("tokenizers")
    draw = random.Random(seed)
    architecture = draw.choice(list(BASES))
    files = {
        "config.json": BASES[architecture] | {"rope_scaling": draw.choice([None, LLAMA3])},
        "generation_config.json": {"eos_token_id": [3, 4], "do_sample": True},
        "tokenizer.json": draw.choice([pieces, byte_level])(),
        "tokenizer_config.json": {"add_bos_token": True, "added_tokens_decoder": {"1": {"content": "<s>"}}},
    }
    write_tensors(tmp_path / "model.safetensors", tensors_of(architecture))
    for _ in range(10):
        changed = dict(files)
        for file in draw.sample(list(files), draw.choice([1, 1, 2])):
            changed[file] = damaged(files[file], draw)
        for file, table in changed.items():
            (tmp_path / file).write_text(json.dumps(table))
        refused(load_model, tmp_path)
        tokenizer = refused(load_tokenizer, tmp_path / "tokenizer.json")
        if tokenizer is not None:
            ids = refused(tokenizer.encode, "ab <s> é")
            assert ids is None or all(0 <= token < tokenizer.size for token in ids)
        rows = explained(tmp_path)
        assert {row.file for row in rows} - {"*.safetensors"} == {*files, "model.safetensors"}
        assert all(row.why for row in rows)
