"""`wse figure gemm-scaling`, on meshes small enough for a test."""

from __future__ import annotations

import pytest

from harness import figures
from harness.figures import gemm_scaling
from wse_core.params import machine


class Quiet:
    """Progress that nobody sees."""

    def phase(self, *words):
        """Ignore."""

    def update(self, *words, **facts):
        """Ignore."""


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.setattr(gemm_scaling, "PANELS", {16: (4, 8), 640: (4, 32)})
    monkeypatch.setattr(gemm_scaling, "CHECKED", 3)
    result = figures.load("gemm-scaling").function(machine(), 4, Quiet())
    return result.rows, result


def test_points(rows):
    """Small meshes are simulated, large ones calculated, and what does not fit is said."""
    rows, result = rows
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


def test_picture(rows, tmp_path):
    """The picture can be painted; it shows every point that has a number."""
    from harness.kit.files import write_picture

    write_picture(tmp_path / "f.png", rows[1].draw)
    assert (tmp_path / "f.png").stat().st_size > 5000
