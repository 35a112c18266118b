"""Every benchmark workload once, small: right results, exact cycles, and the measuring code runs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from harness.train.config import load_train
from tests.bench import against, instructions, measure, smallest, table, wafer, workloads
from tests.bench.products import cost_of_product
from tests.bench.weights import gradients, weights

SMALL = {
    "broadcast": lambda: workloads.broadcast(7, 3, 20),
    "broadcast, one row": lambda: workloads.broadcast(6, 5, 20, rows=1),
    "chain_reduce 2": lambda: workloads.chain_reduce(2, 2, 9),
    "chain_reduce 3": lambda: workloads.chain_reduce(3, 1, 9),
    "chain_reduce": lambda: workloads.chain_reduce(8, 3, 30),
    "exchange": lambda: workloads.exchange(5, 4, 12),
    "multicast": lambda: workloads.multicast(6, 5, 12),
    "fmach": lambda: workloads.vector_tiles(2, 2, 30, 5),
    "fmachs": lambda: workloads.vector_tiles(2, 2, 30, 5, "fmachs"),
    "fmacs": lambda: workloads.vector_tiles(2, 2, 30, 5, "fmacs", repeat=2),
    "events": lambda: workloads.events(3, 2, 40),
    "weights": lambda: weights(3, 2, 20),
    "gradients": lambda: gradients(3, 3, 20),
    "quiet": lambda: workloads.quiet(3, 3, 2),
    "quiet row": lambda: workloads.quiet(3, 3, 2, row=True),
}


@pytest.mark.parametrize("name", SMALL)
def test_workload(name):
    """Results, work and cycles are as they must be, and the same when the run is cut in two."""
    first, second = SMALL[name]().run(), SMALL[name]().run(warm=10)
    assert first.cycles == second.cycles + 10
    assert first.seconds > 0


def test_the_yardstick_agrees_with_a_chain_of_another_kind():
    """Neither is broken up, nor waits for memory: each takes two to four cycles of any host per element."""
    best = float("inf")
    for _ in range(40):
        begin = time.perf_counter()
        np.subtract.reduce(measure.FACTORS)
        best = min(best, time.perf_counter() - begin)
    assert 1 / 3 < 2 * measure.yardstick() / (best / len(measure.FACTORS) * 1e9) < 3


def test_wrong_results_are_noticed():
    """A workload whose cycles or results are off does not pass for a measurement."""
    workload = workloads.broadcast(4, 1, 8)
    workload.cycles += 1
    with pytest.raises(AssertionError, match="cycles"):
        workload.run()
    workload = workloads.broadcast(4, 1, 8)
    workload.work["hops"] -= 1
    with pytest.raises(AssertionError, match="hops"):
        workload.run()


def test_measuring(tmp_path):
    """Yardstick, rates, pairs, traces: plausible numbers from tiny runs."""
    rate = measure.rate(workloads.broadcast(4, 2, 16), rounds=2)
    assert rate.best("hops") >= rate.median("hops") > 0
    assert rate.ratio("hops") > 0
    ratio, windows, size = measure.traced(workloads.broadcast(4, 2, 100), tmp_path / "t.h5", 20, rounds=1)
    assert ratio > 0
    assert windows == 7
    assert size > 0
    cost, _ = measure.idle_cost(workloads.broadcast(4, 4, 16, rows=1), workloads.broadcast(4, 1, 16), 12, rounds=1)
    assert cost >= 0


def test_a_product_is_measured_against_another():
    """Both run, hops and bits are right."""
    ratio, cost = cost_of_product("meshgemm", "summa", 4, (2, 2, 2), rounds=1)
    assert ratio > 0
    assert cost > 0


@pytest.mark.parametrize("name", against.JOBS)
def test_an_older_tree_is_compared_by_what_every_tree_reads(name, tmp_path):
    """The configuration says the sizes of the job; what is no commit is refused in a line."""
    (tmp_path / "job.toml").write_text(against.configuration(name, 7))
    config = load_train(tmp_path / "job.toml")
    _, inputs, outputs, wafers, mesh, batch, _ = against.JOBS[name]
    found = [config.network.inputs, *(layer.outputs for layer in config.network.layers)]
    assert (found, config.wafers, config.data.batch) == ([inputs, *outputs], wafers, batch)
    assert (config.mesh.width, config.mesh.height, config.train.iterations) == (*mesh, 7)


def test_what_is_no_commit_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        against.main(["no-such-commit"])
    assert stopped.value.code == 1
    assert "no-such-commit" in capsys.readouterr().err


def test_memory():
    """A child process measures memory."""
    found = measure.resident("idle", 64, 64)
    assert set(found) == {"engine", "description", "sram"}


def test_table_is_complete():
    """Every row of the table names a metric, a unit and a target, and the text keeps its columns."""
    rows = [table.Row(goal, 1.0, "note") for goal in table.GOALS.values()]
    assert len({row.goal.metric for row in rows}) == len(rows)
    text = table.render(rows)
    assert len(text.splitlines()) == len(rows) + 2
    assert all(line.count("|") == 6 for line in text.splitlines())


def test_what_was_not_measured_is_told():
    goal = table.GOALS["allreduce1"]
    lines = table.render([table.Row(goal, 0.5, "so")], "wafer").splitlines()[2:]
    assert len(lines) == sum(goal.part == "wafer" for goal in table.GOALS.values())
    assert f"| {goal.metric} | s | <= 1 | 0.5 | so |" in lines
    assert sum(line.endswith("| - | not measured in this run |") for line in lines) == len(lines) - 1
    assert len(table.render([table.Row(goal, 0.5, "so")]).splitlines()) == 3


def test_tables_are_put_between_markers(tmp_path):
    """A block is replaced, the rest stays; a page without it is refused."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin instructions -->\nold\n<!-- end instructions -->\nb\n", encoding="utf-8")
    table.replace_block(
        page, "instructions", instructions.render({"broadcast": 1234.5, "fmach": 7}, {"broadcast": 11.25})
    )
    text = page.read_text(encoding="utf-8")
    assert "| broadcast | hop | 1,234 | 11.2 |\n| fmach | step | 7 | - |" in text
    assert text.startswith("a\n<!-- begin")
    assert text.endswith("-->\nb\n")
    with pytest.raises(ValueError, match="no block"):
        table.replace_block(page, "measured", "")


