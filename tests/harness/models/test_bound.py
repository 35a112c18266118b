"""The bound of logits: its plain side is the plain decoder, and it says something about the shipped model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.models.bound import bounded_logits
from harness.models.hub import find_model
from harness.models.plain import PlainDecoder
from tests.examples import examples
from tests.fabric.networks.inference.small_models import decoders, random_weights, rounded
from wse_core.formats import Arithmetic
from wse_core.params import machine


@examples(30)
@given(decoder=decoders(), seed=st.integers(0, 99), dtype=st.sampled_from(["f16", "cb16"]))
def test_logits_are_the_plain_decoders(decoder, seed, dtype):
    """The numbers whose errors are followed are those of plain numpy; the coarser format has the larger bound."""
    weights, ids = rounded(random_weights(decoder, seed), dtype), [seed % decoder.vocabulary, 1, 0, 1]
    logits, bound = bounded_logits(decoder, weights, ids, dtype, 9)
    plain = PlainDecoder(decoder, weights, np.float64).forward(ids)
    assert np.abs(logits - plain).max() <= 1e-9 * (1 + np.abs(plain).max())
    assert (bound > 0).all()
    other = bounded_logits(decoder, weights, ids, "cb16" if dtype == "f16" else "f16", 9)[1]
    assert (other < bound).any() == (dtype == "cb16")


@pytest.mark.parametrize(("dtype", "share"), [("f16", 0.05), ("cb16", 0.1)])
def test_the_bound_says_something(dtype, share):
    """For the shipped model it is a small part of the range of the logits, and errors of 16-bit numbers are below."""
    model = find_model("pydoc")
    weights, _ = model.rounded(Arithmetic.of(machine(), dtype))
    ids = model.tokenizer().encode("An exception object is a subscription of")
    logits, bound = bounded_logits(model.decoder, weights, ids, dtype, 16)
    assert bound.max() < share * np.ptp(logits)
