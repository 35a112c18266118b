"""Images as the features of a sample, and the windows that convolutions and pooling take of them.

An image of C channels, h rows and w columns is a tensor of C h w features: channel, row, column, the last one running
fastest.  Whole channels stay in one column of PEs, so that a window never leaves a PE; flattening is no operation.
"""

from __future__ import annotations

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
    stride : int
        Pixels from one window to the next, in both directions.
    padding : int
        Rows and columns on each side that are no pixels: zeros, or what no largest pixel is taken of.
    more : int
        So many rows more than padding, of strips of images: pixels of other strips (`fabric.networks.graph.strips`).
    """

    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    stride: int = 1
    padding: int = 0
    more: int = 0

    @property
    def taps(self) -> int:
        """A window has so many pixels of a channel."""
        return self.kernel_height * self.kernel_width

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
        """An image with its padding has so many rows and columns of pixels."""
        return self.height + 2 * self.padding + self.more, self.width + 2 * self.padding

    @property
    def out_height(self) -> int:
        """The result has so many rows of pixels."""
        return (self.around[0] - self.kernel_height) // self.stride + 1

    @property
    def out_width(self) -> int:
        """The result has so many columns of pixels."""
        return (self.width + 2 * self.padding - self.kernel_width) // self.stride + 1

    @property
    def out_plane(self) -> int:
        """A channel of the result has so many pixels."""
        return self.out_height * self.out_width


def window_of(node: Node, given: int) -> Window:
    """Return the window of a node that is given so many features.

    Raises
    ------
    ConfigError
        Sizes that do not fit the features, or one another.
    """
    sizes = dict(node.sizes)
    names = ("channels", "height", "width", "kernel_height", "kernel_width", "stride")
    found = Window(
        **{name: sizes[name] for name in names}, **{name: sizes.get(name, 0) for name in ("padding", "more")}
    )
    image = f"{found.channels} x {found.height} x {found.width}"
    if min(found.channels, found.height, found.width) < 1 or found.features != given:
        raise ConfigError(f"{node.name}: {given} features are no image of {image}", where="network")
    kernel = f"{found.kernel_height} x {found.kernel_width}"
    if min(found.kernel_height, found.kernel_width, found.stride) < 1 or found.padding < 0:
        raise ConfigError(
            f"{node.name}: windows of {kernel}, stride {found.stride}, padding {found.padding}", where="network"
        )
    if found.padding >= min(found.kernel_height, found.kernel_width):
        raise ConfigError(
            f"{node.name}: a padding of {found.padding} around windows of {kernel}: some would see nothing",
            where="network",
            hint="a padding below the sides of the window",
        )
    if found.out_height < 1 or found.out_width < 1:
        raise ConfigError(f"{node.name}: windows of {kernel} are larger than an image of {image}", where="network")
    return found


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
    w, p = window, window.padding
    images = rows.reshape(-1, w.channels, w.height, w.width)
    images = np.pad(images, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=outside)
    found = np.lib.stride_tricks.sliding_window_view(images, (w.kernel_height, w.kernel_width), (2, 3))
    return found[:, :, :: w.stride, :: w.stride].transpose(0, 1, 4, 5, 2, 3)
