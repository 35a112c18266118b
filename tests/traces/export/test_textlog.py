"""The text log of many random machines against every line form that the viewer parses, read as the viewer reads it."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

from fabric.engine.engine import Engine
from fabric.host.recording import names_of
from tests.draw import Seeded
from tests.random_machines import random_inputs, random_spec
from tests.random_traffic import random_traffic
from tests.traces.export.test_formats import LINE_FORMS
from traces.event_log import recording
from traces.export.formats import export
from traces.run_format import RunMeta
from traces.state import spans
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import KINDS, TraceFilter

FORMS = {
    "size": LINE_FORMS[0],
    "landing": LINE_FORMS[1],
    "wavelet": LINE_FORMS[2],
    "writing": LINE_FORMS[3],
    "sending": LINE_FORMS[4],
    "backpressure": LINE_FORMS[5],
    "wavelets missing": LINE_FORMS[6],
    "pipe 2": LINE_FORMS[7].replace(r"\d+, Msg", "2, Msg"),
    "pipe 5": LINE_FORMS[7].replace(r"\d+, Msg", "5, Msg"),
    "idle": LINE_FORMS[8],
    "operation": LINE_FORMS[9],
}
STEPS = {"E": (1, 0), "N": (0, -1), "W": (-1, 0), "S": (0, 1)}
OPPOSITE = {"E": "W", "W": "E", "N": "S", "S": "N"}


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Texts and events of random machines."""
    folder, found = tmp_path_factory.mktemp("logs"), []
    for k, (draw, seed) in enumerate(
        [*((random_spec, seed) for seed in range(32)), *((random_traffic, seed) for seed in range(8))]
    ):
        rng = Seeded(seed)
        spec = draw(rng)
        engine, path = Engine(spec), folder / f"{k}.h5"
        meta = RunMeta(machine=dict(spec.machine))
        for burst in random_inputs(rng, spec):
            engine.push_input(*burst)
        with recording(engine, path, meta, TraceFilter(), names_of(spec)) as log:
            engine.run(300)
        with RunWriter(path, meta) as writer:
            log.finish(writer)
        with Trace.open(path) as trace:
            export(trace, "log", folder / f"{k}.log", trace.events())
            lines = (folder / f"{k}.log").read_text().splitlines()
            found.append((lines, trace.events(), int(spec.machine["router.hop"])))
    return found


def test_every_line_has_one_form_and_every_form_comes_up(logs):
    met = dict.fromkeys(FORMS, 0)
    for lines, _, _ in logs:
        for line in lines:
            forms = [name for name, form in FORMS.items() if re.fullmatch(form, line)]
            assert len(forms) == 1, line
            met[forms[0]] += 1
        assert re.fullmatch(FORMS["size"], lines[0])
        cycles = [int(line[1 : line.index(" ")]) for line in lines]
        assert cycles == sorted(cycles)
    assert min(met.values()) > 0, met


def test_lines_are_as_many_as_events(logs):
    kinds = {"writing": "inject", "wavelet": "depart"}  # for the other lines see what the viewer shows
    for lines, events, _ in logs:
        for form, kind in kinds.items():
            lines_of = [line for line in lines if re.fullmatch(FORMS[form], line)]
            assert len(lines_of) == np.count_nonzero(events["kind"] == KINDS.index(kind)), form


def test_the_viewer_can_join_the_hops(logs):
    """A departure at cycle c lands at the neighbour at c + hop; the pc of an operation is where the viewer looks."""
    joined = 0
    for lines, _, hop in logs:
        size = re.match(r"@0 dimX=(\d+), dimY=(\d+)", lines[0])
        width, height = int(size[1]), int(size[2])
        landed, last = set(), 0
        for line in lines:
            if found := re.match(r"@(\d+) P(\d+)\.(\d+) \(hwtile\) landing C(\d+) from link (\w),", line):
                landed.add((*map(int, found.groups()[:4]), found[5]))
            last = max(last, int(line[1 : line.index(" ")]))
            if "[EX OP] ^" in line:
                after = line[line.index("[EX OP]") + len("[EX OP] ") :]
                assert int(after[4 : after.index(":")], 16) >= 0
        for line in lines:
            found = re.match(r"@(\d+) P(\d+)\.(\d+) \(hwtile\) wavelet C(\d+) .*departing=/(.{5})/", line)
            if found is None or int(found[1]) + hop > last:
                continue
            cycle, x, y, color = map(int, found.groups()[:4])
            for place, mark in zip("ENWS", found[5], strict=False):
                there = x + STEPS[place][0], y + STEPS[place][1]
                if mark != " " and 0 <= there[0] < width and 0 <= there[1] < height:
                    assert (cycle + hop, *there, color, OPPOSITE[place]) in landed, line
                    joined += 1
    assert joined > 100


