"""A run, or several side by side, are shown as one self-contained HTML page.

The page loads nothing: style, tables and pictures are in it, and the page that plays the run back (`traces.page`), as
long as that is not large.  What it says comes from the run file alone, except for the names and sources of modelled
numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.report.facts import ENERGY, HOST, cycles_explained, headline, roofs, summary
from harness.report.markup import details, document, image, number, percent, share, table, text
from harness.report.player import player
from harness.report.side_by_side import HOST_SECTION, NUMBERS, SHARES, side_by_side
from traces import pictures
from traces.heatmap import heatmap, plane
from traces.line_cycles import NEEDED, line_cycles, line_table
from traces.meanings import of_result
from traces.naming import clean
from traces.style import COLOURS, USE_TEXT, integer_axes, new_figure, styled
from wse_core.counters import LIMITS, USES
from wse_core.params import PARAMETERS, PRESETS, machine

if TYPE_CHECKING:
    from harness.report.side_by_side import ComparedNumber
    from traces.marks import PhaseMark
    from traces.picture import Picture
    from traces.reader import RunFile
    from traces.trace import Trace

__all__ = ["compare", "drawn", "page"]

MOST_PHASES = 60
MOST_LINES = 40
MOST_SHOWN = 24
"""At most so many lines of a configuration are shown at once."""
TIMELINE_EVENTS = 200_000
FEWER = ("cycles", "run_cycles", "wavelet_hops", "energy", "loss", "max_abs_error", *HOST[:5])
"""Results of which less is better; of those in `MORE` more is."""
MORE = ("utilisation", "mac_utilisation", "accuracy", "test_accuracy", "samples_per_simulated_second", *HOST[5:])


def page(trace: Trace, interactive: bool = False) -> str:
    """Return the report of one run as HTML.

    Parameters
    ----------
    trace : Trace
    interactive : bool
        With the page that plays the run back, if the file has what it shows.
    """
    facts = summary(trace)
    body = [
        f"<h1>{text(facts['job'] or 'run')}</h1>",
        _status(facts),
        _headline(facts),
        *(f"<p>{text(words)}</p>" for words in (cycles_explained(facts),) if words),
        *_curves(trace.files[0]),
        "<h2>Where the cycles went</h2>",
        _uses(facts),
        *(image(picture.figure, says) for _, picture, says in drawn(trace)),
        *(player(trace) if interactive else ()),
        "<h2>Result</h2>",
        _results(facts["results"]),
        *_energy(facts["results"]),
        *_limits(facts["limits"]),
        "<h2>Busiest PEs and links</h2>",
        _busiest(facts),
    ]
    body += _lines(trace)
    if facts["roofline"]:
        body += ["<h2>Roofline</h2>", _roofline_picture(facts["roofline"], roofs(trace.meta.machine))]
    if facts["command"]:
        body += ["<h2>Run it again</h2>", f"<pre>{text(facts['command'])}</pre>"]
    body += _host(facts["results"])
    if trace.marks:
        body += ["<h2>Phases</h2>", _phases(trace.marks)]
    if trace.meta.config_toml:
        body += ["<h2>Configuration</h2>", _long(trace.meta.config_toml)]
    body += ["<h2>Modelled numbers</h2>", _assumptions(trace.meta.preset, trace.meta.machine)]
    return document(facts["job"], body)


def compare(*traces: Trace, paths: Sequence[Path] = ()) -> str:
    """Return the comparison of runs as HTML: what was changed, what that did to cycles and results, the host.

    Parameters
    ----------
    *traces : Trace
        Two or more; numbers are relative to the first.
    paths : sequence of Path
        What they were opened by; default: their files.

    Raises
    ------
    ConfigError
        Fewer than two, or the same file twice.
    """
    found = side_by_side(traces, paths)
    names = found.names
    title = f"{', '.join(names[:-1])} and {names[-1]}"
    same = "<p>Nothing: the same configuration, command, modelled numbers and version.</p>"
    sections = dict(found.sections)
    host = sections.pop(HOST_SECTION, [])
    shares = [(row.meaning, *map(share, row.values)) for row in sections.pop(SHARES, [])]
    body = [
        f"<h1>{text(title)}</h1>",
        *(f"<p class='bad'>{text(note)}</p>" for note in found.notes),
        table(("", *names), found.about),
        "<h2>What was changed</h2>",
        table(("key, option or modelled number", *names), found.changed) if found.changed else same,
        f"<h2>{NUMBERS}</h2>",
        _changes(sections.pop(NUMBERS, []), names),
        *((table(("results that are no numbers", *names), found.words),) if found.words else ()),
        "<h2>Where the cycles went</h2>",
        _accounts(found.facts, names),
        table(("of all PE-cycles", *names), shares, right=range(1, len(names) + 1)),
        *(part for heading, rows in sections.items() for part in (f"<h2>{text(heading)}</h2>", _changes(rows, names))),
        f"<h2>{HOST_SECTION}</h2>",
        _changes(host, names),
    ]
    lacks = [(name, ", ".join(what)) for name, what in zip(names, found.lacks, strict=True) if what]
    if lacks:
        body += ["<h2>What one lacks</h2>", table(("run", "does not have, and another one has"), lacks)]
    return document(title, body)


# --- parts ------------------------------------------------------------------------------------------------------------


def _lines(trace: Trace) -> list[str]:
    """Return the table of measured cycles by source line under its heading, if the file has events of operations."""
    if not trace.has_events or not set(NEEDED) <= set(trace.filter.kinds):
        return []
    heading, *rows = line_table(line_cycles(trace)[:MOST_LINES])
    return ["<h2>Measured cycles by source line</h2>", table(heading, rows, right=range(1, len(heading)))]


def _changes(rows: Sequence[ComparedNumber], names: Sequence[str]) -> str:
    """Return the table of numbers of runs and their changes, marked where less or more is known to be better."""
    lines = []
    for row in rows:
        changes = []
        for change in row.changes:
            look = ""
            if change and row.key in (*FEWER, *MORE):
                look = "good" if (change < 0) == (row.key in FEWER) else "bad"
            changes.append((percent(change), look))
        lines.append((row.meaning or row.key, row.key, row.unit, *map(number, row.values), *changes))
    heads = ["change"] if len(names) == 2 else [f"change, {name}" for name in names[1:]]
    return table(("", "", "unit", *names, *heads), lines, right=range(3, 3 + len(names) + len(heads)))


@styled
def _accounts(facts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Draw the mean account of a PE of each run, on one scale."""
    if not all(one["uses"] for one in facts):
        return ""
    figure = new_figure(7, 0.9 + 0.5 * len(facts))
    axes = figure.add_subplot()
    begin = np.zeros(len(facts))
    for use in USES:
        width = np.array([one["uses"].get(use, 0) * one["accounted"] for one in facts])
        if width.any():
            axes.barh(range(len(facts)), width, left=begin, color=COLOURS[use], label=USE_TEXT[use], height=0.7)
            begin += width
    axes.set(yticks=range(len(facts)), yticklabels=[clean(name) for name in names], xlabel="cycles of a PE, on average")
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1.1))
    return image(figure, f"Where the cycles of {', '.join(names)} went: bars on one scale, as in the table.")


