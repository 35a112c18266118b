"""Payloads of control wavelets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.asm import control
from wse_core.errors import ProgramError

words = st.integers(0, 2**32 - 1)
commands = st.lists(st.sampled_from(sorted(control.COMMANDS)), max_size=8)
tasks = st.one_of(st.none(), st.integers(0, 63).filter(lambda k: k != 31))


@given(commands, tasks, st.data())
def test_control_payloads_round_trip(names, number, data):
    flags = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    found = control.decode(control.encode(names, number, flags))
    assert found.task == number
    assert list(found.commands[: len(names)]) == names
    assert set(found.commands[len(names) :]) <= {"nop"}
    if names:
        assert list(found.deliver) == flags + [False] * (8 - len(names))


@given(words)
def test_popping_moves_commands_down_by_one(payload):
    before, after = control.decode(payload), control.decode(control.pop(payload))
    assert after.commands == (*before.commands[1:], "nop")
    assert after.deliver == (*before.deliver[1:], False)
    assert after.task == before.task
    assert control.pop(payload) >> 30 == payload >> 30


def test_published_control_constants():
    assert control.encode(["teardown"], deliver=False) == 0x09DF9249
    assert control.pop(0x09DF9249) == 0x091F9249
    assert control.encode(["adv"], deliver=False) == control.ADVANCE == 0x095F9249
    assert control.single("adv", task=5, data=7) == 5 << 16 | 1 << 22 | 7


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: control.encode(["jump"]), "unknown router command 'jump'"),
        (lambda: control.encode(["nop"] * 9), "carries 8 commands, not 9"),
        (lambda: control.encode(["nop"], deliver=[True, True]), "1 commands but 2 deliver flags"),
        (lambda: control.encode([], task=31), "control task id 31"),
        (lambda: control.single(data=1 << 16), "does not fit 16 bits"),
    ],
)
def test_control_payloads_that_do_not_exist(write, message):
    with pytest.raises(ProgramError, match=message):
        write()
