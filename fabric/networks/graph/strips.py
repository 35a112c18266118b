"""Images over several rows of PEs: each row has a strip of every image, and what it works on is a network of strips.

The rows of pixels of an image lie on `Network.image_rows` neighbouring rows of PEs, the same number on each, from the
north.  An operation works on strips if each strip of its result follows from a strip of what it takes, the rows of
pixels that its windows reach beyond it, and no more: convolutions whose windows keep the strips together, pooling
within a strip, and what works pixel by pixel.  Before any other operation a strip is gathered into the whole image
(`fabric.networks.graph.gather`), which then lies in each of the rows.

`strips_of` gives the network that a row of PEs works on.  Its parameters are those of the network itself, and where no
window reaches over a strip it is nothing but the same network for smaller images.

Source: weight streaming white paper, section 8.2, figure 26 (height and width of images over the axes of the wafer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from fabric.networks.graph.activations import ACTIVATIONS
from fabric.networks.graph.network import Network
from fabric.networks.graph.nodes import Node
from fabric.networks.graph.tensors import INPUT
from fabric.networks.graph.windows import Window, window_of
from wse_core.errors import ConfigError, UnsupportedError

__all__ = [
    "Edges",
    "Strips",
    "counts_once",
    "edges_of",
    "image_rows_of",
    "is_mean",
    "on_strips",
    "rows_of_node",
    "strips_of",
    "strips_of_mean",
]

ROWS = "rows"
"""A node that works on strips has a size of this name: rows of PEs of an image."""
MEANS = "means"
"""One that gives means of whole images has this size too: so many strips of an image have one mean."""
POINTWISE = (*ACTIVATIONS, "add", "mul", "concat", "multiple")
"""These work number by number, or put channels side by side."""
OF_CHANNELS = ("shift", "scale", "batchnorm", "groupnorm", "channelnorm")
"""These have numbers of a channel; sums over its pixels are those of strips, added up."""
ENLARGING = ("transposed", "upsample")
"""These move windows over what they give."""
WINDOWED = ("convolution", *ENLARGING, "maxpool", "avgpool")
WHERE = "mesh.image_rows"


@dataclass(frozen=True)
class Edges:
    """Windows reach over a strip.

    Attributes
    ----------
    above, below : int
        So many rows of pixels of the strip north of it, and of the one south of it; of the first strip.
    slope : int
        With each strip so many more above, and fewer below: strips of the result are smaller than what is given.
    """

    above: int = 0
    below: int = 0
    slope: int = 0

    def of(self, strip: int) -> tuple[int, int]:
        """Return the rows of pixels above and below a strip."""
        return self.above + strip * self.slope, self.below - strip * self.slope


@dataclass(frozen=True)
class Strips:
    """Images of a network lie in strips.

    Attributes
    ----------
    network : Network
        What a row of PEs works on; without strips the network itself.
    rows : int
        Rows of PEs that an image lies on.
    channels : dict[str, int]
        Channels of each tensor that lies in strips, by name.
    whole : dict[str, str]
        Why images lie whole in each row from a node on that would take strips otherwise, by its name.
    """

    network: Network
    rows: int = 1
    channels: Mapping[str, int] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)


def on_strips(node: Node) -> bool:
    """Return whether a node of the network of a row of PEs works on strips."""
    return ROWS in dict(node.sizes)


def rows_of_node(node: Node) -> int:
    """Return how many rows of PEs the images lie on that a node works on in strips; 1 if it does not."""
    return dict(node.sizes).get(ROWS, 1)


def image_rows_of(network: Network) -> int:
    """Return how many rows of PEs an image lies on, given the network of a row of PEs."""
    return max(rows_of_node(node) for node in network.nodes)


def counts_once(network: Network) -> bool:
    """Return whether a row of PEs works on strips first and on whole images later, whose sums count once."""
    return len({on_strips(node) for node in network.nodes}) > 1


def strips_of_mean(node: Node) -> int:
    """Return of how many strips of an image a node of the network of a row of PEs gives one mean."""
    return dict(node.sizes).get(MEANS, 1)


def is_mean(node: Node, window: Window) -> bool:
    """Return whether a node gives the mean of all pixels of a channel, which each row of PEs then has."""
    whole = window.kernel_height, window.kernel_width
    return node.op == "avgpool" and whole == (window.height, window.width) and not window.bordered


def edges_of(window: Window, rows: int, back: bool = False) -> Edges:
    """Return how far windows of a convolution reach over strips, or those of its product back, over gradients.

    Parameters
    ----------
    window : Window
        Of strips.
    rows : int
        Rows of PEs of an image.
    back : bool
    """
    k, s, p, less = window.reach[0], window.strides[0], window.before[0], window.more // (rows - 1)
    if back:
        return Edges((k - 1 - p) // s, -(-p // s) + less, -less)
    return Edges(p, max(0, k - s - p - less), less)


def _of_strips(window: Window, rows: int) -> Window:
    """Return the window of strips of images; a smaller result takes the same from every strip."""
    less = window.height - window.out_height if window.strides[0] == 1 else 0
    return replace(window, height=window.height // rows, more=less // rows * (rows - 1))


@lru_cache(maxsize=64)
def strips_of(network: Network) -> Strips:
    """Return how the images of a network lie on its `image_rows`.

    Raises
    ------
    ConfigError
        A network without images.
    UnsupportedError
        No operation can work on strips, or one mixes samples that lie on rows of PEs otherwise; the message names it.
    """
    rows = network.image_rows
    if rows == 1:
        return Strips(network)
    first = next((node for node in network.nodes if "height" in dict(node.sizes)), None)
    if first is None:
        raise ConfigError("the network has no images", where=WHERE, hint="1")
    for node in network.nodes:
        if "sequence" in dict(node.sizes):
            what = f"{node.name}: a sequence of tokens does not lie on rows of PEs together with strips of images"
            raise UnsupportedError(what, feature="images over rows of PEs", where=WHERE, hint="1")
    found = _Found(network, rows, first)
    for node in network.nodes:
        found.add(node)
    if not any(node.op in WINDOWED or node.op in OF_CHANNELS for node in found.striped):
        name, why = next(iter(found.whole.items()), (first.name, f"{first.op} takes whole images"))
        able = [other for other in range(2, first.size("height") + 1) if _works(network, first, other)]
        near = sorted(sorted(able, key=lambda other: abs(other - rows))[:4])
        raise UnsupportedError(
            f"{name}: {why}, and nothing before it works on strips",
            feature="images over rows of PEs",
            where=WHERE,
            hint=", ".join(map(str, near)) or "1",
        )
    inputs = network.inputs // rows if INPUT in found.channels else network.inputs
    inner = replace(network, nodes=tuple(found.nodes), inputs=inputs, image_rows=1)
    return Strips(inner, rows, found.channels, found.whole)


def _works(network: Network, first: Node, rows: int) -> bool:
    """Return whether the first operation on images works on strips of so many rows of PEs."""
    found = _Found(network, rows, first)
    return INPUT in found.channels and not found.reason(first)


class _Found:
    """Nodes of the network of a row of PEs, as far as they are known.

    Parameters
    ----------
    network : Network
    rows : int
    first : Node
        The first one that knows the sizes of its images; the samples are such images if they have as many features.
    """

    def __init__(self, network: Network, rows: int, first: Node) -> None:
        self.network, self.rows = network, rows
        self.nodes: list[Node] = []
        self.striped: list[Node] = []
        self.channels: dict[str, int] = {}
        self.heights: dict[str, int] = {}
        self.whole: dict[str, str] = {}
        self._gathered: dict[str, str] = {}
        channels, height, width = _given(network, first)
        if channels * height * width == network.inputs:
            if height % rows:
                self.whole[first.name] = f"{height} rows of pixels do not divide into {rows} strips"
            else:
                self.channels[INPUT], self.heights[INPUT] = channels, height

    def add(self, node: Node) -> None:
        """Append a node, and what gathers strips that it takes whole."""
        strips = [name in self.channels for name in node.inputs]
        why = self.reason(node) if all(strips) else ""
        if all(strips) and why is None:
            self._strip(node)
            return
        if any(strips) and why:
            self.whole[node.name] = why
        self.nodes.append(replace(node, inputs=tuple(self._gather(name) for name in node.inputs)))

    def reason(self, node: Node) -> str | None:
        """Return why a node does not work on strips, which it is given; None if it does, "" if that is its nature."""
        rows = self.rows
        if node.op in POINTWISE:
            return None
        if node.op in ("shift", "scale") and node.size("channels") != self.channels[node.inputs[0]]:
            return "it has a number for each pixel"
        if node.op in OF_CHANNELS or (node.op == "cross_entropy" and "height" in dict(node.sizes)):
            return None
        if node.op not in WINDOWED:
            return "" if node.op == "linear" or node is self.network.nodes[-1] else f"{node.op} takes whole images"
        window = window_of(node, self.network.tensors[_larger(node)].rows)
        strip = window.height // rows
        if window.height % rows:
            return f"{window.height} rows of pixels do not divide into {rows} strips"
        if node.op in ("maxpool", "avgpool", "upsample"):
            if is_mean(node, window):
                return None
            stride = window.strides[0]
            if window.bordered or window.kernel_height > stride or strip % stride:
                return f"its windows do not divide strips of {strip} rows of pixels"
            return None
        if window.before[0] != window.behind[0]:
            return "above and below its images there are not as many rows without pixels"
        inner, stride = _of_strips(window, rows), window.strides[0]
        if inner.out_height * rows != window.out_height or window.out_height > window.height or strip % stride:
            what = f"{window.out_height} rows of its {window.height}"
            return f"strips of {strip} rows of pixels do not give strips: its windows make {what}"
        for back, least in ((False, strip), (True, inner.out_height)):
            far = edges_of(inner, rows, back)
            reach = max(max(far.of(number)[0], far.of(number - 1)[1]) for number in range(1, rows))
            if reach > least:
                return f"its windows reach {reach} rows of pixels over strips of {least}"
        return None

    def _strip(self, node: Node) -> None:
        """Append a node that works on strips."""
        sizes, rows = dict(node.sizes), self.rows
        result = self.network.tensors[node.name].rows
        channels, height = self.channels[node.inputs[0]], self.heights[node.inputs[0]]
        if node.op in WINDOWED:
            window = window_of(node, self.network.tensors[_larger(node)].rows)
            height = window.height if node.op in ENLARGING else window.out_height
            if "outputs" in sizes:
                sizes["more"] = _of_strips(window, rows).more
            channels = {"convolution": sizes.get("outputs", 0)}.get(node.op, window.channels)
        elif node.op == "concat":
            channels = sum(self.channels[name] for name in node.inputs)
        means = node.op in WINDOWED and is_mean(node, window)
        if means:
            sizes |= {MEANS: rows, "kernel_height": sizes["kernel_height"] // rows}
        if "height" in sizes:
            sizes["height"] //= rows
        assert means or result % (channels * rows) == 0
        made = replace(node, sizes=sizes | {ROWS: rows})
        self.nodes.append(made)
        self.striped.append(made)
        if node.op != "cross_entropy" and not means:
            self.channels[node.name], self.heights[node.name] = channels, height

    def _gather(self, name: str) -> str:
        """Return the name of a whole tensor, which is gathered if it lies in strips."""
        if name not in self.channels:
            return name
        if name not in self._gathered:
            channels, height = self.channels[name], self.heights[name]
            width = self.network.tensors[name].rows // (channels * height)
            sizes = {"channels": channels, "height": height // self.rows, "width": width, ROWS: self.rows}
            self._gathered[name] = f"{name}.gather"
            self.nodes.append(Node(self._gathered[name], "gather", (name,), sizes))
        return self._gathered[name]


def _larger(node: Node) -> str:
    """Return the name of the tensor over which the windows of a node move."""
    return node.name if node.op in ENLARGING else node.inputs[0]


def _given(network: Network, node: Node) -> tuple[int, int, int]:
    """Return channels, rows and columns of pixels of what a node takes."""
    if node.op in ENLARGING:
        window = window_of(node, network.tensors[node.name].rows)
        return dict(node.sizes).get("outputs", window.channels), window.out_height, window.out_width
    pixels = node.size("height") * node.size("width")
    return network.tensors[node.inputs[0]].rows // pixels, node.size("height"), node.size("width")
