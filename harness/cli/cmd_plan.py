"""``wse plan`` tells what training or answering needs in compute, memory, links and time; published tables;
schedules.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from harness.cli.completion import complete_by, complete_list, complete_numbers
from harness.cli.shared import add_format
from harness.config.assignments import parse_assignments
from harness.config.machine import of_words
from harness.kit.console import make_progress, print_json, table
from harness.kit.files import write_picture, write_table
from harness.kit.staging import staged_directory
from harness.plan.hardware import find_hardware
from harness.plan.models import PRESETS, find_model
from harness.plan.registry import STRATEGIES, PlanRequest
from harness.plan.strategies import gpu_days
from harness.plan.units import DAY, amount, printed, span
from wse_core.errors import ConfigError, UnsupportedError, WseError
from wse_core.numbers import DEFAULT_PRESET
from wse_core.numbers import PRESETS as MACHINES
from wse_core.schema import Field, suggestion

__all__ = ["add_parser", "main"]

DEVICES = Field("devices", int, low=1, high=10**12)
LENGTH = Field("tokens", int, low=1, high=10**7, unit="tokens")
WAFERS = Field("wafers", int, low=1, high=10_000)
BATCH = Field("batch", int, low=1, high=10_000)
SIDE = Field("side", int, low=1, high=65535, unit="PEs")
DAYS = Field("days", float, low=1e-6, high=1e9, unit="days")

SHAPE = {
    "layers": 16,
    "count": 4,
    "devices": 4,
    "partitioned": False,
    "forward": 1.0,
    "recompute": 1.0,
    "gradient": 2.0,
    "restore": 0.0,
    "reduce": 0.0,
    "transfer": 0.0,
}


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "plan",
        parents=[common],
        help="what a training run needs in compute, memory, links and time",
        description=f"Plan the training of a model. Models: {', '.join(PRESETS)}, X<even number>, FILE.toml. "
        f"Strategies: {', '.join(STRATEGIES)}.",
    )
    model = parser.add_argument("model", nargs="?", metavar="MODEL", help="name or TOML file of a model")
    complete_by(model, _models)
    parser.add_argument("--hardware", metavar="H", default="a100", help="a100, cs2 or a TOML file (default: a100)")
    parser.add_argument("--network", metavar="LINK", help="link between nodes, for example ethernet")
    parser.add_argument(
        "--strategy",
        metavar="S",
        action="append",
        default=[],
        help="may be repeated (default: baseline, partitioned, improved, streaming; with --degree without the last)",
    )
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--devices", metavar="N", help="best use of at most N devices")
    goal.add_argument("--days", metavar="D", help="fewest devices that train within D days")
    parser.add_argument(
        "--degree",
        metavar="key=value",
        action="append",
        default=[],
        help="fix a degree: micro, count, data, pipeline, tensor of a search; data, tensor, pipeline, shard, batch of "
        "strategies that store weights; may be repeated",
    )
    parser.add_argument(
        "--rules", action="store_true", help="search by the rules of the paper, as its tables do, not everything"
    )
    parser.add_argument("--schedule", metavar="KIND", help="simulate standard, layered or modular instead")
    preset = parser.add_argument("--preset", help=f"machine to start from (default: {DEFAULT_PRESET})")
    complete_by(preset, lambda args: MACHINES)
    numbers = parser.add_argument(
        "--set",
        metavar="key=value",
        action="append",
        default=[],
        dest="shape",
        help=f"of a wafer: machine.plan.cores and other modelled numbers; of a schedule: {', '.join(SHAPE)}",
    )
    complete_numbers(numbers)
    inference = parser.add_argument_group("inference", "what answering takes instead, by a model composed of parts")
    inference.add_argument(
        "--inference", action="store_true", help="plan a request; MODEL is a preset or a directory of the hub's layout"
    )
    inference.add_argument(
        "--mesh",
        metavar="WxH",
        help="PEs of a region of decode (default: the equal part of a wafer on which one user is fastest)",
    )
    inference.add_argument("--wafers", metavar="N", help="on which regions of decode lie (default: 1)")
    inference.add_argument("--prefill-mesh", metavar="WxH", help="PEs of prefill (default: those of decode)")
    inference.add_argument(
        "--prompt-length", metavar="S", help="tokens in (default: half of the context, at most 4096)"
    )
    inference.add_argument(
        "--reused", metavar="R", help="also: the first R tokens in are there, since another request began with them"
    )
    inference.add_argument("--tokens", metavar="T", help="tokens out (default: 128)")
    kept = "what keys and values are kept as (default: f16): of memory, and of the decoder that runs here"
    inference.add_argument("--cache-dtype", choices=("f16", "int8"), help=kept)
    inference.add_argument("--batch", metavar="B", help="also: requests whose tokens a step takes together")
    parser.add_argument(
        "--layer-level",
        action="store_true",
        help="beside a plan by weight streaming: what the model that follows the programs of the PEs says, and why",
    )
    parser.add_argument("--reproduce", action="store_true", help="print every published cell and what is derived")
    drawn = parser.add_argument("--figures", metavar="NAME,...", help="write these published figures, or all")
    complete_list(drawn, _figure_names)
    parser.add_argument("--out", metavar="DIR", help="directory for figures and timelines")
    add_format(parser)
    return parser


def _figure_names() -> list[str]:
    from harness.plan.figures import NAMES

    return [*NAMES, "all"]


def _models(args: argparse.Namespace) -> list[str]:
    """Return names of models that fit to what is asked."""
    if getattr(args, "inference", False):
        from harness.models.presets import PRESETS as DECODERS

        return list(DECODERS)
    return [*PRESETS, "X160"]


def main(args: argparse.Namespace) -> int | None:
    """Do one of the five things."""
    if args.inference:
        return _inference(args)
    chosen = [name for name in ("reproduce", "figures", "schedule", "model") if getattr(args, name)]
    if len(chosen) != 1:
        raise ConfigError(
            "exactly one is needed of MODEL, --schedule, --figures and --reproduce",
            where="wse plan",
            hint="for example: wse plan X160, or wse plan --reproduce",
        )
    about = ("mesh", "prefill_mesh", "prompt_length", "tokens", "wafers", "batch", "reused", "cache_dtype")
    only = [name for name in about if getattr(args, name) is not None]
    if only:
        raise ConfigError("says something about inference", where=f"--{only[0].replace('_', '-')}", hint="--inference")
    if args.preset is not None and chosen != ["model"]:
        raise ConfigError("starts no machine here", where="--preset", hint="with MODEL only")
    return {"reproduce": _reproduce, "figures": _figures, "schedule": _schedule, "model": _plan}[chosen[0]](args)


def _inference(args: argparse.Namespace) -> int:
    """Plan the inference of one model."""
    from harness.inference.fleet import fastest_mesh
    from harness.inference.report import described, planned
    from harness.models.hub import find_decoder

    if not args.model:
        raise ConfigError("--inference needs a model", where="wse plan", hint="wse plan LLaMA3-8B --inference")
    machine = of_words(args.preset or DEFAULT_PRESET, args.shape)
    name, decoder = find_decoder(args.model)
    wafers = 1 if args.wafers is None else WAFERS.parse(args.wafers, "--wafers")
    mesh = None if args.mesh is None else _mesh(args.mesh, "--mesh")
    first = mesh if args.prefill_mesh is None else _mesh(args.prefill_mesh, "--prefill-mesh")
    prompt = (
        max(1, min(4096, decoder.context // 2))
        if args.prompt_length is None
        else LENGTH.parse(args.prompt_length, "--prompt-length")
    )
    tokens = (
        max(1, min(128, decoder.context - prompt)) if args.tokens is None else LENGTH.parse(args.tokens, "--tokens")
    )
    if mesh is None:
        mesh = fastest_mesh(machine, decoder, min(prompt + tokens, decoder.context), wafers)
    batch = None if args.batch is None else BATCH.parse(args.batch, "--batch")
    reused = 0 if args.reused is None else LENGTH.parse(args.reused, "--reused")
    facts = planned(
        machine, name, decoder, mesh, first or mesh, prompt, tokens, wafers, batch, reused, args.cache_dtype == "int8"
    )
    print_json(facts) if args.json else print(described(facts))
    return 0


def _mesh(text: str, where: str) -> tuple[int, int]:
    """Return what WxH means."""
    width, cross, height = text.partition("x")
    if not cross:
        raise ConfigError(f"{text!r} is no mesh", where=where, hint="WxH, for example 360x360")
    return SIDE.parse(width, where), SIDE.parse(height, where)


def _plan(args: argparse.Namespace) -> int | None:
    """Plan one model under each strategy; one that is impossible says why and does not stop the others."""
    numbers = of_words(args.preset or DEFAULT_PRESET, args.shape)
    model, hardware = find_model(args.model), find_hardware(args.hardware, numbers)
    if args.network:
        hardware = hardware.with_network(args.network)
    stored = ["baseline", "partitioned", "improved"] if "node" in hardware.links else []
    wanted = args.strategy or ([*stored, "streaming"] if not args.degree else stored or ["streaming"])
    devices = None if args.devices is None else DEVICES.parse(args.devices, "--devices")
    limit = None if args.days is None else DAYS.parse(args.days, "--days")
    request = PlanRequest(model, hardware, numbers, devices, limit, tuple(args.degree), args.rules)
    for name in wanted:
        if name not in STRATEGIES:
            raise ConfigError(f"no strategy {name!r}", hint=suggestion(name, STRATEGIES))
    plans, faults = [], []
    first: WseError | None = None
    for name in wanted:
        try:
            plans.append(STRATEGIES[name](request, name))
        except (ConfigError, UnsupportedError) as error:
            if len(wanted) == 1:
                raise
            first = first or error
            faults.append({"strategy": name, "impossible": str(error)})
    if not plans and first is not None:
        raise first
    other = _layer_level(request, plans) if args.layer_level else {}
    facts: dict[str, Any] = {
        "model": model.name,
        "parameters": model.parameters,
        "critical_batch": model.critical_batch,
        "gpu_days": gpu_days(model, hardware),
        "hardware": hardware.name,
    }
    if args.json:
        print_json(facts | {"plans": plans, "impossible": faults} | ({"layer_level": other} if other else {}))
        return 0
    print(
        f"{model.name}: {printed(model.parameters)} parameters, critical batch {printed(model.critical_batch)} "
        f"sequences, {printed(facts['gpu_days'])} device days on {hardware.name} at full rate"
    )
    for plan in plans:
        print(f"\n{plan['strategy']}\n{table([(k, _shown(k, v)) for k, v in plan.items() if k != 'strategy'], '  ')}")
    for fault in faults:
        print(f"\n{fault['strategy']}\n  impossible: {fault['impossible']}")
    if other:
        from harness.plan.levels import paragraph

        print("\n" + textwrap.fill(paragraph(other), 100))
    return 0


def _layer_level(request: PlanRequest, plans: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the layer-level model says of the plan by weight streaming."""
    from harness.plan.levels import levels

    planned = next((plan for plan in plans if plan["strategy"].startswith("streaming")), None)
    if planned is None:
        raise ConfigError(
            "only plans by weight streaming have layers that wafers stream",
            where="--layer-level",
            hint="--strategy streaming",
        )
    return levels(request.model, request.numbers, planned)


