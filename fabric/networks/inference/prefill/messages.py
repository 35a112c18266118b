"""How many wavelet hops the reading of a prompt takes, and for what: nothing else moves.

A tile goes round its column, one way of the ring in every step but the last.  Parts of sums and pieces that are spread
go over every link of their line once in a step, toward the home or from it: one hop up the sender's ramp and one over
the link.  Norms, biases, positions, softmax, SwiGLU and residuals move nothing but their all-reduces, keys and values
stay in the row in which they are made, and nothing is transposed.
"""

from __future__ import annotations

from fabric.kernels.kit.data import wavelets_of
from fabric.networks.inference.prefill.program import Prefill

__all__ = ["prompt_hops"]


def prompt_hops(prefill: Prefill) -> dict[str, int]:
    """Return the wavelet hops of a prompt, by what they are for."""
    place, prompt = prefill.place, prefill.prompt
    width, height, layers, dtype = place.width, place.height, place.decoder.layers, place.dtype
    row_links = height * (width - 1)
    busy = sum(not prompt.is_idle(x) for x in range(width))
    head_links = height * (busy - busy // place.group)

    def turned(name: str) -> int:
        """Return the hops of a product's tiles."""
        columns = busy if name in ("scores", "mix") else width
        return columns * (height - 1) * prompt.ring.grants * wavelets_of(prompt.tile_elements[name], dtype)

    def along(links: int, numbers: int, form: str) -> int:
        """Return the hops of numbers that go over some links in every step of a product."""
        return 2 * height * links * wavelets_of(numbers, form)

    own = prompt.slots * prompt.piece
    softmax = 2 * 2 * 2 * head_links * place.heads * prompt.tokens  # two all-reduces, there and back
    each = {
        "norms": 2 * prefill.squares.hops,
        "queries, keys, values": turned("qkv") + along(row_links, prompt.piece, dtype),
        "scores": turned("scores") + along(head_links, prompt.block, "f32"),
        "softmax": softmax,
        "values by shares": turned("mix") + along(head_links, prompt.block, dtype),
        "output projection": turned("o") + along(row_links, prompt.piece, "f32"),
        "gate, up": turned("gate_up") + along(row_links, prompt.piece, dtype),
        "down": turned("down") + along(row_links, prompt.piece, "f32"),
    }
    columns = sum(2 * (width - x) - 1 for x in range(width))  # up the ramp and over a link, for each column farther on
    entering = height * columns * wavelets_of(own, dtype)
    return {"tokens in": entering} | {name: layers * hops for name, hops in each.items()}
