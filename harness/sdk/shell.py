"""``sdk_debug_shell`` has those parts of the vendor's shell that have a meaning here."""

from __future__ import annotations

import argparse
import string
import sys
from pathlib import Path

from fabric.csl.artefact import Bundle, read_bundle
from harness.sdk import compiler
from wse_core.errors import WseError

__all__ = ["main", "plan"]

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
WIDEST = 160


def plan(bundle: Bundle) -> str:
    """Return a picture of which PEs run which program: a letter each, with a line per program below."""
    index = bundle.index[:, :WIDEST]
    letter = [LETTERS[number % len(LETTERS)] for number in range(len(bundle.programs))]
    lines = ["".join(letter[number] if number >= 0 else "." for number in row) for row in index[:WIDEST]]
    if index.shape != bundle.index.shape or len(index) > WIDEST:
        lines.append(f"(the first {index.shape[1]} columns and {min(len(index), WIDEST)} rows)")
    colors = ", ".join(str(color) for color in sorted(bundle.routes)) or "none"
    return "\n".join(
        [*lines, *(f"{letter[k]}  {image.name}" for k, image in enumerate(bundle.programs)), f"colors: {colors}"]
    )


def main(arguments: list[str] | None = None) -> int:
    """Compile as cslc does, or draw what was compiled."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["compile"]:
        return compiler.main(words[1:])
    parser = argparse.ArgumentParser("sdk_debug_shell", description="Look at compiled programs.")
    parts = parser.add_subparsers(dest="part", required=True, metavar="WHAT")
    parts.add_parser("compile", help="as cslc does, with its options")
    parts.add_parser("smoke", help="say that everything is there")
    drawn = parts.add_parser("visualize", help="which PEs run which program; runs are looked at with wse view")
    drawn.add_argument("--artifact_dir", default="out", help="what cslc -o wrote; default out")
    args = parser.parse_args(words)
    if args.part == "smoke":
        print("sdk_debug_shell: compiler and fabric are there; `wse doctor` says more")
        return 0
    try:
        print(plan(read_bundle(Path(args.artifact_dir))))
    except WseError as error:
        print(f"sdk_debug_shell: {error}", file=sys.stderr)
        return 1
    print("a run is looked at so: wse csl run --out run.h5 --trace full run.py; wse view run.h5")
    return 0


if __name__ == "__main__":
    sys.exit(main())
