"""The shipped model is trained on characters of Python's own help texts, with numpy, from a seed.

The text is `pydoc_data.topics`, which every Python installation has: what ``help("assert")`` and the like print.  It is
brought to plain ASCII, so that 96 characters are the whole vocabulary; topics whose place in the alphabet is a multiple
of 16 are held out.  A run takes about twenty minutes of one core and prints the loss of both parts::

    python -m tools.models.training DIRECTORY [--steps N] [--seed N]

The result is a directory as of the hub: ``config.json``, ``model.safetensors`` (f16), ``tokenizer.json``.  The same
Python version, numpy and seed give the same text and, up to the rounding of the host's products, the same weights; a
digest of the text is printed, since the topics differ from version to version.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fabric.networks.inference.decoder import Decoder
from harness.models.configuration import Configuration
from harness.models.hub import save_model
from harness.models.tokens import character_file
from memx.optimizer import AdamW
from tools.models.gradients import loss_and_gradients
from wse_core.errors import ConfigError, WseError

__all__ = [
    "ALPHABET",
    "PYDOC",
    "TrainingSchedule",
    "digest",
    "encode_text",
    "initial_weights",
    "loss_of",
    "main",
    "save_trained",
    "texts",
    "train",
]

Array = np.ndarray[Any, np.dtype[Any]]
Weights = dict[str, Array]

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
"""The vocabulary: a token's id is its place here."""

PYDOC = Decoder(
    hidden=64,
    layers=4,
    heads=4,
    kv_heads=2,
    head_size=16,
    ffn=192,
    vocabulary=len(ALPHABET),
    context=256,
    epsilon=1e-5,
    rope_base=10_000.0,
    tied=True,
)
"""The shipped model is small enough for a mesh of a few PEs a side, large enough for words."""

PLAIN = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2013": "-", "\u2014": "-"})
HELD_OUT = 16
REPORT = 100
"""Updates between two lines of a run's report."""


