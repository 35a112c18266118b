"""Training by weight streaming: any number of wafers, bits that repeat, checkpoints, masks that change."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from harness.train import sparsity
from harness.train.config import parse_train
from harness.train.plain import PlainTrainer
from harness.train.trainer import Trainer
from tests.examples import few
from wse_core.errors import CheckpointError, ConfigError, TrainingError

TEXT = """
wafers = {wafers}
seed = 3
[network]
inputs = 12
layers = [{{outputs = 10, activation = "{activation}", norm = {norm}}}, {{outputs = 4}}]
[data]
source = "{source}"
batch = 16
[mesh]
width = 3
height = 2
[train]
iterations = {iterations}
dtype = "{dtype}"
optimizer = {{name = "adam", lr = 0.01}}
{loss_scale}
[sparsity]
density = {density}
{schedule}
[csconfig]
use_cbfloat16 = {cb16}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A small separable problem as .npz."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4, 12))
    labels = rng.integers(0, 4, 200)
    samples = (centres[labels] + 0.3 * rng.standard_normal((200, 12))).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(path, x_train=samples[:160], y_train=labels[:160], x_test=samples[160:], y_test=labels[160:])
    return path


def trainer(
    source,
    wafers=1,
    iterations=20,
    activation="relu",
    norm=False,
    dtype="f16",
    density=1.0,
    schedule="",
    loss_scale="",
    machine="",
):
    text = TEXT.format(
        source=source,
        wafers=wafers,
        iterations=iterations,
        activation=activation,
        norm=str(norm).lower(),
        dtype=dtype,
        density=density,
        schedule=schedule,
        loss_scale=loss_scale,
        cb16=str(dtype == "cb16").lower(),
    )
    return Trainer(parse_train(text + machine))


def weights(found):
    """Return all FP32 parameters of a trainer as one vector."""
    return np.concatenate([parameter.dense.reshape(-1) for parameter in found.parameters])


def train(found, iterations=20):
    return [found.step() for _ in range(iterations)]


@pytest.mark.parametrize(("activation", "norm", "dtype"), few([("relu", False, "f16"), ("gelu", True, "cb16")], 1))
def test_any_number_of_wafers_gives_the_same_weights(source, activation, norm, dtype):
    """1, 2, 4 and 8 wafers agree in FP32 after 20 iterations: only the order of additions differs."""
    runs = {wafers: trainer(source, wafers, activation=activation, norm=norm, dtype=dtype) for wafers in (1, 2, 4, 8)}
    steps = {wafers: train(run) for wafers, run in runs.items()}
    start = weights(trainer(source, activation=activation, norm=norm, dtype=dtype))
    moved = np.abs(weights(runs[1]) - start).max()
    assert moved > 0.05
    for wafers in (2, 4, 8):
        assert np.abs(weights(runs[wafers]) - weights(runs[1])).max() < 0.02 * moved
        assert steps[wafers][-1].loss == pytest.approx(steps[1][-1].loss, rel=1e-2)
    # One copy of the weights leaves, one of the gradients comes back, whatever the number of wafers.
    assert len({(step.words, step.gradient_words) for run in steps.values() for step in run}) == 1


@pytest.mark.parametrize(
    ("activation", "norm", "dtype", "density"),
    few([("gelu", True, "f16", 0.5), ("relu", True, "cb16", 0.5), ("relu", False, "f16", 1.0)], 2),
)
def test_weights_equal_those_of_numpy_bit_for_bit(source, activation, norm, dtype, density):
    """20 iterations on four wafers against numpy in the order of additions of wafers and tree; and plain numpy."""
    options = {"activation": activation, "norm": norm, "dtype": dtype, "density": density, "iterations": 20}
    run = trainer(source, 4, **options)
    exact = Trainer(run.config, backend="numpy")
    plain = PlainTrainer(run.config)
    start = weights(run)
    steps, expected, others = train(run, 20), train(exact, 20), train(plain, 20)
    assert [step.loss for step in steps] == [step.loss for step in expected]
    assert np.array_equal(weights(run).view(np.uint32), weights(exact).view(np.uint32))
    moved = np.abs(weights(run) - start).max()
    distance = max(np.abs(plain.weights[p.name].reshape(-1) - p.dense.reshape(-1)).max() for p in run.parameters)
    assert distance < 0.03 * moved
    assert [step.loss for step in others] == pytest.approx([step.loss for step in steps], abs=0.01)


