"""Whether a decoder fits into the memory of the PEs, and the smallest mesh on which it does."""

from __future__ import annotations

from dataclasses import replace

from fabric.networks.inference.experts import ExpertChoice
from fabric.networks.inference.placement import DecoderPlacement, shares
from fabric.networks.inference.writer import CODE_WORDS, code_words, function_room
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = [
    "CODE_WORDS",
    "admit",
    "group_parts",
    "head_part",
    "head_parts",
    "largest",
    "layers_that_fit",
    "needed_words",
    "regions_needed",
    "smallest_mesh",
    "temporary_words",
    "tokens_per_row",
]

GAPS = 128
"""Words lost before variables that have to begin in a certain bank."""


def temporary_words(place: DecoderPlacement) -> int:
    """Return the words of vectors, angles, lists and numbers of a PE beside what `DecoderPlacement.words` counts."""
    shapes, hidden, heads, lanes = place.shapes, place.hidden, place.heads, place.lanes
    if not place.decoder.layers:
        logits = (2 + 2 + 2) * place.vocabulary  # and the numbers of their tokens
        return (2 + 1 + 2 + 2) * hidden + logits + 6 * 2 * function_room(place)
    scores = heads * place.capacity
    vectors = (2 + 1 + 2 + 2) * hidden + 3 * shapes["qkv"].rows + (2 + (lanes == 1)) * scores + 2 * heads
    vectors += 2 * heads * (place.part + 1) + heads * place.part
    chosen = max(1, place.decoder.chosen)
    vectors += chosen * (2 * shapes["gate_up"].rows + (2 + 1) * place.ffn) + (place.decoder.norms == "beside") * hidden
    vectors += place.last * (2 + 2) * place.vocabulary
    vectors += 2 * place.squares + place.capacity * (place.ahead == 1)
    vectors += 4 * place.capacity + 4 if place.decoder.window is not None else 0
    vectors += 2 * place.entry_words if place.height > 1 else 0  # an entry that leaves, one that comes
    vectors += place.int8 * (2 * place.kv_heads + place.entry_words)
    kinds = 1 + place.decoder.is_local
    angles = (4 * (2 + 3 * lanes + bool(place.batch)) * kinds + 4 * lanes * place.turned_heads) * place.pairs
    functions = 6 * 2 * function_room(place) + place.last * 2 * place.vocabulary  # with the numbers of tokens
    experts = ExpertChoice.words(place, lanes) if place.decoder.experts else 0
    marks = len(place.marks) + 1 if place.decoder.marked else 0
    return (
        lanes * vectors
        + functions
        + angles
        + marks
        + experts
        + place.int8 * (place.capacity + max(place.capacity, 4 * place.part))
        + (20 * lanes + 2 * lanes * hidden + 4 * place.told) * bool(place.batch)
    )


