"""Wafers on other ranks: the values, cycles and errors of a system in one process.

The ranks are threads of this process; `tests/harness/train/test_train_mpi.py` starts processes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.train.config import load_train
from harness.train.trainer import Trainer
from swarm import crew as crews
from swarm.crew import crew, current
from tests.examples import examples
from tests.swarm.test_system import Case
from tests.thread_ranks import on_ranks
from wse_core.errors import DeadlockError, InternalError


def on_crew(size, call):
    """Return what ``call()`` gives on the first of some ranks, the wafers on all."""

    def run(world):
        with crew(world) as first:
            return call() if first else None

    found = on_ranks(size, run)
    assert found[1:] == [None] * (size - 1)
    return found[0]


def facts(iteration):
    """Return all of an `Iteration` but the host's time, gradients as bits."""
    found = dataclasses.asdict(iteration)
    found.pop("host_seconds")
    return found | {"gradients": iteration.gradients.view(np.uint32).tolist(), "loss": float(iteration.loss).hex()}


@examples(8)
@given(
    size=st.integers(1, 4),
    wafers=st.integers(1, 5),
    groups=st.integers(1, 2),
    buffer=st.sampled_from([20, 400, 2**24]),
    seed=st.integers(0, 99),
)
def test_a_system_over_ranks_is_that_of_one_process(size, wafers, groups, buffer, seed):
    """Iterations, classifications and logits; with small buffers a pass takes many exchanges."""
    case = Case((5, 4, 3), 2, 2, 1, wafers=wafers, seed=seed, groups=groups)
    inputs, labels = (np.concatenate(parts, axis=1) for parts in zip(*case.shards, strict=True))

    def run():
        system = case.system({"link.buffer": buffer})
        elsewhere = [not isinstance(port.wafer, crews.Wafer) for port in system.ports]
        found = (
            [facts(system.train(case.shards)) for _ in range(2)],
            system.test(inputs, labels),
            system.logits().tolist(),
        )
        state = system.state()
        system.close()
        return found, elsewhere, str(state)

    found, elsewhere, state = on_crew(size, run)
    expected, _, alone = run()
    assert found == expected
    assert state == alone
    assert elsewhere == [bool(k % size) for k in range(wafers)]
    assert current() is None


def test_training_over_ranks_gives_the_same_weights_and_goes_on_the_same(tmp_path):
    config = load_train("digits", ["wafers=2", "data.batch=32"])

    def train(iterations):
        trainer = Trainer(config)
        steps = [trainer.step() for _ in range(iterations)]
        told = [(step.loss, step.cycles, step.boundary, step.hops) for step in steps]
        return told, trainer.evaluate(trainer.dataset.x_test[:64], trainer.dataset.y_test[:64]), trainer.tensors()

    found, expected = on_crew(2, lambda: train(3)), train(3)
    assert found[:2] == expected[:2]
    assert all(np.array_equal(found[2][name], expected[2][name]) for name in expected[2])


def fails_elsewhere(error):
    """Return what makes the run of wafers on other ranks raise an error."""

    def run(wafers, key, how):
        raise error

    return run


def test_an_error_of_a_wafer_elsewhere_is_raised_on_the_first_rank(monkeypatch):
    """With its type and text; afterwards the ranks still serve."""
    case = Case((4, 3), wafers=2)

    def run():
        system = case.system()
        with monkeypatch.context() as patch:
            patch.setitem(crews._DOES, "run", fails_elsewhere(DeadlockError("nothing can move", cycle=7)))
            with pytest.raises(DeadlockError, match="nothing can move") as caught:
                system.train(case.shards)
            assert caught.value.cycle == 7
            patch.setitem(crews._DOES, "run", fails_elsewhere(ZeroDivisionError("by zero")))
            with pytest.raises(InternalError, match="ZeroDivisionError"):
                case.system().train(case.shards)
        return facts(case.system().train(case.shards))

    assert on_crew(2, run) == facts(case.system().train(case.shards))


def test_an_error_of_the_first_rank_lets_the_others_go():
    def fail():
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        on_crew(3, fail)


def test_an_end_in_the_middle_of_an_exchange_ends_all(monkeypatch, capsys):
    """Ctrl-C where the others wait for the rest of it."""
    case = Case((4, 3), wafers=2)

    def run():
        system = case.system()
        share = current().world.share

        def interrupted(thing):
            share(thing)
            raise KeyboardInterrupt

        monkeypatch.setattr(current().world, "share", interrupted)
        system.train(case.shards)

    with pytest.raises(KeyboardInterrupt):
        on_crew(2, run)
    assert "ended while ranks were at work: KeyboardInterrupt" in capsys.readouterr().err
