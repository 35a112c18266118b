"""The table of WaferLLM's products: a tree that the reader brings, rows that stay."""

from __future__ import annotations

import pytest

from harness.docs import waferllm

SCRIPT = 'test -x "$(command -v cslc)" && test -x "$(command -v cs_python)" && echo "Mean cycle count: 1$1$2.4"\n'


@pytest.fixture
def tree(tmp_path):
    """Return a tree whose scripts print what they were given."""
    for name in ("MeshGEMM", "MeshGEMV"):
        directory = tmp_path / "tree" / name / "WSE-2"
        directory.mkdir(parents=True)
        (directory / "run_sim.sh").write_text(SCRIPT)
    return tmp_path / "tree"


def test_rows_are_measured_and_others_stay(tree, tmp_path, capsys):
    page = tmp_path / "page.md"
    old = "| 8 | 5 | 5 | 5 (2) | 5 |"
    page.write_text(f"before\n{waferllm.BEGIN}{waferllm.table({4: '| 4 | old |', 8: old})}{waferllm.END}\nafter\n")
    assert waferllm.main([str(tree), "--sizes", "4", "--write", str(page)]) == 0
    assert page.read_text() == (
        f"before\n{waferllm.BEGIN}| P | MeshGEMM | own | MeshGEMV (groups) | own |\n|---|---|---|---|---|\n"
        f"| 4 | 1,416 | 838 | 1,416 (2) | 93 |\n{old}\n{waferllm.END}\nafter\n"
    )
    assert capsys.readouterr().err == ""


def test_mistakes_are_told(tree, tmp_path, capsys):
    assert waferllm.main([str(tmp_path)]) == 1
    assert "run_sim.sh" in capsys.readouterr().err
    (tree / "MeshGEMM" / "WSE-2" / "run_sim.sh").write_text("echo broken >&2; exit 3\n")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    assert "broken" in capsys.readouterr().err
    (tree / "MeshGEMM" / "WSE-2" / "run_sim.sh").write_text("echo Mean cycle count: -31.5e-1\n")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    assert "counts -31.5e-1 cycles" in capsys.readouterr().err
    assert waferllm.main([str(tree), "--sizes", "many"]) == 1
    assert "names no size" in capsys.readouterr().err
