"""Data sets and the data service: shards are disjoint and whole, for any number of wafers; going on bit by bit."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.train.config import load_train, parse_train
from harness.train.data import DataService, Dataset, load
from harness.train.plain import PlainTrainer
from harness.train.sources import IDX, RowsOnDemand
from tests.examples import examples
from wse_core.errors import CheckpointError, ConfigError

TEXT = """
[network]
inputs = {inputs}
layers = [{{outputs = {classes}}}]
[data]
source = "{source}"
batch = {batch}
[mesh]
height = 1
[train]
iterations = 5
"""


def numbered(samples):
    """Return a set whose samples are their numbers."""
    x = np.arange(samples, dtype=np.float32)[:, None]
    return Dataset(x, np.arange(samples) % 3, x[:1], np.zeros(1, np.int64))


def arrays(n=12, features=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x_train": rng.random((n, features)),
        "y_train": rng.integers(0, 3, n),
        "x_test": rng.random((5, features)),
        "y_test": rng.integers(0, 3, 5),
    }


def config_of(path, batch=4, inputs=4, classes=3):
    return parse_train(TEXT.format(source=path, batch=batch, inputs=inputs, classes=classes))


@examples(30)
@given(
    wafers=st.sampled_from([1, 2, 4, 8]),
    each=st.integers(1, 5),
    extra=st.integers(0, 30),
    seed=st.integers(0, 9),
    iterations=st.lists(st.integers(0, 40), min_size=1, max_size=6),
)
def test_shards_are_disjoint_whole_and_independent_of_wafers(wafers, each, extra, seed, iterations):
    batch = 8 * each
    data = numbered(batch + extra)
    one, many = DataService(data, batch, 1, seed), DataService(data, batch, wafers, seed)
    for iteration in iterations:  # in any order
        shards = many.batch(iteration)
        assert len(shards) == wafers
        assert {len(x) for x, _ in shards} == {batch // wafers}
        joined = np.concatenate([x[:, 0] for x, _ in shards])
        assert len(set(joined)) == batch
        assert np.array_equal(joined, one.batch(iteration)[0][0][:, 0])
        for x, y in shards:
            assert np.array_equal(y, x[:, 0].astype(int) % 3)
            assert x.dtype == np.float32


@examples(20)
@given(samples=st.integers(4, 40), batch=st.integers(1, 4), seed=st.integers(0, 5))
def test_an_epoch_has_no_sample_twice(samples, batch, seed):
    service = DataService(numbered(samples), batch, 1, seed)
    seen = np.concatenate([service.indices(k) for k in range(service.per_epoch)])
    assert len(set(seen)) == len(seen) == samples // batch * batch
    again = np.concatenate([service.indices(service.per_epoch + k) for k in range(service.per_epoch)])
    assert samples < 6 or not np.array_equal(seen, again)


@examples(20)
@given(done=st.integers(0, 30), seed=st.integers(0, 5))
def test_a_state_goes_on_with_the_same_bits(done, seed):
    data = numbered(23)
    first, second = DataService(data, 4, 2, seed), DataService(data, 4, 2, seed)
    for iteration in range(done):
        first.batch(iteration)
    second.batch(17)  # something to overwrite
    second.restore(json.loads(json.dumps(first.state())))
    for iteration in range(done, done + 12):
        for (x, y), (u, v) in zip(first.batch(iteration), second.batch(iteration), strict=True):
            assert np.array_equal(x, u)
            assert np.array_equal(y, v)


@pytest.mark.parametrize(
    "other", [DataService(numbered(24), 4), DataService(numbered(23), 2), DataService(numbered(23), 4, seed=1)]
)
def test_a_state_of_something_else_is_refused(other):
    service = DataService(numbered(23), 4)
    with pytest.raises(CheckpointError, match="other training data, batch or seed"):
        service.restore(other.state())
    assert np.array_equal(service.indices(0), DataService(numbered(23), 4).indices(0))


@pytest.mark.parametrize("damage", [{"random": 3}, {"random": {"bit_generator": "x"}}, {"epoch": "x"}, {"epoch": None}])
def test_a_damaged_state_is_refused(damage):
    service = DataService(numbered(23), 4)
    with pytest.raises(CheckpointError, match="damaged"):
        service.restore(service.state() | damage)
    with pytest.raises(CheckpointError):
        service.restore({})
    assert np.array_equal(service.indices(0), DataService(numbered(23), 4).indices(0))


@pytest.mark.parametrize(("batch", "wafers"), [(5, 2), (0, 1), (24, 1), (4, 0)])
def test_batches_that_do_not_fit(batch, wafers):
    with pytest.raises(ConfigError, match=f"a batch of {batch}"):
        DataService(numbered(23), batch, wafers)


def test_digits_are_exact_in_16_bits():
    pytest.importorskip("sklearn")
    data = load(load_train("digits"))
    assert data.x_train.shape == (1438, 64)
    assert data.x_test.shape == (359, 64)
    assert np.array_equal(data.x_train, data.x_train.astype(np.float16))
    assert len(np.unique(data.y_train)) == 10


def test_the_synthetic_set_is_always_the_same():
    config = load_train("fc-mnist-shaped")
    first, second = load(config), load(config)
    assert first.digest == second.digest
    assert first.x_train.shape == (2000, 784)
    assert 0 <= first.x_train.min() < first.x_train.max() <= 1
    assert np.array_equal(first.x_train, first.x_train.astype(np.float16))
    assert np.bincount(first.y_train).min() > 100


def test_own_data_are_read_as_they_are(tmp_path):
    given = arrays()
    np.savez(tmp_path / "a.npz", **given)
    found = load(config_of(tmp_path / "a.npz"))
    assert np.array_equal(found.x_train, given["x_train"].astype(np.float32))
    assert np.array_equal(found.y_test, given["y_test"])


def test_images_become_rows(tmp_path):
    given = arrays()
    np.savez(tmp_path / "a.npz", **given | {"x_train": given["x_train"].reshape(12, 2, 2)})
    assert load(config_of(tmp_path / "a.npz")).x_train.shape == (12, 4)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"x_train": np.full((12, 4), "a")}, "x_train is <U1"),
        ({"y_train": np.zeros(12)}, "whole numbers for y"),
        ({"y_train": np.zeros(11, int)}, r"x_train of shape \(12, 4\) does not fit y_train of shape \(11,\)"),
        ({"x_train": np.full((12, 4), np.nan)}, "not finite"),
        ({"x_train": np.full((12, 4), 1e39)}, "not finite"),
        ({"x_train": np.full((12, 4), 1e5)}, "100000, more than f16 can hold"),
        ({"x_test": np.zeros((5, 3))}, "different numbers of features"),
        ({"x_train": np.zeros((12, 5)), "x_test": np.zeros((5, 5))}, "have 5 features, the network takes 4"),
        ({"y_test": np.full(5, 3)}, "labels of .* are . to 3, the network has 3 classes"),
        ({"y_test": np.full(5, -1)}, "labels of .* are -1 to"),
        ({"x_train": np.zeros((3, 4)), "y_train": np.zeros(3, int)}, "a batch of 4 from 3 samples"),
        ({"x_test": np.zeros((0, 4)), "y_test": np.zeros(0, int)}, "does not fit"),
        ({"x_train": np.array([{}] * 12)}, "cannot be read"),
    ],
)
def test_own_data_that_cannot_be_used(tmp_path, change, match):
    np.savez(tmp_path / "a.npz", **arrays() | change)
    with pytest.raises(ConfigError, match=match):
        load(config_of(tmp_path / "a.npz"))


def test_files_that_are_no_data(tmp_path):
    for name, match in (
        ("none.npz", "no such file"),
        ("bad.npz", "cannot be read"),
        ("less.npz", "no array y_train"),
        ("one.npz", "is one array"),
        ("digit", "did you mean digits"),
    ):
        (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
        np.savez(tmp_path / "less.npz", x_train=np.zeros((3, 4)))
        with open(tmp_path / "one.npz", "wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(ConfigError, match=match):
            load(config_of(tmp_path / name if "." in name else name))


def test_archives_of_something_else(tmp_path):
    """What zipfile hands over although it is no array, and a header that promises more than there is memory."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50, 8)})
    for content, match in ((b"hello", "x_train is no array"), (header.getvalue(), "cannot be read")):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            for name in arrays():
                file.writestr(f"{name}.npy", content)
        with pytest.raises(ConfigError, match=match):
            load(config_of(tmp_path / "a.npz"))


