"""WaferLLM's Decode and Prefill are run from a tree of their sources, beside program A, which is composed.

    python -m tools.docs.waferllm_layers TREE [--write docs/inference.md]

``Decode/WSE-2`` and ``Prefill/WSE-2`` of the tree are compiled as they are and do one layer, `REPEATS` times after one
that is not counted, on the meshes and with the tiles of `RUNS`; their own stamps say how long that took.  The numbers
that PEs hold are small and drawn.  The slope is what a row and a column of PEs more take; program A's stands beside it.
With ``--write`` the table of the page is replaced.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.inference import authors
from harness.models.presets import PRESETS
from harness.sdk.runtime import SdkRuntime
from tools.docs.waferllm_runs import running
from wse_core.errors import WseError
from wse_core.params import machine

__all__ = ["RUNS", "cycles", "main", "table"]

RUNS = {
    "decode": ((12, 12, 40), ((8, 2), (16, 4), (24, 4), (40, 8), (80, 8))),
    "prefill": ((7, 7, 22), ((8, 1), (16, 1), (24, 1), (40, 1))),
}
"""Of each phase these are run: features, tokens and features of the feed-forward of a PE; PEs of a side, and groups."""

BEGIN, END = "<!-- begin waferllm layers -->\n", "<!-- end waferllm layers -->\n"
REPEATS = 2
CALLS = {"decode": "decode_host", "prefill": "prefill_host"}
"""The host calls these functions with the number of layers that are not counted, and of those that are."""


def _sizes(phase: str, d: int, t: int, f: int) -> dict[str, int]:
    """Return the elements that a PE holds of each array that the host fills."""
    found = dict.fromkeys(("Q_weight", "K_weight", "V_weight", "O_weight"), d * d)
    found |= dict.fromkeys(("UP_weight", "GATE_weight", "DOWN_weight"), d * f)
    found |= {"X": d * (t if phase == "prefill" else 1), "W": d, "freqs_sin": d // 2, "freqs_cos": d // 2}
    return found | (dict.fromkeys(("XKCache", "XVCache"), d * t) if phase == "decode" else {})


def cycles(tree: Path, phase: str, tiles: tuple[int, int, int], mesh: int, groups: int) -> float:
    """Return the cycles of a layer on the PEs of a mesh, on average, by the program's own stamps."""
    rng = np.random.default_rng(mesh)
    given = {
        name: rng.uniform(-0.1, 0.1, (mesh, mesh, count)).astype(np.float16)
        for name, count in _sizes(phase, *tiles).items()
    }
    with running(tree, phase, tiles, mesh, groups, given) as runner:
        runner.launch(CALLS[phase], np.int16(1), np.int16(REPEATS))
        took = [_stamp(runner, x, y, "tscEndBuffer") - _stamp(runner, x, y, "tscStartBuffer")
                for y in range(mesh) for x in range(mesh)]  # fmt: skip
    return float(np.mean(took)) / REPEATS


def _stamp(runner: SdkRuntime, x: int, y: int, name: str) -> int:
    words = runner.read_symbol(x, y, name, np.uint16)
    return sum(int(word) << 16 * k for k, word in enumerate(words))


def composed(phase: str, tiles: tuple[int, int, int], mesh: int) -> float:
    """Return what program A takes for the same layer."""
    d, t, f = tiles
    decoder = replace(PRESETS["LLaMA3-8B"], hidden=d * mesh, ffn=f * mesh)
    return float(getattr(authors, phase)(machine("wse2"), decoder, mesh, mesh, t * mesh).layer)


def table(tree: Path) -> str:
    """Return the runs, and what program A says, as a Markdown table."""
    lines = ["| phase | tiles | P | run [cycles] | A [cycles] | A off | slope run | slope A |"]
    lines.append("|" + "---|" * 8)
    for phase, (tiles, meshes) in RUNS.items():
        before = None
        for mesh, groups in meshes:
            run, ours = cycles(tree, phase, tiles, mesh, groups), composed(phase, tiles, mesh)
            slopes = ["-", "-"]
            if before is not None:
                slopes = [
                    f"{(now - then) / (mesh - before[0]):,.0f}"
                    for now, then in zip((run, ours), before[1:], strict=True)
                ]
            name = " x ".join(map(str, tiles))
            cells = [phase, name, str(mesh), f"{run:,.0f}", f"{ours:,.0f}", f"{ours / run - 1:+.1%}", *slopes]
            lines.append(f"| {' | '.join(cells)} |")
            before = (mesh, run, ours)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.waferllm_layers", description="Layers of WaferLLM.")
    parser.add_argument("tree", type=Path, metavar="TREE", help="the sources of WaferLLM")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    args = parser.parse_args(arguments)
    try:
        found = table(args.tree)
    except WseError as error:
        print(error, file=sys.stderr)
        return 1
    if args.write is None:
        print(found)
    else:
        page = args.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not end:
            print(f"{args.write} has no lines {BEGIN.strip()} and {END.strip()}", file=sys.stderr)
            return 1
        args.write.write_text(f"{before}{BEGIN}{found}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
