"""What a directory compiles, and what its programs use."""

from __future__ import annotations

import re
import tomllib

import pytest

from fabric.csl.census import take
from fabric.csl.comptime.session import LIBRARY, Options
from fabric.csl.projects import find_projects, parse_params
from tests.conftest import ROOT
from tests.fabric.csl.test_programs import PROGRAMS
from tools.docs import csl
from wse_core.errors import ConfigError

SCRIPT = """#!/usr/bin/env bash
set -e
cslc --arch=wse2 ./layout.csl --fabric-dims=11,3 --fabric-offsets=4,1 \\
  --params=width:3 --params n:8 -o out --memcpy --channels=1 --import-path ../shared
cslc --arch=wse3 ./layout.csl --params=width:5,n:8
cslc ./layout.csl --params=width:$1
cs_python run.py --name out
"""


def tree(directory):
    """Make a tree of programs with scripts, one that does not check and one that does not parse."""
    for name in ("chain", "fifo"):
        for path in (PROGRAMS / name).iterdir():
            (directory / name).mkdir(exist_ok=True)
            (directory / name / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (directory / "chain" / "commands.sh").write_text(SCRIPT, encoding="utf-8")
    (directory / "broken.csl").write_text("const a = ;\n", encoding="utf-8")
    (directory / "wse3.csl").write_text(
        "layout { @set_rectangle(1, 1); @set_tile_code(0, 0); }\n"
        "task t() void { @get_sr(2); }\n"
        "comptime { @bind_local_task(t, @get_local_task_id(8)); }\n",
        encoding="utf-8",
    )
    return directory


def test_scripts_say_what_is_compiled_and_how(tmp_path):
    found = find_projects(tree(tmp_path), Options(import_paths=("mine",)))
    assert [project.path.relative_to(tmp_path).as_posix() for project in found] == [
        "chain/layout.csl",
        "chain/layout.csl",
        "fifo/layout.csl",
        "wse3.csl",
    ]
    assert [project.options.arch for project in found] == ["wse2", "wse3", "wse2", "wse2"]
    options = found[0].options
    assert (options.params, options.fabric) == ({"width": 3, "n": 8}, (11, 3))
    assert [path.split("/")[-1] for path in options.import_paths] == ["mine", "shared"]


def test_a_census(tmp_path):
    found = take(tree(tmp_path))
    assert (found.files, len(found.unparsed)) == (5, 1)
    assert [(path.name, [entry.message for entry in errors]) for path, errors in found.programs] == [
        ("layout.csl", []),
        ("layout.csl", []),
        ("layout.csl", []),
        ("wse3.csl", ["@get_sr exists on WSE-3 only, and is not modelled; guard it with @is_arch"]),
    ]
    assert found.uses["@bind_local_task"] == 3
    assert found.files_with["@set_tile_code"] == 3
    assert found.uses["fabin_dsd.input_queue"] == 2
    assert found.uses["<memcpy/memcpy>"] == 1
    assert found.uses["option async"] == 2
    assert list(found.missing) == ["@get_sr"]
    text = found.as_text()
    assert "5 files" in text
    assert re.search(r"@get_sr +1 +1  exists on WSE-3", text)
    assert "broken.csl:1:11: ';' does not fit here" in text
    assert found.as_dict()["features"]["@get_sr"]["missing"].startswith("exists on WSE-3")


def test_a_directory_without_programs_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no CSL file"):
        take(tmp_path)


@pytest.mark.parametrize("word", ["a", "a=1", "a:x", ":1", "1a:2"])
def test_wrong_params(word):
    with pytest.raises(ConfigError, match="no param"):
        parse_params([word])


def test_params():
    assert parse_params(["a:1,b:0x10", "c:-3"]) == {"a": 1, "b": 16, "c": -3}


def test_the_page_has_the_tables_of_the_source(tmp_path, capsys):
    path = ROOT / csl.PAGE
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- begin (\w+) -->", text)) == set(csl.TABLES)
    assert csl.fill(text) == text, "python -m tools.docs.csl"
    page = tmp_path / "csl.md"
    page.write_text("<!-- begin refused -->\nold\n<!-- end refused -->\n", encoding="utf-8")
    assert csl.main(["--check", str(page)]) == 1
    assert "behind" in capsys.readouterr().err
    assert csl.main([str(page)]) == csl.main(["--check", str(page)]) == 0


def test_every_module_of_the_library_says_what_it_is():
    for path in LIBRARY.rglob("*.csl"):
        assert path.read_text(encoding="utf-8").startswith("// "), path


def test_a_wheel_carries_grammar_and_library():
    """The library's directories are no packages, so their files must be named to the build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    data = project["tool"]["setuptools"]["package-data"]
    assert "*.lark" in data["*"]
    packed = {path for pattern in data["fabric.csl"] for path in LIBRARY.parent.glob(pattern)}
    assert packed == set(LIBRARY.rglob("*.csl"))
    assert "*.lark *.csl" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
