"""A page holds exactly the events of its trace, loads nothing, and its script says what Python says."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
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
from tests.traces.page_data import data_of, hostile, numbers, rows_of
from tests.traces.samples import chain
from traces import atomic
from traces.event_log import recording
from traces.naming import operation_name, task_name
from traces.page import columns as page_columns
from traces.page.columns import columns
from traces.page.packing import packed
from traces.page.write import HERE, page_text, write_page
from traces.paths import identify
from traces.run_format import RunMeta
from traces.state import RegionStates
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.errors import TraceError
from wse_core.events import EVENT_DTYPE, KINDS, LEVELS, WAITS, TraceFilter
from wse_core.reference.machine import ReferenceMachine

NODE = shutil.which("node")
ENDLESS = 2**32 - 1
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))
NAMES = {"opcodes": {"7": "seven"}, "tasks": {"3": "three"}, "lines": {"0": "a.py:1"}}


def recorded(case, path, cycles=150, filter=None):
    """Write the run file of a case; return the machine after its last cycle."""
    machine = ReferenceMachine(case.spec)
    meta = RunMeta(job="case", machine=dict(case.spec.machine))
    case.start(machine)
    with recording(machine, path, meta, filter or TraceFilter(), NAMES) as log:
        machine.run(cycles)
    with RunWriter(path, meta) as writer:
        writer.add_counter("busy", machine.counters()["busy"][np.newaxis], "cycles")
        log.finish(writer)
    log.remove()
    return machine


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


def counted(events, names, *fields):
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
        assert Counter(tuple(row[field] for field in fields) for row in rows) == counted(events, kinds, *fields)
    facts = data["facts"]
    tasks, operations, waits = (rows_of(data, name) for name in ("tasks", "operations", "waits"))
    started = events[events["kind"] == KINDS.index("task_start")]
    named = [task_name(trace.names, int(one["aux"]) + 256 * (int(one["flags"]) & 1)) for one in started]
    assert Counter((row["begin"], row["x"], row["y"], facts["tasks"][row["what"]][0]) for row in tasks) == Counter(
        zip(started["cycle"].tolist(), started["x"].tolist(), started["y"].tolist(), named, strict=True)
    )
    ended = [(row["begin"] + row["length"] - 1, row["x"], row["y"]) for row in tasks if row["length"] != ENDLESS]
    assert Counter(ended) == counted(events, ["task_end"], "cycle", "x", "y")
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
    assert Counter(ended) == counted(events, ["op_end"], "cycle", "x", "y", "aux", "data")
    fields = ("cycle", "data", "x", "y", "aux", "color")
    waited = [tuple(row[field] for field in ("begin", "length", "x", "y", "what", "color", "queue")) for row in waits]
    assert Counter((begin + length, length, *rest) for begin, length, *rest, _ in waited) == counted(
        events, ["wait"], *fields
    )


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
    assert sum((HERE / name).stat().st_size for name in ("page.tmpl", "style.css", "model.js", "view.js")) < 64_000


def test_a_wheel_carries_the_parts_of_a_page():
    """They are no modules, so they must be named to the build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packed = {
        path for pattern in project["tool"]["setuptools"]["package-data"]["traces.page"] for path in HERE.glob(pattern)
    }
    assert packed == {path for path in HERE.iterdir() if path.is_file() and path.suffix != ".py"}
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    assert "recursive-include traces *.py *.pyi py.typed *.tmpl *.css *.js" in manifest


# ---- the script ------------------------------------------------------------------------------------------------------

