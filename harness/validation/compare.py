"""Published cycle counts against this model: points, comparison, summary.

A *point* is one published measurement: what ran, with which parameters, how many cycles it took, and who says so.
``harness/validation/calibration.json`` holds the known ones; a file of the same form can take its place.  Each point
names its *recipe* (`harness.validation.programs`), which rebuilds the program and runs it; recipes never see the
published count.

Every point ends in one `Row`: measured, or skipped with the reason.  The criteria (`MEAN_LIMIT`, `WORST_LIMIT`) hold
for all measured rows except those of `UNJUDGED` kinds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources

from harness.kit.modules import need
from wse_core.errors import ConfigError, WseError

__all__ = [
    "MEAN_LIMIT",
    "QUICK",
    "UNJUDGED",
    "WORST_LIMIT",
    "Row",
    "load_points",
    "markdown",
    "select",
    "summarise",
    "validate",
]

MEAN_LIMIT, WORST_LIMIT = 0.04, 0.10
"""Largest mean and largest single relative error of a validation that passes."""

UNJUDGED = ("formula", "llm-kernel")
"""Kinds that are listed and not judged: formulas are models themselves; times of two digits at an unknown clock."""

MAX_BYTES = 1 << 24
REQUIRED = {"id": str, "kind": str, "recipe": str, "params": dict}
OPTIONAL = (
    "workload",
    "cycles",
    "source",
    "exactness",
    "generation",
    "platform",
    "run",
    "notes",
    "published_value",
    "published_unit",
    "clock_ghz",
    "gcell_per_s",
    "cycles_wse3",
    "cycles_at_0p85_ghz",
    "cycles_at_1p1_ghz",
)
QUICK = (
    "SUMMA-P32-T4",
    "MATVEC-N10",
    "MATVEC-N25x1",
    "RED-CHAIN512",
    "STEN1-3",
    "STENT-R1-1x1",
    "STENT-R2-2x2",
    "STEN25-T3-NZ100",
    "FMULS-1028-A",
    "FMACS-TRACE-1",
    "FMACS-TRACE-2",
    "SUMSIM-DC-SEND196",
    "SPMM-CSC-08",
    "FORM-CHAIN",
)
"""Points of the quick run."""


@dataclass(frozen=True)
class Row:
    """One point compared.

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

    @property
    def counts(self):
        """Whether the criteria look at this row."""
        return self.error is not None and self.kind not in UNJUDGED


def load_points(path=None):
    """Return the points of a file as a list of dicts; those that come with the package if `path` is None.

    Raises
    ------
    ConfigError
        The file is not JSON of the right form; the message names the point and the key.
    """
    if path is None:
        where, text = (
            "calibration.json",
            resources.files("harness.validation").joinpath("calibration.json").read_text("utf-8"),
        )
    else:
        where = str(path)
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise ConfigError(f"longer than {MAX_BYTES} bytes, certainly not a list of points", where=where)
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"not a text file: {error.reason}", where=where) from None
    try:
        points = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}", where=where) from None
    if not isinstance(points, list):
        raise ConfigError("expected a list of points", where=where)
    seen = set()
    for k, point in enumerate(points):
        _check(point, f"{where}: point {k + 1}")
        if point["id"] in seen:
            raise ConfigError(f"two points have the id {point['id']!r}", where=where)
        seen.add(point["id"])
    return points


def _check(point, where):
    """Refuse a point of another form."""
    if not isinstance(point, Mapping):
        raise ConfigError("a point is a table of keys and values", where=where)
    for key, kind in REQUIRED.items():
        if key not in point:
            raise ConfigError(f"the key {key!r} is missing", where=where, hint="every point has " + ", ".join(REQUIRED))
        if not isinstance(point[key], kind):
            raise ConfigError(f"{key}: expected a {kind.__name__}, got {point[key]!r}", where=where)
        if key != "params":
            where = f"{where.split(' (')[0]} ({point['id']})" if key == "id" else where
    for key in point:
        if key not in REQUIRED and key not in OPTIONAL:
            raise ConfigError(f"unknown key {key!r}", where=where, hint="known: " + ", ".join((*REQUIRED, *OPTIONAL)))
    cycles = point.get("cycles")
    if cycles is not None and (
        isinstance(cycles, bool) or not isinstance(cycles, (int, float)) or not math.isfinite(cycles) or cycles <= 0
    ):
        raise ConfigError(f"cycles: expected a positive number or null, got {cycles!r}", where=where)


def select(points, kinds=(), recipes=(), ids=None):
    """Return the points of the given kinds, recipes and ids (all, where nothing is given).

    Raises
    ------
    ConfigError
        No point has such a kind or recipe.
    """
    for key, wanted in (("kind", kinds), ("recipe", recipes)):
        known = sorted({point[key] for point in points})
        for word in wanted:
            if word not in known:
                raise ConfigError(f"no point has the {key} {word!r}", hint="known: " + ", ".join(known))
    return [
        point
        for point in points
        if (not kinds or point["kind"] in kinds)
        and (not recipes or point["recipe"] in recipes)
        and (ids is None or point["id"] in ids)
    ]