def test_instructions_reads_counts():
    """The number is read from what callgrind prints; anything else is an error."""
    assert instructions.total("==1== Events    : Ir\n==1== Collected : 42188624\n") == 42188624
    with pytest.raises(RuntimeError, match="did not say"):
        instructions.total("==1== Bad permissions")


def test_misses_are_read():
    said = "==1== D1  misses:        43,210  (    40,000 rd   +     3,210 wr)\n==1== LLd misses:  7\n"
    assert instructions.misses(said) == 43210
    with pytest.raises(RuntimeError, match="did not say"):
        instructions.misses("==1== Collected : 5")


@pytest.mark.parametrize("name", instructions.CASES)
def test_instructions_cases(name):
    """Each case runs in its shorter length and does work in the unit that it is counted in."""
    assert instructions.run_case(name, instructions.CASES[name][2][0]) > 0


@pytest.mark.parametrize("name", instructions.LINES)
def test_cases_of_cache_lines_work_everywhere_in_the_length_that_counts(name):
    """All PEs are at work at once: the shorter run is longer than a word takes across the fabric."""
    make, unit, (short, long) = instructions.LINES[name]
    workload = make(short)
    assert workload.active == 32 * 32
    assert make(long).work[unit] > workload.work[unit]
    assert instructions.run_case(name, 2, lines=True) > 0


def test_hops_of_two_sizes_are_compared():
    made = []

    def make(width, height, words):
        made.append((width, height, words))
        return workloads.broadcast(width, height, words)

    ratio, cost = wafer.cost_of_hops(make, (16, 4), (4, 4), 8, rounds=1, times=2)
    assert made == [(16, 4, 8), (4, 4, 8)]  # streams as long on both
    assert ratio > 0
    assert cost > 0


def test_hops_of_trains_are_compared_with_hops():
    ratio, cost = wafer.cost_of_trains(workloads.chain_reduce, (40, 8), 250, rounds=3)
    assert ratio > 2
    assert cost > 0


def test_a_command_is_measured_in_a_process_of_its_own():
    found = wafer.run_command(["vector", "n=64"])
    assert found.cpu > found.simulation > 0
    assert found.ratio == found.cpu / max(found.simulation, 1e-3)
    assert found.yardstick > 0
    assert found.result["cycles"] == 70
    with pytest.raises(RuntimeError, match="n="):
        wafer.run_command(["vector", "n=32766"])


def test_quick_commands_have_a_wafer_of_a_sixteenth():
    assert table._shrunk(wafer.COMMANDS["allreduce1"], True) == [
        "allreduce", "form=xy", "width=189", "height=249", "n=1",
    ]  # fmt: skip
    assert table._shrunk(wafer.COMMANDS["gemm16"], True) == wafer.COMMANDS["gemm16"]


def test_every_command_that_is_told_is_known():
    told = {key for key, goal in table.GOALS.items() if goal.part == "commands"}
    assert {f"{name}_ratio" for name in wafer.COMMANDS} >= told
    assert {goal.part for goal in table.GOALS.values()} == set(table.PARTS)


def test_smallest_fabrics_are_measured_and_checked():
    """This tree beside itself: every case runs and is compared; one whose results are wrong is no figure."""
    found = smallest.compare(measure.ROOT, smallest.CASES, 1)
    assert list(found) == list(smallest.CASES)
    assert all(0 < then < 1e6 and 0 < now < 1e6 and ratio == now / then for then, now, ratio in found.values())
    assert smallest.render({"a": (2.0, 1.0, 0.5)}).endswith("| a | 2.0 | 1.0 | 0.50 |")
    with pytest.raises(RuntimeError, match="AssertionError"):
        smallest.nanoseconds(measure.ROOT, {"sums that f16 does not hold": "vector_tiles(1, 1, 8, 24, repeat=99)"})
