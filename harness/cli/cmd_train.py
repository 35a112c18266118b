"""``wse train [CONFIG.toml]``: train a network by weight streaming on modelled wafers.

Files in the directory of the run: ``log.jsonl`` (a line per iteration), ``loss.csv``, ``loss.png``, ``run.h5``
(counters of the first wafer, phases), ``report.html``, and checkpoints below ``checkpoints/``.  Ctrl-C finishes the
iteration, writes a checkpoint and says how to go on; a second one stops at once.  Figure and report take longer to make
than a few iterations: without ``--report`` they are made of runs of at least `SHORT` iterations that come to their end.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import shlex
import signal
import sys
import threading
import time
from pathlib import Path

from harness.cli.tracing import add_options as add_trace_options
from harness.cli.tracing import recorder
from harness.kit.console import make_progress, print_json, table
from harness.kit.modules import need
from harness.kit.staging import alone, staged_directory
from wse_core.errors import CheckpointError, ConfigError, TrainingError
from wse_core.events import LEVELS

__all__ = ["add_parser", "main"]

PURPOSE = "the command `wse train`"
FOLDER = "checkpoints"
LONG = 10
"""Seconds beyond which the first iteration says how long the others will take."""
SHORT = 10
"""Iterations below which nobody waits for figure and report."""


def add_parser(sub, common):
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "train",
        parents=[common],
        help="train a network by weight streaming",
        description="Train the network that a TOML file describes, by weight streaming: memory service, reduction tree "
        "and wafers, cycle by cycle. Examples by name: digits (default), digits-sparse75, digits-sparse90, "
        "fc-mnist-shaped.",
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.toml", help="configuration, or the name of an example")
    parser.add_argument("--wafers", metavar="N", type=int, help="wafers, instead of what the file says")
    parser.add_argument("--iterations", metavar="N", type=int, help="stop after N iterations in all")
    parser.add_argument("--resume", metavar="DIR", help="go on from the newest checkpoint in DIR, or from that in DIR")
    parser.add_argument("--out", metavar="DIR", help="directory for the files of the run (default: runs/NAME)")
    parser.add_argument(
        "--overwrite", action="store_true", help="delete the checkpoints of an earlier run in the same directory"
    )
    parser.add_argument(
        "--compare",
        metavar="N",
        type=int,
        default=0,
        help="train the first N iterations by numpy too: bit for bit in the order of the wafers, and "
        "as a plain trainer does",
    )
    parser.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        help=f"make loss.png and report.html (default: of runs of at least {SHORT} iterations that come to their end)",
    )
    parser.add_argument("--reference", action="store_true", help="train by plain numpy instead, for comparison")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--validate-only", action="store_true", help="check configuration and data, then stop")
    only.add_argument("--compile-only", action="store_true", help="place the network on its wafers, then stop")
    add_trace_options(parser)
    return parser


def main(args):
    """Check, compile and train; return 130 after Ctrl-C, else 0."""
    source = _checkpoint(args.resume) if args.resume is not None else None
    config = _config(args, source)
    for warning in config.warnings:
        print(f"wse: warning: {warning}", file=sys.stderr)
    dataset = need("harness.train.data", PURPOSE).load(config)
    total = config.iterations(len(dataset.x_train))
    stop = total if args.iterations is None else args.iterations
    if not 1 <= stop <= total:
        raise ConfigError(
            f"{stop} iterations of a run of {total}",
            where="--iterations",
            value=stop,
            hint="1 to that many; train.iterations makes the run longer",
        )
    need("harness.train.sparsity", PURPOSE).phases(config.sparsity, total)
    summary = _summary(config, dataset, total)
    if not args.reference:
        config.check_memory()
    if args.validate_only:
        return _say(args, {"valid": True, **summary})
    if args.compare < 0:
        raise ConfigError(f"{args.compare} iterations", where="--compare", value=args.compare, hint="0 or more")
    if args.reference and args.trace in LEVELS:
        raise ConfigError("numpy has no events to record", where="--trace", hint="without --reference")
    if args.compare and (args.reference or source):
        raise ConfigError(
            "compares wafers with numpy from the first iteration on",
            where="--compare",
            hint="without --reference and --resume",
        )
    out = _directory(args, config, source)
    with make_progress(args.progress) as progress, contextlib.ExitStack() as stack:
        progress.phase("compile")
        record = None
        if not args.compile_only:
            stack.enter_context(alone(out))
            _nothing_in_the_way(out)
            folder = _folder(config, out)
            if folder.resolve() != out.resolve():  # a lock of this process would keep this process out
                stack.enter_context(alone(folder, "another checkpoint.directory"))
        if not (args.reference or args.compile_only):
            meta = need("harness.train.outcome", PURPOSE).meta_of(config, config.build_machine(), _words(args, config))
            record = stack.enter_context(recorder(args, out / "run.h5", meta))
        trainer = _trainer(config, args.reference)
        if args.compile_only:
            if not args.reference:
                summary["words_per_iteration"] = trainer.system.coordinator.script("train").n_words
            return _say(args, {"compiled": True, **summary})
        run = _Run(args, config, trainer, source, out)
        progress.phase(f"train {config.name} on {_where(args, config)}")
        status = run.train(stop, progress)
        if not status:
            progress.phase("test")
            summary["test_accuracy"] = trainer.evaluate(dataset.x_test, dataset.y_test)
        shown = args.report if args.report is not None else not status and trainer.iteration - run.first >= SHORT
        result = {**summary, **run.result(shown)}
        if record is not None and run.trainer.iteration > run.first:
            names = need("harness.train.outcome", PURPOSE).write(out, trainer, run.log.rows, result, record, shown)
            result["files"] += [str(out / name) for name in names]
    if args.json:
        _say(args, result)
    else:
        print(_report(result))
    if status:
        print(f"wse: interrupted after iteration {trainer.iteration}; go on with: {run.command()}", file=sys.stderr)
        return status
    return 1 if result.get("bit_exact") is False else 0


def _directory(args, config, source):
    """Return the directory of the run: that of the run that goes on, if its checkpoint lies there, or runs/NAME."""
    if args.out:
        return Path(args.out)
    if source and source.parent.name == FOLDER:
        return source.parent.parent
    return Path("runs", config.name)


def _folder(config, out):
    """Return the directory of the checkpoints of a run."""
    return Path(config.checkpoint.directory) if config.checkpoint.directory else out / FOLDER


def _nothing_in_the_way(out):
    """Raise `ConfigError` if a file of the run cannot get its name, which would else be found out at the end."""
    for name in ("log.jsonl", "loss.csv", "loss.png", "run.h5", "report.html"):
        if (out / name).is_dir():
            raise ConfigError("is in the way: a directory", where=out / name, hint="another directory with --out")


def _words(args, config):
    """Return what to type after ``wse`` for this run."""
    name = args.config or (config.source if Path(config.source).exists() else config.name)
    words = ["train", str(name), "--wafers", str(config.wafers)]
    for name in ("iterations", "compare"):
        if getattr(args, name):
            words += [f"--{name}", str(getattr(args, name))]
    return shlex.join(words)


def _config(args, source):
    """Return the configuration: that of the file, or without one that of the checkpoint."""
    module = need("harness.train.config", PURPOSE)
    if args.config is None and source:
        stored = _stored(source)[2]
        config = module.parse_train(stored["text"], stored["source"]).override(stored["wafers"])
        args.reference = args.reference or stored["reference"]
    else:
        config = module.load_train(args.config or "digits")
    return config.override(args.wafers)


def _same(one, other):
    """Whether two names are of one directory."""
    return one.resolve() == other.resolve()


def _library():
    return need("harness.train.checkpoint", PURPOSE)


def _checkpoint(name):
    """Return the checkpoint that ``--resume`` means: a directory of one, of several, or of a run."""
    path, library = Path(name), _library()
    if (path / "manifest.json").exists() or path.name.startswith("iteration-"):
        return path
    folder = path if library.found(path) else path / FOLDER
    newest = library.latest(folder)
    if not newest:
        raise CheckpointError("there is no checkpoint", path=path)
    if newest != library.found(folder)[-1]:
        print(f"wse: warning: {library.found(folder)[-1]} is damaged; {newest.name} is used", file=sys.stderr)
    return newest


def _stored(path, digest=None):
    """Return (tensors, state of the trainer, what is needed to read the configuration) of a checkpoint."""
    number, tensors, state = _library().load(path, digest)
    try:
        trainer, config = state["trainer"], state["config"]
        known = trainer["iteration"] == number and all(
            type(config[key]) is kind
            for key, kind in (("text", str), ("source", str), ("wafers", int), ("reference", bool))
        )
    except (KeyError, TypeError):
        known = False
    if not known:
        raise CheckpointError("is no checkpoint of `wse train`", path=path, hint="another one")
    return tensors, trainer, config


def _trainer(config, reference):
    """Return what trains, compiled."""
    if reference:
        return need("harness.train.plain", PURPOSE).PlainTrainer.of(config)
    trainer = need("harness.train.trainer", PURPOSE).Trainer(config)
    trainer.compile()
    return trainer


def _where(args, config):
    if args.reference:
        return "the host"
    return f"{config.wafers} wafer{'s' * (config.wafers > 1)} of {config.mesh.width} x {config.mesh.height} PEs"


def _summary(config, dataset, total):
    """Return what a configuration asks for."""
    return {
        "name": config.name,
        "features": list(config.widths),
        "dtype": config.dtype,
        "wafers": config.wafers,
        "mesh": [config.mesh.width, config.mesh.height],
        "batch": config.data.batch,
        "density": config.sparsity.density,
        "train_samples": len(dataset.x_train),
        "test_samples": len(dataset.x_test),
        "iterations": total,
    }


def _say(args, result):
    """Print a result; return 0."""
    if args.json:
        print_json(result)
    else:
        print(table(((key.replace("_", " "), _text(value)) for key, value in result.items())))
    return 0


def _report(r):
    """Return the result of a run as text."""
    rows = [
        ("network", f"{' - '.join(map(str, r['features']))} features, {r['dtype']}, density {r['density']:g}"),
        (
            "training",
            f"{r['done']:,} of {r['iterations']:,} iterations of {r['batch']:,} samples, loss "
            + ("none" if r["loss"] is None else f"{r['loss']:.4g}")
            + (f", {r['skipped']} left out for overflow" if r["skipped"] else ""),
        ),
    ]
    if "test_accuracy" in r:
        rows.append(("accuracy", f"{100 * r['test_accuracy']:.2f} % of {r['test_samples']:,} samples not trained on"))
    if "cycles" in r:
        rows += [
            ("wafers", f"{r['wafers']} with {r['mesh'][0]} x {r['mesh'][1]} PEs each"),
            (
                "cycles",
                f"{r['cycles']:,}, {1e3 * r['simulated_seconds']:.3f} ms on the wafers, "
                f"{r['samples_per_simulated_second']:,.0f} samples/s",
            ),
        ]
    if "bit_exact" in r:
        rows += [
            (
                "bit-exact",
                f"{'yes' if r['bit_exact'] else 'NO'}: weights and losses of {r['compared_iterations']} "
                "iterations against numpy in the order of the wafers",
            ),
            (
                "against numpy",
                f"as one writes it, other order of additions: losses within "
                f"{r['loss_distance_to_numpy']:.2g}, weights within {100 * r['weight_distance_to_numpy']:.2g} % of "
                "how far they moved",
            ),
        ]
    rows.append(("host", f"{r['host_seconds']:.1f} s"))
    if "checkpoint" in r:
        rows.append(("checkpoint", r["checkpoint"]))
    rows.append(("files", ", ".join(r["files"])))
    made = [Path(name) for name in r["files"]]
    record = next((path for path in made if path.name == "run.h5"), None)
    if record is not None and not any(path.name == "report.html" for path in made):
        rows.append(("report", f"not made of so short a run; {shlex.join(['wse', 'report', str(record)])} makes one"))
    return table(rows)


def _text(value):
    """Return one value of a result for people."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


