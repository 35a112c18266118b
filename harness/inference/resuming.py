"""An answer is kept in a file, step by step, so that one that was interrupted goes on from its last whole step.

The file has what the PEs keep from one step to the next (`fabric.networks.inference.decode.LASTING`), and the answer so
far: tokens, logits, cycles, counters, and how steps agreed with numpy.  It is replaced as a whole after every step, so
that whatever ends a run leaves that of the last one.  It also says what it is an answer of: a digest of the weights and
each option that tokens, logits, cycles or counters depend on.  Another one is refused by its name.

What an uninterrupted answer would have is what comes out, bit by bit; only the host's seconds are those of the part.
An answer of fewer tokens goes on to more: tokens and logits are those of a longer answer, while cycles of the steps
that are there are those of PEs with room for fewer tokens.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabric.networks.inference.resident import Counters
from harness.inference.asking import AnswerRequest
from harness.inference.prefix import Prefix
from harness.inference.yardsticks import Agreement
from traces.atomic import atomic_file
from wse_core import __version__
from wse_core.errors import ConfigError
from wse_core.formats import Bits

if TYPE_CHECKING:
    from harness.inference.generate import Answer

__all__ = ["AnswerFile", "Kept", "check_prefix", "read_prefix"]

FORM = 3
"""Of the file; another one is refused."""

NUMBERS = (
    "tokens", "prompt_cycles", "token_cycles", "transition", "first_cycles", "at_once", "pieces", "hops", "steps",
    "steps_compared", "bit_exact", "max_abs_error", "reused", "reused_cycles",
)  # fmt: skip
"""These attributes of an answer are kept as numbers."""

DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, LookupError, RuntimeError)
"""Reading a damaged file, or one that is no archive, may raise these."""

TOKENS, AT_A_TIME = "tokens of the cache", "--layers-at-a-time"
SAME = ("version of wse-sim", "MODEL", "--mesh", "--cache", "--dtype", "--cache-dtype", AT_A_TIME)
"""Keys and values of an answer's tokens depend on these, beside the machine; the answer depends on more."""

BLOCK = 1 << 22
"""So many weights at most are looked at together."""

LASTING, COUNTER = "lasting ", "counter "
"""Names of arrays in the file begin with these."""


@dataclass(frozen=True)
class Kept:
    """A `Kept` is what a file has of an answer.

    Attributes
    ----------
    position : int
        Tokens that the decoder has taken, of prompt and answer.
    read : (bool, int, int)
        As `harness.inference.prefix.Prefix.read`.
    answer : dict
        Attributes of `harness.inference.generate.Answer`.
    lasting : dict
        As `ResidentDecoder.lasting`.
    """

    position: int
    read: tuple[bool, int, int]
    answer: dict[str, Any]
    lasting: dict[str, Bits]


class AnswerFile:
    """An `AnswerFile` keeps an answer on disk so that it can go on from its last step.

    Parameters
    ----------
    path : path-like
    request : AnswerRequest
    weights : mapping
        Tensors by the hub's names, as the PEs have them.

    Attributes
    ----------
    position : int
        Tokens that the decoder had taken when the file was read or written; 0: there is none.
    grows : bool
        Whether the file that was read is of fewer tokens.
    """

    def __init__(self, path: Path, request: AnswerRequest, weights: Mapping[str, Any]) -> None:
        self.path, self.request, self.position, self.grows = path, request, 0, False
        self.asked = _asked(request) | {"MODEL": _digest(request, weights)}

    def read(self) -> Kept | None:
        """Return what the file has; None if there is none.

        Raises
        ------
        ConfigError
            It is damaged, or of another answer; the message names the option.
        """
        try:
            asked, found = _read(self.path)
        except FileNotFoundError:
            return None
        self._check(asked, found)
        self.position = found.position
        return found

    def _check(self, asked: Mapping[str, Any], kept: Kept) -> None:
        """Refuse a file of another answer, but for one of fewer tokens that can go on to more."""
        self.grows = goes_on = asked.get("--tokens", 0) < self.asked["--tokens"]
        for option in dict.fromkeys([*self.asked, *asked]):
            here, there = self.asked.get(option), asked.get(option)
            if here == there or (goes_on and option in ("--tokens", TOKENS)):
                continue
            raise _of_another(self.path, "--cache-file", option, there, here)
        if not goes_on:
            return
        decoder = self.request.model.configuration.decoder
        if decoder.within(asked[TOKENS]) != decoder.within(self.asked[TOKENS]):
            what = f"{self.path} is of a text that a window of attention holds, and {self.asked['--tokens']} are more"
            raise ConfigError(what, where="--tokens", hint=f"--tokens {asked['--tokens']}, or another file")

    def write(self, position: int, answer: Answer, counters: Counters, lasting: Mapping[str, Bits]) -> None:
        """Replace the file by one with an answer so far.

        Parameters
        ----------
        position : int
            Tokens that were taken.
        answer : Answer
        counters : dict
            Of all PEs, since the answer began.
        lasting : mapping
            What PEs keep of the tokens, or the host for groups of layers that are not there.

        Raises
        ------
        TraceError
            It cannot be written; then it is as before.
        """
        numbers = {name: getattr(answer, name) for name in NUMBERS}
        load = None if answer.load is None else [answer.load.words, answer.load.cycles]
        reload = None if answer.reload is None else vars(answer.reload)
        prefix, own = self.request.prefix, (answer.at_once, answer.pieces, len(self.request.prompt))
        facts = {
            "form": FORM,
            "position": position,
            "read": own if prefix is None else prefix.read,
            "asked": self.asked,
            "answer": numbers | {"load": load, "reload": reload},
            "units": {name: unit for name, (_, unit) in counters.items()},
        }
        arrays: dict[str, Any] = {
            "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8),
            "logits": np.array(answer.logits),
        }
        arrays |= {COUNTER + name: values for name, (values, _) in counters.items()}
        arrays |= {LASTING + name: bits for name, bits in lasting.items()}
        with atomic_file(self.path) as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        self.position = position