def validate(points, machine, progress):
    """Run the recipes of all points.

    Parameters
    ----------
    points : list[dict]
    machine : Machine
    progress : harness.kit.console.Progress

    Returns
    -------
    list[Row]
    """
    registry = need("harness.validation.registry", "the command `wse validate`")
    rows = []
    progress.phase(f"{len(points)} published points")
    for k, point in enumerate(points):
        progress.update(k, len(points), point=point["id"])

        def tell(text, point=point, k=k):
            progress.update(k, len(points), point=point["id"], at=text)

        rows.append(_compare(registry, machine, point, tell))
    progress.update(len(points), len(points))
    return rows


def _compare(registry, machine, point, tell):
    """Return the row of one point."""
    fixed = {"id": point["id"], "kind": point["kind"], "recipe": point["recipe"], "source": point.get("source", "")}
    published = point.get("cycles") or point.get("cycles_at_0p85_ghz")
    entry = registry.RECIPES.get((point["recipe"], point["kind"]))
    if entry is None:
        return Row(
            **fixed, published=published, reason=f"no recipe {point['recipe']} for points of kind {point['kind']}"
        )
    blind = {key: point[key] for key in ("id", "kind", "recipe", "workload", "params") if key in point}
    blind["params"] = {k: v for k, v in point["params"].items() if k not in ("values", "min", "max")}
    started = time.perf_counter()
    try:
        outcome = entry.function(machine, blind, tell)
    except registry.CannotRun as refusal:
        return Row(**fixed, published=published, reason=str(refusal))
    except ConfigError as refusal:
        return Row(**fixed, published=published, reason=f"parameters: {refusal}")
    except WseError as failure:
        raise type(failure)(f"point {point['id']}: {failure}") from failure
    seconds = time.perf_counter() - started
    measured = float(outcome.cycles)
    reference = outcome.reference if outcome.reference is not None else published
    fixed |= {"measured": measured, "published": reference, "method": outcome.method, "seconds": seconds}
    if reference is None:
        return Row(**fixed, reason="measured, but the source gives no cycle count")
    error = (measured - reference) / reference
    low, high = point.get("cycles_at_0p85_ghz"), point.get("cycles_at_1p1_ghz")
    return Row(**fixed, error=error, low=point["params"].get("min", low), high=point["params"].get("max", high))


def summarise(rows):
    """Return what a list of rows amounts to.

    Returns
    -------
    dict
        ``points``, ``compared``, ``skipped``, ``mean_absolute_error``, ``worst`` (id and error), ``over_limit``
        (ids), ``passed``, and ``kinds``: the same per kind.
    """
    total = _summary(rows)
    total["kinds"] = {
        kind: _summary([row for row in rows if row.kind == kind]) for kind in dict.fromkeys(row.kind for row in rows)
    }
    counted = _summary([row for row in rows if row.counts])
    total |= {key: counted[key] for key in ("mean_absolute_error", "worst", "over_limit")}
    mean = total["mean_absolute_error"]
    total["passed"] = mean is None or (mean <= MEAN_LIMIT and not total["over_limit"])
    return total


def _summary(rows):
    compared = [row for row in rows if row.error is not None]
    errors = [abs(row.error) for row in compared]
    worst = max(compared, key=lambda row: abs(row.error), default=None)
    return {
        "points": len(rows),
        "compared": len(compared),
        "skipped": len(rows) - len(compared),
        "mean_absolute_error": sum(errors) / len(errors) if errors else None,
        "worst": None if worst is None else {"id": worst.id, "error": worst.error},
        "over_limit": [row.id for row in compared if abs(row.error) > WORST_LIMIT],
    }


def as_data(rows):
    """Return rows as plain data for JSON."""
    return [asdict(row) for row in rows]


def markdown(rows):
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
    lines += ["", "| point | measured | published | error | method | source |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.error is not None:
            lines.append(
                f"| {row.id} | {row.measured:.0f} | {row.published:.10g} | {_percent(row.error, sign=True)} | "
                f"{row.method} | {_cell(row.source)} |"
            )
    reasons = {}
    for row in rows:
        if row.error is None:
            reasons.setdefault(row.reason, []).append(row.id)
    if reasons:
        lines += ["", "| not compared | points |", "|---|---|"]
        lines += [f"| {_cell(reason)} | {', '.join(ids)} |" for reason, ids in reasons.items()]
    return "\n".join(lines)


def _cell(text):
    """Return a text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _percent(value, sign=False):
    return "-" if value is None else f"{100 * value:{'+' if sign else ''}.1f} %"
