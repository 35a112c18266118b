"""Small CSL programs of one PE, compiled and run on the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from harness.sdk.device import SdkDevice

__all__ = ["device_of", "run_task"]


def device_of(directory: Path, files: dict[str, str], top: str = "top.csl", **options) -> SdkDevice:
    """Write files, compile one of them and load it."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return SdkDevice(bundle_of(compile_file(directory / top, Options(**options))), directory)


def run_task(directory: Path, body: str, *declarations: str, results: dict[str, object], **options) -> dict:
    """Run a task that starts by itself; return globals by name as arrays of the types that are asked for."""
    start = "comptime { @bind_local_task(job, @get_local_task_id(8)); @activate(@get_local_task_id(8)); }"
    text = "\n".join([*declarations, "task job() void {", body, "}", start, ""])
    device = device_of(directory, {"top.csl": text}, **options)
    device.settle()
    return {
        name: np.ascontiguousarray(device.symbol(0, 0, name), "<u2").view(np.dtype(kind))
        for name, kind in results.items()
    }
