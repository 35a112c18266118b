"""What numbering knows of memory: as much as a look at all places would find, and no look at all of them."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.ir import StaticMemory
from fabric.csl.ir.reader import read
from fabric.csl.optimise.local import number
from fabric.csl.optimise.memory import Contents
from tests.examples import examples
from tests.fabric.csl.middle.texts import text


def memory(name, is_apart):
    made = StaticMemory(name, 8, "u16")
    made.apart = is_apart
    return made


MEMORIES = (None, memory("a", False), memory("b", False), memory("c", True))
PLACES = st.tuples(st.sampled_from(MEMORIES), st.sampled_from((None, 1)), st.integers(0, 3), st.integers(1, 2))


def may_change(stored, known):
    """Whether a store may change what is known, by a look at both places alone."""
    if stored[0] is known[0]:
        (_, base, at, size), (_, other, begin, words) = stored, known
        return base != other or not size or (at < begin + words and begin < at + size)
    both = [one for one in (stored[0], known[0]) if one is not None]
    return len(both) == 1 and not both[0].apart


@examples(200, shrink=False)
@given(
    st.lists(st.tuples(st.sampled_from(("put", "put", "store", "unknown", "forget")), PLACES), min_size=20, max_size=60)
)
def test_it_knows_what_a_look_at_all_places_finds(steps):
    contents, known = Contents(), {}
    for k, (what, place) in enumerate(steps):
        if what == "forget":
            contents.forget(lambda one, place=place: one is place[0])
            known = {each: value for each, value in known.items() if each[0] is not place[0]}
        elif what == "put":
            contents.put(place, k)
            known[place] = k
        else:
            stored = (*place[:3], 0 if what == "unknown" else place[3])
            contents.store(stored)
            known = {each: value for each, value in known.items() if not may_change(stored, each)}
        for each in {one for _, one in steps}:
            assert contents.get(each) == known.get(each)


def test_twice_as_many_stores_take_twice_as_long():
    """Counted in calls, which no other process disturbs."""

    def calls(stores):
        code = [f"store v1 [@a+{k}]" for k in range(stores)]
        function = read(text("\n".join(["v1 = rand16", *code, "ret"])))
        count = 0

        def called(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(called)
        try:
            number(function)
        finally:
            sys.setprofile(None)
        return count

    assert calls(800) < 2.2 * calls(400)
