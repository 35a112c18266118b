"""What ``wse generate --requests`` reads is a number of answers to one prompt, or a file with a request per line."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.shared import text_of
from harness.inference.asking import SEED, Sampling
from wse_core.errors import ConfigError
from wse_core.errors.values import shown
from wse_core.schema import Field, suggestion

if TYPE_CHECKING:
    from harness.models.tokens import Tokenizer
    from wse_core.params import Machine

__all__ = ["Asked", "requests_of"]

FIELDS = {
    field.name: field
    for field in (
        Field("prompt", str),
        Field("prompt_ids", tuple),
        Field("tokens", int),
        Field("temperature", float),
        Field("top_k", int),
        SEED,
    )
}
"""A line may have these fields."""

MOST_BYTES = 1 << 24
"""Of a file of requests: a wrong file must not be read for minutes."""


@dataclass(frozen=True)
class Asked:
    """An `Asked` has what options and a file say of each request.

    Attributes
    ----------
    prompts : list of list of int
    counts : list of int
        Tokens to generate for each.
    samplings : list of Sampling
    """

    prompts: list[list[int]]
    counts: list[int]
    samplings: list[Sampling]


def requests_of(
    args: argparse.Namespace, prompt: list[int] | None, tokenizer: Tokenizer | None, machine: Machine
) -> Asked:
    """Return the requests that the options of the command ask for.

    Parameters
    ----------
    args : Namespace
        Its ``requests`` is a number, or the path of a file whose lines are JSON objects: ``prompt`` or ``prompt_ids``,
        and perhaps ``tokens``, ``temperature``, ``top_k``, ``seed``, for which the options stand otherwise; the k-th
        line draws with the k-th seed.
    prompt : list of int or None
        Of the command line, if there is one.

    Raises
    ------
    ConfigError
        Neither a number nor such a file, no prompt or two; names file and line.
    """
    text = str(args.requests)
    number = text.lstrip("-").isdigit()
    if number == (prompt is None):
        what = "a file of requests has prompts of its own" if prompt is not None else "there is no prompt"
        hint = "leave --prompt out" if prompt is not None else "--prompt TEXT, --prompt-ids 1,2, or --requests FILE"
        raise ConfigError(what, where="--requests" if prompt is not None else "wse generate", hint=hint)
    if number:
        count = int(text) if len(text) < 20 else -1
        if not 0 <= count <= machine["mem.words"]:  # each has a cache or waits for one, and a cache has a word
            raise ConfigError(f"{text} requests", where="--requests", hint="1 or more, or a file of requests")
        assert prompt is not None
        samplings = [Sampling(args.temperature, args.top_k, args.seed + k) for k in range(count)]
        return Asked([prompt] * count, [args.tokens] * count, samplings)
    found = Asked([], [], [])
    for where, line in _lines(text):
        found.prompts.append(_prompt(line, where, tokenizer))
        found.counts.append(line.get("tokens", args.tokens))
        drawn = {key: line.get(key, getattr(args, key)) for key in ("temperature", "top_k")}
        found.samplings.append(Sampling(**drawn, seed=line.get("seed", args.seed + len(found.samplings))))
    if not found.prompts:
        raise ConfigError("it has no request", where=text, hint='a line for each, such as {"prompt": "text"}')
    return found


def _lines(path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (where it stands, what it says) of each line that is not empty."""
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise ConfigError(f"more than {MOST_BYTES:,} bytes", where=path, hint="a file of requests is text")
        content = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(
            f"neither a number nor a file that can be read: {error.strerror or error}", where="--requests", value=path
        ) from None
    except UnicodeDecodeError:
        raise ConfigError("it is no text in UTF-8", where=path) from None
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        where = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"no JSON: {error}", where=where, hint='{"prompt": "text", "tokens": 8}') from None
        if not isinstance(said, dict):
            raise ConfigError(f"{shown(said)} is no object", where=where, hint='{"prompt": "text", "tokens": 8}')
        for key in said:
            if key not in FIELDS:
                raise ConfigError(f"unknown key {shown(key)}", where=where, hint=suggestion(key, FIELDS))
        found.append((where, {key: FIELDS[key].check(value, f"{where}: {key}") for key, value in said.items()}))
    return found


def _prompt(line: dict[str, Any], where: str, tokenizer: Tokenizer | None) -> list[int]:
    """Return the tokens of a line's prompt."""
    if ("prompt" in line) == ("prompt_ids" in line):
        raise ConfigError("one of prompt and prompt_ids is needed", where=where)
    if "prompt_ids" in line:
        return [int(token) for token in line["prompt_ids"]]
    if tokenizer is None:
        raise ConfigError("the model has no tokenizer", where=where, hint="prompt_ids")
    return tokenizer.encode(text_of(line["prompt"], where))
