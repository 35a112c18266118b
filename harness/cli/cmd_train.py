"""The command ``wse train [CONFIG.toml]`` trains a network by weight streaming on modelled wafers.

Files in the directory of the run: ``log.jsonl`` (a line per iteration), ``loss.csv``, ``loss.png``, ``run.h5``
(counters of the first wafer, phases), ``report.html``, and checkpoints below ``checkpoints/``.  Ctrl-C finishes the
iteration, writes a checkpoint and says how to go on; a second one stops at once.  Figure and report take longer to make
than a few iterations: without ``--report`` they are made of runs of at least `SHORT` iterations that come to their end.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli import train_project
from harness.cli.completion import complete_by, complete_paths
from harness.cli.shared import add_format
from harness.cli.tracing import add_options as add_trace_options
from harness.cli.tracing import recorder
from harness.cli.train_run import FOLDER, PURPOSE, TrainingRun, folder_of, library, place_of, read_checkpoint
from harness.kit.console import make_progress, print_json, table
from harness.kit.modules import need
from harness.kit.staging import alone
from traces.picture import FORMATS
from wse_core.errors import CheckpointError, ConfigError
from wse_core.events import LEVELS
from wse_core.numbers import PRESETS
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from harness.train.config import TrainConfig
    from harness.train.data import Dataset

__all__ = ["add_parser", "main"]

SHORT = 10
LASTING = 50
"""Iterations from which on it is worth some seconds to know what masks save."""
"""Runs of fewer iterations have neither figure nor report unless they are asked for."""
MOST = 6
"""A line has at most so many parts of a whole."""
WITHOUT_TRAINING = (
    *(
        "mode",
        "compiled",
        "iterations",
        "compare",
        "report",
        "save_weights",
        "save_onnx",
        "save_model",
        "ranks",
        "reference",
        "overwrite",
    ),
)
"""Options that have no use where nothing is trained."""
WITHOUT_WAFERS = ["mode", "compiled", "ranks", "compare", "compile_only", "trace_window"]
"""Options that have no use where numpy trains."""


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "train",
        parents=[common],
        help="train a network by weight streaming",
        description="Train the network that a TOML file describes, by weight streaming: memory service, reduction tree "
        "and wafers, cycle by cycle. Examples by name: digits (default), digits-sparse75, digits-sparse90, "
        "fc-mnist-shaped, chars, digits-bert, digits-cnn, digits-unet, pydoc.",
    )
    name = parser.add_argument("config", nargs="?", metavar="CONFIG.toml", help="configuration, or that of an example")
    complete_paths(name, _examples)
    parser.add_argument("--wafers", metavar="N", type=int, help="wafers, instead of what the file says")
    preset = parser.add_argument("--preset", help="machine to start from (default: the file's)")
    complete_by(preset, lambda args: PRESETS)
    keys = parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="set a key of the configuration or a modelled number, as in --set swarm.link.planes=4; may be repeated",
    )
    complete_by(keys, _keys)
    parser.add_argument(
        "--mode",
        choices=("auto", "pipelined", "streaming"),
        help="all layers on one wafer at once, weights streamed past, or what suits the network (default: the file's)",
    )
    parser.add_argument(
        "--compiled", metavar="FILE", help="run a pipelined network from what --compile-only wrote, without mapping"
    )
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
    _add_outputs(parser)
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="simulate the wafers on the ranks of an MPI run: mpiexec -n 2 python -m harness train ... --ranks",
    )
    parser.add_argument("--reference", action="store_true", help="train by plain numpy instead, for comparison")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--validate-only", action="store_true", help="check configuration and data, then stop")
    only.add_argument("--compile-only", action="store_true", help="place the network on its wafers, then stop")
    only.add_argument(
        "--project",
        metavar="N,N,...",
        help="do not train: say what the network reaches on so many systems, by the layer-level model, and its error "
        "where cycles can be simulated",
    )
    add_trace_options(parser)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of what a training leaves behind."""
    parser.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        help=f"make loss.png and report.html (default: of runs of at least {SHORT} iterations that come to their end)",
    )
    add_format(parser, "loss.png and project.png")
    parser.add_argument(
        "--save-weights", metavar="FILE", help="write the last weights, masks and optimizer state: .safetensors or .npz"
    )
    parser.add_argument(
        "--save-onnx",
        metavar="FILE",
        help="write the network with its last weights as an ONNX file: the one that it came from, or a new one",
    )
    parser.add_argument(
        "--save-model",
        metavar="DIR",
        help="write the last weights of a preset llama as a model that wse generate answers with",
    )


