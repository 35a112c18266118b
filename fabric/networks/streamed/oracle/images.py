"""The oracle of operations on images makes a convolution a product with unfolded pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabric.networks.graph.nodes import Node
from fabric.networks.graph.operations import APART
from fabric.networks.graph.resample import Lines, sides_of, turned
from fabric.networks.graph.scale import factor_of
from fabric.networks.graph.tensors import NetworkTensor
from fabric.networks.graph.windows import Window, unfolded, window_of
from fabric.networks.streamed.oracle.linear import product
from fabric.networks.streamed.oracle.mesh import MeshArithmetic
from fabric.networks.streamed.parameters import StreamedParameter, StreamedPattern

__all__ = [
    "ask",
    "convolved",
    "convolved_back",
    "enlarged",
    "multiplied",
    "normalised",
    "normalised_back",
    "normalised_heads",
    "normalised_heads_back",
    "pooled_largest",
    "pooled_largest_back",
    "pooled_mean",
    "pooled_mean_back",
    "repeated",
    "repeated_back",
    "resampled",
    "resampled_back",
    "scaled",
    "scaled_back",
    "shifted",
    "shifted_back",
]

Halves = NDArray[np.uint16]
Bits = NDArray[np.uint32]
Numbers = NDArray[np.int64]
LOWEST = 0xFF800000


# --- convolution ------------------------------------------------------------------------------------------------------


def convolved(
    a: MeshArithmetic, node: Node, given: NetworkTensor, result: NetworkTensor, x: Halves, weights: StreamedParameter
) -> tuple[Halves, Halves]:
    """Return (W * x + b, what was given)."""
    window = window_of(node, len(x))
    rows, (channel, tap, bias) = weights.pattern.rows, _entries(node, window, weights.pattern)
    source = _pixels(window, x)
    source = np.concatenate([source, np.full((1, source.shape[1]), a.one, np.uint16)])
    landing, owners = a.owners(result)[:: window.out_plane], a.owners(given)[:: window.plane]
    column = np.where(bias, landing[rows], owners[channel])
    indices = np.where(bias, len(source) - 1, channel * window.taps + tap)
    order = np.lexsort((np.where(bias, -1, indices), rows))
    found = product(a, weights.values[order], rows[order], column[order], source, indices[order], landing)
    return found.reshape(result.rows, -1), x


def convolved_back(
    a: MeshArithmetic,
    node: Node,
    given: NetworkTensor,
    result: NetworkTensor,
    delta: Halves,
    weights: StreamedParameter,
) -> Halves:
    """Return the gradient of what was given: what each pixel gave to a result, times that result's gradient."""
    window = window_of(node, given.rows)
    channel, tap, bias = _entries(node, window, weights.pattern)
    rows, kept = weights.pattern.rows, np.flatnonzero(~bias)
    source = _gathered(window, delta.reshape(-1, window.out_plane, delta.shape[1]))
    indices = rows * window.taps + (window.taps - 1 - tap)
    order = kept[np.lexsort((indices[kept], channel[kept]))]
    owners, landing = a.owners(result)[:: window.out_plane], a.owners(given)[:: window.plane]
    values = weights.values[order]
    found = product(a, values, channel[order], owners[rows[order]], source, indices[order], landing)
    return found.reshape(given.rows, -1)


def enlarged(
    a: MeshArithmetic, node: Node, given: NetworkTensor, result: NetworkTensor, x: Halves, weights: StreamedParameter
) -> tuple[Halves, Halves]:
    """Return a transposed convolution and what was given: the gradient of the convolution that goes the other way."""
    return convolved_back(a, node, result, given, x, weights), x


def ask(a: MeshArithmetic, node: Node, delta: Halves, x: Halves, weights: StreamedParameter) -> Bits:
    """Return the gradients of filters that are asked for."""
    window, asked = window_of(node, len(x)), weights.gradient_pattern
    channel, tap, bias = _entries(node, window, asked)
    deltas = a.widen(delta.reshape(-1, window.out_plane, delta.shape[1]))[asked.rows]
    pixels = a.widen(_pixels(window, x)).reshape(-1, window.out_plane, x.shape[1])
    products = a.mul(pixels[np.where(bias, 0, channel * window.taps + tap)], deltas)
    return a.south_of_planes(np.where(bias[:, None, None], deltas, products))


