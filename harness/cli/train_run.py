"""A training run has its directory: log, checkpoints, interruption.  `harness.cli.cmd_train` says what is to be run."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from harness.kit.modules import need
from harness.kit.staging import staged_directory
from wse_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from harness.kit.console import Progress
    from harness.train.config import TrainConfig
    from harness.train.loop import Loop

__all__ = ["FOLDER", "PURPOSE", "TrainingRun", "folder_of", "library", "place_of", "read_checkpoint"]

PURPOSE = "the command `wse train`"
FOLDER = "checkpoints"
LONG = 10
"""The first iteration says how long the others will take if that is more than so many seconds."""


def library() -> Any:
    """Return the module of checkpoints."""
    return need("harness.train.checkpoint", PURPOSE)


def folder_of(config: TrainConfig, out: Path) -> Path:
    """Return the directory of the checkpoints of a run."""
    return Path(config.checkpoint.directory) if config.checkpoint.directory else out / FOLDER


def read_checkpoint(path: Path, digest: str | None = None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return (tensors, state of the trainer, what is needed to read the configuration) of a checkpoint."""
    number, tensors, state = library().load(path, digest)
    try:
        trainer, config = state["trainer"], state["config"]
        kinds = {"text": str, "source": str, "wafers": int, "reference": bool, "set": list}
        known = trainer["iteration"] == number and all(type(config[key]) is kind for key, kind in kinds.items())
        known = known and all(isinstance(word, str) for word in config["set"])
    except (KeyError, TypeError):
        known = False
    if not known:
        raise CheckpointError("is no checkpoint of `wse train`", path=path, hint="another one")
    return tensors, trainer, config


def place_of(args: argparse.Namespace, config: TrainConfig) -> str:
    """Return where the run calculates, in words."""
    if args.reference:
        return "the host"
    return f"{config.wafers} wafer{'s' * (config.wafers > 1)} of {config.mesh}"


def _ended(checkpoint: Path) -> bool:
    """Return whether a checkpoint is what a run left that came to its end and was asked for none: as its log is."""
    try:
        return read_checkpoint(checkpoint)[2].get("ended") is True
    except CheckpointError:
        return False


def _same(one: Path, other: Path) -> bool:
    """Whether two names are of one directory."""
    return one.resolve() == other.resolve()


BEST = "best.npz"
"""A run keeps its best weights so."""