def test_the_same_run_gives_the_same_bits(source):
    first, second = (trainer(source, 4) for _ in range(2))
    assert [(a.loss, a.cycles) for a in train(first, 8)] == [(b.loss, b.cycles) for b in train(second, 8)]
    assert np.array_equal(weights(first).view(np.uint32), weights(second).view(np.uint32))


def test_training_learns(source):
    run = trainer(source, 2, iterations=60)
    steps = train(run, 60)
    assert steps[-1].loss < 0.2 * steps[0].loss
    assert run.evaluate(run.dataset.x_test, run.dataset.y_test) > 0.95
    seconds = [step.simulated_seconds for step in steps]
    assert np.all(np.diff(seconds) > 0)
    assert seconds[-1] == pytest.approx(sum(step.cycles for step in steps) / 0.85e9)


@pytest.mark.parametrize("wafers", [1, 2])
def test_going_on_from_a_state_gives_the_same_bits(source, wafers):
    """State after 7 iterations, taken by another trainer, ends as the uninterrupted run does."""
    whole, first, second = (trainer(source, wafers, density=0.6) for _ in range(3))
    train(whole, 15)
    train(first, 7)
    tensors, state = first.state()
    second.step()  # something to overwrite
    second.restore({name: values.copy() for name, values in tensors.items()}, state)
    steps = train(second, 8)
    assert steps[-1].iteration == whole.iteration == 15
    assert np.array_equal(weights(whole).view(np.uint32), weights(second).view(np.uint32))
    for a, b in zip(whole.parameters, second.parameters, strict=True):
        for slot in a.state:
            assert np.array_equal(a.state[slot], b.state[slot])
        assert a.pattern == b.pattern
    assert whole.cycles == second.cycles


def test_a_state_that_does_not_fit_changes_nothing(source):
    run = trainer(source)
    run.step()
    before, (tensors, state) = weights(run), run.state()
    for change in ({"layer1.weight": tensors["layer1.weight"][:3]}, {"other": np.zeros(3)}):
        with pytest.raises(CheckpointError, match=r"layer1\.weight|other"):
            run.restore(tensors | change, state | {"iteration": 5})
    with pytest.raises(CheckpointError, match="other training data, batch or seed"):
        run.restore(tensors, state | {"data": state["data"] | {"seed": 9}})
    assert run.iteration == 1
    assert np.array_equal(weights(run), before)


def test_an_overflow_is_skipped_and_the_scale_halved(source):
    run = trainer(source, loss_scale="loss_scale = {initial = 32768.0}")
    run.matrices[1].dense *= 3e4  # gradients of the first layer leave the range of f16
    run.matrices[1].refresh()
    before = weights(run)
    step = run.step()
    assert step.skipped
    assert run.loss_scale.value == step.scale / 2
    assert np.array_equal(weights(run), before)


@pytest.mark.parametrize(
    ("schedule", "densities"),
    [
        ('schedule = "static"', [0.5, 0.5]),
        ('schedule = "pruning"\nrounds = 1\nfraction = 0.5', [0.5, 0.25]),
        ('schedule = "dense-finetune"', [0.5, 1.0]),
    ],
)
def test_masks_follow_their_schedule(source, schedule, densities):
    """Masks change at the begin of a phase only; so does the transposed index, and cycles follow the nonzeros."""
    run = trainer(source, density=0.5, schedule=schedule, iterations=10, machine='\n[memx]\ndense_rows = "steps"\n')
    steps, masks = [], []
    for _ in range(10):
        steps.append(run.step())
        masks.append([parameter.pattern.mask()[:, :-1] for parameter in run.matrices])
    for half, density in zip((masks[:5], masks[5:]), densities, strict=True):
        for found in half:
            for mask, first in zip(found, half[0], strict=True):
                assert mask.sum() == round(density * mask.size)
                assert np.array_equal(mask, first)
    changes = int(densities[0] != densities[1])
    assert [parameter.transposes for parameter in run.matrices] == [0, 1 + changes]
    if densities[1] != densities[0]:
        first, last = (step.cycles - step.boundary for step in (steps[0], steps[-1]))
        assert (last < first) == (densities[1] < densities[0])
    for parameter in run.matrices:  # what does not exist is not touched
        if densities[1] < 1:
            assert not np.any(parameter.state["m"][~parameter.pattern.mask()] != 0) or densities[0] > densities[1]


