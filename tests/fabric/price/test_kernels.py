"""The tasks of all kernels, priced before anything runs."""

from __future__ import annotations

import pytest

from fabric.kernels.registry import KERNELS
from fabric.layout.layout import Layout
from fabric.price.layout import price_layout
from tests.fabric.kernels.test_registry import SMALL
from wse_core.params import machine

KINDS = [
    *((name, {}) for name in SMALL),
    *(("gemm", {"algorithm": one}) for one in ("summa-relay", "allgather", "cannon", "meshgemm")),
    *(("gemv", {"algorithm": one}) for one in ("ring", "folded_ring", "ktree")),
    *(("allreduce", {"algorithm": one}) for one in ("ring", "folded_ring", "tree")),
    *(("reduce", {"algorithm": a, "form": f}) for a, f in (("star", "row"), ("tree", "xy"), ("two_phase", "snake"))),
]
"""Kernels, and algorithms whose programs differ."""


@pytest.fixture(scope="module")
def layouts():
    """Every layout that a kernel builds with small parameters, by kernel."""
    found, build = {}, Layout.build

    def noted(layout):
        if layout not in found.setdefault(name, []):
            found[name].append(layout)
        return build(layout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Layout, "build", noted)
        for kernel, changes in KINDS:
            name = " ".join([kernel, *changes.values()])
            KERNELS[kernel].run(machine(), **SMALL[kernel] | changes)
    return found


def tasks(layouts, odds=None):
    """Return the tasks of all kernels with their prices, as (kernel, task, price)."""
    return [
        (name, f"{placed.price.name}: {task}", price)
        for name, built in layouts.items()
        for layout in built
        for placed in price_layout(layout, odds=odds)
        for task, price in placed.price.tasks.items()
    ]


def test_tasks_of_all_kernels_are_priced(layouts):
    """Those that lengths and parameters decide to the cycle; of the others the price says what decides, and bounds."""
    found = tasks(layouts)
    known = [price for *_, price in found if not price.unknown]
    bounded = [price for *_, price in found if price.unknown and price.most < float("inf")]
    rest = {name for name, *_, price in found if price.most == float("inf")}
    assert len(found) > 240
    assert len(known) > 0.7 * len(found)
    assert rest == {"spmv"}  # its loops are as long as the rows of the matrix
    assert len(known) + len(bounded) >= len(found) - 6
    assert len(known) >= 187
    for price in known:
        assert price.least == price.most == price.alone > 0
        assert sum(price.lines.values()) == pytest.approx(price.alone)
    for price in bounded:
        assert price.least < price.most
        assert all("unknown data" in str(one) and "." in one.where for one in price.unknown)


def test_with_odds_all_of_them_are(layouts):
    for (*name, before), (*same, price) in zip(tasks(layouts), tasks(layouts, odds=0.5), strict=True):
        assert name == same
        assert not price.unknown, name
        assert before.least - 1e-9 <= price.alone <= before.most + 1e-9, name
