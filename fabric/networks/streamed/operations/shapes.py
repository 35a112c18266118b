"""Operations on images are done on planes, rows of tokens one after the other, that differ between operations.

A row is a pixel of a channel, with all samples of the PE.  Between operations all descriptors go over one row; an
operation on images begins with the command ``shape``, whose data say which planes it has, and ends with shape 0, one
row again.  So products, gradients and pointers of rows serve planes as well, by the same tasks.

Memory
    ``padded``: planes with a border, as convolutions read all of a column, and pooling with padding one at a time, or
    one that gets other sides; of the widest such operation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fabric.asm.operands import Dsd, Reg, Var
from fabric.networks.graph.layouts import layouts_of
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.resample import Lines, sides_of, turned
from fabric.networks.graph.reverse import schedule
from fabric.networks.graph.strips import Edges, edges_of, on_strips, rows_of_node, strips_of_mean
from fabric.networks.graph.windows import Window, window_of
from fabric.program.program import Program

if TYPE_CHECKING:
    from fabric.networks.streamed.operations.code import ProgramCode

__all__ = [
    "SHAPE",
    "ConvolutionShape",
    "EdgeShape",
    "GroupShape",
    "LossShape",
    "PlaneShape",
    "PoolShape",
    "ProgramShapes",
    "ResampleShape",
    "StripShape",
    "edge_number",
    "padded_rows",
    "pixels_of_multiple",
    "shape_number",
    "shapes_of",
]

SHAPE = {"shape": "data = number of the planes that the next commands work on, 0 for single rows"}

OTHER_WAY = {"forward": "back", "back": "forward", "ask": "ask"}
"""A transposed convolution does this: what a convolution does in the other direction."""
NUMBERS = ("plane", "height", "width", "gap", "rest", "result", "taps")
"""A shape sets these numbers, as far as it has them."""
DIVIDING = ("groupnorm", "channelnorm", "maxpool", "avgpool", "upsample")
"""Means of windows and groups are sums times a factor of their shape."""
EDGES = ("above", "below", "apart", "shared")
"""Strips have these too: rows of pixels that come from either side, how far they lie apart; 1 if sums are of all
strips.
"""


@dataclass(frozen=True)
class ImageShape(ABC):
    """An operation on images has planes of this shape."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """At most so many rows are worked on at once."""

    @property
    def padded(self) -> int:
        """A plane with its border has so many rows; 0 if there is none."""
        return 0

    @abstractmethod
    def load(self, code: ProgramCode) -> None:
        """Emit the loads of the descriptors and numbers of the shape."""


@dataclass(frozen=True)
class ConvolutionShape(ImageShape):
    """Planes are copied into a border of zeros, and read window by window.

    Attributes
    ----------
    given, border, around, result : (int, int)
        Rows and columns of pixels: of what is copied, before it in the copy, of the whole copy, of the result.
    spread, stride, apart : (int, int)
        Pixels of the copy, down and along, from one that is given, from one window, and from one pixel of a window, to
        the next.
    asks : bool
        What is worked on is the request for gradients of weights, not a product.
    kernel : (int, int)
        Lines and pixels of a window, of a request.
    """

    given: tuple[int, int]
    border: tuple[int, int]
    around: tuple[int, int]
    result: tuple[int, int]
    spread: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    apart: tuple[int, int] = (1, 1)
    asks: bool = False
    kernel: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, window: Window, direction: str) -> ConvolutionShape:
        """Return the shape of a convolution's product, its product back, or its request."""
        w, result, given = window, (window.out_height, window.out_width), (window.height, window.width)
        if direction == "back":  # windows one pixel apart, over gradients with zeros between them
            reach = w.reach[0] - 1, w.reach[1] - 1
            border = reach[0] - w.before[0], reach[1] - w.before[1]
            around = w.height + reach[0], w.width + reach[1]
            return cls(result, border, around, given, spread=w.strides)
        if direction == "ask":
            kernel = w.kernel_height, w.kernel_width
            return cls(given, w.before, w.around, result, stride=w.strides, apart=w.dilations, asks=True, kernel=kernel)
        return cls(given, w.before, w.around, result, stride=w.strides)

    @property
    def rows(self) -> int:
        return self.result[0] * self.result[1]

    @property
    def padded(self) -> int:
        return self.around[0] * self.around[1]

    def load(self, code: ProgramCode) -> None:
        p, tokens, copy = code.p, code.tokens, code.held["padded"]
        self.load_copy(code)
        windows = self.windows(p, copy, tokens)
        if self.asks:
            code.gradient.over(windows, self.rows * tokens)
            if "ask_windows" in code.ids:
                self._load_windows(code)
        else:
            code.product.over(windows, self.rows * tokens)

    def load_copy(self, code: ProgramCode) -> None:
        """Emit the loads of what copies planes within their border."""
        p, tokens, (height, width) = code.p, code.tokens, self.given
        p.load(code.reads["row"], p.mem1d(code.held["a0"], height * width * tokens, save=True, check=False))
        p.load(code.writes["aux"], self.lines(code, 0, height))
        code.shapes.set(plane=self.padded * tokens)

    def lines(self, code: ProgramCode, first: int, count: int) -> Dsd:
        """Return so many rows of pixels of what is given, from the first one on, in the copy."""
        tokens, (top, left), line = code.tokens, self.border, self.around[1] * code.tokens
        extents, (down, along) = [count, self.given[1], tokens], self.spread
        strides, offset = [down * line, along * tokens, 1], (top + down * first) * line + left * tokens
        return code.p.mem4d(code.held["padded"], extents, strides, offset=offset, check=False)

    def windows(self, p: Program, planes: Var, tokens: int) -> Dsd:
        """Return what one place of all windows meets, in planes with a border."""
        down, along = self.stride
        strides = [down * self.around[1] * tokens, along * tokens, 1]
        return p.mem4d(planes, [*self.result, tokens], strides, check=False)

    def _load_windows(self, code: ProgramCode) -> None:
        """Emit what `GradientTasks.answer_windows` needs: one channel's window, to be lengthened, and its moves."""
        p, tokens = code.p, code.tokens
        p.load(code.writes["row"], p.mem1d(code.gradient.scalars, self.rows * tokens))
        p.load(code.gradient.features, self.window(p, code.held["padded"], tokens))
        code.shapes.set(**{name: value for name, value in self.moves(tokens).items() if name != "plane"})

    def moves(self, tokens: int) -> dict[str, int]:
        """Return the numbers that `GradientTasks.answer_windows` asks for, of so many samples."""
        step = self.stride[1] * tokens
        return {
            "plane": self.padded * tokens,
            "taps": self.kernel[0] * self.kernel[1],
            "height": self.result[0],
            "width": self.result[1],
            "gap": step - tokens,
            "rest": self.stride[0] * self.around[1] * tokens - self.result[1] * step,
        }

    def window(self, p: Program, planes: Var, tokens: int) -> Dsd:
        """Return the window of a channel in planes with a border; its first extent is that of channels."""
        (down, along), line = self.apart, self.around[1] * tokens
        strides = [self.padded * tokens, down * line, along * tokens]
        return p.mem4d(planes, [1, *self.kernel], strides, check=False)


