"""The way down word by word: flash is read ahead of the stream, and nothing is read before it is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.tiers import Tiers
from swarm.down import Down
from swarm.timing import Links


def word_by_word(sizes, released, ahead, flash_gap, store_gap, link_gap):
    """Return when words are at the top of the tree: one after the other, in plain Python."""
    gone, bytes_gone = [], []  # when each word left the store, and how many bytes had been gone with it
    flash = store = link = there = 0.0
    total, sent = 0.0, []
    for size, ready in zip(sizes, released, strict=True):
        total += size
        if size:
            behind = [at for at, out in zip(gone, bytes_gone, strict=True) if out >= total - ahead]
            before = 0.0 if total <= ahead or not gone else (behind[0] if behind else gone[-1])
            ready = flash = max(ready, before, flash) + size * flash_gap
        there = max(there, ready)
        store = max(there, store) + store_gap
        gone.append(store)
        bytes_gone.append(total)
        link = max(store, link) + link_gap
        sent.append(link)
    return sent


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 4, 4, 12, 100]), st.integers(0, 500)), min_size=1, max_size=60),
    st.sampled_from([16, 40, 333]),
)
def test_flash_is_read_as_far_ahead_as_dram_holds(words, dram):
    """Words of no bytes between those that are read too: what is not known yet decides nothing."""
    sizes = np.array([size for size, _ in words], np.float64)
    released = np.maximum.accumulate(np.array([at for _, at in words], np.float64))
    tiers = Tiers(dram_bytes=dram, flash_rate=10**8, stream_rate=10**9)
    links = Links(planes=1, rate=10**9, buffer=4e9)
    down = Down(links, tiers, np.zeros(1), 10**9)
    down.begin(released, sizes)
    down.extend(np.empty(0))
    expected = word_by_word(sizes, released, dram / 2, 10.0, 4.0, 32.0)
    np.testing.assert_allclose(down.sent, expected, rtol=0, atol=1e-6)


def test_what_is_not_known_yet_is_not_a_number():
    """Four words fit the buffers: the fifth has no time before room is heard of."""
    down = Down(Links(planes=1, buffer=16), Tiers(), np.zeros(1), 10**9)
    down.begin(np.zeros(6), None)
    down.extend(np.empty(0))
    assert down.known == pytest.approx(4)
    assert np.isnan(down.sent).tolist() == [False] * 4 + [True] * 2
