"""The version has one home; what names it follows, and formats of files do not."""

from __future__ import annotations

import shutil
import tomllib

import pytest

from tests.conftest import ROOT
from tools.release import version


@pytest.fixture
def tree(tmp_path):
    """The files that name the version, with something that is not released yet."""
    for name in version.PLACES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    log = tmp_path / "CHANGELOG.md"
    text = log.read_text(encoding="utf-8")
    log.write_text(text.replace("## Unreleased\n", "## Unreleased\n\n- Something is better.\n", 1), encoding="utf-8")
    return tmp_path


def test_all_files_name_the_same(capsys):
    assert version.main([]) == 0
    assert len(set(version.named().values())) == 1
    assert capsys.readouterr().out.count("\n") == len(version.PLACES)


def test_it_has_one_home():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "wse_core.__version__"}}


def test_a_new_one_goes_everywhere(tree, capsys):
    before = {name: (tree / name).read_text(encoding="utf-8") for name in version.PLACES}
    old = version.named(tree)["CITATION.cff"]
    assert version.main(["9.8.7"], tree) == 0
    assert set(version.named(tree).values()) == {"9.8.7"}
    log = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## Unreleased\n\n## 9.8.7\n\n- Something is better.\n" in log
    for name in ("wse_core/__init__.py", "CITATION.cff"):
        assert (tree / name).read_text(encoding="utf-8").replace("9.8.7", old) == before[name]


def test_files_that_disagree_are_a_failure(tree, capsys):
    path = tree / "CITATION.cff"
    path.write_text(path.read_text(encoding="utf-8").replace("\nversion: ", "\nversion: 9"), encoding="utf-8")
    assert version.main([], tree) == 1


@pytest.mark.parametrize(
    ("new", "why"), [("0.3", "is no version"), ("v0.3.0", "is no version"), ("0.1.0", "has a section 0.1.0 already")]
)
def test_what_is_refused_changes_nothing(tree, new, why):
    before = version.named(tree)
    with pytest.raises(SystemExit, match=why):
        version.main([new], tree)
    assert version.named(tree) == before


def test_a_release_of_nothing_is_refused(tree):
    path = tree / "CHANGELOG.md"
    path.write_text("# Changes\n\n## Unreleased\n\n## 0.1.0\n\n- All.\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="nothing under Unreleased"):
        version.main(["0.4.0"], tree)


def test_formats_of_files_have_numbers_of_their_own():
    """A release alone leaves every file that was written before readable; who changes a format changes this too."""
    from fabric.csl.artefact import files
    from harness.train import artefact, checkpoint
    from traces.run_format import FORMAT_VERSION

    assert (FORMAT_VERSION, files.FORMAT, checkpoint.VERSION, artefact.VERSION) == ((1, 3), 2, 2, 1)
