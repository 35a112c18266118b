"""A page holds exactly the events of its trace, loads nothing, and its script says what Python says."""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import cases
from tests.conftest import ROOT
from tests.examples import examples
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from tests.traces.page_data import data_of, hostile, numbers, recorded, rows_of, windowed
from tests.traces.samples import chain
from traces import atomic
from traces.naming import operation_name, task_name
from traces.page import columns as page_columns
from traces.page.columns import columns, facts_of
from traces.page.counted import counted
from traces.page.packing import packed
from traces.page.write import HERE, page_text, write_page
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.counters import USES
from wse_core.errors import TraceError
from wse_core.events import EVENT_DTYPE, KINDS, LEVELS, TraceFilter

ENDLESS = 2**32 - 1
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    """The run file of a chain of four PEs."""
    path = tmp_path_factory.mktemp("page") / "chain.h5"
    chain(path, pes=4, n=12)
    return path


def with_payloads(moves):
    """Return the rows of moves in the order of time, payloads as they were: queues are first in, first out."""
    moves = sorted(moves, key=lambda row: (row["cycle"], row["pe"]))  # in a PE they are in order
    queues, first = defaultdict(list), {}
    for k, row in enumerate(moves):
        kind, x, y, color, aux = KINDS[row["kind"]], row["x"], row["y"], row["color"], row["aux"]
        came = (row["flags"] >> 1 & 7, color ^ (row["flags"] >> 4 & 1)) if kind == "depart" else ("CE", color)
        held = queues[x, y, *came] if kind in ("depart", "take") else []
        wavelet = held.pop(0) if held else k
        first.setdefault(wavelet, row)
        if wavelet != k:
            row["data"] ^= first[wavelet]["data"]
        if kind == "inject":
            queues[x, y, 4, color].append(wavelet)
        elif kind == "enter":
            queues[x, y, "CE" if aux == 4 else aux, color].append(wavelet)
        elif kind == "depart":
            for out, (dx, dy) in enumerate(STEPS):
                if aux >> out & 1:
                    queues[x + dx, y + dy, "CE" if out == 4 else out ^ 1, color].append(wavelet)
    return moves


def occurrences(events, names, *fields):
    """Return how often each event of some kinds is there, by fields."""
    chosen = events[np.isin(events["kind"], [KINDS.index(name) for name in names])]
    return Counter(zip(*(chosen[field].tolist() for field in fields), strict=True))


def assert_same(data, trace):
    """Assert that a page has the events of a trace: all of them, once, and no others."""
    events = trace.events()
    for name, kinds in (("moves", ("inject", "depart", "enter", "take")), ("notes", page_columns.SINGLE["notes"])):
        fields = ("cycle", "x", "y", "kind", "color", "aux", "flags", "data")
        rows = rows_of(data, name)
        if name == "moves":
            rows = with_payloads(rows)
        assert Counter(tuple(row[field] for field in fields) for row in rows) == occurrences(events, kinds, *fields)
    facts = data["facts"]
    tasks, operations, waits = (rows_of(data, name) for name in ("tasks", "operations", "waits"))
    started = events[events["kind"] == KINDS.index("task_start")]
    named = [task_name(trace.names, int(one["aux"]) + 256 * (int(one["flags"]) & 1)) for one in started]
    assert Counter((row["begin"], row["x"], row["y"], facts["tasks"][row["what"]][0]) for row in tasks) == Counter(
        zip(started["cycle"].tolist(), started["x"].tolist(), started["y"].tolist(), named, strict=True)
    )
    ended = [(row["begin"] + row["length"] - 1, row["x"], row["y"]) for row in tasks if row["length"] != ENDLESS]
    assert Counter(ended) == occurrences(events, ["task_end"], "cycle", "x", "y")
    begun = Counter(
        (row["begin"], row["x"], row["y"], row["lane"], *facts["operations"][row["what"]]) for row in operations
    )
    issued = events[events["kind"] == KINDS.index("op_start")]
    assert begun == Counter(
        (
            *(int(one[field]) for field in ("cycle", "x", "y", "aux")),
            operation_name(trace.names, int(one["data"]) >> 16),
            trace.names["lines"].get(str(int(one["data"]) & 0xFFFF), ""),
        )
        for one in issued
    )
    ended = [
        (row["begin"] + row["length"] - 1, row["x"], row["y"], row["lane"], row["done"])
        for row in operations
        if row["length"] != ENDLESS
    ]
    assert Counter(ended) == occurrences(events, ["op_end"], "cycle", "x", "y", "aux", "data")
    waited = [
        (row["begin"] + row["length"], row["length"], row["x"], row["y"], row["what"], row["color"], row["queue"] << 1)
        for row in waits
    ]
    assert Counter(waited) == occurrences(events, ["wait"], "cycle", "data", "x", "y", "aux", "color", "flags")


