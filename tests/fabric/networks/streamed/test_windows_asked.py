"""Gradients of filters as windows times numbers: where they pay, what they take, and that gaps leave them out."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fabric.networks.graph.windows import Window
from fabric.networks.streamed.operations import gradients
from fabric.networks.streamed.operations.shapes import ConvolutionShape
from memx.pattern import Pattern
from tests.conftest import ROOT
from tests.fabric.networks.test_graphs import Ran
from tests.fabric.networks.test_images import Images
from wse_core.params import machine

NAME = "n0.weight"


def network(channels, kernel=3, groups=1, stride=1, size=6):
    """Return a network of one convolution and a mean over its pixels."""
    built = Images(channels, size, size)
    built.convolution(channels * 2, (kernel, kernel), stride=stride, padding=kernel // 2, groups=groups)
    side = (size - 1) // stride + 1
    built.windowed("avgpool", (side, side), 1)
    return built.network(3)


def cycles_of(network, turned, samples=3, columns=2, mask=None):
    """Run an iteration, bit by bit as the oracle has it; return its cycles and the words of its script."""
    ran = Ran(network, columns, 1, samples, 7, turned=turned)
    if mask is not None:
        ran.coordinator.parameters[0].set_pattern(Pattern.of_mask(mask))
    ran.wafer.load(ran.inputs, ran.labels)
    passed, script = ran.wafer.run(ran.coordinator.streams("train")), ran.coordinator.script("train")
    found = np.zeros(script.offsets[-1] + columns, np.uint32)
    for places, numbers in zip(script.places, passed.numbers, strict=True):
        found[places] = numbers.view(np.uint32)
    assert np.array_equal(found, ran.expected())
    return passed.cycles, script.n_words


@pytest.mark.parametrize(
    ("sizes", "samples"),
    [
        ({}, 1),
        ({}, 3),
        ({}, 8),
        ({}, 11),
        ({"stride": 2}, 4),
        ({"groups": 4}, 2),
        ({"groups": 2}, 3),
        ({"kernel": 5}, 2),
    ],
)
def test_what_was_chosen_takes_no_more_cycles_than_the_other_form(sizes, samples):
    graph = network(4, **sizes)
    names = [tensor.name for tensor in graph.parameters]
    dots, windows, chosen = (cycles_of(graph, turned, samples) for turned in ((), names, None))
    assert chosen[0] == min(dots[0], windows[0])
    assert windows[1] < dots[1]  # a word a row and column instead of one a place


def test_places_of_a_filter_with_gaps_are_asked_for_one_by_one():
    graph = network(4)
    mask = np.random.default_rng(2).random((8, 4 * 9 + 1)) < 0.5
    mask[:, -1] = True
    names = [tensor.name for tensor in graph.parameters]
    (dots, words), (windows, same) = (cycles_of(graph, turned, mask=mask) for turned in ((), names))
    assert words == same
    assert abs(windows - dots) < 0.01 * dots  # a program has more code, and loads what it does not use


def test_more_channels_in_a_column_than_a_command_can_name_stay_dots():
    built = Images(300, 1, 1)
    built.convolution(3, (1, 1))
    graph = built.network(2)
    for width, names in ((1, set()), (2, {NAME})):
        ran = Ran(graph, width, 1, 1, 7)
        assert ran.resident.turned == names
        assert np.array_equal(ran.found(), ran.expected())


def test_one_place_of_one_channel_stays_a_dot():
    shape = ConvolutionShape.of(Window(1, 6, 6, 1, 1), "ask")
    assert not gradients.windows_pay(machine(), "f16", 4, shape, 1)
    assert gradients.windows_pay(machine(), "f16", 4, ConvolutionShape.of(Window(8, 6, 6, 1, 1), "ask"), 8)


def test_planes_too_long_for_a_pe_stay_dots():
    assert not gradients.windows_pay(machine(), "f16", 64, ConvolutionShape.of(Window(1, 40, 40, 3, 3), "ask"), 1)


def test_the_table_of_the_page_has_the_prices_of_the_programs(monkeypatch):
    prices = []

    class Priced(gradients.Pricer):
        """A pricer that remembers what it said."""

        def task(self, *args, **more):
            prices.append(super().task(*args, **more))
            return prices[-1]

    monkeypatch.setattr(gradients, "Pricer", Priced)
    text = (ROOT / "docs" / "weight-streaming.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) samples, (\d) channels?[^|]*\| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(rows) == 3
    for samples, channels, *cycles in rows:
        prices.clear()
        shape = ConvolutionShape.of(Window(int(channels), 8, 8, 3, 3, before=(1, 1), behind=(1, 1)), "ask")
        gradients.windows_pay.__wrapped__(machine(), "f16", int(samples), shape, int(channels))
        dot, windows = (price.alone for price in prices)
        assert [int(cell.replace(",", "")) for cell in cycles] == [9 * int(channels) * dot, windows]
