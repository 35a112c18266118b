"""`cerebras.sdk.client`: scripts for a machine elsewhere compile, run and launch here."""

from __future__ import annotations

import json

import pytest

from harness.sdk import client, python
from tests.harness.sdk.test_tools import LAYOUT, PE
from wse_core.errors import ConfigError

SCRIPT = """
import json
import numpy as np
from cerebras.appliance.pb.sdk.sdk_common_pb2 import MemcpyDataType, MemcpyOrder
import cerebras_appliance.sdk
from cerebras_appliance.pb.sdk import sdk_common_pb2
from cerebras.sdk.client import SdkCompiler, SdkLauncher, SdkRuntime, sdk_utils
from cerebras.sdk.client.debug_util import debug_util
assert cerebras_appliance.sdk.SdkRuntime is SdkRuntime and sdk_common_pb2.MemcpyOrder is MemcpyOrder

with SdkCompiler(resource_cpu=48000, resource_mem=64 << 30) as compiler:
    options = "--arch=wse2 --fabric-dims=10,4 --fabric-offsets=4,1 --params=width:3,n:5 -o latest --memcpy --channels=1"
    artifact = compiler.compile("./src", "layout.csl", options, "made")
with open("artifact.json", "w") as file:
    json.dump({"artifact_id": artifact}, file)
with SdkRuntime(artifact, simulator=True) as runner:
    how = dict(streaming=False, order=MemcpyOrder.ROW_MAJOR, data_type=MemcpyDataType.MEMCPY_16BIT, nonblock=False)
    words = sdk_utils.input_array_to_u32(np.arange(30, dtype=np.uint16), None, 5)
    runner.memcpy_h2d(runner.get_id("half"), words, 0, 0, 3, 2, 5, **how)
    runner.launch("scale", np.float32(1.0), np.int16(0), nonblock=False)
    found = np.zeros(30, np.uint32)
    runner.memcpy_d2h(found, runner.get_id("half"), 0, 0, 3, 2, 5, **how)
assert debug_util(artifact, True).get_symbol(4, 1, "half", np.uint16).tolist() == found[:5].tolist()
print("half", sdk_utils.memcpy_view(found, np.dtype(np.uint16))[[0, 5, 15, 29]].tolist())
with SdkLauncher(artifact, simulator=True) as launcher:
    launcher.stage("more.txt")
    print(launcher.run("cat more.txt", "cs_python run.py --name latest --cmaddr %CMADDR%").split())
    launcher.download_artifact("told.txt", "results/told.txt")
with open("results/told.txt") as file:
    print(file.read())
"""
RUN = """
import sys
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime
with open("told.txt", "w") as file:
    file.write(f"{sys.argv[2]} {sys.argv[4]!r} {SdkRuntime(sys.argv[2]).get_id('half')}")
"""


def test_a_script_of_the_client(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name, text in (("layout.csl", LAYOUT), ("pe.csl", PE), ("run.py", RUN)):
        (tmp_path / "src" / name).write_text(text)
    (tmp_path / "more.txt").write_text("staged\n")
    (tmp_path / "launch.py").write_text(SCRIPT)
    assert python.main(["launch.py"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == ["half [0, 6, 25, 41]", "['staged']", "latest '' 1"]
    assert json.loads((tmp_path / "artifact.json").read_text())["artifact_id"] == str(tmp_path / "made" / "latest")
    assert not (tmp_path / "src" / "told.txt").exists()


def test_mistakes_are_told(tmp_path, capsys):
    (tmp_path / "layout.csl").write_text("layout { @set_rectangle(1); }")
    with pytest.raises(ConfigError, match="was not compiled"):
        client.SdkCompiler().compile(str(tmp_path), "layout.csl", "--arch=wse2 -o out", str(tmp_path))
    assert "layout.csl:1:10: error" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="no result of SdkCompiler"):
        client.SdkLauncher(str(tmp_path))
    (tmp_path / client.NOTE).write_text(json.dumps({"sources": str(tmp_path)}))
    with pytest.raises(ConfigError, match="not open"):
        client.SdkLauncher(str(tmp_path)).run("true")
    with client.SdkLauncher(str(tmp_path)) as launcher:
        with pytest.raises(ConfigError, match="status 3"):
            launcher.run("echo gone; exit 3")
        for call in (lambda: launcher.stage("nothing"), lambda: launcher.download_artifact("nothing", "here")):
            with pytest.raises(ConfigError, match="no such file|made this file"):
                call()
