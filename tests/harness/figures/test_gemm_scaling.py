"""`wse figure gemm-scaling`, on meshes small enough for a test."""

from __future__ import annotations

import pytest

from harness import figures
from harness.figures import gemm_scaling, vendor_summa
from wse_core.params import machine


class Quiet:
    """Progress that nobody sees."""

    def phase(self, *words):
        """Ignore."""

    def update(self, *words, **facts):
        """Ignore."""


@pytest.fixture(scope="module")
def rows():
    """What is looked at by all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm_scaling, "PANELS", {16: (4, 8), 640: (4, 32)})
        patch.setattr(gemm_scaling, "CHECKED", 3)
        patch.setattr(vendor_summa, "TILES", (4, 8))
        result = figures.load("gemm-scaling").function(machine(), 4, Quiet())
    return result.rows, result


def test_points(rows):
    """Small meshes are simulated, large ones calculated, and what does not fit is said."""
    rows, result = rows
    assert all(list(row) == list(rows[0]) for row in rows)
    rows = [row for row in rows if row["multiply_adds"] is None]
    methods = {(row["size"], row["pes_per_side"], row["algorithm"]): row["method"] for row in rows}
    assert methods[16, 4, "meshgemm"] == "cycle-level"
    assert methods[16, 8, "meshgemm"] == "closed form"
    assert methods[640, 4, "allgather"] == "does not fit"
    for row in rows:
        if row["method"] == "does not fit":
            assert row["cycles"] is None
            continue
        assert row["cycles"] == row["compute_cycles"] + row["communication_cycles"]
        assert abs(row["error"]) < 0.1
        assert 0 < row["lower_bound"] < row["cycles"] <= row["lockstep_cycles"]
        assert row["align_cycles"] >= (1 if row["algorithm"] in ("cannon", "meshgemm") else 0)
        if row["method"] == "cycle-level":
            assert row["closed_form"] == pytest.approx(row["cycles"] + row["align_cycles"], rel=0.1)
    assert result.notes["largest error of a closed form"] < 0.1


def test_the_vendors_summa_beside_meshgemm(rows):
    """The published factors of 2 to 3; a step is the sum of its parts and of waiting for tiles."""
    rows, result = rows
    found = {(row["tile"], row["algorithm"]): row for row in rows if row["multiply_adds"] is not None}
    assert {name for _, name in found} == set(vendor_summa.NAMES)
    for t in (4, 8):
        vendors, mesh = (found[f"{t}x{t}x{t}", name] for name in (vendor_summa.VENDOR, "meshgemm"))
        assert vendors["multiply_adds"] == mesh["multiply_adds"] == t**3
        assert mesh["moves"] == pytest.approx(4 * t * t * 3 / 4)  # both tiles sent and received in 3 of 4 steps
        for row in (vendors, mesh):
            parts = sum(row[name] for name in vendor_summa.COLUMNS)
            assert 0.85 < parts * row["pes_per_side"] / row["cycles"] < 1.05
        assert vendors["bank_conflicts"] == t**3  # columns of A and of C in one bank, a cycle per multiply-add
        assert mesh["bank_conflicts"] == 0
        ratio = result.notes[f"tiles of {t}: {vendor_summa.VENDOR} / meshgemm"]
        assert ratio == vendors["cycles"] / mesh["cycles"]
        assert 2.5 < ratio < 4
        shares = [value for name, value in result.notes.items() if name.startswith(f"tiles of {t}: of the difference")]
        assert len(shares) == 4
        assert 0.85 < sum(shares) < 1.05
    assert vendor_summa.rows(machine(), 1) == []  # a collective needs two PEs


def test_picture(rows, tmp_path):
    """The picture can be painted; it shows every point that has a number."""
    from harness.kit.files import write_picture

    write_picture(tmp_path / "f.png", rows[1].draw)
    assert (tmp_path / "f.png").stat().st_size > 5000
