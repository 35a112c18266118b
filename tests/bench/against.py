"""Training with an older engine against this one, in turn: ``python -m tests.bench.against COMMIT [--job NAME]``.

The older tree is taken from the history of this repository and compiled below ``build/against``, once.  Each turn runs
`wse train` with both, in two lengths; the difference of their CPU times, divided by the difference in iterations,
leaves imports and preparation out.  All processes of a command count, whatever else the host does meanwhile.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.bench.measure import ROOT, run_child, yardstick

__all__ = ["JOBS", "compare", "configuration", "main", "seconds_each", "seconds_of", "tree_of"]

JOBS = {
    "784-256-128-10": ("mnist-shaped", 784, (256, 128, 10), 1, (8, 8), 256, (2, 5)),
    "digits": ("digits", 64, (32, 10), 2, (4, 4), 64, (20, 320)),
}
"""Name -> data, inputs, outputs of each layer, wafers, mesh, samples, and the two numbers of iterations."""


def configuration(name, iterations):
    """Return the text of a configuration that every version of `wse train` reads."""
    data, inputs, outputs, wafers, (width, height), batch, _ = JOBS[name]
    hidden = [f'{{outputs = {n}, activation = "relu"}}' for n in outputs[:-1]]
    layers = ", ".join([*hidden, f"{{outputs = {outputs[-1]}}}"])
    return f"""seed = 0
wafers = {wafers}
network = {{inputs = {inputs}, layers = [{layers}]}}
data = {{source = "{data}", batch = {batch}}}
mesh = {{width = {width}, height = {height}}}
checkpoint = {{interval = 1000}}
[train]
iterations = {iterations}
dtype = "f16"
optimizer = {{name = "adam", lr = 0.002}}
"""


def tree_of(commit, directory=ROOT / "build" / "against"):
    """Return a compiled tree of a commit, made below `directory` if it is not there.

    Raises
    ------
    RuntimeError
        git does not know the commit, or its sources do not compile here.
    """

    def git(*words):
        done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"git {words[0]} {words[-1]}: {done.stderr.decode().strip()}")
        return done.stdout

    name = git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}").decode().strip()
    tree = Path(directory) / name
    done = tree / "compiled"
    if not done.exists():
        print(f"compiling {name} in {tree}", file=sys.stderr)
        with tarfile.open(fileobj=io.BytesIO(git("archive", name))) as archive:
            archive.extractall(tree, filter="data")
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        if subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=False).returncode:
            raise RuntimeError(f"the sources of {name} do not compile here: {tree}")
        done.touch()
    return tree


def seconds_of(tree, name, lengths):
    """Return the CPU time of a job of each length with the modules of a tree [s].

    Raises
    ------
    RuntimeError
        A command failed.
    """
    spent = []
    for iterations in lengths:
        with tempfile.TemporaryDirectory() as place:
            Path(place, "job.toml").write_text(configuration(name, iterations))
            command = [sys.executable, "-m", "harness", "train", "job.toml", "--out", "out"]
            done, seconds = run_child(command, place, tree, OPENBLAS_NUM_THREADS="1")
        if done.returncode:
            raise RuntimeError(f"{name} failed in {tree}:\n{done.stderr[-2000:]}")
        spent.append(seconds)
    return spent


def seconds_each(tree, name):
    """Return the CPU time of one iteration [s]."""
    lengths = JOBS[name][-1]
    short, long = seconds_of(tree, name, lengths)
    return (long - short) / (lengths[1] - lengths[0])


def compare(old, name, turns):
    """Return the seconds of a job with an old tree and with this one, turn by turn, the median of their ratios."""
    for tree in (old, ROOT):  # once for nothing: a tree that has never run compiles its Python first
        seconds_of(tree, name, JOBS[name][-1][:1])
    found = {"old": [], "new": []}
    for turn in range(turns):
        found["old"].append(seconds_each(old, name))
        found["new"].append(seconds_each(ROOT, name))
        was, takes = found["old"][-1], found["new"][-1]
        print(f"{name}, turn {turn + 1}: {was:.3f} s, {takes:.3f} s: {was / takes:.2f} times", file=sys.stderr)
    ratio = statistics.median(was / takes for was, takes in zip(found["old"], found["new"], strict=True))
    return found | {"ratio": ratio, "yardstick": yardstick()}


def main(argv=None):
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="the older tree: a commit, tag or branch")
    parser.add_argument("--job", action="append", choices=JOBS, help="which training (default: each)")
    parser.add_argument("--turns", type=int, default=3, help="of old and new (default 3)")
    parser.add_argument("--json", action="store_true", help="print the seconds of every turn as JSON")
    given = parser.parse_args(argv)
    if given.turns < 1:
        parser.error("--turns: one at least")
    try:
        old = tree_of(given.commit)
        found = {name: compare(old, name, given.turns) for name in given.job or JOBS}
    except RuntimeError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, row in found.items():
        was, takes = (statistics.median(row[which]) for which in ("old", "new"))
        print(f"{name:16} {was:8.3f} s -> {takes:.3f} s of CPU per iteration: {row['ratio']:.2f} times less")


if __name__ == "__main__":
    main()
