"""Control payloads, and a router of the reference machine between streams."""

from __future__ import annotations

from tests.wse_core.test_reference_kit import fabric

NOP, ADV, RST, TEARDOWN = range(4)
NO_TASK_ID = 31
UNDELIVERED = 1 << 24


def single(first, more=0):
    """Return a control payload with one command and id 31; it is not delivered, and neither are the NOPs behind it."""
    payload = NO_TASK_ID << 16 | first << 22 | more << 25
    for bit in (24, 27, 0, 3, 6, 9, 12, 15):
        payload |= 1 << bit
    return payload


def stream(row, outputs="E"):
    """Return a machine of one router that takes color 1 from a stream in the west."""
    links = [(0, 0, letter, 1) for letter in outputs]
    return fabric({}, {1: {(0, 0): row}}, inputs=[(0, 0, "W", 1)], outputs=links)


def send(machine, *items, index=0):
    """Queue wavelets; a tuple (payload,) is a control wavelet."""
    payload = [item[0] if isinstance(item, tuple) else item for item in items]
    machine.push_input(index, payload, [isinstance(item, tuple) for item in items])


def payloads(machine, index=0):
    """Return what came out, control wavelets as tuples (payload,)."""
    _, values, controls = machine.pop_output(index)
    return [(int(v),) if c else int(v) for v, c in zip(values, controls, strict=True)]
