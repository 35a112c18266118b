"""``wse train CONFIG --project 1,2,4`` says what a network reaches on so many systems, by the layer-level model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.train_run import PURPOSE
from harness.kit.console import make_progress, print_json
from harness.kit.files import write_picture, write_table
from harness.kit.modules import need
from harness.kit.staging import staged_directory

if TYPE_CHECKING:
    from harness.train.config import TrainConfig

__all__ = ["run"]


def run(args: argparse.Namespace, config: TrainConfig, out: Path) -> int:
    """Project, write ``project.png`` (or what is asked for) and ``project.csv``, print; return 0."""
    module = need("harness.train.project", PURPOSE)
    systems = module.systems_of(args.project)
    with staged_directory(str(out)) as stage:
        with make_progress(args.progress) as progress:
            progress.phase(f"project {config.name}")
            found = module.project(config, systems, lambda done, todo, what: progress.update(done, todo, at=what))
        write_table(stage / "project.csv", found["rows"])
        write_picture(stage / f"project.{args.format}", lambda picture: module.draw(picture, config.name, found))
    files = [str(out / f"project.{end}") for end in (args.format, "csv")]
    if args.json:
        print_json({"name": config.name, **found, "files": files})
    else:
        print(_text(found, files))
    return 0


def _text(found: dict[str, Any], files: list[str]) -> str:
    """Return the projection for a terminal."""
    head = ("", "systems", "batch", "samples/s", "efficiency", "cycles", "limit", "error of the model")
    lines = [head]
    for row in found["rows"]:
        if row["measured_cycles"]:
            error = f"{row['error']:+.1%}: {row['measured_cycles']:,} cycle by cycle"
        else:
            error = f"{row['error']:+.1%} at {row['error_at']} system{'s' * (row['error_at'] > 1)}"
        lines.append(
            (
                row["kind"],
                f"{row['systems']}",
                f"{row['batch']:,}",
                f"{row['samples_per_second']:,.0f}",
                f"{row['efficiency']:.3f}",
                f"{row['cycles']:,.0f}",
                row["limit"],
                error,
            )
        )
    wide = [max(len(line[k]) for line in lines) for k in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if k in (0, 6, 7) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, wide, strict=True))
        ).rstrip()
        for line in lines
    ]
    for one in found["checked"]:
        text.append(
            f"cycle by cycle: {one['systems']} x {one['mesh'][0]} x {one['mesh'][1]} PEs, "
            f"{'-'.join(map(str, one['features']))}: {one['cycles']:,} cycles, the model says "
            f"{one['model_cycles']:,.0f} ({one['error']:+.1%})"
        )
    text += [_grouped(found["groupings"])] if len(found["groupings"]) > 1 else []
    return "\n".join([*text, *(f"wrote {name}" for name in files)])


def _grouped(found: list[dict[str, Any]]) -> str:
    """Return what groups of columns would take, and which take the fewest cycles."""
    least = min(found, key=lambda one: one["cycles"])
    every = ", ".join(f"{one['column_groups']}: {one['cycles']:,.0f}" for one in found)
    return f"cycles by groups of columns (mesh.column_groups): {every}; fewest with {least['column_groups']}"