class _Run:
    """A run in its directory: log, checkpoints, interruption."""

    def __init__(self, args, config, trainer, source, out):
        self.args, self.config, self.trainer, self.out = args, config, trainer, out
        self.folder = _folder(config, out)
        self.digest = config.fingerprint() + "-reference" * args.reference
        self.saved = self.tested = None
        self.interrupted, self.started = False, time.perf_counter()
        library = _library()
        if source:
            trainer.restore(*_stored(source, self.digest)[:2])
        others = [] if source and _same(source.parent, self.folder) else library.found(self.folder)
        if others and not args.overwrite:
            raise ConfigError(
                "has checkpoints of another run",
                where=self.folder,
                hint=f"--resume {self.folder}, --overwrite, or another directory with --out",
            )
        with staged_directory(self.folder):
            pass  # whether it can be written is better known before hours of training than after them
        self.first = trainer.iteration
        self.comparison = self.verdict = None
        if args.compare:
            self.comparison = need("harness.train.compare", PURPOSE).Comparison(trainer)
        self.log = need("harness.train.record", PURPOSE).Log(self.out, trainer.iteration)
        library.remove(others)

    def train(self, stop, progress):
        """Train until so many iterations are done; return the exit status."""
        restore = self._catch()
        try:
            while self.trainer.iteration < stop and not self.interrupted:
                self._step(stop, progress)
        finally:
            for number, handler in restore.items():
                signal.signal(number, handler)
            self.log.close()
        if self.interrupted or (self.config.checkpoint.interval and self.saved != self.trainer.iteration):
            self.save()
        return 130 if self.interrupted else 0

    def _step(self, stop, progress):
        """Run one iteration, with what belongs to it."""
        trainer, config = self.trainer, self.config
        step, tested = trainer.step(), {}
        if not math.isfinite(step.loss):
            raise TrainingError(
                f"the loss is {step.loss}",
                iteration=step.iteration,
                layer=trainer.culprit(),
                cause="numbers too large for 16 bits",
                hint="a smaller learning rate, or dtype cb16",
            )
        if config.train.evaluate and step.iteration % config.train.evaluate == 0:
            data = trainer.dataset
            tested["test_accuracy"] = self.tested = trainer.evaluate(data.x_test, data.y_test)
        if self.comparison and step.iteration <= self.args.compare:
            tested["numpy_loss"] = self.comparison.step(step)
            if step.iteration == min(self.args.compare, stop):
                self.verdict = self.comparison.verdict()
        row = self.log.add(step, **tested)
        left = (stop - step.iteration) * row["host_seconds"]
        if step.iteration == self.first + 1 and left > LONG and self.args.progress is not False:
            more = f"{stop - step.iteration:,} iterations"
            print(f"wse: about {left:,.0f} s for {more}; Ctrl-C ends with a checkpoint", file=sys.stderr, flush=True)
        progress.update(step.iteration, stop, **self._facts(row))
        if config.checkpoint.interval and step.iteration % config.checkpoint.interval == 0:
            self.save()

    def _facts(self, row):
        """Return what the line of progress shows."""
        known = {"tested": self.tested, **row}
        shown = {key: known[key] for key in ("loss", "accuracy", "tested", "cycles") if known.get(key) is not None}
        if "cycles" in row:
            shown["samples/s"] = self.config.data.batch * row["iteration"] / row["simulated_seconds"]
            shown["host cycles/s"] = row["cycles"] / row["host_seconds"]
        else:
            shown["host samples/s"] = self.config.data.batch / row["host_seconds"]
        return shown

    def _catch(self):
        """Let the first Ctrl-C end the loop after its iteration; return the handler to put back."""

        def handle(number, frame):
            self.interrupted = True
            signal.signal(number, signal.default_int_handler)
            print("wse: finishing the iteration; Ctrl-C again stops at once", file=sys.stderr)

        if threading.current_thread() is not threading.main_thread():
            return {}
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script: Ctrl-C is not for it
            return {}
        return {signal.SIGINT: signal.signal(signal.SIGINT, handle)}

    def save(self):
        """Write a checkpoint."""
        config, (tensors, state) = self.config, self.trainer.state()
        file = Path(config.source)
        stored = {
            "text": config.text,
            "source": str(file.resolve() if file.exists() else file),
            "wafers": config.wafers,
            "reference": self.args.reference,
        }
        self.last = _library().save(
            self.folder,
            self.trainer.iteration,
            tensors,
            {"trainer": state, "config": stored},
            self.digest,
            config.checkpoint.keep,
        )
        self.saved = self.trainer.iteration

    def command(self):
        """Return the command that goes on from here."""
        words = ["wse", "train", "--resume", str(self.last)]
        return shlex.join([*words, "--out", str(self.out)] if self.out != self.last.parent.parent else words)

    def result(self, figure):
        """Return what the run gave, and write its table, with or without its figure."""
        rows, config = self.log.rows, self.config
        last = rows[-1] if rows else {}
        found = {
            "done": self.trainer.iteration,
            "from_iteration": self.first,
            "loss": last.get("loss"),
            "skipped": self.trainer.iteration - self.trainer.updates,
        }
        if "cycles" in last:
            found |= {
                "cycles": self.trainer.cycles,
                "simulated_seconds": last["simulated_seconds"],
                "samples_per_simulated_second": config.data.batch * last["iteration"] / last["simulated_seconds"],
            }
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
        title = f"{config.name} on {_where(self.args, config)}, {config.dtype}"
        return found | {"files": self.log.finish(title, figure)}