def needed_words(place: DecoderPlacement, slots: int = 0) -> dict[str, int]:
    """Return all words that a PE needs, by what they are, the largest first; `slots`: as of `writer.DecoderWriter`."""
    vectors = temporary_words(place) + GAPS + 2 * slots * place.hidden
    found = place.words() | {"code": code_words(place), "vectors": vectors}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def tokens_per_row(tokens: int, height: int, policy: str) -> int:
    """Return how many tokens a row must have room for."""
    return tokens if policy == "concat" else -(-tokens // height)


def _on(place: DecoderPlacement, width: int, height: int, tokens: int, policy: str) -> DecoderPlacement:
    room = tokens_per_row(tokens, height, policy)
    return replace(place, width=width, height=height, tokens_per_row=room)


def smallest_mesh(place: DecoderPlacement, machine: Machine, tokens: int, policy: str) -> tuple[int, int] | None:
    """Return (width, height) of the fewest PEs that hold a decoder and so many tokens; None: no wafer does.

    Of equally many PEs the mesh that is nearest to a square is taken.
    """
    room, best = machine["mem.words"], None
    for width in range(1, machine["fabric.width"] + 1):
        low, high = 1, machine["fabric.height"] + 1
        if best is not None:
            high = min(high, best[0] * best[1] // width + 1)
        top = high
        while low < high:
            height = (low + high) // 2
            if sum(needed_words(_on(place, width, height, tokens, policy)).values()) <= room:
                high = height
            else:
                low = height + 1
        if low < top and (
            best is None or (width * low, abs(width - low)) < (best[0] * best[1], abs(best[0] - best[1]))
        ):
            best = width, low
    return best


def regions_needed(place: DecoderPlacement, machine: Machine) -> int | None:
    """Return the fewest regions of a placement's mesh that carry its decoder, None if no number of them does."""
    for regions in range(1, min(place.decoder.layers, machine["fabric.width"] // place.width) + 1):
        if all(sum(needed_words(own).values()) <= machine["mem.words"] for own in shares(place, regions)):
            return regions
    return None


def _fits(place: DecoderPlacement, machine: Machine) -> bool:
    return bool(sum(needed_words(place).values()) <= machine["mem.words"])


def group_parts(place: DecoderPlacement, each: int) -> list[tuple[int, DecoderPlacement]]:
    """Return (first layer, placement) of groups of `each` layers of a decoder; alike for layers that are alike."""
    layers = place.decoder.layers
    counts = [(first, min(each, layers - first)) for first in range(0, layers, each)]
    return [(first, replace(place, decoder=place.decoder.part(first, count), last=False)) for first, count in counts]


def layers_that_fit(place: DecoderPlacement, machine: Machine) -> int:
    """Return how many layers of a decoder a mesh holds at a time, whichever they are; 0: not one."""
    low, high = 0, place.decoder.layers
    while low < high:
        middle = (low + high + 1) // 2
        fits = all(_fits(part, machine) for part in {part for _, part in group_parts(place, middle)})
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def head_part(place: DecoderPlacement, count: int) -> DecoderPlacement:
    """Return the placement of the last norm and so many rows of the output matrix."""
    return replace(place, decoder=replace(place.decoder.part(0, 0), vocabulary=count, tied=False))


def head_parts(place: DecoderPlacement, machine: Machine) -> list[tuple[int, DecoderPlacement]]:
    """Return (first token, placement) of as few parts of the output matrix as fit; none if not the smallest does."""
    vocabulary = place.decoder.vocabulary
    low, high = 0, place.vocabulary // 2  # of a column, in pairs of rows
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(head_part(place, 2 * middle * place.width), machine) else (low, middle - 1)
    if not low:
        return []
    parts = -(-vocabulary // (2 * low * place.width))
    each = -(-vocabulary // parts)
    return [(first, head_part(place, min(each, vocabulary - first))) for first in range(0, vocabulary, each)]


def largest(place: DecoderPlacement, machine: Machine, name: str) -> int:
    """Return the largest ``batch`` or ``ahead`` that fits on a placement's mesh, 0 if there is no room for one."""
    low, high = 0, getattr(place, name)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(needed_words(replace(place, **{name: middle})).values()) <= machine["mem.words"]:
            low = middle
        else:
            high = middle - 1
    return low


def admit(
    place: DecoderPlacement, machine: Machine, tokens: int, policy: str, where: str = "decoder", option: str = "--chunk"
) -> None:
    """Refuse a decoder that does not fit.

    Parameters
    ----------
    tokens : int
        Of prompt and answer together.
    where : str
        What does not fit, for the message.
    option : str
        What says how many tokens of a request a step takes.

    Raises
    ------
    PlanError
        Names the largest tensor of the PE, its bytes, and the smallest mesh that carries the decoder.
    """
    needed, room = needed_words(place), machine["mem.words"]
    total = sum(needed.values())
    if total <= room:
        return
    name, words = next(item for item in needed.items() if item[0] not in ("code", "vectors"))
    mesh = smallest_mesh(place, machine, tokens, policy)
    parts = ", ".join(f"{key} {2 * value:,}" for key, value in needed.items())
    hint = (
        f"the smallest mesh that carries it with {tokens} tokens is {mesh[0]} x {mesh[1]}"
        if mesh
        else f"no mesh of one wafer carries it with {tokens} tokens"
    )
    if place.ahead > 1:
        most = largest(place, machine, "ahead")
        hint += f"; or {option} {most} on this one" if most > 1 else "; not even two tokens at a time fit on this one"
    elif place.batch > 1:
        most = largest(place, machine, "batch")
        hint += f"; or --batch {most} on this one" if most else "; not even one of them fits on this one"
    regions = regions_needed(place, machine) if where == "decoder" and not place.batch else None
    if regions:
        hint += f"; or --regions {regions} of this one"
    if where == "decoder" and not place.batch and layers_that_fit(place, machine) and head_parts(place, machine):
        hint += "; or --layers-at-a-time on this one"
    of = f" of a batch of {place.batch}" if place.batch else ""
    if place.ahead > 1:
        of = f" of {place.ahead} tokens at a time"
    raise PlanError(
        f"the {where}{of} does not fit into {place.width} x {place.height} PEs: PE (0, 0) needs {2 * total:,} of "
        f"{2 * room:,} bytes, the most of them for {name} ({2 * words:,} bytes)",
        where=where,
        cause=f"bytes: {parts}",
        hint=hint,
        limit="memory",
        needed=2 * total,
        available=2 * room,
    )
