"""Small machines for lines that random ones rarely reach: the compiled engine against the plain-Python reference.

Each machine runs in single steps and in one go; both ways must give the reference's state, ready cycles included.
"""

import pytest

from fabric.engine.engine import Engine
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.fabric.test_equivalence import compare, fault_of, state_of
from tests.random_machines import difference
from wse_core.params import machine
from wse_core.reference.machine import ReferenceMachine


def agree(layout, cycles=300, cuts=(1, 13, 1000)):
    """Compare after every cut; return the status and the compiled engine at the end."""
    spec = layout.build()
    for cut in cuts:
        machines = Engine(spec), ReferenceMachine(spec)
        for cycle in range(min(cut, cycles), cycles + 1, cut):
            status = [each.run(cycle) for each in machines]
            if "limit" in status and status[0] != status[1]:
                status = [each.run(cycle + 50) for each in machines]
            assert status[0] == status[1], (cut, cycle, status)
            if status[0] == "fault":
                assert fault_of(machines[0]) == fault_of(machines[1])
                break
            assert difference(*(state_of(each, status[0]) for each in machines)) is None, (cut, cycle)
            if status[0] != "limit":
                assert machines[0].last_active == machines[1].last_active
                break
    return status[0], machines[0]


@pytest.mark.parametrize("n", [1, 2, 5, 13])
@pytest.mark.parametrize(("name", "kind"), [("fs2xp16", "f32"), ("xp162fs", "i16"), ("mov16", "u16")])
def test_last_step_of_a_packed_stream(name, kind, n):
    """A stream of an odd length ends with a step of one element, which may cost less than the steps before it."""
    m = machine("wse2")
    sender = Program("sender", m)
    a = sender.array("a", n, kind)
    sender.output_queue(2, 0)
    with sender.task("main"):
        getattr(sender, name)(sender.fabout(0, n), sender.mem1d(a))
        sender.nop()
    sender.start("main")
    receiver = Program("receiver", m)
    receiver.input_queue(2, 0)
    layout = Layout(2, 1, m)
    layout.place(sender, 0, 0)
    layout.place(receiver, 1, 0)
    layout.route(0, (0, 0), rx="R", tx="E")
    layout.route(0, (1, 0), rx="W", tx="R")
    status, engine = agree(layout)
    assert status == "stuck"
    assert int(engine.counters()["elements"].sum()) == n


def test_random_machine_whose_stream_ends_with_a_short_step():
    assert compare(5169) == "stuck"
