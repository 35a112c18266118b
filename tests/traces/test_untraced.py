"""The modules that run when nothing is recorded have no trace of tracing in their code."""

from __future__ import annotations

import re
import shutil
from collections import Counter

import pytest

from tests.bench import untraced
from tests.examples import few
from wse_core import _build_info

COMPARED = few(("wse_core.router", *(name for name in untraced.ROOMS if name != "wse_core.router")), 1)
"""Rooms whose instructions are compared one by one: the one in which most is reported comes first."""

pytestmark = [pytest.mark.packaging, pytest.mark.skipif(_build_info.MODE != "release", reason="optimised code only")]


@pytest.mark.parametrize("name", untraced.ROOMS)
def test_every_condition_of_an_untraced_room_is_a_literal_zero(name, tmp_path):
    """What the compiler gets from `make build` is ``if (0)`` wherever the source says ``if TRACE:``, and ``if (1)`` in
    the other copy.  Without those blocks the source is one that has never heard of tracing.
    """
    package, _, room = name.partition(".")
    found = untraced.choices(untraced.built(name, tmp_path / "left")[0])
    source = (untraced.ROOT / package / f"{room}.pyx").read_text(encoding="utf-8")
    assert len(found) >= len(re.findall(r"^ *if TRACE:", source, re.MULTILINE)) > 0
    assert set(found) == {"if (0) {"}
    traced = untraced.built(f"{package}.traced_{room}", tmp_path / "right")[0]
    assert set(untraced.choices(traced, "-DWSE_TRACE=1")) == {"if (1) {"}


def test_only_what_a_room_stands_on_makes_it_older_than_its_sources():
    """A change elsewhere leaves what `make build` made as it is, and so does this test."""
    names = {path.name for path in untraced.sources_of("wse_core.router")}
    assert {"router.pyx", "router.pxd", "records.pxd", "constants.pxd"} <= names
    assert names.isdisjoint({"traced_router.pyx", "vecop.pxd", "vector.h"})
    assert "vector.h" in {path.name for path in untraced.sources_of("wse_core.vector")}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_untraced_code_is_that_of_a_source_without_tracing(tmp_path):
    """What `make build` left has the functions and the instructions of a source without tracing.

    Where a variable lies may differ, in a register or on the stack, which is one `mov` in a thousand instructions more
    or less; what is done, and how often, may not.
    """
    without = untraced.translated(COMPARED, tmp_path, untraced.without_tracing)
    for name in COMPARED:
        real = untraced.functions(untraced.built(name, tmp_path / name)[1])
        bare = untraced.functions(untraced.compiled(without[name], tmp_path))
        assert set(real) == set(bare)
        assert sum(map(len, real.values())) > 1000
        for function in real:
            if not function.startswith("__pyx_pymod_exec"):
                ours, theirs = kinds(real[function]), kinds(bare[function])
                moves = abs(ours.pop("mov", 0) - theirs.pop("mov", 0))
                assert ours == theirs, function
                assert moves <= ours.total() / 1000, function
        differing = [function for function in real if real[function] != bare[function]]
        assert len(differing) <= 2, differing


def kinds(lines):
    """Return how often each instruction stands there; padding between loops is none."""
    words = [line.split()[0] for line in lines if line]
    return Counter(word for word in words if not word.startswith(("nop", "xchg", "data16", "cs")))
