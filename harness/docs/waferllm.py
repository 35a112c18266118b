"""The table of WaferLLM's products in docs/csl.md, from a tree of its sources that the reader brings.

    python -m harness.docs.waferllm TREE [--sizes 4,8,16] [--write docs/csl.md]

Runs MeshGEMM and MeshGEMV of the tree (``MeshGEMM/WSE-2`` and ``MeshGEMV/WSE-2``) by their own ``run_sim.sh``, in
copies, with `cslc` and `cs_python` of this project on the path, and our own kernels beside them.  Without ``--write``
the table is printed; with it, rows of sizes that were not asked for stay on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.sdk.scripts import environment
from traces.provenance import ROOT
from wse_core.errors import ConfigError, WseError

__all__ = ["main", "row", "table"]

GROUPS = {4: 2, 8: 2, 16: 4, 64: 8}
"""Groups of MeshGEMV per size of the mesh."""
TILE = 4
MEAN = re.compile(r"Mean cycle count: (-?[0-9.]+(?:e[-+]?[0-9]+)?)")
BEGIN, END = "<!-- rows of python -m harness.docs.waferllm -->\n", "<!-- end of rows -->"
OWN = {"gemm": ("gemm", "algorithm=meshgemm"), "gemv": ("gemv", "broadcast=true", "replicated=true")}


def _public(tree: Path, name: str, words: list[int]) -> float:
    """Return the mean cycles that a program of the tree counts."""
    source = tree / name / "WSE-2"
    if not (source / "run_sim.sh").is_file():
        raise ConfigError("there is no run_sim.sh", where=str(source), hint="the root of the tree of WaferLLM")
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        shutil.copytree(source, directory / "copy")
        done = subprocess.run(
            ["bash", "run_sim.sh", *map(str, words)],
            cwd=directory / "copy", env=environment(directory), capture_output=True, text=True, check=False,
        )  # fmt: skip
    found = MEAN.search(done.stdout)
    if done.returncode or found is None:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ConfigError(f"run_sim.sh {' '.join(map(str, words))} failed", where=name, cause=" ".join(said))
    mean = float(found[1])
    if mean <= 0:
        counted = f"run_sim.sh {' '.join(map(str, words))} counts {found[1]} cycles"
        raise ConfigError(counted, where=name, cause="the end of a run is stamped before its beginning")
    return mean


def _own(kind: str, size: int) -> int:
    """Return the cycles of our own kernel."""
    side = size * TILE
    shape = [f"m={side}", f"n={side}", *([f"k={side}"] if kind == "gemm" else [])]
    words = [*OWN[kind], f"p={size}", *shape, "dtype=f16", "sums=same", "--json"]
    command = [sys.executable, "-P", "-m", "harness", "kernel", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"wse kernel {' '.join(words)} failed", cause=done.stderr.strip())
    return int(json.loads(done.stdout)["cycles"])


def row(tree: Path, size: int) -> str:
    """Return the line of a mesh of `size` x `size` PEs."""
    side, groups = size * TILE, GROUPS.get(size, 2)
    gemm = _public(tree, "MeshGEMM", [size, side, side, side])
    gemv = _public(tree, "MeshGEMV", [size, side, side, groups])
    return f"| {size} | {gemm:,.0f} | {_own('gemm', size):,} | {gemv:,.0f} ({groups}) | {_own('gemv', size):,} |"


def table(rows: dict[int, str]) -> str:
    """Return the table of some rows by their size of the mesh."""
    head = "| P | MeshGEMM | own | MeshGEMV (groups) | own |\n|---|---|---|---|---|\n"
    return head + "".join(f"{rows[size]}\n" for size in sorted(rows))


def _rows(text: str) -> dict[int, str]:
    """Return the rows that a page has, by their size of the mesh."""
    between = text.partition(BEGIN)[2].partition(END)[0]
    return {int(line.split("|")[1]): line for line in between.splitlines() if line.split("|")[1].strip().isdigit()}


def main(arguments: list[str] | None = None) -> int:
    """Print or write the table; return 1 after a message."""
    parser = argparse.ArgumentParser(prog="python -m harness.docs.waferllm", description="Products of WaferLLM.")
    parser.add_argument("tree", type=Path, metavar="TREE", help="the sources of WaferLLM")
    parser.add_argument("--sizes", default="4,8,16", metavar="P,...", help="sizes of the mesh; default 4,8,16")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table between the marks of this page")
    args = parser.parse_args(arguments)
    try:
        sizes = [int(word) for word in args.sizes.split(",") if word.strip().isdigit()]
        if not sizes:
            raise ConfigError(f"'{args.sizes}' names no size", where="--sizes", hint="--sizes 4,8")
        made = {size: row(args.tree, size) for size in sizes}
    except WseError as error:
        print(str(error), file=sys.stderr)
        return 1
    if args.write is None:
        print(table(made), end="")
        return 0
    text = args.write.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    if not mark or END not in rest:
        print(f"{args.write} has no line {BEGIN.strip()}", file=sys.stderr)
        return 1
    whole = f"{before}{BEGIN}{table({**_rows(text), **made})}{END}{rest.partition(END)[2]}"
    args.write.write_text(whole, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
