"""Images are cut into patches, which are the tokens of a sequence.

So the first product of a vision transformer, a convolution whose windows lie side by side, is one with the features of
a token: the pixels of a patch.  Tokens before those of the patches (class tokens) have none; a one among zeros says
which of them a token is, and one says that it is none of them, so that what is learned of each is a column of weights.
The form of the model is that of A. Dosovitskiy et al., "An image is worth 16x16 words", 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["patched", "tokens_of"]


def tokens_of(patches: Sequence[int]) -> tuple[int, int]:
    """Return (tokens of an image, features of a token).

    Parameters
    ----------
    patches : sequence of int
        As `harness.train.tables.NetworkConfig` has them.

    Examples
    --------
    >>> tokens_of((3, 8, 8, 4, 4, 1, 1, 0))
    (5, 50)
    """
    channels, height, width, rows, columns, before, marked, _ = patches
    return before + (height // rows) * (width // columns), channels * rows * columns + before + marked


def patched(x: np.ndarray, patches: Sequence[int]) -> np.ndarray:
    """Return images cut into tokens, those of an image side by side.

    Parameters
    ----------
    x : ndarray, shape (images, features)
        Channel by channel.
    patches : sequence of int
        As `harness.train.tables.NetworkConfig` has them.  Rows and columns behind the last whole patch are left out.

    Returns
    -------
    ndarray, shape (images, tokens x features of a token)

    Examples
    --------
    >>> patched(np.arange(1, 9.0).reshape(1, 8), (1, 2, 4, 2, 2, 0, 0, 0)).tolist()
    [[1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]]
    """
    channels, height, width, rows, columns, before, marked, last = patches
    down, along = height // rows, width // columns
    images = x.reshape(len(x), channels, height, width)[:, :, : down * rows, : along * columns]
    parts = images.reshape(len(x), channels, down, rows, along, columns)
    parts = parts.transpose((0, 2, 4, 3, 5, 1) if last else (0, 2, 4, 1, 3, 5)).reshape(len(x), down * along, -1)
    pixels = parts.shape[2]
    found = np.zeros((len(x), *tokens_of(patches)), x.dtype)
    found[:, before:, :pixels] = parts
    if marked:
        found[:, before:, pixels] = 1
    for token in range(before):
        found[:, token, pixels + marked + token] = 1
    return found.reshape(len(x), -1)