class TrainingRun:
    """A `TrainingRun` has its directory: log, checkpoints, interruption."""

    def __init__(
        self, args: argparse.Namespace, config: TrainConfig, trainer: Loop, source: Path | None, out: Path
    ) -> None:
        self.args, self.config, self.out = args, config, out
        self.trainer = trainer
        self.folder = folder_of(config, out)
        self.digest = config.fingerprint() + "-reference" * args.reference
        self.saved: int | None = None
        self.weights: Path | None = None
        self.tested: float | None = None
        self.interrupted, self.started = False, time.perf_counter()
        if source:
            trainer.restore(*read_checkpoint(source, self.digest)[:2])
        others = [] if source and _same(source.parent, self.folder) else library().found(self.folder)
        if others and not args.overwrite and not _ended(others[-1]):
            raise ConfigError(
                "has checkpoints of another run",
                where=self.folder,
                hint=f"--resume {self.folder}, --overwrite, or another directory with --out",
            )
        if config.checkpoint.interval:
            need("safetensors.numpy", "a checkpoint")
        with staged_directory(self.folder):
            pass  # whether it can be written is better known before hours of training than after them
        self.first = trainer.iteration
        self.comparison = self.verdict = None
        if args.compare:
            self.comparison = need("harness.train.compare", PURPOSE).Comparison(trainer)
        self.log = need("harness.train.record", PURPOSE).RunLog(self.out, trainer.iteration)
        library().remove(others)

    def train(self, stop: int, progress: Progress) -> int:
        """Train until so many iterations are done; return the exit status."""
        restore = self._catch()
        try:
            while self.trainer.iteration < stop and (self.trainer.under_way or not (self.interrupted or self._stale())):
                self._step(stop, progress)
        finally:
            for number, handler in restore.items():
                signal.signal(number, handler)
            self.log.close()
        self._keep()
        return 130 if self.interrupted else 0

    def _since_best(self) -> int:
        """Return how many tests have followed the one with the smallest loss."""
        losses = [row["test_loss"] for row in self.log.rows if "test_loss" in row]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def _stale(self) -> bool:
        """Whether so many tests brought no smaller loss that training ends."""
        patience = self.config.train.patience
        return bool(patience) and self._since_best() >= patience

    def _keep(self) -> None:
        """Keep the last state: as a checkpoint, or its weights alone where the library of checkpoints is missing."""
        if find_spec("safetensors") is not None:
            if self.saved != self.trainer.iteration:
                self.save()
            return
        self.weights = self.out / "weights.npz"
        self.trainer.save_weights(self.weights)
        print(
            f"wse: no checkpoint without safetensors (pip install 'wse-sim[train]'), weights are in {self.weights}",
            file=sys.stderr,
        )

    def _step(self, stop: int, progress: Progress) -> None:
        """Run one iteration, with what belongs to it."""
        trainer, config = self.trainer, self.config
        step, tested = trainer.step(), dict[str, float]()
        if config.train.evaluate and step.iteration % config.train.evaluate == 0:
            data = trainer.dataset
            found = trainer.test(data.x_test, data.y_test)
            tested |= found.facts()
            self.tested = found.accuracy
        if self.comparison and step.iteration <= self.args.compare:
            tested["numpy_loss"] = self.comparison.step(step)
            if step.iteration == min(self.args.compare, stop):
                self.verdict = self.comparison.verdict()
        row = self.log.add(step, **tested)
        if config.checkpoint.best and "test_loss" in row and self._since_best() == 0:
            trainer.save_weights(self.out / BEST)
        left = (stop - step.iteration) * row["host_seconds"]
        if step.iteration == self.first + 1 and left > LONG and self.args.progress is not False:
            count = stop - step.iteration
            more = f"{count:,} iteration{'s' * (count > 1)}"
            print(f"wse: about {left:,.0f} s for {more}; Ctrl-C ends with a checkpoint", file=sys.stderr, flush=True)
        progress.update(step.iteration, stop, **self._facts(row))
        if config.checkpoint.interval and step.iteration % config.checkpoint.interval == 0:
            self.save()

    def _facts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the line of progress shows."""
        known = {"tested": self.tested, **row}
        shown = {key: known[key] for key in ("loss", "accuracy", "tested", "cycles") if known.get(key) is not None}
        if "cycles" in row:
            shown["samples/s"] = self.config.data.batch * row["iteration"] / row["simulated_seconds"]
            shown["host cycles/s"] = row["cycles"] / row["host_seconds"]
        else:
            shown["host samples/s"] = self.config.data.batch / row["host_seconds"]
        return shown

    def _catch(self) -> dict[signal.Signals, Any]:
        """Let the first Ctrl-C end the loop after its iteration; return the handler to put back."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.interrupted = True
            signal.signal(number, signal.default_int_handler)
            print("wse: finishing the iteration; Ctrl-C again stops at once", file=sys.stderr)

        if threading.current_thread() is not threading.main_thread():
            return {}
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script: Ctrl-C is not for it
            return {}
        return {signal.SIGINT: signal.signal(signal.SIGINT, handle)}

    def save(self) -> None:
        """Write a checkpoint of the run."""
        config, (tensors, state) = self.config, self.trainer.state()
        file = Path(config.source)
        stored = {
            "text": config.text,
            "source": str(file.resolve() if file.exists() else file),
            "wafers": config.wafers,
            "reference": self.args.reference,
            "set": list(config.assignments),
            "mode": "streaming" if self.args.reference else self.args.mode,
            "ended": not self.interrupted and not config.checkpoint.interval,
        }
        self.last = library().save(
            self.folder,
            self.trainer.iteration,
            tensors,
            {"trainer": state, "config": stored},
            self.digest,
            config.checkpoint.keep,
        )
        self.saved = self.trainer.iteration

    def continued(self) -> str:
        """Return how to go on from here."""
        if self.weights is not None:
            return f"its weights are in {self.weights}"
        words = ["wse", "train", "--resume", str(self.last)]
        words += ["--out", str(self.out)] if self.out != self.last.parent.parent else []
        return f"go on with: {shlex.join(words)}"

    def result(self, figure: bool) -> dict[str, Any]:
        """Return what the run gave, and write its table, with or without its figure."""
        rows, config = self.log.rows, self.config
        last = rows[-1] if rows else {}
        found = {
            "done": self.trainer.iteration,
            "from_iteration": self.first,
            "loss": last.get("loss"),
            "skipped": self.trainer.iteration - self.trainer.updates,
            "density": self.trainer.density,
        }
        if rows:
            found |= self.trainer.clock_facts(rows)
        if self.verdict:
            found |= {
                "compared_iterations": self.verdict.iterations,
                "bit_exact": self.verdict.bit_exact,
                "weight_distance_to_numpy": self.verdict.weight_distance,
                "loss_distance_to_numpy": self.verdict.loss_distance,
            }
        found["host_seconds"] = time.perf_counter() - self.started
        if self.saved is not None:
            found["checkpoint"] = str(self.last)
        files = [str(self.weights)] if self.weights is not None else []
        title = f"{config.name} on {place_of(self.args, config)}, {config.dtype}"
        return found | {"files": [*self.log.finish(title, figure, self.args.format), *files]}