@dataclass(frozen=True)
class PoolShape(ImageShape):
    """Windows of planes are read tap by tap, and gradients written so.

    Attributes
    ----------
    window : Window
    back : bool
    copies : int
        So many planes with a border are there: of gradients on the way back, then one of what is given.
    strips : int
        The means of so many strips are one.
    sums : bool
        They are no means, but sums.
    """

    window: Window
    back: bool
    copies: int = 0
    strips: int = 1
    sums: bool = False

    @classmethod
    def of(cls, window: Window, back: bool, largest: bool, strips: int = 1) -> PoolShape:
        """Return the shape in a direction; on the way back from a mean nothing is read of what is given."""
        return cls(window, back, (1 + (back and largest)) * window.bordered, strips)

    @property
    def rows(self) -> int:
        return self.window.out_plane

    @property
    def padded(self) -> int:
        return self.copies * math.prod(self.window.around)

    def load(self, code: ProgramCode) -> None:
        code.pool.load(self)


@dataclass(frozen=True)
class ResampleShape(ImageShape):
    """Planes get other sides.

    Attributes
    ----------
    height, width : int
        Of what is given, in pixels.
    rows_of_result, columns : Lines
        Of which lines those of the result are sums, and times what.
    """

    height: int
    width: int
    rows_of_result: Lines
    columns: Lines

    @property
    def rows(self) -> int:
        return max(self.height, len(self.columns))

    @property
    def padded(self) -> int:
        return self.height * len(self.columns)

    def load(self, code: ProgramCode) -> None:
        code.resampling.load(self)


