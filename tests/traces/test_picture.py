"""A picture is shown in a notebook, written in three formats, and has the names of what it shows."""

from __future__ import annotations

import csv
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import wse
from harness.cli import main as cli
from traces import pictures, style
from traces.heatmap import heatmap
from traces.picture import FORMATS, Picture, format_of, picture_bytes
from traces.plots import PLOTS
from traces.trace import Trace
from wse_core.errors import TraceError

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def operations(name="pe"):
    """Return a layout of one PE whose task has two operations, one of them in a microthread."""
    program = wse.Program(name)
    one, other = program.array("one", 40, "f32"), program.array("other", 40, "f32")
    program.input_queue(0, 5)
    program.output_queue(4, 5)
    with program.task("main"):
        program.fmuls(program.fabout(5, 40), one, 2.0, async_=True)
        program.fadds(other, program.fabin(5, 40), 1.0)
    layout = wse.Layout(1, 1)
    layout.place(program, 0, 0)
    layout.route(5, (0, 0), rx="R", tx="R")
    return layout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("picture") / "two operations.h5"
    fabric = wse.Fabric(operations())
    with fabric.record(path, trace="full", windows=20):
        fabric.launch("main")
        fabric.run()
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_every_picture_in_every_format(run, tmp_path, form):
    with wse.open(run) as trace:
        for number, what in enumerate(PLOTS):
            first, table = trace.plot(what).save(tmp_path / f"{what}.{form}")
            assert first.read_bytes().startswith(BEGINS[form])
            assert table.suffix == ".csv"
            if number % len(FORMATS) == [*FORMATS].index(form):  # a drawing is the same in each
                again, _ = trace.plot(what).save(tmp_path / f"again.{form}")
                assert first.read_bytes() == again.read_bytes()


def test_other_formats_are_refused(run, tmp_path):
    with wse.open(run) as trace, pytest.raises(TraceError, match="no picture is written as .jpg"):
        trace.plot().save(tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TraceError, match="did you mean svg"):
        format_of("a.sgv")
    with wse.open(run) as trace, pytest.raises(TraceError, match="did you mean timeline"):
        trace.plot("timelin")


def test_operations_have_their_source_lines_in_a_timeline(run):
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    at = {name: next(k for k, line in enumerate(lines, 1) if f"program.{name}(" in line) for name in ("fmuls", "fadds")}
    with wse.open(run) as trace:
        found = trace.plot("timeline")
        labels = [text.get_text() for text in found.figure.axes[0].get_legend().get_texts()]
    what = {row[2] for row in found.rows}
    assert {f"fmuls test_picture.py:{at['fmuls']} in a microthread", f"fadds test_picture.py:{at['fadds']}"} <= what
    assert {"main", f"fmuls test_picture.py:{at['fmuls']}", f"fadds test_picture.py:{at['fadds']}"} <= set(labels)
    begin, end = next(row[3:] for row in found.rows if row[2].startswith("fadds"))
    assert end - begin >= 40


def test_one_word_for_a_state_everywhere(run, tmp_path):
    """The timeline, its table and the account of cycles say the same of a PE that waits."""
    assert (
        cli.main(
            ["kernel", "chain_reduce", "pes=3", "n=8", "--trace", "full", "--out", str(tmp_path / "run.h5"), "--json"]
        )
        == 0
    )
    with Trace.open(tmp_path / "run.h5") as trace:
        drawn = trace.plot("timeline")
        legend = {text.get_text() for text in drawn.figure.axes[0].get_legend().get_texts()}
        said = {row[2] for row in drawn.rows}
        account = {text.get_text() for text in trace.plot("stalls").figure.axes[0].get_legend().get_texts()}
    assert style.USE_TEXT["stall_input"] in legend & said & account
    assert not any(word.startswith("wait") and word not in style.USE_TEXT.values() for word in legend | said | account)


def test_many_spans_are_one_image(run, monkeypatch):
    with wse.open(run) as trace:
        few = picture_bytes(trace.plot("timeline").figure, "svg")
        monkeypatch.setattr(pictures, "MOST_DRAWN", 1)
        many = picture_bytes(trace.plot("timeline").figure, "svg")
    assert (b"<image" in few, b"<image" in many) == (False, True)


