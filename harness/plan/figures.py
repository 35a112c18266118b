"""The published plots are drawn from the planner's own values, each with the same values as rows.

=========  ======================================================  ==========================================
figure     shows                                                   from
=========  ======================================================  ==========================================
ws3-ws5    rate, memory and link bandwidth of five models          `costs`
lga1       standard and layered accumulation                       `schedules`
lga2       the same with partitioned state                         `schedules`
lga3       standard and modular pipeline                           `schedules`
lga4       memory and time over size, nodes of 16 devices          `sweep`
lga5       the same, nodes of any size                             `sweep`
lga6       memory over compute for training in a month             `sweep`
lga7       intensity of offloading state and checkpoints           `strategies`, `sweep`
lga8       memory and time over Ethernet                           `sweep`
=========  ======================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from harness.plan import approaches, sweep
from harness.plan.hardware import A100, Device
from harness.plan.models import PRESETS, TransformerSizes
from harness.plan.schedules import COMPUTE, NETWORK, Schedule, ScheduleTimeline, simulate
from harness.plan.strategies import intensities
from harness.plan.units import GIB
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

__all__ = ["NAMES", "draw_timeline", "figure", "timelines"]

Row: TypeAlias = dict[str, Any]
Drawn: TypeAlias = tuple[list[Row], Callable[[Any], None]]
"""A figure is given by its numbers, and by what draws them into one of Matplotlib."""

SHADES = {"forward": 0.9, "recompute": 0.7, "gradient": 0.5}
STREAMED = ("gpt2-xl", "megatron-8.3b", "turing-nlg", "gpt-3", "megatron-turing")
METHODS = ("baseline", "partitioned", "improved")


def timelines(name: str) -> list[tuple[str, ScheduleTimeline]]:
    """Return [(title, ScheduleTimeline)] of Figure 1, 2 or 3."""
    shapes = {
        "lga1": [Schedule(kind, 4, 4, reduce=6.0) for kind in ("standard", "layered")],
        "lga2": [Schedule(kind, 4, 4, partitioned=True, restore=1.0, reduce=1.0) for kind in ("standard", "layered")],
        "lga3": [Schedule(kind, 16, 4, 4, reduce=6.0) for kind in ("standard", "modular")],
    }[name]
    return [(f"{shape.kind}, {shape.devices} device{'s' * (shape.devices > 1)}", simulate(shape)) for shape in shapes]


def draw_timeline(axes: Any, title: str, timeline: ScheduleTimeline) -> None:
    """Draw compute and network of each device; the color is the layer, the shade the pass, the number the micro-batch.

    Only a timeline of few steps gets numbers.
    """
    from matplotlib import colormaps

    chosen, layers = colormaps["viridis"], timeline.schedule.layers
    spans = timeline.of(*COMPUTE, *NETWORK)
    for span in spans:
        row = 2 * span.device + (span.kind in NETWORK)
        color = chosen(span.layer / max(1, layers - 1))
        axes.barh(
            row,
            span.end - span.start,
            left=span.start,
            height=0.8,
            color=color,
            edgecolor="white",
            linewidth=0.3,
            alpha=SHADES.get(span.kind, 0.8),
            hatch="//" if span.kind in NETWORK else None,
        )
        if len(spans) < 120 and span.kind != "recompute":
            text = span.kind[:3] if span.kind in NETWORK else str(span.micro)
            axes.text((span.start + span.end) / 2, row, text, ha="center", va="center", fontsize=5)
    names = [f"{what} {device}" for device in range(timeline.schedule.devices) for what in ("compute", "network")]
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.invert_yaxis()
    axes.set_title(
        f"{title}: bubble {timeline.bubble:.4g}, exposed {timeline.exposed:.4g}, overlap {timeline.overlap:.0%}",
        fontsize=8,
    )
    axes.set_xlim(0, timeline.end)


def _timeline_figure(name: str) -> Drawn:
    pairs = timelines(name)
    rows = [
        {
            "schedule": title,
            "device": s.device,
            "kind": s.kind,
            "layer": s.layer,
            "micro": s.micro,
            "start": s.start,
            "end": s.end,
        }
        for title, timeline in pairs
        for s in timeline.of(*COMPUTE, *NETWORK)
    ]

    def draw(picture: Any) -> None:
        for axes, (title, timeline) in zip(picture.subplots(len(pairs), 1), pairs, strict=True):
            draw_timeline(axes, title, timeline)

    return rows, draw


def _lines(
    picture: Any,
    rows: Sequence[Row],
    panels: Sequence[tuple[str, str]],
    methods: Iterable[str],
    limits: Sequence[tuple[str, str, float]] = (),
) -> None:
    """Draw one panel per key over the number of parameters, a line per method, dashed horizontal limits."""
    for axes, (key, label) in zip(np.atleast_1d(picture.subplots(1, len(panels))), panels, strict=True):
        for method in methods:
            mine = [row for row in rows if row["method"] == method]
            axes.loglog([row["parameters"] for row in mine], [row[key] for row in mine], label=method)
        for name, panel, value in limits:
            if panel == key:
                axes.axhline(value, linestyle="--", linewidth=0.8, color="grey", label=name)
        axes.set_xlabel("parameters")
        axes.set_ylabel(label)
        axes.legend(fontsize=6)


def _sweep_figure(hardware: Device, methods: Sequence[str] = METHODS, extra: Iterable[Row] = ()) -> Drawn:
    rows = sweep.sweep(hardware, methods, 1e9, 1e17, 41)
    rows += [row | {"method": f"{row['method']}, InfiniBand"} for row in extra]
    panels = [("resident_gib", "not offloadable [GiB]"), ("offloadable_gib", "offloadable [GiB]"), ("days", "days")]
    limits = [
        ("device", "resident_gib", hardware.memory / GIB),
        ("device", "offloadable_gib", hardware.memory / GIB),
        ("month", "days", sweep.MONTH),
        ("year", "days", sweep.YEAR),
    ]
    names = list(dict.fromkeys(row["method"] for row in rows))
    return rows, lambda picture: _lines(picture, rows, panels, names, limits)


def _ratio_figure() -> Drawn:
    sizes = np.geomspace(1e9, 1e16, 36).tolist()
    rows = [sweep.month_ratio(size, A100, method) for method in METHODS for size in sizes]
    panels = [
        ("resident", "not offloadable [bytes per op/s]"),
        ("offloadable", "offloadable [bytes per op/s]"),
        ("resident_now", "not offloadable, A100 as is"),
        ("offloadable_now", "offloadable, A100 as is"),
    ]
    limits = [("A100", key, A100.memory / A100.flops) for key, _ in panels]
    return rows, lambda picture: _lines(picture, rows, panels, METHODS, limits)


def _offload_figure() -> Drawn:
    rows = []
    for method in METHODS:
        for size in np.geomspace(1e9, 1e17, 41).tolist():
            model = sweep.smooth_model(size)
            config = sweep.continuous(model, A100, method)
            need = intensities(model, config)
            rows.append(
                {
                    "parameters": size,
                    "method": method,
                    "state": need["state"],
                    "checkpoint": need["checkpoint"],
                    "state_gib_s": A100.flops / need["state"] / GIB,
                    "checkpoint_gib_s": A100.flops / need["checkpoint"] / GIB,
                }
            )
    panels = [
        ("state", "state [op/B]"),
        ("checkpoint", "checkpoints [op/B]"),
        ("state_gib_s", "state [GiB/s]"),
        ("checkpoint_gib_s", "checkpoints [GiB/s]"),
    ]
    limits = [
        (link, key, A100.threshold(link))
        for key in ("state", "checkpoint")
        for link in ("cpu", "nvme", "ethernet", "disk")
    ]
    return rows, lambda picture: _lines(picture, rows, panels, METHODS, limits)


def _bars(key: str, label: str, value: Callable[[TransformerSizes], float]) -> Drawn:
    rows = [{"model": name, key: value(PRESETS[name])} for name in STREAMED]

    def draw(picture: Any) -> None:
        axes = picture.subplots()
        axes.bar([row["model"] for row in rows], [row[key] for row in rows])
        axes.set_yscale("log")
        axes.set_ylabel(label)

    return rows, draw


def _ethernet_figure() -> Drawn:
    slow = A100.with_network("ethernet")
    return _sweep_figure(slow, (*METHODS, "improved-whole"), sweep.sweep(A100, METHODS, 1e9, 1e17, 41))


_FIGURES: dict[str, Callable[[], Drawn]] = {
    "ws3": lambda: _bars("ops_per_second", "operations per second for one week", approaches.target_rate),
    "ws4": lambda: _bars("bytes", "memory service [bytes]", approaches.service_bytes),
    "ws5": lambda: _bars("bits_per_second", "link, each direction [bit/s]", lambda m: 8 * approaches.link_rate(m)),
    "lga1": lambda: _timeline_figure("lga1"),
    "lga2": lambda: _timeline_figure("lga2"),
    "lga3": lambda: _timeline_figure("lga3"),
    "lga4": lambda: _sweep_figure(A100),
    "lga5": lambda: _sweep_figure(sweep.wide_node(A100)),
    "lga6": _ratio_figure,
    "lga7": _offload_figure,
    "lga8": _ethernet_figure,
}
NAMES = tuple(_FIGURES)


def figure(name: str) -> Drawn:
    """Return (rows, draw) of a figure; `draw` fills a matplotlib figure.

    Raises
    ------
    ConfigError
        No such figure.
    """
    if name not in _FIGURES:
        raise ConfigError(f"no figure {name!r}", hint=suggestion(name, NAMES))
    return _FIGURES[name]()
