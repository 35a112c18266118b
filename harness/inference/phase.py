"""A phase of an inference is told layer by layer: its parts and their cycles."""

from __future__ import annotations

from dataclasses import dataclass

from harness.inference.ledger import PartCost

__all__ = ["LayerCycles"]


@dataclass(frozen=True)
class LayerCycles:
    """A `LayerCycles` has the cycles of one layer of prefill, or of one layer of a step of decode, by parts.

    Attributes
    ----------
    program : {"A", "B"}
        That of the paper's authors, or a correct one.
    name : {"prefill", "decode"}
    layers : int
        How often a layer is done.
    sums, products, local : dict
        Cycles of the all-reduces, of the products, and of all that stays on a PE, by name.
    """

    program: str
    name: str
    layers: int
    sums: dict[str, PartCost]
    products: dict[str, PartCost]
    local: dict[str, PartCost]

    @property
    def layer(self) -> PartCost:
        """One layer takes so many cycles."""
        return sum((cost for part in (self.sums, self.products, self.local) for cost in part.values()), PartCost(0))

    @property
    def cycles(self) -> PartCost:
        """All layers together take so many cycles."""
        return self.layer * self.layers

    def seconds(self, gigahertz: float) -> float:
        """Return the time of all layers at a clock."""
        return self.cycles / (gigahertz * 1e9)

    def as_dict(self) -> dict[str, object]:
        """Return the parts as plain data."""
        return {
            "layer": round(self.layer, 1),
            "cycles": round(self.cycles),
            "sums": {name: round(value, 1) for name, value in self.sums.items()},
            "products": {name: round(value, 1) for name, value in self.products.items()},
            "local": {name: round(value, 1) for name, value in self.local.items()},
        }
