"""The modules that run when nothing is recorded have no trace of tracing in their code."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from tests.bench import untraced
from wse_core import _build_info


@pytest.mark.packaging
@pytest.mark.skipif(_build_info.MODE != "release", reason="optimised code only")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("name", untraced.ROOMS)
def test_untraced_code_is_that_of_a_source_without_tracing(name, tmp_path):
    """What `make build` left has the functions and the instructions of a source without tracing.

    Where a variable lies may differ, in a register or on the stack, which is one `mov` in a thousand instructions more
    or less; what is done, and how often, may not.
    """
    real = untraced.functions(untraced.real(name, tmp_path / "real"))
    bare = untraced.functions(untraced.compiled(name, tmp_path / "bare", untraced.without_tracing))
    assert set(real) == set(bare)
    assert sum(map(len, real.values())) > 1000

    def kinds(lines):  # padding between loops is no instruction
        words = [line.split()[0] for line in lines if line]
        return Counter(word for word in words if not word.startswith(("nop", "xchg", "data16", "cs")))

    for function in real:
        if not function.startswith("__pyx_pymod_exec"):
            ours, theirs = kinds(real[function]), kinds(bare[function])
            moves = abs(ours.pop("mov", 0) - theirs.pop("mov", 0))
            assert ours == theirs, function
            assert moves <= ours.total() / 1000, function
    differing = [function for function in real if real[function] != bare[function]]
    assert len(differing) <= 2, differing