def _headline(facts: Mapping[str, Any]) -> str:
    """Return the five numbers to read first."""
    look = {None: "", True: " class='good'", False: " class='bad'"}
    boxes = [f"<div><b{look[good]}>{text(value)}</b>{text(words)}</div>" for value, words, good in headline(facts)]
    return f"<div class='head'>{''.join(boxes)}</div>"


def _status(facts: Mapping[str, Any]) -> str:
    bits = [
        f"{facts['pes'][0]} x {facts['pes'][1]} PEs of {facts['preset']}",
        f"ended: {facts['status']}",
        f"wse-sim {facts['version']} {facts['commit'][:12]} ({facts['build_mode']})",
        facts["started"],
    ]
    return f"<p class='small'>{text(', '.join(bit for bit in bits if bit.strip()))}</p>"


def _results(results: Mapping[str, Any]) -> str:
    checks = []
    for key, meaning in (
        ("verified", "result verified"),
        ("bit_exact", "bit-exact against the reference order"),
        ("within_bound", "within the derived bound of numpy"),
    ):
        if key in results:
            good = bool(results[key])
            checks.append(f"<span class='{'good' if good else 'bad'}'>{meaning}: {'yes' if good else 'NO'}</span>")
    return f"<p>{' · '.join(checks)}</p>" + _meant([key for key in results if key not in (*HOST, *ENERGY)], results)


