"""Values that users set: what each kind takes, what it refuses, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, machine
from wse_core.schema import Field, close_match, suggestion

KINDS = (bool, int, float, str, tuple)
SIDE = Field("p", int, "side of the square", low=1, high=996, unit="PEs")


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (bool, True, True),
        (bool, np.bool_(False), False),
        (int, 7, 7),
        (int, np.int64(7), 7),
        (int, 10**400, 10**400),
        (float, 0.5, 0.5),
        (float, 2, 2.0),
        (float, np.float32(0.5), 0.5),
        (str, "f16", "f16"),
        (tuple, [1, 2], (1, 2)),
        (tuple, (np.int8(1),), (1,)),
    ],
)
def test_values_of_the_right_kind(kind, value, found):
    result = Field("n", kind).check(value, "here")
    assert result == found
    assert type(result) is kind


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, True, "here: expected a whole number, found true or false: True"),
        (int, 1.0, "here: expected a whole number, found a number: 1.0"),
        (int, None, "here: expected a whole number, found NoneType: None"),
        (float, False, "here: expected a number, found true or false: False"),
        (float, float("nan"), "here: nan is not a usable number"),
        (float, float("inf"), "here: inf is not a usable number"),
        (float, 10**400, "here: a number of about 400 digits is not a usable number"),
        (bool, 1, "here: expected true or false, found a whole number: 1"),
        (str, 3, "here: expected a text, found a whole number: 3"),
        (tuple, 3, "here: expected a list, found a whole number: 3"),
        (tuple, [1, True], "here[1]: expected a whole number, found true or false: True"),
    ],
)
def test_values_of_another_kind(kind, value, message):
    with pytest.raises(ConfigError) as caught:
        Field("n", kind).check(value, "here")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (SIDE, 0, "here: 0 PEs is too small; the least is 1 PEs"),
        (SIDE, 997, "here: 997 PEs is too large; the most is 996 PEs"),
        (Field("d", tuple, low=1, length=2), [1], "here: expected 2 values, found 1"),
        (Field("d", tuple, low=1, length=2), [1, 0], "here[1]: 0 is too small; the least is 1"),
        (
            Field("t", str, choices=("f16", "cb16")),
            "f61",
            "here: 'f61' is not a possible value. Try: did you mean f16? Known are f16, cb16.",
        ),
    ],
)
def test_limits(field, value, message):
    with pytest.raises(ConfigError) as caught:
        field.check(value, "here")
    assert str(caught.value) == message


def test_a_number_too_long_to_be_written_is_refused_like_any_other():
    with pytest.raises(ConfigError, match="here: a number of about 5,000 digits PEs is too large; the most is 996 PEs"):
        SIDE.check(10**5000, "here")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "12", 12),
        (int, "0x10", 16),
        (int, " -3 ", -3),
        (float, "1e3", 1000.0),
        (bool, "yes", True),
        (bool, "OFF", False),
        (str, "f16", "f16"),
        (tuple, "1,2,3", (1, 2, 3)),
    ],
)
def test_texts(kind, text, value):
    found = Field("n", kind).parse(text, "here")
    assert found == value
    assert type(found) is kind


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, "1.5", r"here: expected a whole number, found '1\.5'"),
        (int, "", "expected a whole number, found ''"),
        (int, "1" * 5000, r"expected a whole number, found '1{70,80}\.\.\.'"),
        (bool, "maybe", "expected true or false"),
        (float, "x", "expected a number"),
        (float, "1e999", "inf is not a usable number"),
        (tuple, "1,,2", "whole numbers separated by commas"),
    ],
)
def test_texts_that_mean_nothing(kind, text, message):
    with pytest.raises(ConfigError, match=message):
        Field("n", kind).parse(text, "here")


def test_the_limits_hold_for_texts_too():
    with pytest.raises(ConfigError, match="here: 0 PEs is too small"):
        SIDE.parse("0", "here")
    with pytest.raises(ConfigError, match=r"did you mean f16\?"):
        Field("dtype", str, choices=("f16", "f32")).parse("fp16", "here")


@given(st.sampled_from(KINDS), st.none() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_any_value_is_of_the_kind_or_refused_in_one_line(kind, value):
    try:
        found = Field("n", kind).check(value, "here")
    except ConfigError as error:
        assert str(error).startswith("here")
        assert len(str(error).splitlines()) == 1
    else:
        assert type(found) is kind


def test_suggestions():
    assert suggestion("hopz", ["hops", "color"]) == "did you mean hops? Known are hops, color"
    assert suggestion("zzz", ["hops", "color"]) == "known are hops, color"
    assert suggestion("x", []) == "there are none"
    assert close_match("hopz", ["hops", "color"]) == "hops"
    assert close_match("zzz", ["hops", "color"]) is None


# --- modelled numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_modelled_number_is_legal_by_its_own_limits(name):
    for value in PARAMETERS[name].values.values():
        assert PARAMETERS[name].check(value) == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("router.hop", True, "machine.router.hop: expected a whole number, found true or false"),
        ("router.hop", 9, "machine.router.hop: 9 cycles is too large; the most is 8 cycles"),
        ("router.hop", "two", "machine.router.hop: expected a whole number, found 'two'"),
        ("queue.in_depth", (1, 2), "machine.queue.in_depth: expected 8 values, found 2"),
        ("queue.in_depth", (1, 2, 3, 4, 5, 6, 7, True), r"queue\.in_depth\[7\]: expected a whole number"),
        ("mem.conflict_rule", "banks", "'banks' is not a possible value. Try: did you mean bank"),
        ("router.hopp", 1, "unknown machine parameter 'router.hopp'. Try: did you mean router.hop"),
    ],
)
def test_modelled_numbers_are_refused_in_the_same_words(name, value, message):
    with pytest.raises(ConfigError, match=message):
        machine("wse2", {name: value})


def test_modelled_numbers_may_be_given_as_text():
    assert machine("wse2", {"router.hop": "0x2", "clock.ghz": "1"})["router.hop"] == 2
