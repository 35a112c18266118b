"""The exception family: message, fields, exit status, pickling."""

from __future__ import annotations

import pickle

import pytest

from wse_core import errors
from wse_core.errors import (
    CheckpointError,
    ConfigError,
    CycleLimitError,
    DeadlockError,
    InternalError,
    LayoutError,
    MachineFault,
    MemoryLimitError,
    ProgramError,
    ProgramFault,
    QueueFault,
    RouteError,
    RouterFault,
    SramFault,
    TraceError,
    TrainingError,
    UnsupportedError,
    WseError,
)

BEFORE = (ConfigError, LayoutError, RouteError, ProgramError, UnsupportedError, MemoryLimitError, CheckpointError)
DURING = (MachineFault, SramFault, RouterFault, QueueFault, ProgramFault, DeadlockError, CycleLimitError)


def test_every_public_class_is_in_the_family():
    assert all(issubclass(getattr(errors, name), WseError) for name in errors.__all__)


@pytest.mark.parametrize("kind", BEFORE)
def test_bad_input_ends_with_status_two(kind):
    assert kind("no").exit_code == 2


@pytest.mark.parametrize("kind", [*DURING, TraceError, TrainingError, InternalError])
def test_failures_during_a_run_end_with_status_one(kind):
    assert kind("no").exit_code == 1


@pytest.mark.parametrize("kind", [SramFault, RouterFault, QueueFault, ProgramFault])
def test_faults_are_machine_faults_with_all_fields(kind):
    fault = kind("what", x=1, y=2, cycle=3, color=4, address=5, detail="six")
    assert isinstance(fault, MachineFault)
    assert (fault.x, fault.y, fault.cycle, fault.color, fault.address, fault.detail) == (1, 2, 3, 4, 5, "six")
    assert str(fault) == "PE (1, 2), cycle 3, color 4, address 0x0005: what\n  six"


def test_parents():
    assert issubclass(RouteError, LayoutError)
    assert issubclass(MemoryLimitError, ConfigError)
    assert not issubclass(DeadlockError, MachineFault)


def test_message_has_what_where_cause_and_hint_in_this_order():
    error = ConfigError("p is 0", where="a.toml: options.p", cause="a typing mistake", hint="p = 8")
    assert str(error) == "a.toml: options.p: p is 0. Likely cause: a typing mistake. Try: p = 8."


def test_message_of_one_part_is_left_alone():
    assert str(ConfigError("p is 0")) == "p is 0"
    assert str(ConfigError()) == "ConfigError"


def test_places_of_layout_and_program():
    assert str(RouteError("leaves the rectangle", x=0, y=7, color=3)) == "PE (0, 7), color 3: leaves the rectangle"
    error = ProgramError("too long", program="gemm", task="start", instruction=9)
    assert str(error) == "program 'gemm', task 'start', instruction 9: too long"


def test_deadlock_shows_the_first_waiters_and_keeps_all():
    error = DeadlockError("nothing moves", cycle=50, waiters=[f"PE ({n}, 0) waits" for n in range(20)])
    lines = str(error).splitlines()
    assert lines[0] == "cycle 50: nothing moves"
    assert lines[1] == "  PE (0, 0) waits"
    assert lines[-1] == "  ... and 8 more"
    assert len(lines) == 2 + DeadlockError.MAX_SHOWN
    assert len(error.waiters) == 20


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("what", where="w", cause="c", hint="h", key="k"),
        MemoryLimitError("big", needed_bytes=10, available_bytes=5),
        SramFault("out of range", x=1, y=2, cycle=3, address=24576),
        DeadlockError("stuck", waiters=["a", "b"], cycle=9),
        CycleLimitError("long", cycle=10, limit=10),
        TraceError("bad", path="run.h5", exit_code=2),
    ],
    ids=lambda error: type(error).__name__,
)
def test_pickling_keeps_message_and_fields(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert again.args == error.args


def test_as_dict_is_plain_data():
    found = SramFault("out of range", x=1, y=2, cycle=3, address=4).as_dict()
    assert found["type"] == "SramFault"
    assert found["address"] == 4
    assert "out of range" in found["message"]


def test_numpy_integers_may_be_given():
    import numpy as np

    assert "address 0x0010" in str(SramFault("no", address=np.int64(16)))
