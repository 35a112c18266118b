"""Arguments of the wrong kind: one typed error that names them, whatever is given where."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from fabric import Fabric, Layout, Program
from fabric.asm.values import encode_array
from wse_core.errors import ConfigError, LayoutError, ProgramError, UnsupportedError, WseError


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


def test_numbers_too_large_for_their_format(fabric):
    """They would be infinite without a word; who means infinity says so."""
    with pytest.raises(ProgramError, match=r"write 'x': 1e\+40 is too large for f32"):
        fabric.write("x", [[1.0, 1e40, math.inf, 0.0]], 0, 0)
    fabric.write("x", [[1.0, math.inf, -math.inf, 3.4e38]], 0, 0)
    assert fabric.read("x", 0, 0).ravel()[:3].tolist() == [1.0, math.inf, -math.inf]
    for dtype, largest in (("f16", 65504.0), ("cb16", 2.0**20)):
        encode_array([largest, math.inf, math.nan], dtype)
        with pytest.raises(ProgramError, match=f"too large for {dtype}"):
            encode_array([1.0, -1e30], dtype)


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


@pytest.mark.parametrize("cycles", [-1, -5, "x", math.nan, math.inf, True, [3]])
def test_cycles_that_are_none(fabric, cycles):
    for call in (fabric.step, fabric.run):
        with pytest.raises(ConfigError, match=r"is no number of cycles|is negative"):
            call(cycles)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_fabric_is_not_copied(fabric, copier):
    with pytest.raises(UnsupportedError, match="cannot be copied or pickled") as caught:
        copier(fabric)
    assert isinstance(caught.value, WseError)
