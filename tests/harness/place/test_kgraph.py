"""Problems in the contest's format: what is read, and what is refused with one line."""

from __future__ import annotations

import contextlib

import pytest

from harness.place.kgraph import parse_problem, read_problem
from tests.harness.place.problems import GRAPH, head, text
from wse_core.errors import ConfigError


def test_a_problem_is_read(tmp_path):
    path = tmp_path / "a.kgraph"
    path.write_text(text(wire=4), encoding="utf-8")
    problem = read_problem(path)
    assert (problem.name, problem.width, problem.height, problem.memory) == ("small", 60, 50, 24576)
    assert (problem.time_weight, problem.wire_weight, problem.adapter_weight) == (1.0, 4.0, 0.0)
    assert [(k.name, k.kind, k.formal) for k in problem.kernels] == [
        ("k1", "conv", (8, 8, 4, 6, 3, 3, 1, 1)),
        ("k2", "dblock", (8, 8, 8)),
        ("k3", "cblock", (8, 8, 8)),
    ]
    assert problem.wires == ((0, 1), (1, 2), (0, 2))  # input and output need no place


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("width=60", "wide=60", "did you mean width"),
        ("width=60\n", "", "lacks width"),
        ("width=60", "width=60\nwidth=61", "width stands in the head twice"),
        ("width=60", "width=0", "width"),
        ("width=60", "width=-3", "width"),
        ("width=60", "width=9999999999999999999999", "width"),
        ("wlength=1", "wlength=nan", "wlength"),
        ("memlimit=24576", "memlimit=lots", "memlimit"),
        ("conv[1] W", "conf[1] W", "did you mean conv"),
        ("dblock[ 2] f", "dblock[1] f", "there is a node 1 already"),
        ("dblock[ 2] f", "dblock[1234567890] f", "above 999999999"),
        ("name='k2'", "name='k1'", "there is a kernel k1 already"),
        ("name='k2'", "name='k 2'", "no name of a kernel"),
        (" name='k2'", "", "no name of a kernel"),
        ("W=8 H=8 R=3", "W=8 W=8 H=8 R=3", "W stands there twice"),
        ("W=8 H=8 R=3", "H=8 R=3", "conv needs W"),
        ("W=8 H=8 R=3", "W=8 H=8 R=3 X=1", "conv has no X"),
        ("W=8 H=8 R=3", "W=8 H=8 R=65", "R"),
        ("W=8 H=8 R=3", "W=8 H=99999 R=3", "H"),
        ("W=8 H=8 R=3", "W=8 H= R=3", "is no key=value"),
        ("K=6", "K=6 !!", "is no key=value"),
        ("dblock[ 2] f=8", "dblock[ 2] f=6", "no multiple of 4"),
        ("cblock[3] f=8 h=8", "cblock[3] f=8 h=7", "even"),
        ("conv[1]:y    ->", "conv[7]:y    ->", "there is no conv[7]"),
        ("conv[1]:y    ->", "cblock[1]:y    ->", "there is no cblock[1]"),
        ("conv[1]:y    ->", "dblock[2]:y    ->", "with itself"),
        ("conv[1]:y    ->", "conv[1]:y", "neither a kernel nor a connection"),
        ("conv[1]:y    ->", "\x00\x1b[2J", "neither a kernel nor a connection"),
    ],
)
def test_what_is_no_problem_is_refused_in_one_line(old, new, said):
    whole = text()
    assert old in whole
    with pytest.raises(ConfigError) as caught:
        parse_problem(whole.replace(old, new, 1), "a.kgraph")
    message = str(caught.value)
    assert said in message
    assert message.startswith("a.kgraph: ")
    assert "\n" not in message
    assert len(message) < 400


def test_the_line_is_named():
    whole = text()
    number = whole[: whole.index("dblock[ 2] f")].count("\n") + 1
    with pytest.raises(ConfigError, match=f"line {number}: dblock has no G"):
        parse_problem(whole.replace("dblock[ 2] f=8", "dblock[ 2] g=8 f=8"))


@pytest.mark.parametrize(
    ("content", "said"), [("", "lacks width"), (head(), "no kernel"), (head() + "input[0] name='k0'", "no kernel")]
)
def test_what_holds_no_kernel_is_refused(content, said):
    with pytest.raises(ConfigError, match=said):
        parse_problem(content)


def test_files_that_are_none_are_refused(tmp_path):
    for make, said in (
        (lambda p: p.mkdir(), "is a directory"),
        (lambda p: p.write_bytes(b"\xff\xfe\x00" * 9), "is no text"),
        (lambda p: p.write_bytes(b" " * 10_000_001), "is larger than"),
        (lambda p: None, "cannot be read"),
    ):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.kgraph"
        make(path)
        with pytest.raises(ConfigError, match=said):
            read_problem(path)


def test_every_line_of_the_graph_matters():
    """Nothing is skipped silently: a problem without one of its lines is another one, or none."""
    whole = parse_problem(text())
    lines = GRAPH.strip().splitlines()
    for index, line in enumerate(lines):
        if line and not line.startswith(("(*", "input", "output")) and "output" not in line:
            rest = head() + "\n".join(lines[:index] + lines[index + 1 :])
            with contextlib.suppress(ConfigError):
                assert parse_problem(rest) != whole, line
