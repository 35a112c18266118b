"""Images over several rows of PEs (WS-52): bits, what moves from row to row, memory, refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.strips import strips_of
from fabric.networks.streamed.operations.blocks import NORTH, SOUTH
from fabric.networks.streamed.resident import Resident
from tests.examples import examples
from tests.fabric.networks.test_graphs import NUMBERS, Ran, approximate, on_both, with_epsilons
from tests.fabric.networks.test_images import Images, exact, fitting
from wse_core.encoding import DIRS
from wse_core.errors import ConfigError, UnsupportedError
from wse_core.params import machine

OPS = [
    "convolution",
    "convolution",
    "groupnorm",
    "channelnorm",
    "down",
    "up",
    "maxpool",
    "avgpool",
    "any",
    "relu",
    "shift",
    "residual",
    "concat",
    "upsample",
    "resample",
    "multiple",
]


@st.composite
def striped(draw, ends=("", "convolved", "pixels"), ops=OPS):
    """Draw a network whose images lie on several rows of PEs, as far as its windows let them."""
    rows = draw(st.sampled_from([2, 2, 3, 4, 8]))
    built = Images(draw(st.integers(1, 3)), rows * draw(st.integers(1, 16 // rows)), draw(st.integers(1, 4)))
    for _ in range(draw(st.integers(1, 4))):
        grown(draw, built, draw(st.sampled_from(ops)))
    dtype, end = draw(st.sampled_from(["f16", "cb16"])), draw(st.sampled_from(ends))
    more = {"some": draw(st.integers(0, 1))} if end == "pixels" else {}
    network = built.network(draw(st.integers(2, 3)), dtype, **more, **({end: True} if end else {}))
    network = replace(with_epsilons(draw, network), image_rows=rows)
    try:
        strips_of(network)
    except (ConfigError, UnsupportedError):
        assume(False)
    return network


def grown(draw, built, op):
    """Append an operation."""
    channels, height, width = built.shape
    outputs, wide = draw(st.integers(1, 3)), draw(st.integers(1, min(3, width)))
    if op == "convolution":  # as many rows of pixels as before
        reach, apart = draw(st.integers(0, 2)), draw(st.sampled_from([1, 1, 2]))
        if height > reach * apart and reach < wide:
            kernel, beside = (2 * reach + 1, wide), draw(st.integers(0, wide - 1))
            sides = {"dilation": apart, "dilation_width": 1, "padding_width": beside, "padding_right": reach}
            built.convolution(outputs, kernel, 1, reach * apart, bias=draw(st.integers(0, 1)), **sides)
    elif op == "down" and height % 2 == 0 and width > 1:
        kernel, padding = draw(st.sampled_from([(1, 0), (2, 0), (3, 1), (4, 1)]))
        if padding < wide and width + 2 * padding >= wide:
            built.convolution(outputs, (kernel, wide), 2, padding)
    elif op == "up" and height <= 8:
        kernel, padding, more = draw(st.sampled_from([(2, 0, 0), (3, 1, 1), (4, 1, 0), (3, 0, 0)]))
        if padding < wide:
            built.transposed(outputs, (kernel, max(wide, 2 - more)), 2, padding, 1, more)
    elif op in ("maxpool", "avgpool"):
        side = draw(st.integers(1, min(2, height, width)))
        built.windowed(op, (side, min(side, wide)), side, 0)
    elif op == "any":  # strips or not
        kernel = draw(st.integers(1, min(3, height))), wide
        built.convolution(outputs, kernel, draw(st.integers(1, 2)), draw(st.integers(0, min(kernel) - 1)))
    elif op == "residual":
        before = built.at
        built.convolution(channels, (1, 1))
        built.node("add", before, built.at)
    elif op == "concat":
        before = built.at
        built.convolution(outputs, (1, 1))
        built.node("concat", before, built.at)
        built.shape = channels + outputs, height, width
    elif op == "multiple":
        built.scale()
        built.multiple(0.3)
    elif op == "upsample" and height <= 8:
        built.upsample(2, 2)
    elif op == "resample":
        built.resample("linear", draw(st.sampled_from([height, 2 * height])), width + 1)
    elif op == "shift":
        built.shift()
    elif op == "channelnorm":
        built.channel_norm()
    elif op == "groupnorm":
        built.group_norm(draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0])))
    elif op == "relu":
        built.node(draw(st.sampled_from(["relu", "gelu"])))


@examples(120)
@given(
    network=striped(),
    width=st.integers(1, 3),
    groups=st.integers(1, 2),
    samples=st.integers(1, 4),
    form=st.sampled_from(["steps", "both"]),
    turned=st.sampled_from([None, "none", "all"]),
    scale=st.sampled_from([1.0, 2.0**6]),
    numbers=st.sampled_from(NUMBERS),
    columns=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_networks_on_strips_are_bit_exact(network, width, groups, samples, form, turned, scale, numbers, columns, seed):
    """Gradients of all parameters and losses, twice; the logits; then a test pass."""
    fitting(network, width)
    names = turned and [tensor.name for tensor in network.parameters if turned == "all"]
    exact(Ran(network, width, groups * network.image_rows, samples, seed, form, names, numbers, columns), scale)


@examples(5)
@given(network=striped(), seed=st.integers(0, 99))
def test_both_machines_take_the_same_cycles(network, seed):
    fitting(network, 2)
    on_both(lambda: Ran(network, 2, network.image_rows, 2, seed))


def pixelwise(rows, kernel=3):
    """Return a convolution with a label for each pixel of its result, on images that lie on so many rows of PEs."""
    built = Images(1, 8, 3)
    built.convolution(2, (kernel, 3), 1, kernel // 2)
    built.node("relu")
    return replace(built.network(2, pixels=True), image_rows=rows)


@pytest.mark.parametrize(("rows", "kernel"), [(2, 3), (4, 3), (4, 5), (8, 3), (4, 1)])
def test_rows_of_pixels_go_to_neighbours_only(rows, kernel):
    """What comes from a neighbour is what windows reach over, once forward and once for gradients; no link more."""
    samples, width = 3, 2
    ran = Ran(pixelwise(rows, kernel=kernel), width, 2 * rows, samples, 1)
    ran.found()
    every, edge = ran.wafer.fabric.link_counts(), kernel // 2 * 3 * samples
    moved = sum(every[color].astype(int) for color in (*SOUTH, *NORTH) if color in every)
    expected = np.zeros((2 * rows, width, len(DIRS)), int)
    words = 2 * -(-edge // 2)
    for y in range(2 * rows):
        for way, beside in (("N", y % rows > 0), ("S", y % rows < rows - 1)):
            expected[y, 0, DIRS.index(way)] += words * beside  # the only channel lies in the first column
            expected[y, 0, DIRS.index("R")] += words * beside
    assert np.array_equal(np.broadcast_to(moved, expected.shape), expected)
    colors = {color for color, counts in every.items() if counts.any()}
    whole = Ran(replace(ran.network, image_rows=1), width, 2, samples, 1)
    whole.found()
    others = {color for color, counts in whole.wafer.fabric.link_counts().items() if counts.any()}
    assert colors - others <= {*SOUTH, *NORTH}


@pytest.mark.parametrize("dtype", ["f16", "cb16"])
def test_strips_give_what_whole_images_give(dtype):
    """Logits in every bit; gradients too where sums are exact: of small whole numbers."""
    built = Images(2, 8, 3)
    built.convolution(3, (3, 3), 1, 1)
    built.node("relu")
    built.convolution(2, (4, 3), 2, 1)
    built.windowed("maxpool", (2, 1), 2)
    network, found = built.network(3, dtype), []
    for rows in (1, 2, 4, 8):
        ran = Ran(replace(network, image_rows=rows), 2, rows, 4, 7)
        ran.found()
        logits = ran.wafer.activations(network.level[network.logits.name])
        rng = np.random.default_rng(4)
        for parameter in ran.coordinator.parameters:
            parameter.values[:] = ran.oracle.half.encode(rng.integers(-1, 2, parameter.pattern.count))
        ran.oracle.forward(ran.oracle.half.encode(rng.integers(-1, 2, ran.inputs.shape)), ran.coordinator.parameters)
        delta = ran.oracle.half.encode(rng.integers(-1, 2, (3, 4)))
        found.append((logits, *ran.oracle.backward(delta)))
    for other in found[1:]:
        assert all(np.array_equal(one, two) for one, two in zip(found[0], other, strict=True))
    assert all(part.any() for part in found[0])


def test_an_image_that_does_not_fit_a_row_of_pes_fits_eight():
    """One of 64 x 64 pixels on 8 x 8 PEs: gradients in every bit; whole, its planes are too large for a PE."""
    built = Images(1, 64, 64)
    built.convolution(4, (3, 3), 1, 1)
    built.node("relu")
    built.convolution(4, (3, 3), 1, 1)
    built.node("relu")
    network = built.network(2, pixels=True)
    with pytest.raises(ConfigError, match=r"does not fit into a PE's 49152 bytes.*Try: .*\(mesh\.image_rows\)"):
        assert Resident(network, machine(), 8, 1, 1).layout
    ran = Ran(replace(network, image_rows=8), 8, 8, 1, 2, "both")
    assert np.array_equal(ran.found(), ran.expected())


@pytest.mark.parametrize(
    ("first", "rows", "kind", "says"),
    [
        ({"kernel": (3, 3)}, 4, UnsupportedError, "n0.convolution: strips of 2 rows of pixels do not give strips: its "
         "windows make 6 rows of its 8, and nothing before it works on strips"),
        ({"kernel": (5, 3), "padding": 2}, 8, UnsupportedError, "n0.convolution: its windows reach 2 rows of pixels "
         "over strips of 1, and nothing before it works on strips. Try: 2, 4"),
        ({"kernel": (3, 3), "padding": 1}, 3, UnsupportedError, "n0.convolution: 8 rows of pixels do not divide into 3 "
         "strips, and nothing before it works on strips. Try: 2, 4, 8"),
        (None, 2, ConfigError, "mesh.image_rows: the network has no images"),
    ],
    ids=str,
)  # fmt: skip
def test_images_that_do_not_lie_on_rows_are_refused(first, rows, kind, says):
    built = Images(1, 8, 3)
    if first:
        built.convolution(2, **first)
    with pytest.raises(kind, match=re.escape(says)):
        strips_of(replace(built.network(2), image_rows=rows))


def test_rows_of_pes_and_samples_that_do_not_divide_are_refused():
    network = pixelwise(4)
    with pytest.raises(ConfigError, match=r"images on 4 rows of PEs each do not lie on 6\. Try: 8 rows of PEs"):
        Resident(network, machine(), 1, 6, 3)
    with pytest.raises(ConfigError, match=re.escape("3 samples of a wafer do not divide into 2 times 4 rows of PEs")):
        Resident(network, machine(), 1, 8, 3)
    assert Resident(network, machine(), 1, 8, 4).tokens == 2


def test_tokens_of_sequences_do_not_lie_with_strips():
    built = Images(4, 4, 1)
    built.convolution(4, (1, 1))
    sizes = {"heads": 1, "sequence": 2, "causal": 0}
    built.node("attention", built.at, built.at, built.at, **sizes)
    with pytest.raises(UnsupportedError, match=r"n1\.attention: a sequence of tokens does not lie on rows of PEs"):
        strips_of(replace(built.network(2), image_rows=2))


def test_it_is_said_where_images_lie_whole():
    """Behind windows that do not divide strips; of parameters there are the same."""
    built = Images(1, 8, 4)
    built.convolution(2, (3, 3), 1, 1)
    built.windowed("maxpool", (2, 2), 2)
    built.windowed("maxpool", (2, 2), 2)
    network = replace(built.network(2), image_rows=4)
    strips = strips_of(network)
    assert strips.whole == {"n2.maxpool": "its windows do not divide strips of 1 rows of pixels"}
    assert [node.name for node in strips.network.nodes if node.op == "gather"] == ["n1.maxpool.gather"]
    assert [(one.name, one.shape) for one in strips.network.parameters] == [
        (one.name, one.shape) for one in network.parameters
    ]


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_a_loss_of_whole_images_takes_strips(loss):
    """What a convolution gives is what is judged, each pixel of a channel as a class or a target of its own."""
    built = Images(1, 4, 2)
    built.convolution(2, (3, 3), 1, 1)
    network = Network((*built.nodes, Node("loss", loss, (built.at,))), built.inputs, image_rows=2)
    exact(Ran(network, 2, 4, 3, 1), 2.0)


@pytest.mark.parametrize(
    ("rows", "height", "kernel", "padding"), [(2, 8, 3, 0), (2, 8, 5, 1), (4, 16, 5, 0), (3, 12, 4, 0)]
)
@pytest.mark.parametrize("op", ["convolution", "transposed"])
def test_results_smaller_than_what_is_given_lie_in_strips(op, rows, height, kernel, padding):
    """Strips have the same rows of pixels fewer each, so that later ones reach farther north and less far south."""
    built = Images(2, height if op == "convolution" else height - (kernel - 1 - 2 * padding), 5)
    built.convolution(2, (1, 1))
    if op == "convolution":
        built.convolution(3, (kernel, 3), 1, padding)
    else:
        built.transposed(3, (kernel, 3), 1, padding)
    network = replace(built.network(2), image_rows=rows)
    assert not strips_of(network).whole
    for width, form in ((2, "steps"), (1, "both")):
        exact(Ran(network, width, 2 * rows, 2, 1, form), 1.0)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (4, 2, 1), (7, 2, 3), (5, 1, 2), (2, 2, 0)])
@pytest.mark.parametrize("op", ["convolution", "transposed"])
def test_windows_of_all_reaches_are_bit_exact(op, kernel, stride, padding):
    """More rows of pixels from one side than from the other, and zeros between gradients; both ways."""
    built = Images(2, 8 if op == "convolution" else 8 // stride, 4 if op == "convolution" else 2)
    built.convolution(2, (1, 1))
    if op == "convolution":
        built.convolution(3, (kernel, 4), stride, padding)
    else:
        built.transposed(3, (kernel, 4), stride, padding, 1, (kernel - stride) % 2)
    network = replace(built.network(2), image_rows=2)
    assert not strips_of(network).whole
    exact(Ran(network, 2, 4, 3, 1), 1.0)


def test_windows_of_a_strip_are_not_those_of_an_image():
    """A mean of single pixels, where strips are such, is no mean of whole images; the one behind it is."""
    built = Images(2, 4, 1)
    built.windowed("avgpool", (1, 1), 1, 0)
    network = replace(built.network(2, convolved=True), image_rows=4)
    assert not strips_of(network).whole
    exact(Ran(network, 2, 4, 1, 1), 1.0)


@examples(20)
@given(network=striped(), seed=st.integers(0, 99))
def test_the_oracle_is_near_real_numbers(network, seed):
    fitting(network, 2)
    approximate(Ran(network, 2, network.image_rows, 3, seed), seed)
