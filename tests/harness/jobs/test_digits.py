"""Classifying digits: results, files, options, and that nothing is left when it cannot be done."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec

import numpy as np
import pytest

from harness.cli import main as cli
from harness.jobs import default_config, digits, options_of
from harness.jobs.job_file import parse_job
from harness.kit.console import Progress
from traces.reader import RunFile
from wse_core.counters import LINKS
from wse_core.errors import ConfigError

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")

SMALL = 'job = "digits"\n'


def config(text=SMALL, **options):
    lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    return parse_job(text + "\n[options]\n" + "\n".join(lines), "test.toml", options_of)


def work(tmp_path, cfg):
    result = digits.run(cfg, tmp_path, Progress())
    assert result["verified"] is True
    assert result["bit_exact"] is True
    assert result["wavelet_hops"] == result["expected_hops"]
    assert result["macs"] == result["expected_macs"]
    assert result["max_abs_error"] <= result["error_bound"]
    assert result["cycles"] == pytest.approx(result["expected_cycles"], rel=0.03)
    return result


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """The job as it ships, run once."""
    path = tmp_path_factory.mktemp("digits")
    text, name = default_config()
    begun = time.perf_counter()
    result = work(path, parse_job(text, name, options_of))
    return result, path, text, time.perf_counter() - begun


def test_the_default_job(default):
    result, _, _, seconds = default
    assert result["digits"] == 1797
    assert result["accuracy"] > 0.93
    assert result["accuracy_held_out"] > 0.9
    assert result["same_class_as_numpy"] >= 1790
    assert result["useful_macs"] == 1797 * 65 * 10
    assert 0.5 < result["utilisation"] <= 1
    assert 0 < result["host_seconds"] < seconds  # the simulation is a part of the job


def test_the_run_file(default):
    result, path, text, _ = default
    with RunFile(path / "digits.h5") as file:
        file.verify()
        assert file.meta.job == "digits"
        assert file.meta.config_toml == text
        assert file.meta.machine["router.hop"] == 1
        assert file.result("accuracy") == result["accuracy"]
        predicted, labels = file.result("predicted"), file.result("labels")
        assert (np.asarray(predicted) == np.asarray(labels)).mean() == result["accuracy"]
        scores = np.asarray(file.result("scores"))
        assert scores.dtype == np.float32
        assert (scores.argmax(axis=1) == predicted).all()
        assert file.counter("macs").values.sum() == result["macs"]
        busy = file.counter("busy").values
        assert busy.shape == (1, 10, 10)
        assert busy.sum() / (100 * result["cycles"]) == result["utilisation"]
        moved = [file.counter(name) for name in file.counters if name.startswith("moved_color_")]
        assert all(counter.kind == "link" for counter in moved)
        assert sum(int(counter.values.sum()) for counter in moved) == result["wavelet_hops"]
        rows = moved[0].values[0]  # the matrix of images goes along rows
        assert rows[:, :, [LINKS.index("S"), LINKS.index("N")]].sum() == 0
        assert (np.diff(rows[0, :, LINKS.index("W")].astype(int)) > 0).all()


def test_pictures_are_drawn_if_asked_for(default, tmp_path):
    """They would take longer than the simulation; what draws them later is said."""
    assert [item.name for item in default[1].iterdir()] == ["digits.h5"]
    text = digits.report(default[0] | {"files": ["runs/digits.h5"], "total_seconds": 1.0})
    words = text[text.index("wse view") :].split("\n")[0].split()[1:]
    assert words[:2] == ["view", "runs/digits.h5"]
    assert cli.main(["view", str(default[1] / "digits.h5"), *words[2:], "--out", str(tmp_path / "later")]) == 0
    work(tmp_path, config(pictures=True, pes=10))
    names = sorted(item.name for item in tmp_path.iterdir() if item.is_file())
    assert names == [
        "digits.h5",
        *(f"{name}.{kind}" for name in ("traffic_from_west", "utilisation") for kind in ("csv", "png")),
    ]
    for name in names:
        if name.endswith(".png"):
            assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    rows = (tmp_path / "utilisation.csv").read_text().splitlines()
    assert len(rows) == 2 + 10


def test_the_report(default):
    text = digits.report(default[0] | {"files": ["a.h5"], "total_seconds": 1.0})
    for words in ("accuracy", "of 1,797 digits", "10 x 10 PEs of wse2", "bit-exact", "within the derived bound"):
        assert words in text


@pytest.mark.parametrize(
    ("pes", "batch", "dtype", "preset"),
    [
        (4, 0, "f16", "wse2"),
        (3, 700, "cb16", "wse2"),
        (12, 1000, "f16", "wse3"),
        (2, 0, "f16", "wse2"),
        (1, 100, "f16", "wse2"),
    ],
)
def test_other_rectangles_give_the_same_scores(default, tmp_path, pes, batch, dtype, preset):
    """Order and formats decide the bits: the order of sums is the same for every number of PEs and any batches."""
    text = SMALL + f'machine.preset = "{preset}"\n'
    result = work(tmp_path, config(text, pes=pes, batch=batch, dtype=dtype))
    assert result["passes"] == -(-1797 // result["batch"])
    if batch:
        assert result["batch"] == batch
    with RunFile(tmp_path / "digits.h5") as file, RunFile(default[1] / "digits.h5") as other:
        same = np.array_equal(file.result("scores"), other.result("scores"))
    assert same == (dtype == "f16")


def test_progress_and_seed(tmp_path):
    seen = []

    class Watch(Progress):
        def phase(self, text):
            seen.append(text)

        def update(self, done, total=None, **facts):
            seen.append((done, total, facts["cycles"]))

    first = digits.run(config(pes=6, batch=900), tmp_path, Watch())
    assert [item for item in seen if isinstance(item, str)][1].startswith("classify 1797 digits on 6 x 6 PEs, 2 pass")
    assert seen[-2] == (1797, 1797, first["cycles"])
    (tmp_path / "b").mkdir()
    again = digits.run(config("seed = 1\n" + SMALL, pes=6, batch=900), tmp_path / "b", Progress())
    assert again["cycles"] == first["cycles"]
    assert again["accuracy"] != first["accuracy"]


def test_nothing_held_out(tmp_path):
    result = work(tmp_path, config(pes=10, held_out=0.0))
    assert result["accuracy_held_out"] is None
    assert "not measured" in digits.report(result | {"files": [], "total_seconds": 0.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pes": 0}, "options.pes: 0 is too small"),
        ({"dtype": "f32"}, "options.dtype: 'f32' is not a possible value"),
        ({"pixels": 8}, "options.pixels: unknown key"),
        ({"held_out": 1.5}, "options.held_out: 1.5 is too large"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        config(**options)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (SMALL, {"ridge": 0.0}, "options.ridge: the fit of the layer has no unique solution"),
        (SMALL, {"pes": 900}, "options.pes: 900 x 900 PEs exceed the 757 x 996"),
        (
            SMALL,
            {"pes": 2, "batch": 1797},
            r"options.batch: 1797 images at a time do not fit .* 24576 words.*batch = \d+",
        ),
        (SMALL + "machine.mem.words = 512\n", {"pes": 2}, r"options.pes: the layer does not fit into the 512 words"),
    ],
)
def test_impossible_jobs_leave_nothing(tmp_path, monkeypatch, capsys, text, options, message):
    monkeypatch.chdir(tmp_path)
    lines = [f"options.{key} = {json.dumps(value)}" for key, value in options.items()]
    (tmp_path / "job.toml").write_text(text + "\n".join(lines))
    assert cli.main(["run", "job.toml", "--out", "out"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(captured.err.replace("\n", " "))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["job.toml"]


def test_cycle_limit(tmp_path, capsys):
    (tmp_path / "job.toml").write_text(SMALL + "cycle_limit = 1000\n")
    assert cli.main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "out")]) == 1
    assert "still working after 1000 cycles" in capsys.readouterr().err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["job.toml"]


def test_missing_scikit_learn(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"the data set digits needs scikit-learn.*wse-sim\[demo\]"):
        digits.run(config(), tmp_path, Progress())
    assert list(tmp_path.iterdir()) == []


def test_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"] == "digits"
    assert found["verified"] is True
    assert (tmp_path / "runs" / "digits" / "digits.h5").exists()
    assert len(found["files"]) == 1
    assert cli.main(["run"]) == 0
    assert "accuracy" in capsys.readouterr().out
