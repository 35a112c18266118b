"""docs/api.md is what the source says, and says something of everything."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tools.docs import api
from wse_core import errors, isa


def page():
    """Return the page of the tree."""
    return (ROOT / api.PAGE).read_text(encoding="utf-8")


def test_the_page_is_current():
    assert api.page() == page(), "python -m tools.docs.api --write docs/api.md"


def test_everything_in_it_is_described():
    """Each heading of a class, function or method is followed by a signature and by words."""
    found = re.findall(r"^####? ([\w.]+)\n\n(?:`[\w.]+`\n\n)?```python\n[^`]+```\n\n(\S)", page(), re.MULTILINE)
    assert [name for name, _ in found] == re.findall(r"^####? (\S+)$", page(), re.MULTILINE)
    assert [name for name, first in found if first in "#`"] == []


def test_what_users_touch_is_in_it():
    headings = set(re.findall(r"^####? (\S+)$", page(), re.MULTILINE))
    assert {"Program", "Layout", "Layout.route", "Fabric", "Fabric.run", "RunResult", "machine", "Kernel"} <= headings
    assert {"Trace", "Trace.events", "Program.task"} <= headings
    for name in (*errors.__all__, *isa.BY_NAME):
        assert f"`{name}`" in page() or name in isa.UNSUPPORTED or not hasattr(errors, name), name


def test_a_page_that_is_behind_is_seen(tmp_path, capsys):
    path = tmp_path / "api.md"
    path.write_text("old", encoding="utf-8")
    assert api.main(["--check", str(path)]) == 1
    assert "is behind the source" in capsys.readouterr().err
    assert api.main(["--write", str(path)]) == 0
    assert api.main(["--check", str(path)]) == 0


def a_function(count, *words, name: str = "x", of: dict[str, int] | None = None, **more) -> list:
    """Return something.

    Parameters
    ----------
    count : int
        How many.
    """


class Owner:
    """A class."""

    def told(self):
        """Say ``something``."""

    def _hidden(self):
        """Say nothing."""


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (
            api.signature("f", a_function),
            '```python\nf(count, *words, name: str = "x", of: dict[str, int] | None = None, **more) -> list\n```',
        ),
        (api.described(a_function.__doc__), ["Return something.", "*Parameters*\n\n- `count` (int): How many."]),
        (api.described(Owner.told.__doc__), ["Say `something`."]),
    ],
)
def test_signatures_and_docstrings(got, wanted):
    assert got == wanted
