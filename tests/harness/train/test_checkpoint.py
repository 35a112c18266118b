"""Checkpoints: whole or not there, bit by bit, refused when damaged; processes killed while they write."""

from __future__ import annotations

import json
import os
import random
import signal
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.train import checkpoint
from harness.train.checkpoint import found, latest, load, save
from tests.examples import examples
from tests.killed import Victims
from wse_core.errors import CheckpointError, ConfigError

TENSORS = {
    "layer1.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer1.weight.pattern": np.uint8([255, 240]),
    "none": np.zeros((0, 3), np.float32),
}
STATE = {"random": {"state": 2**127 + 1}, "rate": 0.1, "text": "ä\n", "none": None}


def same(a, b):
    """Whether two sets of tensors are the same bits."""
    return a.keys() == b.keys() and all(
        (a[k].dtype, a[k].shape, a[k].tobytes()) == (b[k].dtype, b[k].shape, b[k].tobytes()) for k in a
    )


@examples(15)
@given(
    st.dictionaries(
        st.text("abc.1", min_size=1),
        hnp.arrays(
            st.sampled_from([np.float32, np.uint8, bool, np.int64]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
        ),
        max_size=4,
    ),
    st.integers(0, 10**9),
)
def test_everything_comes_back_bit_by_bit(tmp_path_factory, tensors, iteration):
    """NaN with its payload, signed zeros and empty tensors included."""
    path = save(tmp_path_factory.mktemp("c"), iteration, tensors, STATE)
    number, back, state = load(path)
    assert number == iteration
    assert same(tensors, back)
    assert state == STATE


def test_the_order_of_memory_does_not_matter(tmp_path):
    turned = np.asfortranarray(TENSORS["layer1.weight"])
    assert save(tmp_path, 3, {"a": turned}, {}) == save(tmp_path, 3, {"a": np.ascontiguousarray(turned)}, {})
    assert same(load(latest(tmp_path))[1], {"a": TENSORS["layer1.weight"]})


def test_the_weights_are_a_file_that_others_read(tmp_path):
    from safetensors import safe_open

    path = save(tmp_path, 1, TENSORS, STATE)
    with safe_open(path / "tensors.safetensors", "np") as file:
        assert np.array_equal(file.get_tensor("layer1.weight"), TENSORS["layer1.weight"])


def test_the_newest_ones_are_kept(tmp_path):
    paths = [save(tmp_path, k, TENSORS, {"k": k}, keep=2) for k in (1, 5, 10, 200)]
    assert found(tmp_path) == paths[-2:]
    assert latest(tmp_path) == paths[-1]
    again = save(tmp_path, 200, TENSORS, {"k": 200}, keep=2)  # the same content is the same checkpoint
    assert again == paths[-1]
    other = save(tmp_path, 200, TENSORS, {"k": "other"}, keep=2)  # another one of the same iteration replaces it
    assert found(tmp_path) == [paths[-2], other]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([paths[-2].name, other.name])


def test_nothing_there(tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "none") is None
    with pytest.raises(CheckpointError, match=r"manifest\.json cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone", "directory", "longer"])
def test_damage_is_found_and_an_older_one_is_taken(tmp_path, name, damage):
    older, path = save(tmp_path, 1, TENSORS, STATE), save(tmp_path, 2, TENSORS, STATE)
    file = path / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) * 2 // 3] ^= 4
    changed = {"cut": data[:-5], "empty": b"", "longer": data + b"{"}.get(damage, data)
    file.write_bytes(changed)
    if damage in ("gone", "directory"):
        file.unlink()
    if damage == "directory":
        file.mkdir()
    with pytest.raises(CheckpointError, match=path.name):
        load(path)
    assert latest(tmp_path) == older
    load(older)