@dataclass(frozen=True)
class LossShape(ImageShape):
    """Each pixel has logits and a label: what rows are in a loss of samples are planes of so many pixels."""

    pixels: int

    @property
    def rows(self) -> int:
        return self.pixels

    def load(self, code: ProgramCode) -> None:
        words = self.pixels * code.tokens
        code.product.over(code.p.mem1d(code.held["a0"], code.tokens, check=False), words)
        code.over(words)


@dataclass(frozen=True)
class PlaneShape(ImageShape):
    """The channels of each pixel are normalised: what rows are elsewhere are planes of so many pixels."""

    pixels: int
    channels: int

    @property
    def rows(self) -> int:
        return self.pixels

    def load(self, code: ProgramCode) -> None:
        code.planes.load(self.pixels * code.tokens)
        code.shapes.set_factor(1 / self.channels)


@dataclass(frozen=True)
class EdgeShape(ImageShape):
    """Planes of a strip are copied into a border in which the rows of pixels beside the strip come to lie.

    Attributes
    ----------
    copy : ConvolutionShape
        What reads the copies.
    edges : Edges
    """

    copy: ConvolutionShape
    edges: Edges

    @property
    def rows(self) -> int:
        return 1

    @property
    def padded(self) -> int:
        return self.copy.padded

    @property
    def line(self) -> int:
        """A row of pixels of the strip has so many."""
        return self.copy.given[1]

    @property
    def apart(self) -> int:
        """So many pixels of the copy lie between the first row that comes from the north and from the south."""
        return (self.copy.given[0] + self.edges.above) * self.copy.spread[0] * self.copy.around[1]

    def load(self, code: ProgramCode) -> None:
        assert code.strips is not None
        self.copy.load_copy(code)
        code.strips.load_edges(self)


@dataclass(frozen=True)
class StripShape(ImageShape):
    """Single rows are pixels of strips of so many."""

    pixels: int

    @property
    def rows(self) -> int:
        return 1

    def load(self, code: ProgramCode) -> None:
        assert code.strips is not None
        code.strips.load_strip(self.pixels * code.tokens)
        code.shapes.set(plane=self.pixels * code.tokens)


@dataclass(frozen=True)
class GroupShape(ImageShape):
    """Single rows are channels of so many pixels, and groups of so many rows, in each of some strips."""

    pixels: int
    members: int
    strips: int = 1

    @property
    def rows(self) -> int:
        return 1

    def load(self, code: ProgramCode) -> None:
        words = self.members * code.tokens
        code.shapes.set(plane=self.pixels, gap=self.members, rest=-words)
        code.shapes.set_factor(1 / (self.members * self.strips))
        code.shapes.set_strips(self.strips)


