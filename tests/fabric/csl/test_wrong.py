"""Wrong sources give one clear message at the right place."""

from __future__ import annotations

import pytest

from fabric.csl.diagnostics import CslError
from tests.fabric.csl.sources import compile_texts
from tests.fabric.csl.wrong import LAYOUTS, PE, PROGRAMS

MARK = "¶"


def refusal(directory, marked, **options):
    """Return the errors that a marked source gives, and where the first must be."""
    before = marked[: marked.index(MARK)]
    place = (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
    text = marked.replace(MARK, "")
    with pytest.raises(CslError) as caught:
        compile_texts(directory, {"top.csl": text, "pe.csl": PE}, **options)
    return [entry for entry in caught.value.diagnostics if entry.severity == "error"], place


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_program(tmp_path, name):
    marked, piece = PROGRAMS[name]
    errors, place = refusal(tmp_path, marked)
    assert [(e.span.line, e.span.column, piece in e.message) for e in errors] == [(*place, True)], errors


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_wrong_layout(tmp_path, name):
    marked, piece = LAYOUTS[name]
    errors, place = refusal(tmp_path, marked, max_inlined_iterations=5000)
    assert [(e.span.line, e.span.column, piece in e.message) for e in errors] == [(*place, True)], errors


def test_there_are_many():
    assert len(PROGRAMS) + len(LAYOUTS) >= 150
