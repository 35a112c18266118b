"""The command line ``wse`` has one parser, one module per subcommand, and one place where failures become messages.

Exit status: 0 for success; 1 for a failure during a run (fault, deadlock, unverified result, full disk); 2 for bad
input; 130 after Ctrl-C; 128 + n after signal n.  A failure is one message on standard error.  A traceback appears only
with ``--debug`` or ``WSE_DEBUG=1``.

A subcommand is a module ``harness/cli/cmd_<name>.py`` with ``add_parser(sub, common)``, which registers a parser, and
``main(args)``, which returns the exit status or None for 0.  Such a module imports the engine only inside ``main``, so
that ``wse doctor`` works when nothing is compiled yet.  Only the module of the command that is run is imported: the
smallest commands are over before the others would have been loaded.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from harness.kit.endings import Terminated
from wse_core.errors import ConfigError, WseError
from wse_core.errors.base import EXIT_RUN
from wse_core.errors.values import shown
from wse_core.schema import suggestion

__all__ = ["COMMANDS", "build_parser", "main"]

COMMANDS = (
    "run", "train", "generate", "kernel", "kernels", "price", "sweep", "csl", "validate", "figure", "view", "serve",
    "export", "report", "compare", "plan", "place", "doctor",
)  # fmt: skip
"""The subcommands are in the order of the help text."""

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
COLLECT_AFTER = 1_000_000
"""New objects between two collections of garbage: assembling programs makes many that stay and few that die."""


class Parser(argparse.ArgumentParser):
    """A `Parser` is an argument parser whose complaints are `ConfigError`, like those about any other input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, hint=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the choices, with the nearest of them; argparse itself names all alone."""
        if action.choices is None or value in action.choices:
            return
        option = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        hint = f"{suggestion(value, action.choices)}; {self.prog} --help"
        raise ConfigError(f"{shown(value)} is none", where=option, hint=hint)


def common_options() -> argparse.ArgumentParser:
    """Return a parser with the options that every subcommand accepts, to be used as a parent."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="print exactly one JSON object on standard output")
    group.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress on standard error (default: only on a terminal)",
    )
    group.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    return common


class Version(argparse.Action):
    """The option ``--version`` looks for the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show program's version number and exit")

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        from traces.provenance import package_version

        print(f"wse-sim {package_version()}")
        parser.exit()


def build_parser(commands: Sequence[str] = COMMANDS) -> Parser:
    """Return the parser of ``wse``.

    Parameters
    ----------
    commands : sequence of str
        Those that it knows; default all.

    Returns
    -------
    argparse.ArgumentParser
        Parsed arguments carry `handler`, the ``main`` of the chosen subcommand.
    """
    parser = Parser(prog="wse", description="A cycle-level model of a wafer-scale engine.")
    parser.add_argument("--version", action=Version)
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    parser.set_defaults(json=False, progress=None, handler=None)
    sub = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name in commands:
        module = importlib.import_module(f"harness.cli.cmd_{name}")
        module.add_parser(sub, common_options()).set_defaults(handler=module.main)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments; key=value words may stand before, between and after options."""
    command = next((word for word in argv if not word.startswith("-")), None)
    known = () if command is None and "--version" in argv else COMMANDS
    parser = build_parser((command,) if command in COMMANDS else known)
    args, rest = parser.parse_known_args(argv)
    options = [word for word in rest if word.startswith("-") or not hasattr(args, "params")]
    if options:
        parser.error(f"unrecognized arguments: {' '.join(options)}")
    if rest:
        args.params += rest
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``wse``.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process if not given.

    Returns
    -------
    int
        Exit status.
    """
    if "_ARGCOMPLETE" in os.environ and argv is None:
        from harness.cli.completion import complete

        return complete(build_parser, COMMANDS)
    _open_outputs()
    whole, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in argv or os.environ.get("WSE_DEBUG", "") not in ("", "0")
    restore, collect = _catch_signals(), gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *collect[1:])
    try:
        return _run(argv, debug)
    except BrokenPipeError:
        # The reader has gone.  Nothing more can be said there, not even by the interpreter when it flushes at its end.
        _silence_stdout()
        return EXIT_BROKEN_PIPE
    finally:
        gc.set_threshold(*collect)
        if whole:  # the process ends: nobody need look for garbage in memory that goes back as it is
            gc.freeze()
        for number, handler in restore.items():
            signal.signal(number, handler)


def _open_outputs() -> None:
    """Give the process outputs where it has none (closed by who started it), and let narrow ones take any text."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _run(argv: Sequence[str], debug: bool) -> int:
    """Parse, dispatch and translate failures into an exit status."""
    try:
        args = parse(argv)
        if args.handler is None:
            build_parser().print_help()
            sys.stdout.flush()
            return 0
        status = args.handler(args) or 0
        sys.stdout.flush()
        return status
    except SystemExit as end:  # --help and --version; a text instead of a status is a failure, as Python has it
        sys.stdout.flush()
        if isinstance(end.code, (int, types.NoneType)):
            return end.code or 0
        return _fail(str(end.code), EXIT_RUN, debug)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED, debug)
    except Terminated as end:
        return _fail(f"ended by {signal.Signals(end.number).name}", 128 + end.number, debug)
    except BrokenPipeError:
        raise
    except WseError as error:
        return _fail(f"error: {error}", error.exit_code, debug)
    except MemoryError as error:
        advice = "choose a smaller rectangle or free memory; `wse doctor` shows what is available"
        return _fail(f"error: out of memory{f' ({error})' if str(error) else ''}. Try: {advice}.", EXIT_RUN, debug)
    except RuntimeError as error:
        if "start new thread" not in str(error):  # what Python says where memory or a limit of processes is used up
            return _defect(error, debug)
        advice = "a higher limit (ulimit -v, ulimit -u), or fewer threads: OMP_NUM_THREADS=1"
        return _fail(f"error: there is no room for another thread. Try: {advice}.", EXIT_RUN, debug)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _fail(f"error: {name}{error.strerror or error}", EXIT_RUN, debug)
    except Exception as error:
        return _defect(error, debug)


def _defect(error: Exception, debug: bool) -> int:
    """Say that something happened which should not; return the status."""
    text = " ".join(str(error).split())
    where = "This is a defect of wse-sim; the option --debug shows where it happened"
    return _fail(f"error: internal error, {type(error).__name__}: {text}. {where}.", EXIT_RUN, debug)


def _fail(message: str, status: int, debug: bool) -> int:
    """Print one message on standard error, below a traceback if debugging, and return `status`."""
    from harness.kit.console import printable

    if debug:
        traceback.print_exc()
    print(f"wse: {printable(message)}", file=sys.stderr)
    return status


def _catch_signals() -> dict[signal.Signals, Any]:
    """Turn polite requests to end into `Terminated`; return what must be put back afterwards.

    What whoever started the process had it ignore stays ignored: that is how ``nohup`` works.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    if threading.current_thread() is not threading.main_thread():
        return {}
    wanted = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    return {number: signal.signal(number, handle) for number in wanted}


def _silence_stdout() -> None:
    """Point standard output at nothing."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
