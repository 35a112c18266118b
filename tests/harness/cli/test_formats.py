"""Pictures of every command come as PNG, SVG or PDF."""

from __future__ import annotations

import json

import pytest

from harness.cli import main as cli
from tests.examples import mixed
from traces.picture import FORMATS

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
SWEEP = """
kernel = "chain_reduce"
[params]
n = [4, 8]
"""


COMMANDS = ["view", "sweep", "plan", "project", "place"]
OTHERS = [form for form in FORMATS if form != "png"]
"""What a command that does not heed the format would not write."""


@pytest.mark.parametrize(("command", "form"), [*mixed(COMMANDS, OTHERS), ("view", "png")])
def test_commands_write_pictures_in_the_format_that_is_asked_for(tmp_path, monkeypatch, capsys, command, form):
    monkeypatch.chdir(tmp_path)
    if command == "view":
        assert cli.main(["kernel", "ping", "--out", "run.h5", "--json"]) == 0
    (tmp_path / "s.toml").write_text(SWEEP, encoding="utf-8")
    words = {
        "view": ["view", "run.h5", "--figure", "heat,stalls", "--out", "o"],
        "sweep": ["sweep", "s.toml", "--processes", "1", "--out", "o"],
        "plan": ["plan", "--figures", "ws3,lga3", "--out", "o"],
        "project": ["train", "digits", "--project", "1", "--out", "o"],
        "place": ["place", "digits", "--picture", f"p.{form}"],
    }[command]
    assert cli.main([*words, *(["--format", form] if command != "place" else []), "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])
    found = [path for path in tmp_path.rglob("*.*") if path.suffix[1:] in FORMATS]
    assert found
    assert {path.suffix[1:] for path in found} == {form}
    assert all(path.read_bytes().startswith(BEGINS[form]) for path in found)


def test_another_suffix_is_refused_before_anything_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["place", "digits", "--picture", "p.jpg"]) == 2
    assert "no picture is written as .jpg" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
