"""What a large kernel will take, by small copies of it: sizes of the copies, the sum, and that it is said first."""

from __future__ import annotations

import json

import pytest

from fabric.kernels.kit import ahead
from fabric.kernels.kit.ahead import MANY, SIDES, SIZES, estimate, mesh, scaled
from fabric.kernels.registry import KERNELS
from harness.cli import cmd_kernel
from harness.cli import main as cli
from wse_core.errors import ConfigError


def defaults(name, **values):
    return {param.name: param.default for param in KERNELS[name].params} | values


def test_sizes_that_a_mesh_cuts_are_parameters():
    for name, cut in SIZES.items():
        assert set(cut) <= {param.name for param in KERNELS[name].params}
        assert set(cut.values()) <= {"width", "height"}
        assert any(side in defaults(name) for side in SIDES)


@pytest.mark.parametrize(
    ("name", "values", "most", "found"),
    [
        ("gemv", {"p": 720, "m": 16384, "n": 16384}, 1024, {"p": 32, "m": 728, "n": 728}),
        ("gemm", {"p": 64, "m": 256, "k": 512, "n": 64}, 64, {"p": 8, "m": 32, "k": 64, "n": 8}),
        ("gemm", {"p": 8, "width": 100, "height": 64, "m": 640, "k": 100, "n": 300}, 100, {"width": 12, "height": 8}),
        ("allreduce", {"width": 757, "height": 996, "n": 5}, 1024, {"width": 28, "height": 37, "n": 5}),
        ("reduce", {"width": 700, "height": 10, "n": 5}, 70, {"width": 70, "height": 1}),
        ("chain_reduce", {"pes": 700, "n": 5}, 64, {"pes": 64, "n": 5}),
    ],
)
def test_a_copy_has_the_work_of_a_pe(name, values, most, found):
    copy = scaled(name, defaults(name, **values), most)
    width, height = mesh(copy)
    assert width * height <= 1.5 * most
    if name in ("gemv", "gemm"):
        assert {key: copy[key] for key in found} == found
        whole = mesh(values)
        for key, side in SIZES[name].items():
            sides = (width, whole[0]) if side == "width" else (height, whole[1])
            assert copy[key] / sides[0] == pytest.approx(values[key] / sides[1], rel=0.1)
    elif name != "reduce":
        assert {key: copy[key] for key in found} == found


def fake(monkeypatch):
    """A host on which programs take five seconds, a PE a millisecond to make and a microsecond per hop.

    A wavelet moves in every PE and cycle, and cycles grow with sides.
    """
    now = [0.0]
    monkeypatch.setattr(ahead.time, "process_time", lambda: now[0])
    ran = []

    def run(values):
        w, h = mesh(values)
        cycles = 100 + 10 * (w + h)
        ran.append(w * h)
        now[0] += 5 + w * h * (1e-3 + 1e-6 * cycles)
        return {"cycles": cycles, "wavelet_hops": w * h * cycles, "run_cpu_seconds": w * h * 1e-6 * cycles}

    return run, ran


def test_the_sum_is_right_where_costs_are_as_supposed(monkeypatch):
    run, ran = fake(monkeypatch)
    found = estimate("allreduce", defaults("allreduce", width=400, height=600, n=3), run)
    assert found.pes == 240_000
    assert found.cycles == pytest.approx(100 + 10 * 1000)
    assert found.seconds == pytest.approx(5 + 240_000 * (1e-3 + 1e-6 * 10_100), rel=1e-6)
    assert found.gigabytes > 0
    assert sum(ran) < found.pes / 16


def test_memory_is_that_of_the_pes_and_of_what_is_there(monkeypatch):
    """A PE takes 5 kB of memory, everything else 2 MB; the process has 50 MB."""
    run, _ = fake(monkeypatch)
    peak = [0]
    monkeypatch.setattr(ahead, "restart_peak", lambda: peak.__setitem__(0, 50_000_000))
    monkeypatch.setattr(ahead, "resident_bytes", lambda: 50_000_000)
    monkeypatch.setattr(ahead, "peak_bytes", lambda: peak[0])

    def taking(values):
        w, h = mesh(values)
        peak[0] += 2_000_000 + 5_000 * w * h
        return run(values)

    found = estimate("allreduce", defaults("allreduce", width=400, height=600, n=3), taking)
    assert found.gigabytes * 2**30 == pytest.approx(50e6 + 2e6 + 5e3 * 240_000)


def test_few_pes_and_copies_that_cannot_run_give_none(monkeypatch):
    run, ran = fake(monkeypatch)
    assert estimate("gemv", defaults("gemv", p=63), run) is None
    assert estimate("vector", defaults("vector", n=9999), run) is None
    assert not ran
    assert MANY > 63 * 63

    def refused(values):
        raise ConfigError("no")

    assert estimate("gemv", defaults("gemv", p=64), refused) is None


def test_it_is_said_before_anything_is_made(monkeypatch, capsys):
    """The line comes first, on standard error, and the run is not changed by it."""
    words = ["kernel", "gemv", "p=8", "m=32", "n=32", "--json"]
    assert cli.main(words) == 0
    usual = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(ahead, "MANY", 64)
    monkeypatch.setattr(cmd_kernel, "LONG", 0)
    made = []
    kept = cmd_kernel.run_kernel
    monkeypatch.setattr(cmd_kernel, "run_kernel", lambda *words: made.append(capsys.readouterr().err) or kept(*words))
    assert cli.main(words) == 0
    assert made[0].startswith("wse: gemv on 64 PEs will take about ")
    told = json.loads(capsys.readouterr().out)
    assert [told[key] for key in ("params", "cycles", "wavelet_hops")] == [
        usual[key] for key in ("params", "cycles", "wavelet_hops")
    ]
    assert cli.main([*words, "--no-progress"]) == 0
    assert "will take about" not in made[1]


def test_cycles_of_a_real_kernel_are_near(monkeypatch):
    """A line through two copies, against the kernel itself: a reduce and a tree, which grows less."""
    from wse_core.params import machine

    monkeypatch.setattr(ahead, "MANY", 256)
    for name, values in (("allreduce", {"width": 24, "height": 16, "n": 8}), ("gemv", {"p": 24, "m": 96, "n": 96})):
        full = defaults(name, **values)
        found = estimate(name, full, lambda copy, name=name: KERNELS[name].run(machine(), **copy))
        cycles = KERNELS[name].run(machine(), **full)["cycles"]
        assert cycles / 2 < found.cycles < 2.5 * cycles
