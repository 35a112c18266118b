"""The command ``wse kernel NAME key=value ...`` runs one kernel on one machine and says what it has cost."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.cli.completion import complete_by
from harness.cli.kernel_pages import as_text, describe, kernel_names
from harness.cli.shared import add_machine_options
from harness.cli.tracing import add_options as add_trace_options
from harness.cli.tracing import recorder
from harness.config.assignments import parse_assignments
from harness.config.machine import of_words
from harness.kit.console import Progress, make_progress, plain, print_json, table
from harness.kit.modules import need
from wse_core.errors import ConfigError
from wse_core.schema import suggestion

if TYPE_CHECKING:
    from fabric.kernels.kit.ahead import RunEstimate
    from fabric.kernels.kit.kernel import Kernel
    from fabric.ranks.world import World
    from traces.writer import RunWriter
    from wse_core.params import Machine

__all__ = ["add_parser", "main", "parse_params", "run_kernel"]

KEYS = (
    "kernel",
    "params",
    "cycles",
    "wavelet_hops",
    "macs",
    "verified",
    "bit_exact",
    "max_abs_error",
    "host_seconds",
    "host_bands",
    "host_threads",
    "host_ranks",
    "peak_rss_bytes",
)
"""What every result says, in this order; a kernel may add more."""

LONG = 10
"""If a run takes more seconds than this, it is said after a quarter of them how long it will take."""

ARRAYS = ("counters", "arrays")
"""Keys of a result that hold arrays for the run file and are left out of the printed result."""


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    parser = sub.add_parser(
        "kernel",
        parents=[common],
        help="run one kernel and print its cycles and traffic",
        description="Run one kernel; `wse kernels` lists names and parameters, `wse kernel NAME --help` those of one.",
        add_help=False,
    )
    parser.add_argument("-h", "--help", action=_Help, help="what the kernel takes, or without a name this text")
    name = parser.add_argument("name", metavar="NAME", help="name of the kernel")
    params = parser.add_argument("params", nargs="*", metavar="key=value", help="parameters of the kernel")
    complete_by(name, lambda args: kernel_names())
    complete_by(params, lambda args: _assignments(args.name))
    add_machine_options(parser)
    parser.add_argument(
        "--verify",
        choices=("full", "sample", "off"),
        help="compare all of the result, a part of it that every row and column of PEs takes part in, or nothing "
        "(default: all, of large matrix products a sample); the same as verify=...",
    )
    group = parser.add_argument_group("speed of the simulation (no result depends on it)")
    group.add_argument(
        "--threads",
        metavar="N",
        type=int,
        help="threads of the host (default: all that it has, where so much moves that they pay)",
    )
    group.add_argument(
        "--bands",
        metavar="N",
        type=int,
        help="bands of rows with clocks of their own (default: where they pay; 1: none)",
    )
    group.add_argument(
        "--no-trains",
        action="store_false",
        dest="trains",
        help="move every word hop by hop, also where nothing can hold a stream up; no result changes",
    )
    group.add_argument(
        "--ranks",
        action="store_true",
        help="spread the rows over the ranks of an MPI run: mpiexec -n 2 python -m harness kernel ... --ranks",
    )
    parser.add_argument("--out", metavar="FILE.h5", help="write results and counters to a run file")
    add_trace_options(parser)
    return parser


class _Help(argparse.Action):
    """The option ``--help`` behind the name of a kernel gives the page of that kernel instead of the general one."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name = getattr(namespace, "name", None)
        if name is None:
            parser.print_help()
        else:
            text = as_text(describe(_kernel(name)))
            print(f"usage: wse kernel {name} [key=value ...] [options]\n\n{text}\n\noptions: wse kernel --help")
        parser.exit()


def _kernel(name: str) -> Kernel:
    """Return a kernel of the registry by name."""
    kernels = need("fabric.kernels.registry", "the command `wse kernel`").KERNELS
    if name not in kernels:
        raise ConfigError(f"unknown kernel {name!r}", hint=suggestion(name, kernels), kernel=name)
    return kernels[name]


def _assignments(name: str) -> list[str]:
    """Return words that may follow the name of a kernel, for completion."""
    words = []
    for param in _kernel(name).params:
        values = ("true", "false") if param.kind is bool else param.choices
        words += [f"{param.name}={value}" for value in values] or [f"{param.name}="]
    return words