def _energy(results: Mapping[str, Any]) -> list[str]:
    """Return the table of energy by cause, each with its share."""
    whole = results.get("energy", 0)
    rows = [
        (of_result(key)[1], key, number(results[key]), f"{results[key] / whole:.1%}" if whole else "")
        for key in ENERGY[1:-1]
        if key in results
    ]
    if not rows:
        return []
    said = (
        f"{number(whole)} J, {number(results['average_power'])} W on average: counts of what was done, times modelled"
    )
    return [
        "<h2>Energy</h2>",
        f"<p>{said} numbers (<code>energy.*</code>).</p>",
        table(("", "name in the file", "J", "of all"), rows, right=(2, 3)),
    ]


def _host(results: Mapping[str, Any]) -> list[str]:
    """Return what the simulation took; nothing of that is a property of the machine."""
    keys = [key for key in HOST if key in results]
    return ["<h2>The host that simulated</h2>", _meant(keys, results)] if keys else []


def _meant(keys: Sequence[str], results: Mapping[str, Any]) -> str:
    """Return the table of some results: meaning, name in the file, value, unit."""
    rows, last = [], ""
    for key in keys:
        value, (unit, meaning) = results[key], of_result(key)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            shown = (value, "t") if isinstance(value, str) else number(value)
            said = meaning or key
            rows.append(("" if said == last else said, key, shown, "" if unit == "1" else unit))
            last = said
    return table(("", "name in the file", "", ""), rows, right=(2,))


def _uses(facts: Mapping[str, Any]) -> str:
    rows = [(USE_TEXT[name], f"{100 * share:.2f} %") for name, share in facts["uses"].items()]
    return table(("of all PE-cycles", ""), rows, right=(1,)) if rows else "<p>No counters were recorded.</p>"


