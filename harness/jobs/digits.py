"""The job ``digits`` has one fully connected layer on the fabric, which classifies the 1,797 handwritten digits of
scikit-learn.

1. The host fits the layer: 64 pixels and a constant 1 to ten classes, ridge regression to one-hot targets, in closed
   form: W = (X'X + r n I)^-1 X'Y over the n digits that are not held out.
2. Images and weights are rounded to 16 bits and multiplied by the kernel `fabric.kernels.matmul.gemm` on a square of
   PEs,
   with f32 sums, in batches if not all images fit.  The class with the largest score wins.
3. The scores are compared bit for bit with a reference in the order of the PEs, and, within the bound derived in
   `fabric.kernels.kit.check`, with plain numpy in float64 on the same 16-bit numbers.

Files: ``digits.h5`` (configuration, results, counters per PE and per link; see `traces.run_format`) and, if asked for,
heat maps as PNG with the plotted numbers as CSV beside them.  Drawing takes longer than the whole simulation, so it is
asked for; ``wse view`` draws more of the run file at any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.config.options import option
from harness.kit.console import table
from harness.kit.modules import need
from harness.kit.samples import load_digits
from traces.provenance import provenance
from wse_core.errors import ConfigError

if TYPE_CHECKING:
    from fabric.kernels.kit.check import Check
    from fabric.program.program import Program
    from harness.jobs.job_file import JobConfig
    from harness.kit.console import Progress
    from wse_core.params import Machine

__all__ = ["DigitsOptions", "Options", "fit_layer", "report", "run"]

CLASSES = 10
TOTALS = ("cycles", "wavelet_hops", "macs", "useful_macs", "expected_cycles", "expected_hops", "expected_macs")
"""What is added up over the passes."""


@dataclass(frozen=True)
class DigitsOptions:
    """`DigitsOptions` are what a job file can say below ``[options]``."""

    pes: int = option(10, doc="PEs along each side of the square", low=1, high=996)
    batch: int = option(0, doc="images per pass over the fabric; 0 means as many as fit", low=0)
    dtype: str = option("f16", doc="format of images and weights; sums are f32", choices=("f16", "cb16"))
    ridge: float = option(0.01, doc="weight of the penalty when the layer is fitted, per image", low=0.0)
    pictures: bool = option(False, doc="draw heat maps beside the run file")
    held_out: float = option(0.2, doc="share of the digits that the fit does not see", low=0.0, high=0.9)


Options = DigitsOptions
"""It is the name under which every job has its options."""


def fit_layer(images: NDArray[np.float64], labels: NDArray[np.int64], ridge: float) -> NDArray[np.float64]:
    """Return the weights (65, 10) of the layer that best maps images to one-hot labels, float64.

    Raises
    ------
    ConfigError
        The equations have no unique solution, which a positive `ridge` cures.
    """
    targets = np.eye(CLASSES)[labels]
    normal = images.T @ images + ridge * len(images) * np.eye(images.shape[1])
    if np.linalg.matrix_rank(normal) < len(normal):
        raise ConfigError(
            "the fit of the layer has no unique solution",
            where="options.ridge",
            cause="some pixels are the same in all images",
            hint="a positive number",
            value=ridge,
        )
    return np.asarray(np.linalg.solve(normal, images.T @ targets), np.float64)


def choose_batch(options: DigitsOptions, machine: Machine, images: int, inputs: int) -> int:
    """Return how many images to multiply at a time.

    Raises
    ------
    ConfigError
        The PEs are more than the machine has, or as many images as asked for do not fit into them.
    """
    from fabric.kernels.kit.sizes import nearest
    from fabric.kernels.matmul import gemm

    limit = min(machine["fabric.width"], machine["fabric.height"])
    if options.pes > limit:
        raise ConfigError(
            f"{options.pes} x {options.pes} PEs exceed the {machine['fabric.width']} x "
            f"{machine['fabric.height']} of {machine.preset}",
            where="options.pes",
            hint=f"at most {limit}",
            value=options.pes,
        )
    wanted = min(images, options.batch or images)

    def build(m: int) -> dict[Any, Program]:
        return gemm.programs(machine, options.pes, m, inputs, CLASSES, options.dtype)

    found = nearest(build, {"m": wanted}, "m", 1, wanted)
    if found is None or (options.batch and found < wanted):
        what = "the layer does" if found is None else f"{options.batch} images at a time do"
        raise ConfigError(
            f"{what} not fit into the {machine['mem.words']} words of each of {options.pes} x {options.pes} PEs",
            where="options.pes" if found is None else "options.batch",
            hint="more PEs" + ("" if found is None else f", or batch = {found}"),
        )
    return found


@dataclass
class Passes:
    """`Passes` are what the passes over the fabric gave together.

    Attributes
    ----------
    batch, count : int
        Images of a pass at most, and passes.
    scores : ndarray of uint32, shape (images, classes)
        Bit patterns of f32.
    totals : dict
        Cycles, hops and operations, counted and expected.
    counters : dict
        {name: (values per PE, unit)}.
    checks : list of Check
        One per pass.
    lanes : int
        Multiply-adds that a PE can do in a cycle.
    host_seconds, verify_seconds : float
    """

    batch: int
    count: int
    scores: NDArray[np.uint32]
    totals: dict[str, int]
    counters: dict[str, tuple[NDArray[Any], str]]
    checks: list[Check]
    lanes: int
    host_seconds: float
    verify_seconds: float


def run(config: JobConfig, out_dir: Path, progress: Progress) -> dict[str, Any]:
    """Do the job; see `harness.jobs`."""
    need("fabric.kernels.matmul.gemm", "the job digits")
    formats = need("wse_core.formats", "the job digits")
    options, machine = config.options, config.build_machine()

    progress.phase("fit the layer on the host")
    images, labels = load_digits()
    n = len(images)
    unseen = np.zeros(n, bool)
    unseen[np.random.default_rng(config.seed).permutation(n)[: round(options.held_out * n)]] = True
    weights = fit_layer(images[~unseen], labels[~unseen], options.ridge)
    given = formats.Arithmetic.of(machine, options.dtype)
    a, b = given.encode(images), given.encode(weights)

    passes = classify(config, machine, a, b, progress)
    values = passes.scores.view(np.float32)
    predicted, plain = values.argmax(axis=1), (given.operand(a) @ given.operand(b)).argmax(axis=1)
    right = predicted == labels
    result = {
        "digits": n,
        "accuracy": float(right.mean()),
        "accuracy_held_out": float(right[unseen].mean()) if unseen.any() else None,
        "accuracy_numpy": float((plain == labels).mean()),
        "same_class_as_numpy": int(np.count_nonzero(plain == predicted)),
        **measured(config, machine, passes),
    }
    progress.phase("write the run file")
    arrays = {"scores": values, "predicted": predicted, "labels": labels, "weights": b, "held_out": unseen}
    write_files(config, machine, out_dir, result, passes.counters, arrays)
    return result


def classify(config: JobConfig, machine: Machine, a: NDArray[Any], b: NDArray[Any], progress: Progress) -> Passes:
    """Multiply images by weights on the fabric, a batch at a time, and compare each product with its reference."""
    from fabric.kernels.matmul import gemm
    from fabric.kernels.matmul.problem import Problem
    from fabric.kernels.matmul.summa import Summa

    options, n = config.options, len(a)
    batch = choose_batch(options, machine, n, a.shape[1])
    parts = [slice(start, min(n, start + batch)) for start in range(0, n, batch)]
    progress.phase(f"classify {n} digits on {options.pes} x {options.pes} PEs, {len(parts)} pass(es)")
    scores = np.zeros((n, CLASSES), np.uint32)
    totals = dict.fromkeys(TOTALS, 0)
    counters: dict[str, tuple[NDArray[Any], str]] = {}
    checks, host_seconds, verify_seconds = [], 0.0, 0.0
    products: dict[int, Summa] = {}
    for part in parts:
        rows = part.stop - part.start
        if rows not in products:
            problem = Problem(options.pes, options.pes, rows, a.shape[1], CLASSES, options.dtype)
            products[rows] = Summa(machine, problem, where="options")
        product = products[rows]

        def hear(cycles: int, _seconds: float, before: int = part.start) -> None:
            progress.update(before, n, cycles=totals["cycles"] + cycles)

        session, scores[part] = product.run(a[part], b, hear, config.cycle_limit)
        facts = (
            session.run.cycles,
            session.run.wavelet_hops,
            session.run.macs,
            rows * a.shape[1] * CLASSES,
            gemm.expected_cycles(product, machine),
            product.hops,
            product.macs,
        )
        for key, value in zip(TOTALS, facts, strict=True):
            totals[key] += value
        for name, (values, unit) in session.counters().items():
            counters[name] = (counters[name][0] + values if name in counters else values, unit)
        host_seconds += session.run.host_seconds
        started = time.perf_counter()
        checks.append(product.check(a[part], b, scores[part]))
        verify_seconds += time.perf_counter() - started
        progress.update(part.stop, n, cycles=totals["cycles"])
    lanes = product.shape.lanes(machine)
    return Passes(batch, len(parts), scores, totals, counters, checks, lanes, max(host_seconds, 1e-9), verify_seconds)


def measured(config: JobConfig, machine: Machine, passes: Passes) -> dict[str, Any]:
    """Return the numbers of a result that do not depend on what the digits mean: checks, counts, rates."""
    from fabric.host.resident import peak_bytes

    options, totals, checks = config.options, passes.totals, passes.checks
    pe_cycles = options.pes**2 * totals["cycles"]
    return {
        "verified": all(check.verified for check in checks),
        "bit_exact": all(check.bit_exact for check in checks),
        "within_bound": all(check.within_bound for check in checks),
        "max_abs_error": max(check.max_abs_error for check in checks),
        "error_bound": max(check.max_bound for check in checks),
        "pes": options.pes,
        "batch": passes.batch,
        "passes": passes.count,
        "dtype": options.dtype,
        "preset": machine.preset,
        "seed": config.seed,
        **totals,
        "utilisation": int(passes.counters["busy"][0].sum()) / pe_cycles,
        "mac_utilisation": totals["macs"] / (passes.lanes * pe_cycles),
        "wafer_seconds": totals["cycles"] / (machine["clock.ghz"] * 1e9) if machine["clock.ghz"] else None,
        "host_seconds": passes.host_seconds,
        "verify_seconds": passes.verify_seconds,
        "hops_per_second": totals["wavelet_hops"] / passes.host_seconds,
        "pe_cycles_per_second": pe_cycles / passes.host_seconds,
        "peak_rss_bytes": peak_bytes(),
    }


def write_files(
    config: JobConfig,
    machine: Machine,
    out_dir: Path,
    result: dict[str, Any],
    counters: dict[str, tuple[NDArray[np.uint64], str]],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write the run file, and the heat maps if they are wanted, into `out_dir`."""
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    meta = RunMeta(
        job="digits",
        config_toml=config.text,
        machine=dict(machine),
        preset=machine.preset,
        seed=config.seed,
        **provenance(),
    )
    with RunWriter(out_dir / "digits.h5", meta) as writer:
        for name, (values, unit) in counters.items():
            writer.add_counter(name, values, unit)
        for name, value in {**result, **arrays}.items():
            if value is not None:
                writer.add_result(name, value)
    if config.options.pictures:
        draw(out_dir, counters, result["cycles"])


