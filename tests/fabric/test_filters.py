"""Filters of both machines: what a counter with `filter_control` lets pass, word by word."""

from __future__ import annotations

import pytest

from fabric import Fabric, Layout, Program
from tests.fabric import BACKENDS

COLOR = 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rule", "passing"), [
    ({"filter_control": True, "max_counter": 1}, "C"),  # the counter stands at 1, data do not pass
    ({"filter_control": True, "max_counter": 2}, "D"),
    ({"filter_control": True, "max_counter": 0}, "AH"),
    ({"filter_control": True, "max_counter": 1, "count_control": True}, ""),  # 1 is met by data only
    ({"filter_control": True, "max_counter": 0, "count_control": True}, "AD"),
    ({"filter_control": True, "max_counter": 5}, ""),
    ({"max_counter": 1}, "AbCeDH"),  # without it control wavelets always pass
])  # fmt: skip
def test_what_a_counter_lets_pass(backend, rule, passing):
    words = "AbCeDfgH"  # capital letters: control wavelets
    p = Program("p")
    p.input_queue(0, COLOR)
    layout = Layout(1, 1)
    layout.place(p, 0, 0)
    layout.route(COLOR, None, "W", "R", filter={"kind": "counter", "limit1": 3, **rule})
    source = layout.input_stream(0, 0, "W", COLOR)
    fabric = Fabric(layout, backend)
    fabric.send(source, [ord(x) for x in words], [x.isupper() for x in words])
    fabric.engine.run(100)
    left = fabric.engine.snapshot()["pe"][0, 0]["inq"].get(0, [])
    assert "".join(chr(word[0] & 0xFF) for word in left) == passing
