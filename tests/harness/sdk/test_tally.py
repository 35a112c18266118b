"""<kernels/tally>: a count over all PEs of any rectangle, with and without a sum to wait for."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.csl.artefact import bundle_of, read_bundle, write_bundle
from fabric.csl.compile import compile_file
from fabric.csl.comptime.session import Options
from harness.sdk.runtime import MemcpyDataType, MemcpyOrder, SdkRuntime
from tests.fabric.csl.test_programs import PROGRAMS

AMOUNTS = 5
AS_THEY_ARE = {"streaming": False, "order": MemcpyOrder.ROW_MAJOR, "nonblock": False}


def counted(directory, amounts, goal, late, layout=PROGRAMS / "tally/layout.csl"):
    """Count arrays (y, x, amount); return per PE how often its callback ran and the sum that it saw."""
    height, width, _ = amounts.shape
    params = {"W": width, "H": height, "GOAL": goal, "AMOUNTS": AMOUNTS}
    options = Options(params=params, fabric=(width + 7, height + 2))
    write_bundle(bundle_of(compile_file(layout, options)), directory)
    runner = SdkRuntime(directory)
    runner.load()
    runner.run()
    half = {"data_type": MemcpyDataType.MEMCPY_16BIT, **AS_THEY_ARE}
    runner.memcpy_h2d(runner.get_id("amounts"), amounts.ravel(), 0, 0, width, height, AMOUNTS, **half)
    runner.launch("count", np.int16(late), nonblock=False)
    found = np.zeros(height * width * 2, np.uint32)
    runner.memcpy_d2h(found, runner.get_id("found"), 0, 0, width, height, 2, **AS_THEY_ARE)
    runner.stop()
    return found.reshape(height, width, 2)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (4, 1), (1, 3), (3, 4)])
def test_the_last_pe_of_the_first_row_learns_the_sum(tmp_path, width, height, late):
    amounts = np.random.default_rng(width * height).integers(0, 900, (height, width, AMOUNTS)).astype(np.uint16)
    amounts[amounts < 300] = 0
    total = int(amounts.sum())
    found = counted(tmp_path / "out", amounts, total, late)
    assert found[0, -1].tolist() == [1, total]
    found[0, -1] = 0
    assert not found[..., 0].any()


def test_a_sum_that_is_not_reached_ends_nothing(tmp_path):
    amounts = np.full((2, 2, AMOUNTS), 7, np.uint16)
    found = counted(tmp_path / "out", amounts, int(amounts.sum()) + 1, 0)
    assert not found[..., 0].any()
    assert found[0, -1, 1] == 0  # noted by the callback only


def test_without_a_second_phase_all_must_complete(tmp_path):
    amounts = np.ones((2, 3, AMOUNTS), np.uint16)
    assert counted(tmp_path / "out", amounts, 0, 0)[0, -1, 0] == 1


def test_queues_that_nobody_names_are_those_that_the_program_leaves_free(tmp_path):
    """As before SDK 1.0, where the stencils have input queues of the numbers that they give the tally for output."""
    for name in ("layout.csl", "pe.csl"):
        text = (PROGRAMS / "tally" / name).read_text()
        (tmp_path / name).write_text(text.replace(" .input_queues = [2]u16{ 4, 5 },", ""))
    with (tmp_path / "pe.csl").open("a") as file:
        file.write("const mine = @get_dsd(fabin_dsd, .{ .extent = 1, .fabric_color = @get_color(9),\n")
        file.write("  .input_queue = @get_input_queue(2) });\nvar got: u32 = 0;\n")
        file.write("task never() void { @mov32(&got, mine); }\n")
        file.write("comptime { @bind_local_task(never, @get_local_task_id(11)); }\n")
    amounts = np.ones((2, 3, AMOUNTS), np.uint16)
    directory = tmp_path / "out"
    assert counted(directory, amounts, 6 * AMOUNTS, 0, tmp_path / "layout.csl")[0, -1].tolist() == [1, 6 * AMOUNTS]
    assert all(image.inq_color[2] == 9 for image in read_bundle(directory).programs)
