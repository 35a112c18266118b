"""What only puts numbers of a tensor in other places is told by where it puts them.

Slices, paddings, permutations of channels, shuffles of pixels: files say them by many nodes in a row.  Such nodes are
run by ONNX' own reference evaluator on the numbers of the places of two samples, one behind the other; nothing is added
to the network until another node takes the result.  Then it is looked at where the numbers came from:

=====================================================================  ==============================================
rows and columns of pixels are others, the same of all channels        resample (``pick``)
channels are others, or zeros                                          convolution of single pixels, not trained
channels are pixels of windows side by side, of whatever channels      convolution of such windows, not trained
windows side by side are pixels of channels                            transposed, not trained
features are others                                                    linear, not trained
=====================================================================  ==============================================

Filters that are not trained have a one for each number that is put somewhere; their zeros are not streamed.

Source: ONNX operators, https://onnx.ai/onnx/operators/, as `harness.train.onnx_reader` has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.train.onnx_reader import FileTensor, OnnxReader

__all__ = ["MovedReader", "Moves", "moves_of"]

Places = NDArray[np.int64]
SHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""These do not change the order of numbers."""
MOVING = (
    *SHAPING,
    *("Transpose", "Slice", "Gather", "GatherND", "GatherElements", "Split", "Concat", "Pad", "Expand", "Tile"),
    *("DepthToSpace", "SpaceToDepth", "Identity"),
)
"""Numbers are put in other places, and zeros beside them, by these operators."""
LISTS = ("SplitToSequence", "SequenceAt")
"""Lists of tensors are made and taken apart by these."""
MOST = 2**22
"""Places of so many numbers are counted exactly in float32, of two samples."""


class Moved(NamedTuple):
    """A `Moved` tensor has numbers of another one.

    Attributes
    ----------
    base : str
        The tensor of the file whose numbers it has.
    places : ndarray of float32, shape (2, ...)
        For each number of two samples its place among those of the base, counted from 1 on; 0: a zero.
    why : tuple of str
        What is said of the first node if nothing comes of the last.
    """

    base: str
    places: np.ndarray
    why: tuple[str, ...] = ()


class Moves(NamedTuple):
    """`Moves` say what makes a result of an image, or of features, one after the other.

    Attributes
    ----------
    rows, columns : tuple of int
        Of pixels that are picked, -1 for zeros; empty: all, in their order.
    filters : ndarray or None
        Of a convolution, of a transposed one if `enlarges`, or the weights of a product if it has two axes.
    strides : (int, int)
    enlarges : bool
    """

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    filters: np.ndarray | None = None
    strides: tuple[int, int] = (1, 1)
    enlarges: bool = False


def moves_of(places: Places, given: Sequence[int], result: Sequence[int]) -> Moves | None:
    """Return what puts the numbers of an image in such places; None if nothing here does.

    Parameters
    ----------
    places : ndarray of int
        For each number of the result its place among those that are given, from 0 on; -1: a zero.
    given, result : sequence of int
        Channels, rows and columns.
    """
    whole = places.reshape(*result)
    if tuple(result) == tuple(given) and np.array_equal(places.ravel(), np.arange(places.size)):
        return Moves()
    for find in (_picked, _windowed, _enlarged):
        found = find(whole, tuple(given))
        if found is not None:
            return found
    return None


