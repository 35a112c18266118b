"""Run files: what goes in comes out; a failed, interrupted or killed writer leaves no half file; damage is refused."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from traces import run_format, writer
from traces.atomic import atomic_file
from traces.reader import RunFile
from traces.run_format import RunMeta
from traces.writer import RunWriter
from wse_core.errors import TraceError

META = RunMeta(
    job="digits",
    config_toml='job = "digits"\n# größer\n',
    machine={"router.hop": 1, "queue.in_depth": [6, 6]},
    preset="wse2",
    seed=2**62,
    package_version="0.1.0",
    commit="a" * 40,
    build_mode="release",
    host="here",
    started="2024-01-01T00:00:00+00:00",
)


def write(path, meta=META):
    """Write a run file with one of everything; return the arrays in it."""
    rng = np.random.default_rng(1)
    arrays = {
        "busy": rng.integers(0, 1000, (2, 5, 7), dtype=np.uint64),
        "hops": rng.integers(0, 9, (1, 50, 60, 5), dtype=np.uint32),
        "logits": rng.standard_normal((20, 10)).astype(np.float32),
    }
    with RunWriter(path, meta) as run:
        run.add_counter("busy", arrays["busy"], "cycles", doc="work", window_cycles=100)
        run.add_counter("hops", arrays["hops"], "wavelets")
        run.add_result("logits", arrays["logits"], unit="1", doc="scores")
        run.add_result("cycles", 12345, unit="cycles")
        run.add_result("accuracy", 0.9375)
        run.add_result("verified", True)
        run.add_result("note", "naïve text")
        run.add_result("params", {"p": np.int64(8), "list": [1, None]})
        run.add_result("empty", np.zeros((0, 3)))
    return arrays


def test_round_trip(tmp_path):
    arrays = write(tmp_path / "run.h5")
    with RunFile(tmp_path / "run.h5") as file:
        file.verify()
        assert file.meta == META
        assert file.extra == {}
        assert file.format_version == run_format.FORMAT_VERSION
        assert file.counters == ("busy", "hops")
        assert file.results == ("logits", "cycles", "accuracy", "verified", "note", "params", "empty")
        busy, hops = file.counter("busy"), file.counter("hops")
        assert np.array_equal(busy.values, arrays["busy"])
        assert (busy.unit, busy.doc, busy.kind, busy.window_cycles) == ("cycles", "work", "pe", 100)
        assert np.array_equal(hops.values, arrays["hops"])
        assert (hops.kind, hops.window_cycles, hops.values.dtype) == ("link", 0, np.uint32)
        assert np.array_equal(file.result("logits"), arrays["logits"])
        assert file.result("cycles") == 12345
        assert file.result("accuracy") == 0.9375
        assert file.result("verified") is True
        assert file.result("note") == "naïve text"
        assert file.result("params") == {"p": 8, "list": [1, None]}
        assert file.result("empty").shape == (0, 3)


@given(
    values=hnp.arrays(
        dtype=st.sampled_from([np.uint8, np.uint16, np.int64, np.uint64, np.float16, np.float32, np.float64]),
        shape=hnp.array_shapes(min_dims=3, max_dims=3, max_side=9),
    )
)
def test_every_bit_of_a_counter_survives(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("bits") / "run.h5"
    with RunWriter(path, RunMeta()) as run:
        run.add_counter("c", values, "")
    with RunFile(path) as file:
        found = file.counter("c").values
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def test_layout_checksums_and_attributes_on_disk(tmp_path):
    write(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        scales = {"window", "y", "x", "window_1", "y_50", "x_60", "port"}  # of two shapes
        assert set(file) == {"meta", "counters", "results"} | scales
        assert file.attrs["format"] == b"wse-run"
        assert file.attrs["format_version"].tolist() == [1, 3]
        for name in ("counters/busy", "counters/hops", "results/logits"):
            dataset = file[name]
            assert dataset.fletcher32
            assert dataset.shuffle
            assert (dataset.compression, dataset.compression_opts) == ("gzip", 1)
        assert file["counters/busy"].attrs["unit"] == b"cycles"
        assert file["meta"].attrs["status"] == b"completed"


def test_chunks_are_bounded_and_cut_leading_axes_first():
    for shape in ((1, 996, 757), (40, 996, 757, 5), (3, 4), (10**7,), (1, 1, 10**7)):
        chunk = writer._chunks(shape, 8)
        assert all(1 <= part <= whole for part, whole in zip(chunk, shape, strict=True))
        assert np.prod(chunk) * 8 <= writer.CHUNK_BYTES
    assert writer._chunks((5, 6, 7), 8) == (5, 6, 7)
    assert writer._chunks((40, 996, 757), 4) == (1, 346, 757)


def test_a_long_job_file_fits(tmp_path):
    text = "# comment\n" * 50_000
    write(tmp_path / "run.h5", META.replace(config_toml=text))
    with RunFile(tmp_path / "run.h5") as file:
        assert file.meta.config_toml == text


def test_status_can_change_until_the_end(tmp_path):
    with RunWriter(tmp_path / "run.h5", META) as run:
        run.meta = META.replace(status="deadlock", seed=5)
    with RunFile(tmp_path / "run.h5") as file:
        assert (file.meta.status, file.meta.seed) == ("deadlock", 5)
    with pytest.raises(TraceError, match="'odd' is not a status"):
        META.replace(status="odd")


def test_an_older_file_is_replaced_with_the_usual_permissions(tmp_path):
    path = tmp_path / "run.h5"
    path.write_text("old")
    write(path)
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert [item.name for item in tmp_path.iterdir()] == ["run.h5"]
    with RunFile(path) as file:
        assert file.result("cycles") == 12345


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_a_failed_block_leaves_the_older_file_alone(tmp_path, error):
    path = tmp_path / "run.h5"
    path.write_text("old")
    with pytest.raises(error), RunWriter(path, META) as run:
        run.add_result("x", np.arange(1000))
        raise error
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["run.h5"]


def test_close_and_discard_may_be_repeated(tmp_path):
    run = RunWriter(tmp_path / "run.h5", META)
    run.close()
    run.close()
    run.discard()
    with RunFile(tmp_path / "run.h5") as file:
        assert file.meta == META
    with pytest.raises(TraceError, match="closed already"):
        run.add_result("x", 1)
    other = RunWriter(tmp_path / "other.h5", META)
    other.discard()
    other.discard()
    other.close()
    assert [item.name for item in tmp_path.iterdir()] == ["run.h5"]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("a", np.zeros(3), r"counter a has shape \(3,\)"),
        ("a", np.zeros((1, 2, 3, 4)), r"shape \(1, 2, 3, 4\)"),
        ("a", np.zeros((1, 2, 3), complex), "holds complex128, not numbers"),
        ("a", np.full((1, 2, 3), "x"), "not numbers"),
        ("1a", np.zeros((1, 2, 3)), "'1a' cannot name a dataset"),
        ("a/b", np.zeros((1, 2, 3)), "cannot name"),
        ("", np.zeros((1, 2, 3)), "cannot name"),
        ("busy", np.zeros((1, 2, 3)), "counters/busy is there already"),
    ],
)
def test_counters_that_make_no_sense(tmp_path, name, values, message):
    with RunWriter(tmp_path / "run.h5", META) as run:
        run.add_counter("busy", np.zeros((2, 3)), "cycles")
        with pytest.raises(TraceError, match=message):
            run.add_counter(name, values, "cycles")
    with RunFile(tmp_path / "run.h5") as file:
        assert file.counters == ("busy",)
        assert file.counter("busy").values.shape == (1, 2, 3)


def test_results_that_cannot_be_stored(tmp_path):
    with RunWriter(tmp_path / "run.h5", META) as run:
        with pytest.raises(TraceError, match="holds object"):
            run.add_result("x", np.array([object()]))
        with pytest.raises(TraceError, match="zero byte"):
            run.add_result("z", "a\0b")
        with pytest.raises(TypeError, match="object cannot be stored"):
            run.add_result("y", {"a": object()})
    with RunFile(tmp_path / "run.h5") as file:
        assert file.results == ()


@pytest.mark.parametrize("place", ["directory", "file/run.h5", "file/deep/run.h5"])
def test_a_target_that_cannot_be(tmp_path, place):
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="cannot be written") as caught:
        RunWriter(tmp_path / place, META)
    assert caught.value.exit_code == 2
    assert sorted(item.name for item in tmp_path.iterdir()) == ["directory", "file"]


def failing_after(monkeypatch, bytes_left, error):
    """Let the disk of the writer fail after so many bytes, as often as it is asked from then on."""
    real = os.pwrite
    left = [bytes_left]

    def pwrite(descriptor, data, position):
        left[0] -= len(data)
        if left[0] < 0:
            raise error
        return real(descriptor, data, position)

    monkeypatch.setattr(writer.os, "pwrite", pwrite)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.99])
def test_a_full_disk_is_one_message_and_leaves_nothing(tmp_path, monkeypatch, share):
    write(tmp_path / "run.h5")
    size = (tmp_path / "run.h5").stat().st_size
    (tmp_path / "run.h5").write_text("old")
    failing_after(monkeypatch, int(size * share), OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(TraceError) as caught:
        write(tmp_path / "run.h5")
    assert "run.h5: cannot be written: No space left on device; nothing was left behind" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code == 1
    assert (tmp_path / "run.h5").read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["run.h5"]


def test_an_interrupt_inside_a_write_is_not_lost(tmp_path, monkeypatch):
    failing_after(monkeypatch, 3000, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "run.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_at_the_very_end_leaves_nothing(tmp_path, monkeypatch, call):
    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(writer.os, call, fail)
    with pytest.raises(TraceError, match="Input/output error"):
        write(tmp_path / "run.h5")
    assert list(tmp_path.iterdir()) == []


LIMITED = """
    import resource, signal, sys
    import numpy as np
    from traces.run_format import RunMeta
    from traces.writer import RunWriter
    from wse_core.errors import TraceError

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    noise = np.random.default_rng(0).integers(0, 2**32, (1, 400, 400), dtype=np.uint32)
    try:
        with RunWriter("run.h5", RunMeta()) as run:
            run.add_counter("noise", noise, "")
    except TraceError as error:
        sys.exit(str(error))