def _read(path: Path) -> tuple[dict[str, Any], Kept]:
    """Return what a file is an answer of, and what it has.

    Raises
    ------
    FileNotFoundError
        There is none.
    ConfigError
        It is damaged.
    """
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            facts = json.loads(bytes(file["facts"]).decode())
            if facts["form"] != FORM:
                raise ConfigError(f"form {facts['form']}; known is {FORM}", where=path)
            arrays = {name: file[name] for name in file.files if name != "facts"}
        answer, units = facts["answer"], facts["units"]
        answer["logits"] = list(arrays["logits"])
        answer["counters"] = {name: (arrays[COUNTER + name], unit) for name, unit in units.items()}
        lasting = {name.removeprefix(LASTING): array for name, array in arrays.items() if name.startswith(LASTING)}
        return dict(facts["asked"]), Kept(facts["position"], tuple(facts["read"]), answer, lasting)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=path) from None
    except DAMAGED as error:
        raise ConfigError("damaged, or no file of an answer", where=path, cause=str(error)) from None


def _of_another(path: Path, where: str, option: str, there: Any, here: Any) -> ConfigError:
    """Return the error of a file that is of another answer."""
    both = "" if option in ("MODEL", "--prefix") else f": {_said(there)} there, {_said(here)} now"
    what = f"{path} has an answer of another {option}{both}"
    return ConfigError(what, where=where, hint="the options of that answer, or another file")


def read_prefix(path: Path) -> Prefix:
    """Return what a file has of the beginning of prompts.

    Raises
    ------
    ConfigError
        There is none, or it is damaged.
    """
    try:
        asked, kept = _read(path)
        answer = kept.answer
        tokens = [*asked["--prompt"], *answer["tokens"]][: kept.position]
        cycles = answer["reused_cycles"] + answer["transition"] + answer["first_cycles"]
        cycles += sum(answer["prompt_cycles"]) + sum(answer["token_cycles"])
        return Prefix(path, tokens, kept.read, cycles, asked, kept.lasting)
    except FileNotFoundError:
        hint = "wse generate MODEL --prompt TEXT --tokens 1 --cache-file FILE.npz makes one"
        raise ConfigError("there is no such file", where=f"--prefix {path}", hint=hint) from None
    except DAMAGED as error:
        raise ConfigError("damaged, or no file of an answer", where=path, cause=str(error)) from None


def check_prefix(prefix: Prefix, request: AnswerRequest, weights: Mapping[str, Any]) -> None:
    """Refuse keys and values of another model, mesh, cache, format, machine or version, by its name."""
    here = _asked(request) | {"MODEL": _digest(request, weights)}
    for option in dict.fromkeys([*here, *prefix.asked]):
        if option in SAME or option.startswith("--set"):
            there, now = prefix.asked.get(option), here.get(option)
            if there != now:
                raise _of_another(prefix.path, "--prefix", option, there, now)


def restored(answer: Agreement, kept: Kept) -> None:
    """Give an answer what a file has of it."""
    for name, value in kept.answer.items():
        setattr(answer, name, value)


def _asked(request: AnswerRequest) -> dict[str, Any]:
    """Return what an answer depends on, by the names of options."""
    sampling = request.sampling
    verify = "off" if not request.verify else "full" if request.sample is None else "sample"
    found: dict[str, Any] = {
        "version of wse-sim": __version__,
        "--prompt": list(request.prompt),
        "--tokens": request.count,
        TOKENS: request.tokens,
        "--mesh": list(request.mesh),
        "--cache": request.policy,
        "--dtype": request.dtype,
        "--cache-dtype": request.cache_dtype or request.dtype,
        "--prefill": request.prefill,
        AT_A_TIME: request.at_a_time,
        "--chunk": request.chunk,
        "--temperature": sampling.temperature,
        "--top-k": sampling.top_k,
        "--seed": sampling.seed,
        "--verify": verify,
        "number of tokens that have a text": request.answers,
        "--prefix": None if request.prefix is None else request.prefix.digest,
    }
    found |= {f"--set machine.{key}": value for key, value in request.machine.items()}
    return dict(json.loads(json.dumps(found)))


def _digest(request: AnswerRequest, weights: Mapping[str, Any]) -> str:
    """Return a digest of a model: its sizes, what ends an answer, and all weights as the PEs have them."""
    configuration = request.model.configuration
    found = hashlib.blake2b(repr((configuration.decoder, sorted(configuration.stops))).encode(), digest_size=16)
    for name in sorted(weights):
        array = weights[name]
        found.update(f"{name} {array.shape}".encode())
        each = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
        for first in range(0, len(array), each):
            found.update(np.ascontiguousarray(array[first : first + each], np.float32).data)
    return found.hexdigest()


def _said(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, list):
        text = ",".join(map(str, value))
        return text if len(text) <= 30 else f"{text[:30]}... ({len(value)} tokens)"
    return "none" if value is None else str(value)
