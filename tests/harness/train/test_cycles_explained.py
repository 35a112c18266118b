"""The sentence beside the cycles of a run says what its numbers say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.facts import cycles_explained, summary
from tests.examples import examples
from tests.harness.train.blobs import run, write
from traces.trace import Trace

COUNT = st.integers(1, 10**9)


@examples(50)
@given(
    job=st.sampled_from(["train a.toml", "kernel gemv"]),
    cycles=COUNT,
    account=COUNT,
    whole=st.one_of(st.none(), COUNT),
    tests=st.integers(0, 10**6),
    done=st.integers(0, 50),
    busy=st.floats(0, 1),
)
def test_every_number_follows_from_the_facts(job, cycles, account, whole, tests, done, busy):
    results = {"run_cycles": whole, "test_cycles": tests, "from_iteration": done}
    facts = {"job": job, "cycles": cycles, "accounted": account, "results": results, "uses": {"busy": busy}}
    said = cycles_explained(facts)
    if account == cycles:
        assert said == ""
        return
    assert f"{cycles:,} cycles" in said
    assert f"{account:,} cycles high" in said
    assert f"at work in {busy:.1%} of them" in said
    trained = job.startswith("train")
    assert (f"{tests:,} of them in tests" in said) == trained
    assert ("earlier run" in said) == bool(trained and done)
    before = cycles if trained or whole is None else whole
    assert ("one cycle after it is" in said) == (account == before + 1)
    assert (f"{account - before:,} more" in said) == (account > before + 1)
    assert (f"{before - account:,} fewer" in said) == (account < before)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", ["", "--set train.evaluate=2"])
def test_a_training_says_its_own_tests_and_work(capsys, words):
    write(iterations=4, interval=0)
    result = run(capsys, f"a.toml {words}")[1]
    with Trace.open("runs/a/run.h5") as trace:
        facts = summary(trace)
    said = cycles_explained(facts)
    assert f"{result['cycles']:,} cycles are those of the whole system" in said
    assert f"{result['test_cycles']:,} of them in tests" in said
    assert f"at work in {facts['uses']['busy']:.1%} of them" in said
