"""Output: JSON form, tables, progress with and without a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.kit.console import PlainProgress, Progress, RichProgress, make_progress, plain, print_json, table


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
    assert lines[-2] == "    100.0 %  100/100  0:00:00 left  cycles 100,000  rate 1.235"
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


FACTS = {"loss": 2.205, "accuracy": 0.1719, "tested": 0.25, "cycles": 295969, "samples/s": 2.1e6, "host cycles/s": 3e6}
LONG = "train digits on 2 wafers of 4 x 4 PEs, which is a long description that must give way"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_bar_share_count_and_time_left_are_there_at_every_width(monkeypatch, width):
    """Facts have a line of their own; of the first line only the description is cut."""
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream, clock = Terminal(), Clock()
    progress = RichProgress(stream, clock)
    progress.bars.stop()  # no thread that draws meanwhile: frames are drawn below
    progress.phase(LONG)
    for done in range(1, 5):
        clock.now += 2
        progress.update(done, 132, **FACTS)
    progress.bars.console.print(progress.bars.get_renderable())
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    first, second = [line for line in text.splitlines() if line.strip()][-2:]
    assert len(first.rstrip()) <= width
    assert len(second) <= width
    assert re.search(r"train \S*.*━+.* 3% .*4/132 .*0:04:1\d", first), first
    assert second.startswith("    loss 2.205  accuracy 0.1719  tested 0.25")


def test_without_rich_the_line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream, clock = Terminal(), Clock()
    progress = PlainProgress(stream, interactive=True, clock=clock)
    progress.phase(LONG)
    clock.now += 8
    progress.update(4, 132, **FACTS)
    line = stream.getvalue().rsplit("\r\x1b[2K", 1)[1]
    assert len(line) < 80
    assert line.startswith("      3.0 %  4/132  0:04:16 left  loss 2.205")
