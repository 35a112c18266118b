"""Arguments of the wrong kind: one typed error that names them, whatever is given where."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from fabric import Fabric, Layout, Program
from wse_core.errors import LayoutError, ProgramError, UnsupportedError, WseError


@pytest.fixture(scope="module")
def fabric():
    """Two PEs with an array and a stream each way."""
    program = Program("main")
    program.array("x", 4, "f32")
    program.input_queue(0, 3)
    with program.task("main"):
        pass
    layout = Layout(2, 1)
    layout.place(program, 0, 0, 2, 1)
    layout.input_stream(0, 0, "N", 3)
    layout.route(3, (0, 0), rx="N", tx="R")
    return Fabric(layout)


@pytest.mark.parametrize("place", [(0.5, 0), ("a", 0), (math.nan, 0), (0, None, 1.5), ([0, 0, 1, 1, 1, 1, 1],), ({},)])
def test_a_place_that_is_none(fabric, place):
    for call in (lambda: fabric.read("x", *place), lambda: fabric.write("x", 1.0, *place)):
        with pytest.raises(LayoutError, match="is no rectangle"):
            call()


@pytest.mark.parametrize("symbol", [None, 3, ["x"]])
def test_a_symbol_that_is_none(fabric, symbol):
    with pytest.raises(LayoutError, match="is no symbol"):
        fabric.read(symbol, 0, 0)


def test_ragged_rows(fabric):
    with pytest.raises(ProgramError, match="write 'x': the values are no array"):
        fabric.write("x", [[1], [2, 3]], 0, 0)
    with pytest.raises(LayoutError, match="send: the values are no array"):
        fabric.send(0, [[1], [2, 3]])


@pytest.mark.parametrize("stream", ["x", None, 0.0, True, -1, 1])
def test_a_stream_that_is_none(fabric, stream):
    for call in (lambda: fabric.send(stream, [1]), lambda: fabric.receive(stream)):
        with pytest.raises(LayoutError, match=r"is no stream|does not exist"):
            call()


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_fabric_is_not_copied(fabric, copier):
    with pytest.raises(UnsupportedError, match="cannot be copied or pickled") as caught:
        copier(fabric)
    assert isinstance(caught.value, WseError)
