"""The registry keeps the protocol of the command line, and refuses what makes no sense with one clear message."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.kernels.kit import report as kit_report
from fabric.kernels.kit.kernel import KernelParam
from fabric.kernels.kit.session import Session
from fabric.kernels.registry import KERNELS
from harness.cli import main as cli
from harness.cli.cmd_kernel import KEYS, run_kernel
from harness.cli.kernel_pages import describe
from tests.examples import examples
from traces.reader import RunFile
from wse_core.counters import LINKS
from wse_core.errors import ConfigError, PlanError
from wse_core.params import machine

BOUNDS = {"allgather"}  # have a lower bound and no closed form
SMALL = {
    "vector": {"n": 10},
    "ping": {"hops": 3},
    "broadcast": {"width": 3, "height": 2, "n": 5},
    "chain_reduce": {"pes": 4, "n": 6},
    "reduce": {"width": 5, "height": 2, "n": 3},
    "allreduce": {"width": 5, "height": 2, "n": 3},
    "scatter": {"width": 4, "n": 3},
    "gather": {"width": 4, "n": 3},
    "allgather": {"width": 3, "n": 3},
    "gemv": {"p": 2, "m": 5, "n": 7},
    "gemv_chain": {"p": 2, "m": 5, "n": 7},
    "gemm": {"p": 2, "m": 5, "k": 3, "n": 4},
    "gemm_t": {"p": 2, "m": 5, "k": 3, "n": 4},
    "ws_forward": {"inputs": 40, "outputs": 9, "tokens": 24},
    "ws_gradient": {"inputs": 20, "outputs": 7},
    "stencil": {"width": 3, "height": 2, "nz": 500, "steps": 2},
    "stencil25": {"width": 4, "height": 3, "nz": 20, "steps": 2},
    "spmv": {"width": 3, "height": 2, "m": 20, "n": 30, "density": 0.3},
}


def test_all_kernels_are_there_simple_ones_first():
    assert list(KERNELS) == list(SMALL)


@pytest.mark.parametrize("name", KERNELS)
def test_description(name):
    found = describe(KERNELS[name])
    assert found["name"] == name
    assert found["summary"]
    assert found["source"]
    assert {"seed", "data"} <= {param["name"] for param in found["params"]}
    for param, declared in zip(found["params"], KERNELS[name].params, strict=True):
        assert param["doc"]
        assert declared.check(declared.default, "default") == declared.default
    json.dumps(found)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_result_has_all_keys(name, preset):
    result = run_kernel(KERNELS[name], machine(preset), SMALL[name])
    keys = [key for key in KEYS if name not in BOUNDS or key not in ("expected_cycles", "cycle_error")]
    assert list(result)[: len(keys)] == keys
    assert result["verified"] is True
    assert result["params"] == {param.name: param.default for param in KERNELS[name].params} | SMALL[name]
    assert result["cycles"] <= result["run_cycles"]
    assert 0 < result["utilisation"] <= 1
    if name not in BOUNDS:
        assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.1)
    shape = result["counters"]["busy"][0].shape
    for key, (values, unit) in result["counters"].items():
        assert unit
        assert values.shape == ((1, *shape, len(LINKS)) if key.startswith("moved_") else shape)


@pytest.mark.parametrize("name", KERNELS)
def test_command_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [f"{key}={value}" for key, value in SMALL[name].items()]
    assert cli.main(["kernel", name, *words, "--json", "--out", "run.h5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is True
    with RunFile("run.h5") as file:
        assert file.result("cycles") == found["cycles"]
        moved = sum(int(file.counter(key).values.sum()) for key in file.counters if key.startswith("moved_color_"))
    assert moved == found["wavelet_hops"]


def test_counters_of_many_pes_are_copied_only_for_a_run_file(tmp_path, monkeypatch, wse):
    asked = []
    monkeypatch.setattr(kit_report, "MOST_PES", 16)
    monkeypatch.setattr(Session, "counters", lambda self, kept=Session.counters: asked.append(1) or kept(self))
    assert wse("kernel", "ping").returncode == 0  # 17 PEs
    assert asked == []
    assert "bottleneck" not in wse("kernel", "ping").stdout
    assert "bottleneck" in wse("kernel", "ping", "hops=15").stdout
    assert asked.pop() == 1
    assert wse("kernel", "ping", "--out", "run.h5").returncode == 0
    assert asked == [1]
    with RunFile(tmp_path / "run.h5") as file:
        assert file.counter("busy").values.sum() > 0


def test_ports_are_in_the_order_of_run_files():
    counts = KERNELS["ping"].run(machine(), hops=3, direction="S")["counters"]["moved_color_3"][0]
    assert counts.shape == (1, 4, 1, 5)
    assert counts[0, 0, 0, LINKS.index("R")] == 1
    assert (counts[0, 1:, 0, LINKS.index("N")] == 1).all()
    assert counts.sum() == 4


@pytest.mark.parametrize("name", KERNELS)
def test_seed_decides_the_data(name):
    def data(seed):
        result = KERNELS[name].run(machine(), **SMALL[name], seed=seed)
        return [(key, np.asarray(value).tobytes()) for key, value in result["arrays"].items()]

    assert data(3) == data(3)
    if name != "ping":
        assert data(3) != data(4)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("vector", {"size": 3}, r"kernel vector: unknown parameter 'size'"),
        ("vector", {"op": "fmull"}, r"kernel vector: op: 'fmull' is not a possible value.*did you mean fmul"),
        ("vector", {"op": "fmulh", "dtype": "f32"}, r"fmulh does not work on f32.*f16 or cb16"),
        ("vector", {"op": "add16", "dtype": "f16"}, r"add16 does not work on f16.*i16"),
        ("vector", {"op": "fabss", "conflict": True}, r"one memory source"),
        ("vector", {"stride": 0}, r"stride 0"),
        ("vector", {"n": 20000}, r"24576 words of a PE.*the program needs.*Try: n=\d+"),
        ("ping", {"hops": 0}, r"kernel ping: hops: 0 is too small; the least is 1"),
        ("ping", {"hops": 757}, r"wse2 has 757 in this direction.*at most 756"),
        ("broadcast", {"n": 1.5}, r"kernel broadcast: n: expected a whole number, found a number: 1.5"),
        ("broadcast", {"n": 13000}, r"24576 words of a PE.*Try: n=12\d\d\d"),
        ("chain_reduce", {"dtype": "f32", "sums": "f16"}, r"f32 data cannot be summed in f16"),
        ("chain_reduce", {"dtype": "f16", "sums": "cb16"}, r"f16 data cannot be summed in cb16.*f16 or f32"),
        (
            "chain_reduce",
            {"n": 20000},
            r"kernel chain_reduce: does not fit into the 24576 words of a PE.*Try: n=12\d\d\d",
        ),
        ("gemv", {"p": True}, r"kernel gemv: p: expected a whole number, found true or false: True"),
        ("gemv", {"p": 1, "m": 300, "n": 300}, r"24576 words of a PE.*Try: m=\d+ or n=\d+ or p=2"),
        ("gemm", {"data": "zeros"}, r"kernel gemm: data: 'zeros' is not a possible value"),
        ("gemm", {"p": 1, "m": 100, "k": 100, "n": 100}, r"24576 words of a PE.*Try: m=\d+ or k=\d+ or n=\d+ or p=\d"),
        ("gemm", {"p": 758}, r"758 x 758 PEs exceed the 757 x 996 of wse2.*at most 757"),
    ],
)
def test_refusals(name, values, message):
    with pytest.raises(ConfigError, match=message):
        KERNELS[name].run(machine(), **values)


def test_more_pes_than_the_machine_has():
    with pytest.raises(PlanError, match="width 800 exceeds the 757 PEs"):
        KERNELS["chain_reduce"].run(machine(), pes=800, n=1)


def test_suggested_sizes_fit_and_the_next_ones_do_not():
    for name, key, others in (("chain_reduce", "n", {"pes": 3}), ("gemm", "m", {"p": 1, "k": 20, "n": 20})):
        with pytest.raises(ConfigError) as caught:
            KERNELS[name].run(machine(), **others, **{key: 20001})
        best = int(caught.value.hint.split(f"{key}=")[1].split()[0])
        assert KERNELS[name].run(machine(), **others, **{key: best})["verified"]
        with pytest.raises(ConfigError):
            KERNELS[name].run(machine(), **others, **{key: best + 1})


def test_parameters_take_numpy_numbers_and_whole_numbers_for_decimal_ones():
    assert KernelParam("n", 1, int, "n").check(np.int64(7), "k") == 7
    assert KernelParam("x", 1.0, float, "x").check(2, "k") == 2.0
    with pytest.raises(ConfigError, match="x: 5 is too large; the most is 4"):
        KernelParam("x", 1, int, "x", high=4).check(5, "k")


# --- machines that are too small --------------------------------------------------------------------------------------

LARGE = {
    "vector": {"n": 400},
    "ping": {},
    "broadcast": {"n": 400},
    "chain_reduce": {"pes": 4, "n": 400},
    "reduce": {"width": 5, "n": 400},
    "allreduce": {"width": 5, "n": 400},
    "scatter": {"width": 4, "n": 400},
    "gather": {"width": 4, "n": 400},
    "allgather": {"width": 3, "n": 400},
    "gemv": {"p": 2, "m": 50, "n": 50},
    "gemv_chain": {"p": 2},
    "gemm": {"p": 2, "m": 50, "k": 50, "n": 50},
    "gemm_t": {"p": 2, "m": 50, "k": 50, "n": 50},
    "ws_forward": {"tokens": 400},
    "ws_gradient": {"tokens": 400},
    "stencil": {"nz": 400},
    "stencil25": {"nz": 400},
    "spmv": {"m": 400},
}
"""Sizes that need more than 256 words; `ping` holds nothing."""


def refused(name, values, limits):
    """Run a kernel on a small machine; return the `PlanError`, or None if it ran and is right."""
    try:
        assert KERNELS[name].run(machine("wse2", limits), **values)["verified"]
    except PlanError as error:
        assert error.available <= next(iter(limits.values()))  # a part may have less, beside the others
        assert error.needed > error.available
        assert str(error).startswith(("kernel ", "all-reduce"))
        return error
    return None


@pytest.mark.parametrize("name", KERNELS)
def test_too_small_a_machine_is_refused_with_the_limit(name):
    height, width = KERNELS[name].run(machine(), **SMALL[name])["counters"]["busy"][0].shape
    for limit, size in (("width", width), ("height", height)):
        if size > 1:
            assert refused(name, SMALL[name], {f"fabric.{limit}": size - 1}).limit == limit
    if name != "ping":
        assert refused(name, LARGE[name], {"mem.words": 256}).limit == "memory"


@pytest.mark.parametrize("name", KERNELS)
@examples(8)
@given(st.integers(1, 12))
def test_colors_that_are_missing_are_refused_by_name(name, colors):
    """With few colors a kernel does with them or says that there are too few; no other error comes out."""
    error = refused(name, SMALL[name], {"router.colors": colors})
    assert error is None or error.limit == "routes"
