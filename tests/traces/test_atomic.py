"""Files all or nothing: directories are made, links are followed, devices are left alone."""

from __future__ import annotations

import os

import pytest

from harness.kit.staging import staged_directory
from traces.atomic import atomic_file
from traces.run_format import RunMeta
from traces.writer import RunWriter
from wse_core.errors import TraceError


def write(path):
    """Write a run file."""
    with RunWriter(path, RunMeta(job="test")):
        pass


@pytest.mark.parametrize("target", ["pipe", "/dev/null", "loop", "socket directory"])
def test_what_is_no_file_stays_what_it_is(tmp_path, target):
    """As root a rename over /dev/null would take it away from the whole machine."""
    path = tmp_path / target
    if target == "pipe":
        os.mkfifo(path)
    elif target == "loop":
        path.symlink_to(path)
    elif target != "/dev/null":
        path.mkdir()
    before = os.lstat(path)
    for attempt in (write, lambda path: atomic_file(path).__enter__()):
        with pytest.raises(TraceError, match="cannot be written: is a"):
            attempt(path)
    after = os.lstat(path)
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "link"
    link.symlink_to("far/file")  # which does not exist yet
    with atomic_file(link) as stream:
        stream.write(b"one")
    assert link.is_symlink()
    assert (tmp_path / "far" / "file").read_bytes() == b"one"
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "far" / "file").read_bytes()[:4] == b"\x89HDF"
    assert sorted(os.listdir(tmp_path / "far")) == ["file"]


def test_directories_are_made_and_a_failure_leaves_none(tmp_path):
    path = tmp_path / "a" / "b" / "c.h5"
    with pytest.raises(ValueError, match="stop"), RunWriter(path, RunMeta(job="test")):
        raise ValueError("stop")
    with pytest.raises(ValueError, match="stop"), atomic_file(path):
        raise ValueError("stop")
    assert os.listdir(tmp_path) == []
    write(path)
    assert os.listdir(path.parent) == ["c.h5"]


def test_a_directory_of_results_follows_links_and_refuses_devices(tmp_path):
    target, far = tmp_path / "out", tmp_path / "far"
    target.mkdir()
    far.write_text("old")
    (target / "b").symlink_to(far)
    with staged_directory(target) as stage:
        for name in "abc":
            (stage / name).write_text(name)
    assert (target / "b").is_symlink()
    assert far.read_text() == "b"
    os.mkfifo(target / "d")
    with pytest.raises(TraceError, match="is a device"), staged_directory(target) as stage:
        (stage / "a").write_text("new")
        (stage / "d").write_text("d")
    assert (target / "a").read_text() == "a", "a part was written"
    assert sorted(os.listdir(target)) == ["a", "b", "c", "d"]