def _entries(node: Node, window: Window, pattern: StreamedPattern) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Return (channel of what is given, place in the window, is a bias) of each entry of filters."""
    groups = node.size("groups")
    of_group, outputs = window.channels // groups, node.size("outputs") // groups
    bias = pattern.indices == of_group * window.taps
    index = np.where(bias, 0, pattern.indices)
    return pattern.rows // outputs * of_group + index // window.taps, index % window.taps, bias


def _pixels(window: Window, x: Halves) -> Halves:
    """Return the pixels of all windows, shape (channels x taps, pixels of the result x samples)."""
    return (
        unfolded(window, x.T)
        .reshape(x.shape[1], window.channels * window.taps, -1)
        .transpose(1, 2, 0)
        .reshape(window.channels * window.taps, -1)
    )


def _gathered(window: Window, delta: Halves) -> Halves:
    """Return, per channel and place of the turned window, the gradients that a pixel meets there.

    Parameters
    ----------
    window : Window
    delta : ndarray, shape (channels of the result, pixels of the result, samples)

    Returns
    -------
    ndarray, shape (channels of the result x taps, pixels given x samples)
    """
    w, samples = window, delta.shape[2]
    planes = delta.reshape(-1, w.out_height, w.out_width, samples)
    found = np.zeros((len(planes), w.taps, w.height, w.width, samples), np.uint16)
    for u in range(w.kernel_height):
        for v in range(w.kernel_width):
            place = w.taps - 1 - (u * w.kernel_width + v)
            for i in range(w.out_height):
                for j in range(w.out_width):
                    row = i * w.strides[0] + u * w.dilations[0] - w.before[0]
                    column = j * w.strides[1] + v * w.dilations[1] - w.before[1]
                    if 0 <= row < w.height and 0 <= column < w.width:
                        found[:, place, row, column] = planes[:, i, j]
    return found.reshape(len(planes) * w.taps, -1)


# --- pooling ----------------------------------------------------------------------------------------------------------


def pooled_largest(a: MeshArithmetic, node: Node, x: Halves) -> tuple[Halves, tuple[Halves, Halves]]:
    """Return (the largest pixel of each window, what was given and what is returned)."""
    found = np.full((), LOWEST, np.uint32)
    for pixels in _taps(window_of(node, len(x)), x, _lowest(a)):
        found = a.larger(np.broadcast_to(found, pixels.shape), a.widen(pixels))
    rows = a.narrow(found).reshape(-1, x.shape[1])
    return rows, (x, rows)


def pooled_largest_back(a: MeshArithmetic, node: Node, delta: Halves, kept: tuple[Halves, Halves]) -> Halves:
    """Return the gradients of what was pooled: of the first of the largest pixels of each window."""
    x, rows = kept
    window = window_of(node, len(x))
    deltas, largest = a.widen(_planes(window, delta)), a.widen(_planes(window, rows))
    left = np.full(deltas.shape, np.float32(1).view(np.uint32), np.uint32)
    parts = []
    for pixels in _taps(window, x, _lowest(a)):
        hit = a.times(a.sub(largest, a.widen(pixels)), -APART)
        hit = a.plus(a.larger(hit, np.full_like(hit, np.float32(-1).view(np.uint32))), 1.0)
        hit = a.mul(left, hit)
        left = a.sub(left, hit)
        parts.append(a.mul(deltas, hit))
    return _given_back(a, window, parts, delta.shape[1])


def pooled_mean(a: MeshArithmetic, node: Node, x: Halves) -> tuple[Halves, int]:
    """Return (the mean of each window, features of what was given)."""
    window = window_of(node, len(x))
    strips = a.strips if window.kernel_height == window.height else 1
    parts: list[Bits] = []
    for k, pixels in enumerate(_taps(window, x, 0)):
        wide = a.widen(pixels)
        parts += [np.zeros_like(wide)] * (k % (window.taps // strips) == 0)
        parts[-1] = a.add(parts[-1], wide)
    total = parts[0]
    for part in parts[1:]:
        total = a.add(part, total)
    return a.narrow(a.times(total, 1 / window.taps)).reshape(-1, x.shape[1]), len(x)


def pooled_mean_back(a: MeshArithmetic, node: Node, delta: Halves, given: int) -> Halves:
    """Return the gradients of what was pooled, the same for all pixels of a window."""
    window = window_of(node, given)
    part = a.times(a.widen(_planes(window, delta)), 1 / window.taps)
    return _given_back(a, window, [part] * window.taps, delta.shape[1])


def repeated(a: MeshArithmetic, node: Node, x: Halves) -> tuple[Halves, None]:
    """Return each pixel over a window of the larger image; a zero has no sign."""
    window = _window_of_result(node)
    part = a.widen(_planes(window, x))
    return _given_back(a, window, [part] * window.taps, x.shape[1]), None


def repeated_back(a: MeshArithmetic, node: Node, delta: Halves) -> Halves:
    """Return the sum of the gradients of each window, tap after tap."""
    total: Bits | None = None
    for pixels in _taps(_window_of_result(node), delta, 0):
        wide = a.widen(pixels)
        total = a.add(np.zeros_like(wide) if total is None else total, wide)
    assert total is not None
    return a.narrow(total).reshape(-1, delta.shape[1])


def resampled(a: MeshArithmetic, node: Node, x: Halves) -> Halves:
    """Return images of other sides: columns first, rounded, then rows."""
    rows, columns = sides_of(node)
    return _resampled(a, node, x, rows, columns, node.size("height"))


def resampled_back(a: MeshArithmetic, node: Node, delta: Halves) -> Halves:
    """Return the gradients of what was given: the same with the constants the other way round."""
    rows, columns = sides_of(node)
    given = turned(rows, node.size("height")), turned(columns, node.size("width"))
    return _resampled(a, node, delta, *given, node.size("out_height"))


def _resampled(a: MeshArithmetic, node: Node, x: Halves, rows: Lines, columns: Lines, height: int) -> Halves:
    planes = x.reshape(node.size("channels"), height, -1, x.shape[1])
    found = _weighted(a, np.moveaxis(_weighted(a, np.moveaxis(planes, 2, 0), columns), 0, 2).swapaxes(0, 1), rows)
    return found.swapaxes(0, 1).reshape(-1, x.shape[1])


def _weighted(a: MeshArithmetic, given: Halves, lines: Lines) -> Halves:
    """Return sums of what lies along the first axis, times constants, for each line."""
    found = np.zeros((len(lines), *given.shape[1:]), np.uint16)
    for k, parts in enumerate(lines):
        total = np.zeros(given.shape[1:], np.uint32)
        for number, factor in parts:
            total = a.fma(given[number], a.half.encode(np.array([factor])), total)
        found[k] = a.narrow(total)
    return found


def _window_of_result(node: Node) -> Window:
    """Return the windows over the larger image that upsampling gives."""
    return window_of(node, math.prod(node.size(name) for name in ("channels", "height", "width")))


def _planes(window: Window, rows: Halves) -> Halves:
    return rows.reshape(-1, window.out_height, window.out_width, rows.shape[1])


def _lowest(a: MeshArithmetic) -> int:
    """Return minus infinity in the format of the activations."""
    return int(a.narrow(np.array([LOWEST], np.uint32))[0])


def _taps(window: Window, x: Halves, outside: int) -> Iterable[Halves]:
    """Give, per place of the window, the pixels there, or the bits outside: (channels, rows, columns, samples)."""
    (above, left), (below, right) = window.before, window.behind
    images = x.reshape(window.channels, window.height, window.width, -1)
    images = np.pad(images, ((0, 0), (above, below), (left, right), (0, 0)), constant_values=outside)
    for u, v in np.ndindex(window.kernel_height, window.kernel_width):
        yield _at(window, images, u, v)


def _at(window: Window, images: Halves, u: int, v: int) -> Halves:
    (down, along), row, column = window.strides, u * window.dilations[0], v * window.dilations[1]
    return images[:, row : row + down * window.out_height : down, column : column + along * window.out_width : along]


def _given_back(a: MeshArithmetic, window: Window, parts: list[Bits], samples: int) -> Halves:
    """Return gradients of images, to which those of each place of the windows are added, rounded each time."""
    above, left = window.before
    found = np.zeros((window.channels, *window.around, samples), np.uint16)
    for (u, v), part in zip(np.ndindex(window.kernel_height, window.kernel_width), parts, strict=True):
        there = _at(window, found, u, v)
        there[...] = a.narrow(a.add(part, a.widen(there)))
    return found[:, above : above + window.height, left : left + window.width].reshape(window.features, samples)


# --- numbers of channels ---------------------------------------------------------------------------------------------


def shifted(a: MeshArithmetic, node: Node, x: Halves, weights: StreamedParameter) -> tuple[Halves, int]:
    """Return (rows plus the number of their channel, channels)."""
    numbers = a.widen(np.asarray(weights.values))[:, None]
    wide = a.widen(x).reshape(len(numbers), -1)
    return a.narrow(a.add(wide, np.broadcast_to(numbers, wide.shape))).reshape(x.shape), len(numbers)


def shifted_back(
    a: MeshArithmetic, node: Node, delta: Halves, channels: int, weights: StreamedParameter
) -> tuple[Halves, Bits]:
    """Return (gradients as they are, gradients of the numbers)."""
    return delta, a.south_of_channels(a.widen(delta).reshape(channels, -1, delta.shape[1]))


def scaled(
    a: MeshArithmetic, node: Node, x: Halves, weights: StreamedParameter
) -> tuple[Halves, tuple[Halves, Halves]]:
    """Return (rows times the number of their channel, (rows as they were, numbers))."""
    numbers = np.asarray(weights.values)
    return _times(a, x, numbers), (x, numbers)


def scaled_back(
    a: MeshArithmetic, node: Node, delta: Halves, kept: tuple[Halves, Halves], weights: StreamedParameter
) -> tuple[Halves, Bits]:
    """Return (gradients times the numbers, gradients of the numbers)."""
    x, numbers = kept
    wide, own = (a.widen(rows).reshape(len(numbers), -1, rows.shape[1]) for rows in (delta, x))
    return _times(a, delta, numbers), a.south_of_channels(a.mul(wide, own))


def multiplied(a: MeshArithmetic, node: Node, rows: Halves) -> Halves:
    """Return rows times a constant, rounded to 16 bits before."""
    return _times(a, rows, a.half.encode(np.array([factor_of(node)])))


def _times(a: MeshArithmetic, rows: Halves, numbers: Halves) -> Halves:
    """Return rows, as many for each of some numbers, times it; a zero has no sign."""
    wide = np.zeros((len(numbers), rows.size // len(numbers)), np.uint32)
    return a.narrow(a.fma(rows.reshape(wide.shape), numbers[:, None], wide)).reshape(rows.shape)


# --- group normalisation ----------------------------------------------------------------------------------------------


def normalised(
    a: MeshArithmetic, node: Node, x: Halves, weights: StreamedParameter
) -> tuple[Halves, tuple[Halves, Bits]]:
    """Return (rows, (unit rows, 1 / deviation of each group))."""
    groups, channels = node.size("groups"), node.size("channels")
    wide = a.widen(x).reshape(groups, -1, x.shape[1])
    members = channels // groups
    centred = a.sub(wide, _mean(a, wide, members)[:, None])
    inverse = a.functions.rsqrt(a.plus(_mean(a, a.mul(centred, centred), members), a.epsilon))
    unit = a.narrow(a.mul(centred, inverse[:, None]))
    factors, shifts = np.asarray(weights.values).reshape(2, channels, 1, 1)
    by_channel = unit.reshape(channels, -1, x.shape[1])
    found = a.fma(by_channel, factors, np.broadcast_to(a.widen(shifts), by_channel.shape))
    return a.narrow(found).reshape(x.shape), (unit, inverse)


def normalised_back(
    a: MeshArithmetic, node: Node, delta: Halves, kept: tuple[Halves, Bits], weights: StreamedParameter
) -> tuple[Halves, Bits]:
    """Return (gradients of the rows before normalisation, gradients of factors and shifts)."""
    (unit, inverse), channels = kept, node.size("channels")
    wide, units = a.widen(delta.reshape(channels, -1, delta.shape[1])), a.widen(unit)
    by_channel = units.reshape(wide.shape)
    gradients = np.concatenate([a.south_of_channels(a.mul(wide, by_channel)), a.south_of_channels(wide)])
    factors = np.asarray(weights.values).reshape(2, channels, 1, 1)[0]
    halves = delta.reshape(wide.shape)
    scaled = a.fma(halves, factors, np.zeros_like(wide)).reshape(units.shape)
    members = channels // node.size("groups")
    mean, dot = _mean(a, scaled, members), _mean(a, a.mul(scaled, units), members)
    found = a.sub(a.sub(scaled, mean[:, None]), a.mul(units, dot[:, None]))
    return a.narrow(a.mul(found, inverse[:, None])).reshape(delta.shape), gradients


def normalised_heads(
    a: MeshArithmetic, node: Node, x: Halves, weights: StreamedParameter
) -> tuple[Halves, tuple[Halves, Bits]]:
    """Return (rows, (unit rows, 1 / root of the mean square of each head)), without a mean."""
    groups, channels = node.size("groups"), node.size("channels")
    wide = a.widen(x).reshape(groups, -1, x.shape[1])
    apart = a.sub(wide, np.zeros_like(wide))
    inverse = a.functions.rsqrt(a.plus(_mean(a, a.mul(apart, apart), channels // groups), a.epsilon))
    unit = a.narrow(a.mul(apart, inverse[:, None]))
    return _times(a, unit.reshape(x.shape), np.asarray(weights.values)), (unit, inverse)


def normalised_heads_back(
    a: MeshArithmetic, node: Node, delta: Halves, kept: tuple[Halves, Bits], weights: StreamedParameter
) -> tuple[Halves, Bits]:
    """Return (gradients of the rows before normalisation, gradients of the factors)."""
    (unit, inverse), channels = kept, node.size("channels")
    wide, units = a.widen(delta.reshape(channels, 1, -1)), a.widen(unit)
    gradients = a.south_of_channels(a.mul(wide, units.reshape(wide.shape)))
    factors = np.asarray(weights.values).reshape(channels, 1, 1)
    scaled = a.fma(delta.reshape(wide.shape), factors, np.zeros_like(wide)).reshape(units.shape)
    dot = _mean(a, a.mul(scaled, units), channels // node.size("groups"))
    found = a.sub(a.sub(scaled, np.zeros_like(scaled)), a.mul(units, dot[:, None]))
    return a.narrow(a.mul(found, inverse[:, None])).reshape(delta.shape), gradients


def _mean(a: MeshArithmetic, rows: Bits, channels: int) -> Bits:
    """Return means of groups of so many channels, rows of shape (groups, pixels of all of them, samples).

    A strip is summed channel by channel, and strips are added from north to south.
    """
    by_strip = a.by_strip(rows.reshape(len(rows), channels, -1, rows.shape[2]))
    parts = np.moveaxis(by_strip, (1, 4), (0, 1))  # channels, pixels, then groups, groups of rows, strips, tokens
    sums = a.summed(parts.reshape(-1, *parts.shape[2:]))
    total = sums[:, :, 0]
    for strip in range(1, sums.shape[2]):
        total = a.add(sums[:, :, strip], total)
    return a.times(total.reshape(len(rows), -1), 1 / rows.shape[1])
