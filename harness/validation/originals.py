"""Public programs are run in their own source, from trees that the reader brings, to be compared with published counts.

Recipes (`harness.validation.recipe`) rebuild programs in CSL of our own.  What stands here runs the authors' files as
they are: an `Original` says which layout file of which repository belongs to a kind of point, which params and arrays
it gets and how its two readings of the cycle counter come back.  Whatever a program shares with others is left out:
one PE works as all do, so four of them are enough.

Programs on a line of PEs run on as many as the point says, and their count is from when the first PE has begun.  Each
PE waits, by a fill as long as the way to it, for the last one to be told to begin.  How long a fill takes the authors
found by trying on their machine, so these programs run with the numbers of that one (`compare.PLATFORMS`).

Tiled stencils keep no stamps: their author reads cycles from the simulator's log, of one PE, and so does what is here.

Source: pr0f3ss/SpMM_Cerebras, lingzhi227/MIMD_dataflow, spcl/spatial-collectives, Jorineg/cerebras.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fabric.kernels.collectives import costs
from harness.kit.modules import need
from harness.validation.compare import CS2_2023, of_platform
from harness.validation.programs import formulas, local_products, matvec
from harness.validation.recipe import CannotRun, Measurement, Point, Recipe, Tell, grid, integer
from harness.validation.registry import RECIPES
from wse_core.errors import ConfigError
from wse_core.params import Machine

__all__ = ["ORIGINALS", "LineProgram", "Original", "StencilProgram", "TileProgram", "find_in"]

Job: TypeAlias = tuple[dict[str, int], dict[str, NDArray[Any]]]
"""A `Job` has params of the layout, and for each exported array the elements of 32 bits that every PE gets."""
SIDE = 2
"""So many columns and rows of PEs are run: the least that the layouts take."""


PURPOSE = "the option --originals"


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
    """

    repository: str
    layout: str
    recipe: str
    kind: str
    workload: str

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
        progress(self.layout)
        machine = need("fabric.csl.rules", PURPOSE).compiled(machine)
        with tempfile.TemporaryDirectory() as directory:
            return self.measure(tree / self.layout, Path(directory) / "out", machine, point)

    def measure(self, path: Path, out: Path, machine: Machine, point: Point) -> Measurement:
        """Compile a layout into `out` and run it for a point."""
        raise NotImplementedError


@dataclass(frozen=True)
class TileProgram(Original):
    """A `TileProgram` is one whose PEs all do the same with what the host gives them, so that four of them are enough.

    Attributes
    ----------
    prepare : callable
        Returns params and arrays for a point.
    call, stamps : str
        The function that the host calls, and the exported array of three words with both readings of the counter.
    """

    prepare: Callable[[Point], Job]
    call: str
    stamps: str

    def measure(self, path: Path, out: Path, machine: Machine, point: Point) -> Measurement:
        params, arrays = self.prepare(point)
        _compile(path, {"width": SIDE, "height": SIDE, **params}, machine, out)
        cycles = _cycles(out, machine, arrays, self.call, self.stamps)
        return Measurement(cycles, f"{self.repository}: {self.layout}, {SIDE} x {SIDE} PEs")


@dataclass(frozen=True)
class LineProgram(Original):
    """A `LineProgram` is a reduce on a line of PEs, to its first.

    Attributes
    ----------
    algorithm : int
        What the source calls it: chain 0, two phases 1, tree 2, star 3.
    everywhere : bool
        Whether the sum then goes to all PEs.
    """

    algorithm: int
    everywhere: bool = False

    def fits(self, point: Point) -> bool:
        about = (point["recipe"], point["kind"]) == (self.recipe, self.kind)
        return about and (point.get("workload") or "").lower().startswith(self.workload)

    def measure(self, path: Path, out: Path, machine: Machine, point: Point) -> Measurement:
        p, b, s = formulas.sizes(point)
        params = {"Pw": p, "Nx": b, "step": s, "Algo": self.algorithm, "is_allred": int(self.everywhere)}
        machine = of_platform(machine, CS2_2023)
        _compile(path, params, machine, out)
        first, last, sums = _times_on_a_line(out, machine, p, b)
        places = slice(None) if self.everywhere else 0
        if not (sums[places] == p).all():  # every PE has ones
            raise CannotRun("the sum that it leaves is wrong")
        model = formulas.FORMULAS[self.workload][0](p, b, s, costs.Wire.of(machine))
        skew = int(first.max() - first.min())
        how = f"{self.repository}: {self.layout}, P = {p}, B = {b}; PEs begin within {skew} cycles, which count"
        how += f"; numbers of {CS2_2023}"
        return Measurement(int(last.max() - first.min()), how, model)


