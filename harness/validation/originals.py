"""Public programs in their own source, from trees that the reader brings, run where the published counts come from.

Recipes (`harness.validation.recipe`) rebuild programs in CSL of our own.  What stands here runs the authors' files as
they are: an `Original` says which layout file of which repository belongs to a kind of point, which params and arrays
it gets and how its two readings of the cycle counter come back.  Whatever a program shares with others is left out:
one PE works as all do, so four of them are enough.

Source: pr0f3ss/SpMM_Cerebras, lingzhi227/MIMD_dataflow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.kit.modules import need
from harness.validation.programs import local_products, matvec
from harness.validation.recipe import RECIPES, CannotRun, Measurement, Point, Recipe, Tell
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["ORIGINALS", "Original", "find_in"]

Job: TypeAlias = tuple[dict[str, int], dict[str, NDArray[Any]]]
"""Params of the layout, and for each exported array the elements of 32 bits that every PE gets."""
SIDE = 2
"""Columns and rows of PEs that run: the least that the layouts take."""


@dataclass(frozen=True)
class Original:
    """An `Original` is a public program in its own source.

    Attributes
    ----------
    repository : str
        Owner and name.
    layout : str
        The layout file in its tree.
    recipe, kind, workload : str
        Which points are about it: their recipe and kind, and a word of their workload.
    prepare : callable
        Returns params and arrays for a point.
    call, stamps : str
        The function that the host calls, and the exported array of three words with both readings of the counter.
    """

    repository: str
    layout: str
    recipe: str
    kind: str
    workload: str
    prepare: Callable[[Point], Job]
    call: str
    stamps: str

    def fits(self, point: Point) -> bool:
        """Return whether a point is about this program."""
        about = (point["recipe"], point["kind"]) == (self.recipe, self.kind)
        return about and self.workload in (point.get("workload") or "")

    def run(self, tree: Path, machine: Machine, point: Point, progress: Tell) -> Measurement:
        """Compile and run the program of a tree for a point.

        Raises
        ------
        CannotRun
            It does not compile; the message is the compiler's first.
        """
        params, arrays = self.prepare(point)
        path = tree / self.layout
        progress(self.layout)
        machine = need("fabric.csl.rules", "the option --originals").compiled(machine)
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "out"
            _compile(path, params, machine, out)
            cycles = _cycles(out, machine, arrays, self.call, self.stamps)
        return Measurement(cycles, f"{self.repository}: {self.layout}, {SIDE} x {SIDE} PEs")


def _compile(path: Path, params: dict[str, int], machine: Machine, out: Path) -> None:
    purpose = "the option --originals"
    need("lark", purpose)
    compiler = need("fabric.csl.compile", purpose)
    session = need("fabric.csl.comptime.session", purpose)
    artefact = need("fabric.csl.artefact", purpose)
    diagnostics = need("fabric.csl.diagnostics", purpose)
    try:
        made = compiler.compile_file(path, session.Options(params={"width": SIDE, "height": SIDE, **params}), machine)
    except diagnostics.CslError as error:
        raise CannotRun(str(error).splitlines()[0]) from None
    artefact.write_bundle(artefact.bundle_of(made), out)


def _cycles(out: Path, machine: Machine, arrays: dict[str, NDArray[Any]], call: str, stamps: str) -> int:
    """Return the cycles between the readings of the PEs, of which the last to end counts."""
    sdk = need("harness.sdk.runtime", "the option --originals")
    how = {
        "streaming": False,
        "order": sdk.MemcpyOrder.ROW_MAJOR,
        "data_type": sdk.MemcpyDataType.MEMCPY_32BIT,
        "nonblock": False,
    }
    words = np.zeros(SIDE * SIDE * 3, np.uint32)
    with sdk.SdkRuntime(out, machine=machine) as runner:
        for name, values in arrays.items():
            flat = np.ascontiguousarray(values).view(np.uint32).ravel()
            ident = runner.get_id(name)
            runner.memcpy_h2d(ident, np.tile(flat, SIDE * SIDE), 0, 0, SIDE, SIDE, len(flat), **how)
        runner.launch(call, nonblock=False)
        runner.memcpy_d2h(words, runner.get_id(stamps), 0, 0, SIDE, SIDE, 3, **how)
    halves = words.view(np.uint16).reshape(SIDE * SIDE, 2, 3).astype(np.int64)  # two readings of three words each
    first, last = (halves[:, k, 0] | halves[:, k, 1] << 16 | halves[:, k, 2] << 32 for k in (0, 1))
    return int((last - first).max())


# --- programs ---------------------------------------------------------------------------------------------------------


def _sparse(names: dict[str, str], params: dict[str, str]) -> Callable[[Point], Job]:
    """Return what prepares a sparse product: names of its arrays and of the params that are lengths of some of them."""

    def prepare(point: Point) -> Job:
        tile = local_products.tile_of(point)
        arrays, _, given = local_products.stored(tile.fmt, tile.a, tile.padded)
        length = local_products.row_length(tile.b.shape[1])
        found = {"B": np.pad(tile.b, ((0, 0), (0, length - tile.b.shape[1]))).astype(np.float32)}
        for key, name in names.items():
            found[name] = arrays[key].astype(np.float32 if key == "values" else np.int32)
        sizes = {"Nt": tile.a.shape[0], "Kt": tile.a.shape[1], "M": length - 1, "LAUNCH_ID": 4}
        counts = {param: given[key] if key in given else len(arrays[key]) for param, key in params.items()}
        return sizes | counts, found

    return prepare


def _dense(point: Point) -> Job:
    a, b = local_products.dense_tile(point)
    return {"Nt": a.shape[0], "Kt": a.shape[1], "M": b.shape[1], "LAUNCH_ID": 4}, {"A": a, "B": b}


def _matvec(point: Point) -> Job:
    n, rows, repetitions = matvec.sizes(point)
    if rows != 4 * -(-n // 4):
        raise CannotRun(f"padded_rows={rows}: the source pads {n} to a multiple of four")
    rng = np.random.default_rng(n)
    a, x = (rng.standard_normal(k).astype(np.float32) for k in (n * rows + 1, n))
    return {"tile_size": n, "iters": repetitions}, {"A": a, "x": x, "y": np.zeros(rows, np.float32)}


def _spmm(directory: str, kind: str, fmt: str, prepare: Callable[[Point], Job]) -> Original:
    layout = f"src/{directory}/layout.csl"
    return Original("pr0f3ss/SpMM_Cerebras", layout, "R10", kind, fmt, prepare, "bcast_B", "time_memcpy")


ORIGINALS = (
    _spmm(
        "grid_coo", "spmm-local", "COO",
        _sparse({"values": "A_val", "column": "A_x", "row": "A_y"}, {"A_len": "stored"}),
    ),
    _spmm(
        "grid_csc", "spmm-local", "CSC",
        _sparse(
            {"values": "A_val", "index": "A_row_idx", "pointer": "A_col_ptr"},
            {"A_val_len": "values", "A_rowidx_len": "index", "A_colptr_len": "pointer"},
        ),
    ),
    _spmm(
        "grid_csr", "spmm-local", "CSR",
        _sparse(
            {"values": "A_val", "index": "A_col_idx", "pointer": "A_row_ptr"},
            {"A_val_len": "values", "A_colidx_len": "index", "A_rowptr_len": "pointer"},
        ),
    ),
    _spmm(
        "grid_ellpack", "spmm-local", "ELLPACK",
        _sparse({"values": "A_val", "index": "A_indices"}, {"A_len": "width"}),
    ),
    _spmm("gemm", "gemm-local", "", _dense),
    Original(
        "lingzhi227/MIMD_dataflow", "2benchmarks/14-single-tile-matvec/layout_matvec.csl", "R2", "matvec-1pe", "",
        _matvec, "compute", "maxmin_time",
    ),
)  # fmt: skip
"""The programs that are known."""


def find_in(trees: Sequence[str]) -> Callable[[Point], Recipe | None]:
    """Return what finds, for a point, the recipe that runs its program in its own source; None if no tree has it.

    Raises
    ------
    ConfigError
        A directory is none, or has none of the known programs.
    """
    known: list[tuple[Original, Path]] = []
    for text in trees:
        tree = Path(text)
        if not tree.is_dir():
            raise ConfigError("there is no such directory", where=text, hint="the root of a public repository's tree")
        here = [(one, tree) for one in ORIGINALS if (tree / one.layout).is_file()]
        if not here:
            names = ", ".join(sorted({one.repository for one in ORIGINALS}))
            raise ConfigError("none of the known programs is in it", where=text, hint=f"trees of {names}")
        known += here

    def find(point: Point) -> Recipe | None:
        for one, tree in known:
            if one.fits(point):

                def run(machine: Machine, point: Point, progress: Tell, one: Original = one, tree: Path = tree) -> Any:
                    return one.run(tree, machine, point, progress)

                return replace(RECIPES[one.recipe, one.kind], function=run)
        return None

    return find
