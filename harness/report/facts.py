"""A report has these facts about a run, as plain data: shares, busiest places, roofline, the five numbers to read
first.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config import toml
from traces.meanings import of_result
from traces.style import USE_TEXT
from wse_core.counters import LINKS, limits
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS

if TYPE_CHECKING:
    from traces.reader import Counter
    from traces.trace import Trace

__all__ = ["ENERGY", "HOST", "accounted", "command_of", "cycles_explained", "headline", "roofs", "summary"]

BUSIEST = 10
ENERGY = (
    *("energy", "energy_communication", "energy_memory", "energy_arithmetic", "energy_instructions"),
    *("energy_standing", "average_power"),
)
"""These results are the energy of a run, its parts by cause, and its power."""
MULTIPLY_ADDS = {"fmacs": "fp32", "fmachs": "fp16 with fp32 sums", "fmach": "fp16"}
"""The lanes of these operations are roofs, which are called so."""
HOST = (
    *("host_seconds", "run_seconds", "run_cpu_seconds", "verify_seconds", "total_seconds", "peak_rss_bytes"),
    *("host_bands", "host_threads", "host_ranks"),
    *("hops_per_second", "pe_cycles_per_second", "iterations_per_second"),
)
"""These results are about the host that simulated, and not about the machine."""


def summary(trace: Trace) -> dict[str, Any]:
    """Return the facts of a run as plain data.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    dict
        ``job``, ``status``, ``command``, ``cycles``, ``accounted`` (cycles of a PE's account), ``pes``, ``uses``
        (share of PE-cycles by `USE_TEXT`), ``results``
        (numbers and texts), ``limits`` (of `wse_core.counters`), ``busiest_pes``, ``busiest_links``, ``roofline``.
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
        "accounted": accounted(counters),
        "ghz": trace.meta.machine.get("clock.ghz"),
        "pes": list(shape[::-1]),
        "uses": {name: value / total for name, value in uses.items()} if total else {},
        "limits": [one._asdict() for one in limits({name: one.values for name, one in counters.items()})],
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
        params = results.get("params") or _table(trace.meta.config_toml).get("params")  # of a run that did not end
        words = [f"{key}={value}" for key, value in params.items()] if isinstance(params, dict) else []
        return " ".join(["wse", job, *words, *machine])
    if job.startswith("generate "):
        return " ".join(["wse", job, *_options(trace.meta.config_toml), *machine])
    if not trace.meta.config_toml:
        return ""  # a program of somebody's own, which no command runs
    return f"wse {job}" if job.startswith("train ") else f"wse run {job}"


def _options(config: str) -> list[str]:
    """Return what the file of an answer says as options; the model is in the job, modelled numbers in the machine."""
    return [
        f"--{key.replace('_', '-')}{'=' if str(value).startswith('-') else ' '}{shlex.quote(str(value))}"
        for key, value in _table(config).items()
        if key not in ("model", "set", "preset")
    ]


def _table(config: str) -> dict[str, Any]:
    """Return what a file says, nothing if it has another form."""
    try:
        return toml.parse(config, "")
    except ConfigError:
        return {}


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


def roofs(machine: Mapping[str, Any]) -> dict[int, str]:
    """Return what a machine multiplies and adds with so many lanes: lanes, the formats in words."""
    found: dict[int, list[str]] = {}
    for op, name in MULTIPLY_ADDS.items():
        lanes = machine.get(f"lanes.{op}")
        if lanes:
            found.setdefault(int(lanes), []).append(name)
    return {lanes: ", or ".join(found[lanes]) for lanes in sorted(found)}


def accounted(counters: Mapping[str, Counter]) -> int:
    """Return how many cycles the counters account for in each PE: the length of the bars in its pictures."""
    if not set(USE_TEXT) <= set(counters):
        return 0
    return int(sum(counters[use].values.sum(axis=0, dtype=np.int64) for use in USE_TEXT).max(initial=0))


def headline(facts: Mapping[str, Any]) -> list[tuple[str, str, bool | None]]:
    """Return the five numbers to read first: (value, what it is, whether that is good, None if neither)."""
    results, uses = facts["results"], facts["uses"]
    found: list[tuple[str, str, bool | None]] = []
    if facts["cycles"] is not None:
        time = f", {facts['cycles'] / (facts['ghz'] * 1e3):,.4g} us at {facts['ghz']} GHz" if facts["ghz"] else ""
        found.append((f"{facts['cycles']:,}", f"cycles{time}", None))
    if facts["pes"][0]:
        found.append((f"{facts['pes'][0]} x {facts['pes'][1]}", f"PEs of {facts['preset'] or 'a machine'}", None))
    if uses:
        found.append((f"{100 * uses.get('busy', 0):.1f} %", "of all PE-cycles busy: " + USE_TEXT["busy"], None))
        lost = max((use for use in USE_TEXT if use != "busy"), key=lambda use: uses.get(use, 0))
        found.append((f"{100 * uses.get(lost, 0):.1f} %", f"the largest other part: {USE_TEXT[lost]}", None))
    if "test_accuracy" in results:
        found.append((f"{100 * results['test_accuracy']:.2f} %", of_result("test_accuracy")[1], None))
    elif "verified" in results:
        good = bool(results["verified"])
        exact = ", bit by bit" if results.get("bit_exact") else ""
        found.append(("right" if good else "WRONG", f"the result, checked{exact}" if good else "the result", good))
    elif results.get("wavelet_hops") is not None:
        found.append((f"{results['wavelet_hops']:,}", "wavelet hops", None))
    return found[:5]


def cycles_explained(facts: Mapping[str, Any]) -> str:
    """Return why the numbers of cycles of one run differ, as a sentence; empty if they do not."""
    cycles, whole, account = facts["cycles"], facts["results"].get("run_cycles"), facts["accounted"]
    if cycles is None or not account or account == cycles:
        return ""
    parts, before = [], cycles
    if facts["job"].startswith("train "):
        tests, done = facts["results"].get("test_cycles") or 0, facts["results"].get("from_iteration") or 0
        parts.append(f"{cycles:,} cycles are those of the whole system, {tests:,} of them in tests")
        if done:
            earlier = f"{done:,} iterations of an earlier run are" if done > 1 else "iteration of an earlier run is"
            parts.append(f"the {earlier} among them, and not among those of the bars")
    else:
        parts.append(f"{cycles:,} cycles is the interval that the job measures")
        if whole is not None and whole != cycles:
            parts.append(f"the whole run took {whole:,}, with the start of tasks and the storing of time stamps")
            before = whole
    bars = f"the bars below are {account:,} cycles high"
    if account == before + 1:
        bars += ": the machine sees that all is done one cycle after it is"
    elif account != before:
        bars += f", {abs(account - before):,} {'more' if account > before else 'fewer'}: all that the PEs were on for"
    share = facts["uses"].get("busy")
    parts.append(bars if share is None else f"{bars}; PEs were at work in {share:.1%} of them")
    return "; ".join(parts) + "."
