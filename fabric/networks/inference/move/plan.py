"""A plan says who sends which entries of a cache where, when decoding goes on on another mesh than the one that read
the prompt.

An *entry* is what a PE has of one token in one layer: its features of the key, then those of the value.  On both meshes
tokens lie over rows in order, in blocks that are equal to one token, and features over columns; the meshes have other
numbers of both.  So entries move in two ways.

Along columns
    Blocks of other sizes begin elsewhere, but order stays.  With more rows, tokens move down only, with fewer, up only:
    each row gets the tokens that its neighbour has too many of, keeps those that are its own and passes on the others
    (`Share`).  No link carries more than the difference of what lies above it on the two meshes.
Along rows
    Row r sends its tokens to row r of the other mesh, entry by entry, those of the nearest column first.  Every PE
    there gets all features of a token and takes its own (`taken`), wherever they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabric.networks.inference.placement import NOTHING
from fabric.networks.inference.prefill.placement import PromptPlacement

__all__ = ["Share", "shared_out", "taken"]


@dataclass(frozen=True)
class Share:
    """A `Share` says what a row does with the entries of its tokens, in order.

    Attributes
    ----------
    held : int
        That it has at first.
    kept, sent : int
        Of these: kept, and sent to the neighbour.
    received, passed : int
        Of those that come from the neighbour on the other side: kept, and sent on.
    """

    held: int
    kept: int
    sent: int
    received: int
    passed: int

    @property
    def has(self) -> int:
        """The row has so many entries in the end."""
        return self.kept + self.received


def shared_out(before: PromptPlacement, behind: PromptPlacement) -> list[Share]:
    """Return what each row does, down to the last that has tokens before or behind."""
    rows = max(before.place.height, behind.place.height)
    was, will = (p.counts + [0] * (rows - p.place.height) for p in (before, behind))
    firsts, wanted = (np.concatenate([[0], np.cumsum(counts)]) for counts in (was, will))
    found = []
    for r in range(rows):
        first, last = int(wanted[r]), int(wanted[r + 1])  # tokens that are the row's in the end
        own_first, own_last = int(firsts[r]), int(firsts[r + 1])
        kept = max(0, min(last, own_last) - max(first, own_first))
        # With more rows tokens come from above, those from `first` to `own_first`; with fewer, from below.
        coming = own_first - first if behind.place.height >= before.place.height else last - own_last
        received = last - first - kept
        found.append(Share(own_last - own_first, kept, own_last - own_first - kept, received, coming - received))
    return found


def taken(before: PromptPlacement, behind: PromptPlacement) -> NDArray[np.uint16]:
    """Return which number of a token's entries, as they come, each PE of a column takes, shape (width, 2 kv_rows).

    The number behind the last is a zero, for places that have no feature.
    """
    old, new = before.place, behind.place
    entry = 2 * old.kv_rows
    place = np.full(old.decoder.kv_features + 1, entry * old.width)
    for column, features in enumerate(old.keys):
        for k, feature in enumerate(features):
            if feature != NOTHING:
                place[feature] = (old.width - 1 - column) * entry + k
    keys = place[new.keys]  # `NOTHING` finds the last
    values = np.where(new.keys == NOTHING, keys, keys + old.kv_rows)
    return np.concatenate([keys, values], axis=1).astype(np.uint16)
