"""A language model is asked by an `AnswerRequest`, which is checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.decoder import Decoder
from fabric.networks.inference.rows import POLICIES
from harness.models.configuration import Configuration
from harness.models.lazy import RoundedTensors
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.errors.values import shown
from wse_core.formats import Arithmetic, Half
from wse_core.params import Machine
from wse_core.schema import Field

if TYPE_CHECKING:
    from harness.inference.prefix import Prefix

__all__ = ["CACHE_DTYPES", "PREFILLS", "SEED", "AnswerRequest", "Hear", "Mesh", "Model", "Sampling"]

Hear = Callable[[int, int], None]
"""Called with the number of a step and its token, as each token of the answer comes."""

Mesh = tuple[int, int]
"""A `Mesh` is the number of PEs along x and along y."""

PREFILLS = ("auto", "mesh", "token")
"""A prompt is read in one of these ways: at once if that fits, at once, or token by token."""

CACHE_DTYPES = ("f16", "cb16", "int8")
"""Keys and values may be kept in these formats."""

SEED = Field("seed", int, low=0, high=2**63 - 1)
COLDEST = float(np.finfo(np.float32).max) / float(np.finfo(np.float64).max)
"""Least temperature but 0: a logit of f32 that is divided by less is no number of f64."""


class Model(Protocol):
    """A `Model` is what answers: `harness.models.hub.LanguageModel`, or one of random weights."""

    @property
    def name(self) -> str: ...

    @property
    def configuration(self) -> Configuration: ...

    def rounded(self, arithmetic: Arithmetic) -> tuple[dict[str, NDArray[Any]], Any]: ...

    def mapped(self, arithmetic: Arithmetic) -> RoundedTensors: ...


@dataclass(frozen=True)
class Sampling:
    """A `Sampling` says how the next token is chosen.

    Attributes
    ----------
    temperature : float
        0: the likeliest, found on the wafer.  Else the host draws from softmax(logits / temperature).
    top_k : int
        Draw among so many of the likeliest only; 0: all.
    seed : int
    """

    temperature: float = 0.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and (self.temperature == 0 or self.temperature >= COLDEST)):
            hint = f"0, or {COLDEST:.3g} and more" if 0 < self.temperature < COLDEST else "0 or more"
            raise ConfigError(f"{self.temperature} is no temperature", where="--temperature", hint=hint)
        if self.top_k < 0:
            raise ConfigError(f"{self.top_k} tokens to draw from", where="--top-k", hint="1 or more; 0: all")
        SEED.check(self.seed, "--seed")

    def drawer(self, answers: int | None = None) -> Callable[[NDArray[np.float32], int], int]:
        """Return a function of logits and the likeliest token that gives the next one, below `answers`."""
        rng = np.random.default_rng(self.seed)

        def draw(logits: NDArray[np.float32], likeliest: int) -> int:
            if self.temperature == 0:
                return likeliest
            values = logits[:answers].astype(np.float64) / self.temperature
            if not np.isfinite(values).all():
                token = int(np.argmin(np.isfinite(values)))
                raise ConfigError(
                    f"the logit of token {token} is {logits[token]:g}: nothing can be drawn",
                    where="--temperature",
                    cause="numbers beyond the 16-bit format",
                    hint="--dtype cb16, or --temperature 0",
                )
            order = np.argsort(-values, kind="stable")[: self.top_k or len(values)]
            shares = np.exp(values[order] - values[order[0]])
            return int(rng.choice(order, p=shares / shares.sum()))

        return draw


@dataclass(frozen=True, kw_only=True)
class AnswerRequest:
    """What shall be answered, by what, and how; a request that cannot be answered on any machine is refused here.

    Attributes
    ----------
    machine : Machine
    model : LanguageModel or RandomModel
    prompts : sequence of sequence of int
        Tokens; more than one prompt only in regions, where their tokens enter in turns, or with a batch.
    count : int
        Tokens to generate for each prompt; fewer come if the model ends its answer.
    counts : sequence of int or None
        The same, if prompts differ in it.
    mesh : (int, int)
        PEs along x and y: of all, of the mesh that reads the prompt, or of one region.
    policy : {"shift", "concat", "round"}
        Of the cache.
    dtype : {"f16", "cb16"}
    cache_dtype : {"f16", "cb16", "int8"} or None
        Of keys and values in the cache; None: as `dtype`, which is the only one of 16 bits that there may be.
    sampling : Sampling
        By default the likeliest token is found on the wafer.  Prompt k draws with the k-th seed.
    samplings : sequence of Sampling or None
        The same of each prompt, if they differ.
    verify : bool
        Whether steps are compared with the oracle and with plain numpy.
    file : Path or None
        Where the answer is kept from step to step, or goes on from (`harness.inference.resuming`).
    prefix : Prefix or None
        Tokens of another answer with which the prompt begins, and which need not be read.
    sample : int or None
        Seed by which steps that are compared are drawn (`harness.inference.comparing`); None: all are.
    answers : int or None
        Only the first so many tokens are answered; None: all.
    prefill : {"auto", "mesh", "token"}
        Whether the prompt is read at once, if that fits; at once; or token by token.
    decode_mesh : (int, int) or None
        Another mesh, east of the first one, that decodes; the first one reads the prompt, at once.
    regions : int or None
        Meshes beside each other over which the layers are spread.
    at_a_time : int or None
        Layers that the mesh has at a time, one group of them after the other; 0: as many as fit; None: all, always.
    batch : int or None
        Tokens, each of another prompt, that a step takes together; prompts wait for a lane that is free.
    chunk : int or None
        Tokens of the prompt that a step takes together, until all but the last one are read.
    draft : LanguageModel or RandomModel or None
        A smaller model of the same tokens that guesses those of the answer.
    ahead : int
        Tokens that a step takes of an answer that is guessed: the last known one and guesses.
    draft_mesh : (int, int) or None
        PEs along x and y of the draft, below the mesh; None: as many as that has.

    Raises
    ------
    ConfigError
        An empty prompt, a token that does not exist, more tokens than the context, options that exclude each other.
    """

    machine: Machine
    model: Model
    prompts: Sequence[Sequence[int]]
    count: int
    mesh: Mesh
    policy: str = "shift"
    dtype: Half = "f16"
    cache_dtype: str | None = None
    sampling: Sampling = Sampling()
    verify: bool = True
    sample: int | None = None
    file: Path | None = None
    prefix: Prefix | None = None
    answers: int | None = None
    prefill: str = "auto"
    decode_mesh: Mesh | None = None
    regions: int | None = None
    at_a_time: int | None = None
    batch: int | None = None
    chunk: int | None = None
    draft: Model | None = None
    ahead: int = 4
    draft_mesh: Mesh | None = None
    counts: Sequence[int] | None = None
    samplings: Sequence[Sampling] | None = None

    def __post_init__(self) -> None:
        for option, value, known in (("cache", self.policy, POLICIES), ("prefill", self.prefill, PREFILLS)):
            if value not in known:
                raise ConfigError(f"unknown {option} {value!r}", where=f"--{option}", hint=", ".join(known))
        self._check_cache()
        self._check_options()
        for k, prompt in enumerate(self.prompts):
            _check_prompt(self.model.configuration, prompt, self.count_of(k))

    def _check_cache(self) -> None:
        """Refuse formats of keys and values that programs do not keep."""
        where = f"--cache-dtype {self.cache_dtype}"
        if self.cache_dtype not in (None, *CACHE_DTYPES):
            raise ConfigError("unknown format", where=where, hint=", ".join(CACHE_DTYPES))
        if self.cache_dtype not in (None, "int8", self.dtype):
            what = "a program of a PE has one 16-bit format, that of its weights"
            raise UnsupportedError(what, where=where, hint=f"--dtype {self.cache_dtype}, or --cache-dtype int8")
        if self.int8 and self.decode_mesh is not None:
            what = "keys and values of 8 bits do not move to another mesh, whose columns have other parts of heads"
            raise UnsupportedError(what, where=where, hint="leave --decode-mesh out, or this option")

    def _check_options(self) -> None:
        """Refuse options that exclude each other."""
        if self.decode_mesh is not None:
            if self.regions is not None:
                raise ConfigError("not with --decode-mesh", where="--regions", hint="one of the two")
            if self.prefill == "token":
                what = "then nothing is read on the first mesh"
                raise ConfigError(what, where="--prefill token", hint="leave it out")
        if self.regions is not None:
            if self.prefill == "mesh":
                what = "regions read prompts token by token, one following the other"
                raise ConfigError(what, where="--prefill mesh", hint="leave it out")
            if self.regions < 1:
                raise ConfigError(f"{self.regions} regions", where="--regions", hint="1 or more")
        if self.batch is not None:
            if self.batch < 1:
                raise ConfigError(f"a batch of {self.batch}", where="--batch", hint="1 or more")
            for option, value in (("--regions", self.regions), ("--decode-mesh", self.decode_mesh)):
                if value is not None:
                    what = "a batch is one step of one mesh that has all layers"
                    raise UnsupportedError(what, where=option, hint="leave --batch out, or this option")
            if self.prefill == "mesh":
                what = "with a batch prompts are read by the decoding program, each in a lane of its own"
                raise UnsupportedError(what, where="--prefill mesh", hint="leave it out")
        if self.chunk is not None:
            if self.chunk < 2:
                raise ConfigError(f"pieces of {self.chunk} tokens", where="--chunk", hint="2 or more")
            for option, value in (
                ("--batch", self.batch), ("--regions", self.regions), ("--decode-mesh", self.decode_mesh)
            ):  # fmt: skip
                if value is not None:
                    what = "a prompt is read in pieces by one mesh that then answers it alone"
                    raise UnsupportedError(what, where=option, hint="leave --chunk out, or this option")
            if self.prefill != "auto":
                raise ConfigError("pieces are another way", where=f"--prefill {self.prefill}", hint="leave it out")
        if self.at_a_time is not None:
            self._check_at_a_time()
        if self.draft is not None:
            self._check_draft(self.draft.configuration.decoder)
        if self.file is not None and not self.has_one_cache:
            what = "a file has one answer, which one mesh reads and gives"
            raise UnsupportedError(what, where="--cache-file", hint="leave it out, or the other option")
        if self.prefix is not None:
            self._check_prefix(self.prefix)
        if self.sample is not None and not self.may_sample:
            what = "tokens follow one another through regions, which have no one cache before a step"
            raise UnsupportedError(what, where="--verify sample", hint="--verify full, or off")
        if not self.prompts:
            raise ConfigError("0 requests", where="--requests", hint="1 or more")
        if len(self.prompts) > 1 and self.regions is None and self.batch is None:
            what = f"{len(self.prompts)} prompts without regions or a batch"
            raise ConfigError(what, where="--requests", hint="--regions 1 or --batch 2")

    def _check_at_a_time(self) -> None:
        """Refuse ways of an answer for which all layers would have to be there."""
        for option, asked in (
            ("--regions", self.regions is not None), ("--decode-mesh", self.decode_mesh is not None),
            ("--batch", self.batch is not None), ("--draft", self.draft is not None),
            ("--requests", len(self.prompts) > 1),
        ):  # fmt: skip
            if asked:
                what = "layers at a time answer one prompt, on one mesh"
                raise UnsupportedError(what, where=option, hint="leave --layers-at-a-time out, or this option")
        if self.chunk is not None and self.policy == "shift":
            what = "pieces of a prompt with layers at a time, in a cache whose entries move"
            raise UnsupportedError(what, where="--cache shift", hint="--cache round or concat")
        if self.prefill == "mesh":
            what = "layers at a time read prompts token by token, all tokens before the next layers are loaded"
            raise UnsupportedError(what, where="--prefill mesh", hint="leave it out")

    def _check_prefix(self, prefix: Prefix) -> None:
        """Refuse ways of a prompt that do not go on behind what was read."""
        if self.regions is not None or self.decode_mesh is not None:
            what = "keys and values of a file are given to one mesh that has all layers"
            raise UnsupportedError(what, where="--prefix", hint="leave it out, or the other option")
        at_once, pieces, _ = prefix.read
        several = self.batch is not None or self.draft is not None
        if several and self.policy == "concat" and at_once and not pieces:
            what = "a prompt that was read at once lies on all rows, and steps of this cache are priced on the last one"
            raise UnsupportedError(what, where="--prefix", hint="a file whose prompt was read with --prefill token")
        if self.prefill == "mesh":
            what = "behind a prefix a prompt is read in pieces or token by token"
            raise UnsupportedError(what, where="--prefill mesh", hint="leave --prefix out, or this option")
        if self.chunk is not None:
            self._check_pieces(prefix)
        prefix.check_prompt(self)

    def _check_pieces(self, prefix: Prefix) -> None:
        """Refuse prompts in pieces behind keys and values that lie elsewhere than those of pieces would."""
        if self.at_a_time is not None:
            what = "with layers at a time a prompt is read token by token behind a prefix"
            raise UnsupportedError(what, where="--chunk", hint="leave --prefix out, or this option")
        if self.policy == "shift":
            what = "pieces of a prompt have their places from its first token on, and entries of this cache have moved"
            raise UnsupportedError(what, where="--chunk", hint="--cache round or concat, or --prefix left out")
        if prefix.blocks(self.mesh[1], self.policy) is not None:
            what = "pieces go on behind tokens that lie where one by one they would, not as where they are read at once"
            raise UnsupportedError(what, where="--chunk", hint="a file whose prompt was read in pieces or by token")

    def _check_draft(self, draft: Decoder) -> None:
        """Refuse a draft that cannot guess."""
        own = self.model.configuration.decoder
        if self.ahead < 2:
            raise ConfigError(f"{self.ahead} tokens in a step guess nothing", where="--ahead", hint="2 or more")
        if draft.vocabulary != own.vocabulary:
            what = f"{draft.vocabulary} tokens, the model has {own.vocabulary}"
            raise ConfigError(what, where="--draft", hint="a model of the same tokens")
        if draft.context < self.tokens:
            raise ConfigError(f"its context holds {draft.context} of {self.tokens} tokens", where="--draft")
        for option, value in (
            ("--batch", self.batch), ("--regions", self.regions), ("--decode-mesh", self.decode_mesh),
            ("--chunk", self.chunk),
        ):  # fmt: skip
            if value is not None:
                what = "a draft guesses one answer of a mesh that has all layers, and reads prompts in pieces"
                raise UnsupportedError(what, where=option, hint="leave --draft out, or this option")
        if self.prefill != "auto":
            what = "with a draft prompts are read in pieces"
            raise UnsupportedError(what, where=f"--prefill {self.prefill}", hint="leave it out")

    @property
    def int8(self) -> bool:
        """Whether keys and values are kept as numbers of 8 bits."""
        return self.cache_dtype == "int8"

    @property
    def has_one_cache(self) -> bool:
        """Whether there is one answer, whose keys and values stay on one mesh."""
        ways = self.regions, self.batch, self.draft, self.decode_mesh
        return len(self.prompts) == 1 and all(way is None for way in ways)

    @property
    def may_sample(self) -> bool:
        """Whether keys and values may be read before a step: no other step is under way."""
        return self.regions is None

    def count_of(self, request: int) -> int:
        """Return how many tokens are generated for a prompt."""
        return self.count if self.counts is None else self.counts[request]

    def sampling_of(self, request: int) -> Sampling:
        """Return how the tokens of an answer are chosen."""
        if self.samplings is not None:
            return self.samplings[request]
        return replace(self.sampling, seed=self.sampling.seed + request)

    def length_of(self, request: int) -> int:
        """Return how many tokens the cache takes of a request: the last one of an answer is never read."""
        return len(self.prompts[request]) + self.count_of(request) - 1

    @property
    def decoder(self) -> Decoder:
        """The model has these sizes; a window that holds all tokens of prompt and answer is none."""
        return self.model.configuration.decoder.within(self.tokens)

    @property
    def prompt(self) -> Sequence[int]:
        """This is the first prompt, which is the only one if there are no regions."""
        return self.prompts[0]

    @property
    def tokens(self) -> int:
        """The cache takes at most so many tokens."""
        return max(map(self.length_of, range(len(self.prompts))))

    @property
    def last_mesh(self) -> Mesh:
        """The mesh that decodes has so many PEs along x and y."""
        return self.decode_mesh or self.mesh


def _check_prompt(configuration: Configuration, prompt: Sequence[int], count: int) -> None:
    """Refuse a prompt that cannot be answered."""
    decoder = configuration.decoder
    if not prompt:
        raise ConfigError("an empty prompt", where="prompt", hint="at least one token")
    if count < 1:
        raise ConfigError(f"{count} tokens to generate", where="--tokens", hint="1 or more")
    wrong = next((token for token in prompt if not 0 <= token < decoder.vocabulary), None)
    if wrong is not None:
        raise ConfigError(
            f"token {shown(wrong)} is none of the {decoder.vocabulary} of the model", where="prompt", value=int(wrong)
        )
    if len(prompt) + count > decoder.context:
        shorter = decoder.context - count, decoder.context - len(prompt)
        rooms = [
            f"{room} tokens of {what}" for room, what in zip(shorter, ("prompt", "answer"), strict=True) if room > 0
        ]
        raise ConfigError(
            f"{len(prompt)} tokens of prompt and {count} of answer; the context of the model holds {decoder.context}",
            where="prompt",
            hint=f"at most {' or '.join(rooms)}" if rooms else "a shorter prompt and a shorter answer",
        )
