"""Networks of images: convolution, pooling, group normalisation; bits, cycles, gradients, refusals."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fabric.networks.graph.layouts import layouts_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import EPSILON
from fabric.networks.graph.plain import PlainGraph
from fabric.networks.graph.resample import METHODS
from fabric.networks.graph.strips import strips_of
from fabric.networks.graph.table import OPERATIONS
from fabric.networks.graph.windows import window_of
from fabric.networks.streamed.commands import MOST, MOST_SHARED, given_out
from fabric.networks.streamed.operations.gradients import lacks_memory, lacks_room
from fabric.networks.streamed.operations.table import ids_of
from fabric.networks.streamed.resident import Resident
from fabric.program.program import Program
from memx.pattern import Pattern
from tests.examples import SOAK, examples
from tests.fabric.networks.test_graphs import NUMBERS, Ran, approximate, differentiate, on_both, with_epsilons
from wse_core.errors import ConfigError, ProgramError, UnsupportedError
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

    def convolution(self, outputs, kernel, stride=1, padding=0, groups=1, bias=1, **sides):
        self.windowed("convolution", kernel, stride, padding, outputs=outputs, groups=groups, bias=bias, **sides)

    def transposed(self, outputs, kernel, stride=1, padding=0, groups=1, more=0, **apart):
        """Enlarge; `more`: rows and columns of the result that no window of the last pixel reaches by itself."""
        channels, height, width = self.shape
        sizes = {"stride": stride, "padding": padding, "kernel_height": kernel[0], "kernel_width": kernel[1], **apart}
        ways = zip((height, width), kernel, apart_of(sizes, "stride"), apart_of(sizes, "dilation"), strict=True)
        sides = [(n - 1) * s - 2 * padding + d * (k - 1) + 1 + more for n, k, s, d in ways]
        sizes |= {"channels": outputs, "height": sides[0], "width": sides[1], "outputs": channels, "groups": groups}
        self.node("transposed", **sizes, bias=0)
        self.shape = outputs, *sides

    def upsample(self, height, width):
        channels, *sides = self.shape
        alone = sides == [1, 1]
        self.shape = channels, sides[0] * height, sides[1] * (width if alone else height)
        sizes = {**dict(zip(("channels", "height", "width"), self.shape, strict=True)), "kernel_height": height}
        self.node("upsample", **sizes, kernel_width=width if alone else height, stride=height)

    def resample(self, method, *sides, **window):
        channels, height, width = self.shape
        sizes = {"channels": channels, "height": height, "width": width, "method": METHODS.index(method)} | window
        if method == "mean":
            over = window_of(Node("", "", (), sizes), self.features)
            sides = over.out_height, over.out_width
        self.node("resample", **sizes, out_height=sides[0], out_width=sides[1])
        self.shape = channels, *sides

    def scale(self):
        self.node("scale", **dict(zip(("channels", "height", "width"), self.shape, strict=True)))

    def multiple(self, factor):
        self.node("multiple", factor=int(np.float32(factor).view(np.uint32)))

    def shift(self):
        self.node("shift", **dict(zip(("channels", "height", "width"), self.shape, strict=True)))

    def channel_norm(self):
        self.node("channelnorm", **dict(zip(("channels", "height", "width"), self.shape, strict=True)))

    def group_norm(self, groups):
        channels, height, width = self.shape
        self.node("groupnorm", channels=channels, height=height, width=width, groups=groups)

    def network(self, classes, dtype="f16", convolved=False, pixels=False, some=1):
        if pixels:  # each has a label
            self.convolution(classes, (1, 1))
            sizes = {"some": some, "height": self.shape[1], "width": self.shape[2]}
            return Network((*self.nodes, Node("loss", "cross_entropy", (self.at,), sizes)), self.inputs, dtype)
        if convolved:  # no product of features at all
            self.convolution(classes, (1, 1))
            self.windowed("avgpool", self.shape[1:], 1)
        else:
            self.node("linear", inputs=self.features, outputs=classes, bias=1)
        return Network((*self.nodes, Node("loss", "cross_entropy", (self.at,))), self.inputs, dtype)


def apart_of(sizes, name):
    """Return a size of windows down and along."""
    down = sizes.get(name, 1)
    return down, sizes.get(f"{name}_width", down)


@st.composite
def sides_of(draw, shape, kernel, padding, largest=False):
    """Draw what windows may have besides: strides and borders of each side, and gaps between their pixels."""
    found = {"stride_width": draw(st.integers(1, 3))}
    if not largest:
        gaps = [draw(st.integers(1, 2)) if k > 1 and 2 * k - 1 <= n else 1 for n, k in zip(shape, kernel, strict=True)]
        found |= dict(zip(("dilation", "dilation_width"), gaps, strict=True))
    reaches = kernel[1], kernel[0], kernel[1]
    for name, reach in zip(("padding_width", "padding_below", "padding_right"), reaches, strict=True):
        found[name] = draw(st.integers(0, reach - 1))
    chosen = draw(st.sets(st.sampled_from(sorted(found)), max_size=3))
    chosen |= {"dilation_width"} if "dilation" in chosen else set()
    return {name: found[name] for name in sorted(chosen)}


SIDES = ["padding", "padding_width", "padding_below", "padding_right"]
ROWS = ["channelnorm", "relu", "residual", "shift", "concat", "concat", "upsample", "resample", "scale", "multiple"]


@st.composite
def networks(draw, ends=("", "", "convolved", "pixels")):
    """Draw a network of images, which ends in one of some ways: with a product, with means, with a loss per pixel."""
    built = Images(draw(st.integers(1, 3)), draw(st.integers(2, 6)), draw(st.integers(2, 6)))
    for _ in range(draw(st.integers(1, 4))):
        channels, height, width = built.shape
        op = draw(st.sampled_from([*["convolution", "transposed"] * 2, *["maxpool", "avgpool", "groupnorm"], *ROWS]))
        kernel = draw(st.integers(1, min(3, height))), draw(st.integers(1, min(3, width)))
        if op == "convolution":
            groups = draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0]))
            outputs, padding = groups * draw(st.integers(1, 3)), draw(st.integers(0, min(kernel) - 1))
            stride, bias = draw(st.integers(1, 2)), draw(st.integers(0, 1))
            sides = draw(sides_of((height, width), kernel, padding))
            built.convolution(outputs, kernel, stride, padding, groups, bias, **sides)
        elif op == "transposed":
            groups, stride = draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0])), draw(st.integers(1, 2))
            outputs, padding = groups * draw(st.integers(1, 3)), draw(st.integers(0, min(kernel) - 1))
            least = min((n - 1) * stride + k for n, k in zip((height, width), kernel, strict=True))
            padding = min(padding, (least - 1) // 2)
            apart = {"dilation": draw(st.integers(1, 2)), "stride_width": stride + draw(st.integers(0, 1))}
            if max(height, width) <= 4:
                apart = apart if draw(st.booleans()) else {}
                built.transposed(outputs, kernel, stride, padding, groups, draw(st.integers(0, stride - 1)), **apart)
        elif op in ("maxpool", "avgpool"):
            stride, padding = draw(st.integers(1, 3)), draw(st.integers(0, min(kernel) - 1))
            sides = draw(sides_of((height, width), kernel, padding, largest=True))
            built.windowed(op, kernel, stride, padding, **sides)
        elif op == "scale":
            built.scale()
        elif op == "multiple":
            built.multiple(draw(st.sampled_from([0.3, -1.0, 2.0**-8])))
        elif op == "upsample":
            if max(height, width) <= 4:
                built.upsample(draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        elif op == "resample":
            if (method := draw(st.sampled_from(METHODS))) == "mean":
                border = dict(zip(SIDES, (draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)), strict=True))
                window = {"stride": draw(st.integers(1, 3)), "kernel_height": kernel[0], "kernel_width": kernel[1]}
                built.resample(method, **window, **border)
            else:
                sides = draw(st.integers(1, 8)), draw(st.integers(1, 8))
                picked = {}
                for side, count, given in zip(("row", "column"), sides, (height, width), strict=True):
                    lines = [draw(st.integers(-1, given - 1)) for _ in range(count)] if method == "pick" else []
                    picked |= {f"{side} {k}": line for k, line in enumerate(lines)}  # -1: a line of zeros
                built.resample(method, *sides, **picked)
        elif op == "groupnorm":
            built.group_norm(draw(st.sampled_from([k for k in (1, 2, 3) if channels % k == 0])))
        elif op == "channelnorm":
            built.channel_norm()
        elif op == "residual":
            before, n = built.at, built.features
            built.convolution(channels, (1, 1))
            built.node("add", before, built.at)
            assert built.features == n
        elif op == "concat":
            before, (_, height, width) = built.at, built.shape
            if draw(st.booleans()):
                built.convolution(draw(st.integers(1, 3)), (1, 1))
            names = [before, built.at][:: draw(st.sampled_from([1, -1]))]
            built.node("concat", *names)
            built.shape = channels + built.shape[0], height, width
        elif op == "shift":
            built.shift()
        else:
            built.node("relu")
    dtype, end = draw(st.sampled_from(["f16", "cb16"])), draw(st.sampled_from(ends))
    more = {"some": draw(st.integers(0, 1))} if end == "pixels" else {}
    return with_epsilons(draw, built.network(draw(st.integers(2, 4)), dtype, **more, **({end: True} if end else {})))


def fitting(network, width):
    """Pass over networks that want channels together which lie in several columns, and such of too many operations."""
    try:
        layouts_of(network, width)
        ids_of(strips_of(network).network)
    except UnsupportedError:
        assume(False)


@examples(150)
@given(
    network=networks(),
    width=st.integers(1, 4),
    height=st.integers(1, 3),
    samples=st.integers(1, 4),
    form=st.sampled_from(["steps", "both"]),
    turned=st.sampled_from([None, "none", "all"]),
    scale=st.sampled_from([1.0, 2.0**6]),
    numbers=st.sampled_from(NUMBERS),
    groups=st.sampled_from([1, 1, 2]),
    seed=st.integers(0, 99),
)
def test_networks_of_images_are_bit_exact(network, width, height, samples, form, turned, scale, numbers, groups, seed):
    """Gradients of all parameters and losses, twice; the logits; then a test pass; in both forms of gradients."""
    fitting(network, width)
    names = turned and [tensor.name for tensor in network.parameters if turned == "all"]
    exact(Ran(network, width, height, samples, seed, form, names, numbers, groups), scale)


def exact(ran, scale):
    """Compare gradients, losses, logits and what a test counts with the oracle."""
    network, expected = ran.network, ran.expected(scale)
    for _ in range(2):
        assert np.array_equal(ran.found(scale), expected)
        level = network.level[network.logits.name]
        assert np.array_equal(ran.wafer.activations(level), ran.oracle.results[network.logits.name])
    ran.wafer.load(ran.inputs, ran.labels)
    passed = ran.wafer.run(ran.coordinator.streams("test"))
    found = np.array([number for numbers in passed.numbers for number in numbers])
    assert found.view(np.uint32).tolist() == ran.right()


@examples(8)
@given(network=networks(), seed=st.integers(0, 99))
def test_both_machines_take_the_same_cycles(network, seed):
    fitting(network, 2)
    on_both(lambda: Ran(network, 2, 2, 2, seed))


@examples(40)
@given(network=networks(), seed=st.integers(0, 99))
def test_plain_gradients_are_those_of_finite_differences(network, seed):
    differentiate(network, 3, seed)


@examples(20)
@given(network=networks(), seed=st.integers(0, 99))
def test_the_oracle_is_near_real_numbers(network, seed):
    fitting(network, 2)
    approximate(Ran(network, 2, 1, 3, seed), seed)


@examples(40)
@given(
    network=networks(ends=("pixels",)),
    width=st.integers(1, 4),
    height=st.integers(1, 3),
    samples=st.integers(1, 3),
    form=st.sampled_from(["steps", "both"]),
    seed=st.integers(0, 99),
)
def test_labels_of_pixels_are_bit_exact(network, width, height, samples, form, seed):
    """As above, with logits and a label, or none, for each pixel; one pixel of a sample is as the sample."""
    fitting(network, width)
    exact(Ran(network, width, height, samples, seed, form), 2.0**6)


def test_a_pixel_without_a_label_adds_nothing():
    """What lies there changes neither loss nor gradients if no window joins it to others; and labels do."""
    built = Images(3, 4, 3)
    network = built.network(3, pixels=True)
    ran = Ran(network, 2, 2, 2, 5)
    assert 0 < (ran.y >= 0).sum() < ran.y.size
    expected = ran.expected()
    without = np.tile(ran.y.T < 0, (3, 1))
    ran.inputs[without] ^= 0x8000
    assert np.array_equal(ran.expected(), expected)
    assert np.array_equal(ran.found(), expected)
    ran.inputs[~without] ^= 0x8000
    assert not np.array_equal(ran.expected(), expected)


def test_the_loss_of_pixels_is_that_of_as_many_samples():
    """A convolution of single pixels is a product with each of them: gradients and losses of both, in float64."""
    network, rng = Images(3, 4, 2).network(5, pixels=True), np.random.default_rng(4)
    x, y, values = rng.standard_normal((6, 3, 8)), rng.integers(-1, 5, (6, 8)), rng.standard_normal((5, 4))
    loss, found = PlainGraph(network, "f64").gradients({"n0.weight": values}, x.reshape(6, -1), y)
    linear = Node("n0.linear", "linear", ("input",), {"inputs": 3, "outputs": 5, "bias": 1})
    flat = Network((linear, Node("loss", "cross_entropy", ("n0.linear",), {"some": 1})), 3)
    rows = x.swapaxes(1, 2).reshape(-1, 3)
    expected, wanted = PlainGraph(flat, "f64").gradients({"n0.weight": values}, rows, y.ravel())
    assert np.isclose(loss, expected, rtol=1e-12)
    assert np.allclose(found["n0.weight"], wanted["n0.weight"], rtol=1e-12)


def test_planes_that_are_no_channels_are_refused():
    node = Node("n0.convolution", "convolution", ("input",), Images(1, 3, 3).network(2, convolved=True).nodes[0].sizes)
    with pytest.raises(ConfigError, match="loss: 18 features are no channels of 4 pixels"):
        Network((node, Node("loss", "cross_entropy", (node.name,), {"height": 2, "width": 2})), 9)


# --- what the operations are ------------------------------------------------------------------------------------------


def model(network):
    """Return a network in float64."""
    return PlainGraph(network, "f64")


@examples(40)
@given(
    sizes=st.tuples(*(st.integers(1, 3) for _ in range(2)), *(st.integers(1, 6) for _ in range(2))),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    groups=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_a_convolution_is_that_of_its_definition(sizes, kernel, stride, padding, groups, seed, data):
    """Number by number from the formula; filters as files have them: outputs, channels of a group, rows, columns."""
    below, above, height, width = sizes
    padding = min(padding, min(kernel) - 1)
    assume(height + 2 * padding >= kernel[0])
    assume(width + 2 * padding >= kernel[1])
    rng, built = np.random.default_rng(seed), Images(below * groups, height, width)
    sides = data.draw(sides_of((height, width), kernel, padding))
    (down, along), (far, wide) = apart_of({"stride": stride} | sides, "stride"), apart_of(sides, "dilation")
    left = sides.get("padding_width", padding)
    borders = padding + sides.get("padding_below", padding), left + sides.get("padding_right", left)
    reaches = (kernel[0] - 1) * far + 1, (kernel[1] - 1) * wide + 1
    assume(all(n + more >= k for n, more, k in zip((height, width), borders, reaches, strict=True)))
    built.convolution(above * groups, kernel, stride, padding, groups, **sides)
    _, rows, columns = built.shape
    network = built.network(2)
    filters = rng.standard_normal((above * groups, below, *kernel))
    biases = rng.standard_normal(above * groups)
    x = rng.standard_normal((2, below * groups, height, width))
    values = np.concatenate([filters.reshape(len(filters), -1), biases[:, None]], axis=1)
    found, _ = OPERATIONS["convolution"].plain(model(network), network.nodes[0], x.reshape(2, -1), values)
    wanted = np.zeros((2, above * groups, rows, columns))
    for n, o, i, j in np.ndindex(wanted.shape):
        total = biases[o]
        for c, u, v in np.ndindex(below, *kernel):
            row, column = i * down + u * far - padding, j * along + v * wide - left
            if 0 <= row < height and 0 <= column < width:
                total += filters[o, c, u, v] * x[n, o // above * below + c, row, column]
        wanted[n, o, i, j] = total
    assert np.allclose(found, wanted.reshape(2, -1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("op", "of", "outside"), [("maxpool", np.max, -np.inf), ("avgpool", np.mean, 0)])
@pytest.mark.parametrize(("padding", "shape"), [(0, (2, 2, 3)), (1, (2, 3, 4))])
def test_pooling_is_that_of_its_definition(op, of, outside, padding, shape):
    """Pixels below zero are larger than padding, which a mean counts as zeros."""
    built, rng = Images(2, 5, 7), np.random.default_rng(1)
    built.windowed(op, (2, 3), 2, padding)
    assert built.shape == shape
    x = rng.standard_normal((3, 2, 5, 7)) - 3
    found, _ = OPERATIONS[op].plain(model(built.network(2)), built.nodes[0], x.reshape(3, -1), None)
    around = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=outside)
    wanted = [of(around[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 3]) for n, c, i, j in np.ndindex(3, *shape)]
    assert np.allclose(found.ravel(), wanted, rtol=1e-14)


@pytest.mark.parametrize("op", ["maxpool", "avgpool"])
@pytest.mark.parametrize("dtype", ["f16", "cb16"])
def test_pooling_with_padding_between_other_windows(op, dtype):
    """Some windows have padding, others of the same program have none; pixels and gradients of both signs."""
    built = Images(2, 5, 6)
    built.convolution(3, (3, 3), padding=1)
    for stride, padding in ((1, 0), (2, 1), (1, 2)):
        built.windowed(op, (3, 3), stride, padding)
    ran = Ran(built.network(2, dtype), 2, 2, 4, 5)
    ran.inputs ^= 0x8000  # so that what is largest is below zero now and then
    for _ in range(2):
        assert np.array_equal(ran.found(2.0**6), ran.expected(2.0**6))


def test_the_first_of_the_largest_pixels_gets_the_gradient():
    """On the wafer as in numpy: equal pixels, and one below zero."""
    built = Images(1, 2, 4)
    built.convolution(1, (1, 1))
    built.windowed("maxpool", (2, 2), 2)
    network = built.network(2)
    ran = Ran(network, 1, 1, 1, 3)
    ran.inputs[:, 0] = ran.oracle.half.encode(np.array([[1, 2, -3, -1], [2, 0, -1, -3]]).ravel())
    ran.inputs[:, 0][ran.inputs[:, 0] == 0] = 0x8000  # a zero of the other sign is no larger
    assert np.array_equal(ran.found(), ran.expected())
    where = OPERATIONS["maxpool"].plain(
        model(network), network.nodes[1], np.array([[1, 2, -3, -1, 2, 0, -1, -3.0]]), None
    )
    assert where[1][0].ravel().tolist() == [1, 1]


OTHERS = [("f16", NUMBERS[0]), ("cb16", NUMBERS[0]), ("cb16", NUMBERS[1])]


@pytest.mark.parametrize(("dtype", "numbers"), OTHERS)
def test_pixels_that_are_repeated_are_bit_exact(dtype, numbers):
    """Images of twice the sides, and a gate for each channel; products with learned numbers, and with constants."""
    built = Images(2, 4, 3)
    built.convolution(3, (3, 3), padding=1)
    before, shape = built.at, built.shape
    built.windowed("avgpool", (4, 3), 1)
    built.convolution(3, (1, 1))
    built.node("sigmoid")
    built.upsample(4, 3)
    built.node("mul", before, built.at)
    built.scale()
    built.multiple(0.3)
    assert built.shape == shape
    built.upsample(2, 2)
    built.convolution(2, (3, 3), padding=1)
    exact(Ran(built.network(2, dtype), 2, 2, 3, 5, numbers=numbers), 2.0**6)


@pytest.mark.parametrize(("dtype", "rows", "width"), [("f16", 1, 3), ("cb16", 2, 2), ("f16", 2, 1)])
def test_more_commands_than_ids_are_bit_exact(dtype, rows, width):
    """Normalisations of two kinds, pools with padding and images of other sides: 71 commands, 75 on strips."""
    built = Images(2, 4, 4)
    built.convolution(4, (3, 3), padding=1)
    built.channel_norm()
    built.node("relu")
    built.group_norm(1)
    built.windowed("maxpool", (2, 2), 1, 1)
    built.resample("linear", 4, 4)
    built.scale()
    built.shift()
    built.windowed("avgpool", (2, 2), 2)
    network = replace(built.network(2, dtype), image_rows=rows)
    ids = ids_of(strips_of(network).network)
    assert len(ids) > MOST >= len(set(ids.values()))
    exact(Ran(network, width, 2 * rows, 4, 5), 2.0**6)
    if SOAK or width == 1:  # ids are shared on the fewest PEs as on more
        on_both(lambda: Ran(network, width, rows, 2, 5))


def test_commands_of_means_and_joins_share_an_id():
    """Normalisations of groups and of features, and many functions: as many commands as may share one do."""
    built = Images(2, 4, 4)
    built.convolution(4, (3, 3), padding=1)
    built.group_norm(2)
    built.windowed("avgpool", (2, 2), 2)
    for op in ("silu", "tanh", "sigmoid", "elu", "mish", "softplus", "hardswish", "gelu_erf", "relu6"):
        built.node(op)
    built.node("linear", inputs=built.features, outputs=4, bias=1)
    built.shape = 4, 1, 1
    built.node("norm")
    built.node("gelu")
    network = built.network(3)
    ids = ids_of(network)
    shared = [name for name, number in ids.items() if number == ids["mean"]]
    assert set(shared) >= {"mean", "dot", "group_norm"}
    assert len(shared) <= MOST_SHARED
    exact(Ran(network, 2, 2, 2, 5), 2.0**6)
    with pytest.raises(UnsupportedError, match="take 79 commands, a PE has 63"):
        given_out([*ids, "a", "b", "c", "d"])


def test_a_lack_of_registers_is_told_from_other_errors():
    """Programs are written again without copies that pay, as where the memory is short."""
    p = Program("full", machine())
    for _ in range(13):
        p.reg16()
    with pytest.raises(ProgramError, match="no 2 free registers") as caught:
        for _ in range(3):
            p.reg32()
    assert lacks_room(caught.value)
    assert not lacks_memory(caught.value)
    assert not lacks_room(ProgramError("another"))


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("first", ["groupnorm", "scale"])
def test_products_lie_where_what_they_multiply_does(first, width):
    """A group of channels stays in one column, whatever the sizes of what works on each channel alone."""
    built = Images(1, 2, 1)
    built.convolution(4, (1, 1))
    for op in (first, "scale", "groupnorm", "scale"):
        built.scale() if op == "scale" else built.group_norm(2)
    exact(Ran(built.network(2), width, 2, 2, 7), 1.0)


@pytest.mark.parametrize(("sides", "by"), [((2, 3), (2, 2)), ((1, 1), (3, 2))])
def test_upsampling_is_that_of_its_definition(sides, by):
    """Each place of the larger image has the pixel that it lies in; gradients are sums of theirs."""
    built, rng = Images(2, *sides), np.random.default_rng(3)
    built.upsample(*by)
    node, larger = built.nodes[0], (sides[0] * by[0], sides[1] * by[1])
    assert built.shape == (2, *larger)
    x, delta = rng.standard_normal((3, 2, *sides)), rng.standard_normal((3, 2, *larger))
    a = model(built.network(2))
    found, kept = OPERATIONS["upsample"].plain(a, node, x.reshape(3, -1), None)
    back, _ = OPERATIONS["upsample"].plain_back(a, node, delta.reshape(3, -1), kept, None)
    wanted = np.zeros_like(x)
    for n, c, i, j in np.ndindex(3, 2, *larger):
        assert found.reshape(delta.shape)[n, c, i, j] == x[n, c, i // by[0], j // by[1]]
        wanted[n, c, i // by[0], j // by[1]] += delta[n, c, i, j]
    assert np.allclose(back, wanted.reshape(3, -1), rtol=1e-14)


@pytest.mark.parametrize(("dtype", "numbers"), OTHERS)
def test_images_of_other_sides_are_bit_exact(dtype, numbers):
    """Larger and smaller ones, with constants in common and with others, between windows with padding."""
    built = Images(2, 4, 3)
    built.convolution(3, (3, 3), padding=1)
    for method, sides in (("linear", (8, 6)), ("corners", (4, 5)), ("cubic", (6, 7)), ("area", (4, 3))):
        built.resample(method, *sides)
        built.windowed("maxpool", (2, 2), 1, 1)
    for _ in range(2):
        built.resample("mean", kernel_height=3, kernel_width=2, stride=1, padding=1, padding_below=2)
    exact(Ran(built.network(2, dtype), 2, 2, 3, 5, numbers=numbers), 2.0**6)


@pytest.mark.parametrize("sides", [(8, 6), (3, 7), (4, 3), (1, 1)])
@pytest.mark.parametrize("method", METHODS[:-1])
def test_images_of_other_sides_are_those_of_torch(method, sides):
    torch = pytest.importorskip("torch")
    names = {"linear": ("bilinear", False), "corners": ("bilinear", True), "cubic": ("bicubic", False)}
    built, (mode, corners) = Images(2, 4, 3), names.get(method, ("area", None))
    built.resample(method, *sides)
    node, rng, a = built.nodes[0], np.random.default_rng(3), model(built.network(2))
    x = torch.from_numpy(rng.standard_normal((3, 2, 4, 3))).requires_grad_()
    wanted = torch.nn.functional.interpolate(x, sides, mode=mode, align_corners=corners)
    delta = rng.standard_normal((3, 2, *sides))
    wanted.backward(torch.from_numpy(delta))
    found, kept = OPERATIONS["resample"].plain(a, node, x.detach().numpy().reshape(3, -1), None)
    back, _ = OPERATIONS["resample"].plain_back(a, node, delta.reshape(3, -1), kept, None)
    assert np.allclose(found, wanted.detach().numpy().reshape(3, -1), atol=1e-12)
    assert np.allclose(back, x.grad.numpy().reshape(3, -1), atol=1e-12)


def test_a_mean_over_windows_counts_pixels_of_the_image_alone():
    built, rng = Images(2, 4, 5), np.random.default_rng(3)
    built.resample("mean", kernel_height=3, kernel_width=2, stride=2, padding=1, padding_width=0, padding_right=1)
    x = rng.standard_normal((3, 2, 4, 5))
    found, _ = OPERATIONS["resample"].plain(model(built.network(2)), built.nodes[0], x.reshape(3, -1), None)
    rows, columns = [slice(0, 2), slice(1, 4)], [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert built.shape == (2, 2, 3)
    wanted = [[x[:, :, one, other].mean((2, 3)) for other in columns] for one in rows]
    assert np.allclose(found.reshape(3, 2, 2, 3), np.moveaxis(wanted, (0, 1), (2, 3)), rtol=1e-12)


def test_images_without_a_side_are_refused():
    built = Images(2, 4, 3)
    built.resample("linear", 0, 3)
    with pytest.raises(ConfigError, match="n0.resample: images of 4 x 3 pixels do not become such of 0 x 3"):
        built.network(2)


@pytest.mark.parametrize(
    ("sizes", "what"), [({"stride": 1}, "4 x 6"), ({"padding": 1}, "4 x 6"), ({"channels": 3}, "3 x 2 x 3")]
)
def test_upsampling_that_leaves_pixels_out_is_refused(sizes, what):
    built = Images(2, 2, 3)
    built.upsample(2, 2)
    built.nodes[0] = replace(built.nodes[0], sizes=dict(built.nodes[0].sizes) | sizes)
    with pytest.raises(ConfigError, match=f"n0.upsample: .* image of {what}"):
        built.network(2)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm_is_that_of_its_definition(groups):
    """One group is the norm over all features of a sample."""
    built, rng = Images(4, 2, 3), np.random.default_rng(2)
    built.group_norm(groups)
    x, values = rng.standard_normal((3, 4, 6)), rng.standard_normal((2, 4))
    found, _ = OPERATIONS["groupnorm"].plain(model(built.network(2)), built.nodes[0], x.reshape(3, -1), values)
    parts = x.reshape(3, groups, -1)
    unit = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + EPSILON)
    assert np.allclose(found, (unit.reshape(3, 4, 6) * values[0][:, None] + values[1][:, None]).reshape(3, -1))


def test_a_norm_over_channels_is_that_of_its_definition():
    """Each pixel is normalised over its channels: so many samples of features."""
    built, rng = Images(4, 2, 3), np.random.default_rng(2)
    built.channel_norm()
    x, values = rng.standard_normal((3, 4, 6)), rng.standard_normal((2, 4))
    found, _ = OPERATIONS["channelnorm"].plain(model(built.network(2)), built.nodes[0], x.reshape(3, -1), values)
    unit = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + EPSILON)
    assert np.allclose(found, (unit * values[0][:, None] + values[1][:, None]).reshape(3, -1))


# --- where things lie -------------------------------------------------------------------------------------------------


@examples(60)
@given(network=networks(), columns=st.integers(1, 5))
def test_whole_channels_lie_in_a_column_and_pooling_stays_in_it(network, columns):
    fitting(network, columns)
    plan = Resident(network, machine(), columns, 1, 1).plan
    for node in network.nodes[:-1]:
        if node.op not in ("convolution", "maxpool", "avgpool", "groupnorm"):
            continue
        x, y = network.tensors[node.inputs[0]], network.tensors[node.name]
        below, above = plan.layout(x).owners(np.arange(x.rows)), plan.layout(y).owners(np.arange(y.rows))
        channels = node.size("channels")
        for owners, count in ((below, channels), (above, y.rows // OPERATIONS[node.op].units(node, x.rows)[1])):
            assert all(len(set(part)) == 1 for part in owners.reshape(count, -1).tolist())
        if node.op != "convolution":
            assert below.reshape(channels, -1)[:, 0].tolist() == above.reshape(channels, -1)[:, 0].tolist()
        if node.op == "groupnorm":
            assert all(len(set(part)) == 1 for part in below.reshape(node.size("groups"), -1).tolist())


def test_what_has_gaps_costs_less():
    """Half of the filters gone: fewer words, fewer cycles, the same bits as the oracle."""
    built = Images(2, 6, 6)
    built.convolution(16, (3, 3), padding=1)
    built.windowed("avgpool", (6, 6), 1)
    network = built.network(3)
    runs = []
    for kept in (1.0, 0.5):
        ran = Ran(network, 2, 1, 2, 7, turned=())
        mask = np.random.default_rng(1).random(ran.coordinator.parameters[0].dense.shape) < kept
        mask[:, -1] = True
        ran.coordinator.parameters[0].set_pattern(Pattern.of_mask(mask))
        ran.wafer.load(ran.inputs, ran.labels)
        passed = ran.wafer.run(ran.coordinator.streams("train"))
        expected = ran.expected()
        script = ran.coordinator.script("train")
        found = np.zeros(script.offsets[-1] + 2, np.uint32)
        for places, numbers in zip(script.places, passed.numbers, strict=True):
            found[places] = numbers.view(np.uint32)
        assert np.array_equal(found, expected)
        runs.append((passed.cycles, script.n_words))
    assert runs[1][0] < 0.75 * runs[0][0]
    assert runs[1][1] < 0.75 * runs[0][1]


def test_the_input_may_lie_where_something_larger_comes_later():
    """Nothing reads the samples on the way back: their place is taken by what has more features."""
    built = Images(1, 2, 2)
    built.windowed("maxpool", (1, 1), 1)
    built.convolution(3, (1, 1))
    network = built.network(2)
    ran = Ran(network, 1, 2, 2, 0)
    assert ran.resident.plan.arrays["a0"].rows > 1 + network.inputs
    assert np.array_equal(ran.found(), ran.expected())


# --- refusals ---------------------------------------------------------------------------------------------------------

WRONG = [
    ({"channels": 3}, "n0.convolution: 16 features are no image of 3 x 4 x 4"),
    ({"kernel_height": 7, "kernel_width": 7}, "windows of 7 x 7 are larger than an image of 1 x 4 x 4"),
    ({"stride": 0}, "n0.convolution: windows of 3 x 3, stride 0, padding 1"),
    ({"padding": 3}, "a padding of 3 around windows of 3 x 3"),
    ({"padding_right": 3}, "a padding of 1 x 1 x 1 x 3 around windows of 3 x 3"),
    ({"dilation": 0}, "windows of 3 x 3, stride 1, padding 1, dilation 0"),
    ({"dilation_width": 3}, "windows of 3 x 3 are larger than an image of 1 x 4 x 4"),
    ({"outputs": 3, "groups": 2}, "1 and 3 channels in 2 groups"),
]


@pytest.mark.parametrize(("sizes", "what"), WRONG)
def test_a_convolution_that_does_not_fit_is_refused(sizes, what):
    plain = {"channels": 1, "height": 4, "width": 4, "kernel_height": 3, "kernel_width": 3, "stride": 1, "padding": 1}
    node = Node("n0.convolution", "convolution", ("input",), plain | {"outputs": 2, "groups": 1, "bias": 1} | sizes)
    last = Node("last", "linear", (node.name,), {"inputs": 32, "outputs": 2, "bias": 1})
    with pytest.raises(ConfigError, match=re.escape(what)):
        Network((node, last, Node("loss", "cross_entropy", ("last",))), 16)


def test_other_things_that_do_not_fit_are_refused():
    built = Images(3, 4, 4)
    built.group_norm(2)
    with pytest.raises(ConfigError, match="3 channels in 2 groups"):
        built.network(2)
    built = Images(2, 4, 4)
    built.convolution(2, (3, 3), padding=1)
    with pytest.raises(ConfigError, match="filters go out with steps"):
        Resident(built.network(2), machine(), 1, 1, 1, "pairs")
    built = Images(2, 40, 40)
    built.convolution(2, (3, 3), padding=1)
    network = built.network(2)
    with pytest.raises(ConfigError, match="does not fit into a PE's 49152 bytes: array .* alone takes"):
        Resident(network, machine(), 1, 1, 16)
    with pytest.raises(ConfigError, match="does not fit into a PE's 49152 bytes"):
        assert Resident(network, machine(), 1, 1, 3).layout
