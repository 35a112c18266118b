"""Whether the program that reads a prompt fits into the memory of the PEs, beside the weights and the cache."""

from __future__ import annotations

from fabric.networks.inference.fit import GAPS
from fabric.networks.inference.prefill.experts import PromptExperts
from fabric.networks.inference.prefill.placement import PromptPlacement
from fabric.networks.inference.writer import CHUNK, code_words
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = ["admit_prompt", "prompt_words"]


def prompt_words(prompt: PromptPlacement) -> dict[str, int]:
    """Return all words that a PE needs while a prompt is read, by what they are, the largest first."""
    place, s, wide = prompt.place, prompt.tokens, prompt.width_of_keys
    pieces, rows, heads = prompt.slots * prompt.piece, prompt.shapes["qkv"].rows, place.heads
    turned = place.turned_heads
    tile = max(prompt.tile_elements.values())
    found = place.words() | {
        "code": code_words(place),
        "norms of columns": 2 * place.last_norm_at * prompt.slots * place.hidden,
        "hidden features": (2 + 1 + 2) * pieces + prompt.piece + 2 * prompt.slots * place.hidden,
        "queries, keys, values": 2 * s * rows + heads * s * place.part + 2 * prompt.tile_elements["scores"],
        "partial sums": 2 * max(prompt.block, prompt.piece),
        "scores": (2 + 1) * heads * s * wide + prompt.block + 2 * s * wide + 4 * heads * s,
        "mixed values": (2 + 1) * heads * s * place.part,
        "inner features": prompt.inner_vectors * (2 * prompt.shapes["gate_up"].rows + (2 + 1) * place.ffn),
        "squares of heads": 2 * s * place.squares,
        "angles": (4 * 4 + 2 + 4 + 4 * s + 4 * s * turned) * place.pairs,
        "lists": 2 * place.height + prompt.key_slots * s + 2 * s + 3 * 15,
        "functions": 6 * 2 * CHUNK + GAPS,
    }
    if place.int8:
        found["numbers of 8 bits"] = 2 * s * (place.kv_rows + place.kv_heads)
    if place.decoder.experts:
        found["choice of experts"] = PromptExperts.words(prompt)
    if place.decoder.is_local:
        found["local angles"] = (5 * 4 + 4 * s) * place.pairs
    if place.decoder.window is not None:
        found["window"] = 2 * s * wide + prompt.key_slots * s
    if place.decoder.norms_behind:
        found["parts before their norms"] = 2 * pieces
    elif place.decoder.centred or place.decoder.norms == "beside":
        found["features of norms"] = (2 + (place.decoder.norms == "beside")) * pieces
    if place.decoder.marked:
        found["marks of layers"] = len(place.marks) + 1
    if "row_biases" in place.bias_words:
        found["biases of columns"] = place.decoder.layers * prompt.slots * place.bias_words["row_biases"]
    if place.height > 1:
        found["tiles that arrive"] = 2 * tile
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def admit_prompt(prompt: PromptPlacement, machine: Machine) -> None:
    """Refuse a prompt whose program does not fit.

    Raises
    ------
    PlanError
        Names what takes most of a PE's memory.
    """
    needed, room = prompt_words(prompt), machine["mem.words"]
    total = sum(needed.values())
    if total <= room:
        return
    name, words = next(item for item in needed.items() if item[0] != "code")
    place = prompt.place
    raise PlanError(
        f"reading {prompt.length} tokens at once does not fit into {place.width} x {place.height} PEs: PE (0, 0) needs "
        f"{2 * total:,} of {2 * room:,} bytes, the most of them for {name} ({2 * words:,} bytes)",
        where="prefill",
        cause="bytes: " + ", ".join(f"{key} {2 * value:,}" for key, value in needed.items()),
        hint="--prefill token reads the prompt with the decoding program; or more PEs, or a shorter prompt",
        limit="memory",
        needed=2 * total,
        available=2 * room,
    )