def test_wide_sparse_layers_have_as_many_weights_as_the_plain_network(source):
    run = trainer(source, density=0.25, schedule='schedule = "sparse-ift"')
    assert run.network.features == (12, 20, 4)
    counts = [parameter.pattern.mask()[:, :-1].sum() for parameter in run.matrices]
    assert counts == [120, 40]
    assert train(run, 3)[-1].macs > 0


def test_logits_that_are_not_finite_name_their_layer(source):
    run = trainer(source)
    run.step()
    run.matrices[1].dense[:] = 6e4
    run.matrices[1].refresh()
    with pytest.raises(TrainingError, match=r"iteration 2, layer 2: the loss is (nan|inf)"):
        run.step()


def test_a_network_that_does_not_fit_is_refused_when_compiled(source):
    run = trainer(source)
    assert run.system is None
    run.compile()
    with pytest.raises(ConfigError, match="does not divide"):
        trainer(source, wafers=16)


@pytest.mark.parametrize("wafers", few([2, 1], 1))
def test_a_run_that_goes_on_reports_the_cycles_of_an_uninterrupted_one(source, wafers):
    """A trainer that was never used goes on from a state, or from a state that was damaged not at all."""
    changed = "\n[machine]\nupdate.rate = 20_000_000\nlink.buffer = 512\n"  # a buffer that is full, updates in a queue
    whole, first, second = (trainer(source, wafers, density=0.6, machine=changed) for _ in range(3))
    expected = train(whole, 7)
    train(first, 3)
    tensors, state = first.state()
    tensors, state = {name: values.copy() for name, values in tensors.items()}, json.loads(json.dumps(state))
    assert any(len(values) for name, values in tensors.items() if name.startswith("clock."))
    for damage in ({"clock": None}, {"clock": state["clock"] | {"ended": 3}}):
        with pytest.raises(CheckpointError, match="clock"):
            second.restore(tensors, state | damage)
    with pytest.raises(CheckpointError, match="clock knows 3 weights"):
        second.restore(tensors | {"clock.new.layer1.weight": np.zeros(3)}, state)
    second.restore(tensors, state)
    steps = train(second, 4)
    facts = ("iteration", "cycles", "boundary", "simulated_seconds", "loss")
    assert [[getattr(a, f) for f in facts] for a in steps] == [[getattr(b, f) for f in facts] for b in expected[3:]]
    assert second.cycles == whole.cycles


def test_tests_take_their_time(source, monkeypatch):
    """Held-out samples come in, wafers count the right ones: the clock goes on, and training goes on after it."""
    run, other = trainer(source, 2), trainer(source, 2)
    train(run, 2), train(other, 2)
    before = run.cycles
    with monkeypatch.context() as patch:
        blind = np.zeros((4, 16), np.uint16)
        patch.setattr(type(run.system), "logits", lambda _: blind)  # who counts does not look into the wafers
        x, classes = run.dataset.x_test, range(4)
        shares = [run.evaluate(x, np.full(len(x), label)) for label in classes]  # 40 samples, 16 at a time
    assert max(shares) < sum(shares) == pytest.approx(1)  # each sample is of one class
    assert run.test_cycles == run.cycles - before
    forward = run.system.unhindered("test").cycles
    assert run.test_cycles >= 4 * 3 * (forward + 2)
    a, b = run.step(), other.step()
    assert a.simulated_seconds - b.simulated_seconds == pytest.approx((a.cycles - b.cycles + run.test_cycles) / 0.85e9)
    assert a.boundary < b.boundary  # new weights came meanwhile
    assert np.array_equal(weights(run), weights(other))