def _limits(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of what limits the run, the bottleneck first."""
    rows = [
        (one["name"], LIMITS[one["name"]], one["where"], number(one["cycles"]), f"{one['share']:.0%}") for one in found
    ]
    heads = ("", "", "where", "cycles", "of the run")
    return ["<h2>What limits it</h2>", table(heads, rows, right=(3, 4))] if rows else []


def _busiest(facts: Mapping[str, Any]) -> str:
    busy = [(f"({pe['x']}, {pe['y']})", number(pe["busy"])) for pe in facts["busiest_pes"]]
    pes = table(("PE", "busy cycles"), busy, right=(1,))
    links = table(
        ("router", "from", "counter", "wavelets"),
        [
            (f"({link['x']}, {link['y']})", link["port"], link["counter"], number(link["wavelets"]))
            for link in facts["busiest_links"]
        ],
        right=(3,),
    )
    return pes + links


def _long(words: str) -> str:
    """Return a text of several lines, folded away if it would fill a screen."""
    inner = f"<pre tabindex='0'>{text(words)}</pre>"
    lines = words.count("\n")
    return inner if lines <= MOST_SHOWN else details(f"{lines} lines", inner)


def _assumptions(preset: str, numbers: Mapping[str, Any]) -> str:
    """Return the modelled numbers that are not those of the preset, and all of them folded away."""

    def shown(value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    usual = {name: shown(value) for name, value in (machine(preset) if preset in PRESETS else {}).items()}
    rows = [
        (name, shown(value), PARAMETERS[name].unit, PARAMETERS[name].confidence, PARAMETERS[name].source)
        for name, value in numbers.items()
        if name in PARAMETERS
    ]
    heads = ("name", "value", "unit", "confidence", "source")
    changed = [(name, value, usual[name], *more) for name, value, *more in rows if usual and usual[name] != value]
    said = (
        f"{len(changed) or 'None'} of {len(rows)} numbers {'is' if len(changed) == 1 else 'are'} not that of {preset}."
    )
    parts = [f"<p>{text(said)}</p>"] if usual else []
    parts += [table(("name", "value", f"of {preset}", *heads[2:]), changed)] if changed else []
    return "\n".join([*parts, details(f"All {len(rows)} numbers", table(heads, rows))])


def _phases(marks: Sequence[PhaseMark]) -> str:
    rows = [(mark.track, mark.label, number(mark.begin), number(mark.end - mark.begin)) for mark in marks[:MOST_PHASES]]
    more = f"<p>{len(marks) - MOST_PHASES:,} more are in the file.</p>" if len(marks) > MOST_PHASES else ""
    return table(("track", "phase", "begin", "cycles"), rows, right=(2, 3)) + more


def drawn(trace: Trace) -> Iterator[tuple[str, Picture, str]]:
    """Draw the pictures that a run has the numbers for; yield a name, the picture, and what it shows."""
    run = trace.files[0]
    counters = {name: run.counter(name) for name in run.counters}
    if set(USES) <= set(counters):
        uses = {use: counters[use].values.sum(axis=0) for use in USES}
        axis = "x" if uses["busy"].shape[1] > 1 else "y"
        yield "stalls", pictures.stalls(uses, axis), f"Cycles of each {axis} of PEs by use, as bars."
        if counters["busy"].window_cycles:
            over = pictures.windows(counters, first=trace.meta.first_cycle)
            yield "windows", over, "Share of all PE-cycles by use, window by window, and grants per PE and cycle."
        busy = heatmap(plane(counters["busy"].values), "busy cycles", "cycles")
        yield "busy", busy, "Map of the PEs, coloured by their busy cycles, from zero."
    moved = [plane(counter.values) for counter in counters.values() if counter.kind == "link"]
    if moved:
        picture = heatmap(sum(moved[1:], moved[0]), "wavelets moved by each router", "wavelets")
        yield "moved", picture, "Map of the PEs, coloured by the wavelets that their routers moved, from zero."
    if trace.has_events and trace.committed <= TIMELINE_EVENTS:
        for draw, name, says in (
            (pictures.utilisation, "utilisation", "Share of PEs in a task and waiting, and grants, over cycles."),
            (pictures.timeline, "timeline", "Tasks, operations and waits of each PE over cycles, under the phases."),
        ):
            with contextlib.suppress(pictures.NothingToDraw):
                yield name, draw(trace), says


@styled
def _curves(run: RunFile) -> list[str]:
    """Return the picture of the results ``curve_...`` over ``curve_iteration``, if a run has them."""
    names = [name for name in ("loss", "accuracy") if f"curve_{name}" in run.results]
    if not names or "curve_iteration" not in run.results:
        return []
    figure = new_figure(6.4, 1.8 * len(names))
    for name, axes in zip(names, figure.subplots(len(names), squeeze=False, sharex=True).flat, strict=True):
        axes.plot(run.result("curve_iteration"), run.result(f"curve_{name}"))
        axes.set(ylabel=name, ylim=(0, None))
        integer_axes(axes, "x")
    axes.set_xlabel("iteration")
    return [image(figure, f"{' and '.join(names)} over the iterations.".capitalize())]


@styled
def _roofline_picture(point: Mapping[str, Any], limits: Mapping[int, str]) -> str:
    """Draw the point under its roofs: lanes, and one wavelet per cycle down the ramp."""
    rate, intensity = point["macs_per_pe_cycle"], point["macs_per_wavelet"]
    words = f"{rate:.3f} multiply-adds per PE-cycle"
    if intensity is None:
        return f"<p>{words}; no wavelets were received.</p>"
    figure = new_figure(6, 3.2)
    axes = figure.add_subplot()
    x = np.geomspace(min(0.05, intensity / 4), max(64, intensity * 4), 200)
    for lanes, name in limits.items():
        axes.loglog(x, np.minimum(x, lanes), label=f"{lanes} lane{'s' * (lanes > 1)}: {name}")
    axes.plot([intensity], [rate], "o", color="#b3261e")
    axes.set(xlabel="multiply-adds per wavelet received", ylabel="multiply-adds per PE-cycle")
    axes.legend()
    words = f"{words}, {intensity:.3g} per wavelet received"
    return f"<p>{words}.</p>" + image(figure, f"The run under the roofs of its machine: {words}.")
