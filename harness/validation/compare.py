"""Published points are set against this model: comparison, criteria, summary, tables.

Each point (`harness.validation.points`) names its *recipe* (`harness.validation.recipe`), which rebuilds the program
and runs it; recipes never see the published count.  Every point ends in one `ComparedPoint`: measured, or skipped and
why; one whose cycles on the WSE-3 are known too ends in two.  The criteria (`MEAN_LIMIT`, `WORST_LIMIT`) hold for all
measured rows except those of `UNJUDGED` kinds and of other generations than the WSE-2: those run on the preset of their
generation (`of_generation`), whose numbers are known in part only, and have limits of their own (`OTHER_LIMITS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.kit.console import Progress
from harness.kit.modules import need
from harness.validation.points import assumptions, generations, program_params, published_cycles
from harness.validation.recipe import Point, Recipe, Tell
from wse_core.errors import ConfigError, WseError
from wse_core.params import PARAMETERS, Machine
from wse_core.params import machine as preset
from wse_core.schema import suggestion

__all__ = [
    "CS2_2023",
    "MEAN_LIMIT",
    "OTHER_LIMITS",
    "PLATFORMS",
    "UNJUDGED",
    "WORST_LIMIT",
    "ComparedPoint",
    "markdown",
    "of_platform",
    "summarise",
    "validate",
]

MEAN_LIMIT, WORST_LIMIT = 0.03, 0.1
"""A validation passes with at most this mean and this single relative error."""

OTHER_LIMITS = (0.05, 0.12)
"""Points of other generations have these limits; each generation is judged by itself."""

UNJUDGED = ("formula", "llm-kernel")
"""Kinds that are listed and not judged: formulas are models themselves; times of two digits at an assumed clock."""

JUDGED = "WSE-2"
"""The criteria are about this generation."""

PRESETS = {"WSE-2": "wse2", "WSE-3": "wse3"}
"""Each generation that a point may name has this preset."""

CS2_2023 = "hardware (CS-2 of 2023)"

PLATFORMS: dict[str, dict[str, Any]] = {CS2_2023: {"vec.mac_late": 3, "vec.fill_late": 114, "tsc.own": 1520}}
"""Numbers of a platform that differ from those of its generation, unless they were changed by whoever asks."""


@dataclass(frozen=True)
class ComparedPoint:
    """A `ComparedPoint` is one point compared.

    Attributes
    ----------
    id, kind, recipe, source : str
        As the point says.
    published, measured : float or None
        Cycles; None if not published or not run.
    error : float or None
        ``measured / published - 1``.
    low, high : float or None
        Range that the source itself gives for the point, if it does.
    method : str
        How the recipe came to its figure.
    reason : str
        Why there is no comparison; empty if there is one.
    seconds : float
        Host time.
    generation : str
        As the point says.
    assumed : str
        What the source leaves open and the comparison assumes; empty if nothing.
    platform : str
        Where the point was measured: vendor's simulator, silicon, or a model.
    """

    id: str
    kind: str
    recipe: str
    source: str
    published: float | None = None
    measured: float | None = None
    error: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    reason: str = ""
    seconds: float = 0.0
    generation: str = JUDGED
    assumed: str = ""
    platform: str = ""

    @property
    def counts(self) -> bool:
        """This says whether the criteria look at the row."""
        return self.error is not None and self.kind not in UNJUDGED and self.generation == JUDGED


def validate(
    points: Sequence[Point], machine: Machine, progress: Progress, find: Callable[[Point], Recipe | None] | None = None
) -> list[ComparedPoint]:
    """Run the recipes of all points.

    Parameters
    ----------
    points : list[dict]
    machine : Machine
    progress : harness.kit.console.Progress
    find : callable, optional
        Returns the recipe of a point, or None; without it they are those of the registry.

    Returns
    -------
    list[Row]
    """
    registry = need("harness.validation.registry", "the command `wse validate`")
    rows = []
    points = [each for point in points for each in generations(point)]
    progress.phase(f"{len(points)} published points")
    for k, point in enumerate(points):
        progress.update(k, len(points), point=point["id"])

        def tell(text: str, point: Point = point, k: int = k) -> None:
            progress.update(k, len(points), point=point["id"], at=text)

        entry = find(point) if find else registry.RECIPES.get((point["recipe"], point["kind"]))
        rows.append(_compare(registry, entry, machine, point, tell))
    progress.update(len(points), len(points))
    return rows


def _compare(registry: Any, entry: Recipe | None, machine: Machine, point: Point, tell: Tell) -> ComparedPoint:
    """Return the row of one point."""
    fixed = {key: point[key] for key in ("id", "kind", "recipe")}
    fixed |= {"source": point.get("source", ""), "generation": point.get("generation", JUDGED)}
    fixed |= {"assumed": assumptions(point), "platform": point.get("platform") or ""}
    published = published_cycles(point)
    if entry is None:
        return ComparedPoint(
            **fixed, published=published, reason=f"no recipe {point['recipe']} for points of kind {point['kind']}"
        )
    blind: Point = {key: point[key] for key in ("id", "kind", "recipe", "workload", "params") if key in point}
    blind["params"] = program_params(point)
    started = time.perf_counter()
    try:
        entry.admit(blind["params"])
        ran = of_platform(of_generation(machine, fixed["generation"]), fixed["platform"])
        outcome = entry.function(ran, blind, tell)
    except registry.CannotRun as refusal:
        return ComparedPoint(**fixed, published=published, reason=str(refusal))
    except ConfigError as refusal:
        return ComparedPoint(**fixed, published=published, reason=f"parameters: {refusal}")
    except WseError as failure:
        raise type(failure)(f"point {point['id']}: {failure}") from failure
    seconds = time.perf_counter() - started
    measured = float(outcome.cycles) + ran["tsc.own"]
    reference = outcome.reference if outcome.reference is not None else published
    fixed |= {"measured": measured, "published": reference, "method": outcome.method, "seconds": seconds}
    if reference is None:
        return ComparedPoint(**fixed, reason="measured, but the source gives no cycle count")
    error = (measured - reference) / reference
    low, high = (None, None) if fixed["assumed"] else (point.get("cycles_at_0p85_ghz"), point.get("cycles_at_1p1_ghz"))
    return ComparedPoint(
        **fixed, error=error, low=point["params"].get("min", low), high=point["params"].get("max", high)
    )


def of_generation(machine: Machine, generation: str) -> Machine:
    """Return the machine that a point of a generation runs on: its preset, with the numbers that were changed.

    A machine of another preset than the default is taken as it is.

    Raises
    ------
    ConfigError
        There is no preset for the generation.
    """
    if generation not in PRESETS:
        raise ConfigError(f"generation {generation!r}: there is no such machine", hint=suggestion(generation, PRESETS))
    default, wanted = preset(), PRESETS[generation]
    chosen = set(PRESETS.values()) - {default.preset}
    if wanted == default.preset or machine.preset in chosen:
        return machine
    changed = {name: machine[name] for name in PARAMETERS if machine[name] != default[name]}
    return preset(wanted, changed)


def of_platform(machine: Machine, platform: str) -> Machine:
    """Return the machine that a point of a platform runs on: with its numbers (`PLATFORMS`) that were not changed."""
    default = preset(machine.preset)
    own = PLATFORMS.get(platform, {})
    return machine.replace({name: value for name, value in own.items() if machine[name] == default[name]})


def summarise(rows: Sequence[ComparedPoint]) -> dict[str, Any]:
    """Return what a list of rows amounts to.

    Returns
    -------
    dict
        ``points``, ``compared``, ``skipped``, ``mean_absolute_error``, ``worst`` (id and error), ``over_limit``
        (ids), ``passed``, and ``kinds``: the same per kind; all of the WSE-2, if there is any such point.
        ``generations``: the same, and ``passed``, for each other generation; ``platforms``: for each platform of the
        judged rows.
    """
    mine = [row for row in rows if row.generation == JUDGED]
    others = [row for row in rows if row.generation != JUDGED]
    total = _summary(mine or rows)
    total["kinds"] = {
        kind: _summary([row for row in mine if row.kind == kind]) for kind in dict.fromkeys(row.kind for row in mine)
    }
    total["generations"] = {
        name: _summary([row for row in others if row.generation == name])
        for name in dict.fromkeys(row.generation for row in others)
    }
    for part in total["generations"].values():
        mean, worst = part["mean_absolute_error"], part["worst"]
        part["passed"] = worst is None or (mean <= OTHER_LIMITS[0] and abs(worst["error"]) <= OTHER_LIMITS[1])
    judged = [row for row in rows if row.counts]
    total["platforms"] = {
        name: _summary([row for row in judged if row.platform == name])
        for name in dict.fromkeys(row.platform for row in judged)
    }
    counted = _summary(judged)
    total |= {key: counted[key] for key in ("mean_absolute_error", "worst", "over_limit")}
    mean = total["mean_absolute_error"]
    if mean is None:  # nothing that is judged: then something else at least must have run
        total["passed"] = total["compared"] > 0
    else:
        total["passed"] = mean <= MEAN_LIMIT and not total["over_limit"]
    total["passed"] = total["passed"] and all(part["passed"] for part in total["generations"].values())
    return total


def _summary(rows: Sequence[ComparedPoint]) -> dict[str, Any]:
    compared = [(row, row.error) for row in rows if row.error is not None]
    errors = [abs(error) for _, error in compared]
    worst, error = max(compared, key=lambda pair: abs(pair[1]), default=(None, 0.0))
    return {
        "points": len(rows),
        "compared": len(compared),
        "skipped": len(rows) - len(compared),
        "mean_absolute_error": sum(errors) / len(errors) if errors else None,
        "worst": None if worst is None else {"id": worst.id, "error": error},
        "over_limit": [row.id for row, error in compared if abs(error) > WORST_LIMIT],
    }


def as_data(rows: Sequence[ComparedPoint]) -> list[dict[str, Any]]:
    """Return rows as plain data for JSON."""
    return [asdict(row) for row in rows]


def markdown(rows: Sequence[ComparedPoint]) -> str:
    """Return the comparison as Markdown: a summary per kind, all compared points, all skipped points by reason."""
    result = summarise(rows)
    lines = [
        f"{result['compared']} of {result['points']} points compared; mean absolute error "
        f"{_percent(result['mean_absolute_error'])}, worst {_percent(result['worst']['error'])} "
        f"({result['worst']['id']}), {len(result['over_limit'])} above {WORST_LIMIT:.0%}."
        if result["worst"]
        else "No point compared.",
        "",
        "| kind | compared | mean absolute error | worst |",
        "|---|---|---|---|",
    ]
    for kind, part in result["kinds"].items():
        if part["compared"]:
            lines.append(
                f"| {kind} | {part['compared']} of {part['points']} | {_percent(part['mean_absolute_error'])} "
                f"| {part['worst']['id']}: {_percent(part['worst']['error'], sign=True)} |"
            )
    for name, part in result["generations"].items():
        if part["compared"]:
            lines.append(
                f"| all on {name} | {part['compared']} of {part['points']} "
                f"| {_percent(part['mean_absolute_error'])} "
                f"| {part['worst']['id']}: {_percent(part['worst']['error'], sign=True)} |"
            )
    for name, part in result["platforms"].items():
        lines.append(
            f"| all by {_cell(name or 'an unnamed platform')} | {part['compared']} of {part['points']} "
            f"| {_percent(part['mean_absolute_error'])} "
            f"| {part['worst']['id']}: {_percent(part['worst']['error'], sign=True)} |"
        )
    lines += [
        "",
        "| point | here | simulator | silicon | model | error | method | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.error is not None:
            lines.append(
                f"| {row.id} | {row.measured:.0f} | {_columns(row)} | {_percent(row.error, sign=True)} | "
                f"{row.method}{'; assumed: ' + row.assumed if row.assumed else ''} | {_cell(row.source)} |"
            )
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.error is None:
            reasons.setdefault(row.reason, []).append(row.id)
    if reasons:
        lines += ["", "| not compared | points |", "|---|---|"]
        lines += [f"| {_cell(reason)} | {', '.join(ids)} |" for reason, ids in reasons.items()]
    return "\n".join(lines)


def _columns(row: ComparedPoint) -> str:
    """Return the three columns of published counts; a point has one, and counts as a model if it names no platform."""
    place = ["simulator", "hardware"]
    at = next((k for k, word in enumerate(place) if word in row.platform), 2)
    return " | ".join(f"{row.published:.10g}" if k == at else "" for k in range(3))


def _cell(text: str) -> str:
    """Return a text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _percent(value: float | None, sign: bool = False) -> str:
    return "-" if value is None else f"{100 * value:{'+' if sign else ''}.1f} %"
