"""Values and names in messages: short, on one line, printable, and still those that were given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wse_core.errors.values import MOST_SHOWN, named, shown

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(value=VALUES)
def test_what_is_shown_fits_into_a_line(value):
    text = shown(value)
    assert text.isprintable()
    assert 0 < len(text) <= MOST_SHOWN
    if len(repr(value)) <= MOST_SHOWN and not isinstance(value, (list, dict)):
        assert text == repr(value)


@given(name=st.text(max_size=300))
def test_names_stay_as_they_are_unless_they_steer(name):
    text = named(name)
    assert text.isprintable()
    assert len(text) <= MOST_SHOWN
    assert (text == name) == (name.isprintable() and len(name) <= MOST_SHOWN)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("a\x1b[31m\n", r"'a\x1b[31m\n'"),
        ([1, "x"], "[1, 'x']"),
        ("x" * 100, "'" + "x" * 75 + "...'"),
        (10**4000, "a number of about 4,000 digits"),
        ([10**5000], "[a number of about 5,000 digits]"),
        ({"lr": -(10**5000)}, "{'lr': a number of about 5,000 digits}"),
        ({10**5000}, "{a number of about 5,000 digits}"),
        ([[10**18] * 200_000] * 3, None),
        ({str(number): number for number in range(100_000)}, None),
    ],
)
def test_what_is_shown(value, text):
    found = shown(value)
    assert found == text if text is not None else len(found) == MOST_SHOWN