def _examples(args: argparse.Namespace) -> Sequence[str]:
    from harness.train.config import EXAMPLES

    return EXAMPLES


def _keys(args: argparse.Namespace) -> list[str]:
    """Return what ``--set`` takes: keys of the file outside of its lists of tables, and modelled numbers."""
    from harness.train.pipeline_support import SUPPORT

    keys = [key for key in SUPPORT if not key.startswith(("network.layers.", "network.nodes."))]
    return [f"{key}=" for key in dict.fromkeys([*keys, *PARAMETERS])]


def main(args: argparse.Namespace) -> int:
    """Check, compile and train; return 130 after Ctrl-C, else 0."""
    if not args.ranks:
        return _main(args)
    with need("swarm.crew", PURPOSE).crew() as first:
        return _main(args) if first else 0


def _main(args: argparse.Namespace) -> int:
    """Do what `main` says; with ranks on the first of them, the others simulate wafers for it."""
    source = _checkpoint(args.resume) if args.resume is not None else None
    if args.preset is not None:
        args.assignments.append(f"machine.preset={args.preset}")
    config = _config(args, source)
    _check(args, source)
    _warn(config.warnings)
    if args.save_model is not None:
        need("harness.cli.train_model", PURPOSE).check_speaks(config, args.save_model)
    if args.project is not None:
        config.check_memory()
        return train_project.run(args, config, _directory(args, config, source))
    dataset = config.dataset
    total = config.iterations(len(dataset.x_train))
    stop = total if args.iterations is None else args.iterations
    if not 1 <= stop <= total:
        raise ConfigError(
            f"{stop} iteration{'s' * (stop != 1)} of a run of {total}",
            where="--iterations",
            value=stop,
            hint="1 to that many; train.iterations makes the run longer",
        )
    need("harness.train.sparsity", PURPOSE).phases(config.sparsity, total)
    summary = _summary(config, dataset, total) | _choose(args, config, source)
    if args.mode == "streaming":
        config.check_memory()
    elif args.mode == "pipelined":
        need("harness.train.pipeline_config", PURPOSE).check_stop(config, stop, total)
    if args.validate_only:
        return _say(args, {"valid": True, **summary, **_kernels(config)})
    if args.reference:
        need("harness.train.plain", PURPOSE).check_memory(config)
    if args.mode == "streaming" and (args.compile_only or stop >= LASTING):
        _warn(need("harness.train.project", PURPOSE).idle_masks(config))
    if not args.json:
        print(f"mode: {_mode(summary)}", flush=True)
    with make_progress(args.progress) as progress, contextlib.ExitStack() as stack:
        progress.phase("compile")
        out = _directory(args, config, source)
        if args.compile_only:
            return _compile(args, config, summary, out)
        run, record = _prepare(args, config, source, out, stack)
        progress.phase(f"train {config.name} on {place_of(args, config)}")
        status = run.train(stop, progress)
        if not status:
            progress.phase("test")
            found = run.trainer.test(dataset.x_test, dataset.y_test)
            summary |= found.facts()
        result = _finish(args, run, record, summary, status)
    return _end(args, run, result, status)


def _check(args: argparse.Namespace, source: Path | None) -> None:
    """Refuse options that do not go together, before anything is read or made for them."""
    if args.compare < 0:
        raise ConfigError(f"{args.compare} iterations", where="--compare", value=args.compare, hint="0 or more")
    _refuse(args, WITHOUT_TRAINING, args.project is not None, "--project does not train", "--project")
    if args.reference and args.trace in LEVELS:
        raise ConfigError("numpy has no events to record", where="--trace", hint="without --reference")
    _refuse(args, WITHOUT_WAFERS, args.reference, "--reference trains by numpy, without wafers", "--reference")
    if args.reference and args.backend != "compiled":
        raise ConfigError("numpy has no engine", where="--backend", hint="without --reference")
    if args.save_weights is not None:
        need("harness.train.weights", PURPOSE).check_form(Path(args.save_weights))
    if args.save_onnx is not None:
        need("onnx", "--save-onnx")
    if args.compare and source:
        raise ConfigError(
            "compares wafers with numpy from the first iteration on", where="--compare", hint="without --resume"
        )


def _refuse(args: argparse.Namespace, names: Sequence[str], when: bool, why: str, without: str) -> None:
    """Refuse options that were given, by their names in `args`."""
    for name in names if when else ():
        if getattr(args, name) not in (None, False, 0):
            raise ConfigError(why, where=f"--{name.replace('_', '-')}", hint=f"without {without}")


