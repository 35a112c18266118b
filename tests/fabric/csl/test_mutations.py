"""Programs made wrong by chance: they compile, or every message names a place; no other exception, no file left."""

from __future__ import annotations

import contextlib
import io
import random

from hypothesis import given
from hypothesis import strategies as st

from harness.sdk.compiler import main
from tests.examples import examples
from tests.fabric.csl.mutations import mutate, programs

SOURCES = programs()


def compile_mutant(directory, seed):
    """Compile one program after a mutation; return exit status and messages."""
    chance = random.Random(seed)
    files, top, params = chance.choice(SOURCES)
    victim = chance.choice(sorted(files))
    for name, text in files.items():
        (directory / name).write_text(mutate(text, chance) if name == victim else text, encoding="utf-8")
    words = [str(directory / top), "--max-inlined-iterations=5000", "-o", str(directory / "out")]
    if params:
        words.append("--params=" + ",".join(f"{name}:{value}" for name, value in params.items()))
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        status = main(words)
    return status, messages.getvalue()


@examples(60)
@given(seed=st.integers(0, 1 << 32))
def test_mutants_compile_or_are_refused(tmp_path_factory, seed):
    directory = tmp_path_factory.mktemp("mutant")
    status, messages = compile_mutant(directory, seed)
    if status:
        assert status == 1
        assert ": error: " in messages, messages
        assert not (directory / "out").exists()
    assert "Traceback" not in messages
