"""The command ``cslc`` compiles a layout file into an output directory."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.kit.modules import need
from wse_core.errors import ConfigError, WseError

__all__ = ["main"]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    # Nearly all that a compiler makes stays.  Gain: a tenth of the time of a hundred programs, for a tenth more memory.
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


FRAME = (4, 1, 3, 1)
"""The host's frame takes so many columns and rows around a program: in front, above, behind, below."""
LIMITS = (
    ("--max-inlined-iterations", 50_000_000, "iterations of a loop at compile time"),
    ("--max-comptime-steps", 1_000_000, "steps of all loops and calls of a program at compile time"),
    ("--max-instances", 4_000, "instances of functions in a program"),
)
"""By these options a run of the compiler may take more, in the names of `Options`."""


def _count(word: str) -> int:
    """Return a number from an option."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is no number of at least 1")
    return number


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="cslc", description="Compile a program in CSL for the model of WSE-2 or WSE-3.")
    made.add_argument("layout", metavar="FILE", help="the layout file")
    made.add_argument("--arch", default="wse2", help="wse2 (default) or wse3")
    made.add_argument("--fabric-dims", metavar="W,H", help="size of the fabric")
    where = "place of the program in it; default 4,1, without --memcpy 0,0"
    made.add_argument("--fabric-offsets", metavar="X,Y", help=where)
    made.add_argument("--params", action="append", default=[], metavar="a:1,b:2", help="values for params")
    made.add_argument("--colors", action="append", default=[], metavar="a:1", help="old: values for colors")
    made.add_argument("-o", "--output", default="out", metavar="DIR", help="the output directory; default out")
    made.add_argument("--memcpy", action="store_true", help="the host copies and launches; always so here")
    made.add_argument("--channels", type=int, default=1, help="channels of the host; means nothing here")
    made.add_argument("--width-west-buf", type=int, default=0, help="buffers; mean nothing here")
    made.add_argument("--width-east-buf", type=int, default=0, help="buffers; mean nothing here")
    made.add_argument("--import-path", action="append", default=[], metavar="DIR", help="where <modules> are")
    made.add_argument("--fp16-format", choices=("f16", "cb16", "bf16"), default="f16", help="the 16-bit float")
    made.add_argument("--optimise", type=int, choices=(0, 1), default=1, help="0: code as the source says it")
    made.add_argument(
        "--sdk", default="", metavar="V", help="warn of what the vendor's compiler of 1.0 ... 2.10 refuses"
    )
    for name, default, what in LIMITS:
        made.add_argument(name, type=_count, default=default, metavar="N", help=f"{what}; default {default:,}")
    made.add_argument("--warnings-as-errors", action="store_true")
    made.add_argument("--verbose", action="store_true", help="say what each program takes")
    made.add_argument("--link-section-start-address-bytes", metavar="N", help="means nothing here")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Compile; return 0, or 1 after messages."""
    args, others = parser().parse_known_intermixed_args(arguments)
    strange = next((word for word in others if not word.startswith("--")), None)
    if strange is not None:
        print(f"cslc: error: '{strange}' is no option", file=sys.stderr)
        return 2
    for word in others:  # of another version of the SDK, which says how to compile, not what
        print(f"cslc: warning: the option {word} means nothing here", file=sys.stderr)
    try:
        return _compile(args)
    except WseError as error:
        print(str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _pair(text: str | None, what: str, default: tuple[int, int]) -> tuple[int, int]:
    if text is None:
        return default
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise ConfigError(f"'{text}' are no two numbers", where=what, hint=f"{what}=8,3")
    return int(parts[0]), int(parts[1])


@_without_garbage_collection()
def _compile(args: argparse.Namespace) -> int:
    need("lark", "the command cslc")
    from fabric.csl.artefact import bundle_of, write_bundle
    from fabric.csl.compile import compile_file
    from fabric.csl.comptime.session import TARGETS, Options
    from fabric.csl.diagnostics import CslError, render
    from fabric.csl.projects import parse_params

    if args.arch not in TARGETS:
        raise ConfigError(f"programs for {args.arch} are not supported", where="--arch", hint=" or ".join(TARGETS))

    colors = parse_params(args.colors)
    environment = [entry for entry in os.environ.get("CSL_IMPORT_PATH", "").split(":") if entry]
    framed = (4, 1) if args.memcpy or not args.fabric_dims else (0, 0)
    options = Options(
        params={**parse_params(args.params), **colors},
        import_paths=(*[part for entry in args.import_path for part in entry.split(":")], *environment),
        fp16=args.fp16_format,
        fabric=_pair(args.fabric_dims, "--fabric-dims", (757, 996)),
        offsets=_pair(args.fabric_offsets, "--fabric-offsets", framed),
        frame=FRAME if args.memcpy else (0, 0, 0, 0),
        max_inlined_iterations=args.max_inlined_iterations,
        optimise=bool(args.optimise),
        arch=args.arch,
        sdk=args.sdk,
        max_comptime_steps=args.max_comptime_steps,
        max_instances=args.max_instances,
    )
    try:
        made = compile_file(args.layout, options)
        bundle = bundle_of(made, colors)
    except CslError as error:
        for item in error.diagnostics:
            print(render(item), file=sys.stderr)
        return 1
    found: list[Any] = made.checked.report.diagnostics
    for item in found:
        print(render(item), file=sys.stderr)
    if args.warnings_as_errors and any(item.severity == "warning" for item in found):
        return 1
    write_bundle(bundle, args.output)
    elf = Path(args.output) / "bin" / "out_0_0.elf"  # scripts before SDK 0.9 list these files
    elf.parent.mkdir(exist_ok=True)
    elf.write_text("programs and routes are in ../image.npz and ../host.json\n", encoding="utf-8")
    if args.verbose:
        for image in bundle.programs:
            print(f"{image.name}: {image.code_words} words of code, {image.footprint - image.code_words} of data")
    return 0


if __name__ == "__main__":
    sys.exit(main())
