"""The dense store in files: bitwise as in memory, and larger than memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx import store as stores
from memx.optimizer import SGD, Adam, make_optimizer
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.store import FileStore, row_blocks
from tests.conftest import ROOT
from tests.examples import examples
from wse_core import _build_info
from wse_core.errors import ConfigError


@examples(15)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    density=st.floats(0, 1),
    other=st.booleans(),
    name=st.sampled_from(["sgd", "adam", "adamw"]),
    block=st.integers(1, 200),
    seed=st.integers(0, 99),
)
def test_files_train_bitwise_like_memory(tmp_path_factory, rows, columns, density, other, name, block, seed):
    """Weights, state and stream, for any block size, other masks for gradients, and regrowth."""
    rng = np.random.default_rng(seed)
    optimizer = make_optimizer(name, lr=0.1)
    shape, weights = (rows, columns), rng.standard_normal((rows, columns)).astype(np.float32)
    pattern, asked = Pattern.random(shape, density, rng), Pattern.random(shape, 0.7, rng)
    files = FileStore(tmp_path_factory.mktemp("store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "BLOCK", block)
        mapped = Parameter(
            "w",
            files.fill("w", shape, lambda first, end: weights[first:end]),
            pattern=pattern,
            slots=optimizer.slots,
            store=files,
        )
        patch.setattr(stores, "BLOCK", 1 << 20)
        plain = Parameter("w", weights.copy(), pattern=pattern, slots=optimizer.slots)
        for step in range(1, 5):
            for p, size in ((mapped, block), (plain, 1 << 20)):
                patch.setattr(stores, "BLOCK", size)
                p.gradient_pattern = asked if other else None
                g = np.random.default_rng(step).standard_normal(p.gradient_pattern.count).astype(np.float32)
                p.update(optimizer, step, g)
                if other and step == 2:
                    large = np.zeros(p.dense.size, bool)
                    large[p.gradient_pattern.flat] = np.abs(g) >= 1
                    p.become(Pattern.of_mask(p.pattern.mask() | large.reshape(p.dense.shape)))
    assert np.array_equal(mapped.dense, plain.dense)
    assert np.array_equal(mapped.values, plain.values)
    assert np.array_equal(mapped.forward()[1], plain.forward()[1])
    for slot in optimizer.slots:
        assert np.array_equal(mapped.state[slot], plain.state[slot])
    files.flush()
    again = FileStore(files.directory).open("w", shape)
    assert np.array_equal(again, plain.dense)


SCRIPT = """
import resource, sys
import numpy as np
from memx.optimizer import Adam
from memx.parameter import Parameter
from memx.pattern import Pattern
from memx.store import FileStore, MemoryStore
budget, where, shape = {budget}, {where!r}, ({rows}, {columns})
step = np.arange(0, shape[1], 64)
pattern = Pattern(shape, np.arange(shape[0] + 1) * len(step), np.tile(step, shape[0]))
optimizer = Adam(lr=0.1)
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + budget, used + budget))
store = FileStore(where) if where else MemoryStore()
try:
    weights = store.zeros("w", shape)
    p = Parameter("w", weights, pattern=pattern, slots=optimizer.slots, store=store)
    for t in (1, 2):
        p.update(optimizer, t, np.full(pattern.count, -1.0, np.float32))
    assert (p.dense[:, step] > 0.19).all() and not p.dense[:, 1].any()
    print("trained", sum(a.nbytes for a in (p.dense, *p.state.values())))
except MemoryError:
    print("no memory")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits on memory work otherwise elsewhere")
@pytest.mark.skipif(_build_info.MODE == "sanitize", reason="the sanitizer's own memory falls under the limit")
def test_a_model_larger_than_memory_trains_from_files(tmp_path):
    """42 MB for all that is not mapped, 201 MB of weights and state; in memory the same run does not start."""
    sizes = {"budget": 40 << 20, "rows": 4096, "columns": 4096}
    said = []
    for where in (str(tmp_path), ""):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(where=where, **sizes)],
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == [f"trained {3 * 4 * 4096 * 4096}", "no memory"]
    assert 4 * sizes["budget"] < 3 * 4 * sizes["rows"] * sizes["columns"]


def test_blocks_cover_all_rows_once():
    for shape, block in (((7, 3), 6), ((5, 100), 1), ((4, 0), 8), ((0, 4), 8), ((1, 1), 1)):
        blocks = list(row_blocks(shape, block))
        assert all(first < end for first, end in blocks)
        assert all((end - first) * shape[1] <= max(block, shape[1]) for first, end in blocks)
        rows = [row for first, end in blocks for row in range(first, end)]
        assert rows == list(range(shape[0]))


def test_rows_of_a_matrix_in_another_order_are_copied_not_lost():
    weights = np.asfortranarray(np.ones((3, 4), np.float32))
    p = Parameter("w", weights)
    p.update(SGD(lr=1.0), 1, np.ones(12, np.float32))
    assert not p.dense.any()
    frozen = np.ones((2, 2), np.float32)
    frozen.flags.writeable = False
    p = Parameter("w", frozen)
    p.update(SGD(lr=1.0), 1, np.ones(4, np.float32))
    assert not p.dense.any()
    assert frozen.all()


def test_files_that_do_not_fit_are_refused(tmp_path):
    files = FileStore(tmp_path)
    files.zeros("w", (2, 3))
    with pytest.raises(ConfigError, match="there already"):
        FileStore(tmp_path).zeros("w", (2, 3))
    with pytest.raises(ConfigError, match=r"has 24 bytes, \(2, 4\) in float32 takes 32"):
        FileStore(tmp_path).open("w", (2, 4))
    with pytest.raises(ConfigError, match="is not there"):
        files.open("v", (2, 4))
    with pytest.raises(ConfigError, match="no name of a file"):
        files.zeros("../w", (2, 3))
    assert Parameter("u", files.zeros("u", (0, 3)), slots=Adam.slots, store=files).values.size == 0
