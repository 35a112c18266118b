"""The table of WaferLLM's products: a tree that the reader brings, sums in the order of its PEs, rows that stay."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.docs import waferllm, waferllm_decode, waferllm_order

SCRIPT = 'test -x "$(command -v cslc)" && cs_python host.py "$@" && echo "Mean cycle count: 1$1$2.4"\n'
HOST = """import sys
import numpy as np
p, side = int(sys.argv[1]), int(sys.argv[2])
x = np.arange(ROWS * side).reshape(ROWS, side).astype(np.float16) % 5
w = np.arange(side * side).reshape(side, side).astype(np.float16) % 7 + 1
product = np.matmul(x, w)  # whole numbers: every order of additions gives the same
print("Expected result:")
print(product)
product = np.tile(product, (COPIES, 1))
product[-1, 3] += WRONG
print(product)
"""
HOSTS = {
    "MeshGEMM": {"ROWS": "side", "COPIES": "1", "WRONG": "0"},
    "MeshGEMV": {"ROWS": "1", "COPIES": "p", "WRONG": "0"},
}

BEGIN = waferllm.BEGIN.format("")


def write_host(directory, name, **changes):
    """Write a host script that multiplies by itself."""
    text = HOST
    for word, value in {**HOSTS[name], **changes}.items():
        text = text.replace(word, value)
    (directory / name / "WSE-2" / "host.py").write_text(text)


@pytest.fixture
def tree(tmp_path):
    """Return a tree whose scripts print what they were given."""
    for name in ("MeshGEMM", "MeshGEMV"):
        directory = tmp_path / "tree" / name / "WSE-2"
        directory.mkdir(parents=True)
        (directory / "run_sim.sh").write_text(SCRIPT)
        write_host(tmp_path / "tree", name)
        shutil.copytree(directory, directory.with_name("WSE-3"))
    return tmp_path / "tree"


def test_rows_are_measured_and_others_stay(tree, tmp_path, capsys):
    page = tmp_path / "page.md"
    old = "| 8 | 5 | 5 | 5 (2) | 5 |"
    page.write_text(f"before\n{BEGIN}{waferllm.table({4: '| 4 | old |', 8: old})}{waferllm.END}\nafter\n")
    assert waferllm.main([str(tree), "--sizes", "4", "--write", str(page)]) == 0
    assert page.read_text() == (
        f"before\n{BEGIN}| P | MeshGEMM | off | own | MeshGEMV (groups) | off | own |\n|{'---|' * 7}\n"
        f"| 4 | 1,416 | 0.00 % | 838 | 1,416 (2) | 0.00 % | 98 |\n{old}\n{waferllm.END}\nafter\n"
    )
    assert capsys.readouterr().err == ""
    assert waferllm.main([str(tree), "--sizes", "4", "--write", str(page), "--arch", "wse3"]) == 1
    assert "has no line <!-- rows of python -m tools.docs.waferllm --arch wse3 -->" in capsys.readouterr().err


@pytest.mark.parametrize("name", HOSTS)
def test_one_wrong_number_is_seen(tree, capsys, name):
    write_host(tree, name, WRONG="1")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    said = capsys.readouterr().err
    assert "1 of " in said
    assert f"{name}" in said


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 4, 5, 8]), st.integers(1, 3))
def test_orders_of_additions(seed, p, tile):
    """Against sums written out PE by PE, with the ring walked by the rule of its neighbours."""
    rng = np.random.default_rng(seed)
    side = p * tile
    x, w = (rng.random((side, side)).astype(np.float16) for _ in range(2))

    def before(place):  # from where a place of the ring receives
        odd_end = p - 1 if p % 2 == 0 else p - 2
        if place == 0:
            return 1 if p > 1 else 0
        if place % 2 == 0:
            return place - 2
        return place + 2 if place != odd_end else (p - 2 if p % 2 == 0 else p - 1)

    steps_of = {0: 0}
    place = 0
    for turn in range(1, p):
        place = next(k for k in range(p) if before(k) == place)
        steps_of[place] = turn
    wanted = np.zeros((side, side), np.float16)
    for i, j in np.ndindex(p, p):
        rows, columns = slice(i * tile, (i + 1) * tile), slice(j * tile, (j + 1) * tile)
        tile_of_k = next(k for k in range(p) if steps_of[k] == (steps_of[i] + steps_of[j]) % p)
        for _ in range(p):
            for k in range(tile_of_k * tile, (tile_of_k + 1) * tile):
                sums = wanted[rows, columns].astype(np.float64)
                wanted[rows, columns] = sums + np.outer(x[rows, k].astype(np.float64), w[k, columns])
            tile_of_k = before(tile_of_k)
    assert np.array_equal(waferllm_order.gemm(x, w, p), wanted)


def test_a_vectors_parts_meet_at_the_roots():
    small = 2.0**-11  # half of what 1 can tell
    one = np.ones((1, 4), np.float16)
    for parts, wanted in (([1, small, small, 0], 1), ([1, 0, small, small], 1 + 2 * small)):
        column = np.array(parts, np.float16)[:, np.newaxis]
        assert waferllm_order.gemv(one, column, 4, 2)[0] == np.float16(wanted)
    column = np.array([1, small, 0, small], np.float16)[:, np.newaxis]
    assert waferllm_order.gemv(one, column, 4, 1)[0] == 1


def test_mistakes_are_told(tree, tmp_path, capsys):
    assert waferllm.main([str(tmp_path)]) == 1
    assert "run_sim.sh" in capsys.readouterr().err
    (tree / "MeshGEMM" / "WSE-2" / "run_sim.sh").write_text("echo broken >&2; exit 3\n")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    assert "broken" in capsys.readouterr().err
    (tree / "MeshGEMM" / "WSE-2" / "run_sim.sh").write_text("echo Mean cycle count: -31.5e-1\n")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    assert "counts -31.5e-1 cycles" in capsys.readouterr().err
    (tree / "MeshGEMM" / "WSE-2" / "run_sim.sh").write_text("echo Mean cycle count: 31\n")
    assert waferllm.main([str(tree), "--sizes", "4"]) == 1
    assert "runs no host script" in capsys.readouterr().err
    assert waferllm.main([str(tree), "--sizes", "many"]) == 1
    assert "names no size" in capsys.readouterr().err


def exact(given):
    """Return the result of Decode in float64, whole vectors and tiles by row and column of PEs."""
    x, w, sin, cos = (given[name][:, 0].astype(float) for name in ("X", "W", "freqs_sin", "freqs_cos"))
    tiles = {
        name: given[name].astype(float).reshape(*given[name].shape[:2], x.shape[1], -1)
        for name in waferllm_decode.WEIGHTS
    }

    def norm(v):
        return v * v * w / np.sqrt((v * v).mean() + 1e-6)

    def power(v):
        return (1 + v / 256) ** 4

    query = np.einsum("yk,yxkn->xn", norm(x), tiles["Q_weight"])
    query = np.broadcast_to(query, (len(x), *query.shape)).copy()
    query[..., ::2] *= (cos + sin)[:, np.newaxis]
    score = np.einsum("yxk,yxkn->yn", query, tiles["XKCache"]) / np.sqrt(x.size)
    score = power(score - max(score.max(), 0))
    out = np.einsum("yk,yxkn->xn", score / score.sum(), tiles["XVCache"])
    first = x + np.einsum("xk,yxkn->yn", out, tiles["O_weight"])
    up, gate = (np.einsum("yk,yxkn->xn", norm(first), tiles[name]) for name in ("UP_weight", "GATE_weight"))
    return first + np.einsum("xk,yxkn->yn", up / (1 + power(-up)) * gate, tiles["DOWN_weight"])


@pytest.mark.parametrize(("mesh", "tile", "groups"), [(4, 6, 2), (8, 4, 2), (8, 4, 4)])
def test_decode_in_the_order_of_the_pes_is_near_the_exact_one(mesh, tile, groups):
    given = waferllm_decode.numbers(mesh, tile, 1)
    found, wanted = waferllm_decode.decode(given, groups), exact(given)
    assert found.dtype == np.float16
    assert (found == found[:, :1]).all()  # alike in a row
    assert np.abs(found[:, 0] - wanted).max() < 0.01 * np.abs(wanted).max()


def test_decode_says_what_a_tree_lacks(tmp_path, capsys):
    assert waferllm_decode.main([str(tmp_path)]) == 1
    assert "the root of the tree of WaferLLM" in capsys.readouterr().err
