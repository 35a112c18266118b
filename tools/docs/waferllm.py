"""The table of WaferLLM's products in docs/csl.md is made from a tree of its sources that the reader brings.

    python -m tools.docs.waferllm TREE [--arch wse3] [--sizes 4,8,16] [--write docs/csl.md]

Runs MeshGEMM and MeshGEMV of the tree (``MeshGEMM/WSE-2`` and ``MeshGEMV/WSE-2``, or those for WSE-3, whose rows stand
in a table of their own) by their own ``run_sim.sh``, in copies, with `cslc` and `cs_python` of this project on the
path, and our own kernels beside them.  What comes from the wafer must be, bit for bit, the sums in f16 in the order of
the PEs (`tools.docs.waferllm_order`); how far that is from a product in float64 stands in the table.  Without
``--write`` the table is printed; with it, rows of sizes that were not asked for stay on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from harness.sdk.scripts import environment
from tools.docs.waferllm_order import gemm, gemv
from traces.provenance import ROOT
from wse_core.errors import ConfigError, WseError

__all__ = ["main", "row", "table"]

GROUPS = {4: 2, 8: 2, 16: 4, 64: 8}
"""MeshGEMV has so many groups per size of the mesh."""
TILE = 4
MEAN = re.compile(r"Mean cycle count: (-?[0-9.]+(?:e[-+]?[0-9]+)?)")
BEGIN, END = "<!-- rows of python -m tools.docs.waferllm{} -->\n", "<!-- end of rows -->"
OPTION = {"wse2": "", "wse3": " --arch wse3"}
OWN = {"gemm": ("gemm", "algorithm=meshgemm"), "gemv": ("gemv", "broadcast=true", "replicated=true")}


def _public(tree: Path, name: str, words: list[int], arch: str) -> str:
    """Return the mean cycles that a program of the tree counts, and how far its numbers are from exact ones."""
    source = tree / name / f"WSE-{arch[-1]}"
    if not (source / "run_sim.sh").is_file():
        raise ConfigError("there is no run_sim.sh", where=str(source), hint="the root of the tree of WaferLLM")
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        shutil.copytree(source, directory / "copy")
        found = environment(directory)
        arrays = directory / "arrays.npz"
        tool = shlex.join([sys.executable, "-P", "-m", "tools.docs.recorded", str(arrays)])
        (directory / "cs_python").write_text(f'#!/bin/sh\nexec {tool} "$@"\n', encoding="utf-8")
        done = subprocess.run(
            ["bash", "run_sim.sh", *map(str, words)],
            cwd=directory / "copy", env=found, capture_output=True, text=True, check=False,
        )  # fmt: skip
        call = f"run_sim.sh {' '.join(map(str, words))}"
        said = MEAN.search(done.stdout)
        if done.returncode or said is None:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise ConfigError(f"{call} failed", where=name, cause=" ".join(last))
        mean = float(said[1])
        if mean <= 0:
            cause = "the end of a run is stamped before its beginning"
            raise ConfigError(f"{call} counts {said[1]} cycles", where=name, cause=cause)
        if not arrays.is_file():
            raise ConfigError(f"{call} runs no host script", where=name, hint="it calls cs_python")
        with np.load(arrays) as file:
            x, w, _, result = (file[f"arr_{k}"] for k in range(4))
    groups = f" ({words[-1]})" if name == "MeshGEMV" else ""
    return f"{mean:,.0f}{groups} | {_distance(name, x, w, result, words)}"


def _distance(name: str, x: np.ndarray, w: np.ndarray, result: np.ndarray, words: list[int]) -> str:
    """Return the largest relative difference of a result and a product in float64.

    Raises
    ------
    ConfigError
        The result is not the sum in the order of the PEs.
    """
    wanted = gemm(x, w, words[0]) if name == "MeshGEMM" else gemv(x, w, words[0], words[-1])
    wrong = result != np.broadcast_to(wanted, result.shape)
    if wrong.any():
        where = tuple(int(place) for place in np.argwhere(wrong)[0])
        what = f"{int(wrong.sum())} of {wrong.size} numbers are not the f16 sums in the order of the PEs"
        raise ConfigError(
            what, where=name, cause=f"at {where} {result[where]}, not {np.broadcast_to(wanted, result.shape)[where]}"
        )
    exact = x.astype(np.float64) @ w.astype(np.float64)
    return f"{100 * np.max(np.abs(wanted - exact) / np.abs(exact)):.2f} %"


def _own(kind: str, size: int, arch: str) -> int:
    """Return the cycles of our own kernel."""
    side = size * TILE
    shape = [f"m={side}", f"n={side}", *([f"k={side}"] if kind == "gemm" else [])]
    words = [*OWN[kind], f"p={size}", *shape, "dtype=f16", "sums=same", "--json", "--preset", arch]
    command = [sys.executable, "-P", "-m", "harness", "kernel", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"wse kernel {' '.join(words)} failed", cause=done.stderr.strip())
    return int(json.loads(done.stdout)["cycles"])


def row(tree: Path, size: int, arch: str = "wse2") -> str:
    """Return the line of a mesh of `size` x `size` PEs."""
    side, groups = size * TILE, GROUPS.get(size, 2)
    products = _public(tree, "MeshGEMM", [size, side, side, side], arch)
    vectors = _public(tree, "MeshGEMV", [size, side, side, groups], arch)
    return f"| {size} | {products} | {_own('gemm', size, arch):,} | {vectors} | {_own('gemv', size, arch):,} |"


def table(rows: dict[int, str]) -> str:
    """Return the table of some rows by their size of the mesh."""
    head = "| P | MeshGEMM | off | own | MeshGEMV (groups) | off | own |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(f"{rows[size]}\n" for size in sorted(rows))


def _rows(text: str, begin: str) -> dict[int, str]:
    """Return the rows that a page has behind a mark, by their size of the mesh."""
    between = text.partition(begin)[2].partition(END)[0]
    return {int(line.split("|")[1]): line for line in between.splitlines() if line.split("|")[1].strip().isdigit()}


def main(arguments: list[str] | None = None) -> int:
    """Print or write the table; return 1 after a message."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.waferllm", description="Products of WaferLLM.")
    parser.add_argument("tree", type=Path, metavar="TREE", help="the sources of WaferLLM")
    parser.add_argument("--arch", choices=tuple(OPTION), default="wse2", help="which programs; default wse2")
    parser.add_argument("--sizes", default="4,8,16", metavar="P,...", help="sizes of the mesh; default 4,8,16")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table between the marks of this page")
    args = parser.parse_args(arguments)
    try:
        sizes = [int(word) for word in args.sizes.split(",") if word.strip().isdigit()]
        if not sizes:
            raise ConfigError(f"'{args.sizes}' names no size", where="--sizes", hint="--sizes 4,8")
        made = {size: row(args.tree, size, args.arch) for size in sizes}
    except WseError as error:
        print(str(error), file=sys.stderr)
        return 1
    if args.write is None:
        print(table(made), end="")
        return 0
    text = args.write.read_text(encoding="utf-8")
    begin = BEGIN.format(OPTION[args.arch])
    before, mark, rest = text.partition(begin)
    if not mark or END not in rest:
        print(f"{args.write} has no line {begin.strip()}", file=sys.stderr)
        return 1
    whole = f"{before}{begin}{table({**_rows(text, begin), **made})}{END}{rest.partition(END)[2]}"
    args.write.write_text(whole, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
