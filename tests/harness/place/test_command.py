"""``wse place`` as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from harness.cli import main as cli
from harness.place.kgraph import read_problem
from harness.place.picture import PictureBlock, draw, terminal
from harness.place.solution import check, read_solution
from tests.harness.place.exhaustive import free
from tests.harness.place.problems import GRAPH, head, text
from traces.style import new_figure


@pytest.fixture
def problem(tmp_path, monkeypatch):
    """A problem in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WSE_DEBUG", raising=False)
    (tmp_path / "a.kgraph").write_text(text(), encoding="utf-8")
    return tmp_path / "a.kgraph"


def run(capsys, *words):
    status = cli.main(["place", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_place_check_and_picture(problem, capsys):
    words = (problem, "--rounds", 2, "--processes", 1, "--out", "a.sol", "--picture", "a.png")
    status, out, err = run(capsys, *words, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert facts["files"] == ["a.sol", "a.png"]
    assert (problem.parent / "a.png").read_bytes().startswith(b"\x89PNG")
    assert [item["name"] for item in facts["placement"]] == ["k1", "k2", "k3"]
    assert facts["slowest"] == max(item["time"] for item in facts["placement"])
    assert facts["score"] == facts["slowest"] + facts["wire"]
    assert facts["rounds"] == 1  # all there is to try with three kernels
    check(read_problem(problem), read_solution("a.sol", read_problem(problem)))
    status, out, _ = run(capsys, problem, "--check", "a.sol", "--json")
    assert status == 0
    checked = json.loads(out)
    assert {key: facts[key] for key in ("score", "slowest", "wire", "used", "placement")} == {
        key: checked[key] for key in ("score", "slowest", "wire", "used", "placement")
    }
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert f"score           {facts['score']:,.10g}\n" in out
    assert all(letter in out.split("problem")[0] for letter in "abc")


def test_slowest_may_have_adapters_and_the_score_not(problem, capsys):
    problem.write_text(text(adapter=7), encoding="utf-8")
    status, _, err = run(capsys, problem, "--rounds", 1)
    assert status == 2
    assert "adapters count 7 each" in err
    assert "--objective slowest" in err
    status, out, _ = run(capsys, problem, "--rounds", 1, "--processes", 1, "--objective", "slowest")
    assert status == 0
    assert "not known: adapters count" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.kgraph"], "nothing.kgraph: cannot be read"),
        (["a.kgraph", "--objective", "best"], "one of score, slowest"),
        (["a.kgraph", "--seconds", "0"], "--seconds"),
        (["a.kgraph", "--seconds", "nan"], "--seconds"),
        (["a.kgraph", "--rounds", "many"], "--rounds"),
        (["a.kgraph", "--rounds", "1", "--seconds", "1"], "one of them"),
        (["a.kgraph", "--processes", "0"], "--processes"),
        (["a.kgraph", "--seed", "-1"], "--seed"),
        (["a.kgraph", "--out", "."], "is a directory"),
        (["a.kgraph", "--check", "a.kgraph"], "no line of a solution"),
        (["a.kgraph", "--check", "none.sol"], "none.sol: cannot be read"),
    ],
)
def test_what_is_refused(problem, capsys, words, said):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("wse: error: ")
    assert err.count("\n") == 1
    assert said in err
    assert [path.name for path in problem.parent.iterdir()] == ["a.kgraph"]


def test_without_the_library_nothing_begins(problem, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    status, _, err = run(capsys, problem, "--rounds", 1)
    assert status == 2
    assert "pip install 'wse-sim[place]'" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_best_so_far(problem, root, child_env, number):
    """It goes to all processes of the group, as a terminal or a batch system sends it; the search would never end."""
    kernels = [f"conv[{k}] W=8 H=8 R=3 S=3 C=4 K=4 T=1 U=1 name='k{k}'" for k in range(6)]
    wires = [f"conv[{k}]:y -> conv[{k + 1}]:x, shape:[8][8][4]" for k in range(5)]
    problem.write_text(head() + "\n".join([*kernels, *wires]) + "\n", encoding="utf-8")
    words = [sys.executable, "-m", "harness", "place", str(problem), "--seconds", "1e5", "--out", "a.sol", "--progress"]
    child = subprocess.Popen(
        words, env=child_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert any("slowest" in line for line in child.stderr)
        os.killpg(child.pid, number)
        out, err = child.communicate(timeout=300)
    finally:
        child.kill()
    assert child.returncode == 128 + number
    assert "interrupted: the best so far is kept" in err
    assert "Traceback" not in err
    assert "written" in out
    check(read_problem(problem), read_solution("a.sol", read_problem(problem)))


def test_the_wafer_on_a_terminal():
    blocks = [PictureBlock("a", 0, 0, 4, 4, 1.0), PictureBlock("b", 4, 2, 4, 6, 0.5)]
    assert terminal(blocks, 8, 8, 8).splitlines() == ["aaaa....", "aaaabbbb", "....bbbb", "....bbbb"]
    assert set(terminal([], 3, 200, 64)) == {".", "\n"}


def test_a_graph_of_one_kernel(problem, capsys):
    """Nothing is connected, and everything is one column."""
    one = "\n".join(line for line in GRAPH.splitlines() if line.startswith("conv[1] "))
    problem.write_text(head() + one, encoding="utf-8")
    status, out, _ = run(capsys, problem, "--rounds", 1, "--processes", 1, "--json")
    assert status == 0
    assert json.loads(out)["wire"] == 0


def test_layers_of_a_configuration(problem, capsys):
    """Rectangles between the columns of gate and loss, with the cost of each layer, drawn both ways."""
    words = ("digits", "--mesh", "20x16", "--minibatch", 4, "--rounds", 2)
    status, out, err = run(capsys, *words, "--json", "--picture", "net.png")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert (facts["width"], facts["height"], facts["minibatch"]) == (20, 16, 4)
    first, second = facts["layers"]
    assert (first["layer"], second["layer"]) == ("1: 64 x 32", "2: 32 x 10")
    for layer in (first, second):
        assert layer["x"] >= 1
        assert layer["x"] + layer["width"] <= 19
        assert layer["y"] + layer["height"] <= 16
    a, b = (tuple(layer[key] for key in ("x", "y", "width", "height")) for layer in (first, second))
    assert free(a, [b])
    assert facts["slowest"] == max(first["cycles"], second["cycles"])
    assert max(first["utilisation"], second["utilisation"]) == 1
    links = {path["path"]: path["links"] for path in facts["paths"]}
    assert {"activations 0", "activations 1", "activations 2", "gradients 1", "gradients 2", "losses"} <= links.keys()
    assert links["activations 1"] >= 1  # from the outputs of the first layer to the tiles of the second
    assert (problem.parent / "net.png").read_bytes().startswith(b"\x89PNG")
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert f"{facts['slowest']:,.0f} cycles a minibatch of 4" in out
    assert all(letter in out.split("layer")[0] for letter in "ab.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["digits", "--mesh", "20"], "is no mesh"),
        (["digits", "--mesh", "0x3"], "--mesh"),
        (["digits", "--mesh", "3x9"], "there are 3"),
        (["digits", "--mesh", "4x2"], "there are 4"),
        (["digits", "--minibatch", "none"], "--minibatch"),
        (["digits", "--minibatch", "1000000"], "smaller minibatches"),
        (["digits", "--out", "a.sol"], "belongs to a contest problem"),
        (["dogits"], "dogits"),
        (["a.kgraph", "--mesh", "9x9"], "belongs to a training configuration"),
    ],
)
def test_what_is_refused_of_a_configuration(problem, capsys, words, said):
    status, out, err = run(capsys, *words, "--rounds", "1")
    assert (status, out) == (2, "")
    assert err.startswith("wse: error: ")
    assert said in err


def test_data_paths_are_drawn_over_their_pes():
    """A line through the middles of the PEs, a colour and one legend entry for each kind."""
    canvas = new_figure(6, 3)
    ways = {"activations 1": [(1, 1), (2, 1), (2, 2)], "activations 2": [(3, 3)], "gradients 1": [(4, 1), (3, 1)]}
    draw(canvas, [PictureBlock("1", 0, 0, 3, 3, 1.0), PictureBlock("2", 3, 0, 3, 3, 0.5)], [], 8, 6, "wafer", ways)
    wafer = canvas.axes[0]
    lines = [list(zip(*line.get_data(), strict=True)) for line in wafer.get_lines()]
    assert lines == [[(1.5, 1.5), (2.5, 1.5), (2.5, 2.5)], [(3.5, 3.5)], [(4.5, 1.5), (3.5, 1.5)]]
    first, second, third = (line.get_color() for line in wafer.get_lines())
    assert first == second != third
    assert [text.get_text() for text in wafer.get_legend().get_texts()] == ["activations", "gradients"]
