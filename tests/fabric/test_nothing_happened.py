"""A run in which nothing has ever been launched, activated or sent says so, with the names of the tasks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fabric.host.fabric import Fabric
from fabric.layout.layout import Layout
from fabric.program.program import Program


def fabric(start=None, data=False):
    p = Program("worker")
    x = p.array("x", 4, "f32")
    with p.task("work"):
        p.fadds(x, x, x)
    with p.task("more"):
        p.fadds(x, x, x)
    if data:
        p.input_queue(2, 3)
        with p.task("hear", kind="data", color=3):
            p.fadds(x, x, x)
    if start:
        p.start(start)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    if data:
        layout.input_stream(0, 0, "R", 3)
    return Fabric(layout)


def said(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call()
    return result, [str(each.message) for each in found]


@pytest.mark.parametrize("times", [1, 2])
def test_a_forgotten_launch_is_said(times):
    f = fabric()
    for _ in range(times):
        result, heard = said(f.run)
        assert (result.status, result.cycles) == ("complete", 0)
        assert heard == [
            "nothing has happened on this fabric: no task was launched or activated, and no wavelet was sent. "
            "Tasks that can be launched: more, work"
        ]


def test_writing_is_no_launch():
    f = fabric()
    f.write("x", np.ones((1, 1, 4), np.float32))
    assert len(said(f.run)[1]) == 1


@pytest.mark.parametrize("how", ["launch", "start", "send"])
def test_whatever_happened_is_something(how):
    f = fabric("work" if how == "start" else None, data=how == "send")
    if how == "launch":
        f.launch("work")
    if how == "send":
        f.send(0, np.ones(1, np.uint32))
    result, heard = said(f.run)
    assert result.cycles > 0
    assert heard == said(f.run)[1] == []


def test_a_host_that_will_send_more_is_left_alone():
    assert said(lambda: fabric().run(on_wait="return"))[1] == []


def test_a_fabric_without_tasks_has_nothing_to_launch():
    layout = Layout(1, 1)
    layout.place(Program("empty"), 0, 0)
    assert said(Fabric(layout).run)[1] == []
