"""Random machines made of streams that run freely: chains, broadcasts, trees of both, one after the other.

Each of a few *rounds* is a tree of streams that grows from one PE: routers pass words on, copy them to several sides
and down their ramps; CEs store what comes, add it up, or add to it and send it on with another color.  Every PE does
its part of the rounds in order, sometimes late, in two pieces, on a microthread, or for fewer words than come.  Rounds
share routers and ramps, as the phases of a collective do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.random_machines import random_machine
from wse_core.image import STEP
from wse_core.params import machine

__all__ = ["random_trains"]

DIRECTIONS = "WENS"
COLORS = 20
LENGTHS = (2, 20, 40, 64, 90)
TYPES = ("f32", "f32", "f32", "f16", "packed")


@dataclass
class _Part:
    """What a PE does in a round.

    Attributes
    ----------
    into, out : int or None
        Colors that it takes from and sends on.
    n : int
        Elements of the stream.
    kind : str
        One of `TYPES`.
    """

    into: int | None
    out: int | None
    n: int
    kind: str


@dataclass
class _Fabric:
    """What is painted so far."""

    width: int
    height: int
    routes: dict = field(default_factory=dict)  # (color, cell) -> [input, set of outputs]
    parts: dict = field(default_factory=dict)  # cell -> list of (round, _Part)

    def neighbours(self, cell, busy):
        """Return (direction, cell) of the PEs beside one that take no part in this round yet."""
        found = []
        for d, (dx, dy) in enumerate(STEP):
            to = cell[0] + dx, cell[1] + dy
            if 0 <= to[0] < self.width and 0 <= to[1] < self.height and to not in busy:
                found.append((d, to))
        return found


def _grow(rng, fabric, number):
    """Add a round: a tree of streams from a random PE."""
    root = rng.randrange(fabric.width), rng.randrange(fabric.height)
    n, kind = rng.choice(LENGTHS), rng.choice(TYPES)
    straight, forwards = rng.choice((0.5, 0.95)), rng.choice((0.0, 0.1, 0.9))
    busy, ends = {root}, [(root, None)]
    while ends:
        cell, into = ends.pop()
        room = fabric.neighbours(cell, busy)
        free = [c for c in range(COLORS) if all((c, at) not in fabric.routes for at in (cell, *(to for _, to in room)))]
        if not room or not free:
            if into is not None:
                fabric.parts.setdefault(cell, []).append((number, _Part(into, None, n, kind)))
            continue
        color = rng.choice(free[:4])
        fabric.parts.setdefault(cell, []).append((number, _Part(into, color, n, kind)))
        _spread(rng, fabric, color, cell, busy, ends, straight, forwards, (number, n, kind))


def _spread(rng, fabric, color, cell, busy, ends, straight, forwards, about):
    """Lead a color from the ramp of a PE over some routers; `ends` gets the PEs that send on what they take from it."""
    number, n, kind = about
    fabric.routes[color, cell] = ["R", set()]
    going = [(cell, None)]
    while going:
        at, came = going.pop()
        outs = fabric.routes[color, at][1]
        room = [(d, to) for d, to in fabric.neighbours(at, busy) if (color, to) not in fabric.routes]
        if came is not None and rng.random() < forwards:
            outs.add("R")
            ends.append((at, color))
            continue
        ahead = [pair for pair in room if pair[0] == came]
        chosen = ahead if ahead and rng.random() < straight else room[: rng.randint(1, 2)]
        for d, to in chosen:
            outs.add(DIRECTIONS[d])
            fabric.routes[color, to] = [DIRECTIONS[d ^ 1], set()]
            busy.add(to)
            going.append((to, d))
        if came is not None and (not chosen or rng.random() < 0.6):
            outs.add("R")
            fabric.parts.setdefault(at, []).append((number, _Part(color, None, n, kind)))


def _emit(rng, p, part, label, trouble):
    """Write what a PE does in a round into its task."""
    dtype, packed = ("f32", None) if part.kind == "f32" else ("f16", part.kind == "packed")
    kind = p.half if dtype == "f16" else "f32"
    move, add = ("fmovs", "fadds") if dtype == "f32" else ("fmovh", "faddh")
    values = np.array([rng.choice((0.0, 1.0, -2.5, 0.125, 3.0)) for _ in range(part.n)])
    pieces = [part.n]
    if part.into is not None and rng.chance(trouble):
        first = rng.randint(1, part.n)
        pieces = [first] if rng.chance(0.2) or first == part.n else [first, part.n - first]
    for k, n in enumerate(pieces):
        options = {"async_": p.async_()} if rng.chance(trouble / 2) else {}
        a = p.array(f"{label}_{k}", part.n, kind, values)
        memory = p.mem1d(a, n, stride=0 if part.into is not None and rng.chance(0.3) else 1)
        arriving = None if part.into is None else p.fabin(part.into, n, packed=packed)
        leaving = None if part.out is None else p.fabout(part.out, n, packed=packed)
        if arriving is None:
            getattr(p, move)(leaving, memory, **options)
        elif rng.chance(0.3):
            getattr(p, move)(leaving or memory, arriving, **options)
        else:
            getattr(p, add)(leaving or memory, *rng.choice(((memory, arriving), (arriving, memory))), **options)


def _program(rng, numbers, name, parts, trouble):
    p = Program(name, numbers, half=rng.choice(("f16", "cb16")))
    out = [q for q, depth in enumerate(numbers["queue.out_depth"]) if depth]
    into = [q for q, depth in enumerate(numbers["queue.in_depth"]) if depth]
    rng.shuffle(out)
    rng.shuffle(into)
    for k, (_, part) in enumerate(parts):
        for color, own, bind in ((part.out, out, p.output_queue), (part.into, into, p.input_queue)):
            if color is not None:
                bind(own[k], color)
    late = rng.choice((1, 5, 30, 100)) if rng.chance(2 * trouble) else 0
    with p.task("main"):
        if late:
            count = p.reg16()
            p.ldi(count, 0)
            for _ in range(late):
                p.add16(count, count, 1)
        for number, part in sorted(parts, key=lambda pair: pair[0]):
            _emit(rng, p, part, f"r{number}", trouble)
    p.start("main")
    return p


def random_trains(rng, width=8, height=4):
    """Return the `FabricSpec` of a random machine whose streams mostly run freely, `width` x `height` PEs at most."""
    numbers = random_machine(rng) if rng.chance(0.5) else machine("wse2")
    fabric = _Fabric(rng.randint(2, width), rng.randint(1, height))
    for number in range(rng.randint(1, 3)):
        _grow(rng, fabric, number)
    layout = Layout(fabric.width, fabric.height, numbers)
    trouble = rng.choice((0.0, 0.0, 0.02, 0.1))
    for (x, y), parts in sorted(fabric.parts.items()):
        layout.place(_program(rng, numbers, f"p{x}_{y}", parts, trouble), x, y)
    for (color, (x, y)), (rx, tx) in fabric.routes.items():
        layout.route(color, (x, y), rx=rx, tx="".join(sorted(tx)))
    return layout.build()
