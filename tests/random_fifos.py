"""Random programs of one PE around FIFOs: microthreads and tasks that push and take, held up, ended and activated.

Steps of different widths lack something in turn, and every task may be activated by a FIFO; so what a step ends, and in
which cycle, decides what runs next.
"""

from dataclasses import replace

from fabric.layout.layout import Layout
from fabric.program.program import Program
from tests.random_machines import random_machine
from wse_core.image import F_TERMINATE

__all__ = ["random_fifos"]

INTO, OUT = 2, 3
TASKS = "abcd"
SIZE = 24  # elements of the array that operations read and write


def random_fifos(rng):
    """Return the `FabricSpec` of a PE whose tasks push to FIFOs, and take from them."""
    m = random_machine(rng)
    p = Program("fifos", m)
    memory = p.array("memory", SIZE, "u16", range(100, 100 + SIZE))
    fifos = [p.fifo(p.array(f"storage{k}", rng.randint(1, 5), "u16")) for k in range(rng.randint(1, 2))]
    into, out = p.input_queue(1, INTO), p.output_queue(2, OUT)

    def operation():
        fifo = replace(
            rng.choice(fifos),
            flags=F_TERMINATE * rng.chance(0.4),
            push_task=rng.choice(TASKS) if rng.chance(0.7) else None,
            pop_task=rng.choice(TASKS) if rng.chance(0.7) else None,
        )
        n, packed = rng.choice((1, 2, 3, 5, 8)), rng.chance(0.5)
        pushes, start = rng.chance(0.5), rng.choice((0, 4, 8))
        walk = memory[start : start + n]
        if rng.chance(0.6):
            other = walk
        else:
            other = p.fabin(into, n, packed=packed) if pushes else p.fabout(out, n, packed=packed)
        operands = (fifo, other) if pushes else (other, fifo)
        if pushes and rng.chance(0.2):
            op, operands = p.add16, (*operands, fifo if rng.chance(0.5) else walk)
        else:
            op = p.mov16
        handed = rng.chance(0.7) or None
        if handed:
            ut = rng.choice((0, 4, 5, 6)) if other is walk else None
            done = rng.choice(TASKS) if rng.chance(0.2) else None
            handed = p.async_(rng.choice(("low", "medium", "high")), ut=ut, activate=done)
        op(*operands, async_=handed)
        if rng.chance(0.3):
            p.q_state(p.r[4], "cut")
            p.st16(p.r[4], memory[SIZE - 1])

    for name in TASKS:
        with p.task(name):
            rng.several(1, 3, operation)
    p.start(TASKS[0])
    p.start(TASKS[1])
    layout = Layout(1, 1, m)
    layout.place(p, 0, 0)
    layout.route(INTO, None, "W", "R")
    layout.route(OUT, None, "R", "E")
    layout.input_stream(0, 0, "W", INTO)
    layout.output_stream(0, 0, "E", OUT)
    return layout.build()