ASK = """
const Model = require(process.argv[1]), fs = require("fs");
const data = JSON.parse(fs.readFileSync(process.argv[2])), asked = JSON.parse(fs.readFileSync(process.argv[3]));
const plain = table => Object.fromEntries(Object.entries(table).map(([key, column]) => [key, [...column]]));
(async () => {
  const run = await Model.read(data), own = await Model.read(data, true), found = {};
  for (const one of [run, own]) {
    const tables = Object.fromEntries(Object.entries(one.tables).map(([key, table]) => [key, plain(table)]));
    (found.tables = found.tables || []).push(tables);
  }
  const pes = [...Array(run.count).keys()], {facts} = run;
  found.states = asked.cycles.map(cycle => {
    run.seek(cycle);
    return pes.map(pe => ({
      task: run.of("tasks", pe, cycle), wait: run.of("waits", pe, cycle), operations: run.operations(pe, cycle),
      counts: ["tasks", "operations", "waits"].map(name => run.lasting[name] ? run.lasting[name].counts[pe] : 0),
    }));
  });
  if (run.tables.moves) {
    found.loads = asked.spans.map(([first, stop]) => [...run.loadsOf(first, stop)]);
    run.hide([0]);
    found.without = [...run.loadsOf(...asked.spans[0])];
    run.hide([]);
    run.identify();
    found.order = [...run.order];
    found.wavelets = [...run.wavelets];
    found.payloads = [...run.payloads];
    found.ways = asked.rows.map(row => run.way(row));
    if (!facts.queues) found.queues = asked.cycles.map(cycle => pes.map(pe => [...run.queues(pe, cycle)]));
  }
  found.averages = Object.keys(run.lasting).map(
    name => [name, [...Model.averages(run.tables[name], facts.first, facts.stop, asked.parts)]]);
  found.search = asked.words.map(words => run.search(words, asked.cycles[0], 5));
  found.addresses = asked.addresses.map(text => Model.fromAddress(text));
  found.address = Model.address({cycle: 7, place: [3, 4], hidden: [1, 5]});
  console.log(JSON.stringify(found));
})();
"""


