"""Programs of points in CSL: compiled for the machine, with the params of the point."""

from __future__ import annotations

import sys
from importlib import resources

import pytest

from harness.cli import main as cli
from harness.validation import sources
from harness.validation.programs import local_products
from harness.validation.recipe import CannotRun
from wse_core.params import machine

M = machine()


def test_every_source_is_a_program_of_a_point():
    """And each is compiled by a test of its recipe."""
    names = sorted(entry.name for entry in (resources.files("harness.validation") / "csl").iterdir())
    products = ["compressed.csl", "coo.csl", "dense.csl", "ellpack.csl", "matvec.csl", "multiply_adds.csl"]
    products += ["products.csl", "send.csl", "send_pe.csl", "summa.csl", "summa_pe.csl"]
    products += ["tile_product.csl"]
    planes = ["idle.csl", "stencil_cell.csl", "stencil_cell_pe.csl", "stencil_ring.csl"]
    planes += ["stencil_columns.csl", "stencil_columns_pe.csl", "stencil_columns_way.csl"]
    planes += ["stencil_tiled.csl", "stencil_tiled_pe.csl"]
    assert names == sorted([*products, *planes, "reduce.csl", "reduce_pe.csl", "vector.csl"])


def test_a_program_is_compiled_once_per_machine_and_params():
    params = {"rows": 4, "cols": 3, "length": 8, "stored": 6}
    assert sources.compiled(M, "coo", **params) is sources.compiled(M, "coo", **params)
    assert sources.compiled(M, "coo", **params) is not sources.compiled(M, "coo", **(params | {"stored": 7}))


def test_what_does_not_fit_is_a_point_that_cannot_run():
    a, b = (local_products.np.ones((130, 130), "f4") for _ in range(2))
    with pytest.raises(CannotRun, match="do not fit into a PE"):
        local_products.dense(M, a, b)


def test_without_the_parser_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lark", None)
    sources._specification.cache_clear()
    assert cli.main(["validate", "--kind", "gemm-local"]) == 1
    assert "pip install 'wse-sim[csl]'" in capsys.readouterr().out
