"""``wse train`` interrupted, killed and going on: checkpoints that it takes, refuses and leaves alone."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import main as cli
from harness.train.checkpoint import found, latest, load, save
from tests.examples import seeds
from tests.harness.train.blobs import last, lines, run, write
from tests.killed import Victims

pytestmark = pytest.mark.usefixtures("folder")


def wait_for(path, count, process):
    """Wait until a log has so many lines."""
    while not (path.exists() and path.read_bytes().count(b"\n") >= count):
        assert process.poll() is None
        time.sleep(0.02)


def start(folder, child_env, *words):
    """Start ``wse train`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "harness", "train", *words],
        cwd=folder,
        env=child_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_interrupted_it_says_how_to_go_on(capsys, folder, child_env):
    write(iterations=100000, interval=0)
    process = start(folder, child_env, "a.toml", "--out", "x y")
    wait_for(folder / "x y/log.jsonl", 3, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "finishing the iteration" in err
    assert "Traceback" not in err
    assert not {"loss.png", "report.html"} & {path.name for path in (folder / "x y").iterdir()}
    done = int(re.search(r"interrupted after iteration (\d+); go on with: wse train --resume '(.*)'", err)[1])
    assert done == len(lines("x y")) >= 3
    assert re.search(rf"^training +{done} of 100,000 iterations of 8 samples", out, re.MULTILINE)
    path = re.search(r"--resume '(.*)'", err)[1]
    status = cli.main(["train", "--resume", path, "--iterations", str(done + 2), "--json"])
    assert status == 0
    assert json.loads(capsys.readouterr().out)["from_iteration"] == done
    assert [row["iteration"] for row in lines("x y")] == list(range(1, done + 3))


KILLED = """
import fabric.engine.engine
import harness.cli.cmd_train
from harness.cli import main as cli
from harness.train import checkpoint, record, trainer
from tests.killed import Countdown

add = record.RunLog.add

def case(phase, moment, *words):
    def counted(self, step, **more):
        row = add(self, step, **more)
        if phase == "iterations":
            if "counter" not in state:
                state["counter"] = Countdown()
            elif state["counter"].calls == float("inf"):  # the calls of one iteration are known now
                state["counter"].calls = state["counter"].count * moment
        return row

    state = {}
    record.RunLog.add = counted
    if phase == "start":
        state["counter"] = Countdown(moment)
    cli.main(["train", *words])
"""


@pytest.mark.slow
def test_killed_at_any_moment(capsys, folder, child_env):
    """Processes are killed while they start, train or write; the last one ends as an uninterrupted run does.

    A moment is so many calls after the start, or so many iterations, not whole ones, after the first.
    """
    write(iterations=90, interval=3)
    assert run(capsys, "a.toml --out whole")[0] == 0
    chance, done, where = random.Random(2), [], []
    with Victims(KILLED, folder, child_env) as victims:
        for k in seeds(60):
            path = latest("parts/checkpoints")
            words = ("--resume", "parts") if path else ("a.toml", "--out", "parts")
            moment = ("start", int(10 ** chance.uniform(2, 5))) if k % 4 == 3 else ("iterations", chance.uniform(1, 8))
            status, said = victims.run(*moment, *words)
            assert status == -signal.SIGKILL
            where.append(said)
            path = latest("parts/checkpoints")
            done.append(load(path)[0] if path else 0)
            assert not path or path == found("parts/checkpoints")[-1]
    assert done == sorted(done)
    assert done[-1] > 20
    inside = [sum(name in text for text in where) for name in ("loop.py:step", "checkpoint.py:save")]
    assert 0 < min(inside) < sum(inside) < len(where)  # some while training, some while writing, some before either
    status, _, err = run(capsys, "--resume parts")
    assert (status, err) == (0, "")
    assert last("parts") == last("whole")
    assert lines("parts") == lines("whole")


def test_checkpoints_of_another_run_are_not_touched(capsys):
    write()
    run(capsys, "a.toml --iterations 4 --reference")
    before, log = last("runs/a"), lines("runs/a")
    write("b.toml", train="optimizer = {lr = 0.5}")
    run(capsys, "a.toml --iterations 2 --reference --out other")
    for words, match in (
        ("a.toml --reference", "has checkpoints of another run. Try: --resume runs/a/checkpoints"),
        ("--resume other --out runs/a", "has checkpoints of another run"),
        ("b.toml --resume runs/a", "another configuration"),
        ("a.toml --resume runs/a", "another configuration"),  # that of the reference
        ("a.toml --resume runs/a --wafers 1 --reference", "another configuration"),
    ):
        status, _, err = run(capsys, words)
        assert status == 2
        assert match in err
    assert (last("runs/a"), lines("runs/a")) == (before, log)
    assert run(capsys, "--resume other --out runs/a --overwrite --iterations 3")[0] == 0
    assert [load(path)[0] for path in found("runs/a/checkpoints")] == [3]


def test_a_damaged_checkpoint_is_refused_before_anything_is_touched(capsys):
    write(interval=100)
    run(capsys, "a.toml --iterations 4 --reference")
    log = lines("runs/a")
    path = latest("runs/a/checkpoints") / "state.json"
    path.write_text(path.read_text().replace('"iteration": 4', '"iteration": 3'))
    status, _, err = run(capsys, "--resume runs/a")
    assert status == 2
    assert "state.json is damaged" in err
    assert lines("runs/a") == log


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda state: state.clear(), "is no checkpoint of `wse train`"),
        (lambda state: state["config"].pop("text"), "is no checkpoint of `wse train`"),
        (lambda state: state["config"].update(wafers="2"), "is no checkpoint of `wse train`"),
        (lambda state: state["trainer"].update(iteration=5), "is no checkpoint of `wse train`"),
        (lambda state: state["trainer"].update(updates=-1), "updates is -1, no count"),
        (lambda state: state["trainer"].pop("data"), "position in the data is missing"),
        (lambda state: state["trainer"].pop("loss_scale"), "loss scale is missing"),
    ],
)
def test_a_whole_checkpoint_of_something_else_is_refused(capsys, folder, change, match):
    """Digests are right, contents are not."""
    write(interval=100)
    run(capsys, "a.toml --iterations 4 --reference")
    path = latest("runs/a/checkpoints")
    _, tensors, state = load(path)
    digest = json.loads((path / "manifest.json").read_text())["config"]
    change(state)
    save("other/checkpoints", 4, tensors, state, digest)
    status, _, err = run(capsys, "--resume other")
    assert status == 2
    assert match in err
    assert [item.name for item in (folder / "other").iterdir()] == ["checkpoints"]


def test_an_older_checkpoint_is_used_and_named_if_the_newest_is_damaged(capsys):
    write()
    run(capsys, "a.toml --reference")
    (latest("runs/a/checkpoints") / "state.json").unlink()
    status, result, err = run(capsys, "--resume runs/a")
    assert (status, result["from_iteration"], result["done"]) == (0, 8, 12)
    assert re.search("iteration-0000000012-[0-9a-f]+ is damaged; iteration-0000000008-[0-9a-f]+ is used", err)
    assert load(latest("runs/a/checkpoints"))[0] == 12


def test_two_processes_do_not_share_a_directory(capsys, folder, child_env):
    write(iterations=100000, interval=0)
    process = start(folder, child_env, "a.toml", "--out", "x")
    wait_for(folder / "x/log.jsonl", 2, process)
    for more in ("", " --overwrite"):
        status, _, err = run(capsys, f"a.toml --out x{more}")
        assert (status, "x: another process works in this directory" in err) == (2, True)
    process.kill()
    process.communicate()
    assert run(capsys, "a.toml --out x --iterations 2")[0] == 0


def test_two_runs_do_not_share_checkpoints(capsys, folder, child_env):
    """Each would delete the other's, and both would report success."""
    write(iterations=100000, interval=2)
    for name in "ab":
        text = Path("a.toml").read_text(encoding="utf-8") + 'directory = "shared"\n'
        Path(f"shared-{name}.toml").write_text(f"seed = {ord(name)}\n{text}", encoding="utf-8")
    words = [sys.executable, "-m", "harness", "train", "shared-a.toml", "--out", "p1", "--progress"]
    with subprocess.Popen(words, env=child_env, stderr=subprocess.PIPE) as other:
        while not found("shared"):
            assert other.poll() is None, other.stderr.read()
            time.sleep(0.05)
        status, _, err = run(capsys, "shared-b.toml --out p2")
        other.kill()
    assert status == 2
    assert "shared: another process works in this directory" in err
    assert "another checkpoint.directory" in err
    assert not Path("p2", "log.jsonl").exists()