def _picked(places: Places, given: tuple[int, ...]) -> Moves | None:
    """Return rows and columns that are picked of all channels, and which channel each is of; None if that is not so."""
    channels, height, width = given
    there = places >= 0
    full = np.asarray(there.any((1, 2)))  # the others are zeros, and whole channels of them
    if not full.any():
        return None
    of = np.where(there, places // (height * width), -1).max((1, 2))
    inside = np.where(there, places - of[:, None, None] * height * width, -1)
    first = inside[full][0]
    if (inside[full] != first).any() or first.max() >= height * width:
        return None
    rows = np.where(first >= 0, first // width, -1).max(1)
    columns = np.where(first >= 0, first % width, -1).max(0)
    both = (rows >= 0)[:, None] & (columns >= 0)
    if (np.where(both, rows[:, None] * width + columns, -1) != first).any():
        return None
    filters = (
        None if np.array_equal(of, np.arange(channels)) else (np.eye(channels)[of] * full[:, None])[:, :, None, None]
    )
    stay = np.array_equal(rows, np.arange(height)) and np.array_equal(columns, np.arange(width))
    picked = ((), ()) if stay else (tuple(rows.tolist()), tuple(columns.tolist()))
    return Moves(*picked, filters)


def _windowed(places: Places, given: tuple[int, ...]) -> Moves | None:
    """Return filters that take a pixel of each window side by side; None if there are no such windows."""
    (channels, height, width), (outputs, down, along) = given, places.shape
    kernel = height // down, width // along
    if (down * kernel[0], along * kernel[1]) != (height, width) or places.min() < 0:
        return None
    channel, row, column = (np.array(part) for part in np.unravel_index(places, given))
    u, v = row[:, 0, 0], column[:, 0, 0]
    wanted = channel[:, :1, :1] * height + np.arange(down)[:, None] * kernel[0] + u[:, None, None]
    wanted = wanted * width + np.arange(along) * kernel[1] + v[:, None, None]
    if (wanted != places).any() or max(u - kernel[0]) >= 0 or max(v - kernel[1]) >= 0:
        return None
    filters = np.zeros((outputs, channels, *kernel))
    filters[np.arange(outputs), channel[:, 0, 0], u, v] = 1
    return Moves(filters=filters, strides=kernel)


def _enlarged(places: Places, given: tuple[int, ...]) -> Moves | None:
    """Return filters that put each pixel in one place of a window; None if there are no windows side by side."""
    (channels, height, width), (outputs, down, along) = given, places.shape
    kernel = down // height, along // width
    if min(kernel) < 1 or (height * kernel[0], width * kernel[1]) != (down, along) or places.min() < 0:
        return None
    channel = (places // (height * width))[:, : kernel[0], : kernel[1]]
    inside = np.arange(down)[:, None] // kernel[0] * width + np.arange(along) // kernel[1]
    wanted = np.tile(channel, (1, height, width)) * height * width + inside
    if (wanted != places).any():
        return None
    filters = np.zeros((channels, outputs, *kernel))
    for o, u, v in np.ndindex(*channel.shape):
        filters[channel[o, u, v], o, u, v] = 1
    return Moves(filters=filters, strides=kernel, enlarges=True)


class MovedReader(OnnxReader):
    """A `MovedReader` reads a graph of images or features, with nodes that put numbers in other places."""

    def __init__(self, path: Any, model: Any) -> None:
        super().__init__(path, model)
        self.moved: dict[str, Moved] = {}
        self.lists: dict[str, list[Moved]] = {}
        self.around: dict[str, Any] = {}  # what puts zeros around an image, which only convolutions take

    def _node(self, node: Any) -> None:
        if self._goes_on(node):
            return
        refused, count = len(self.refused), len(self.nodes)
        if node.op_type in LISTS:
            self._settle(node.input)
        else:
            self._with_border(node)
            super()._node(node)
        if node.op_type == "Pad" and len(self.refused) == refused:
            self.around[node.output[0]] = node
        fails = node.op_type in LISTS or len(self.refused) > refused
        if not fails or node.op_type not in (*MOVING, *LISTS) or len(self.nodes) > count:
            return
        why = tuple(self.refused[refused:])
        if self._moves(node, why):
            del self.refused[refused:]
        elif len(self.refused) == refused:
            self._refuse(node, "is not trained here")

    def _with_border(self, node: Any) -> None:
        """Let what takes an image with zeros around it, and is no convolution, take one that has them."""
        for name in node.input if node.op_type not in ("Conv", "Pad") else ():
            value = self.values.get(name)
            if value is not None and value.border and value.node and name in self.around:
                pad = self.around[name]
                self._with_border(pad)
                if self._moves(pad):
                    self._settle([name])

    def _elsewhere(self, name: str) -> bool:
        held = [*self.moved.values(), *(one for some in self.lists.values() for one in some)]
        return super()._elsewhere(name) or any(self.values[one.base].node == name for one in held)

    # --- where numbers go ---------------------------------------------------------------------------------------------

    def _goes_on(self, node: Any) -> bool:
        """Go on with numbers that have been put elsewhere; return whether the node does no more than that."""
        held = [name for name in node.input if name in self.moved or name in self.lists]
        if not held:
            return False
        whole = all(self._known_moves(name) is not None for name in held)
        ends = node.op_type not in (*MOVING, *LISTS) or (node.op_type in SHAPING and whole)
        if not ends and self._moves(node):
            known = [self._known_moves(name) is not None for name in node.output if name in self.moved]
            if not whole or all(known):
                return True
            for name in node.output:  # each of the two is something here, and both together are not
                self.moved.pop(name, None)
                self.values.pop(name, None)
        self._settle(held)
        return False

    def _moves(self, node: Any, why: tuple[str, ...] = ()) -> bool:
        """Note where a node puts numbers; return whether it does no more, with those of a single tensor."""
        names = [name for name in node.input if name in self.values]
        bases = {one[0].base if (one := self.lists.get(name)) else self._held(name).base for name in names}
        x = self.values[bases.pop()] if len(bases) == 1 else FileTensor("", ())
        if not x.node or x.node == "-" or not x.shape or x.groups or x.border or x.last or x.features > MOST:
            return False
        if node.op_type in LISTS:
            return self._listed(node, why)
        given = {name: self._held(name) for name in names}
        numbers = {name: self.known[name] for name in node.input if name in self.known}
        if node.op_type in ("Reshape", "Expand") and numbers:
            shape = next(iter(numbers))
            numbers[shape] = np.array(numbers[shape])
            numbers[shape][:1][numbers[shape][:1] == self.samples] = 2
        try:
            found = self._run(node, {name: one.places for name, one in given.items()} | numbers)
        except Exception:  # operators have one each for what they do not take
            return False
        for name, places in zip(node.output, found, strict=True):
            first = next(iter(given.values()))
            self._put(name, Moved(first.base, np.asarray(places), first.why or why))
        return True

    def _held(self, name: str) -> Moved:
        """Return where the numbers of a tensor came from, at first its own places."""
        if name in self.moved:
            return self.moved[name]
        shape = self.values[name].shape
        count = math.prod(shape)
        return Moved(name, np.arange(1, 2 * count + 1, dtype=np.float32).reshape(2, *shape))

    def _put(self, name: str, moved: Moved) -> None:
        self.moved[name] = moved
        self.values[name] = FileTensor("-", moved.places.shape[1:] if moved.places.shape[:1] == (2,) else ())

    def _listed(self, node: Any, why: tuple[str, ...]) -> bool:
        """Note the tensors of a list, or take one of it."""
        if node.op_type == "SequenceAt":
            at = self.known.get(node.input[1])
            if at is None or node.input[0] not in self.lists:
                return False
            self._put(node.output[0], self.lists[node.input[0]][int(at.reshape(()))])
            return True
        given = self._held(node.input[0])
        base, places = given.base, given.places
        axis = self._of(node, "axis", 0) % places.ndim
        sizes = self.known.get(node.input[1], np.array([])) if len(node.input) > 1 else np.ones(places.shape[axis])
        ends = np.cumsum(sizes) if np.ndim(sizes) else np.arange(int(sizes), places.shape[axis] + 1, int(sizes))
        if not axis or not self._of(node, "keepdims", 1) or not len(ends) or ends[-1] > places.shape[axis]:
            return False
        parts = np.split(places, ends.astype(int)[:-1] if ends[-1] == places.shape[axis] else ends.astype(int), axis)
        self.lists[node.output[0]] = [Moved(base, part, given.why or why) for part in parts]
        self.values[node.output[0]] = FileTensor("-", ())
        return True

    # --- what they become ---------------------------------------------------------------------------------------------

    def _known_moves(self, name: str) -> Moves | None:
        """Return what a tensor is made by; None if nothing here makes it."""
        moved = self.moved.get(name, Moved("", np.zeros(0)))
        base, places = moved.base, moved.places
        x = self.values.get(base)
        count = x.features if x is not None else 0
        one, other = (places[:1], places[1:2]) if places.shape[:1] == (2,) else (places[:0], places[:0])
        if x is None or not one.size or (other != np.where(one > 0, one + count, 0)).any() or one.max() > count:
            return None
        shape, sources = places.shape[1:], one[0].astype(np.int64) - 1
        if len(shape) == 1 and np.array_equal(sources, np.arange(count)):
            return Moves()
        if len(shape) == len(x.shape) == 1:
            return Moves(filters=(sources[:, None] == np.arange(count)).astype(float))
        if len(shape) == 1 and len(x.shape) > 1:  # numbers of a sample: images of one pixel
            return moves_of(sources, x.image, (*shape, 1, 1)) if x.image else None
        result = FileTensor("", shape).image
        return moves_of(sources, x.image, result) if x.image and result and len(shape) == len(x.shape) else None

    def _settle(self, names: Sequence[str]) -> None:
        """Make of what has been put elsewhere what other nodes take."""
        for name in dict.fromkeys(names):
            if name in self.lists:
                del self.lists[name]
                self.values[name] = FileTensor("", ())
            if name not in self.moved:
                continue
            moves, moved = self._known_moves(name), self.moved.pop(name)
            base, places = moved.base, moved.places
            super()._settle([base])
            node = next(one for one in self.graph.node if name in one.output)
            if moves is None:
                shape = places.shape[1:]
                what = f"numbers of a tensor of shape {self.values[base].shape} lie in other places of one of shape "
                self.refused += [line for line in moved.why if line not in self.refused]
                self._refuse(node, f"{what}{shape}: no rows, columns, channels or windows side by side are put so here")
                self.values[name] = FileTensor("", ())
            else:
                self.values[name] = self._made(node, self.values[base], moves, places.shape[1:])
        super()._settle(names)

    def _made(self, node: Any, x: FileTensor, moves: Moves, shape: tuple[int, ...]) -> FileTensor:
        """Append what makes a tensor of another; return it."""
        held = {name: self.values[name] for name in node.output}
        if moves.rows:
            sides = shape if moves.filters is None else (x.shape[0], *shape[1:])
            keys: dict[str, Any] = {"method": "pick", "rows": moves.rows, "columns": moves.columns}
            self._add_node(node, "resample", x, shape=sides, **keys)
            x = self.values[node.output[0]]
        if moves.filters is not None and moves.filters.ndim == 2:
            name = self._add_node(node, "linear", x, shape=shape, outputs=len(moves.filters), bias=False, fixed=True)
            self.tensors[f"{name}.weight"], self.origins[f"{name}.weight"] = moves.filters.astype(np.float32), ()
            x = FileTensor(name, shape)
        elif moves.filters is not None:
            down, along = moves.strides
            strides = {"stride": down} | ({"stride_width": along} if along != down else {})
            op = "transposed" if moves.enlarges else "convolution"
            x = self._constant_filters(node, x, moves.filters, shape, op, **strides)
        self.values |= held
        return x._replace(shape=shape)
