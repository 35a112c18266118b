"""Random machines that work: streams along rows and columns, with computing and stalls in between.

`random_machines` draws programs that make no sense and soon starve; these here run for thousands of cycles. Each color
carries one stream of n words from one PE along a straight line; every PE on the line may take a copy, the last one
does. Now and then the host takes a stream at the ramp of its sender, or sends it down the ramps of its takers. Each PE
sends and receives its streams in random order, synchronously or on microthreads of random priority, and computes in
memory and in registers meanwhile. Synchronous operations in a wrong order deadlock now and then; both machines must
then say so. On some, the first PE of a row sends teardowns along it, now and then, which start a task on each PE that
they pass, beside its streams.
"""

import numpy as np

from fabric.asm import control
from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.random_machines import random_machine
from wse_core.image import STEP

DIRECTIONS = "WENS"
TORN = 6
"""The color of teardowns."""
MEMORY_OPS = {"f32": ("fadds", "fsubs", "fmuls", "fmaxs"), "f16": ("faddh", "fsubh", "fmulh", "fmaxh")}


class _Stream:
    """One color's stream: where it runs, how long it is, what its elements are."""

    def __init__(self, rng, color, width, height):
        self.color, self.n = color, rng.choice((1, 2, 3, 7, 16, 33, 64))
        self.dtype, self.packed = rng.choice(("f32", "f32", "f16")), rng.chance(0.7)
        room = {
            (x, y, d): far
            for x in range(width)
            for y in range(height)
            for d, far in enumerate((x, width - 1 - x, y, height - 1 - y))
            if far
        }
        self.x, self.y, self.d = place = rng.among(
            list(room), lambda: (rng.randrange(width), rng.randrange(height), rng.randrange(4))
        )
        dx, dy = STEP[self.d]
        self.path = [(self.x + k * dx, self.y + k * dy) for k in range(rng.randint(1, room[place]) + 1)]
        self.takers = [place for place in self.path[1:-1] if rng.chance(0.5)] + [self.path[-1]]
        self.host = rng.choice((None,) * 8 + ("takes", "sends"))  # at a ramp, instead of the rest of the path
        if self.host == "takes":
            self.path, self.takers = self.path[:1], []

    def route(self, layout):
        """Paint the routes of this stream."""
        if self.host == "takes":
            layout.route(self.color, self.path[0], rx="R", tx="")
            layout.output_stream(*self.path[0], "R", self.color)
            return
        if self.host == "sends":
            for place in self.takers:
                layout.input_stream(*place, "R", self.color)
            return
        d, back = DIRECTIONS[self.d], DIRECTIONS[self.d ^ 1]
        layout.route(self.color, self.path[0], rx="R", tx=d)
        for place in self.path[1:-1]:
            layout.route(self.color, place, rx=back, tx=d + ("R" if place in self.takers else ""))
        layout.route(self.color, self.path[-1], rx=back, tx="R")


def _task_of_teardowns(rng, p):
    """Bind task 29: it computes for a moment, then has the color go on."""
    with p.task("teardown", id=29):
        count = p.reg16()
        p.ldi(count, 0)
        for _ in range(rng.randint(0, 5)):
            p.add16(count, count, 1)
        p.td_exit(TORN)


