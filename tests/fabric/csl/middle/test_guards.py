"""Each pass, on functions that come out wrong if it forgets what it must look at; and that it does its work."""

from __future__ import annotations

import pytest

from fabric.csl.ir.reader import read
from tests.fabric.csl.middle.guards import GUARDS, function
from tests.fabric.csl.middle.meaning import outcome, world_of
from tests.fabric.csl.middle.test_meaning import PASSES, simplify

POINTER, NUMBER = 0x101, 7
"""What a function is called with: a pointer to ``@a+1``, and a number."""
CASES = [(group, name) for group, cases in GUARDS.items() for name in cases]


def text_of(group, name):
    """Return the text of a guard; what it leaves in its registers is stored."""
    body = GUARDS[group][name]
    stores = [f"store {'d' if f'd{k} =' in body else 'v'}{k} [@o+{2 * (k - 5)}]" for k in (5, 6)]
    return function("\n".join([body, *stores, "ret"]))


def run(text, *passes):
    """Return what a function leaves after passes; `@a` lies where the pointer leads."""
    made = read(text)
    world = world_of(made) | {"a": world_of(read(function("v5 = load [@a]\nret")))["a"]}
    for change in passes:
        change(made)
    return outcome(made, (POINTER, NUMBER), world)


@pytest.mark.parametrize(("group", "name"), CASES)
def test_a_guard(group, name):
    """Alone, on the function as it is and on a simple one, and all passes together."""
    text = text_of(group, name)
    wanted = run(text)
    for what, change in PASSES.items():
        assert run(text, change) == wanted, what
        assert run(text, simplify, change) == wanted, what
    assert run(text, PASSES["single"], PASSES["legal"]) == wanted
