"""Checks of a painted layout over whole arrays; what is refused stands in `fabric.layout.layout`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fabric.layout.routes import Config, Painting, letters, to_host, union
from fabric.layout.streams import Streams
from wse_core import image as im
from wse_core import isa
from wse_core.encoding import N_COLORS
from wse_core.errors import RouteError, UnsupportedError
from wse_core.image import DIR_R, DIRS, ProgramImage
from wse_core.params import Machine

__all__ = ["LayoutCheck"]

_NAMES = ("west", "east", "north", "south", "ramp")


class LayoutCheck:
    """Checks over whole arrays; each finds the first PE that breaks a rule."""

    def __init__(
        self,
        machine: Machine,
        painting: Painting,
        streams: Streams,
        programs: Sequence[ProgramImage],
        program_index: np.ndarray,
    ) -> None:
        self.painting, self.links_to_host, self.programs = painting, streams, programs
        n, colors = len(programs), machine["router.colors"]
        index = np.where(program_index < 0, n, program_index)  # last column of the tables below: no program
        self.index = index.astype(np.intp)
        self.has_in = np.zeros((colors, n + 1), bool)
        self.has_out = np.zeros((colors, n + 1), bool)
        self.runtime = np.zeros((colors, n + 1), bool)
        for k, program in enumerate(programs):
            self.has_in[[c for c in program.inq_color if c >= 0], k] = True
            self.has_out[[c for c in program.outq_color if c >= 0], k] = True
            self.runtime[sorted(_rewritten(program)), k] = True
        self.masks: dict[tuple[str | int, int], np.ndarray] = {}

    def all(self) -> None:
        """Check everything that can be wrong with a layout."""
        for color in sorted(self.painting.ids):
            self.ramp(color)
        for color in sorted(self.painting.ids):
            self.links(color)
            self.sinks(color)
        self.streams()

    def cached(self, name: str, color: int, function: Callable[[Config], int]) -> np.ndarray:
        """Return `Painting.spread`, kept under a name."""
        key = name, color
        if key not in self.masks:
            self.masks[key] = self.painting.spread(color, function)
        return self.masks[key]

    def rx(self, color: int) -> np.ndarray:
        """Return the inputs of a color, all positions together."""
        return self.cached("rx", color, lambda c: union(c.rx) | (c.inject > 0) << DIR_R)

    def tx(self, color: int) -> np.ndarray:
        """Return the outputs of a color, all positions together."""
        return self.cached("tx", color, lambda c: union(c.tx))

    def swap(self, color: int) -> np.ndarray:
        """Return the axes on which a color swaps."""
        return self.cached("swap", color, lambda c: c.swap)

    def fail(self, bad: np.ndarray, color: int, what: str, hint: str, lack: str = "") -> None:
        """Raise a `RouteError` for the first PE of `bad`; `lack` is what its program does not do."""
        if bad.any():
            y, x = divmod(int(np.argmax(bad)), bad.shape[1])
            k = self.index[y, x]
            if lack:
                what += ", but " + (
                    f"program {self.programs[k].name!r} there {lack}"
                    if k < len(self.programs)
                    else "no program runs there"
                )
            raise RouteError(what, x=x, y=y, color=color, hint=hint.format(x=x, y=y))

    def ramp(self, color: int) -> None:
        """Routes from and to the CE need queues; swap needs both colors; injection its one queue."""
        partner, configs = color ^ 1, self.painting.of(color)
        if any(c.swap for c in configs):
            mine, theirs = self.swap(color), self.swap(partner)
            if (mine != theirs).any():
                y, x = divmod(int(np.argmax(mine != theirs)), mine.shape[1])
                raise UnsupportedError(
                    f"PE ({x}, {y}), color {color}: swap is enabled on one color of the pair {color}, {partner} only",
                    feature="swap_one_axis_one_color",
                    cause="what the vendor's router does then is not modelled",
                    hint=f"swap=... in the route of color {partner} as well",
                )
        tx = self.tx(color)
        if any(union(c.tx) >> DIR_R & 1 for c in configs):
            missing = (tx >> DIR_R & 1).astype(bool) & ~self.has_in[color][self.index]
            self.fail(
                missing,
                color,
                "tx has R, the ramp to the CE",
                f"p.input_queue(q, {color}), a program on that PE, or no R in tx",
                "binds no input queue to the color: a wavelet would be stuck",
            )
        if any(union(c.rx) >> DIR_R & 1 for c in configs):
            from_ce = self.has_out[color][self.index]
            if any(c.swap == 3 for c in configs):
                from_ce = np.where(self.swap(color) == 3, self.has_out[partner][self.index], from_ce)
            plain = self.painting.spread(color, lambda c: union(c.rx) >> DIR_R & 1).astype(bool)
            self.fail(
                plain & ~from_ce,
                color,
                "rx has R, the ramp from the CE",
                f"p.output_queue(q, {color}), a program on that PE, or no R in rx",
                "binds no output queue to the color",
            )
        if any(c.inject for c in configs):
            queue = color // 4
            right = np.zeros(len(self.programs) + 1, bool)
            for k, program in enumerate(self.programs):
                right[k] = queue < len(program.outq_color) and program.outq_color[queue] == color
            inject = self.painting.spread(color, lambda c: c.inject > 0).astype(bool)
            self.fail(
                inject & ~right[self.index],
                color,
                "CE injection of a color comes from output queue color // 4",
                f"p.output_queue({queue}, {color})",
                f"does not bind output queue {queue} to it",
            )

    def accepts(self, color: int, port: int) -> np.ndarray:
        """Return where a wavelet of `color` that lands in `port` can ever leave again, or is configured at run time."""
        key = color, port
        if key not in self.masks:
            partner, axis = color ^ 1, port // 2
            rx = self.rx(color)
            if any(c.swap for c in self.painting.of(color)):
                rx = np.where(self.swap(color) >> axis & 1, self.rx(partner), rx)
            ok = (rx >> port & 1).astype(bool)
            ok |= self.painting.spread(color, lambda c: c.teardown).astype(bool)
            if self.runtime[color].any():
                ok |= self.runtime[color][self.index]
            self.masks[key] = ok
        return self.masks[key]

    def links(self, color: int) -> None:
        """Every output that is a link leads to a stream or to a neighbour that takes the color from there."""
        tx = self.tx(color)
        for d in range(4):
            out = (tx >> d & 1).astype(bool)
            if not out.any():
                continue
            dx, dy = im.STEP[d]
            letter, came = DIRS[d], DIRS[d ^ 1]
            edge = {0: np.s_[:, :1], 1: np.s_[:, -1:], 2: np.s_[:1, :], 3: np.s_[-1:, :]}[d]
            leaving = np.zeros_like(out)
            leaving[edge] = out[edge]
            for s in self.links_to_host.outputs:
                if s.color == color and s.side == letter:
                    leaving[s.y, s.x] = False
            self.fail(
                leaving,
                color,
                f"tx {letter} leaves the {self.painting.width} x {self.painting.height} PEs of the layout",
                hint=f"layout.output_stream({{x}}, {{y}}, {letter!r}, {color}), or another tx on the last PE",
            )
            inner = {
                0: (np.s_[:, 1:], np.s_[:, :-1]),
                1: (np.s_[:, :-1], np.s_[:, 1:]),
                2: (np.s_[1:, :], np.s_[:-1, :]),
                3: (np.s_[:-1, :], np.s_[1:, :]),
            }[d]
            stuck = np.zeros_like(out)
            stuck[inner[0]] = out[inner[0]] & ~self.accepts(color, d ^ 1)[inner[1]]
            if stuck.any():
                y, x = divmod(int(np.argmax(stuck)), stuck.shape[1])
                has = self.painting.at(color, x + dx, y + dy)
                from_ = "" if has is None else letters(union(has.rx))
                what = "has no route for it" if has is None else f"takes it from {from_ or 'nowhere'} only"
                raise RouteError(
                    f"tx {letter} leads to PE ({x + dx}, {y + dy}), which {what}: a wavelet would be "
                    "stuck in its router for ever",
                    x=x,
                    y=y,
                    color=color,
                    hint=f"rx with {came} ({_NAMES[d ^ 1]}) in the route of PE ({x + dx}, {y + dy}), or "
                    f"no {letter} in this tx",
                )

    def sinks(self, color: int) -> None:
        """What comes from a CE and has no output goes to the host."""
        nowhere = self.painting.spread(color, to_host).astype(bool)
        for s in self.links_to_host.outputs:
            if s.color == color and s.side == "R":
                nowhere[s.y, s.x] = False
        self.fail(
            nowhere & ~self.runtime[color][self.index],
            color,
            "tx is empty: what the CE sends would disappear",
            f"the directions that wavelets of this color go to, or layout.output_stream({{x}}, {{y}}, 'R', {color})",
        )

    def ramp_streams(self) -> None:
        """Where the host attaches to a ramp, the CE takes the color from a queue, or sends it and nobody else takes it.

        That an output queue sends it follows from the route (`ramp`).
        """
        for s in self.links_to_host.inputs:
            if s.side == "R" and not self.has_in[s.color][self.index[s.y, s.x]]:
                bad = np.zeros(self.index.shape, bool)
                bad[s.y, s.x] = True
                self.fail(
                    bad,
                    s.color,
                    "input stream into the ramp",
                    f"p.input_queue(q, {s.color}) in the program of that PE",
                    "binds no input queue to the color",
                )
        for s in self.links_to_host.outputs:
            if s.side != "R" or self.runtime[s.color][self.index[s.y, s.x]]:
                continue
            config = self.painting.at(s.color, s.x, s.y) if s.color in self.painting.ids else None
            if config is None or not to_host(config):
                raise RouteError(
                    "output stream from the ramp: the PE has no route for the color with R in rx and an empty tx",
                    x=s.x,
                    y=s.y,
                    color=s.color,
                    hint=f'layout.route({s.color}, ({s.x}, {s.y}), rx="R", tx="")',
                )

    def streams(self) -> None:
        """Every stream of the host meets a route of its color."""
        self.ramp_streams()
        for s in self.links_to_host.inputs:
            if s.side == "R":
                continue
            port = DIRS.index(s.side)
            if s.color not in self.painting.ids or not self.accepts(s.color, port)[s.y, s.x]:
                raise RouteError(
                    f"input stream on side {s.side}: the PE has no route for the color with {s.side} in rx",
                    x=s.x,
                    y=s.y,
                    color=s.color,
                    hint=f'layout.route({s.color}, ({s.x}, {s.y}), rx="{s.side}", tx=...)',
                )
        for s in self.links_to_host.outputs:
            if s.side == "R":
                continue
            sends = s.color in self.painting.ids and self.tx(s.color)[s.y, s.x] >> DIRS.index(s.side) & 1
            if not sends and not self.runtime[s.color][self.index[s.y, s.x]]:
                raise RouteError(
                    f"output stream on side {s.side}: the PE has no route for the color with {s.side} in tx",
                    x=s.x,
                    y=s.y,
                    color=s.color,
                    hint=f'layout.route({s.color}, ({s.x}, {s.y}), rx=..., tx="{s.side}")',
                )


def _rewritten(image: ProgramImage) -> set[int]:
    """Return the colors whose routes the program sets at run time."""
    if image.registers:
        return set(range(N_COLORS))
    if not np.any(image.code >> isa.CODE_AT == isa.BY_NAME["route"].code):
        return set()  # not even an extension word looks so
    return {a for _, op, a, *_ in isa.decode(image.code) if op.name == "route"}
