"""Messages become a prompt by the chat template of a model: which one, what it is given, and the text that it makes.

A template stands in ``chat_template.jinja`` or, where there is no such file, as `chat_template` in
``tokenizer_config.json``: a text, or a list of texts with names, of which *default* is taken.  It is given the
messages, the special tokens by their names (`bos_token`, `eos_token`, ...), and `add_generation_prompt`, which is true:
the text ends where the model is to go on.  Special tokens in the text are the model's, and nothing is put before it.

Rendering is left to `harness.models.chat_render`, in a process with limits of time and memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.kit.jsonfile import read_value
from harness.kit.modules import need
from harness.models import chat_render
from harness.models.text_files import SPECIAL_MAP, TOKENIZER_CONFIG, content_of, optional_table
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import named, shown

__all__ = ["ADDITIONAL", "NAMES", "TEMPLATE", "ChatTemplate", "find_template", "messages_of", "read_messages"]

TEMPLATE, ADDITIONAL = "chat_template.jinja", "chat_templates"

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Templates know these special tokens by name."""

DEFAULT = "default"
"""This template is taken where there are several."""

SECONDS, WALL, BYTES = 5, 60, 1 << 30
"""A rendering takes at most these seconds of the processor and of the clock, and this memory [bytes]."""

MOST = 1 << 22
"""Longest text that a template may make [characters]; a context of a million tokens is about as much."""

LONGEST = 1 << 20
"""Longest template that is read [characters]; those of today take a hundredth."""

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ChatTemplate:
    """A `ChatTemplate` is that of a model.

    Attributes
    ----------
    text : str
        A program in Jinja2.
    source : str
        File, and key in it, that it comes from.
    where : str
        The model's files, for messages.
    special : mapping
        Special tokens, by name.
    """

    text: str
    source: str
    where: str
    special: Mapping[str, str] = field(default_factory=dict)

    def prompt(self, messages: Messages) -> tuple[str, list[str]]:
        """Return the text of messages, up to where the model goes on, and what a run should say of it.

        Raises
        ------
        ConfigError
            Jinja2 is missing, or the template cannot be rendered in time, or refuses these messages.
        """
        need("jinja2", f"the chat template of {self.where}")
        if len(self.text) > LONGEST:
            raise self._refused(f"of {len(self.text):,} characters; at most {LONGEST:,} are read")
        given = {**self.special, "messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
        job = {"template": self.text, "given": given, "most": MOST, "seconds": SECONDS, "bytes": BYTES}
        found = self._run(json.dumps(job))
        if "old" in found:
            oldest = ".".join(map(str, chat_render.OLDEST))
            raise ConfigError(f"the chat template of {self.where} needs jinja2 {oldest}; {found['old']} is installed",
                              hint="pip install 'wse-sim[models]'")  # fmt: skip
        if "raised" in found:
            raise self._refused(f"refuses these messages: {named(' '.join(found['raised'].split()))}")
        if "error" in found:
            raise self._refused(named(" ".join(found["error"].split())))
        lacks = [name for name in NAMES if name in found["asks"] and name not in self.special]
        said = f"{self.source}: no {', '.join(lacks)} in {TOKENIZER_CONFIG}: empty in the prompt"
        return found["text"], [said] if lacks else []

    def _refused(self, what: str) -> ConfigError:
        """Return the error of a template that cannot be used."""
        return ConfigError(f"chat template ({self.source}): {what}", where=self.where, hint="--prompt without --chat",
                           path=self.where)  # fmt: skip

    def _run(self, job: str) -> dict[str, Any]:
        """Return what the rendering process says of a job."""
        command = [sys.executable, "-P", chat_render.__file__]
        try:
            done = subprocess.run(command, input=job, capture_output=True, text=True, timeout=WALL, check=False)
        except subprocess.TimeoutExpired:
            raise self._refused(f"not rendered in {WALL} seconds") from None
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = None
        if done.returncode or not isinstance(found, dict):
            raise self._refused(f"not rendered with {SECONDS} seconds of a processor and {BYTES >> 20:,} MiB")
        return found


def _several(value: Sequence[Any], where: Path) -> str:
    """Return the template that is taken of a list of them."""
    found = {
        each["name"]: each["template"]
        for each in value
        if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("template"), str)
    }
    if len(found) != len(value):
        raise ConfigError("chat_template is a list, and not of templates with names", where=where, path=str(where))
    if DEFAULT not in found:
        names = ", ".join(map(named, found)) or "none"
        raise UnsupportedError(f"chat templates without one that is called {DEFAULT} (there are: {names})", where=where)
    return str(found[DEFAULT])


def _read(path: Path) -> str:
    """Return the text of a file with a template."""
    try:
        with path.open(encoding="utf-8", newline=None) as file:
            return file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {named(str(error))}", where=path, path=str(path)) from None


def _special(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens of a directory by their names, empty where a file says that there is none."""
    more = {} if "added_tokens_decoder" in config else optional_table(directory / SPECIAL_MAP) or {}
    tables = {name: config.get(name) for name in NAMES if name in config} | {
        name: more[name] for name in NAMES if name in more
    }
    return {name: content_of(token) or "" for name, token in tables.items()}


def find_template(directory: Path) -> ChatTemplate:
    """Return the chat template of a directory.

    Raises
    ------
    ConfigError
        There is none, or its file cannot be read.
    UnsupportedError
        There are several, and none is the default.
    """
    config, alone = optional_table(directory / TOKENIZER_CONFIG) or {}, directory / TEMPLATE
    special, value = _special(directory, config), config.get("chat_template")
    where = str(directory)
    if alone.exists():
        return ChatTemplate(_read(alone), TEMPLATE, where, special)
    if any((directory / ADDITIONAL).glob("*.jinja")):
        raise UnsupportedError(f"a directory {ADDITIONAL} without a {TEMPLATE} beside it", where=directory)
    if isinstance(value, list):
        found = _several(value, directory / TOKENIZER_CONFIG)
        return ChatTemplate(found, f"{TOKENIZER_CONFIG}, {DEFAULT} of {len(value)}", where, special)
    if isinstance(value, str) and value:
        return ChatTemplate(value, TOKENIZER_CONFIG, where, special)
    what = f"a chat_template that is {shown(value)}" if value else "no chat template"
    raise ConfigError(f"{what} in it", where=directory, hint="--prompt without --chat: the text as it stands",
                      path=where)  # fmt: skip


def messages_of(prompt: str, system: str | None) -> list[dict[str, Any]]:
    """Return the messages that a prompt and a text of the system are."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": prompt}]


def read_messages(path: str | Path) -> list[dict[str, Any]]:
    """Return the messages of a JSON file: a list, or a table with a list `messages`; keys that are null are left out.

    Raises
    ------
    ConfigError
        It cannot be read, or one of them is no table with a role.
    """
    path = Path(path)
    value = read_value(path)
    found = value.get("messages") if isinstance(value, dict) else value
    hint = '[{"role": "user", "content": "..."}, ...]'
    if not isinstance(found, list) or not found:
        raise ConfigError("no list of messages", where=path, hint=hint, path=str(path))
    for number, message in enumerate(found, 1):
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or not role:
            raise ConfigError(f"message {number} has no role", where=path, hint=hint, path=str(path))
        if not isinstance(message.get("content", ""), str | list | None):
            raise ConfigError(f"the content of message {number} is {shown(message['content'])}, no text", where=path,
                              hint=hint, path=str(path))  # fmt: skip
    return [{key: each for key, each in message.items() if each is not None} for message in found]
