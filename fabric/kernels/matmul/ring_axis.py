"""Tiles are on a ring of PEs along a row or a column: what the programs of the cyclic shifts and of A B^T share.

A PE holds its tiles one behind the other, with one place more for the tile that arrives; `advance` goes on by one tile,
`turn` sends the current one and receives another in the spare place.  `retreat` and ``turn(back=True)`` do the same the
other way round the ring, on colors and queues of their own.  How often, and what a tile means, stands in the heads of
`fabric.kernels.matmul.shift` and `fabric.kernels.matmul.transposed`.
"""

from __future__ import annotations

from fabric.program.program import Program

__all__ = ["BACK", "BACK_QUEUES", "FIRST", "QUEUES", "RingAxis"]

FIRST = {"a": 8, "b": 11}
"""The ring of each axis has this color first."""
QUEUES = {"a": (0, 2), "b": (1, 3)}
"""The ring of each axis has this input and this output queue."""
BACK = {"a": 14, "b": 17}
"""The way back of each axis has this color first."""
BACK_QUEUES = {"a": (2, 0), "b": (3, 1)}
"""The way back has this input and output queue: where a queue is a microthread too, those that rest meanwhile."""


class RingAxis:
    """A `RingAxis` writes what a PE needs for the tiles of one matrix on their ring: variables, descriptors, code.

    Parameters
    ----------
    p : Program
    key : {"a", "b"}
    elements : int
        Of a tile.
    dtype : str
    held : int
        Tiles that the PE holds.
    colors : tuple[int, int] or None
        Colors sent and received, 0 .. 2; None on a ring of one PE.
    bank : int or None
        In which a tile has to begin.
    back : bool
        Whether the ring turns the other way too.
    """

    def __init__(
        self,
        p: Program,
        key: str,
        elements: int,
        dtype: str,
        held: int,
        colors: tuple[int, int] | None,
        bank: int | None = None,
        back: bool = False,
    ) -> None:
        self.p, self.key, self.elements, self.colors = p, key, elements, colors
        self.back = back and colors is not None
        self.places = held + (colors is not None)
        self.store = p.array(key, self.places * elements, dtype, bank=bank)
        self.words = elements * self.store.words_per_element
        self.move = p.mov32 if dtype == "f32" else p.mov16
        self.current = p.reg16(f"{key} current")
        self.spare = p.reg16(f"{key} spare") if self.places > 1 else self.current
        if colors is not None:
            first, (q_in, q_out) = FIRST[key], QUEUES[key]
            self.out, self.into = p.output_queue(q_out, first + colors[0]), p.input_queue(q_in, first + colors[1])
            self.to_fabric, self.sent = p.dsr("dest", name=f"{key} out"), p.dsr("src1", name=f"{key} sent")
            self.received, self.from_fabric = p.dsr("dest", name=f"{key} in"), p.dsr("src1", name=f"{key} received")
            if self.back:
                first, (q_in, q_out) = BACK[key], BACK_QUEUES[key]
                self.back_out = p.output_queue(q_out, first + colors[1])
                self.back_into = p.input_queue(q_in, first + colors[0])
                self.back_to_fabric = p.dsr("dest", name=f"{key} back out")
                self.back_from_fabric = p.dsr("src1", name=f"{key} back received")

    def prepare(self) -> None:
        """Load all descriptors and stand one tile before the first."""
        p, n = self.p, self.elements
        if self.colors is not None:
            p.load(self.to_fabric, p.fabout(self.out, n))
            p.load(self.sent, p.mem1d(self.store, n))
            p.load(self.received, p.mem1d(self.store, n))
            p.load(self.from_fabric, p.fabin(self.into, n))
            if self.back:
                p.load(self.back_to_fabric, p.fabout(self.back_out, n))
                p.load(self.back_from_fabric, p.fabin(self.back_into, n))
        p.ldi(self.current, self.store[(self.places - 1) * self.elements])
        if self.places > 1:
            p.ldi(self.spare, self.store)

    def advance(self) -> None:
        """Go on to the next tile; the one left is spare."""
        self._go(0, self.places - 1)

    def retreat(self) -> None:
        """Go back to the tile before, which is the last one; the place left is spare."""
        self._go(self.places - 1, 0)

    def _go(self, to: int, end: int) -> None:
        """Go on by one place toward place `end`, and from there to place `to`."""
        p = self.p
        if self.places == 2:
            for one, other in ((self.current, self.spare), (self.spare, self.current), (self.current, self.spare)):
                p.xor16(one, one, other)
        elif self.places > 2:
            p.mov16(self.spare, self.current)
            last = p.reg16("last")
            p.ldi(last, self.store[end * self.elements])
            with p.if_("eq", self.current, last):
                p.ldi(self.current, self.store[to * self.elements])
            with p.else_():
                (p.add16 if end > to else p.sub16)(self.current, self.current, self.words)
            p.free(last)

    def turn(self, activate: str | None = None, unblock: str | None = None, back: bool = False) -> None:
        """Send the current tile and receive another in the spare place; then activate or unblock a task.

        `back`: the other way round the ring.
        """
        p = self.p
        if self.colors is None:
            if activate:
                p.activate(activate)
            elif unblock:
                p.unblock(unblock)
            return
        to, source = (self.back_to_fabric, self.back_from_fabric) if back else (self.to_fabric, self.from_fabric)
        p.dsr_base(self.sent, self.current)
        self.move(to, self.sent, async_=True)
        p.dsr_base(self.received, self.spare)
        self.move(self.received, source, async_=p.async_(activate=activate, unblock=unblock))