@dataclass(frozen=True)
class TrainingSchedule:
    """A schedule says how long, how fast and from which seed the model is trained.

    Attributes
    ----------
    steps, windows, length : int
        Updates, and windows of so many tokens in each.
    lr, lr_end : float
        Learning rate after the warm-up and at the end, between them half a cosine.
    warm : int
        Steps in which the rate rises to `lr`.
    decay, clip : float
        Of AdamW; and the largest norm of all gradients together.
    seed : int
    """

    steps: int = 3400
    windows: int = 8
    length: int = 256
    lr: float = 4e-3
    lr_end: float = 1e-4
    warm: int = 100
    decay: float = 0.02
    clip: float = 1.0
    seed: int = 1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, from 1."""
        if step <= self.warm:
            return self.lr * step / self.warm
        along = (step - self.warm) / max(1, self.steps - self.warm)
        return self.lr_end + (self.lr - self.lr_end) * 0.5 * (1 + math.cos(math.pi * along))


def texts() -> tuple[str, str]:
    """Return the text to learn and the text held out, both of the characters of `ALPHABET` only."""
    from pydoc_data.topics import topics

    known = set(ALPHABET)
    plain = ["".join(c for c in topics[name].translate(PLAIN) if c in known) for name in sorted(topics)]
    parts: list[list[str]] = [[], []]
    for place, text in enumerate(plain):
        parts[place % HELD_OUT == HELD_OUT - 1].append(text.rstrip("\n") + "\n\n")
    learned, held = "".join(parts[0]), "".join(parts[1])
    known_paragraphs = set(learned.split("\n\n"))  # topics share some
    return learned, "\n\n".join(part for part in held.split("\n\n") if part not in known_paragraphs)


def encode_text(text: str) -> Array:
    """Return the token ids of a text of the alphabet."""
    return np.array([ALPHABET.index(c) for c in text], np.int64)


def initial_weights(decoder: Decoder, rng: np.random.Generator) -> Weights:
    """Return f32 weights to begin with: variance one over the inputs, smaller where a product joins the residual."""

    def drawn(rows: int, columns: int, scale: float) -> Array:
        return (rng.standard_normal((rows, columns)) * scale).astype(np.float32)

    weights: Weights = {"model.embed_tokens.weight": drawn(decoder.vocabulary, decoder.hidden, 0.05)}
    for number in range(decoder.layers):
        prefix = f"model.layers.{number}."
        for name, (rows, columns) in decoder.shapes().items():
            joins = name in ("o_proj", "down_proj")
            part = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
            scale = columns**-0.5 * ((2 * decoder.layers) ** -0.5 if joins else 1)
            weights[f"{prefix}{part}.{name}.weight"] = drawn(rows, columns, scale)
            if decoder.qkv_bias and name in ("q_proj", "k_proj", "v_proj"):
                weights[f"{prefix}{part}.{name}.bias"] = np.zeros(rows, np.float32)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = np.ones(decoder.hidden, np.float32)
    weights["model.norm.weight"] = np.ones(decoder.hidden, np.float32)
    if not decoder.tied:
        weights["lm_head.weight"] = drawn(decoder.vocabulary, decoder.hidden, decoder.hidden**-0.5)
    return weights


def train(decoder: Decoder, text: Array, schedule: TrainingSchedule) -> Iterator[tuple[int, float, Weights]]:
    """Train from the seed; yield (step, loss, weights) after each update, the weights being views that go on changing.

    All parameters lie in one vector, which the optimizer of the memory service updates.
    """
    rng = np.random.default_rng(schedule.seed)
    first = initial_weights(decoder, rng)
    flat = np.concatenate([weight.ravel() for weight in first.values()])
    ends = np.cumsum([weight.size for weight in first.values()])[:-1]

    def views() -> Weights:
        parts = np.split(flat, ends)
        return {name: part.reshape(weight.shape) for (name, weight), part in zip(first.items(), parts, strict=True)}

    optimizer = AdamW(lr=schedule.lr, weight_decay=schedule.decay, beta2=0.99)
    state = {slot: np.zeros_like(flat) for slot in optimizer.slots}
    reach = np.arange(schedule.length + 1)
    weights = views()
    for step in range(1, schedule.steps + 1):
        starts = rng.integers(0, len(text) - schedule.length, schedule.windows)
        loss, gradients = loss_and_gradients(decoder, weights, text[starts[:, None] + reach])
        gradient = np.concatenate([gradients[name].ravel() for name in first])
        norm = float(np.sqrt(np.dot(gradient, gradient)))
        if norm > schedule.clip:
            gradient *= np.float32(schedule.clip / norm)
        flat = optimizer.update(step, flat, gradient, state, schedule.rate(step))
        weights = views()
        yield step, loss, weights


def digest(text: str) -> str:
    """Return the first characters of the text's SHA-256: whether two runs have read the same."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def loss_of(decoder: Decoder, weights: Weights, text: Array, length: int, windows: int = 32) -> float:
    """Return the mean loss over the first windows of a text, side by side."""
    count = min(windows, (len(text) - 1) // length)
    starts = np.arange(count)[:, None] * length
    return loss_and_gradients(decoder, weights, text[starts + np.arange(length + 1)], gradients=False)[0]


def save_trained(directory: str | Path, decoder: Decoder, weights: Weights) -> None:
    """Write weights as f16 with their configuration and the table of characters."""
    halves = {name: weight.astype(np.float16) for name, weight in weights.items()}
    save_model(directory, Configuration(decoder), halves, character_file(ALPHABET))


def main(words: Sequence[str] | None = None) -> int:
    """Train the shipped model and write it."""
    parser = argparse.ArgumentParser(prog="python -m tools.models.training", description="Train the shipped model.")
    parser.add_argument("directory", help="where it is written")
    parser.add_argument(
        "--steps", type=int, default=TrainingSchedule.steps, help=f"updates (default: {TrainingSchedule.steps})"
    )
    parser.add_argument("--seed", type=int, default=TrainingSchedule.seed, help=f"default: {TrainingSchedule.seed}")
    args = parser.parse_args(words)
    try:
        if args.steps < 1 or args.seed < 0:
            raise ConfigError(f"{args.steps} steps from seed {args.seed}", hint="at least one step, a seed from 0")
        schedule = replace(TrainingSchedule(), steps=args.steps, seed=args.seed)
        learned, held = texts()
        print(f"text: {len(learned):,} characters, {len(held):,} held out, digest {digest(learned + held)}")
        known, other = encode_text(learned), encode_text(held)
        recent: list[float] = []
        weights: Weights = {}
        for step, loss, weights in train(PYDOC, known, schedule):
            recent.append(loss)
            if step % REPORT == 0 or step == schedule.steps:
                mean = sum(recent) / len(recent)
                print(f"step {step}: loss {mean:.4f}, held out {loss_of(PYDOC, weights, other, 256):.4f}", flush=True)
                recent.clear()
        save_trained(args.directory, PYDOC, weights)
    except WseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"wrote {args.directory}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
