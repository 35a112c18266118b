"""A function of a file that has no layout is called on one PE, with a layout and a launch around it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.csl.types import ArrayType, IntType, leads_to_bytes
from harness.sdk.device import SdkDevice

__all__ = ["call_function"]

LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1 });
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0) });
  @export_name("call", fn()void);
}
"""
PE = """
param memcpy_params: comptime_struct;
const sys_mod = @import_module("<memcpy/memcpy>", memcpy_params);
const time = @import_module("<time>");
const code = @import_module(FILE, .{ PARAMS });
export var begin = @zeros([3]u16);
export var end = @zeros([3]u16);
fn call() void {
  time.get_timestamp(&begin);
  code.CALL;
  time.get_timestamp(&end);
  sys_mod.unblock_cmd_stream();
}
comptime { @export_symbol(call); }
"""


def call_function(path: Path, call: str, options: Options) -> tuple[int, dict[str, Any]]:
    """Call a function of a file.

    Parameters
    ----------
    path : Path
        A file in CSL without a layout.
    call : str
        The call as one writes it in CSL, such as ``f(3, 2.5)``.
    options : Options
        Params of the file, import paths.

    Returns
    -------
    tuple
        The cycles of the call, and per global that it reaches its name and values.

    Raises
    ------
    CslError
        If there is a mistake in the file, or in the call.
    """
    params = ", ".join(f".{name} = {value}" for name, value in options.params.items())
    source = PE.replace("FILE", json.dumps(str(path.resolve()))).replace("PARAMS", params)
    with tempfile.TemporaryDirectory() as text:
        directory = Path(text)
        (directory / "layout.csl").write_text(LAYOUT, encoding="utf-8")
        (directory / "pe.csl").write_text(source.replace("CALL", call), encoding="utf-8")
        settings = replace(options, params={}, root=path.resolve().parent)
        made = compile_file(directory / "layout.csl", settings)
        bundle = bundle_of(made)
        device = SdkDevice(bundle, directory)
        device.settle()
        device.launch("call", bundle.names[0].ident, [])
    symbols = device.bundle.programs[0].symbols
    types = {variable.name: variable.type for variable in made.programs[0].lowering.checked.variables}
    found: dict[str, Any] = {}
    for name, symbol in symbols.items():
        if name.startswith("code.") and name.count(".") == 1:
            kind = {"f32": "f4", "f16": "f2", "i16": "i2", "i32": "i4", "u32": "u4"}.get(symbol.dtype, "u2")
            words = np.ascontiguousarray(device.symbol(0, 0, name), "<u2")
            found[name[5:]] = words.view(_integers(types.get(name)) or kind)[: _count(types.get(name))]
    stamps = [device.symbol(0, 0, name) for name in ("begin", "end")]
    first, last = (int(s[0]) | int(s[1]) << 16 | int(s[2]) << 32 for s in stamps)
    return last - first, found


def _integers(kind: Any) -> str | None:
    """Return how numpy shows a type whose elements are no elements of the assembler: bytes, and 64 bits."""
    element = kind.element if isinstance(kind, ArrayType) else kind
    if not isinstance(element, IntType) or not (element.bits == 64 or leads_to_bytes(kind)):
        return None
    return f"{'i' if element.signed else 'u'}{element.bits // 8}"


def _count(kind: Any) -> int | None:
    return kind.count if isinstance(kind, ArrayType) and leads_to_bytes(kind) else None
