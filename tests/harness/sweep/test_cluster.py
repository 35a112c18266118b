"""A sweep on a cluster of Dask gives the table that processes of this host give."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

TEXT = 'kernel = "vector"\n[params]\nn = [8, 32766, 64]\n'


def test_without_dask_it_is_said_what_to_install(tmp_path, wse, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    (tmp_path / "s.toml").write_text(TEXT)
    found = wse("sweep", "s.toml", "--scheduler", "tcp://127.0.0.1:8786")
    assert found.returncode == 2
    assert "pip install 'wse-sim[cluster]'" in found.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "s.toml"]


def test_processes_and_a_scheduler_exclude_each_other(tmp_path, wse):
    (tmp_path / "s.toml").write_text(TEXT)
    found = wse("sweep", "s.toml", "--scheduler", "tcp://127.0.0.1:8786", "--processes", "2")
    assert found.returncode == 2
    assert "not allowed with" in found.stderr


CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    how = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "protocol": "tcp://"}
    with LocalCluster(**how, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


def test_the_table_is_the_same(tmp_path, child_env, wse, wse_process):
    pytest.importorskip("distributed")
    (tmp_path / "cluster.py").write_text(CLUSTER)
    (tmp_path / "s.toml").write_text(TEXT)
    words = [sys.executable, "cluster.py"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=child_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        try:
            address = cluster.stdout.readline().strip()
            assert re.match(r"tcp://", address)
            found = wse_process("sweep", "s.toml", "--scheduler", address, "--out", "there")
            assert found.returncode == 1, found.stderr
            assert "3 points; 1 failed" in found.stdout
        finally:
            cluster.communicate("")
    assert wse("sweep", "s.toml", "--out", "here").returncode == 1
    for name in ("table.csv", "table.parquet", "figure.png"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