@pytest.mark.parametrize("wafers", [1, 2])
def test_held_out_samples_are_counted_by_wafers_and_have_a_loss(source, wafers):
    """The wafers' count is that of their logits; the loss is that of plain numpy but for rounding."""
    run = trainer(source, wafers)
    plain = PlainTrainer(run.config)
    train(run, 5), train(plain, 5)
    x, y = run.dataset.x_test, run.dataset.y_test
    found, other = run.test(x, y), plain.test(x, y)
    assert found.accuracy == other.accuracy
    assert found.loss == pytest.approx(other.loss, rel=1e-2)
    logits = plain.model.forward(plain._active(), x).astype(np.float64)
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    assert other.loss == pytest.approx(expected.mean())
    assert run.test(x[:0], y[:0]) == (0, 0)


def test_no_wafer_runs_on_after_an_interruption(source, monkeypatch):
    """Who catches it may read or end what the wafers use."""
    run, ended = trainer(source, 2), []
    run.compile()

    def fail(horizon):
        raise KeyboardInterrupt

    def work(horizon):
        time.sleep(0.2)
        ended.append(horizon)

    monkeypatch.setattr(run.system.ports[0], "advance", fail)
    monkeypatch.setattr(run.system.ports[1], "advance", work)
    with pytest.raises(KeyboardInterrupt):
        run.step()
    seen = len(ended)
    time.sleep(0.3)
    assert len(ended) == seen  # ended before, or never begun


