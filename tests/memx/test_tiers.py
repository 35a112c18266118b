"""Tiers of the memory service: what fits, and where each layer lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memx.tiers import BEHIND, Tier, Tiers
from wse_core.errors import ConfigError
from wse_core.params import PARAMETERS, machine


@pytest.mark.parametrize(("size", "most"), [("capacity.least", 2 * 10**11), ("capacity.most", 12 * 10**13)])
def test_capacity(size, most):
    tiers = Tiers(behind=(Tier("flash", PARAMETERS[size].value, 1),))
    tiers.check(most, 20)
    with pytest.raises(ConfigError, match="at most"):
        tiers.check(most + 1, 20)


def test_each_tier_has_its_numbers_of_the_machine():
    other = machine("wse2", {"dram.bytes": 7, "stream.rate": 8, "capacity.most": 9, "flash.rate": 10})
    assert Tiers.of(other) == Tiers(7, 8, (Tier("flash", 9, 10),))
    assert Tiers.of(machine()) == Tiers()
    assert [tier.name for tier in Tiers().behind] == list(BEHIND)


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.integers(0, 400),
    st.lists(st.integers(0, 200), min_size=1, max_size=3),
)
def test_layers_fill_one_tier_after_the_other(sizes, dram, rooms):
    """Against the words of the page; a layer that no tier has room for is refused."""
    tiers = Tiers(dram, behind=tuple(Tier(f"tier {k}", room, 1) for k, room in enumerate(rooms)))
    if sum(sizes) <= dram:
        assert tiers.homes(sizes) == [0] * len(sizes)
        return
    rooms = [dram / 2, *rooms]
    try:
        homes = tiers.homes(sizes)
    except ConfigError:
        # Whatever is left out, one after the other, the layers need more than the tiers have.
        wasted = max(sizes) - 1  # of each tier at most: the next layer did not fit
        assert sum(sizes) > sum(rooms) - len(rooms) * wasted
        return
    assert homes == sorted(homes)
    for home, room in enumerate(rooms):
        inside = [size for size, at in zip(sizes, homes, strict=True) if at == home]
        behind = [size for size, at in zip(sizes, homes, strict=True) if at > home]
        assert sum(inside) <= room
        assert not behind or sum(inside) + behind[0] > room


def test_a_layer_for_which_no_room_is_left_is_refused():
    tiers = Tiers(10, behind=(Tier("flash", 20, 1), Tier("disk", 15, 1)))
    assert tiers.homes([5, 12, 8, 15]) == [0, 1, 1, 2]
    with pytest.raises(ConfigError, match="layer 4 of 16 bytes"):
        tiers.homes([5, 12, 8, 16])