def _shown(key: str, value: Any) -> str:
    """Return a fact with its unit."""
    if key.startswith(("memory", "traffic of")):
        return amount(value, binary=True)
    if key in ("bytes", "service"):
        return amount(value)
    if key in ("compute", "traffic", "seconds"):
        return span(value)
    if key == "days":
        return span(value * DAY)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _schedule(args: argparse.Namespace) -> int | None:
    """Simulate one schedule; with --out also write picture, table and Perfetto trace."""
    from harness.plan.figures import draw_timeline
    from harness.plan.perfetto import write_timeline
    from harness.plan.schedules import Schedule, simulate

    values: dict[str, Any] = {"layers": 16, "count": 4, "devices": 1 if args.schedule == "layered" else 4}
    for key, text in parse_assignments(args.shape, "--set").items():
        if key not in SHAPE:
            raise ConfigError(f"unknown key {key!r} of a schedule", where="--set", hint=suggestion(key, SHAPE))
        values[key] = Field(key, type(SHAPE[key])).parse(text, f"--set {key}")
    timeline = simulate(Schedule(args.schedule, **values))
    files = []
    if args.out:
        with staged_directory(args.out) as stage:
            write_table(stage / "timeline.csv", [vars(s) for s in timeline.spans])
            write_picture(
                stage / f"timeline.{args.format}",
                lambda figure: draw_timeline(figure.subplots(), args.schedule, timeline),
            )
            write_timeline(timeline, stage / "timeline.perfetto-trace")
        files = [str(Path(args.out) / f"timeline.{end}") for end in ("csv", args.format, "perfetto-trace")]
    facts = {"schedule": args.schedule, **values, **timeline.summary()}
    if args.json:
        print_json(facts | {"files": files})
    else:
        print(table([(key, _shown("", value)) for key, value in facts.items()]))
        print("".join(f"written: {file}\n" for file in files), end="")
    return 0


