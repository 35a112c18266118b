"""The script that trains the shipped model, on little, and the shipped model itself: words, not noise."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from fabric.networks.inference.decoder import Decoder
from harness.models.hub import EXAMPLES, find_model
from harness.models.plain import PlainDecoder
from tools.models import training
from tools.models.training import ALPHABET, PYDOC, TrainingSchedule, encode_text, loss_of, texts, train
from wse_core.formats import Arithmetic
from wse_core.params import machine

LITTLE = Decoder(16, 1, 2, 1, 8, 24, len(ALPHABET), 32, tied=True)
FEW = TrainingSchedule(steps=40, windows=4, length=24, warm=5, lr=1e-2)


def test_text_is_of_the_alphabet_and_none_of_it_is_in_both_parts():
    learned, held = texts()
    assert set(learned + held) <= set(ALPHABET)
    assert len(learned) > 10 * len(held) > 10_000  # how many depends on the version of Python: they are its pages
    assert [ALPHABET[token] for token in encode_text(held[:500])] == list(held[:500])
    assert not set(held.split("\n\n")) & set(learned.split("\n\n"))


def test_rate_rises_and_falls():
    schedule = TrainingSchedule(steps=100, warm=10, lr=1.0, lr_end=0.1)
    rates = [schedule.rate(step) for step in range(1, 101)]
    assert rates[9] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


def test_training_learns_and_repeats():
    text = encode_text("the cat sat on the mat and the cat sat on the hat; " * 40)
    losses = [loss for _, loss, _ in train(LITTLE, text, FEW)]
    assert losses[0] == pytest.approx(np.log(96), rel=0.1)
    assert losses[-1] < 0.6 * losses[0]
    assert losses == [loss for _, loss, _ in train(LITTLE, text, FEW)]
    assert losses != [loss for _, loss, _ in train(LITTLE, text, replace(FEW, seed=2))]


def test_the_script_writes_a_model_that_loads(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "PYDOC", replace(PYDOC, layers=1, hidden=16, ffn=16))
    assert training.main([str(tmp_path / "m"), "--steps", "2"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"digest [0-9a-f]{16}\nstep 2: loss \d\.\d{4}, held out \d\.\d{4}\nwrote", out)
    model = find_model(str(tmp_path / "m"))
    assert model.decoder == training.PYDOC
    assert model.tokenizer().encode("a\n") == [ALPHABET.index("a"), 0]
    assert training.main([str(tmp_path / "n"), "--steps", "0"]) == 2
    assert "at least one step" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


@pytest.fixture(scope="module")
def shipped():
    return find_model("pydoc")


def test_the_shipped_model_is_small_and_exact_in_f16(shipped):
    assert shipped.decoder == PYDOC
    assert sum(path.stat().st_size for path in (EXAMPLES / "pydoc").iterdir()) < 500_000
    assert {tensor.dtype for tensor in shipped.tensors.values()} == {"F16"}
    weights, losses = shipped.rounded(Arithmetic.of(machine("wse2"), "f16"))
    assert losses == []
    for name, weight in shipped.weights().items():
        np.testing.assert_array_equal(weights[name], weight)


def test_the_shipped_model_has_learned(shipped):
    """Its texts differ from one version of Python to the next, so the bounds are wide; a uniform guess costs 4.56."""
    learned, held = texts()
    weights = shipped.weights()
    assert loss_of(PYDOC, weights, encode_text(learned), 256, 16) < 1.3
    assert loss_of(PYDOC, weights, encode_text(held), 256, 16) < 1.8


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
@pytest.mark.parametrize("prompt", ['The "for" statement', "The value of the ex", "Return the name of a"])
def test_the_shipped_model_says_words(shipped, prompt, dtype):
    tokenizer = shipped.tokenizer()
    weights, _ = shipped.rounded(Arithmetic.of(machine("wse2"), dtype))
    tokens, _ = PlainDecoder(PYDOC, weights).generate(tokenizer.encode(prompt), 80)
    said = tokenizer.decode(tokens)
    known = set(re.findall(r"[A-Za-z]+", "".join(texts())))
    words = re.findall(r"[A-Za-z]+", (prompt + said)[:-8])[1:]
    assert len(words) >= 8
    assert sum(word in known for word in words) >= 0.75 * len(words), said