"""


def test_the_kernel_refusing_more_bytes_is_one_line(tmp_path, child_env):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)], cwd=tmp_path, env=child_env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"run\.h5: cannot be written: File too large; .*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


KILLED = """
    import sys, time
    import numpy as np
    from traces.run_format import RunMeta
    from traces.writer import RunWriter

    with RunWriter("run.h5", RunMeta()) as run:
        run.add_counter("a", np.ones((3, 100, 100)), "")
        print("ready", flush=True)
        time.sleep(3600)
"""


def test_a_killed_writer_leaves_no_file_of_that_name(tmp_path, child_env):
    for old in (None, "old"):
        if old:
            (tmp_path / "run.h5").write_text(old)
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED)], cwd=tmp_path, env=child_env, stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout.readline() == b"ready\n"
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert (tmp_path / "run.h5").exists() is bool(old)
    assert (tmp_path / "run.h5").read_text() == "old"
    assert all(item.name.endswith(".part") for item in tmp_path.iterdir() if item.name != "run.h5")
    write(tmp_path / "run.h5")
    with RunFile(tmp_path / "run.h5") as file:
        file.verify()
        assert file.result("cycles") == 12345


def test_atomic_file(tmp_path):
    with atomic_file(tmp_path / "a") as stream:
        stream.write(b"abc")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"abc"
    with pytest.raises(ValueError, match="stop"), atomic_file(tmp_path / "a") as stream:
        stream.write(b"x")
        raise ValueError("stop")
    with pytest.raises(TraceError, match="No space left"), atomic_file(tmp_path / "b"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (tmp_path / "a").read_bytes() == b"abc"
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


def refused(path, message):
    """Assert that reading ends in one `TraceError` with status 2 that names the file; return its text."""
    with pytest.raises(TraceError, match=message) as caught, RunFile(path) as file:
        file.verify()
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_files_that_are_no_run_files(tmp_path):
    assert "none.h5" in refused(tmp_path / "none.h5", "no such file")
    refused(tmp_path, "is not a regular file")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.h5").touch()
    assert refused(tmp_path / "run", "is not a regular file").endswith("Try: " + str(tmp_path / "run/run.h5") + ".")
    (tmp_path / "empty.h5").touch()
    refused(tmp_path / "empty.h5", "is not an HDF5 file")
    (tmp_path / "text.h5").write_text("hello " * 1000)
    refused(tmp_path / "text.h5", "is not an HDF5 file")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    refused(tmp_path / "other.h5", "not a run file of this package")


def changed(path, change):
    """Write a run file and change it with h5py."""
    write(path)
    with h5py.File(path, "r+") as file:
        change(file)


def test_a_newer_major_version_is_refused_and_a_newer_minor_one_is_read(tmp_path):
    changed(tmp_path / "major.h5", lambda file: file.attrs.modify("format_version", np.array([2, 0], np.uint32)))
    refused(tmp_path / "major.h5", r"has format version 2\.0; this version reads up to 1\.x")

    def newer(file):
        file.attrs.modify("format_version", np.array([1, 9], np.uint32))
        file["meta"].attrs["colour"] = np.bytes_(b"green")
        file.create_group("weather")

    changed(tmp_path / "minor.h5", newer)
    with RunFile(tmp_path / "minor.h5") as file:
        file.verify()
        assert file.format_version == (1, 9)
        assert file.extra == {"colour": "green"}
        assert file.meta == META


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.__delitem__("counters"),
        lambda file: file.attrs.__delitem__("format_version"),
        lambda file: file["meta"].attrs.modify("machine", np.bytes_(b"{")),
        lambda file: file["meta"].attrs.modify("config_toml", np.bytes_(b"changed")),
        lambda file: file["meta"].attrs.__setitem__("host", "text of variable length"),
        lambda file: file["results/cycles"].__setitem__((), 12346),
        lambda file: file["counters/busy"].attrs.__delitem__("unit"),
    ],
)
def test_missing_parts_are_damage(tmp_path, change):
    changed(tmp_path / "run.h5", change)
    assert "cut short or changed on disk" in refused(tmp_path / "run.h5", "is damaged")


@pytest.mark.parametrize("place", ["/", "meta", "counters/busy", "results"])
def test_a_note_of_somebody_else_is_no_damage(tmp_path, place):
    changed(tmp_path / "run.h5", lambda file: file[place].attrs.__setitem__("note", "text of variable length"))
    with RunFile(tmp_path / "run.h5") as file:
        file.verify()
        assert file.meta == META
        assert file.extra == {}


def test_a_file_that_another_process_holds_is_not_called_damaged(tmp_path):
    write(tmp_path / "run.h5")
    code = "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "run.h5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        try:
            with RunFile(tmp_path / "run.h5") as file:
                file.verify()
        except TraceError as error:
            assert "is locked: another process has it open for writing" in str(error)
        other.stdin.close()
    with RunFile(tmp_path / "run.h5") as file:
        file.verify()


def test_a_file_cut_short_is_refused(tmp_path):
    write(tmp_path / "run.h5")
    data = (tmp_path / "run.h5").read_bytes()
    for size in (8, 100, len(data) // 3, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.h5").write_bytes(data[:size])
        assert "cut" in refused(tmp_path / "cut.h5", "is damaged|is not an HDF5 file")


def test_changed_data_do_not_pass_their_checksum(tmp_path):
    write(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        info = file["counters/hops"].id.get_chunk_info(0)
    data = bytearray((tmp_path / "run.h5").read_bytes())
    data[info.byte_offset + info.size // 2] ^= 0x10
    (tmp_path / "run.h5").write_bytes(data)
    refused(tmp_path / "run.h5", "is damaged")
    with RunFile(tmp_path / "run.h5") as file:
        assert file.result("cycles") == 12345


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Bytes of a run file and what is in it."""
    path = tmp_path_factory.mktemp("intact") / "run.h5"
    write(path)
    return path.read_bytes(), contents(path)