@dataclass(frozen=True)
class RoundTrips(Original):
    """A `RoundTrips` program sends a vector from the first PE of a line to all others, and the last one sends it back.

    Attributes
    ----------
    ways : int
        Broadcasts, one after the other, between the two readings of the first PE's counter.
    """

    ways: int

    def measure(self, path: Path, out: Path, machine: Machine, point: Point) -> Measurement:
        p, b, _ = formulas.sizes(point)
        _compile(path, {"Pw": p, "Nx": b, "step": 1, "Algo": 0, "is_allred": 0}, machine, out)
        first, last, _ = _times_on_a_line(out, machine, p, b)
        how = f"{self.repository}: {self.layout}, P = {p}, B = {b}, a {self.ways}th of {self.ways} broadcasts"
        return Measurement((last - first)[0] / self.ways, how, costs.broadcast(p, b, costs.Wire.of(machine)))


@dataclass(frozen=True)
class StencilProgram(Original):
    """A `StencilProgram` is a stencil with a tile of cells on each PE and PEs around that send constants.

    Attributes
    ----------
    loop : int
        The task with which an iteration begins.
    """

    loop: int

    def measure(self, path: Path, out: Path, machine: Machine, point: Point) -> Measurement:
        (w, h), r = grid(point["params"], "tile"), integer(point["params"], "radius")
        sizes = {"w": w + 2 * r, "h": h + 2 * r, "tile_width": w, "tile_height": h, "radius": r}
        _compile(path, sizes, machine, out)
        weights = 2 ** -np.arange(r + 1, dtype=np.float32)
        starts = _starts(out, machine, self.loop, {"weights": weights}, 4)
        how = f"{self.repository}: {self.layout}, 3 x 3 PEs, a half of the third and fourth iteration of the inner one"
        return Measurement((starts[4] - starts[2]) / 2, how)


def _starts(
    out: Path, machine: Machine, task: int, arrays: dict[str, NDArray[Any]], iterations: int
) -> NDArray[np.int64]:
    """Return when a task starts on the PE in the middle of 3 x 3, once more than there are iterations."""
    sdk, recording = need("harness.sdk.runtime", PURPOSE), need("fabric.host.recording", PURPOSE)
    traces = need("traces.trace", PURPOSE)
    how = {
        "streaming": False,
        "order": sdk.MemcpyOrder.ROW_MAJOR,
        "data_type": sdk.MemcpyDataType.MEMCPY_32BIT,
        "nonblock": False,
    }
    run = out / "run.h5"
    with (
        recording.record(run, "full", kinds=["task_start"], region=(1, 1, 1, 1)),
        sdk.SdkRuntime(out, machine=machine) as runner,
    ):
        for name, values in arrays.items():
            runner.memcpy_h2d(runner.get_id(name), np.tile(values, 9), 0, 0, 3, 3, len(values), **how)
        runner.launch("start", np.int32(iterations), nonblock=False)
    with traces.Trace.open(run) as trace:
        events = trace.events(kinds=["task_start"])
    found: NDArray[np.int64] = events["cycle"][events["aux"] == task].astype(np.int64)
    if len(found) <= iterations:
        raise CannotRun(f"task {task} starts {len(found)} times in {iterations} iterations")
    return found