def _shape(network: Network, node: Node, direction: str) -> ImageShape | None:
    """Return the shape of an operation in a direction, None if it works on single rows."""
    given, rows = network.tensors[node.inputs[0]].rows, rows_of_node(node)
    if node.op == "convolution":
        return ConvolutionShape.of(window_of(node, given), direction)
    if node.op == "transposed":
        return ConvolutionShape.of(window_of(node, network.tensors[node.name].rows), OTHER_WAY[direction])
    if node.op == "gather":
        return StripShape(node.size("height") * node.size("width"))
    if node.op in ("maxpool", "avgpool"):
        largest = node.op == "maxpool"
        return PoolShape.of(window_of(node, given), direction == "back", largest, strips_of_mean(node))
    if node.op == "upsample":  # its way forward is the way back of a mean, its way back the mean
        return PoolShape(window_of(node, network.tensors[node.name].rows), direction == "forward", sums=True)
    if node.op == "resample":
        lines, sides = sides_of(node), (node.size("height"), node.size("width"))
        if direction == "back":
            lines, sides = (turned(lines[0], sides[0]), turned(lines[1], sides[1])), (len(lines[0]), len(lines[1]))
        return ResampleShape(*sides, *lines)
    if node.op == "multiple":
        pixels = pixels_of_multiple(network, node)
        return GroupShape(pixels, pixels)
    if node.op == "channelnorm":
        return PlaneShape(node.size("height") * node.size("width"), node.size("channels"))
    if node.op in ("groupnorm", "batchnorm", "shift", "scale"):
        pixels = node.size("height") * node.size("width")
        if node.op == "groupnorm":
            return GroupShape(pixels, given // node.size("groups"), rows)
        return GroupShape(pixels, pixels)
    if node.op == "cross_entropy" and network.label_pixels > 1:
        return LossShape(network.label_pixels)
    return None


def _edge_shape(network: Network, node: Node, direction: str) -> EdgeShape | None:
    """Return the shape of the copies of a convolution on strips in a direction, None without rows beside them."""
    if node.op not in ("convolution", "transposed") or not on_strips(node):
        return None
    other = node.op == "transposed"
    window = window_of(node, network.tensors[node.name if other else node.inputs[0]].rows)
    way = OTHER_WAY[direction] if other else direction
    edges = edges_of(window, rows_of_node(node), way == "back")
    return EdgeShape(ConvolutionShape.of(window, way), edges) if edges != Edges() else None


def pixels_of_multiple(network: Network, node: Node) -> int:
    """Return how many neighbouring features a product with a constant works on at once: those that lie together."""
    tensor = network.tensors[node.name]
    return 1 if tensor.head else tensor.unit


@lru_cache(maxsize=64)
def shapes_of(network: Network) -> dict[ImageShape, int]:
    """Return the number of each shape that a network's operations have, from 1 on."""
    found: dict[ImageShape, int] = {}
    for step in schedule(network, "train"):
        shape = _shape(network, step.node, step.direction)
        edged = _edge_shape(network, step.node, step.direction)
        for one in (shape, edged) if step.node.op == step.op else ():
            if one is not None:
                found.setdefault(one, len(found) + 1)
    return found


def shape_number(network: Network, node: Node, direction: str) -> int:
    """Return the number of the shape of an operation in a direction."""
    shape = _shape(network, node, direction)
    return 0 if shape is None else shapes_of(network)[shape]


def edge_number(network: Network, node: Node, direction: str) -> int:
    """Return the number of the shape of copies that have rows of pixels from beside their strip, 0 if none come."""
    shape = _edge_shape(network, node, direction)
    return 0 if shape is None else shapes_of(network)[shape]


def padded_rows(network: Network, columns: int) -> int:
    """Return the rows of the copies with a border, as many as any operation has at once."""
    most = 0
    for step in schedule(network, "train"):
        shape = _shape(network, step.node, step.direction)
        if shape is None or not shape.padded:
            continue
        if isinstance(shape, PoolShape | ResampleShape):  # a plane after the other
            most = max(most, shape.padded)
            continue
        node = step.node
        given = step.direction == "forward" or (step.direction == "ask" and node.op == "convolution")
        tensor = network.tensors[node.inputs[0] if given else node.name]
        channels = node.size("channels" if given == (node.op == "convolution") else "outputs")
        plane = tensor.rows // channels
        most = max(most, shape.padded * (layouts_of(network, columns)[tensor.name].most // plane))
    return most


class ProgramShapes:
    """A program has shapes, and numbers that they set.

    Parameters
    ----------
    code : ProgramCode
    """

    def __init__(self, code: ProgramCode) -> None:
        self.code, p, self.every = code, code.p, tuple(shapes_of(code.network))
        names = NUMBERS if code.strips is None else (*NUMBERS, *EDGES)
        self.numbers = {name: p.scalar(name, "i16", 0) for name in names}
        divides = any(node.op in DIVIDING for node in code.network.nodes)
        self._factor = p.reg32("factor") if divides else None

    def set(self, **values: int) -> None:
        """Emit the setting of numbers."""
        p = self.code.p
        reg = p.reg16("number")
        for name, value in values.items():
            p.ldi(reg, value)
            p.st16(reg, self.numbers[name])
        p.free(reg)

    def set_factor(self, value: float) -> None:
        """Emit the setting of the factor, in a program that has one."""
        if self._factor is not None:
            self.code.p.mov32(self._factor, value)

    @property
    def factor(self) -> Reg:
        """What sums of a window or a group are multiplied with has this register."""
        assert self._factor is not None
        return self._factor

    def set_strips(self, strips: int) -> None:
        """Emit whether sums are those of several strips, in a program that has strips."""
        if self.code.strips is not None:
            self.set(shared=int(strips > 1))

    def number(self, name: str) -> Reg:
        """Emit the load of a number; return the register with it."""
        found = self.code.p.reg16(name)
        self.code.p.ld16(found, self.numbers[name])
        return found

    def task(self) -> None:
        """Write the command ``shape``."""
        code, p = self.code, self.code.p
        with code.command("shape") as t:
            for shape, number in shapes_of(code.network).items():
                behind = p.new_label()
                p.br16("ne", t.data, number, behind)
                shape.load(code)
                p.done()
                p.place(behind)
            for part in (code.product, code.gradient, code):
                part.prepare()
