# %% [markdown]
# # A stencil: neighbours exchange their borders
#
# Heat in a rod, cut into pieces of cells, a piece per PE. Each step needs the last cell of the left neighbour and the
# first of the right one. You learn to exchange data without standing still, loops, and to prove that every bit is
# right.

# %%
import numpy as np

import wse

PES, CELLS, STEPS, RATE = 6, 16, 10, 0.25
EAST, WEST = (0, 1), (2, 3)  # two colors for each direction: PEs in even and odd columns send on different ones


def rod(k):
    """Return the program of PE k; cells 0 and CELLS + 1 of its array are copies of the neighbours' borders."""
    program = wse.Program(f"cells of PE {k}")
    t = program.array("t", CELLS + 2, "f32", bank=0)
    change = program.array("change", CELLS, "f32", bank=2)
    with program.task("main"), program.loop(STEPS):
        # Sends first, in microthreads: every neighbour has then sent before anyone waits for what arrives.
        if k < PES - 1:
            east = program.output_queue(0, EAST[k % 2])
            program.fmovs(program.fabout(east, 1), program.mem1d(t, 1, offset=CELLS), async_=True)
        if k > 0:
            west = program.output_queue(1, WEST[k % 2])
            program.fmovs(program.fabout(west, 1), program.mem1d(t, 1, offset=1), async_=True)
        if k > 0:
            program.fmovs(program.mem1d(t, 1), program.fabin(program.input_queue(2, EAST[(k - 1) % 2]), 1))
        if k < PES - 1:
            last = program.mem1d(t, 1, offset=CELLS + 1)
            program.fmovs(last, program.fabin(program.input_queue(3, WEST[(k + 1) % 2]), 1))
        left, middle, right = (program.mem1d(t, CELLS, offset=o) for o in (0, 1, 2))
        program.fadds(change, left, right)
        program.fsubs(change, change, middle)
        program.fsubs(change, change, middle)
        program.fmacs(middle, middle, change, RATE)
    return program


# %%
def heated(rod, start):
    """Run the programs that `rod` gives; return the cells at the end, and the run."""
    layout = wse.Layout(PES, 1)
    for k in range(PES):
        layout.place(rod(k), k, 0)
        if k < PES - 1:
            layout.route(EAST[k % 2], (k, 0), rx="R", tx="E")
            layout.route(EAST[k % 2], (k + 1, 0), rx="W", tx="R")
        if k > 0:
            layout.route(WEST[k % 2], (k, 0), rx="R", tx="W")
            layout.route(WEST[k % 2], (k - 1, 0), rx="E", tx="R")
    fabric = wse.Fabric(layout)
    padded = np.zeros((1, PES, CELLS + 2), np.float32)
    padded[0, :, 1:-1] = start.reshape(PES, CELLS)
    fabric.write("t", padded)
    fabric.launch("main")
    run = fabric.run()
    return fabric.read("t")[0, :, 1:-1].ravel(), run


start = np.zeros(PES * CELLS, np.float32)
start[PES * CELLS // 2] = 100.0
found, run = heated(rod, start)

# %% [markdown]
# The same in numpy, with each operation rounded as the machine rounds it: `fmacs` multiplies and adds with one
# rounding, which float64 gives here, since a product of two f32 is exact in it.

# %%
expected = start.copy()
for _ in range(STEPS):
    t = np.pad(expected, 1)
    change = ((t[:-2] + t[2:]) - t[1:-1]) - t[1:-1]
    expected = (expected.astype(np.float64) + change.astype(np.float64) * RATE).astype(np.float32)
assert np.array_equal(found, expected)
print(f"{STEPS} steps of {PES * CELLS} cells: {run.cycles} cycles, every bit as numpy has it")

# %% [markdown]
# `wse kernel stencil` is the same idea in three dimensions, a column of cells per PE.
#
# **Exercise.** The ends of the rod lose heat here. Keep it inside: what must the first and the last PE do instead of
# receiving?
