"""How many wavelet hops a step of the resident decoder takes, and for what: nothing else moves.

All-reduces count as `LineSum.hops`; a score sum goes through the lowest level of the tree along x and is flooded inside
the columns of its head; an entry of the cache goes over one link; the token's embedding enters at column 0, id and
logit leave at PE (0, 0).  Norms, positions, softmax, SwiGLU and residuals move nothing of their own, and no vector is
transposed: there is no entry for either.
"""

from __future__ import annotations

from itertools import pairwise

from fabric.kernels.collectives.pieces.ktree import KTree
from fabric.networks.inference.decode import Decode
from fabric.networks.inference.decode_cycles import held_tokens

__all__ = ["step_hops"]


def _score_hops(decode: Decode, size: int) -> int:
    """Return the hops of one row that sums `size` scores over the columns of all heads and gives the sums back."""
    piece = decode.sums["back"].piece
    if decode.place.group == 1 or not isinstance(piece, KTree):
        return 0
    found = 0
    for group in piece.levels[0]:
        if len(group) == 1:
            continue
        middle, both = len(group) // 2, len(group) > 2
        for i, (a, b) in enumerate(pairwise(group)):
            found += (1 + b - a) * (size + (both and i in (middle - 1, middle)))
        found += size * len(group)
    return found


def step_hops(decode: Decode, before: int) -> dict[str, int]:
    """Return the wavelet hops of the step that takes token number `before`, by what they are for.

    Parameters
    ----------
    decode : Decode
    before : int
        Tokens in the cache.
    """
    place, sums, layers = decode.place, decode.sums, decode.place.decoder.layers
    held = held_tokens(place.height, before + 1, decode.policy)
    sizes = [place.heads * 4 * -(-n // 4) for n in held]
    a, b = divmod(before, place.height)
    moves = (place.height - 1 - b) if a and decode.policy == "shift" else 0
    return {
        "token in": place.height * (place.hidden // 2) + sums["back"].hops,
        "norms": (2 * layers + 1) * sums["norm"].hops,
        "queries, keys, values": layers * sums["qkv"].hops,
        "cache": layers * moves * place.width * 2 * place.kv_rows,
        "scores": layers * sum(_score_hops(decode, size) for size in sizes),
        "largest scores": layers * sums["peaks"].hops,
        "mixed values": layers * sums["mixed"].hops,
        "output projection, down": 2 * layers * sums["back"].hops,
        "gate, up": layers * sums["gate_up"].hops,
        "logits": sums["head"].hops,
        "arg max": sums["largest"].hops + sums["smallest"].hops,
        "token out": 2,
    }
