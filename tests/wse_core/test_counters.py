"""What limits a run is said of runs whose limit is known: a product, bank conflicts, a long message, a long way."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fabric
from fabric import Fabric, Layout, Program
from fabric.kernels.registry import KERNELS
from harness.cli.main import main
from traces.trace import Trace
from wse_core.counters import LIMITS, USES, limits, said
from wse_core.params import machine


def of_kernel(name, **params):
    """Return the result of a kernel and what limits it, by name."""
    result = KERNELS[name].run(machine("wse2"), **params)
    found = limits({counter: values for counter, (values, _) in result["counters"].items()})
    assert [limit.cycles for limit in found] == sorted((limit.cycles for limit in found), reverse=True)
    assert {limit.name for limit in found} == set(LIMITS)
    assert (result["bottleneck"], result["bottleneck_share"]) == (found[0].name, found[0].share)
    assert result.get("bottleneck_at", "") == found[0].where
    return result, {limit.name: limit for limit in found}


def test_a_vector_operation_is_limited_by_arithmetic():
    result, found = of_kernel("vector", op="fmuls", n=1000)
    assert result["bottleneck"] == "arithmetic"
    assert found["link"].cycles == found["memory"].cycles == 0
    assert found["arithmetic"].cycles >= 1000


def test_lost_cycles_of_conflicts_are_those_of_memory():
    result, found = of_kernel("vector", op="fmuls", n=1000, conflict=True)
    assert found["memory"].cycles == result["conflict_cycles"] >= 900


@pytest.mark.parametrize(("width", "height"), [(8, 1), (5, 7)])
def test_a_long_message_is_limited_by_a_link_and_moves_are_no_arithmetic(width, height):
    result, found = of_kernel("broadcast", width=width, height=height, n=3000)
    assert result["bottleneck"] == "link"
    assert found["link"].cycles == 3000  # a wavelet an element, none twice over a link
    assert found["arithmetic"].cycles < 100


def test_a_long_way_is_limited_by_latency():
    result, found = of_kernel("ping", hops=600)
    assert result["bottleneck"] == "latency"
    assert 600 <= found["latency"].cycles <= result["run_cycles"]
    assert found["link"].cycles == 1


def test_a_sum_over_a_row_is_limited_by_the_link_if_it_is_long_and_by_latency_if_the_row_is():
    assert of_kernel("chain_reduce", pes=4, n=1000)[0]["bottleneck"] == "link"
    assert of_kernel("chain_reduce", pes=200, n=4)[0]["bottleneck"] == "latency"


def test_how_near_a_kernel_came_to_its_lower_bound_is_said():
    result, _ = of_kernel("gemv")
    assert result["lower_bound_share"] == result["lower_bound"] / result["cycles"] < 1


def test_the_busiest_pe_and_link_are_named():
    zeros = {name: np.zeros((2, 3, 4), np.uint64) for name in (*USES, "sent", "received")}
    zeros["idle"] += 50  # in each of two windows
    zeros["busy"][:, 2, 1], zeros["sent"][1, 2, 1], zeros["received"][0, 2, 1] = 30, 7, 5
    zeros["idle"][:, 2, 1] -= 30
    zeros["stall_conflict"][1, 2, 1] = 4
    zeros["idle"][1, 2, 1] -= 4
    links = {f"moved_color_{color}": np.zeros((2, 3, 4, 5), np.uint64) for color in (3, 9)}
    links["moved_color_3"][0, 1, 3, 2], links["moved_color_9"][1, 1, 3, 2] = 40, 33
    links["moved_color_9"][0, 0, 0, 4] = 72
    found = {limit.name: (limit.cycles, limit.where) for limit in limits(zeros | links)}
    assert found == {
        "link": (73, "link into (3, 1) from N"),
        "arithmetic": (60 - 7, "PE (1, 2)"),
        "latency": (100 - 73, ""),
        "memory": (4, "PE (1, 2)"),
    }
    links["moved_color_9"][0, 0, 0, 4] = 74
    assert limits(zeros | links)[0][3] == "ramp of the CE at (0, 0)"
    zeros["received"][:, 0, 2] = 40
    assert limits(zeros | links)[0][1:] == (80, 0.8, "ramp into the CE at (2, 0)")
    assert limits({name: values for name, values in zeros.items() if name != "idle"}) == []


def test_a_fabric_a_run_file_the_view_the_page_and_the_report_say_the_same(tmp_path, capsys):
    program = Program("scale")
    array = program.array("a", 64, "f32")
    with program.task("main"):
        program.fmuls(array, array, 3.0)
    layout = Layout(4, 1)
    layout.place(program, 0, 0, 4, 1)
    with fabric.record(tmp_path / "run.h5", trace="full"):
        wafer = Fabric(layout)
        wafer.launch("main")
        wafer.run()
    found = wafer.limits()
    assert found[0].name == "arithmetic"
    with Trace.open(tmp_path / "run.h5") as trace:
        run = trace.files[0]
        assert limits({name: run.counter(name).values for name in run.counters}) == found
    main(["view", str(tmp_path / "run.h5"), "--json"])
    assert json.loads(capsys.readouterr().out)["limits"] == [limit._asdict() for limit in found]
    main(["view", str(tmp_path / "run.h5")])
    assert said(found) in capsys.readouterr().out
    main(["view", str(tmp_path / "run.h5"), "--page", str(tmp_path / "run.html")])
    assert f"limits: {said(found)}" in (tmp_path / "run.html").read_text()
    main(["report", str(tmp_path / "run.h5"), "--out", str(tmp_path / "report.html"), "--json"])
    out = capsys.readouterr().out
    assert json.loads(out[out.index('{"file": "' + str(tmp_path / "report.html")) :])["runs"][0]["limits"] == [
        limit._asdict() for limit in found
    ]
    assert "What limits it" in (tmp_path / "report.html").read_text()


def test_the_kernels_of_the_page_have_the_bottlenecks_that_it_names():
    assert of_kernel("broadcast", width=8, height=8, n=4096)[0]["bottleneck"] == "link"
    assert of_kernel("chain_reduce", pes=200, n=4)[0]["bottleneck"] == "latency"
    assert of_kernel("gemm", p=4, m=64, k=64, n=64)[0]["bottleneck"] == "arithmetic"