@examples(60)
@given(
    compressed=st.booleans(),
    cut=st.none() | st.floats(0, 1),
    places=st.lists(st.floats(0, 1), max_size=4),
    byte=st.integers(0, 255),
)
def test_damaged_files_are_refused_or_harmless(tmp_path_factory, compressed, cut, places, byte):
    path = tmp_path_factory.mktemp("d") / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, **arrays())
    data = bytearray(path.read_bytes())
    for place in places:
        data[int(place * (len(data) - 1))] = byte
    path.write_bytes(data if cut is None else data[: int(cut * len(data))])
    with contextlib.suppress(ConfigError):
        assert load(config_of(path)).x_train.shape == (12, 4)


def test_a_relative_path_is_beside_the_configuration(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays())
    text = TEXT.format(source="a.npz", batch=4, inputs=4, classes=3)
    assert len(load(parse_train(text, tmp_path / "c.toml")).x_train) == 12


def idx(array):
    """Return the bytes of an idx file of unsigned bytes."""
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize("form", ["npz", "npy", "h5", "idx", "idx.gz"])
def test_all_forms_give_the_same_batches(tmp_path, form):
    rng, folder = np.random.default_rng(3), tmp_path / "data"
    given = {
        "x_train": rng.integers(0, 256, (12, 2, 2), np.uint8),
        "y_train": rng.integers(0, 3, 12, np.uint8),
        "x_test": rng.integers(0, 256, (5, 2, 2), np.uint8),
        "y_test": rng.integers(0, 3, 5, np.uint8),
    }
    folder.mkdir()
    source = folder
    if form == "npz":
        source = tmp_path / "a.npz"
        np.savez(source, **given)
    elif form == "h5":
        source = tmp_path / "a.h5"
        with h5py.File(source, "w") as file:
            for name, array in given.items():
                file[name] = array
    for name, array in given.items():
        if form == "npy":
            np.save(folder / f"{name}.npy", array)
        elif form.startswith("idx"):
            path = folder / (IDX[name] + form.removeprefix("idx"))
            path.write_bytes(gzip.compress(idx(array)) if form.endswith("gz") else idx(array))
    text = TEXT.format(source=source, batch=4, inputs=4, classes=3)
    config = parse_train(text, "", ["data.scale=255"])
    found = load(config)
    wanted = given["x_train"].reshape(12, 4).astype(np.float32) / np.float32(255)
    assert isinstance(found.x_train, RowsOnDemand) == (form in ("npy", "h5"))
    assert found.digest == Dataset(wanted, given["y_train"], wanted, given["y_train"]).digest
    service = DataService(found, 4, 2, 1)
    for iteration in range(5):
        which = service.indices(iteration)
        assert np.array_equal(np.concatenate([x for x, _ in service.batch(iteration)]), wanted[which])
        assert np.array_equal(np.concatenate([y for _, y in service.batch(iteration)]), given["y_train"][which])
    numpy_only = PlainTrainer(config, found)
    in_memory = Dataset(found.x_train[:], found.y_train, found.x_test[:], found.y_test)
    assert numpy_only.test(found.x_test, found.y_test) == PlainTrainer(config, in_memory).test(
        in_memory.x_test, in_memory.y_test
    )