@examples(60)
@given(st.data())
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, data):
    path = save(tmp_path_factory.mktemp("c"), 2, TENSORS, STATE)
    name = data.draw(st.sampled_from(["tensors.safetensors", "state.json", "manifest.json"]))
    content = bytearray((path / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (path / name).write_bytes(content)
    try:
        _, tensors, state = load(path)
    except CheckpointError:
        return
    assert name == "manifest.json"  # white space: the same manifest
    assert same(tensors, TENSORS)
    assert state == STATE


def test_if_all_are_damaged_it_says_so(tmp_path):
    (save(tmp_path, 1, TENSORS, STATE) / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"state\.json has 2 bytes"):
        latest(tmp_path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": "other"}, "no checkpoint of this package"),
        ({"version": 1}, "has version 1, this package reads 2"),
        ({"iteration": 7}, "manifest is damaged"),
        (None, "no checkpoint of this package"),
    ],
)
def test_foreign_checkpoints(tmp_path, change, match):
    path = save(tmp_path, 1, TENSORS, STATE) / "manifest.json"
    path.write_text(json.dumps(change and json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=match):
        load(path.parent)


def test_the_configuration_must_be_the_same(tmp_path):
    path = save(tmp_path, 1, TENSORS, STATE, config="abc")
    load(path, "abc")
    load(path)
    with pytest.raises(CheckpointError, match="another configuration"):
        load(path, "abd")


def test_a_tensor_that_the_manifest_does_not_know(tmp_path):
    """A file with a right digest and another tensor in it, as a forger or a mistake of ours would make it."""
    path = save(tmp_path, 1, TENSORS, STATE)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["tensors"]["layer1.weight"] = ["float32", [4, 3]]
    del manifest["sha256"]
    manifest["sha256"] = checkpoint._digest(checkpoint._json(manifest))
    (path / "manifest.json").write_bytes(checkpoint._json(manifest))
    with pytest.raises(CheckpointError, match=r"tensor 'layer1\.weight' is not what"):
        load(path)


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        save(tmp_path / "file", 1, TENSORS, STATE)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = save(tmp_path, 1, TENSORS, STATE)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        save(tmp_path, 2, TENSORS, STATE)
    assert latest(tmp_path) == path
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    monkeypatch.undo()
    save(tmp_path, 3, TENSORS, STATE)
    assert not [item for item in tmp_path.iterdir() if item.name.startswith(".part")]


def test_the_library_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ConfigError, match="a checkpoint needs safetensors"):
        save(tmp_path, 1, TENSORS, STATE)


WRITER = """
import numpy as np
from harness.train.checkpoint import latest, load, save
from tests.killed import Countdown

def case(folder, moment):
    path = latest(folder)
    done = load(path)[0] if path else 0
    counter = Countdown()
    while True:
        done += 1
        save(folder, done, {"w": np.full(20000, done, np.float32)}, {"done": done}, keep=2)
        if counter.calls == float("inf"):  # the calls of one checkpoint are known now
            counter.calls = counter.count * moment
"""


def test_killed_at_any_moment(tmp_path, child_env):
    """Twenty writers are killed: what is found is whole, never older than what was found before, and goes on."""
    chance, before, most = random.Random(1), 0, 0
    with Victims(WRITER, tmp_path, child_env) as writers:
        for _ in range(20):
            status, said = writers.run(str(tmp_path), chance.uniform(1, 5))
            assert status == -signal.SIGKILL
            assert "checkpoint.py:save" in said
            path = latest(tmp_path)
            done, tensors, state = load(path)
            assert path == found(tmp_path)[-1]  # nothing that looks whole is damaged
            assert done >= before
            assert state == {"done": done}
            assert same(tensors, {"w": np.full(20000, done, np.float32)})
            before, most = done, max(most, done - before)
    assert before > 5
    assert most > 1
    save(tmp_path, before + 1, {}, {}, keep=2)
    assert len(found(tmp_path)) == 2
    assert not [item for item in tmp_path.iterdir() if item.name.startswith(".part")]
