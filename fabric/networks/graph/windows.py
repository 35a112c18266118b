"""Images are the features of a sample, of which convolutions and pooling take windows.

An image of C channels, h rows and w columns is a tensor of C h w features: channel, row, column, the last one running
fastest.  Whole channels stay in one column of PEs, so that a window never leaves a PE; flattening is no operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabric.networks.graph.nodes import Node
from wse_core.errors import ConfigError

__all__ = ["Window", "channels_of", "unfolded", "window_of"]


@dataclass(frozen=True)
class Window:
    """A window is moved over images.

    Attributes
    ----------
    channels, height, width : int
        Of the images that are given.
    kernel_height, kernel_width : int
        Pixels of a window, down and along.
    strides : (int, int)
        Pixels from one window to the next, down and along.
    before, behind : (int, int)
        Rows above and columns on the left, and those below and on the right, that are no pixels: zeros, or what no
        largest pixel is taken of.
    dilations : (int, int)
        Pixels of the image from one pixel of a window to the next, down and along.
    more : int
        So many rows more than these, of strips of images: pixels of other strips (`fabric.networks.graph.strips`).
    """

    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    strides: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    behind: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    more: int = 0

    @property
    def taps(self) -> int:
        """A window has so many pixels of a channel."""
        return self.kernel_height * self.kernel_width

    @property
    def reach(self) -> tuple[int, int]:
        """A window lies over so many rows and columns of pixels, those between its own included."""
        (down, along), rows, columns = self.dilations, self.kernel_height, self.kernel_width
        return down * (rows - 1) + 1, along * (columns - 1) + 1

    @property
    def bordered(self) -> bool:
        """Windows see what is outside of the images."""
        return any((*self.before, *self.behind))

    @property
    def plane(self) -> int:
        """A channel that is given has so many pixels."""
        return self.height * self.width

    @property
    def features(self) -> int:
        """The images have so many features."""
        return self.channels * self.plane

    @property
    def around(self) -> tuple[int, int]:
        """An image with its border has so many rows and columns of pixels."""
        (above, left), (below, right) = self.before, self.behind
        return self.height + above + below + self.more, self.width + left + right

    @property
    def out_height(self) -> int:
        """The result has so many rows of pixels."""
        return (self.around[0] - self.reach[0]) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        """The result has so many columns of pixels."""
        return (self.around[1] - self.reach[1]) // self.strides[1] + 1

    @property
    def out_plane(self) -> int:
        """A channel of the result has so many pixels."""
        return self.out_height * self.out_width

    def met(self, images: np.ndarray, row: int, column: int) -> np.ndarray:
        """Return the view of images with their border that one pixel of all windows meets.

        Parameters
        ----------
        images : ndarray, shape (samples, channels, rows, columns, ...)
        row, column : int
            Of the pixel in the window.
        """
        (down, along), (first, left) = self.strides, np.multiply((row, column), self.dilations)
        return images[:, :, first : first + down * self.out_height : down, left : left + along * self.out_width : along]

    def inside(self, images: np.ndarray) -> np.ndarray:
        """Return the view of images with their border, shape (samples, channels, rows, columns, ...), without it."""
        above, left = self.before
        return images[:, :, above : above + self.height, left : left + self.width]


def window_of(node: Node, given: int) -> Window:
    """Return the window of a node that is given so many features.

    A node has ``stride``, ``padding`` and ``dilation`` in both directions and on all sides, or also ``stride_width``,
    ``padding_width``, ``padding_below``, ``padding_right`` and ``dilation_width`` where those are others.

    Raises
    ------
    ConfigError
        Sizes that do not fit the features, or one another.
    """
    sizes = dict(node.sizes)
    above, stride, apart = sizes.get("padding", 0), sizes["stride"], sizes.get("dilation", 1)
    left = sizes.get("padding_width", above)
    found = Window(
        **{name: sizes[name] for name in ("channels", "height", "width", "kernel_height", "kernel_width")},
        strides=(stride, sizes.get("stride_width", stride)),
        before=(above, left),
        behind=(sizes.get("padding_below", above), sizes.get("padding_right", left)),
        dilations=(apart, sizes.get("dilation_width", apart)),
        more=sizes.get("more", 0),
    )
    image = f"{found.channels} x {found.height} x {found.width}"
    if min(found.channels, found.height, found.width) < 1 or found.features != given:
        raise ConfigError(f"{node.name}: {given} features are no image of {image}", where="network")
    kernel = f"{found.kernel_height} x {found.kernel_width}"
    padding = _said((*found.before, *found.behind))
    least = min(found.kernel_height, found.kernel_width, *found.strides, *found.dilations)
    if least < 1 or min(*found.before, *found.behind) < 0:
        what = f"windows of {kernel}, stride {_said(found.strides)}, padding {padding}"
        what += f", dilation {_said(found.dilations)}" * (found.dilations != (1, 1))
        raise ConfigError(f"{node.name}: {what}", where="network")
    if any(n >= reach for sides in (found.before, found.behind) for n, reach in zip(sides, found.reach, strict=True)):
        raise ConfigError(
            f"{node.name}: a padding of {padding} around windows of {kernel}: some would see nothing",
            where="network",
            hint="a padding below the sides of the window",
        )
    if found.out_height < 1 or found.out_width < 1:
        raise ConfigError(f"{node.name}: windows of {kernel} are larger than an image of {image}", where="network")
    return found


def _said(numbers: Sequence[int]) -> str:
    """Return numbers for a message: one if all are alike."""
    return " x ".join(map(str, numbers[:1] if len(set(numbers)) == 1 else numbers))


def channels_of(node: Node, given: int) -> int:
    """Return the channels of the image that a node is given.

    Raises
    ------
    ConfigError
        Sizes that do not fit the features.
    """
    channels, height, width = (node.size(name) for name in ("channels", "height", "width"))
    if min(channels, height, width) < 1 or channels * height * width != given:
        raise ConfigError(
            f"{node.name}: {given} features are no image of {channels} x {height} x {width}", where="network"
        )
    return channels


def unfolded(window: Window, rows: np.ndarray, outside: float = 0.0) -> np.ndarray:
    """Return the pixels of all windows of images.

    Parameters
    ----------
    window : Window
    rows : ndarray, shape (samples, features)
    outside : float
        What is there outside of the images.

    Returns
    -------
    ndarray, shape (samples, channels, kernel height, kernel width, rows of the result, columns of the result)
    """
    w, (above, left), (below, right) = window, window.before, window.behind
    images = rows.reshape(-1, w.channels, w.height, w.width)
    images = np.pad(images, ((0, 0), (0, 0), (above, below), (left, right)), constant_values=outside)
    found = np.lib.stride_tricks.sliding_window_view(images, w.reach, (2, 3))
    found = found[:, :, :: w.strides[0], :: w.strides[1], :: w.dilations[0], :: w.dilations[1]]
    return found.transpose(0, 1, 4, 5, 2, 3)