def _program(rng, machine, name, sends, takes, tears=None):
    """Return a program; `tears`: None, or how many teardowns this PE of the row that they pass sends."""
    p = Program(
        name,
        machine,
        half=rng.choice(("f16", "f16", "cb16")),
        main_priority=rng.choice(("medium_low", "medium", "medium_high", "high")),
    )
    out = [q for q, depth in enumerate(machine["queue.out_depth"]) if depth]
    into = [q for q, depth in enumerate(machine["queue.in_depth"]) if depth]
    rng.shuffle(out)
    rng.shuffle(into)
    half = p.half

    def array(label, n, dtype):
        kind = half if dtype == "f16" else "f32"
        values = np.array([rng.choice((0.0, 1.0, -2.5, 0.125, 3.0)) for _ in range(n)])
        return p.array(label, n, kind, values, bank=rng.choice((None, 0, 2, 4)))

    actions = []
    for k, s in enumerate(sends):
        p.output_queue(out[k], s.color)
        actions.append(("send", s, array(f"out{k}", s.n, s.dtype)))
    for k, s in enumerate(takes):
        p.input_queue(into[k], s.color)
        actions.append(("take", s, array(f"in{k}", s.n, s.dtype)))
    for k in range(rng.randint(0, 2)):
        dtype, n = rng.choice(("f32", "f16")), rng.choice((1, 5, 24, 60))
        actions.append(("memory", dtype, array(f"a{k}", n, dtype), array(f"b{k}", n, dtype)))
    for _ in range(rng.randint(0, 2)):
        actions.append(("scalar", rng.randint(1, 20)))
    if tears is not None:
        _task_of_teardowns(rng, p)
    if tears:
        p.output_queue(out[len(sends)], TORN)
        command = p.array("command", 1, "u32", np.array([control.single("teardown", 40)], np.uint32))
        actions += [("tear", command)] * tears
    rng.shuffle(actions)
    with p.task("main"):
        for action in actions:
            if action[0] == "scalar":
                acc = p.reg32()
                p.ldi32(acc, 0x3F800000)
                with p.loop(action[1]):
                    p.fmuls(acc, acc, acc) if rng.chance(0.5) else p.add32(acc, acc, acc)
            elif action[0] == "memory":
                _, dtype, a, b = action
                getattr(p, rng.choice(MEMORY_OPS[dtype]))(a, a, b)
            elif action[0] == "tear":
                p.mov32(p.fabout(TORN, 1, control=True), p.mem1d(action[1], 1))
            else:
                way, s, a = action
                options = {}
                if rng.chance(0.6):
                    options["async_"] = p.async_(priority=rng.choice(("low", "medium", "high")))
                move = "fmovs" if s.dtype == "f32" else "fmovh"
                add = "fadds" if s.dtype == "f32" else "faddh"
                packed = None if s.dtype == "f32" else s.packed
                if way == "send":
                    getattr(p, move)(p.fabout(s.color, s.n, packed=packed), a, **options)
                elif rng.chance(0.5):
                    getattr(p, move)(a, p.fabin(s.color, s.n, packed=packed), **options)
                else:
                    getattr(p, add)(a, a, p.fabin(s.color, s.n, packed=packed), **options)
    p.start("main")
    return p


def random_traffic(rng):
    """Return the `FabricSpec` of a random machine with live streams."""
    machine = random_machine(rng)
    width, height = rng.randint(2, 5), rng.randint(1, 4)
    streams = [_Stream(rng, color, width, height) for color in range(rng.randint(1, 6))]
    layout = Layout(width, height, machine)
    torn = rng.choice((None, None, rng.randrange(height)))  # a row
    if sum((s.x, s.y) == (0, torn) and s.host != "sends" for s in streams) == 6:
        torn = None  # no output queue is left for teardowns
    for y in range(height):
        for x in range(width):
            sends = [s for s in streams if (s.x, s.y) == (x, y) and s.host != "sends"]
            takes = [s for s in streams if (x, y) in s.takers]
            tears = None if y != torn else 0 if x else rng.randint(1, 6)
            if sends or takes or tears is not None or rng.chance(0.3):
                layout.place(_program(rng, machine, f"p{x}_{y}", sends, takes, tears), x, y)
    for s in streams:
        s.route(layout)
    if torn is not None:
        layout.route(TORN, (0, torn), rx="R", tx="E")
        layout.route(TORN, (1, torn, width - 1, 1), rx="W", tx="E")
        layout.output_stream(width - 1, torn, "E", TORN)
    return layout.build()