@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(30)
@given(data=st.data())
def test_a_page_gives_back_exactly_the_events(draw, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.h5"
    recorded(data.draw(cases(draw)), path)
    with Trace.open(path) as trace:
        if not trace.committed:
            return
        text = page_text(columns(trace))
        assert_same(data_of(text), trace)
        assert page_text(columns(trace)) == text


@examples(20)
@given(values=st.lists(st.integers(0, ENDLESS), max_size=40) | st.lists(st.integers(0, 255), max_size=40))
def test_any_numbers_are_packed(values):
    assert numbers(packed(np.array(values, np.uint64))) == values


def test_a_page_loads_nothing(run_file, tmp_path):
    with Trace.open(run_file) as trace:
        written = write_page(tmp_path / "a.html", trace)
    text = (tmp_path / "a.html").read_bytes().decode("utf-8")
    assert written["bytes"] == len(text.encode("utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    for word in ("http", "src=", "<link", "url(", "@import", "fetch(", "XMLHttpRequest", "import(", "//cdn", "<iframe"):
        assert word not in text, word
    assert "innerHTML" not in text
    assert text.count("<script") == text.count("</script") == 3
    assert "@" not in re.sub(r"@media|@[a-z]", "", text.split("<body>")[0])


def test_hostile_names_are_harmless(tmp_path):
    bad = hostile(tmp_path / "run.h5")
    with Trace.open(tmp_path / "run.h5") as trace:
        write_page(tmp_path / "a.html", trace)
    text = (tmp_path / "a.html").read_text("utf-8")
    assert text.count("<script") == text.count("</script") == 3
    assert "alert(1)<" not in text
    assert "<!--" not in text
    assert not set("\u2028\u2029\x07") & set(text)
    facts, shown = data_of(text)["facts"], bad.replace("\x07", "\\x07")
    assert facts["job"] == facts["preset"] == shown
    assert facts["tasks"][0][0] == shown
    assert facts["operations"] == [[shown, shown]]
    assert facts["marks"] == [[0, 3, shown, shown, 0]]


def test_an_interrupted_page_leaves_nothing(run_file, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with Trace.open(run_file) as trace, pytest.raises(TraceError, match="No space left"):
        write_page(tmp_path / "deep" / "a.html", trace)
    assert list(tmp_path.iterdir()) == []


def refused(path, says, **selection):
    """Assert that no page is made of a file, and what is said."""
    with Trace.open(path) as trace, pytest.raises(TraceError, match=says) as caught:
        columns(trace, **selection)
    assert str(path) in str(caught.value)


def test_what_a_page_cannot_show_is_refused(run_file, tmp_path, monkeypatch):
    counters, late = tmp_path / "counters.h5", tmp_path / "late.h5"
    with RunWriter(counters, RunMeta(job="a")) as writer:
        writer.add_counter("busy", np.ones((1, 2, 2), np.uint64), "cycles")
    refused(counters, "holds no events.*--trace events or --trace full")
    refused(run_file, "no events in these cycles.*holds cycles 0 to", cycles=(10**6, 10**7))
    refused(run_file, "no events of kind 'land'", kinds=["land"])
    refused(run_file, "holds none of task_start.*begin and its end", kinds=["task_start"])
    refused(run_file, "no events in this selection", kinds=["teardown"])
    monkeypatch.setattr(page_columns, "MOST_ROWS", 10)
    refused(run_file, "too many for a page.*--cycles")
    events = np.zeros(1, EVENT_DTYPE)
    events["cycle"] = 2**32
    with RunWriter(late, RunMeta()) as writer:
        writer.add_events(events, 2**32 + 1, TraceFilter(), {})
    refused(late, "does not fit a page")


@pytest.mark.parametrize(
    ("filter", "missing", "queues"),
    [
        (TraceFilter(), [], ""),
        (TraceFilter(LEVELS["events"]), ["wavelets (inject, depart, enter, take)"], "not all events of wavelets"),
        (TraceFilter(("depart", "task_end")), ["tasks", "operations", "waits", "wavelets (inject,"], "not all"),
        (TraceFilter(colors=(0,)), [], "some colors only"),
        (TraceFilter(region=(1, 0, 2, 1)), [], "outside of the region"),
        (TraceFilter(cycles=(20, 60)), [], "before cycle 20"),
    ],
)
def test_a_page_says_what_it_lacks(tmp_path, filter, missing, queues):
    chain(tmp_path / "run.h5", filter=filter)
    with Trace.open(tmp_path / "run.h5") as trace:
        facts = columns(trace).facts
    assert [said.startswith(words) for said, words in zip(facts["missing"], missing, strict=True)] == [True] * len(
        missing
    )
    assert (queues in facts["queues"]) if queues else not facts["queues"]
    assert bool(facts["ways"]) == (filter.colors is not None or filter.cycles[0] > 0)
    assert bool(facts["part"]) == (filter.colors is not None or filter.region is not None or filter.cycles[0] > 0)


def test_a_part_of_a_trace_is_chosen(run_file):
    with Trace.open(run_file) as trace:
        data = data_of(page_text(columns(trace, (30, 40), (1, 0, 2, 1), kinds=("depart", "task_start", "task_end"))))
        chosen = trace.events((30, 40), ("depart",), (1, 0, 2, 1))
    assert sorted(data["tables"]) == ["moves", "tasks"]
    moves = rows_of(data, "moves")
    assert len(moves) == len(chosen) > 0
    assert {(row["x"], row["y"]) for row in moves} == {(1, 0), (2, 0)}
    assert (data["facts"]["first"], data["facts"]["stop"]) == (30, 40)
    assert {row["begin"] for row in rows_of(data, "tasks")} == {0}  # true begins, of what goes on


def test_a_page_is_small(tmp_path):
    """Of events alone, with payloads of which each bit says something."""
    chain(tmp_path / "run.h5", pes=16, n=96)
    with Trace.open(tmp_path / "run.h5") as trace:
        found = columns(trace)
        data = page_text(found).split('id="data">')[1].split("</script>")[0]
        assert len(data) < 1.0 * trace.committed + 4000
    assert sum((HERE / name).stat().st_size for name in ("page.tmpl", "style.css", "model.js", "view.js")) < 70_000


def test_a_wheel_carries_the_parts_of_a_page():
    """They are no modules, so they must be named to the build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = {
        path for pattern in project["tool"]["setuptools"]["package-data"]["traces.page"] for path in HERE.glob(pattern)
    }
    assert packed == {path for path in HERE.iterdir() if path.is_file() and path.suffix != ".py"}
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    assert "recursive-include traces *.py py.typed *.tmpl *.css *.js" in manifest


def test_counters_per_window_are_shown(tmp_path):
    with windowed(tmp_path / "run.h5") as trace:
        write_page(tmp_path / "a.html", trace)
        part = data_of(page_text(counted(trace, (60, 120), (1, 0, 2, 2), (1, 2))))
        run = trace.files[0]
        values = {use: run.counter(use).values for use in USES}
        moved = {name: run.counter(name).values for name in run.counters if name.startswith("moved_")}
    data = data_of((tmp_path / "a.html").read_text("utf-8"))
    facts, rows = data["facts"], rows_of(data, "windows")
    count, height, width = values["busy"].shape
    assert (len(rows), facts["window"]) == (count * height * width, 50)
    assert facts["stop"] == sum(array.sum(axis=0)[0, 0] for array in values.values())
    assert [name for name, *_ in facts["uses"]] == list(USES)
    arrived = sum(array.astype(int) for array in moved.values())
    for k, row in enumerate(rows):
        window, x, y = k // (height * width), row["x"], row["y"]
        assert [row[use] for use in USES] == [values[use][window, y, x] for use in USES]
        for port, (dx, dy), back in (("W", (-1, 0), 1), ("E", (1, 0), 0), ("N", (0, -1), 3), ("S", (0, 1), 2)):
            inside = 0 <= x + dx < width and 0 <= y + dy < height
            assert row[port] == (arrived[window, y + dy, x + dx, back] if inside else 0)
    assert (part["facts"]["first"], part["facts"]["stop"]) == (50, 150)
    chosen = rows_of(part, "windows")
    assert [row["busy"] for row in chosen] == values["busy"][1:3, 0:2, 1:3].ravel().tolist()
    assert "colors 1, 2" in part["facts"]["part"]
    assert sum(row["E"] for row in chosen) <= sum(row["E"] for row in rows)


def test_counters_that_make_no_page_are_refused(tmp_path, monkeypatch):
    with windowed(tmp_path / "run.h5") as trace:
        for says, selection in (
            ("no windows in these cycles", {"cycles": (10**6, 10**7)}),
            ("no kinds to choose", {"kinds": ["wait"]}),
        ):
            with pytest.raises(TraceError, match=says):
                counted(trace, **selection)
        monkeypatch.setattr(page_columns, "MOST_ROWS", 10)
        with pytest.raises(TraceError, match="too many for a page"):
            counted(trace)


@pytest.mark.parametrize("level", ["counters", "events"])
def test_what_cycles_went_to_is_said(tmp_path, level):
    with windowed(tmp_path / "run.h5", level) as trace:
        bound, limit, said = facts_of(trace, (0, 0, 3, 3), (0, 9))["spent"]
        busy = trace.files[0].counter("busy").values.sum() / sum(
            trace.files[0].counter(use).values.sum() for use in USES
        )
    assert bound.startswith("lower bound ")
    assert limit.startswith("limits: arithmetic ")
    assert said.startswith("most cycles: ")
    assert f"{busy:.0%}" in said or "issuing" not in said


def test_the_bound_of_a_kernel_is_said(tmp_path):
    with RunWriter(tmp_path / "run.h5", RunMeta()) as writer:
        writer.add_counter("other", np.ones((1, 1, 1), np.uint32), "1")
        writer.add_result("cycles", 200)
        writer.add_result("lower_bound", 150)
        writer.add_result("bottleneck", "links\x07")
    with Trace.open(tmp_path / "run.h5") as trace:
        assert facts_of(trace, (0, 0, 1, 1), (0, 9))["spent"] == [
            "lower bound 150 cycles, 75% of the 200 measured",
            "bottleneck: links\\x07",
        ]
