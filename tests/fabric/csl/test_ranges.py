"""Loops over ranges give start + k step below stop in every type, with bounds at its ends, known and unknown."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.csl.diagnostics import CslError
from tests.examples import examples
from tests.fabric.csl.running import device_of, run_task
from tests.fabric.csl.sources import compile_texts, running

KINDS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "u3", "i12", "u20")
MOST = 30
"""Turns after which a loop counts as one that does not end."""


def ends(kind):
    """Return the smallest and the largest number of a type."""
    bits = int(kind[1:])
    return (0, (1 << bits) - 1) if kind[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


@st.composite
def ranges(draw):
    """Return a type with some ranges of it: a start and a step, and a stop after a few turns, mostly at the ends."""
    kind = draw(st.sampled_from(KINDS))
    low, high = ends(kind)
    near = st.one_of(
        st.integers(low, min(high, low + 9)), st.integers(max(low, high - 9), high), st.integers(low, high)
    )
    found = []
    for _ in range(5):
        start, size = draw(near), draw(st.one_of(st.integers(1, min(4, high)), near.map(abs)))
        step = draw(st.sampled_from((1, -1))) * max(1, min(size, high))
        turns = draw(st.integers(0, 6))
        stop = start + turns * step + draw(st.integers(-2, 2))
        found.append((start, max(low - 1, min(high + 1, stop)), step))
    return kind, [entry for entry in found if len(range(*entry)) <= MOST]


def loop(kind, parts, place):
    """Return a loop that counts its turns and keeps its last number and a sum of its index."""
    start, stop, step = parts
    return (
        f"for (@range({kind}, {start}, {stop}, {step})) |i, k| {{ turns[{place}] += 1; last[{place}] = i; "
        f"sums[{place}] += k; if (turns[{place}] > {MOST}) {{ break; }} }}"
    )


@examples(30)
@given(ranges())
def test_a_range_is_that_of_python(tmp_path_factory, drawn):
    """With any of its three parts unknown it has the same turns as with all of them known, and as Python's."""
    kind, found = drawn
    low, high = ends(kind)
    declarations, body, wanted = [], [], []
    for n, (start, stop, step) in enumerate(found):
        for mask in range(8):
            words = []
            for which, number in enumerate((start, stop, step)):
                if mask >> which & 1 and low <= number <= high:
                    declarations.append(f"var v{n}_{mask}_{which}: {kind} = {number};")
                    words.append(f"v{n}_{mask}_{which}")
                else:
                    words.append(number)
            body.append(loop(kind, words, len(wanted)))
            wanted.append(range(start, stop, step))
    if not wanted:
        return
    count = len(wanted)
    declarations += [f"var turns = @zeros([{count}]i16);", f"var sums = @zeros([{count}]u16);"]
    declarations += [f"var last = @zeros([{count}]{kind});"]
    found = run_task(
        tmp_path_factory.mktemp("range"), "\n".join(body), *declarations,
        results={"turns": "i2", "sums": "u2", "last": "u1" if kind[1:] == "8" else "u2"},
    )  # fmt: skip
    assert found["turns"].tolist() == [len(entry) for entry in wanted]
    assert found["sums"].tolist() == [len(entry) * (len(entry) - 1) // 2 for entry in wanted]
    last = found["last"][:count] if kind[1:] == "8" else found["last"]
    words = last.reshape(count, -1).astype(object)
    bits = int(kind[1:])
    numbers = [sum(int(word) << 16 * k for k, word in enumerate(row)) & (1 << bits) - 1 for row in words]
    assert numbers == [(entry[-1] if entry else 0) & (1 << bits) - 1 for entry in wanted]


@examples(30)
@given(ranges())
def test_a_range_at_compile_time_is_that_of_python(tmp_path_factory, drawn):
    kind, found = drawn
    lines = [
        f"var n: i16 = 0; for (@range({kind}, {a}, {b}, {c})) |_| {{ n += 1; }} @comptime_assert(n == {turns});"
        for a, b, c in found
        for turns in (len(range(a, b, c)),)
    ]
    text = "\n".join(f"comptime {{ {line} }}" for line in lines)
    compile_texts(tmp_path_factory.mktemp("range"), {"top.csl": text})


def test_the_whole_of_a_type_is_counted(tmp_path):
    """All 65,536 numbers of 16 bits, where the end is one past the largest."""
    body = "for (@range(u16, 0, 65536, 1)) |i| { n += 1; } for (@range(u16, a, 65536, 1)) |i| { m += 1; }"
    declarations = ("var n: u32 = 0;", "var m: u32 = 0;", "var a: u16 = 0;")
    found = run_task(tmp_path, body, *declarations, results={"n": "u4", "m": "u4"})
    assert (found["n"], found["m"]) == (65536, 65536)


def test_a_loop_may_change_what_its_bounds_came_from(tmp_path):
    body = "for (@range(i16, a, b, c)) |i| { a = 100; b = 0; c = 9; n[k] = i; k += 1; }"
    declarations = ("var a: i16 = 1;", "var b: i16 = 8;", "var c: i16 = 3;", "var k: u16 = 0;", "var n: [8]i16;")
    assert run_task(tmp_path, body, *declarations, results={"n": "i2"})["n"].tolist() == [1, 4, 7, 0, 0, 0, 0, 0]


def test_a_turn_by_two_costs_no_more_than_one_by_one(tmp_path):
    """What guards the end of the type is worked out before the loop."""

    def cycles(step, stop):
        start = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }"
        loop_text = f"for (@range(i16, 0, b, {step})) |i| {{ a[i & 7] = i; }}"
        text = f"var a: [8]i16; var b: i16 = {stop};\ntask job() void {{ {loop_text} }}\n{start}\n"
        device = device_of(tmp_path, {"top.csl": text})
        device.settle()
        return device.fabric.cycle

    assert cycles(2, 80) - cycles(2, 40) <= cycles(1, 40) - cycles(1, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("for (@range(u8, 0, 10, 300)) |i| { }", "300 does not fit into u8"),
        ("for (@range(i8, 0, 10, -129)) |i| { }", "-129 does not fit into i8"),
        ("for (@range(u16, -5, 3, 1)) |i| { }", "-5 does not fit into u16"),
        ("for (@range(i16, 0, 40000, 1)) |i| { }", "40000 does not fit into i16"),
        ("for (@range(comptime_int, 40000)) |i| { x = i; }", "39999 does not fit into i16"),
        ("for (@range(i16, 0, 9, 0)) |i| { }", "the step of the range is 0"),
    ],
)
def test_what_the_type_does_not_hold_is_refused(tmp_path, text, message):
    with pytest.raises(CslError, match=re.escape(message)):
        compile_texts(tmp_path, {"top.csl": "var x: i16 = 0;\n" + running(text)})


def test_ranges_of_64_bits_have_an_index(tmp_path):
    body = "for (@range(u64, a, 9, 2)) |i, k| { n[k] = @as(u16, i); }"
    found = run_task(tmp_path, body, "var a: u64 = 3;", "var n: [4]u16;", results={"n": "u2"})
    assert found["n"].tolist() == [3, 5, 7, 0]
    assert np.all(found["n"] < 9)


def test_a_step_of_0_that_nothing_reaches(tmp_path):
    """A function that is written in place may have one behind a condition."""
    each = "inline fn each(s: i16) i16 { if (s != 0) { for (@range(i16, 0, 9, s)) |i| { n += 1; } } return n; }"
    body = "m = each(3); k = each(0);"
    found = run_task(
        tmp_path, body, "var n: i16 = 0; var m: i16 = 0; var k: i16 = 9;", each, results=dict.fromkeys("mk", "i2")
    )
    assert (found["m"], found["k"]) == (3, 3)