def draw(out_dir: Path, counters: Mapping[str, tuple[NDArray[np.uint64], str]], cycles: int) -> None:
    """Draw where PEs were busy and what came from the west."""
    from traces.heatmap import plane, write_heatmap
    from wse_core.counters import MOVED

    share = 100.0 * counters["busy"][0] / cycles
    write_heatmap(out_dir / "utilisation.png", share, "digits: busy cycles of each PE", "% of the run")
    links = [plane(values, link="W") for name, (values, _) in counters.items() if name.startswith(MOVED)]
    if links:
        write_heatmap(
            out_dir / "traffic_from_west.png", sum(links), "digits: wavelets from the western neighbour", "wavelets"
        )


def report(result: dict[str, Any]) -> str:
    """Return the result of `run` as text."""

    def share(value: float | None) -> str:
        return "not measured" if value is None else f"{100 * value:.2f} %"

    r = result
    exact = "yes" if r["bit_exact"] else "NO"
    bound = "within" if r["within_bound"] else "OUTSIDE"
    rows = [
        (
            "accuracy",
            f"{share(r['accuracy'])} of {r['digits']:,} digits ({share(r['accuracy_held_out'])} of those that "
            f"the fit has not seen; numpy in float64: {share(r['accuracy_numpy'])})",
        ),
        (
            "fabric",
            f"{r['pes']} x {r['pes']} PEs of {r['preset']}, {r['dtype']} with f32 sums, {r['passes']} pass(es) "
            f"of up to {r['batch']:,} images",
        ),
        (
            "cycles",
            f"{r['cycles']:,} (formula {r['expected_cycles']:,}), "
            + ("" if r["wafer_seconds"] is None else f"{1e6 * r['wafer_seconds']:.1f} us on the wafer"),
        ),
        ("PE utilisation", f"{share(r['utilisation'])} busy, {share(r['mac_utilisation'])} of the multiply-add rate"),
        ("work", f"{r['macs']:,} multiply-adds, {r['wavelet_hops']:,} wavelet hops"),
        ("bit-exact", f"{exact}, against the reference in the order of the PEs"),
        (
            "against numpy",
            f"largest error {r['max_abs_error']:.3g}, {bound} the derived bound {r['error_bound']:.3g}; "
            f"same class for {r['same_class_as_numpy']:,} of {r['digits']:,}",
        ),
        (
            "host",
            f"{r['host_seconds']:.2f} s simulated at {r['hops_per_second'] / 1e6:.1f} M wavelet-hops/s, "
            f"{r['pe_cycles_per_second'] / 1e6:.1f} M PE-cycles/s; {r['total_seconds']:.1f} s in all",
        ),
        ("files", ", ".join(r["files"])),
    ]
    if len(r["files"]) == 1:
        rows.append(("pictures", f"wse view {r['files'][0]} --figure heat,links,stalls"))
    return table(rows)
