"""``wse run [CONFIG.toml]`` does the job that a file describes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from harness import jobs
from harness.jobs.job_file import load_job, parse_job
from harness.kit.console import make_progress, print_json, table
from harness.kit.staging import staged_directory

__all__ = ["add_parser", "main"]


def add_parser(sub: argparse._SubParsersAction[Any], common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Register the subcommand and return its parser."""
    listing = ", ".join(f"{job.name} ({job.summary})" for job in jobs.JOBS.values())
    parser = sub.add_parser(
        "run",
        parents=[common],
        help="run a job described by a TOML file",
        description="Run the job that a TOML file describes; without a file, the job that ships with the package.",
        epilog=f"Jobs: {listing}.",
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG.toml", help="job file")
    parser.add_argument("--out", metavar="DIR", help="directory for the files of the run (default: runs/JOB)")
    return parser


def main(args: argparse.Namespace) -> int | None:
    """Run the job and print its result; return 1 if it could not verify its result, else 0."""
    started = time.perf_counter()
    if args.config is None:
        config = parse_job(*jobs.default_config(), jobs.options_of)
    else:
        config = load_job(args.config, jobs.options_of)
    module = jobs.load(config.job)
    target = Path(args.out) if args.out else Path("runs", config.job)
    with make_progress(args.progress) as progress, staged_directory(target) as stage:
        result = dict(module.run(config, stage, progress))
        result["files"] = [str(target / path.relative_to(stage)) for path in sorted(stage.rglob("*")) if path.is_file()]
    result["total_seconds"] = time.perf_counter() - started
    if args.json:
        print_json({"job": config.job, **result})
    elif hasattr(module, "report"):
        print(module.report(result))
    else:
        print(table(result.items()))
    return 1 if result.get("verified", True) is False else 0
