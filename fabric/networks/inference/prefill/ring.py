"""Tiles that go round a column of PEs: in every step each PE has another one, from its own place on.

A column is a folded ring (`fabric.kernels.collectives.pieces.ring`: no way longer than two hops).  While a PE works
with the tile it has, it sends it on and receives the next.  A product's own tile stays where it is, and the others go
through two buffers; behind H steps each PE has had all tiles of its column, and nothing has to be put back.

The main thread waits for a tile by changing the descriptor that a microthread receives it with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from fabric.asm.operands import Reg, Var
from fabric.networks.inference.prefill.writer import PromptWriter
from fabric.program.program import Program
from wse_core.image import ProgramImage

__all__ = ["COLOR_RING", "FIRST_COLORS", "QUEUE_RING", "TileRing", "on_ring"]

COLOR_RING = 14
"""The ring has three colors, of which this is the first."""
QUEUE_RING = 1, 3
"""Tiles come by this input queue and leave by this output queue."""
FIRST_COLORS = 0, 1
"""The first PE of a ring sends and receives these of its colors."""
KEPT_IMAGES = 4096
"""Programs of so many PEs that differ are kept, since each of them is checked once."""


class TileRing:
    """A `TileRing` writes what a PE needs for tiles on the ring of its column.

    Parameters
    ----------
    w : PromptWriter
    colors : (int, int) or None
        Colors sent and received, 0 .. 2; None on a ring of one PE.
    """

    def __init__(self, w: PromptWriter, colors: tuple[int, int] | None) -> None:
        self.w, self.moving = w, colors is not None
        if colors is None:
            return
        p, most = w.p, max(w.prompt.tile_elements.values())
        self.buffers = [p.array(f"arriving_{k}", most, w.place.dtype, bank=1) for k in range(2)]
        into, out = QUEUE_RING
        self.into = p.input_queue(into, COLOR_RING + colors[1])
        self.out = p.output_queue(out, COLOR_RING + colors[0])
        self.to_fabric, self.sent = p.dsr("dest", name="tile out"), p.dsr("src1", name="tile sent")
        self.received, self.from_fabric = p.dsr("dest", name="tile in"), p.dsr("src1", name="tile received")

    @contextmanager
    def steps(self, name: str, tile: Reg | Var, elements: int) -> Iterator[tuple[Reg, Reg]]:
        """Write the steps of the product of a name: the block is one step.

        Yields
        ------
        current, left : Reg
            Address of the tile of the step, and the steps behind it.
        """
        p = self.w.p
        current, left = p.reg16("tile"), p.reg16("steps left")
        spare, other = (p.reg16("spare"), p.reg16("other")) if self.moving else (current, current)
        p.mov16(current, tile) if isinstance(tile, Reg) else p.ldi(current, tile)
        p.ldi(left, self.w.place.height)
        if self.moving:
            p.load(self.to_fabric, p.fabout(self.out, elements))
            p.load(self.sent, p.mem1d(self.buffers[0], elements))
            p.load(self.received, p.mem1d(self.buffers[0], elements))
            p.load(self.from_fabric, p.fabin(self.into, elements))
            p.ldi(spare, self.buffers[0])
            p.ldi(other, self.buffers[1])
        self.w.mark(f"steps {name} counted in {left.id}")
        with p.while_("ne", left, 0, "16"):
            p.sub16(left, left, 1)
            if self.moving:
                self.w.mark(f"tile {name}")
                p.dsr_base(self.received, spare)  # waits until the tile of this step is there
                with p.if_("ne", left, 0, "16"):
                    p.dsr_base(self.sent, current)
                    p.mov16(self.to_fabric, self.sent, async_=True)
                    p.mov16(self.received, self.from_fabric, async_=True)
                self.w.mark(f"begun {name}")
            yield current, left
            if self.moving:
                p.mov16(current, spare)
                p.mov16(spare, other)
                p.mov16(other, current)
        p.free(*dict.fromkeys((current, left, spare, other)))


@lru_cache(maxsize=KEPT_IMAGES)
def on_ring(program: Program, colors: tuple[int, int]) -> ProgramImage:
    """Return the image of a program, written with `FIRST_COLORS`, for a PE with others of the ring.

    No task and no instruction of a ring names its colors: they are in the bindings of its two queues alone.
    """
    image, changes = program.assemble(), zip(FIRST_COLORS, colors, strict=True)
    return image.recoloured({COLOR_RING + old: COLOR_RING + new for old, new in changes}, f"{image.name} as {colors}")
