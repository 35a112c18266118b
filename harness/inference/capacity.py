"""Layers, tokens and regions fit or do not: layers on a region of PEs, tokens in its cache, regions on the wafer.

The cache is shifted, so that every row of PEs holds as many tokens as the next, to one; a cache that only grows at the
bottom row holds what one row does.  Two ways to count: `by_arithmetic` for the paper's cells, from tiles cut without
regard to rotary pairs, layers and reserved bytes being declared; and `DecoderMemory` for the resident decoder that runs
here, with whole pairs, code and temporaries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fabric.networks.inference.decoder import Decoder
from harness.inference.costs import cdiv
from harness.inference.running import bytes_of, prompt_bytes_of
from wse_core.errors import PlanError
from wse_core.params import Machine

__all__ = [
    "CacheArithmetic",
    "DecoderMemory",
    "admit",
    "admit_batch",
    "by_arithmetic",
    "columns_of",
    "places_of",
    "smallest_mesh",
]


@dataclass(frozen=True)
class CacheArithmetic:
    """A `CacheArithmetic` says how many tokens a cache holds, by plain division.

    Attributes
    ----------
    per_row : float
        Tokens of a row, not cut to whole ones.
    rows : int
    weights, token : int
        Bytes of a layer's weights, and of a token, on a PE.
    """

    per_row: float
    rows: int
    weights: int
    token: int

    @property
    def concat(self) -> int:
        """A cache that grows at the bottom row only has room for so many tokens."""
        return int(self.per_row)

    @property
    def shift(self) -> int:
        """A shifted cache has room for so many tokens, whole ones per row."""
        return self.rows * self.concat

    @property
    def shift_bytes(self) -> int:
        """So many tokens would have room if rows shared their bytes: what the published numbers, no multiples of the
        rows, seem to be.
        """
        return int(self.rows * self.per_row + 1e-6)  # whole numbers survive the division


def by_arithmetic(machine: Machine, decoder: Decoder, side: int, layers: float, reserved: int) -> CacheArithmetic:
    """Return the tokens that a square of PEs holds beside so many layers and reserved bytes per PE.

    Layers may be a fraction: those of the model over its regions, as if regions shared layers.
    """
    d, kv, f = (cdiv(n, side) for n in (decoder.hidden, decoder.kv_features, decoder.ffn))
    weights, token = 2 * (2 * d * d + 2 * d * kv + (1 + len(decoder.inward)) * d * f), 4 * kv
    left = 2 * machine["mem.words"] - layers * weights - reserved
    return CacheArithmetic(left / (layers * token), side, weights, token)


@dataclass(frozen=True)
class DecoderMemory:
    """A `DecoderMemory` says what the resident decoder needs of a PE's memory, on a region of width x height.

    Attributes
    ----------
    machine : Machine
    decoder : Decoder
    width, height : int
    reads : bool
        Whether it is that of the program that reads prompts at once; tokens are then those of a prompt.
    batch : int
        Requests whose tokens a step takes together, as of `Placement`.
    int8 : bool
        Whether keys and values have 8 bits.
    """

    machine: Machine
    decoder: Decoder
    width: int
    height: int
    reads: bool = False
    batch: int = 0
    int8: bool = False

    @property
    def total(self) -> int:
        """A PE has so many bytes of memory."""
        return int(2 * self.machine["mem.words"])

    def parts(self, layers: int, tokens: int) -> dict[str, int]:
        """Return the bytes of so many layers with room for so many tokens, by what they are."""
        if self.reads:
            return prompt_bytes_of(self.decoder, self.width, self.height, layers, tokens, self.int8)
        return bytes_of(self.decoder, self.width, self.height, layers, tokens, self.batch, self.int8)

    def needed(self, layers: int, tokens: int) -> int:
        """Return the bytes that so many layers need, with room for so many tokens."""
        return sum(self.parts(layers, tokens).values())

    def layers_that_fit(self, tokens: int) -> int:
        """Return the layers of a region that keeps so many tokens."""
        first, second = self.needed(1, tokens), self.needed(2, tokens)
        if first > self.total:
            return 0
        return min(self.decoder.layers, 1 + (self.total - first) // (second - first))

    def regions(self, tokens: int) -> int:
        """Return the regions of this size that the model needs, 0 if not even one layer fits."""
        fit = self.layers_that_fit(tokens)
        return cdiv(self.decoder.layers, fit) if fit else 0

    def tokens(self, layers: int) -> int:
        """Return the tokens of a shifted cache beside so many layers: whole ones, as many on every row."""
        low, high = 0, self.total  # tokens of a row
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed(layers, middle * self.height) <= self.total:
                low = middle
            else:
                high = middle - 1
        return low * self.height


def columns_of(memory: DecoderMemory, tokens: int) -> int:
    """Return the columns of the wafer that all regions of a mesh take, as many below one another as have room."""
    below = max(1, memory.machine["fabric.height"] // memory.height)
    return cdiv(memory.regions(tokens), below) * memory.width


def smallest_mesh(
    machine: Machine, decoder: Decoder, tokens: int, reads: bool = False, int8: bool = False
) -> int | None:
    """Return the side of the smallest square on which one layer fits, None if the wafer is too small."""
    low, high = 1, min(machine["fabric.width"], machine["fabric.height"]) + 1
    top = high
    while low < high:
        middle = (low + high) // 2
        if DecoderMemory(machine, decoder, middle, middle, reads, int8=int8).layers_that_fit(tokens):
            high = middle
        else:
            low = middle + 1
    return low if low < top else None


def admit_batch(memory: DecoderMemory, tokens: int) -> None:
    """Refuse a batch of which not even one layer fits.

    Raises
    ------
    PlanError
        Names what takes most of a PE, and the largest batch of which a layer fits.
    """
    if memory.layers_that_fit(tokens):
        return
    parts, low, high = memory.parts(1, tokens), 0, memory.batch
    while low < high:
        middle = (low + high + 1) // 2
        fits = replace(memory, batch=middle).layers_that_fit(tokens)
        low, high = (middle, high) if fits else (low, middle - 1)
    name = max((name for name in parts if name != "code"), key=lambda each: parts[each])
    raise PlanError(
        f"one layer with a batch of {memory.batch} takes {sum(parts.values()):,} bytes of PE (0, 0), "
        f"{parts[name]:,} of them {name}; a PE has {memory.total:,}",
        where="--batch",
        hint=f"--batch {low} on this mesh, or a larger one" if low else "a larger mesh, or fewer tokens",
        limit="memory",
        needed=cdiv(sum(parts.values()), 2),
        available=memory.total // 2,
    )


def places_of(machine: Machine, width: int, height: int) -> int:
    """Return how many rectangles of width x height lie side by side on the wafer."""
    return int(machine["fabric.width"] // width) * int(machine["fabric.height"] // height)


def admit(
    machine: Machine, decoder: Decoder, width: int, height: int, tokens: int, int8: bool = False
) -> DecoderMemory:
    """Return the memory of a PE, or refuse a mesh that the wafer has not or on which no layer fits.

    Raises
    ------
    PlanError
        Names the limit, what the largest tensor takes, and the smallest square that would do.
    """
    for name, asked, limit in (("width", width, machine["fabric.width"]), ("height", height, machine["fabric.height"])):
        if asked > limit:
            raise PlanError(
                f"{asked} PEs, the wafer has {limit}", where=f"mesh {name}", limit=name, needed=asked, available=limit
            )
    found = DecoderMemory(machine, decoder, width, height, int8=int8)
    if not found.layers_that_fit(tokens):
        parts = found.parts(1, tokens)
        name = max((name for name in parts if name not in ("code", "vectors")), key=lambda each: parts[each])
        side = smallest_mesh(machine, decoder, tokens, int8=int8)
        need = sum(parts.values())
        raise PlanError(
            f"one layer takes {need:,} bytes of PE (0, 0), {parts[name]:,} of them {name}; a PE has {found.total:,}",
            where=f"mesh {width}x{height}",
            hint=f"--mesh {side}x{side} carries a layer" if side else "fewer tokens; no mesh of this wafer carries it",
            limit="memory",
            needed=cdiv(need, 2),
            available=found.total // 2,
        )
    return found
