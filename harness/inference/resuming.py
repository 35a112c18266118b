"""An answer is kept in a file, step by step, so that one that was interrupted goes on from its last whole step.

The file has what the PEs keep from one step to the next (`fabric.networks.inference.decode.LASTING`), and the answer so
far: tokens, logits, cycles, counters, and how steps agreed with numpy.  It is replaced as a whole after every step, so
that whatever ends a run leaves that of the last one.  It also says what it is an answer of: a digest of the weights and
each option that tokens, logits, cycles or counters depend on.  Another one is refused by its name.

What an uninterrupted answer would have is what comes out, bit by bit; only the host's seconds are those of the part.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.resident import Counters, Resident
from harness.inference.asking import AnswerRequest
from harness.inference.yardsticks import Agreement
from traces.atomic import atomic_file
from wse_core import __version__
from wse_core.errors import ConfigError
from wse_core.formats import Bits

if TYPE_CHECKING:
    from harness.inference.generate import Answer

__all__ = ["AnswerFile", "Kept"]

FORM = 1
"""Of the file; another one is refused."""

NUMBERS = (
    "tokens", "prompt_cycles", "token_cycles", "transition", "first_cycles", "at_once", "pieces", "hops", "steps",
    "steps_compared", "bit_exact", "max_abs_error",
)  # fmt: skip
"""These attributes of an answer are kept as numbers."""

DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, LookupError, RuntimeError)
"""Reading a damaged file, or one that is no archive, may raise these."""

LASTING, COUNTER = "lasting ", "counter "
"""Names of arrays in the file begin with these."""


@dataclass(frozen=True)
class Kept:
    """A `Kept` is what a file has of an answer.

    Attributes
    ----------
    position : int
        Tokens that the decoder has taken, of prompt and answer.
    answer : dict
        Attributes of `harness.inference.generate.Answer`.
    lasting : dict
        As `Resident.lasting`.
    """

    position: int
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
    """

    def __init__(self, path: Path, request: AnswerRequest, weights: Mapping[str, NDArray[Any]]) -> None:
        self.path, self.position = path, 0
        self.asked = _asked(request) | {"MODEL": _digest(request, weights)}

    def read(self) -> Kept | None:
        """Return what the file has; None if there is none.

        Raises
        ------
        ConfigError
            It is damaged, or of another answer; the message names the option.
        """
        try:
            with open(self.path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                facts = json.loads(bytes(file["facts"]).decode())
                if facts["form"] != FORM:
                    raise ConfigError(f"form {facts['form']}; known is {FORM}", where=self.path)
                self._check(facts["asked"])
                arrays = {name: file[name] for name in file.files if name != "facts"}
            answer, units = facts["answer"], facts["units"]
            answer["logits"] = list(arrays["logits"])
            answer["counters"] = {name: (arrays[COUNTER + name], unit) for name, unit in units.items()}
            lasting = {name.removeprefix(LASTING): array for name, array in arrays.items() if name.startswith(LASTING)}
            found = Kept(facts["position"], answer, lasting)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=self.path) from None
        except DAMAGED as error:
            raise ConfigError("damaged, or no file of an answer", where=self.path, cause=str(error)) from None
        self.position = found.position
        return found

    def _check(self, asked: Mapping[str, Any]) -> None:
        """Refuse a file of another answer."""
        for option in dict.fromkeys([*self.asked, *asked]):
            here, there = self.asked.get(option), asked.get(option)
            if here != there:
                both = "" if option == "MODEL" else f": {_said(there)} there, {_said(here)} now"
                what = f"{self.path} has an answer of another {option}{both}"
                raise ConfigError(what, where="--cache-file", hint="the options of that answer, or another file")

    def write(self, position: int, answer: Answer, resident: Resident) -> None:
        """Replace the file by one with an answer so far.

        Raises
        ------
        TraceError
            It cannot be written; then it is as before.
        """
        counters = added(answer.counters, resident.counters())
        numbers = {name: getattr(answer, name) for name in NUMBERS}
        load = None if answer.load is None else [answer.load.words, answer.load.cycles]
        facts = {
            "form": FORM,
            "position": position,
            "asked": self.asked,
            "answer": numbers | {"load": load},
            "units": {name: unit for name, (_, unit) in counters.items()},
        }
        arrays: dict[str, Any] = {
            "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8),
            "logits": np.array(answer.logits),
        }
        arrays |= {COUNTER + name: values for name, (values, _) in counters.items()}
        arrays |= {LASTING + name: bits for name, bits in resident.lasting().items()}
        with atomic_file(self.path) as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        self.position = position


def added(first: Counters, second: Counters) -> Counters:
    """Return counters of two programs together."""
    found = dict(first)
    for name, (values, unit) in second.items():
        found[name] = (values + found[name][0] if name in found else values, unit)
    return found


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
        "--mesh": list(request.mesh),
        "--cache": request.policy,
        "--dtype": request.dtype,
        "--prefill": request.prefill,
        "--chunk": request.chunk,
        "--temperature": sampling.temperature,
        "--top-k": sampling.top_k,
        "--seed": sampling.seed,
        "--verify": verify,
        "number of tokens that have a text": request.answers,
    }
    found |= {f"--set machine.{key}": value for key, value in request.machine.items()}
    return dict(json.loads(json.dumps(found)))


def _digest(request: AnswerRequest, weights: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of a model: its sizes, what ends an answer, and all weights as the PEs have them."""
    configuration = request.model.configuration
    found = hashlib.blake2b(repr((configuration.decoder, sorted(configuration.stops))).encode(), digest_size=16)
    for name in sorted(weights):
        array = weights[name]
        found.update(f"{name} {array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _said(value: Any) -> str:
    """Return a value as a message shows it."""
    if isinstance(value, list):
        text = ",".join(map(str, value))
        return text if len(text) <= 30 else f"{text[:30]}... ({len(value)} tokens)"
    return "none" if value is None else str(value)