def _figures(args: argparse.Namespace) -> int | None:
    """Write published figures as PNG and CSV."""
    from harness.plan.figures import NAMES, figure

    names = NAMES if args.figures == "all" else args.figures.split(",")
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"no figure {name!r}", where="--figures", hint=suggestion(name, [*NAMES, "all"]))
    target = args.out or "."
    with make_progress(args.progress) as progress, staged_directory(target) as stage:
        progress.phase("figures")
        for done, name in enumerate(names):
            progress.update(done, len(names), figure=name)
            rows, draw = figure(name)
            write_table(stage / f"{name}.csv", rows)
            write_picture(stage / f"{name}.{args.format}", draw)
    files = [str(Path(target) / f"{name}.{end}") for name in names for end in (args.format, "csv")]
    if args.json:
        print_json({"files": files})
    else:
        print("".join(f"written: {file}\n" for file in files), end="")
    return 0


def _reproduce(args: argparse.Namespace) -> int | None:
    """Print every published cell; return 1 if one that can be derived is off."""
    from harness.plan.reproduce import outcomes

    found = outcomes()
    off = [outcome for outcome in found if outcome.verdict == "off"]
    counts = {verdict: sum(o.verdict == verdict for o in found) for verdict in ("ok", "misprint", "off")}
    if args.json:
        print_json({"cells": [outcome.as_dict() for outcome in found], "counts": counts})
        return 1 if off else 0
    print(f"{'table':<10}{'row':<45}{'column':<19}{'printed':>10}{'derived':>13}{'error':>11}  verdict")
    for outcome in found:
        cell = outcome.cell
        note = f" ({cell.note})" if cell.note else ""
        print(
            f"{cell.paper + ' ' + cell.table:<10}{cell.row:<45}{cell.column:<19}{cell.text:>10}"
            f"{outcome.derived:>13.5g}{outcome.error:>+11.2%}  {outcome.verdict}{note}"
        )
    print(f"{counts['ok']} cells derived, {counts['misprint']} misprints, {counts['off']} off")
    return 1 if off else 0