@pytest.mark.parametrize("head", ["a,b,label,c\n", ""])
def test_a_table_names_its_classes_or_has_them_last(tmp_path, head):
    rng = np.random.default_rng(1)
    x, y = np.round(rng.random((20, 3)), 3), rng.integers(0, 3, 20)
    columns = [x[:, 0], x[:, 1], y, x[:, 2]] if head else [*x.T, y]
    lines = [",".join(f"{value:g}" for value in line) for line in zip(*columns, strict=True)]
    (tmp_path / "a.csv").write_text(head + "\n".join(lines) + "\n")
    found = load(config_of(tmp_path / "a.csv", inputs=3))
    assert (len(found.x_train), len(found.x_test)) == (16, 4)
    rows = {tuple(line): label for line, label in zip(x.astype(np.float32).tolist(), y, strict=True)}
    for line, label in zip(
        np.concatenate([found.x_train, found.x_test]).tolist(), [*found.y_train, *found.y_test], strict=True
    ):
        assert rows[tuple(line)] == label


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.csv", b"1,2,3,0.5\n", "column 4 has no whole numbers"),
        ("a.csv", b"1,2,x,0\n1,2\n", "cannot be read"),
        ("a.csv", b"", "has no lines"),
        ("a.h5", b"nothing", "cannot be read"),
        ("a.bin", b"nothing", "is no data set"),
        ("d/x_train.npy", b"nothing", "no array y_train"),
        ("d/train-images-idx3-ubyte", b"nothing", "no array y_train"),
    ],
)
def test_other_forms_that_are_no_data(tmp_path, name, content, match):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=match):
        load(config_of(path if path.parent == tmp_path else path.parent))


def test_a_batch_of_all_samples_has_their_own_order():
    data = numbered(12)
    for seed in (0, 1):
        service = DataService(data, 12, 1, seed)
        assert all(np.array_equal(service.indices(k), np.arange(12)) for k in range(3))


@pytest.mark.parametrize("word", ["data.scale=2.0", "data.held_out=0.5"])
def test_keys_that_a_source_does_not_have(word):
    with pytest.raises(ConfigError, match="mnist-shaped has no"):
        load(load_train("fc-mnist-shaped", [word]))