def _choose(args: argparse.Namespace, config: TrainConfig, source: Path | None) -> dict[str, str]:
    """Decide between the modes, in `args.mode` from here on; return what is said of it."""
    module = need("harness.train.mode", PURPOSE)
    args.asked = args.mode
    if args.mode is None and source is not None and not args.reference:
        args.mode = read_checkpoint(source)[2].get("mode")
    chosen = module.REFERENCE if args.reference else module.choose(config, args.mode)
    args.mode = chosen.mode
    if args.compiled is not None and chosen.mode != "pipelined":
        raise ConfigError("only pipelined networks are run from a file", where="--compiled", hint="--mode pipelined")
    if args.ranks and chosen.mode == "pipelined":
        raise ConfigError(
            "ranks have wafers past which weights are streamed", where="--ranks", hint="--mode streaming, or no --ranks"
        )
    _warn(module.unused(config, chosen.mode))
    return {"mode": chosen.mode, "because": chosen.reason}


def _warn(texts: Sequence[str]) -> None:
    """Print warnings on standard error, a line each."""
    for text in texts:
        print(f"wse: warning: {text}", file=sys.stderr)


def _mode(summary: Mapping[str, Any]) -> str:
    """Return the mode of a run and the reason as text."""
    return f"{summary['mode']} ({summary['because']})"


def _kernels(config: TrainConfig) -> dict[str, Any]:
    """Return which kernels do what of a network, a layer each."""
    if config.network.nodes:  # what weight streaming does not do has been refused
        return {"kernels": [f"{node.op}: {node.name}" for node in config.graph.nodes], "unsupported": []}
    kernels = need("fabric.networks.pipelined.kernels", PURPOSE)
    found = kernels.matched(config.build_network()) if config.dtype != "bf16" else None
    if found is None:
        return {}
    return {
        "kernels": [f"{name}: {' '.join(parts)}" for name, parts in found.kernels],
        "unsupported": found.unsupported,
    }


def _compile(args: argparse.Namespace, config: TrainConfig, summary: dict[str, Any], out: Path) -> int:
    """Place the network, say so and stop."""
    trainer = _trainer(config, args)
    if args.mode == "pipelined":
        digest = need("harness.train.pipelined", PURPOSE).config_digest(config)
        file = out / "pipeline.json"
        made = need("harness.train.artefact", PURPOSE).write(file, digest, trainer.compile().pipeline)
        summary |= {"compiled_to": str(file), "digest": made.digest}
    else:
        summary["words_per_iteration"] = trainer.compile().coordinator.script("train").n_words
    return _say(args, {"compiled": True, **summary})


def _prepare(
    args: argparse.Namespace, config: TrainConfig, source: Path | None, out: Path, stack: contextlib.ExitStack
) -> tuple[TrainingRun, Any]:
    """Return the run with its directories locked by `stack`, and what records it, None without wafers."""
    stack.enter_context(alone(out))
    _nothing_in_the_way(out)
    folder = folder_of(config, out)
    if folder.resolve() != out.resolve():  # a lock of this process would keep this process out
        stack.enter_context(alone(folder, "another checkpoint.directory"))
    record = None
    if not args.reference:
        meta = need("harness.train.outcome", PURPOSE).meta_of(config, config.build_machine(), _words(args, config))
        record = stack.enter_context(recorder(args, out / "run.h5", meta))
    return TrainingRun(args, config, _trainer(config, args), source, out), record


def _finish(
    args: argparse.Namespace, run: TrainingRun, record: Any, summary: Mapping[str, Any], status: int
) -> dict[str, Any]:
    """Write table, figure, run file and report; return the result."""
    trained = run.trainer.iteration - run.first
    shown = args.report if args.report is not None else not status and trained >= SHORT
    result = {**summary, **run.result(shown)}
    if args.save_weights is not None:
        run.trainer.save_weights(args.save_weights)
        result["files"].append(args.save_weights)
    if args.save_onnx is not None:
        run.trainer.save_onnx(args.save_onnx)
        result["files"].append(args.save_onnx)
    if args.save_model is not None:
        speaking = need("harness.cli.train_model", PURPOSE)
        speaking.save_language_model(args.save_model, run.trainer.config, run.trainer.tensors(), result)
        result["files"].append(args.save_model)
    if record is not None and trained > 0:
        outcome = need("harness.train.outcome", PURPOSE)
        names = outcome.write(run.out, run.trainer, run.log.rows, result, record, shown)
        result["files"] += [str(run.out / name) for name in names]
    return result


