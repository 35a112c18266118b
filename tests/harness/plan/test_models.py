"""Models, hardware and units."""

from __future__ import annotations

import pytest

from harness.plan.hardware import A100, CS2, Link, find_hardware
from harness.plan.models import PRESETS, find_model
from harness.plan.units import GB, GIB, amount, parse_bytes, printed, rounded, span
from wse_core.errors import ConfigError, UnsupportedError


@pytest.mark.parametrize(("name", "gigabytes"), [("llama3-8b", 16.1), ("llama2-13b", 26.0), ("qwen2-72b", 145)])
def test_open_models_have_their_published_size(name, gigabytes):
    assert 2 * PRESETS[name].parameters / 1e9 == pytest.approx(gigabytes, rel=5e-3)


@pytest.mark.parametrize("x", [2, 32, 64, 108, 160])
def test_family_follows_its_closed_form(x):
    model = find_model(f"X{x}")
    assert model.counted == 12 * x**5 + 13 * x**3
    assert model.critical_batch == pytest.approx(81.988 * x ** (2 / 3), rel=1e-4)


@pytest.mark.parametrize("name", ["X3", "X0", "gpt3", "missing.toml"])
def test_unknown_models(name):
    with pytest.raises(ConfigError):
        find_model(name)


def test_a_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("layers = 12\nwidth = 768\nsequence = 512\nheads = 12\n")
    assert find_model(str(path)).core == 12 * 12 * 768**2
    path.write_text("layers = 12\nwidth = 768\nsequence = 512\nheds = 12\n")
    with pytest.raises(ConfigError, match=r"heds.*did you mean heads"):
        find_model(str(path))
    path.write_text("layers = 12\nwidth = 768\nsequence = 512\nheads = 7\n")
    with pytest.raises(ConfigError, match="no multiple of 7 heads"):
        find_model(str(path))
    path.write_text("layers = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        find_model(str(path))
    path.write_text("[network]\ninputs = 64\n")
    with pytest.raises(ConfigError, match=r"describes a training.* Try: wse train \S*toml --project 1"):
        find_model(str(path))


def test_tensors_in_a_file(tmp_path):
    path = tmp_path / "net.toml"
    path.write_text('layers = 2\nwidth = 1\nsequence = 1\n[[tensors]]\nname = "a"\nelements = 10\nparameters = 7\n')
    assert find_model(str(path)).parameters == 7


def test_hardware_from_a_file(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nflops = 1e15\nmemory = "96 GB"\nnode = 8\n[links]\nnetwork = "100 GiB/s"\n')
    own = find_hardware(str(path))
    assert (own.memory, own.links["network"]) == (96 * GB, Link.of_both(100 * GIB))
    with pytest.raises(UnsupportedError, match="no link 'node'"):
        own.threshold("node")
    path.write_text('name = "own"\nflops = 1e15\nmemory = "96"\n')
    with pytest.raises(ConfigError, match="no amount of bytes"):
        find_hardware(str(path))


def test_the_two_gigabytes_are_kept_apart():
    assert parse_bytes("80 GB", "x") == 80e9
    assert parse_bytes("80 GiB", "x") == A100.memory == 80 * 2**30
    assert CS2.memory == 40e9
    assert (amount(80e9), amount(80 * GIB, True)) == ("80 GB", "80 GiB")
    for bad in ("80", "80 GB/s", "GB", "-1 GB", "1..2 GB", 80):
        with pytest.raises(ConfigError):
            parse_bytes(bad, "x")
    with pytest.raises(ConfigError):
        parse_bytes("80 GB", "x", per_second=True)


def test_texts():
    assert [printed(v) for v in (1.2583e12, 403e6, 0.4789, 31.45)] == ["1.26 T", "403 M", "0.479", "31.4"]
    assert rounded(61250.0, 3) == 61200
    assert [span(v) for v in (1, 90, 7200, 86400 * 3, 86400 * 800)] == ["1 s", "1.5 min", "2 h", "3 d", "2.19 y"]
