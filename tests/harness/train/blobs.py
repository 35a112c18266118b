"""A small training run by ``wse train``: its configuration, and what it leaves."""

from __future__ import annotations

import json

from harness.cli import main as cli
from harness.train.checkpoint import latest, load

TEXT = """
wafers = {wafers}
[network]
inputs = 12
layers = [{{outputs = 10, activation = "relu"}}, {{outputs = 4}}]
[data]
source = "blobs.npz"
batch = 8
[mesh]
width = 2
height = 2
[train]
iterations = {iterations}
{train}
[sparsity]
density = 0.7
[checkpoint]
interval = {interval}
"""


def write(name="a.toml", wafers=2, iterations=12, train="", interval=4):
    """Write a configuration into the working directory."""
    with open(name, "w", encoding="utf-8") as file:
        file.write(TEXT.format(wafers=wafers, iterations=iterations, train=train, interval=interval))


def run(capsys, words, report=False):
    """Run ``wse train``, no report unless asked; return (exit status, result or None, standard error)."""
    status = cli.main(["train", *words.split(), "--json", *([] if report else ["--no-report"])])
    out, err = capsys.readouterr()
    return status, json.loads(out) if out else None, err


def lines(folder):
    """Return the log without what the host's clock says."""
    with open(f"{folder}/log.jsonl", encoding="utf-8") as file:
        return [{key: value for key, value in json.loads(line).items() if key != "host_seconds"} for line in file]


def last(folder):
    """Return the bytes of the newest checkpoint's tensors, and its state."""
    path = latest(f"{folder}/checkpoints")
    return (path / "tensors.safetensors").read_bytes(), load(path)[2]["trainer"]
