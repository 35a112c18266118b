"""WaferLLM's Decode and Prefill are compiled from a tree of their sources and started, for tools that look at them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from wse_core.errors import ConfigError

__all__ = ["running"]

STEPS_OF_A_PE = 100
"""Layouts place PE after PE, with so many steps of a compiler for each at most: at full size more than it takes for
meant unasked."""


@contextmanager
def running(
    tree: Path,
    phase: str,
    tiles: tuple[int, int, int],
    mesh: int,
    groups: int,
    given: Mapping[str, NDArray[np.float16]],
) -> Iterator[SdkRuntime]:
    """Yield the runtime of a program of the tree that has its numbers and has done its ``init_task``.

    Parameters
    ----------
    tree : pathlib.Path
        The root of the tree.
    phase : {"decode", "prefill"}
    tiles : tuple of int
        Features, tokens and features of the feed-forward of a PE.
    mesh, groups : int
        PEs of a side, and groups of the trees of Decode.
    given : mapping of str to array
        What each PE begins with, by symbol: shape (rows, columns, elements of a PE).

    Raises
    ------
    ConfigError
        The tree has no such program, or that lacks an array.
    """
    d, t, f = tiles
    size = mesh // groups
    params = {"P": mesh, "dim_p_pe": d, "head_dim_p_pe": d, "seq_len_p_pe": t, "ffn_dim_p_pe": f}
    params |= {"pes_p_head": mesh, "pes_p_kv_head": mesh}
    if phase == "decode":
        params |= {"bsz": 1, "pe_num_p_group": size, "root_1st_phase": size // 2}
        params["root_2nd_phase"] = groups // 2 * size + size // 2
    source = tree / phase.capitalize() / "WSE-2" / "src" / "layout.csl"
    if not source.is_file():
        raise ConfigError("there is no such file", where=str(source), hint="the root of the tree of WaferLLM")
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        options = Options(params=params, max_comptime_steps=STEPS_OF_A_PE * max(mesh, 100) ** 2)
        write_bundle(bundle_of(compile_file(source, options)), out)
        runner = SdkRuntime(out)
        runner.load()
        runner.run()
        for name, values in given.items():
            runner.memcpy_h2d(
                runner.get_id(name), values, 0, 0, mesh, mesh, values.shape[2], streaming=False,
                data_type=MemcpyDataType.MEMCPY_16BIT, order=MemcpyOrder.ROW_MAJOR, nonblock=False,
            )  # fmt: skip
        runner.launch("init_task")
        yield runner
