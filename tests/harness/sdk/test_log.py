"""What PEs do stands in ``sim.log`` if `SIMFABRIC_DEBUG` asks for it, as public scripts read it."""

from __future__ import annotations

import re

import pytest

from harness.sdk.log import asked_for
from harness.sdk.python import run_script
from harness.sdk.runtime import SdkRuntime
from tests.harness.sdk.test_recording import program

__all__ = ["program"]  # the fixture

LINE = re.compile(r"@(\d+) P(\d+)\.(\d+):? \(hwtile\) (.*)")


def lines(directory):
    """Return the lines of a log as cycle, column, row and text, and its first line."""
    head, *rest = (directory / "sim.log").read_text().splitlines()
    found = [LINE.fullmatch(line) for line in rest]
    assert all(found)
    return head, [(int(m[1]), int(m[2]), int(m[3]), m[4]) for m in found]


@pytest.mark.parametrize("prefix", ["", "SINGULARITYENV_", "APPTAINERENV_"])
def test_instructions_of_each_pe(program, monkeypatch, prefix):
    """Coordinates are those of the fabric, cycles go up, and the addition stands at the PE that adds."""
    monkeypatch.setenv(f"{prefix}SIMFABRIC_DEBUG", "inst_trace")
    assert run_script("run.py", ["4"]) == 0
    head, found = lines(program)
    assert head == "@0 dimX=757, dimY=996"
    assert {(x, y) for _, x, y, _ in found} == {(4, 1), (5, 1)}
    assert [cycle for cycle, *_ in found] == sorted(cycle for cycle, *_ in found)
    adds = [entry for entry in found if "FADDS" in entry[3]]
    assert {(x, y) for _, x, y, _ in adds} == {(5, 1)}
    assert not any("landing" in text or "wavelet" in text for *_, text in found if "Not enough" not in text)


def test_landings_alone(program, monkeypatch):
    """Four wavelets land at the neighbour, from the west, one a cycle."""
    monkeypatch.setenv("SIMFABRIC_DEBUG", "landing")
    assert run_script("run.py", ["4"]) == 0
    _, found = lines(program)
    there = [(cycle, text) for cycle, x, y, text in found if (x, y) == (5, 1)]
    assert [text for _, text in there] == ["landing C3 from link W, "] * 4
    assert [cycle - there[0][0] for cycle, _ in there] == [0, 1, 2, 3]


@pytest.mark.parametrize("suppressed", [True, False])
def test_without_the_variable_a_log_is_empty_and_there_are_no_traces_in_their_directory(program, suppressed):
    """Scripts move both away when they are done, so they are there; outside of a script a run leaves nothing."""
    script = (program / "run.py").read_text()
    assert "SdkRuntime('out'" in script or 'SdkRuntime("out"' in script
    options = f", suppress_simfab_trace={suppressed}"
    (program / "run.py").write_text(re.sub(r"(SdkRuntime\(.out.)", rf"\1{options}", script))
    assert run_script("run.py", ["4"]) == 0
    assert (program / "sim.log").read_text() == ""
    assert (program / "simfab_traces").is_dir() != suppressed
    (program / "sim.log").unlink()
    with SdkRuntime("out"):
        pass
    assert not (program / "sim.log").exists()


def test_words_that_mean_nothing(capsys):
    assert asked_for({"SIMFABRIC_DEBUG": "router, everything"}) == {"router"}
    assert "'everything' means nothing here" in capsys.readouterr().err