def _end(args: argparse.Namespace, run: TrainingRun, result: dict[str, Any], status: int) -> int:
    """Print the result of a run; return the exit status."""
    if args.json:
        _say(args, result)
    else:
        print(_report(result))
    if status:
        print(f"wse: interrupted after iteration {run.trainer.iteration}; {run.continued()}", file=sys.stderr)
        return status
    return 1 if result.get("bit_exact") is False else 0


def _directory(args: argparse.Namespace, config: TrainConfig, source: Path | None) -> Path:
    """Return the directory of the run: that of the run that goes on, if its checkpoint lies there, or runs/NAME."""
    if args.out:
        return Path(args.out)
    if source and source.parent.name == FOLDER:
        return source.parent.parent
    return Path("runs", config.name)


def _nothing_in_the_way(out: Path) -> None:
    """Raise `ConfigError` if a file of the run cannot get its name, which would else be found out at the end."""
    for name in ("log.jsonl", "loss.csv", *(f"loss.{form}" for form in FORMATS), "run.h5", "report.html"):
        if (out / name).is_dir():
            raise ConfigError("is in the way: a directory", where=out / name, hint="another directory with --out")


def _words(args: argparse.Namespace, config: TrainConfig) -> str:
    """Return what to type after ``wse`` for this run."""
    name = args.config or (config.source if Path(config.source).exists() else config.name)
    words = ["train", str(name), "--wafers", str(config.wafers)]
    for name in ("iterations", "compare"):
        if getattr(args, name):
            words += [f"--{name}", str(getattr(args, name))]
    words += ["--mode", args.asked] if args.asked else []
    words += [part for word in config.assignments for part in ("--set", word)]
    return shlex.join(words)


def _config(args: argparse.Namespace, source: Path | None) -> TrainConfig:
    """Return the configuration: that of the file, or without one that of the checkpoint."""
    module = need("harness.train.config", PURPOSE)
    if args.config is None and source:
        stored = read_checkpoint(source)[2]
        words = [*(word for word in stored["set"] if not _set_again(word, args.assignments)), *args.assignments]
        config = module.parse_train(stored["text"], stored["source"], words).override(stored["wafers"])
        args.reference = args.reference or stored["reference"]
    else:
        config = module.load_train(args.config or "digits", args.assignments)
    return config.override(args.wafers)


def _set_again(word: str, later: Sequence[str]) -> bool:
    """Return whether a word ``key=value`` has its key among later words."""
    return word.partition("=")[0].strip() in {other.partition("=")[0].strip() for other in later}


def _checkpoint(name: str) -> Path:
    """Return the checkpoint that ``--resume`` means: a directory of one, of several, or of a run."""
    path, checkpoints = Path(name), library()
    if (path / "manifest.json").exists() or path.name.startswith("iteration-"):
        return path
    folder = path if checkpoints.found(path) else path / FOLDER
    newest = checkpoints.latest(folder)
    if not newest:
        raise CheckpointError("there is no checkpoint", path=path)
    if newest != checkpoints.found(folder)[-1]:
        print(f"wse: warning: {checkpoints.found(folder)[-1]} is damaged; {newest.name} is used", file=sys.stderr)
    return newest


def _trainer(config: TrainConfig, args: argparse.Namespace) -> Any:
    """Return what trains, compiled."""
    if args.reference:
        return need("harness.train.plain", PURPOSE).PlainTrainer(config)
    if args.mode == "pipelined":
        pipelined = need("harness.train.pipelined", PURPOSE).PipelinedTrainer(config, compiled=args.compiled)
        pipelined.compile()
        return pipelined
    trainer = need("harness.train.trainer", PURPOSE).Trainer(config)
    trainer.compile()
    return trainer


def _summary(config: TrainConfig, dataset: Dataset, total: int) -> dict[str, Any]:
    """Return what a configuration asks for."""
    return {
        "name": config.name,
        "features": list(config.widths),
        "dtype": config.dtype,
        "preset": config.build_machine().preset,
        "wafers": config.wafers,
        "mesh": [config.mesh.width, config.mesh.height],
        "column_groups": config.mesh.column_groups,
        "batch": config.data.batch,
        "density": config.density,
        "train_samples": len(dataset.x_train),
        "test_samples": len(dataset.x_test),
        "iterations": total,
    }


def _say(args: argparse.Namespace, result: Mapping[str, Any]) -> int:
    """Print a result; return 0."""
    if args.json:
        print_json(result)
    else:
        print(table(((key.replace("_", " "), _text(value)) for key, value in result.items())))
    return 0