@pytest.mark.parametrize("letters", [10, 80, 300, 5000])
def test_a_title_stays_within_its_figure(letters):
    figure = heatmap(np.ones((1, 4)), "m" * letters, "cycles").figure
    picture_bytes(figure, "png")
    axes = figure.axes[0]
    title = axes.get_title(loc="left")
    assert title.endswith("...") == (letters > 20)
    with_title = next(text for text in axes.get_children() if getattr(text, "get_text", str)() == title)
    assert with_title.get_window_extent(figure.canvas.get_renderer()).x1 <= figure.bbox.x1


def test_a_drawing_is_xml_and_has_ink_that_changes(run):
    with wse.open(run) as trace:
        for what in ("timeline", "stalls", "utilisation", "windows"):
            text = trace.plot(what)._repr_svg_()
            ElementTree.fromstring(text)
            assert "prefers-color-scheme: dark" in text
            # what has no colour is black, on a dark screen too
            assert re.findall(r"<!-- [^>]* -->\s*<g transform", text) == []


def test_a_table_has_any_name_in_one_cell(tmp_path):
    drawn = Picture.of(style.new_figure(2, 2), "what,count", [('a, "b"\x1b[31m\n', 3)])
    _, table = drawn.save(tmp_path / "a.png")
    with open(table, newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows == [["what", "count"], ['a, "b"\\x1b[31m\\x0a', "3"]]


def test_a_run_has_the_name_of_its_script(tmp_path, child_env):
    """In a module, as tests are, that of its file; the names of all programs are none of both."""
    import subprocess
    import sys

    code = (
        "import wse\nfrom tests.traces.test_picture import operations\nfabric = wse.Fabric(operations('pe 0 0'))\n"
        "with fabric.record('run.h5'):\n    fabric.launch('main')\n    fabric.run()\n"
        "print(wse.open('run.h5').meta.job)\n"
    )
    (tmp_path / "my first.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "my first.py"], cwd=tmp_path, env=child_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "my first\n"


def test_a_file_names_a_run_without_a_script(run):
    with wse.open(run) as trace:
        assert trace.meta.job == "two operations"


def test_names_stand_in_a_data_frame(run):
    pytest.importorskip("pandas")
    with wse.open(run) as trace:
        frame = trace.pandas()
        ends = frame[frame["kind"].isin(["op_start", "op_end"])]
        assert set(zip(ends["kind"], ends["op"], strict=True)) == {
            (kind, op) for kind in ("op_start", "op_end") for op in ("fmuls", "fadds")
        }
        assert all(re.search(r"test_picture\.py:\d+$", source) for source in ends["source"])
        tasks = frame[frame["kind"].isin(["task_start", "task_end"])]
        assert set(tasks["task"]) == {"main"}
        assert frame[~frame["kind"].isin(["op_start", "op_end", "conflict"])]["op"].isna().all()
        assert "op" not in trace.pandas(columns=("cycle", "kind"))


def test_files_runs_and_counters_show_themselves(run):
    with wse.open(run) as trace:
        file = trace.files[0]
        assert re.fullmatch(
            r"RunFile\('.*two operations.h5', 'two operations', completed, \d+ counters, .*\)", repr(file)
        )
        for shown in (trace._repr_html_(), file._repr_html_()):
            cells = [cell.text for cell in ElementTree.fromstring(shown).iter("td")]
            assert "two operations" in cells
            assert "completed" in cells
        assert ElementTree.fromstring(file.counter("busy")._repr_svg_()).tag.endswith("svg")
        assert repr(trace.plot()).startswith("Picture(9 x ")


@pytest.mark.parametrize(
    "name", ["\u4e2d\u6587 run", "a$b_{", "$\\frac{$", "\x1b[31mred\x1b[0m", "m" * 400, "<b>&amp;"]
)
def test_any_name_is_drawn_without_a_warning(tmp_path, name):
    """Letters that the font lacks, signs of formulas, control characters, long names."""
    fabric = wse.Fabric(operations())
    with fabric.record(tmp_path / "run.h5", trace="full", job=name):
        fabric.launch("main")
        fabric.run()
    with warnings.catch_warnings(), wse.open(tmp_path / "run.h5") as trace:
        warnings.simplefilter("error")
        for what in ("timeline", "stalls", "heat"):
            _, table = trace.plot(what).save(tmp_path / "a.png")
            assert b"\x1b" not in table.read_bytes()
