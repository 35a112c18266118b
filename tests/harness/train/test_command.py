"""``wse train``: files and numbers it leaves, and what each mistake is told."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from harness.cli import main as cli
from harness.train.checkpoint import found, load
from tests.harness.train.blobs import last, lines, run, write
from traces.trace import Trace

pytestmark = pytest.mark.usefixtures("folder")


def test_a_run_on_wafers_leaves_log_table_figure_and_checkpoints(capsys, folder):
    write(train="evaluate = 5")
    status, result, err = run(capsys, "a.toml", report=True)
    assert (status, err) == (0, "")
    assert [result[key] for key in ("name", "features", "iterations", "done")] == ["a", [12, 10, 4], 12, 12]
    log = lines("runs/a")
    assert [row["iteration"] for row in log] == list(range(1, 13))
    trained = sum(row["cycles"] for row in log)
    assert result["cycles"] == trained + result["test_cycles"] > trained > 0
    assert result["simulated_seconds"] == pytest.approx(result["cycles"] / 0.85e9)
    assert result["samples_per_simulated_second"] == pytest.approx(8 * 12 / (trained / 0.85e9))
    assert result["lost_cycles"] == sum(row["boundary"] for row in log)
    assert result["bottleneck"] == "round trip"
    assert result["would_save"]["no latency"] == max(result["would_save"].values()) > 0.1
    assert log[-1]["loss"] == result["loss"] < 0.8 * log[0]["loss"]
    assert [row["iteration"] for row in log if "test_accuracy" in row] == [5, 10]
    assert 0.25 < result["test_accuracy"] <= 1
    assert [load(path)[0] for path in found("runs/a/checkpoints")] == [4, 8, 12]
    with open("runs/a/loss.csv", encoding="utf-8") as file:
        table = file.read().splitlines()
    assert len(table) == 13
    assert table[0].startswith("iteration,loss,")
    with open("runs/a/loss.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"
    assert all((folder / name).is_file() for name in result["files"])


@pytest.mark.parametrize("reference", ["", " --reference"])
def test_twelve_are_five_and_seven_in_another_process(capsys, wse_process, reference):
    """Bit by bit: weights, optimizer state, patterns, data, log; the second half knows the rest from the checkpoint."""
    write()
    assert run(capsys, f"a.toml --out whole{reference}")[0] == 0
    assert run(capsys, f"a.toml --out parts --iterations 5{reference}")[0] == 0
    assert len(lines("parts")) == 5
    with open("parts/log.jsonl", "a", encoding="utf-8") as file:
        file.write('{"iteration": 6, "loss": 1.0}\n{"iterat')  # a run that was killed after its checkpoint
    done = wse_process("train", "--resume", "parts", "--json", "--no-progress")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["from_iteration"] == 5
    assert last("whole") == last("parts")
    assert lines("whole") == lines("parts")


def test_the_reference_sees_the_same_losses(capsys):
    write()
    assert run(capsys, "a.toml --out wafers")[0] == run(capsys, "a.toml --out host --reference")[0] == 0
    ours, theirs = ([row["loss"] for row in lines(name)] for name in ("wafers", "host"))
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours[-1] != ours[0]


def test_stopping_early_changes_no_schedule(capsys):
    write(train='schedule = {kind = "cosine", warmup = 2}')
    run(capsys, "a.toml --out whole --reference")
    run(capsys, "a.toml --out parts --reference --iterations 6")
    assert lines("parts") == lines("whole")[:6]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("b.toml", "b.toml: no such file.*a.toml"),
        ("nothing", "there is no file and no example 'nothing'"),
        ("a.toml --wafers 3", "a batch of 8 does not divide over 3 wafers of 2 rows"),
        ("a.toml --wafers 0", "--wafers: 0 is too small"),
        ("a.toml --wafers 1025", "--wafers: 1025 is too large; the most is 1024"),
        ("a.toml --iterations 0", "--iterations: 0 iterations of a run of 12"),
        ("a.toml --iterations 13", "--iterations: 13 iterations of a run of 12"),
        ("a.toml --resume none", "none: there is no checkpoint"),
        ("a.toml --resume iteration-0000000003-000000000000", "manifest.json cannot be read"),
        ("a.toml --validate-only --compile-only", "not allowed with"),
        ("a.toml --compare -1", "--compare: -1 iterations"),
        ("a.toml --reference --trace events", "--trace: numpy has no events"),
        ("a.toml --resume= --iterations 2", "there is no checkpoint"),
        ("in_the_way.toml", "blobs.npz: is in the way: not a directory"),
    ],
)
def test_mistakes_are_one_message_and_leave_nothing(capsys, folder, words, match):
    write()
    files = ["a.toml", "blobs.npz"]
    if words == "in_the_way.toml":  # found out before training, not at the first checkpoint
        write(words, interval='4\ndirectory = "blobs.npz"')
        files.append(words)
    status, result, err = run(capsys, words)
    assert (status, result) == (2, None)
    assert re.search(match, err.replace("\n", " "))
    assert sorted(path.name for path in folder.iterdir()) == files


@pytest.mark.parametrize("name", ["log.jsonl", "loss.csv", "run.h5", "report.html"])
def test_what_is_in_the_way_of_the_results_is_found_before_training(capsys, name):
    write()
    Path("runs/a", name).mkdir(parents=True)
    status, result, err = run(capsys, "a.toml", report=True)
    assert (status, result) == (2, None)
    assert f"{name}: is in the way: a directory" in err
    assert [path.name for path in Path("runs/a").iterdir()] == [name]


@pytest.mark.parametrize("reference", ["", " --reference"])
def test_a_loss_that_is_not_finite_names_iteration_and_layer(capsys, reference):
    write(train='optimizer = {name = "sgd", lr = 1e6}')
    status, _, err = run(capsys, f"a.toml{reference}")
    assert status == 1
    assert re.search(r"error: iteration \d+, layer [12]: the loss is (nan|inf)", err)


def test_validate_and_compile_are_steps_of_their_own(capsys, folder):
    write()
    status, result, _ = run(capsys, "a.toml --validate-only --wafers 4")
    assert (status, result["valid"], result["wafers"]) == (0, True, 4)
    status, result, _ = run(capsys, "a.toml --compile-only")
    assert (status, result["compiled"]) == (0, True)
    assert result["words_per_iteration"] > 120
    assert not (folder / "runs").exists()
    status = cli.main(["train", "a.toml", "--validate-only"])
    assert re.search(r"features +12, 10, 4", capsys.readouterr().out)


def test_another_machine_trains_the_same_weights_in_other_cycles(capsys):
    """``--preset`` is short for ``--set machine.preset``; bits belong to the network, cycles to the machine."""
    write()
    found = {}
    for words in ("", "--preset wse3", "--set machine.preset=wse3"):
        status, result, err = run(capsys, f"a.toml --out {len(found)} --compare 2 {words}")
        assert (status, err) == (0, "")
        found[words] = result["loss"], result["cycles"]
        assert result["preset"] == ("wse3" if words else "wse2")
    assert found["--preset wse3"] == found["--set machine.preset=wse3"]
    assert found[""][0] == found["--preset wse3"][0]
    assert found[""][1] != found["--preset wse3"][1]
    assert "machine.preset is given twice" in run(capsys, "a.toml --preset wse3 --set machine.preset=wse2")[2]
    assert "did you mean wse3" in run(capsys, "a.toml --preset wse4")[2]


def test_what_does_not_fit_into_a_pe_is_found_by_compile(capsys):
    write()
    with open("a.toml", encoding="utf-8") as file:
        text = file.read().replace("outputs = 10", "outputs = 9000")
    with open("a.toml", "w", encoding="utf-8") as file:
        file.write(text)
    assert run(capsys, "a.toml --validate-only")[0] == 0
    status, _, err = run(capsys, "a.toml --compile-only")
    assert status == 2
    assert re.search(r"[\d,]+ bytes", err)


def test_formats(capsys):
    write(train='dtype = "bf16"')
    status, _, err = run(capsys, "a.toml --validate-only")
    assert status == 2
    assert "do not calculate in bf16" in err
    assert run(capsys, "a.toml --reference")[0] == 0
    write("c.toml", train='dtype = "cb16"')
    status, result, err = run(capsys, "c.toml --validate-only")
    assert (status, result["dtype"]) == (0, "f16")
    assert err == "wse: warning: train.dtype is cb16 and csconfig.use_cbfloat16 is not set: f16 is used\n"


def test_wafers_and_numpy_are_compared(capsys):
    """Bit for bit in the order of the wafers; losses of plain numpy stand in the log, and a report is written."""
    write(interval=0)
    status, result, _ = run(capsys, "a.toml --compare 8", report=True)
    assert (status, result["bit_exact"], result["compared_iterations"]) == (0, True, 8)
    assert result["weight_distance_to_numpy"] < 0.02
    log = lines("runs/a")
    assert [row["iteration"] for row in log if row.get("numpy_loss") is not None] == list(range(1, 9))
    assert all(abs(row["numpy_loss"] - row["loss"]) <= result["loss_distance_to_numpy"] < 0.01 for row in log[:8])
    with open("runs/a/report.html", encoding="utf-8") as file:
        text = file.read()
    assert "wse train a.toml --wafers 2 --compare 8" in text
    assert "bit-exact against the reference order: yes" in text
    assert text.count("<svg role='img'") >= 3  # loss, where cycles went, traffic
    for words in ("a.toml --compare 3 --reference", "--resume runs/a --compare 3"):
        assert run(capsys, words)[0] == 2


def test_phases_and_events_of_an_iteration_are_in_the_run_file(capsys):
    write(interval=0)
    status, result, error = run(capsys, "a.toml --iterations 2 --trace events")
    assert status == 0, error
    with Trace.open("runs/a/run.h5") as trace:
        marks = trace.marks
        assert trace.meta.job == "train a.toml --wafers 2 --iterations 2"
        assert trace.committed > 1000
        assert trace.files[0].result("cycles") == result["cycles"]
        assert trace.files[0].result("curve_loss").tolist() == [row["loss"] for row in lines("runs/a")]
    tracks = {mark.track for mark in marks}
    assert tracks == {"links", "memory service", "wafer 0", "wafer 1", "tree", "updates", "phases of wafer 0"}
    for track in ("wafer 0", "wafer 1"):
        assert [mark.label for mark in marks if mark.track == track] == ["iteration 1", "iteration 2"]
    work, updates = ([mark for mark in marks if mark.track == track] for track in ("wafer 0", "updates"))
    assert work[0].end <= work[1].begin  # one batch in flight
    assert {mark.label for mark in updates} == {"update of layer1.weight", "update of layer2.weight"}
    first = [mark for mark in updates if mark.begin < work[1].begin]
    last = max(mark.end for mark in first)
    assert work[0].end < last  # the round trip that the boundary waits for
    links = [mark for mark in marks if mark.track == "links"]  # from the clock's begin on; programs prepare before
    assert max(mark.end for mark in marks) <= result["cycles"] + links[0].begin
    stretches = [mark for mark in marks if mark.track == "phases of wafer 0"]
    once = ["forward, layer 1", "forward, layer 2", "loss"]
    once += ["backward, layer 2", "gradients, layer 2", "gradients, layer 1"]
    assert [mark.label for mark in stretches][:12] == 2 * once
    assert {mark.label for mark in stretches[12:]} == {
        "forward, layer 1",
        "forward, layer 2",
        "right ones",
    }  # of the test
    for one, other in pairwise(stretches[:6]):
        assert one.begin < one.end == other.begin
    assert work[0].begin <= stretches[0].begin < stretches[5].end <= work[0].end


def test_a_run_again_needs_to_be_told(capsys):
    write()
    run(capsys, "a.toml --iterations 5 --reference")
    assert run(capsys, "a.toml --reference")[0] == 2
    assert run(capsys, "a.toml --reference --overwrite")[0] == 0
    assert [load(path)[0] for path in found("runs/a/checkpoints")] == [4, 8, 12]


def test_a_log_of_something_else_is_left_out(capsys):
    """The counts of the result come from the checkpoint, whatever became of the log; nothing new, nothing written."""
    write()
    whole = run(capsys, "a.toml --out whole")[1]
    run(capsys, "a.toml --out parts --iterations 8")
    for text in ("[]", '{"foo": 1}', '{"iteration": "x"}', '{"iteration": 1}', "\0"):
        with open("parts/log.jsonl", "w", encoding="utf-8") as file:
            file.write(text)
        assert run(capsys, "--resume parts --iterations 8")[:1] == (0,)
    result = run(capsys, "--resume parts")[1]
    for key in ("cycles", "simulated_seconds", "skipped", "loss", "test_accuracy"):
        assert result[key] == whole[key]
    assert [row["iteration"] for row in lines("parts")] == [9, 10, 11, 12]
    with open("parts/run.h5", "rb") as file:
        before = file.read()
    assert run(capsys, "--resume parts")[1]["done"] == 12
    with open("parts/run.h5", "rb") as file:
        assert file.read() == before


def test_counters_by_windows(capsys):
    write(interval=0)
    assert run(capsys, "a.toml --iterations 2 --out whole")[0] == 0
    assert run(capsys, "a.toml --iterations 2 --out parts --trace-window 1000")[0] == 0
    with Trace.open("whole/run.h5") as whole, Trace.open("parts/run.h5") as parts:
        one, many = (trace.files[0].counter("macs") for trace in (whole, parts))
        assert one.values.sum() == many.values.sum() > 0
        assert len(many.values) > len(one.values) == 1
