"""Tables of routes stand for an array with a record per PE, whatever they keep."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabric import Layout
from fabric.ranks.rows import crosses
from wse_core.image import ROUTE_DTYPE, RouteTable


@st.composite
def records(draw):
    """Arrays of records, few or many of them different, of any bytes."""
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    seed, n = draw(st.integers(0, 1 << 32)), draw(st.integers(1, 400))
    rng = np.random.default_rng(seed)
    kinds = np.frombuffer(rng.bytes(n * ROUTE_DTYPE.itemsize), ROUTE_DTYPE).copy()
    kinds["valid"][rng.random(n) < 0.5] = 0
    return kinds[rng.integers(0, n, (height, width))]


@given(records())
def test_a_table_is_the_array_that_it_was_made_of(array):
    table = RouteTable.of(array)
    assert table.shape == array.shape
    assert table.dtype == array.dtype
    assert np.asarray(table).tobytes() == array.tobytes()
    for name in ROUTE_DTYPE.names:
        assert (table[name] == array[name]).all()
        assert table.count(name) == np.count_nonzero(array[name].reshape(*array.shape, -1).any(-1))
    height, width = array.shape
    for y, x in ((0, 0), (height - 1, width - 1), (height // 2, width // 3)):
        assert table[y, x].tobytes() == array[y, x].tobytes()
        assert table[y].tobytes() == array[y].tobytes()
    some = array["valid"] != 0
    assert table[some].tobytes() == array[some].tobytes()


@given(records(), st.integers(0, 1 << 32), st.integers(0, 4))
def test_another_filter_per_pe_changes_nothing_else(array, seed, most):
    slots = np.random.default_rng(seed).integers(0, most + 1, array.shape).astype(np.uint8)
    table = RouteTable.of(array)
    found = table.filtered(slots)
    assert np.asarray(table).tobytes() == array.tobytes()
    array["filter"] = slots
    assert np.asarray(found).tobytes() == array.tobytes()


def test_more_kinds_than_a_byte_counts():
    array = np.zeros((2, 300), ROUTE_DTYPE)
    array["rx"][:, :, 0] = np.arange(600).reshape(2, 300) % 256
    array["tx"][:, :, 0] = np.arange(600).reshape(2, 300) // 256
    table = RouteTable.of(array)
    assert table.which.dtype == np.uint16
    assert np.asarray(table).tobytes() == array.tobytes()


def test_a_layout_keeps_a_byte_per_pe_and_color():
    layout = Layout(300, 200)
    layout.route(3, (0, 0, 300, 200), rx="W", tx="E")
    layout.route(3, (299, 0), rx="W", tx="S")
    layout.route(3, (299, 1, 1, 199), rx="WN", tx="S")
    layout.output_stream(299, 199, "S", 3)
    spec = layout.build()
    table = spec.routes[3]
    assert table.nbytes <= 300 * 200 + 4 * ROUTE_DTYPE.itemsize
    assert table["tx"][:, -1, 0].tolist() == [8] * 200
    assert crosses(spec, 199)
    assert not crosses(spec, 200)
