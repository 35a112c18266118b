"""Data sets, and the data service: it hands every wafer its shard of a batch.

An epoch is one permutation of the training set, sequences staying whole, cut into whole batches; what is left at its
end waits for the next epoch's permutation; a batch of all samples has them in their own order. A batch is the same
whatever the number of wafers; wafer w of N gets its w-th N-th. So shards are disjoint, their union is the batch, and
training on 1, 2 or 8 wafers sees the same samples in the same order.

The order comes from one `numpy.random.Generator`; its state before the permutation of the present epoch, and the epoch,
are all that must be kept to go on bit by bit.

Source: weight streaming white paper, sections 4 and 7.1 (a service of its own, disjoint shards); requirement WS-08.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from harness.kit.samples import load_digits
from harness.train.patches import patched
from harness.train.sources import NONE, Samples, Targets, blocks, check_labels, marked, read_source
from harness.train.text import TokenPlanes, TokenRows, is_text, read_text
from wse_core import numerics
from wse_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["SOURCES", "DataService", "Dataset", "load", "looked_up"]

SOURCES = ("digits", "digits-ink", "mnist-shaped")
"""Data sets with a name; everything else is a file."""


@dataclass(frozen=True)
class Dataset:
    """A `Dataset` has samples with their classes or targets, for training and for tests.

    Attributes
    ----------
    x_train, x_test : ndarray of float32, or RowsOnDemand; shape (samples, features)
    y_train, y_test : ndarray of int64, shape (samples,), or (samples, pixels) if each pixel has a label
        Or targets, ndarray of float32, shape (samples, targets); not numbers (NaN) for a token without.
    """

    x_train: Samples
    y_train: np.ndarray
    x_test: Samples
    y_test: np.ndarray

    @cached_property
    def digest(self) -> str:
        """The training set, samples and labels, has this SHA-256 digest."""
        found = hashlib.sha256(str(self.x_train.shape).encode())
        for block in blocks(self.x_train):
            found.update(np.ascontiguousarray(block, "<f4").tobytes())
        form = "<f4" if self.y_train.dtype.kind == "f" else "<i8"
        found.update(np.ascontiguousarray(self.y_train, form).tobytes())
        return found.hexdigest()


def load(config: TrainConfig) -> Dataset:
    """Return the `Dataset` that a `TrainConfig` names.

    Raises
    ------
    ConfigError
        The file is missing or no such archive, arrays are missing or do not fit each other, the network or the format.
    """
    source = config.data.source
    for key, plain, where in (
        ("scale", 1.0, source not in SOURCES and not is_text(source)),
        ("held_out", 0.2, source.endswith(".csv") or is_text(source)),
    ):
        if getattr(config.data, key) != plain and not where:
            hint = (
                "a file of numbers"
                if key == "scale"
                else "a .csv or a text; other sources say which samples are for tests"
            )
            raise ConfigError(f"{source} has no {key}", where=f"data.{key}", hint=hint)
    if source == "digits":
        found = _digits()
    elif source == "digits-ink":
        found = _ink(_digits())
    elif source == "mnist-shaped":
        found = _mnist_shaped()
    elif is_text(source):
        held = config.data.sequence, config.data.held_out, config.network.inputs
        found = Dataset(**read_text(source, Path(config.source).parent, *held))
    else:
        found = _read(source, config)
    if config.targets and source in SOURCES:
        raise ConfigError(
            f"{source} has classes, and the loss is mse", where="train.loss", value="mse", hint="a file with targets"
        )
    found = looked_up(_labelled(found, config), config)
    for name in ("x_train", "x_test"):
        if len(getattr(found, name)) % config.data.sequence:
            raise ConfigError(
                f"the {len(getattr(found, name))} samples {name} of {source} are no whole sequences of "
                f"{config.data.sequence}",
                where="data.sequence",
                value=config.data.sequence,
            )
    inputs = config.network.inputs
    features = found.x_train.shape[1]
    if features != inputs:
        raise ConfigError(
            f"samples of {source} have {features} features, the network takes {inputs}",
            where="network.inputs",
            value=inputs,
        )
    (_check_targets if config.targets else _check_classes)(found, config)
    if config.data.batch > len(found.x_train):
        raise ConfigError(
            f"a batch of {config.data.batch} from {len(found.x_train)} samples of {source}",
            where="data.batch",
            value=config.data.batch,
        )
    for name in ("x_train", "x_test"):
        largest = max(float(np.abs(block).max()) for block in blocks(getattr(found, name)))
        _check_range(np.array([largest]), name, config)
    return found


def _check_classes(found: Dataset, config: TrainConfig) -> None:
    """Refuse labels that are no classes of the network."""
    source, classes = config.data.source, config.classes
    labels = np.concatenate([found.y_train.ravel(), found.y_test.ravel()])
    if config.data.labels != "class":
        labels = labels[labels >= 0]
        if not len(labels):
            raise ConfigError(f"nothing of {source} has a class", where="data.labels", value=config.data.labels)
    if labels.min() < 0 or labels.max() >= classes:
        raise ConfigError(
            f"labels of {source} are {labels.min()} to {labels.max()}, the network has {classes} classes",
            hint='data.labels = "token"' if labels.min() == NONE else None,
            where="network.nodes"
            if config.network.nodes
            else f"network.layers[{len(config.network.layers) - 1}].outputs",
            value=classes,
        )


def _check_targets(found: Dataset, config: TrainConfig) -> None:
    """Refuse targets that 16 bits do not hold, or that are not there."""
    source = config.data.source
    for name in ("y_train", "y_test"):
        targets = getattr(found, name)
        there = config.graph.loss.labelled(targets)
        if config.data.labels == "class" and not there.all():
            raise ConfigError(f"{name} of {source} has targets that are no numbers", where="data.source")
        if (~np.isnan(targets[~there])).any():
            what = f"{name} of {source}: some targets of a token are numbers and others are not"
            raise ConfigError(what, where="data.source")
        _check_range(targets[there], name, config)
    if not config.graph.loss.labelled(found.y_train).any():
        raise ConfigError(f"nothing of {source} has targets", where="data.labels", value=config.data.labels)


def _check_range(values: np.ndarray, name: str, config: TrainConfig) -> None:
    """Refuse numbers that the format of the activations does not hold."""
    bias = config.build_machine()["num.cb16_bias"]
    largest = float(np.abs(values).max(initial=0))
    if not np.isfinite(numerics.decode(numerics.encode(largest, config.dtype, bias), config.dtype, bias)):
        raise ConfigError(
            f"{name} of {config.data.source} has {largest:g}, more than {config.dtype} can hold",
            where="data.source",
            hint="scale the samples, for example to 0 .. 1",
        )


def _labelled(found: Dataset, config: TrainConfig) -> Dataset:
    """Return samples with the kind of labels that is asked for, -1 for none."""
    both = {name: getattr(found, name) for name in ("y_train", "y_test")}
    for name, labels in both.items() if not config.targets else ():
        check_labels(labels, config.graph.label_image, "data.labels", f"{name} of {config.data.source}")
    if config.network.patches:
        count = math.prod(config.network.patches[:3])
        if found.x_train.shape[1] != count:
            what = f"samples of {config.data.source} have {found.x_train.shape[1]} features, images {count}"
            raise ConfigError(what, where="network.patches", value=config.network.patches)
        cut = {name: patched(getattr(found, name)[:], config.network.patches) for name in ("x_train", "x_test")}
        found = replace(found, **cut)
    if config.data.labels in ("first", "last"):
        return _cut(found, config)
    if config.data.labels in ("token", "pixel") and not config.targets:
        both = {name: marked(labels, "data.source") for name, labels in both.items()}
    if config.data.labels == "pixel":
        both = {name: labels.reshape(len(labels), -1) for name, labels in both.items()}
    return replace(found, **both)


def _cut(found: Dataset, config: TrainConfig) -> Dataset:
    """Return samples cut into the tokens of a sequence; the first one, or the last, has the class."""
    sequence, arrays = config.data.sequence, dict[str, np.ndarray]()
    for part in ("train", "test"):
        x, y = getattr(found, f"x_{part}")[:], getattr(found, f"y_{part}")
        if x.shape[1] % sequence:
            what = f"samples of {x.shape[1]} features are not {sequence} tokens of one size"
            raise ConfigError(what, where="data.sequence", value=sequence)
        labels = np.full((len(y), sequence, *y.shape[1:]), np.nan if config.targets else -1, y.dtype)
        labels[:, 0 if config.data.labels == "first" else -1] = y
        tokens = len(y) * sequence
        arrays |= {f"x_{part}": x.reshape(tokens, -1), f"y_{part}": labels.reshape(tokens, *y.shape[1:])}
    return Dataset(**arrays)


def looked_up(found: Dataset, config: TrainConfig) -> Dataset:
    """Return samples with a one among zeros instead of the number of a token, and behind it ones for its places.

    So they are if the network takes so many features: what a token has, and `network.places`, or a place each.  Where
    it takes images, and samples have a number for each pixel, the channels of a pixel are a one among zeros.
    """
    sequence, places, inputs = config.data.sequence, config.network.places, config.network.inputs
    features, image = found.x_train.shape[1], config.network.image
    if image and features != inputs and math.prod(image[1:]) == features and image[0] > 1:
        rows = {name: getattr(found, name) for name in ("x_train", "x_test")}
        for array in rows.values():
            _check_tokens(np.asarray(array[:]), image[0], config)
        planes: dict[str, Any] = {name: TokenPlanes(array, image[0]) for name, array in rows.items()}
        return replace(found, **planes)
    if not places and inputs == features + sequence and config.data.labels in ("first", "last"):
        places = (sequence, 0, 1)
    own = inputs - sum(places[::3])
    if features == inputs or (not places and features != 1):
        return found
    arrays: dict[str, Any] = {}
    for name in ("x_train", "x_test"):
        rows, vocabulary = getattr(found, name), 0
        if features == 1 and own > 1:
            vocabulary, ids = own, np.asarray(rows[:])
            hidden = np.isin(ids, config.network.hidden).reshape(-1, sequence).all(1)
            if config.network.hidden and hidden.any():
                what = f"{name} of {config.data.source} has sequences of nothing but tokens that attention hides"
                raise ConfigError(what, where="network.hidden", value=config.network.hidden)
            _check_tokens(ids, own, config)
            _check_padding(ids.ravel(), getattr(found, f"y{name[1:]}"), config)
        scales = config.network.token_scale, config.network.place_scales
        arrays[name] = TokenRows(rows, vocabulary, sequence, places, *scales)
    return replace(found, **arrays)


def _check_padding(ids: np.ndarray, labels: np.ndarray, config: TrainConfig) -> None:
    """Refuse tokens that are not counted where they, or their places, would matter."""
    network, source = config.network, config.data.source
    if np.isin(ids, network.absent).any():
        what = f"{source} has tokens of {list(network.absent)}, which the file does not count and does not hide either"
        raise ConfigError(what, where="network.absent", hint="give the mask of padding to wse.train.from_torch too")
    ends = np.isin(ids, network.ending)
    rows = ends.reshape(-1, config.data.sequence)
    if (rows[:, :-1] & ~rows[:, 1:]).any():
        what = f"{source} has tokens of {list(network.ending)} before others: places count those before them alone"
        raise ConfigError(what, where="network.ending", hint="padding at the end of a sequence")
    if np.any(config.graph.loss.labelled(labels[ends])):
        what = f"{source} has labels for tokens of {list(network.ending)}, whose places are not counted"
        raise ConfigError(what, where="data.labels", hint='labels = "token", and -100 for padding')


def _check_tokens(ids: np.ndarray, known: int, config: TrainConfig) -> None:
    """Refuse numbers of tokens that the network does not know."""
    if not np.array_equal(ids, ids.astype(np.int64)) or (ids < 0).any() or (ids >= known).any():
        raise ConfigError(
            f"tokens of {config.data.source} are {ids.min():g} to {ids.max():g}, the network knows {known}",
            where="network.inputs",
            value=config.network.inputs,
        )


def _split(x: np.ndarray, y: np.ndarray, share: float, rng: np.random.Generator) -> Dataset:
    """Return a `Dataset` with so large a share of the samples, chosen at random, held out."""
    unseen = np.zeros(len(x), bool)
    unseen[rng.permutation(len(x))[: round(share * len(x))]] = True
    return Dataset(x[~unseen], y[~unseen], x[unseen], y[unseen])


def _digits() -> Dataset:
    """Return the handwritten digits of scikit-learn, 8 x 8 pixels in 0 .. 1; a fifth is held out."""
    images, labels = load_digits()
    return _split(images[:, :-1].astype(np.float32), labels, 0.2, np.random.default_rng(0))


def _ink(found: Dataset) -> Dataset:
    """Return digits with a label for each of their 8 x 8 pixels: the digit where it is half dark or more, else 10."""
    dark = {part: (getattr(found, f"x_{part}")[:] >= 0.5).reshape(-1, 8, 8) for part in ("train", "test")}
    labels = {
        f"y_{part}": np.where(there, getattr(found, f"y_{part}")[:, None, None], 10) for part, there in dark.items()
    }
    return replace(found, **labels)


def _mnist_shaped() -> Dataset:
    """Return 2,500 synthetic images of 28 x 28 pixels in 0 .. 1 of ten classes, a fifth held out; always the same.

    A class is five random strokes; an image of it is shifted by up to two pixels, and 15% of its pixels are noise.
    """
    rng = np.random.default_rng(784)
    y, x = np.mgrid[0:28, 0:28]
    shapes = np.zeros((10, 28, 28))
    for shape in shapes:
        for _ in range(5):
            (x0, y0), (x1, y1) = rng.uniform(5, 23, (2, 2))
            for t in np.linspace(0, 1, 16):
                distance = (x - x0 - t * (x1 - x0)) ** 2 + (y - y0 - t * (y1 - y0)) ** 2
                np.maximum(shape, np.exp(-distance / 2), out=shape)
    labels = rng.integers(0, 10, 2500)
    shifts = rng.integers(-2, 3, (2500, 2))
    images = np.array(
        [np.roll(shapes[label], tuple(shift), (0, 1)) for label, shift in zip(labels, shifts, strict=True)]
    )
    noise = rng.random(images.shape)
    images = np.where(rng.random(images.shape) < 0.15, noise, images)
    pixels = np.round(images * 256) / 256  # exact in every 16-bit format that has 8 bits of fraction
    return _split(pixels.reshape(2500, 784).astype(np.float32), labels.astype(np.int64), 0.2, rng)


def _read(source: str, config: TrainConfig) -> Dataset:
    """Return the `Dataset` of a file or directory."""
    data = config.data
    targets = Targets(config.classes, data.labels == "token") if config.targets else None
    how = data.held_out, data.seed, data.scale, 0 if data.labels == "pixel" else data.sequence, targets
    return Dataset(**read_source(Path(config.source).parent / source, SOURCES, *how))


class DataService:
    """A `DataService` gives every wafer its shard of each batch.

    Parameters
    ----------
    dataset : Dataset
    batch : int
        Samples over all wafers.
    wafers : int
    seed : int
    sequence : int
        Samples that stay together, one behind the other.

    Attributes
    ----------
    per_epoch : int
        Batches of an epoch.
    numbers : bool
        Samples that are numbers of tokens are handed out as such (`harness.train.text.TokenRows.numbers`).
    """

    def __init__(self, dataset: Dataset, batch: int, wafers: int = 1, seed: int = 0, sequence: int = 1) -> None:
        if wafers < 1 or batch % wafers:
            raise ConfigError(f"a batch of {batch} does not divide over {wafers} wafers", where="data.batch")
        if not 0 < batch <= len(dataset.x_train):
            raise ConfigError(f"a batch of {batch} from {len(dataset.x_train)} samples", where="data.batch")
        self.dataset, self.size, self.wafers, self._seed, self._sequence = dataset, batch, wafers, seed, sequence
        self.per_epoch = len(dataset.x_train) // batch
        self.numbers = False
        self._start()

    @classmethod
    def of(cls, config: TrainConfig, dataset: Dataset | None = None) -> Self:
        """Return the service that a `TrainConfig` asks for, with the data that it names or with others."""
        data = config.data
        return cls(dataset or config.dataset, data.batch, config.wafers, data.seed, data.sequence)

    def _start(self) -> None:
        self._rng, self._epoch = np.random.default_rng(self._seed), -1
        self._draw()

    def _draw(self) -> None:
        """Begin the next epoch."""
        self._before = self._rng.bit_generator.state
        first = self._rng.permutation(len(self.dataset.x_train) // self._sequence) * self._sequence
        self._order = (first[:, None] + np.arange(self._sequence)).ravel()
        if self.size == len(self._order):  # one batch has all samples: their order plays no part
            self._order.sort()
        self._epoch += 1

    def indices(self, iteration: int) -> np.ndarray:
        """Return which samples make the batch of an iteration, counted from 0: ndarray of int64, shape (batch,)."""
        epoch, place = divmod(iteration, self.per_epoch)
        if epoch < self._epoch:
            self._start()
        while self._epoch < epoch:
            self._draw()
        return self._order[place * self.size : (place + 1) * self.size]

    def parts(self, iteration: int, count: int) -> list[list[tuple[np.ndarray, np.ndarray]]]:
        """Return the shards of an iteration whose batch passes in parts, one after the other.

        Parameters
        ----------
        iteration : int
            Counted from 0.
        count : int
            Parts; they are the same ones for any number of wafers.

        Returns
        -------
        list of list of (ndarray of float32, ndarray of int64)
            Per part and wafer: samples of shape (batch / count / wafers, features), or numbers of theirs as `numbers`
            says, ndarray of uint16 of shape (batch / count / wafers, tables); and their classes, or pixels'.
        """
        rows = self.dataset.x_train
        taken = rows.numbers if self.numbers and isinstance(rows, TokenRows) else rows.__getitem__
        return [
            [(taken(own), self.dataset.y_train[own]) for own in np.split(part, self.wafers)]
            for part in np.split(self.indices(iteration), count)
        ]

    def batch(self, iteration: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the shards of an iteration, counted from 0, one per wafer."""
        return self.parts(iteration, 1)[0]

    def state(self) -> dict[str, Any]:
        """Return the position in the data, as data for JSON."""
        return {
            "epoch": self._epoch,
            "random": self._before,
            "seed": self._seed,
            "batch": self.size,
            "digest": self.dataset.digest,
        }

    def restore(self, state: Any) -> None:
        """Go on from `state`.

        Raises
        ------
        CheckpointError
            It belongs to other data, another batch or seed, or is no such state; nothing has changed then.
        """
        try:
            same = (state["digest"], state["batch"], state["seed"]) == (self.dataset.digest, self.size, self._seed)
            if not same:
                raise CheckpointError(
                    "the checkpoint was made with other training data, batch or seed",
                    hint="the configuration and data of that run",
                )
            rng = np.random.default_rng()
            rng.bit_generator.state = state["random"]
            epoch = int(state["epoch"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError("the position in the data is missing or damaged") from None
        self._rng, self._epoch = rng, epoch - 1
        self._draw()
