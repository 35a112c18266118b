"""Pictures over time: what they draw agrees with the events, however many there are."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from traces import pictures
from traces.marks import PhaseMark
from traces.run_format import RunMeta
from traces.trace import Trace
from traces.writer import RunWriter
from wse_core.events import EVENT_DTYPE, KINDS, TraceFilter

TASKS, PES = 3000, 4


@pytest.fixture
def trace(tmp_path):
    """Many short tasks, each PE one after the other, with waits in between."""
    events = np.zeros(3 * TASKS, EVENT_DTYPE)
    for k, (kind, offset) in enumerate((("task_start", 0), ("task_end", 4), ("wait", 8))):
        part = events[k::3]
        part["kind"], part["cycle"] = KINDS.index(kind), np.arange(TASKS) // PES * 10 + offset
        part["x"], part["aux"] = np.arange(TASKS) % PES, 5 if kind != "wait" else 1
        part["data"] = 3 if kind == "wait" else 0
    events.sort(order=["cycle", "x", "kind"])
    with RunWriter(tmp_path / "run.h5", RunMeta(machine={"router.hop": 1})) as writer:
        writer.add_events(events, TASKS // PES * 10, TraceFilter())
    with Trace.open(tmp_path / "run.h5") as opened:
        yield opened


def test_links_of_small_fabrics_have_their_numbers(tmp_path, monkeypatch):
    figures = []
    made = pictures.new_figure
    monkeypatch.setattr(pictures, "new_figure", lambda *size: figures.append(made(*size)) or figures[-1])
    traffic = np.zeros((2, 3, 4), int)
    traffic[0, 0, 1], traffic[1, 2, 2] = 1234, 7
    pictures.links(traffic).save(tmp_path / "a.png")
    pictures.links(np.ones((20, 20, 4), int)).save(tmp_path / "b.png")
    small, large = ([text.get_text() for text in figure.axes[0].texts] for figure in figures)
    assert (small, large) == (["1,234", "7"], [])


def test_a_timeline_draws_its_spans_together(trace, tmp_path, monkeypatch):
    """A bar of its own for each takes minutes for a training run, and gigabytes."""
    drawn = []
    prepared = pictures._with_phases

    def seen(*args):
        drawn.append(prepared(*args)[1])
        return drawn[-1].figure, drawn[-1]

    monkeypatch.setattr(pictures, "_with_phases", seen)
    _, table = pictures.timeline(trace).save(tmp_path / "t.png")
    (axes,) = drawn
    assert len(axes.patches) == 0
    spans = {part.get_label(): part.get_paths() for part in axes.collections}
    assert {name: len(paths) for name, paths in spans.items()} == {"task 5": TASKS, "waiting for wavelets": TASKS}
    box = spans["task 5"][TASKS // 2].get_extents()
    assert (box.width, round(box.height, 6)) == (5, 0.8)
    assert axes.get_ylim() == (PES - 0.5, -0.5)
    with open(table, encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * TASKS
    assert rows[0] == {"x": "0", "y": "0", "what": "task 5", "begin": "0", "end": "5"}


def test_every_phase_has_its_name(tmp_path, monkeypatch):
    """Inside its bar, behind it where nothing follows, or in the legend: none is a colour only."""
    figures = []
    made = pictures.new_figure
    monkeypatch.setattr(pictures, "new_figure", lambda *size: figures.append(made(*size)) or figures[-1])
    marks = [
        PhaseMark(0, 600, "wafer", "forward, layer 1"),
        PhaseMark(600, 640, "wafer", "loss of the last layer"),
        PhaseMark(640, 1000, "wafer", "backward, layer 1"),
        PhaseMark(0, 20, "links", "samples of the batch"),
    ]
    events = np.zeros(2, EVENT_DTYPE)
    events["kind"], events["cycle"] = [KINDS.index("task_start"), KINDS.index("task_end")], [0, 1000]
    with RunWriter(tmp_path / "run.h5", RunMeta(machine={"router.hop": 1})) as writer:
        writer.add_marks(marks)
        writer.add_events(events, 1000, TraceFilter())
    with Trace.open(tmp_path / "run.h5") as opened:
        pictures.timeline(opened).save(tmp_path / "t.png")
    strip = figures[0].axes[0]
    beside = {text.get_text().strip() for text in strip.texts}
    assert beside == {"forward, layer 1", "backward, layer 1", "samples of the batch"}
    assert [text.get_text() for text in strip.get_legend().get_texts()] == ["loss of the last layer"]