def _compile(path: Path, params: dict[str, int], machine: Machine, out: Path) -> None:
    need("lark", PURPOSE)
    compiler = need("fabric.csl.compile", PURPOSE)
    session = need("fabric.csl.comptime.session", PURPOSE)
    artefact = need("fabric.csl.artefact", PURPOSE)
    diagnostics = need("fabric.csl.diagnostics", PURPOSE)
    try:
        made = compiler.compile_file(path, session.Options(arch=machine.preset, params=params), machine)
    except diagnostics.CslError as error:
        raise CannotRun(str(error).splitlines()[0]) from None
    artefact.write_bundle(artefact.bundle_of(made), out)


def _cycles(out: Path, machine: Machine, arrays: dict[str, NDArray[Any]], call: str, stamps: str) -> int:
    """Return the cycles between the readings of the PEs, of which the last to end counts."""
    sdk = need("harness.sdk.runtime", PURPOSE)
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
    halves = words.view(np.uint16).reshape(SIDE * SIDE, 2, 3)  # two readings of three words each
    first, last = (_clock(halves[:, k]) for k in (0, 1))
    return int((last - first).max())


def _clock(words: NDArray[Any]) -> NDArray[np.int64]:
    """Return readings of a counter from words of 16 bits, lowest first, shape (PEs, 3)."""
    wide = words.astype(np.int64) & 0xFFFF
    return wide[:, 0] | wide[:, 1] << 16 | wide[:, 2] << 32


def _times_on_a_line(out: Path, machine: Machine, p: int, b: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return when each PE began and ended, by a common clock, and what stands in its vector then, shape (p, b).

    As in the authors' script: each PE's counter is read when a broadcast from PE 0 has reached it, a cycle per PE.
    """
    sdk = need("harness.sdk.runtime", PURPOSE)
    how = {"streaming": False, "order": sdk.MemcpyOrder.ROW_MAJOR, "nonblock": False}
    stamps, reference = np.zeros(p * 6, np.uint32), np.zeros(p * 3, np.uint32)
    sums = np.zeros(p * b, np.float32)
    with sdk.SdkRuntime(out, machine=machine) as runner:
        runner.launch("f_sync", np.int16(1), nonblock=False)
        runner.launch("f_memcpy_timestamps", nonblock=False)
        half, whole = sdk.MemcpyDataType.MEMCPY_16BIT, sdk.MemcpyDataType.MEMCPY_32BIT
        for words, name, count, kind in (
            (stamps, "time_buf_u16", 6, half),
            (reference, "time_ref", 3, half),
            (sums, "x", b, whole),
        ):
            runner.memcpy_d2h(words, runner.get_id(name), 0, 0, p, 1, count, data_type=kind, **how)
    zero = _clock(reference.reshape(p, 3)) - np.arange(p)
    both = stamps.reshape(p, 6)
    return _clock(both[:, :3]) - zero, _clock(both[:, 3:]) - zero, sums.reshape(p, b)


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
    return TileProgram("pr0f3ss/SpMM_Cerebras", layout, "R10", kind, fmt, prepare, "bcast_B", "time_memcpy")


def _reduce(workload: str, algorithm: int, everywhere: bool = False) -> Original:
    return LineProgram("spcl/spatial-collectives", "layout.csl", "R15", "formula", workload, algorithm, everywhere)


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
    TileProgram(
        "lingzhi227/MIMD_dataflow", "2benchmarks/14-single-tile-matvec/layout_matvec.csl", "R2", "matvec-1pe", "",
        _matvec, "compute", "maxmin_time",
    ),
    _reduce("chain reduce", 0),
    _reduce("two-phase reduce", 1),
    _reduce("binary tree reduce", 2),
    _reduce("star reduce", 3),
    _reduce("reduce-then-broadcast", 0, True),
    StencilProgram("Jorineg/cerebras", "tiled-stencil/layout.csl", "R5", "stencil-tiled", "", 18),
    RoundTrips("spcl/spatial-collectives", "layout_broadcast.csl", "R15", "formula", "1-D flood broadcast", 10),
)  # fmt: skip
"""These programs are known."""


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
