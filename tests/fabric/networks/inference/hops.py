"""How many wavelet hops programs of inference take, and for what: nothing else moves.

A step: all-reduces count as `LineSum.hops`; a sum inside heads goes through the lowest level of the tree along x and is
flooded inside the columns of its head; an entry of the cache goes over one link; the token's embedding enters at column
0, id and logit leave at PE (0, 0).

A prompt: a tile goes round its column, one way of the ring in every step but the last.  Parts of sums and pieces that
are spread go over every link of their line once in a step: one hop up the sender's ramp and one over the link.

Norms, biases, positions, softmax, SwiGLU and residuals move nothing but their all-reduces, and no vector is transposed:
there is no entry for either.
"""

from __future__ import annotations

from itertools import pairwise

from fabric.kernels.collectives.pieces.ktree import KTree
from fabric.kernels.kit.data import wavelets_of

__all__ = ["prompt_hops", "step_hops"]


def held_tokens(rows, count, policy):
    """Return how many tokens each row holds when the cache has `count`."""
    if policy == "concat":
        return [0] * (rows - 1) + [count]
    return [count // rows + (row < count % rows) for row in range(rows)]


def _hops_in_heads(decode, size):
    """Return the hops of one row that sums `size` numbers over the columns of all heads and gives the sums back."""
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


def step_hops(decode, before):
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
        "norms": (layers * place.decoder.norm_sums + 1 + place.decoder.centred) * sums["norm"].hops,
        "norms of projections": layers * sums["projections"].hops if place.decoder.projection_norms else 0,
        "queries, keys, values": layers * sums["qkv"].hops,
        "norms of heads": layers * place.decoder.head_norms * place.height * _hops_in_heads(decode, place.turned_heads),
        "cache": layers * moves * place.width * 2 * place.kv_rows,
        "scores": layers * sum(_hops_in_heads(decode, size) for size in sizes),
        "largest scores": layers * sums["peaks"].hops,
        "mixed values": layers * sums["mixed"].hops,
        "output projection, down": 2 * layers * sums["back"].hops,
        "gate, up": layers * sums["gate_up"].hops,
        "logits": sums["head"].hops,
        "arg max": sums["largest"].hops + sums["smallest"].hops,
        "token out": 2,
    }


def prompt_hops(prefill):
    """Return the wavelet hops of a prompt, by what they are for."""
    place, prompt = prefill.place, prefill.prompt
    width, height, layers, dtype = place.width, place.height, place.decoder.layers, place.dtype
    row_links = height * (width - 1)
    busy = sum(not prompt.is_idle(x) for x in range(width))
    head_links = height * (busy - busy // place.group)

    def turned(name):
        """Return the hops of a product's tiles."""
        columns = busy if name in ("scores", "mix") else width
        return columns * (height - 1) * prompt.ring.grants * wavelets_of(prompt.tile_elements[name], dtype)

    def along(links, numbers, form):
        """Return the hops of numbers that go over some links in every step of a product."""
        return 2 * height * links * wavelets_of(numbers, form)

    own = prompt.slots * prompt.piece
    all_reduce = 2 * 2 * head_links * prompt.tokens  # of a number per token, there and back
    each = {
        "norms": place.decoder.norm_sums * prefill.squares.hops,
        "norms of projections": prefill.projections.hops if prefill.projections else 0,
        "queries, keys, values": turned("qkv") + along(row_links, prompt.piece, dtype),
        "scores": turned("scores") + along(head_links, prompt.block, "f32"),
        "norms of heads": place.decoder.head_norms * all_reduce * place.turned_heads,
        "softmax": 2 * all_reduce * place.heads,
        "values by shares": turned("mix") + along(head_links, prompt.block, dtype),
        "output projection": turned("o") + along(row_links, prompt.piece, "f32"),
        "gate, up": turned("gate_up") + along(row_links, prompt.piece, dtype),
        "down": turned("down") + along(row_links, prompt.piece, "f32"),
    }
    columns = sum(2 * (width - x) - 1 for x in range(width))  # up the ramp and over a link, for each column farther on
    entering = height * columns * wavelets_of(own, dtype)
    return {"tokens in": entering} | {name: layers * hops for name, hops in each.items()}
