"""The script of a page, run by node where it is, says what Python says of the same trace."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare import cases
from tests.examples import examples
from tests.random_machines import random_spec
from tests.random_traffic import random_traffic
from tests.traces.page_data import data_of, numbers, recorded, rows_of, windowed
from tests.traces.samples import chain
from traces.naming import operation_name, task_name
from traces.page.columns import columns
from traces.page.counted import counted
from traces.page.write import HERE, page_text
from traces.paths import identify
from traces.state import RegionStates
from traces.trace import Trace
from wse_core.events import KINDS, WAITS

NODE = shutil.which("node")
ENDLESS = 2**32 - 1


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    """The run file of a chain of four PEs."""
    path = tmp_path_factory.mktemp("page") / "chain.h5"
    chain(path, pes=4, n=12)
    return path


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
  if (run.tables.windows) {
    found.windows = asked.cycles.map(cycle => {
      const {works, waits, loads} = run.windowOf(cycle);
      return [run.windowAt(cycle), [...works], [...waits], [...loads]];
    });
    found.windowAverages = run.windowAverages(asked.parts);
  }
  found.near = asked.cycles.map(cycle => pes.map(pe => Object.keys(run.starts).map(
    name => run.near(name, pe, cycle, asked.most, row => row % 3))));
  found.averages = Object.keys(run.lasting).map(
    name => [name, [...Model.averages(run.tables[name], facts.first, facts.stop, asked.parts)]]);
  found.search = asked.words.map(words => run.search(words, asked.cycles[0], 5));
  found.addresses = asked.addresses.map(text => Model.fromAddress(text));
  found.address = Model.address({cycle: 7, place: [3, 4], hidden: [1, 5]});
  found.played = Model.address({cycle: 7, place: null, hidden: [], speed: 60});
  found.parts = asked.cycles.map(cycle => Model.partOf(asked.edges, cycle));
  console.log(JSON.stringify(found));
})();
"""


def ask(tmp_path, text, **asked):
    """Return what the script says of a page."""
    data, questions = tmp_path / "data.json", tmp_path / "asked.json"
    data.write_text(json.dumps(data_of(text)), "utf-8")
    empty = {
        "cycles": [0],
        "spans": [[0, 1]],
        "rows": [],
        "parts": 1,
        "words": [],
        "addresses": [],
        "most": 4,
        "edges": [0],
    }
    questions.write_text(json.dumps(empty | asked), "utf-8")
    done = subprocess.run(
        [NODE, "-e", ASK, str(HERE / "model.js"), str(data), str(questions)],
        capture_output=True,
        text=True,
        timeout=600,
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
        assert_near(found, page, cycles, 4)
        assert_moves(found, page, trace, spans)
        if machine.fault is None and not page["facts"]["queues"]:
            assert_queues(found["queues"][-1], page, machine)


def assert_near(found, page, cycles, most):
    """Assert that what is listed of a PE stands around the cycle, in order, and that nothing is left out between."""
    names = list(page["tables"])
    for cycle, pes in zip(cycles, found["near"], strict=True):
        for pe, lists in enumerate(pes):
            for name, listed in zip(names, lists, strict=True):
                rows = rows_of(page, name)
                begin = [row.get("begin", row.get("cycle")) for row in rows]
                fits = [k for k, row in enumerate(rows) if row["pe"] == pe and k % 3]
                fits.sort(key=lambda k: (begin[k], k))
                before = [k for k in fits if begin[k] <= cycle]
                first = max(0, min(len(before) - most // 2, len(fits) - most))
                assert listed == fits[first : first + most]


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
    addresses = ["#cycle=40&pe=2,0&without=0", "", "#cycle=x&pe=1&without=&q=1", "#pe=1,2&play=60"]
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
        {"cycle": 40, "place": [2, 0], "hidden": [0], "speed": 0},
        *[{"cycle": None, "place": None, "hidden": [], "speed": 0}] * 2,
        {"cycle": None, "place": [1, 2], "hidden": [], "speed": 60},
    ]
    assert found["address"] == "#cycle=7&pe=3,4&without=1,5"
    assert found["played"] == "#cycle=7&play=60"


@needs_node
def test_the_part_of_a_cycle_is_found(run_file, tmp_path):
    with Trace.open(run_file) as trace:
        text = page_text(columns(trace))
    found = ask(tmp_path, text, cycles=[0, 4, 5, 11, 12, 29, 30, 99], edges=[5, 12, 13, 30])
    assert found["parts"] == [-1, -1, 0, 0, 1, 2, -1, -1]


@needs_node
def test_the_script_reads_windows(tmp_path):
    with windowed(tmp_path / "run.h5") as trace:
        text = page_text(counted(trace))
    page = data_of(text)
    last = page["facts"]["stop"] - 1
    cycles = [0, 49, 50, 149, last]
    count, rows = -(-page["facts"]["stop"] // 50), rows_of(page, "windows")
    found = ask(tmp_path, text, cycles=cycles, parts=count)
    for cycle, ((start, length), works, waits, loads) in zip(cycles, found["windows"], strict=True):
        window = cycle // 50
        assert (start, length) == (window * 9, min(50, last + 1 - window * 50))
        chosen = rows[start : start + 9]
        assert works == [row["busy"] + row["stall_pipe"] + row["stall_conflict"] for row in chosen]
        assert [a + b + row["idle"] for a, b, row in zip(works, waits, chosen, strict=True)] == [length] * 9
        assert loads == [row.get(port, 0) for row in chosen for port in ("W", "E", "N", "S", "R")]
    assert len(found["windowAverages"]["works"]) == count
    assert found["windowAverages"]["works"][0] == sum(found["windows"][0][1]) / 50
