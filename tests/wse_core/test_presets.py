"""A machine is data: a preset is a column of one table, and nothing else asks for it by name."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path

import pytest

from fabric.kernels.registry import KERNELS
from harness.cli import main as cli
from harness.kit.modules import OWN_PACKAGES
from wse_core import isa, params
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, PRESETS, machine

ROOT = Path(__file__).resolve().parents[2]
COLUMN = {
    **PRESETS["wse3"],
    "fabric.width": 30,
    "fabric.height": 20,
    "router.hop": 3,
    "router.depth": 4,
    "switch.colors": tuple(range(12)),
    "lanes.fmuls": 4,
}


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setitem(params.PRESETS, "made_up", COLUMN)
    return machine("made_up")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_column_names_numbers_of_the_table_in_their_limits(preset):
    for name, value in PRESETS[preset].items():
        assert PARAMETERS[name].check(value) == value
        assert machine(preset)[name] == value
    assert repr(machine(preset)) == f"machine({preset!r})"


def test_lanes_are_those_of_the_op_table():
    for op in isa.OPS:
        assert (machine("wse2").lanes(op), machine("wse3").lanes(op.name)) == op.lanes
    assert machine(lanes_faddh=2).lanes("faddh") == 2
    with pytest.raises(ConfigError, match=r"machine.lanes.faddh: 3 is not a possible value"):
        machine(lanes_faddh=3)


def test_a_kernel_runs_on_a_machine_that_is_only_a_column(made_up, capsys):
    """Cycles follow from the numbers: the hop of `ping`, the lanes of a vector operation, colors that switch."""
    ping = KERNELS["ping"]
    slow, fast = (ping.run(machine=m, hops=9) for m in (made_up, machine("wse3")))
    assert slow["verified"]
    assert slow["cycles"] - fast["cycles"] == 9
    vector = KERNELS["vector"]
    assert vector.run(machine=made_up, op="fmuls", n=64)["lanes_per_step"] == 4
    four, one = (vector.run(machine=m, op="fmuls", n=64)["cycles"] for m in (made_up, machine("wse3")))
    assert one - four == 64 - 2 * 16  # the eight words that four lanes read of each source meet in some bank
    assert KERNELS["reduce"].run(machine=made_up, width=5, height=4, n=8)["verified"]
    assert cli.main(["kernel", "gemm", "p=4", "m=16", "k=16", "n=16", "--preset", "made_up", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verified"]


def test_its_limits_are_its_own(made_up):
    with pytest.raises(ConfigError, match="unknown machine preset 'wse9'.*Known are wse2, wse3, made_up"):
        machine("wse9")
    with pytest.raises(ConfigError, match="made_up"):
        KERNELS["ping"].run(machine=made_up, hops=40)


def test_nobody_asks_for_a_preset_by_name():
    """A comparison with the name of a preset would be a number that the table does not have."""
    asks = re.compile(r"""preset\s*[!=]=|[!=]=\s*["']wse\d|\.lanes\[""")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in OWN_PACKAGES
        for path in sorted(ROOT.joinpath(package).rglob("*.py*"))
        if path.suffix in (".py", ".pyx", ".pxd") and path.name not in ("numbers.py", "params.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asks.search(line)
    ]
    assert found == []


def test_machines_go_to_other_processes():
    changed = machine("wse3", {"router.hop": 3})
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert copy.deepcopy(changed) == changed