def parse_params(kernel: Kernel, words: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a kernel as typed values; those not named keep their defaults.

    Parameters
    ----------
    kernel : fabric.kernels.registry.Kernel
        The kernel.
    words : iterable of str
        Words ``key=value``.

    Returns
    -------
    dict
        Only the parameters that were given.

    Raises
    ------
    ConfigError
        Unknown parameter (with the list of known ones), or a value of another type.
    """
    declared = {param.name: param for param in kernel.params}
    values = {}
    for key, text in parse_assignments(words, f"kernel {kernel.name}").items():
        if key not in declared:
            raise ConfigError(
                f"unknown parameter {key!r}", where=f"kernel {kernel.name}", hint=suggestion(key, declared), key=key
            )
        values[key] = declared[key].field.parse(text, f"kernel {kernel.name}: {key}")
    return values


def run_kernel(
    kernel: Kernel,
    machine: Machine,
    values: dict[str, Any],
    bands: int | None = None,
    threads: int | None = None,
    ranks: World | None = None,
    trains: bool | None = None,
) -> dict[str, Any]:
    """Run a kernel and complete its result.

    Parameters
    ----------
    kernel, machine, values
        What runs.
    bands, threads : int, optional
        How the host simulates it: bands of rows with clocks of their own, and threads.
    ranks : World, optional
        The ranks that run it together, of which this is one.
    trains : bool, optional
        Whether streams may be moved as trains; default they may.

    Returns
    -------
    dict
        The keys of `KEYS` first, then whatever else the kernel reports.
    """
    from fabric.host.bands import arranged
    from fabric.host.resident import peak_bytes

    started = time.perf_counter()
    with arranged(bands, threads, trains) as arrangement:
        result = dict(kernel.run(machine, **values))
    elapsed = time.perf_counter() - started
    result.setdefault("kernel", kernel.name)
    result.setdefault("params", {param.name: values.get(param.name, param.default) for param in kernel.params})
    result.setdefault("host_seconds", elapsed)
    result.setdefault("host_bands", arrangement.most_bands)
    result.setdefault("host_threads", arrangement.most_threads)
    peak = peak_bytes()
    result.setdefault("host_ranks", 1 if ranks is None else ranks.size)
    result.setdefault("peak_rss_bytes", peak if ranks is None else max(ranks.share(peak)))  # of the largest rank
    ordered = {key: result.pop(key) for key in KEYS if key in result}
    return ordered | result


def config_text(kernel: Kernel, values: dict[str, Any], preset: str, overrides: Sequence[str]) -> str:
    """Return what was asked for as TOML: kernel, all its parameters, preset and changed numbers of the machine."""
    lines = [
        f"kernel = {json.dumps(kernel.name)}",
        f"preset = {json.dumps(preset)}",
        f"set = {json.dumps(overrides)}",
        "",
        "[params]",
    ]
    for param in kernel.params:
        value = values.get(param.name, param.default)
        text = f"# {param.name}: not given" if value is None else f"{param.name} = {json.dumps(plain(value))}"
        lines.append(text)
    return "\n".join(lines) + "\n"


def open_run_file(
    path: str, kernel: Kernel, machine: Machine, values: dict[str, Any], overrides: Sequence[str] = ()
) -> RunWriter:
    """Return the writer of a run file for a kernel; opened before the run, it fails before time is spent."""
    from traces.provenance import provenance
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    defaults: dict[str, Any] = {param.name: param.default for param in kernel.params}
    meta = RunMeta(
        job=f"kernel {kernel.name}",
        machine=dict(machine),
        preset=machine.preset,
        config_toml=config_text(kernel, values, machine.preset, list(overrides)),
        seed=int((defaults | values).get("seed") or 0),
        **provenance(),
    )
    return RunWriter(path, meta)


def fill_run_file(writer: RunWriter, result: dict[str, Any], counters: bool = True) -> None:
    """Put the result of a kernel, and its counters if it has any and they are wanted, into a run file."""
    for name, value in result.get("counters", {}).items() if counters else ():
        array, unit = value if isinstance(value, tuple) else (value, "")
        writer.add_counter(name, array, unit)
    for name, value in result.get("arrays", {}).items():
        writer.add_result(name, _as_floats(value, result.get("params", {}).get("dtype")))
    for name, value in result.items():
        if name not in ARRAYS and value is not None:
            writer.add_result(name, value)


def _as_floats(bits: np.ndarray, dtype: object) -> np.ndarray:
    """Return what a kernel gives as bit patterns as floating-point numbers; those of cb16 stay bits."""
    kinds = {np.dtype(np.uint32): np.float32} | ({} if dtype == "cb16" else {np.dtype(np.uint16): np.float16})
    return bits.view(kinds[bits.dtype]) if bits.dtype in kinds else bits


def main(args: argparse.Namespace) -> int | None:
    """Run the kernel and print its result; return 1 if the result is known to be wrong, else 0."""
    if not args.ranks:
        return _main(args)
    from fabric.ranks.joined import joined, refuse_ranks

    with joined() as ranks:
        if args.bands is not None or args.threads is not None:
            raise ConfigError("a rank runs its rows at one clock", where="--ranks", hint="no --bands and no --threads")
        if args.trace not in ("off", "counters") or args.trace_window is not None:
            refuse_ranks("recording events or windows")
        return _main(args, ranks)


def _main(args: argparse.Namespace, ranks: World | None = None) -> int:
    """Run the kernel, alone or as one of the ranks; the first of them says and writes what there is."""
    kernel = _kernel(args.name)
    from fabric.kernels.kit.report import without_counters

    first = ranks is None or ranks.rank == 0
    values = parse_params(kernel, args.params)
    if args.verify is not None and values.setdefault("verify", args.verify) != args.verify:
        raise ConfigError(f"verify={values['verify']} says something else", where="--verify", hint="one of the two")
    machine = of_words(args.preset, args.overrides)
    aloud = first and args.progress is not False
    if aloud and ranks is None:  # small copies of it are run
        say_what_it_takes(kernel, machine, values)
    with contextlib.ExitStack() as stack:
        writer = None
        if args.out and first:
            writer = stack.enter_context(open_run_file(args.out, kernel, machine, values, args.overrides))
        progress = stack.enter_context(make_progress(args.progress if first else False))
        progress.phase(f"kernel {kernel.name} on {args.preset}")
        meta = writer.meta if writer and ranks is None else None
        with recorder(args, args.out, meta) as recording, _watching(progress, aloud):
            if not args.out:
                stack.enter_context(without_counters())
            result = run_kernel(kernel, machine, values, args.bands, args.threads, ranks, args.trains)
            if writer:
                windows = recording.windows if recording else None
                fill_run_file(writer, result, args.trace != "off" and windows is None)
            if recording:
                recording.finish(writer)
            if writer:
                writer.close()
    if first:
        _show(args, result)
    return 1 if result.get("verified") is False else 0


def _show(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the result of a kernel."""
    shown = {key: value for key, value in result.items() if key not in ARRAYS and not isinstance(value, np.ndarray)}
    if args.json:
        print_json(shown)
        return
    params = " ".join(f"{key}={value}" for key, value in plain(shown.pop("params")).items())
    print(f"{shown.pop('kernel')} {params}".rstrip())
    print(table(((key, _text(key, value)) for key, value in shown.items()), indent="    "))
    if args.out:
        print(f"    written: {args.out}")


def say_what_it_takes(kernel: Kernel, machine: Machine, values: dict[str, Any]) -> RunEstimate | None:
    """Say on standard error what a run of more than `LONG` seconds will take, before anything of it is made."""
    from fabric.kernels.kit.ahead import estimate

    full = {param.name: values.get(param.name, param.default) for param in kernel.params}
    found = estimate(kernel.name, full, lambda copy: kernel.run(machine, **copy))
    if found is not None and found.seconds > LONG:
        print(
            f"wse: {kernel.name} on {found.pes:,} PEs will take about {found.seconds:,.0f} s and "
            f"{found.gigabytes:.1f} GiB, judging by small copies of it on this host",
            file=sys.stderr,
            flush=True,
        )
    return found


@contextlib.contextmanager
def _watching(progress: Progress, aloud: bool) -> Iterator[None]:
    """Show how far the run of the block is; say what is left of one beyond `LONG` seconds, again if it changes."""
    from fabric.host.resident import peak_bytes
    from fabric.kernels.kit.watch import Status, watching

    said, again, begun, heard = 0.0, LONG / 4, threading.Event(), 0

    def hear(status: Status) -> None:
        nonlocal said, again, heard
        begun.set()
        heard += 1
        progress.update(status.cycles, None if status.expected is None else round(status.expected))
        if not aloud or status.left is None or status.seconds < again or heard < 3:
            return  # the first pieces, in which memory is new, say nothing of the rest
        again = 2 * status.seconds
        whole = status.seconds + status.left
        if whole > LONG and not said / 2 < whole < said * 2:
            said = whole
            peak = peak_bytes() / 2**30
            print(
                f"wse: about {status.left:,.0f} s of simulation are left ({status.cycles:,} of "
                f"{status.expected:,.0f} cycles done, {peak:.1f} GiB so far); Ctrl-C ends it",
                file=sys.stderr,
                flush=True,
            )

    waiting = threading.Thread(target=_say_what_is_made, args=(begun,), daemon=True)
    if aloud:
        waiting.start()
    try:
        with watching(hear):
            yield
    finally:
        begun.set()


def _say_what_is_made(begun: threading.Event) -> None:
    """Say once that programs and data are being made, if that takes long."""
    start = time.process_time()
    while not begun.wait(LONG / 40):
        if time.process_time() - start > LONG / 4:
            print(
                "wse: programs and data are being made; how long the run takes is said when it goes on",
                file=sys.stderr,
                flush=True,
            )
            return


def _text(key: str, value: Any) -> str:
    """Return one value of a result for people."""
    value = plain(value)
    if key == "compared_fraction":
        return f"{100 * value:.3g} % of the results"
    if key == "peak_rss_bytes":
        return f"{value / 2**20:,.0f} MiB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "not checked"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