def test_what_the_service_keeps_in_flash_lies_in_files(source, tmp_path):
    """Weights, moments and cycles are those of a run in memory; only what exceeds DRAM is mapped; nothing is left."""
    small = "\n[memx]\ndram.bytes = 3000\nflash.rate = 10_000_000\n"
    memory, files = trainer(source, machine=small), trainer(source, machine=f"{small}files = '{tmp_path}/flash'\n")
    arrays = [array for matrix in files.matrices for array in (matrix.dense, *matrix.state.values())]
    assert len(arrays) == 6
    assert all(isinstance(array, np.memmap) for array in arrays)
    assert files.compile().service.lies.tolist() == [[True, True]]
    plenty = trainer(source, machine=f"\n[memx]\nfiles = '{tmp_path}/flash'\n")
    assert not any(isinstance(matrix.dense, np.memmap) for matrix in plenty.matrices)
    steps = [train(run, 3) for run in (memory, files)]
    assert [step.cycles for step in steps[0]] == [step.cycles for step in steps[1]]
    assert files.system.bottleneck == "flash"
    assert np.array_equal(weights(memory), weights(files))
    assert list((tmp_path / "flash").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        trainer(source, machine=f"{small}files = '{tmp_path}/file/flash'\n")


def test_a_disk_without_room_is_said_before_training(source, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(ConfigError, match="cannot be mapped: No space left"):
        trainer(source, machine=f"\n[memx]\ndram.bytes = 10\nfiles = '{tmp_path}'\n")


def test_dense_rows_go_out_in_pairs_and_change_no_bit(source):
    """Half of the words for weights, a request per row; the same weights and losses."""
    pairs, steps = (trainer(source, 2, machine=f"\n[memx]\ndense_rows = '{form}'\n") for form in ("pairs", "steps"))
    found = [train(run, 4) for run in (pairs, steps)]
    assert [step.loss for step in found[0]] == [step.loss for step in found[1]]
    assert np.array_equal(weights(pairs), weights(steps))
    assert found[0][-1].words < 0.6 * found[1][-1].words
    assert found[0][-1].gradient_words == found[1][-1].gradient_words


@pytest.mark.parametrize("wafers", [1, 2])
def test_weights_that_are_kept_are_sent_once(source, wafers):
    """LP-09: the same weights and losses, and the words of a transposed last matrix less, at the layer level too."""
    again, kept = (trainer(source, wafers, machine=f"\n[memx]\nkeep_output = {one}\n") for one in ("false", "true"))
    found = [train(run, 4) for run in (again, kept)]
    assert [step.loss for step in found[0]] == [step.loss for step in found[1]]
    assert np.array_equal(weights(again), weights(kept))
    traffic = [run.system.coordinator.script("train").traffic() for run in (again, kept)]
    last, width = again.network.layers[-1], again.system.resident.width
    counts = again.system.resident.plan.layout(again.network.logits).counts
    assert width == len(counts)
    assert traffic[0]["weights"] - traffic[1]["weights"] == 4 * last.inputs * int((-(-counts // 2)).sum())
    assert traffic[0]["gradients"] == traffic[1]["gradients"]


EXCHANGE = "every = 2\nfraction = 0.5\nuntil = 1.0"


@pytest.mark.parametrize("schedule", ["rigl", "set"])
def test_weights_are_exchanged_as_numpy_says(source, schedule, monkeypatch):
    """The smallest go, those with the largest scores come and begin at zero; as many as before, biases among them."""
    run = trainer(source, 2, 8, density=0.5, schedule=f'schedule = "{schedule}"\n{EXCHANGE}')
    known, seen, fresh, exchange = [m.pattern.count for m in run.matrices], [], [], Trainer._exchange

    def watched(self, number, share, gradients):
        matrix, inputs = self.matrices[number], self.network.layers[number].inputs
        weights, mask = matrix.dense[:, :inputs].copy(), matrix.pattern.mask()[:, :inputs]
        if schedule == "rigl":
            assert len(gradients) == matrix.dense.size  # asked for everywhere
            scores = gradients.reshape(matrix.dense.shape)[:, :inputs]
        else:
            assert len(gradients) == matrix.pattern.count
            scores = sparsity.drawn(self.config.sparsity, self.iteration + 1, number, mask.size)
        exchange(self, number, share, gradients)
        expected = sparsity.swapped(weights, mask, share, scores)
        assert np.array_equal(matrix.pattern.mask()[:, :inputs], expected)
        assert matrix.pattern.mask()[:, inputs:].all()
        came = expected & ~mask
        fresh.append(int(came.sum()))
        for array in (matrix.dense, *matrix.state.values()):
            assert not array[:, :inputs][came].any()
        seen.append((self.iteration + 1, number, share))

    monkeypatch.setattr(Trainer, "_exchange", watched)
    steps = train(run, 8)
    assert [(done, number) for done, number, _ in seen] == [(2, 0), (2, 1), (4, 0), (4, 1), (6, 0), (6, 1)]
    assert [share for *_, share in seen[::2]] == pytest.approx([0.25 * (1 + np.cos(np.pi * k / 8)) for k in (2, 4, 6)])
    assert [m.pattern.count for m in run.matrices] == known
    assert sum(fresh) > 10
    dense = sum(m.dense.size for m in run.matrices)
    asked = {2: dense, 4: dense, 6: dense} if schedule == "rigl" else {}
    losses = run.network.features[-1] and 3
    assert [s.gradient_words for s in steps] == [asked.get(k, sum(known)) + losses for k in range(1, 9)]


def test_wafers_and_plain_numpy_exchange_by_one_rule(source):
    """RigL with AdamW and clipping: gradients of places without a weight clip nothing, what comes back keeps its value.

    Before both had one rule, weights were 0.4 of the way that they moved apart, and losses 0.03.
    """
    clipped = {"loss_scale": "clip = 0.5", "schedule": f'schedule = "rigl"\n{EXCHANGE}'}
    run = trainer(source, 2, 12, "gelu", True, "cb16", 0.4, **clipped)
    plain = PlainTrainer(run.config)
    start = weights(run)
    ours, theirs = train(run, 12), train(plain, 12)
    assert [step.loss for step in ours] == pytest.approx([step.loss for step in theirs], abs=2e-4)
    assert [step.norm for step in ours] == pytest.approx([step.norm for step in theirs], rel=1e-3)
    assert max(step.norm for step in ours) > 0.5
    for matrix, other in zip(run.matrices, plain.matrices, strict=True):
        assert np.array_equal(matrix.pattern.mask(), other.pattern.mask())
    assert np.linalg.norm(weights(run) - weights(plain)) < 5e-3 * np.linalg.norm(weights(run) - start)


@pytest.mark.parametrize("make", [Trainer, PlainTrainer])
def test_a_weight_that_goes_and_comes_back_at_once_keeps_its_value(source, make):
    """The smallest weights have the largest gradients: they are given up, and taken again with all they had."""
    config = trainer(source, 1, 8, density=0.5, schedule=f'schedule = "rigl"\n{EXCHANGE}').config
    run = make(config)
    train(run, 1)
    matrix = run.matrices[0]
    mask, before = matrix.pattern.mask(), [array.copy() for array in (matrix.dense, *matrix.state.values())]
    order = np.argsort(np.abs(matrix.dense[:, :12]).reshape(-1) + 10 * ~mask[:, :12].reshape(-1))[:10]
    scores = np.zeros((10, 12), np.float32)
    scores.reshape(-1)[order] = 1.0
    run._exchange(0, 10 / 60, np.concatenate([scores, np.zeros((10, 1), np.float32)], axis=1).reshape(-1))
    assert np.array_equal(matrix.pattern.mask(), mask)
    for array, old in zip((matrix.dense, *matrix.state.values()), before, strict=True):
        assert np.array_equal(array, old)


@pytest.mark.parametrize("schedule", ["rigl", "set"])
def test_a_run_with_exchanges_goes_on_bit_by_bit(source, schedule):
    """Before an exchange, after it, and in numpy's place of the wafers; weights, masks and cycles."""
    options = {"wafers": 2, "iterations": 9, "density": 0.4, "schedule": f'schedule = "{schedule}"\n{EXCHANGE}'}
    whole, numpy = trainer(source, **options), Trainer(trainer(source, **options).config, "numpy")
    first = trainer(source, **options)
    expected = train(whole, 8)
    train(numpy, 8)
    cycles = [step.cycles for step in train(first, 3)]
    for _ in range(2):
        tensors, state = first.state()
        tensors, state = {name: values.copy() for name, values in tensors.items()}, json.loads(json.dumps(state))
        first = trainer(source, **options)
        first.restore(tensors, state)
        cycles += [step.cycles for step in train(first, 1 if len(cycles) == 3 else 4)]
    assert cycles == [step.cycles for step in expected]
    for other in (first, numpy):
        assert np.array_equal(weights(whole), weights(other))
        assert all(a.pattern == b.pattern for a, b in zip(whole.matrices, other.matrices, strict=True))


def test_layers_have_densities_of_their_own(source):
    text = trainer(source, 2, density=0.5).config.text.replace("{outputs = 4}", "{outputs = 4, density = 1.0}")
    run = Trainer(parse_train(text))
    assert [m.pattern.count for m in run.matrices] == [60 + 10, 40 + 4]
    assert run.config.form == "pairs"  # a branch between forms costs more than zeros
    exact = Trainer(run.config, "numpy")
    assert [s.loss for s in train(run, 3)] == [s.loss for s in train(exact, 3)]
    assert np.array_equal(weights(run), weights(exact))


def test_the_accuracy_in_the_log_takes_no_cycle(source, monkeypatch):
    """It is read out of the wafers by the host: without it the clock and the weights are the same."""
    first, second = trainer(source, wafers=2), trainer(source, wafers=2)
    steps = [first.step() for _ in range(3)]
    monkeypatch.setattr(second.compile(), "logits", lambda: np.zeros((4, 16), np.uint16))
    blind = [second.step() for _ in range(3)]
    assert [step.cycles for step in steps] == [step.cycles for step in blind]
    assert [step.loss for step in steps] == [step.loss for step in blind]
    assert steps[-1].accuracy != blind[-1].accuracy
