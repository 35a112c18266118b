"""The way down word by word: tiers are read ahead of the stream, and nothing is read before it is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.tiers import Tier, Tiers
from swarm.down import Down
from swarm.timing import Links


def word_by_word(read, released, ahead, read_gaps, store_gap, link_gap):
    """Return when words are at the top of the tree: one after the other, in plain Python; `read` per word and tier."""
    gone, bytes_gone = [], []  # when each word left the store, and how many bytes had been gone with it
    tiers = [0.0 for _ in read_gaps]
    store = link = there = 0.0
    total, sent = 0, []
    for sizes, ready in zip(read, released, strict=True):
        total += sum(sizes)
        behind = [at for at, out in zip(gone, bytes_gone, strict=True) if out >= total - ahead]
        before = 0.0 if total <= ahead or not gone else (behind[0] if behind else gone[-1])
        for tier, size in enumerate(sizes):
            if size:
                tiers[tier] = max(released[len(gone)], before, tiers[tier]) + size * read_gaps[tier]
                ready = max(ready, tiers[tier])
        there = max(there, ready)
        store = max(there, store) + store_gap
        gone.append(store)
        bytes_gone.append(total)
        link = max(store, link) + link_gap
        sent.append(link)
    return sent


BYTES = st.sampled_from([0, 0, 4, 4, 12, 100])


@given(
    st.integers(1, 3).flatmap(
        lambda tiers: st.lists(st.tuples(st.tuples(*[BYTES] * tiers), st.integers(0, 500)), min_size=1, max_size=60)
    ),
    st.sampled_from([16, 40, 333]),
)
def test_tiers_are_read_as_far_ahead_as_dram_holds(words, dram):
    """Words of no bytes between those that are read, and words of two tiers: what is not known yet decides nothing."""
    sizes, released = [sizes for sizes, _ in words], np.maximum.accumulate([float(at) for _, at in words])
    gaps = [10.0, 25.0, 3.0][: len(sizes[0])]
    behind = tuple(Tier(f"tier {k}", 1e9, 10**9 / gap) for k, gap in enumerate(gaps))
    tiers = Tiers(dram_bytes=dram, stream_rate=10**9, behind=behind)
    down = Down(Links(planes=1, rate=10**9, buffer=4e9), tiers, np.zeros(1), 10**9)
    down.begin(released, np.array(sizes, np.float64).T)
    down.extend(np.empty(0))
    expected = word_by_word(sizes, released, dram / 2, gaps, 4.0, 32.0)
    np.testing.assert_allclose(down.sent, expected, rtol=0, atol=1e-6)


def test_what_is_not_known_yet_is_not_a_number():
    """Four words fit the buffers: the fifth has no time before room is heard of."""
    down = Down(Links(planes=1, buffer=16), Tiers(), np.zeros(1), 10**9)
    down.begin(np.zeros(6), None)
    down.extend(np.empty(0))
    assert down.known == pytest.approx(4)
    assert np.isnan(down.sent).tolist() == [False] * 4 + [True] * 2