def contents(path):
    """Return everything that a run file says, as comparable data."""
    with RunFile(path) as file:
        counters = [file.counter(name) for name in file.counters]
        listing = [(c.name, c.unit, c.doc, c.kind, c.window_cycles, c.values.tobytes()) for c in counters]
        return file.meta, listing, [(name, repr(file.result(name))) for name in file.results]


@given(data=st.data())
def test_a_changed_bit_is_refused_or_harmless(intact, tmp_path_factory, data):
    good, expected = intact
    index = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[index] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("bit") / "run.h5"
    path.write_bytes(bad)
    try:
        found = contents(path)
    except TraceError as error:
        assert error.exit_code == 2
    else:
        assert found == expected


def test_a_name_that_is_not_there(tmp_path):
    write(tmp_path / "run.h5")
    with RunFile(tmp_path / "run.h5") as file:
        with pytest.raises(TraceError, match="has no counters/idle. Try: there is busy, hops"):
            file.counter("idle")
        with pytest.raises(TraceError, match="has no results/busy"):
            file.result("busy")
    with pytest.raises(TraceError, match="closed already"):
        file.counter("busy")


@pytest.fixture(scope="module")
def without_locks(tmp_path_factory):
    """A library in front of the system's whose locks fail as those of a mount without locks do."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler is on this machine")
    folder = tmp_path_factory.mktemp("locks")
    libraries = {}
    for name in ("ENOLCK", "EOPNOTSUPP", "EROFS", "EIO"):
        source = folder / f"{name}.c"
        source.write_text(f"#include <errno.h>\nint flock(int fd, int op) {{ errno = {name}; return -1; }}\n")
        libraries[name] = folder / f"{name}.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", libraries[name], source], check=True)
    return libraries


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "EROFS", "EIO"])
def test_a_mount_without_locks_reads_and_writes(tmp_path, child_env, without_locks, error):
    """Whatever the lock says: a file that is whole is read, and a recording is no less than elsewhere."""
    env = child_env | {"LD_PRELOAD": str(without_locks[error])}
    code = "import sys; from harness.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def wse(*words):
        return subprocess.run(
            [sys.executable, "-c", code, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    done = wse("kernel", "chain_reduce", "pes=4", "n=8", "--trace", "full", "--out", "run.h5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = wse("view", "run.h5", "--json")
    assert shown.returncode == 0, shown.stderr
    facts = json.loads(shown.stdout)
    assert facts["complete"]
    assert facts["events"] > 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.h5"]


def test_a_recording_on_a_mount_without_locks_is_kept(tmp_path, child_env, without_locks):
    """Of a training too, which locks its directory."""
    env = child_env | {"LD_PRELOAD": str(without_locks["ENOLCK"])}
    code = "import sys; from harness.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["train", "digits", "--iterations", "1", "--wafers", "1", "--trace", "events", "--out", "t", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with RunFile(tmp_path / "t" / "run.h5") as file:
        assert file.has_events
