"""WaferLLM's Decode and Prefill are run from a tree of their sources, and stand beside program A, which is composed.

    python -m tools.docs.waferllm_layers [TREE --record [--up-to 64]] [--write docs/inference.md]

``Decode/WSE-2`` and ``Prefill/WSE-2`` of the tree are compiled as they are and do one layer, `REPEATS` times after one
that is not counted; their own stamps say how long that took.  The numbers that PEs hold are small and drawn.  With
``--record`` what is missing of `plan` is run and joins ``harness/inference/recorded.json``; ``--up-to`` is the largest
side.  A mesh as large as the paper's needs 5 to 13 GB.  Tables come from the record, without a tree; with ``--write``
those of the page are replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from harness.inference import authors, published, recorded
from harness.inference.requests import clocks
from harness.inference.tables import CACHED, PublishedCell, cells
from harness.models.presets import PRESETS
from harness.sdk.runtime import SdkRuntime
from tools.docs.waferllm_runs import running
from traces.atomic import atomic_file
from wse_core.errors import ConfigError, WseError
from wse_core.params import machine

__all__ = ["composed", "cycles", "main", "of_cells", "of_runs", "plan", "written"]

RECORD = Path(recorded.__file__).with_name(recorded.FILE)
SOURCE = (
    "MeshInfra/WaferLLM, commit 2cd13b5c: Decode/WSE-2 and Prefill/WSE-2 as they are, a layer by their own stamps, "
    "preset wse2; measured by python -m tools.docs.waferllm_layers TREE --record"
)
SIDES = {"decode": ((36, 6),), "prefill": ((8, 1), (12, 1))}
"""Every tile is run on meshes of so many PEs a side, in so many groups."""
FURTHER = {
    ("decode", (10, 10, 35)): (
        *((16, 4), (20, 4), (40, 2), (40, 4), (40, 5), (40, 8), (40, 10), (40, 20)),
        *((64, 8), (80, 4), (80, 8), (80, 10), (80, 20), (420, 20)),
    ),
    ("decode", (13, 7, 45)): ((40, 2), (40, 8), (80, 20)),
    ("prefill", (7, 7, 22)): ((16, 1), (40, 1)),
    ("prefill", (9, 9, 30)): ((16, 1),),
}
"""These are run too: for slopes of Decode, and held out."""
REPEATS = 2
CALLS = {"decode": "decode_host", "prefill": "prefill_host"}
"""The host calls these functions with the number of layers that are not counted, and of those that are."""

Key = tuple[str, recorded.Tile, int, int]


def plan() -> list[Key]:
    """Return what is run: phase, tiles, PEs of a side, groups."""
    tiles: dict[tuple[str, recorded.Tile], None] = {}
    for model in published.MODELS:
        decoder = PRESETS[model]
        for phase, sides in (("prefill", published.PREFILL_SIDES), ("decode", published.DECODE_SIDES)):
            tiles |= dict.fromkeys((phase, recorded.tile_of(decoder, side, CACHED)) for side in sides)
    for model, (big, small) in published.REQUEST_SIDES.items():
        prompts = {each.prompt for each in published.REQUEST_COLUMNS}
        tiles |= dict.fromkeys(("prefill", recorded.tile_of(PRESETS[model], big, prompt)) for prompt in sorted(prompts))
        tiles["decode", recorded.tile_of(PRESETS[model], small, CACHED)] = None
    found = [(phase, tile, *mesh) for phase, tile in tiles for mesh in SIDES[phase]]
    found += [(*which, *mesh) for which, meshes in FURTHER.items() for mesh in meshes]
    return sorted(set(found), key=lambda key: (key[2], key))


def _sizes(phase: str, d: int, t: int, f: int) -> dict[str, int]:
    """Return the elements that a PE holds of each array that the host fills."""
    found = dict.fromkeys(("Q_weight", "K_weight", "V_weight", "O_weight"), d * d)
    found |= dict.fromkeys(("UP_weight", "GATE_weight", "DOWN_weight"), d * f)
    found |= {"X": d * (t if phase == "prefill" else 1), "W": d, "freqs_sin": d // 2, "freqs_cos": d // 2}
    return found | (dict.fromkeys(("XKCache", "XVCache"), d * t) if phase == "decode" else {})


def cycles(tree: Path, phase: str, tiles: recorded.Tile, mesh: int, groups: int) -> float:
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


def written(runs: dict[Key, float]) -> str:
    """Return the record as text, a run on a line."""
    names = ("phase", "tile", "side", "groups", "cycles")
    lines = ["    " + json.dumps(dict(zip(names, (*key, round(runs[key], 1)), strict=True))) for key in sorted(runs)]
    return f'{{\n  "source": {json.dumps(SOURCE)},\n  "runs": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def record(tree: Path, largest: int) -> None:
    """Run what the record lacks on meshes up to the largest side, each of which joins it as soon as it has run."""
    runs = {(r.phase, r.tile, r.side, r.groups): r.cycles for r in recorded.recorded()}
    for key in plan():
        if key[2] <= largest and key not in runs:
            runs[key] = cycles(tree, *key)
            print(*key, f"{runs[key]:,.0f}", file=sys.stderr)
            with atomic_file(RECORD) as file:
                file.write(written(runs).encode())


@cache
def composed(phase: str, tiles: recorded.Tile, mesh: int, groups: int = 0) -> float:
    """Return what program A takes for the same layer."""
    d, t, f = tiles
    decoder = replace(PRESETS["LLaMA3-8B"], hidden=d * mesh, ffn=f * mesh)
    more = (groups,) if phase == "decode" else ()
    return float(getattr(authors, phase)(machine("wse2"), decoder, mesh, mesh, t * mesh, *more).layer)


def _named(tile: recorded.Tile) -> str:
    return " x ".join(map(str, tile))


def _lines(head: str, rows: Iterator[list[str]]) -> str:
    first = f"| {head} |"
    return "\n".join([first, "|" + "---|" * (first.count("|") - 1), *(f"| {' | '.join(row)} |" for row in rows)])


def _runs() -> Iterator[list[str]]:
    """Yield a row of the table of runs per phase and tile."""
    found: dict[tuple[str, recorded.Tile], list[recorded.RecordedRun]] = {}
    for run in recorded.recorded():
        found.setdefault((run.phase, run.tile), []).append(run)
    for (phase, tile), mine in found.items():
        mine.sort(key=lambda run: (run.side, run.groups))
        ours = [composed(phase, tile, run.side, run.groups) for run in mine]
        names = [f"{run.side} in {run.groups}: " if phase == "decode" else f"{run.side}: " for run in mine]
        took = ", ".join(f"{name}{run.cycles:,.0f}" for name, run in zip(names, mine, strict=True))
        off = ", ".join(f"{mine_too / run.cycles - 1:+.1%}" for mine_too, run in zip(ours, mine, strict=True))
        slopes = ["-", "-"]
        if phase == "prefill" and len(mine) > 1:
            more = mine[-1].side - mine[-2].side
            slopes = [f"{(mine[-1].cycles - mine[-2].cycles) / more:,.0f}", f"{(ours[-1] - ours[-2]) / more:,.0f}"]
        yield [phase, _named(tile), took, off, *slopes]


def of_runs() -> str:
    """Return what was run, and how far program A is off, as a Markdown table."""
    return _lines("phase | tiles | PEs a side: cycles | A off | slope run | slope A", _runs())


def _held_out() -> Iterator[list[str]]:
    for run, carried in recorded.held_out():
        ours = composed(run.phase, run.tile, run.side, run.groups)
        numbers = [f"{run.cycles:,.0f}", f"{carried:,.0f}", f"{carried / run.cycles - 1:+.2%}", f"{ours:,.0f}"]
        yield [run.phase, _named(run.tile), f"{run.side}", *numbers, f"{ours / run.cycles - 1:+.1%}"]


def of_held_out() -> str:
    """Return the runs that are held out, with what the others carry on to, as a Markdown table."""
    return _lines("phase | tiles | PEs a side | run | carried on | off | A | A off", _held_out())


def _cells() -> Iterator[list[str]]:
    """Yield a row per published cell: program A and the runs, each at both clocks."""
    m = machine("wse2")
    for number in ("2", "3", "4"):
        rows: dict[tuple[str, str], dict[tuple[str, float], PublishedCell]] = {}
        for cell in cells(m, number):
            if cell.system == "WaferLLM" and cell.program in ("A", "as run") and cell.gigahertz is not None:
                rows.setdefault((cell.model, cell.setting), {})[cell.program, cell.gigahertz] = cell
        for (model, setting), mine in rows.items():
            slow, fast = clocks(m)
            if ("as run", slow) not in mine:
                continue
            rates = [f"{mine[program, slow].modelled:,.0f}" for program in ("A", "as run")]
            errors = [f"{mine[program, clock].error:+.1%}" for clock in (slow, fast) for program in ("A", "as run")]
            apart = f"{mine['A', slow].modelled / mine['as run', slow].modelled - 1:+.1%}"
            there = (
                recorded.as_run("decode", PRESETS[model], int(setting.split()[0]), CACHED) if number == "4" else None
            )
            place = setting + ", in full" * (there is not None and there.full)
            yield [number, model, place, f"{mine['A', slow].published:,.0f}", *rates, apart, *errors]


def of_cells() -> str:
    """Return the cells of tables 2 to 4, with program A and the runs, as a Markdown table."""
    head = "table | model | setting | published | A | run | A to run | A, 0.85 GHz | run, 0.85 | A, 1.1 GHz | run, 1.1"
    return _lines(head, _cells())


TABLES = {"layers": of_runs, "held out": of_held_out, "cells": of_cells}


def renewed(page: str) -> str:
    """Return a page with its tables replaced."""
    for name, made in TABLES.items():
        begin, end = f"<!-- begin waferllm {name} -->\n", f"<!-- end waferllm {name} -->\n"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ConfigError(f"the page has no lines {begin.strip()} and {end.strip()}")
        page = f"{before}{begin}{made()}\n{end}{after}"
    return page


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.waferllm_layers", description="Layers of WaferLLM.")
    parser.add_argument("tree", type=Path, nargs="?", metavar="TREE", help="the sources of WaferLLM")
    parser.add_argument("--record", action="store_true", help="run what the record lacks")
    parser.add_argument("--up-to", type=int, default=64, metavar="SIDE", help="PEs a side of the largest run")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    args = parser.parse_args(arguments)
    if args.record != (args.tree is not None):
        parser.error("TREE and --record belong together")
    try:
        if args.record:
            record(args.tree, args.up_to)
        elif args.write is None:
            print(*(made() for made in TABLES.values()), sep="\n\n")
        if args.write is not None:
            args.write.write_text(renewed(args.write.read_text(encoding="utf-8")), encoding="utf-8")
    except WseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
