"""Loops of sparse products without their multiply-adds against what the vendor's simulator took for them."""

from __future__ import annotations

import re
from importlib import resources

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from fabric.kernels.kit.session import Session
from harness.validation.programs import local_products
from wse_core.params import machine

LENGTH = 36  # of a row of B and C; the loops do not depend on it beyond the shifts that it takes

PUBLISHED = [
    ("COO", 8, 2237, 0.03),
    ("COO", 32, 34877, 0.01),
    ("CSC", 8, 2513, 0.02),
    ("CSC", 32, 34553, 0.01),
    ("CSR", 8, 2513, 0.02),
    ("CSR", 32, 34553, 0.03),
    ("ELLPACK", 32, 34719, 0.02),
    # Eight elements in a row are unrolled there as here, and take 17 cycles each there: not understood (accuracy.md).
    ("ELLPACK", 8, 1093, 0.35),
]
"""Format, rows and columns of a full tile, cycles, largest error.

Source: pr0f3ss/SpMM_Cerebras (benchmarks, memory access latency).
"""


@pytest.mark.parametrize(("fmt", "size", "published", "within"), PUBLISHED)
def test_loops_without_their_multiply_adds(tmp_path, fmt, size, published, within):
    padded = size if fmt == "ELLPACK" else size**2
    arrays, name, params = local_products.stored(fmt, np.ones((size, size), np.float32), padded)
    text = (resources.files("harness.validation") / "csl" / f"{name}.csl").read_text("utf-8")
    bare, count = re.subn(r"\n *@fmacs\([^\n]*;", "", text)
    assert count == 1
    (tmp_path / "bare.csl").write_text(bare)
    options = Options(params={"rows": size, "cols": size, "length": LENGTH, **params})
    made = compile_file(tmp_path / "bare.csl", options, machine())
    # The values are not loaded any more.
    inputs = [(k, v.astype(np.int32).reshape(1, 1, -1), 0, 0) for k, v in arrays.items() if k != "values"]
    session = Session(bundle_of(made).spec(machine()), inputs, task=None)
    first, last = session.stamps()
    assert int(last[0, 0] - first[0, 0]) == pytest.approx(published, rel=within)