def ask(tmp_path, text, **asked):
    """Return what the script says of a page."""
    data, questions = tmp_path / "data.json", tmp_path / "asked.json"
    data.write_text(json.dumps(data_of(text)), "utf-8")
    empty = {"cycles": [0], "spans": [[0, 1]], "rows": [], "parts": 1, "words": [], "addresses": []}
    questions.write_text(json.dumps(empty | asked), "utf-8")
    done = subprocess.run(
        [NODE, "-e", ASK, str(HERE / "model.js"), str(data), str(questions)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


needs_node = pytest.mark.skipif(NODE is None, reason="node is not on this machine")


def assert_states(found, data, trace, cycles):
    """Assert that the script knows what each PE does, as `RegionStates` does."""
    facts = data["facts"]
    tables = {name: rows_of(data, name) for name in ("tasks", "operations", "waits")}
    region = RegionStates(trace, tuple(facts["region"]))
    width, left, top = facts["region"][2], *facts["region"][:2]
    for cycle, states in zip(cycles, found["states"], strict=True):
        at = region.at(cycle)
        for pe, state in enumerate(states):
            expected = at[left + pe % width, top + pe // width]
            task = None if expected.task is None else task_name(trace.names, expected.task)
            assert (facts["tasks"][tables["tasks"][state["task"]]["what"]][0] if state["task"] >= 0 else None) == task
            wait = tables["waits"][state["wait"]]["what"] if state["wait"] >= 0 else None
            assert (None if wait is None else WAITS[wait]) == expected.wait
            operations = {
                facts["threads"][tables["operations"][row]["lane"]]: facts["operations"][
                    tables["operations"][row]["what"]
                ][0]
                for row in state["operations"]
            }
            assert operations == {
                thread: operation_name(trace.names, code) for thread, code in expected.operations.items()
            }
            assert [count > 0 for count in state["counts"]] == [task is not None, bool(operations), wait is not None]


@needs_node
@pytest.mark.parametrize("draw", [random_spec, random_traffic])
@examples(15)
@given(data=st.data(), cycles=st.lists(st.integers(0, 130), min_size=3, max_size=3))
def test_the_script_says_what_python_says(draw, data, cycles, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    machine = recorded(data.draw(cases(draw)), folder / "run.h5", 120)
    with Trace.open(folder / "run.h5") as trace:
        if not trace.committed:
            return
        text = page_text(columns(trace))
        page = data_of(text)
        parts, last = 1 + cycles[0], page["facts"]["stop"] - 1
        cycles = [*(min(cycle, last) for cycle in cycles), last]
        spans = [sorted((a, b)) for a, b in itertools.pairwise(cycles)]
        found = ask(folder, text, cycles=cycles, spans=spans, parts=parts)
        for tables in found["tables"]:
            assert tables == {
                name: {key: numbers(column) for key, column in table.items()} for name, table in page["tables"].items()
            }
        assert_states(found, page, trace, cycles)
        assert_averages(found, page, parts)
        assert_moves(found, page, trace, spans)
        if machine.fault is None and not page["facts"]["queues"]:
            assert_queues(found["queues"][-1], page, machine)


def assert_averages(found, page, parts):
    """Assert that the share of what lasts is right in each stretch of the run."""
    first, stop = page["facts"]["first"], page["facts"]["stop"]
    edges = np.linspace(first, stop, parts + 1)
    for name, values in found["averages"]:
        rows = rows_of(page, name)
        begin = np.array([row["begin"] for row in rows], float)
        end = np.array([np.inf if row["length"] == ENDLESS else row["begin"] + row["length"] for row in rows], float)
        for k, value in enumerate(values):
            overlap = np.minimum(end, edges[k + 1]) - np.maximum(begin, edges[k])
            assert value == pytest.approx(overlap.clip(0).sum() / (edges[k + 1] - edges[k]), abs=1e-6)


def assert_moves(found, page, trace, spans):
    """Assert that loads, wavelets and payloads are those of the trace."""
    if "moves" not in page["tables"]:
        return
    events = trace.events(kinds=("inject", "depart", "enter", "take"))
    wavelets = identify(events)
    assert found["wavelets"] == wavelets.tolist()
    assert [found["payloads"][row] for row in found["order"]] == events["data"].tolist()
    width, height = page["facts"]["region"][2:]
    departs = events[events["kind"] == KINDS.index("depart")]
    for (first, stop), loads in zip(spans, found["loads"], strict=True):
        assert loads == loads_of(departs, first, stop, width, height)
    shown = departs[departs["color"] != 0]
    assert found["without"] == loads_of(shown, *spans[0], width, height)


def loads_of(departs, first, stop, width, height):
    """Return wavelets per PE and output in some cycles, as a flat list."""
    counts = np.zeros((height, width, 5), int)
    for event in departs[(departs["cycle"] >= first) & (departs["cycle"] < stop)]:
        for out in range(5):
            counts[event["y"], event["x"], out] += event["aux"] >> out & 1
    return counts.ravel().tolist()


def assert_queues(found, page, machine):
    """Assert that as many wavelets wait in each queue as the machine itself has there after its last cycle."""
    width, last = page["facts"]["region"][2], machine.cycle - 1
    for pe, queues in enumerate(found):
        place = pe % width, pe // width
        held = {
            color * 8 + port: count
            for color, state in machine.routers[place].colors.items()
            for port, queue in state.queues.items()
            if (count := sum(port == 4 or wavelet.ready <= last for wavelet in queue.wavelets))
        }
        if place in machine.ces:
            for queue in machine.ces[place].in_queues.values():
                count = sum(wavelet.ready <= last for wavelet in queue.wavelets)
                if count:
                    held[queue.color * 8 + 5] = held.get(queue.color * 8 + 5, 0) + count
        assert dict(queues) == held, place


@needs_node
def test_wavelets_are_found_and_followed(run_file, tmp_path):
    with Trace.open(run_file) as trace:
        text = page_text(columns(trace))
        events = trace.events(kinds=("inject", "depart", "take"))
    moves = rows_of(data_of(text), "moves")
    row = next(k for k, move in enumerate(moves) if move["x"] == 2 and KINDS[move["kind"]] == "inject")
    sent = events[(events["x"] == 2) & (events["kind"] == KINDS.index("inject"))][0]
    words = ["2,0", "9,9", "17", "MAIN", "fadds", "color 1", hex(sent["data"]), "nothing of that name", ""]
    addresses = ["#cycle=40&pe=2,0&without=0", "", "#cycle=x&pe=1&without=&q=1", "#pe=1,2"]
    found = ask(tmp_path, text, words=words, rows=[row], cycles=[int(sent["cycle"])], addresses=addresses)
    assert [KINDS[moves[k]["kind"]] for k in found["ways"][0]] == ["inject", "depart", "depart", "take"]
    place, outside, cycle, task, operation, color, payload, nothing, empty = found["search"]
    assert (place, outside) == ({"what": "place", "pe": 2}, {"what": "place", "pe": -1})
    assert cycle == {"what": "cycle", "cycle": 17}
    assert (task["total"], {name for name, _ in task["found"]}) == (4, {"tasks"})
    assert {name for name, _ in operation["found"]} == {"operations"}
    injected = events[(events["kind"] == KINDS.index("inject")) & (events["color"] == 1)]
    assert (color["total"], len(color["found"])) == (len(injected), 5)
    assert ["moves", row] in payload["found"]
    assert nothing["total"] == empty["total"] == 0
    assert found["addresses"] == [
        {"cycle": 40, "place": [2, 0], "hidden": [0]},
        *[{"cycle": None, "place": None, "hidden": []}] * 2,
        {"cycle": None, "place": [1, 2], "hidden": []},
    ]
    assert found["address"] == "#cycle=7&pe=3,4&without=1,5"
