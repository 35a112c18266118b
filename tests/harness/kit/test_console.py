"""Output: JSON form, tables, progress with and without a terminal."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.kit.console import PlainProgress, Progress, make_progress, plain, print_json, table


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


class Clock:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def test_plain_covers_numpy_and_special_numbers():
    found = plain(
        {
            "i": np.int64(3),
            "f": np.float32(0.5),
            "b": np.bool_(True),
            "a": np.arange(3),
            "t": (1, (2,)),
            "nan": float("nan"),
            "inf": np.float64("-inf"),
            "p": Path("a"),
            "s": {2, 1},
            1: None,
        }
    )
    assert found == {
        "i": 3, "f": 0.5, "b": True, "a": [0, 1, 2], "t": [1, [2]], "nan": "nan", "inf": "-inf", "p": "a", "s": [1, 2],
        "1": None,
    }  # fmt: skip
    assert type(found["b"]) is bool


def test_plain_refuses_what_json_cannot_say():
    with pytest.raises(TypeError, match="object has no JSON form"):
        plain({"x": object()})


def test_print_json_is_one_line(capsys):
    print_json({"a": [1, float("inf")], "text": "two\nlines"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": [1, "inf"], "text": "two\nlines"}


def test_table_aligns():
    assert table([("a", 1), ("long", "x")], indent="  ") == "  a     1\n  long  x"
    assert table([]) == ""


def test_progress_is_silent_without_a_terminal():
    stream = io.StringIO()
    with make_progress(None, stream) as progress:
        progress.phase("work")
        progress.update(1, 2)
        progress.note("note")
    assert type(progress) is Progress
    assert stream.getvalue() == ""


def test_progress_can_be_forced_and_forbidden():
    assert type(make_progress(False, Terminal())) is Progress
    assert type(make_progress(True, io.StringIO())) is PlainProgress


def test_plain_progress_on_a_pipe_writes_few_whole_lines():
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, interactive=False, clock=clock)
    progress.phase("simulate")
    for done in range(1, 101):
        clock.now += 0.25
        progress.update(done, 100, cycles=done * 1000, rate=1.23456)
    progress.note("kept")
    progress.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "==> simulate"
    assert lines[-1] == "    kept"
    assert lines[-2] == "    100.0 %  cycles 100,000  rate 1.235"
    assert 5 <= len(lines) <= 9
    assert "\r" not in stream.getvalue()


def test_plain_progress_on_a_terminal_rewrites_one_line():
    stream, clock = Terminal(), Clock()
    progress = PlainProgress(stream, interactive=True, clock=clock)
    for done in (1, 2, 3):
        clock.now += 1
        progress.update(done)
    progress.close()
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().count("\r") == 3


def test_without_rich_a_terminal_gets_plain_progress(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert type(make_progress(None, Terminal())) is PlainProgress


def test_rich_progress_shows_phases_and_notes():
    pytest.importorskip("rich")
    stream = Terminal()
    with make_progress(None, stream) as progress:
        progress.phase("simulate [now]")
        progress.update(1, 2, cycles=5)
        progress.note("a note [kept]")
        progress.phase("compare")
        progress.update(3)
    assert type(progress).__name__ == "RichProgress"
    assert "simulate [now]" in stream.getvalue()
    assert "a note [kept]" in stream.getvalue()