def _report(r: Mapping[str, Any]) -> str:
    """Return the result of a run as text."""
    rows = [
        ("network", f"{' - '.join(map(str, r['features']))} features, {r['dtype']}, density {r['density']:.4g}"),
        ("mode", _mode(r)),
        (
            "training",
            f"{r['done']:,} of {r['iterations']:,} iteration{'s' * (r['iterations'] > 1)} of "
            f"{r['batch']:,} samples, loss "
            + ("none" if r["loss"] is None else f"{r['loss']:.4g}")
            + (f", {r['skipped']} left out for overflow" if r["skipped"] else ""),
        ),
    ]
    if "test_loss" in r:
        held_out = f"{r['test_samples']:,} samples not trained on"
        right = f"{100 * r['test_accuracy']:.2f} % of " if "test_accuracy" in r else ""
        rows.append(("accuracy" if right else "held out", f"{right}{held_out}, loss {r['test_loss']:.4g}"))
    if "cycles" in r:
        rows += [
            ("wafers", f"{r['wafers']} with {r['mesh'][0]} x {r['mesh'][1]} PEs each" + _grouped(r["column_groups"])),
            (
                "cycles",
                f"{r['cycles']:,}, {1e3 * r['simulated_seconds']:.3f} ms on the wafers, {r['test_cycles']:,} of them "
                f"for tests; {r['samples_per_simulated_second']:,.0f} samples/s in training",
            ),
            *(_streamed(r) if "would_save" in r else [("pipeline", _pipeline(r["pipeline"]))]),
        ]
    if "bit_exact" in r:
        rows += [
            (
                "bit-exact",
                f"{'yes' if r['bit_exact'] else 'NO'}: weights and losses of {r['compared_iterations']} "
                f"iteration{'s' * (r['compared_iterations'] != 1)} against numpy in the order of the wafers",
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


def _pipeline(facts: Mapping[str, Any]) -> str:
    """Return how a pipeline filled, how fast it was then and what slowed it down."""
    if not facts:
        return "nothing was trained"
    steady = facts["steady_cycles_per_minibatch"]
    then = f"then one of {facts['minibatch']} samples every {steady:,.0f}" if steady else "one minibatch a run"
    busy = ", ".join(f"{name} {100 * share:.0f} %" for name, share in facts["utilisation"].items())
    return (
        f"first minibatch after {facts['fill_cycles']:,} cycles, {then}; updates {facts['updates']}; "
        f"slowest: {facts['slowest']} (busiest PE of {busy})"
    )


def _grouped(groups: int) -> str:
    """Return how many groups of columns share the samples, if there are several."""
    return f", in {groups} groups of columns" if groups > 1 else ""


def _waited(r: Mapping[str, Any]) -> str:
    """Return how long wafers waited, and what would have made an iteration faster, the most first."""
    parts = sorted(r["would_save"].items(), key=lambda item: -item[1])
    told = ", ".join(f"{name}: -{share:.1%}" for name, share in parts if share >= 0.001)
    return f"{r['lost_cycles']:,} cycles; bottleneck: {r['bottleneck']}" + (
        f" ({told} of an iteration)" if told else ""
    )


def _streamed(r: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the clock of a system that streams weights says about time and bytes."""
    return [
        ("phases", _shares(r["stages"])),
        ("waited", _waited(r)),
        ("bytes", _shares(r["traffic_bytes"], f"{sum(r['traffic_bytes'].values()):,}; ")),
        ("columns", "at work {least:.1%} to {most:.1%} of the cycles".format(**r["column_utilisation"])),
        ("system", _numbers(r["numbers"])),
    ]


def _shares(parts: Mapping[str, float], before: str = "") -> str:
    """Return the shares of some parts of a whole, the largest first."""
    whole = sum(parts.values()) or 1
    told = [f"{name}: {part / whole:.0%}" for name, part in sorted(parts.items(), key=lambda item: -item[1])]
    return before + "; ".join(told[:MOST]) + (f"; and {len(told) - MOST} more" if len(told) > MOST else "")


def _numbers(numbers: Mapping[str, Any]) -> str:
    """Return the numbers of memory service and tree that are not those of the table."""
    changed = {name: value for name, value in numbers.items() if value != PARAMETERS[name].value}
    told = ", ".join(f"{name} {value:,g} {PARAMETERS[name].unit}" for name, value in changed.items())
    return told or "memory service and tree as wse doctor --assumptions lists them"


def _text(value: Any) -> str:
    """Return one value of a result for people."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