def test_identities_say_where_a_wavelet_began(logs):
    """24 bits of the first PE, 8 of the color, a running number; every wavelet sent has its own."""
    for lines, events, _ in logs:
        width = int(re.match(r"@0 dimX=(\d+)", lines[0])[1])
        sent, numbers, entered = set(), defaultdict(set), defaultdict(int)
        for event in events[events["kind"] == KINDS.index("enter")]:  # from the host, with numbers of the same PE
            entered[(int(event["y"]) * width + int(event["x"])) << 8 | int(event["color"])] += 1
        for line in lines:
            found = re.match(r"@\d+ P(\d+)\.(\d+): .*Sending wavelet C(\d+) .* ident:(\w{16}) on", line)
            if found is None:
                continue
            ident = int(found[4], 16)
            assert ident not in sent
            sent.add(ident)
            numbers[ident >> 32].add(ident & 0xFFFFFFFF)
            assert ident >> 40 == int(found[2]) * width + int(found[1])
        for origin, found in numbers.items():
            assert len(found) <= max(found) - min(found) + 1 <= len(found) + entered[origin]


class Shown:
    """What a viewer shows of a PE: it leaves out an operation that it shows, and a stall lasts to the next one."""

    def __init__(self):
        self.entries, self.last = [], None  # (cycle, stalled, busy)

    def read(self, cycle, text):
        if "[EX OP]" not in text:
            self.entries.append((cycle, True, False))
            return
        state = "idle" if text.endswith("IDLE") else text.partition("[EX OP]")[2]
        if state != self.last:
            self.last = state
            self.entries.append((cycle, False, state != "idle"))

    def at(self, cycle):
        """Return (stalled, busy) in a cycle, as found by going back to the last operation."""
        stalled = False
        for when, is_stall, busy in reversed(self.entries):
            if when > cycle:
                continue
            if not is_stall:
                return stalled, busy
            stalled = True
        return stalled, False


def lasting(events, kind):
    """Return, per PE, the cycles in which something of a kind lasts."""
    found = defaultdict(set)
    for begin, end, x, y, *_ in spans(events, kind).tolist():
        found[x, y] |= set(range(begin, min(end, 301)))
    return found


def test_the_viewer_shows_what_a_pe_does_in_every_cycle(logs):
    """Waits end, operations show again when they go on, and a PE without a task whose microthreads are done is idle."""
    stalls = again = 0
    for lines, events, _ in logs:
        shown = defaultdict(Shown)
        for line in lines:
            found = re.match(r"@(\d+) P(\d+)\.(\d+): .*?(\[EX OP\].*|Backpressure.*|Not enough.*|Pipe.*)", line)
            if found:
                shown[int(found[2]), int(found[3])].read(int(found[1]), found[4])
        tasks, operations, waits = (lasting(events, kind) for kind in ("task", "op", "wait"))
        ends = {(e["x"], e["y"], e["cycle"]) for e in events[events["kind"] == KINDS.index("task_end")]}
        lost = {(e["x"], e["y"], e["cycle"]) for e in events[events["kind"] == KINDS.index("conflict")]}
        last = int(events["cycle"].max(initial=0))
        for place in {*tasks, *operations}:
            for cycle in range(last):
                stalled, busy = shown[place].at(cycle)
                waiting = cycle in waits[place] or (*place, cycle) in lost
                assert stalled == waiting, (place, cycle)
                if waiting:
                    assert not busy, (place, cycle)
                elif (*place, cycle) not in ends:
                    assert busy == (cycle in tasks[place] or cycle in operations[place]), (place, cycle)
                stalls += waiting
                again += busy and cycle - 1 in waits[place]
    assert stalls > 100
    assert again >= 5
