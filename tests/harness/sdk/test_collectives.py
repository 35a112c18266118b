"""<collectives_2d>: any list of operations, any roots, PEs late by any time, both axes at once."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fabric.csl.artefact import bundle_of, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.examples import examples
from tests.fabric.csl.test_programs import PROGRAMS

CALLS, MOST = 4, 3
BROADCAST, SCATTER, GATHER, REDUCE = range(4)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a function that gives the output directory for a size of the rectangle."""
    made = {}

    def get(width, height):
        if (width, height) not in made:
            directory = made[width, height] = tmp_path_factory.mktemp("collectives") / "out"
            params = {"W": width, "H": height, "CALLS": CALLS, "BLOCK": MOST * max(width, height)}
            options = Options(params=params, fabric=(width + 7, height + 2))
            write_bundle(bundle_of(compile_file(PROGRAMS / "collectives/layout.csl", options)), directory)
        return made[width, height]

    return get


def expected(kind, root, count, sent, got):
    """Return what an operation leaves on a line of PEs; `sent` and `got` have a row per PE."""
    found = got.copy()
    length = len(sent)
    if kind == BROADCAST:
        found[:, :count] = got[root, :count]
    elif kind == SCATTER:
        found[:, :count] = sent[root, : length * count].reshape(length, count)
    elif kind == GATHER:
        found[root, : length * count] = sent[:, :count].ravel()
    else:
        found[root, :count] = sent[:, :count].view(np.float32).sum(axis=0).view(np.uint32)
    return found


def copied(runner, name, array):
    """Copy an array (y, x, element) to the PEs."""
    height, width, count = array.shape
    runner.memcpy_h2d(
        runner.get_id(name), array.astype(np.uint32).ravel(), 0, 0, width, height, count, streaming=False,
        data_type=MemcpyDataType.MEMCPY_16BIT if array.dtype == np.uint16 else MemcpyDataType.MEMCPY_32BIT,
        order=MemcpyOrder.ROW_MAJOR, nonblock=False,
    )  # fmt: skip


@given(st.data())
@examples(40)
def test_any_list_of_operations(compiled, data):
    width, height = data.draw(st.sampled_from([(1, 4), (5, 1), (4, 3), (2, 2)]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    block = MOST * max(width, height)
    calls = np.zeros((height, width, 2, CALLS, 4), np.uint16)
    for axis, length in enumerate((width, height)):
        for number in range(CALLS):
            calls[:, :, axis, number, 0] = data.draw(st.sampled_from([BROADCAST, SCATTER, GATHER, REDUCE]))
            calls[:, :, axis, number, 1] = data.draw(st.integers(0, length - 1))
            calls[:, :, axis, number, 2] = data.draw(st.integers(1, MOST))
    calls[..., 3] = random.integers(0, 200, calls.shape[:-1]) * (random.random(calls.shape[:-1]) < 0.4)
    # Small integers: their sums do not depend on the order.
    sent, got = random.integers(-9, 10, (2, height, width, 2, CALLS, block)).astype(np.float32).view(np.uint32)
    runner = SdkRuntime(compiled(width, height))
    runner.load()
    runner.run()
    for name, array in (("calls", calls), ("given", sent), ("got", got)):
        copied(runner, name, array.reshape(height, width, -1))
    runner.launch("run", nonblock=False)
    found = np.zeros(got.size, np.uint32)
    runner.memcpy_d2h(
        found, runner.get_id("got"), 0, 0, width, height, got.size // (width * height), streaming=False,
        data_type=MemcpyDataType.MEMCPY_32BIT, order=MemcpyOrder.ROW_MAJOR, nonblock=False,
    )  # fmt: skip
    runner.stop()
    found = found.reshape(got.shape)
    for number in range(CALLS):
        for y in range(height):
            kind, root, count, _ = map(int, calls[y, 0, 0, number])
            wanted = expected(kind, root, count, sent[y, :, 0, number], got[y, :, 0, number])
            assert (found[y, :, 0, number] == wanted).all(), (kind, root, count)
        for x in range(width):
            kind, root, count, _ = map(int, calls[0, x, 1, number])
            wanted = expected(kind, root, count, sent[:, x, 1, number], got[:, x, 1, number])
            assert (found[:, x, 1, number] == wanted).all(), (kind, root, count)
