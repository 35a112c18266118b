"""Families of kernels: pages that name every module, and imports in one direction."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.test_imports import imports_of

KERNELS = ROOT / "fabric" / "kernels"
FAMILIES = ("kit", "basic", "collectives", "matmul", "matvec", "sparse", "stencil", "streamed")
"""In the order of the page of the package: a family may import from those before it."""
PAGES = sorted(path for path in KERNELS.rglob("__init__.py") if path.parent != KERNELS)


def rows_of(page):
    """Return the first words of the rows of a page's table."""
    table = page.read_text(encoding="utf-8").split("\n====")[1]
    return [match[1] for line in table.splitlines()[1:] if (match := re.match(r"`?(\w+)`?  ", line))]


def test_the_page_of_the_package_names_all_families():
    found = {path.name for path in KERNELS.iterdir() if (path / "__init__.py").exists()}
    assert rows_of(KERNELS / "__init__.py") == list(FAMILIES)
    assert found == set(FAMILIES)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.parent.relative_to(KERNELS)))
def test_a_page_names_all_modules(page):
    modules = {path.stem for path in page.parent.glob("*.py") if path.name != "__init__.py"}
    others = {"costs"} if page.parent.name == "collectives" else set()  # a tool, named below the table of kernels
    assert set(rows_of(page)) | others == modules


@pytest.mark.parametrize("family", FAMILIES)
def test_families_import_in_one_direction(family):
    allowed = FAMILIES[: FAMILIES.index(family) + 1]
    for path in (KERNELS / family).rglob("*.py"):
        for name, _ in imports_of(path):
            if name.startswith("fabric.kernels."):
                other = name.split(".")[2]
                assert other in allowed, f"{path.relative_to(ROOT)} imports {name}"
                if family not in ("collectives", "kit") and other == "collectives":
                    assert ".pieces" in name, f"{path.relative_to(ROOT)} imports the kernel {name}"
