"""Networks of images: convolution, pooling, group normalisation; bits, cycles, gradients, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.windows import Window, unfolded, window_of
from fabric.networks.streamed.resident import Resident
from fabric.networks.streamed.wafer import Wafer
from tests.examples import examples
from tests.fabric.networks.test_graphs import Ran
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine


class Images:
    """A network of images that grows by operations."""

    def __init__(self, channels, height, width):
        self.shape, self.nodes, self.at = (channels, height, width), [], "input"
        self.inputs = channels * height * width

    @property
    def features(self):
        return int(np.prod(self.shape))

    def node(self, op, *inputs, **sizes):
        name = f"n{len(self.nodes)}.{op}"
        self.nodes.append(Node(name, op, inputs or (self.at,), sizes))
        self.at = name
        return name

    def windowed(self, op, kernel, stride, padding=None, **more):
        channels, height, width = self.shape
        sizes = {"channels": channels, "height": height, "width": width, "stride": stride}
        sizes |= {"kernel_height": kernel[0], "kernel_width": kernel[1]}
        if padding is not None:
            sizes["padding"] = padding
        self.node(op, **sizes, **more)
        window = window_of(self.nodes[-1], self.features)
        self.shape = more.get("outputs", channels), window.out_height, window.out_width

    def convolution(self, outputs, kernel, stride=1, padding=0, groups=1, bias=1):
        self.windowed("convolution", kernel, stride, padding, outputs=outputs, groups=groups, bias=bias)

    def group_norm(self, groups):
        channels, height, width = self.shape
        self.node("groupnorm", channels=channels, height=height, width=width, groups=groups)

    def network(self, classes, dtype="f16"):
        self.node("linear", inputs=self.features, outputs=classes, bias=1)
        return Network((*self.nodes, Node("loss", "cross_entropy", (self.at,))), self.inputs, dtype)


@st.composite
def networks(draw):
    """Draw a network of images."""
    built = Images(draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(2, 6)))
    for _ in range(draw(st.integers(1, 4))):
        channels, height, width = built.shape
        op = draw(st.sampled_from(["convolution", "convolution", "maxpool", "avgpool", "groupnorm", "relu", "residual"]))
        kernel = draw(st.integers(1, min(3, height))), draw(st.integers(1, min(3, width)))
        if op == "convolution":
            groups = draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0]))
            outputs, padding = groups * draw(st.integers(1, 3)), draw(st.integers(0, min(kernel) - 1))
            built.convolution(outputs, kernel, draw(st.integers(1, 2)), padding, groups, draw(st.integers(0, 1)))
        elif op in ("maxpool", "avgpool"):
            built.windowed(op, kernel, draw(st.integers(1, 3)))
        elif op == "groupnorm":
            built.group_norm(draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0])))
        elif op == "residual":
            before, n = built.at, built.features
            built.convolution(channels, (1, 1))
            built.node("add", before, built.at)
            assert built.features == n
        else:
            built.node("relu")
    return built.network(draw(st.integers(2, 4)), draw(st.sampled_from(["f16", "cb16"])))


@examples(150)
@given(
    network=networks(),
    width=st.integers(1, 4),
    height=st.integers(1, 3),
    samples=st.integers(1, 4),
    form=st.sampled_from(["steps", "both"]),
    scale=st.sampled_from([1.0, 2.0**6]),
    seed=st.integers(0, 99),
)
def test_networks_of_images_are_bit_exact(network, width, height, samples, form, scale, seed):
    """Gradients of all parameters and losses, twice; the logits; then a test pass."""
    ran = Ran(network, width, height, samples, seed, form)
    expected = ran.expected(scale)
    for _ in range(2):
        assert np.array_equal(ran.found(scale), expected)
        level = network.level[network.logits.name]
        assert np.array_equal(ran.wafer.activations(level), ran.oracle.results[network.logits.name])
    ran.wafer.load(ran.inputs, ran.labels)
    passed = ran.wafer.run(ran.coordinator.streams("test"))
    found = np.array([number for numbers in passed.numbers for number in numbers])
    assert found.view(np.uint32).tolist() == ran.oracle.right(ran.labels).tolist()
