"""A run, or two side by side, as one self-contained HTML page.

The page has no script and loads nothing: style, tables and pictures (PNG as data) are in it.  What it says comes from
the run file alone, except for the names and sources of modelled numbers.
"""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.kit.console import printable
from traces import pictures
from traces.heatmap import plane, write_heatmap
from traces.run_format import LINKS
from traces.style import USE_TEXT, USES
from wse_core.errors import TraceError
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from traces.marks import Mark
    from traces.reader import Counter, RunFile
    from traces.trace import Trace

__all__ = ["compare", "page", "summary"]

BUSIEST = 10
MOST_PHASES = 60
TIMELINE_EVENTS = 200_000
MULTIPLY_ADDS = {"fmacs": "fp32", "fmachs": "fp16 with fp32 sums", "fmach": "fp16"}
"""Operations whose lanes are roofs, in words."""

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #1d2528; }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em; border-bottom: 1px solid #ccd3d6; }
table { border-collapse: collapse; margin: .6em 0; } td, th { padding: .15em .8em .15em 0; text-align: left;
vertical-align: top; } th { color: #5b6b72; font-weight: 600; } td.n { text-align: right;
font-variant-numeric: tabular-nums; } img { max-width: 100%; } code, pre { background: #f1f4f5; padding: .1em .3em; }
.bad { color: #b3261e; font-weight: 600; } .good { color: #2e6b46; font-weight: 600; } .small { color: #5b6b72; }
"""


def summary(trace: Trace) -> dict[str, Any]:
    """Return the facts of a run as plain data.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    dict
        ``job``, ``status``, ``command``, ``cycles``, ``pes``, ``uses`` (share of PE-cycles by `USE_TEXT`), ``results``
        (numbers and texts), ``busiest_pes``, ``busiest_links``, ``roofline``.
    """
    run = trace.files[0]
    results = {}
    for name in run.results:
        value = run.result(name)
        if not isinstance(value, np.ndarray):
            results[name] = value
    counters = {name: run.counter(name) for name in run.counters}
    uses = {name: int(counters[name].values.sum()) for name in USE_TEXT if name in counters}
    total = sum(uses.values())
    shape = counters["busy"].values.shape[1:] if "busy" in counters else (0, 0)
    return {
        "job": trace.meta.job,
        "status": trace.meta.status,
        "command": command_of(trace, results),
        "preset": trace.meta.preset,
        "started": trace.meta.started,
        "host": trace.meta.host,
        "commit": trace.meta.commit,
        "version": trace.meta.package_version,
        "build_mode": trace.meta.build_mode,
        "seed": trace.meta.seed,
        "cycles": results.get("cycles"),
        "pes": list(shape[::-1]),
        "uses": {name: value / total for name, value in uses.items()} if total else {},
        "busiest_pes": _busiest_pes(counters),
        "busiest_links": _busiest_links(counters),
        "roofline": _roofline(counters),
        "results": results,
        "events": int(trace.committed),
    }


def command_of(trace: Trace, results: Mapping[str, Any]) -> str:
    """Return the command that runs the job again, as far as the run file tells it."""
    job = trace.meta.job
    preset = {
        name: param.values[trace.meta.preset] for name, param in PARAMETERS.items() if trace.meta.preset in param.values
    }
    changed = [
        f"--set {name}={value}"
        for name, value in trace.meta.machine.items()
        if name in preset and np.any(np.asarray(preset[name]) != np.asarray(value))
    ]
    machine = [f"--preset {trace.meta.preset}", *changed] if trace.meta.preset else []
    if job.startswith("kernel "):
        params = results.get("params") or {}
        words = [f"{key}={value}" for key, value in params.items()] if isinstance(params, dict) else []
        return " ".join(["wse", job, *words, *machine])
    return f"wse {job}" if job.startswith("train ") else f"wse run {job}"


def _busiest_pes(counters: dict[str, Counter]) -> list[dict[str, Any]]:
    if "busy" not in counters:
        return []
    busy = counters["busy"].values.sum(axis=0)
    order = np.argsort(busy, axis=None)[::-1][:BUSIEST]
    return [
        {"x": int(x), "y": int(y), "busy": int(busy[y, x])}
        for y, x in zip(*np.unravel_index(order, busy.shape), strict=True)
    ]


def _busiest_links(counters: dict[str, Counter]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, counter in counters.items():
        if counter.kind == "link":
            moved = counter.values.sum(axis=0)
            for place in np.argsort(moved, axis=None)[::-1][:BUSIEST]:
                y, x, port = np.unravel_index(place, moved.shape)
                if moved[y, x, port]:
                    found.append(
                        {
                            "x": int(x),
                            "y": int(y),
                            "port": LINKS[port],
                            "counter": name,
                            "wavelets": int(moved[y, x, port]),
                        }
                    )
    return sorted(found, key=lambda link: -link["wavelets"])[:BUSIEST]


def _roofline(counters: dict[str, Counter]) -> dict[str, float | None] | None:
    """Return multiply-adds per PE-cycle against multiply-adds per wavelet received, of all PEs that calculate."""
    if not {"macs", "received", "busy", "idle"} <= set(counters):
        return None
    macs, received = (int(counters[name].values.sum()) for name in ("macs", "received"))
    working = counters["macs"].values.sum(axis=0) > 0
    cycles = sum(int(counters[name].values.sum(axis=0)[working].sum()) for name in USE_TEXT if name in counters)
    if not macs or not cycles:
        return None
    return {"macs_per_pe_cycle": macs / cycles, "macs_per_wavelet": macs / received if received else None}


def page(trace: Trace) -> str:
    """Return the report of one run as HTML."""
    facts = summary(trace)
    body = [
        f"<h1>{_text(facts['job'] or 'run')}</h1>",
        _status(facts),
        "<h2>Result</h2>",
        _results(facts),
        *_curves(trace.files[0]),
        "<h2>Where the cycles went</h2>",
        _uses(facts),
        *_pictures(trace),
        "<h2>Busiest PEs and links</h2>",
        _busiest(facts),
    ]
    if facts["roofline"]:
        body += ["<h2>Roofline</h2>", _roofline_picture(facts["roofline"], roofs(trace.meta.machine))]
    body += ["<h2>Run it again</h2>", f"<pre>{_text(facts['command'])}</pre>"]
    if trace.marks:
        body += ["<h2>Phases</h2>", _phases(trace.marks)]
    if trace.meta.config_toml:
        body += ["<h2>Configuration</h2>", f"<pre>{_text(trace.meta.config_toml)}</pre>"]
    body += ["<h2>Modelled numbers</h2>", _assumptions(trace.meta.machine)]
    return _page(facts["job"], body)


def compare(first: Trace, second: Trace) -> str:
    """Return the comparison of two runs as HTML: results, uses of cycles and modelled numbers that differ."""
    facts = [summary(first), summary(second)]
    names = [trace.files[0].path.name for trace in (first, second)]
    numbers = sorted(
        {
            key
            for one in facts
            for key, value in one["results"].items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
    )
    rows = []
    for key in numbers:
        a, b = (one["results"].get(key) for one in facts)
        change = "" if not a or b is None else f"{100 * (b / a - 1):+.2f} %"
        rows.append((key, _number(a), _number(b), change))
    uses = [(USE_TEXT[key], *(f"{100 * one['uses'].get(key, 0):.2f} %" for one in facts)) for key in USE_TEXT]
    machines = [trace.meta.machine for trace in (first, second)]
    differing = [
        (key, *(str(m.get(key, "")) for m in machines))
        for key in sorted({*machines[0], *machines[1]})
        if machines[0].get(key) != machines[1].get(key)
    ]
    body = [
        f"<h1>{_text(names[0])} and {_text(names[1])}</h1>",
        _table(("", *names), [(key, *(one[key] for one in facts)) for key in ("job", "command", "commit")]),
        "<h2>Numbers</h2>",
        _table(("", *names, "change"), rows, right=(1, 2, 3)),
        "<h2>Where the cycles went</h2>",
        _table(("", *names), uses, right=(1, 2)),
        "<h2>Modelled numbers that differ</h2>",
        _table(("", *names), differing) if differing else "<p>None.</p>",
    ]
    return _page(f"{names[0]} and {names[1]}", body)


# --- parts ------------------------------------------------------------------------------------------------------------


def _page(title: str, body: Iterable[str]) -> str:
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{_text(title)}</title>"
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _text(value: Any) -> str:
    return html.escape(printable(str(value)))


def _number(value: float) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[int] = ()) -> str:
    lines = ["<table>", "<tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>"]
    for row in rows:
        cells = (
            f"<td class='n'>{_text(cell)}</td>" if k in right else f"<td>{_text(cell)}</td>"
            for k, cell in enumerate(row)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</table>"])


def _status(facts: Mapping[str, Any]) -> str:
    bits = [
        f"{facts['pes'][0]} x {facts['pes'][1]} PEs of {facts['preset']}",
        f"ended: {facts['status']}",
        f"wse-sim {facts['version']} {facts['commit'][:12]} ({facts['build_mode']})",
        facts["started"],
    ]
    return f"<p class='small'>{_text(', '.join(bit for bit in bits if bit.strip()))}</p>"


def _results(facts: Mapping[str, Any]) -> str:
    results = facts["results"]
    checks = []
    for key, meaning in (
        ("verified", "result verified"),
        ("bit_exact", "bit-exact against the reference order"),
        ("within_bound", "within the derived bound of numpy"),
    ):
        if key in results:
            good = bool(results[key])
            checks.append(f"<span class='{'good' if good else 'bad'}'>{meaning}: {'yes' if good else 'NO'}</span>")
    rows = [
        (key, _number(value) if not isinstance(value, str) else value)
        for key, value in results.items()
        if isinstance(value, (int, float, str)) and not isinstance(value, bool)
    ]
    return f"<p>{' · '.join(checks)}</p>" + _table(("", ""), rows, right=(1,))


def _uses(facts: Mapping[str, Any]) -> str:
    rows = [(USE_TEXT[name], f"{100 * share:.2f} %") for name, share in facts["uses"].items()]
    return _table(("of all PE-cycles", ""), rows, right=(1,)) if rows else "<p>No counters were recorded.</p>"


def _busiest(facts: Mapping[str, Any]) -> str:
    busy = [(f"({pe['x']}, {pe['y']})", _number(pe["busy"])) for pe in facts["busiest_pes"]]
    pes = _table(("PE", "busy cycles"), busy, right=(1,))
    links = _table(
        ("router", "from", "counter", "wavelets"),
        [
            (f"({link['x']}, {link['y']})", link["port"], link["counter"], _number(link["wavelets"]))
            for link in facts["busiest_links"]
        ],
        right=(3,),
    )
    return pes + links


def _assumptions(machine: Mapping[str, Any]) -> str:
    rows = [
        (name, value, PARAMETERS[name].unit, PARAMETERS[name].confidence, PARAMETERS[name].source)
        for name, value in machine.items()
        if name in PARAMETERS
    ]
    return _table(("name", "value", "unit", "confidence", "source"), rows)


def _phases(marks: Sequence[Mark]) -> str:
    rows = [
        (mark.track, mark.label, _number(mark.begin), _number(mark.end - mark.begin)) for mark in marks[:MOST_PHASES]
    ]
    more = f"<p>{len(marks) - MOST_PHASES:,} more are in the file.</p>" if len(marks) > MOST_PHASES else ""
    return _table(("track", "phase", "begin", "cycles"), rows, right=(2, 3)) + more


def _image(path: Path) -> str:
    data = base64.b64encode(Path(path).read_bytes()).decode("ascii")
    return f"<p><img alt='{_text(Path(path).stem)}' src='data:image/png;base64,{data}'></p>"


def _pictures(trace: Trace) -> list[str]:
    """Return the pictures that the file has the numbers for."""
    run = trace.files[0]
    counters = {name: run.counter(name) for name in run.counters}
    found = []
    with tempfile.TemporaryDirectory(prefix="wse-report-") as name:
        folder = Path(name)
        if set(USES) <= set(counters):
            uses = {use: counters[use].values.sum(axis=0) for use in USES}
            axis = "x" if uses["busy"].shape[1] > 1 else "y"
            found.append(_image(pictures.stalls(folder / "stalls.png", uses, axis)[0]))
            if counters["busy"].window_cycles:
                found.append(
                    _image(pictures.windows(folder / "windows.png", counters, first=trace.meta.first_cycle)[0])
                )
            found.append(
                _image(write_heatmap(folder / "busy.png", plane(counters["busy"].values), "busy cycles", "cycles")[0])
            )
        moved = [plane(counter.values) for counter in counters.values() if counter.kind == "link"]
        if moved:
            found.append(
                _image(write_heatmap(folder / "moved.png", sum(moved), "wavelets moved by each router", "wavelets")[0])
            )
        if trace.has_events and trace.committed <= TIMELINE_EVENTS:
            for draw, name in ((pictures.utilisation, "utilisation"), (pictures.timeline, "timeline")):
                try:
                    found.append(_image(draw(folder / f"{name}.png", trace)[0]))
                except TraceError:  # nothing to draw
                    continue
    return found


def _curves(run: RunFile) -> list[str]:
    """Return the picture of the results ``curve_...`` over ``curve_iteration``, if a run has them."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    names = [name for name in ("loss", "accuracy") if f"curve_{name}" in run.results]
    if not names or "curve_iteration" not in run.results:
        return []
    figure = Figure(figsize=(6, 2.2 * len(names)), layout="constrained")
    FigureCanvasSVG(figure)
    for name, axes in zip(names, figure.subplots(len(names), squeeze=False, sharex=True).flat, strict=True):
        axes.plot(run.result("curve_iteration"), run.result(f"curve_{name}"), linewidth=1.2)
        axes.set(ylabel=name, ylim=(0, None))
    axes.set_xlabel("iteration")
    with tempfile.TemporaryDirectory(prefix="wse-report-") as folder:
        path = Path(folder, "curves.png")
        figure.savefig(path, dpi=130, metadata={"Software": None})
        return [_image(path)]


def roofs(machine: Mapping[str, Any]) -> dict[int, str]:
    """Return what a machine multiplies and adds with so many lanes: lanes, the formats in words."""
    found: dict[int, list[str]] = {}
    for op, name in MULTIPLY_ADDS.items():
        lanes = machine.get(f"lanes.{op}")
        if lanes:
            found.setdefault(int(lanes), []).append(name)
    return {lanes: ", or ".join(found[lanes]) for lanes in sorted(found)}


def _roofline_picture(point: Mapping[str, Any], limits: dict[int, str]) -> str:
    """Draw the point under its roofs: lanes, and one wavelet per cycle down the ramp."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rate, intensity = point["macs_per_pe_cycle"], point["macs_per_wavelet"]
    text = f"{rate:.3f} multiply-adds per PE-cycle"
    if intensity is None:
        return f"<p>{text}; no wavelets were received.</p>"
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    x = np.geomspace(min(0.05, intensity / 4), max(64, intensity * 4), 200)
    for lanes, name in limits.items():
        axes.loglog(x, np.minimum(x, lanes), label=f"{lanes} lane(s): {name}", linewidth=1.2)
    axes.plot([intensity], [rate], "o", color="#b3261e")
    axes.set(xlabel="multiply-adds per wavelet received", ylabel="multiply-adds per PE-cycle")
    axes.legend(frameon=False, fontsize=8)
    with tempfile.TemporaryDirectory(prefix="wse-report-") as folder:
        path = Path(folder, "roofline.png")
        figure.savefig(path, dpi=130, metadata={"Software": None})
        return f"<p>{text}, {intensity:.3g} per wavelet received.</p>" + _image(path)
